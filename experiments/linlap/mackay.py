"""MacKay's evidence framework on one input: a 1-6-1 network with and without it, and networks of growing width."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

import osculate as osc
from experiments import Claim, Findings, Record, Runner, Table, experiment, seeded, train


@dataclass(frozen=True)
class Settings:
    """The data y = sin(4x + 1) + noise, inputs uniform on [-1, 1], and the networks.

    Args:
        data: Number of points.
        noise: Standard deviation of their noise.
        width: Hidden tanh units of the network with and without regularisation.
        widths: Hidden units of the networks whose γ is compared.
        starts: Initial noise scales of training with the evidence; the result of largest evidence counts.
        steps: Most steps of Levenberg–Marquardt.
        grid: Number of points on [-1, 1] at which the error against the sine is measured.
    """

    data: int = 30
    noise: float = 0.2
    width: int = 6
    widths: tuple[int, ...] = (3, 6, 12, 25, 50)
    starts: tuple[float, ...] = (0.1, 1.0)
    steps: int = 600
    grid: int = 201


WITH, WITHOUT = "with evidence", "without regularisation"
#: A prior precision that is as good as no prior.
NONE = 1e-6
GAMMA, EVIDENCE, ERROR, NOISE, SIZE = "γ", "log evidence", "error against the sine", "noise scale", "parameters"
HESSIAN, NEGATIVE = "log evidence, full Hessian", "negative eigenvalues of the Hessian of the data term"
FIXED, SLOPE = "largest |α‖w‖² − γ|", "largest error of a derivative"
#: Bounds for a fixed point and for a derivative.
FIXED_POINT, DERIVATIVE = 1e-3, 1e-4


@dataclass(frozen=True)
class Toy:
    """The points of one seed.

    Attributes:
        x: Inputs (N, 1).
        y: Targets (N, 1).
        grid: Inputs (G, 1) between -1 and 1.
    """

    x: Tensor
    y: Tensor
    grid: Tensor

    @classmethod
    def drawn(cls, settings: Settings, seed: int) -> "Toy":
        """Draw the points of a seed."""
        generator = torch.Generator().manual_seed(seed)
        x = 2 * torch.rand(settings.data, 1, generator=generator, dtype=torch.double) - 1
        noise = settings.noise * torch.randn(x.shape, generator=generator, dtype=torch.double)
        return cls(x, sine(x) + noise, torch.linspace(-1, 1, settings.grid, dtype=torch.double).unsqueeze(1))

    def error(self, mean: Tensor) -> float:
        """Return the root mean square distance of a curve on the grid from the sine."""
        return (mean - sine(self.grid)).square().mean().sqrt().item()


def sine(x: Tensor) -> Tensor:
    """Return the function behind the data."""
    return torch.sin(4 * x + 1)


@experiment(
    "linlap-mackay",
    "MacKay's evidence: a small network with and without it, γ and the evidence against the width",
    "Linearised Laplace tutorial, section 3 [mackay1992; foresee1997]",
    # the slides print no setting: more points on the curves, trained for longer
    paper=Settings(widths=(2, 3, 4, 6, 8, 12, 18, 25, 35, 50), steps=3000),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Train networks of every width with the evidence, and the first one without."""
    table, curves = Table(), dict[str, Any]()
    widths = tuple(dict.fromkeys((settings.width, *settings.widths)))
    for rows, picture in runner.each("networks", product(seeds, widths), partial(compared, settings)):
        table.extend(rows)
        curves = curves or picture
    values: dict[str, dict[str, list[float]]] = {}
    for (row, column), found in table.items():
        values.setdefault(row, {})[column] = found
    return Findings(table.numbers(), claims(values), {"curves": curves, "values": values})


