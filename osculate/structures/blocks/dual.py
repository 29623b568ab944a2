"""The whole matrix by its rows over all forms; all results follow from the products of rows, the kernel."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from osculate.curvature.engine import Observation
from osculate.curvature.forms import Dense
from osculate.linalg import cholesky, damping, eigh
from osculate.memory import even_parts, free
from osculate.structures.blocks._base import Block, Delta, Joint, Precision, grams
from osculate.structures.blocks.dense import DenseBlock
from osculate.structures.blocks.rows import ENTRIES, Pack, Rows, pick, size

#: Share of the free memory in which Gram matrices of single tensors are kept.
SHARE = 0.25


@dataclass(eq=False)
class Draw:
    """A random choice of M data from a stream of unknown length: those with the smallest random numbers.

    One number is drawn for each datum in turn, so that the choice does not depend on the batches.

    Attributes:
        points: M.
        generator: Source of the random numbers.
        projects: True to project all data onto the span of the M in a second pass, False to let the M represent them.
        seen: N so far.
        numbers: Random numbers of the data that are kept.
        basis: Coefficients (K, r) of an orthonormal basis B of the span of the rows X, after the first pass.
        products: B G Bᵀ of the second pass.
    """

    points: int
    generator: torch.Generator
    projects: bool
    seen: int = 0
    numbers: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.double))
    basis: Tensor | None = None
    products: Tensor = field(default_factory=lambda: torch.zeros(0, 0, dtype=torch.double))

    def next(self, size: int) -> tuple[Tensor, Tensor]:
        """A mask of the kept data that stay, and the indices of the next data that are added."""
        self.seen += size
        numbers = torch.cat([self.numbers, torch.rand(size, generator=self.generator, dtype=torch.double)])
        kept = numbers <= numbers.kthvalue(min(self.points, len(numbers))).values
        old, new = kept.tensor_split([len(self.numbers)])
        self.numbers = numbers[kept]
        return old, new.nonzero().squeeze(-1)


@dataclass(eq=False)
class Others:
    """Directions of the outputs without rows of their own, which share their mean prior variance.

    Attributes:
        count: Number of directions of each datum.
        probes: Number of random vectors among them, the last columns of a fit.
        rows: The rows of these vectors, whose mean square is that of a direction; empty before the fit ends.
    """

    count: int
    probes: int
    rows: Float[Tensor, "T p"] = field(default_factory=lambda: torch.zeros(0, 0))
    _classes: dict[Any, Tensor] = field(default_factory=dict, repr=False)

    def variance(self, delta: Delta) -> Float[Tensor, ""]:
        """The mean of x Σ xᵀ over these directions; differentiable."""
        if (correlated := delta.correlated) is None:
            return (self.rows.double().square() / delta.vector.to(self.rows.device).double()).sum(1).mean()
        key = correlated.prior.blocks
        if key not in self._classes:
            found = correlated.prior.class_diagonals(correlated.ordered(self.rows), correlated.space)
            self._classes[key] = torch.cat(found).mean(1)
        return torch.cat(correlated.prior.class_weights()) @ self._classes[key]


def _moved(packs: list[Pack], device: torch.device) -> list[Pack]:
    return [{name: value.to(device) for name, value in pack.items()} for pack in packs]


@dataclass(frozen=True, eq=False)
class DualBlock(Block):
    r"""G = Xᵀ Cᵀ C X with K rows X, those of all data or of some, and a small matrix C, omitted if it is the identity.

    Attributes:
        owners: Index of the tensor that each entry belongs to.
        rows: X by form.
        sizes: V and N of each addition, until the first pass ends.
        mix: C under the key "mix", or empty.
        draw: The choice of data, None if all are kept.
        others: The directions of the outputs that the rows leave out, None if there are none.
    """

    whole_rows: ClassVar[bool] = True
    positions: Tensor
    owners: Int[Tensor, " p"]
    rows: tuple[Rows, ...]
    sizes: list[tuple[int, int]]
    mix: dict[str, Float[Tensor, "k K"]]
    draw: Draw | None
    others: Others | None = None

    def together(self, joint: Joint) -> Joint:
        return joint

    def lean(self, form: Joint) -> Joint:
        """The same forms, those as rows of which the factors would take more memory."""
        return Joint(tuple(rows.lean(each) for rows, each in zip(self.rows, form.forms, strict=True)), form.sizes)

    def accumulate(self, form: Joint) -> None:  # type: ignore[override]
        self.sizes.append(form.count)
        for rows, each in zip(self.rows, form.forms, strict=True):
            rows.append(each)

    def addends(self, pass_index: int) -> list[Tensor]:
        return []  # rows are no sums

    def said(self, start: Observation) -> tuple[list[tuple[int, int]], list[list[Pack]]]:
        """The rows, with the sizes of their parts."""
        if self.draw is not None or self.others is not None:
            raise ValueError(
                "structure='dual' draws its points, or the vectors beyond its basis, in one process: fit in one "
                "(distributed=False), without points=, or with structure='low_rank' or 'kron'."
            )
        return self.sizes.copy(), [_moved(rows.packs, torch.device("cpu")) for rows in self.rows]

    def hear(self, each: Sequence[Any], rank: int, start: Observation) -> None:
        """The rows of all processes, one process after another."""
        self.sizes.clear()
        for rows in self.rows:
            rows.packs.clear()
        for sizes, packs in each:
            self.sizes.extend(sizes)
            for rows, pack in zip(self.rows, packs, strict=True):
                rows.packs.extend(_moved(pack, self.positions.device))

    def finish(self) -> None:
        """Concatenate the rows after the first pass; combine them after the second."""
        draw = self.draw
        if draw is not None and draw.basis is not None:
            values, vectors = eigh(draw.products)
            self.mix["mix"] = values.sqrt().unsqueeze(-1) * (vectors.T @ draw.basis.T)
            return
        for rows in self.rows:
            rows.finish(self.sizes)
        self.sizes.clear()
        if (others := self.others) is not None:
            own = self.count[0] - others.probes
            others.rows = self.dense_rows([rows.columns(slice(own, None)) for rows in self.rows])
            for rows in self.rows:
                rows.packs[:] = [rows.columns(slice(own))] if rows.packs else []
        if draw is None:
            return
        if not draw.projects:
            for rows in self.rows:
                for name in rows.pack.keys() & {"g", "j"}:
                    rows.pack[name].mul_((draw.seen / len(draw.numbers)) ** 0.5)
            return
        # U λ^{-1/2} for X Xᵀ = U diag(λ) Uᵀ: its transpose times the rows is orthonormal
        values, vectors = eigh(torch.stack([each for _, each in self.tensor_grams()]).sum(0))
        kept = values > len(values) * torch.finfo(values.dtype).eps * values.max()
        draw.basis = vectors[:, kept] / values[kept].sqrt()
        draw.products = draw.basis.new_zeros(draw.basis.shape[1], draw.basis.shape[1])

    def add_projected(self, form: Joint) -> None:
        """Add the products of the coordinates of rows in the basis of the kept rows, in place."""
        assert self.draw is not None
        assert self.draw.basis is not None
        ones = self.draw.basis.new_ones(len(self.positions))
        coordinates = self.kernel(self.packed(form), self.packs, ones, separable=True) @ self.draw.basis
        self.draw.products += coordinates.T @ coordinates

    def select(self, masks: list[Tensor]) -> None:
        """Keep a subset of the data of each addition, in place, given by masks (N,)."""
        alive = [number for number, mask in enumerate(masks) if bool(mask.any())]
        for rows in self.rows:
            rows.packs[:] = [
                pack if not pack or bool(mask.all()) else pick(pack, mask.to(self.positions.device))
                for pack, mask in ((rows.packs[number], masks[number]) for number in alive)
            ]
        self.sizes[:] = [(self.sizes[number][0], int(masks[number].sum())) for number in alive]

    def added(self, other: Block) -> "DualBlock":
        """The rows of both, one after the other; they have no C."""
        assert isinstance(other, DualBlock)
        if self.others is not None or other.others is not None:
            raise ValueError("rows in a basis of the outputs (Dual(basis=…)) do not add: fit all data without a basis.")
        device = self.positions.device
        both = []
        for mine, theirs in zip(self.rows, other.rows, strict=True):
            moved = {name: value.to(device) for name, value in theirs.pack.items()}
            both.append(replace(mine, packs=[mine.pack, moved]))
            both[-1].finish([self.count, other.count])
        return replace(self, rows=tuple(both), draw=None)

    def scaled(self, factor: Float[Tensor, ""] | float) -> "DualBlock":
        root = torch.as_tensor(factor).sqrt()

        def scaled(pack: Pack) -> Pack:
            return {name: value * root.to(value) if name in ("g", "j") else value for name, value in pack.items()}

        rows = tuple(replace(each, packs=[scaled(each.pack)] if each.pack else []) for each in self.rows)
        others = None if self.others is None else replace(self.others, rows=self.others.rows * root, _classes={})
        return replace(self, rows=rows, others=others)

    def combined(self, other: Block) -> "DualBlock":
        if self.mix or (isinstance(other, DualBlock) and other.mix):
            raise ValueError(
                "rows that are combined (draw=…) do not add to others: fit with structure='dual' as it is."
            )
        return self.added(other)

    def tensors(self) -> dict[str, Tensor]:
        packs = {f"{n}.{name}": value for n, rows in enumerate(self.rows) for name, value in rows.pack.items()}
        others = {} if self.others is None else {"others": self.others.rows}
        return {**packs, **self.mix, **others}

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> "DualBlock":
        rows = []
        for n, each in enumerate(self.rows):
            prefix = f"{n}."
            pack = {name.removeprefix(prefix): tensors[name] for name in tensors if name.startswith(prefix)}
            if "numbers" in pack:
                pack["numbers"] = pack["numbers"].long()
            each.require(pack)
            rows.append(replace(each, packs=[pack] if pack else []))
        counts = {size(each.pack) for each in rows if each.pack}
        if len(counts) > 1:
            raise ValueError(f"the rows of a dual posterior are of different numbers of data and columns, {counts}.")
        mix = {"mix": tensors["mix"].double()} if "mix" in tensors else {}
        others = None if self.others is None else replace(self.others, rows=tensors["others"], _classes={})
        return replace(self, rows=tuple(rows), sizes=[], mix=mix, draw=None, others=others)

    @property
    def count(self) -> tuple[int, int]:
        """V and N, after :meth:`finish`."""
        return next((size(rows.pack) for rows in self.rows if rows.pack), (0, 0))

    @property
    def dtype(self) -> torch.dtype:
        """The type of the rows."""
        return next((t.dtype for t in self.tensors().values() if t.is_floating_point()), torch.float)

    @property
    def packs(self) -> list[Pack | None]:
        """X by form, after :meth:`finish`."""
        return [rows.pack or None for rows in self.rows]

    def split(self, vectors: Shaped[Tensor, "*S p"]) -> tuple[Tensor, ...]:
        """The entries of each form."""
        return vectors.split([prod(rows.shape) for rows in self.rows], -1)

    def used(self, vectors: Shaped[Tensor, "*S p"]) -> Iterator[tuple[Rows, Tensor]]:
        """The rows of each form that some datum used, with its entries of vectors."""
        yield from ((rows, part) for rows, part in zip(self.rows, self.split(vectors), strict=True) if rows.pack)

    def mixed(self, z: Float[Tensor, "*S K"]) -> Float[Tensor, "*S k"]:
        """z Cᵀ."""
        return z @ self.mix["mix"].T if self.mix else z

    def unmixed(self, c: Float[Tensor, "*S k"]) -> Float[Tensor, "*S K"]:
        """c C."""
        return c @ self.mix["mix"] if self.mix else c

    def times(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S k"]:
        """v (C X)ᵀ."""
        zero = v.new_zeros(len(v), prod(self.count), dtype=torch.double)
        return self.mixed(sum((rows.times(part) for rows, part in self.used(v)), zero))

    def transposed(self, c: Float[Tensor, "S k"]) -> Float[Tensor, "S p"]:
        """c C X."""
        unmixed = self.unmixed(c)
        sizes = [prod(rows.shape) for rows in self.rows]
        each = zip(self.rows, sizes, strict=True)
        return torch.cat([rows.transposed(unmixed) if rows.pack else c.new_zeros(len(c), n) for rows, n in each], -1)

    def diagonal(self, w: Float[Tensor, "K K"]) -> Float[Tensor, " p"]:
        """The diagonal of Xᵀ w X, for a symmetric w."""
        each = [(rows, prod(rows.shape)) for rows in self.rows]
        return torch.cat([rows.diagonal(w) if rows.pack else w.new_zeros(n) for rows, n in each])

    def _tensor_grams(self) -> Iterator[tuple[int, Float[Tensor, "K K"]]]:
        for rows, owners in self.used(self.owners.to(self.positions.device)):
            numbers = owners.unique()
            indicators = (owners == numbers.unsqueeze(1)).double()
            yield from zip(numbers.tolist(), rows.products(rows.pack, rows.pack, indicators, True), strict=True)

    @cached_property
    def _kept_grams(self) -> list[tuple[int, Float[Tensor, "K K"]]] | None:
        v, n = self.count
        if len(self.owners.unique()) * (v * n) ** 2 * 8 > SHARE * free(self.positions.device):
            return None
        return list(self._tensor_grams())

    def tensor_grams(self) -> Iterator[tuple[int, Float[Tensor, "K K"]]]:
        """X_t X_tᵀ for the parameters of each tensor; cached if they fit into memory."""
        yield from self._tensor_grams() if self._kept_grams is None else self._kept_grams

    def packed(self, form: Joint) -> list[Pack | None]:
        """The tensors of each form."""
        return [None if each is None else rows.packed(each) for rows, each in zip(self.rows, form.forms, strict=True)]

    def kernel(
        self, x: list[Pack | None], y: list[Pack | None], weights: Float[Tensor, " p"], separable: bool
    ) -> Float[Tensor, "K L"]:
        """x diag(w) yᵀ for the rows x and y of two sets of data."""
        (v, n), (w, m) = (size(next(pack for pack in packs if pack)) for packs in (x, y))
        total = weights.new_zeros(v * n, w * m)
        for rows, left, right, part in zip(self.rows, x, y, self.split(weights), strict=True):
            if left and right:
                total = total + rows.products(left, right, part.unsqueeze(0), separable)[0]
        return total

    def own_kernel(
        self, packs: list[Pack | None], weights: Float[Tensor, " p"], separable: bool, events: int
    ) -> Float[Tensor, "N T E E"]:
        """The blocks of x diag(w) xᵀ for groups of E rows of each datum."""
        terms = [
            rows.own_products(pack, part, separable, events)
            for rows, pack, part in zip(self.rows, packs, self.split(weights), strict=True)
            if pack
        ]
        return torch.stack(terms).sum(0)

    def dense_rows(self, packs: list[Pack | None]) -> Float[Tensor, "K p"]:
        """The rows themselves, of this block or of other data."""
        v, n = size(next(pack for pack in packs if pack))
        parts = [
            rows.unpacked(pack).rows().reshape(v * n, -1)
            if pack
            else torch.zeros(v * n, prod(rows.shape), dtype=self.dtype, device=self.positions.device)
            for rows, pack in zip(self.rows, packs, strict=True)
        ]
        return parts[0] if len(parts) == 1 else torch.cat(parts, 1)

    @cached_property
    def _class_products(self) -> dict[Any, Float[Tensor, "E K K"]]:
        """X D Xᵀ for the fixed matrices D of a prior with correlations, by its blocks."""
        return {}

    def gram(self, delta: Delta) -> Float[Tensor, "K K"]:
        """X Σ Xᵀ."""
        v, n = self.count
        if (correlated := delta.correlated) is not None:
            kept, key = self._class_products, correlated.prior.blocks
            if key not in kept:
                kept[key] = correlated.prior.class_products(correlated.ordered(self.dense_rows(self.packs)))
            weights = torch.cat(correlated.prior.class_weights()).to(kept[key])
            return (weights @ kept[key].flatten(1)).reshape(v * n, v * n)
        total = torch.zeros(v * n, v * n, dtype=torch.double, device=self.positions.device)
        if delta.by_tensor is None:
            return self.kernel(self.packs, self.packs, 1 / delta.vector.double(), False)
        inverse = 1 / delta.by_tensor.double()
        for number, each in self.tensor_grams():
            total = total + inverse[number] * each
        return total

    @cached_property
    def _primal(self) -> DenseBlock | None:
        """The matrix itself if it is smaller than the Gram matrix of the rows, else None."""
        v, n = self.count
        if v * n <= len(self.positions) or self.mix or self.others is not None:
            return None
        block = DenseBlock.zero(self.positions, self.dtype, self.positions.device)
        step = max(1, ENTRIES // (v * len(self.positions)))
        sizes = tuple(prod(rows.shape) for rows in self.rows)
        for part in even_parts(n, step):
            forms = [rows.unpacked(pick(rows.pack, part)) if rows.pack else None for rows in self.rows]
            block.accumulate(Dense(Joint(tuple(forms), sizes).rows()))
        block.finish()
        return block

    def project(self, form: Joint, events: int) -> Any:  # type: ignore[override]
        return self.packed(form) if self._primal is None else form.rows()

    def sensitivity(self) -> Float[Tensor, " p"]:
        """The entries of a random combination of the rows."""
        rows = len(self.mix["mix"]) if self.mix else prod(self.count)
        weights = torch.randn(1, rows, generator=torch.Generator().manual_seed(0), dtype=torch.double)
        own = self.transposed(weights.to(self.positions.device))[0].double().abs()
        return own if self.others is None else own + self.others.rows.double().abs().sum(0)

    def precision(self, scale: Float[Tensor, ""] | float, delta: Delta) -> Precision:
        if self._primal is not None:
            return self._primal.precision(scale, delta)
        return DualPrecision(self, torch.as_tensor(scale, dtype=torch.double, device=self.positions.device), delta)

    def dense(self) -> Float[Tensor, "p p"]:
        eye = torch.eye(len(self.positions), dtype=torch.double, device=self.positions.device)
        columns = self.times(eye)
        return (columns @ columns.T).to(self.dtype)


@dataclass(frozen=True, eq=False)
class DualPrecision(Precision):
    r"""Λ = scale · G + D by the products of rows: with X̂ = scale^{1/2} C X D^{-1/2} and I + X̂ X̂ᵀ = L Lᵀ,

    .. math:: x^\top \Lambda^{-1} y = x^\top D^{-1} y - (\hat X D^{-1/2} x)^\top (I + \hat X \hat X^\top)^{-1}
              (\hat X D^{-1/2} y)

    D is diagonal, or the precision Σ⁻¹ of a prior with correlations, of which D^{-1/2} is then a Cholesky factor.
    Differences are taken in double precision, which leaves half of the digits for data that outweigh the prior by 10⁸.
    """

    block: DualBlock
    scale: Float[Tensor, ""]
    delta: Delta

    @cached_property
    def _vector(self) -> Float[Tensor, " p"]:
        return self.delta.vector.to(self.block.positions.device).double()

    @cached_property
    def _rows(self) -> tuple[Float[Tensor, "K p"], Float[Tensor, "K p"]]:
        """X and X Σ, for a prior with correlations."""
        rows = self.block.dense_rows(self.block.packs).double()
        return rows, self.delta.solve(rows)

    @cached_property
    def _gram(self) -> Float[Tensor, "k k"]:
        """X̂ X̂ᵀ."""
        return self.scale * self.block.mixed(self.block.mixed(self.block.gram(self.delta)).mT)

    @cached_property
    def factor(self) -> Float[Tensor, "k k"]:
        """L."""
        return cholesky(self._gram + torch.eye(len(self._gram)).to(self._gram))

    @cached_property
    def _weights(self) -> Float[Tensor, "K K"]:
        """scale · Cᵀ (I + X̂ X̂ᵀ)⁻¹ C, so that D − D Λ⁻¹ D = Xᵀ times this times X."""
        inverse = torch.cholesky_inverse(self.factor)
        return self.scale * self.block.unmixed(self.block.unmixed(inverse).mT)

    def log_det_ratio(self) -> Float[Tensor, ""]:
        total = 2 * self.factor.diagonal().log().sum()
        if (others := self.block.others) is not None:
            total = total + others.count * torch.log1p(self.scale * others.variance(self.delta).to(total))
        return total if self.delta.correlated is None else total + self.delta.correlated.prior.log_det_ratio()

    def effective_parameters(self) -> Float[Tensor, " p"]:
        if self.delta.correlated is None:
            return self.block.diagonal(self._weights) / self._vector
        rows, coloured = self._rows
        return ((self._weights @ rows) * coloured).sum(0)

    def effective_parameters_by_tensor(self, split: Callable[[Tensor], list[Tensor]]) -> list[Float[Tensor, ""]]:
        if self.delta.by_tensor is None:
            return super().effective_parameters_by_tensor(split)
        weights = self._weights
        totals = torch.zeros(len(self.delta.by_tensor), dtype=torch.double, device=weights.device)
        for number, each in self.block.tensor_grams():
            totals[number] += (weights * each).sum()
        totals = totals / self.delta.by_tensor.double()
        owners = [part.reshape(-1)[:1].tolist() for part in split(self.block.owners)]
        return [totals[number[0]] if number else totals.new_zeros(()) for number in owners]

    def multiply(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        u = v.double()
        return (self.delta.multiply(u) + self.scale * self.block.transposed(self.block.times(u))).to(v.dtype)

    def _without(self, u: Float[Tensor, "S p"], matrix: Callable[[Tensor], Tensor]) -> Float[Tensor, "S p"]:
        """u − X̂ᵀ matrix(X̂ u)."""
        explained = self.block.transposed(matrix(self.block.times(self.delta.colour(u))))
        return u - self.scale * self.delta.coloured(explained)

    def solve(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        u = self._without(self.delta.coloured(v.double()), lambda c: torch.cholesky_solve(c.T, self.factor).T)
        return self.delta.colour(u).to(v.dtype)

    @cached_property
    def _root(self) -> Float[Tensor, "k k"]:
        """Q with (I + X̂ᵀX̂)^{-1/2} = I − X̂ᵀ Q X̂."""
        return damping(self._gram)

    def colour(self, z: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        return self.delta.colour(self._without(z.double(), lambda c: c @ self._root)).to(z.dtype)

    def whiten(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        return self._without(self.delta.coloured(v.double()), lambda c: c @ self._root).to(v.dtype)

    def variance(self) -> Float[Tensor, " p"]:
        if self.delta.correlated is not None:
            _, coloured = self._rows
            left = 1 / self._vector - ((self._weights @ coloured) * coloured).sum(0)
            return left.clamp(min=torch.finfo(torch.double).eps / self._vector).to(self.block.dtype)
        left = (1 - self.effective_parameters()).clamp(min=torch.finfo(torch.double).eps)
        return (left / self._vector).to(self.block.dtype)

    def _halves(self, cross: Float[Tensor, "L K"]) -> Float[Tensor, "L k"]:
        """L⁻¹ X̂ Σ^{1/2} x for rows x, from x Σ Xᵀ."""
        right = self.scale.sqrt() * self.block.mixed(cross).T
        return torch.linalg.solve_triangular(self.factor, right, upper=False).T

    def _cross(self, packs: list[Pack | None]) -> Float[Tensor, "L K"]:
        """x Σ Xᵀ for the rows x of some data."""
        if self.delta.correlated is None:
            return self.block.kernel(packs, self.block.packs, 1 / self._vector, self._separable)
        return self.block.times(self.delta.solve(self.block.dense_rows(packs).double()))

    def _own(self, packs: list[Pack | None], events: int) -> Float[Tensor, "N T E E"]:
        """The blocks of x Σ xᵀ."""
        if self.delta.correlated is None:
            return self.block.own_kernel(packs, 1 / self._vector, self._separable, events)
        rows = self.delta.coloured(self.block.dense_rows(packs).double())
        return grams(rows.unflatten(0, size(next(pack for pack in packs if pack))), events)

    def _kernels(self, packs: list[Pack | None]) -> tuple[Float[Tensor, "L L"], Float[Tensor, "L K"]]:
        """x Σ xᵀ and x Σ Xᵀ."""
        if (correlated := self.delta.correlated) is None:
            return self.block.kernel(packs, packs, 1 / self._vector, self._separable), self._cross(packs)
        rows = (correlated.ordered(self.block.dense_rows(each)) for each in (packs, self.block.packs))
        return correlated.prior.products(*rows)

    @property
    def _separable(self) -> bool:
        return self.delta.by_tensor is not None

    def contract(self, projected: Any, events: int) -> Float[Tensor, "N T E E"]:
        v, n = size(next(pack for pack in projected if pack))
        step, parts = max(1, ENTRIES // max(1, v * len(self._gram))), []
        for part in even_parts(n, step):
            packs = [None if pack is None else pick(pack, part) for pack in projected]
            own = self._own(packs, events)
            left = own - grams(self._halves(self._cross(packs)).unflatten(0, (v, -1)), events)
            floor = torch.finfo(torch.double).eps * own.diagonal(dim1=-2, dim2=-1)
            lift = (floor - left.diagonal(dim1=-2, dim2=-1)).clamp(min=0)  # rounding may leave small negative values
            parts.append(left + lift.diag_embed())
        return torch.cat(parts).to(self.block.dtype)

    def covariance(self, form: Joint) -> Float[Tensor, "K K"]:  # type: ignore[override]
        packs = self.block.packed(form)
        own, cross = self._kernels(packs)
        halves = self._halves(cross)
        rounding = len(own) * torch.finfo(torch.double).eps * own.diagonal()  # it may leave negative eigenvalues
        left = own - halves @ halves.T + rounding.diag()
        v, n = size(next(pack for pack in packs if pack))
        return left.reshape(v, n, v, n).permute(1, 0, 3, 2).reshape(v * n, v * n)
