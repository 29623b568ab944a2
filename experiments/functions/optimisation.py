"""Bayesian optimisation of test functions with a Laplace surrogate, a Gaussian process and without a surrogate."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor

import osculate as osc
from experiments import Claim, Findings, Record, Resumable, Runner, Table, experiment, seeded
from osculate.tasks.bayesian_optimisation import compressed


@dataclass(frozen=True)
class Settings(Resumable):
    """Test functions and numbers of their evaluations.

    Args:
        evaluations: Evaluations of each problem, the first design included.
        problems: Names of the problems.
    """

    evaluations: tuple[int, ...] = (30, 60, 80)
    problems: tuple[str, ...] = ("Branin", "Hartmann-6", "Rosenbrock-20")


LAPLACE, GP, SOBOL = "Laplace", "Gaussian process", "Sobol points"
RAW = "Gaussian process, values not compressed"
GAP, COST = "distance to the optimum", "CPU s an evaluation"
DENSITY, INSIDE = "held-out log density, nats", "held-out values within 1 sd, %"
#: Held-out points.
POINTS = 400
#: Distances are drawn no smaller than this.
SMALLEST = 1e-5
#: Class in ``botorch.test_functions`` and number of inputs.
PROBLEMS: Mapping[str, tuple[str, int]] = {
    "Branin": ("Branin", 2),
    "Hartmann-6": ("Hartmann", 6),
    "Rosenbrock-20": ("Rosenbrock", 20),
}


def laplace(points: Tensor, values: Tensor) -> Any:
    """Fit the surrogate of osculate."""
    from osculate.adapters.botorch import LaplaceModel

    return LaplaceModel.fitted(points, values)


def gaussian_process(points: Tensor, values: Tensor) -> Any:
    """Fit BoTorch's Gaussian process, by its defaults."""
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from gpytorch.mlls import ExactMarginalLogLikelihood

    model = SingleTaskGP(points, values)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return model


#: Fits by surrogate; of Sobol points, all of which are a first design, none is made.
SURROGATES: Mapping[str, Callable[[Tensor, Tensor], Any]] = {
    LAPLACE: laplace,
    GP: gaussian_process,
    RAW: gaussian_process,
    SOBOL: laplace,
}


@experiment(
    "functions-optimisation",
    "Bayesian optimisation: Laplace surrogate, Gaussian process and Sobol points",
    "No document: test functions of BoTorch. Surrogate and compression were chosen on other functions: Six-hump camel, "
    "Rosenbrock-2, Hartmann-3, and in part Ackley-4 and Levy-4",
    peers=("botorch",),
    paper=Settings((60, 120, 160)),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Minimise each function with each surrogate; the first design is that of the seed."""
    budgets = dict(zip(settings.problems, settings.evaluations, strict=True))
    jobs = product(budgets, SURROGATES, seeds)
    runs = runner.over(
        "problems, surrogates and seeds", jobs, partial(optimised, budgets), "optimisation", [settings.evaluations]
    )
    table = Table()
    curves: dict[str, dict[str, list[list[float]]]] = {}
    for (problem, surrogate), each in runs.items():
        for run in each:
            table.add(f"{problem}: {surrogate}", {GAP: run["gaps"][-1], COST: run[COST]})
        curves.setdefault(problem, {})[surrogate] = [run["gaps"] for run in each]
    for problem, surrogate, seed in runner.track(list(product(budgets, (LAPLACE, GP), seeds)), "held-out points"):
        table.add(f"{problem}: {surrogate}", held_out(problem, surrogate, budgets[problem], seed))
    return Findings(table.numbers(), claims(table, budgets), {"gaps": curves})


def function_of(problem: str) -> Any:
    """Return the test function, to be minimised."""
    from botorch import test_functions

    name, inputs = PROBLEMS[problem]
    kind = getattr(test_functions, name)
    return kind() if name == "Branin" else kind(inputs)


def first_design(problem: str, count: int) -> int:
    """Return the number of evaluations before the first fit."""
    return min(2 * (PROBLEMS[problem][1] + 1), count // 2)


def optimised(budgets: Mapping[str, int], problem: str, surrogate: str, seed: int) -> dict[str, Any]:
    """Return the distance of the best value to the optimum after each evaluation, and the cost."""
    function = function_of(problem)
    bounds, count = function.bounds.T.tolist(), budgets[problem]
    first = count if surrogate == SOBOL else first_design(problem, count)
    start = time.process_time()
    found = osc.tasks.bayesian_optimisation(
        lambda x: -function(x), bounds, SURROGATES[surrogate], count, first, seed, surrogate != RAW
    )
    gaps = -found.best - function.optimal_value
    return {"gaps": [float(f"{gap:.4g}") for gap in gaps], COST: (time.process_time() - start) / count}


def held_out(problem: str, surrogate: str, count: int, seed: int) -> dict[str, float]:
    """Return the scores of a surrogate of Sobol points at random points; both have compressed values."""
    function = function_of(problem)
    low, high = function.bounds.double()
    first = torch.quasirandom.SobolEngine(len(low), scramble=True, seed=seed).draw(count, dtype=torch.double)
    rest = torch.rand(POINTS, len(low), generator=torch.Generator().manual_seed(seed), dtype=torch.double)
    points = torch.cat([first, rest])
    values = compressed(-function(low + points * (high - low)))
    with seeded(seed):
        model = SURROGATES[surrogate](first, values[:count].unsqueeze(1))
    with torch.no_grad():
        p = model.posterior(rest.unsqueeze(1))
    predictive = torch.distributions.Normal(p.mean.flatten(), p.variance.flatten().sqrt())
    y = values[count:]
    inside = ((y - predictive.mean).abs() < predictive.stddev).double().mean()
    return {DENSITY: float(predictive.log_prob(y).mean()), INSIDE: 100 * float(inside)}


def claims(table: Table, problems: Iterable[str]) -> Iterator[Claim]:
    """Yield where held-out values have less density."""
    worse = [
        name for name in problems if table.mean(f"{name}: {LAPLACE}", DENSITY) < table.mean(f"{name}: {GP}", DENSITY)
    ]
    yield Claim.over_seeds(
        "log density of held-out values",
        f"Their mean is lower on {', '.join(worse) or 'none'}. Of them 68 % should be within one standard deviation.",
    )


@measure.figure
def draw(record: Record) -> Any:
    """One panel a problem: means over seeds, with the range."""
    from osculate import plots
    from osculate.plots import style

    problems = record.findings.data["gaps"]
    figure, axes = style.panels(1, len(problems), 4.0, 3.6)
    tints = dict(zip(SURROGATES, (style.BLUE, style.ORANGE, style.YELLOW, style.GREY), strict=True))
    for ax, (problem, surrogates) in zip(axes[0], problems.items(), strict=True):
        for name, rows in surrogates.items():
            gaps = np.maximum(np.asarray(rows), SMALLEST)
            count = range(1, gaps.shape[1] + 1)
            plots.spread(ax, count, gaps.min(0), gaps.max(0), tints[name], alpha=0.15)
            plots.lines(ax, {name: (count, gaps.mean(0))}, tints)
        ax.axvline(
            first_design(problem, gaps.shape[1]),
            color=style.INK,
            linewidth=1,
            linestyle=":",
            label="end of the first design",
        )
        ax.set_yscale("log")
        style.label(ax, problem, "evaluations")
    style.label(axes[0, 0], y=f"{GAP}\n(mean and range over seeds)")
    style.legend_below(figure, axes[0, 0])
    return style.title(figure, record.title)