def compared(settings: Settings, seed: int, width: int) -> tuple[dict[str, dict[str, float]], dict[str, Any]]:
    """Return the numbers of one network by row, and the curves of the figure for the first width."""
    toy = Toy.drawn(settings, seed)
    q, model = trained(settings, toy, width, seed, regularised=True)
    rows = {label(width): scores(q, model, toy)}
    if width != settings.width:
        return rows, {}
    plain, _ = trained(settings, toy, width, seed, regularised=False)
    rows[WITHOUT] = {ERROR: toy.error(osc.predict(plain, toy.grid).mean), SIZE: float(len(plain.mean))}
    return rows, shown(toy, {WITHOUT: plain, WITH: q})


def label(width: int) -> str:
    """Return the row of a width."""
    return f"1-{width}-1"


def trained(
    settings: Settings, toy: Toy, width: int, seed: int, regularised: bool
) -> tuple[osc.posteriors.Gaussian, nn.Module]:
    """Train with tuned precisions and noise, or with next to no prior and the true noise, from the same weights."""
    ends = []
    for noise in settings.starts if regularised else (settings.noise,):
        with seeded(seed):
            model = osc.networks.MLP(1, (width,), 1).double()
        prior = osc.priors.Layerwise(1.0) if regularised else NONE
        likelihood = osc.likelihoods.Gaussian(noise)
        method = osc.methods.LevenbergMarquardt(model, likelihood, prior, evidence=regularised)
        ends.append((train(method, (toy.x, toy.y), epochs=settings.steps).posterior, model))
    return max(ends, key=lambda end: osc.log_evidence(end[0]).item())


def scores(q: osc.posteriors.Gaussian, model: nn.Module, toy: Toy) -> dict[str, float]:
    """Return γ, the evidence and the checks of one network at its mode."""
    hessian = osc.curvature.reference.hessian(model, q.likelihood, toy.x, toy.y)
    delta = q.prior.vector(q.network.space).double()
    values = torch.linalg.eigvalsh(hessian)
    whole = torch.linalg.eigvalsh(hessian + delta.diag())
    found = {
        GAMMA: sum(osc.evidence.effective_parameters(q).values()),
        SIZE: float(len(q.mean)),
        EVIDENCE: osc.log_evidence(q).item(),
        NOISE: noise_scale(q),
        ERROR: toy.error(osc.predict(q, toy.grid).mean),
        NEGATIVE: float((values < -1e-9 * values.max()).sum()),
        FIXED: fixed_point(osc.maximise_evidence(q, tolerance=1e-7, max_steps=1000)),
        SLOPE: slope(q),
    }
    if bool((whole > 0).all()):
        ratio = whole.log().sum() - delta.log().sum()
        found[HESSIAN] = found[EVIDENCE] + 0.5 * (q.precision.log_det_ratio() - ratio).item()
    return found


def noise_scale(q: osc.posteriors.Gaussian) -> float:
    """Return the noise scale of a posterior."""
    assert isinstance(q.likelihood, osc.likelihoods.Gaussian)
    return float(q.likelihood.scale)


def fixed_point(q: osc.posteriors.Gaussian) -> float:
    """Return the largest |α‖w‖² − γ| of any group."""
    gamma = torch.tensor(list(osc.evidence.effective_parameters(q).values()), dtype=torch.double)
    weighted = q.prior.precision.double() * q.prior.totals(q.mean.double().square(), q.network.space)
    return (weighted - gamma).abs().max().item()


def slope(q: osc.posteriors.Gaussian, step: float = 1e-4) -> float:
    """Return the largest error of the derivatives of the log evidence in log α and log β, by finite differences.

    Relative to 1 + |derivative|.
    """
    start = torch.cat([q.prior.precision.double(), torch.tensor([noise_scale(q) ** -2], dtype=torch.double)]).log()

    def value(logs: Float[Tensor, " D"]) -> Tensor:
        prior = q.prior.with_precision(logs[:-1].exp())
        return osc.log_evidence(q.replace(prior=prior, likelihood=osc.likelihoods.Gaussian((-0.5 * logs[-1]).exp())))

    leaf = start.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(value(leaf), leaf)
    with torch.no_grad():
        moves = step * torch.eye(len(start), dtype=torch.double)
        differences = torch.stack([(value(start + move) - value(start - move)) / (2 * step) for move in moves])
    return ((gradient - differences).abs() / (1 + gradient.abs())).max().item()


