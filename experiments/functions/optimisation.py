"""Bayesian optimisation of test functions with a Laplace surrogate, a Gaussian process and without a surrogate."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from statistics import mean
from typing import Any

import numpy as np
import torch
from torch import Tensor

import osculate as osc
from experiments import (
    Claim,
    Findings,
    Record,
    Resumable,
    Runner,
    Table,
    clearly,
    differences,
    estimate,
    experiment,
    listed,
    seeded,
)
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
#: Branin's largest distance, relative to its optimum.
WITHIN = 0.01
#: Branin's smallest value.
OPTIMUM = 0.397887
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


def claims(table: Table, budgets: Mapping[str, int]) -> Iterator[Claim]:
    """Yield the verdicts on the problems that were measured."""

    def gaps(problem: str, surrogate: str) -> list[float]:
        return table[f"{problem}: {surrogate}", GAP]

    def beside(problem: str) -> tuple[bool, str]:
        other = min((GP, RAW), key=lambda name: mean(gaps(problem, name)))
        apart = differences(gaps(problem, other), gaps(problem, LAPLACE))
        means = listed({name: estimate(gaps(problem, name)) for name in SURROGATES}, "")
        return mean(apart) >= 0, f"Mean {GAP}: {means}. The better {GP} less Laplace: {estimate(apart)}."

    for problem, count in budgets.items():
        if problem == "Branin":
            each = {name: gaps(problem, name) for name in (LAPLACE, GP, RAW)}
            wanted = WITHIN * OPTIMUM
            yield Claim.judged(
                f"On Branin, the best of {count} values is within {WITHIN:.0%} of the optimum for every seed",
                max(each[LAPLACE]) <= wanted,
                f"Distances by seed, against {wanted:.2g}: {listed(each, '.2g', '; ')}.",
            )
            continue
        holds, words = beside(problem)
        if problem == "Hartmann-6":
            text = f"On Hartmann-6, {count} evaluations end no farther from the optimum than with a {GP}, on average"
            yield Claim.judged(text, holds, words)
        else:
            better = clearly(differences(gaps(problem, SOBOL), gaps(problem, LAPLACE)))
            text = f"On {problem}, {count} evaluations end clearly nearer the optimum than Sobol points"
            yield Claim.judged(text, better, words)
            yield Claim.judged(f"… and no farther than with a {GP}, on average", holds, words)
    worse = [
        name for name in budgets if table.mean(f"{name}: {LAPLACE}", DENSITY) < table.mean(f"{name}: {GP}", DENSITY)
    ]
    inside = {name: {way: table.mean(f"{name}: {way}", INSIDE) for way in (LAPLACE, GP)} for name in budgets}
    yield Claim.judged(
        f"On each function, held-out values have at least the log density that a {GP} gives them",
        not worse,
        f"They have less on {', '.join(worse) or 'none'}. Share within one standard deviation, %, "
        f"of which 68 are right: {listed(inside, '.0f', '; ')}.",
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
