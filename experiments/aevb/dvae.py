"""Section 7.3 of the report on AEVB: denoising variational autoencoders, with noise that stays and noise that fades."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from experiments import Claim, Findings, Number, Record, Resumable, Runner, clearly, experiment, seeded, together
from experiments.aevb.cells import DOCUMENT, Coders, Fit, Task, draw_curves, fitted, likelihood_of
from experiments.aevb.lines import HELD_OUT
from osculate.autoencoders import VAE, BoundSettings, Corruption, bound
from osculate.posteriors import Point
from osculate.progress import track

#: No noise, noise that stays, and noise that fades.
NONE, CONSTANT = "none", "constant"
FADING = ("linear", "cosine", "step")
#: What is measured of test images, which are clean.
WEIGHTED, ERROR, DENOISED = "test log p(x), IWAE, nats", "squared error", "squared error from noisy images"


@dataclass(frozen=True)
class Settings(Resumable):
    """What is trained.

    Args:
        task: images.
        coders: encoder and decoder.
        fit: how they are trained.
        noises: kinds of noise, and their levels at the start.
        schedules: how noise goes on.
        weighted: test images and draws of the importance weighted bound.
    """

    task: Task = Task()
    coders: Coders = Coders()
    fit: Fit = Fit(images=1_000_000)
    noises: tuple[tuple[str, float], ...] = (("mask", 0.25),)
    schedules: tuple[str, ...] = (CONSTANT, *FADING)
    weighted: tuple[int, int] = (500, 500)


PRESETS = {
    "small": Settings(),
    "paper": Settings(
        Task(train_size=50_000, validation_size=10_000),
        fit=Fit(images=10_000_000),
        noises=(("mask", 0.25), ("gaussian", 0.25)),
        weighted=(1_000, 5_000),
    ),
}


@experiment("aevb-dvae", "Denoising variational autoencoders", f"{DOCUMENT}, section 7.3", **PRESETS)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Train without noise, and with each kind and schedule; all are measured on clean images."""
    runner = Runner(settings.cells, progress)
    every: list[Corruption | None] = [
        None,
        *(Corruption(noise, level, how) for noise, level in settings.noises for how in settings.schedules),
    ]
    todo = [(corruption, seed) for corruption in every for seed in seeds]
    found: dict[str, list[dict[str, Any]]] = {}
    for corruption, seed in track(todo, "trainings", len(todo), progress):
        how = BoundSettings(corruption=corruption)
        net, values = fitted(settings.task, settings.coders, settings.fit, seed, runner, how)
        found.setdefault(_name(corruption), []).append({**values, **_measured(net, settings, seed)})
    columns = {HELD_OUT: lambda run: run["validation"][-1]} | {
        column: lambda run, column=column: run[column] for column in (WEIGHTED, ERROR, DENOISED)
    }
    numbers = tuple(
        Number(f"{settings.task.title}: {name}", column, tuple(read(run) for run in runs))
        for name, runs in found.items()
        for column, read in columns.items()
    )
    shown = {name: {key: runs[0][key] for key in ("seen", "train", "validation")} for name, runs in found.items()}
    return Findings(numbers, claims(found, settings), {"curves": {settings.task.title: shown}}, runner.seconds)


def _name(corruption: Corruption | None) -> str:
    return NONE if corruption is None else f"{corruption.noise} {corruption.level:g}, {corruption.schedule}"


@torch.no_grad()
def _measured(net: VAE, settings: Settings, seed: int) -> dict[str, float]:
    """Of clean test images; and of images without noise that are given back from noisy ones."""
    images, samples = settings.weighted
    x, likelihood = settings.task.load(seed).test[0], likelihood_of(settings.task.data)
    with seeded(seed):
        weighted = bound(Point(net, likelihood), x[:images], "iwae", samples=samples).mean
        noisy = Corruption(*settings.noises[0])(x)
    errors = [
        float((likelihood.distribution(net(each)).mean - x).square().flatten(1).sum(1).mean()) for each in (x, noisy)
    ]
    return {WEIGHTED: weighted, ERROR: errors[0], DENOISED: errors[1]}


def claims(found: Mapping[str, Sequence[Mapping[str, Any]]], settings: Settings) -> tuple[Claim, ...]:
    """Verdicts on what the document expects of noise that fades."""
    noise, level = settings.noises[0]
    stays = found.get(f"{noise} {level:g}, {CONSTANT}")
    fades = {how: runs for how in FADING if (runs := found.get(f"{noise} {level:g}, {how}"))}

    held, error = (lambda run: run["validation"][-1]), (lambda run: run[ERROR])
    tested = fades and stays is not None and settings.task.data == "mnist"
    rows = {NONE: found[NONE], **({CONSTANT: stays} if stays else {}), **fades}
    seen = f"of clean images, after {settings.fit.images:.3g} images"

    def told(read: Any) -> str:
        return ", ".join(f"{name} {sum(map(read, runs)) / len(runs):.1f}" for name, runs in rows.items())

    def all_above(other: Sequence[Mapping[str, Any]] | None, read: Any, sign: int = 1) -> bool | None:
        if not tested or other is None:
            return None
        pairs = ([sign * (read(a) - read(b)) for a, b in zip(runs, other, strict=True)] for runs in fades.values())
        return together(clearly(each) for each in pairs)

    return (
        Claim.judged(
            "Noise that fades leads to a better bound than noise that stays, by every schedule",
            all_above(stays, held),
            f"validation bound {seen}: {told(held)} nats.",
        ),
        Claim.judged(
            "It leads to a better bound than no noise, by every schedule",
            all_above(found[NONE], held),
            f"validation bound {seen}: {told(held)} nats.",
        ),
        Claim.judged(
            "It improves reconstruction, by every schedule",
            all_above(found[NONE], error, -1),
            f"squared error {seen}: {told(error)}.",
        ),
    )


@measure.figure
def draw(record: Record) -> Any:
    """The bound of clean images as training goes on."""
    return draw_curves(record.findings.data["curves"], "Denoising VAEs: the bound of clean images held out")
