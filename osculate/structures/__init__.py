"""G as a matrix: which entries of the curvature are kept. One file a structure."""

from collections.abc import Callable

from osculate.structures._base import (
    Curvature as Curvature,
    PosteriorPrecision as PosteriorPrecision,
    Structure as Structure,
)
from osculate.structures.diag import Diag as Diag
from osculate.structures.full import Full as Full
from osculate.structures.kron import Kron as Kron

#: The structures by name, as they are typed.
REGISTRY: dict[str, Callable[[], Structure]] = {"full": Full, "kron": Kron, "diag": Diag}
