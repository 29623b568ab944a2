"""The evidence lower bound: exact where the posterior is, below it elsewhere, and the divergence in closed form."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.distributions import MultivariateNormal, kl_divergence

import osculate as osc
from osculate.evidence.elbo import divergence
from tests.laws import STRUCTURES, assert_close, dense_precision
from tests.methods.variational import (
    CLASSES,
    data,
    exact_elbo,
    flat,
    linear_model,
    linear_regression,
    network,
)


@pytest.mark.parametrize("structure", [name for name in STRUCTURES if name not in ("dual", "low_rank")])
@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_the_divergence_is_that_of_normals(structure: str, temperature: float) -> None:
    q = osc.laplace(network(), CLASSES, data(), structure=structure, prior=2.0, refine=False).replace(
        temperature=temperature
    )
    dense = dense_precision(q)
    posterior = MultivariateNormal(q.mean, precision_matrix=(dense + dense.T) / 2)
    prior = MultivariateNormal(torch.zeros_like(q.mean), torch.eye(len(q.mean)).double() / 2)
    assert_close(divergence(q), kl_divergence(posterior, prior), 1e-6)


def at_mode(temperature: float, structure: str) -> Any:
    """The posterior of a linear model at the mode that belongs to a temperature."""
    x, y = linear_regression()
    model, scale = linear_model(), 0.25 * temperature
    with torch.no_grad():
        model.weight.copy_(torch.linalg.solve(x.T @ x / scale + 2 * torch.eye(5).double(), x.T @ y / scale).T)
    q = osc.laplace(model, osc.likelihoods.Gaussian(0.5), (x, y), structure=structure, prior=2.0, refine=False)
    return q.replace(temperature=temperature)


@pytest.mark.parametrize("temperature", [1.0, 0.1])
def test_it_is_the_temperature_times_the_evidence_where_the_posterior_is_exact(temperature: float) -> None:
    q = at_mode(temperature, "full")
    found = osc.evidence.elbo(q, linear_regression(), 2000, torch.Generator().manual_seed(0))
    assert abs(found.value - temperature * float(osc.log_evidence(q))) < 4 * found.standard_error


def test_it_is_below_the_evidence_where_weights_are_taken_for_independent() -> None:
    x, y = linear_regression()
    diagonal = at_mode(1.0, "diag")
    below = osc.evidence.elbo(diagonal, (x, y), samples=2000, generator=torch.Generator().manual_seed(0))
    assert below.value < float(osc.log_evidence(at_mode(1.0, "full")))
    known = exact_elbo(x, y, 0.5, 2.0, flat(diagonal.model), diagonal.variance())
    assert abs(below.value - known) < 4 * below.standard_error


def test_the_temperature_weighs_the_divergence() -> None:
    q = osc.laplace(network(), CLASSES, data(), structure="diag", prior=1.0, refine=False)
    cold = q.replace(temperature=0.5)
    generator = torch.Generator().manual_seed(0)
    totals = osc.evidence.elbo(cold, data(), samples=50, generator=generator).value + 0.5 * float(divergence(cold))
    functions = osc.sample_functions(cold, data()[0], 50, via="sampled", generator=torch.Generator().manual_seed(0))
    expected = torch.stack([CLASSES.log_prob(f, data()[1]).sum() for f in functions]).mean()
    assert totals == pytest.approx(float(expected), rel=1e-6)


def test_a_subnetwork_has_the_divergence_of_its_own_weights() -> None:
    q = osc.laplace(network(), CLASSES, data(), structure="full", prior=1.0, subset="last_layer", refine=False)
    assert float(divergence(q)) > 0
    assert osc.evidence.elbo(q, data(), samples=5).value < 0


def test_what_it_refuses() -> None:
    q = osc.laplace(network(), CLASSES, data(), structure="diag", prior=1.0, refine=False)
    with pytest.raises(ValueError, match="standard error.* at least 2, got 1"):
        osc.evidence.elbo(q, data(), samples=1)
    with pytest.raises(TypeError, match="elbo needs a Gaussian posterior, got Ensemble"):
        osc.evidence.elbo(osc.posteriors.Ensemble([nn.Linear(4, 3), nn.Linear(4, 3)], CLASSES), data())
