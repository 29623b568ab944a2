"""f → G: how the curvature of the log likelihood is taken from a network."""

from osculate.curvature import reference as reference
from osculate.curvature.columns import GGN as GGN, REGISTRY as REGISTRY, Fisher as Fisher, Kind as Kind
