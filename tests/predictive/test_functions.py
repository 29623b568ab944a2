"""Variances and probabilities from random vectors: without bias, as exact as they say, and in bounded memory."""

import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate import memory
from osculate.inputs import take
from osculate.networks import ConvAutoencoder
from osculate.posteriors import Gaussian
from osculate.predictive import link as links
from tests.errors import says
from tests.laws import STRUCTURES, assert_close, targets
from tests.test_any_network import Watch
from tests.zoo import ZOO

CATEGORICAL = osc.likelihoods.Categorical()


def fitted(net: str, likelihood: osc.likelihoods.Likelihood, structure: str = "kron", n: int = 6) -> tuple:
    model, x = ZOO[net].model(), ZOO[net].x(n)
    return osc.laplace(
        model, likelihood, (x, targets(likelihood, model, x)), structure=structure, prior=1.0, refine=False
    ), x


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def estimates(q: Gaussian, x: Tensor, via: str, samples: int, repeats: int, **options: object) -> Tensor:
    """Independent estimates of a variance map, relative to the exact one: (repeats, N, *C)."""
    generator = seeded()
    found = [
        osc.functional_variance(q, x, diagonal=True, via=via, samples=samples, generator=generator, **options)
        for _ in range(repeats)
    ]
    return torch.stack(found) / osc.functional_variance(q, x, diagonal=True)


@pytest.mark.parametrize("net", [pytest.param("unet", marks=pytest.mark.release), "two_inputs"])
@pytest.mark.parametrize("via", ["samples", pytest.param("sketch", marks=pytest.mark.slow)])
def test_variance_maps_are_without_bias(via: str, net: str) -> None:
    q, x = fitted(net, osc.likelihoods.Gaussian(0.5), n=3)
    x = take(x, slice(2))
    found = estimates(q, x, via, 4, 80)
    assert found.shape[1:] == q.network(x).shape
    error = found.std(0) / 80**0.5
    assert float(((found.mean(0) - 1) / error).abs().max()) < 4.5
    assert bool((found >= 0).all())


def test_samples_have_the_stated_relative_error() -> None:
    q, x = fitted("conv2d", CATEGORICAL)
    found = estimates(q, x, "samples", 50, 60)
    assert float((found - 1).square().mean().sqrt()) == pytest.approx((2 / 50) ** 0.5, rel=0.25)


@pytest.mark.parametrize("structure", [*STRUCTURES, "matrix_free"])
def test_a_sketch_is_exact_where_it_has_as_many_vectors_as_the_covariance_directions(structure: str) -> None:
    q, x = fitted("mlp", CATEGORICAL, structure)
    assert_close(estimates(q, x[:2], "sketch", 6, 1), torch.ones(1, 2, 3, dtype=torch.double), 1e-7)


def decoder() -> tuple[Gaussian, Tensor]:
    """An image of 8 x 6 pixels behind four numbers, with a posterior over the first decoder layer: K of low rank."""
    net = ConvAutoencoder((1, 8, 6), 1, latent=4, width=3, depth=1).double()
    x = torch.randn(12, 1, 8, 6, dtype=torch.double)
    return osc.laplace(net, osc.likelihoods.Gaussian(0.3), (x, x), subset=["decoder.0"], prior=1.0, refine=False), x


def error(q: Gaussian, x: Tensor, via: str, samples: int) -> float:
    """The root mean square of the relative error."""
    return float((estimates(q, x, via, samples, 10) - 1).square().mean().sqrt())


def test_a_sketch_is_exact_for_a_rank_up_to_half_its_vectors() -> None:
    """36 hidden units, of which 12 are pooled away: 48 pixels of rank at most 36."""
    q, x = decoder()
    covariance = osc.functional_variance(q, x[:1])[0]
    rank = int(torch.linalg.matrix_rank(covariance, hermitian=True))
    assert rank < 48
    exact = estimates(q, x[:2], "sketch", 2 * rank, 1)
    assert_close(exact, torch.ones_like(exact), 1e-6)
    assert float((estimates(q, x[:2], "sketch", 2 * rank - 8, 1) - 1).abs().max()) > 1e-4


def test_a_sketch_beats_samples_on_few_dominant_directions_and_not_on_many_alike() -> None:
    q, x = decoder()
    assert error(q, x[:2], "sketch", 40) < 0.5 * error(q, x[:2], "samples", 40)
    data = torch.randn(300, 1, dtype=torch.double), torch.randn(300, 48, dtype=torch.double)
    alike = osc.laplace(nn.Linear(1, 48).double(), osc.likelihoods.Gaussian(), data, prior=1.0, refine=False)
    assert error(alike, data[0][:2], "sketch", 20) > error(alike, data[0][:2], "samples", 20)


@pytest.mark.parametrize("via", ["samples", "sketch"])
def test_estimates_in_single_precision_and_chunks(via: str) -> None:
    q, x = fitted("unet", osc.likelihoods.Gaussian(0.5))
    single = estimates(q.to(dtype=torch.float), x[:3].float(), via, 12, 2, memory=2000)
    assert single.dtype == torch.float
    assert 0.7 < float(single.mean()) < 1.3
    if via == "samples":  # the same draws whatever the memory
        assert_close(*(estimates(q, x[:3], via, 5, 1, memory=memory) for memory in (2000, "1GB")))


