"""What every variational method keeps: interruption, files, types of numbers, users' modules, the exact bound."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.methods import IVON, VOGN, MeanFieldVI, VariationalLaplace, VariationalUpdates
from osculate.posteriors import Gaussian
from tests.laws import assert_close
from tests.methods.variational import CLASSES, convolutional, data, descend, flat, network, run

HELD_OUT = (data(20)[0] + 0.1, data(20)[1])
METHODS: dict[str, Callable[..., Any]] = {
    "vl": VariationalLaplace,
    "vl, learned": lambda *args, **named: VariationalLaplace(*args, sigma="learned", **named),
    "vl, labels": lambda *args, **named: VariationalLaplace(
        *args, fisher="label", settings=VariationalUpdates(recompute=False), **named
    ),
    "vi": MeanFieldVI,
    "vi, drawn weights": lambda *args, **named: MeanFieldVI(*args, local=False, **named),
    "ivon": IVON,
    "ivon, squared": lambda *args, **named: IVON(*args, hessian="squared", **named),
    "vogn": VOGN,
}
#: Variants of a method, after a comma, are slow tests.
every_method = pytest.mark.parametrize(
    "make",
    [pytest.param(make, id=name, marks=[pytest.mark.slow] * ("," in name)) for name, make in METHODS.items()],
)


@every_method
@pytest.mark.parametrize("net", [network, convolutional])
def test_an_interrupted_run_ends_where_the_whole_one_does(make: Callable, net: Callable, tmp_path: Path) -> None:
    whole = run(make(net(), CLASSES), schedule="constant")
    run(make(net(), CLASSES), schedule="constant", epochs=2, folder=tmp_path)
    again = run(make(net(), CLASSES), schedule="constant", folder=tmp_path, resume=True)
    assert torch.equal(flat(whole.model), flat(again.model))
    losses = [[row["train_loss"] for row in done.history] for done in (whole, again)]
    assert losses[0] == losses[1]
    assert torch.equal(whole.posterior.variance(), again.posterior.variance())


@every_method
def test_a_resume_with_another_temperature_is_refused(make: Callable, tmp_path: Path) -> None:
    run(make(network(), CLASSES), schedule="constant", epochs=1, folder=tmp_path)
    with pytest.raises(ValueError, match="temperature=1.0, not 0.5"):
        run(make(network(), CLASSES, temperature=0.5), schedule="constant", folder=tmp_path, resume=True)


@every_method
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_saved_and_loaded(make: Callable, dtype: torch.dtype, tmp_path: Path) -> None:
    x, y = data()[0].to(dtype), data()[1]
    done = run(make(convolutional().to(dtype), CLASSES, temperature=0.5), (x, y))
    q = done.posterior
    assert isinstance(q, Gaussian)
    assert q.variance().dtype == dtype
    osc.save(done, tmp_path / "q.safetensors")
    again = osc.load(tmp_path / "q.safetensors", convolutional())
    for via in ("linearised", "sampled", "mode"):
        one, other = (
            osc.predict(each, x[:5], via=via, generator=torch.Generator().manual_seed(0)).probs for each in (q, again)
        )
        assert torch.equal(one, other)


@every_method
@pytest.mark.slow
def test_it_stops_early_on_the_network_of_the_mean(make: Callable) -> None:
    done = run(make(network(), CLASSES), epochs=30, validation=HELD_OUT, patience=3, schedule="constant", lr=0.05)
    best = min(row["validation_nll"] for row in done.history)
    nll = -float(osc.predict(done, HELD_OUT[0], via="mode").log_prob(HELD_OUT[1]).mean())
    assert nll == pytest.approx(best, rel=1e-6)


@every_method
def test_regression_with_dropout_and_frozen_layers(make: Callable) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.2), nn.Linear(6, 2)).double()
    model[0].bias.requires_grad_(False)
    x = data()[0]
    done = run(make(model, osc.likelihoods.Gaussian(0.5)), (x, x[:, :2]))
    assert osc.predict(done, x[:5]).variance.shape == (5, 2)
    assert "0.bias" not in done.posterior.network.space.names
    assert model[0].bias.requires_grad is False


@every_method
def test_bad_input(make: Callable) -> None:
    with pytest.raises(ValueError, match="holds nan"):
        run(make(network(), CLASSES), (data()[0] * float("inf") * 0, data()[1]))
    with pytest.raises(ValueError, match="has no loss"):
        make(network(), CLASSES).loss(data()[0][:0], data()[1][:0], 10)
    with pytest.raises(RuntimeError, match="has not been trained"):
        make(network(), CLASSES).result()
    normalised = nn.Sequential(nn.LayerNorm(4))
    with pytest.raises(ValueError, match="all trained parameters belong to normalisation layers"):
        make(normalised, CLASSES)


@every_method
def test_tied_weights(make: Callable) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
            self.two.weight = self.one.weight
            self.head = nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.tanh(self.two(torch.tanh(self.one(x)))))

    torch.manual_seed(0)
    done = run(make(Tied().double(), CLASSES))
    assert_close(torch.tensor(done.posterior.mean.numel()), torch.tensor(16 + 4 + 4 + 15))
    assert bool((done.posterior.variance() > 0).all())


@pytest.mark.parametrize("make", [VariationalLaplace, MeanFieldVI])
@pytest.mark.slow
def test_a_posterior_that_is_the_prior_warns(make: Callable) -> None:
    torch.manual_seed(0)
    noise = torch.randn(20, 4).double(), torch.randint(3, (20,))
    wide = nn.Sequential(nn.Linear(4, 60), nn.Softplus(), nn.Linear(60, 3)).double()
    with torch.no_grad():
        for p in wide.parameters():
            p.mul_(0.01)
    with pytest.warns(UserWarning, match="nearly the prior"):
        descend(make(wide, CLASSES, temperature=30.0), noise, 600, 0.05)


@pytest.mark.parametrize("make", [VariationalLaplace, MeanFieldVI])
def test_few_weights_of_many_data_are_no_such_posterior(make: Callable) -> None:
    x = torch.randn(5000, 8, generator=torch.Generator().manual_seed(0)).double()
    y = (x[:, 0] > 0).double().unsqueeze(1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        q = descend(make(nn.Linear(8, 1).double(), osc.likelihoods.Bernoulli()), (x, y), 300, 0.05)
    assert float((q.variance() * q.prior.vector(q.network.space)).max()) < 0.1, "far narrower than the prior"


@pytest.mark.parametrize("make", [IVON, VOGN, MeanFieldVI])
def test_few_steps_warn(make: Callable) -> None:
    with pytest.warns(UserWarning, match="12 steps are few for the variances"):
        run(make(network(), CLASSES))


def test_a_prior_that_would_make_a_variance_negative_is_refused() -> None:
    q = run(MeanFieldVI(network(), CLASSES)).posterior
    wider = MeanFieldVI(network(), CLASSES)
    with torch.no_grad():
        wider.log_deviation.copy_(0.1 - 0.5 * wider.delta.log())  # more than the prior's
    wide = run(wider, lr=1e-6).posterior
    assert bool((wide.replace(prior=osc.priors.Isotropic(20.0)).variance() > 0).all())
    assert bool((q.replace(prior=osc.priors.Isotropic(0.1)).variance() > 0).all())
    with pytest.raises(ValueError, match="the precision of a parameter would be -"):
        wide.replace(prior=osc.priors.Isotropic(0.1)).variance()
