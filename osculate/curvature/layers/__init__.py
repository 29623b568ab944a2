"""The layer rules. One file a family; importing it registers its rules."""

from osculate.curvature.layers import attention, conv, embedding, linear, norm, recurrent, scale
from osculate.curvature.layers._base import REWRITES as REWRITES, RULES as RULES, Call as Call, Use as Use
from osculate.curvature.layers.sources import Sources as Sources

__all__ = [
    "REWRITES", "RULES", "Call", "Sources", "Use",
    "attention", "conv", "embedding", "linear", "norm", "recurrent", "scale",
]  # fmt: skip
