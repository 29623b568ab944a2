"""The small reproductions of the tutorial: quadrature against known integrals, and bounds of exact claims."""

from dataclasses import replace
from math import log, pi

import pytest
import torch
from torch import nn

from experiments.linlap import em as linlap_em, logistic as linlap_logistic, structures as linlap_structures
from experiments.record import FAILS, HOLDS, Findings, Number
from osculate.curvature import reference
from osculate.likelihoods import Bernoulli
from tests.experiments.limits import verdicts


@pytest.mark.parametrize(("error", "verdict"), [(0.01, HOLDS), (0.03, FAILS)])
def test_the_probit_approximation_is_exact_within_its_bound(error: float, verdict: str) -> None:
    largest = Number("probit", "largest |probit − Monte Carlo|", (error,))
    assert verdicts("linlap-logistic", Findings((largest,), linlap_logistic.claims(error))) == [verdict]


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


def test_the_gap_is_where_the_curve_has_no_points_to_train_on() -> None:
    curve = linlap_structures.Curve.of(0)
    x, (low, high) = curve.train[0].squeeze(1), curve.gap
    assert not bool(((x > low) & (x < high)).any())
    assert float(x[x < low].max()) > low - 0.2
    assert float(x[x > high].min()) < high + 0.2
    assert 0.2 < float(curve.inside().double().mean()) < 0.5


@pytest.mark.parametrize(("cg", "sdd", "verdict"), [(5e-5, 1e-2, HOLDS), (2e-4, 3e-2, FAILS)])
def test_solvers_are_exact_within_their_bounds(cg: float, sdd: float, verdict: str) -> None:
    m = linlap_em
    found = {(m.CG, m.DIFFERENCE): (1e-6, cg), (m.SDD, m.DIFFERENCE): (sdd, 1e-3)}
    numbers = tuple(Number(*cell, values) for cell, values in found.items())
    assert verdicts("linlap-em", Findings(numbers, m.claims(found))) == [verdict] * 2
