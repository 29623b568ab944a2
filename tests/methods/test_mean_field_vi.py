"""Mean-field variational inference: what it draws, its divergence, and where it ends."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

import osculate as osc
from osculate.methods import MAP, MeanFieldVI, WarmUp
from osculate.methods.mean_field_vi import LocalReparameterisation
from osculate.priors import ScaleMixture
from osculate.training import train
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
    run,
)

LAYERS = {
    "linear": (nn.Linear(3, 2), (3,)),
    "without bias": (nn.Linear(3, 2, bias=False), (3,)),
    "strided": (nn.Conv2d(2, 4, (1, 2), stride=2, padding=1, dilation=2, groups=2), (2, 5, 6)),
    "transposed": (nn.ConvTranspose2d(2, 3, 3, stride=2), (2, 3, 4)),
    "sequence": (nn.Conv1d(2, 3, 3), (2, 7)),
}


@pytest.mark.parametrize("name", LAYERS)
def test_sums_have_the_moments_of_drawn_weights(name: str) -> None:
    layer, shape = LAYERS[name]
    layer = layer.double()
    torch.manual_seed(0)
    x = torch.randn(2, *shape, dtype=torch.double)
    mean = dict(layer.named_parameters())
    deviation = {name: 0.1 + torch.rand_like(p) for name, p in mean.items()}
    with torch.no_grad(), LocalReparameterisation(mean, {name: s.square() for name, s in deviation.items()}):
        draws = torch.stack([layer(x) for _ in range(4000)])
    with torch.no_grad():
        expected = layer(x)
        drawn = []
        for _ in range(4000):
            theta = {name: p + deviation[name] * torch.randn_like(p) for name, p in mean.items()}
            drawn.append(torch.func.functional_call(layer, theta, (x,)))
    error = draws.std(0) / len(draws) ** 0.5
    assert float(((draws.mean(0) - expected) / error).abs().max()) < 5
    assert_close(draws.var(0), torch.stack(drawn).var(0), 0.15)


def test_weights_of_other_operations_are_drawn_once() -> None:
    layer = nn.Embedding(4, 3).double()
    mean = {"weight": layer.weight}
    with torch.no_grad(), LocalReparameterisation(mean, {"weight": torch.ones_like(layer.weight)}):
        one, other = layer(torch.tensor([1])), layer(torch.tensor([1]))
    assert torch.equal(one, other)
    assert not torch.equal(one, layer.weight[1:2])


def test_inputs_of_zeros_have_a_gradient() -> None:
    torch.manual_seed(0)
    layer = nn.Linear(3, 2, bias=False)
    method = MeanFieldVI(layer, osc.likelihoods.Gaussian())
    method.loss(torch.zeros(4, 3), torch.zeros(4, 2), 4).backward()
    assert method.log_deviation.grad is not None
    assert bool(method.log_deviation.grad.isfinite().all())


@pytest.mark.parametrize("local", [True, False])
def test_without_variance_it_is_map(local: bool) -> None:
    method = MeanFieldVI(network(), CLASSES, local=local, multiplier=0.0)
    with torch.no_grad():
        method.log_deviation.fill_(-70.0)
    alone = run(MAP(network(), CLASSES, osc.priors.fan_in(network())))
    assert_close(flat(run(method).model), flat(alone.model), 1e-6)


def test_the_divergence_is_that_of_normals() -> None:
    method = MeanFieldVI(network(), CLASSES, prior=2.0, temperature=0.5)
    q = Normal(flat(method.model), method.deviations().detach())
    expected = 0.5 / 40 * kl_divergence(q, Normal(torch.zeros(1).double(), 2.0**-0.5)).sum()
    found = method.divergence_at_mean(40) + method.divergence_of_variances(
        method.log_deviation, method.deviations().square(), 40
    )
    assert_close(found, expected)


@pytest.mark.slow
def test_the_divergence_from_a_mixture_is_that_of_a_normal_where_both_parts_are_one() -> None:
    mixture = ScaleMixture(0.3, 0.7, 0.7)
    method = MeanFieldVI(network(), CLASSES, prior=mixture)
    known = MeanFieldVI(network(), CLASSES, prior=0.7**-2)
    draws = torch.stack([method._sampled_divergence(mixture).detach() for _ in range(500)])
    expected = (
        known.divergence_at_mean(1) + known.divergence_of_variances(known.log_deviation, known.deviations().square(), 1)
    ).detach()
    assert abs(float(draws.mean() - expected)) < 4 * float(draws.std()) / len(draws) ** 0.5


@pytest.mark.release
def test_a_mixture_gives_sparser_weights() -> None:
    x, y = data(200)
    sizes = {}
    for name, prior in {"one": 1.0, "two": ScaleMixture(0.1, 1.0, 0.01)}.items():
        q = descend(MeanFieldVI(network(), CLASSES, prior=prior, local=False), (x, y), 500, 0.03)
        sizes[name] = float((q.mean.abs() < 0.05).double().mean())
    assert sizes["two"] > sizes["one"]


@pytest.mark.parametrize("local", [True, pytest.param(False, marks=pytest.mark.release)])
@pytest.mark.slow
def test_it_ends_at_the_optimum_of_linear_regression(local: bool) -> None:
    (x, y), scale, delta = linear_regression(), 0.5, 2.0
    method = MeanFieldVI(linear_model(), osc.likelihoods.Gaussian(scale), delta, samples=4, local=local, multiplier=3.0)
    q = descend(method, (x, y), 1000, 0.03)
    mean, variance = mean_field_optimum(x, y, scale, delta)
    assert_close(q.mean, mean, 0.02)
    assert_close(q.variance(), variance, 0.1)


def test_the_result_has_the_variances_that_were_learned_and_predicts_in_each_way() -> None:
    x, y = data()
    method = MeanFieldVI(network(), CLASSES, temperature=0.3)
    done = run(method, (x, y))
    assert_close(done.posterior.variance(), method.deviations().detach().square())
    ways = {via: osc.predict(done, x[:5], via=via).probs for via in ("sampled", "linearised", "mode")}
    assert_close(ways["mode"], method.model(x[:5]).softmax(-1))
    assert all(bool(p.isfinite().all()) for p in ways.values())
    assert "log_sigma_over_prior" in done.history[-1]


def test_several_samples_have_less_noise() -> None:
    x, y = data()
    spread = {}
    for samples in (1, 8):
        torch.manual_seed(0)
        method = MeanFieldVI(network(), CLASSES, samples=samples)
        with torch.no_grad():
            method.log_deviation.fill_(-1.0)
        spread[samples] = float(torch.stack([method.loss(x, y, 48).detach() for _ in range(100)]).std())
    assert spread[8] < 0.6 * spread[1]


def test_a_users_module_is_sampled_locally() -> None:
    method = MeanFieldVI(convolutional(), CLASSES)
    with torch.no_grad():
        method.log_deviation.fill_(-1.0)
    one, other = (method.loss(*data(), 48) for _ in range(2))
    assert not torch.equal(one, other)
    assert method.names == ("conv.weight", "head.weight", "head.bias")


@pytest.mark.parametrize(("options", "message"), [({"samples": 0}, "samples"), ({"multiplier": -1.0}, "multiplier")])
def test_what_it_refuses(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MeanFieldVI(network(), CLASSES, **options)


@pytest.mark.parametrize("options", [{"share": 1.0}, {"wide": 0.1, "narrow": 0.2}, {"narrow": 0.0}])
def test_mixtures_that_are_none_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="share|scales"):
        ScaleMixture(**options)


def test_a_mixture_is_a_density() -> None:
    grid = torch.linspace(-20, 20, 400_001, dtype=torch.double)
    density = torch.vmap(lambda w: ScaleMixture(0.3, 2.0, 0.01).log_prob({"w": w}))(grid).exp()
    assert float(torch.trapezoid(density, grid)) == pytest.approx(1.0, abs=1e-6)
    weights = torch.randn(3, dtype=torch.double)
    each = torch.stack([ScaleMixture().log_prob({"w": w}) for w in weights])
    assert_close(ScaleMixture().log_prob({"v": weights[:1], "w": weights[1:]}), each.sum())


def test_the_divergence_warms_up_by_the_epoch_and_a_resumed_run_goes_on_with_it(tmp_path: Path) -> None:
    x, y = data()
    options: dict[str, Any] = {"batch_size": 16, "lr": 0.01, "schedule": "constant", "progress": False}

    def method() -> MeanFieldVI:
        torch.manual_seed(0)
        return MeanFieldVI(network(), CLASSES, temperature=WarmUp(4, 0.5))

    whole, broken = method(), method()
    assert whole.weight == 0.125
    train(whole, (x, y), epochs=4, **options)
    assert whole.weight == 0.5
    whole.before_training([])
    assert whole.weight == 0.125  # a second training warms up again
    whole.epochs.fill_(4)
    train(broken, (x, y), epochs=2, folder=tmp_path, **options)
    again = method()
    train(again, (x, y), epochs=4, folder=tmp_path, resume=True, **options)
    assert_close(again.log_deviation, whole.log_deviation)
    assert not torch.equal(broken.log_deviation, whole.log_deviation)


def test_the_loss_has_the_weight_of_the_epoch() -> None:
    x, y = data()
    torch.manual_seed(0)
    warm, cold = (MeanFieldVI(network(), CLASSES, temperature=t) for t in (WarmUp(10, 1.0), 0.1))
    cold.load_state_dict(warm.state_dict())
    values = []
    for made in (warm, cold):
        torch.manual_seed(1)
        values.append(made.loss(x, y, 48).detach())
    assert_close(*values)


@pytest.mark.parametrize(("epochs", "temperature"), [(0, 1.0), (2.5, 1.0), (3, 0.0)])
def test_a_warm_up_that_cannot_be_is_refused(epochs: Any, temperature: float) -> None:
    with pytest.raises((ValueError, TypeError)):
        WarmUp(epochs, temperature)
