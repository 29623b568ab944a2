"""Figure 2 of the report on AEVB: what decoders of two-dimensional codes have learned."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from experiments import Claim, Findings, Number, Record, Resumable, experiment
from experiments.aevb.cells import (
    DOCUMENT,
    FREY,
    FREY_CODERS,
    PUBLISHED,
    TITLES,
    Coders,
    Fit,
    Task,
    likelihood_of,
)
from experiments.aevb.lines import Line, train_lines
from osculate.autoencoders import VAE, manifold
from osculate.autoencoders.code_priors import quantiles
from osculate.posteriors import Point

#: How far a head is turned is told by the difference of the halves of its image.
TURN = "R² of the turn of the head by the codes"
#: The least of it with which the manifold is ordered by the turn.
ORDERED = 0.5
#: Validation bounds of the document's result files.
PRINTED = {"frey_face": "657.9"}
#: Photographs in grey, where digits are ink on paper.
GREY = {TITLES[FREY.data]: (1.0, 0.0)}


@dataclass(frozen=True)
class Settings(Resumable):
    """What is trained, and what is shown of it.

    Args:
        tasks: images.
        coders: of each, but for the size of the code, which is 2.
        fits: how each is trained.
        places: images along each side of a manifold.
    """

    tasks: tuple[Task, ...] = (Task(), FREY)
    coders: tuple[Coders, ...] = (Coders(), FREY_CODERS)
    fits: tuple[Fit, ...] = (Fit(), Fit(images=1_000_000))
    places: int = 12


PRESETS = {
    "small": Settings(),
    "paper": Settings(
        (Task(train_size=50_000, validation_size=10_000), FREY),
        fits=(PUBLISHED, replace(PUBLISHED, images=3_000_000)),
        places=20,
    ),
}


@experiment("aevb-figure2", "Manifolds of two-dimensional codes", f"{DOCUMENT}, Figure 2", **PRESETS)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Train one of each, and take its pictures."""
    numbers: list[Number] = []
    data: dict[str, Any] = {}
    turns: list[float] = []
    seconds = 0.0
    for task, coders, fit in zip(settings.tasks, settings.coders, settings.fits, strict=True):

        def look(line: Line, net: VAE, seed: int, task: Task = task) -> dict[str, Any]:
            found: dict[str, Any] = {"turn": _turn(net, task, seed)} if task.data == FREY.data else {}
            images = manifold(Point(net, likelihood_of(task.data)), settings.places)
            return {**found, "images": (100 * images).round().clamp(0, 100).int().tolist()}

        line = Line(task.title, "2 codes", replace(coders, latent=2), fit, PRINTED.get(task.data, ""))
        found = train_lines(task, [line], seeds, settings.cells, progress, look)
        numbers += found.numbers()
        seconds += found.seconds
        data[task.data] = found.runs[line][0]["images"]
        turns += [run["turn"] for run in found.runs[line] if "turn" in run]
        if task.data == FREY.data:
            numbers.append(Number(line.row, TURN, tuple(turns)))
    return Findings(tuple(numbers), claims(turns), data, seconds)


def _turn(net: VAE, task: Task, seed: int) -> float:
    """How much of the difference of left and right half of held-out frames a line in the codes explains."""
    x = task.load(seed).test[0]
    half = x.shape[-1] // 2
    difference = (x[..., :half].mean((1, 2, 3)) - x[..., half:].mean((1, 2, 3))).double()
    with torch.no_grad():
        z = net(centre=x).double()
    columns = torch.cat([z, torch.ones(len(z), 1, dtype=z.dtype)], 1)
    rest = difference - columns @ torch.linalg.lstsq(columns, difference.unsqueeze(1)).solution.squeeze(1)
    return float(1 - rest.square().sum() / (difference - difference.mean()).square().sum())


def claims(turns: Sequence[float]) -> tuple[Claim, ...]:
    """The verdict on how faces are ordered."""
    return (
        Claim.judged(
            "One half of the manifold of faces shows the left profile, the other the right",
            min(turns) > ORDERED if turns else None,
            "R² of the difference of the halves of frames held out by a line in their two codes: "
            + (", ".join(f"{turn:.2f}" for turn in turns) or "not measured")
            + ", one a seed. The codes have no order of their own: another seed turns or mirrors the plane.",
        ),
    )


@measure.figure
def draw(record: Record) -> Any:
    """One panel a data set."""
    from osculate import plots

    ends = quantiles(record.setup.settings["places"])[[0, -1]].tolist()
    shown = {TITLES.get(name, name): np.array(images) / 100 for name, images in record.findings.data.items()}
    return plots.manifold(
        shown, "What two codes generate", ends=tuple(ends), limits={name: GREY.get(name, (0.0, 1.0)) for name in shown}
    )
