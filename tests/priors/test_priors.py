"""Priors: exact densities, groups, and refusals."""

from typing import Any

import pytest
import torch

import osculate as osc
from osculate.parameters import ParameterSpace
from osculate.priors import fan_in
from tests.errors import says
from tests.laws import assert_close

TENSORS = {"w": torch.randn(3, 2), "b": torch.randn(3)}
SPACE = ParameterSpace.of(TENSORS)
CASES = {
    "isotropic": osc.priors.Isotropic(2.0),
    "layerwise": osc.priors.Layerwise(torch.tensor([2.0, 5.0])),
    "diagonal": osc.priors.Diagonal(torch.linspace(1, 9, 9)),
    "grouped": osc.priors.Grouped({"late": ["b"], "early": ["w"]}, torch.tensor([2.0, 5.0])),
}


def test_every_registered_prior_is_tested() -> None:
    correlated = {osc.priors.Filters}  # test_filters.py
    assert {type(prior) for prior in CASES.values()} == set(osc.priors.REGISTRY.values()) - correlated


@pytest.mark.parametrize("prior", CASES.values(), ids=CASES)
def test_the_density_is_that_of_independent_normals(prior: osc.priors.Prior) -> None:
    delta = prior.bind(SPACE).vector(SPACE)
    expected = torch.distributions.Normal(0.0, delta.rsqrt()).log_prob(SPACE.flatten(TENSORS)).sum()
    assert_close(prior.log_prob(TENSORS), expected, 1e-5)


@pytest.mark.parametrize("prior", CASES.values(), ids=CASES)
def test_the_second_derivative_is_minus_the_precision_at_zeros_too(prior: osc.priors.Prior) -> None:
    at = torch.zeros(9)
    hessian = torch.autograd.functional.hessian(lambda theta: prior.log_prob(SPACE.unflatten(theta)), at)
    assert_close(hessian, -torch.diag(prior.bind(SPACE).vector(SPACE)), 1e-5)


@pytest.mark.parametrize("prior", CASES.values(), ids=CASES)
def test_totals_are_the_gradient_of_the_vector(prior: osc.priors.Prior) -> None:
    weights = torch.randn(9)
    precision = prior.precision.clone().requires_grad_()
    prior.with_precision(precision).vector(SPACE).mul(weights).sum().backward()
    assert_close(prior.totals(weights, SPACE), precision.grad, 1e-5)


@pytest.mark.parametrize("prior", CASES.values(), ids=CASES)
def test_labels_stand_for_the_parameters_of_each_precision(prior: osc.priors.Prior) -> None:
    members = prior.members(SPACE)
    assert len(members) == prior.bind(SPACE).precision.numel()
    assert {name for names in members.values() for name in names} == set(SPACE.names)
    if prior.per_tensor(SPACE) is not None:
        totals = torch.tensor([2.0, 3.0])
        expected = prior.totals(SPACE.spread(totals / torch.tensor(SPACE.sizes)), SPACE)
        assert_close(prior.pooled(totals, SPACE), expected, 1e-6)
    else:
        with pytest.raises(ValueError, match="vary within"):
            prior.pooled(torch.ones(2), SPACE)


@pytest.mark.parametrize("prior", CASES.values(), ids=CASES)
@pytest.mark.parametrize("bad", [0.0, -1.0, float("nan"), float("inf")])
def test_a_precision_must_be_positive_and_finite(prior: osc.priors.Prior, bad: float) -> None:
    with pytest.raises(ValueError, match="positive and finite, got"):
        type(prior)(precision=bad, **prior.settings)


def test_layerwise_by_name() -> None:
    assert osc.priors.Layerwise({"b": 5.0, "w": 2.0}).bind(SPACE).precision.tolist() == [2.0, 5.0]
    with pytest.raises(ValueError, match="no precision for b"):
        osc.priors.Layerwise({"w": 2.0}).bind(SPACE)
    with pytest.raises(ValueError, match="'weight'.*known: 'w', 'b'"):
        osc.priors.Layerwise({"weight": 2.0}).bind(SPACE)
    with pytest.raises(ValueError, match="3"):
        osc.priors.Layerwise(torch.ones(3)).bind(SPACE)


def test_biases_may_have_a_precision_of_their_own() -> None:
    net = torch.nn.Sequential(torch.nn.Linear(5, 4), torch.nn.Linear(4, 2, bias=False))
    assert fan_in(net, biases=0.5).precision.tolist() == [5.0, 0.5, 4.0]
    assert fan_in(net).precision.tolist() == [5.0, 5.0, 4.0]


@pytest.mark.parametrize("wrong", [osc.priors.Isotropic, {"weight": torch.ones(2)}, "x"])
def test_what_is_no_precision_is_refused(wrong: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # users run without checks of types
    with pytest.raises(TypeError, match=says("a prior precision is a number or a tensor", "around(weights)")):
        osc.priors.Isotropic(wrong)
