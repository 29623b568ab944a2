"""A prior over the filters of a convolutional network, in which neighbouring entries of a filter are correlated."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor, nn

from osculate.linalg import cholesky
from osculate.memory import even_parts
from osculate.parameters import ParameterSpace

#: Layers whose weights are filters.
CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)
#: Initial variance of a block and its initial length-scale (in pixels of a filter).
VARIANCE, LENGTHSCALE = 1.0, 0.1
#: Largest number of doubles in a chunk of a block's filters.
PART = 2**24


@dataclass(frozen=True)
class FilterBlock:
    """Convolutions that share a prior.

    Attributes:
        name: Name of the module that holds them.
        parameters: Their weights.
        kernel: Height and width of a filter.
    """

    name: str
    parameters: tuple[str, ...]
    kernel: tuple[int, int]

    @property
    def positions(self) -> int:
        """k, the number of entries of a filter."""
        return self.kernel[0] * self.kernel[1]

    @cached_property
    def _distances(self) -> Float[Tensor, "k k"]:
        at = torch.cartesian_prod(torch.arange(self.kernel[0]), torch.arange(self.kernel[1])).reshape(-1, 2).double()
        return torch.cdist(at, at)

    @cached_property
    def distances(self) -> Float[Tensor, " E"]:
        """The different distances d between two entries of a filter, ascending: six of a 3 × 3 filter."""
        return self._distances.square().round().unique().sqrt()

    @cached_property
    def pairs(self) -> Float[Tensor, "E k k"]:
        """A mask of the pairs of entries at each distance."""
        return ((self._distances - self.distances[:, None, None]).abs() < 1e-6).double()

    def correlation(self, lengthscale: Float[Tensor, ""]) -> Float[Tensor, "k k"]:
        """exp(−d/ℓ)."""
        return torch.exp(-self._distances / lengthscale)


@dataclass(frozen=True)
class FilterPrior:
    r"""Every filter of block b is N(0, Σ_b), independent of the others. [antoran2023dip]

    .. math:: [\Sigma_b]_{ij} = v_b \exp(-d_{ij}/\ell_b) = v_b \sum_{\delta} e^{-\delta/\ell_b} [D_\delta]_{ij}

    d_ij is the distance between two entries of a filter in pixels, and D_δ marks the pairs at distance δ: six classes
    for a 3 × 3 filter, one for a 1 × 1 filter, which has a variance only. Biases and normalisations are constants.

    Args:
        blocks: Groups of convolutions that share v and ℓ.
        space: Names and shapes of their weights, in the network's order.
        variance: v, one per block.
        lengthscale: ℓ, one per block; unused for 1 × 1 filters.
    """

    blocks: tuple[FilterBlock, ...]
    space: ParameterSpace
    variance: Float[Tensor, " B"]
    lengthscale: Float[Tensor, " B"]

    @classmethod
    def of(cls, network: nn.Module) -> "FilterPrior":
        """One block for each module that holds convolutions, and each size of their filters.

        Convolutions directly in the network form a block each.

        Raises:
            ValueError: the network has no two-dimensional convolution that is trained, or two share a weight.
        """
        found: dict[tuple, list[str]] = {}
        for name, layer in network.named_modules():
            if isinstance(layer, CONVOLUTIONS) and layer.weight.requires_grad:
                holder = name.rpartition(".")[0] or name
                found.setdefault((holder, tuple(layer.kernel_size)), []).append(f"{name}.weight" if name else "weight")
        if not found:
            raise ValueError(
                "the prior is over the filters of two-dimensional convolutions that are trained: the network has none."
            )
        holders = [holder for holder, _ in found]
        blocks = tuple(
            FilterBlock(
                f"{holder}, {kernel[0]} × {kernel[1]}" if holders.count(holder) > 1 else holder, tuple(names), kernel
            )
            for (holder, kernel), names in found.items()
        )
        wanted = {name for block in blocks for name in block.parameters}
        if missing := wanted - {name for name, _ in network.named_parameters()}:
            raise ValueError(
                f"{', '.join(sorted(missing))} is not a parameter of its own, but shared or computed (weight "
                "normalisation?): the prior is over filters. Remove the parametrisation, or give each layer a weight "
                "of its own."
            )
        space = ParameterSpace.of({name: p for name, p in network.named_parameters() if name in wanted})
        start = torch.ones(len(blocks), dtype=torch.double)
        return cls(blocks, space, VARIANCE * start, LENGTHSCALE * start)

    def replace(self, variance: Tensor, lengthscale: Tensor) -> "FilterPrior":
        """The same blocks with other values."""
        return replace(self, variance=variance, lengthscale=lengthscale)

    @property
    def correlated(self) -> list[int]:
        """The indices of blocks with filters of several entries, which have a length-scale."""
        return [number for number, block in enumerate(self.blocks) if block.positions > 1]

    def split(self, theta: Float[Tensor, "*S P"]) -> list[Float[Tensor, "*S _ _"]]:
        """Flat weights to filters: one tensor (*S, F, k) per block."""
        named, batch = self.space.unflatten(theta), theta.shape[:-1]
        return [
            torch.cat([named[name].reshape(*batch, -1, block.positions) for name in block.parameters], -2)
            for block in self.blocks
        ]

    def merge(self, filters: Sequence[Float[Tensor, "*S _ _"]]) -> Float[Tensor, "*S P"]:
        """The inverse of :meth:`split`."""
        named: dict[str, Tensor] = {}
        sizes = dict(zip(self.space.names, self.space.sizes, strict=True))
        for block, own in zip(self.blocks, filters, strict=True):
            parts = own.flatten(-2).split([sizes[name] for name in block.parameters], -1)
            named.update(zip(block.parameters, parts, strict=True))
        return torch.cat([named[name] for name in self.space.names], -1)

    def covariances(self) -> list[Float[Tensor, "_ _"]]:
        """Σ_b."""
        triples = zip(self.blocks, self.variance, self.lengthscale, strict=True)
        return [v * block.correlation(scale) for block, v, scale in triples]

    def class_weights(self) -> list[Float[Tensor, " _"]]:
        """v_b e^(−δ/ℓ_b) for the distances δ of each block; differentiable."""
        triples = zip(self.blocks, self.variance, self.lengthscale, strict=True)
        return [v * torch.exp(-block.distances.to(v) / scale) for block, v, scale in triples]

    def covariance_product(self, theta: Float[Tensor, "*S P"]) -> Float[Tensor, "*S P"]:
        """Σ θ."""
        return self._each(theta, self.covariances())

    def root_product(self, theta: Float[Tensor, "*S P"]) -> Float[Tensor, "*S P"]:
        """L θ with L Lᵀ = Σ, so that white noise becomes a draw from the prior."""
        return self._each(theta, [cholesky(covariance) for covariance in self.covariances()])

    def sample(self, count: int, like: Tensor, generator: torch.Generator | None = None) -> Float[Tensor, "S P"]:
        """Weights drawn from the prior, in the type and on the device of a tensor."""
        noise = torch.randn(count, self.space.size, generator=generator, dtype=torch.float64)
        return self.root_product(noise.to(like))

    def penalty(self, theta: Float[Tensor, " P"]) -> Float[Tensor, ""]:
        """θᵀ Σ⁻¹ θ; differentiable in variance and length-scale."""
        total = self.variance.new_zeros(())
        for filters, covariance in zip(self.split(theta), self.covariances(), strict=True):
            moment = (filters.mT @ filters).to(covariance)
            total = total + torch.linalg.solve(covariance, moment).trace()
        return total

    def _each(self, theta: Tensor, matrices: Sequence[Tensor]) -> Tensor:
        filters = zip(self.split(theta), matrices, strict=True)
        return self.merge([own @ matrix.detach().to(theta).T for own, matrix in filters])


def prior_covariance(prior: FilterPrior, rows: Tensor) -> Float[Tensor, "D D"]:
    """J Σ Jᵀ in double precision."""
    total = torch.zeros(len(rows), len(rows), dtype=torch.double, device=rows.device)
    for filters, covariance in zip(prior.split(rows), prior.covariances(), strict=True):
        root = cholesky(covariance).to(rows.device)
        for part in even_parts(filters.shape[1], max(1, PART // (len(rows) * len(root)))):
            half = (filters[:, part].double() @ root).flatten(1)
            total.addmm_(half, half.T)
    return total


def class_grams(prior: FilterPrior, rows: Float[Tensor, "V P"]) -> Float[Tensor, "E V V"]:
    r"""M for every block and class of distance δ, in double precision.

    The prior of a block mixes a few constant matrices D_δ (see :class:`FilterPrior`), and therefore

    .. math:: R J \Sigma J^\top R^\top = \sum_b \sum_\delta v_b e^{-\delta/\ell_b} M_{b\delta}, \qquad
              M_{b\delta} = \sum_{f \in b} (R J_f) D_\delta (R J_f)^\top

    for any rows R in image space. M is computed once; after it no Jacobian is needed.

    Args:
        prior: Prior that defines filters and distances.
        rows: R J.

    Cost: 2·V²·P operations for each class of distance of a filter's block.
    """
    result = []
    for block, filters in zip(prior.blocks, prior.split(rows), strict=True):
        total = torch.zeros(len(block.distances), len(rows), len(rows), dtype=torch.double, device=rows.device)
        most = max(1, PART // (len(rows) * block.positions))
        for part in even_parts(filters.shape[1], most):
            own = filters[:, part].double()
            for number, pairs in enumerate(block.pairs.to(own)):
                total[number] += (own @ pairs).flatten(1) @ own.flatten(1).T
        result.append(total)
    return torch.cat(result)


def class_diagonals(prior: FilterPrior, parts: Iterable[Float[Tensor, "_ P"]]) -> list[Float[Tensor, "_ _"]]:
    """The diagonals of M, one tensor (E, V) per block, from chunks of rows; no matrix is formed."""
    found: list[list[Tensor]] = [[] for _ in prior.blocks]
    for rows in parts:
        for mine, block, filters in zip(found, prior.blocks, prior.split(rows), strict=True):
            own = filters.double()
            mine.append(torch.stack([((own @ pairs) * own).sum((1, 2)) for pairs in block.pairs.to(own)]))
    return [torch.cat(mine, 1) for mine in found]
