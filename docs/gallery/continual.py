# %% [markdown]
# # Continual learning: one task after another
#
# A network that is trained on one data set after another forgets the earlier ones. Bayes'
# rule has the remedy: the posterior of the earlier data is the prior for the next. This
# page learns three tasks in this way and compares with plain fine-tuning.
#
# **What you learn.** How to hand a posterior on as a prior, by `osc.tasks.continual_learning`
# or step by step; what the structure of the posterior means here; and what the weight of
# the earlier tasks trades off.
#
# ## Three tasks
#
# The handwritten digits of scikit-learn (8 × 8 pixels), with the pixels in another order in
# each task. One network learns all of them, and never sees the data of a task again.

# %% Ten digits in each of three tasks, with pixels in three orders
import textwrap
from pathlib import Path

import torch

import osculate as osc
from experiments import read_record
from osculate import plots

data = osc.data.load("digits", train_size=900)
generator = torch.Generator().manual_seed(0)
orders = [torch.arange(64), *(torch.randperm(64, generator=generator) for _ in range(2))]
tasks, tests = (
    [(x.flatten(1)[:, order], y) for order in orders] for x, y in (data.train, data.test)
)
plots.image_grid(
    {f"task {n}": x[:10].unflatten(1, (1, 8, 8)) for n, (x, _) in enumerate(tests, 1)},
    "The same ten digits in each task",
)

# %% [markdown]
# ## With and without the earlier posterior
#
# `decay` is the factor of the earlier posterior in the next prior: a tiny one is fine-tuning,
# which only starts at the earlier weights. The record has the accuracy on every task after
# every task.

# %%
likelihood = osc.likelihoods.Categorical()
training = {"epochs": 10, "lr": 1e-2, "batch_size": 75}


def network():
    torch.manual_seed(0)
    return osc.networks.MLP(64, (40,), 10, activation="relu")


ways = {
    "fine-tuning": {"structure": "diag", "decay": 1e-6},
    "prior, diag": {"structure": "diag"},
    "prior, kron": {"structure": "kron"},
}
found = {}
for name, options in ways.items():
    record = osc.tasks.continual_learning(
        network(), likelihood, tasks, tests, **options, **training
    )
    found[name] = record
    print(f"{name}: accuracy in % on tasks 1, 2, 3 (columns) after each task (rows)")
    for row in 100 * record.accuracy:
        print("   " + "".join(f"{float(value):6.1f}" for value in row))
    print(f"   change of earlier tasks: {100 * record.backward_transfer:+.1f} points")

# %% Accuracy over the tasks learned so far, with and without the earlier posterior
figure, ((ax,),) = plots.panels(1, 1, 6.0, 3.6)
after = range(1, len(tasks) + 1)
plots.lines(ax, {n: (after, 100 * r.average) for n, r in found.items()}, markers="os^")
ax.set_xticks(list(after))
ax.set(xlabel="tasks learned so far", ylabel="accuracy over these tasks, %")
ax.legend(frameon=False)
figure

# %% [markdown]
# ## Step by step
#
# The same by hand. `prior=q` is the posterior of all data so far, in the training and in
# the approximation after it. These predictions average over the posterior, those of the
# record are of the network at the mode:

# %%
net, q = network(), 1.0  # a prior precision before the first task
for x, y in tasks:
    osc.train(osc.methods.MAP(net, likelihood, prior=q), (x, y), progress=False, **training)
    q = osc.laplace(net.eval(), likelihood, (x, y), prior=q, refine=False)
for n, (x, y) in enumerate(tests, 1):
    accuracy = osc.metrics.accuracy(osc.predict(q, x).probs, y)
    print(f"task {n}: {100 * accuracy:.1f} %")

# %% [markdown]
# ## The weight of the earlier tasks
#
# `weight` multiplies the curvature of each task before it counts as prior. A large one keeps
# the earlier tasks and has less room for the newest:

# %%
for weight in (0.1, 10.0, 100.0):
    record = osc.tasks.continual_learning(
        network(), likelihood, tasks, tests, weight=weight, **training
    )
    newest = 100 * float(record.accuracy[-1, -1])
    first = 100 * float(record.accuracy[-1, 0])
    print(f"weight {weight:5g}: first task {first:.1f} %, newest task {newest:.1f} %")

# %% [markdown]
# ## Measured over seeds
#
# The committed record of `python -m experiments functions-continual`: five tasks of MNIST,
# every method with learning rate, epochs and weight chosen on held-out images.

# %%
results = Path(osc.__file__).parent.parent / "experiments" / "results"
record = read_record(results / "functions-continual.json")
for number in record.findings.numbers:
    if number.column.startswith("final"):
        print(f"{number.row:40} {number!s:>12} %")
print()
for claim in record.findings.claims:
    print(textwrap.fill(str(claim), 84), end="\n\n")

# %% [markdown]
# ## Findings and limitations
#
# * Fine-tuning forgets; with the earlier posterior as prior more is kept. On the digits and
#   with the same weight, the diagonal posterior forgets far more than Kronecker factors. With
#   its own weight, chosen on held-out images, it comes close on permuted MNIST.
# * The weight trades the old for the new. It is a hyperparameter, to be chosen on held-out
#   data of all tasks, as learning rate and epochs are.
# * The earlier posterior is Gaussian around one mode, and the sum of Kronecker factors is
#   replaced by the nearest product: both are approximations, and errors add up over tasks.
# * Not every sequence suits it. On split MNIST, where one pair of outputs stands for other
#   digits in each task, fine-tuning of new weights with a very small learning rate does as
#   well, and replay does far better.
