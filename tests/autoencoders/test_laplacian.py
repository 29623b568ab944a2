"""Laplacian autoencoders: the temperature that held-out data choose."""

import pytest
import torch
from torch import Tensor

import osculate as osc
from osculate.autoencoders import Autoencoder, LaplacianAutoencoder, Representation
from osculate.autoencoders.laplacian import TEMPERATURES

LIKELIHOOD = osc.likelihoods.Gaussian(0.2)


def trained() -> tuple[Autoencoder, Tensor, Tensor]:
    torch.manual_seed(0)
    x = torch.tanh(torch.randn(160, 2) @ torch.randn(2, 8))
    net = Autoencoder(*osc.networks.mlp_coders((8,), 2, (12,)))
    osc.train(osc.methods.MAP(net, LIKELIHOOD), (x[:120], x[:120]), epochs=60, lr=0.01, progress=False)
    return net, x[:120], x[120:]


def test_the_temperature_is_the_highest_that_held_out_data_cannot_tell_from_the_best() -> None:
    net, x, held_out = trained()
    given = 0.001, 0.1, 1.0, 100.0
    r = LaplacianAutoencoder.post_hoc(net, LIKELIHOOD, x, validation=held_out, temperatures=given, samples=30)
    q = r.posterior
    scores = {}
    for value in given:
        draws = Representation(q.replace(temperature=value))
        with pytest.warns() if value == 100 else _nothing():
            scores[value] = draws.log_prob(held_out, 30, torch.Generator().manual_seed(0)).double()
    best = max(scores, key=lambda value: float(scores[value].mean()))
    loss = {value: scores[best] - score for value, score in scores.items()}
    close = [v for v, each in loss.items() if float(each.mean()) <= float(each.std(correction=0)) / len(each) ** 0.5]
    assert q.temperature == max(close) < 100
    assert LaplacianAutoencoder.post_hoc(net, LIKELIHOOD, x, validation=None).posterior.temperature == 1


class _nothing:
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def test_online_training_and_tuning() -> None:
    net, x, held_out = trained()
    method = osc.methods.OnlineLaplace(net, LIKELIHOOD, temperature=0.01)
    done = osc.train(method, (x, x), epochs=5, lr=1e-3, progress=False)
    r = LaplacianAutoencoder.tuned(done, held_out, codes=x, samples=5)
    assert r.generate(4).shape == (4, 8)
    assert r.posterior.temperature in TEMPERATURES


def test_after_online_training_the_noise_is_that_of_the_residuals() -> None:
    net, x, held_out = trained()
    likelihood = osc.likelihoods.Gaussian(1.0)
    osc.train(osc.methods.OnlineLaplace.published(net, likelihood), (x, x), epochs=3, progress=False)
    q = LaplacianAutoencoder.post_hoc(net, likelihood, x, validation=held_out, samples=5).posterior
    assert q.temperature in TEMPERATURES
    assert float(q.prior.precision) == 1
    with torch.no_grad():
        error = (net(x) - x).square().mean().sqrt()
    assert float(q.likelihood.scale) == pytest.approx(float(error), rel=1e-4)


def test_what_cannot_be_tuned_is_refused() -> None:
    net, x, held_out = trained()
    with pytest.raises(TypeError, match="needs a Gaussian posterior"):
        LaplacianAutoencoder.tuned(osc.posteriors.Point(net, LIKELIHOOD), held_out)
    q = osc.laplace(net, LIKELIHOOD, (x, x), structure="diag", prior=1.0, refine=False)
    with pytest.raises(ValueError, match="NaN or infinite"):
        LaplacianAutoencoder.tuned(q, held_out * torch.nan)
