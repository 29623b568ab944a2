"""The mode of the linear model around a network."""

import warnings
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.batches import Data
from osculate.evidence.solvers import Newton, Search, Stochastic
from osculate.posteriors import Gaussian, as_gaussian
from osculate.registry import lookup

#: Ways to the mode by name.
SOLVERS = {"newton": Newton, "stochastic": Stochastic}


def linear_mode(
    q: Any, data: Data | None = None, solver: str | Newton | Stochastic = "newton", start: Tensor | None = None
) -> Float[Tensor, " P"]:
    r"""The parameters at which the linear model of a linearised Laplace approximation has its mode.

    .. math:: \theta_* = \operatorname{argmin}_\theta\; -\tfrac1T \sum_n \log p(y_n \mid f(\tilde\theta, x_n)
              + J(x_n)(\theta - \tilde\theta)) + \tfrac12 \lVert \theta \rVert_\Lambda^2

    Around the network's own parameters θ̃, for the prior and the noise that the posterior has. The problem is convex for
    likelihoods that are log-concave in f. [antoran2022]

    Args:
        q: a Gaussian posterior of any structure, which serves as preconditioner.
        data: the data that it was fitted to; only a posterior from a file, or one fitted to an iterator, needs it.
        solver: "newton", "stochastic", or an object ``osc.evidence.Newton`` or ``osc.evidence.Stochastic``.
        start: the first θ, (P,): by default θ̃. The mode for a similar prior saves passes.

    Returns:
        θ_* (P,), flat, in the order of ``named_parameters()``. Parameters outside of a subnetwork keep their values.

    Raises:
        ValueError: no data, or other data than those of the fit; an unknown solver.

    Cost: see :class:`~osculate.evidence.solvers.Newton` and :class:`~osculate.evidence.solvers.Stochastic`.

    >>> X, Y = torch.randn(30, 2), torch.randn(30, 1)
    >>> q = osc.laplace(nn.Linear(2, 1), osc.likelihoods.Gaussian(), (X, Y), structure="full", prior=1.0)
    >>> theta = osc.evidence.linear_mode(q, (X, Y))
    >>> again = osc.evidence.linear_mode(q, (X, Y), start=theta)
    >>> bool((again - theta).norm() < 1e-3)
    True
    """
    return found(as_gaussian(q, "linear_mode"), data, solver, start).theta


def found(q: Gaussian, data: Data | None, solver: str | Newton | Stochastic, start: Tensor | None = None) -> Search:
    """A search that has ended at the mode for the prior and the noise of ``q``."""
    chosen = as_solver(solver)
    q = q.replace(prior=q.prior.with_precision(q.prior.precision.detach()))
    with torch.no_grad():
        search = chosen.search(q, data, start)
        _settle(search, q, chosen)
    return search


def as_solver(solver: Any) -> Newton | Stochastic:
    """A solver, or the one that a name stands for."""
    if isinstance(solver, str):
        return lookup("solver", solver, SOLVERS)()
    if not isinstance(solver, Newton | Stochastic):
        raise TypeError(f"solver must be 'newton', 'stochastic' or an object of these classes, got {solver!r}.")
    return solver


def _settle(search: Search, q: Gaussian, solver: Newton | Stochastic) -> None:
    """Search until the mode is as close as the solver is asked for, or warn."""
    gap = float("inf")
    for _ in range(solver.max_steps):
        gap = search.improve(q, solver.tolerance)
        if gap <= solver.tolerance:
            return
    if isinstance(solver, Newton):
        gap = search.improve(q, solver.tolerance)  # of the last step
    if not gap <= solver.tolerance:
        warnings.warn(
            f"the mode of the linear model was not reached: the objective is still about {gap:.1e} nats above its "
            f"minimum, and {solver.tolerance:.1e} was asked for. Allow {type(solver).__name__} more work, a larger "
            "tolerance, or compute in float64.",
            stacklevel=4,
        )
