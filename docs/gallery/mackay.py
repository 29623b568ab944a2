# %% [markdown]
# # MacKay's evidence: regularisation without validation data
#
# How strongly should weights be regularised? The evidence p(D | α, β), the probability of
# the data with the weights integrated out, answers this from the training data alone. The
# prior precisions α and noise precision β that maximise it satisfy α = γ/‖w‖² and β = (N −
# γ)/SSE, where γ is the effective number of parameters.
#
# **What you learn.** A small network overfits without a prior, and does not with the
# evidence, which also finds the noise scale. γ shows whether a network is large enough: it
# stops growing when more units add nothing.
#
# ## A 1-6-1 network with and without regularisation
#
# Thirty data points from sin(4x + 1) with noise of scale 0.2, six tanh units.

# %%
import matplotlib.pyplot as plt
import torch
from torch import nn

import osculate as osc
from osculate import plots

generator = torch.Generator().manual_seed(0)
x = (2 * torch.rand(30, 1, generator=generator) - 1).double()
y = torch.sin(4 * x + 1) + 0.2 * torch.randn(30, 1, generator=generator).double()
grid = torch.linspace(-1.3, 1.3, 261).double()[:, None]
truth = torch.sin(4 * grid + 1)


def network(width, seed=0):
    """1-width-1 with tanh."""
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, 1)).double()


def with_evidence(width, seed=0, scale=0.1):
    """Fit weights, prior precisions (one per tensor) and noise scale jointly."""
    method = osc.methods.LevenbergMarquardt(
        network(width, seed), osc.likelihoods.Gaussian(scale)
    )
    return osc.train(method, (x, y), epochs=60, progress=False).posterior


def without():
    """Fit with nearly no prior and the true noise scale."""
    likelihood = osc.likelihoods.Gaussian(0.2)
    method = osc.methods.LevenbergMarquardt(network(6), likelihood, prior=1e-6, evidence=False)
    return osc.train(method, (x, y), epochs=60, progress=False).posterior


posteriors = {"without regularisation": without(), "with the evidence": with_evidence(6)}

# %% Fitted curves with error bands, without regularisation and with the evidence
between = (grid.abs() <= 1).squeeze()
bands = {}
for name, q in posteriors.items():
    p = osc.predict(q, grid)
    error = (p.mean - truth)[between].square().mean().sqrt()
    note = f"error {error:.3f}"
    bands[name] = plots.Band(*(v.squeeze().numpy() for v in (grid, p.mean, p.stddev)), note)
    print(f"{name:24} error against the sine {error:.3f}   noise {q.likelihood.scale:.3f}")
plots.regression_bands(bands, x.squeeze().numpy(), y.squeeze().numpy())

# %% [markdown]
# Without a prior the six units follow the noise, and the bands reach far beyond the figure
# where there are no data. The evidence finds precisions for each tensor of weights, and a
# noise scale near the true 0.2:

# %%
q = posteriors["with the evidence"]
gamma = osc.evidence.effective_parameters(q)
print("tensor     weights    γ     α = γ/‖w‖²")
for (name, weights), precision in zip(
    q.model.named_parameters(), q.prior.precision, strict=True
):
    print(f"{name:10} {weights.numel():5}    {gamma[name]:5.2f}   {precision:8.3f}")
total = sum(gamma.values())
print(f"{'all':10} {len(q.mean):5}    {total:5.2f}")
sse = (osc.predict(q, x).mean - y).square().sum()
print(f"noise by β = (N − γ)/SSE: scale {((len(x) - total) / sse) ** -0.5:.3f}")

# %% [markdown]
# ## How large should the network be?
#
# γ and the log evidence for networks of increasing width, trained in the same way:

# %% Effective parameters and log evidence against the number of hidden units
widths, found = (1, 2, 3, 6, 12, 25), {}
for width in widths:
    q = with_evidence(width)
    gamma = sum(osc.evidence.effective_parameters(q).values())
    error = (osc.predict(q, grid).mean - truth)[between].square().mean().sqrt()
    found[width] = gamma, float(osc.log_evidence(q))
    row = f"γ {gamma:5.2f}   log evidence {found[width][1]:7.2f}   error {error:.3f}"
    print(f"1-{width}-1, {len(q.mean)} weights".ljust(20), row)

figure, axes = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
for ax, values, name in zip(
    axes, zip(*found.values(), strict=True), ("γ", "log evidence, nats"), strict=True
):
    ax.plot(widths, values, "o-")
    ax.set(xscale="log", xlabel="hidden units", ylabel=name, xticks=widths, xticklabels=widths)
axes[0].plot(widths, [3 * width + 1 for width in widths], "--", color="grey")
axes[0].annotate("number of weights", (2.2, 9), color="grey")
axes[0].set_ylim(0, 16)
plt.show()

# %% [markdown]
# ## Initial noise scale
#
# The joint maximum over weights, precisions and noise is local, and one local maximum always
# exists: small weights, with all data explained as noise. If training starts with little
# noise, the network first fits the data, then learns how much of them was noise. Three runs
# from each start:

# %%
for scale in (0.1, 1.0):
    ends = [with_evidence(6, seed, scale) for seed in range(1, 4)]
    evidences = ", ".join(f"{osc.log_evidence(q):.2f}" for q in ends)
    print(f"noise scale {scale} at the start: log evidence at the end {evidences}")

# %% [markdown]
# ## Findings and limitations
#
# * The smallest networks need all their weights (γ close to the dashed line) and explain the
#   data worse. Beyond a few units γ is constant, whatever the width: "if a larger network
#   has the same final γ, the smaller one was enough".
# * The evidence hardly penalises width, since large precisions prune unnecessary weights. It
#   identifies networks that are too small better than networks that are too large.
# * The maximum depends on the start, as shown. The evidence itself distinguishes good maxima
#   from bad ones: take the best of a few runs.
# * The updates hold the weights fixed while α changes, and use the Gauss–Newton matrix as
#   the curvature. `python -m experiments linlap-mackay` has several seeds, the full Hessian,
#   and derivatives checked against finite differences.
