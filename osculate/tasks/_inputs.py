"""Scores of inputs alone, without a network: what any score of a model has to do better than."""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

#: Share of the training inputs that may have a value at an entry that is called never lit.
RARELY = 0.001
#: Share of the variance that the principal components explain.
EXPLAINED = 0.95
#: Largest number of rows of the matrices that are made without being asked for: entries of an input, or training inputs
#: where these are fewer.
WIDEST = 4096
#: Training inputs that are compared at once.
ROWS = 10_000
#: Ratio of a squared distance by products of matrices to its rounding error below which differences are taken.
EXACT = 1e6
#: Largest magnitude of an entry; sums of squares of larger ones overflow.
LARGEST = 1e140


def mean_pixel(x: Tensor) -> Float[Tensor, " N"]:
    """Mean of each input: the baseline of any score on images."""
    return _rows(x).mean(1)


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
        self._train = _rows(train, "training inputs")

    def scores(self) -> Mapping[str, Callable[[Tensor], Float[Tensor, " N"]]]:
        """All scores by name, each a method."""
        return {name: getattr(self, name) for name in self.NAMES}

    def fitting(self) -> dict[str, bool]:
        """True for each score that is worth its cost, and varies."""
        wide = min(self._train.shape) > WIDEST
        found = dict.fromkeys(self.NAMES, True)
        return found | {
            "unlit_pixels": bool(self.unlit.any()),
            "leverage": not wide,
            "principal_components": not wide and len(self._train) > 2 and self._vary,
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
        return (_rows(x).square() / (1 + self._squares)).sum(1)

    def leverage(self, x: Tensor) -> Float[Tensor, " N"]:
        """xᵀ(XᵀX + I)⁻¹x, the variance of a linear model of unit noise and prior; inputs are not centred."""
        rows = _rows(x)
        inner = self._within(rows)
        found = torch.linalg.solve_triangular(self._root, inner.T, upper=False).square().sum(0)
        return found if self._span is None else found + (rows - inner @ self._span.T).square().sum(1)

    def nearest_input(self, x: Tensor) -> Float[Tensor, " N"]:
        """Distance to the nearest training input, by products of matrices, and by differences where these cancel."""
        rows, parts = _rows(x), self._train.split(ROWS)
        centred = rows - self._middle
        near = _nearest(centred, (part - self._middle for part in parts), "use_mm_for_euclid_dist")
        # products cancel only between vectors of similar lengths, so that the length of one bounds the error
        noise = 17 * torch.finfo(rows.dtype).eps * centred.square().sum(1)
        cancelled = near.square() < EXACT * noise
        near[cancelled] = _nearest(rows[cancelled], parts, "donot_use_mm_for_euclid_dist")
        return near

    def principal_components(self, x: Tensor) -> Float[Tensor, " N"]:
        r"""-log N(x; μ, W Wᵀ + σ²I) of probabilistic principal components, in nats. [tipping1999]

        W has the components that explain 95 % of the variance, and σ² is the mean variance of the others.
        """
        variances, axes, rest = self._components
        centred = _rows(x) - self._centre
        inner = centred @ axes
        left = self._train.shape[1] - len(variances)
        outer = (centred - inner @ axes.T).square().sum(1) / rest + left * (2 * torch.pi * rest).log()
        return 0.5 * (outer + (inner.square() / variances + (2 * torch.pi * variances).log()).sum(1))

    @cached_property
    def _centre(self) -> Float[Tensor, " D"]:
        """Mean of the training inputs."""
        return self._train.mean(0)

    @cached_property
    def _middle(self) -> Float[Tensor, " D"]:
        """Median of the training inputs, which stray ones do not move."""
        return self._train.median(0).values

    @cached_property
    def _squares(self) -> Float[Tensor, " D"]:
        """Σ_n x_nd² over the training inputs."""
        return torch.stack([part.square().sum(0) for part in self._train.split(ROWS)]).sum(0)

    @cached_property
    def _span(self) -> Float[Tensor, "D M"] | None:
        """An orthonormal basis of the span of training inputs that are fewer than entries; else None."""
        few = len(self._train) < self._train.shape[1]
        return torch.linalg.qr(self._train.T).Q if few else None

    def _within(self, rows: Float[Tensor, "N D"]) -> Float[Tensor, "N M"]:
        """Coordinates in the span of the training inputs."""
        return rows if self._span is None else rows @ self._span

    @cached_property
    def _root(self) -> Float[Tensor, "M M"]:
        """A lower triangular root of XᵀX + I in the span of the training inputs, without forming XᵀX."""
        root = torch.eye(min(self._train.shape), dtype=self._train.dtype)
        for part in self._train.split(ROWS):
            root = torch.linalg.qr(torch.cat([root, self._within(part)]), mode="r").R
        return root.T

    @cached_property
    def _spectrum(self) -> tuple[Float[Tensor, " M"], Float[Tensor, "M M"]]:
        """Variances along the principal axes, largest first, and these axes in the span of the training inputs."""
        inner = self._within(self._train - self._centre)
        values, vectors = torch.linalg.eigh(inner.T @ inner / max(1, len(inner) - 1))
        return values.flip(0).clamp_min(0), vectors.flip(1)

    @cached_property
    def _vary(self) -> bool:
        """True if training inputs differ, and by more than the square root of the smallest number."""
        return bool((self._train != self._train[0]).any()) and bool(self._spectrum[0][0] > 0)

    @cached_property
    def _components(self) -> tuple[Float[Tensor, " K"], Float[Tensor, "D K"], Float[Tensor, ""]]:
        """Variances and axes of the components that are kept, and the mean variance along all other axes.

        Raises:
            ValueError: training inputs that are all equal, or vary too little for a number.
        """
        if not self._vary:
            raise ValueError(
                f"the score 'principal_components' needs training inputs that vary, and the {len(self._train)} of"
                " train are all equal, or have a variance too small for a number: pass some thousand, or leave the"
                " score out."
            )
        values, vectors = self._spectrum
        entries = self._train.shape[1]
        shares = values.cumsum(0) / values.sum()
        kept = min(int((shares < EXPLAINED).sum()) + 1, entries - 1)
        axes = vectors[:, :kept] if self._span is None else self._span @ vectors[:, :kept]
        rest = values[kept:].sum() / (entries - kept)
        return values[:kept], axes, rest.clamp_min(torch.finfo(values.dtype).eps * values[0])


def _nearest(rows: Tensor, parts: Iterable[Tensor], mode: str) -> Float[Tensor, " N"]:
    """Distances (N,) to the nearest row of all parts, by a mode of ``torch.cdist``."""
    return torch.stack([torch.cdist(rows, part, compute_mode=mode).amin(1) for part in parts]).amin(0)


def _rows(x: Tensor, words: str = "inputs") -> Float[Tensor, "N D"]:
    """Return inputs as rows of double precision.

    Raises:
        ValueError: entries whose squares are too large for a number.
    """
    rows = x.detach().reshape(len(x), -1).double().cpu()
    largest = float(rows.abs().amax()) if rows.numel() else 0.0
    if largest > LARGEST:
        raise ValueError(
            f"the {words} reach {largest:.3g}, and sums of their squares are too large for a number: rescale them."
        )
    return rows
