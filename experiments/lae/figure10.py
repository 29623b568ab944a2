"""Figure 10 of [miani2022]: mean and spread of reconstructions, of images like those of the training and of others."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments import Claim, Findings, Record, Table, estimate, experiment, listed, track
from experiments.lae import models as lae_models
from experiments.lae.figure9 import ALL, named
from experiments.lae.models import DROPOUT, ENSEMBLE, LEARNED, LONG, ONLINE, POST_HOC, VARIATIONAL, Models
from osculate.autoencoders import Reconstruction, Representation


@dataclass(frozen=True)
class Settings(lae_models.Training):
    """Pairs of data sets, and numbers of images.

    Args:
        pairs: Data set, out-of-distribution data set, and number of training images.
        samples: Number of sampled networks.
        images: Images of each data set in the figure.
        scored: Images of each data set in the numbers.
    """

    pairs: tuple[tuple[str, str, int], ...] = (("mnist", "KMNIST", 20_000), ("fashion_mnist", "MNIST", 10_000))
    samples: int = 50
    images: int = 3
    scored: int = 500


#: Methods with any spread (that of learned variances is noise), and those that are drawn.
METHODS = (LEARNED, VARIATIONAL, DROPOUT, ENSEMBLE, POST_HOC, ONLINE)
SHOWN = (VARIATIONAL, DROPOUT, ONLINE)
INSIDE, OUTSIDE = "σ summed over pixels: test images", "σ summed over pixels: others"


@experiment(
    "lae-figure10",
    "Mean and spread of reconstructions, of test images and of others",
    "Laplacian Autoencoders [miani2022], Figure 10",
    small=Settings(),
    paper=Settings(validation_size=5_000, fit=LONG, pairs=ALL, samples=100),
)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """The spread of images, without observation noise but where that is what is learned."""
    table = Table()
    data: dict[str, Any] = {}
    todo = [(pair, seed) for pair in settings.pairs for seed in seeds]
    for (inside, outside, size), seed in track(todo, "pairs and seeds", len(todo), progress):
        models, pair = Models(replace(settings, data=inside, train_size=size), seed), named(inside, outside)
        sets = models.test[: settings.scored], models.outside[outside][: settings.scored]
        first = torch.cat([images[: settings.images] for images in sets])
        shown: dict[str, Any] = {}
        for method in METHODS:
            r = models.representation(method)
            images = [drawn(r, x, settings.samples) for x in sets]
            sums = [float(deviation(image, method).flatten(1).sum(1).mean()) for image in images]
            table.add(f"{pair}: {method}", dict(zip((INSIDE, OUTSIDE), sums, strict=True)))
            if method in SHOWN and seed == seeds[0]:
                image = drawn(r, first, settings.samples)
                shown[method] = [thousandths(image.mean), thousandths(deviation(image, method))]
        if shown:
            names = [pair.split(" → ")[0]] * settings.images + [outside] * settings.images
            data[pair] = {"images": thousandths(first), "names": names, "found": shown}
    return Findings(table.numbers(), claims(table), data)


def drawn(r: Representation, x: Tensor, samples: int) -> Reconstruction:
    """Reconstruct images with sampled networks, the same for all methods."""
    return r.reconstruct(x, samples, generator=torch.Generator().manual_seed(0))


def deviation(image: Reconstruction, method: str) -> Tensor:
    """σ of each pixel: without observation noise, but where that is what is learned."""
    return (image.noise_variance if method == LEARNED else image.mean_variance).sqrt()


def thousandths(images: Tensor) -> list[Any]:
    """Return images as whole thousandths, for a record."""
    return (images * 1000).round().int().tolist()


def claims(table: Table) -> Iterator[Claim]:
    """Yield the verdicts on the spread of test images and of others."""
    ratios = {}
    for row, _ in table:
        pairs = zip(table[row, OUTSIDE], table[row, INSIDE], strict=True)
        ratios[tuple(row.split(": "))] = estimate(outside / inside for outside, inside in pairs)
    found = listed({f"{pair}, {method}": ratio for (pair, method), ratio in ratios.items()}, "", "; ")
    text = f"σ of the output of other images over that of test images: {found}. Two standard errors asked."
    unsure = [
        Claim.judged(
            f"{pair}: {method}, is more unsure of other images than of test images",
            (ratio.mean or 0.0) - 2 * (ratio.standard_error or 0.0) > 1,
            f"σ of the output of others over that of test images {ratio}; two standard errors asked.",
        )
        for (pair, method), ratio in ratios.items()
        if method in (POST_HOC, ONLINE)
    ]
    dropout = [ratio for (_, method), ratio in ratios.items() if method == DROPOUT]
    below = all((ratio.mean or 0.0) + 2 * (ratio.standard_error or 0.0) < 1 for ratio in dropout)
    yield from unsure
    yield Claim.judged("The MC-dropout autoencoder is more unsure of test images than of others", below, text)


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
