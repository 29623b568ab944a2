"""Pairs of NumPy arrays, which are taken as they are."""

import numpy as np
import pytest
import torch
from torch import nn

import osculate as osc

RNG = np.random.default_rng(0)
X, LABELS = RNG.normal(size=(40, 3)), RNG.integers(2, size=40)


def network(dtype: torch.dtype = torch.float32, outputs: int = 2) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, outputs)).to(dtype)


@pytest.mark.parametrize(
    ("given", "dtype"),
    [
        (np.float64, torch.float32),
        (np.float32, torch.float64),
        pytest.param(np.float64, torch.float64, marks=pytest.mark.release),
        pytest.param(np.float32, torch.float32, marks=pytest.mark.release),
    ],
)
def test_arrays_are_those_of_the_network_s_type(dtype: torch.dtype, given: type) -> None:
    model, likelihood = network(dtype), osc.likelihoods.Categorical()
    x, tensor = X.astype(given), torch.tensor(X.astype(given)).to(dtype)
    expected = osc.laplace(model, likelihood, (tensor, torch.tensor(LABELS)))
    q = osc.laplace(model, likelihood, (x, LABELS.astype(np.int32)))
    assert torch.equal(osc.predict(q, x).probs, osc.predict(expected, tensor).probs)
    assert torch.equal(osc.functional_variance(q, x), osc.functional_variance(expected, tensor))
    assert osc.sample_functions(q, x, samples=2).shape == (2, 40, 2)
    assert osc.function_posterior(q, x[:3]).mean.dtype == dtype
    assert osc.compare(q, (x, LABELS)).metrics() == osc.compare(expected, (tensor, torch.tensor(LABELS))).metrics()
    assert osc.tune(q, (x, LABELS)).num_data == 40
    assert osc.laplace(model, likelihood, (x, LABELS), validation=(x, LABELS)).tuning is not None


@pytest.mark.slow
def test_targets_of_other_types() -> None:
    y = X[:, :1] + 1
    q = osc.laplace(network(outputs=1), osc.likelihoods.Gaussian(), (X, y))
    assert osc.predict(q, X).mean.dtype == torch.float32
    counts = osc.laplace(network(outputs=1), osc.likelihoods.Poisson(), (X, LABELS[:, None]))
    assert osc.predict(counts, X).mean.shape == (40, 1)
    yes = osc.laplace(network(outputs=1), osc.likelihoods.Bernoulli(), (X, LABELS[:, None] > 0))
    assert osc.predict(yes, {"input": X}).probs.shape == (40, 1)
    mixed = osc.laplace(network(), osc.likelihoods.Categorical(), (X, torch.tensor(LABELS)))
    assert mixed.num_data == 40


def test_words_are_refused() -> None:
    with pytest.raises(TypeError, match="holds no real numbers"):
        osc.laplace(network(), osc.likelihoods.Categorical(), (X, np.array(["a", "b"] * 20)))
