# %% [markdown]
# # UCI regression: one split, and the table of all data sets
#
# Error bars are commonly compared on small regression sets with fixed splits. This page runs
# one split from start to end, on a set that comes with scikit-learn, and then reads the
# committed table of all nine sets.
#
# **What you learn.** How to convert a log-likelihood to the original units of the targets,
# which makes tables comparable; how the predictives compare; and where one network with
# error bars does worse than other methods.
#
# ## One split

# %%
import textwrap
import warnings
from pathlib import Path

import torch
from torch import nn

import osculate as osc
from experiments import read_record

data = osc.data.load("diabetes", validation_size=0)  # a UCI set: load("yacht", split=3)
print(data)
print(f"one standard deviation of the targets is {float(data.target_scale):.1f}")
x, y = (part.double() for part in data.train)
x_test, y_test = (part.double() for part in data.test)

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(10, 50), nn.Tanh(), nn.Linear(50, 1)).double()
method = osc.methods.LevenbergMarquardt(net, osc.likelihoods.Gaussian(0.5))
q = osc.train(method, (x, y), epochs=100, progress=False).posterior
gamma = sum(osc.evidence.effective_parameters(q).values())
print(f"{len(q.mean)} weights, effective number of parameters γ = {gamma:.1f}")

# %% [markdown]
# Inputs and targets are standardised by the training set. The density of y = mean + scale ·
# z is that of z divided by the scale, so log(scale) is subtracted per datum:
# `log_likelihood_in_original_units` does that. Errors are multiplied by the scale.

# %%
point = osc.posteriors.Point(net, q.likelihood)
posteriors = {"MAP": point, "linearised, full": q}
for structure in ("kron", "diag"):
    posteriors[f"linearised, {structure}"] = osc.laplace(
        net, q.likelihood, (x, y), structure=structure, prior=q.prior, refine=False
    )
print(f"{'':20} log-likelihood   RMSE   share of targets in the 90 % interval")
for name, posterior in [*posteriors.items(), ("sampled networks", q)]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # osculate warns about these sampled networks
        way = {"via": "sampled"} if name.startswith("sampled") else {}
        p = osc.predict(posterior, x_test, **way)
    score = data.log_likelihood_in_original_units(float(p.log_prob(y_test).mean()))
    rmse = osc.metrics.rmse(p.mean, y_test) * float(data.target_scale)
    inside = f"{osc.metrics.coverage(p.cdf(y_test), 0.9):.2f}"
    print(f"{name:20} {score:14.3f}   {rmse:5.1f}   {inside}")

# %% [markdown]
# ## The table of all nine sets
#
# The committed record of `python -m experiments linlap-uci` (1 × 50 tanh, the standard
# splits). Test log-likelihood in nats per datum, higher is better; `±` is the standard error
# over splits.

# %%
results = Path(osc.__file__).parent.parent / "experiments" / "results"
record = read_record(results / "linlap-uci.json")
linearised = ("MAP", "linearised, full", "linearised, kron", "linearised, diag")
baselines = ("sampled networks", "deep ensemble", "MC dropout")
numbers = {(n.row, n.column): n for n in record.findings.numbers}
sets = list(
    dict.fromkeys(row.split(",")[0] for row, _ in numbers if row.endswith("log likelihood"))
)
for columns in (linearised, baselines):
    print(f"{'':10}" + "".join(f"{column:>18}" for column in columns))
    for name in sets:
        cells = [str(numbers[f"{name}, log likelihood", column]) for column in columns]
        print(f"{name:10}" + "".join(f"{cell:>18}" for cell in cells))
    print()

# %% [markdown]
# The verdicts of the record on the published claims:

# %%
for claim in record.findings.claims:
    print(textwrap.fill(str(claim), 84), end="\n\n")

# %% [markdown]
# ## Findings and limitations
#
# * Without refinement the mean of the linearised predictive is the network itself, so that
#   the gain is in the log-likelihood. (In the record each way has its own number of training
#   steps, and so its own error.)
# * Sampled networks lose on nearly every set, by many nats on some: see [linearised or
#   sampled](sampled.html).
# * The verdicts above name the sets on which other methods are better. The gap splits,
#   which leave out the middle of one input, have their own record (`linlap-uci-gap`). They
#   test the error bars hardest: energy those of the full posterior, naval those of the
#   diagonal.
# * Twenty splits of one set overlap, so the standard errors over splits understate the error
#   of a comparison.
