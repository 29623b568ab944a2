"""Full, Kronecker-factored and diagonal Laplace on a curve with a gap: which of them knows that it is one?"""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from experiments import Claim, Findings, Number, Record, experiment, seeded
from experiments.linlap.modes import find_mode
from osculate.data import load
from osculate.data.toys import SINE_GAP
from osculate.evidence import maximise_evidence
from osculate.likelihoods import Gaussian, Likelihood
from osculate.methods.laplace import laplace
from osculate.methods.map import MAP
from osculate.networks import MLP
from osculate.posteriors import Gaussian as Posterior
from osculate.predictive import predict
from osculate.priors import Layerwise, Prior
from osculate.progress import track


@dataclass(frozen=True)
class Settings:
    """The networks, and how their mode and prior are found.

    Args:
        networks: hidden layers and activation.
        width: units of each layer.
        rounds: how often mode and evidence are found in turn; one precision for each tensor, and the noise.
        steps: evaluations of L-BFGS for each mode.
        samples: networks of a sampled predictive.
        grid: points of the curves in the figure.
    """

    networks: tuple[str, ...] = ("1 tanh", "2 relu")
    width: int = 50
    rounds: int = 4
    steps: int = 400
    samples: int = 200
    grid: int = 161


PRESETS = {"small": Settings(), "paper": Settings(rounds=8, steps=2000, samples=1000)}

#: "dual" is the full posterior by the rows of its data, which are fewer than the weights.
STRUCTURES = {"full": "dual", "kron": "kron", "diag": "diag"}
WAYS = ("linearised", "sampled")
OWN = "own evidence"
GAP, DATA, RATIO = "sd of f in the gap", "sd of f on the data", "gap / data"
NLL_GAP, NLL_DATA, RMSE = "NLL in the gap", "NLL beside it", "RMSE in the gap"
#: Nats a datum by which sampled networks must be worse than the linearised function for "fail".
FAILS_BY = 1.0


