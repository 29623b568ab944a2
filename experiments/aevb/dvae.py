"""Section 7.3 of the report on AEVB: denoising variational autoencoders, with constant and with fading noise."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from experiments import Findings, Runner, Table, experiment, seeded
from experiments.aevb import cells
from experiments.aevb.cells import DIGITS, DOCUMENT, HELD_OUT, Fit, Line
from osculate.autoencoders import VAE, BoundSettings, Corruption, bound
from osculate.posteriors import Point

#: The training without noise.
NONE = "none"
#: Columns, for clean test images.
WEIGHTED, ERROR, DENOISED = "test log p(x), IWAE, nats", "squared error", "squared error from noisy images"


@dataclass(frozen=True)
class Settings(cells.Settings):
    """Trainings that differ in the noise.

    Args:
        noises: Kinds of noise with their initial levels.
        schedules: Schedules of the noise.
        weighted: Number of test images and of draws for the importance weighted bound.
    """

    fit: Fit = Fit(images=1_000_000)
    noises: tuple[tuple[str, float], ...] = (("mask", 0.25),)
    schedules: tuple[str, ...] = ("constant", "linear", "cosine", "step")
    weighted: tuple[int, int] = (500, 500)


@experiment(
    "aevb-dvae",
    "Denoising variational autoencoders",
    f"{DOCUMENT}, section 7.3",
    paper=Settings(
        DIGITS, fit=Fit(images=10_000_000), noises=(("mask", 0.25), ("gaussian", 0.25)), weighted=(1_000, 5_000)
    ),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Train without noise, and with each kind and schedule; score on clean images."""
    task, (images, samples) = settings.task, settings.weighted
    noises = {
        f"{noise} {level:g}, {schedule}": BoundSettings(corruption=Corruption(noise, level, schedule))
        for noise, level in settings.noises
        for schedule in settings.schedules
    }
    lines = {
        name: Line(task, settings.coders, settings.fit, task.title, name, bound=how)
        for name, how in {NONE: BoundSettings(), **noises}.items()
    }

    @torch.no_grad()
    def score(name: str, net: VAE, seed: int) -> dict[str, float]:
        x = task.load(seed).test[0]
        with seeded(seed):
            weighted = bound(Point(net, task.likelihood), x[:images], "iwae", samples=samples).mean
            noisy = Corruption(*settings.noises[0])(x)
        shown = {
            column: task.likelihood.distribution(net(each)).mean for column, each in ((ERROR, x), (DENOISED, noisy))
        }
        errors = {column: float((image - x).square().flatten(1).sum(1).mean()) for column, image in shown.items()}
        return {WEIGHTED: weighted, **errors}

    found = cells.train_lines(lines, seeds, runner, score)

    def columns(run: Mapping[str, Any]) -> dict[str, float]:
        return {HELD_OUT: run["validation"][-1]} | {column: run[column] for column in (WEIGHTED, ERROR, DENOISED)}

    table = Table.of(found.runs, lambda name: f"{task.title}: {name}", columns)
    return Findings(table.numbers(), (), {"curves": found.panels})


#: The bound on clean images during training.
measure.figure(partial(cells.draw_curves, heading="Denoising VAEs: the bound on clean held-out images"))
