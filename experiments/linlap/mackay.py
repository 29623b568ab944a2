"""MacKay's evidence framework on one input: a 1-6-1 network with and without it, and networks of growing width."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from experiments import Claim, Findings, Number, Record, experiment, seeded
from osculate.curvature import reference
from osculate.evidence import effective_parameters, log_evidence, maximise_evidence
from osculate.likelihoods import Gaussian
from osculate.methods import LevenbergMarquardt
from osculate.networks import MLP
from osculate.posteriors import Gaussian as Posterior
from osculate.predictive import predict
from osculate.priors import Layerwise
from osculate.progress import track
from osculate.training import train


@dataclass(frozen=True)
class Settings:
    """The data y = sin(4x + 1) + noise, inputs uniform on [-1, 1], and the networks.

    Args:
        data: number of points.
        noise: standard deviation of their noise.
        width: hidden tanh units of the network with and without regularisation.
        widths: of those whose γ is compared.
        starts: noise scales that training with the evidence starts from; the end of largest evidence counts.
        steps: of Levenberg–Marquardt at most.
        grid: points on [-1, 1] at which the error against the sine is measured.
    """

    data: int = 30
    noise: float = 0.2
    width: int = 6
    widths: tuple[int, ...] = (3, 6, 12, 25, 50)
    starts: tuple[float, ...] = (0.1, 1.0)
    steps: int = 600
    grid: int = 201


PRESETS = {
    "small": Settings(),
    # the slides print no setting: more points on the curves, trained for longer
    "paper": Settings(widths=(2, 3, 4, 6, 8, 12, 18, 25, 35, 50), steps=3000),
}

WITH, WITHOUT = "with evidence", "without regularisation"
#: The prior precision that stands for none.
NONE = 1e-6
GAMMA, EVIDENCE, ERROR, NOISE, SIZE = "γ", "log evidence", "error against the sine", "noise scale", "parameters"
HESSIAN, NEGATIVE = "log evidence, full Hessian", "negative eigenvalues of the Hessian of the data term"
FIXED, SLOPE = "largest |α‖w‖² − γ|", "largest error of a derivative"
#: What a fixed point and a derivative must reach, and what counts as the same γ or as a peak.
FIXED_POINT, DERIVATIVE, SAME, PEAK = 1e-3, 1e-4, 0.15, 1.0


@dataclass(frozen=True)
class Toy:
    """The points of one seed.

    Attributes:
        x: inputs (N, 1).
        y: targets (N, 1).
        grid: inputs (G, 1) between -1 and 1.
    """

    x: Tensor
    y: Tensor
    grid: Tensor

    @classmethod
    def drawn(cls, settings: Settings, seed: int) -> "Toy":
        """Those of a seed."""
        generator = torch.Generator().manual_seed(seed)
        x = 2 * torch.rand(settings.data, 1, generator=generator, dtype=torch.double) - 1
        noise = settings.noise * torch.randn(x.shape, generator=generator, dtype=torch.double)
        return cls(x, sine(x) + noise, torch.linspace(-1, 1, settings.grid, dtype=torch.double).unsqueeze(1))

    def error(self, mean: Tensor) -> float:
        """Root mean square distance of a curve on the grid from the sine."""
        return (mean - sine(self.grid)).square().mean().sqrt().item()


def sine(x: Tensor) -> Tensor:
    """The function behind the data."""
    return torch.sin(4 * x + 1)


@experiment(
    "linlap-mackay",
    "MacKay's evidence: a small network with and without it, γ and the evidence against the width",
    "Linearised Laplace tutorial, section 3 [mackay1992; foresee1997]",
    **PRESETS,
)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Networks of every width with the evidence, and the first one without."""
    values: dict[str, dict[str, list[float]]] = {}
    curves: dict[str, Any] = {}
    widths = tuple(dict.fromkeys((settings.width, *settings.widths)))
    todo = [(seed, width) for seed in seeds for width in widths]
    for seed, width in track(todo, "networks", len(todo), progress):
        toy = Toy.drawn(settings, seed)
        q, model = _trained(settings, toy, width, seed, regularised=True)
        _append(values, _row(width), _with_evidence(q, model, toy))
        if width == settings.width:
            plain, _ = _trained(settings, toy, width, seed, regularised=False)
            _append(values, WITHOUT, {ERROR: toy.error(predict(plain, toy.grid).mean), SIZE: float(len(plain.mean))})
            if seed == seeds[0]:
                curves = _curves(toy, {WITHOUT: plain, WITH: q})
                curves["groups"] = _groups(q)
    numbers = [
        Number(row, column, tuple(found)) for row, columns in values.items() for column, found in columns.items()
    ]
    return Findings(tuple(numbers), claims(values, settings), {"curves": curves, "values": values})


def _row(width: int) -> str:
    return f"1-{width}-1"


def _append(values: dict[str, dict[str, list[float]]], row: str, found: Mapping[str, float]) -> None:
    for column, value in found.items():
        values.setdefault(row, {}).setdefault(column, []).append(value)


