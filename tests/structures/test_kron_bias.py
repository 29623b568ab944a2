"""kron where weight and bias have prior precisions of other orders of magnitude: float32 gives what float64 gives."""

import copy
import functools

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from tests.laws import check_algebra, check_effective_parameters

#: δ_b / δ_w.
RATIOS = (1e-6, 1.0, 1e4, 1e8, 1e12)


def linear() -> tuple[nn.Module, Tensor]:
    return nn.Linear(3, 2), torch.randn(100, 3) + 2


def mlp() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2)), torch.randn(100, 3) + 1


def grouped() -> tuple[nn.Module, Tensor]:
    return nn.Sequential(nn.Conv1d(4, 6, 2, groups=2), nn.Tanh(), nn.Flatten(), nn.Linear(18, 2)), torch.randn(60, 4, 4)


NETS = {make.__name__: make for make in (linear, mlp, grouped)}


@functools.cache
def pair(net: str, ratio: float, structure: str = "kron") -> tuple[osc.posteriors.Gaussian, ...]:
    """The same posterior in float32 and in float64: the data say far more than the prior of the weights."""
    torch.manual_seed(0)
    model, x = NETS[net]()
    likelihood, weight = osc.likelihoods.Gaussian(0.01), 1e-2
    precision = torch.tensor([weight, ratio * weight]).repeat(len(list(model.parameters())) // 2)
    with torch.no_grad():
        y = model(x)
    return tuple(
        osc.laplace(
            copy.deepcopy(model).to(dtype),
            likelihood,
            (x.to(dtype), y.to(dtype)),
            structure=structure,
            prior=osc.priors.Layerwise(precision.to(dtype)),
            refine=False,
        )
        for dtype in (torch.float32, torch.float64)
    )


def new(net: str, dtype: torch.dtype) -> Tensor:
    """Inputs as in the data, but the first zero and the second almost: their variance is that of the biases."""
    torch.manual_seed(1)
    x = NETS[net]()[1][:6].to(dtype)
    x[0] = 0
    x[1] *= 1e-4
    return x


def assert_each_close(found: Tensor, expected: Tensor, relative: float = 1e-3) -> None:
    """Entry for entry, however small one is beside the others."""
    error = float(((found.double() - expected) / expected).abs().max())
    assert error <= relative, f"relative error {error:.2e} > {relative:.0e}"


def correlated(covariance: Tensor, scale: Tensor) -> Tensor:
    """A covariance in units of the standard deviations."""
    return covariance.double() / (scale[..., :, None] * scale[..., None, :])


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("net", NETS)
def test_the_posterior_in_float32_is_that_in_float64(net: str, ratio: float) -> None:
    single, double = pair(net, ratio)
    assert_each_close(single.precision.log_det_ratio(), double.precision.log_det_ratio(), 1e-5)
    assert_each_close(osc.log_evidence(single), osc.log_evidence(double), 1e-5)
    assert_each_close(single.variance(), double.variance())
    one, two = single.precision, double.precision
    assert float((one.effective_parameters() - two.effective_parameters()).abs().max()) <= 1e-5
    assert_each_close(one.effective_parameters_by_tensor(), two.effective_parameters_by_tensor())


@pytest.mark.parametrize("structure", ["kron", "ekfac"])
@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("net", NETS)
def test_functional_variance_in_float32_is_that_in_float64(net: str, ratio: float, structure: str) -> None:
    single, double = pair(net, ratio, structure)
    narrow, wide = new(net, torch.float32), new(net, torch.float64)
    diagonal = osc.functional_variance(double, wide, diagonal=True)
    assert_each_close(osc.functional_variance(single, narrow, diagonal=True), diagonal)
    found, expected = osc.functional_variance(single, narrow), osc.functional_variance(double, wide)
    scale = diagonal.sqrt()
    assert float((correlated(found, scale) - correlated(expected, scale)).abs().max()) <= 1e-3
    found, expected = (
        osc.posteriors.linearised.joint_covariance(q, x)[1] for q, x in ((single, narrow), (double, wide))
    )
    scale = diagonal.flatten().sqrt()
    assert float((correlated(found, scale) - correlated(expected, scale)).abs().max()) <= 1e-3


@pytest.mark.parametrize("ratio", RATIOS)
@pytest.mark.parametrize("net", NETS)
def test_samples_and_solutions_in_float32_are_those_in_float64(net: str, ratio: float) -> None:
    single, double = pair(net, ratio)
    scale, eye = double.variance().sqrt(), torch.eye(double.mean.numel(), dtype=torch.double)
    truth = correlated(double.precision.solve(eye), scale)
    columns = single.precision.colour(eye.float()).double()
    assert float((correlated(columns.T @ columns, scale) - truth).abs().max()) <= 1e-3
    assert float((correlated(single.precision.solve(eye.float()), scale) - truth).abs().max()) <= 1e-3
    inverse = 1 / scale  # the precision in its own units
    found, expected = (correlated(q.precision.multiply(eye.to(q.mean)), inverse) for q in (single, double))
    assert float((found - expected).abs().max() / expected.abs().max()) <= 1e-3


@pytest.mark.parametrize("ratio", [1e-4, 1e4])
@pytest.mark.parametrize("structure", ["kron", "ekfac"])
@pytest.mark.parametrize("net", NETS)
def test_in_float64_it_is_the_algebra_of_its_dense_matrix(net: str, structure: str, ratio: float) -> None:
    q = pair(net, ratio, structure)[1]
    q = q.replace(likelihood=osc.likelihoods.Gaussian(1.0))  # so that the inverse of the dense matrix is exact enough
    check_algebra(q)
    check_effective_parameters(q)


def test_no_variance_is_negative_where_an_output_is_left_to_the_prior() -> None:
    """Small inputs, of which one output knows all and the other nothing: all of float32 cancels in the other."""
    torch.manual_seed(0)
    x = 1e-4 * (1 + torch.randn(200, 3))
    likelihood = osc.likelihoods.Gaussian(torch.tensor([1e-5, 1e6]))
    prior = osc.priors.Layerwise(torch.tensor([1e-2, 1e12]))
    q = osc.laplace(nn.Linear(3, 2), likelihood, (x, torch.randn(200, 2)), prior=prior, refine=False)
    assert bool((osc.functional_variance(q, x, diagonal=True) > 0).all())


def test_biases_at_zero_leave_a_default_posterior_that_predicts() -> None:
    """The evidence sends the precision of a tensor of zeros to its upper bound."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(5, 20), nn.ReLU(), nn.Linear(20, 1))
    for layer in (net[0], net[2]):
        nn.init.zeros_(layer.bias)
    x = torch.randn(1000, 5)
    y = net(x).detach() + 1e-3 * torch.randn(1000, 1)
    single = osc.laplace(net, osc.likelihoods.Gaussian(1e-3), (x, y), refine=False)
    double = osc.laplace(net.double(), osc.likelihoods.Gaussian(1e-3), (x.double(), y.double()), refine=False)
    assert float(double.prior.precision.max()) > 1e11
    assert_each_close(single.prior.precision, double.prior.precision)
    assert_each_close(osc.log_evidence(single), osc.log_evidence(double), 1e-4)
    variance = osc.functional_variance(single, x, diagonal=True)
    assert bool((variance > 0).all())
    assert_each_close(variance, osc.functional_variance(double, x.double(), diagonal=True), 1e-2)
