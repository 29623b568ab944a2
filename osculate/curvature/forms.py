"""Forms: the representation of per-datum rows that layer rules return and structures accumulate.

For a block of parameters, the rows s_vᵀ J_n (V columns s_v of a root of the output Hessian, N data) have one of two
forms. ``Outer`` keeps the two factors of an affine operation apart, ``Dense`` holds the rows themselves.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True)
class Outer:
    r"""Rows that are sums of outer products over the positions R at which a weight is used.

    .. math:: J_n^\top s_v = \sum_r g_{vnr} \otimes a_{nr}, \quad \text{a matrix } (O, I) \text{ for each group } G

    Attributes:
        inputs: A function that returns a, the inputs of the operation at each position; a last feature of ones carries
            the bias. They are not stored, as the windows of a convolution are larger than its input.
        g: The columns pulled back to the outputs of the operation.
        fresh: False if the same data have been passed before, with other columns.
        used: The positions on which a target depends; None for all of them.
    """

    inputs: Callable[[], Float[Tensor, "N R G I"]]
    g: Float[Tensor, "V N R G O"]
    fresh: bool = True
    used: Bool[Tensor, "N R"] | None = None

    @property
    def a(self) -> Float[Tensor, "N R G I"]:
        """The inputs of the operation, computed at each access."""
        return self.inputs()

    @property
    def shared(self) -> int:
        """R, the number of positions."""
        return self.g.shape[2]

    def reached(self) -> Bool[Tensor, "N R"]:
        """The positions with columns that are not zero: those that lead to ignored targets only have zero columns."""
        return (self.g != 0).any(4).any(3).any(0)

    @property
    def events(self) -> Int[Tensor, ""] | int:
        """The number of positions that are used, for all data."""
        return self.g.shape[1] * self.shared if self.used is None else self.used.sum()

    def matrices(self) -> Float[Tensor, "V N G O I"]:
        """The rows as matrices; costs V·N·R·O·I operations and V·N·O·I memory."""
        return matrices(self.a, self.g)

    def rows(self) -> Float[Tensor, "V N p"]:
        """The rows, flattened over (G, O, I)."""
        return self.matrices().flatten(2)

    def times(self, v: Float[Tensor, "G O I"]) -> Float[Tensor, "V N"]:
        """The products of the rows with a vector, by way of the outputs of a layer with it for its weight."""
        outputs = torch.einsum("nrgi,goi->nrgo", self.a, v)
        return (self.g * outputs).sum((2, 3, 4))

    def entries(self, kept: Int[Tensor, " K"]) -> Float[Tensor, "V N K"]:
        """The entries of the rows at ascending indices: N·R·K operations a column, and no array of size O·I."""
        a, g = self.a.flatten(2), self.g.flatten(3)
        width, channels = a.shape[-1] // self.g.shape[3], self.g.shape[-1]
        outputs, inputs = kept // width, kept % width + kept // (width * channels) * width  # G·O and G·I of each
        if self.shared == 1:
            return g[:, :, 0].index_select(-1, outputs) * a[:, 0].index_select(-1, inputs)
        found, counts = outputs.unique_consecutive(return_counts=True)
        features = inputs.split(counts.tolist())
        columns = g.permute(1, 0, 2, 3)  # (N, V, R, G·O)
        parts = [columns[..., o] @ a[..., i] for o, i in zip(found.tolist(), features, strict=True)]
        return torch.cat(parts, -1).transpose(0, 1)

    def per_sample(self, count: int) -> "Outer":
        """The same with leading axes of length N·k read as N samples of k·R positions."""
        if self.g.shape[1] == count:
            return self
        g = self.g.reshape(len(self.g), count, -1, *self.g.shape[3:])

        def inputs() -> Tensor:
            a = self.inputs()
            return a.reshape(count, -1, *a.shape[2:])

        return replace(self, inputs=inputs, g=g)

    def first(self) -> "Outer":
        """The first datum alone."""
        return self.head(1)

    def head(self, count: int) -> "Outer":
        """The first data."""
        used = None if self.used is None else self.used[:count]
        return Outer(lambda: self.a[:count], self.g[:, :count], self.fresh, used)

    def reduced(self) -> "Outer":
        """The form at one position: the mean of the inputs over those that are used, with the sum of the columns."""

        def inputs() -> Tensor:
            a = self.a
            if self.used is None:
                return a.mean(1, keepdim=True)
            used = self.used[..., None, None].to(a)
            return (a * used).sum(1, keepdim=True) / used.sum(1, keepdim=True).clamp(min=1)

        used = None if self.used is None else self.used.any(1, keepdim=True)
        return Outer(inputs, self.g.sum(2, keepdim=True), self.fresh, used)


@dataclass(frozen=True)
class Lookup(Outer):
    """The rows of an :class:`Outer` whose inputs are one-hot: positions pick rows of a table of I rows, by index.

    One-hot vectors are I times as large as their indices, and are made only for a structure that accesses them; the
    others gather, and add at indices.

    Attributes:
        indices: Row that each position picks, −1 for padding, which picks no row.
        size: I.
    """

    indices: Int[Tensor, "N R"] = field(kw_only=True)
    size: int = field(kw_only=True)

    @classmethod
    def of(cls, indices: Int[Tensor, "N R"], size: int, g: Float[Tensor, "V N R 1 O"]) -> "Lookup":
        """The form for a table of this size; one-hot inputs are made only on access."""
        return cls(partial(one_hot, indices, size, g.dtype), g, indices=indices, size=size)

    def times(self, v: Float[Tensor, "1 O I"]) -> Float[Tensor, "V N"]:
        """The products of the rows with a vector, which is a table, by its picked rows."""
        picked = v[0].T[self.indices.clamp(min=0)] * (self.indices >= 0).unsqueeze(-1)
        return (self.g.squeeze(3) * picked).sum((2, 3))

    def matrices(self) -> Float[Tensor, "V N 1 O I"]:
        """The rows as matrices, by adding at indices."""
        indices, g = self.merged()
        rows = g.new_zeros(*g.shape[:2], g.shape[-1], self.size)
        places = indices.unsqueeze(1).expand(g.shape[0], *g.mT.shape[1:])
        return rows.scatter_add_(-1, places, g.mT).unsqueeze(2)

    def entries(self, kept: Int[Tensor, " K"]) -> Float[Tensor, "V N K"]:
        """The entries of the rows at these indices, by a table of the kept rows alone for each output."""
        outputs, indices = kept // self.size, kept % self.size
        found, counts = outputs.unique_consecutive(return_counts=True)
        parts = []
        for output, picked in zip(found.tolist(), indices.split(counts.tolist()), strict=True):
            place = picked.new_full((self.size + 1,), -1)  # the last entry is that of the index −1
            place[picked] = torch.arange(len(picked), device=picked.device)
            form = Lookup.of(place[self.indices], len(picked), self.g[..., output : output + 1])
            parts.append(form.rows())
        return torch.cat(parts, -1)

    def merged(self) -> tuple[Int[Tensor, "N K"], Float[Tensor, "V N K O"]]:
        """The K ≤ R distinct indices that a datum picks, and the sum of g over the positions of each.

        A datum that picks fewer is padded with zeros.
        """
        ordered, order = self.indices.sort(1)
        slots = (ordered.diff(dim=1, prepend=ordered[:, :1]) != 0).cumsum(1)  # equal indices share a slot
        width = int(slots[:, -1].max()) + 1
        indices = slots.new_zeros(len(slots), width).scatter_(1, slots, ordered)
        kept = self.indices.unsqueeze(-1) >= 0
        g = self.g.squeeze(3) * kept
        places = (torch.empty_like(slots).scatter_(1, order, slots) + width * _column(len(slots), slots)).reshape(-1)
        total = g.new_zeros(len(g), len(slots) * width, g.shape[-1]).index_add_(1, places, g.flatten(1, 2))
        return indices.clamp(min=0), total.unflatten(1, (-1, width))

    def counts(self) -> Float[Tensor, " I"]:
        """The number of times that each row was picked, at the positions that are used."""
        indices = self.indices if self.used is None else self.indices.where(self.used, -1)
        picked = torch.bincount(indices.reshape(-1) + 1, minlength=self.size + 1)[1:]
        return picked.to(self.g.dtype)

    def per_sample(self, count: int) -> "Outer":
        """The same with leading axes of length N·k read as N samples of k·R positions."""
        g = self.g.reshape(len(self.g), count, -1, *self.g.shape[3:])
        return self._with(self.indices.reshape(count, -1), g)

    def first(self) -> "Outer":
        """The first datum alone."""
        return self._with(self.indices[:1], self.g[:, :1])

    def _with(self, indices: Int[Tensor, "N R"], g: Float[Tensor, "V N R 1 O"]) -> "Lookup":
        return replace(Lookup.of(indices, self.size, g), fresh=self.fresh)


@dataclass(frozen=True)
class Dense:
    """The rows themselves.

    Attributes:
        j: Rows of length p, one for each column and datum.
    """

    j: Float[Tensor, "V N p"]

    def rows(self) -> Float[Tensor, "V N p"]:
        """The rows."""
        return self.j

    def times(self, v: Float[Tensor, "..."]) -> Float[Tensor, "V N"]:
        """The products of the rows with a vector."""
        return self.j @ v.reshape(-1)

    def entries(self, kept: Int[Tensor, " K"]) -> Float[Tensor, "V N K"]:
        """The entries of the rows at these indices."""
        return self.j[..., kept]

    def per_sample(self, count: int) -> "Dense":
        """The same with a leading axis of length N·k summed over k."""
        v, n, p = self.j.shape
        return self if n == count else Dense(self.j.reshape(v, count, -1, p).sum(2))

    def first(self) -> "Dense":
        """The first datum alone."""
        return Dense(self.j[:, :1])


@dataclass(frozen=True)
class Unit:
    r"""The Jacobian of a last layer in closed form, J_n = I ⊗ a_nᵀ: one row for each of its O outputs.

    Attributes:
        inputs: A function that returns a, as in :class:`Outer` with one position and one group.
        outputs: O.
    """

    inputs: Callable[[], Float[Tensor, "N 1 1 I"]]
    outputs: int

    @property
    def a(self) -> Float[Tensor, "N 1 1 I"]:
        """The inputs of the layer."""
        return self.inputs()

    def rows(self) -> Float[Tensor, "V N p"]:
        """The rows; all entries but one in O are zero."""
        a = self.a[:, 0, 0]
        eye = torch.eye(self.outputs, dtype=a.dtype, device=a.device)
        return torch.einsum("vo,ni->vnoi", eye, a).flatten(2)

    def times(self, v: Float[Tensor, "1 V I"]) -> Float[Tensor, "V N"]:
        """The products of the rows with a vector."""
        return v[0] @ self.a[:, 0, 0].T


#: The result of a layer rule.
Form: TypeAlias = Outer | Dense
#: The argument of a structure.
AnyForm: TypeAlias = Outer | Dense | Unit


def matrices(a: Float[Tensor, "N R G I"], g: Float[Tensor, "V N R G O"]) -> Float[Tensor, "V N G O I"]:
    """Σ_r g_r ⊗ a_r for each column and datum."""
    v, n, r, groups, o = g.shape
    left = g.permute(1, 3, 0, 4, 2).reshape(n, groups, v * o, r)  # (N, G, V·O, R)
    product = left @ a.permute(0, 2, 1, 3)
    return product.reshape(n, groups, v, o, -1).permute(2, 0, 1, 3, 4)


def _column(count: int, like: Tensor) -> Int[Tensor, "N 1"]:
    return torch.arange(count, dtype=like.dtype, device=like.device).unsqueeze(1)


def one_hot(indices: Int[Tensor, "N R"], size: int, dtype: torch.dtype) -> Float[Tensor, "N R 1 I"]:
    """One-hot vectors, zero for −1."""
    return F.one_hot(indices + 1, size + 1)[..., 1:].to(dtype).unsqueeze(2)


def concatenate(forms: list[Outer]) -> Outer:
    """Several uses of one weight as one form: their positions, one after the other (exact)."""
    lookups = [form for form in forms if isinstance(form, Lookup)]
    if len(lookups) == len(forms):
        indices = torch.cat([form.indices for form in lookups], 1)
        return replace(
            Lookup.of(indices, lookups[0].size, torch.cat([form.g for form in forms], 2)), fresh=forms[0].fresh
        )

    def inputs() -> Tensor:
        return torch.cat([form.inputs() for form in forms], 1)

    return Outer(inputs, torch.cat([form.g for form in forms], 2), forms[0].fresh)


def rows_in_parts(form: Form, floats: int) -> Iterator[Float[Tensor, "V n p"]]:
    """The rows in chunks of the data, each of at most this many entries (one datum at least)."""
    if isinstance(form, Dense):
        yield form.j
        return
    a = form.a
    v, n, _, groups, o = form.g.shape
    step = max(1, floats // max(1, v * groups * o * a.shape[-1]))
    for start in range(0, n, step):
        part = slice(start, start + step)
        yield matrices(a[part], form.g[:, part]).flatten(2)
