"""Figures 1a, 11 and 13 of [miani2022] on digits: learned variances, generated images, and where networks differ."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

import osculate as osc
from experiments import Claim, Findings, Record, Runner, Table, estimate, experiment, listed
from experiments.evaluation import class_probabilities
from experiments.lae import maps
from experiments.lae.detection import SPREAD, deviation, drawn, thousandths
from experiments.lae.faces import AGREEMENT, agreement
from experiments.lae.models import AE, LEARNED, LONG, METHODS, ONLINE, RUNNING, VARIANCES, VARIATIONAL, Models, Training
from experiments.lae.table3 import classifier_of
from osculate.autoencoders import LatentMap, Representation

#: The document's data and length of training.
PUBLISHED: Mapping[str, Any] = {"train_size": 55_000, "validation_size": 5_000, "fit": LONG}
#: Change of grey value from one pixel to the next that makes an edge.
EDGE = 0.3
AWAY, EDGES = maps.AWAY, "σ at edges of an image over σ elsewhere"
SURER = "share of the map with a smaller σ than the mean at codes"


@experiment(
    "lae-figure1a",
    "The variance that a VAE learns, at its codes and away from them",
    "Laplacian Autoencoders [miani2022], Figure 1a",
    paper=maps.Settings(**PUBLISHED),
)
def figure1a(settings: maps.Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Map the plane of codes with the learned σ of the decoder, and compare edges with flat parts of images."""
    table, data = Table(), dict[str, Any]()

    def learned(seed: int) -> tuple[dict[str, float], dict[str, Any]]:
        models = Models(settings, seed)
        r = models.representation(VARIANCES)
        one = noise_map(r, LatentMap.of(r, models.test, 1))
        found = {AWAY: one.contrast(), SURER: surer(r, one, models.test), EDGES: edges(r, models.test)}
        labels = models.dataset.test[1][: settings.test_size][: maps.CODES].tolist()
        return found, {"maps": {VARIANCES: maps.recorded(one)}, "labels": labels}

    for found, shown in runner.each("seeds", zip(seeds), learned):
        table.add(VARIANCES, found)
        data = data or shown
    away, share, at_edges = (estimate(table[VARIANCES, column]) for column in (AWAY, SURER, EDGES))
    claims = (
        Claim.judged(
            "The variance that a VAE learns is smaller away from the codes of the data than at them",
            table.mean(VARIANCES, AWAY) < 1,
            f"{AWAY}: {away}.",
        ),
        Claim.judged(
            "Over most of the map it is smaller than at the codes",
            table.mean(VARIANCES, SURER) > 0.5,
            f"{SURER}: {share}. The mean is that of a corner, where σ grows without bound.",
        ),
        Claim.judged(
            "It is larger at edges than elsewhere in an image",
            table.mean(VARIANCES, EDGES) > 1,
            f"{EDGES}: {at_edges}; an edge is a change by {EDGE:g} from one pixel to the next.",
        ),
    )
    return Findings(table.numbers(), claims, data)


def noise_map(r: Representation, one: LatentMap) -> LatentMap:
    """Return a map with the standard deviation of the noise in place of that by the weights."""
    first, second = (torch.as_tensor(axis, dtype=torch.float32) for axis in one.axes)
    grid = torch.cartesian_prod(second, first).flip(1)
    noise = r.decode(grid, 1).noise_variance.sqrt().flatten(1).mean(1)
    return replace(one, deviation=noise.reshape(len(second), len(first)).double().numpy())


def surer(r: Representation, one: LatentMap, x: Tensor) -> float:
    """Return the share of a map whose deviation is below the mean of images of the data."""
    return float((one.deviation < float(drawn(r, x, 1).noise_variance.sqrt().mean())).mean())


def edges(r: Representation, x: Tensor) -> float:
    """Return the mean learned σ of pixels at edges over that of all others."""
    noise = drawn(r, x, 1).noise_variance.sqrt()
    at = gradients(x) > EDGE
    return float(noise[at].mean() / noise[~at].mean())


