"""Predictive integrals of every likelihood: against brute force, against exact special cases, in their tails."""

from math import prod

import pytest
import scipy.stats
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.likelihoods import ContinuousBernoulli, Gaussian, HeteroscedasticGaussian, Likelihood, Poisson, StudentT
from osculate.likelihoods.poisson import PoissonLogNormal
from osculate.predictive import link as links
from tests.laws import assert_close
from tests.likelihoods.cases import CASES, Case

#: ``marginal`` and ``mixture`` are optional; a likelihood that defines one is expected to define both.
INTEGRATED = {name: case for name, case in CASES.items() if type(case.likelihood).marginal is not Likelihood.marginal}
REAL = {name: case for name, case in INTEGRATED.items() if case.likelihood.real_valued}
every_case = pytest.mark.parametrize("case", INTEGRATED.values(), ids=INTEGRATED)
real_case = pytest.mark.parametrize("case", REAL.values(), ids=REAL)
DOUBLE = torch.double


def asked_for(case: Case, covariance: Tensor, f: Tensor) -> Tensor:
    """The part of the covariance that the marginal by Monte Carlo asks for."""
    if case.likelihood.needs_covariance(links.MonteCarlo()):
        return covariance
    return case.likelihood.merge(covariance.diagonal(dim1=-2, dim2=-1), f.shape)


def functions(case: Case, f: Tensor, covariance: Tensor, samples: int) -> Tensor:
    """Draws (S, N, *C) of function values with this covariance in each position."""
    noise = torch.randn(samples, *covariance.shape[:-1], generator=torch.Generator().manual_seed(0), dtype=f.dtype)
    drawn = case.likelihood.split(f) + torch.einsum("ntef,sntf->snte", torch.linalg.cholesky(covariance), noise)
    return case.likelihood.merge(drawn, f.shape)


@every_case
def test_the_marginal_is_the_mixture_over_functions(case: Case) -> None:
    f, covariance = case.outputs()[:2], case.covariance(0.4)[:2]
    found = case.likelihood.marginal(f, asked_for(case, covariance, f), links.MonteCarlo(1024))
    expected = case.likelihood.mixture(functions(case, f, covariance, 40_000))
    y = case.targets(f)
    ignored = getattr(case.likelihood, "ignore_index", None)
    y = y if ignored is None else torch.where(y == ignored, 1, y)
    assert found.batch_shape == expected.batch_shape == y.shape
    for target in (y, case.likelihood.distribution(f[[1, 0]]).sample()):
        assert_close(found.log_prob(target).exp(), expected.log_prob(target).exp(), 0.05)
    if not isinstance(found, torch.distributions.Categorical):
        assert_close(found.mean, expected.mean, 0.03)
        assert_close(found.variance, expected.variance, 0.05)
        assert found.sample((3,)).shape == (3, *y.shape)


@real_case
def test_without_noise_the_marginal_is_that_of_the_function(case: Case) -> None:
    f, covariance = case.outputs()[:2], case.covariance()[:2]
    found = case.likelihood.marginal(f, asked_for(case, covariance, f), links.MonteCarlo(), noise=False)
    assert_close(found.mean, case.likelihood.distribution(f).mean)
    by_sampling = case.likelihood.mixture(functions(case, f, covariance, 40_000), noise=False)
    assert_close(found.mean, by_sampling.mean, 0.02)
    assert_close(found.variance, by_sampling.variance, 0.05)


@real_case
@pytest.mark.parametrize("dtype", [torch.float, torch.double])
def test_a_certain_function_without_noise_has_the_smallest_variance(case: Case, dtype: torch.dtype) -> None:
    f = case.outputs().to(dtype)
    covariance = torch.zeros(len(f), *case.layout, case.layout[1], dtype=dtype)
    marginal = case.likelihood.marginal(f, asked_for(case, covariance, f), links.MonteCarlo(), noise=False)
    found = [marginal, case.likelihood.mixture(f.unsqueeze(0), noise=False)]
    if isinstance(case.likelihood, Gaussian):
        flat = f.flatten(1)
        found.append(case.likelihood.joint(flat, torch.zeros(*flat.shape, flat.shape[1], dtype=dtype), noise=False))
    for p in found:
        assert bool((p.variance > 0).all())
        assert float(p.variance.max()) <= 2 * torch.finfo(dtype).tiny
        assert bool(p.log_prob(p.mean).isfinite().all())  # no square of the scale is 0
        assert bool((p.log_prob(p.mean + 1) < -1e30).all())


@every_case
def test_without_uncertainty_the_marginal_is_the_plug_in(case: Case) -> None:
    f = case.outputs()
    covariance = torch.zeros(len(f), *case.layout, case.layout[1], dtype=DOUBLE)
    found = case.likelihood.marginal(f, asked_for(case, covariance, f), links.MonteCarlo())
    y = case.likelihood.distribution(f).sample()
    assert_close(found.log_prob(y), case.likelihood.distribution(f).log_prob(y), 1e-6)


