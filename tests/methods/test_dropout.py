"""MC dropout: trained as a network with dropout, predicting with it."""

import pytest
import torch
from torch import nn

import osculate as osc
from osculate.methods import MAP, MCDropout
from osculate.posteriors import Dropout

X, Y = torch.randn(50, 4, generator=torch.Generator().manual_seed(1)), torch.randn(50, 2)


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.2), nn.Linear(6, 2))


def run(method: MAP):
    return osc.train(method, (X, Y), epochs=3, lr=0.01, batch_size=16, progress=False, device="cpu")


def test_it_trains_as_map_and_predicts_with_dropout() -> None:
    likelihood = osc.likelihoods.Gaussian(0.5)
    done, mode = run(MCDropout(network(), likelihood, 2.0)), run(MAP(network(), likelihood, 2.0))
    assert isinstance(done.posterior, Dropout)
    for mine, theirs in zip(done.model.parameters(), mode.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)
    predictive = osc.predict(done, X, samples=30, generator=torch.Generator().manual_seed(0))
    assert bool((predictive.variance > 0.25 + 1e-6).all())
    plain = osc.predict(mode, X)
    torch.testing.assert_close(osc.predict(done, X, via="mode").mean, plain.mean)


def test_the_result_leaves_the_mode_of_the_model() -> None:
    method = MCDropout(network(), osc.likelihoods.Gaussian())
    method.train()
    method.result()
    assert method.model.training
    assert method.model[2].training


def test_a_network_without_dropout_is_refused() -> None:
    with pytest.raises(ValueError, match="no dropout layer with p > 0"):
        MCDropout(nn.Linear(4, 2), osc.likelihoods.Gaussian())
