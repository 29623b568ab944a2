"""Natural-gradient methods: their rule step by step, what they end at, and squares of single data."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import osculate as osc
from osculate.methods import IVON, MAP, VOGN, NaturalSteps
from tests.laws import assert_close
from tests.methods.variational import (
    CLASSES,
    convolutional,
    data,
    descend,
    flat,
    linear_model,
    linear_regression,
    mean_field_optimum,
    network,
)


def step(method: IVON, x: Tensor, y: Tensor, lr: float = 0.1, n: int = 100) -> tuple[Tensor, Tensor, Tensor, Any]:
    """One step: the gradient at the drawn network, the noise, h after it, and the optimiser."""
    optimizer = method.optimizer(lambda p, lr: None, lr)
    method.loss(x, y, n).backward()
    gradient = torch.cat([p.grad.reshape(-1) for p in method.mean.values()])
    noise = method._noise.clone()
    optimizer.step()
    return gradient, noise, method.running.average.clone(), optimizer


@pytest.mark.parametrize("prior", [3.0, osc.priors.Diagonal(torch.full((51,), 3.0))])
def test_the_published_rule(prior: Any) -> None:
    """[shen2024, algorithm 1], written again on flat vectors, for three steps."""
    (x, y), n, temperature, lr = data(), 480, 0.5, 0.2
    settings = NaturalSteps(momentum=0.8, memory=0.9, curvature=0.3)
    method = IVON(network(), CLASSES, prior, temperature, settings=settings)
    optimizer = method.optimizer(lambda p, lr: None, lr)
    m, h = flat(method.model), torch.full((method.space.size,), 0.3, dtype=torch.double)
    effective, decay = n / temperature, 3.0 * temperature / n
    average = torch.zeros_like(m)
    for t in range(1, 4):
        optimizer.zero_grad()
        method.loss(x, y, n).backward()
        gradient = torch.cat([p.grad.reshape(-1) for p in method.mean.values()])
        noise = method._noise.clone()
        optimizer.step()
        estimate = effective * (h + decay) * noise * gradient
        average = 0.8 * average + 0.2 * gradient
        h = 0.9 * h + 0.1 * estimate + 0.5 * 0.01 * (h - estimate).square() / (h + decay)
        m = m - lr * (0.3 + decay) * (average / (1 - 0.8**t) + decay * m) / (h + decay)
        assert_close(method.running.average, h, 1e-10)
        assert_close(flat(method.model), m, 1e-10)
        assert_close(method.deviations(), (effective * (h + decay)).rsqrt(), 1e-10)


def test_the_squared_form_takes_the_gradient_of_the_batch() -> None:
    (x, y), settings = data(), NaturalSteps(memory=0.9, curvature=0.3)
    method = IVON(network(), CLASSES, hessian="squared", settings=settings)
    gradient, _, h, _ = step(method, x, y)
    assert_close(h, 0.9 * 0.3 + 0.1 * len(x) * gradient.square(), 1e-10)


@pytest.mark.parametrize("make", [network, convolutional])
def test_squares_are_those_of_single_data_at_the_drawn_network(make: Any) -> None:
    (x, y), settings = data(), NaturalSteps(memory=0.9, curvature=0.3)
    model = make()
    method = VOGN(model, CLASSES, settings=settings)
    method.loss(x, y, 100)
    parts = method.space.unflatten(method._noise)
    with torch.no_grad():
        for name, p in method.mean.items():
            p += parts[name]
    each = []
    for a, b in zip(x.split(1), y.split(1), strict=True):
        model.zero_grad()
        CLASSES.log_prob(model(a), b).sum().backward()
        each.append(torch.cat([p.grad.reshape(-1) for p in method.mean.values()]).square())
    assert_close(method.running.average, 0.9 * 0.3 + 0.1 * torch.stack(each).mean(0), 1e-8)


@pytest.mark.release
def test_it_ends_at_the_optimum_of_linear_regression() -> None:
    (x, y), scale, delta = linear_regression(), 0.5, 2.0
    settings = NaturalSteps(memory=0.999, curvature=0.25)
    method = IVON(linear_model(), osc.likelihoods.Gaussian(scale), delta, settings=settings)
    q = descend(method, (x, y), 3000, 0.2)
    mean, variance = mean_field_optimum(x, y, scale, delta)
    assert_close(q.mean, mean, 0.02)
    assert_close(q.variance(), variance, 0.2)


def test_points_move_by_plain_steps() -> None:
    (x, y), model = data(), convolutional()
    method = IVON(model, CLASSES)
    before = model.norm.weight.detach().clone()
    optimizer = method.optimizer(lambda p, lr: None, 0.1)
    method.loss(x, y, 100).backward()
    gradient = model.norm.weight.grad.clone()
    optimizer.step()
    assert_close(model.norm.weight.detach(), before - 0.1 * gradient)


@pytest.mark.release
def test_it_learns_as_well_as_map() -> None:
    pair = x, y = data(200)

    def accuracy(method: Any, lr: float) -> float:
        descend(method, pair, 600, lr, 25)
        return float((method.model(x).argmax(1) == y).double().mean())

    prior = osc.priors.fan_in(network())
    mode = accuracy(MAP(network(), CLASSES, prior.with_precision(0.1 * prior.precision)), 0.02)
    assert mode > 0.9
    for make in (IVON, VOGN):
        assert accuracy(make(network(), CLASSES, temperature=0.1), 1.0) > mode - 0.05


@pytest.mark.parametrize("likelihood", [osc.likelihoods.Gaussian(0.5), osc.likelihoods.StudentT(scale=0.5)])
def test_steps_do_not_depend_on_the_unit_of_the_noise(likelihood: Any) -> None:
    """Targets and noise a hundredth as large: the same path, a hundredth as large."""
    (x, y), found = linear_regression(), []
    for scale in (1.0, 0.01):
        method = IVON(linear_model(), replace(likelihood, scale=0.5 * scale), 2.0 / scale**2)
        with torch.no_grad():
            method.model.weight.mul_(scale)
        torch.manual_seed(0)
        descend(method, (x, y * scale), 50, 0.1)
        found.append(flat(method.model) / scale)
    assert_close(found[0], found[1], 1e-6)


def test_variances_follow_a_state_that_is_loaded() -> None:
    """Early stopping puts the average curvature of the best epoch back, and another number of data asks for others."""
    x, y = data()
    method = IVON(network(), CLASSES)
    step(method, x, y, n=48)
    state, before = deepcopy(method.state_dict()), method.deviations().clone()
    step(method, x, y, n=48)
    assert not torch.equal(method.deviations(), before)
    method.load_state_dict(state)
    assert torch.equal(method.deviations(), before)
    method.num_data.fill_(480)
    assert float(method.deviations().max()) < float(before.max())
    method.to(torch.float32)
    assert method.deviations().dtype == torch.float32


@pytest.mark.parametrize("options", [{"momentum": 1.0}, {"memory": -0.1}, {"curvature": 0.0}])
def test_settings_out_of_range_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        NaturalSteps(**options)
    with pytest.raises(ValueError, match="unknown hessian 'drawm' .did you mean 'drawn'"):
        IVON(network(), CLASSES, hessian="drawm")
