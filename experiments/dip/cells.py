"""One image of handwriting, measured once and reconstructed by everything that gives error bars."""

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from experiments import Runner
from osculate.data import load
from osculate.inverse import (
    DeepImagePrior,
    DrawnImage,
    ErrorBars,
    ImageDistribution,
    LinearisedModel,
    RayTransform,
    filtered_back_projection,
    tikhonov,
    tv_reconstruction,
)
from osculate.inverse.baselines import ensemble, isotropic, kernel_log_prob, mc_dropout
from osculate.inverse.scores import covered, error_correlation, psnr

DOCUMENT = "Linearised Laplace tutorial, section 7 [antoran2023dip]"

#: Reconstructions with error bars, by name: objective of the evidence, TV-PredCP.
LINEARISED: Mapping[str, tuple[str, bool]] = {
    "linearised DIP, evidence": ("map", False),
    "linearised DIP, evidence and TV-PredCP": ("map", True),
    "linearised DIP, exact evidence": ("linear", False),
}
#: The same where the noise is not known, neither in the training: TV-PredCP. And two with error bars all the same.
UNKNOWN: Mapping[str, bool] = {
    "linearised DIP, noise estimated": False,
    "linearised DIP, TV-PredCP, noise estimated": True,
}
FITTED, UNIT = "DIP, σ² estimated", "DIP, σ² = 1"
ENSEMBLE = "ensemble"
#: Probabilities of dropping a channel: of the authors' code, and what validation images chose (dip-choices).
DROPOUT, CHOSEN_DROPOUT = "MC dropout, p = .05", "MC dropout, p = .4"
DROPOUTS = {DROPOUT: 0.05, CHOSEN_DROPOUT: 0.4}
#: Error bars, and reconstructions without them.
METHODS = (*LINEARISED, *UNKNOWN, FITTED, UNIT, *DROPOUTS, ENSEMBLE)
CLASSICAL = ("filtered back-projection", "Tikhonov", "total variation")
#: Widths of the kernels, and weights of the classical penalties, that compete.
BANDWIDTHS, WEIGHTS, RIDGES = (0.05, 0.1), (0.1, 0.3, 1.0, 3.0, 10.0), (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
#: Validation images that decide on these weights.
HELD_OUT = 5

DENSITY, JOINT, PSNR = "log density of a pixel, nats", "joint log density, nats a pixel", "PSNR, dB"
COVERED, RANKED = "within 95 %", "correlation of error bar and error"
#: What several methods share is in the seconds of each.
NOISE, SECONDS = "noise found / true", "seconds, shared work included"
#: What the networks of all cells have in common.
TRAINING = (DeepImagePrior.variation, DeepImagePrior.learning_rate)


@dataclass(frozen=True)
class Scan:
    """How an image is measured, and with what it is reconstructed.

    Args:
        data: name of the images.
        angles: of the rays.
        noise: standard deviation, as a share of the mean absolute measurement.
        steps: of the deep image prior.
        dropout_steps: of one with dropout, which learns more slowly.
        members: of the ensemble.
        samples: images by dropout.
    """

    data: str = "kmnist"
    angles: int = 10
    noise: float = 0.05
    steps: int = 2000
    dropout_steps: int = 6000
    members: int = 5
    samples: int = 100

    @property
    def title(self) -> str:
        """Of its rows."""
        return f"{self.angles} angles, {100 * self.noise:g} %"

    def measured(self, image: Tensor, seed: int) -> tuple[RayTransform, Tensor, float]:
        """The operator, noisy data, and the standard deviation of their noise."""
        operator = RayTransform(tuple(image.shape), self.angles)
        return operator, *noisy(operator, image, self.noise, seed)


def noisy(operator: RayTransform, image: Tensor, share: float, seed: int) -> tuple[Tensor, float]:
    """Data with noise, and its standard deviation: a share of the mean absolute measurement."""
    clean = operator(image)
    level = share * float(clean.abs().mean())
    return clean + level * torch.randn(clean.shape, generator=torch.Generator().manual_seed(seed)), level


@cache
def images(data: str) -> tuple[Tensor, Tensor]:
    """Validation and test images (N, H, W), the latter in their own order."""
    found = load(data, validation_size=100)
    return found.validation[0][:, 0], found.test[0][:, 0]


def cell(scan: Scan, number: int, runner: Runner) -> dict[str, Any]:
    """Everything about one test image; scores by method, and the images themselves."""
    return runner.cached(
        "dip",
        (scan.data, scan.angles, f"{scan.noise:g}", number),
        (asdict(scan), *TRAINING),
        lambda: _measure(scan, number),
    )


def _measure(scan: Scan, number: int) -> dict[str, Any]:
    truth = images(scan.data)[1][number]
    operator, data, level = scan.measured(truth, number)
    how = DeepImagePrior(steps=scan.steps)
    started = time.perf_counter()
    fitted = how.fit(operator, data, level, number)
    training = time.perf_counter() - started
    scores: dict[str, dict[str, float]] = {}
    shown: dict[str, dict[str, list]] = {}

    def note(name: str, posterior: ImageDistribution, extra: Mapping[str, float], density: float | None = None) -> None:
        scores[name] = {**scored(posterior, truth), **extra}
        if density is not None:
            scores[name][DENSITY] = max(scores[name][DENSITY], density)
        shown[name] = {"mean": rounded(posterior.mean), "deviation": rounded(posterior.stddev)}

    model = LinearisedModel(operator, data, fitted, level, ErrorBars())
    once = time.perf_counter()
    _ = model.observed, model.hyper_prior, model.linearised.jacobian
    once = time.perf_counter() - once
    for name, (objective, predcp) in LINEARISED.items():
        started = time.perf_counter()
        posterior = model.posterior(model.tune(objective, predcp, level))
        note(name, posterior, {SECONDS: training + once + time.perf_counter() - started})
    for name, (posterior, found) in without_noise(scan, operator, data, number).items():
        note(name, posterior, {NOISE: found / level})
    note(UNIT, isotropic(operator, fitted.image), {})
    for name, dropout in DROPOUTS.items():
        started, longer = time.perf_counter(), DeepImagePrior(steps=scan.dropout_steps)
        _, dropped = mc_dropout(operator, data, level, longer, dropout, scan.samples, number)
        note(name, dropped, {SECONDS: time.perf_counter() - started}, best_kernel(dropped, truth))
    started = time.perf_counter()
    together = ensemble(operator, data, level, how, scan.members, number)
    note(ENSEMBLE, together, {SECONDS: time.perf_counter() - started}, best_kernel(together, truth))
    for name, image in classical(scan, operator, data, level).items():
        scores[name] = {PSNR: psnr(image, truth)}
    return {"scores": scores, "shown": shown, "truth": rounded(truth)}


def without_noise(
    scan: Scan, operator: RayTransform, data: Tensor, seed: int
) -> dict[str, tuple[ImageDistribution, float]]:
    """Error bars where the noise is not known, neither in the training; with its estimate."""
    fitted = DeepImagePrior(steps=scan.steps).fit(operator, data, None, seed)
    model = LinearisedModel(operator, data, fitted, None, ErrorBars())
    tuned = {name: model.tune("map", predcp, None) for name, predcp in UNKNOWN.items()}
    found: dict[str, tuple[ImageDistribution, float]] = {
        name: (model.posterior(each), each.noise) for name, each in tuned.items()
    }
    noise = next(iter(found.values()))[1]
    return found | {FITTED: (isotropic(operator, fitted.image, noise), noise)}


def scored(posterior: ImageDistribution, truth: Tensor) -> dict[str, float]:
    """Scores of error bars against the truth."""
    found = {
        DENSITY: float(posterior.patch_log_prob(truth)) / truth.numel(),
        PSNR: psnr(posterior.mean, truth),
        COVERED: covered(posterior, truth, (0.95,))[0],
        RANKED: error_correlation(posterior, truth),
    }
    if not isinstance(posterior, DrawnImage):
        found[JOINT] = float(posterior.log_prob(truth)) / truth.numel()
    return found


def best_kernel(drawn: DrawnImage, truth: Tensor) -> float:
    """The better of two kernel estimates: the baselines get the density that suits them best."""
    return max(float(kernel_log_prob(drawn.draws, truth, width)) for width in BANDWIDTHS) / truth.numel()


def classical(scan: Scan, operator: RayTransform, data: Tensor, level: float) -> dict[str, Tensor]:
    """Reconstructions without a network; their weights are the best on validation images."""
    ridge, variation = best_weights(scan)
    return {
        "filtered back-projection": filtered_back_projection(operator, data),
        "Tikhonov": tikhonov(operator, data, ridge * level**2),
        "total variation": tv_reconstruction(operator, data, variation * level**2),
    }


@cache
def best_weights(scan: Scan) -> tuple[float, float]:
    """Nats for a unit of squared norm, and of total variation, by PSNR."""
    held_out = images(scan.data)[0][:HELD_OUT]
    measured = [(image, *scan.measured(image, 1000 + number)) for number, image in enumerate(held_out)]

    def mean_psnr(method: Any, weight: float) -> float:
        return sum(psnr(method(operator, y, weight * s**2), x) for x, operator, y, s in measured) / len(measured)

    ridges = {weight: mean_psnr(tikhonov, weight) for weight in RIDGES}
    variations = {weight: mean_psnr(tv_reconstruction, weight) for weight in WEIGHTS}
    return max(ridges, key=lambda w: ridges[w]), max(variations, key=lambda w: variations[w])


def rounded(image: Tensor, digits: int = 4) -> list:
    """As a record keeps it."""
    return [[round(float(value), digits) for value in row] for row in image]


def draw_maps(first: Mapping[str, Any], heading: str) -> Any:
    """Images of one picture by several methods, as a record keeps them, with errors and error bars."""
    from osculate import plots

    shown = {name: (np.array(each["mean"]), np.array(each["deviation"])) for name, each in first["shown"].items()}
    return plots.error_maps(np.array(first["truth"]), shown, heading)