@experiment(
    "linlap-structures",
    "Full, Kronecker-factored and diagonal Laplace on a curve with a gap",
    "Linearised Laplace tutorial, section 4 (toy problem of the Kronecker-factored Laplace)",
    **PRESETS,
)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Find the mode and its prior, and predict with every structure in both ways, for each seed and network."""
    found: dict[tuple[str, str], list[float]] = {}
    pictures: dict[str, Any] = {}
    tasks = [(seed, network) for seed in seeds for network in settings.networks]
    for seed, network in track(tasks, "networks", len(tasks), progress):
        curve, name = Curve.of(seed), full_name(network, settings)
        layers, activation = network.split()
        with seeded(seed):
            model = MLP(1, (settings.width,) * int(layers), 1, activation).double()
        fits = posteriors(model, curve.train, settings)
        for label, q in fits.items():
            for way in WAYS if label in STRUCTURES else WAYS[:1]:
                for column, value in judge(q, way, curve, settings.samples).items():
                    found.setdefault((row(name, label, way), column), []).append(value)
        for column, value in of_mode(fits["full"], curve).items():
            found.setdefault((row(name, "MAP"), column), []).append(value)
        pictures.setdefault(name, _picture(fits, curve, settings))
    numbers = tuple(Number(label, column, tuple(values)) for (label, column), values in found.items())
    return Findings(numbers, claims(found, [full_name(network, settings) for network in settings.networks]), pictures)


def full_name(network: str, settings: Settings) -> str:
    """As it stands in the table: "2 × 50 relu"."""
    layers, activation = network.split()
    return f"{layers} × {settings.width} {activation}"


def row(*parts: str) -> str:
    """The label of a row."""
    return ", ".join(parts)


@dataclass(frozen=True)
class Curve:
    """A sine with noise, in standardised units: inputs (N, 1) and targets (N, 1).

    Attributes:
        train: points to train on.
        test: points to test on, everywhere.
        gap: where there are none to train on.
    """

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    gap: tuple[float, float]

    @classmethod
    def of(cls, seed: int) -> "Curve":
        """That of a seed."""
        data = load("sine", seed=seed)
        assert data.input_scaling is not None
        low, high = data.input_scaling.apply(torch.tensor(SINE_GAP).unsqueeze(1)).flatten().tolist()
        train, test = ((x.double(), y.double().reshape(len(y), 1)) for x, y in (data.train, data.test))
        return cls(train, test, (low, high))

    def inside(self) -> Tensor:
        """Which test points lie in the gap."""
        low, high = self.gap
        return ((self.test[0] > low) & (self.test[0] < high)).squeeze(-1)


def posteriors(model: nn.Module, train: tuple[Tensor, Tensor], settings: Settings) -> dict[str, Posterior]:
    """Each structure at one mode, with the prior and noise of largest evidence of the full one, and with its own."""
    likelihood: Likelihood = Gaussian(0.3)
    prior: Prior = Layerwise(1.0)
    for _ in range(settings.rounds):
        find_mode(MAP(model, likelihood, prior), *train, settings.steps)
        full = maximise_evidence(laplace(model, likelihood, train, structure="dual", prior=prior))
        likelihood, prior = full.likelihood, full.prior
    find_mode(MAP(model, likelihood, prior), *train, settings.steps)
    fits = {name: laplace(model, likelihood, train, structure=rule, prior=prior) for name, rule in STRUCTURES.items()}
    own = {row(name, OWN): maximise_evidence(fits[name], noise=False) for name in ("kron", "diag")}
    return {**fits, **own}


def judge(q: Posterior, way: str, curve: Curve, samples: int) -> dict[str, float]:
    """Error bars in the gap and on the data, and held-out log densities, by column."""
    (x, y), gap = curve.test, curve.inside()
    density = -_predicted(q, x, way, samples).log_prob(y).reshape(len(y))
    spread = _predicted(q, x, way, samples, noise=False).variance.sqrt().reshape(len(y))
    on_data = _predicted(q, curve.train[0], way, samples, noise=False).variance.sqrt()
    inside, outside = float(spread[gap].mean()), float(on_data.mean())
    return {
        GAP: inside,
        DATA: outside,
        RATIO: inside / outside,
        NLL_GAP: float(density[gap].mean()),
        NLL_DATA: float(density[~gap].mean()),
    }


def _predicted(q: Posterior, x: Tensor, way: str, samples: int, noise: bool = True) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that sampled networks are worse than the mode is what is measured
        if way == "linearised":
            return predict(q, x, noise=noise)
        return predict(q, x, via="sampled", samples=samples, generator=torch.Generator().manual_seed(0), noise=noise)


def of_mode(q: Posterior, curve: Curve) -> dict[str, float]:
    """The network at its mode, with the noise alone."""
    (x, y), gap = curve.test, curve.inside()
    f = q.network(x)
    density = -q.likelihood.log_prob(f, y)
    return {
        NLL_GAP: float(density[gap].mean()),
        NLL_DATA: float(density[~gap].mean()),
        RMSE: float((f - y)[gap].square().mean().sqrt()),
    }


def claims(found: Mapping[tuple[str, str], Sequence[float]], networks: Sequence[str]) -> tuple[Claim, ...]:
    """Verdicts from the values over seeds."""

    def value(name: str, label: str, column: str, way: str = "linearised") -> float:
        return mean(found[row(name, label, way), column])

    def listed(column: str, way: str = "linearised") -> str:
        return "; ".join(
            f"{name}: " + ", ".join(f"{label} {value(name, label, column, way):.2f}" for label in STRUCTURES)
            for name in networks
        )

    ordered = all(
        value(name, "full", RATIO) > value(name, "kron", RATIO) > value(name, "diag", RATIO) for name in networks
    )
    inflated = all(value(name, "diag", DATA) > value(name, "full", DATA) for name in networks)
    gains = [mean(found[row(name, "MAP"), NLL_GAP]) - value(name, "full", NLL_GAP) for name in networks]
    losses = {
        (name, label): value(name, label, NLL_DATA, "sampled") - value(name, label, NLL_DATA)
        for name in networks
        for label in STRUCTURES
    }
    worse = ", ".join(f"{name} {label} {loss:.2g}" for (name, label), loss in losses.items())
    return (
        Claim.judged(
            "In-between uncertainty is largest with the full matrix, then Kronecker factors, then the diagonal",
            ordered,
            f"Mean standard deviation of the linearised function in the gap over that on the data: {listed(RATIO)}.",
        ),
        Claim.judged(
            "The diagonal inflates the error bars on the data instead",
            inflated,
            f"Standard deviation of the linearised function on the data: {listed(DATA)}; all structures have the prior "
            "and the noise of the full one. With the evidence of their own they are narrower (table).",
        ),
        Claim.judged(
            "The full matrix predicts held-out points in the gap better than the mode",
            min(gains) > 0,
            f"Gain in nats a point: {', '.join(f'{n} {each:.2f}' for n, each in zip(networks, gains, strict=True))}.",
        ),
        Claim.judged(
            "Sampling the network itself fails, whatever the structure",
            min(losses.values()) > FAILS_BY,
            f"Nats a point that sampled networks lose against the linearised function on held-out points beside the "
            f"gap ({FAILS_BY:g} would count): {worse}. Where the diagonal does not fail, its posterior "
            "is narrow in every single weight: it has not what the others spread along directions that the data leave "
            "open.",
        ),
    )


def _picture(fits: Mapping[str, Posterior], curve: Curve, settings: Settings) -> dict[str, Any]:
    """Bands of one network along the line."""
    x = torch.linspace(-2.2, 2.2, settings.grid, dtype=torch.double).unsqueeze(1)
    bands = {}
    for label in STRUCTURES:
        for way in WAYS:
            found = _predicted(fits[label], x, way, settings.samples)
            bands[f"{label}, {way}"] = {"mean": _rounded(found.mean), "sd": _rounded(found.variance.sqrt())}
    return {"x": _rounded(x), "bands": bands, "data": [_rounded(part) for part in curve.train], "gap": list(curve.gap)}


def _rounded(values: Float[Tensor, "N 1"]) -> list[float]:
    return (values.reshape(-1) * 1e4).round().div(1e4).tolist()


@measure.figure
def draw(record: Record) -> Any:
    """Bands of every structure, one row for each network and way to predict."""
    from osculate import plots

    rows = {}
    for name, picture in record.findings.data.items():
        x = np.array(picture["x"])
        for way in WAYS:
            bands = {label: picture["bands"][f"{label}, {way}"] for label in STRUCTURES}
            rows[f"{name}\n{way}"] = {
                label: plots.Band(x, np.array(band["mean"]), np.array(band["sd"])) for label, band in bands.items()
            }
    x, y = (np.array(part) for part in picture["data"])
    heading = (
        "Which structure knows the gap? Linearised functions, and networks sampled from the same posteriors\n"
        "(standardised units; where a panel is filled, the error bars are wider than it shows)"
    )
    return plots.band_grid(rows, x, y, (tuple(picture["gap"]),), heading)
