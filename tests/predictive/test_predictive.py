"""Predictives: links against Monte Carlo, samples against covariances, and what a user can ask for."""

from functools import cache

import pytest
import torch
from torch import nn

import osculate as osc
from osculate.curvature.columns import Columns
from osculate.predictive import link as links
from tests.laws import STRUCTURES, assert_close, targets
from tests.zoo import ZOO


@cache
def posterior(likelihood: osc.likelihoods.Likelihood, structure: str = "kron", prior: float = 1.0, net: str = "mlp"):
    model, x = ZOO[net].model(), ZOO[net].x(20)
    return osc.laplace(
        model, likelihood, (x, targets(likelihood, model, x)), structure=structure, prior=prior, refine=False
    ), x


def test_far_from_the_data_laplace_is_unsure_where_the_mode_is_certain() -> None:
    """Logistic regression at its mode, on six points: whatever the direction in which one goes away from them."""
    noise = torch.randn(6, 2, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    y = torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0, 0.0], dtype=torch.double).unsqueeze(1)
    x = noise + 4 * y - 2
    likelihood, model, prior = osc.likelihoods.Bernoulli(), nn.Linear(2, 1).double(), 0.1
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def energy() -> torch.Tensor:
        optimizer.zero_grad()
        loss = 0.5 * prior * sum(p.square().sum() for p in model.parameters()) - likelihood.log_prob(model(x), y).sum()
        loss.backward()
        return loss

    optimizer.step(energy)
    q = osc.laplace(model, likelihood, (x, y), structure="full", prior=prior, refine=False)
    angle = torch.linspace(0, 2 * torch.pi, 73, dtype=torch.double)[:-1]
    far = 1000 * torch.stack([angle.cos(), angle.sin()], 1)
    certain = osc.predict(osc.posteriors.Point(model, likelihood), far).probs.squeeze(1) > 0.999
    assert int(certain.sum()) > 30
    assert float(osc.predict(q, far).probs[certain].max()) < 0.9


@pytest.mark.parametrize("structure", STRUCTURES)
def test_sampled_linear_functions_have_the_functional_variance(structure: str) -> None:
    q, x = posterior(osc.likelihoods.Categorical(), structure)
    f = osc.sample_functions(q, x[:4], samples=4000, generator=torch.Generator().manual_seed(0))
    assert f.shape == (4000, 4, 3)
    deviations = f - f.mean(0)
    found = torch.einsum("snc,snd->ncd", deviations, deviations) / 4000
    assert_close(found, osc.functional_variance(q, x[:4]), 0.1)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_samples_have_the_posterior_mean_and_covariance(structure: str) -> None:
    q, _ = posterior(osc.likelihoods.Categorical(), structure)
    theta = q.sample(20_000, torch.Generator().manual_seed(0))
    assert float(((theta.mean(0) - q.mean) / q.variance().sqrt()).abs().max()) < 0.05
    assert_close(theta.var(0), q.variance(), 0.06)


def test_sampled_networks_share_their_draws_over_all_inputs() -> None:
    q, x = posterior(osc.likelihoods.Categorical())
    two = osc.sample_functions(q, torch.cat([x[:3], x[:3]]), samples=5, via="sampled")
    assert_close(two[:, :3], two[:, 3:], 1e-12)
    generator = torch.Generator().manual_seed(3)
    theta = [q.sample(1, generator)[0] for _ in range(5)]
    found = osc.sample_functions(q, x[:3], 5, via="sampled", generator=torch.Generator().manual_seed(3))
    expected = torch.stack([q.network(x[:3], q.network.space.unflatten(t)) for t in theta])
    assert_close(found, expected, 1e-6)


def test_regression_predictives_nest() -> None:
    likelihood = osc.likelihoods.Gaussian(torch.tensor([0.3, 1.0, 2.0], dtype=torch.double))
    q, x = posterior(likelihood)
    with_noise, without = osc.predict(q, x[:5]), osc.predict(q, x[:5], noise=False)
    assert_close(with_noise.variance - without.variance, likelihood.scale.square().expand(5, 3))
    outputs = osc.predict(q, x[:5], joint="outputs")
    assert_close(outputs.covariance_matrix.diagonal(dim1=1, dim2=2), with_noise.variance, 1e-6)
    batch = osc.predict(q, x[:5], joint="batch", noise=False)
    assert_close(batch.covariance_matrix.diagonal().reshape(5, 3), without.variance, 1e-6)
    mixture = osc.predict(q, x[:5], via="sampled", samples=50)
    assert mixture.log_prob(mixture.sample()).shape == (5, 3)
    assert osc.predict(q, x[:5], via="sampled", noise=False).variance.shape == (5, 3)


