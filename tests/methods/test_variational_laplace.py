"""Variational Laplace: the gradient of its regulariser, its limits, its exact cases, and its variances."""

import math
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, jvp

import osculate as osc
from osculate.curvature import reference
from osculate.methods import MAP, VariationalLaplace, VariationalUpdates
from osculate.methods.variational_laplace import EXACT
from tests.laws import assert_close
from tests.methods.variational import (
    CLASSES,
    convolutional,
    data,
    descend,
    exact_elbo,
    flat,
    linear_model,
    linear_regression,
    mean_field_optimum,
    network,
    run,
)

LEARNED = VariationalUpdates(every=1, rows=1.0, multiplier=0.3)


def fixed(model: nn.Module, fisher: str, start: float = 0.5, **options: Any) -> VariationalLaplace:
    """With variances that stay as they are."""
    settings = VariationalUpdates(every=1, rows=1.0, multiplier=0.0, start=start)
    return VariationalLaplace(model, CLASSES, fisher=fisher, sigma="learned", settings=settings, **options)


def regulariser_gradient(method: VariationalLaplace, x: Tensor, y: Tensor) -> Tensor:
    value = method.regulariser(method.model(x), y)
    parts = torch.autograd.grad(value, list(method.mean.values()), materialize_grads=True)
    return torch.cat([g.reshape(-1) for g in parts])


# ---- the regulariser -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [network, convolutional])
def test_the_gradient_is_one_hessian_vector_product(make: Any) -> None:
    """∇ (S/2) Σ σ² g̃² = S H̃ (σ² g̃), forward over reverse, for the labels that were drawn."""
    (x, y), method = data(), fixed(make(), "label")
    found = regulariser_gradient(method, x, y)
    with torch.random.fork_rng():
        torch.manual_seed(method.generator(torch.device("cpu")).initial_seed())
        labels = CLASSES.distribution(method.model(x).detach()).sample()
    theta = {name: p.detach() for name, p in method.mean.items()}

    def mean_log_prob(theta: dict[str, Tensor]) -> Tensor:
        return CLASSES.log_prob(functional_call(method.model, theta, (x,)), labels).mean()

    variance = method.space.unflatten(method.deviations().detach().square())
    direction = {name: variance[name] * g for name, g in grad(mean_log_prob)(theta).items()}
    product = jvp(grad(mean_log_prob), (theta,), (direction,))[1]
    assert_close(found, len(x) * method.space.flatten(product), 1e-10)


def exact_gradient(method: VariationalLaplace, x: Tensor, y: Tensor, step: float = 1e-5) -> Tensor:
    """∇ ½ tr(ΣG) per datum, by central differences of the dense matrix."""
    variance, parameters = method.deviations().detach().square(), list(method.mean.values())

    def value() -> Tensor:
        return 0.5 * (variance * reference.ggn(method.model, CLASSES, x, y).diagonal()).sum() / len(x)

    entries = []
    with torch.no_grad():
        for p in parameters:
            for n in range(p.numel()):
                values = []
                for sign in (1, -1):
                    p.view(-1)[n] += sign * step
                    values.append(value())
                    p.view(-1)[n] -= sign * step
                entries.append((values[0] - values[1]) / (2 * step))
    return torch.stack(entries)


@pytest.mark.slow
@pytest.mark.parametrize(("fisher", "unbiased"), [("ggn", True), ("label", False), ("label_linear", False)])
def test_only_the_differentiated_root_has_the_gradient_of_the_trace(fisher: str, unbiased: bool) -> None:
    x, y = data(6)
    model = network()
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(3)
    method = fixed(model, fisher)
    exact = exact_gradient(method, x, y)
    draws = []
    for _ in range(500):
        draws.append(regulariser_gradient(method, x, y))
        method.steps += 1
    along = torch.stack(draws) @ exact / exact.square().sum()  # 1 in the mean, where it is unbiased
    distance = float((along.mean() - 1).abs() / (along.std() / len(along) ** 0.5))
    assert (distance < 3) == unbiased, f"{float(along.mean()):.3f}, {distance:.1f} standard errors from 1"
    scores = (torch.stack(draws).mean(0) - exact) / (torch.stack(draws).std(0) / len(draws) ** 0.5)
    assert (float(scores.square().mean()) < 2) == unbiased, float(scores.square().mean())