@pytest.mark.parametrize("df", [0.5, 1.0, 2.5, 4.0, 50.0, 1e5])
def test_the_tails_of_a_student_t_are_kept(df: float) -> None:
    likelihood = StudentT(df, 0.5)
    y = 0.5 * torch.from_numpy(scipy.stats.t.isf([0.5, 0.1, 1e-3, 1e-6, 1e-9], df)).unsqueeze(1)
    mean = torch.zeros_like(y)
    found = likelihood.marginal(mean, mean, links.MonteCarlo())
    expected = likelihood.distribution(mean)
    error = (found.log_prob(y) - expected.log_prob(y)).abs()
    assert float(error.max()) < 1e-4
    assert float(error[:3].max()) < 1e-7


def integral(log_density, mean: float, scale: float) -> Tensor:
    """∫ exp(log_density(f)) N(f; mean, scale²) df on a fine grid."""
    f = torch.linspace(mean - 12 * scale, mean + 12 * scale, 200_001, dtype=DOUBLE)
    weight = torch.distributions.Normal(mean, scale).log_prob(f)
    return torch.trapezoid((log_density(f) + weight).exp(), f)


@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
def test_a_student_t_under_uncertainty_is_integrated_exactly(scale: float) -> None:
    likelihood = StudentT(3.0, 0.7)
    for y in (0.0, 1.5, 40.0):
        expected = integral(lambda f, y=y: likelihood.distribution(f).log_prob(torch.tensor(y).double()), 0.3, scale)
        mean = torch.full((1, 1), 0.3, dtype=DOUBLE)
        found = likelihood.marginal(mean, torch.full_like(mean, scale**2), links.MonteCarlo())
        assert_close(found.log_prob(torch.full_like(mean, y)).exp().squeeze(), expected, 1e-6)


@pytest.mark.parametrize("scale", [0.1, 1.0, 2.0])
def test_an_uncertain_noise_scale_is_integrated_exactly(scale: float) -> None:
    likelihood = HeteroscedasticGaussian()
    f = torch.tensor([[0.5, -1.0]], dtype=DOUBLE)
    covariance = torch.tensor([[[[0.0, 0.0], [0.0, scale**2]]]], dtype=DOUBLE)
    found = likelihood.marginal(f, covariance, links.MonteCarlo())
    for y in (0.5, 1.0, 4.0):
        expected = integral(
            lambda s, y=y: torch.distributions.Normal(0.5, (0.5 * s).exp()).log_prob(torch.tensor(y).double()),
            -1.0,
            scale,
        )
        assert_close(found.log_prob(torch.full((1, 1), y, dtype=DOUBLE)).exp().squeeze(), expected, 1e-3)
    assert_close(found.variance.squeeze(), torch.tensor(-1.0 + scale**2 / 2, dtype=DOUBLE).exp(), 1e-6)


@pytest.mark.parametrize(("mean", "scale"), [(0.0, 0.5), (3.0, 1.0), (8.0, 0.5), (8.0, 1e-3), (-2.0, 2.0), (9.0, 1.5)])
def test_poisson_lognormal_probabilities_are_those_of_a_fine_grid(mean: float, scale: float) -> None:
    """Also where the rate is so large that fixed nodes would leave gaps between them."""
    p = PoissonLogNormal(torch.tensor(mean, dtype=DOUBLE), torch.tensor(scale, dtype=DOUBLE))
    for quantile in (-2.0, -0.5, 0.0, 1.3, 3.0):
        y = torch.tensor(mean + quantile * scale).exp().double().floor()
        expected = integral(lambda f, y=y: y * f - f.exp() - (y + 1).lgamma(), mean, scale)
        assert_close(p.log_prob(y).exp(), expected, 1e-4)


def test_poisson_lognormal_probabilities_sum_to_one_and_have_the_stated_moments() -> None:
    p = PoissonLogNormal(torch.tensor([0.5, 2.0], dtype=DOUBLE), torch.tensor([0.7, 0.4], dtype=DOUBLE))
    y = torch.arange(3000, dtype=DOUBLE).unsqueeze(1).expand(-1, 2)
    mass = p.log_prob(y).exp()
    assert_close(mass.sum(0), torch.ones(2, dtype=DOUBLE), 1e-5)
    assert_close((mass * y).sum(0), p.mean, 1e-5)
    assert_close((mass * (y - p.mean).square()).sum(0), p.variance, 1e-4)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        drawn = p.sample((40_000,))
    assert_close(drawn.mean(0), p.mean, 0.02)
    assert_close(drawn.var(0), p.variance, 0.1)
    with pytest.raises(ValueError, match="support"):
        p.log_prob(torch.full((2,), 0.5, dtype=DOUBLE))


