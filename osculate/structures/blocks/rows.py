"""The rows of a root of G for the parameters of one form, kept as they are, and products with them.

Rows of an affine operation stay two factors if these are smaller, so that a matrix of K rows and P parameters is not
formed: products between two sets of rows are products of the factors if that is cheaper, all others are computed in
chunks of the layer's outputs. Products are in double precision; the rows have the type of the network.
"""

from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.forms import AnyForm, Dense, Form, Lookup, Outer, Unit
from osculate.memory import even_parts
from osculate.structures.blocks._base import Picked, grams, weighted_grams

#: Largest number of floats in a temporary.
ENTRIES = 2**22
#: G groups, O outputs and I inputs of the parameters' matrices; (1, p, 1) for other parameters.
Shape: TypeAlias = tuple[int, int, int]
#: The tensors of a form: "g" and "a" (or "numbers", the indices of a lookup) of factors, "j" of rows.
Pack: TypeAlias = dict[str, Tensor]


def size(pack: Pack) -> tuple[int, int]:
    """V and N."""
    columns = pack["j"] if "j" in pack else pack["g"]
    return columns.shape[0], columns.shape[1]


def pick(pack: Pack, data: slice | Tensor) -> Pack:
    """The rows of these data."""
    return {name: value[:, data] if name in ("g", "j") else value[data] for name, value in pack.items()}


def joined(packs: list[Pack]) -> Pack:
    """The data of several packs, concatenated, with zeros for missing columns and positions."""
    found = {}
    for name in packs[0]:
        data, fill = int(name in ("g", "j")), -1 if name == "numbers" else 0
        values = [pack[name] for pack in packs]
        most = [max(sizes) for sizes in zip(*(value.shape for value in values), strict=True)]
        lacks = [[0 if n == data else m - value.shape[n] for n, m in enumerate(most)] for value in values]
        behind = [[n for lack in reversed(each) for n in (0, lack)] for each in lacks]
        padded = [F.pad(value, each, value=fill) for value, each in zip(values, behind, strict=True)]
        found[name] = torch.cat(padded, data)
    return found


def blank(like: Pack, columns: int, data: int) -> Pack:
    """Rows of zeros of the same kind."""
    if "j" in like:
        return {"j": like["j"].new_zeros(columns, data, like["j"].shape[-1])}
    rest = {name: value.new_zeros(data, 0, *value.shape[2:]) for name, value in like.items() if name != "g"}
    return {"g": like["g"].new_zeros(columns, data, 0, *like["g"].shape[3:]), **rest}


