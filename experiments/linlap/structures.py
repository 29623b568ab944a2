"""Full, Kronecker-factored and diagonal Laplace on a curve with a gap: which of them is uncertain there?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

import osculate as osc
from experiments import (
    Claim,
    Findings,
    Record,
    Runner,
    Table,
    evaluation,
    experiment,
    ignoring,
    rounded,
    seeded,
)
from experiments.linlap.modes import find_mode
from osculate.data.toys import SINE_GAP


@dataclass(frozen=True)
class Settings:
    """The networks, and the search for their mode and prior.

    Args:
        networks: Number of hidden layers and activation of each network.
        width: Units of each layer.
        rounds: Alternations of mode and evidence; there is one precision for each tensor, and the noise.
        steps: Evaluations of L-BFGS for each mode.
        samples: Networks of a sampled predictive.
        grid: Points of the curves in the figure.
    """

    networks: tuple[str, ...] = ("1 tanh", "2 relu")
    width: int = 50
    rounds: int = 4
    steps: int = 400
    samples: int = 2000
    grid: int = 161


#: "dual" is the full posterior by the rows of its data, which are fewer than the weights.
STRUCTURES = {"full": "dual", "kron": "kron", "diag": "diag"}
WAYS = ("linearised", "sampled")
OWN = "own evidence"
GAP, DATA, RATIO = "sd of f in the gap", "sd of f on the data", "gap / data"
NLL_GAP, NLL_DATA, RMSE = "NLL in the gap", "NLL beside it", "RMSE in the gap"
CLAIMS = (
    Claim.over_seeds(
        "error bars on the data",
        "All structures have the prior and the noise of the full one. With the evidence of their own they are narrower "
        "(table).",
    ),
    Claim.over_seeds(
        "sampled networks beside the gap",
        "Where the diagonal does not fail, its posterior is narrow in every single weight: it has not what the others "
        "spread along directions that the data leave open.",
    ),
)


@experiment(
    "linlap-structures",
    "Full, Kronecker-factored and diagonal Laplace on a curve with a gap",
    "Linearised Laplace tutorial, section 4 (toy problem of the Kronecker-factored Laplace)",
    paper=Settings(rounds=8, steps=2000, samples=10_000),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Find the mode and its prior, and predict with every structure in both ways, for each seed and network."""
    table = Table()
    pictures: dict[str, Any] = {}
    for name, rows, shown in runner.each("networks", product(seeds, settings.networks), partial(measured, settings)):
        table.extend(rows)
        pictures.setdefault(name, shown)
    return Findings(table.numbers(), CLAIMS, pictures)


