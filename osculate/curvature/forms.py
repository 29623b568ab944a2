"""What a layer hands on to a structure: the small type in which layers and structures meet.

For a block of parameters, the rows s_vᵀ J_n (V columns s_v of a root of the output Hessian, N data) come in one of
two forms. ``Outer`` keeps the two factors of an affine operation apart, ``Dense`` holds the rows themselves.
"""

from dataclasses import dataclass
from typing import TypeAlias

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Outer:
    r"""Rows that are sums of outer products over the positions R at which a weight is used.

    .. math:: J_n^\top s_v = \sum_r g_{vnr} \otimes a_{nr}, \quad \text{a matrix } (O, I) \text{ for each group } G

    Attributes:
        a: the inputs of the operation at each position; a last feature of ones carries the bias.
        g: the columns pulled back to the outputs of the operation.
    """

    a: Float[Tensor, "N R G I"]
    g: Float[Tensor, "V N R G O"]

    @property
    def shared(self) -> int:
        """R, the number of positions."""
        return self.a.shape[1]

    def matrices(self) -> Float[Tensor, "V N G O I"]:
        """The rows as matrices; costs V·N·R·O·I operations and V·N·O·I memory."""
        v, n, r, groups, o = self.g.shape
        a = self.a.permute(0, 2, 1, 3)  # (N, G, R, I)
        g = self.g.permute(1, 3, 0, 4, 2).reshape(n, groups, v * o, r)  # (N, G, V·O, R)
        return (g @ a).reshape(n, groups, v, o, -1).permute(2, 0, 1, 3, 4)

    def rows(self) -> Float[Tensor, "V N p"]:
        """The rows, flattened over (G, O, I)."""
        return self.matrices().flatten(2)

    def per_sample(self, count: int) -> "Outer":
        """The same with leading axes of length N·k read as N samples of k·R positions."""
        if len(self.a) == count:
            return self
        a, g = self.a, self.g
        return Outer(a.reshape(count, -1, *a.shape[2:]), g.reshape(len(g), count, -1, *g.shape[3:]))


@dataclass(frozen=True)
class Dense:
    """The rows themselves.

    Attributes:
        j: one row of length p for each column and datum.
    """

    j: Float[Tensor, "V N p"]

    def rows(self) -> Float[Tensor, "V N p"]:
        """The rows."""
        return self.j

    def per_sample(self, count: int) -> "Dense":
        """The same with a leading axis of length N·k summed over k."""
        v, n, p = self.j.shape
        return self if n == count else Dense(self.j.reshape(v, count, -1, p).sum(2))


Form: TypeAlias = Outer | Dense


def concatenate(forms: list[Outer]) -> Outer:
    """Several uses of one weight as one form: their positions, one after the other (exact)."""
    return Outer(torch.cat([form.a for form in forms], 1), torch.cat([form.g for form in forms], 2))
