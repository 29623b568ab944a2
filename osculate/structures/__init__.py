"""Structures: the entries of the curvature matrix G that are kept. One file per family."""

from collections.abc import Callable as _Callable

from osculate.structures._base import (
    Curvature as Curvature,
    PosteriorPrecision as PosteriorPrecision,
    Structure as Structure,
)
from osculate.structures.diag import Diag as Diag
from osculate.structures.dual import Dual as Dual
from osculate.structures.full import BlockDiagonal as BlockDiagonal, Full as Full
from osculate.structures.kron import EKFAC as EKFAC, Kron as Kron
from osculate.structures.low_rank import LowRank as LowRank
from osculate.structures.approx_diag import ApproxDiag as ApproxDiag
from osculate.structures.mixed_diag import MixedDiag as MixedDiag
from osculate.structures.matrix_free import MatrixFree as MatrixFree

#: The structures by name, as they are typed.
REGISTRY: dict[str, _Callable[[], Structure]] = {
    "full": Full,
    "block": BlockDiagonal,
    "kron": Kron,
    "ekfac": EKFAC,
    "diag": Diag,
    "low_rank": LowRank,
    "dual": Dual,
    "matrix_free": MatrixFree,
    "approx_diag": ApproxDiag,
    "mixed_diag": MixedDiag,
}
