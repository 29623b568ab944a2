# %% [markdown]
# # MacKay's evidence: regularisation without validation data
#
# How strongly should weights be pulled towards zero? The evidence p(D | α, β), the probability
# of the data with the weights integrated out, answers from the training data alone: prior
# precisions α and noise precision β that make it largest satisfy α = γ/‖w‖² and β = (N −
# γ)/SSE, with γ the number of weights that the data determine.
#
# **What one learns.** The same small network overfits without a prior and does not with the
# evidence, which finds the noise as well. And γ says whether a network is large enough: it
# stops growing where more units are of no use.
#
# ## A 1-6-1 network, with and without
#
# Thirty points of sin(4x + 1) with noise of scale 0.2, six tanh units.

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
    """Weights, prior precisions (one for each tensor) and noise scale together."""
    method = osc.methods.LevenbergMarquardt(
        network(width, seed), osc.likelihoods.Gaussian(scale)
    )
    return osc.train(method, (x, y), epochs=60, progress=False).posterior


def without():
    """The same optimiser with next to no prior, and with the true noise given."""
    likelihood = osc.likelihoods.Gaussian(0.2)
    method = osc.methods.LevenbergMarquardt(network(6), likelihood, prior=1e-6, evidence=False)
    return osc.train(method, (x, y), epochs=60, progress=False).posterior


posteriors = {"without regularisation": without(), "with the evidence": with_evidence(6)}

# %%
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
# Without a prior the six units follow the noise, and what the data leave open is not even
# drawn: the bands reach far beyond the picture. The evidence finds precisions for each tensor
# of weights, and a noise scale near the true 0.2:

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
# γ and the log evidence for networks of growing width, trained in the same way:

# %%
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
# ## Where to start
#
# The joint maximum over weights, precisions and noise is a local one, and one local maximum is
# always near: all weights small, and everything noise. A start with little noise makes the
# network fit first and find out afterwards how much of the data was noise. Three starts each:

# %%
for scale in (0.1, 1.0):
    ends = [with_evidence(6, seed, scale) for seed in range(1, 4)]
    evidences = ", ".join(f"{osc.log_evidence(q):.2f}" for q in ends)
    print(f"noise scale {scale} at the start: log evidence at the end {evidences}")

# %% [markdown]
# ## What holds, and what does not
#
# * The smallest networks need all their weights (γ close to the dashed line) and explain the
#   data worse. From a few units on γ stays where it is, whatever the width: "if a larger
#   network has the same final γ, the smaller one was enough".
# * The evidence does not punish width much: it is nearly flat, since precisions switch off what
#   is not needed. It says which network is too small, more than which one is too large.
# * Which maximum is reached depends on the start, as shown. The evidence itself tells the good
#   end from the bad one: take the best of a few.
# * The updates treat the weights as fixed while α moves, and the curvature as the Gauss–Newton
#   matrix. Several seeds, the full Hessian and derivatives checked against finite differences:
#   `python -m experiments linlap-mackay`.
