# %% [markdown]
# # Tasks for autoencoders
#
# Three common tasks with images and few or no labels: detect out-of-distribution images,
# impute missing pixels, and classify from a handful of labels.
#
# **What you learn.** The three tasks and their scores on embedded digits, for a plain, a
# variational and a Laplacian autoencoder, none of which is best at everything.
#
# ## Three representations, one interface

# %%
import torch

import osculate as osc
from osculate import metrics, plots
from osculate.autoencoders import ELBO, VAE, Autoencoder, LaplacianAutoencoder, Representation

torch.manual_seed(0)
digits = osc.data.load("digits")
(x, labels), (test, truth) = digits.train, digits.test
held_out = digits.validation[0]
options = {"epochs": 16, "lr": 1e-2, "batch_size": 100, "progress": False}


def coders(**changes):
    return osc.networks.mlp_coders((1, 8, 8), latent=2, hidden=(64, 32), **changes)


net = Autoencoder(*coders())
plain = osc.train(osc.methods.MAP(net, osc.likelihoods.Gaussian(1.0)), (x, x), **options)
residual = float((net(held_out) - held_out).square().mean().sqrt())
noise = osc.likelihoods.Gaussian(residual)
variational = osc.train(ELBO(VAE(*coders(codes=2)), noise), (x, x), **options)
methods = {
    "autoencoder": Representation(osc.posteriors.Point(net, noise), codes=x),
    "VAE": Representation(variational),
    "Laplacian": LaplacianAutoencoder.post_hoc(net, noise, x, validation=held_out),
}

# %% [markdown]
# ## Out-of-distribution detection
#
# AUROC is the probability that an out-of-distribution image has a higher score than a test
# image. The mean pixel is a baseline that needs no network.

# %% ROC curves of four methods on digits against shifted images, by score
shifted = osc.data.out_of_distribution(digits)
rates, areas = {name: {} for name in shifted}, {name: {} for name in shifted}
for method, r in methods.items():
    record = osc.tasks.ood(r, test, shifted, samples=30)
    for score in ("nll", "output_deviation", *(["mean_pixel"] if method == "VAE" else [])):
        if score not in record.inside:
            continue
        label = score if score == "mean_pixel" else f"{method}: {score}"
        for name in shifted:
            inside, outside = record.inside[score], record.outside[name][score]
            rates[name][label] = tuple(v.numpy() for v in metrics.roc_curve(inside, outside))
            areas[name][label] = record.auroc[name][score], record.auroc_error[name][score]
plots.roc_curves(rates, areas)

# %% [markdown]
# ## Imputation
#
# The upper half of each digit is hidden. A sampled network reconstructs the image, the
# observed half is restored, and the steps are repeated. Errors are over the hidden pixels. A
# classifier trained on whole digits labels the imputed images.

# %% Upper halves of eight digits, filled in by three draws and on average
classifier = osc.networks.build("cnn", (1, 8, 8), 10)
categorical = osc.likelihoods.Categorical()
sees = osc.train(
    osc.methods.MAP(classifier, categorical), (x, labels), **options | {"epochs": 8}
).posterior
mask = osc.tasks.lower_half((1, 8, 8))
print("                mse   accuracy    ECE   effective classes")
for name, r in methods.items():
    record = osc.tasks.imputation(r, test, mask, draws=20, classifier=sees, targets=truth)
    scores = record.metrics()
    row = (scores[key] for key in ("mse", "accuracy", "ece", "modes"))
    print(f"{name:12}", "".join(f"{value:9.3f}" for value in row))

first = slice(0, 8)
plots.imputations(
    test[first, 0].numpy(),
    mask[0].numpy(),
    record.images[:, first, 0].numpy(),
    "Upper halves filled in by a Laplacian autoencoder",
    predicted=record.predicted[:, first].numpy(),
    draws=3,
)

# %% [markdown]
# ## Classification from few labels
#
# Nearest neighbours among the codes, with the same labelled images for all methods. To
# classify your own images, use `osc.tasks.neighbour_probabilities`.

# %% Accuracy against the number of labels, for each method
few = osc.tasks.semi_supervised(
    methods, x, labels, (test[:300], truth[:300]), labels=(1, 2, 5, 10), repeats=10, samples=10
)
curves = {name: (few.mean[name].numpy(), few.standard_error[name].numpy()) for name in methods}
plots.accuracy_against_labels(few.labels, curves, "Digits from few labels", chance=0.1)

# %% [markdown]
# ## Findings and limitations
#
# * Every score is for one seed on tiny images. `python -m experiments lae-figure9`,
#   `lae-table3` and `lae-figure12` have three to five seeds on MNIST, all baselines and
#   standard errors.
# * Check first what the images alone tell, such as the mean pixel here, or the distance to
#   the nearest training image (`osc.tasks.ood(None, …, train=x)`), and distrust a network
#   that does no better. Which score to take depends on the structure: with a diagonal the
#   spread by itself is a poor one (see "How to choose").
# * Imputations of a plain autoencoder differ only through their initial noise. Several
#   classes among the draws can be correct: half a digit may belong to more than one class.
