"""Figures 9 and 10 of [miani2022]: out-of-distribution images, by scores that detect them and by reconstructions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import hypot
from statistics import mean
from typing import Any

import numpy as np
import torch
from torch import Tensor

import osculate as osc
from experiments import TITLES, Claim, Findings, Number, Record, Runner, Table, experiment, paired
from experiments.lae import models as lae_models
from experiments.lae.models import (
    BASELINES,
    DROPOUT,
    HETEROSCEDASTIC,
    LAPLACIAN,
    LONG,
    METHODS,
    ONLINE,
    RUNNING,
    VARIANCES,
    Convolutions,
    Models,
)
from osculate.autoencoders import Reconstruction, Representation


@dataclass(frozen=True)
class Pairs(lae_models.Training):
    """Pairs of data sets.

    Args:
        pairs: Data set, out-of-distribution data set, and number of training images.
        samples: Number of sampled networks.
    """

    pairs: tuple[tuple[str, str, int], ...] = (("mnist", "KMNIST", 20_000), ("fashion_mnist", "MNIST", 10_000))
    samples: int = 50

    def jobs(self, seeds: Sequence[int]) -> list[tuple[str, str, int, int]]:
        """Return each pair, its number of training images, and each seed."""
        return [(*pair, seed) for pair, seed in product(self.pairs, seeds)]

    def models(self, inside: str, size: int, seed: int) -> Models:
        """Return the methods on one data set."""
        return Models(replace(self, data=inside, train_size=size), seed)


@dataclass(frozen=True)
class Settings(Pairs):
    """Options of the scores.

    Args:
        usual: Number of training images whose mean log density is the typical one.
    """

    usual: int = 2_000


@dataclass(frozen=True)
class SpreadSettings(Pairs):
    """Numbers of images.

    Args:
        images: Images of each data set in the figure.
        scored: Images of each data set in the numbers.
    """

    images: int = 3
    scored: int = 500


ALL = (("mnist", "KMNIST", 55_000), ("fashion_mnist", "MNIST", 55_000))
#: Names of the scores in tables.
SCORES = {
    "nll": "−log p",
    "typicality": "typicality",
    "waic": "WAIC",
    "disagreement": "disagreement",
    "latent_deviation": "σ of the code",
    "output_deviation": "σ of the output",
}
PIXEL = "mean pixel"
#: The score of decoders that predict the noise: its standard deviation, summed over pixels.
NOISE = "σ of the noise"
POINTS = 60
CLAIMS = (
    Claim.over_seeds(
        "MNIST → KMNIST: σ of code and output",
        "That the prior is the one of the training was decided on such images: with one precision by the evidence the "
        "areas are smaller (decision 19).",
    ),
    *(
        Claim.over_seeds(f"{pair}: best scores", "The best scores are chosen on these test images.")
        for pair in ("MNIST → KMNIST", "Fashion-MNIST → MNIST")
    ),
)
#: False and true positive rates.
Curve = list[list[float]]

#: By pair, method and score.
Areas = dict[str, dict[str, dict[str, list[float]]]]
#: Shares of each seed, by pair, method and score.
Shares = dict[str, dict[str, dict[str, list[paired.Places]]]]
#: A cell: areas under both curves, the curve, and the shares of the data on the other side of each.
Detected = tuple[float, float, Curve, paired.Places]


@experiment(
    "lae-figure9",
    "Which autoencoders notice images of another kind",
    "Laplacian Autoencoders [miani2022], Figure 9",
    convolutional=Settings(
        validation_size=5_000, network=Convolutions(latent=16, width=32, depth=3), fit=LONG, pairs=ALL
    ),
    paper=Settings(validation_size=5_000, test_size=5_000, fit=LONG, pairs=ALL, samples=100, usual=55_000),
)
def figure9(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Areas under the curves for each pair, method and score."""
    areas: Areas = {}
    tables = {"AUROC": Table(), "AUPRC": Table()}
    curves: dict[str, dict[str, dict[str, Curve]]] = {}
    shares: Shares = {}

    def detected(inside: str, outside: str, size: int, seed: int) -> dict[tuple[str, str], Detected]:
        models, found = settings.models(inside, size, seed), {}
        for method in METHODS:
            record = scored(models, method, outside, settings)
            for score, values in record.inside.items():
                if score in SCORES:
                    found[method, SCORES[score]] = separated(values, record.outside[outside][score])
                elif score == "mean_pixel":  # others of the input alone: lae-detection
                    found[PIXEL, PIXEL] = separated(values, record.outside[outside][score])
            if method in HETEROSCEDASTIC:
                r = models.representation(method)
                sets = models.test, models.outside[outside]
                found[method, NOISE] = separated(*(noise(r, x, settings.samples) for x in sets))
        return found

    jobs = settings.jobs(seeds)
    for job, rows in zip(jobs, runner.each("pairs and seeds", jobs, detected), strict=True):
        pair = named(*job[:2])
        for (row, column), (area, precision, curve, places) in rows.items():
            areas.setdefault(pair, {}).setdefault(row, {}).setdefault(column, []).append(area)
            shares.setdefault(pair, {}).setdefault(row, {}).setdefault(column, []).append(places)
            for kind, value in (("AUROC", area), ("AUPRC", precision)):
                tables[kind].append({(f"{pair}: {row}", f"{kind} by {column}"): value})
            curves.setdefault(pair, {}).setdefault(row, {}).setdefault(column, curve)
    numbers = [number for table in tables.values() for number in table.numbers()]
    data = {"areas": areas, "curves": curves, paired.ERRORS: errors_of_areas(areas, shares)}
    return Findings(tuple(numbers), CLAIMS, data)


