"""f → G: the curvature of the log likelihood of a network."""

from osculate.curvature import reference as reference
from osculate.curvature.columns import (
    GGN as GGN,
    REGISTRY as REGISTRY,
    EmpiricalFisher as EmpiricalFisher,
    Fisher as Fisher,
    Hessian as Hessian,
    Kind as Kind,
)
