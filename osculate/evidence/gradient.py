"""All hyperparameters by the gradient of the evidence: for priors with more than precisions, and priors over them."""

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from osculate.evidence.mode import Search, evidence_at
from osculate.evidence.problem import LinearProblem, Problem, effective_parameters, listed
from osculate.posteriors import Gaussian
from osculate.priors import Prior
from osculate.progress import track

#: Bounds on the logarithms of the hyperparameters, and on that of the noise relative to its initial value.
BOUNDS: Mapping[str, tuple[float, float]] = {"precision": (-10.0, 14.0), "lengthscale": (-3.0, 4.0)}
NOISE = (-5.0, 5.0)
#: What it means that the evidence still rises at a bound, by hyperparameter and side, and what to do.
MEANINGS: Mapping[tuple[str, int], str] = {
    ("precision", 1): "the data are explained best with these parameters at the mean of their prior; leave them out of "
    "the posterior, or compare on held-out data",
    ("precision", -1): "these parameters are that large; standardise inputs and targets",
    ("lengthscale", 1): "the entries of a filter are nearly equal; take smaller filters, or favour shorter "
    "length-scales by a hyperprior",
    ("lengthscale", -1): "the entries of a filter are independent; osc.priors.Layerwise says the same at less cost",
    ("noise scale", 1): "standardise the targets, or start with a larger scale",
    ("noise scale", -1): "the outputs equal the targets; fix the scale (noise=False)",
}
#: A prior over the hyperparameters: −log p, differentiable.
HyperPrior = Callable[[Prior], Tensor]


class _Converged(Exception):
    """The stationarity condition holds at these values, with this gradient."""


