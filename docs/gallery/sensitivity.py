# %% [markdown]
# # Sensitivity: what an uncertain prediction depends on
#
# A prediction is uncertain. Which pixels, or which columns of a table, make it so? The
# uncertainty of the linearised predictive is a smooth function of the input, and its
# gradients answer.
#
# **What you learn.** `osc.tasks.sensitivity`: attributions of entropy, of its epistemic part
# and of variances; that they add up; and when they do not.
#
# ## Digits with a corrupted patch
#
# A small convolutional network with softplus (gradients of ReLU networks miss the jumps of
# their Jacobian), trained on clean digits. Test digits get a patch of noise.

# %%
import textwrap
from pathlib import Path

import torch
from torch import nn

import osculate as osc
from experiments import read_record
from osculate import plots
from osculate.plots import style

data = osc.data.load("digits", train_size=400)
torch.manual_seed(0)
net = osc.networks.build("cnn", (1, 8, 8), 10, width=4, activation="softplus")
likelihood = osc.likelihoods.Categorical()
method = osc.methods.MAP(net, likelihood, prior=1.0)
osc.train(method, data.train, epochs=30, lr=2e-2, batch_size=50, progress=False)
q = osc.laplace(net.eval(), likelihood, data.train, refine=False)

generator = torch.Generator().manual_seed(0)
clean = data.test[0][:8]
x = clean.clone()
x[:, :, 5:8, 0:3] = torch.rand(8, 1, 3, 3, generator=generator)  # the lower left corner
for name, images in {"clean": clean, "with a patch of noise": x}.items():
    total, epistemic = (
        osc.tasks.sensitivity(q, images, of, method="gradient").values.mean()
        for of in ("entropy", "bald")
    )
    print(f"{name:22} entropy {total:.2f} nats, of which epistemic {epistemic:.2f}")

# %% [markdown]
# Integrated gradients from a black image. The attributions of the epistemic and of the
# aleatoric part add up to those of the entropy, and each sums to the change of its quantity
# from the black image, up to `gap`.

# %% Digits with a corrupted patch, and the pixels that raise their uncertainty
found = {
    name: osc.tasks.sensitivity(q, x, of, steps=16)
    for name, of in {
        "epistemic\nuncertainty": "bald",
        "entropy": "entropy",
        "class\nprobability": "mean",
    }.items()
}
for name, each in found.items():
    gap, change = each.gap.abs().max(), (each.values - each.baseline_values).abs().mean()
    words = name.replace("\n", " ")
    print(f"{words:22} mean change {change:.3f}, largest gap {gap:.1e}")
maps = {name: each.attributions for name, each in found.items()}
plots.attribution_maps(x, maps, "What raises the uncertainty", [(5, 0, 3, 3)] * len(x))

# %% [markdown]
# Strokes tell the digit, and lower the uncertainty; noise raises it on some images, and on
# others leaves it alone. The sums over the patch, beside what removing the noise does:

# %%
patch = found["epistemic\nuncertainty"].attributions[:, 0, 5:8, 0:3].sum((1, 2))
removed = (osc.tasks.sensitivity(q, images, method="gradient").values for images in (x, clean))
difference = torch.sub(*removed)
print("epistemic uncertainty attributed to the patch, nats:", *(f"{v:+.2f}" for v in patch))
print(
    "change if its noise is put there, nats:             ", *(f"{v:+.2f}" for v in difference)
)

# %% [markdown]
# ## Columns of a table
#
# Diabetes progression from ten measurements: the variance of the function for the test
# patients with the widest error bars. The baseline, 0, is the average patient.

# %% Parts of the variance of ten patients by column, one dot a patient
table = osc.data.load("diabetes", validation_size=0)
x_train, y_train = (part.double() for part in table.train)
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(10, 20), nn.Tanh(), nn.Linear(20, 1)).double()
method = osc.methods.LevenbergMarquardt(net, osc.likelihoods.Gaussian(0.5))
regression = osc.train(method, (x_train, y_train), epochs=40, progress=False).posterior

columns = ("age", "sex", "bmi", "blood pressure", "s1", "s2", "s3", "s4", "s5", "s6")
patients = table.test[0].double()
variance = osc.functional_variance(regression, patients, diagonal=True).squeeze(1)
widest = patients[variance.argsort(descending=True)[:10]]
explained = osc.tasks.sensitivity(regression, widest, of="variance")
figure, axes = plots.panels(1, 1, 6.4, 3.6)
values = {name: explained.attributions[:, n].tolist() for n, name in enumerate(columns)}
plots.dots(axes[0, 0], values, columns, dict.fromkeys(columns, style.BLUE))
style.label(axes[0, 0], None, "part of the variance, one dot a patient, | their mean")
style.title(figure, "What makes ten patients hard to predict")

# %% [markdown]
# ## The record
#
# `python -m experiments functions-sensitivity`: patches of noise at random places of
# Fashion-MNIST images, three seeds.

# %%
results = Path(osc.__file__).parent.parent / "experiments" / "results"
record = read_record(results / "functions-sensitivity.json")
for claim in record.findings.claims:
    print(textwrap.fill(str(claim), 84), end="\n\n")

# %% [markdown]
# ## Findings and limitations
#
# * Attributions are relative to a baseline: pixels that equal it have none, so that dark
#   pixels of a black baseline never matter. Plain gradients have no baseline, and do not
#   add up.
# * A map shows what the *model's* uncertainty depends on, which is not always what a person
#   would call the cause.
# * With ReLU or max-pooling the Jacobian of the linearised predictive jumps, and the gap does
#   not vanish, however many steps are taken.
