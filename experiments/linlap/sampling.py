"""Lawrence's demonstration, and digits: sampling the non-linear network fails where its linearisation does not."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.distributions import Categorical

from experiments import Claim, Findings, Number, Record, experiment, seeded
from experiments.linlap.modes import find_mode
from osculate import likelihoods, metrics
from osculate.data import load, rotated
from osculate.methods.laplace import laplace
from osculate.methods.levenberg_marquardt import LevenbergMarquardt
from osculate.methods.map import MAP
from osculate.networks import MLP
from osculate.predictive import predict, sample_functions
from osculate.progress import track
from osculate.training import train


@dataclass(frozen=True)
class Curve:
    """A regression on a line: a wave with noise of scale 0.1.

    Args:
        points: to train on.
        units: of the hidden layer, tanh.
        steps: of Levenberg–Marquardt, with prior and noise by the evidence.
    """

    points: int = 40
    units: int = 50
    steps: int = 100


@dataclass(frozen=True)
class Digits:
    """A classifier of digits (8 × 8 pixels) for each prior precision.

    Args:
        train_size: digits to train on.
        hidden: units of the hidden layers, tanh.
        precisions: of the prior, one network for each; the Laplace approximation has the same.
        evaluations: of the objective, at most, on the way to the mode.
        degrees: by how much digits are turned that are out of distribution.
    """

    train_size: int = 600
    hidden: tuple[int, ...] = (40, 40)
    precisions: tuple[float, ...] = (0.1, 1.0, 10.0)
    evaluations: int = 500
    degrees: float = 60.0


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Args:
        curve: the regression.
        digits: the classifiers.
        samples: draws of the weights.
    """

    curve: Curve = Curve()
    digits: Digits = Digits()
    samples: int = 100


PRESETS = {
    "small": Settings(),
    # the tutorial shows a figure of Lawrence's thesis, without its setting: more draws, and a closer mode
    "paper": Settings(digits=Digits(evaluations=2000), samples=1000),
}

MODE, LINEARISED, SAMPLED = "MAP", "linearised, probit", "sampled"
ACCURACY, NLL, AUROC = "accuracy", "NLL", "AUROC, turned digits"
TURNED = "NLL, turned digits"
OFF, FIT = "share of draws off scale, %", "log-likelihood of the training data, nats a point"
#: Room above and below the targets, as a share of their range; what is beyond is off scale.
ROOM = 0.5
#: The warning of what is shown here.
EXPECTED = "networks sampled from this posterior"
#: Draws that the figure shows; its mean is that of all.
SHOWN = 30
#: Bounds of the claims: of the accuracy, of the accuracy of sampled networks, and of the gain in AUROC.
CLOSE, POOR, GAIN = 0.01, 0.5, 0.04
#: Sampled networks are judged up to this precision: a tight prior keeps the draws near the mode.
VAGUE = 1.0


