"""Table 4 and Figure 13 of [miani2022]: attributes of faces from few labels, and where sampled networks are wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

import osculate as osc
from experiments import Claim, Findings, Record, Runner, Table, experiment, paired
from experiments.lae import models as lae_models
from experiments.lae.detection import SPREAD, deviation, drawn
from experiments.lae.models import (
    AE,
    DROPOUT,
    METHODS,
    ONLINE,
    RUNNING,
    VARIANCES,
    VARIATIONAL,
    Convolutions,
    Fit,
    Models,
)
from osculate.autoencoders import Representation
from osculate.data.photographs import Faces, celeba

#: Rates that the document prints, of AE, VAE, MC dropout and online. Its rates for all forty attributes are below those
#: of always naming the commoner class.
RATES = {
    "Arched_Eyebrows": (".50", ".52", ".55", ".60"),
    "Attractive": (".52", ".50", ".49", ".53"),
    "Wearing_Lipstick": (".52", ".49", ".50", ".54"),
    "Heavy_Makeup": (".45", ".52", ".49", ".56"),
}


@dataclass(frozen=True)
class Labels:
    """Attributes and numbers of labels.

    Args:
        attributes: Attributes, each classified separately.
        number: Number of labelled faces with an attribute, and of faces without.
        repeats: Draws of labelled faces per seed.
        samples: Number of sampled networks.
    """

    attributes: tuple[str, ...] = (*RATES, "Male", "Smiling")
    number: int = 10
    repeats: int = 20
    samples: int = 10


@dataclass(frozen=True)
class Settings(lae_models.Training):
    """Part of CelebA at 64 × 64 pixels.

    Args:
        labels: Attributes and numbers of labels.
    """

    data: str = "celeba64"
    train_size: int = 2_000
    validation_size: int = 300
    test_size: int = 500
    network: Convolutions = Convolutions()
    fit: Fit = Fit(dropout=(0.05,))
    labels: Labels = Labels()


#: The document's authors trained the VAE of faces with one noise scale.
ON_FACES = tuple(method for method in METHODS if method != VARIANCES)
OVERALL = "mean of these"
ACCURACY = "balanced accuracy: "
PRINTED = {
    (method, ACCURACY + attribute): value
    for attribute, values in RATES.items()
    for method, value in zip((AE, VARIATIONAL, DROPOUT, RUNNING), values, strict=True)
}


class FaceModels(Models):
    """The same methods with convolutional coders, on faces."""

    training: Settings

    def _load(self) -> osc.data.Dataset:
        training, faces = self.training, celeba("train")
        order = torch.randperm(len(faces.images), generator=torch.Generator().manual_seed(self.seed))
        held, rest = order[: training.validation_size], order[training.validation_size :][: training.train_size]
        empty = torch.zeros(len(order), dtype=torch.long)
        learned, watched = ((faces.images[rows], empty[rows]) for rows in (rest, held))
        test = celeba("test").images
        return osc.data.Dataset(training.data, learned, watched, (test, empty[: len(test)]), classes=("face",))


@experiment(
    "lae-table4",
    "Attributes of faces from few labels",
    "Laplacian Autoencoders [miani2022], Table 4",
    paper=Settings(
        train_size=3_500,
        validation_size=500,
        network=Convolutions(latent=128, width=64),
        fit=Fit(epochs=100),
        labels=Labels(samples=100),
    ),
)
def table4(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Measure the accuracy of each attribute on as many test faces with it as without."""
    table = Table()
    pool, test = celeba("train"), celeba("test")
    wanted = settings.labels
    shares: dict[str, list[Tensor]] = {method: [] for method in ON_FACES}

    def correct(seed: int) -> dict[tuple[str, str], Tensor]:
        """Return for each test face its share of correct answers, scaled so that their mean is the accuracy."""
        models, found = FaceModels(settings, seed), {}
        methods = {method: models.representation(method) for method in ON_FACES}
        for attribute in wanted.attributes:
            rows = _balanced(test, attribute)[: settings.test_size]
            record = osc.tasks.semi_supervised(
                methods,
                pool.images[: settings.train_size],
                _has(pool, attribute)[: settings.train_size],
                (test.images[rows], _has(test, attribute)[rows]),
                labels=(wanted.number,),
                repeats=wanted.repeats,
                samples=wanted.samples,
                seed=seed,
            )
            for method, each in record.correct.items():
                share = torch.zeros(len(test.images), dtype=torch.double)
                share[rows] = each[0].double().mean(0) * len(share) / len(rows)
                found[method, ACCURACY + attribute] = share
        return found

    for found in runner.each("seeds", zip(seeds), correct):
        table.append({cell: float(share.mean()) for cell, share in found.items()})
        for method in ON_FACES:
            each = torch.stack([share for (name, _), share in found.items() if name == method])
            shares[method].append(each.mean(0))
            table.add(method, {ACCURACY + OVERALL: float(each.mean())})
    errors = {
        paired.beside(row, other, ACCURACY + OVERALL): float(
            f"{paired.difference_error(shares[row], shares[other]):.3g}"
        )
        for row, other in product((ONLINE, RUNNING), (AE, VARIATIONAL, DROPOUT))
    }
    numbers = table.numbers([*(ACCURACY + attribute for attribute in wanted.attributes), ACCURACY + OVERALL], PRINTED)
    claim = Claim.over_seeds("Attributes of faces", "One half is chance.")
    return Findings(numbers, (claim,), {"attributes": [*wanted.attributes, OVERALL], paired.ERRORS: errors})


