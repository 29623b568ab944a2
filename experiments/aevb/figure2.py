"""Figure 2 of the report on AEVB: the manifolds of decoders of two-dimensional codes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from experiments import TITLES, Claim, Findings, Record, Resumable, Runner, experiment
from experiments.aevb import cells
from experiments.aevb.cells import DIGITS, DOCUMENT, FREY, FREY_CODERS, PUBLISHED, Coders, Fit, Line, Task
from osculate.autoencoders import VAE, manifold
from osculate.autoencoders.codes import quantiles
from osculate.posteriors import Point

#: The turn of a head is measured by the difference between the halves of its image.
TURN = "R² of the turn of the head by the codes"
#: Validation bounds in the document's result files.
PRINTED = {"frey_face": "657.9"}


@dataclass(frozen=True)
class Settings(Resumable):
    """Tasks, networks and manifolds.

    Args:
        tasks: Images.
        coders: Encoder and decoder for each task, with codes of size 2.
        fits: Training for each task.
        places: Images along each side of a manifold.
    """

    tasks: tuple[Task, ...] = (Task(), FREY)
    coders: tuple[Coders, ...] = (Coders(), FREY_CODERS)
    fits: tuple[Fit, ...] = (Fit(), Fit(images=1_000_000))
    places: int = 12


@experiment(
    "aevb-figure2",
    "Manifolds of two-dimensional codes",
    f"{DOCUMENT}, Figure 2",
    paper=Settings((DIGITS, FREY), fits=(PUBLISHED, replace(PUBLISHED, images=3_000_000)), places=20),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Train on each data set, and decode a grid of codes."""
    lines = {
        task.data: Line(task, replace(coders, latent=2), fit, task.title, "2 codes", PRINTED.get(task.data, ""))
        for task, coders, fit in zip(settings.tasks, settings.coders, settings.fits, strict=True)
    }

    def score(data: str, net: VAE, seed: int) -> dict[str, Any]:
        if data == FREY.data:  # a record holds no pictures of people
            return {TURN: turn(net, lines[data].task.load(seed).test[0])}
        images = manifold(Point(net, lines[data].task.likelihood), settings.places)
        return {"images": (100 * images).round().clamp(0, 100).int().tolist()}

    found = cells.train_lines(lines, seeds, runner, score)
    table = found.table()
    if FREY.data in lines:
        table[lines[FREY.data].row, TURN] = [run[TURN] for run in found.runs[FREY.data]]
    images = {data: runs[0]["images"] for data, runs in found.runs.items() if data != FREY.data}
    ordered = Claim.over_seeds(
        "Profiles of faces on the manifold",
        "R² of the difference between the halves of held-out frames, by a line in their two codes. The codes have no "
        "order of their own: another seed turns or mirrors the plane.",
    )
    return Findings(table.numbers(printed=found.printed), (ordered,), images)


def turn(net: VAE, x: torch.Tensor) -> float:
    """Return the R² of a linear regression of the difference between left and right half on the codes."""
    half = x.shape[-1] // 2
    difference = (x[..., :half].mean((1, 2, 3)) - x[..., half:].mean((1, 2, 3))).double()
    with torch.no_grad():
        z = net(centre=x).double()
    columns = torch.cat([z, torch.ones(len(z), 1, dtype=z.dtype)], 1)
    rest = difference - columns @ torch.linalg.lstsq(columns, difference.unsqueeze(1)).solution.squeeze(1)
    return float(1 - rest.square().sum() / (difference - difference.mean()).square().sum())


@measure.figure
def draw(record: Record) -> Any:
    """Draw the digits."""
    from osculate import plots

    ends = quantiles(record.setup.settings["places"])[[0, -1]].tolist()
    shown = {TITLES.get(name, name): np.array(images) / 100 for name, images in record.findings.data.items()}
    return plots.manifold(shown, "What two codes generate", ends=tuple(ends))