@experiment(
    "linlap-sampling",
    "Sampling the network against its linearisation: a curve, and digits",
    "The Linearized Laplace Approximation [antoran2022], section 3: why use a linearized model for prediction?",
    **PRESETS,
)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Both demonstrations for each seed."""
    found: dict[tuple[str, str], list[float]] = {}
    lines = []
    for seed in track(seeds, "networks", len(seeds), progress):
        rows, line = regression(settings, seed)
        for precision in settings.digits.precisions:
            rows |= digits(settings, precision, seed)
        for key, value in rows.items():
            found.setdefault(key, []).append(value)
        lines.append(line)
    numbers = tuple(Number(row, column, tuple(values)) for (row, column), values in found.items())
    return Findings(numbers, claims(found, settings), lines[0])


def regression(settings: Settings, seed: int) -> tuple[dict[tuple[str, str], float], dict[str, Any]]:
    """Draws of the linearised function and of the network, from the same posterior."""
    generator = torch.Generator().manual_seed(seed)
    x = 6 * torch.rand(settings.curve.points, 1, generator=generator) - 3
    y = (2 * x + 1).sin() + 0.1 * torch.randn(x.shape, generator=generator)
    with seeded(seed):
        model = nn.Sequential(nn.Linear(1, settings.curve.units), nn.Tanh(), nn.Linear(settings.curve.units, 1))
    method = LevenbergMarquardt(model, likelihoods.Gaussian(0.1))
    q = train(method, (x, y), epochs=settings.curve.steps, seed=seed, device="cpu", progress=False).posterior
    grid = torch.linspace(-4, 4, 161)[:, None]
    low, high = _scale(y)
    rows: dict[tuple[str, str], float] = {}
    draws = {}
    inside = (grid[:, 0] >= x.min()) & (grid[:, 0] <= x.max())
    for via in ("linearised", "sampled"):
        row = f"curve: {via}"
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", EXPECTED)
            f = sample_functions(q, grid, settings.samples, via=via, generator=generator)[..., 0]
            predictive = predict(q, x, via=via, samples=settings.samples, generator=generator)
        rows[row, OFF] = 100 * float(((f < low) | (f > high))[:, inside].double().mean())
        rows[row, FIT] = metrics.log_likelihood(predictive.log_prob(y))
        draws[via] = {"draws": _rounded(f[:SHOWN]), "mean": _rounded(f.mean(0))}
    line = {"x": _rounded(grid[:, 0]), "mode": _rounded(predict(q, grid).mean[:, 0]), "functions": draws}
    return rows, {**line, "data": [_rounded(x[:, 0]), _rounded(y[:, 0])]}


def _rounded(values: Tensor) -> Any:
    return values.double().numpy().round(4).tolist()


def _scale(y: Tensor) -> tuple[float, float]:
    """The range of the targets with some room."""
    low, high = float(y.min()), float(y.max())
    return low - ROOM * (high - low), high + ROOM * (high - low)


def digits(settings: Settings, precision: float, seed: int) -> dict[tuple[str, str], float]:
    """One classifier trained with a prior precision, and its predictions in three ways."""
    data = load("digits", train_size=settings.digits.train_size, seed=seed)
    with seeded(seed):
        model = nn.Sequential(nn.Flatten(), MLP(64, settings.digits.hidden, 10, "tanh"))
    method = MAP(model, likelihoods.Categorical(), prior=precision)
    find_mode(method, *data.train, steps=settings.digits.evaluations)
    q = laplace(model.eval(), likelihoods.Categorical(), data.train, structure="kron", prior=precision)
    turned = rotated(data.test[0], settings.digits.degrees)
    rows = {}
    ways: dict[str, tuple[Any, dict[str, Any]]] = {
        MODE: (method.result(), {}),
        LINEARISED: (q, {"link": "probit"}),
        SAMPLED: (q, {"via": "sampled", "samples": settings.samples}),
    }
    for name, (posterior, options) in ways.items():
        row = f"precision {precision:g}: {name}"
        if name == SAMPLED:
            options["generator"] = torch.Generator().manual_seed(seed)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", EXPECTED)
            inside, outside = (predict(posterior, x, **options) for x in (data.test[0], turned))
        assert isinstance(inside, Categorical)
        assert isinstance(outside, Categorical)
        rows[row, ACCURACY] = metrics.accuracy(inside.probs, data.test[1])
        rows[row, NLL] = metrics.nll(inside.logits, data.test[1])
        rows[row, AUROC] = metrics.auroc(inside.entropy(), outside.entropy())
        rows[row, TURNED] = metrics.nll(outside.logits, data.test[1])
    return rows


def claims(found: Mapping[tuple[str, str], Sequence[float]], settings: Settings) -> tuple[Claim, ...]:
    """Verdicts from the values over seeds, by row and column."""
    means = {key: float(np.mean(values)) for key, values in found.items()}
    return (*_of_curve(means), *_of_digits(means, settings.digits))


def _of_curve(means: Mapping[tuple[str, str], float]) -> tuple[Claim, ...]:
    curve = {
        via: {column: means[f"curve: {via}", column] for column in (OFF, FIT)} for via in ("linearised", "sampled")
    }
    off, inside = curve["sampled"][OFF], curve["linearised"][OFF]
    return (
        Claim.judged(
            "the average network output under samples of the Gaussian is mostly off scale, and the linearised model's "
            "is not",
            off > 50 and inside < 5,
            f"where there are data, {off:.0f} % of the values of sampled networks lie beyond the targets' range with "
            f"half of it on either side, and {inside:.1f} % of those of the linearised function",
        ),
        Claim.judged(
            "the linearised model is critical for good performance: the same posterior explains its own training data "
            "far better through it",
            curve["linearised"][FIT] > curve["sampled"][FIT] + 1,
            f"log-likelihood of the training data, linearised {curve['linearised'][FIT]:.2f} and sampled "
            f"{curve['sampled'][FIT]:.2f} nats a point",
        ),
    )


def _of_digits(means: Mapping[tuple[str, str], float], settings: Digits) -> tuple[Claim, ...]:
    def each(column: str, *names: str) -> dict[float, tuple[float, ...]]:
        return {p: tuple(means[f"precision {p:g}: {name}", column] for name in names) for p in settings.precisions}

    def said(values: Mapping[float, tuple[float, ...]]) -> str:
        return "; ".join(f"precision {p:g}: " + " against ".join(f"{v:.3f}" for v in vs) for p, vs in values.items())

    accurate = each(ACCURACY, LINEARISED, MODE)
    poor = {p: v for p, v in each(ACCURACY, SAMPLED, LINEARISED).items() if p <= VAGUE}
    noticed = each(AUROC, LINEARISED, MODE)
    return (
        Claim.judged(
            f"digits: the accuracy of the linearised predictive is within {100 * CLOSE:.0f} point of that of the mode",
            all(ours >= mode - CLOSE for ours, mode in accurate.values()),
            f"linearised against mode, {said(accurate)}",
        ),
        Claim.judged(
            f"digits: with a prior precision of at most {VAGUE:g}, sampled networks classify less than {POOR:.0%} "
            "rightly",
            all(sampled < POOR for sampled, _ in poor.values()) if poor else None,
            f"sampled against linearised, {said(poor)}" if poor else "no such precision was measured",
        ),
        Claim.judged(
            f"digits: by its entropy the linearised predictive tells digits turned by {settings.degrees:g}° "
            f"from others better than the mode, by an AUROC of at least {GAIN}",
            all(ours >= mode + GAIN for ours, mode in noticed.values()),
            f"linearised against mode, {said(noticed)}",
        ),
    )


@measure.figure
def draw(record: Record) -> Any:
    """Draws of the first seed."""
    from osculate import plots

    data = record.findings.data
    x, y = (np.asarray(part) for part in data["data"])
    numbers = {(n.row, n.column): n.values[0] for n in record.findings.numbers}
    titles = {"linearised": "linearised network", "sampled": "the network itself"}
    shown = {
        titles[via]: plots.Draws(
            np.asarray(data["x"]),
            np.asarray(functions["draws"]),
            np.asarray(functions["mean"]),
            np.asarray(data["mode"]),
            f"{numbers[f'curve: {via}', OFF]:.0f} % off scale",
        )
        for via, functions in data["functions"].items()
    }
    samples = record.setup.settings["samples"]
    heading = f"One posterior, the same kind of draws: {samples} functions, {SHOWN} of them shown"
    return plots.function_draws(shown, x, y, heading)
