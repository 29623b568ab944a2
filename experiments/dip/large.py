"""Section 7 of the tutorial on linearised Laplace on larger images, by conjugate gradients and samples."""

import resource
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

import osculate as osc
from experiments import Claim, Findings, Resumable, Runner, Table, experiment, rounded, timed
from experiments.dip import cells
from experiments.dip.cells import COVERED, DENSITY, PSNR, RANKED, UNIT
from osculate import inverse
from osculate.data import rectangles, shepp_logan
from osculate.inverse.baselines import isotropic, mc_dropout
from osculate.inverse.image_posterior import RANK
from osculate.inverse.scores import psnr

PLAIN, WITH_TV, DROPOUT = "linearised DIP, evidence", "linearised DIP, evidence and TV-PredCP", cells.CHOSEN_DROPOUT
#: Total variation has the weight that is best for the truth.
VARIATION, BACK_PROJECTION = "total variation, best of three weights", "filtered back-projection"
#: Sides of the patches of the joint density.
PATCHES = (2, 10)
#: Bytes in the system's unit of memory.
MEMORY_UNIT = 1 if sys.platform == "darwin" else 1024
SECONDS, MEMORY = "seconds in all", "peak memory of the process, GB"
#: The second is shared: it includes the work for TV-PredCP, also in the seconds of the model without it.
STAGES = ("deep image prior", "Jacobian and covariances, of both models", "evidence", "posterior")


#: Scores of each seed by picture; in a cell, by method and column.
Found = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class Settings(Resumable):
    """The pictures and their reconstruction; seeds give other rectangles, noise and initial weights.

    Args:
        cases: Picture and side in pixels, in ascending order.
        scan: Number of angles, and standard deviation of the noise as a share of the mean absolute measurement.
        steps: Steps of the deep image prior.
        dropout: Probability and steps of the baseline with MC dropout.
        several: Largest side with MC dropout and with every seed; larger pictures are measured once.
        limits: Most directions in data space for the evidence, and draws from the posterior.
    """

    cases: tuple[tuple[str, int], ...] = (("rectangles", 128), ("shepp_logan", 128), ("shepp_logan", 256))
    scan: tuple[int, float] = (30, 0.05)
    steps: int = 2000
    dropout: tuple[float, int] = (cells.DROPOUTS[DROPOUT], 6000)
    several: int = 128
    limits: tuple[int, int] = (RANK, 64)


@experiment(
    "dip-large",
    "Error bars of larger images by conjugate gradients and draws",
    cells.DOCUMENT,
    paper=Settings(steps=20_000, limits=(2000, 1024)),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Reconstruct each picture with error bars."""
    small = settings.several
    jobs = [(*case, seed) for case in settings.cases for seed in (seeds if case[1] <= small else seeds[:1])]
    found: dict[str, list[dict[str, Any]]] = {}
    for name, size, seed in runner.track(jobs, "images"):
        about = [*settings.scan, settings.steps, settings.dropout, size <= small, settings.limits, *cells.TRAINING]
        cell = runner.cached("large", (name, size, seed), about, lambda: reconstructed(settings, name, size, seed))  # noqa: B023
        found.setdefault(f"{name}, {size}²", []).append(cell)
    rows = {
        (title, m): [cell["scores"][m] for cell in each] for title, each in found.items() for m in each[0]["scores"]
    }
    table = Table.of(rows, ": ".join)
    first = next(iter(found.values()))[0]
    data = {"first": {"truth": first["truth"], "shown": first["shown"]}}
    return Findings(table.numbers(), claims(found), data)


def reconstructed(settings: Settings, name: str, size: int, seed: int) -> dict[str, Any]:
    """Reconstruct one picture by every method."""
    truth = shepp_logan(size) if name == "shepp_logan" else rectangles(size, 5, torch.Generator().manual_seed(seed))
    angles, noise = settings.scan
    operator = inverse.RayTransform(tuple(truth.shape), angles)
    data, level = cells.noisy(operator, truth, noise, seed)
    scores: dict[str, dict[str, float]] = {}
    shown: dict[str, dict[str, list]] = {}
    seconds: dict[str, float] = {}

    def note(method: str, posterior: osc.posteriors.ImageDistribution, kernels: bool = False) -> None:
        scores[method] = scored(posterior, truth, kernels)
        shown[method] = cells.recorded(posterior, 3)

    prior = inverse.DeepImagePrior(steps=settings.steps)
    fitted, seconds[STAGES[0]] = timed(lambda: prior.fit(operator, data, level, seed))
    rank, samples = settings.limits
    image = inverse.LinearisedImage(operator, data, fitted, level, rank=rank)
    _, seconds[STAGES[1]] = timed(lambda: (image.q, image.penalty))
    floor = inverse.image_noise(operator, level)
    for method, predcp in ((PLAIN, False), (WITH_TV, True)):
        tuned, seconds[STAGES[2]] = timed(partial(image.tuned, "network", predcp))
        generator = torch.Generator().manual_seed(seed)
        posterior, seconds[STAGES[3]] = timed(partial(image.posterior, tuned, False, floor, samples, generator))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * MEMORY_UNIT / 1e9
        note(method, posterior)
        scores[method] |= {**seconds, SECONDS: sum(seconds.values()), MEMORY: peak}
    scores[UNIT] = scored(isotropic(operator, fitted.image), truth)
    rate, steps = settings.dropout
    if size <= settings.several:
        dropped = mc_dropout(operator, data, level, inverse.DeepImagePrior(steps=steps), rate, seed=seed)[1]
        note(DROPOUT, dropped, kernels=True)
    smooth = [inverse.tv_reconstruction(operator, data, weight * level**2) for weight in (1.0, 3.0, 10.0)]
    scores[VARIATION] = {PSNR: max(psnr(image, truth) for image in smooth)}
    scores[BACK_PROJECTION] = {PSNR: psnr(inverse.filtered_back_projection(operator, data), truth)}
    return {"scores": scores, "shown": shown, "truth": rounded(truth, 3)}


def scored(posterior: osc.posteriors.ImageDistribution, truth: Tensor, kernels: bool = False) -> dict[str, float]:
    """Score error bars against the truth, without the joint density of all pixels and with that of patches."""
    found = cells.scored(posterior, truth, kernels)
    patches = {
        f"log density of a pixel, patches {size}²": float(posterior.patch_log_prob(truth, size)) / truth.numel()
        for size in PATCHES
    }
    return {column: found[column] for column in (DENSITY, PSNR, COVERED, RANKED)} | patches


def claims(found: Found) -> Iterator[Claim]:
    """Yield the claims on time and memory."""
    seconds, memory = (
        {title: max(cell["scores"][PLAIN][column] for cell in each) for title, each in found.items()}
        for column in (SECONDS, MEMORY)
    )
    costs = "; ".join(f"{title}: {seconds[title]:.0f} s, {memory[title]:.1f} GB" for title in found) + "."
    yield Claim.over_seeds("Time and memory of an image of 128² with error bars", costs)
    yield Claim.over_seeds("Memory of an image of 256²", costs)


HEADING = "Reconstructions from few X-rays, their errors, and their error bars"
measure.figure(partial(cells.draw_maps, heading=HEADING))