def _has(faces: Faces, attribute: str) -> Tensor:
    return faces.attributes[:, faces.names.index(attribute)].long()


def _balanced(faces: Faces, attribute: str) -> Tensor:
    """Return the rows of as many faces with an attribute as without, alternating, in one random order."""
    y, generator = _has(faces, attribute), torch.Generator().manual_seed(0)
    kinds = [(y == k).nonzero().squeeze(1) for k in (0, 1)]
    size = min(len(rows) for rows in kinds)
    return torch.stack([each[torch.randperm(len(each), generator=generator)[:size]] for each in kinds], 1).flatten()


@table4.figure
def draw_accuracies(record: Record) -> Any:
    """Draw a panel for each attribute; no face is shown."""
    from experiments.figures import dots

    panels: dict[str, dict[str, tuple[float, float]]] = {}
    for n in record.findings.numbers:
        name = n.column.removeprefix(ACCURACY).replace("_", " ")
        panels.setdefault(name, {})[n.row] = n.pair
    heading = "Attributes of faces from ten labelled examples with and ten without (bars: one standard error)"
    return dots(panels, "balanced accuracy (0.5 is chance)", heading, least=0.04)


@dataclass(frozen=True)
class FaceSettings(Settings):
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


ERROR, WIDTH = "squared error of a pixel", "σ of a pixel"
AGREEMENT = "rank correlation of σ and error, over the pixels of an image"
WRONG = Claim.over_seeds("Wrong pixels", "σ of learned variances is noise, which is made for this.")


@experiment(
    "lae-figure13",
    "Where drawn networks differ about a face, and whether they are wrong there",
    "Laplacian Autoencoders [miani2022], Figure 13",
    paper=FaceSettings(**vars(table4.presets["paper"]) | {"samples": 100}),
)
def figure13(settings: FaceSettings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Measure errors and standard deviations, and how well the second predict the first."""
    table = Table()

    def agreements_of(seed: int) -> dict[str, dict[str, float]]:
        models = FaceModels(settings, seed)
        methods = {method: models.representation(method) for method in SPREAD if method in ON_FACES}
        if settings.pictures and seed == seeds[0]:
            _picture(methods, models.test[: settings.shown], settings)
        scored = models.test[: settings.scored]
        return {method: agreement(r, method, scored, settings.samples) for method, r in methods.items()}

    for rows in runner.each("seeds", zip(seeds), agreements_of):
        table.extend(rows)
    return Findings(table.numbers(), (WRONG,), {})


def agreement(r: Representation, method: str, x: Tensor, samples: int) -> dict[str, float]:
    """Return the mean squared error and σ of a pixel, and their rank correlation over the pixels of an image."""
    values: dict[str, list[Tensor]] = {ERROR: [], WIDTH: [], AGREEMENT: []}
    for part in x.split(50):
        image = drawn(r, part, samples)
        error, spread = (image.mean - part).square().flatten(1), deviation(image, method).flatten(1)
        for column, value in zip(values, (error, spread, _rank_correlation(error, spread)), strict=True):
            values[column].append(value)
    return {column: float(torch.cat(each).mean()) for column, each in values.items()}


def _rank_correlation(a: Float[Tensor, "N D"], b: Float[Tensor, "N D"]) -> Float[Tensor, " N"]:
    """Return Spearman's rank correlation of each row."""
    ranks = torch.stack([values.argsort(1).argsort(1).double() for values in (a, b)])
    centred = ranks - ranks.mean(2, keepdim=True)
    return centred.prod(0).sum(1) / centred.square().sum(2).prod(0).sqrt()


def _picture(methods: Mapping[str, Representation], x: Tensor, settings: FaceSettings) -> None:
    """Draw the figure of the document, with faces."""
    from osculate import plots

    found = {}
    for method, r in methods.items():
        image = drawn(r, x, settings.samples)
        found[method] = image.mean.clamp(0, 1).numpy(), deviation(image, method).numpy()
    figure = plots.reconstructions(
        x.numpy(), found, heading="Faces, their reconstructions, and how far networks differ"
    )
    plots.save(figure, Path(settings.pictures) / "lae-figure13-faces.png")


@figure13.figure
def draw_agreement(record: Record) -> Any:
    """Draw the agreement of σ and error by method; no face is shown."""
    from experiments.figures import dots

    values = {n.row: n.pair for n in record.findings.numbers if n.column == AGREEMENT and n.mean is not None}
    return dots({"faces": values}, AGREEMENT, "Are sampled networks uncertain where they are wrong?", least=0.2)
