"""Figure 9 of [miani2022]: which autoencoders notice images of another kind, and by which score."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

import numpy as np
import torch

import osculate as osc
from experiments import Claim, Findings, Record, Table, estimate, experiment, listed, track
from experiments.lae import models as lae_models
from experiments.lae.models import LONG, METHODS, ONLINE, POST_HOC, Models


@dataclass(frozen=True)
class Settings(lae_models.Training):
    """Pairs of data sets, and options of the scores.

    Args:
        pairs: Data set, out-of-distribution data set, and number of training images.
        samples: Number of sampled networks.
        usual: Number of training images whose mean log density is the typical one.
    """

    pairs: tuple[tuple[str, str, int], ...] = (("mnist", "KMNIST", 20_000), ("fashion_mnist", "MNIST", 10_000))
    samples: int = 50
    usual: int = 2_000


ALL = (("mnist", "KMNIST", 55_000), ("fashion_mnist", "MNIST", 55_000))
#: Scores with their words in tables.
SCORES = {
    "nll": "−log p",
    "typicality": "typicality",
    "waic": "WAIC",
    "disagreement": "disagreement",
    "latent_deviation": "σ of the code",
    "output_deviation": "σ of the output",
}
PIXEL = "mean pixel"
#: What is asked of the default on MNIST against KMNIST.
WANTED = 0.98
POINTS = 60

#: By pair, method and score.
Areas = dict[str, dict[str, dict[str, list[float]]]]


@experiment(
    "lae-figure9",
    "Which autoencoders notice images of another kind",
    "Laplacian Autoencoders [miani2022], Figure 9",
    small=Settings(),
    paper=Settings(validation_size=5_000, test_size=5_000, fit=LONG, pairs=ALL, samples=100, usual=55_000),
)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Areas under the curves for each pair, method and score."""
    areas: Areas = {}
    tables = {"AUROC": Table(), "AUPRC": Table()}
    curves: dict[str, dict[str, dict[str, list[list[float]]]]] = {}
    todo = [(pair, seed) for pair in settings.pairs for seed in seeds]
    for (inside, outside, size), seed in track(todo, "pairs and seeds", len(todo), progress):
        pair = named(inside, outside)
        models = Models(replace(settings, data=inside, train_size=size), seed)
        for method in METHODS:
            record = scored(models, method, outside, settings)
            far = record.outside[outside]
            for score, area in record.auroc[outside].items():
                row, column = (method, SCORES[score]) if score in SCORES else (PIXEL, PIXEL)
                if row == PIXEL and method != METHODS[0]:
                    continue
                areas.setdefault(pair, {}).setdefault(row, {}).setdefault(column, []).append(area)
                for kind, value in (("AUROC", area), ("AUPRC", record.auprc[outside][score])):
                    tables[kind].append({(f"{pair}: {row}", f"{kind} by {column}"): value})
                if seed == seeds[0]:
                    grid = np.linspace(0, 1, POINTS)
                    rates = grid, np.interp(grid, *osc.metrics.roc_curve(record.inside[score], far[score]))
                    thinned = [[round(float(rate), 4) for rate in values] for values in rates]
                    curves.setdefault(pair, {}).setdefault(row, {})[column] = thinned
    numbers = [number for table in tables.values() for number in table.numbers()]
    return Findings(tuple(numbers), claims(areas), {"areas": areas, "curves": curves})


def named(inside: str, outside: str) -> str:
    """The words for a pair."""
    return f"{ {'mnist': 'MNIST', 'fashion_mnist': 'Fashion-MNIST'}.get(inside, inside) } → {outside}"


def scored(models: Models, method: str, outside: str, settings: Settings) -> osc.tasks.OODRecord:
    """All scores that a method has."""
    return osc.tasks.ood(
        models.representation(method),
        models.test,
        {outside: models.outside[outside]},
        train=models.train[: settings.usual],
        samples=settings.samples,
        generator=torch.Generator().manual_seed(0),
    )


def _best(rows: Mapping[str, Sequence[float]]) -> tuple[str, float]:
    """The score with the largest area."""
    name = max(rows, key=lambda score: mean(rows[score]))
    return name, mean(rows[name])


def claims(areas: Areas) -> Iterator[Claim]:
    """Yield the verdicts on each pair."""
    for pair, rows in areas.items():
        found = {
            (method, score): mean(rows[method][score])
            for method in (ONLINE, POST_HOC)
            for score in (SCORES["latent_deviation"], SCORES["output_deviation"])
        }
        if pair == named("mnist", "KMNIST"):
            yield Claim.judged(
                f"{pair}: σ of code and output of a Laplacian autoencoder, trained online, reach {WANTED:g}",
                all(value >= WANTED for (method, _), value in found.items() if method == ONLINE),
                "; ".join(f"{method}, {score} {value:.3f}" for (method, score), value in found.items())
                + ". That the prior is the one of the training was decided on such images: with one precision by "
                "the evidence they are smaller (decision 19).",
            )
        best = {method: _best(columns) for method, columns in rows.items()}
        words = "; ".join(f"{method} {estimate(rows[method][score])} ({score})" for method, (score, _) in best.items())
        others = [method for method in best if method not in (ONLINE, POST_HOC)]
        yield Claim.judged(
            f"{pair}: the best score of the online Laplacian autoencoder beats those of all baselines",
            all(best[ONLINE][1] > best[method][1] for method in others),
            f"largest areas, each with its score, the best on these test images: {words}. Standard errors are "
            "over seeds.",
        )
        deviation = SCORES["output_deviation"]
        with_spread = {method: estimate(found[deviation]) for method, found in rows.items() if deviation in found}
        yield Claim.judged(
            f"{pair}: of all σ of the output, those of Laplacian autoencoders detect best",
            max(with_spread, key=lambda m: with_spread[m].mean or 0.0) in (ONLINE, POST_HOC),
            f"{listed(with_spread, '')}.",
        )


@measure.figure
def draw(record: Record) -> Any:
    """ROC curves of the best score of each method."""
    from osculate.plots import roc_curves

    areas, curves = record.findings.data["areas"], record.findings.data["curves"]
    rates: dict[str, dict[str, tuple[np.ndarray, np.ndarray]]] = {}
    shown: dict[str, dict[str, tuple[float, float]]] = {}
    for pair, rows in areas.items():
        for method, columns in rows.items():
            score, value = _best(columns)
            label = method if score == method else f"{method}: {score}"
            false, true = curves[pair][method][score]
            rates.setdefault(pair, {})[label] = np.asarray(false), np.asarray(true)
            error = estimate(columns[score]).standard_error
            shown.setdefault(pair, {})[label] = value, float("nan") if error is None else error
    return roc_curves(rates, shown, "Images of another kind, by the best score of each method")
