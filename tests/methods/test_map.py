"""The MAP objective is the negative log joint per datum, with every constant."""

import math

import pytest
import torch
from torch import nn
from torch.distributions import Normal

from osculate.likelihoods import Categorical, Gaussian
from osculate.methods.ensemble import DeepEnsemble
from osculate.methods.map import MAP
from osculate.posteriors import Point
from osculate.priors import Layerwise, fan_in


def regressor() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def test_the_loss_over_all_data_is_the_negative_log_joint_per_datum() -> None:
    model, x, y = regressor(), torch.randn(7, 3), torch.randn(7, 2)
    joint = Normal(model(x), 0.5).log_prob(y).sum()
    joint = joint + sum(Normal(0.0, 4.0**-0.5).log_prob(p).sum() for p in model.parameters())
    loss = MAP(model, Gaussian(scale=0.5), prior=4.0).loss(x, y, num_data=7)
    torch.testing.assert_close(loss, -joint / 7)


def test_fan_in_is_the_prior_of_each_layer_and_no_other_name_is_known() -> None:
    assert repr(MAP(regressor(), Gaussian(), "fan_in").prior) == repr(fan_in(regressor()))
    assert repr(DeepEnsemble([regressor(), regressor()], Gaussian(), "fan_in").choices()["prior"]) == repr(
        fan_in(regressor())
    )
    with pytest.raises(TypeError, match="fan_out"):
        MAP(regressor(), Gaussian(), "fan_out")


def test_minibatch_losses_weighted_by_their_size_average_to_the_whole(seed: int) -> None:
    method = MAP(nn.Linear(3, 4), Categorical(), prior=2.0)
    x, y = torch.randn(10, 3), torch.randint(4, (10,))
    parts = [(x[:3], y[:3]), (x[3:], y[3:])]
    mean = sum(len(b) * method.loss(b, t, num_data=10) for b, t in parts) / 10
    torch.testing.assert_close(mean, method.loss(x, y, num_data=10))


def test_the_gradient_vanishes_at_the_closed_form_mode_of_a_linear_model(float64: None) -> None:
    x, y, precision, scale = torch.randn(20, 3), torch.randn(20, 1), 3.0, 0.7
    mode = torch.linalg.solve(x.T @ x / scale**2 + precision * torch.eye(3), x.T @ y / scale**2)
    model = nn.Linear(3, 1, bias=False)
    model.weight.data = mode.T.clone()
    MAP(model, Gaussian(scale), precision).loss(x, y, num_data=20).backward()
    assert model.weight.grad is not None
    torch.testing.assert_close(model.weight.grad, torch.zeros(1, 3), atol=1e-10, rtol=0)


def test_the_prior_covers_the_trained_parameters_only() -> None:
    model = regressor()
    model[0].requires_grad_(False)
    x, y = torch.randn(5, 3), torch.randn(5, 2)
    prior = Layerwise({"2.weight": 1.0, "2.bias": 5.0})
    expected = -Gaussian().log_prob(model(x), y).mean() - prior.log_prob(dict(model[2:].named_parameters())) / 5
    torch.testing.assert_close(MAP(model, Gaussian(), prior).loss(x, y, 5), expected)


def test_the_result_is_frozen_and_leaves_the_mode_of_the_model() -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.Dropout(0.5))
    method = MAP(model, Gaussian())
    point, x = method.result(), torch.randn(4, 3)
    before = point.network(x)
    assert isinstance(point, Point)
    assert model.training
    assert model[1].training
    torch.testing.assert_close(before, model[0](x).detach())
    model[0].weight.data.add_(1)
    torch.testing.assert_close(point.network(x), before)


@pytest.mark.parametrize("precision", [0.0, -1.0, math.nan])
def test_a_precision_that_is_not_positive_is_refused(precision: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        MAP(nn.Linear(1, 1), Gaussian(), precision)


def test_a_prior_that_is_none_is_refused() -> None:
    with pytest.raises(TypeError, match="weak"):
        MAP(nn.Linear(1, 1), Gaussian(), "weak")  # type: ignore[arg-type]


def test_targets_that_do_not_fit_are_refused() -> None:
    with pytest.raises((TypeError, ValueError), match="float"):
        MAP(nn.Linear(3, 2), Categorical()).loss(torch.zeros(4, 3), torch.zeros(4), 4)