def test_the_default_predictive_is_deterministic_and_by_monte_carlo() -> None:
    q, x = posterior(osc.likelihoods.Categorical())
    assert torch.equal(osc.predict(q, x).probs, osc.predict(q, x).probs)
    assert torch.equal(osc.predict(q, x).probs, osc.predict(q, x, link="mc").probs)
    assert torch.equal(osc.predict(q, x, link=links.MonteCarlo(256)).probs, osc.predict(q, x, link="mc").probs)


def test_bernoulli_defaults_to_probit() -> None:
    q, x = posterior(osc.likelihoods.Bernoulli())
    assert torch.equal(osc.predict(q, x).probs, osc.predict(q, x, link="probit").probs)
    assert float((osc.predict(q, x, link="mc").probs - osc.predict(q, x).probs).abs().max()) < 0.02
    with pytest.raises(ValueError, match="link for Bernoulli 'bridge'.*known: 'probit', 'mc'"):
        osc.predict(q, x, link="bridge")


@pytest.mark.parametrize("memory", [1, "20 KB"])
def test_chunks_change_nothing(memory: int | str) -> None:
    q, x = posterior(osc.likelihoods.Categorical(), net="conv2d")
    assert_close(osc.functional_variance(q, x, memory=memory), osc.functional_variance(q, x))
    variance = osc.functional_variance(q, x, diagonal=True)
    assert_close(osc.functional_variance(q, x, diagonal=True, memory=memory), variance)
    assert_close(osc.predict(q, x, memory=memory).probs, osc.predict(q, x).probs)


def test_unit_columns_are_the_identity_in_the_order_of_the_likelihood() -> None:
    units = Columns.units(torch.zeros(2, 3), 3)
    assert torch.equal(units.part(1, 3)[:, 1], torch.eye(3)[1:])
    images = torch.zeros(2, 2, 3, 1)  # two classes at three positions
    likelihood = osc.likelihoods.Categorical(class_axis=1)
    units = Columns.units(images, 2, likelihood)
    assert units.part(2, 4).reshape(2, 2, 6)[:, 0].nonzero().tolist() == [[0, 1], [1, 4]]  # position 1, class by class


def test_what_cannot_be_asked() -> None:
    q, x = posterior(osc.likelihoods.Categorical())
    point = osc.posteriors.Point(q.model, q.likelihood)
    with pytest.raises(ValueError, match="noise=False is for real-valued targets"):
        osc.predict(q, x, noise=False)
    with pytest.raises(ValueError, match="joint"):
        osc.predict(q, x, joint="outputs")
    with pytest.raises(ValueError, match="unknown link 'probits'.*did you mean 'probit'"):
        osc.predict(q, x, link="probits")
    with pytest.raises(ValueError, match="way to predict with a Point posterior 'sampled'"):
        osc.predict(point, x, via="sampled")
    with pytest.raises(ValueError, match="no rows"):
        osc.predict(q, x[:0])
    with pytest.raises(ValueError, match="x holds nan"):
        osc.predict(q, x * float("nan"))
    with pytest.raises(TypeError, match="Gaussian posterior, got Point"):
        osc.functional_variance(point, x)
    with pytest.raises(TypeError, match="posterior"):
        osc.predict(q.model, x)


def test_two_numbers_and_two_noises_of_one_affine_layer() -> None:
    x, y = torch.randn(30, 2), torch.randn(30, 2)
    q = osc.laplace(
        nn.Linear(2, 4), osc.likelihoods.HeteroscedasticGaussian(), (x, y), structure="full", prior=1.0, refine=False
    )
    assert_close(osc.predict(q, x, noise=False).variance, osc.functional_variance(q, x, diagonal=True)[:, :2], 1e-5)
