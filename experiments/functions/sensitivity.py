"""Sensitivity of the uncertainty: a patch of noise on an image, and the share of the attributions that it holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

import osculate as osc
from experiments import Claim, Findings, Record, Resumable, Runner, Table, experiment, rounded, train
from experiments.evaluation import at_mode
from osculate.data import load
from osculate.posteriors import Gaussian
from osculate.randomness import seeded

LIKELIHOOD = osc.likelihoods.Categorical()
#: Quantities by their words in table and figure.
QUANTITIES = {
    "epistemic uncertainty (BALD)": "bald",
    "aleatoric uncertainty": "aleatoric",
    "entropy": "entropy",
    "class probability": "mean",
}
METHODS = {"integrated gradients": "integrated", "plain gradient": "gradient"}
MAIN = "integrated gradients"
#: Columns: shares of the absolute and of the positive attributions; and rows that they are compared with.
SHARE, RAISING, GAP = "share in the patch, %", "share of what raises it, %", "gap of the sum, % of the change"
AREA, LIGHT, ACCURACY = "area", "brightness", "test accuracy, %"


@dataclass(frozen=True)
class Settings(Resumable):
    """A small convolutional network with smooth activations, so that attributions add up.

    Activation, epochs and size of a batch were chosen by the accuracy on held-out images.

    Args:
        data: Data of training and test.
        train: Training images.
        images: Test images.
        patch: Side of the patch of noise, uniform in [0, 1].
        epochs: Epochs of training.
        steps: Points on the path of integrated gradients.
        shown: Images in the figure.
    """

    data: str = "fashion_mnist"
    train: int = 1000
    images: int = 50
    patch: int = 7
    epochs: int = 30
    steps: int = 16
    shown: int = 6


@experiment(
    "functions-sensitivity",
    "Which pixels an uncertain prediction depends on",
    "No document: integrated gradients [sundararajan2017] of the mutual information of label and function",
    paper=Settings(train=60_000, images=1000, steps=32),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Attribute uncertainties to the pixels of images with a patch of noise."""
    table, data = Table(), dict[str, Any]()

    def attributed(seed: int) -> tuple[dict[str, dict[str, float]], dict[str, Any]]:
        rows, shown = {}, dict[str, Any]()
        q, x, inside, accuracy = patched(settings, seed)
        rows["network"] = {ACCURACY: 100 * accuracy}
        for (word, quantity), (way, method) in product(QUANTITIES.items(), METHODS.items()):
            found = osc.tasks.sensitivity(q, x, quantity, method=method, steps=settings.steps, progress=runner.progress)
            rows[f"{word}, {way}"] = row = {
                SHARE: 100 * share(found.attributions.abs(), inside),
                RAISING: 100 * share(found.attributions.clamp(min=0), inside),
            }
            if found.baseline_values is not None:
                change = (found.values - found.baseline_values).abs().mean()
                row[GAP] = 100 * float(found.gap.abs().mean() / change)
            if way == MAIN:
                shown[word] = rounded(found.attributions[: settings.shown, 0], 5)
        rows[AREA] = {SHARE: 100 * share(torch.ones_like(x), inside)}
        rows[LIGHT] = {SHARE: 100 * share(x, inside)}
        shown["images"] = rounded(x[: settings.shown, 0], 3)
        places = [each[0].nonzero() for each in inside[: settings.shown]]
        shown["patches"] = [[*each.amin(0).tolist(), settings.patch, settings.patch] for each in places]
        return rows, shown

    for rows, shown in runner.each("networks", zip(seeds), attributed):
        table.extend(rows)
        data = data or shown
    claim = Claim.over_seeds(
        "patch beside its share of the brightness",
        "If all pixels count the same, the brightness alone decides integrated gradients.",
    )
    return Findings(table.numbers(), (claim,), data)


def patched(settings: Settings, seed: int) -> tuple[Gaussian, Float[Tensor, "N C H W"], Bool[Tensor, "N C H W"], float]:
    """Return a posterior, test images with a patch of noise at a random place, its pixels, and the test accuracy."""
    data = load(settings.data, train_size=settings.train, validation_size=0, seed=seed)
    with seeded(seed):
        model = osc.networks.build("cnn", data.input_shape, data.outputs, width=8, activation="sharp_softplus")
    how = {"epochs": settings.epochs, "batch_size": 32, "lr": 0.01, "seed": seed}
    train(osc.methods.MAP(model, LIKELIHOOD, 1.0), data.train, **how)
    q = osc.laplace(model.eval(), LIKELIHOOD, data.train)
    generator = torch.Generator().manual_seed(seed)
    x = data.test[0][torch.randperm(len(data.test[0]), generator=generator)[: settings.images]]
    _, _, height, width = x.shape
    top, left = (torch.randint(side - settings.patch + 1, (len(x), 1), generator=generator) for side in (height, width))
    within = [
        (places >= first) & (places < first + settings.patch)
        for places, first in ((torch.arange(height), top), (torch.arange(width), left))
    ]
    inside = (within[0].unsqueeze(2) & within[1].unsqueeze(1)).unsqueeze(1).expand_as(x)
    accuracy = osc.metrics.accuracy(at_mode(q, data.test[0]), data.test[1])
    return q, torch.where(inside, torch.rand(x.shape, generator=generator), x), inside, accuracy


def share(values: Float[Tensor, "N C H W"], inside: Bool[Tensor, "N C H W"]) -> float:
    """Return the share of the values that lies in the patch, averaged over images."""
    total = values.flatten(1).sum(1).clamp(min=torch.finfo(values.dtype).tiny)
    return float(((values * inside).flatten(1).sum(1) / total).mean())


@measure.figure
def draw(record: Record) -> Any:
    """Images above the maps of their attributions."""
    import numpy as np

    from osculate import plots

    data = record.findings.data
    images = np.asarray(data["images"])[:, None]
    maps = {word.replace(" (", "\n("): np.asarray(data[word]) for word in QUANTITIES}
    heading = "Pixels that explain predictions of images with a patch of noise (outlined)"
    return plots.attribution_maps(images, maps, heading, data["patches"])