def gradients(x: Tensor) -> Tensor:
    """Return the larger absolute difference of each pixel to the one on its left and the one above it."""
    padded = torch.nn.functional.pad(x, (1, 0, 1, 0), mode="replicate")
    across, down = (x - padded[..., 1:, :-1]).abs(), (x - padded[..., :-1, 1:]).abs()
    return torch.maximum(across, down)


figure1a.figure(partial(maps.draw, heading="Codes of test digits, and the σ that a VAE's decoder learns"))


@dataclass(frozen=True)
class GeneratedSettings(Training):
    """Images from noise, and the classifier that judges them.

    Args:
        generated: Number of images of each method.
        rounds: Passes through each drawn network.
        shown: Images of each method in the figure.
        classifier_epochs: Passes of the classifier over the training images.
    """

    generated: int = 500
    rounds: int = 5
    shown: int = 10
    classifier_epochs: int = 3


FROM_NOISE, FROM_CODES = "from noise", "from codes"
SHARP, SURE, CLASSES = "sharpness over that of digits", "share that a classifier is sure of", "effective classes"
#: Probability from which on the classifier is sure.
CONFIDENT = 0.9


@experiment(
    "lae-figure11-digits",
    "Digits generated by drawn networks",
    "Laplacian Autoencoders [miani2022], Figure 11",
    paper=GeneratedSettings(**PUBLISHED, generated=5_000),
)
def figure11(settings: GeneratedSettings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Fill in wholly hidden images, as the document does, and decode drawn codes; score sharpness and variety."""
    table, data = Table(), dict[str, Any]()

    def generated(seed: int) -> tuple[dict[str, dict[str, float]], dict[str, Any]]:
        models = Models(settings, seed)
        classifier, rows, shown = classifier_of(models, settings.classifier_epochs), {}, {}
        for method in METHODS:
            r = models.representation(method)
            both = {FROM_NOISE: from_noise(r, models.test[:1], settings, seed)}
            both[FROM_CODES] = r.generate(settings.generated, torch.Generator().manual_seed(seed))
            for way, images in both.items():
                rows[f"{method}, {way}"] = judged(images, models.test, classifier)
            shown[method] = thousandths(both[FROM_NOISE][: settings.shown].clamp(0, 1))
        return rows, shown

    for rows, shown in runner.each("seeds", zip(seeds), generated):
        table.extend(rows)
        data = data or shown
    return Findings(table.numbers(), claims_on_digits(table), data)


def from_noise(r: Representation, x: Tensor, settings: GeneratedSettings, seed: int) -> Tensor:
    """Return images of drawn networks that begin with noise, of which nothing is kept."""
    hidden = torch.zeros(x.shape[1:], dtype=torch.bool)
    how: dict[str, Any] = {"draws": settings.generated, "rounds": settings.rounds}
    return osc.tasks.imputation(r, x, hidden, generator=torch.Generator().manual_seed(seed), **how).images[:, 0]


def judged(images: Tensor, digits: Tensor, classifier: osc.posteriors.Point) -> dict[str, float]:
    """Score images by their gradients, and by the predictions of a classifier."""
    probabilities = class_probabilities(classifier, images)
    average = probabilities.mean(0)
    return {
        SHARP: float(sharpness(images) / sharpness(digits)),
        SURE: float((probabilities.amax(1) > CONFIDENT).double().mean()),
        CLASSES: float(torch.special.entr(average).sum().exp()),
    }


def sharpness(images: Tensor) -> Tensor:
    """Return the root mean squared gradient over that of grey values, so that faint images may be sharp."""
    centred = images - images.mean((-2, -1), keepdim=True)
    return gradients(images).square().mean().sqrt() / centred.square().mean().sqrt()


def claims_on_digits(table: Table) -> Iterator[Claim]:
    """Yield the verdicts on generated digits."""

    def words(column: str, way: str) -> str:
        return listed({method: estimate(table[f"{method}, {way}", column]) for method in METHODS}, "")

    def at(method: str, column: str) -> float:
        return table.mean(f"{method}, {FROM_NOISE}", column)

    yield Claim.judged(
        "From random noise a Laplacian autoencoder generates crisp digits: sharper than those of a VAE",
        at(RUNNING, SHARP) > at(VARIATIONAL, SHARP),
        f"{SHARP}, {FROM_NOISE}: {words(SHARP, FROM_NOISE)}; {FROM_CODES}: {words(SHARP, FROM_CODES)}.",
    )
    yield Claim.judged(
        "They are of many kinds: more classes than those of a plain autoencoder",
        at(RUNNING, CLASSES) > at(AE, CLASSES),
        f"{CLASSES}, {FROM_NOISE}: {words(CLASSES, FROM_NOISE)}; {FROM_CODES}: {words(CLASSES, FROM_CODES)}.",
    )
    yield Claim.judged(
        "A classifier is sure of half of them",
        at(RUNNING, SURE) > 0.5,
        f"{SURE}, {FROM_NOISE}: {words(SURE, FROM_NOISE)}; {FROM_CODES}: {words(SURE, FROM_CODES)}.",
    )


@figure11.figure
def draw_digits(record: Record) -> Any:
    """Draw a row of images for each method."""
    from osculate.plots import image_grid

    rows = {method: np.asarray(images) / 1000 for method, images in record.findings.data.items()}
    return image_grid(rows, "Digits that drawn networks make of noise", limits=(0.0, 1.0))


@dataclass(frozen=True)
class SpreadSettings(Training):
    """Numbers of digits.

    Args:
        samples: Number of sampled networks.
        scored: Number of digits in the numbers.
        shown: Number of digits in the figure.
    """

    samples: int = 50
    scored: int = 500
    shown: int = 6


@experiment(
    "lae-figure13-digits",
    "Where drawn networks differ about a digit, and whether they are wrong there",
    "Laplacian Autoencoders [miani2022], Figure 13, on digits",
    paper=SpreadSettings(**PUBLISHED, samples=100),
)
def figure13(settings: SpreadSettings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Measure how well standard deviations of pixels predict errors, and keep a few reconstructions."""
    table, data = Table(), dict[str, Any]()

    def compared(seed: int) -> tuple[dict[str, dict[str, float]], dict[str, Any]]:
        models, shown = Models(settings, seed), dict[str, Any]()
        rows, first = {}, models.test[: settings.shown]
        for method in SPREAD:
            r = models.representation(method)
            rows[method] = agreement(r, method, models.test[: settings.scored], settings.samples)
            image = drawn(r, first, settings.samples)
            shown[method] = [thousandths(image.mean), thousandths(deviation(image, method))]
        return rows, {"images": thousandths(first), "found": shown}

    for rows, shown in runner.each("seeds", zip(seeds), compared):
        table.extend(rows)
        data = data or shown
    found = {method: estimate(table[method, AGREEMENT]) for method in SPREAD}
    claim = Claim.judged(
        "σ of the online Laplacian autoencoder tells best which pixels of a digit are wrong",
        max(SPREAD, key=lambda method: table.mean(method, AGREEMENT)) == ONLINE,
        f"{AGREEMENT}: {listed(found, '')}. That of learned variances is noise, which is made for this.",
    )
    return Findings(table.numbers(), (claim,), data)


@figure13.figure
def draw_spread(record: Record) -> Any:
    """Draw digits, their reconstructions and the standard deviations of pixels."""
    from osculate.plots import reconstructions

    data = record.findings.data
    found = {
        method: (np.asarray(centre) / 1000, np.asarray(spread) / 1000)
        for method, (centre, spread) in data["found"].items()
        if method != LEARNED  # its noise is many times as large
    }
    return reconstructions(
        np.asarray(data["images"]) / 1000, found, heading="Digits, their reconstructions, and how far networks differ"
    )
