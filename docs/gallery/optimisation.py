# %% [markdown]
# # Bayesian optimisation: where to evaluate next
#
# A function that is expensive to evaluate, such as an experiment, is maximised with few
# evaluations: a model predicts the function with its uncertainty, and the next point is the
# one with the largest expected improvement. The model here is a small network with a Laplace
# approximation instead of the usual Gaussian process.
#
# **What you learn.** How to run the loop; what a good surrogate looks like, certain at the
# data and uncertain between them; and how it compares with a Gaussian process.
#
# ## A function of one variable

# %%
import textwrap
from pathlib import Path

import torch
from botorch.acquisition import LogExpectedImprovement  # the extra "botorch"

import osculate as osc
from experiments import read_record
from osculate import plots
from osculate.adapters.botorch import LaplaceModel


def expensive(x):
    """Two peaks; the higher one is at 0.143, with the value 0.986."""
    return ((6 * x - 2).square() * -(12 * x - 4).sin()).squeeze(-1) / 6


steps = []


def fit(points, values):
    """Fit the surrogate to the evaluations so far, and keep it for the picture."""
    steps.append((points, values, LaplaceModel.fitted(points, values)))
    return steps[-1][2]


found = osc.tasks.bayesian_optimisation(expensive, [(0.0, 1.0)], fit, evaluations=10, seed=1)
for point, value, best in zip(found.points, found.values, found.best, strict=True):
    print(f"x = {float(point):.3f}   value {float(value):6.3f}   best {float(best):6.3f}")

# %% [markdown]
# ## The surrogate and the expected improvement
#
# The evaluations before three of the steps, the surrogate that was fitted to them, and the
# logarithm of the expected improvement, whose maximum is the next point. Values are those
# that the loop hands to the model: it compresses values far from the median, so that a few
# bad ones do not set the scale.

# %% The surrogate and its log expected improvement after few, more and most evaluations
grid = torch.linspace(0, 1, 201, dtype=torch.double).unsqueeze(1)
shown = (0, 2, len(steps) - 1)
figure, axes = plots.panels(2, len(shown), 4.0, 2.6, sharex=True)
for (top, below), number in zip(axes.T, shown, strict=True):
    points, values, model = steps[number]
    with torch.no_grad():
        p = model.posterior(grid)
        gain = LogExpectedImprovement(model, best_f=values.max())(grid.unsqueeze(1))
    band = plots.Band(grid[:, 0], p.mean[:, 0], p.variance[:, 0].sqrt())
    plots.band(top, band, plots.style.BLUE, (points[:, 0], values[:, 0]))
    plots.lines(below, {"log expected improvement": (grid[:, 0], gain)})
    for ax in (top, below):
        ax.axvline(float(found.points[len(points)]), color=plots.style.ORANGE, linestyle="--")
    below.set_ylim(float(gain.max()) - 12, float(gain.max()) + 1)
    plots.style.label(top, f"after {len(points)} evaluations", None, "compressed value")
    plots.style.label(below, None, "x (dashed: next point)", "log expected improvement")
plots.style.title(figure, "Surrogate (mean, ± 1 and ± 2 sd), and where to evaluate next")

# %% [markdown]
# ## Beside a Gaussian process
#
# The committed record of `python -m experiments functions-optimisation`: three test functions
# of BoTorch, five seeds, the same loop and first design for both surrogates. Distance of the
# best value to the optimum, mean `±` standard error, lower is better; and CPU seconds for an
# evaluation, fit and search.

# %%
results = Path(osc.__file__).parent.parent / "experiments" / "results"
record = read_record(results / "functions-optimisation.json")
for row in record.findings.table():
    print("".join(f"{cell:>32}" for cell in row))
print()
for claim in record.findings.claims:
    print(textwrap.fill(str(claim), 84), end="\n\n")

# %% [markdown]
# ## Findings and limitations
#
# * The surrogate passes through the data, and its error bars grow away from them. They are
#   too narrow: on the test functions between a fifth and a half of held-out values lie
#   within one standard deviation, where two thirds should. The reason was not tested.
# * On average it ends farther from the optimum than a Gaussian process of the same compressed
#   values; the verdicts above say what is decided. In few dimensions each evaluation costs two
#   to five times as much, in twenty about three fifths.
# * Values are taken to be without noise; `LaplaceModel.fitted(…, noise=None)` learns it, which
#   takes more than a handful of evaluations.