@pytest.mark.parametrize("fisher", ["ggn", "label", "label_linear"])
@pytest.mark.parametrize(
    "likelihood",
    [
        osc.likelihoods.Categorical(),
        *(
            pytest.param(likelihood, marks=mark)
            for likelihood, mark in (
                (osc.likelihoods.HeteroscedasticGaussian(), pytest.mark.slow),
                (osc.likelihoods.Bernoulli(), pytest.mark.release),
                (osc.likelihoods.Poisson(), pytest.mark.release),
                (osc.likelihoods.Gaussian(0.5), pytest.mark.release),
            )
        ),
    ],
    ids=lambda likelihood: type(likelihood).__name__,
)
def test_its_value_is_that_of_the_trace_for_every_likelihood(fisher: str, likelihood: Any) -> None:
    torch.manual_seed(0)
    x, model = data(8)[0], nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 4)).double()
    y = likelihood.distribution(model(x).detach()).sample()
    settings = VariationalUpdates(every=1, rows=1.0, multiplier=0.0, start=0.5)
    method = VariationalLaplace(model, likelihood, fisher=fisher, sigma="learned", settings=settings)
    variance = method.deviations().detach().square()
    expected = 0.5 * (variance * reference.ggn(model, likelihood, x, y).diagonal()).sum() / len(x)
    values = []
    for _ in range(800):
        values.append(method.regulariser(model(x), y).detach())
        method.steps += 1
    found = torch.stack(values)
    assert abs(float(found.mean() - expected)) < 4 * float(found.std()) / len(values) ** 0.5


@pytest.mark.slow
def test_some_rows_every_other_step_are_the_same_in_the_mean() -> None:
    (x, y), found = data(16), {}
    for every, rows in ((1, 1.0), (2, 0.25)):
        settings = VariationalUpdates(every, rows, multiplier=0.0, start=0.5)
        method = VariationalLaplace(network(), CLASSES, sigma="learned", settings=settings)
        values = torch.stack([method.loss(x, y, 100).detach() for _ in range(600)])
        found[every] = float(values.mean()), float(values.std() / len(values) ** 0.5)
    (one, error), (other, more) = found.values()
    assert abs(one - other) < 4 * (error**2 + more**2) ** 0.5


# ---- its limits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("p", "rows"), [(0.0, 1.0), (0.3, 0.5)])
@pytest.mark.parametrize("fisher", ["ggn", "label", "label_linear"])
def test_without_variance_it_is_map_bit_for_bit(fisher: str, p: float, rows: float) -> None:
    prior = osc.priors.fan_in(network())
    settings = VariationalUpdates(every=2, rows=rows, multiplier=0.0, start=1e-30)
    method = VariationalLaplace(network(p=p), CLASSES, fisher=fisher, sigma="learned", settings=settings)
    alone = run(MAP(network(p=p), CLASSES, prior))
    assert torch.equal(flat(run(method).model), flat(alone.model))


@pytest.mark.slow
def test_it_is_exact_for_linear_regression() -> None:
    (x, y), scale, delta = linear_regression(), 0.5, 2.0
    method = VariationalLaplace(linear_model(), osc.likelihoods.Gaussian(scale), delta, settings=EXACT)
    q = descend(method, (x, y), 1000, 0.03)
    mean, variance = mean_field_optimum(x, y, scale, delta)
    assert_close(q.mean, mean, 1e-3)
    assert_close(q.variance(), variance, 1e-3)


@pytest.mark.slow
def test_learned_variances_are_stationary_where_they_are_exact() -> None:
    (x, y), scale, delta = linear_regression(), 0.5, 2.0
    model = linear_model()
    mean, variance = mean_field_optimum(x, y, scale, delta)
    method = VariationalLaplace(model, osc.likelihoods.Gaussian(scale), delta, sigma="learned", settings=EXACT)
    with torch.no_grad():
        model.weight.copy_(mean)
    found = {}
    for factor in (1.0, 1.2):
        with torch.no_grad():
            method.log_deviation.copy_(0.5 * (factor * variance).log())
        draws = []
        for _ in range(800):
            method.zero_grad()
            method.loss(x, y, len(x)).backward()
            draws.append(torch.cat([model.weight.grad.reshape(-1), method.log_deviation.grad]))
        gradients = torch.stack(draws)
        error = (gradients.std(0) / len(draws) ** 0.5).clamp(min=1e-12)
        found[factor] = (gradients.mean(0) / error).abs()
    assert float(gradients[:, :5].abs().max()) < 1e-10, "the mean is exact, whatever the draw"
    assert float(found[1.0][5:].max()) < 4
    assert float(found[1.2][5:].min()) > 3


