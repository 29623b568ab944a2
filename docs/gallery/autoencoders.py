# %% [markdown]
# # Laplacian autoencoders: uncertainty of codes and images
#
# An autoencoder encodes an image as a short code and decodes it again. A Laplace posterior
# over its weights makes code and image random: sampled networks agree where the data
# determine the weights, and differ elsewhere.
#
# **What you learn.** How to train a Laplacian autoencoder online, how to read the
# uncertainty of its codes and images, and why to choose the temperature on held-out images.
#
# ## Plain and online training

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
_ = osc.train(online, (x, x), **options)

# %% [markdown]
# `OnlineLaplace` samples new weights in every step, from a Gaussian whose precision follows
# a running average of the curvature. After training, three steps follow: recompute the
# curvature at the final weights, set the noise scale from the residuals, and choose the
# temperature on held-out images. The same steps work for a network trained without noise. A
# warning appears if the lowest temperature is best:

# %%
post_hoc = LaplacianAutoencoder.post_hoc(plain, likelihood, x, validation=held_out)
trained = LaplacianAutoencoder.post_hoc(online.model.eval(), likelihood, x, validation=held_out)
for name, r in {"post-hoc": post_hoc, "online, refitted": trained}.items():
    q = r.posterior
    print(
        f"{name:9} temperature {float(q.temperature):.0e},"
        f" noise {float(q.likelihood.scale):.3f},"
        f" log p of test images {float(r.log_prob(test).mean()):.1f} nats"
    )

# %% [markdown]
# ## Codes and images are distributions
#
# `encode` and `reconstruct` sample networks, and return the components of the variance.

# %% Digits and rotated digits beside their reconstructions and their uncertainty
code, image = trained.encode(test, samples=50), trained.reconstruct(test, samples=50)
print("codes", tuple(code.mean.shape), "with standard deviations", tuple(code.variance.shape))
parts = {"weights": image.weight_variance, "noise": image.noise_variance}
print("variance of a pixel:", {name: round(float(v.mean()), 5) for name, v in parts.items()})

shown = torch.cat([test[:4], test[:4].rot90(1, (-2, -1))])
found = {}
for name, r in {"post-hoc": post_hoc, "online, refitted": trained}.items():
    drawn = r.reconstruct(shown, samples=50)
    found[name] = drawn.mean.numpy(), drawn.weight_variance.sqrt().numpy()
plots.reconstructions(
    shown.numpy(),
    found,
    ["digit"] * 4 + ["rotated"] * 4,
    "Reconstructions of digits, and of digits rotated by 90°",
)

# %% [markdown]
# ## The latent space
#
# A two-dimensional latent space can be shown in full. The background is the standard
# deviation of sampled networks for the image at each code: small near the codes of digits,
# larger elsewhere. Ellipses are the standard deviations of codes, and around the map stand
# decoded images of the circled ones.

# %% The plane of codes, shaded by the decoder's uncertainty, with the codes of test digits
maps = {
    name: LatentMap.of(r, test, samples=30)
    for name, r in {"post-hoc": post_hoc, "online, refitted": trained}.items()
}
plots.latent_map(maps, digits.test[1].numpy(), digits.classes)

# %% [markdown]
# ## Generated images
#
# `generate` samples a code from a Gaussian fitted to the codes of the data, and a network.

# %% Eight digits above eight images generated from sampled codes and networks
rows = {"data": test[:8].numpy(), "drawn": trained.generate(8).numpy()}
plots.image_grid(rows, "Digits, and images generated from sampled codes and networks")

# %% [markdown]
# ## Findings and limitations
#
# * The temperature matters more than the training method. On MNIST, at noise 1 and T = 1,
#   sampled networks reconstruct with twice the squared error of their mean; at T = 1/500
#   with the same error. The record of `lae-table2` has the curves.
# * At equal temperature, networks trained online and post hoc reconstruct equally well, and
#   online training costs twice as much. Trained on clothes, with a diagonal, the spread of
#   online codes distinguishes digits, and that of post-hoc codes does not (`lae-figure9`);
#   with `structure="kron"` that of post-hoc codes does too (`lae-detection`).
# * The variance due to weights is small compared with the noise: the networks are certain of
#   most pixels, and a likelihood with one noise scale cannot show where they are wrong.
