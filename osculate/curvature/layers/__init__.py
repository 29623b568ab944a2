"""The layer rules. One file a family; importing it registers its rules."""

from osculate.curvature.layers import conv, embedding, linear, norm, scale
from osculate.curvature.layers._base import RULES as RULES, Call as Call, Use as Use

__all__ = ["RULES", "Call", "Use", "conv", "embedding", "linear", "norm", "scale"]
