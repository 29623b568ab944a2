# %% [markdown]
# # Autoencoders that know what they do not know
#
# An autoencoder turns an image into a few numbers, its code, and back. A Laplace posterior
# over its weights makes both random: networks drawn from it agree on what the data determine,
# and differ on the rest.
#
# **What one learns.** How to train a Laplacian autoencoder online, what its codes and images
# say of their own uncertainty, and why the temperature has to be chosen on held-out images.
#
# ## A plain autoencoder, and one trained with noise

# %%
import torch

import osculate as osc
from osculate import plots
from osculate.autoencoders import Autoencoder, LaplacianAutoencoder, LatentMap

torch.manual_seed(0)
digits = osc.data.load("digits")
x, held_out, test = digits.train[0], digits.validation[0], digits.test[0]
likelihood = osc.likelihoods.Gaussian(1.0)


def network():
    return Autoencoder(*osc.networks.mlp_coders((1, 8, 8), latent=2, hidden=(64, 32)))


options = {"epochs": 16, "lr": 1e-2, "batch_size": 100, "progress": False}
plain = network()
osc.train(osc.methods.MAP(plain, likelihood), (x, x), **options)

online = osc.methods.OnlineLaplace.published(network(), likelihood)
osc.train(online, (x, x), **options)

# %% [markdown]
# `OnlineLaplace` draws new weights in every step, from a Gaussian whose precision follows the
# curvature along the way. Afterwards the curvature is taken anew at the final weights, the
# noise is that of the residuals, and held-out images choose the temperature. The same three
# steps work for a network that was trained without noise. Where the coldest temperature of
# all is best, a warning says so:

# %%
post_hoc = LaplacianAutoencoder.post_hoc(plain, likelihood, x, validation=held_out)
trained = LaplacianAutoencoder.post_hoc(online.model.eval(), likelihood, x, validation=held_out)
for name, r in {"post-hoc": post_hoc, "online": trained}.items():
    q = r.posterior
    print(
        f"{name:9} temperature {float(q.temperature):.0e},"
        f" noise {float(q.likelihood.scale):.3f},"
        f" log p of test images {float(r.log_prob(test).mean()):.1f} nats"
    )

# %% [markdown]
# ## Codes and images are distributions
#
# `encode` and `reconstruct` draw networks, and say how the variance is made up.

# %%
code, image = trained.encode(test, samples=50), trained.reconstruct(test, samples=50)
print("codes", tuple(code.mean.shape), "with standard deviations", tuple(code.variance.shape))
parts = {"weights": image.weight_variance, "noise": image.noise_variance}
print("variance of a pixel:", {name: round(float(v.mean()), 5) for name, v in parts.items()})

shown = torch.cat([test[:4], test[:4].rot90(1, (-2, -1))])
found = {}
for name, r in {"post-hoc": post_hoc, "online": trained}.items():
    drawn = r.reconstruct(shown, samples=50)
    found[name] = drawn.mean.numpy(), drawn.weight_variance.sqrt().numpy()
plots.reconstructions(
    shown.numpy(),
    found,
    ["digit"] * 4 + ["turned"] * 4,
    "What the networks make of digits, and of digits that lie on their side",
)

# %% [markdown]
# ## The plane of codes
#
# With two numbers as code, one can look at all of them. The grey is how far drawn networks
# differ about the image that a place stands for: little where codes of digits are, more
# elsewhere.

# %%
maps = {
    name: LatentMap.of(r, test, samples=30)
    for name, r in {"post-hoc": post_hoc, "online": trained}.items()
}
plots.latent_map(maps, digits.test[1].numpy(), digits.classes, shared=False)

# %% [markdown]
# ## New images
#
# `generate` draws a code from the Gaussian that the codes of the data suggest, and a network.

# %%
rows = {"data": test[:8].numpy(), "drawn": trained.generate(8).numpy()}
plots.image_grid(rows, "Digits, and images of drawn codes and networks")

# %% [markdown]
# ## What holds, and what does not
#
# * The temperature matters more than how the posterior was reached. On MNIST, at noise 1 and
#   T = 1, drawn networks reconstruct with twice the squared error of their mean; at 1/500 with
#   the same. `RESULTS.md` (lae-table2) has the curves.
# * At equal temperature, networks trained with noise and networks that were not reconstruct
#   alike, warm or cold, and online training costs twice as much. The spread of their codes
#   tells digits from clothes, which that of the others does not (lae-figure9).
# * The variance of weights is small beside that of the noise: the networks are sure of most
#   pixels, and a likelihood of one noise for all pixels cannot say where they are wrong.
