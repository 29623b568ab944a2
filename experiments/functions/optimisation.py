"""Bayesian optimisation of test functions with a Laplace surrogate, a Gaussian process and without a surrogate."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from statistics import mean
from typing import Any

import numpy as np
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
)


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
    "No document: test functions of BoTorch. Surrogate and compression of values were chosen on others: Six-hump "
    "camel, Rosenbrock-2, Hartmann-3, and in part Ackley-4 and Levy-4",
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
    return Findings(table.numbers(), claims(table, budgets), {"gaps": curves})


def optimised(budgets: Mapping[str, int], problem: str, surrogate: str, seed: int) -> dict[str, Any]:
    """Return the distance of the best value to the optimum after each evaluation, and the cost."""
    from botorch import test_functions

    name, inputs = PROBLEMS[problem]
    kind = getattr(test_functions, name)
    function = kind() if name == "Branin" else kind(inputs)
    bounds, count = function.bounds.T.tolist(), budgets[problem]
    first = count if surrogate == SOBOL else None
    start = time.process_time()
    found = osc.tasks.bayesian_optimisation(
        lambda x: -function(x), bounds, SURROGATES[surrogate], count, first, seed, surrogate != RAW
    )
    gaps = -found.best - function.optimal_value
    return {"gaps": [float(f"{gap:.4g}") for gap in gaps], COST: (time.process_time() - start) / count}


def claims(table: Table, budgets: Mapping[str, int]) -> Iterator[Claim]:
    """Yield the verdicts on the problems that were measured."""

    def gaps(problem: str, surrogate: str) -> list[float]:
        return table[f"{problem}: {surrogate}", GAP]

    def beside(problem: str) -> tuple[bool, str]:
        apart = differences(gaps(problem, GP), gaps(problem, LAPLACE))
        means = {name: str(estimate(gaps(problem, name))) for name in SURROGATES}
        words = ", ".join(f"{name} {value}" for name, value in means.items())
        return mean(apart) >= 0, f"Mean {GAP}: {words}. Gaussian process less Laplace: {estimate(apart)}."

    for problem, count in budgets.items():
        if problem == "Branin":
            found, wanted = gaps(problem, LAPLACE), WITHIN * OPTIMUM
            yield Claim.judged(
                f"On Branin, the best of {count} values is within {WITHIN:.0%} of the optimum for every seed",
                max(found) <= wanted,
                f"Distances by seed: {listed(found, '.2g')}, against {wanted:.2g}; "
                f"of the {GP}: {listed(gaps(problem, GP), '.2g')}.",
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
        first = min(2 * (PROBLEMS[problem][1] + 1), gaps.shape[1] // 2)
        ax.axvline(first, color=style.GREY, linewidth=1, linestyle=":", label="end of the first design")
        ax.set_yscale("log")
        style.label(ax, problem, "evaluations")
    style.label(axes[0, 0], y=f"{GAP}\n(mean and range over seeds)")
    style.legend_below(figure, axes[0, 0])
    return style.title(figure, record.title)
