"""The small reproductions of the tutorial: quadrature against known integrals, and verdicts that fall either way."""

from collections.abc import Iterable
from dataclasses import replace
from math import log, pi

import pytest
import torch
from torch import nn

from experiments.linlap import em as linlap_em, logistic as linlap_logistic, structures as linlap_structures
from experiments.record import FAILS, HOLDS, Claim
from osculate.curvature import reference
from osculate.likelihoods import Bernoulli

Found = dict[tuple[str, str], list[float]]


def verdicts(claims: Iterable[Claim]) -> list[str]:
    return [claim.verdict for claim in claims]


def logistic(gap: float, laplacian: float, probit: float = 0.01, error: float = 0.01, far: float = 9.0) -> Found:
    m = linlap_logistic
    rows = {way: m.row(way, 0.1) for way in m.WAYS}
    found = {("probit", m.DEVIATION): [probit]}
    found |= {(rows["Laplace, probit"], m.EVIDENCE): [-4.0 + gap, -5.0], (rows["exact"], m.EVIDENCE): [-4.0, -5.0]}
    confidence = {"MAP": 0.9999, "Laplace, probit": laplacian, "exact": 0.97}
    found |= {(rows[way], m.CONFIDENCE): [value] for way, value in confidence.items()}
    found |= {(rows[way], m.ERROR): [value] for way, value in {"MAP": 0.02, m.WAYS[1]: error, "exact": 0.0}.items()}
    return found | {(rows[m.WAYS[1]], m.LOGIT_DATA): [2.0], (rows[m.WAYS[1]], m.LOGIT_FAR): [far]}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (logistic(0.1, 0.85), [HOLDS] * 5),
        (logistic(-0.31, 0.91, 0.03, 0.05, 1.0), [FAILS] * 5),
        (logistic(0.31, 0.85), [FAILS, HOLDS, HOLDS, HOLDS, HOLDS]),
    ],
)
def test_verdicts_on_logistic_regression(found: Found, expected: list[str]) -> None:
    assert verdicts(linlap_logistic.claims(found, (0.1,))) == expected


def test_the_quadrature_of_logistic_regression_is_that_of_a_known_posterior() -> None:
    """A strong prior: the posterior is nearly it, and the probability nearly one half."""
    m, precision = linlap_logistic, 1e6
    settings = replace(m.Settings(), nodes=151)
    x, y = m.clouds(settings, 0)
    q = m.fitted(x, y, precision, 0)
    exact = m.Exact.of(q, x, y, precision, settings)
    assert exact.evidence == pytest.approx(settings.size * log(0.5), abs=1e-3)
    assert float(exact.shares.sum()) == pytest.approx(1, abs=1e-6)
    assert float((exact.probability(x) - 0.5).abs().max()) < 1e-2
    assert float((exact.shares @ exact.weights.square()).max()) == pytest.approx(1e-6, rel=1e-3)
    prior = m.log_joint(torch.zeros(1, 2, dtype=torch.double), x[:0], y[:0], 2.0)
    assert float(prior) == pytest.approx(log(2 / (2 * pi)))


def test_the_mode_and_the_precision_are_those_that_the_document_writes() -> None:
    m = linlap_logistic
    x, y = m.clouds(m.Settings(), 1)
    q = m.fitted(x, y, 0.1, 1)
    s = (x @ q.mean).sigmoid()
    gradient = x.T @ (y.squeeze(1) - s) - 0.1 * q.mean
    assert float(gradient.abs().max()) < 1e-4
    written = (x.T * (s * (1 - s))) @ x + 0.1 * torch.eye(2, dtype=torch.double)
    torch.testing.assert_close(q.precision.multiply(torch.eye(2, dtype=torch.double)), written)
    model = nn.Linear(2, 1, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(q.mean)
    hessian = reference.hessian(model, Bernoulli(), x, y) + 0.1 * torch.eye(2, dtype=torch.double)
    torch.testing.assert_close(written, hessian)
    angles = torch.atan2(x[:, 1], x[:, 0])
    assert float(angles[y.squeeze(1) == 1].max()) < float(angles[y.squeeze(1) == 0].min())


def structures(ratios: tuple[float, float, float], diag: float, mode: float, sampled: float) -> Found:
    m, found = linlap_structures, {}
    for label, ratio in zip(m.STRUCTURES, ratios, strict=True):
        spread = diag if label == "diag" else 0.1
        values = {m.RATIO: ratio, m.DATA: spread, m.NLL_GAP: -0.2, m.NLL_DATA: -0.5}
        found |= {(m.row("net", label, "linearised"), column): [value] for column, value in values.items()}
        found[m.row("net", label, "sampled"), m.NLL_DATA] = [sampled]
    return found | {(m.row("net", "MAP"), m.NLL_GAP): [mode]}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (structures((3.0, 2.0, 1.0), 0.3, 0.5, 4.0), [HOLDS] * 4),
        (structures((3.0, 1.0, 2.0), 0.05, -0.3, 0.4), [FAILS] * 4),
    ],
)
def test_verdicts_on_structures(found: Found, expected: list[str]) -> None:
    assert verdicts(linlap_structures.claims(found, ["net"])) == expected


def test_the_gap_is_where_the_curve_has_no_points_to_train_on() -> None:
    curve = linlap_structures.Curve.of(0)
    x, (low, high) = curve.train[0].squeeze(1), curve.gap
    assert not bool(((x > low) & (x < high)).any())
    assert float(x[x < low].max()) > low - 0.2
    assert float(x[x > high].min()) < high + 0.2
    assert 0.2 < float(curve.inside().double().mean()) < 0.5


def samples(precision: float, gamma: float, cg: float, sdd: float, covariance: float) -> Found:
    m, settings = linlap_em, linlap_em.Settings()
    draws = f"{settings.covariance} {m.DRAWS}"
    found = {(m.CG, m.DIFFERENCE): [cg], (m.SDD, m.DIFFERENCE): [sdd, 1e-3]}
    for rank in settings.ranks:
        row = m.rank_and_samples(rank, settings.samples[-1])
        found |= {(row, m.PRECISION): [0.01, precision], (row, m.GAMMA): [0.001, gamma]}
    return found | {(draws, m.COVARIANCE): [covariance], (draws, m.EXPECTED): [0.1]}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (samples(0.04, 0.009, 5e-5, 1e-2, 0.14), [HOLDS] * 5),
        (samples(0.06, 0.02, 2e-4, 3e-2, 0.2), [FAILS] * 5),
    ],
)
def test_verdicts_on_samples(found: Found, expected: list[str]) -> None:
    assert verdicts(linlap_em.claims(found, linlap_em.Settings())) == expected
