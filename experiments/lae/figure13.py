"""Figure 13 of [miani2022]: where networks that are drawn differ about a face, and whether they are wrong there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from experiments import Claim, Findings, Record, Table, experiment, listed, track
from experiments.lae import table4 as lae_table4
from experiments.lae.figure10 import METHODS, deviation, drawn
from experiments.lae.models import ONLINE
from experiments.lae.table4 import FaceModels
from osculate.autoencoders import Representation


@dataclass(frozen=True)
class Settings(lae_table4.Settings):
    """Reconstruction of faces.

    Args:
        samples: Number of sampled networks.
        scored: Number of faces in the numbers.
        shown: Number of faces in the picture.
        pictures: Folder of the picture; empty to draw none. It shows people, and is for holders of the data.
    """

    samples: int = 20
    scored: int = 200
    shown: int = 6
    pictures: str = field(default="", metadata={"recorded": False})


ERROR, SPREAD = "squared error of a pixel", "σ of a pixel"
AGREEMENT = "rank correlation of σ and error, over the pixels of a face"


@experiment(
    "lae-figure13",
    "Where drawn networks differ about a face, and whether they are wrong there",
    "Laplacian Autoencoders [miani2022], Figure 13",
    small=Settings(),
    paper=Settings(**vars(lae_table4.measure.presets["paper"]) | {"samples": 100}),
)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Errors, deviations, and how far the second tell the first."""
    table = Table()
    for seed in track(seeds, "seeds", len(seeds), progress):
        models = FaceModels(settings, seed)
        methods = {method: models.representation(method) for method in METHODS}
        for method, r in methods.items():
            table.add(method, _scores(r, method, models.test[: settings.scored], settings))
        if settings.pictures and seed == seeds[0]:
            _picture(methods, models.test[: settings.shown], settings)
    numbers = table.numbers()
    agreements = {number.row: number for number in numbers if number.column == AGREEMENT}
    claim = Claim.judged(
        "σ of the online Laplacian autoencoder tells best which pixels of a face are wrong",
        max(METHODS, key=lambda method: table.mean(method, AGREEMENT)) == ONLINE,
        f"{AGREEMENT}: {listed(agreements, '')}. That of learned variances is noise, which is made for this.",
    )
    return Findings(numbers, (claim,), {})


def _scores(r: Representation, method: str, x: Tensor, settings: Settings) -> dict[str, float]:
    values: dict[str, list[Tensor]] = {ERROR: [], SPREAD: [], AGREEMENT: []}
    for part in x.split(50):
        image = drawn(r, part, settings.samples)
        error, spread = (image.mean - part).square().flatten(1), deviation(image, method).flatten(1)
        for column, value in zip(values, (error, spread, _rank_correlation(error, spread)), strict=True):
            values[column].append(value)
    return {column: float(torch.cat(each).mean()) for column, each in values.items()}


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
        image = drawn(r, x, settings.samples)
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
