"""A prior over the filters of convolutions, in which neighbouring entries of a filter are correlated."""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from osculate.linalg import cholesky, row_products
from osculate.memory import even_parts
from osculate.parameters import ParameterSpace
from osculate.priors._base import Prior, positive, shown

#: Layers whose weights are filters.
CONVOLUTIONS = (nn.Conv2d, nn.ConvTranspose2d)
#: Largest number of doubles in a chunk of a block's filters.
PART = 2**24


@dataclass(frozen=True)
class FilterBlock:
    """Parameters that share the values of the prior.

    Attributes:
        name: Name of the module that holds them.
        parameters: Their names.
        kernel: Height and width of a filter; (1, 1) for parameters that are no filters.
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
        return torch.exp(-self._distances.to(lengthscale) / lengthscale)


class Filters(Prior):
    r"""Every filter of block b is N(0, Σ_b), independent of the others. [antoran2023dip]

    .. math:: [\Sigma_b]_{ij} = \delta_b^{-1} \exp(-d_{ij}/\ell_b)
              = \delta_b^{-1} \sum_{d} e^{-d/\ell_b} [D_d]_{ij}

    d_ij is the distance between two entries of a filter in pixels, and D_d marks the pairs at distance d: six classes
    for a 3 × 3 filter, one for a 1 × 1 filter, which has a precision only. A block is a module that holds
    two-dimensional convolutions, with filters of one size.

    Filters are the last two axes of parameters with four axes and the name ``weight``, as convolutions of PyTorch have
    them. All other parameters, among them biases and whatever a module of your own calls differently, are independent
    of one another, and share a precision with the 1 × 1 filters of their module.

    As Σ is a combination of few fixed matrices, structures that keep rows ("dual") compute their products once, and
    :func:`osculate.maximise_evidence` needs no Jacobian to choose precisions and length-scales.

    Args:
        precision: δ, a number for all blocks, or one for each, in the order of the network.
        lengthscale: ℓ in pixels, likewise; without effect on 1 × 1 filters.

    Raises:
        ValueError: a value that is not positive; on binding, another number of values than of blocks.

    >>> prior = Filters(4.0, 0.5).bind(ParameterSpace.of({"0.weight": torch.zeros(2, 1, 3, 3)}))
    >>> prior.covariances()[0][0, :3]
    tensor([0.2500, 0.0338, 0.0046], dtype=torch.float64)
    >>> prior
    Filters(4, lengthscale=[0.5])
    """

    correlated: ClassVar[bool] = True

    def __init__(self, precision: float | Tensor = 1.0, lengthscale: float | Sequence[float] | Tensor = 0.1) -> None:
        self.precision = positive(precision)
        self.lengthscale = torch.as_tensor(lengthscale, dtype=None if isinstance(lengthscale, Tensor) else torch.double)
        if not bool(((self.lengthscale > 0) & self.lengthscale.isfinite()).all()):
            raise ValueError(f"length-scales of filters, in pixels, must be positive and finite, got {lengthscale}.")
        self.space: ParameterSpace | None = None
        #: The groups of parameters, once bound.
        self.blocks: tuple[FilterBlock, ...] = ()

    def bind(self, space: ParameterSpace) -> "Filters":
        if self.space == space:
            return self
        bound = copy(self)
        bound.space, bound.blocks = space, _blocks(space)
        for name in ("precision", "lengthscale"):
            values, count = getattr(self, name).double(), len(bound.blocks)
            if values.ndim and values.shape != (count,):
                raise ValueError(
                    f"{name} of the filters has shape {tuple(values.shape)}, and there are {count} blocks: "
                    f"{', '.join(block.name for block in bound.blocks)}."
                )
            setattr(bound, name, values.expand(count))
        return bound

    def replace(self, precision: Tensor, lengthscale: Tensor) -> "Filters":
        """The same blocks with other values."""
        other = copy(self)
        other.precision, other.lengthscale = precision, lengthscale
        return other

    def with_precision(self, precision: Tensor) -> "Filters":
        return self.replace(precision, self.lengthscale)

    def to(self, device: Any = None, dtype: torch.dtype | None = None) -> "Filters":
        return self.replace(self.precision.to(device), self.lengthscale.to(device))  # always in double precision

    @property
    def hyperparameters(self) -> dict[str, Tensor]:
        return {"precision": self.precision, "lengthscale": self.lengthscale}

    def with_hyperparameters(self, values: Mapping[str, Tensor]) -> "Filters":
        return self.replace(values["precision"], values["lengthscale"])

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}, lengthscale=[{shown(self.lengthscale)}])"

    def require_structure(self, curvature: Any) -> None:
        """Raise ValueError if a structure needs independent parameters, or the posterior is not over whole filters.

        Raises:
            ValueError: a structure without correlations between parameters, or a subnetwork of single parameters.
        """
        structure = curvature.structure
        if not structure.takes_correlations:
            raise ValueError(
                f"structure={structure.name!r} needs a prior with independent parameters, and Filters correlates the "
                "entries of a filter: fit with structure='dual' (few data), 'full', 'low_rank' or 'matrix_free'."
            )
        if not bool(curvature.covered.all()):
            raise ValueError("a prior over filters needs whole filters: name parameters or modules as the subset.")

    @property
    def settings(self) -> dict[str, Any]:
        return {"lengthscale": self.lengthscale.tolist()}

    def per_tensor(self, space: ParameterSpace) -> None:
        return None

    def vector(self, space: ParameterSpace) -> Float[Tensor, " P"]:
        by_name = {name: v for block, v in zip(self.blocks, self.precision, strict=True) for name in block.parameters}
        return space.spread(torch.stack([by_name[name] for name in space.names]))

    def members(self, space: ParameterSpace) -> dict[str, tuple[str, ...]]:
        return {block.name: block.parameters for block in self.bind(space).blocks}

    def pooled(self, totals: Float[Tensor, " T"], space: ParameterSpace) -> Tensor:
        by_name = dict(zip(space.names, totals, strict=True))
        return torch.stack([sum(by_name[name] for name in block.parameters) for block in self.blocks])

    def log_det_ratio(self) -> Float[Tensor, ""]:
        assert self.space is not None
        sizes = dict(zip(self.space.names, self.space.sizes, strict=True))
        each = [
            sum(sizes[name] for name in block.parameters)
            // block.positions
            * cholesky(block.correlation(scale)).diagonal().log().sum()
            for block, scale in zip(self.blocks, self.lengthscale, strict=True)
        ]
        return -2 * torch.stack(each).sum()

    @property
    def with_lengthscale(self) -> list[int]:
        """The indices of blocks with filters of several entries."""
        return [number for number, block in enumerate(self.blocks) if block.positions > 1]

    def covariances(self) -> list[Float[Tensor, "k k"]]:
        """Σ_b."""
        triples = zip(self.blocks, self.precision, self.lengthscale, strict=True)
        return [block.correlation(scale) / delta for block, delta, scale in triples]

    def class_weights(self) -> list[Float[Tensor, " E"]]:
        """e^(−d/ℓ_b)/δ_b for the distances d of each block; differentiable."""
        triples = zip(self.blocks, self.precision, self.lengthscale, strict=True)
        return [torch.exp(-block.distances.to(delta) / scale) / delta for block, delta, scale in triples]

    def multiply(self, v: Float[Tensor, "*S P"], space: ParameterSpace) -> Float[Tensor, "*S P"]:
        return self._each(v, [torch.cholesky_inverse(cholesky(covariance)) for covariance in self.covariances()])

    def solve(self, v: Float[Tensor, "*S P"], space: ParameterSpace) -> Float[Tensor, "*S P"]:
        return self._each(v, self.covariances())

    def colour(self, z: Float[Tensor, "*S P"], space: ParameterSpace) -> Float[Tensor, "*S P"]:
        return self._each(z, [cholesky(covariance) for covariance in self.covariances()])

    def coloured(self, v: Float[Tensor, "*S P"], space: ParameterSpace) -> Float[Tensor, "*S P"]:
        return self._each(v, [cholesky(covariance).mT for covariance in self.covariances()])

    def split(self, theta: Float[Tensor, "*S P"]) -> list[Float[Tensor, "*S _ _"]]:
        """Flat weights to filters: one tensor (*S, F, k) per block."""
        assert self.space is not None
        named, batch = self.space.unflatten(theta), theta.shape[:-1]
        return [
            torch.cat([named[name].reshape(*batch, -1, block.positions) for name in block.parameters], -2)
            for block in self.blocks
        ]

    def merge(self, filters: Sequence[Float[Tensor, "*S _ _"]]) -> Float[Tensor, "*S P"]:
        """The inverse of :meth:`split`."""
        assert self.space is not None
        named: dict[str, Tensor] = {}
        sizes = dict(zip(self.space.names, self.space.sizes, strict=True))
        for block, own in zip(self.blocks, filters, strict=True):
            parts = own.flatten(-2).split([sizes[name] for name in block.parameters], -1)
            named.update(zip(block.parameters, parts, strict=True))
        return torch.cat([named[name] for name in self.space.names], -1)

    def _each(self, theta: Tensor, matrices: Sequence[Tensor]) -> Tensor:
        filters = zip(self.split(theta), matrices, strict=True)
        return self.merge([own @ matrix.to(theta).mT for own, matrix in filters])

    def _chunks(self, *rows: Float[Tensor, "_ P"]) -> Iterator[tuple[int, list[Float[Tensor, "_ F k"]]]]:
        """The filters of each block of several matrices of rows in double precision, in chunks."""
        each = zip(*(self.split(part) for part in rows), strict=True)
        for number, (block, filters) in enumerate(zip(self.blocks, each, strict=True)):
            most = max(1, PART // (sum(map(len, rows)) * block.positions))
            for part in even_parts(filters[0].shape[1], most):
                yield number, [own[:, part].double() for own in filters]

    def products(self, x: Float[Tensor, "K P"], y: Float[Tensor, "L P"]) -> tuple[Tensor, Tensor]:
        """x Σ xᵀ (K, K) and x Σ yᵀ (K, L) for two matrices of rows, in double precision."""
        own, other = (torch.zeros(len(x), len(each), dtype=torch.double, device=x.device) for each in (x, y))
        roots = [cholesky(covariance).to(x.device) for covariance in self.covariances()]
        for number, each in self._chunks(x, y):
            left, right = ((filters @ roots[number]).flatten(1) for filters in each)
            own, other = own + row_products(left), other + left @ right.T
        return own, other

    def class_products(self, rows: Float[Tensor, "K P"]) -> Float[Tensor, "E K K"]:
        r"""M for every block and class of distance d, so that x Σ xᵀ = Σ_b Σ_d e^{−d/ℓ_b} M_bd / δ_b.

        Args:
            rows: x.

        Cost: 2·K²·P operations for each class of distance of a filter's block.
        """
        total = [
            rows.new_zeros(len(block.distances), len(rows), len(rows), dtype=torch.double) for block in self.blocks
        ]
        for number, (own,) in self._chunks(rows):
            for at, pairs in enumerate(self.blocks[number].pairs.to(own)):
                total[number][at] += (own @ pairs).flatten(1) @ own.flatten(1).T
        return torch.cat(total)

    def class_diagonals(self, rows: Float[Tensor, "K P"], space: ParameterSpace) -> list[Float[Tensor, "E K"]]:
        found = [rows.new_zeros(len(block.distances), len(rows), dtype=torch.double) for block in self.blocks]
        for number, (own,) in self._chunks(rows):
            for at, pairs in enumerate(self.blocks[number].pairs.to(own)):
                found[number][at] += ((own @ pairs) * own).sum((1, 2))
        return found


def filters_of(network: nn.Module) -> list[str]:
    """The names of the filters of two-dimensional convolutions that are trained, as the subset of a posterior.

    Raises:
        ValueError: there are none, or two convolutions share a weight.
    """
    wanted = [
        f"{name}.weight" if name else "weight"
        for name, layer in network.named_modules()
        if isinstance(layer, CONVOLUTIONS) and layer.weight.requires_grad
    ]
    if not wanted:
        raise ValueError(
            "the prior is over the filters of two-dimensional convolutions that are trained: the network has none."
        )
    if missing := set(wanted) - {name for name, _ in network.named_parameters()}:
        raise ValueError(
            f"{', '.join(sorted(missing))} is not a parameter of its own, but shared or computed (weight "
            "normalisation?): the prior is over filters. Remove the parametrisation, or give each layer a weight "
            "of its own."
        )
    return wanted


def _blocks(space: ParameterSpace) -> tuple[FilterBlock, ...]:
    """One block for each module that holds parameters, and each size of their filters.

    Layers directly in the network form a block each.
    """
    found: dict[tuple[str, tuple[int, int]], list[str]] = {}
    for name, shape in zip(space.names, space.shapes, strict=True):
        layer = name.rpartition(".")[0]
        filters = len(shape) == 4 and name.rpartition(".")[2] == "weight"
        kernel = (int(shape[2]), int(shape[3])) if filters else (1, 1)
        found.setdefault((layer.rpartition(".")[0] or layer or name, kernel), []).append(name)
    holders = [holder for holder, _ in found]
    return tuple(
        FilterBlock(
            f"{holder}, {kernel[0]} × {kernel[1]}" if holders.count(holder) > 1 else holder, tuple(names), kernel
        )
        for (holder, kernel), names in found.items()
    )
