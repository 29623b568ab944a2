# %% [markdown]
# # What a variational autoencoder knows, and how well that is known
#
# A network that explains images by a few numbers each, trained on a bound on log p(x).
#
# **What one learns.** To train one, to see what it has learned, to say how far a bound is from
# log p(x), and which estimator varies least; and what a posterior over the decoder's weights
# does for few images.
#
# ## Train on a bound
#
# Black and white digits, a code of two numbers.

# %%
import torch

import osculate as osc
from osculate import plots
from osculate.autoencoders import (
    ELBO,
    VAE,
    Annealing,
    bound,
    compare_estimators,
    manifold,
    sandwich,
)
from osculate.networks import mlp_coders

torch.manual_seed(0)
digits = osc.data.load("digits")
x, test = ((images > 0.5).float() for images, _ in (digits.train, digits.test))
pixels = osc.likelihoods.Bernoulli()
options = {"lr": 1e-2, "batch_size": 100, "progress": False}


def network(latent=2, **parts):
    halves = mlp_coders((1, 8, 8), latent, (64,), codes=2, initialisation="orthogonal")
    return VAE(*halves, **parts)


done = osc.train(ELBO(network(), pixels), (x, x), epochs=40, **options)
print(f"bound of the last epoch: {done.history[-1]['bound']:.1f} nats per image")

# %% [markdown]
# Every image of this plane is generated as often as any other: the codes stand at the centres
# of cells of equal probability.

# %%
plots.manifold({"": manifold(done.posterior, 12).numpy()}, "What two numbers make of a digit")

# %% [markdown]
# ## How far a bound is from log p(x)
#
# The ELBO is the weakest bound; weighted draws come nearer with their number K. Of test images
# nobody knows log p(x). Of images that the model has drawn itself, annealed chains from the
# prior bound it from below, and the same chains backwards from above.

# %%
few = test[:50]
for kind, draws in (("elbo", 500), ("iwae", 1), ("iwae", 10), ("iwae", 500)):
    print(bound(done, few, kind, draws))
annealing = Annealing(temperatures=30, leapfrogs=3)
both = sandwich(done, 50, 4, annealing=annealing)
low, high = both.lower.mean, both.upper.mean
print(f"images of the model: log p(x) lies from {low:.2f} to {high:.2f} nats")

# %% [markdown]
# ## Which estimator varies least
#
# All have one mean. Both the value and the gradient of each vary from draw to draw.

# %%
print("       mean   variance of the value, and of the gradients of encoder and decoder")
for name, r in compare_estimators(done.model, pixels, few, repeats=50).items():
    variances = (r.value_variance, r.encoder_variance, r.decoder_variance)
    print(f"{name:4} {r.mean:6.2f}", *(f"{variance:10.3f}" for variance in variances))

# %% [markdown]
# ## A posterior over the decoder
#
# From 60 images a decoder with ten codes learns by heart. Every method of the library trains a
# VAE; here the decoder's weights have a distribution, and both halves are trained on the bound
# with drawn codes and drawn weights.

# %%
small, often = x[:60], {"epochs": 50, "lr": 3e-2, "batch_size": 30, "progress": False}
point = osc.train(ELBO(network(10), pixels), (small, small), **often)
net = network(10)
names = [f"decoder.{name}" for name, _ in net.decoder.named_parameters()]
prior = osc.priors.fan_in(net, names, biases=1.0)
method = osc.methods.MeanFieldVI(net, pixels, prior, osc.methods.WarmUp(35))
full = osc.train(method, (small, small), **often)
for name, q, weights in (
    ("point decoder", point, "mean"),
    ("full VB, mean weights", full, "mean"),
    ("full VB, drawn weights", full, "drawn"),
):
    inside = bound(q, small, "elbo", 20, weights=weights).mean
    outside = bound(q, test[:100], "elbo", 20, weights=weights).mean
    gap = inside - outside
    print(f"{name:23} training {inside:6.2f}  test {outside:6.2f}  gap {gap:5.2f} nats")

# %% [markdown]
# ## What holds, and what does not
#
# * Bounds of different likelihoods are not comparable, and one with too few draws is too low
#   by an amount that its own error does not show: look at K.
# * The variance of the value says nothing of that of the gradient, and neither says how well a
#   network is trained in the end: `python -m experiments aevb-figure5` trains with each.
# * A posterior over the decoder closes the gap between training and new images, and with so few
#   images it does so by leaving most weights at their prior: new images are explained worse,
#   not better. `python -m experiments aevb-full-vb` has the other posteriors and more images.
