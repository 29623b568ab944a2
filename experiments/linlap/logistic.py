"""Bayesian logistic regression in two dimensions: the mode, Laplace with the probit approximation, and quadrature."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from math import log, pi
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

import osculate as osc
from experiments import Claim, Findings, Record, Runner, Table, experiment, rounded, seeded
from experiments.linlap.modes import find_mode


@dataclass(frozen=True)
class Settings:
    """Two separable clouds of points around (1, 3) and (3, 1), and p(y|x) = σ(wᵀx) without a bias.

    Args:
        size: Number of points.
        spread: Standard deviation of each cloud; points are drawn again until a line through the origin separates them.
        precisions: Precisions of the Gaussian prior on w; the maps and the claims have the first one.
        side: Points along a side of the maps.
        nodes: Nodes along a side of the quadrature.
        draws: Draws of the Monte Carlo integral that the probit approximation is compared with.
        far: Distance of the far points from the middle of the data, on a circle.
    """

    size: int = 30
    spread: float = 0.7
    precisions: tuple[float, ...] = (0.01, 0.1, 1.0)
    side: int = 61
    nodes: int = 401
    draws: int = 1_000_000
    far: float = 40.0


MIDDLES = ((1.0, 3.0), (3.0, 1.0))
WINDOW = (-4.0, 8.0)
#: Logits and their variances at which the probit approximation is compared.
LOGITS, VARIANCES = tuple(range(13)), (0.25, 1.0, 4.0, 9.0, 16.0, 25.0)
#: Half width of the quadrature, in standard deviations of the Gaussian.
REACH = 12.0
#: Angles of the far points.
ANGLES = 72
#: Least share of the posterior at a node that predictions use.
NEGLIGIBLE = 1e-9
WAYS = ("MAP", "Laplace, probit", "exact")
EVIDENCE, CONFIDENCE, ERROR = "log evidence, nats", "confidence far away", "|p − exact| over the map"
DEVIATION, LOGIT_DATA, LOGIT_FAR = "largest |probit − Monte Carlo|", "sd of the logit, on the data", "far away"
#: Bound for the probit approximation, and the confidence of the mode at the points that count as far away.
PROBIT, SURE = 0.02, 0.999


@dataclass(frozen=True)
class Exact:
    """The posterior over w by quadrature.

    Attributes:
        weights: Nodes (K, 2).
        shares: Shares of the posterior at the nodes (K,).
        evidence: Log evidence log p(D), in nats.
    """

    weights: Float[Tensor, "K 2"]
    shares: Float[Tensor, " K"]
    evidence: float

    @classmethod
    def of(cls, q: osc.posteriors.Gaussian, x: Tensor, y: Tensor, precision: float, settings: Settings) -> "Exact":
        """Integrate by the trapezoidal rule on a lattice in the coordinates in which the Gaussian is white."""
        axis = torch.linspace(-REACH, REACH, settings.nodes, dtype=torch.double)
        root = q.precision.colour(torch.eye(2, dtype=torch.double))  # rows: M e_i
        weights = q.mean + torch.cartesian_prod(axis, axis) @ root
        logs = torch.cat([log_joint(part, x, y, precision) for part in weights.split(20_000)])
        cell = 2 * (axis[1] - axis[0]).log() + root.det().abs().log()
        shares = logs.softmax(0)
        kept = shares > NEGLIGIBLE
        return cls(weights[kept], shares[kept], float(logs.logsumexp(0) + cell))

    def probability(self, x: Float[Tensor, "M 2"]) -> Float[Tensor, " M"]:
        """Return p(y = 1 | x)."""
        return torch.cat([self.shares @ (self.weights @ part.T).sigmoid() for part in x.split(500)])


def log_joint(w: Float[Tensor, "K 2"], x: Tensor, y: Tensor, precision: float) -> Float[Tensor, " K"]:
    """Return log p(y|w) + log p(w), as the document writes it."""
    signs = 2 * y.squeeze(-1) - 1
    prior = log(precision / (2 * pi)) - 0.5 * precision * w.square().sum(-1)
    return logsigmoid(signs * (w @ x.T)).sum(-1) + prior


def clouds(settings: Settings, seed: int) -> tuple[Tensor, Tensor]:
    """Draw points (N, 2) and labels (N, 1) that a line through the origin separates."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(settings.size) % 2
    middles = torch.tensor(MIDDLES, dtype=torch.double)[y]
    while True:
        x = middles + settings.spread * torch.randn(settings.size, 2, generator=generator, dtype=torch.double)
        angles = torch.atan2(x[:, 1], x[:, 0])
        if float(angles[y == 1].max()) < float(angles[y == 0].min()):
            return x, y.double().unsqueeze(1)


