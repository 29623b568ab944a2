"""Prior precisions and noise scale by the evidence, at the network's own parameters or at the linear model's mode."""

from math import log
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.batches import Data
from osculate.evidence.em import expectation_maximisation
from osculate.evidence.gradient import HyperPrior, climb
from osculate.evidence.laplace import MODES, fixed_point
from osculate.evidence.mode import Solver, as_solver
from osculate.evidence.problem import LARGEST, Evaluation, LinearProblem, Problem, alternate, ascend, finish
from osculate.evidence.variational import unrefined
from osculate.posteriors import Gaussian, as_gaussian
from osculate.registry import choose

#: Relative violation of the stationarity condition at the network's own parameters, and evaluations at most.
TOLERANCE, STEPS = 3e-4, 200


def maximise_evidence(
    q: Any,
    mode: str | Float[Tensor, " P"] = "network",
    tolerance: float | None = None,
    max_steps: int = STEPS,
    noise: bool = True,
    data: Data | None = None,
    solver: str | Solver = "newton",
    hyperprior: HyperPrior | None = None,
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

    Where the prior has more than precisions, as the length-scales of :class:`osculate.priors.Filters`, or there is a
    prior over them, all are found together by L-BFGS with the gradient of the evidence.

    Args:
        q: A Gaussian posterior; its prior and noise scale are the start.
        mode: "network", at the network's own parameters, "linear", at the mode of the linear model, or "em", there and
            with samples; with length-scales or a ``hyperprior`` also flat parameters of the linear model.
        tolerance: On max_g |γ_g − δ_g‖θ_g‖²| / γ_g, the relative violation of the stationarity condition. By default
            3e-4; with mode="linear" 0.02, with mode="em" 0.01. With length-scales or a ``hyperprior`` it
            is on the gradient in the logarithm of each, relative to γ_g / 2, and by default the search ends where the
            evidence no longer rises.
        max_steps: Evaluations of γ at most; with mode="em" rounds.
        noise: Tune the noise scale of a Gaussian likelihood too.
        data: The data that ``q`` was fitted to, for mode="linear" and "em"; only needed for a posterior from a file, or
            one fitted to an iterator.
        solver: Finds the mode of the linear model, see :func:`osculate.evidence.linear_mode`.
        hyperprior: A function from a prior to −log p of its hyperparameters, differentiable, such as
            :class:`osculate.evidence.PredCP`.
        progress: Show a progress bar, for mode="linear" and "em", and with length-scales or a ``hyperprior``.

    Returns:
        A new posterior. ``osc.evidence.effective_parameters`` gives its γ. Of a refined posterior, the evidence is that
        of the Laplace approximation that it started from, and the result is refined in the same way.

    Raises:
        ValueError: an unknown mode, no data where they are needed, a refined posterior from a file, or mode="em" with
            length-scales or a prior over hyperparameters.

    A warning says that the evidence has no maximum inside of the bounds 1e-16 and 1e12, for which groups, and what that
    means. With length-scales or a ``hyperprior`` the bounds are 5e-5 and 1e6, and 0.05 and 55 pixels. Groups of biases
    that are zero from the start get the largest precision without a warning. With mode="linear" and "em" the evidence
    may have several maxima, in which other groups vanish: the start decides, that is the prior of ``q``. Where a group
    vanishes the posterior is sure of weights that the network has and that the linear model would do without: compare
    on held-out data, or give groups that vanish to a larger one.

    Cost: about ten evaluations of γ, each O(P) for diag and kron and O(P³) for full; no pass over the data. With
    mode="linear" each of ten to forty evaluations moves the mode too, by five to thirty passes over the data.

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
    if hyperprior is not None and not callable(hyperprior):
        raise TypeError(
            "hyperprior must be a function of a prior, such as osc.evidence.PredCP.of(q, x, weight), "
            f"got {hyperprior!r:.80}."
        )
    if q.prior.curvature is not None:
        raise ValueError(
            f"the prior {q.prior!r} is given, and has no precisions that the evidence could choose. For another "
            "weight of the earlier data take q.replace(prior=q.prior.with_precision(weight))."
        )
    if q.offset is not None:
        start = unrefined(q, data)
        tuned = maximise_evidence(start, mode, tolerance, max_steps, noise, data, solver, hyperprior, progress)
        return q.refinement.again(tuned)
    noise = noise and q.likelihood.has_noise
    if hyperprior is not None or len(q.prior.hyperparameters) > 1 or isinstance(mode, Tensor):
        if not isinstance(mode, Tensor) and choose("mode of the evidence", mode, MODES) == "linear":
            linear_search = as_solver(solver).search(q, data, None)
            return climb(q, noise, linear_search, hyperprior, max_steps, tolerance, progress)
        return climb(q, noise, fixed_point(q, mode, data), hyperprior, max_steps, tolerance, progress)
    if choose("mode of the evidence", mode, (*MODES, "em")) == "em":
        tolerance = 0.01 if tolerance is None else tolerance
        return expectation_maximisation(q, 64, data, solver, tolerance, max_steps, noise, progress=progress)
    if mode == "linear":
        tolerance = 0.02 if tolerance is None else tolerance
        linear = LinearProblem(q, noise, as_solver(solver).search(q, data, None))
        return finish(linear, alternate(linear, tolerance, max_steps, progress), tolerance, max_steps)
    tolerance = TOLERANCE if tolerance is None else tolerance
    return finish(*at_own_parameters(q, noise, tolerance, max_steps), tolerance, max_steps)


@torch.no_grad()
def at_own_parameters(
    q: Gaussian, noise: bool, tolerance: float = TOLERANCE, max_steps: int = STEPS
) -> tuple[Problem, Evaluation]:
    """The search at the network's own parameters and its end, without warnings; see :func:`maximise_evidence`."""
    problem = Problem(q, noise)
    start, squares = problem.start(), problem.own_squares
    zero = (squares == 0) & ~problem.unseen[: len(squares)]
    start[: len(squares)].masked_fill_(zero, log(LARGEST))  # groups of zeros have no maximum
    return problem, ascend(problem, start, tolerance, max_steps)