@dataclass(frozen=True, eq=False)
class Rows:
    """K = V·N rows, ordered by column, then by datum.

    Attributes:
        shape: Shape (G, O, I) of the parameters.
        lookup: True if the forms are lookups.
        packs: The rows of each batch, empty where no datum used the parameters; at most one after :meth:`finish`.
    """

    shape: Shape
    lookup: bool
    packs: list[Pack]

    @property
    def pack(self) -> Pack:
        """All rows, after :meth:`finish`."""
        return self.packs[0] if self.packs else {}

    def require(self, pack: Pack) -> None:
        """Raise ValueError if the tensors of a file are no rows of these parameters.

        Raises:
            ValueError: other names or shapes.
        """
        groups, outputs, inputs = self.shape
        names = {"g", "numbers" if self.lookup else "a"} if "g" in pack else {"j"}
        g, a = pack.get("g"), pack.get("a", pack.get("numbers"))
        whole = not pack or (set(pack) == names and all(tensor.ndim for tensor in pack.values()))
        if whole and "j" in pack:
            whole = pack["j"].ndim == 3 and pack["j"].shape[2] == prod(self.shape)
        elif whole and g is not None and a is not None:
            rest = (a.shape[0], a.shape[1]) if a.ndim > 1 else ()
            whole = g.ndim == 5 and tuple(g.shape[1:]) == (*rest, groups, outputs)
            whole = whole and (a.ndim == 2 if self.lookup else tuple(a.shape[2:]) == (groups, inputs))
            whole = whole and not (self.lookup and bool(((a < -1) | (a >= inputs)).any()))
        if not whole:
            shapes = {name: tuple(tensor.shape) for name, tensor in pack.items()}
            raise ValueError(f"the rows {shapes} are not those of parameters of shape {self.shape}.")

    def columns(self, part: slice) -> Pack:
        """Some columns of all rows, after :meth:`finish`."""
        return {name: value[part] if name in ("g", "j") else value for name, value in self.pack.items()}

    def append(self, form: AnyForm | None) -> None:
        """Keep the rows of some data: as factors if these take less memory, as they do for few positions."""
        self.packs.append({} if form is None else self.packed(self.lean(form)))

    def lean(self, form: AnyForm | None) -> Any:
        """The form, or its rows if its factors would take more memory."""
        _, outputs, inputs = self.shape
        if form is None or isinstance(form, Dense):
            return form
        if isinstance(form, Outer) and form.shared * (outputs + (1 if self.lookup else inputs)) < outputs * inputs:
            return form
        return Dense(form.rows())

    def finish(self, sizes: list[tuple[int, int]]) -> None:
        """Concatenate the packs, given V and N of each."""
        if any("j" in pack for pack in self.packs):
            self.packs[:] = [{"j": self.unpacked(pack).rows()} if pack else pack for pack in self.packs]
        if like := next((pack for pack in self.packs if pack), None):
            filled = [pack or blank(like, *each) for pack, each in zip(self.packs, sizes, strict=True)]
            self.packs[:] = [joined(filled)]
        else:
            self.packs.clear()

    def packed(self, form: AnyForm) -> Pack:
        """The tensors of a form."""
        if isinstance(form, Dense):
            return {"j": form.j}
        if isinstance(form, Lookup) and self.lookup:
            return {"g": form.g, "numbers": form.indices}
        a = form.a
        if isinstance(form, Unit):
            eye = torch.eye(form.outputs, dtype=a.dtype, device=a.device)
            return {"g": eye[:, None, None, None].expand(-1, len(a), -1, -1, -1), "a": a}
        return {"g": form.g, "a": a}

    def unpacked(self, pack: Pack) -> Form:
        """The form of these tensors."""
        if "j" in pack:
            return Dense(pack["j"])
        if "numbers" in pack:
            return Lookup.of(pack["numbers"], self.shape[2], pack["g"])
        return Outer(lambda: pack["a"], pack["g"])

    def products(self, x: Pack, y: Pack, weights: Float[Tensor, "T p"], separable: bool) -> Float[Tensor, "T K L"]:
        """x diag(w) yᵀ, for several w.

        Args:
            x: K rows.
            y: L rows.
            weights: w.
            separable: True if w depends on the input alone, for example constant over weight and bias.
        """
        if separable and self._factors_are_cheaper(x, y):
            return _products_of_factors(x, y, weights.unflatten(-1, self.shape)[:, 0, 0])
        (v, n), (w, m) = size(x), size(y)
        total = [weights.new_zeros(v * n, w * m)] * len(weights)
        for part in self._strips(v * n + w * m):
            xs, ys = self._strip(x, part), self._strip(y, part)
            for number, each in enumerate(weights.unflatten(-1, self.shape)[:, :, part].flatten(1)):
                kept = each.nonzero().squeeze(-1) if bool((each == 0).any()) else slice(None)
                total[number] = total[number] + (xs[:, kept] * each[kept]) @ ys[:, kept].T
        return torch.stack(total)

    def own_products(
        self, x: Pack, weights: Float[Tensor, " p"], separable: bool, events: int
    ) -> Float[Tensor, "N T E E"]:
        """The blocks of x diag(w) xᵀ for groups of E rows of each datum."""
        w = weights.unflatten(0, self.shape)
        if "numbers" in x:
            form = self.unpacked({**x, "g": x["g"].double()})
            assert isinstance(form, Lookup)
            return Picked.of(*form.merged(), events).grams(w[0], events)
        if separable and "a" in x and x["a"].shape[1] == 1:
            squares = torch.einsum("ngi,i->ng", x["a"][:, 0].double().square(), w[0, 0])
            g = x["g"][:, :, 0].double()
            return weighted_grams(g.square() if events == 1 else g, squares.unsqueeze(-1).expand_as(g[0]), events)
        v, n = size(x)
        found = [
            grams((self._strip(x, part) * w[:, part].reshape(-1).sqrt()).unflatten(0, (v, n)), events)
            for part in self._strips(v * n)
        ]
        return torch.stack(found).sum(0)

    def times(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S K"]:
        """v Xᵀ."""
        shaped, count = v.double().unflatten(-1, self.shape), prod(size(self.pack))
        if "a" in self.pack:
            a, g = self.pack["a"].double(), self.pack["g"].double()
            parts = shaped.split(max(1, ENTRIES // (g[0].numel() + 1)))
            each = (torch.einsum("snrgo,vnrgo->svn", torch.einsum("sgoi,nrgi->snrgo", part, a), g) for part in parts)
            return torch.cat(list(each)).flatten(1)
        total = shaped.new_zeros(len(v), count)
        for part in self._strips(count):
            total += shaped[:, :, part].flatten(1) @ self._strip(self.pack, part).T
        return total

    def transposed(self, c: Float[Tensor, "S K"]) -> Float[Tensor, "S p"]:
        """c X."""
        if "a" in self.pack:
            a, g = self.pack["a"].double(), self.pack["g"].double()
            parts = c.unflatten(1, size(self.pack)).split(max(1, ENTRIES // (g[0].numel() + 1)))
            pulled = (torch.einsum("svn,vnrgo->snrgo", part, g) for part in parts)
            return torch.cat([torch.einsum("snrgo,nrgi->sgoi", part, a) for part in pulled]).flatten(1)
        groups, _, inputs = self.shape
        strips = (c @ self._strip(self.pack, strip) for strip in self._strips(c.shape[1]))
        return torch.cat([part.reshape(len(c), groups, -1, inputs) for part in strips], 2).flatten(1)

    def diagonal(self, w: Float[Tensor, "K K"]) -> Float[Tensor, " p"]:
        """The diagonal of Xᵀ w X, for a symmetric w."""
        groups, _, inputs = self.shape
        factors = "a" in self.pack and self.pack["a"].shape[1] <= size(self.pack)[0]
        rows = w.shape[0] * self.pack["a"].shape[:2].numel() // self.shape[2] + 1 if factors else w.shape[0]
        parts = []
        for part in self._strips(rows):
            if factors:
                parts.append(self._diagonal_of_factors(w, part))
            else:
                strip = self._strip(self.pack, part)
                parts.append(((w @ strip) * strip).sum(0).reshape(groups, -1, inputs))
        return torch.cat(parts, 1).flatten()

    def _diagonal_of_factors(self, w: Float[Tensor, "K K"], part: slice) -> Float[Tensor, "G o I"]:
        """The diagonal for some outputs: Σ over pairs of positions of a a' Σ_vv' w g g'."""
        a, g = self.pack["a"].double(), self.pack["g"][..., part].double()
        pairs = w.unflatten(0, size(self.pack)).unflatten(-1, size(self.pack))
        pairs = torch.einsum("vnrgo,vnmsgo->gomsnr", g, torch.einsum("vnwm,wmsgo->vnmsgo", pairs, g))
        inputs = a.permute(2, 0, 1, 3).flatten(1, 2).unsqueeze(1)  # (G, 1, N·R, I)
        return (pairs.flatten(-2).flatten(2, 3) @ inputs * inputs).sum(2)

    def _strips(self, rows: int) -> list[slice]:
        """Slices of the outputs, such that temporaries fit into memory."""
        groups, outputs, inputs = self.shape
        return even_parts(outputs, ENTRIES // (max(1, rows) * groups * inputs))

    def _strip(self, pack: Pack, part: slice) -> Float[Tensor, "K c"]:
        """The entries of rows for some outputs."""
        if "j" in pack:
            entries = pack["j"].unflatten(-1, self.shape)[..., part, :].double()
        else:
            cut = {**pack, "g": pack["g"][..., part].double()}
            form = self.unpacked(cut if "numbers" in cut else {**cut, "a": cut["a"].double()})
            assert isinstance(form, Outer)
            entries = form.matrices()
        return entries.flatten(2).flatten(0, 1)

    def _factors_are_cheaper(self, x: Pack, y: Pack) -> bool:
        if "g" not in x or "g" not in y:
            return False
        _, outputs, inputs = self.shape
        pairs = x["g"].shape[2] * y["g"].shape[2]
        columns = x["g"].shape[0] * y["g"].shape[0]
        return pairs * (outputs + inputs / columns + 3) <= outputs * inputs


def _products_of_factors(x: Pack, y: Pack, weights: Float[Tensor, "T I"]) -> Float[Tensor, "T K L"]:
    """Σ over pairs of positions of (a · a')(g · g')."""
    h = y["g"].double()
    each, result = x["g"][:, :1].numel() * h[..., 0].numel() // h.shape[-1], []
    for data in even_parts(x["g"].shape[1], ENTRIES // max(1, each)):
        part = pick(x, data)
        outputs = torch.einsum("vnrgo,wmsgo->vnrwmsg", part["g"].double(), h)
        if "a" in x:
            inputs = torch.einsum("nrgi,ti,msgi->tnrmsg", part["a"].double(), weights, y["a"].double())
        else:
            numbers = part["numbers"][..., None, None]
            same = (numbers == y["numbers"]) & (numbers >= 0)
            inputs = (same * weights[:, numbers.clamp(min=0)]).unsqueeze(-1)
        # (T, N, R, 1, M, S, G)
        result.append(torch.stack([(outputs * each).sum((2, 5, 6)) for each in inputs[:, :, :, None]]))
    return torch.cat(result, 2).flatten(3).flatten(1, 2)