def test_what_a_variance_map_cannot_be() -> None:
    q, x = fitted("mlp", CATEGORICAL)
    with pytest.raises(ValueError, match=says("'sketch'", "diagonal=True", "'columns'")):
        osc.functional_variance(q, x, via="sketch")
    with pytest.raises(ValueError, match=says("unknown way to functional variances 'sample'", "'samples'")):
        osc.functional_variance(q, x, via="sample", diagonal=True)
    for via, samples in (("samples", 0), ("sketch", 1)):
        with pytest.raises(ValueError, match=says(via, f"samples={samples}")):
            osc.functional_variance(q, x, diagonal=True, via=via, samples=samples)


@pytest.mark.parametrize("net", ["mlp", pytest.param("unet", marks=pytest.mark.slow), "gpt"])
def test_integrating_over_functions_has_the_limit_of_the_covariance(net: str) -> None:
    likelihood = osc.likelihoods.Categorical(class_axis=1 if net == "unet" else -1)
    q, x = fitted(net, likelihood)
    found = osc.predict(q, x, link="functions", samples=1000, generator=seeded()).probs
    draws = osc.sample_functions(q, x, samples=1000, generator=seeded(1))
    error = draws.movedim(likelihood.class_axis + (net == "unet"), -1).softmax(-1).std(0) / 1000**0.5
    exact = osc.predict(q, x, link=links.MonteCarlo(4096)).probs
    assert found.shape == exact.shape
    assert float(((found - exact) / error).abs().max()) < 4.5
    mode = likelihood.distribution(q.network(x)).probs
    assert float(((found - mode) / error).abs().max()) > 5  # what is compared is not the network alone


def test_functions_of_other_likelihoods_are_mixtures() -> None:
    for likelihood in (osc.likelihoods.Gaussian(0.5), osc.likelihoods.Bernoulli(), osc.likelihoods.Poisson()):
        q, x = fitted("mlp", likelihood)
        y = targets(likelihood, q.model, x)
        predictive = osc.predict(q, x, link="functions", samples=30, generator=seeded())
        again = likelihood.mixture(osc.sample_functions(q, x, samples=30, generator=seeded()))
        assert_close(predictive.log_prob(y), again.log_prob(y))


def many_classes(classes: int) -> tuple[Gaussian, Tensor]:
    """A label of many for each of five tokens."""
    model, x = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, classes)), torch.randn(6, 5, 3)
    y = torch.randint(classes, (6, 5))
    return osc.laplace(model, CATEGORICAL, (x, y), structure="diag", curvature="fisher", prior=1.0, refine=False), x


def test_thousands_of_classes_at_many_positions_are_predicted_within_the_memory() -> None:
    q, x = many_classes(1000)
    memory = 4 * x.shape[0] * 5 * 1000 * 3  # three draws of all outputs
    with Watch() as watch:
        probs = osc.predict(q, x, link="functions", samples=40, memory=memory, generator=seeded()).probs
    assert watch.largest <= 3 * probs.numel() < 40 * probs.numel()
    whole = osc.predict(q, x, link="functions", samples=40, memory="1GB", generator=seeded()).probs
    assert_close(probs, whole, 1e-5)
    assert_close(probs.sum(-1), torch.ones(6, 5), 1e-5)


def test_covariances_that_do_not_fit_are_refused_with_their_size(monkeypatch: pytest.MonkeyPatch) -> None:
    q, x = many_classes(300)
    for module in (memory, sys.modules["osculate.predictive.predict"]):  # the package has a function predict
        monkeypatch.setattr(module, "free", lambda _: 10**7)
    with pytest.raises(ValueError, match=says("300 x 300", "10.8 MB", "10.0 MB", "link='functions'", "'probit'")):
        osc.predict(q, x)
    with pytest.raises(ValueError, match=says("covariances of 1,500 outputs", "diagonal=True")):
        osc.functional_variance(q, x)
    assert osc.predict(q, x, link="functions", samples=3).probs.shape == (6, 5, 300)
    assert osc.predict(q, x, link="probit").probs.shape == (6, 5, 300)


def test_functions_go_with_the_linearised_predictive_alone() -> None:
    q, x = fitted("mlp", osc.likelihoods.Gaussian(0.5))
    with pytest.raises(ValueError, match=says("link='functions'", "via='sampled'")):
        osc.predict(q, x, via="sampled", link="functions")
    with pytest.raises(ValueError, match=says("joint='batch'", "osc.sample_functions")):
        osc.predict(q, x, link="functions", joint="batch")


def test_draws_do_not_depend_on_how_many_are_asked_for_at_once() -> None:
    q, x = fitted("mlp", CATEGORICAL)
    generator = seeded()
    assert_close(torch.cat([q.sample(n, generator) for n in (1, 3, 2)]), q.sample(6, seeded()))


@pytest.mark.parametrize("verb", [osc.predict, osc.sample_functions, osc.functional_variance])
def test_empty_inputs_are_refused(verb: Callable) -> None:
    X, y = torch.randn(20, 2), torch.randint(3, (20,))
    q = osc.laplace(torch.nn.Linear(2, 3), osc.likelihoods.Categorical(), (X, y), prior=1.0, refine=False)
    with pytest.raises(ValueError, match="x has no rows"):
        verb(q, X[:0])
    with pytest.raises(ValueError, match="x holds nan"):
        verb(q, torch.full((3, 2), torch.nan))