def fitted(x: Tensor, y: Tensor, precision: float, seed: int) -> osc.posteriors.Gaussian:
    """Fit the Laplace approximation at the mode; its GGN is the Hessian, since the logit is linear in w."""
    with seeded(seed):
        model = nn.Linear(2, 1, bias=False).double()
    likelihood = osc.likelihoods.Bernoulli()
    find_mode(osc.methods.MAP(model, likelihood, precision), x, y)
    return osc.laplace(model, likelihood, (x, y), structure="full", prior=precision, refine=False)


@experiment(
    "linlap-logistic",
    "Bayesian logistic regression: the mode, Laplace with the probit approximation, and quadrature",
    "Linearised Laplace tutorial, section 2",
    paper=Settings(side=101, nodes=801),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Fit and integrate, for each seed and precision."""
    table = Table({("probit", DEVIATION): [deviation(settings)]})
    picture: dict[str, Any] = {}
    for rows, shown in runner.each("posteriors", product(seeds, settings.precisions), partial(integrated, settings)):
        table.extend(rows)
        picture = picture or shown
    return Findings(table.numbers(), claims(table["probit", DEVIATION][0]), picture)


def integrated(settings: Settings, seed: int, precision: float) -> tuple[dict[str, dict[str, float]], dict[str, Any]]:
    """Fit and integrate one posterior; return its numbers by row, and its picture."""
    x, y = clouds(settings, seed)
    q = fitted(x, y, precision, seed)
    exact = Exact.of(q, x, y, precision, settings)
    axis = torch.linspace(*WINDOW, settings.side, dtype=torch.double)
    maps = probabilities(q, exact, torch.cartesian_prod(axis, axis).flip(1))  # row by row along the second input
    found = compare(q, exact, x, maps, settings)
    return {row(way, precision): each for way, each in found.items()}, _picture(settings, q, exact, x, y, maps)


def row(way: str, precision: float) -> str:
    """Return the label of a row."""
    return f"{way}, prior precision {precision:g}"


def probabilities(q: osc.posteriors.Gaussian, exact: Exact, x: Float[Tensor, "M 2"]) -> dict[str, Float[Tensor, " M"]]:
    """Return p(y = 1 | x) by each way."""
    laplacian = osc.predict(q, x, link="probit").mean.squeeze(-1)
    return dict(zip(WAYS, (q.network(x).sigmoid().squeeze(-1), laplacian, exact.probability(x)), strict=True))


def compare(
    q: osc.posteriors.Gaussian, exact: Exact, x: Tensor, maps: Mapping[str, Tensor], settings: Settings
) -> dict[str, dict[str, float]]:
    """Return the numbers of one posterior, by way and column."""
    angles = torch.arange(ANGLES, dtype=torch.double) * (2 * pi / ANGLES)
    far = x.mean(0) + settings.far * torch.stack([angles.cos(), angles.sin()], 1)
    near, away = (float(osc.functional_variance(q, at, diagonal=True).sqrt().mean()) for at in (x, far))
    found: dict[str, dict[str, float]] = {
        "Laplace, probit": {EVIDENCE: float(osc.log_evidence(q)), LOGIT_DATA: near, LOGIT_FAR: away},
        "exact": {EVIDENCE: exact.evidence},
        "MAP": {},
    }
    probs = probabilities(q, exact, far)
    sure = torch.maximum(probs["MAP"], 1 - probs["MAP"]) > SURE
    for way in WAYS:
        found[way][CONFIDENCE] = float(torch.maximum(probs[way], 1 - probs[way])[sure].mean())
        found[way][ERROR] = float((maps[way] - maps["exact"]).abs().mean())
    return found


def deviation(settings: Settings) -> float:
    """Return the largest error of σ(m / √(1 + πv/8)) for the mean of σ over N(m, v), on a lattice of m and v."""
    z = torch.randn(settings.draws, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    z = torch.cat([z, -z])  # the mean of both is exact in m for v = 0
    worst = 0.0
    for m in LOGITS:
        for v in VARIANCES:
            probit = torch.tensor(m / (1 + pi * v / 8) ** 0.5, dtype=torch.double).sigmoid()
            worst = max(worst, float((probit - (m + v**0.5 * z).sigmoid().mean()).abs()))
    return worst


def claims(worst: float) -> Iterator[Claim]:
    """Yield the claims that need words, from the largest error of the probit approximation."""
    yield Claim.over_seeds(
        "log evidence beside quadrature",
        "Separable data bound the weights from one side alone, and the posterior has a long tail on the other, which "
        "the Gaussian misses; larger precisions have smaller gaps (table).",
    )
    yield Claim.over_seeds(
        "probit approximation beside Monte Carlo",
        f"Largest difference {worst:.4f} over logits 0 to {max(LOGITS)} and variances {min(VARIANCES):g} to "
        f"{max(VARIANCES):g}, against antithetic draws.",
    )
    yield Claim.over_seeds(
        "confidence far from the data",
        f"Means on a far circle where the mode is surer than {SURE}. The Gaussian puts mass on lines that do not "
        "separate the data, and is more conservative than Bayes' rule asks for.",
    )
    yield Claim.over_seeds(
        "distance from the exact predictive",
        "The Gaussian is symmetric about the mode, and reaches across zero to weights that tell the classes the wrong "
        "way round; the true posterior falls off before. With larger precisions of the prior Laplace comes closer "
        "(table).",
    )


def _picture(
    settings: Settings, q: osc.posteriors.Gaussian, exact: Exact, x: Tensor, y: Tensor, maps: Mapping[str, Tensor]
) -> dict[str, Any]:
    """Return the maps of one seed, and the posterior over w on a lattice."""
    side, precision = settings.side, settings.precisions[0]
    middle = exact.shares @ exact.weights
    reach = 4.5 * (exact.shares @ (exact.weights - middle).square()).sqrt()
    axes = [torch.linspace(float(m - r), float(m + r), side).double() for m, r in zip(middle, reach, strict=True)]
    w = torch.cartesian_prod(axes[1], axes[0]).flip(1)
    densities = {"exact": log_joint(w, x, y, precision) - exact.evidence, "Gaussian": q.log_prob(w)}
    return {
        "precision": precision,
        "x": rounded(x, 5),
        "y": y.squeeze(-1).tolist(),
        "maps": {way: rounded(p.reshape(side, -1), 5) for way, p in maps.items()},
        "weights": [rounded(axis, 5) for axis in axes],
        "densities": {name: rounded(d.exp().reshape(side, -1), 5) for name, d in densities.items()},
        "mode": rounded(q.mean, 5),
    }


@measure.figure
def draw(record: Record) -> Any:
    """Draw the posterior beside its Gaussian, and the three predictives."""
    from experiments.linlap import figures

    data = record.findings.data
    axis = np.linspace(*WINDOW, len(data["maps"]["MAP"]))
    densities, maps = ({name: np.array(v) for name, v in data[part].items()} for part in ("densities", "maps"))
    weights, mode, x, y = (np.array(data[part]) for part in ("weights", "mode", "x", "y"))
    return figures.logistic_planes((tuple(weights), densities, mode), maps, (axis, axis), x, y)
