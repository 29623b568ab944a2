"""The evidence by posterior samples, and the solvers behind them, against exact variances on a small network."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

import osculate as osc
from experiments import Claim, Findings, Record, Runner, Table, experiment, seeded
from experiments.linlap.modes import find_mode
from osculate.evidence.em import PosteriorDraws


@dataclass(frozen=True)
class Settings:
    """Three classes in the plane, a network with one hidden layer, and numbers of samples.

    Args:
        size: Number of data.
        width: Hidden units; 16 make 99 parameters.
        precision: Prior precision for training and for the comparison of solvers and samples.
        ranks: Ranks of the sketch, preconditioner of the solves and control variate of γ; claims use the last.
        samples: Numbers of samples for the evidence; claims use the last.
        covariance: Number of samples for their covariance.
        points: Number of inputs at which the solvers' variances are compared.
    """

    size: int = 200
    width: int = 16
    precision: float = 1.0
    ranks: tuple[int, ...] = (4, 20)
    samples: tuple[int, ...] = (4, 16, 64)
    covariance: int = 2000
    points: int = 5


PRECISION, GAMMA = "|precision / exact − 1|", "|γ / exact − 1|"
DIFFERENCE, COVARIANCE, EXPECTED = "largest relative difference", "covariance: relative error", "its sampling error"
EXACT, CG, SDD, DRAWS = "exact variances", "conjugate gradients", "stochastic dual descent", "samples"
VALUE, EFFECTIVE = "prior precision", "γ"
#: Panels of the figure.
TITLES = {"prior precision": PRECISION, "number of effective parameters γ": GAMMA}
LIKELIHOOD = osc.likelihoods.Categorical()
#: Laplace approximation of the network by its structure.
Fit = Callable[..., osc.posteriors.Gaussian]
Data = tuple[Tensor, Tensor]
#: Tolerance of the solves for the evidence.
TOLERANCE = 1e-4
#: Errors that the figure marks as tolerated, and bounds for the solvers.
WITHIN = {PRECISION: 0.05, GAMMA: 0.01, CG: 1e-4, SDD: 2e-2}


@experiment(
    "linlap-em",
    "The evidence by posterior samples, and the solvers behind them, against exact variances",
    "Linearised Laplace tutorial, section 6, for large problems [antoran2023; lin2024]",
    paper=Settings(samples=(4, 16, 64, 256), covariance=20_000, points=50),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Train for each seed, and compare evidence, solvers and samples with exact results."""
    table = Table()
    for found in runner.each("networks", zip(seeds), partial(compared, settings)):
        table.append(found)
    data = {"samples": list(settings.samples), "ranks": list(settings.ranks)}
    return Findings(table.numbers(), claims(table), data)


def compared(settings: Settings, seed: int) -> dict[tuple[str, str], float]:
    """Train one network, and compare evidence, solvers and samples with exact results."""
    model, x, y = trained(settings, seed)
    fit = partial(osc.laplace, model, LIKELIHOOD, (x, y), prior=settings.precision, refine=False)
    return evidence(fit, (x, y), settings, seed) | solvers(fit, settings) | covariance(fit, settings, seed)


def trained(settings: Settings, seed: int) -> tuple[osc.networks.MLP, Tensor, Tensor]:
    """Return a network at its mode, and its data."""
    with seeded(seed):
        x = torch.randn(settings.size, 2, dtype=torch.double)
        logits = torch.stack([1.5 * x[:, 0], x[:, 1] ** 2 - 1, (2 * x[:, 0]).sin() * x[:, 1]], 1)
        y = torch.distributions.Categorical(logits=1.5 * logits).sample()
        model = osc.networks.MLP(2, (settings.width,), 3).double()
    find_mode(osc.methods.MAP(model, LIKELIHOOD, settings.precision), x, y)
    return model, x, y


def rank_and_samples(rank: int, samples: int) -> str:
    """Return the label of a row."""
    return f"{samples} samples, rank {rank}"


