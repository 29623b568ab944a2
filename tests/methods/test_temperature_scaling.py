"""Temperature scaling: the optimum, the network as it was, bounds, and refusals."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.likelihoods import Bernoulli, Categorical, Likelihood
from osculate.methods import TemperatureScaling
from osculate.networks import Tempered
from osculate.posteriors import Point
from tests.laws import assert_close

CASES = {
    "classes": (Categorical(), (4,)),
    "pixels": (Categorical(class_axis=1), (4, 2, 3)),
    "padding": (Categorical(ignore_index=-1), (3, 4)),
    "labels": (Bernoulli(), (3,)),
}


def logits(shape: tuple[int, ...], count: int = 300, size: float = 2.0) -> Tensor:
    return size * torch.randn(count, *shape, generator=torch.Generator().manual_seed(1), dtype=torch.double)


def labels(likelihood: Likelihood, f: Tensor) -> Tensor:
    with torch.random.fork_rng():
        torch.manual_seed(2)
        y = likelihood.distribution(f).sample()
    if getattr(likelihood, "ignore_index", None) is not None:
        y[::2, 0] = -1
    return y


def run(likelihood: Likelihood, x: Tensor, y: Tensor, model: nn.Module | None = None, **settings: Any) -> Any:
    return osc.train(TemperatureScaling(model or nn.Identity(), likelihood), (x, y), progress=False, **settings)


def temperature(done: Any) -> float:
    return float(done.model.temperature)


def network(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 4))


# ---- the optimum -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("likelihood", "shape"), CASES.values(), ids=CASES)
def test_the_slope_is_zero_and_the_nll_falls(likelihood: Likelihood, shape: tuple[int, ...], float64: None) -> None:
    f = logits(shape)
    y = labels(likelihood, f)
    done = run(likelihood, 3 * f, y)
    log_t = torch.tensor(temperature(done)).log().requires_grad_()
    nll = -likelihood.log_prob(3 * f / log_t.exp(), y).sum()
    (slope,) = torch.autograd.grad(nll, log_t)
    assert abs(float(slope)) < 1e-6 * float(nll.detach())
    before = -likelihood.log_prob(3 * f, y).sum()
    assert float(nll.detach()) < float(before)
    assert done.history[0]["train_loss"] == pytest.approx(float(nll.detach()) / len(y), rel=1e-10)
    assert len(done.history) == 1
    around = [-float(likelihood.log_prob(3 * f / (temperature(done) * factor), y).sum()) for factor in (0.999, 1.001)]
    assert min(around) > float(nll.detach())


def test_logits_of_the_right_scale_have_a_temperature_of_one(float64: None) -> None:
    f = logits((4,), 50_000)
    y = labels(Categorical(), f)
    assert temperature(run(Categorical(), f, y)) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize("factor", [0.2, 5.0])
def test_the_temperature_follows_the_scale_of_the_logits(factor: float, float64: None) -> None:
    f = logits((4,))
    y = labels(Categorical(), f)
    one, other = run(Categorical(), f, y), run(Categorical(), factor * f, y)
    assert temperature(other) == pytest.approx(factor * temperature(one), rel=1e-6)
    assert_close(osc.predict(other, factor * f).probs, osc.predict(one, f).probs, 1e-6)


def test_two_classes_are_one_label(float64: None) -> None:
    f = logits((1,))
    y = labels(Bernoulli(), f)
    both = run(Categorical(), torch.cat([torch.zeros_like(f), f], 1), y[:, 0].long())
    assert temperature(run(Bernoulli(), f, y)) == pytest.approx(temperature(both), rel=1e-8)


def test_in_single_precision_and_in_batches_it_is_the_same() -> None:
    f = logits((4,))
    y, f = labels(Categorical(), f), f.float()
    method = TemperatureScaling(nn.Linear(4, 4, bias=False).double(), Categorical())
    method.model.network.weight.data.copy_(torch.eye(4))
    whole = temperature(osc.train(method, (f.double(), y), progress=False))
    parts = [(f[:7], y[:7]), (f[7:], y[7:])]
    done = osc.train(TemperatureScaling(nn.Identity(), Categorical()), parts, progress=False)
    assert temperature(done) == pytest.approx(whole, rel=1e-6)
    assert done.model.temperature.dtype == torch.float32


def test_trained_again_on_other_data_it_is_fitted_again(float64: None) -> None:
    f = logits((4,))
    y, method = labels(Categorical(), f), TemperatureScaling(nn.Identity(), Categorical())
    first = temperature(osc.train(method, (f, y), progress=False))
    second = osc.train(method, (4 * f, y), progress=False)
    assert temperature(second) == pytest.approx(4 * first, rel=1e-6)


# ---- the network -----------------------------------------------------------------------------------------------


def test_the_network_stays_as_it_is_and_predicts_the_same_classes() -> None:
    model, x = network().train(), torch.randn(200, 5, generator=torch.Generator().manual_seed(1))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        f = model.eval()(x)
    model.train()
    y = labels(Categorical(), 3 * f)
    done = run(Categorical(), x, y, model)
    assert done.model.network is model
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(layer.training for layer in model.modules())
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    expected = run(Categorical(), f, y)  # of the logits in evaluation mode, though it is in training mode
    assert temperature(done) == pytest.approx(temperature(expected), rel=1e-5)
    assert temperature(done) < 0.7
    assert isinstance(done.posterior, Point)
    found = osc.predict(done, x)
    assert_close(found.probs, (f / temperature(done)).softmax(-1), 1e-5)
    assert torch.equal(found.probs.argmax(-1), f.argmax(-1))
    assert osc.tasks.calibration(done, (x, y)).metrics()["nll"] == pytest.approx(
        done.history[0]["train_loss"], rel=1e-4
    )
    again = osc.laplace(
        done.model.eval(), Categorical(), (x, y), prior=1.0, refine=False
    )  # the temperature is no parameter
    assert again.mean.numel() == sum(p.numel() for p in model.parameters())


class Own(nn.Module):
    """A user's own module of named inputs, with its outputs in an object."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(5, 3)

    def forward(self, ids: Tensor, mask: Tensor) -> Any:
        class Output:
            logits = self.linear(ids) * mask

        return Output()


