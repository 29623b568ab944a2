"""Scores of out-of-distribution images: those of autoencoders beside those of the images alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import mean
from typing import Any

import numpy as np
import torch

import osculate as osc
from experiments import Claim, Findings, Record, Runner, Table, experiment
from experiments.lae import models as lae_models
from experiments.lae.detection import SCORES, named
from experiments.lae.models import DROPOUT, FACTORED, LONG, ONLINE, POST_HOC, VARIATIONAL, Fit, Models


@dataclass(frozen=True)
class Settings(lae_models.Training):
    """Data sets and scores.

    Args:
        insides: Data sets on which autoencoders are trained; each is paired with all others that it has.
        samples: Number of sampled networks.
    """

    insides: tuple[str, ...] = ("mnist", "fashion_mnist", "kmnist")
    train_size: int = 6_000
    validation_size: int = 1_000
    test_size: int = 500
    fit: Fit = Fit(dropout=(0.1,))
    samples: int = 20


#: Autoencoders that are compared.
MODELS = (VARIATIONAL, DROPOUT, POST_HOC, FACTORED, ONLINE)
INPUT, BLANKED = "image alone", ", blanked"
RELATIVE = "σ over isotropic"
#: Scores of autoencoders, and of images alone, as they stand in tables.
COLUMNS = {**SCORES, "relative_deviation": RELATIVE}
ALONE = {
    "mean_pixel": "mean pixel",
    "unlit_pixels": "ink on pixels never lit",
    "diagonal_leverage": "diagonal leverage",
    "leverage": "leverage",
    "nearest_input": "distance to a training image",
    "principal_components": "−log p of principal components",
}
#: AUROC by pair, row and column, one a seed.
Areas = dict[str, dict[str, dict[str, list[float]]]]


@experiment(
    "lae-detection",
    "Which images of another kind are noticed, by which score, and what the images alone tell",
    "beyond Laplacian Autoencoders [miani2022], section 5.2",
    paper=Settings(train_size=55_000, validation_size=5_000, test_size=5_000, fit=LONG, samples=100),
)
def explained(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Measure the area under the ROC curve for each pair, model and score, as the images are and blanked."""

    def detected(inside: str, seed: int) -> list[tuple[str, str, str, float]]:
        models, found = Models(replace(settings, data=inside), seed), []
        for model, blank in product(MODELS, (False, True)):
            record = osc.tasks.ood(
                models.representation(model),
                models.test,
                models.outside,
                train=models.train,  # which pixels are never lit must be the same for all
                blank=blank,
                scores=_wanted(model),
                samples=settings.samples,
                generator=torch.Generator().manual_seed(0),
            )
            for outside, areas in record.auroc.items():
                pair = named(inside, outside) + (BLANKED if blank else "")
                for score, area in areas.items():
                    row = INPUT if score in ALONE else model
                    found.append((pair, row, {**COLUMNS, **ALONE}[score], area))
        return found

    table, areas = Table(), Areas()
    jobs = list(product(settings.insides, seeds))
    for rows in runner.each("data sets and seeds", jobs, detected):
        for pair, row, column, area in rows:
            table.append({(f"{pair}: {row}", f"AUROC by {column}"): area})
            areas.setdefault(pair, {}).setdefault(row, {}).setdefault(column, []).append(area)
    return Findings(table.numbers(), (claim(areas),), {"areas": areas})


def _first(model: str) -> bool:
    """Return True for the model beside which the images alone are scored."""
    return model == MODELS[0]


def _wanted(model: str) -> list[str]:
    """Return the scores of a model: those of the images alone once, and those of a spread where there is one."""
    wanted = list(SCORES)
    if model == VARIATIONAL:  # one network
        wanted = ["nll", "typicality", "latent_deviation", "output_deviation"]
    if model in (POST_HOC, FACTORED, ONLINE):
        wanted.append("relative_deviation")
    return wanted + (list(ALONE) if _first(model) else [])


def claim(areas: Areas) -> Claim:
    """Return the best scores of each pair, in words."""
    words = []
    for pair, rows in areas.items():
        if pair.endswith(BLANKED):
            continue
        found = {row: (column := _best(columns), mean(columns[column])) for row, columns in rows.items()}
        ahead = max((row for row in found if row != INPUT), key=lambda row: found[row][1])
        best = (f"{row} {area:.3f} ({column})" for row, (column, area) in found.items() if row in (INPUT, ahead))
        words.append(f"{pair}: {', '.join(best)}")
    return Claim.over_seeds(
        "Images alone beside autoencoders",
        f"Largest areas, each with the score that is best on these test images: {'; '.join(words)}.",
    )


def _best(columns: Mapping[str, Sequence[float]]) -> str:
    """Return the score with the largest area."""
    return max(columns, key=lambda score: mean(columns[score]))


@explained.figure
def draw(record: Record) -> Any:
    """Areas by score and pair: as the images are, and blanked."""
    from osculate.plots import heat_map

    areas: Mapping[str, Any] = record.findings.data["areas"]
    pairs = [pair for pair in areas if not pair.endswith(BLANKED)]
    rows = [(row, column) for row in (INPUT, *MODELS) for column in areas[pairs[0]].get(row, ())]
    panels = {"as they are": "", "pixels never lit in training are blanked": BLANKED}
    values = {
        title: np.array([[mean(areas[pair + suffix][row][column]) for pair in pairs] for row, column in rows])
        for title, suffix in panels.items()
    }
    names = [f"{row}: {column}" for row, column in rows]
    return heat_map(values, ("score", names), ("inside → outside", pairs), record.title, "AUROC", ".2f")