def separated(inside: Tensor, outside: Tensor) -> Detected:
    """Measure how well a score tells data from outside (M,) from those inside (N,)."""
    grid = np.linspace(0, 1, POINTS)
    rates = grid, np.interp(grid, *osc.metrics.roc_curve(inside, outside))
    thinned = [[round(float(rate), 4) for rate in values] for values in rates]
    areas = osc.metrics.auroc(inside, outside), osc.metrics.auprc(inside, outside)
    return *areas, thinned, paired.places(inside, outside)


def noise(r: Representation, x: Tensor, samples: int) -> Tensor:
    """Return the standard deviation of the noise that a decoder predicts, summed over the pixels of each image."""
    images = (drawn(r, part, samples) for part in x.split(500))
    return torch.cat([image.noise_variance.sqrt().flatten(1).sum(1) for image in images])


def beside(row: str, column: str, other: str, another: str) -> str:
    """Return the name of the comparison of two cells that share neither row nor column."""
    return f"{row}, {column} beside {other}, {another}"


def errors_of_areas(areas: Areas, shares: Shares) -> dict[str, float]:
    """Return the errors over test images of what the claims compare with other methods, by its name."""
    found, spread = {}, SCORES["output_deviation"]
    for pair, rows in areas.items():
        best = {method: best_of_each_seed(columns, shares[pair][method]) for method, columns in rows.items()}
        for method, other in product((ONLINE, RUNNING), (*BASELINES, PIXEL)):
            own, (ours, row) = shares[pair][method][spread], (f"{pair}: {name}" for name in (method, other))
            found[paired.beside_best(ours, f"AUROC by {spread}", row)] = paired.area_error(own, best[other])
            found[paired.beside(ours, row, "best AUROC")] = paired.area_error(best[method], best[other])
            if theirs := shares[pair][other].get(spread):
                found[paired.beside(ours, row, f"AUROC by {spread}")] = paired.area_error(own, theirs)
            if learnt := shares[pair][other].get(NOISE):
                name = beside(ours, f"AUROC by {spread}", row, f"AUROC by {NOISE}")
                found[name] = paired.area_error(own, learnt)
    return {name: float(f"{error:.3g}") for name, error in found.items()}


def best_of_each_seed(
    columns: Mapping[str, Sequence[float]], shares: Mapping[str, Sequence[paired.Places]]
) -> list[paired.Places]:
    """Return the shares of the score with the largest area, chosen for each seed."""
    seeds = range(len(next(iter(columns.values()))))
    return [shares[max(columns, key=lambda score: columns[score][seed])][seed] for seed in seeds]


def named(inside: str, outside: str) -> str:
    """Return the name of a pair."""
    return f"{TITLES.get(inside, inside)} → {outside}"


def scored(models: Models, method: str, outside: str, settings: Settings) -> osc.tasks.OODRecord:
    """Return all scores of a method."""
    return osc.tasks.ood(
        models.representation(method),
        models.test,
        {outside: models.outside[outside]},
        train=models.train[: settings.usual],
        samples=settings.samples,
        generator=torch.Generator().manual_seed(0),
    )


def _best(rows: Mapping[str, Sequence[float]]) -> tuple[str, float]:
    """Return the score with the largest area, and its area."""
    name = max(rows, key=lambda score: mean(rows[score]))
    return name, mean(rows[name])


@figure9.figure
def draw_areas(record: Record) -> Any:
    """ROC curves of the best score of each method."""
    from osculate.plots import roc_curves

    areas, curves = record.findings.data["areas"], record.findings.data["curves"]
    rates: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
    shown: dict[str, dict[str, tuple[float, float]]] = {}
    words: list[list[str]] = []
    for pair, rows in areas.items():
        best = {method: _best(columns) for method, columns in rows.items()}
        words.append(["" if score == method else f" ({score})" for method, (score, _) in best.items()])
        for method, (score, value) in best.items():
            false, true = curves[pair][method][score]
            rates.setdefault(pair, {})[method] = np.asarray(false), np.asarray(true)
            error = Number(method, score, tuple(rows[method][score])).standard_error
            shown.setdefault(pair, {})[method] = value, float("nan") if error is None else error
    figure = roc_curves(rates, shown, "Out-of-distribution images, by the best score of each method")
    for ax, scores in zip(figure.axes, words, strict=True):  # a method has one colour, whatever its score
        legend = ax.get_legend()
        assert legend is not None
        for text, score in zip(legend.get_texts(), scores, strict=True):
            text.set_text(text.get_text() + score)
    return figure


