# %% [markdown]
# # UCI regression: reading the table, and running one split
#
# Small regression sets with fixed splits are how error bars are compared in the literature.
# This page runs one split from start to end, on a set that comes with scikit-learn, and then
# reads the committed table of all nine sets.
#
# **What one learns.** How a log-likelihood is brought to the units of the original targets,
# without which tables cannot be compared; what each way to predict is worth; and where one
# network with error bars loses.
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
print(f"{len(q.mean)} weights, of which the data determine γ = {gamma:.1f}")

# %% [markdown]
# Inputs and targets are standardised by the training part. The density of y = mean + scale · z
# is that of z divided by the scale, so every point loses log(scale):
# `log_likelihood_in_original_units` does that, and errors are multiplied by the scale.

# %%
point = osc.posteriors.Point(net, q.likelihood)
posteriors = {"MAP": point, "linearised, full": q}
for structure in ("kron", "diag"):
    posteriors[f"linearised, {structure}"] = osc.laplace(
        net, q.likelihood, (x, y), structure=structure, prior=q.prior
    )
print(f"{'':20} log-likelihood   RMSE   share of targets in the 90 % interval")
for name, posterior in [*posteriors.items(), ("sampled networks", q)]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # osculate warns of these sampled networks
        way = {"via": "sampled"} if name.startswith("sampled") else {}
        p = osc.predict(posterior, x_test, **way)
    score = data.log_likelihood_in_original_units(float(p.log_prob(y_test).mean()))
    rmse = osc.metrics.rmse(p.mean, y_test) * float(data.target_scale)
    inside = f"{osc.metrics.coverage(p.cdf(y_test), 0.9):.2f}"
    print(f"{name:20} {score:14.3f}   {rmse:5.1f}   {inside}")

# %% [markdown]
# ## The table of all nine sets
#
# The record of `python -m experiments linlap-uci` (1 × 50 tanh, the standard splits), as it is
# committed. Test log-likelihood in nats a point, higher is better; `±` is the standard error
# over splits.

# %%
results = Path(osc.__file__).parent.parent / "experiments" / "results"
record = read_record(results / "linlap-uci.json")
linearised = ("MAP", "linearised, full", "linearised, kron", "linearised, diag")
others = ("sampled networks", "deep ensemble", "MC dropout")
numbers = {(n.row, n.column): n for n in record.findings.numbers}
sets = list(
    dict.fromkeys(row.split(",")[0] for row, _ in numbers if row.endswith("log likelihood"))
)
for columns in (linearised, others):
    print(f"{'':10}" + "".join(f"{column:>18}" for column in columns))
    for name in sets:
        cells = [str(numbers[f"{name}, log likelihood", column]) for column in columns]
        print(f"{name:10}" + "".join(f"{cell:>18}" for cell in cells))
    print()

# %% [markdown]
# What the record says of the claims:

# %%
for claim in record.findings.claims:
    print(textwrap.fill(f"{claim.verdict.upper()}: {claim.text}.", 84))
    print(textwrap.indent(textwrap.fill(claim.evidence, 80), "    "), end="\n\n")

# %% [markdown]
# ## What holds, and what does not
#
# * The mean of the linearised predictive is the network itself: its error is that of MAP, and
#   the gain is in the log-likelihood.
# * Sampled networks lose on nearly every set, by many nats on some: see [linearised or
#   sampled](sampled.html).
# * The lines above say where others are better; the gap splits, where the middle of one input
#   is left out, have a record of their own (`linlap-uci-gap`). There the error bars are put to
#   the test, and energy is the hardest set.
# * Twenty splits of one set overlap: the standard errors over splits are too small as errors of
#   the comparison.
