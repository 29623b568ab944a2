"""Gaussians over function values: dense truth, conditioning without a fit, draws, and many or equal points."""

import math
import warnings

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.structures import REGISTRY
from tests.laws import assert_close, dense_precision

DOUBLE = torch.double


def regression(
    structure: str, dtype: torch.dtype = DOUBLE, outputs: int = 2, size: int = 30
) -> osc.posteriors.Gaussian:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, outputs)).to(dtype)
    x = torch.rand(size, 1, dtype=dtype) * 4 - 2
    y = torch.cat([x.sin(), x.cos()][:outputs], 1)
    chosen = REGISTRY[structure](**({"rank": 100} if structure in ("matrix_free", "low_rank") else {}))
    return osc.laplace(model, osc.likelihoods.Gaussian(0.1), (x, y), structure=chosen, prior=1.0, refine=False)


def rows(q: osc.posteriors.Gaussian, x: Tensor) -> Tensor:
    jacobian = osc.curvature.reference.jacobian(q.network.module.requires_grad_(), x)
    q.network.module.requires_grad_(False)
    return jacobian.flatten(0, 1)


@pytest.mark.parametrize("dtype", [torch.float, DOUBLE])
@pytest.mark.parametrize("structure", sorted(REGISTRY))
def test_many_and_equal_points(structure: str, dtype: torch.dtype) -> None:
    q = regression(structure, dtype)
    x = torch.linspace(-3, 3, 240, dtype=dtype).unsqueeze(1)
    x = torch.cat([x, x[:10], x])[:500]
    for noise in (True, False):
        joint = osc.predict(q, x, joint="batch", noise=noise)
        assert joint.sample().isfinite().all()
        assert joint.log_prob(joint.mean).isfinite()
    g = osc.function_posterior(q, x)
    assert g.jitter <= 1e-8
    assert g.rsample(3).shape == (3, len(x), 2)
    assert g.log_prob(g.mean).isfinite()
    j, precision = rows(q, x).double(), dense_precision(q).double()
    expected = j @ torch.linalg.solve(precision, j.mT)
    assert_close(g.covariance.double(), expected, 1e-4 if dtype == torch.float else 1e-9)
    assert_close(g.variance.reshape(-1).double(), expected.diagonal(), 1e-4 if dtype == torch.float else 1e-9)


def test_draws_have_this_covariance() -> None:
    g = osc.function_posterior(regression("kron"), torch.linspace(-2, 2, 4, dtype=DOUBLE).unsqueeze(1))
    draws = g.sample(40_000, torch.Generator().manual_seed(0)).flatten(1)
    assert_close(draws.T.cov(), g.covariance, 0.05)
    assert_close(draws.mean(0), g.mean.reshape(-1), 0.02)
    assert g.sample((2, 3)).shape == (2, 3, 4, 2)


def test_log_prob_is_that_of_a_normal() -> None:
    g = osc.function_posterior(regression("full"), torch.linspace(-2, 2, 3, dtype=DOUBLE).unsqueeze(1))
    f = g.sample(5, torch.Generator().manual_seed(0))
    covariance = g.covariance + g.jitter * g.covariance.diagonal().mean() * torch.eye(6, dtype=DOUBLE)
    expected = torch.distributions.MultivariateNormal(g.mean.reshape(-1), covariance).log_prob(f.flatten(1))
    assert_close(g.log_prob(f), expected, 1e-6)
    assert g.log_prob(f[0]).shape == ()
    with pytest.raises(ValueError, match="do not end with that of the mean"):
        g.log_prob(f[0][:-1])