#: Methods with a spread (that of learned variances is noise), and those in the figure.
SPREAD = (*BASELINES[1:], *LAPLACIAN)
SHOWN = (VARIANCES, DROPOUT, ONLINE)
INSIDE, OUTSIDE = "σ summed over pixels: test images", "σ summed over pixels: others"
#: σ of each image, by its column.
Sums = dict[str, Tensor]


@experiment(
    "lae-figure10",
    "Mean and spread of reconstructions, of test images and of others",
    "Laplacian Autoencoders [miani2022], Figure 10",
    paper=SpreadSettings(validation_size=5_000, fit=LONG, pairs=ALL, samples=100),
)
def figure10(settings: SpreadSettings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Measure the spread of images, without observation noise except where the noise is what is learned."""
    table = Table()
    data: dict[str, Any] = {}
    every: dict[str, list[Sums]] = {}

    def spread(inside: str, outside: str, size: int, seed: int) -> tuple[dict[str, Sums], dict[str, Any]]:
        models, rows = settings.models(inside, size, seed), dict[str, Sums]()
        sets = models.test[: settings.scored], models.outside[outside][: settings.scored]
        first = torch.cat([images[: settings.images] for images in sets])
        shown: dict[str, Any] = {}
        for method in SPREAD:
            r = models.representation(method)
            images = [drawn(r, x, settings.samples) for x in sets]
            sums = (deviation(image, method).flatten(1).sum(1) for image in images)
            rows[method] = dict(zip((INSIDE, OUTSIDE), sums, strict=True))
            if method in SHOWN:
                image = drawn(r, first, settings.samples)
                shown[method] = [thousandths(image.mean), thousandths(deviation(image, method))]
        names = [named(inside, outside).split(" → ")[0]] * settings.images + [outside] * settings.images
        return rows, {"images": thousandths(first), "names": names, "found": shown}

    jobs = settings.jobs(seeds)
    for job, (rows, picture) in zip(jobs, runner.each("pairs and seeds", jobs, spread), strict=True):
        pair = named(*job[:2])
        for method, sums in rows.items():
            table.add(f"{pair}: {method}", {column: float(each.mean()) for column, each in sums.items()})
            every.setdefault(f"{pair}: {method}", []).append(sums)
        data.setdefault(pair, picture)
    data[paired.ERRORS] = {
        paired.columns_of(row, OUTSIDE, INSIDE): float(f"{error_over_images(runs):.3g}") for row, runs in every.items()
    }
    return Findings(table.numbers(), (), data)


def error_over_images(runs: Sequence[Sums]) -> float:
    """Return the error of the logarithm of the ratio of mean σ on two sets of different images."""
    parts = ([run[column] for run in runs] for column in (OUTSIDE, INSIDE))
    return hypot(*(paired.ratio_error(each, [torch.ones_like(sums) for sums in each]) for each in parts))


def drawn(r: Representation, x: Tensor, samples: int) -> Reconstruction:
    """Reconstruct images with sampled networks, the same for all methods."""
    return r.reconstruct(x, samples, generator=torch.Generator().manual_seed(0))


def deviation(image: Reconstruction, method: str) -> Tensor:
    """Return σ of each pixel, without observation noise except where the noise is what is learned."""
    return (image.noise_variance if method in HETEROSCEDASTIC else image.mean_variance).sqrt()


def thousandths(images: Tensor) -> list[Any]:
    """Return images as whole thousandths, for a record."""
    return (images * 1000).round().int().tolist()


@figure10.figure
def draw_spread(record: Record) -> Any:
    """Input, mean and standard deviation of the first pair."""
    from osculate.plots import reconstructions

    (pair, shown), *_ = record.findings.data.items()
    found = {
        method: (np.asarray(both[0]) / 1000, np.asarray(both[1]) / 1000) for method, both in shown["found"].items()
    }
    top = max(spread.max() for method, (_, spread) in found.items() if method not in HETEROSCEDASTIC)
    found = {  # noise is many times as large as what drawn networks differ by
        f"{method} (noise, cut at {top:.1g})" if method in HETEROSCEDASTIC else method: (centre, spread.clip(max=top))
        for method, (centre, spread) in found.items()
    }
    return reconstructions(
        np.asarray(shown["images"]) / 1000, found, shown["names"], f"Trained on {pair.split(' ')[0]}: mean and spread"
    )
