"""The continuous Bernoulli distribution: its normaliser, its symmetry, and every size of logit in either precision."""

import numpy as np
import pytest
import torch
from torch import Tensor

from osculate.likelihoods import ContinuousBernoulli
from osculate.likelihoods.continuous_bernoulli import SERIES_BELOW
from tests.laws import assert_close

LIKELIHOOD = ContinuousBernoulli()
POSITIVE = (
    1e-30,
    1e-8,
    1e-3,
    0.3,
    SERIES_BELOW - 1e-6,
    SERIES_BELOW,
    SERIES_BELOW + 1e-6,
    3.0,
    16.5,
    40.0,
    95.0,
    300.0,
)
LOGITS = (0.0, *POSITIVE, *(-f for f in POSITIVE))
precise = pytest.mark.parametrize(("dtype", "error"), [(torch.float, 3e-6), (torch.double, 1e-11)])


def logits(dtype: torch.dtype = torch.double) -> Tensor:
    return torch.tensor(LOGITS, dtype=dtype).unsqueeze(1)


def moments(f: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """A(f), and the mean and variance of p(y) ∝ e^{f y} on [0, 1], by Gauss–Legendre quadrature."""
    nodes, weights = (torch.from_numpy(values) for values in np.polynomial.legendre.leggauss(300))
    y, log_weights = (nodes + 1) / 2, (weights / 2).log()
    terms = f.double() * y + log_weights
    p = terms.softmax(-1)
    mean = (p * y).sum(-1, keepdim=True)
    return terms.logsumexp(-1, keepdim=True), mean, (p * (y - mean).square()).sum(-1, keepdim=True)


def assert_each_close(found: Tensor, expected: Tensor, error: float) -> None:
    """Every number by itself: those of small logits must not hide behind those of large ones."""
    torch.testing.assert_close(found.double(), expected, rtol=error, atol=0)


@precise
def test_mean_and_variance_are_those_of_the_density(dtype: torch.dtype, error: float) -> None:
    f = logits(dtype)
    _, mean, variance = moments(f)
    p = LIKELIHOOD.distribution(f)
    assert_each_close(p.mean, mean, error)
    assert_each_close(p.variance, variance, error)
    assert_each_close(LIKELIHOOD.response(f), mean, error)
    assert_each_close(LIKELIHOOD.precision(f, f), variance, error)
    assert_each_close(LIKELIHOOD.score(f, torch.zeros_like(f)), -mean, error)


@precise
def test_the_density_is_normalised(dtype: torch.dtype, error: float) -> None:
    f = logits(dtype)
    normaliser, mean, _ = moments(f)
    for y in (0.0, 0.25, 1.0):
        expected = y * f.double() - normaliser
        found = LIKELIHOOD.log_prob(f, torch.full_like(f, y)).unsqueeze(1).double()
        assert float(((found - expected).abs() / expected.abs().clamp(min=1)).max()) < error
    entropy = LIKELIHOOD.distribution(f).entropy().double() - (normaliser - f.double() * mean)
    assert float(entropy.abs().max()) < 10 * error


@pytest.mark.parametrize("dtype", [torch.float, torch.double])
def test_turned_around_zeros_are_ones(dtype: torch.dtype) -> None:
    f, y = logits(dtype), torch.tensor([0.0, 0.25, 0.5, 0.875], dtype=dtype)
    f, y = torch.broadcast_tensors(f, y)
    turned = -f, 1 - y
    assert torch.equal(LIKELIHOOD.precision(f, y), LIKELIHOOD.precision(*turned))
    assert_close(LIKELIHOOD.log_prob(*turned), LIKELIHOOD.log_prob(f, y), 1e-6)
    assert_close(LIKELIHOOD.score(*turned), -LIKELIHOOD.score(f, y), 1e-6)
    p, q = (LIKELIHOOD.distribution(each) for each in (f, -f))
    assert_close(q.cdf(1 - y), 1 - p.cdf(y), 1e-6)


def test_at_zero_it_is_uniform_and_derivatives_pass_through() -> None:
    for dtype in (torch.float, torch.double):
        f = torch.zeros(3, 1, dtype=dtype, requires_grad=True)
        y = torch.tensor([[0.0], [0.25], [1.0]], dtype=dtype)
        total = LIKELIHOOD.log_prob(f, y)
        (slope,) = torch.autograd.grad(total.sum(), f, create_graph=True)
        (bend,) = torch.autograd.grad(slope.sum(), f, create_graph=True)
        (third,) = torch.autograd.grad(bend.sum(), f)
        assert torch.equal(total, torch.zeros_like(total))
        assert torch.equal(slope, y - 0.5)
        assert_close(bend, torch.full_like(f, -1 / 12), 1e-6)
        assert torch.equal(third, torch.zeros_like(f))


@pytest.mark.parametrize("f", [-1e6, 1e6, -1e30, 1e30])
def test_the_largest_logits_of_single_precision_stay_finite(f: float) -> None:
    leaf, y = torch.full((3, 1), f, requires_grad=True), torch.tensor([[0.0], [0.5], [1.0]])
    found = LIKELIHOOD.log_prob(leaf, y)
    (slope,) = torch.autograd.grad(found.sum(), leaf)
    assert bool(found.isfinite().all())
    assert_close(slope, LIKELIHOOD.score(leaf, y), 1e-6)
    end = y[-1] if f > 0 else y[0]
    p = LIKELIHOOD.distribution(leaf.detach())
    assert float((p.mean - end).abs().max()) < 2e-6
    assert_close(p.log_prob(end), leaf.abs().log(), 1e-6)
    assert_close(p.entropy(), 1 - leaf.abs().log(), 1e-6)


def test_it_is_the_distribution_of_torch_where_that_one_is_exact() -> None:
    f = torch.tensor([[-9.0], [-0.4], [0.2], [1.7], [11.0]], dtype=torch.double)
    y = torch.linspace(0, 1, 11, dtype=torch.double)
    found, expected = LIKELIHOOD.distribution(f), torch.distributions.ContinuousBernoulli(logits=f)
    assert isinstance(found, torch.distributions.ContinuousBernoulli)
    for verb in ("log_prob", "cdf", "icdf"):
        assert_close(getattr(found, verb)(y), getattr(expected, verb)(y), 1e-10)
    for name in ("mean", "variance", "stddev"):
        assert_close(getattr(found, name), getattr(expected, name), 1e-10)
    assert_close(found.entropy(), expected.entropy(), 1e-10)
    assert_close(found.expand((2, 5, 1)).log_prob(y)[1], expected.log_prob(y), 1e-10)
    with pytest.raises(ValueError, match="support"):
        found.log_prob(y + 1)


@pytest.mark.parametrize("dtype", [torch.float, torch.double])
def test_quantiles_undo_the_distribution_function_and_keep_to_the_ends(dtype: torch.dtype) -> None:
    p = LIKELIHOOD.distribution(logits(dtype))
    u = torch.linspace(0, 1, 21, dtype=dtype)
    y = p.icdf(u)
    assert bool(((y >= 0) & (y <= 1)).all())
    assert bool((y.diff(dim=1) >= 0).all())
    assert_close(p.cdf(y), u.expand_as(y), 3e-5 if dtype == torch.float else 1e-12)
    assert float(y[:, 0].max()) <= torch.finfo(dtype).eps
    assert float(y[:, -1].min()) >= 1 - torch.finfo(dtype).eps


def test_draws_have_the_stated_moments() -> None:
    p = LIKELIHOOD.distribution(torch.tensor([-40.0, 0.0, 1e-6, 2.0, 40.0]))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        y = p.sample((100_000,))
    assert_close(y.mean(0), p.mean, 0.005)
    assert_close(y.var(0) / p.variance, torch.ones(5), 0.03)


def test_sampled_scores_are_drawn_by_the_generator_alone() -> None:
    f, state = logits(torch.float), torch.get_rng_state()
    one, same, other = (LIKELIHOOD.sampled_root(f, f, 4, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    assert torch.equal(torch.get_rng_state(), state)


def test_integer_targets_of_zero_and_one_are_numbers() -> None:
    f = torch.randn(3, 2)
    y = torch.tensor([[0, 1], [1, 1], [0, 0]], dtype=torch.uint8)
    assert torch.equal(LIKELIHOOD.log_prob(f, y), LIKELIHOOD.log_prob(f, y.float()))
    assert torch.equal(LIKELIHOOD.score(f, y), LIKELIHOOD.score(f, y.float()))