@pytest.mark.parametrize(("scale", "error"), [(0.1, 1e-7), (1.0, 1e-7), (5.0, 1e-7), (10.0, 1e-3)])
def test_a_continuous_bernoulli_under_uncertainty_is_integrated_as_well_as_stated(scale: float, error: float) -> None:
    likelihood = ContinuousBernoulli()
    mean = torch.full((1, 1), 0.3, dtype=DOUBLE)
    found = likelihood.marginal(mean, torch.full_like(mean, scale**2), links.MonteCarlo())
    for y in (0.0, 0.1, 0.5, 0.99, 1.0):
        target = torch.tensor(y).double()
        expected = integral(lambda f, y=target: likelihood.distribution(f).log_prob(y), 0.3, scale)
        assert_close(found.log_prob(target.expand(1, 1)).exp().squeeze(), expected, error)


@pytest.mark.parametrize("variance", [0.0, 1e-8, 1.0, 1e3])
def test_extreme_variances_stay_finite_in_single_precision(variance: float) -> None:
    mean = torch.tensor([[-20.0, 0.0, 20.0, 3.0]])
    y = torch.tensor([[0.0, 7.0, 1e4, 20.0]])
    for likelihood in (Poisson(), StudentT(2.0, 0.1), Gaussian(0.1)):
        p = likelihood.marginal(mean, torch.full_like(mean, variance), links.MonteCarlo())
        assert bool(p.log_prob(y).isfinite().all())
    block = variance * torch.eye(2).expand(1, 2, 2, 2)
    p = HeteroscedasticGaussian().marginal(mean, block, links.MonteCarlo())
    assert bool(p.log_prob(torch.zeros(1, 2)).isfinite().all())
    assert bool(p.variance.isfinite().all())


FITTED = {
    name: CASES[name]
    for name in (
        "poisson",
        "student t",
        "heteroscedastic",
        "bernoulli, labels",
        "bernoulli, grey image",
        "continuous bernoulli",
    )
}


@pytest.mark.parametrize("case", FITTED.values(), ids=FITTED)
def test_every_new_likelihood_is_fitted_and_predicts(case: Case, tmp_path) -> None:
    torch.manual_seed(0)
    model = nn.Linear(4, prod(case.shape)).double()
    x = torch.randn(30, 4, dtype=DOUBLE)
    y = case.targets(model(x).detach())
    q = osc.laplace(model, case.likelihood, (x, y), structure="full", prior=1.0, refine=False)
    assert_close(q.structure.dense(), osc.curvature.reference.ggn(model, case.likelihood, x, y))
    p = osc.predict(q, x)
    assert p.batch_shape == y.shape
    assert bool(p.log_prob(y).isfinite().all())
    sampled = osc.predict(q, x, via="sampled", samples=2000, generator=torch.Generator().manual_seed(0))
    assert_close(p.mean, sampled.mean, 0.1)
    osc.save(q, tmp_path / "q.safetensors")
    again = osc.load(tmp_path / "q.safetensors", nn.Linear(4, prod(case.shape)))
    assert_close(osc.predict(again, x).log_prob(y), p.log_prob(y), 1e-6)


@pytest.mark.parametrize(("correlation", "deviation", "bound"), [(0.0, 3, 1e-4), (0.9, 3, 1e-4), (0.99, 5, 1e-2)])
def test_the_density_of_a_heteroscedastic_predictive_is_as_exact_as_stated(
    correlation: float, deviation: float, bound: float
) -> None:
    f, s = torch.tensor([[0.3, 0.4]], dtype=DOUBLE), torch.linspace(-14, 14, 100_001, dtype=DOUBLE)
    for spread in (0.1, 1.0, 3.0):
        both = correlation * spread * deviation
        covariance = torch.tensor([[[spread**2, both], [both, deviation**2]]], dtype=DOUBLE)
        p = HeteroscedasticGaussian().marginal(f, covariance.unsqueeze(1), links.Probit())
        given = torch.distributions.Normal(
            0.3 + correlation * spread * s,
            ((1 - correlation**2) * spread**2 + (0.4 + deviation * s).clamp(-80, 80).exp()).sqrt(),
        )
        for y in (-2.0, -0.7, 0.31, 5.0):
            expected = (given.log_prob(torch.tensor(y)) - 0.5 * s.square()).logsumexp(0) - (
                -0.5 * s.square()
            ).logsumexp(0)
            found = p.log_prob(torch.tensor([[y]], dtype=DOUBLE).reshape(p.mean.shape))
            assert abs(float(found) - float(expected)) <= bound
