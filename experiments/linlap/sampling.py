"""Lawrence's demonstration, and digits: sampling the non-linear network fails where its linearisation does not."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import nn

import osculate as osc
from experiments import Claim, Findings, Record, Runner, Table, evaluation, experiment, ignoring, rounded, seeded, train
from experiments.linlap.modes import find_mode


@dataclass(frozen=True)
class Curve:
    """A regression on a line: a wave with noise of scale 0.1.

    Args:
        points: Training data.
        units: Units of the hidden layer, tanh.
        steps: Steps of Levenberg–Marquardt, with prior and noise by the evidence.
    """

    points: int = 40
    units: int = 50
    steps: int = 100


@dataclass(frozen=True)
class Digits:
    """A classifier of digits (8 × 8 pixels) for each prior precision.

    Args:
        train_size: Training digits.
        hidden: Units of the hidden layers, tanh.
        precisions: Prior precisions, with one network for each; the Laplace approximation has the same.
        evaluations: Most evaluations of the objective on the way to the mode.
        degrees: Rotation of the out-of-distribution digits.
    """

    train_size: int = 600
    hidden: tuple[int, ...] = (40, 40)
    precisions: tuple[float, ...] = (0.1, 1.0, 10.0)
    evaluations: int = 500
    degrees: float = 60.0


@dataclass(frozen=True)
class Settings:
    """Both demonstrations.

    Args:
        curve: The regression.
        digits: The classifiers.
        samples: Samples of the weights.
    """

    curve: Curve = Curve()
    digits: Digits = Digits()
    samples: int = 2000


MODE, LINEARISED, SAMPLED = "MAP", "linearised, probit", "sampled"
ACCURACY, NLL, AUROC = "accuracy", "NLL", "AUROC, turned digits"
TURNED = "NLL, turned digits"
OFF, FIT = "share of draws off scale, %", "log-likelihood of the training data, nats a point"
#: Room above and below the targets, as a share of their range; everything beyond is off scale.
ROOM = 0.5
#: Draws in the figure; its mean is that of all.
SHOWN = 30


@experiment(
    "linlap-sampling",
    "Sampling the network against its linearisation: a curve, and digits",
    "The Linearized Laplace Approximation [antoran2022], section 3: why use a linearized model for prediction?",
    # the tutorial shows a figure of Lawrence's thesis, without its setting: more draws, and a closer mode
    paper=Settings(digits=Digits(evaluations=2000), samples=10_000),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Run both demonstrations for each seed."""
    table = Table()
    shown: dict[str, Any] = {}
    for found, line in runner.each("curves", zip(seeds), partial(regression, settings)):
        table.append(found)
        shown = shown or line
    for found in runner.each("digits", product(settings.digits.precisions, seeds), partial(digits, settings)):
        table.append(found)
    scale = "Where there are data, beyond the targets' range with half of it on either side is off scale."
    return Findings(table.numbers(), (Claim.over_seeds("values off scale", scale),), shown)


def regression(settings: Settings, seed: int) -> tuple[dict[tuple[str, str], float], dict[str, Any]]:
    """Sample the linearised function and the network from the same posterior."""
    generator = torch.Generator().manual_seed(seed)
    x = 6 * torch.rand(settings.curve.points, 1, generator=generator) - 3
    y = (2 * x + 1).sin() + 0.1 * torch.randn(x.shape, generator=generator)
    with seeded(seed):
        model = nn.Sequential(nn.Linear(1, settings.curve.units), nn.Tanh(), nn.Linear(settings.curve.units, 1))
    method = osc.methods.LevenbergMarquardt(model, osc.likelihoods.Gaussian(0.1))
    q = train(method, (x, y), epochs=settings.curve.steps, seed=seed).posterior
    grid = torch.linspace(-4, 4, 161)[:, None]
    low, high = float(y.min()), float(y.max())
    room = ROOM * (high - low)
    inside = (grid[:, 0] >= x.min()) & (grid[:, 0] <= x.max())
    found: dict[tuple[str, str], float] = {}
    draws = {}
    for via in ("linearised", "sampled"):
        with ignoring(evaluation.SAMPLED):
            f = osc.sample_functions(q, grid, settings.samples, via=via, generator=generator)[..., 0]
            predictive = osc.predict(q, x, via=via, samples=settings.samples, generator=generator)
        off = ((f < low - room) | (f > high + room))[:, inside]
        found[f"curve: {via}", OFF] = 100 * float(off.double().mean())
        found[f"curve: {via}", FIT] = osc.metrics.log_likelihood(predictive.log_prob(y))
        draws[via] = {"draws": rounded(f[:SHOWN]), "mean": rounded(f.mean(0))}
    mode = rounded(osc.predict(q, grid).mean[:, 0])
    data = [rounded(x[:, 0]), rounded(y[:, 0])]
    return found, {"x": rounded(grid[:, 0]), "mode": mode, "functions": draws, "data": data}


def digits(settings: Settings, precision: float, seed: int) -> dict[tuple[str, str], float]:
    """Train a classifier with a prior precision, and predict with it in three ways."""
    data = osc.data.load("digits", train_size=settings.digits.train_size, seed=seed)
    likelihood = osc.likelihoods.Categorical()
    with seeded(seed):
        model = nn.Sequential(nn.Flatten(), osc.networks.MLP(64, settings.digits.hidden, 10, "tanh"))
    method = osc.methods.MAP(model, likelihood, prior=precision)
    find_mode(method, *data.train, steps=settings.digits.evaluations)
    q = osc.laplace(model.eval(), likelihood, data.train, structure="kron", prior=precision, refine=False)
    (x, y), turned = data.test, osc.data.rotated(data.test[0], settings.digits.degrees)
    found: dict[tuple[str, str], float] = {}
    ways: dict[str, tuple[Any, dict[str, Any]]] = {
        MODE: (method.result(), {}),
        LINEARISED: (q, {"link": "probit"}),
        SAMPLED: (q, {"via": "sampled", "samples": settings.samples, "generator": torch.Generator().manual_seed(seed)}),
    }
    for name, (posterior, options) in ways.items():
        row = f"precision {precision:g}: {name}"
        with ignoring(evaluation.SAMPLED):
            probs = [evaluation.probabilities(osc.predict(posterior, each, **options)) for each in (x, turned)]
        inside, turned_nll = (osc.metrics.nll(evaluation.logs(each), y) for each in probs)
        auroc = osc.metrics.auroc(*map(evaluation.entropy, probs))
        scores = {ACCURACY: osc.metrics.accuracy(probs[0], y), NLL: inside, AUROC: auroc, TURNED: turned_nll}
        found |= {(row, column): value for column, value in scores.items()}
    return found


@measure.figure
def draw(record: Record) -> Any:
    """Draw functions of the first seed."""
    from osculate import plots

    data = record.findings.data
    numbers = {(n.row, n.column): n.values[0] for n in record.findings.numbers}
    titles = {"linearised": "linearised network", "sampled": "the network itself"}
    shown = {}
    for via, functions in data["functions"].items():
        note, draws = f"{numbers[f'curve: {via}', OFF]:.0f} % off scale", np.asarray(functions["draws"])
        shown[titles[via]] = plots.Draws(data["x"], draws, functions["mean"], data["mode"], note)
    samples = record.setup.settings["samples"]
    heading = f"Functions sampled from one posterior, in two ways: {samples} draws, {SHOWN} of them shown"
    return plots.function_draws(shown, *data["data"], heading)