def climb(
    q: Gaussian,
    noise: bool,
    point: Search | tuple[Float[Tensor, " P"], Mapping[str, Tensor]],
    hyperprior: HyperPrior | None = None,
    max_steps: int = 300,
    tolerance: float | None = None,
    progress: bool = False,
) -> Gaussian:
    """Maximise the evidence over the logarithms of all hyperparameters and, if it is tuned, the noise.

    By L-BFGS within wide bounds, from the values of ``q``.

    Args:
        q: The posterior.
        noise: True to tune the noise scale.
        point: A search for the mode of the linear model, at which the evidence is taken, or parameters with the
            statistics of its likelihood there.
        hyperprior: −log p of the hyperparameters, which is added to the objective.
        max_steps: Largest number of evaluations.
        tolerance: Largest violation of the stationarity condition, relative to γ of a group, or for the noise to N C;
            by default the search ends where the objective no longer falls.
        progress: Show a progress bar.

    Raises:
        ValueError: the objective is not finite at the start.
    """
    start = {name: value.detach().double() for name, value in q.prior.hyperparameters.items()}
    sizes = [value.numel() for value in start.values()]

    def posterior(x: Float[Tensor, " D"]) -> Gaussian:
        parts = x[: sum(sizes)].split(sizes)
        values = {
            name: part.exp().reshape(value.shape) for (name, value), part in zip(start.items(), parts, strict=True)
        }
        likelihood = q.likelihood.times(x[-1].exp()) if noise else q.likelihood
        return q.replace(prior=q.prior.with_hyperparameters(values), likelihood=likelihood)

    def loss(x: Float[Tensor, " D"]) -> Tensor:
        here = posterior(x)
        if isinstance(point, Search):
            point.improve(posterior(x.detach()))
            value = -point.evidence(here)
        else:
            value = -evidence_at(here, *point)
        return value if hyperprior is None else value + hyperprior(here.prior)

    names = [name for name, size in zip(start, sizes, strict=True) for _ in range(size)] + ["noise scale"] * noise
    bounds = [NOISE if name == "noise scale" else BOUNDS.get(name, (-20.0, 20.0)) for name in names]
    low, high = torch.tensor(bounds, dtype=torch.double).T

    def pull(x: Float[Tensor, " D"], slope: Float[Tensor, " D"]) -> Int[Tensor, " D"]:
        """1 and −1 at a bound, upper and lower, at which the objective still falls; 0 elsewhere."""
        return ((x >= high) & (slope < 0)).int() - ((x <= low) & (slope > 0)).int()

    @torch.no_grad()
    def violation(x: Float[Tensor, " D"], slope: Float[Tensor, " D"]) -> float:
        floor = (LinearProblem if isinstance(point, Search) else Problem).floor
        gamma = effective_parameters(posterior(x)).clamp(min=floor)
        scale = [0.5 * (gamma if size == len(gamma) else gamma.sum().expand(size)) for size in sizes]
        if noise:
            count, _ = q.likelihood.noise_balance(q.fit.statistics)
            scale.append((count / q.temperature).double().reshape(1).cpu())
        return float((slope.abs() / torch.cat(scale)).masked_fill(pull(x, slope) != 0, 0.0).max())

    steps: Any = track(range(max_steps), "evidence", max_steps, progress)

    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
        x = torch.tensor(values, requires_grad=True)
        with torch.enable_grad():
            value = loss(x)
            (slope,) = torch.autograd.grad(value, x)
        next(steps, None)
        if tolerance is not None and violation(x.detach(), slope) <= tolerance:
            raise _Converged(x.detach(), slope)
        return value.item(), slope.numpy()

    x = torch.cat([*(value.log().reshape(-1).cpu() for value in start.values()), torch.zeros(int(noise)).double()])
    x = x.clamp(low, high)
    if not math.isfinite(loss(x).item()):
        raise ValueError("the evidence is not finite at the initial values: check the data, the noise and the network.")
    from scipy.optimize import minimize

    options = {"maxfun": max_steps} | ({} if tolerance is None else {"ftol": 0.0, "gtol": 0.0})
    try:
        found = minimize(objective, x.numpy(), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        x, slope = torch.tensor(found.x), torch.tensor(found.jac)
        left = math.inf if tolerance is None else violation(x, slope)
        if found.nfev >= max_steps if tolerance is None else left > tolerance:
            how = "" if tolerance is None else f"the stationarity condition is violated by {left:.1e} (relative); "
            more = "" if tolerance is None else " or the tolerance"
            warnings.warn(
                f"the evidence was still rising after {found.nfev} evaluations: {how}raise max_steps{more}.",
                stacklevel=3,
            )
    except _Converged as end:
        x, slope = end.args
    finally:
        steps.close()
    _warn_of_bounds(q.prior.members(q.network.space), names, bounds, pull(x, slope).tolist())
    best = posterior(x).prior.hyperparameters
    values = {name: best[name].to(value) for name, value in q.prior.hyperparameters.items()}
    likelihood = q.likelihood.times(math.exp(x[-1])) if noise else q.likelihood
    return q.replace(prior=q.prior.with_hyperparameters(values), likelihood=likelihood)


def _warn_of_bounds(
    groups: Mapping[str, Any], names: list[str], bounds: list[tuple[float, float]], pull: list[int]
) -> None:
    """Warn of hyperparameters that are at a bound, with the groups that they belong to."""
    found: dict[tuple[str, int], list[str]] = {}
    for number, (name, way) in enumerate(zip(names, pull, strict=True)):
        if way:
            of, index = names.count(name), number - names.index(name)
            found.setdefault((name, way), []).append(repr(list(groups)[index]) if of == len(groups) else str(index))
    parts = []
    for (name, way), labels in found.items():
        bound = f"{math.exp(bounds[names.index(name)][way > 0]):.2g}"
        where = f"{bound} times the initial one" if name == "noise scale" else f"{bound} for {listed(labels)}"
        meaning = MEANINGS.get((name, way), "the data do not determine it; fix it")
        parts.append(f"the {name} reaches {where}: {meaning}")
    if parts:
        warnings.warn(f"the evidence has no maximum inside of its bounds: {'; '.join(parts)}.", stacklevel=4)
