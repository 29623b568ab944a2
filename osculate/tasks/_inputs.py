"""Scores of inputs alone, without a network: what any score of a model has to do better than."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

#: Share of the training inputs that may have a value at an entry that is called never lit.
RARELY = 0.001
#: Share of the variance that the principal components explain.
EXPLAINED = 0.95
#: Largest number of entries of an input for which D × D matrices are made without being asked for.
WIDEST = 4096
#: Training inputs that are compared at once.
ROWS = 10_000


class TrainingInputs:
    """Scores (N,) of inputs (N, …) by their place among training inputs; the higher, the farther out.

    Args:
        train: Training inputs (N, …).
    """

    NAMES: ClassVar[tuple[str, ...]] = (
        "unlit_pixels",
        "diagonal_leverage",
        "leverage",
        "nearest_input",
        "principal_components",
    )

    def __init__(self, train: Tensor) -> None:
        self._train = _rows(train)

    def scores(self) -> Mapping[str, Callable[[Tensor], Float[Tensor, " N"]]]:
        """All scores by name, each a method."""
        return {name: getattr(self, name) for name in self.NAMES}

    def fitting(self) -> dict[str, bool]:
        """True for each score that is worth its cost, and varies."""
        wide = self._train.shape[1] > WIDEST
        found = dict.fromkeys(self.NAMES, True)
        return found | {
            "unlit_pixels": bool(self.unlit.any()),
            "leverage": not wide,
            "principal_components": not wide and len(self._train) > 2 and bool(self._moments[1].gt(0).any()),
        }

    @cached_property
    def unlit(self) -> Bool[Tensor, " D"]:
        """The entries that differ from zero in fewer than a thousandth of the training inputs."""
        return (self._train != 0).double().mean(0) < RARELY

    def blanked(self, x: Tensor) -> Tensor:
        """The inputs with zeros where training inputs are never lit."""
        return x.masked_fill(self.unlit.reshape(x.shape[1:]).to(x.device), 0)

    def unlit_pixels(self, x: Tensor) -> Float[Tensor, " N"]:
        """Σ_d |x_d| over the entries that are never lit in training inputs."""
        return _rows(x)[:, self.unlit].abs().sum(1)

    def diagonal_leverage(self, x: Tensor) -> Float[Tensor, " N"]:
        """Σ_d x_d² / (1 + Σ_n x_nd²), the leverage without correlations."""
        return (_rows(x).square() / (1 + self._train.square().sum(0))).sum(1)

    def leverage(self, x: Tensor) -> Float[Tensor, " N"]:
        """xᵀ(XᵀX + I)⁻¹x, the variance of a linear model of unit noise and prior; inputs are not centred."""
        return torch.linalg.solve_triangular(self._root, _rows(x).T, upper=False).square().sum(0)

    def nearest_input(self, x: Tensor) -> Float[Tensor, " N"]:
        """Distance to the nearest training input."""
        rows = _rows(x)
        return torch.stack([torch.cdist(rows, part).amin(1) for part in self._train.split(ROWS)]).amin(0)

    def principal_components(self, x: Tensor) -> Float[Tensor, " N"]:
        r"""-log N(x; μ, W Wᵀ + σ²I) of probabilistic principal components, in nats. [tipping1999]

        W has the components that explain 95 % of the variance, and σ² is the mean variance of the others.
        """
        vectors, variances = self._moments
        inner = (_rows(x) - self._train.mean(0)) @ vectors
        return 0.5 * (inner.square() / variances + (2 * torch.pi * variances).log()).sum(1)

    @cached_property
    def _root(self) -> Float[Tensor, "D D"]:
        """A Cholesky factor of XᵀX + I."""
        gram = self._train.T @ self._train
        return torch.linalg.cholesky(gram + torch.eye(len(gram), dtype=gram.dtype))

    @cached_property
    def _moments(self) -> tuple[Float[Tensor, "D D"], Float[Tensor, " D"]]:
        """Principal axes, and the variance of the model along each."""
        centred = self._train - self._train.mean(0)
        values, vectors = torch.linalg.eigh(centred.T @ centred / max(1, len(centred) - 1))
        values, vectors = values.flip(0).clamp_min(0), vectors.flip(1)
        shares = values.cumsum(0) / values.sum()
        kept = min(int((shares < EXPLAINED).sum()) + 1, len(values) - 1)
        rest = values[kept:].mean().clamp_min(torch.finfo(values.dtype).eps * values[0])
        return vectors, torch.cat([values[:kept], rest.expand(len(values) - kept)])


def _rows(x: Tensor) -> Float[Tensor, "N D"]:
    return x.detach().flatten(1).double().cpu()
