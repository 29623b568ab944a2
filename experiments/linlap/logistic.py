"""Bayesian logistic regression in two dimensions: the mode, Laplace with the probit approximation, and quadrature."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log, pi
from statistics import mean
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from experiments import Claim, Findings, Number, Record, experiment, seeded
from experiments.linlap.modes import find_mode
from osculate.evidence import log_evidence
from osculate.likelihoods import Bernoulli
from osculate.methods.laplace import laplace
from osculate.methods.map import MAP
from osculate.posteriors import Gaussian as Posterior
from osculate.predictive import functional_variance, predict
from osculate.progress import track


@dataclass(frozen=True)
class Settings:
    """Two separable clouds of points around (1, 3) and (3, 1), and p(y|x) = σ(wᵀx) without a bias.

    Args:
        size: points.
        spread: standard deviation of each cloud; the points are drawn again until a line through the origin separates.
        precisions: of the Gaussian prior on w; the first one is that of the maps and the claims.
        side: points of a side of the maps.
        nodes: points of a side of the quadrature.
        draws: of the Monte Carlo integral that the probit approximation is compared with.
        far: distance of the far points from the middle of the data, on a circle.
    """

    size: int = 30
    spread: float = 0.7
    precisions: tuple[float, ...] = (0.01, 0.1, 1.0)
    side: int = 61
    nodes: int = 401
    draws: int = 1_000_000
    far: float = 40.0


PRESETS = {"small": Settings(), "paper": Settings(side=101, nodes=801)}

MIDDLES = ((1.0, 3.0), (3.0, 1.0))
WINDOW = (-4.0, 8.0)
#: Logits and their variances at which the probit approximation is compared.
LOGITS, VARIANCES = tuple(range(13)), (0.25, 1.0, 4.0, 9.0, 16.0, 25.0)
#: Standard deviations of the Gaussian that the quadrature goes to on either side.
REACH = 12.0
#: Angles of the far points.
ANGLES = 72
#: Nodes that carry less of the posterior are left out of predictions.
NEGLIGIBLE = 1e-9
WAYS = ("MAP", "Laplace, probit", "exact")
EVIDENCE, CONFIDENCE, ERROR = "log evidence, nats", "confidence far away", "|p − exact| over the map"
DEVIATION, LOGIT_DATA, LOGIT_FAR = "largest |probit − Monte Carlo|", "sd of the logit, on the data", "far away"
#: What the claims are judged by.
NATS, PROBIT, SURE, UNSURE = 0.3, 0.02, 0.999, 0.9


@dataclass(frozen=True)
class Exact:
    """The posterior over w by quadrature.

    Attributes:
        weights: the nodes that carry it (K, 2).
        shares: of the posterior (K,).
        evidence: log p(D), in nats.
    """

    weights: Float[Tensor, "K 2"]
    shares: Float[Tensor, " K"]
    evidence: float

    @classmethod
    def of(cls, q: Posterior, x: Tensor, y: Tensor, precision: float, settings: Settings) -> "Exact":
        """By the trapezoidal rule on a lattice in the coordinates in which the Gaussian is white."""
        axis = torch.linspace(-REACH, REACH, settings.nodes, dtype=torch.double)
        root = q.precision.colour(torch.eye(2, dtype=torch.double))  # rows: M e_i
        weights = q.mean + torch.cartesian_prod(axis, axis) @ root
        logs = torch.cat([log_joint(part, x, y, precision) for part in weights.split(20_000)])
        cell = 2 * (axis[1] - axis[0]).log() + root.det().abs().log()
        shares = logs.softmax(0)
        kept = shares > NEGLIGIBLE
        return cls(weights[kept], shares[kept], float(logs.logsumexp(0) + cell))

    def probability(self, x: Float[Tensor, "M 2"]) -> Float[Tensor, " M"]:
        """p(y = 1 | x)."""
        return torch.cat([self.shares @ (self.weights @ part.T).sigmoid() for part in x.split(500)])


def log_joint(w: Float[Tensor, "K 2"], x: Tensor, y: Tensor, precision: float) -> Float[Tensor, " K"]:
    """log p(y|w) + log p(w), as the document writes it."""
    signs = 2 * y.squeeze(-1) - 1
    prior = log(precision / (2 * pi)) - 0.5 * precision * w.square().sum(-1)
    return logsigmoid(signs * (w @ x.T)).sum(-1) + prior


def clouds(settings: Settings, seed: int) -> tuple[Tensor, Tensor]:
    """Points (N, 2) and labels (N, 1) that a line through the origin separates."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(settings.size) % 2
    middles = torch.tensor(MIDDLES, dtype=torch.double)[y]
    while True:
        x = middles + settings.spread * torch.randn(settings.size, 2, generator=generator, dtype=torch.double)
        angles = torch.atan2(x[:, 1], x[:, 0])
        if float(angles[y == 1].max()) < float(angles[y == 0].min()):
            return x, y.double().unsqueeze(1)


