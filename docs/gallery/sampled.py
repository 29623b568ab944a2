# %% [markdown]
# # Linearised or sampled: two ways to predict with one posterior
#
# A Laplace approximation is a Gaussian over the weights. There are two ways to turn it into
# predictions: put sampled weights into the network, or put them into the network's linear
# expansion at the mode, f(x; θ*) + J(x)(θ − θ*). They look alike and could hardly be further
# apart.
#
# **What one learns.** The linearised predictive is the default for a reason: the Gaussian was
# built from the Jacobians of exactly that linear model. Sampled networks leave the data they
# were fitted to. osculate says so when they do.
#
# ## A curve
#
# Forty noisy points on a wave. `LevenbergMarquardt` finds the mode, the prior precisions and
# the noise scale together, in a few dozen steps over all data.

# %%
import warnings

import torch
from torch import nn

import osculate as osc
from osculate import plots

generator = torch.Generator().manual_seed(0)
x = 6 * torch.rand(40, 1, generator=generator) - 3
y = (2 * x + 1).sin() + 0.1 * torch.randn(x.shape, generator=generator)

torch.manual_seed(0)
net = nn.Sequential(nn.Linear(1, 50), nn.Tanh(), nn.Linear(50, 1))
method = osc.methods.LevenbergMarquardt(net, osc.likelihoods.Gaussian(0.1))
q = osc.train(method, (x, y), epochs=60, progress=False).posterior
gamma = sum(osc.evidence.effective_parameters(q).values())
print(f"noise scale {q.likelihood.scale:.3f} (true: 0.1)")
print(f"the data determine {gamma:.1f} of {len(q.mean)} weights")

# %% [markdown]
# ## The warning
#
# A sampled predictive that is far worse than the mode on the very data it was fitted to is
# answered with a warning and advice:

# %%
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    sampled = osc.predict(q, x, via="sampled", generator=generator)
for warning in caught:
    print(warning.message)
linearised = osc.predict(q, x)
print()
print(
    f"log-likelihood of the training data: linearised {linearised.log_prob(y).mean():.2f}, "
    f"sampled {sampled.log_prob(y).mean():.2f} nats a point"
)

# %% [markdown]
# ## Why
#
# Functions drawn from the same posterior in both ways:

# %%
grid = torch.linspace(-4, 4, 161)[:, None]
mode = osc.predict(q, grid).mean.squeeze()
low, high = y.min() - 0.5 * (y.max() - y.min()), y.max() + 0.5 * (y.max() - y.min())
draws = {}
for via in ("linearised", "sampled"):
    f = osc.sample_functions(q, grid, samples=200, via=via, generator=generator).squeeze(-1)
    inside = f[:, (grid >= x.min()).squeeze() & (grid <= x.max()).squeeze()]
    off = 100 * ((inside < low) | (inside > high)).double().mean()
    note = f"{off:.0f} % of its values off scale"
    draws[via] = plots.Draws(
        grid.squeeze().numpy(), f[:30].numpy(), f.mean(0).numpy(), mode.numpy(), note
    )
plots.function_draws(
    draws,
    x.squeeze().numpy(),
    y.squeeze().numpy(),
    "200 functions of one posterior (30 are shown)",
)

# %% [markdown]
# On the left every draw passes through the data. On the right most of the draws do not even
# stay in the picture, where there are data: the Gaussian is wide along directions in which the
# *linear* model does not move the outputs, and along which the network does.

# %% [markdown]
# ## Images
#
# The same on 600 digits (8 × 8 pixels), with a network of two hidden layers for each of three
# prior precisions. Out of distribution are the test digits turned by 60°; AUROC says how well
# the entropy of the prediction tells them apart (0.5: not at all).

# %%
data = osc.data.load("digits", train_size=600)
turned = osc.data.rotated(data.test[0], 60)


def classifier(precision):
    """A network trained to its mode under this prior precision."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), osc.networks.MLP(64, (40, 40), 10))
    method = osc.methods.MAP(model, osc.likelihoods.Categorical(), prior=precision)
    osc.train(method, data.train, epochs=15, lr=1e-2, batch_size=64, progress=False)
    return model.eval()


print("precision   predictive    accuracy    NLL    AUROC   NLL of turned digits")
for precision in (0.1, 1.0, 10.0):
    model = classifier(precision)
    q = osc.laplace(model, osc.likelihoods.Categorical(), data.train, prior=precision)
    ways = {
        "mode": (osc.posteriors.Point(model, osc.likelihoods.Categorical()), {}),
        "linearised": (q, {"link": "probit"}),
        "sampled": (q, {"via": "sampled", "samples": 30, "generator": generator}),
    }
    for name, (posterior, options) in ways.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the warning from above
            inside = osc.predict(posterior, data.test[0], **options)
            outside = osc.predict(posterior, turned, **options)
        accuracy = osc.metrics.accuracy(inside.probs, data.test[1])
        nll, far = (osc.metrics.nll(p.logits, data.test[1]) for p in (inside, outside))
        auroc = osc.metrics.auroc(inside.entropy(), outside.entropy())
        row = f"{accuracy:.3f}   {nll:6.3f}    {auroc:.3f}   {far:6.3f}"
        print(f"{precision:9}   {name:12}  {row}")

# %% [markdown]
# ## What holds, and what does not
#
# * The linearised predictive keeps the accuracy of the mode whatever the precision. Sampled
#   networks with a vague prior are close to guessing; a tight prior mends them, by keeping the
#   draws near the mode.
# * By its entropy the linearised predictive tells turned digits apart better than the mode
#   does, and it is far less wrong on them (the last column).
# * It is *not* better everywhere: with a vague prior its NLL on the test digits is above that
#   of the mode, since it is less sure than it could be. That is what tuning is for
#   (`prior="evidence"`, or `osc.tune` on held-out data).
# * Sampling is not always wrong. Networks trained apart from each other (an ensemble), or
#   collected along a training run (SWAG), are each a good network; it is the Gaussian at one
#   mode whose draws are not.
#
# Three seeds of both demonstrations, with verdicts on the tutorial's claims: `python
# -m experiments linlap-sampling`.
