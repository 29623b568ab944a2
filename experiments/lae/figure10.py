"""Figure 10 of [miani2022]: mean and spread of reconstructions, of images like those of the training and of others."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments import Claim, Findings, Number, Record, experiment
from experiments.lae import models as lae_models
from experiments.lae.figure9 import ALL, named
from experiments.lae.models import DROPOUT, ENSEMBLE, LEARNED, LONG, ONLINE, POST_HOC, VARIATIONAL, Models
from osculate.autoencoders import Reconstruction
from osculate.progress import track


@dataclass(frozen=True)
class Settings(lae_models.Training):
    """Pairs of data sets, and how many images are drawn.

    Args:
        pairs: what is trained on, what else is shown, and how many images to train on.
        samples: networks drawn.
        images: of each kind in the figure.
        scored: of each kind in the numbers.
    """

    pairs: tuple[tuple[str, str, int], ...] = (("mnist", "KMNIST", 20_000), ("fashion_mnist", "MNIST", 10_000))
    samples: int = 50
    images: int = 3
    scored: int = 500


PRESETS = {"small": Settings(), "paper": Settings(validation_size=5_000, fit=LONG, pairs=ALL, samples=100)}
#: What has any spread, that of learned variances being noise, and what of it is drawn.
METHODS = (LEARNED, VARIATIONAL, DROPOUT, ENSEMBLE, POST_HOC, ONLINE)
SHOWN = (VARIATIONAL, DROPOUT, ONLINE)
INSIDE, OUTSIDE = "σ summed over pixels: test images", "σ summed over pixels: others"


@experiment(
    "lae-figure10",
    "Mean and spread of reconstructions, of test images and of others",
    "Laplacian Autoencoders [miani2022], Figure 10",
    **PRESETS,
)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """The spread of images, without observation noise but where that is what is learned."""
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    data: dict[str, Any] = {}
    todo = [(pair, seed) for pair in settings.pairs for seed in seeds]
    for (inside, outside, size), seed in track(todo, "pairs and seeds", len(todo), progress):
        models, pair = Models(replace(settings, data=inside, train_size=size), seed), named(inside, outside)
        sets = models.test[: settings.scored], models.outside[outside][: settings.scored]
        some = torch.cat([images[: settings.images] for images in sets])
        shown: dict[str, Any] = {}
        for method in METHODS:
            r = models.representation(method)
            spreads = []
            for images in sets:
                image = r.reconstruct(images, settings.samples, generator=torch.Generator().manual_seed(0))
                spreads.append(float(deviation(image, method).flatten(1).sum(1).mean()))
            found.setdefault((pair, method), []).append((spreads[0], spreads[1]))
            if method in SHOWN and seed == seeds[0]:
                image = r.reconstruct(some, settings.samples, generator=torch.Generator().manual_seed(0))
                shown[method] = [_listed(image.mean), _listed(deviation(image, method))]
        if shown:
            names = [pair.split(" → ")[0]] * settings.images + [outside] * settings.images
            data[pair] = {"images": _listed(some), "names": names, "found": shown}
    numbers = [
        Number(f"{pair}: {method}", column, tuple(values[i] for values in rows))
        for (pair, method), rows in found.items()
        for i, column in enumerate((INSIDE, OUTSIDE))
    ]
    return Findings(tuple(numbers), _claims(found), data)


def deviation(image: Reconstruction, method: str) -> Tensor:
    """σ of each pixel: without observation noise, but where that is what is learned."""
    return (image.noise_variance if method == LEARNED else image.mean_variance).sqrt()


def _listed(images: Tensor) -> list[Any]:
    """Numbers for a file: thousandths."""
    return (images * 1000).round().int().tolist()


def _claims(found: dict[tuple[str, str], list[tuple[float, float]]]) -> tuple[Claim, ...]:
    ratios = {key: Number("", "", tuple(outside / inside for inside, outside in rows)) for key, rows in found.items()}
    listed = "; ".join(f"{pair}, {method} {ratio}" for (pair, method), ratio in ratios.items())
    text = f"σ of the output of other images over that of test images: {listed}. Two standard errors asked."
    unsure = [
        Claim.judged(
            f"{pair}: {method}, is more unsure of other images than of test images",
            _above(ratio),
            f"σ of the output of others over that of test images {ratio}; two standard errors asked.",
        )
        for (pair, method), ratio in ratios.items()
        if method in (POST_HOC, ONLINE)
    ]
    dropout = [_below(ratio) for (_, method), ratio in ratios.items() if method == DROPOUT]
    return (
        *unsure,
        Claim.judged("The MC-dropout autoencoder is more unsure of test images than of others", all(dropout), text),
    )


def _above(ratio: Number) -> bool:
    """Whether it is larger than one."""
    return (ratio.mean or 0.0) - 2 * (ratio.standard_error or 0.0) > 1


def _below(ratio: Number) -> bool:
    """Whether it is smaller than one."""
    return (ratio.mean or 0.0) + 2 * (ratio.standard_error or 0.0) < 1


@measure.figure
def draw(record: Record) -> Any:
    """Input, mean and standard deviation of the first pair."""
    from osculate.plots import reconstructions

    (pair, shown), *_ = record.findings.data.items()
    found = {
        method: (np.asarray(both[0]) / 1000, np.asarray(both[1]) / 1000) for method, both in shown["found"].items()
    }
    return reconstructions(
        np.asarray(shown["images"]) / 1000, found, shown["names"], f"Trained on {pair.split(' ')[0]}: mean and spread"
    )
