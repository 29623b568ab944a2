"""The warning for sampled predictives that are far worse than the mode: when due, once, and disturbing nothing."""

import warnings
from pathlib import Path

import pytest
import torch
from torch import nn

import osculate as osc
from osculate.predictive import sampled
from tests.laws import assert_close

X = torch.randn(200, 5, generator=torch.Generator().manual_seed(1), dtype=torch.double)
Y = (3 * X[:, 0] * X[:, 1] > 0).long() + (X[:, 2] > 1).long()


def posterior(precision: float = 1e-3, likelihood: osc.likelihoods.Likelihood | None = None, y: torch.Tensor = Y):
    """A network at a mode, more or less, with a prior that is far too wide for it at small precisions."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 20), nn.Tanh(), nn.Linear(20, 20), nn.Tanh(), nn.Linear(20, 3)).double()
    likelihood = likelihood or osc.likelihoods.Categorical()
    optimizer = torch.optim.Adam(model.parameters(), 0.02)
    for _ in range(120):
        optimizer.zero_grad()
        (-likelihood.log_prob(model(X), y).mean()).backward()
        optimizer.step()
    return osc.laplace(model, likelihood, (X, y), prior=precision, refine=False), model


def warned(ask) -> list[str]:
    """What a call warns of."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        ask()
    return [str(one.message) for one in found]


def test_the_warning_comes_once_with_numbers_and_advice() -> None:
    q, _ = posterior()
    with pytest.warns(
        UserWarning, match=r"far worse than its mode does: -\d.*against -0\.\d\d nats.*64 data.*linearised"
    ):
        osc.predict(q, X, via="sampled", samples=2)
    assert not warned(lambda: osc.predict(q, X, via="sampled", samples=2))
    with pytest.warns(UserWarning, match="larger prior precision, or a temperature"):
        osc.sample_functions(q.replace(prior=q.prior), X, samples=2, via="sampled")


def test_useful_samples_and_the_linearised_predictive_stay_silent() -> None:
    q, _ = posterior()
    assert not warned(lambda: osc.predict(q, X))
    assert not warned(lambda: osc.sample_functions(q, X, samples=2))
    assert not warned(lambda: osc.predict(q.replace(prior=osc.priors.Isotropic(300.0)), X, via="sampled", samples=2))


def test_the_generator_and_the_global_state_are_left_alone() -> None:
    q, _ = posterior()
    with pytest.warns(UserWarning, match="far worse"):
        first = osc.predict(q, X, via="sampled", samples=3, generator=torch.Generator().manual_seed(0))
    unchecked = q.replace(first_data=None)
    assert not warned(lambda: osc.predict(unchecked, X, via="sampled", samples=3))
    again = osc.predict(unchecked, X, via="sampled", samples=3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(first.probs, again.probs)
    state = torch.random.get_rng_state()
    with pytest.warns(UserWarning, match="far worse"):
        sampled.warn_if_far_worse(q.replace(prior=q.prior))
    assert torch.equal(state, torch.random.get_rng_state())


def test_the_numbers_are_the_log_likelihoods_per_target() -> None:
    likelihood, y = osc.likelihoods.Gaussian(0.5), torch.stack([X[:, 0], X[:, 1], X[:, 2]], 1)
    q, model = posterior(likelihood=likelihood, y=y)
    x, t = X[:64], y[:64]
    mode, mixture = sampled.log_likelihoods(q, *q.first_data, draws=5)
    assert mode == pytest.approx(likelihood.log_prob(model(x), t).mean().item() / 3)
    predictive = osc.predict(
        q.replace(first_data=None),
        x,
        via="sampled",
        samples=5,
        generator=torch.Generator().manual_seed(0),
    )
    assert mixture == pytest.approx(float(predictive.log_prob(t).mean()))


def test_ignored_targets_do_not_count() -> None:
    likelihood, y = osc.likelihoods.Categorical(ignore_index=-100), torch.where(torch.arange(200) % 2 == 0, -100, Y)
    q, model = posterior(likelihood=likelihood, y=y)
    mode, mixture = sampled.log_likelihoods(q, *q.first_data)
    expected = osc.likelihoods.Categorical().log_prob(model(X[1:64:2]), Y[1:64:2]).mean()
    assert mode == pytest.approx(expected.item())
    assert mixture < mode


def test_a_fit_keeps_a_copy_of_few_data_and_files_none(tmp_path: Path) -> None:
    q, model = posterior()
    x, y = q.first_data
    assert_close(x, X[:64], 0)
    assert torch.equal(y, Y[:64])
    assert x.untyped_storage().nbytes() == 64 * 5 * 8
    osc.save(q, tmp_path / "q.safetensors")
    again = osc.load(tmp_path / "q.safetensors", model)
    assert again.first_data is None
    assert not warned(lambda: osc.predict(again, X, via="sampled", samples=2))
    with pytest.warns(UserWarning, match="far worse"):
        osc.predict(q.to(dtype=torch.float32), X.float(), via="sampled", samples=2)
