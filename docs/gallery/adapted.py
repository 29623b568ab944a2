# %% [markdown]
# # The evidence of normalised networks
#
# Prior precisions by the evidence rest on two assumptions: that the weights are at a mode, and
# that their size means something. A network with batch normalisation breaks both. Rescaling a
# layer in front of a normalisation changes its weights and not the function; and a network that
# was stopped early, or trained with another weight decay, is at no mode.
#
# **What one learns.** The model that predictions are made with is the *linearised* network, and
# that has a mode of its own, which is found without touching the network. At that mode
# (`mode="linear"`), with one precision for each group of normalised layers
# (`Grouped.normalised`), error bars are right, and do not depend on scales that mean nothing.
#
# ## A network with batch normalisation on three clusters

# %%
import copy
import math

import torch
from torch import nn

import osculate as osc
from osculate import plots

generator = torch.Generator().manual_seed(0)
clusters = ((-1.0, 0.0), (1.7, 2.5), (4.0, 5.0))


def truth(x):
    """The function behind the data."""
    return x - 0.1 * x.square() + torch.cos(math.pi * x / 2)


def noisy(x):
    """Its values with noise of scale 0.25."""
    return truth(x) + 0.25 * torch.randn(x.shape, generator=generator).double()


def cluster(low, high):
    """A hundred inputs."""
    return low + (high - low) * torch.rand(100, 1, generator=generator).double()


x = torch.cat([cluster(low, high) for low, high in clusters])
y = noisy(x)

torch.manual_seed(0)
hidden = (
    nn.Linear(1, 40),
    nn.BatchNorm1d(40),
    nn.ReLU(),
    nn.Linear(40, 40),
    nn.BatchNorm1d(40),
    nn.ReLU(),
)
net = nn.Sequential(*hidden, nn.Linear(40, 1)).double()
optimiser = torch.optim.SGD(net.parameters(), lr=1e-2, momentum=0.9, weight_decay=1e-4)
for _ in range(150):  # the usual recipe, which ends near no mode of any posterior
    for rows in torch.randperm(len(x), generator=generator).split(60):
        optimiser.zero_grad()
        nn.functional.mse_loss(net(x[rows]), y[rows]).backward()
        optimiser.step()
net = net.eval()

# %% [markdown]
# ## Where the evidence is taken
#
# The same posterior, with prior precision and noise scale tuned at the network's own weights
# θ̃, and at the mode θ* of the linear model around them:

# %%
likelihood = osc.likelihoods.Gaussian(0.25)


def posterior(model, prior):
    """All correlations of the weights; "dual" keeps them through the data, which are fewer."""
    return osc.laplace(model, likelihood, (x, y), structure="dual", prior=prior)


start = posterior(net, osc.priors.Isotropic())
tuned = {
    "network's weights": osc.maximise_evidence(start),
    "linear model's mode": osc.maximise_evidence(start, mode="linear", data=(x, y)),
}
grid = torch.linspace(-2, 6, 161).double()[:, None]
new = noisy(grid)
bands = {}
print(
    "evidence at the        prior variance   noise scale   mean sd   log-likelihood on the grid"
)
for name, q in tuned.items():
    p = osc.predict(q, grid)
    sd, score = osc.predict(q, grid, noise=False).stddev.mean(), p.log_prob(new).mean()
    row = (
        f"{1 / q.prior.precision:14.2f}   {q.likelihood.scale:11.3f}   {sd:7.2f}   {score:.2f}"
    )
    print(f"{name:20}   {row}")
    bands[name] = plots.Band(*(v.squeeze().numpy() for v in (grid, p.mean, p.stddev)))
plots.regression_bands(
    bands, x.squeeze().numpy(), y.squeeze().numpy(), [(0.0, 1.7), (2.5, 4.0)]
)

# %% [markdown]
# At its own weights the network looks as if it needed a wide prior and had much noise: its
# weights are large only because nothing has pulled at them, and its error is that of an
# unfinished training. At the mode of the linear model the noise comes closer to the true one,
# and the error bars shrink by more than half.
#
# ## Scales that mean nothing
#
# Multiply a normalised layer, and the statistics of its normalisation, by k. The function stays
# the same. Do the error bars?

# %%


def rescaled(model, k):
    """The same function; weights of the normalised layers k times as large."""
    other = copy.deepcopy(model)
    with torch.no_grad():
        for layer, norm in ((other[0], other[1]), (other[3], other[4])):
            layer.weight.mul_(k)
            layer.bias.mul_(k)
            norm.running_mean.mul_(k)
            norm.running_var.add_(norm.eps).mul_(k**2).sub_(norm.eps)
    return other


print("mean sd of the function on the grid; evidence at the linear model's mode")
print("k       one precision   one for each group of normalised layers")
for k in (0.25, 1.0, 4.0):
    other = rescaled(net, k)
    assert torch.allclose(other(grid), net(grid))
    row = []
    for prior in (osc.priors.Isotropic(), osc.priors.Grouped.normalised(other, x)):
        q = osc.maximise_evidence(
            posterior(other, prior), mode="linear", data=(x, y), tolerance=1e-5
        )
        row.append(f"{osc.functional_variance(q, grid).sqrt().mean():.4f}")
    print(f"{k:<7} {row[0]:13}   {row[1]}")
print("groups:", osc.priors.Grouped.normalised(net, x).groups)

# %% [markdown]
# The warning belongs to the table's right column: with precisions of their own, the weights of
# one layer turn out not to be needed by the linear model for explaining these data, and keep
# their values without error bars.
# The groups are found by watching one forward pass: a layer whose output goes into a
# normalisation makes one together with its bias, and everything whose scale the output sees is
# in the last one.
#
# ## What holds, and what does not
#
# * With one precision the error bars depend on k, which changes nothing about the function:
#   they are arbitrary. With one precision for each normalised group they are the same to the
#   digits shown.
# * The mean of the predictions stays that of the network. The linear model's mode is used to
#   choose precisions and noise only.
# * It costs a search for that mode: one factorisation where the data are few
#   (`structure="dual"`), else a few passes over the data each round.
# * Wider error bars can score better where the network itself is wrong. The log-likelihood on
#   this grid, much of which lies between and beyond the data, also depends on how the network
#   happens to continue there.
# * Convolutional and residual networks and a transformer on images: `python -m experiments
#   linlap-adapted`.
