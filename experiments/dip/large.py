"""Section 7 of the tutorial on linearised Laplace at larger images: by conjugate gradients and draws, within memory."""

import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from experiments import Claim, Findings, Number, Record, Resumable, Runner, experiment
from experiments.dip.cells import (
    CHOSEN_DROPOUT,
    COVERED,
    DENSITY,
    DOCUMENT,
    DROPOUTS,
    PSNR,
    RANKED,
    TRAINING,
    UNIT,
    best_kernel,
    draw_maps,
    noisy,
    rounded,
    scored,
)
from osculate.data import rectangles, shepp_logan
from osculate.inverse import (
    DeepImagePrior,
    ErrorBars,
    ImageDistribution,
    LinearisedModel,
    RayTransform,
    filtered_back_projection,
    tv_reconstruction,
)
from osculate.inverse.baselines import isotropic, mc_dropout
from osculate.inverse.observed import RANK
from osculate.inverse.scores import psnr
from osculate.progress import track

PLAIN, WITH_TV, DROPOUT = "linearised DIP, evidence", "linearised DIP, evidence and TV-PredCP", CHOSEN_DROPOUT
#: Total variation gets the weight that suits the truth best.
VARIATION, BACK_PROJECTION = "total variation, best of three weights", "filtered back-projection"
#: Sides of the patches whose joint density is measured.
PATCHES = (2, 10)
#: Bytes in the unit that the system counts memory in.
MEMORY_UNIT = 1 if sys.platform == "darwin" else 1024
SECONDS, MEMORY = "seconds in all", "peak memory of the process, GB"
#: The second is shared: it has what TV-PredCP needs, also in the seconds of the model without it.
STAGES = ("deep image prior", "Jacobian and covariances, of both models", "evidence", "posterior")


@dataclass(frozen=True)
class Settings(Resumable):
    """What is reconstructed; seeds give other rectangles, noise and initial weights.

    Args:
        cases: picture and side in pixels, in ascending order.
        scan: number of angles, and standard deviation of the noise as a share of the mean absolute measurement.
        steps: of the deep image prior.
        dropout: probability and steps of the baseline with MC dropout.
        several: the largest side that it is tried for, and that is measured with every seed; larger pictures are
            measured once.
        limits: directions in data space that the evidence works with at most, and draws from the posterior.
    """

    cases: tuple[tuple[str, int], ...] = (("rectangles", 128), ("shepp_logan", 128), ("shepp_logan", 256))
    scan: tuple[int, float] = (30, 0.05)
    steps: int = 2000
    dropout: tuple[float, int] = (DROPOUTS[CHOSEN_DROPOUT], 6000)
    several: int = 128
    limits: tuple[int, int] = (RANK, 64)


PRESETS = {"small": Settings(), "paper": Settings(steps=20_000, limits=(2000, 1024))}


def picture(name: str, size: int, seed: int) -> Tensor:
    """What is measured."""
    return shepp_logan(size) if name == "shepp_logan" else rectangles(size, 5, torch.Generator().manual_seed(seed))


