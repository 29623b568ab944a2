"""Posteriors made of networks: the members of an ensemble, passes with dropout, the snapshots of a training run."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from osculate.inputs import Inputs
from osculate.likelihoods import Likelihood
from osculate.parameters import Network, require_deterministic_layers, require_shapes
from osculate.posteriors._base import Sampled
from osculate.randomness import drawn_on, fresh_seed, seeded
from osculate.settings import first_difference


class Ensemble(Sampled):
    r"""q(θ) = (1/M) Σ_m δ(θ − θ_m): every member predicts, with equal weight. [lakshminarayanan2017]

    A predictive is the mixture of those of the M members, independent of ``samples``.

    Attributes:
        members: The networks, each with its own buffers; ``network`` is the first.

    Args:
        models: The trained members, of one architecture, in evaluation mode; they are copied.
        likelihood: p(y|f).

    Raises:
        ValueError: fewer than two members, members of different architectures, two that are equal, active dropout or
            batch normalisation in training mode.

    >>> import osculate as osc
    >>> q = Ensemble([nn.Linear(2, 3), nn.Linear(2, 3)], osc.likelihoods.Categorical())
    >>> osc.predict(q, torch.zeros(4, 2)).probs.shape
    torch.Size([4, 3])
    """

    ways: ClassVar[tuple[str, ...]] = ("members",)

    def __init__(self, models: Iterable[nn.Module], likelihood: Likelihood) -> None:
        models = listed(models, "Ensemble")
        require_members(models)
        for model in models:
            require_deterministic_layers(model)
        self.members = tuple(Network(model, [name for name, _ in model.named_parameters()]) for model in models)
        self.network = self.members[0]
        self.likelihood = likelihood

    def draws(self, samples: int, generator: torch.Generator | None = None) -> Iterator[Callable[[Inputs], Tensor]]:
        """The members, each once."""
        yield from self.members

    def to(self, device: Any = None, dtype: Any = None) -> "Ensemble":
        """The same posterior on another device or in another floating type."""
        return Ensemble([member.to(device, dtype).module for member in self.members], self.likelihood)

    def __repr__(self) -> str:
        return f"Ensemble(members={len(self.members)}, likelihood={type(self.likelihood).__name__})"


def listed(models: Any, what: str) -> list[nn.Module]:
    """The networks of an ensemble.

    Raises:
        TypeError: a single network, as its layers would count as members.
    """
    if isinstance(models, nn.Module) and not isinstance(models, nn.ModuleList):
        raise TypeError(
            f"{what} takes a list of networks, got one of type {type(models).__name__}: pass "
            f"{what}([make() for _ in range(5)], likelihood), each with its own weights."
        )
    return list(models)


def require_members(models: list[nn.Module]) -> None:
    """Raise ValueError unless the networks are two or more of one architecture with different weights.

    Raises:
        ValueError: fewer than two, different architectures, or two that are equal.
    """
    if len(models) < 2:
        raise ValueError(f"an ensemble needs at least two members, got {len(models)}. For one network use methods.MAP.")
    for model in models:
        require_shapes(model)
    require_one_architecture(models, "ensemble")
    states = [dict(model.named_parameters()) for model in models]
    for n, state in enumerate(states):
        for m, other in enumerate(states[:n]):
            if not first_difference(other, state):
                raise ValueError(
                    f"members {m} and {n} of the ensemble have equal weights, and training would keep them equal. "
                    "Build each network anew, or from another seed."
                )


def require_one_architecture(models: Sequence[nn.Module], what: str) -> None:
    """Raise ValueError if the parameters of a network have other names or shapes than those of the first.

    Args:
        models: The networks.
        what: Name of the whole, for the error.

    Raises:
        ValueError: the message names the first parameter that differs.
    """
    shapes = [{name: tuple(p.shape) for name, p in model.named_parameters()} for model in models]
    for n, mine in enumerate(shapes):
        if name := first_difference(shapes[0], mine):
            raise ValueError(
                f"member {n} of the {what} has another architecture than the first: {name!r} has shape "
                f"{mine.get(name)}, not {shapes[0].get(name)}. Use members of one architecture."
            )


class Dropout(Sampled):
    r"""q(θ): weights with the units that dropout removes set to zero. [gal2016]

    A predictive is the mixture of S passes with dropout active, everything else in evaluation mode. Each pass draws a
    mask for every datum, as training does: the functions of :func:`osculate.sample_functions` are independent from
    datum to datum given the weights. The generator decides the masks; torch's own random state stays as it was. The
    masks of one generator also depend on how many inputs pass at once (``memory``).

    Args:
        model: The trained module with dropout layers; it is copied.
        likelihood: p(y|f).

    Raises:
        ValueError: the module has no dropout layer with p > 0. Calls of ``torch.nn.functional.dropout`` count only in
            a module that also holds such a layer.

    >>> import osculate as osc
    >>> model = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.1), nn.Linear(8, 3))
    >>> osc.predict(Dropout(model, osc.likelihoods.Categorical()), torch.zeros(4, 2), samples=20).probs.shape
    torch.Size([4, 3])
    """

    ways: ClassVar[tuple[str, ...]] = ("dropout", "mode")

    def __init__(self, model: nn.Module, likelihood: Likelihood) -> None:
        require_dropout(model)
        self.network = Network(model, [name for name, _ in model.named_parameters()])
        self.network.module.eval()
        # parents of a dropout layer too: fused paths of containers in evaluation mode would skip it
        layers = self.network.module.named_modules()
        self._dropping = [name for name, layer in layers if any(map(_drops, layer.modules()))]
        self.likelihood = likelihood

    def draws(self, samples: int, generator: torch.Generator | None = None) -> Iterator[Callable[[Inputs], Tensor]]:
        """Passes with dropout active; each call of one draws new masks."""
        for _ in range(samples):
            yield partial(self._dropped, generator)

    def _dropped(self, generator: torch.Generator | None, x: Inputs) -> Tensor:
        with seeded(fresh_seed(generator), self.network.device):
            return self.network(x, within=self._with_dropout)

    def _with_dropout(self, module: nn.Module) -> AbstractContextManager:
        for name in self._dropping:
            module.get_submodule(name).training = True
        return nullcontext()

    def to(self, device: Any = None, dtype: Any = None) -> "Dropout":
        """The same posterior on another device or in another floating type."""
        return Dropout(self.network.to(device, dtype).module, self.likelihood)

    def __repr__(self) -> str:
        return f"Dropout(P={self.network.space.size:,}, likelihood={type(self.likelihood).__name__})"


def require_dropout(model: nn.Module) -> None:
    """Raise ValueError if a network has no dropout.

    Raises:
        ValueError: no dropout layer, or all with p = 0.
    """
    if not any(map(_drops, model.modules())):
        raise ValueError(
            "the network has no dropout layer with p > 0, so that every pass would be the same: put "
            "torch.nn.Dropout(p) between its layers (calls of torch.nn.functional.dropout cannot be found)."
        )


def _drops(layer: nn.Module) -> bool:
    if isinstance(layer, nn.modules.dropout._DropoutNd):
        return layer.p > 0
    if isinstance(layer, nn.RNNBase):
        return layer.dropout > 0 and layer.num_layers > 1
    return isinstance(layer, nn.MultiheadAttention) and layer.dropout > 0


class Snapshots(Sampled):
    r"""The Gaussian through the snapshots of a training run, diagonal plus low rank. [maddox2019, eq. 1]

    .. math:: q(\theta) = N\Big(\bar\theta,\;
              \tfrac12 \operatorname{diag}(\sigma^2) + \tfrac{1}{2 (K - 1)} D^\top D\Big)

    with σ² the variances of the weights along the run and D their last K deviations from the running mean. Without
    deviations (K = 0) the covariance is diag(σ²).

    Args:
        network: The network at the mean of the snapshots.
        likelihood: p(y|f).
        diagonal: σ², of all snapshots.
        deviations: D, of the last K.

    Attributes:
        diagonal: σ².
        deviations: D.
    """

    ways: ClassVar[tuple[str, ...]] = ("sampled",)

    def __init__(
        self, network: Network, likelihood: Likelihood, diagonal: Float[Tensor, " P"], deviations: Float[Tensor, "K P"]
    ) -> None:
        self.network, self.likelihood = network, likelihood
        self.diagonal, self.deviations = diagonal, deviations

    @property
    def mean(self) -> Float[Tensor, " P"]:
        """θ̄, flat, in the order of ``named_parameters()``."""
        return self.network.mean

    def variance(self) -> Float[Tensor, " P"]:
        """The variance of each parameter: σ² where K = 0, else half of it and half of that of the deviations."""
        rank = len(self.deviations)
        return self.diagonal if rank == 0 else 0.5 * (self.diagonal + self.deviations.square().sum(0) / (rank - 1))

    def sample(self, n: int = 1, generator: torch.Generator | None = None) -> Float[Tensor, "n P"]:
        """Draw ``n`` parameter vectors, each with random numbers of its own. Cost: O(n K P)."""
        mean, rank, size = self.mean, len(self.deviations), len(self.diagonal)
        on = drawn_on(mean, generator)
        draws = [torch.randn(size + rank, generator=generator, device=on, dtype=mean.dtype) for _ in range(n)]
        alone, together = torch.stack(draws).to(mean.device).split([size, rank], dim=1)
        alone = alone * self.diagonal.sqrt()
        if rank == 0:
            return mean + alone
        return mean + 0.5**0.5 * (alone + together @ self.deviations / (rank - 1) ** 0.5)

    def draws(self, samples: int, generator: torch.Generator | None = None) -> Iterator[Callable[[Inputs], Tensor]]:
        """The network at sampled weights.

        Raises:
            ValueError: a batch normalisation, which has no statistics for sampled weights.
        """
        if name := batch_normalisation(self.model):
            raise ValueError(refusal(name))
        for _ in range(samples):
            yield partial(self.network, theta=self.network.space.unflatten(self.sample(1, generator)[0]))

    def to(self, device: Any = None, dtype: Any = None) -> "Snapshots":
        """The same posterior on another device or in another floating type."""
        network = self.network.to(device, dtype)
        diagonal, deviations = (t.to(network.device, network.state_dtype) for t in (self.diagonal, self.deviations))
        return Snapshots(network, self.likelihood, diagonal, deviations)

    def __repr__(self) -> str:
        return (
            f"Snapshots(rank={len(self.deviations)}, P={len(self.diagonal):,}, "
            f"likelihood={type(self.likelihood).__name__})"
        )


def batch_normalisation(model: nn.Module) -> str:
    """The name of the first layer that keeps statistics of its inputs; "" for none."""
    kind = nn.modules.batchnorm._NormBase
    return next((n for n, layer in model.named_modules() if isinstance(layer, kind) and layer.track_running_stats), "")


def refusal(name: str) -> str:
    """The error for snapshots of a network with this layer."""
    return (
        f"the batch normalisation {name!r} keeps statistics that belong to one setting of the weights, and the "
        "Gaussian through snapshots samples others: it cannot predict. Use GroupNorm or LayerNorm in place of it, or "
        "methods.DeepEnsemble."
    )