@pytest.mark.filterwarnings("ignore:on these held-out data")
def test_a_module_of_ones_own_with_named_inputs() -> None:
    torch.manual_seed(0)
    x = {"ids": torch.randn(30, 5), "mask": torch.ones(30, 1)}
    done = run(Categorical(), x, torch.arange(30) % 3, Own())  # type: ignore[arg-type]
    assert osc.predict(done, x).probs.shape == (30, 3)


# ---- resuming and files ----------------------------------------------------------------------------------------


def test_it_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(60, 5, generator=torch.Generator().manual_seed(1))
    y = torch.arange(60) % 4

    def interrupted(self: TemperatureScaling) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(TemperatureScaling, "step", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run(Categorical(), x, y, network(), folder=tmp_path)
    whole = run(Categorical(), x, y, network(), folder=tmp_path, resume=True)  # nothing is there yet
    assert (tmp_path / "training.csv").read_text().startswith("epoch,train_loss,temperature")
    again = run(Categorical(), x, y, network(), folder=tmp_path, resume=True, validation=(x, y))
    assert again.history == whole.history
    assert temperature(again) == temperature(whole) != 1.0
    other = network(1)
    before = other[0].weight.clone()
    with pytest.raises(ValueError, match="made with network="):
        run(Categorical(), x, y, other, folder=tmp_path, resume=True)
    assert torch.equal(other[0].weight, before)


def test_validation_data_are_scored_at_the_temperature() -> None:
    f = logits((4,)).float()
    y = labels(Categorical(), f)
    done = run(Categorical(), 3 * f[:200], y[:200], validation=(3 * f[200:], y[200:]))
    expected = -osc.predict(done, 3 * f[200:]).log_prob(y[200:]).mean()
    assert done.history[0]["validation_nll"] == pytest.approx(float(expected), rel=1e-5)


def test_it_is_saved_and_loaded_exactly(tmp_path: Path) -> None:
    x, y = torch.randn(60, 5), torch.arange(60) % 4
    done = run(Categorical(), x, y, network())
    osc.save(done, tmp_path / "q.safetensors")
    again = osc.load(tmp_path / "q.safetensors", Tempered(network(5)))
    assert torch.equal(osc.predict(again, x).probs, osc.predict(done, x).probs)
    single, double = again.to(dtype=torch.float32), again.to(dtype=torch.double)
    assert_close(osc.predict(double, x.double()).probs.float(), osc.predict(single, x).probs, 1e-5)


# ---- bounds and refusals ---------------------------------------------------------------------------------------


def test_targets_without_a_mistake_take_the_lower_bound_with_a_warning() -> None:
    f = logits((4,)).float()
    with pytest.warns(UserWarning, match="lower bound 0.01, which is used: no target is misclassified"):
        done = run(Categorical(), f, f.argmax(-1))
    assert temperature(done) == pytest.approx(0.01)
    assert bool(osc.predict(done, f).probs.isfinite().all())


def test_logits_that_are_worse_than_none_take_the_upper_bound_with_a_warning() -> None:
    f = logits((4,)).float()
    with pytest.warns(UserWarning, match="upper bound 100, which is used"):
        done = run(Categorical(), f, f.argmin(-1))
    assert temperature(done) == pytest.approx(100.0)


def test_logits_that_say_nothing_keep_a_temperature_of_one() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert temperature(run(Categorical(), torch.zeros(9, 3), torch.arange(9) % 3)) == 1.0


def test_bad_input_is_refused() -> None:
    for likelihood in (osc.likelihoods.Gaussian(), osc.likelihoods.Poisson(), osc.likelihoods.StudentT()):
        with pytest.raises(TypeError, match=f"Categorical or Bernoulli, got {type(likelihood).__name__}"):
            TemperatureScaling(nn.Identity(), likelihood)
    with pytest.raises(ValueError, match="every target is one that the likelihood ignores"):
        run(Categorical(ignore_index=-1), torch.zeros(3, 2), torch.full((3,), -1))
    with pytest.raises(ValueError, match="target 7 in row 0 of the batch is out of range"):
        run(Categorical(), torch.zeros(3, 2), torch.full((3,), 7))
    with pytest.raises(ValueError, match="TemperatureScaling takes steps on all data, so that lr has no effect"):
        run(Categorical(), torch.zeros(3, 2), torch.zeros(3, dtype=torch.long), lr=0.1)
    with pytest.raises(RuntimeError, match="has not seen data yet"):
        TemperatureScaling(nn.Identity(), Categorical()).step()
    for wrong in (0.0, -1.0, float("inf")):
        with pytest.raises(ValueError, match=f"temperature must be positive and finite, got {wrong}"):
            Tempered(nn.Identity(), wrong)