def _trained(settings: Settings, toy: Toy, width: int, seed: int, regularised: bool) -> tuple[Posterior, nn.Module]:
    """A network from the same start, with tuned precisions and noise, or with next to no prior and the true noise."""
    ends = []
    for noise in settings.starts if regularised else (settings.noise,):
        with seeded(seed):
            model = MLP(1, (width,), 1).double()
        prior = Layerwise(1.0) if regularised else NONE
        method = LevenbergMarquardt(model, Gaussian(noise), prior, evidence=regularised)
        posterior = train(method, (toy.x, toy.y), epochs=settings.steps, progress=False).posterior
        ends.append((posterior, model))
    return max(ends, key=lambda end: log_evidence(end[0]).item())


def _with_evidence(q: Posterior, model: nn.Module, toy: Toy) -> dict[str, float]:
    """γ, the evidence and the checks of one network at its mode."""
    gamma = effective_parameters(q)
    hessian = reference.hessian(model, q.likelihood, toy.x, toy.y)
    delta = q.prior.vector(q.network.space).double()
    values = torch.linalg.eigvalsh(hessian)
    whole = torch.linalg.eigvalsh(hessian + delta.diag())
    ratio = whole.log().sum() - delta.log().sum() if bool((whole > 0).all()) else None
    found = {
        GAMMA: sum(gamma.values()),
        SIZE: float(len(q.mean)),
        EVIDENCE: log_evidence(q).item(),
        NOISE: _noise(q),
        ERROR: toy.error(predict(q, toy.grid).mean),
        NEGATIVE: float((values < -1e-9 * values.max()).sum()),
        FIXED: fixed_point(maximise_evidence(q, tolerance=1e-7, max_steps=1000)),
        SLOPE: slope(q),
    }
    if ratio is not None:
        found[HESSIAN] = found[EVIDENCE] + 0.5 * (q.precision.log_det_ratio() - ratio).item()
    return found


def _noise(q: Posterior) -> float:
    assert isinstance(q.likelihood, Gaussian)
    return float(q.likelihood.scale)


def fixed_point(q: Posterior) -> float:
    """The largest |α‖w‖² − γ| of any group."""
    gamma = torch.tensor(list(effective_parameters(q).values()), dtype=torch.double)
    weighted = q.prior.precision.double() * q.prior.totals(q.mean.double().square(), q.network.space)
    return (weighted - gamma).abs().max().item()


def slope(q: Posterior, step: float = 1e-4) -> float:
    """The largest difference of the derivatives of the log evidence in log α and log β from finite differences.

    Relative to 1 + |derivative|.
    """
    start = torch.cat([q.prior.precision.double(), torch.tensor([_noise(q) ** -2], dtype=torch.double)]).log()

    def value(logs: Float[Tensor, " D"]) -> Tensor:
        prior = q.prior.with_precision(logs[:-1].exp())
        return log_evidence(q.replace(prior=prior, likelihood=Gaussian((-0.5 * logs[-1]).exp())))

    leaf = start.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(value(leaf), leaf)
    with torch.no_grad():
        moves = step * torch.eye(len(start), dtype=torch.double)
        differences = torch.stack([(value(start + move) - value(start - move)) / (2 * step) for move in moves])
    return ((gradient - differences).abs() / (1 + gradient.abs())).max().item()


def _curves(toy: Toy, posteriors: Mapping[str, Posterior]) -> dict[str, Any]:
    """What the figure draws of the first seed."""
    bands = {}
    for name, q in posteriors.items():
        y = predict(q, toy.grid)
        sd = torch.as_tensor(y.stddev).clamp(max=10.0)  # without a prior it is as good as infinite in places
        bands[name] = {"mean": y.mean.squeeze(1).tolist(), "sd": sd.squeeze(1).tolist()}
    line = {"x": toy.grid.squeeze(1).tolist(), "sine": sine(toy.grid).squeeze(1).tolist()}
    return {**line, "data": [toy.x.squeeze(1).tolist(), toy.y.squeeze(1).tolist()], "bands": bands}


def _groups(q: Posterior) -> list[dict[str, Any]]:
    """α, γ and the size of each group, and β."""
    gamma = effective_parameters(q)
    groups = [
        {"name": name, "alpha": alpha, "gamma": gamma[name], "size": size}
        for name, alpha, size in zip(gamma, q.prior.precision.tolist(), q.network.space.sizes, strict=True)
    ]
    return [*groups, {"name": "β", "alpha": _noise(q) ** -2, "gamma": sum(gamma.values()), "size": 0}]