def shown(toy: Toy, posteriors: Mapping[str, osc.posteriors.Gaussian]) -> dict[str, Any]:
    """Return the curves of the figure; and α, γ and the size of each group, and β, of the posterior with evidence."""
    bands = {}
    for name, q in posteriors.items():
        predictive = osc.predict(q, toy.grid)
        sd = torch.as_tensor(predictive.stddev).clamp(max=10.0)  # without a prior it is as good as infinite in places
        bands[name] = {"mean": predictive.mean.squeeze(1).tolist(), "sd": sd.squeeze(1).tolist()}
    q = posteriors[WITH]
    gamma = osc.evidence.effective_parameters(q)
    groups = [
        {"name": name, "alpha": alpha, "gamma": gamma[name], "size": size}
        for name, alpha, size in zip(gamma, q.prior.precision.tolist(), q.network.space.sizes, strict=True)
    ]
    groups.append({"name": "β", "alpha": noise_scale(q) ** -2, "gamma": sum(gamma.values()), "size": 0})
    x, y, grid, curve = (each.squeeze(1).tolist() for each in (toy.x, toy.y, toy.grid, sine(toy.grid)))
    return {"x": grid, "sine": curve, "data": [x, y], "bands": bands, "groups": groups}


def claims(values: Mapping[str, Mapping[str, Sequence[float]]]) -> Iterator[Claim]:
    """Yield the claims that need words, from the values over seeds by row and column."""

    def each(column: str) -> list[float]:
        return [value for row in values.values() if GAMMA in row for value in row.get(column, ())]

    def checked(text: str, column: str, limit: float) -> Claim:
        found = each(column)
        evidence = f"{max(found):.1e} at most, in {len(found)} networks; below {limit:g} counts."
        return Claim.over_seeds(text, evidence)

    number = len(each(EVIDENCE))
    shares = [gamma / size for gamma, size in zip(each(GAMMA), each(SIZE), strict=True)]
    yield Claim.over_seeds(
        "regularisation by the evidence",
        f"From the same weights, without: a prior precision of {NONE:g} and the true noise.",
    )
    yield Claim.over_seeds(
        "evidence against the width",
        "Each network is at its own mode. With one precision a layer a wide network comes to the same function as a "
        "narrow one.",
    )
    yield Claim.over_seeds(
        "definiteness of the Hessian",
        f"The Hessian of the data term has up to {max(each(NEGATIVE)):.0f} negative eigenvalues. With the prior it "
        f"stays indefinite in {number - len(each(HESSIAN))} of {number} networks, which have no evidence by it. Every "
        "γ and evidence here is that of the Gauss–Newton matrix.",
    )
    yield Claim.over_seeds(
        "range of γ", f"In {number} networks; the largest share of the parameters is {max(shares):.2f}."
    )
    yield checked("fixed point of the evidence", FIXED, FIXED_POINT)
    yield checked("derivatives of the evidence in log α and log β", SLOPE, DERIVATIVE)


@measure.figure
def draw(record: Record) -> Any:
    """Draw both fits, then γ and the evidence against the width."""
    from experiments.linlap import figures

    data, settings = record.findings.data, record.setup.settings
    rows = {width: data["values"][label(width)] for width in settings["widths"]}
    return figures.evidence_of_widths(
        data["curves"],
        {name: {width: row[name] for width, row in rows.items()} for name in (GAMMA, EVIDENCE)},
        {width: row[SIZE][0] for width, row in rows.items()},
        f"A 1-{settings['width']}-1 network with and without the evidence, and γ and the evidence against the width",
    )
