# %% [markdown]
# # Subnetworks: a full covariance of few weights
#
# A full covariance over all P weights costs P² memory and P³ operations. A Kronecker or
# diagonal one is cheaper but drops correlations. A subnetwork keeps *all* correlations of
# *some* weights, and fixes the others at the mode.
#
# **What you learn.** A tenth of the weights can keep most of the uncertainty if they are
# selected well, and almost none if not. The obvious choice, the weights with the largest
# variance under a diagonal Laplace posterior, is the worst.
#
# ## Three clusters on a line
#
# The toy data of the tutorial: y = x − 0.1 x² + cos(πx/2) with noise of scale 1/4, and
# inputs in three clusters. Good error bars grow between the clusters, where there are no
# data.

# %%
import math
import warnings

import torch
from torch import nn

import osculate as osc
from osculate import plots

generator = torch.Generator().manual_seed(0)
clusters = ((-1.0, 0.0), (1.7, 2.5), (4.0, 5.0))
x = torch.cat(
    [low + (high - low) * torch.rand(100, 1, generator=generator) for low, high in clusters]
)
y = (
    x
    - 0.1 * x.square()
    + torch.cos(math.pi * x / 2)
    + 0.25 * torch.randn(x.shape, generator=generator)
)
mean, scale = y.mean(), y.std()
inputs, targets = (x - x.mean()) / x.std(), (y - mean) / scale

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 30), nn.ReLU(), nn.Linear(30, 30), nn.ReLU(), nn.Linear(30, 1))
likelihood = osc.likelihoods.Gaussian(0.25)
method = osc.methods.MAP(net, likelihood, prior=0.5)
osc.train(method, (inputs, targets), epochs=150, lr=1e-2, batch_size=75, progress=False)
full = osc.laplace(
    net,
    likelihood,
    (inputs, targets),
    structure="full",
    prior=osc.priors.Isotropic(),
    refine=False,
)
full = osc.maximise_evidence(full)
print(f"{len(full.mean)} weights, prior precision {full.prior.precision:.2f}")
print(f"noise scale {full.likelihood.scale:.3f} (standardised; true: {0.25 / scale:.3f})")

# %% [markdown]
# ## Selecting a tenth of the weights
#
# Every subnetwork uses the prior precision and noise scale of the full posterior, so only
# the selection differs.

# %%
line = torch.linspace(-2.5, 7, 240)[:, None]
grid = (line - x.mean()) / x.std()
gaps = [(0.0, 1.7), (2.5, 4.0)]
between = sum(((line > low) & (line < high)).squeeze() for low, high in gaps).bool()
at_data = sum(((line > low) & (line < high)).squeeze() for low, high in clusters).bool()


def deviation(q):
    """Standard deviation of the function along the line, without noise, in units of y."""
    return osc.functional_variance(q, grid, diagonal=True).sqrt().squeeze() * scale


posteriors = {"full": full}
for select in ("function_space", "swag", "magnitude", "random", "diag_variance"):
    chosen = osc.Subnetwork(0.1, select=select, precision=float(full.prior.precision))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        posteriors[select] = osc.laplace(
            net,
            full.likelihood,
            (inputs, targets),
            structure="full",
            prior=full.prior,
            subset=chosen,
            refine=False,
        )
    for warning in caught:
        print(f"{select}: {warning.message}\n")
posteriors["diagonal"] = osc.laplace(
    net, full.likelihood, (inputs, targets), structure="diag", prior=full.prior, refine=False
)

# %%
print("posterior          weights   sd between   share of full   sd at data")
whole = deviation(full)[between].mean()
for name, q in posteriors.items():
    sd = deviation(q)
    size = int((q.variance() > 0).sum())
    apart, share = sd[between].mean(), sd[between].mean() / whole
    row = f"{apart:10.3f}   {share:13.2f}   {sd[at_data].mean():10.3f}"
    print(f"{name:17} {size:8}   {row}")

# %% Bands of a full posterior, of two subnetworks and of a diagonal one, across two gaps
bands = {}
for name in ("full", "function_space", "random", "diagonal"):
    q = posteriors[name]
    middle = osc.predict(q, grid).mean.squeeze() * scale + mean
    bands[name] = plots.Band(line.squeeze().numpy(), middle.numpy(), deviation(q).numpy())
plots.regression_bands(bands, x.squeeze().numpy(), y.squeeze().numpy(), gaps)

# %% [markdown]
# The bands show the function, without observation noise.
#
# ## Findings and limitations
#
# * A tenth of the weights, selected by the function-space score (the default, without extra
#   training) or by their variance along stochastic gradient descent (`"swag"`), keeps much
#   of the width between the clusters. A random tenth keeps little.
# * `"diag_variance"` keeps nothing. A ReLU network has weights that no output depends on.
#   Their posterior is the prior, with the largest variance, so they fill the subnetwork.
#   osculate warns about this, as printed above.
# * The diagonal over *all* weights is about as wide at the data as between the clusters: far
#   too wide at the data.
# * A subnetwork's error bars are smaller than those of the whole network by construction:
#   the other weights are treated as known.
# * `python -m experiments linlap-subnetwork` has rotated MNIST and corrupted CIFAR-10, with
#   subnetworks of much larger networks.