@experiment("dip-large", "Error bars of larger images by conjugate gradients and draws", DOCUMENT, **PRESETS)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Reconstruct each picture with error bars."""
    runner = Runner(settings.cells, progress)
    todo = [
        (name, size, seed)
        for name, size in settings.cases
        for seed in (seeds if size <= settings.several else seeds[:1])
    ]
    found: dict[str, list[dict[str, Any]]] = {}
    for name, size, seed in track(todo, "images", len(todo), progress):
        about = [*settings.scan, settings.steps, settings.dropout, size <= settings.several, settings.limits, *TRAINING]
        cell = runner.cached("large", (name, size, seed), about, lambda: _measure(settings, name, size, seed))  # noqa: B023
        found.setdefault(f"{name}, {size}²", []).append(cell)
    numbers = tuple(
        Number(f"{title}: {method}", column, tuple(each["scores"][method][column] for each in cells))
        for title, cells in found.items()
        for method, values in cells[0]["scores"].items()
        for column in values
    )
    first = next(iter(found.values()))[0]
    return Findings(
        numbers, claims(found), {"first": {"truth": first["truth"], "shown": first["shown"]}}, runner.seconds
    )


def _measure(settings: Settings, name: str, size: int, seed: int) -> dict[str, Any]:
    truth = picture(name, size, seed)
    angles, noise = settings.scan
    operator = RayTransform(tuple(truth.shape), angles)
    data, level = noisy(operator, truth, noise, seed)
    how, seconds = DeepImagePrior(steps=settings.steps), {}
    started = time.perf_counter()
    fitted = how.fit(operator, data, level, seed)
    seconds[STAGES[0]] = time.perf_counter() - started
    rank, samples = settings.limits
    bars = ErrorBars(rank=rank, samples=samples, posterior="drawn")
    model = LinearisedModel(operator, data, fitted, level, bars)
    started = time.perf_counter()
    _ = model.observed, model.hyper_prior
    seconds[STAGES[1]] = time.perf_counter() - started
    scores, shown = {}, {}
    for method, predcp in ((PLAIN, False), (WITH_TV, True)):
        started = time.perf_counter()
        tuned = model.tune("map", predcp, level)
        seconds[STAGES[2]] = time.perf_counter() - started
        started = time.perf_counter()
        posterior = model.posterior(tuned, torch.Generator().manual_seed(seed))
        seconds[STAGES[3]] = time.perf_counter() - started
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MEMORY_UNIT / 1e9
        scores[method] = {**_scored(posterior, truth), **seconds, SECONDS: sum(seconds.values()), MEMORY: peak}
        shown[method] = {"mean": rounded(posterior.mean, 3), "deviation": rounded(posterior.stddev, 3)}
    scores[UNIT] = _scored(isotropic(operator, fitted.image), truth)
    rate, steps = settings.dropout
    if size <= settings.several:
        dropped = mc_dropout(operator, data, level, DeepImagePrior(steps=steps), rate, seed=seed)[1]
        scores[DROPOUT] = _scored(dropped, truth)
        scores[DROPOUT][DENSITY] = max(scores[DROPOUT][DENSITY], best_kernel(dropped, truth))
        shown[DROPOUT] = {"mean": rounded(dropped.mean, 3), "deviation": rounded(dropped.stddev, 3)}
    scores[VARIATION] = {
        PSNR: max(psnr(tv_reconstruction(operator, data, w * level**2), truth) for w in (1.0, 3.0, 10.0))
    }
    scores[BACK_PROJECTION] = {PSNR: psnr(filtered_back_projection(operator, data), truth)}
    return {"scores": scores, "shown": shown, "truth": rounded(truth, 3)}


def _scored(posterior: ImageDistribution, truth: Tensor) -> dict[str, float]:
    patches = {
        f"log density of a pixel, patches {size}²": float(posterior.patch_log_prob(truth, size)) / truth.numel()
        for size in PATCHES
    }
    found = scored(posterior, truth)
    return {column: found[column] for column in (DENSITY, PSNR, COVERED, RANKED)} | patches


Found = Mapping[str, Sequence[Mapping[str, Any]]]


def claims(found: Found) -> tuple[Claim, ...]:
    """Time, memory, the order of the methods, and coverage."""
    both = {title: cells for title, cells in found.items() if DROPOUT in cells[0]["scores"]}
    return (
        *_costs(found),
        *(
            _denser(f"By {method}, the density of a pixel is above that of {DROPOUT}", both, method, DROPOUT)
            for method in (PLAIN, WITH_TV)
        ),
        _denser("TV-PredCP improves the density", found, WITH_TV, PLAIN),
        *(
            _in_every(
                f"Intervals of {method} that should hold 95 % of the pixels hold .9 to 1 of them",
                _values(found, method, COVERED),
                lambda share: 0.9 <= share <= 1,
                "{:.3f}",
            )
            for method in (PLAIN, WITH_TV)
        ),
    )


def _values(found: Found, method: str, column: str) -> dict[str, list[float]]:
    return {title: [each["scores"][method][column] for each in cells] for title, cells in found.items()}


def _costs(found: Found) -> tuple[Claim, Claim]:
    seconds, memory = (
        {title: max(values) for title, values in _values(found, PLAIN, column).items()} for column in (SECONDS, MEMORY)
    )
    middle, large = ([title for title in found if size in title] for size in ("128²", "256²"))
    told = "; ".join(f"{title}: {seconds[title]:.0f} s, {memory[title]:.1f} GB" for title in found) + "."
    return (
        Claim.judged(
            "An image of 128² with error bars takes less than 15 minutes and 4 GB",
            all(seconds[title] < 900 and memory[title] < 4 for title in middle) if middle else None,
            told,
        ),
        Claim.judged(
            "An image of 256² stays within 8 GB", all(memory[title] < 8 for title in large) if large else None, told
        ),
    )


def _denser(words: str, found: Found, method: str, other: str) -> Claim:
    ours, theirs = _values(found, method, DENSITY), _values(found, other, DENSITY)
    differences = {title: [a - b for a, b in zip(ours[title], theirs[title], strict=True)] for title in found}
    return _in_every(words, differences, lambda difference: difference > 0, "{:+.2f}", " nats a pixel")


def _in_every(
    words: str, values: Mapping[str, Sequence[float]], holds: Callable[[float], bool], number: str, unit: str = ""
) -> Claim:
    """Of more than one measurement."""
    every = [value for each in values.values() for value in each]
    told = "; ".join(f"{title}: " + ", ".join(map(number.format, each)) for title, each in values.items())
    return Claim.judged(
        f"{words}, in every measurement", all(map(holds, every)) if len(every) > 1 else None, f"{told}{unit}."
    )


@measure.figure
def draw(record: Record) -> Any:
    """The first picture."""
    heading = "From few X-rays: where reconstructions are wrong, and where they say so"
    return draw_maps(record.findings.data["first"], heading)
