# %% [markdown]
# # Active learning: which inputs to label
#
# Labels cost money, inputs often do not. A posterior over functions says what a label would
# teach: not where the prediction is uncertain, but where the *function* is.
#
# **What you learn.** The difference between entropy and mutual information; why a batch has to
# be chosen jointly; the loop `osc.tasks.active_learning`; and how much it gave on images.
#
# ## Two kinds of uncertainty
#
# A pool of two classes in the plane, ten of them labelled. In the band between the classes
# labels are noisy: there the entropy is high whatever is known. Far from the labels the
# function is unknown: there a label is worth something.

# %%
import textwrap
import warnings
from functools import partial
from pathlib import Path

import torch
from torch import nn

import osculate as osc
from experiments import read_record
from osculate import plots
from osculate.plots import style

generator = torch.Generator().manual_seed(3)


def draw(number):
    x = 2 * torch.randn(number, 2, generator=generator)
    chance = torch.sigmoid(4 * (x[:, 1] - (1.5 * x[:, 0]).sin()))
    return x, torch.bernoulli(chance, generator=generator).long()


pool, labels = draw(400)
test = draw(2000)
likelihood = osc.likelihoods.Categorical()


def fit(x, y):
    """Train anew, and fit by the defaults."""
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(2, 30), nn.Tanh(), nn.Linear(30, 2))
        method = osc.methods.MAP(net, likelihood, prior=0.3)
        osc.train(method, (x, y), epochs=60, batch_size=200, lr=0.05, progress=False)
        return osc.laplace(net, likelihood, (x, y))


x, y = pool[:10], labels[:10]
q = fit(x, y)

# %% [markdown]
# ## What each score chooses
#
# Ten inputs by each score. `"entropy"` and `"bald"` (mutual information of label and function)
# look at each input by itself, and take near neighbours. `"batch"` chooses one after another,
# each given the labels that are already on the list. `"reduction"` asks what a label says
# about the rest of the pool.

# %% The ten inputs that each of four scores would have labelled, on a map of class probability
ends = torch.linspace(-6, 6, 61)
grid = torch.cartesian_prod(ends, ends)
probability = osc.predict(q, grid).probs[:, 1].reshape(61, 61).T
figure, axes = plots.panels(1, 4, 3.0, 3.2, sharex=True, sharey=True)
for ax, score in zip(axes[0], ("entropy", "bald", "batch", "reduction"), strict=True):
    chosen = osc.tasks.acquire(q, pool[10:], 10, score, generator=generator).indices
    ax.plot(*pool.T, ".", color=style.GREY, markersize=2, alpha=0.5)
    plots.class_map(ax, (ends, ends), probability, x, y)
    ax.plot(*pool[10:][chosen].T, "*", color=style.INK, markersize=9, label="to be labelled")
    style.label(ax, score, "input 1")
style.label(axes[0, 0], y="input 2")
style.legend_below(figure, axes[0, 0])
style.title(
    figure, "Ten inputs to label: dots and triangles have labels, grey points have none"
)

# %% [markdown]
# ## The loop
#
# `osc.tasks.active_learning` takes a function that fits, a pool, its labels (or a function that
# asks for them) and test data. A rule is a name, or any function like `acquire`.

# %%
rules = {
    "random": "random",
    "bald": "bald",
    "batch": partial(osc.tasks.acquire, score="batch", candidates=60),
    "reduction": partial(osc.tasks.acquire, score="reduction", candidates=60),
}
for name, rule in rules.items():
    found = osc.tasks.active_learning(
        fit, pool, labels, test, rule=rule, first=10, count=10, rounds=3, seed=1
    )
    row = "  ".join(f"{100 * value:5.1f} %" for value in found.scores["accuracy"])
    print(f"{name:9} accuracy with {', '.join(map(str, found.labels))} labels: {row}")

# %% [markdown]
# One run says little, but this one warns: the test data lie where the pool is dense, and random
# labels lie there too. Labels at the edge of the pool teach most about the function, and less
# about the test data.
#
# ## Images
#
# The committed record of `python -m experiments functions-active`: Fashion-MNIST, three
# seeds, with a rule that was chosen on MNIST.

# %%
results = Path(osc.__file__).parent.parent / "experiments" / "results"
record = read_record(results / "functions-active.json")
for heading, *row in record.findings.table():
    print(f"{heading:52}" + "".join(f"{cell:>36}" for cell in row))
print()
for claim in record.findings.claims:
    print(textwrap.fill(str(claim), 84), end="\n\n")

# %% [markdown]
# ## Findings and limitations
#
# * Entropy asks for labels where classes overlap; mutual information, where the function is
#   unknown.
# * Inputs that are best one by one are often alike. A joint choice does not pay twice for the
#   same information.
# * The gain depends on the data: on MNIST the chosen rule needs fewer than two thirds of the
#   labels; on Fashion-MNIST none is shown to beat random labels. A rule has to be chosen
#   before the labels are bought, and there is no test set to choose it on.
# * The chosen labels are no random sample: their accuracy and class frequencies are not those
#   of the pool.
