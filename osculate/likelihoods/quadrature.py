"""Nodes and weights of the integrals in predictives."""

from functools import lru_cache
from math import ceil, log

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from torch.quasirandom import SobolEngine

#: Nodes of an integral over a normal: with 32, the smallest weight is still above the smallest float32.
NODES = 32
#: Probability that is cut off on either side of a gamma variable, and largest step in its logarithm.
TAIL, STEP = 1e-12, 0.5


@lru_cache(maxsize=4)
@torch.inference_mode(False)  # cached tensors must also work with autograd
def normal_nodes(count: int = NODES) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
    """Gauss–Hermite nodes of a standard normal, and the logarithms of their weights, in double precision."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(count)
    return torch.from_numpy(nodes), torch.from_numpy(weights / weights.sum()).log()


@lru_cache(maxsize=16)
@torch.inference_mode(False)
def normal_points(points: int, dimensions: int) -> Float[Tensor, "S E"]:
    """A fixed quasi-random sample of a standard normal, in double precision."""
    uniform = SobolEngine(dimensions, scramble=True, seed=0).draw(points, dtype=torch.double)
    return torch.special.ndtri(uniform.clamp(1e-9, 1 - 1e-9))


@lru_cache(maxsize=16)
@torch.inference_mode(False)
def log_gamma_nodes(shape: float) -> tuple[Float[Tensor, " K"], Float[Tensor, " K"]]:
    """Equidistant values of u = log w for w ~ Gamma(shape, rate=shape), and their log weights, in double precision.

    The trapezoidal rule converges faster than any power for integrands that are smooth in log w, and reaches as far
    into both tails as TAIL. There are 64 nodes, and more for shapes below 1: log w then has a long tail.
    """
    from scipy.special import gammainccinv, gammaincinv

    low, high = log(gammaincinv(shape, TAIL) / shape), log(gammainccinv(shape, TAIL) / shape)
    u = torch.linspace(low, high, max(2 * NODES, ceil((high - low) / STEP)), dtype=torch.double)
    return u, (shape * (u - u.exp())).log_softmax(0)