def fitted(x: Tensor, y: Tensor, precision: float, seed: int) -> Posterior:
    """The Laplace approximation at the mode; its GGN is the Hessian, since the logit is linear in w."""
    with seeded(seed):
        model = nn.Linear(2, 1, bias=False).double()
    find_mode(MAP(model, Bernoulli(), precision), x, y)
    return laplace(model, Bernoulli(), (x, y), structure="full", prior=precision)


@experiment(
    "linlap-logistic",
    "Bayesian logistic regression: the mode, Laplace with the probit approximation, and quadrature",
    "Linearised Laplace tutorial, section 2",
    **PRESETS,
)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Fit and integrate, for each seed and precision."""
    found: dict[tuple[str, str], list[float]] = {("probit", DEVIATION): [deviation(settings)]}
    pictures: list[dict[str, Any]] = []
    tasks = [(seed, precision) for seed in seeds for precision in settings.precisions]
    for seed, precision in track(tasks, "posteriors", len(tasks), progress):
        x, y = clouds(settings, seed)
        q = fitted(x, y, precision, seed)
        exact = Exact.of(q, x, y, precision, settings)
        maps = probabilities(q, exact, lattice(settings))
        for (way, column), value in compare(q, exact, x, maps, settings).items():
            found.setdefault((row(way, precision), column), []).append(value)
        if not pictures:
            pictures.append(_picture(settings, q, exact, x, y, maps))
    numbers = tuple(Number(name, column, tuple(values)) for (name, column), values in found.items())
    return Findings(numbers, claims(found, settings.precisions), pictures[0])


def row(way: str, precision: float) -> str:
    """The label of a row."""
    return f"{way}, prior precision {precision:g}"


def lattice(settings: Settings) -> Float[Tensor, "M 2"]:
    """The points of a map, row by row along the second input."""
    axis = torch.linspace(*WINDOW, settings.side, dtype=torch.double)
    return torch.cartesian_prod(axis, axis).flip(1)


def probabilities(q: Posterior, exact: Exact, x: Float[Tensor, "M 2"]) -> dict[str, Float[Tensor, " M"]]:
    """p(y = 1 | x) in each way."""
    laplacian = predict(q, x, link="probit").mean.squeeze(-1)
    return dict(zip(WAYS, (q.network(x).sigmoid().squeeze(-1), laplacian, exact.probability(x)), strict=True))


def compare(
    q: Posterior, exact: Exact, x: Tensor, maps: Mapping[str, Tensor], settings: Settings
) -> dict[tuple[str, str], float]:
    """The numbers of one posterior, by way and column."""
    angles = torch.arange(ANGLES, dtype=torch.double) * (2 * pi / ANGLES)
    far = x.mean(0) + settings.far * torch.stack([angles.cos(), angles.sin()], 1)
    found = {
        ("Laplace, probit", EVIDENCE): float(log_evidence(q)),
        ("exact", EVIDENCE): exact.evidence,
        ("Laplace, probit", LOGIT_DATA): float(functional_variance(q, x, diagonal=True).sqrt().mean()),
        ("Laplace, probit", LOGIT_FAR): float(functional_variance(q, far, diagonal=True).sqrt().mean()),
    }
    away = probabilities(q, exact, far)
    sure = torch.maximum(away["MAP"], 1 - away["MAP"]) > SURE
    for way in WAYS:
        found[way, CONFIDENCE] = float(torch.maximum(away[way], 1 - away[way])[sure].mean())
        found[way, ERROR] = float((maps[way] - maps["exact"]).abs().mean())
    return found


def deviation(settings: Settings) -> float:
    """The largest error of σ(m / √(1 + πv/8)) for the mean of σ over N(m, v), on a lattice of m and v."""
    z = torch.randn(settings.draws, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    z = torch.cat([z, -z])  # the mean of both is exact in m for v = 0
    worst = 0.0
    for m in LOGITS:
        for v in VARIANCES:
            probit = torch.tensor(m / (1 + pi * v / 8) ** 0.5, dtype=torch.double).sigmoid()
            worst = max(worst, float((probit - (m + v**0.5 * z).sigmoid().mean()).abs()))
    return worst


def claims(found: Mapping[tuple[str, str], Sequence[float]], precisions: Sequence[float]) -> tuple[Claim, ...]:
    """Verdicts from the values over seeds, for the first precision."""
    precision = precisions[0]
    one = {(way, column): found[row(way, precision), column] for way in WAYS for column in (CONFIDENCE, ERROR)}
    pairs = zip(
        found[row("Laplace, probit", precision), EVIDENCE], found[row("exact", precision), EVIDENCE], strict=True
    )
    gaps = [a - b for a, b in pairs]
    worst, laplacian = found["probit", DEVIATION][0], mean(one["Laplace, probit", CONFIDENCE])
    near, away = (mean(found[row("Laplace, probit", precision), column]) for column in (LOGIT_DATA, LOGIT_FAR))
    errors = {way: mean(one[way, ERROR]) for way in WAYS}
    sizes = ", ".join(f"{mean(found[row('Laplace, probit', p), CONFIDENCE]):.3f} at {p:g}" for p in precisions)
    return (
        Claim.judged(
            f"The Laplace log evidence is within {NATS} nats of quadrature",
            max(abs(gap) for gap in gaps) <= NATS,
            f"Laplace − quadrature by seed: {', '.join(f'{gap:+.2f}' for gap in gaps)} nats at prior precision "
            f"{precision:g}. Separable data bound the weights from one side alone, and the posterior has a long tail "
            "on the other, which the Gaussian misses; larger precisions have smaller gaps (table).",
        ),
        Claim.judged(
            f"The probit approximation is within {PROBIT} of Monte Carlo for variances up to {max(VARIANCES):g}",
            worst <= PROBIT,
            f"Largest difference {worst:.4f} over logits 0 to {max(LOGITS)} and variances {min(VARIANCES):g} to "
            f"{max(VARIANCES):g}, against antithetic draws.",
        ),
        Claim.judged(
            "Far from the data the mode is overly confident, and the Laplace approximation is more conservative",
            laplacian < UNSURE and mean(one["MAP", CONFIDENCE]) > SURE,
            f"Mean confidence on a far circle where the mode is surer than {SURE}: mode "
            f"{mean(one['MAP', CONFIDENCE]):.4f}, Laplace {laplacian:.3f} (below {UNSURE} counts; by precision: "
            f"{sizes}). Exact: {mean(one['exact', CONFIDENCE]):.3f}: the Gaussian puts mass on lines that do not "
            "separate the data, and is more conservative than Bayes' rule asks for.",
        ),
        Claim.judged(
            "Uncertainty is higher far from the data",
            away > near,
            f"Mean posterior standard deviation of the logit: {near:.2f} on the data, {away:.1f} far away.",
        ),
        Claim.judged(
            "Laplace with the probit approximation resembles the exact predictive more than the mode does",
            errors["Laplace, probit"] < errors["MAP"],
            f"Mean absolute difference from the exact probabilities over the map: mode {errors['MAP']:.4f}, Laplace "
            f"{errors['Laplace, probit']:.4f}. The Gaussian is symmetric about the mode, and reaches across zero to "
            "weights that tell the classes the wrong way round; the true posterior falls off before. With larger "
            "precisions of the prior Laplace comes closer (table).",
        ),
    )


def _picture(
    settings: Settings, q: Posterior, exact: Exact, x: Tensor, y: Tensor, maps: Mapping[str, Tensor]
) -> dict[str, Any]:
    """The maps of one seed, and the posterior over w on a lattice."""
    precision = settings.precisions[0]
    middle = exact.shares @ exact.weights
    reach = 4.5 * (exact.shares @ (exact.weights - middle).square()).sqrt()
    axes = [
        torch.linspace(float(m - r), float(m + r), settings.side).double() for m, r in zip(middle, reach, strict=True)
    ]
    w = torch.cartesian_prod(axes[1], axes[0]).flip(1)
    densities = {
        "exact": log_joint(w, x, y, precision) - exact.evidence,
        "Gaussian": q.log_prob(w),
    }
    return {
        "precision": precision,
        "x": _rounded(x),
        "y": y.squeeze(-1).tolist(),
        "maps": {way: _rounded(p.reshape(settings.side, -1)) for way, p in maps.items()},
        "weights": [_rounded(axis) for axis in axes],
        "densities": {name: _rounded(d.exp().reshape(settings.side, -1)) for name, d in densities.items()},
        "mode": _rounded(q.mean),
    }


def _rounded(values: Tensor) -> Any:
    return (values.detach() * 1e5).round().div(1e5).tolist()


@measure.figure
def draw(record: Record) -> Any:
    """The posterior beside its Gaussian, and the three predictives."""
    from experiments.linlap import figures

    data = record.findings.data
    side = len(data["maps"]["MAP"])
    axis = np.linspace(*WINDOW, side)
    densities = {name: np.array(values) for name, values in data["densities"].items()}
    weights = (np.array(data["weights"][0]), np.array(data["weights"][1]))
    return figures.logistic_planes(
        (weights, densities, np.array(data["mode"])),
        {way: np.array(values) for way, values in data["maps"].items()},
        (axis, axis),
        np.array(data["x"]),
        np.array(data["y"]),
    )
