"""Predictives: links against Monte Carlo, samples against covariances, and what a user can ask for."""

import pytest
import torch
from torch import nn

import osculate as osc
from osculate.predictive import link as links
from osculate.predictive.linearised import unit_columns
from tests.laws import assert_close, targets
from tests.zoo import ZOO


def posterior(likelihood: osc.likelihoods.Likelihood, structure: str = "kron", prior: float = 1.0, net: str = "mlp"):
    model, x = ZOO[net].model(), ZOO[net].x(20)
    return osc.laplace(model, likelihood, (x, targets(likelihood, model, x)), structure=structure, prior=prior), x


def random_logits(classes: int, scale: float, count: int = 40) -> tuple[torch.Tensor, torch.Tensor]:
    mean = 2 * torch.randn(count, classes, dtype=torch.double)
    a = torch.randn(count, classes, classes, dtype=torch.double)
    covariance = a @ a.mT
    return mean, scale * covariance / covariance.diagonal(dim1=1, dim2=2).mean(1)[:, None, None]


def by_brute_force(likelihood, mean, covariance, samples: int = 1_000_000) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    noise = torch.randn(samples // 100, mean.shape[-1], generator=generator, dtype=mean.dtype)
    root = torch.linalg.cholesky(covariance)
    total = torch.zeros_like(mean)
    for _ in range(100):
        noise.normal_(generator=generator)
        total += torch.stack([likelihood.response(m + noise @ r.T).mean(0) for m, r in zip(mean, root, strict=True)])
    return total / 100


@pytest.mark.parametrize("variance", [0.1, 1.0, 5.0, 25.0])
def test_probit_is_within_two_hundredths_of_a_million_samples(variance: float) -> None:
    likelihood = osc.likelihoods.Bernoulli()
    mean = torch.linspace(-8, 8, 9, dtype=torch.double).unsqueeze(1)
    covariance = torch.full((9, 1, 1), variance, dtype=torch.double)
    found = links.Probit()(likelihood, mean, covariance.squeeze(-1))
    assert float((found - by_brute_force(likelihood, mean, covariance)).abs().max()) < 0.02


@pytest.mark.parametrize("variance", [0.1, 1.0, 25.0])
def test_quasi_monte_carlo_converges_to_a_million_samples(variance: float) -> None:
    """Within 0.02 with the default 256 points, and faster than plain sampling, whose error would fall by a quarter."""
    likelihood = osc.likelihoods.Categorical()
    mean, covariance = random_logits(5, variance, count=6)
    truth = by_brute_force(likelihood, mean, covariance)
    coarse, fine = (
        float((links.MonteCarlo(points)(likelihood, mean, covariance) - truth).abs().max()) for points in (256, 4096)
    )
    assert coarse < 0.02
    assert fine < max(coarse / 4, 0.001)  # a million samples are themselves exact to 0.0005 only


def integrated(link: str, mean: torch.Tensor, covariance: torch.Tensor) -> torch.Tensor:
    """The probabilities of four classes by this link, which gets the part of the covariance that it asks for."""
    likelihood, chosen = osc.likelihoods.Categorical(), links.REGISTRY[link]()
    if not likelihood.needs_covariance(chosen):
        covariance = covariance.diagonal(dim1=-2, dim2=-1)
    return likelihood.marginal(mean, covariance, chosen).probs


def test_one_output_at_a_time_needs_only_variances() -> None:
    likelihood = osc.likelihoods.Bernoulli()
    mean, covariance = random_logits(3, 4.0, count=5)
    truth = by_brute_force(likelihood, mean, covariance)
    found = likelihood.marginal(mean, covariance.diagonal(dim1=-2, dim2=-1), links.MonteCarlo()).probs
    assert float((found - truth).abs().max()) < 0.002


@pytest.mark.parametrize("link", links.REGISTRY)
def test_every_link_gives_probabilities_and_the_network_itself_without_uncertainty(link: str) -> None:
    mean, covariance = random_logits(4, 3.0)
    p = integrated(link, mean, covariance)
    assert bool((p >= 0).all())
    assert_close(p.sum(-1), torch.ones(len(p), dtype=p.dtype))
    if link != "bridge":  # the bridge matches a Dirichlet, which is not the softmax at the mean
        certain = integrated(link, mean, 1e-12 * covariance)
        assert_close(certain, mean.softmax(-1), 1e-4)


@pytest.mark.parametrize("link", links.REGISTRY)
def test_every_link_moves_towards_uniform_as_the_uncertainty_grows(link: str) -> None:
    mean, covariance = random_logits(4, 1.0)
    probabilities = [integrated(link, mean, s * covariance) for s in (1.0, 10.0, 100.0)]
    entropies = [torch.distributions.Categorical(probs=p).entropy().mean() for p in probabilities]
    assert entropies[0] < entropies[1] < entropies[2]


@pytest.mark.parametrize("link", ["mc", "mean_field"])
def test_links_that_use_correlations_ignore_a_common_shift_of_all_logits(link: str) -> None:
    mean, covariance = random_logits(4, 1.0)
    shifted = integrated(link, mean, covariance + 30.0)
    assert float((shifted - integrated(link, mean, covariance)).abs().max()) < 0.02


def test_singular_covariances_are_integrated_too() -> None:
    mean = torch.randn(3, 4)
    p = links.MonteCarlo()(osc.likelihoods.Categorical(), mean, torch.zeros(3, 4, 4))
    assert_close(p, mean.softmax(-1), 1e-5)


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
    q = osc.laplace(model, likelihood, (x, y), structure="full", prior=prior)
    angle = torch.linspace(0, 2 * torch.pi, 73, dtype=torch.double)[:-1]
    far = 1000 * torch.stack([angle.cos(), angle.sin()], 1)
    certain = osc.predict(osc.posteriors.Point(model, likelihood), far).probs.squeeze(1) > 0.999
    assert int(certain.sum()) > 30
    assert float(osc.predict(q, far).probs[certain].max()) < 0.9


@pytest.mark.parametrize("structure", osc.structures.REGISTRY)
def test_sampled_linear_functions_have_the_functional_variance(structure: str) -> None:
    q, x = posterior(osc.likelihoods.Categorical(), structure)
    f = osc.sample_functions(q, x[:4], samples=4000, generator=torch.Generator().manual_seed(0))
    assert f.shape == (4000, 4, 3)
    deviations = f - f.mean(0)
    found = torch.einsum("snc,snd->ncd", deviations, deviations) / 4000
    assert_close(found, osc.functional_variance(q, x[:4]), 0.1)


@pytest.mark.parametrize("structure", osc.structures.REGISTRY)
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


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    q, x = posterior(osc.likelihoods.Categorical(), net="conv2d")
    whole = osc.functional_variance(q, x)
    monkeypatch.setattr("osculate.curvature.engine.MEMORY", 1)
    assert_close(osc.functional_variance(q, x), whole)
    assert_close(osc.predict(q, x).probs, osc.predict(q, x).probs)


def test_unit_columns_give_the_jacobian() -> None:
    assert unit_columns(torch.zeros(2, 3)).shape == (3, 2, 3)
    assert_close(unit_columns(torch.zeros(2, 3))[1], torch.tensor([[0.0, 1, 0], [0, 1, 0]]))


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
