"""Prior precisions and noise scale by the evidence, at the network's own parameters or at the linear model's mode."""

import warnings
from itertools import count
from math import log
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.batches import Data
from osculate.evidence.ascent import LARGEST, SMALLEST, Problem, State, ascend
from osculate.evidence.em import expectation_maximisation
from osculate.evidence.laplace import MODES
from osculate.evidence.linear_problem import LinearProblem
from osculate.evidence.mode import as_solver
from osculate.evidence.solvers import Newton, Stochastic
from osculate.posteriors import Gaussian, as_gaussian
from osculate.progress import track
from osculate.registry import choose

#: Groups that a warning names at most.
NAMED = 5


def maximise_evidence(
    q: Any,
    mode: str = "network",
    tolerance: float | None = None,
    max_steps: int = 200,
    noise: bool = True,
    data: Data | None = None,
    solver: str | Newton | Stochastic = "newton",
    progress: bool = False,
) -> Gaussian:
    r"""The same posterior with prior precisions, and the noise scale where there is one, of largest evidence.

    .. math:: \delta_g = \gamma_g / \lVert\theta_g\rVert^2, \qquad
              \beta = (N C - \textstyle\sum_g \gamma_g) / \mathrm{SSE}

    One precision for each group of the prior (all parameters, each tensor, named groups, or each parameter). A noise
    scale for each output keeps its proportions. [mackay1992]

    With ``mode="linear"``, θ and SSE are those of the linear model h(θ, x) = f(θ̃, x) + J(x) (θ − θ̃) at its own mode
    θ_*, which depends on the precisions: both are found together, with G kept at the network's parameters θ̃.
    A network that was stopped early, trained with weight decay of another size, or normalised is at no mode of its
    posterior, and the precisions that its own weights suggest are off, mostly too small. With one precision for each
    group of :meth:`osculate.priors.Grouped.normalised`, the posterior does not depend on the scale of weights that a
    normalisation undoes. The mean of the posterior stays θ̃, so that predictions are those of the network, with the
    error bars of the tuned prior. [antoran2022]

    ``mode="em"`` does the same with γ from posterior samples, for structure="matrix_free" and networks too large for
    variances: see :func:`osculate.evidence.expectation_maximisation`.

    Args:
        q: a Gaussian posterior; its prior and noise scale are the start.
        mode: "network", at the network's own parameters, "linear", at the mode of the linear model, or "em", there and
            with samples.
        tolerance: on max_g |γ_g − δ_g‖θ_g‖²| / γ_g, the relative violation of the stationarity condition. By default
            3e-4; with mode="linear" 0.02, with mode="em" 0.01.
        max_steps: evaluations of γ at most; with mode="em" rounds.
        noise: whether the noise scale of a Gaussian likelihood is tuned too.
        data: what ``q`` was fitted to, for mode="linear" and "em"; may be left out for structure="matrix_free".
        solver: finds the mode of the linear model, see :func:`osculate.evidence.linear_mode`.
        progress: count the moves of the mode of the linear model.

    Returns:
        A new posterior. ``osc.evidence.effective_parameters`` gives its γ.

    Raises:
        ValueError: an unknown mode, or no data where they are needed.

    A warning says that the evidence has no maximum inside of the bounds 1e-8 and 1e12, for which groups, and what that
    means. Groups of vectors alone (biases that are zero from the start, scales) get the largest precision without one.

    Cost: about ten evaluations of γ, each O(P) for diag and kron and O(P³) for full; no pass over the data. With
    mode="linear" each of ten to twenty evaluations moves the mode too, by five to thirty passes over the data.

    >>> import osculate as osc
    >>> torch.manual_seed(0)
    <torch._C.Generator object at ...>
    >>> x = torch.randn(50, 3)
    >>> y = x @ torch.ones(3, 1) + 0.1 * torch.randn(50, 1)
    >>> net = torch.nn.Linear(3, 1)
    >>> q = osc.laplace(net, osc.likelihoods.Gaussian(1.0), (x, y), structure="full", prior=1.0)
    >>> q = osc.maximise_evidence(q, mode="linear", data=(x, y))
    >>> round(float(q.likelihood.scale), 1)
    0.1
    """
    q = as_gaussian(q, "maximise_evidence")
    noise = noise and q.likelihood.has_noise
    if choose("mode of the evidence", mode, (*MODES, "em")) == "em":
        tolerance = 0.01 if tolerance is None else tolerance
        return expectation_maximisation(
            q, data=data, solver=solver, tolerance=tolerance, max_steps=max_steps, noise=noise
        )
    if mode == "network":
        problem, start = Problem(q, noise), _without_zeros(Problem(q, noise))
        tolerance = 3e-4 if tolerance is None else tolerance
    else:
        moves = track(count(1), "mode of the linear model", None, progress)
        problem = LinearProblem(q, noise, as_solver(solver).search(q, data, None), moves)
        start, tolerance = problem.start(), 0.02 if tolerance is None else tolerance
    with torch.no_grad():
        end = ascend(problem, start, tolerance, max_steps)
    warn_of_bounds(problem, end)
    return problem.posterior(end.x.masked_fill(end.pull > 0, log(LARGEST)))


def _without_zeros(problem: Problem) -> Float[Tensor, " D"]:
    """The start, but for groups that are all zero, which have no maximum, at the largest precision."""
    start, squares = problem.start(), problem.squares(problem.q.mean)
    start[: len(squares)].masked_fill_(squares == 0, log(LARGEST))
    return start


def warn_of_bounds(problem: Problem, end: State) -> None:
    """Say which precisions have no maximum, and what it means; nothing of biases and the like that are best at zero."""
    if not bool(end.pull.any()):
        return
    q, groups = problem.q, problem.q.prior.members(problem.q.network.space)
    vectors = {name for name, p in q.network.parameters.items() if p.ndim < 2}
    pull = dict(zip(groups, end.pull.tolist(), strict=False))
    up = [label for label, way in pull.items() if way > 0 and not vectors >= set(groups[label])]
    down = [label for label, way in pull.items() if way < 0]
    parts = []
    if up:
        parts.append(
            f"grows with the prior precision without end for {_listed(up)}: the data are explained best with these "
            f"parameters at zero, and they get the precision {LARGEST:.0e}, which holds them there"
        )
    if down:
        parts.append(
            f"falls with the prior precision without end for {_listed(down)}: the data say nothing about these "
            f"parameters (no output depends on them), and the precision {SMALLEST:.0e} that they get is a bound; give "
            "them a precision that does not depend on the data, or a larger group"
        )
    if problem.tunes_noise and int(end.pull[-1]):
        parts.append(
            "grows without end as the noise scale falls: the outputs equal the targets; fix the scale (noise=False)"
        )
    if parts:
        warnings.warn(f"the evidence has no maximum inside of its bounds: it {'; it '.join(parts)}.", stacklevel=3)


def _listed(labels: list[str]) -> str:
    more = len(labels) - NAMED
    return ", ".join(labels[:NAMED]) + (f" and {more} more" if more > 0 else "")
