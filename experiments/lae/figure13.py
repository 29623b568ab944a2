"""Figure 13 of [miani2022]: where networks that are drawn differ about a face, and whether they are wrong there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from experiments import Claim, Findings, Number, Record, experiment
from experiments.lae import table4 as lae_table4
from experiments.lae.figure10 import METHODS, deviation
from experiments.lae.models import ONLINE
from experiments.lae.table4 import FaceModels
from osculate.autoencoders import Reconstruction, Representation
from osculate.progress import track


@dataclass(frozen=True)
class Settings(lae_table4.Settings):
    """What is drawn of faces.

    Args:
        samples: networks.
        scored: faces in the numbers.
        shown: faces in the picture.
        pictures: folder for the picture itself. It shows people, and is for those who hold the data; empty for none.
    """

    samples: int = 20
    scored: int = 200
    shown: int = 6
    pictures: str = field(default="", metadata={"recorded": False})


PRESETS = {"small": Settings(), "paper": Settings(**vars(lae_table4.PRESETS["paper"]) | {"samples": 100})}
ERROR, SPREAD = "squared error of a pixel", "σ of a pixel"
AGREEMENT = "rank correlation of σ and error, over the pixels of a face"


@experiment(
    "lae-figure13",
    "Where drawn networks differ about a face, and whether they are wrong there",
    "Laplacian Autoencoders [miani2022], Figure 13",
    **PRESETS,
)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Errors, deviations, and how far the second tell the first."""
    found: dict[str, list[Mapping[str, float]]] = {}
    for seed in track(seeds, "seeds", len(seeds), progress):
        models = FaceModels(settings, seed)
        methods = {method: models.representation(method) for method in METHODS}
        for method, r in methods.items():
            found.setdefault(method, []).append(_scores(r, method, models.test[: settings.scored], settings.samples))
        if settings.pictures and seed == seeds[0]:
            _picture(methods, models.test[: settings.shown], settings)
    numbers = tuple(
        Number(method, column, tuple(row[column] for row in rows))
        for method, rows in found.items()
        for column in (ERROR, SPREAD, AGREEMENT)
    )
    means = {method: mean(row[AGREEMENT] for row in rows) for method, rows in found.items()}
    listed = ", ".join(f"{number.row} {number}" for number in numbers if number.column == AGREEMENT)
    claim = Claim.judged(
        "σ of the online Laplacian autoencoder tells best which pixels of a face are wrong",
        max(means, key=lambda method: means[method]) == ONLINE,
        f"{AGREEMENT}: {listed}. That of learned variances is noise, which is made for this.",
    )
    return Findings(numbers, (claim,), {})


def _drawn(r: Representation, x: Tensor, samples: int) -> Reconstruction:
    return r.reconstruct(x, samples, generator=torch.Generator().manual_seed(0))


def _scores(r: Representation, method: str, x: Tensor, samples: int) -> Mapping[str, float]:
    squares, spreads, agreements = [], [], []
    for part in x.split(50):
        image = _drawn(r, part, samples)
        error, spread = (image.mean - part).square().flatten(1), deviation(image, method).flatten(1)
        squares.append(error)
        spreads.append(spread)
        agreements.append(_rank_correlation(error, spread))
    return {
        ERROR: float(torch.cat(squares).mean()),
        SPREAD: float(torch.cat(spreads).mean()),
        AGREEMENT: float(torch.cat(agreements).mean()),
    }


def _rank_correlation(a: Float[Tensor, "N D"], b: Float[Tensor, "N D"]) -> Float[Tensor, " N"]:
    """Spearman's, row by row."""
    ranks = torch.stack([values.argsort(1).argsort(1).double() for values in (a, b)])
    centred = ranks - ranks.mean(2, keepdim=True)
    return centred.prod(0).sum(1) / centred.square().sum(2).prod(0).sqrt()


def _picture(methods: Mapping[str, Representation], x: Tensor, settings: Settings) -> None:
    """The figure of the document, with faces."""
    from osculate import plots

    found = {}
    for method, r in methods.items():
        image = _drawn(r, x, settings.samples)
        found[method] = image.mean.clamp(0, 1).numpy(), deviation(image, method).numpy()
    figure = plots.reconstructions(
        x.numpy(), found, heading="Faces, their reconstructions, and how far networks differ"
    )
    plots.save(figure, Path(settings.pictures) / "lae-figure13-faces.png")


@measure.figure
def draw(record: Record) -> Any:
    """The agreement of σ and error by method; no face is shown."""
    from experiments.figures import dots

    numbers = [n for n in record.findings.numbers if n.column == AGREEMENT and n.mean is not None]
    values = {number.row: (number.mean or 0.0, number.standard_error or 0.0) for number in numbers}
    return dots({"faces": values}, AGREEMENT, "Are drawn networks unsure where they are wrong?", least=0.2)
