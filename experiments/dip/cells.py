"""One image of handwriting, measured once and reconstructed by every method with error bars."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache, partial
from statistics import mean
from typing import Any

import numpy as np
import torch
from torch import Tensor

import osculate as osc
from experiments import Record, Runner, rounded, timed
from osculate import inverse
from osculate.inverse import baselines
from osculate.inverse.scores import covered, error_correlation, psnr

DOCUMENT = "Linearised Laplace tutorial, section 7 [antoran2023dip]"

#: Reconstructions with error bars, by name: where the evidence is taken, TV-PredCP.
LINEARISED: Mapping[str, tuple[str, bool]] = {
    "linearised DIP, evidence": ("network", False),
    "linearised DIP, evidence and TV-PredCP": ("network", True),
    "linearised DIP, exact evidence": ("linear", False),
}
#: The same with unknown noise, also in training, by name: TV-PredCP. And two methods with equal error bars everywhere.
UNKNOWN: Mapping[str, bool] = {
    "linearised DIP, noise estimated": False,
    "linearised DIP, TV-PredCP, noise estimated": True,
}
FITTED, UNIT = "DIP, σ² estimated", "DIP, σ² = 1"
ENSEMBLE = "ensemble"
#: Probabilities of dropping a channel: that of the authors' code, and the choice of validation images (dip-choices).
DROPOUT, CHOSEN_DROPOUT = "MC dropout, p = .05", "MC dropout, p = .4"
DROPOUTS = {DROPOUT: 0.05, CHOSEN_DROPOUT: 0.4}
#: Candidate widths of the kernels, and weights of the classical penalties.
BANDWIDTHS, WEIGHTS, RIDGES = (0.05, 0.1), (0.1, 0.3, 1.0, 3.0, 10.0), (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
#: Number of validation images that choose these weights.
HELD_OUT = 5

DENSITY, JOINT, PSNR = "log density of a pixel, nats", "joint log density, nats a pixel", "PSNR, dB"
COVERED, RANKED = "within 95 %", "correlation of error bar and error"
#: Work that several methods share is in the seconds of each.
NOISE, SECONDS = "noise found / true", "seconds, shared work included"
#: Settings that all cells have in common.
TRAINING = (inverse.DeepImagePrior.variation, inverse.DeepImagePrior.learning_rate)


@dataclass(frozen=True)
class Scan:
    """The measurement of an image, and its reconstruction.

    Args:
        data: Name of the images.
        angles: Number of angles of the rays.
        noise: Standard deviation, as a share of the mean absolute measurement.
        steps: Steps of the deep image prior.
        dropout_steps: Steps of a deep image prior with dropout, which learns more slowly.
        members: Members of the ensemble.
        samples: Images drawn by dropout.
        brief: True for known noise, the evidence at θ̃ and the best baseline alone.
    """

    data: str = "kmnist"
    angles: int = 10
    noise: float = 0.05
    steps: int = 2000
    dropout_steps: int = 6000
    members: int = 5
    samples: int = 100
    brief: bool = False

    @property
    def title(self) -> str:
        """The scan in words: "10 angles, 5 %"."""
        return f"{self.angles} angles, {100 * self.noise:g} %"

    @property
    def place(self) -> tuple[Any, ...]:
        """The scan in the names of cached cells."""
        return (self.data, self.angles, f"{self.noise:g}")

    def measured(self, image: Tensor, seed: int) -> tuple[inverse.RayTransform, Tensor, float]:
        """Return the operator, noisy data, and the standard deviation of their noise."""
        operator = inverse.RayTransform(tuple(image.shape), self.angles)
        return operator, *noisy(operator, image, self.noise, seed)


def noisy(operator: inverse.RayTransform, image: Tensor, share: float, seed: int) -> tuple[Tensor, float]:
    """Return noisy data and the standard deviation of the noise, a share of the mean absolute measurement."""
    clean = operator(image)
    level = share * float(clean.abs().mean())
    return clean + level * torch.randn(clean.shape, generator=torch.Generator().manual_seed(seed)), level


@cache
def images(data: str) -> tuple[Tensor, Tensor]:
    """Return validation and test images (N, H, W), the latter in their own order."""
    found = osc.data.load(data, validation_size=100)
    return found.validation[0][:, 0], found.test[0][:, 0]


def cell(scan: Scan, number: int, runner: Runner) -> dict[str, Any]:
    """Reconstruct one test image by every method; return scores by method, and the images themselves."""
    return runner.cached("dip", (*scan.place, number), (asdict(scan), *TRAINING), lambda: reconstructed(scan, number))


def reconstructed(scan: Scan, number: int) -> dict[str, Any]:
    """Reconstruct one test image by every method."""
    truth = images(scan.data)[1][number]
    operator, data, level = scan.measured(truth, number)
    how, longer = inverse.DeepImagePrior(steps=scan.steps), inverse.DeepImagePrior(steps=scan.dropout_steps)
    scores: dict[str, dict[str, float]] = {}
    shown: dict[str, dict[str, list]] = {}

    def note(
        name: str, posterior: osc.posteriors.ImageDistribution, extra: Mapping[str, float], kernels: bool = False
    ) -> None:
        scores[name] = {**scored(posterior, truth, kernels), **extra}
        shown[name] = recorded(posterior)

    fitted, training = timed(lambda: how.fit(operator, data, level, number))
    linearised = inverse.LinearisedImage(operator, data, fitted, level)
    _, once = timed(lambda: (linearised.q, linearised.penalty, linearised.jacobian))
    for name, objective in LINEARISED.items():
        if scan.brief and objective[0] != "network":
            continue
        posterior, seconds = timed(lambda: error_bars(linearised, linearised.tuned(*objective)))  # noqa: B023
        note(name, posterior, {SECONDS: training + once + seconds})

    if not scan.brief:
        without_noise = how.fit(operator, data, None, number)
        linearised = inverse.LinearisedImage(operator, data, without_noise)
        tuned = {name: linearised.tuned("network", predcp) for name, predcp in UNKNOWN.items()}
        for name, each in tuned.items():
            note(name, error_bars(linearised, each), {NOISE: noise_of(each) / level})
        noise = noise_of(next(iter(tuned.values())))
        note(FITTED, baselines.isotropic(operator, without_noise.image, noise), {NOISE: noise / level})
    note(UNIT, baselines.isotropic(operator, fitted.image), {})

    def drawn(name: str) -> osc.posteriors.DrawnImage:
        if name == ENSEMBLE:
            return baselines.ensemble(operator, data, level, how, scan.members, number)
        return baselines.mc_dropout(operator, data, level, longer, DROPOUTS[name], scan.samples, number)[1]

    for name in (CHOSEN_DROPOUT,) if scan.brief else (*DROPOUTS, ENSEMBLE):
        draws, seconds = timed(partial(drawn, name))
        note(name, draws, {SECONDS: seconds}, kernels=True)

    ridge, variation = best_weights(scan)
    classical = {
        "filtered back-projection": inverse.filtered_back_projection(operator, data),
        "Tikhonov": inverse.tikhonov(operator, data, ridge * level**2),
        "total variation": inverse.tv_reconstruction(operator, data, variation * level**2),
    }
    scores |= {name: {PSNR: psnr(image, truth)} for name, image in classical.items()}
    return {"scores": scores, "shown": shown, "truth": rounded(truth)}


def noise_of(q: osc.posteriors.Gaussian) -> float:
    """Return the noise scale of a posterior."""
    assert isinstance(q.likelihood, osc.likelihoods.Gaussian)
    return float(q.likelihood.scale)


def error_bars(image: inverse.LinearisedImage, q: osc.posteriors.Gaussian) -> osc.posteriors.ImageDistribution:
    """Return the exact posterior of the image."""
    return image.posterior(q, True, inverse.image_noise(image.operator, noise_of(q)))


def scored(posterior: osc.posteriors.ImageDistribution, truth: Tensor, kernels: bool = False) -> dict[str, float]:
    """Score error bars against the truth, with the best density of several if kernel estimates of draws count too."""
    densities = [float(posterior.patch_log_prob(truth)) / truth.numel()]
    if kernels and isinstance(posterior, osc.posteriors.DrawnImage):
        logs = (float(kernel_log_prob(posterior.draws, truth, width)) for width in BANDWIDTHS)
        densities += [value / truth.numel() for value in logs]
    found = {
        DENSITY: max(densities),
        PSNR: psnr(posterior.mean, truth),
        COVERED: covered(posterior, truth, (0.95,))[0],
        RANKED: error_correlation(posterior, truth),
    }
    if not isinstance(posterior, osc.posteriors.DrawnImage):
        found[JOINT] = float(posterior.log_prob(truth)) / truth.numel()
    return found


def kernel_log_prob(draws: Tensor, image: Tensor, bandwidth: float) -> Tensor:
    """Return Σ over pixels of log (1/S) Σ_s N(x; x_s, bandwidth²): a density of each pixel from draws, in nats."""
    exponent = -0.5 * ((image - draws) / bandwidth).double().square()
    constant = math.log(len(draws) * bandwidth * math.sqrt(2 * math.pi))
    return (exponent.logsumexp(0) - constant).sum()


@cache
def best_weights(scan: Scan) -> tuple[float, float]:
    """Return the weights of the squared norm and of total variation with the best PSNR on validation images."""
    held_out = images(scan.data)[0][:HELD_OUT]
    measured = [(image, *scan.measured(image, 1000 + number)) for number, image in enumerate(held_out)]

    def best(method: Callable[..., Tensor], weights: tuple[float, ...]) -> float:
        means = {w: mean(psnr(method(operator, y, w * s**2), x) for x, operator, y, s in measured) for w in weights}
        return max(means, key=means.__getitem__)

    return best(inverse.tikhonov, RIDGES), best(inverse.tv_reconstruction, WEIGHTS)


def recorded(posterior: osc.posteriors.ImageDistribution, digits: int = 4) -> dict[str, list]:
    """Return a reconstruction with its error bars as a record keeps them."""
    return {"mean": rounded(posterior.mean, digits), "deviation": rounded(posterior.stddev, digits)}


def draw_maps(record: Record, heading: str) -> Any:
    """Draw the recorded picture by several methods, with errors and error bars."""
    from osculate import plots

    first = record.findings.data["first"]
    shown = {name: (np.array(each["mean"]), np.array(each["deviation"])) for name, each in first["shown"].items()}
    return plots.error_maps(np.array(first["truth"]), shown, heading)
