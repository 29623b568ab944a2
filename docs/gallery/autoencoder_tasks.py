# %% [markdown]
# # What a Laplacian autoencoder is good for
#
# Three things that people with images and few or no labels want: notice an image that does
# not belong, fill in what was not seen, and classify from a handful of labels.
#
# **What one learns.** The three tasks and their scores, on embedded digits, for a plain
# autoencoder, a variational one, and a Laplacian one; and how to read a table in which not
# everything goes in favour of the method of the page.
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
# ## Notice what does not belong
#
# Scores of every image, and how often a foreign image has the higher one (AUROC). A score
# that looks at the mean pixel alone stands beside them: it needs no network.

# %%
others = osc.data.out_of_distribution(digits)
rates, areas = {name: {} for name in others}, {name: {} for name in others}
for method, r in methods.items():
    record = osc.tasks.ood(r, test, others, samples=30)
    for score in ("nll", "output_deviation", *(["mean_pixel"] if method == "VAE" else [])):
        if score not in record.inside:
            continue
        label = score if score == "mean_pixel" else f"{method}: {score}"
        for name in others:
            inside, outside = record.inside[score], record.outside[name][score]
            rates[name][label] = tuple(v.numpy() for v in metrics.roc_curve(inside, outside))
            areas[name][label] = record.auroc[name][score], record.auroc_error[name][score]
plots.roc_curves(rates, areas)

# %% [markdown]
# ## Fill in what was not seen
#
# The upper half of each digit is hidden. A drawn network reconstructs, the lower half is put
# back, and so again. Errors are those of the hidden pixels against the truth, and a
# classifier that was trained on whole digits says what it sees.

# %%
classifier = osc.networks.build("cnn", (1, 8, 8), 10)
categorical = osc.likelihoods.Categorical()
sees = osc.train(
    osc.methods.MAP(classifier, categorical), (x, labels), **options | {"epochs": 8}
).posterior
mask = osc.tasks.lower_half((1, 8, 8))
print("                mse   accuracy    ECE   classes seen")
for name, r in methods.items():
    record = osc.tasks.imputation(r, test, mask, draws=20, classifier=sees, targets=truth)
    scores = record.metrics()
    row = (scores[key] for key in ("mse", "accuracy", "ece", "modes"))
    print(f"{name:12}", "".join(f"{value:9.3f}" for value in row))

some = slice(0, 8)
plots.imputations(
    test[some, 0].numpy(),
    mask[0].numpy(),
    record.images[:, some, 0].numpy(),
    "Upper halves filled in by a Laplacian autoencoder",
    predicted=record.predicted[:, some].numpy(),
    draws=3,
)

# %% [markdown]
# ## Classes from few labels
#
# Nearest neighbours among the codes, the same labelled images for all methods. The classes of
# images of your own come from `osc.tasks.neighbour_probabilities`.

# %%
few = osc.tasks.semi_supervised(
    methods, x, labels, (test[:300], truth[:300]), labels=(1, 2, 5, 10), repeats=10, samples=10
)
curves = {name: (few.mean[name].numpy(), few.standard_error[name].numpy()) for name in methods}
plots.accuracy_against_labels(few.labels, curves, "Digits from few labels", chance=0.1)

# %% [markdown]
# ## What holds, and what does not
#
# * Every score is that of one seed on tiny images; `python -m experiments lae-figure9`, `lae-
#   table3` and `lae-figure12` have three seeds on MNIST, with all baselines and standard
#   errors.
# * Look at the mean pixel before believing in a detector: where foreign images are simply
#   darker or brighter, it does as well as any network.
# * Imputations of a plain autoencoder differ only by the noise they start from. Several
#   classes among the draws of a digit are a statement about the digit: half of it can be more
#   than one.