@pytest.mark.slow
def test_its_objective_is_the_exact_bound_for_linear_regression() -> None:
    (x, y), scale, delta = linear_regression(), 0.5, 2.0
    settings = VariationalUpdates(every=1, rows=1.0, multiplier=0.0, start=0.1)
    model = linear_model()
    method = VariationalLaplace(model, osc.likelihoods.Gaussian(scale), delta, sigma="learned", settings=settings)
    values = torch.stack([-len(x) * method.loss(x, y, len(x)).detach() for _ in range(1500)])
    expected = exact_elbo(x, y, scale, delta, flat(model), method.deviations().detach().square())
    assert abs(float(values.mean()) - expected) < 4 * float(values.std()) / len(values) ** 0.5
    assert float(values.std()) / len(values) ** 0.5 < 0.01 * abs(expected)


def test_rows_and_signs_are_drawn_apart() -> None:
    """One stream for both would tie the sign of the first row to which row it is."""
    method = VariationalLaplace(network(), CLASSES)
    first, sign = [], []
    for _ in range(400):
        first.append(int(torch.randperm(8, generator=method.generator(torch.device("cpu"), stream=1))[0]) % 2)
        sign.append(int(torch.randint(2, (8,), generator=method.generator(torch.device("cpu")))[0]))
        method.steps += 1
    assert 0.4 < float((torch.tensor(first) == torch.tensor(sign)).double().mean()) < 0.6


def test_the_head_start_is_of_training_alone() -> None:
    """Without a pass at the end, variances are those of the running curvature from the first steps on."""
    settings = VariationalUpdates(every=1, rows=1.0, recompute=False)
    method = VariationalLaplace(network(), CLASSES, settings=settings)
    q = descend(method, data(), 10, 0.01)
    assert_close(1 / q.variance(), 48 * method.running.average + method.delta)


@pytest.mark.release
def test_learned_and_closed_form_variances_agree() -> None:
    settings = VariationalUpdates(every=1, rows=1.0, memory=0.998, recompute=False)
    closed_method = VariationalLaplace(network(), CLASSES, settings=settings)
    closed = descend(closed_method, data(400), 1500, 0.02)
    method = VariationalLaplace(network(), CLASSES, sigma="learned", settings=LEARNED)
    learned = descend(method, data(400), 1500, 0.02)
    recomputed = osc.laplace(
        closed_method.model, CLASSES, data(400), structure="diag", prior=closed.prior, refine=False
    )
    for other in (learned, recomputed):
        assert float((closed.variance() / other.variance()).log().abs().mean()) < 0.1


@pytest.mark.slow
def test_a_temperature_weighs_the_divergence() -> None:
    (x, y), scale, delta = linear_regression(), 0.5, 2.0
    method = VariationalLaplace(linear_model(), osc.likelihoods.Gaussian(scale), delta, temperature=0.1)
    q = descend(method, (x, y), 1000, 0.03)
    mean, variance = mean_field_optimum(x, y, scale * 0.1**0.5, delta)
    assert_close(q.mean, mean, 1e-3)
    assert_close(q.variance(), variance, 1e-3)


def test_without_recomputing_the_variances_are_the_running_ones() -> None:
    settings = VariationalUpdates(recompute=False)
    method = VariationalLaplace(network(), CLASSES, settings=settings)
    done = run(method)
    assert_close(done.posterior.variance(), method.deviations().square())


# ---- networks ----------------------------------------------------------------------------------------------------


