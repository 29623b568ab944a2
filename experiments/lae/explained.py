"""Scores of out-of-distribution images: those of autoencoders beside those of the images alone."""

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
from experiments import Claim, Findings, Record, Runner, Table, experiment, paired
from experiments.lae import models as lae_models
from experiments.lae.detection import SCORES, Areas, Shares, beside, best_of_each_seed, named
from experiments.lae.models import DROPOUT, FACTORED, LONG, ONLINE, POST_HOC, VAES, Fit, Models


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
MODELS = (*VAES, DROPOUT, POST_HOC, FACTORED, ONLINE)
INPUT, BLANKED = "image alone", ", blanked"
#: The row of a model on average over all pairs, as the images are, begins with this instead of a pair.
MEAN = "mean over pairs"
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
NEAREST = ALONE["nearest_input"]
#: Smallest change of an area by blanking that the figure shows.
NOTICED = 0.01
#: The comparison of the best scores of the images alone and of all autoencoders.
ON_AVERAGE = "images alone beside autoencoders, best scores, mean over pairs"


@experiment(
    "lae-detection",
    "Which images of another kind are noticed, by which score, and what the images alone tell",
    "beyond Laplacian Autoencoders [miani2022], section 5.2",
    paper=Settings(train_size=55_000, validation_size=5_000, test_size=5_000, fit=LONG, samples=100),
)
def explained(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Measure the area under the ROC curve for each pair, model and score, as the images are and blanked."""

    def detected(inside: str, seed: int) -> list[tuple[str, str, str, float, paired.Places]]:
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
                    places = paired.places(record.inside[score], record.outside[outside][score])
                    found.append((pair, row, {**COLUMNS, **ALONE}[score], area, places))
        return found

    table, areas, shares = Table(), Areas(), Shares()
    jobs = list(product(settings.insides, seeds))
    for rows in runner.each("data sets and seeds", jobs, detected):
        for pair, row, column, area, places in rows:
            table.append({(f"{pair}: {row}", f"AUROC by {column}"): area})
            areas.setdefault(pair, {}).setdefault(row, {}).setdefault(column, []).append(area)
            shares.setdefault(pair, {}).setdefault(row, {}).setdefault(column, []).append(places)
    plain = [rows for pair, rows in areas.items() if not pair.endswith(BLANKED)]
    for row, column in ((row, column) for row, columns in plain[0].items() for column in columns):
        for values in zip(*(rows[row][column] for rows in plain), strict=True):
            table.append({(f"{MEAN}: {row}", f"AUROC by {column}"): mean(values)})
    data = {"areas": areas, paired.ERRORS: errors_of_areas(areas, shares)}
    return Findings(table.numbers(), (claim(areas),), data)


def nearest_beside(row: str, column: str) -> str:
    """Return the name of the comparison of the distance to a training image with another score, mean over pairs."""
    return beside(f"{MEAN}: {INPUT}", f"AUROC by {NEAREST}", f"{MEAN}: {row}", column)


def errors_of_areas(areas: Areas, shares: Shares) -> dict[str, float]:
    """Return the errors over test images of what the claims compare, by its name."""
    sigma, ink = COLUMNS["output_deviation"], ALONE["unlit_pixels"]
    spread, over, lit = (f"AUROC by {column}" for column in (sigma, RELATIVE, ink))
    compared: dict[str, tuple[Sequence[paired.Places], Sequence[paired.Places]]] = {}
    for pair, rows in shares.items():
        alone, own, diagonal, factors = (f"{pair}: {row}" for row in (INPUT, ONLINE, POST_HOC, FACTORED))
        for vae in VAES:
            best = best_of_each_seed(areas[pair][vae], rows[vae])
            compared[paired.beside_best(own, spread, f"{pair}: {vae}")] = rows[ONLINE][sigma], best
        compared |= {
            beside(alone, lit, own, spread): (rows[INPUT][ink], rows[ONLINE][sigma]),
            paired.beside(factors, diagonal, spread): (rows[FACTORED][sigma], rows[POST_HOC][sigma]),
            paired.columns_of(factors, over, spread): (rows[FACTORED][RELATIVE], rows[FACTORED][sigma]),
        }
    plain = {pair: rows for pair, rows in areas.items() if not pair.endswith(BLANKED)}
    cells = next(iter(plain.values()))
    for row, column in ((row, column) for row, columns in cells.items() if row != INPUT for column in columns):
        least = shares[min(plain, key=lambda pair: mean(plain[pair][row][column]))][row][column]
        nothing = [(torch.zeros_like(inside), torch.zeros_like(outside)) for inside, outside in least]
        compared[f"{row}, AUROC by {column}"] = least, nothing
    found = {name: paired.area_error(*both) for name, both in compared.items()}
    for row, column in ((row, column) for row, columns in cells.items() if row != INPUT for column in columns):
        both = ({pair: shares[pair][kind][name] for pair in plain} for kind, name in ((INPUT, NEAREST), (row, column)))
        found[nearest_beside(row, f"AUROC by {column}")] = _error_on_average(*both)
    found[ON_AVERAGE] = _error_on_average(
        *({pair: _best_of_rows(areas[pair], shares[pair], rows) for pair in plain} for rows in ((INPUT,), MODELS))
    )
    return {name: float(f"{error:.3g}") for name, error in found.items()}


def _best_of_rows(
    areas: Mapping[str, Mapping[str, Sequence[float]]],
    shares: Mapping[str, Mapping[str, Sequence[paired.Places]]],
    rows: Sequence[str],
) -> list[paired.Places]:
    """Return the shares of the score with the largest area in any of the rows, chosen for each seed."""
    names = {f"{row}, {column}": (row, column) for row in rows for column in areas[row]}
    return best_of_each_seed(
        {name: areas[row][column] for name, (row, column) in names.items()},
        {name: shares[row][column] for name, (row, column) in names.items()},
    )


def _error_on_average(
    own: Mapping[str, Sequence[paired.Places]], others: Mapping[str, Sequence[paired.Places]]
) -> float:
    """Return the error of a difference of areas on average over pairs, several of which share a data set."""
    sides: dict[tuple[int, str], Tensor] = {}
    for pair in own:
        for side, name in enumerate(pair.split(" → ")):
            apart = torch.stack([a[side] - b[side] for a, b in zip(own[pair], others[pair], strict=True)])
            sides[side, name] = sides.get((side, name), 0) + apart / len(own)
    return hypot(*(paired.bootstrap_error(each.numpy()) for each in sides.values()))


def _wanted(model: str) -> list[str]:
    """Return the scores of a model; those of the images alone come with the first."""
    relative = ["relative_deviation"] if model in (POST_HOC, FACTORED, ONLINE) else []
    return [*SCORES, *relative, *(ALONE if model == MODELS[0] else ())]


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
    """Areas by score and pair: as the images are, and blanked where an autoencoder notices that."""
    from osculate.plots import heat_map

    areas: Mapping[str, Any] = record.findings.data["areas"]
    plain = [pair for pair in areas if not pair.endswith(BLANKED)]
    rows = [(row, column) for row in (INPUT, *MODELS) for column in areas[plain[0]].get(row, ())]

    def column_of(pair: str) -> Any:
        return np.array([mean(areas[pair][row][column]) for row, column in rows])

    coded = [row != INPUT for row, _ in rows]
    changed = {pair + BLANKED: np.abs(column_of(pair + BLANKED) - column_of(pair))[coded].max() for pair in plain}
    pairs = plain + [pair for pair, change in changed.items() if change > NOTICED]
    values = {"": np.stack([column_of(pair) for pair in pairs], axis=1)}
    names = [f"{row}: {column}" for row, column in rows]
    return heat_map(values, ("score", names), ("inside → outside", pairs), record.title, "AUROC", ".2f")
