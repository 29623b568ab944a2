"""The rows of all forms side by side: what couples all parameters of a network."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import ClassVar

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from osculate.curvature.forms import AnyForm, Dense, Outer
from osculate.memory import free
from osculate.structures.blocks._base import Block
from osculate.structures.blocks.rows import Pack, Rows, pick, size

#: The share of the free memory that Gram matrices of single tensors are kept in.
SHARE = 0.25


@dataclass(frozen=True)
class Joint:
    """The forms of all parameters side by side, None for those that the data did not use."""

    forms: tuple[AnyForm | None, ...]
    sizes: tuple[int, ...]

    @property
    def count(self) -> tuple[int, int]:
        """V columns and N data."""
        form = next(form for form in self.forms if form is not None)
        columns = form.g if isinstance(form, Outer) else form.rows()
        return columns.shape[0], columns.shape[1]

    def rows(self) -> Float[Tensor, "V N p"]:
        """The rows themselves."""
        rows = [None if form is None else form.rows() for form in self.forms]
        like = next(each for each in rows if each is not None)
        blank = [like.new_zeros(*like.shape[:2], size) for size in self.sizes]
        return torch.cat([zeros if each is None else each for each, zeros in zip(rows, blank, strict=True)], -1)

    @staticmethod
    def of_columns(parts: list["Joint"]) -> "Joint":
        """The columns of the same data together."""
        if len(parts) == 1:
            return parts[0]
        forms = [_of_columns([part.forms[n] for part in parts], parts) for n in range(len(parts[0].forms))]
        return Joint(tuple(forms), parts[0].sizes)


def _of_columns(forms: list[AnyForm | None], parts: list[Joint]) -> AnyForm | None:
    like = next((form for form in forms if form is not None), None)
    if like is None:
        return None
    columns = [None if form is None else form.g if isinstance(form, Outer) else form.rows() for form in forms]
    shape = next(each for each in columns if each is not None)
    every = torch.cat(
        [
            shape.new_zeros(part.count[0], *shape.shape[1:]) if each is None else each
            for each, part in zip(columns, parts, strict=True)
        ]
    )
    return replace(like, g=every) if isinstance(like, Outer) else Dense(every)


@dataclass(frozen=True, eq=False)
class JointRows(Block):
    r"""G = Xᵀ Cᵀ C X with K rows X, those of all data or of some, and a small matrix C, none for the identity.

    Attributes:
        owners: the number of the tensor that each entry belongs to.
        rows: X by form.
        sizes: V and N of what came together, while the rows are being made.
        mix: C under that name, or nothing.
    """

    whole_rows: ClassVar[bool] = True
    positions: Tensor
    owners: Int[Tensor, " p"]
    rows: tuple[Rows, ...]
    sizes: list[tuple[int, int]]
    mix: dict[str, Float[Tensor, "k K"]]

    def accumulate(self, form: Joint) -> None:  # type: ignore[override]
        self.sizes.append(form.count)
        for rows, each in zip(self.rows, form.forms, strict=True):
            rows.append(each)

    def finish(self) -> None:
        for rows in self.rows:
            rows.finish(self.sizes)
        self.sizes.clear()

    def select(self, masks: list[Tensor]) -> None:
        """Keep some data of what came together, in place, one mask (N,) each."""
        alive = [number for number, mask in enumerate(masks) if bool(mask.any())]
        for rows in self.rows:
            rows.packs[:] = [
                pack if not pack or bool(mask.all()) else pick(pack, mask.to(self.positions.device))
                for pack, mask in ((rows.packs[number], masks[number]) for number in alive)
            ]
        self.sizes[:] = [(self.sizes[number][0], int(masks[number].sum())) for number in alive]

    def scale(self, factor: float) -> None:
        """Multiply all rows, in place."""
        for rows in self.rows:
            for name in rows.pack.keys() & {"g", "j"}:
                rows.pack[name].mul_(factor)

    def joined(self, other: "JointRows") -> "JointRows":
        """The rows of both; they have no C."""
        device = self.positions.device
        both = []
        for mine, theirs in zip(self.rows, other.rows, strict=True):
            moved = {name: value.to(device) for name, value in theirs.pack.items()}
            both.append(replace(mine, packs=[mine.pack, moved]))
            both[-1].finish([self.count, other.count])
        return replace(self, rows=tuple(both))

    def tensors(self) -> dict[str, Tensor]:
        packs = {f"{n}.{name}": value for n, rows in enumerate(self.rows) for name, value in rows.pack.items()}
        return {**packs, **self.mix}

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> "JointRows":
        rows = []
        for n, each in enumerate(self.rows):
            prefix = f"{n}."
            pack = {name.removeprefix(prefix): tensors[name] for name in tensors if name.startswith(prefix)}
            if "numbers" in pack:
                pack["numbers"] = pack["numbers"].long()
            rows.append(replace(each, packs=[pack] if pack else []))
        mix = {"mix": tensors["mix"].double()} if "mix" in tensors else {}
        return replace(self, rows=tuple(rows), sizes=[], mix=mix)

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
        """The rows that some datum used, with their entries of vectors."""
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
        result = c.new_zeros(len(c), len(self.positions))
        for rows, part in self.used(result):
            part.copy_(rows.transposed(self.unmixed(c)))
        return result

    def diagonal(self, w: Float[Tensor, "K K"]) -> Float[Tensor, " p"]:
        """The diagonal of Xᵀ w X, for a symmetric w."""
        result = w.new_zeros(len(self.positions))
        for rows, part in self.used(result):
            part.copy_(rows.diagonal(w))
        return result

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
        """X_t X_tᵀ for the parameters of each tensor; kept where they fit into memory, since no prior changes them."""
        yield from self._tensor_grams() if self._kept_grams is None else self._kept_grams

    def packed(self, form: Joint) -> list[Pack | None]:
        """The tensors of each form."""
        return [None if each is None else rows.packed(each) for rows, each in zip(self.rows, form.forms, strict=True)]

    def kernel(
        self, x: list[Pack | None], y: list[Pack | None], weights: Float[Tensor, " p"], separable: bool
    ) -> Float[Tensor, "K L"]:
        """x diag(w) yᵀ for the rows of some data."""
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
