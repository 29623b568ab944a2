"""Several posteriors of one architecture with equal weight: a Gaussian around each mode of an ensemble."""

from collections.abc import Callable, Iterable, Iterator
from itertools import zip_longest
from typing import Any, ClassVar

import torch
from torch import Tensor

from osculate.inputs import Inputs
from osculate.posteriors._base import Posterior, Sampled, as_posterior
from osculate.posteriors.samples import require_one_architecture
from osculate.settings import differences


class Mixture(Sampled):
    r"""q(θ) = (1/M) Σ_m q_m(θ): a posterior around each of several modes, with equal weight. [eschenhagen2021]

    .. math:: p(y \mid x) = \tfrac1M \sum_m \int p(y \mid f(x; \theta))\, q_m(\theta)\, d\theta

    A deep ensemble covers several modes without their widths, a Laplace approximation the width of one mode. The
    predictive is the mixture of those of the members, in any way that all of them share: class probabilities are
    averaged, real-valued targets and counts have a mixture of the members' distributions. ``samples`` counts the draws
    of all members together, spread as evenly as possible. Each member keeps its own prior and noise scale.

    Attributes:
        members: The posteriors; ``network`` and ``likelihood`` are those of the first.

    Args:
        members: Posteriors, or what ``osc.train`` returned, over networks of one architecture.

    Raises:
        ValueError: fewer than two members, one of them twice, other architectures, likelihoods that differ in more than
            their noise scale, members on other devices or in other floating types, or no way to predict that all have.
        TypeError: a member that is not a posterior, or that cannot be sampled.

    Cost: that of the members, one after the other.

    >>> import osculate as osc
    >>> data, likelihood = (torch.randn(30, 2), torch.randint(3, (30,))), osc.likelihoods.Categorical()
    >>> ensemble = osc.methods.DeepEnsemble([torch.nn.Linear(2, 3) for _ in range(3)], likelihood)
    >>> done = osc.train(ensemble, data, epochs=2, progress=False)
    >>> q = osc.posteriors.Mixture([osc.laplace(network, likelihood, data, prior=1.0) for network in done.model])
    >>> q
    Mixture(3 x Gaussian, likelihood=Categorical)
    >>> osc.predict(q, data[0]).probs.shape
    torch.Size([30, 3])
    """

    gaussian_instead: ClassVar[str] = (
        "Do it to each member, and mix the results: osc.posteriors.Mixture([... for member in q.members])."
    )

    def __init__(self, members: Any) -> None:
        if isinstance(members, Posterior) or not isinstance(members, Iterable):
            raise TypeError(f"Mixture takes a list of posteriors, got {type(members).__name__}: Mixture([q1, q2]).")
        posteriors = [as_posterior(member) for member in members]
        for q in posteriors:
            if not isinstance(q, Sampled):
                raise TypeError(
                    f"a member of a mixture must be a posterior with a width, got a {type(q).__name__}: fit "
                    "osc.laplace(model, likelihood, data) around each network, or mix the networks alone with "
                    "osc.posteriors.Ensemble."
                )
        self.members = tuple(q for q in posteriors if isinstance(q, Sampled))
        _require_alike(self.members)
        self.network, self.likelihood = self.members[0].network, self.members[0].likelihood

    @property
    def ways(self) -> tuple[str, ...]:  # type: ignore[override]
        """The ways to predict that all members share, the default of the first member first."""
        first, *others = self.members
        return tuple(way for way in first.ways if all(way in other.ways for other in others))

    def shares(self, samples: int) -> list[tuple[Sampled, int]]:
        """Each member with its number of draws, one more for the first ones where they do not divide evenly."""
        return [(q, len(range(number, samples, len(self.members)))) for number, q in enumerate(self.members)]

    def draws(self, samples: int, generator: torch.Generator | None = None) -> Iterator[Callable[[Inputs], Tensor]]:
        """Networks from the members in turn."""
        for turn in zip_longest(*(member.draws(share, generator) for member, share in self.shares(samples))):
            yield from (function for function in turn if function is not None)

    def to(self, device: Any = None, dtype: Any = None) -> "Mixture":
        """The same posterior on another device or in another floating type."""
        return Mixture([member.to(device, dtype) for member in self.members])

    def __repr__(self) -> str:
        kinds = [type(member).__name__ for member in self.members]
        members = " + ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds))
        return f"Mixture({members}, likelihood={type(self.likelihood).__name__})"


def _require_alike(members: tuple[Sampled, ...]) -> None:
    """Raise ValueError unless the members differ and can be mixed."""
    if len(members) < 2:
        raise ValueError(f"a mixture needs at least two members, got {len(members)}: pass one posterior as it is.")
    for number, member in enumerate(members):
        before = next(n for n, each in enumerate(members) if each is member)
        if before < number:
            raise ValueError(
                f"members {before} and {number} of the mixture are the same posterior: fit one around each of several "
                "networks, trained from other seeds."
            )
    require_one_architecture([member.model for member in members], "mixture")
    first = members[0]
    for number, member in enumerate(members):
        if difference := differences(first.likelihood, member.likelihood, apart_from=("scale",)):
            raise ValueError(
                f"member {number} of the mixture has another likelihood than the first ({difference}): fit all with "
                "one likelihood. Noise scales may differ."
            )
        mine, theirs = ((q.network.device, q.network.dtype) for q in (first, member))
        if mine != theirs:
            raise ValueError(
                f"member {number} of the mixture is on {theirs[0]} in {theirs[1]}, the first on {mine[0]} in "
                f"{mine[1]}: move one with .to(device, dtype)."
            )
        if not set(first.ways) & set(member.ways):
            raise ValueError(
                f"member {number} of the mixture, a {type(member).__name__}, predicts by {_listed(member.ways)}, and "
                f"the first, a {type(first).__name__}, by {_listed(first.ways)}: mix members that share a way."
            )
    if not set(first.ways).intersection(*(member.ways for member in members)):
        raise ValueError("no way to predict is shared by all members of the mixture: mix members of one kind.")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
