"""A prior over hyperparameters that favours functions of small total variation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from osculate.batches import require_inputs
from osculate.checks import require_positive, require_whole
from osculate.curvature.linearisation import Linearisation
from osculate.inputs import Inputs, moved
from osculate.memory import even_parts
from osculate.posteriors import as_gaussian
from osculate.priors import Prior
from osculate.progress import track

#: Largest number of differences between neighbours; a sample of this size gives κ to about 3 %.
DIFFERENCES = 512
#: Number of differences that are pulled back through the network at once.
AT_ONCE = 16


@dataclass(frozen=True)
class PredCP:
    r"""p(δ_b) ∝ Exp(κ_b; λ) |∂κ_b/∂δ_b| over one hyperparameter of each group. [antoran2023dip; nalisnick2021]

    .. math:: \kappa_b = \mathbb{E}\, \mathrm{TV}\big(f(\theta^*) + J_b \theta_b\big), \qquad
              \theta_b \sim N(0, \Sigma_b)

    δ_b is the logarithm of the precision, or of the length-scale where filters have one. (Given their precision, the
    integral over log ℓ_b depends on it, as the range of κ_b does. As in the document this normaliser is omitted, so
    that filters of several entries have a joint penalty of both, not a density.)

    Total variation is a sum of absolute values of Gaussian variables,

    .. math:: \mathbb{E}\lvert N(m, s^2)\rvert = s\sqrt{2/\pi}\, e^{-m^2/2s^2} + m\, \mathrm{erf}(m/s\sqrt2), \qquad
              s_{bi}^2 = \sum_c w_{bc}\, t_{bci}

    with the classes c of the prior (see ``Prior.class_weights``), so that κ, and by differentiation its Jacobian, are
    closed forms of the hyperparameters: no function is drawn, and the network is not needed once t is known.

    Attributes:
        means: m, differences of f(θ*).
        spreads: t of each group.
        shares: Number of differences that each one represents.
        weight: λ, in nats per unit of total variation.
    """

    means: Float[Tensor, " T"]
    spreads: list[Float[Tensor, "_ T"]]
    shares: Float[Tensor, " T"]
    weight: float

    @classmethod
    def of(
        cls,
        q: Any,
        x: Inputs,
        weight: float,
        axes: Sequence[int] = (-1, -2),
        count: int = DIFFERENCES,
        progress: bool = False,
    ) -> "PredCP":
        """Pull differences between neighbouring values of the function back through the network.

        Args:
            q: A Gaussian posterior; its prior defines the groups.
            x: Inputs.
            weight: λ.
            axes: Axes of f(x) along which values are neighbours: the last two for images, 0 for inputs in their order.
            count: Largest number of differences; of more, a sample represents all, drawn in proportion to size (each
                divided by its probability).
            progress: Show a progress bar.

        Raises:
            ValueError: no value has a neighbour, a weight that is not positive, or inputs that are empty or not finite.

        Cost: a backward pass for each difference.

        >>> import osculate as osc
        >>> x = torch.linspace(-1, 1, 20).unsqueeze(1)
        >>> likelihood = osc.likelihoods.Gaussian(0.1)
        >>> q = osc.laplace(torch.nn.Linear(1, 1), likelihood, (x, x), structure="full", prior=1.0, refine=False)
        >>> smooth = osc.maximise_evidence(q, hyperprior=PredCP.of(q, x, weight=30.0, axes=(0,)))
        >>> bool(smooth.prior.precision > osc.maximise_evidence(q, mode="linear").prior.precision)
        True
        """
        q = as_gaussian(q, "PredCP")
        require_positive("weight", weight)
        require_whole("count", count)
        if not isinstance(axes, Sequence):
            raise TypeError(f"axes must be a sequence such as (-1, -2) or (0,), got {axes!r}.")
        require_inputs(x)
        at = Linearisation(q.network, moved(x, q.network.device))
        f = at.f
        before, after = _neighbours(f.shape, axes)
        means = (f.reshape(-1)[after] - f.reshape(-1)[before]).double().cpu()
        chosen, shares = _representatives(means.abs(), count)
        parts, found = even_parts(len(chosen), AT_ONCE), []
        for part in track(parts, "total variation: Jacobian", len(parts), progress):
            units = f.new_zeros(part.stop - part.start, f.numel())
            row = torch.arange(len(units))
            units[row, after[chosen[part]]], units[row, before[chosen[part]]] = 1, -1
            rows = at.vjp(units.reshape(-1, *f.shape)) * q.structure.covered.to(f.device)
            found.append(q.prior.class_diagonals(rows, q.network.space))
        spreads = [torch.cat(each, 1).cpu() for each in zip(*found, strict=True)]
        return cls(means[chosen], spreads, shares, weight)

    def expected_variation(self, prior: Prior) -> Float[Tensor, " B"]:
        """κ of each group."""
        classes = prior.class_weights()
        if [len(each) for each in self.spreads] != [weights.shape[-1] for weights in classes]:
            raise ValueError(
                f"this PredCP was made for {len(self.spreads)} groups of parameters, and {prior!r} has others: make it "
                "of a posterior with this prior."
            )
        found = []
        for weights, spread in zip(classes, self.spreads, strict=True):
            deviation = (weights.to(spread) @ spread).clamp(min=1e-30).sqrt()
            ratio = self.means / deviation
            hump = math.sqrt(2 / math.pi) * deviation * torch.exp(-0.5 * ratio.square())
            found.append(self.shares @ (hump + self.means * torch.erf(ratio / math.sqrt(2))))
        return torch.stack(found)

    def __call__(self, prior: Prior) -> Float[Tensor, ""]:
        """−log p of the hyperparameters; differentiable."""
        logs = {name: value.double().log() for name, value in prior.hyperparameters.items()}
        for values in logs.values():
            if not values.requires_grad:
                values.requires_grad_()
        kappa = self.expected_variation(prior.with_hyperparameters({name: each.exp() for name, each in logs.items()}))
        first, *others = torch.autograd.grad(kappa.sum(), list(logs.values()), create_graph=True)
        slope = first.reshape(-1)
        for other in others:  # a length-scale has no effect on filters of a single entry
            slope = torch.where(other != 0, other, slope)
        slope = slope.abs().clamp(min=1e-12).cpu()
        return (self.weight * kappa - slope.log() - math.log(self.weight)).sum()


def _neighbours(shape: torch.Size, axes: Sequence[int]) -> tuple[Int[Tensor, " N"], Int[Tensor, " N"]]:
    """The flat indices of all pairs of neighbours.

    Raises:
        ValueError: there are none.
    """
    index = torch.arange(shape.numel()).reshape(shape)
    axes = [axis for axis in axes if -len(shape) <= axis < len(shape) and shape[axis] > 1]
    if not axes:
        raise ValueError(
            f"no two values of a function of shape {tuple(shape)} are neighbours: name the axes along which they are, "
            "such as axes=(0,) for inputs in their order."
        )
    before = [index.narrow(axis, 0, shape[axis] - 1).reshape(-1) for axis in axes]
    after = [index.narrow(axis, 1, shape[axis] - 1).reshape(-1) for axis in axes]
    return torch.cat(before), torch.cat(after)


def _representatives(sizes: Float[Tensor, " N"], count: int) -> tuple[Int[Tensor, " T"], Float[Tensor, " T"]]:
    """Indices of a sample of differences, and the number of differences that each represents.

    Half are drawn in proportion to the size of a difference and half uniformly, in equal strata: κ is a sum of |m| at
    edges, and of s elsewhere.
    """
    if len(sizes) <= count:
        return torch.arange(len(sizes)), torch.ones_like(sizes)
    likely = sizes + sizes.mean().clamp(min=1e-12)
    likely = count * likely / likely.sum()
    places = torch.arange(count) + torch.rand(count, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    chosen = torch.searchsorted(likely.cumsum(0), places).clamp(max=len(sizes) - 1)
    chosen, times = chosen.unique_consecutive(return_counts=True)
    return chosen, times / likely[chosen]