@pytest.mark.parametrize("temperature", [1.0, 0.3])
@pytest.mark.parametrize("structure", ["full", "dual"])
def test_conditioning_is_a_fit_to_all_data(structure: str, temperature: float) -> None:
    torch.manual_seed(1)
    model, x = nn.Linear(3, 2).double(), torch.randn(40, 3, dtype=DOUBLE)
    y = torch.randn(40, 2, dtype=DOUBLE)
    likelihood = osc.likelihoods.Gaussian(0.4)

    def fitted(size: int) -> osc.posteriors.Gaussian:
        q = osc.laplace(model, likelihood, (x[:size], y[:size]), structure=structure, prior=2.0, refine=False)
        return osc.refine(q.replace(temperature=temperature), trust=None, tolerance=1e-12)

    test = torch.randn(5, 3, dtype=DOUBLE)
    first, every = (osc.function_posterior(fitted(size), test) for size in (25, 40))
    for found in (
        first.condition(x[25:], y[25:]),
        first.condition(x[25:30], y[25:30]).condition(x[30:], y[30:]),
    ):
        assert_close(found.mean, every.mean, 1e-6)  # as close as the search for the mean
        assert_close(found.covariance, every.covariance, 1e-8)
        assert_close(found.at(test[:2]).mean, every.mean[:2], 1e-6)
    assert bool((first.condition(x[25:], y[25:]).variance < first.variance).all())


def test_gradients_flow_through_conditioning_and_draws() -> None:
    q = regression("kron")
    x = torch.tensor([[0.3]], dtype=DOUBLE, requires_grad=True)
    g = osc.function_posterior(q, x).condition(torch.zeros(1, 1, dtype=DOUBLE), torch.zeros(1, 2, dtype=DOUBLE))
    value = g.mean.sum() + g.variance.sum() + g.rsample(4, torch.Generator().manual_seed(0)).square().sum()
    (gradient,) = torch.autograd.grad(value, x)
    assert float(gradient.abs()) > 0


def test_what_cannot_be_done_is_said() -> None:
    q = regression("kron")
    g = osc.function_posterior(q, torch.zeros(2, 1, dtype=DOUBLE))
    with pytest.raises(ValueError, match=r"shape \(3, 1\) do not fit values of shape \(3, 2\)"):
        g.condition(torch.zeros(3, 1, dtype=DOUBLE), torch.zeros(3, 1, dtype=DOUBLE))
    with pytest.raises(TypeError, match="function_posterior needs a Gaussian posterior"):
        osc.function_posterior(osc.posteriors.Point(q.model, q.likelihood), torch.zeros(2, 1))
    with pytest.raises(ValueError, match="has no rows"):
        osc.function_posterior(q, torch.zeros(0, 1, dtype=DOUBLE))
    model, x = nn.Linear(2, 3), torch.randn(20, 2)
    classes = osc.laplace(model, osc.likelihoods.Categorical(), (x, torch.randint(3, (20,))), prior=1.0)
    f = osc.function_posterior(classes, x[:2])
    with pytest.raises(ValueError, match="Categorical has no noise scale: pass noise="):
        f.condition(x[:1], torch.zeros(1, 3))
    assert bool((f.condition(x[:1], torch.zeros(1, 3), noise=0.1).variance[0] < 0.011).all())
    with pytest.raises(ValueError, match=r"transforms of torch\.func"):
        torch.func.jacrev(lambda x: osc.functional_variance(q, x))(torch.zeros(2, 1, dtype=DOUBLE))


def test_a_point_far_from_double_precision() -> None:
    q = regression("full", torch.float)
    g = osc.function_posterior(q, torch.full((50, 1), 0.5))
    assert g.rsample(2).isfinite().all()
    assert math.isfinite(float(g.log_prob(g.mean)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("structure", ["full", "dual", "kron", "low_rank"])
@pytest.mark.parametrize("prior", [1e-8, 1.0, 1e8])
def test_values_that_are_known_can_be_drawn(dtype: torch.dtype, structure: str, prior: float) -> None:
    """Conditioning on values without noise leaves a covariance of rounding errors."""
    torch.manual_seed(0)
    x, y = torch.randn(12, 4, dtype=dtype), torch.randn(12, 2, dtype=dtype)
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 2)).to(dtype)
    for inputs in (x, x[:1].expand(12, 4)):
        q = osc.laplace(net, osc.likelihoods.Gaussian(), (inputs, y), structure=structure, prior=prior, refine=False)
        free = osc.function_posterior(q, x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            known = free.condition(x, y, noise=1e-12)
            drawn = known.sample(50, torch.Generator().manual_seed(0))
        assert bool((drawn.var(0) <= 1e-3 * free.variance).all())
        assert bool(known.log_prob(drawn).isfinite().all())