def measured(settings: Settings, seed: int, network: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the name of one network, its numbers by row, and its picture."""
    curve, (layers, activation) = Curve.of(seed), network.split()
    name = f"{layers} × {settings.width} {activation}"
    with seeded(seed):
        model = osc.networks.MLP(1, (settings.width,) * int(layers), 1, activation).double()
    fits, rows = posteriors(model, curve.train, settings), {}
    for label, q in fits.items():
        for way in WAYS if label in STRUCTURES else WAYS[:1]:
            rows[row(name, label, way)] = judge(q, way, curve, settings.samples, seed)
    rows[row(name, "MAP")] = judge_mode(fits["full"], curve)
    return name, rows, picture(fits, curve, settings, seed)


def row(*parts: str) -> str:
    """Return the label of a row."""
    return ", ".join(parts)


@dataclass(frozen=True)
class Curve:
    """A sine with noise, in standardised units: inputs (N, 1) and targets (N, 1).

    Attributes:
        train: Training data.
        test: Test data, also within the gap.
        gap: Interval without training data.
    """

    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    gap: tuple[float, float]

    @classmethod
    def of(cls, seed: int) -> "Curve":
        """Load the curve of a seed."""
        data = osc.data.load("sine", seed=seed)
        assert data.input_scaling is not None
        low, high = data.input_scaling.apply(torch.tensor(SINE_GAP).unsqueeze(1)).flatten().tolist()
        train, test = ((x.double(), y.double().reshape(len(y), 1)) for x, y in (data.train, data.test))
        return cls(train, test, (low, high))

    def inside(self) -> Tensor:
        """Return True for the test points in the gap."""
        low, high = self.gap
        return ((self.test[0] > low) & (self.test[0] < high)).squeeze(-1)


def posteriors(
    model: nn.Module, train: tuple[Tensor, Tensor], settings: Settings
) -> dict[str, osc.posteriors.Gaussian]:
    """Fit each structure at one mode, with the prior and noise of the full one's evidence, and with its own."""
    likelihood: osc.likelihoods.Likelihood = osc.likelihoods.Gaussian(0.3)
    prior: osc.priors.Prior = osc.priors.Layerwise(1.0)
    for _ in range(settings.rounds):
        find_mode(osc.methods.MAP(model, likelihood, prior), *train, settings.steps)
        full = osc.maximise_evidence(osc.laplace(model, likelihood, train, structure="dual", prior=prior, refine=False))
        likelihood, prior = full.likelihood, full.prior
    find_mode(osc.methods.MAP(model, likelihood, prior), *train, settings.steps)
    fits = {
        n: osc.laplace(model, likelihood, train, structure=s, prior=prior, refine=False) for n, s in STRUCTURES.items()
    }
    return fits | {row(name, OWN): osc.maximise_evidence(fits[name], noise=False) for name in ("kron", "diag")}


def judge(q: osc.posteriors.Gaussian, way: str, curve: Curve, samples: int, seed: int) -> dict[str, float]:
    """Return error bars in the gap and on the data, and held-out log densities, by column."""
    (x, y), gap = curve.test, curve.inside()
    density = -predicted(q, x, way, samples, seed).log_prob(y).reshape(len(y))
    spread = predicted(q, x, way, samples, seed, noise=False).variance.sqrt().reshape(len(y))
    on_data = float(predicted(q, curve.train[0], way, samples, seed, noise=False).variance.sqrt().mean())
    in_gap = float(spread[gap].mean())
    densities = {NLL_GAP: float(density[gap].mean()), NLL_DATA: float(density[~gap].mean())}
    return {GAP: in_gap, DATA: on_data, RATIO: in_gap / on_data, **densities}


def predicted(q: osc.posteriors.Gaussian, x: Tensor, way: str, samples: int, seed: int, noise: bool = True) -> Any:
    """Return the predictive; a sampled one by networks of this seed."""
    with ignoring(evaluation.SAMPLED):
        if way == "linearised":
            return osc.predict(q, x, noise=noise)
        generator = torch.Generator().manual_seed(seed)
        return osc.predict(q, x, via="sampled", samples=samples, generator=generator, noise=noise)


def judge_mode(q: osc.posteriors.Gaussian, curve: Curve) -> dict[str, float]:
    """Return the scores of the network at its mode, with the noise alone."""
    (x, y), gap = curve.test, curve.inside()
    f = q.network(x)
    density = -q.likelihood.log_prob(f, y)
    error = float((f - y)[gap].square().mean().sqrt())
    return {NLL_GAP: float(density[gap].mean()), NLL_DATA: float(density[~gap].mean()), RMSE: error}


def picture(fits: Mapping[str, osc.posteriors.Gaussian], curve: Curve, settings: Settings, seed: int) -> dict[str, Any]:
    """Return the bands of one network along the line."""
    x = torch.linspace(-2.2, 2.2, settings.grid, dtype=torch.double).unsqueeze(1)
    bands = {}
    for label, way in product(STRUCTURES, WAYS):
        found = predicted(fits[label], x, way, settings.samples, seed)
        bands[row(label, way)] = {"mean": rounded(found.mean.flatten()), "sd": rounded(found.variance.sqrt().flatten())}
    data = [rounded(part.flatten()) for part in curve.train]
    return {"x": rounded(x.flatten()), "bands": bands, "data": data, "gap": list(curve.gap)}


@measure.figure
def draw(record: Record) -> Any:
    """Draw the bands of every structure, one row for each network and way to predict."""
    from osculate import plots

    rows: dict[str, dict[str, plots.Band]] = {}
    for name, picture in record.findings.data.items():
        for label, way in product(STRUCTURES, WAYS):
            band = plots.Band(picture["x"], **picture["bands"][row(label, way)])
            rows.setdefault(f"{name}\n{way}", {})[label] = band
    heading = (
        "Which structure knows about the gap? Linearised functions, and networks sampled from the same posteriors\n"
        "(standardised units; where a panel is filled, the error bars are wider than it shows)"
    )
    return plots.band_grid(rows, *picture["data"], (tuple(picture["gap"]),), heading)