def test_kinks_warn() -> None:
    kinked = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)).double()
    with pytest.warns(UserWarning, match=r"piecewise linear operations \(relu\)"):
        run(VariationalLaplace(kinked, CLASSES), epochs=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(VariationalLaplace(network(), CLASSES), epochs=1)


@pytest.mark.parametrize("rows", [0.25, 1.0])
def test_batch_normalisation_keeps_the_statistics_of_its_batches(rows: float) -> None:
    """Those of the regulariser's rows do not count; scales and shifts are points."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Softplus(), nn.Linear(6, 3)).double()
    done = run(VariationalLaplace(model, CLASSES, settings=VariationalUpdates(every=1, rows=rows)), epochs=1)
    assert int(model[1].num_batches_tracked) == 3
    assert done.posterior.network.space.names == ("0.weight", "0.bias", "3.weight", "3.bias")
    assert not torch.equal(model[1].weight, torch.ones_like(model[1].weight)), "it is trained"
    assert osc.predict(done, data()[0][:5]).probs.shape == (5, 3)


def normalised(*layers: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv1d(1, 5, 1), *layers, nn.Softplus(), nn.Flatten(), nn.Linear(20, 3)).double()


@pytest.mark.parametrize(
    "layer", [nn.BatchNorm1d(5), nn.BatchNorm1d(5, momentum=None), nn.InstanceNorm1d(5, track_running_stats=True)]
)
def test_the_regulariser_leaves_running_statistics_and_modes_as_the_loss_has_left_them(layer: nn.Module) -> None:
    x, y = data()
    model = normalised(layer, nn.BatchNorm1d(5).eval())
    plain = {name: value.clone() for name, value in model.state_dict().items()}
    model(x.unsqueeze(1))
    after = {name: value.clone() for name, value in model.state_dict().items()}
    assert any(not torch.equal(plain[name], after[name]) for name in after), "one pass changes them"
    model.load_state_dict(plain)
    VariationalLaplace(model, CLASSES).loss(x.unsqueeze(1), y, len(y)).backward()
    for name, value in model.state_dict().items():
        assert torch.equal(value, after[name]), name
    assert [module.training for module in model] == [True, True, False, True, True, True]
    assert layer.track_running_stats


def test_few_rows_are_made_up_to_sixteen_for_statistics_of_a_batch() -> None:
    """1/variance of two or three rows would make the regulariser arbitrarily large."""
    x, y = data(100)
    method = VariationalLaplace(normalised(nn.BatchNorm1d(5)), CLASSES)
    seen: list[int] = []
    method.model.register_forward_hook(lambda module, inputs, f: seen.append(len(f)))
    for size in (8, 40, 100):
        method.steps.zero_()
        method.loss(x[:size].unsqueeze(1), y[:size], len(y))
    assert seen == [8, 8, 40, 16, 100, 25]


@pytest.mark.parametrize("rows", [0.5, 1.0])
def test_the_scale_of_weights_before_a_batch_normalisation_does_not_matter(rows: float) -> None:
    """Scaled together with its σ, such a layer leaves the loss and the regulariser as they were."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6, eps=1e-14), nn.Softplus(), nn.Linear(6, 3)).double()
    settings = VariationalUpdates(every=1, rows=rows)
    method = VariationalLaplace(model, CLASSES, sigma="learned", settings=settings)
    x, y = data()
    log_deviation = method.space.unflatten(method.log_deviation.detach())

    def loss() -> float:
        method.steps.zero_()  # the same rows and signs
        return method.loss(x, y, 10**12).item()  # so many data that the divergence does not count

    before = loss()
    with torch.no_grad():
        model[0].weight.mul_(3)
        model[0].bias.mul_(3)
    assert abs(loss() - before) > 1e-5 * abs(before), "the regulariser does not see the σ of this layer"
    for name in ("0.weight", "0.bias"):
        log_deviation[name].add_(math.log(3))
    assert loss() == pytest.approx(before, rel=1e-9)


def test_attention_is_differentiated_twice() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.1, activation="gelu", batch_first=True)
    model = nn.Sequential(nn.Unflatten(1, (1, 4)), layer, nn.Flatten(), nn.Linear(4, 3)).double()
    assert osc.predict(run(VariationalLaplace(model, CLASSES)), data()[0][:5]).probs.shape == (5, 3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fisher": "gnn"}, "unknown fisher 'gnn' .did you mean 'ggn'"),
        ({"sigma": "open"}, "unknown sigma 'open'"),
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"prior": "fanin"}, "unknown prior of a variational method 'fanin' .did you mean 'fan_in'"),
    ],
)
def test_what_it_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        VariationalLaplace(network(), CLASSES, **options)


@pytest.mark.parametrize(
    "options", [{"every": 0}, {"rows": 0.0}, {"rows": 1.5}, {"memory": 1.0}, {"multiplier": -1.0}, {"start": 0.0}]
)
def test_settings_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        VariationalUpdates(**options)
