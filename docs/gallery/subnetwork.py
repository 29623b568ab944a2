# %% [markdown]
# # Subnetworks: all correlations of few weights
#
# A full covariance over all P weights costs P² numbers and P³ operations. A Kronecker or
# diagonal one is affordable and drops correlations. The third way: keep *all* correlations of
# *some* weights, and leave the others at the mode.
#
# **What one learns.** A tenth of the weights can keep most of the uncertainty, if they are
# chosen well, and almost none if they are not. The obvious choice, the weights a diagonal
# Laplace posterior is least sure of, is the worst one.
#
# ## Three clusters on a line
#
# The toy of the tutorial: y = x − 0.1 x² + cos(πx/2) with noise of scale 1/4, inputs in three
# clusters. Between the clusters there are no data, and a good error bar should say so.

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
    net, likelihood, (inputs, targets), structure="full", prior=osc.priors.Isotropic()
)
full = osc.maximise_evidence(full)
print(f"{len(full.mean)} weights, prior precision {full.prior.precision:.2f}")
print(f"noise scale {full.likelihood.scale:.3f} (standardised; true: {0.25 / scale:.3f})")

# %% [markdown]
# ## Choosing a tenth of the weights
#
# Every subnetwork has the same prior precision and noise scale as the full posterior, so that
# they differ in the choice alone.

# %%
line = torch.linspace(-2.5, 7, 240)[:, None]
grid = (line - x.mean()) / x.std()
gaps = [(0.0, 1.7), (2.5, 4.0)]
between = sum(((line > low) & (line < high)).squeeze() for low, high in gaps).bool()
at_data = sum(((line > low) & (line < high)).squeeze() for low, high in clusters).bool()


def deviation(q):
    """Standard deviation of the function along the line, without noise, in the units of y."""
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
        )
    for warning in caught:
        print(f"{select}: {warning.message}\n")
posteriors["diagonal"] = osc.laplace(
    net, full.likelihood, (inputs, targets), structure="diag", prior=full.prior
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

# %%
bands = {}
for name in ("full", "function_space", "random", "diagonal"):
    q = posteriors[name]
    middle = osc.predict(q, grid).mean.squeeze() * scale + mean
    bands[name] = plots.Band(line.squeeze().numpy(), middle.numpy(), deviation(q).numpy())
plots.regression_bands(bands, x.squeeze().numpy(), y.squeeze().numpy(), gaps)

# %% [markdown]
# The bands show the function alone, without observation noise.
#
# ## What holds, and what does not
#
# * A tenth of the weights chosen by the function-space score (the default: no extra training)
#   or by how far they move along stochastic gradient descent (`"swag"`) keeps much of the width
#   between the clusters. A tenth at random keeps little.
# * `"diag_variance"` keeps nothing. With ReLU there are weights that no output depends on;
#   their posterior is their prior, the widest of all, and they fill the subnetwork. osculate
#   says so, as printed above.
# * The diagonal over *all* weights looks right between the clusters and is far too wide at the
#   data.
# * A subnetwork's error bars are smaller than those of the whole network by construction: what
#   is left at the mode is treated as known.
# * Rotated MNIST and corrupted CIFAR-10, where a subnetwork stands for a network of many more
#   weights: `python -m experiments linlap-subnetwork`.