def evidence(fit: Fit, data: Data, settings: Settings, seed: int) -> dict[tuple[str, str], float]:
    """Compare the precision of largest evidence and its γ by samples with those by exact variances."""
    exact = osc.maximise_evidence(fit(structure="full"), mode="linear", data=data, tolerance=1e-4)
    value, gamma = float(exact.prior.precision), sum(osc.evidence.effective_parameters(exact).values())
    found = {(EXACT, VALUE): value, (EXACT, EFFECTIVE): gamma}
    for rank in settings.ranks:
        q = fit(structure=osc.structures.MatrixFree(tolerance=TOLERANCE, rank=rank))
        for samples in settings.samples:
            draws = [torch.Generator().manual_seed(seed) for _ in range(2)]
            sampled = osc.evidence.expectation_maximisation(q, samples, generator=draws[0])
            row = rank_and_samples(rank, samples)
            found[row, PRECISION] = abs(float(sampled.prior.precision) / value - 1)
            found[row, GAMMA] = abs(float(PosteriorDraws.of(sampled, samples, draws[1]).mean(sampled)[0]) / gamma - 1)
    return found


def solvers(fit: Fit, settings: Settings) -> dict[tuple[str, str], float]:
    """Compare functional variances by iterative solvers, at their own tolerances, with those by a Cholesky factor."""
    x = torch.linspace(-2, 2, settings.points, dtype=torch.double).unsqueeze(1).expand(-1, 2)
    rank = settings.ranks[0]
    structures = ("full", osc.structures.MatrixFree(rank=rank), osc.structures.MatrixFree(rank=rank, solver="sdd"))
    exact, *found = (osc.functional_variance(fit(structure=structure), x, diagonal=True) for structure in structures)
    return {(way, DIFFERENCE): float((v / exact - 1).abs().max()) for way, v in zip((CG, SDD), found, strict=True)}


def covariance(fit: Fit, settings: Settings, seed: int) -> dict[tuple[str, str], float]:
    """Return the error of the samples' covariance in Frobenius norm, and that expected of independent exact samples."""
    q = fit(structure=osc.structures.MatrixFree(samples_by="optimise", rank=settings.ranks[0]))
    exact = fit(structure="full").precision.solve(torch.eye(len(q.mean), dtype=torch.double))
    offsets = q.sample(settings.covariance, torch.Generator().manual_seed(seed)) - q.mean
    error = (offsets.T @ offsets / settings.covariance - exact).norm() / exact.norm()
    expected = ((1 + exact.trace() ** 2 / exact.square().sum()) / settings.covariance) ** 0.5
    row = f"{settings.covariance} {DRAWS}"
    return {(row, COVARIANCE): float(error), (row, EXPECTED): float(expected)}


def claims(found: Mapping[tuple[str, str], Sequence[float]]) -> Iterator[Claim]:
    """Yield the claims that need words, from the values over seeds by row and column."""
    yield Claim.over_seeds(
        "γ by samples",
        "Without the sketch as a control, 64 samples have a standard error of about 3 % of γ.",
    )
    for way in (CG, SDD):
        worst = max(found[way, DIFFERENCE])
        yield Claim.over_seeds(
            f"variances by {way}",
            f"Largest relative difference over seeds from those of a Cholesky factor {worst:.1e}, in double precision; "
            f"at most {WITHIN[way]:g} counts.",
        )
    yield Claim.over_seeds(
        "covariance of samples",
        "The error is in Frobenius norm. Independent samples from the exact posterior would have the sampling error of "
        "the table, which depends on the number of directions that vary and on nothing that a sampler does.",
    )


@measure.figure
def draw(record: Record) -> Any:
    """Errors against the number of samples."""
    from experiments.linlap import figures

    counts, means = record.findings.data["samples"], record.means
    panels = {
        title: {
            f"sketch of rank {rank}": (counts, [means[rank_and_samples(rank, count), column] for count in counts])
            for rank in record.findings.data["ranks"]
        }
        for title, column in TITLES.items()
    }
    wanted = {title: WITHIN[column] for title, column in TITLES.items()}
    return figures.error_curves(panels, wanted, "The evidence by posterior samples: how many are enough?")