def claims(values: Mapping[str, Mapping[str, Sequence[float]]], settings: Settings) -> tuple[Claim, ...]:
    """Verdicts from the values by row and column, one a seed.

    Args:
        values: what was measured.
        settings: the widths.
    """
    rows = [values.get(_row(width), {}) for width in settings.widths]
    return (
        _regularisation(values, settings),
        _saturates(rows, settings),
        _plateau(rows, settings),
        _hessian(rows, settings),
        _bounded(values),
        _checked(values, FIXED, FIXED_POINT, "At the fixed point |α‖w‖² − γ| is below 1e-3 for every group"),
        _checked(
            values,
            SLOPE,
            DERIVATIVE,
            "The derivatives of the log evidence in log α and log β are those of finite differences, within 1e-4",
        ),
    )


def _list(values: Sequence[float], digits: int) -> str:
    return ", ".join(f"{value:.{digits}f}" for value in values)


def _regularisation(values: Mapping[str, Mapping[str, Sequence[float]]], settings: Settings) -> Claim:
    plain, tuned = values.get(WITHOUT, {}).get(ERROR, ()), values.get(_row(settings.width), {}).get(ERROR, ())
    pairs = list(zip(plain, tuned, strict=True))
    return Claim.judged(
        f"Bayesian regularisation keeps the {_row(settings.width)} network from following the noise",
        all(a > b for a, b in pairs) if len(pairs) > 1 else None,
        "error against the sine, without and with: "
        + ("; ".join(f"{a:.3f} and {b:.3f}" for a, b in pairs) or "not measured")
        + f"; from the same weights, without: a prior precision of {NONE:g} and the true noise.",
    )


def _saturates(rows: Sequence[Mapping[str, Sequence[float]]], settings: Settings) -> Claim:
    found = [mean(row[GAMMA]) for row in rows if row.get(GAMMA)]
    size = [mean(row[SIZE]) for row in rows if row.get(SIZE)]
    return Claim.judged(
        "If a larger network has the same γ, the smaller one was enough: γ saturates with the width",
        abs(found[-1] - found[-2]) <= SAME * found[-2] if len(found) > 2 else None,
        f"γ = {_list(found, 2)} for {_list(size, 0)} parameters "
        f"(widths {', '.join(map(str, settings.widths))}); within {SAME:.0%} between the last two counts.",
    )


def _plateau(rows: Sequence[Mapping[str, Sequence[float]]], settings: Settings) -> Claim:
    found = [mean(row[EVIDENCE]) for row in rows if row.get(EVIDENCE)]
    return Claim.judged(
        "The evidence peaks or reaches a plateau: it does not go on rising with the width",
        max(found) - found[-1] >= 0 and found[-1] - found[-2] <= PEAK if len(found) > 2 else None,
        f"log evidence {_list(found, 1)} for widths "
        f"{', '.join(map(str, settings.widths))}, each at its own mode; a rise of at most {PEAK:g} nat over the last "
        "step counts. With one precision a layer a wide network comes to the same function as a narrow one.",
    )


def _hessian(rows: Sequence[Mapping[str, Sequence[float]]], settings: Settings) -> Claim:
    negative = [mean(row[NEGATIVE]) for row in rows if row.get(NEGATIVE)]
    whole = sum(len(row.get(EVIDENCE, ())) for row in rows)
    indefinite = whole - sum(len(row.get(HESSIAN, ())) for row in rows)
    return Claim.judged(
        "The Hessian may not be positive definite; the generalised Gauss–Newton matrix always is",
        max(negative) > 0 if negative else None,
        f"the Hessian of the data term has {_list(negative, 1)} negative eigenvalues at the modes of widths "
        f"{', '.join(map(str, settings.widths))}; with the prior it stays indefinite in {indefinite} of {whole} "
        "networks, which have no evidence by it. Every γ and evidence here is that of the Gauss–Newton matrix.",
    )


def _bounded(values: Mapping[str, Mapping[str, Sequence[float]]]) -> Claim:
    pairs = [pair for row in values.values() if GAMMA in row for pair in zip(row[GAMMA], row[SIZE], strict=True)]
    return Claim.judged(
        "γ lies between 0 and the number of parameters",
        all(0 <= gamma <= size for gamma, size in pairs) if pairs else None,
        f"in {len(pairs)} networks; the largest share is {max((g / s for g, s in pairs), default=0.0):.2f}.",
    )


def _checked(values: Mapping[str, Mapping[str, Sequence[float]]], column: str, limit: float, text: str) -> Claim:
    found = [value for row in values.values() for value in row.get(column, ())]
    return Claim.judged(
        text,
        max(found) < limit if found else None,
        f"{max(found):.1e} at most, in {len(found)} networks." if found else "not measured.",
    )


@measure.figure
def draw(record: Record) -> Any:
    """Both fits, then γ and evidence against the width."""
    from experiments.linlap import figures

    data = record.findings.data
    rows = {width: data["values"][_row(width)] for width in record.setup.settings["widths"]}
    sizes = {width: row[SIZE][0] for width, row in rows.items()}
    return figures.evidence_of_widths(
        data["curves"],
        {name: {width: row[name] for width, row in rows.items()} for name in (GAMMA, EVIDENCE)},
        sizes,
        f"What the evidence does to a 1-{record.setup.settings['width']}-1 network, and what γ says of its width",
    )
