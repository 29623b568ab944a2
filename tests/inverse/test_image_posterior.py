"""The linearised image as a network with one datum: evidence, tuning and posteriors against dense algebra."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

import osculate as osc
from osculate.inverse import Blur, FittedImage, LinearisedImage, Matrix, RayTransform, Subsampling, image_noise
from osculate.likelihoods import Gaussian
from osculate.networks import SkipUNet
from osculate.posteriors import DrawnImage, GaussianImage
from osculate.priors import filters_of
from tests.errors import says
from tests.inverse.models import (
    SIGMA,
    again,
    dense_data_covariance,
    dense_jacobian,
    dense_posterior,
    dense_prior,
    prior_of,
    small,
)

SHAPE = (7, 8)


@pytest.fixture(scope="module", params=[3, 9], ids=["fewer numbers than pixels", "more"])
def model(request: Any) -> LinearisedImage:
    operator = RayTransform(SHAPE, request.param)
    assert (operator.measurements > operator.pixels) == (request.param == 9)
    return small(operator)


def test_the_posterior_is_over_the_filters(model: LinearisedImage) -> None:
    assert list(model.q.network.space.names) == filters_of(model.fitted.network)
    assert all("bias" not in name for name in model.q.network.space.names)
    torch.testing.assert_close(model.jacobian, dense_jacobian(model))


def test_evidence_of_the_linear_mode_is_the_marginal_likelihood(model: LinearisedImage) -> None:
    offset = model.fitted.image.flatten() - dense_jacobian(model) @ model.q.mean
    truth = MultivariateNormal(model.operator.matrix() @ offset, dense_data_covariance(model))
    found = osc.log_evidence(model.q, mode="linear")
    torch.testing.assert_close(found, truth.log_prob(model.data.flatten()), rtol=1e-9, atol=0)


def test_evidence_around_the_weights_is_the_formula(model: LinearisedImage) -> None:
    theta, seen = model.q.mean, model.operator(model.fitted.image)
    truth = -0.5 * (
        (model.data - seen).square().sum() / SIGMA**2
        + theta @ torch.linalg.solve(dense_prior(prior_of(model)), theta)
        + torch.logdet(dense_data_covariance(model))
        + model.operator.measurements * math.log(2 * math.pi)
    )
    torch.testing.assert_close(osc.log_evidence(model.q), truth, rtol=1e-9, atol=0)


def test_the_exact_posterior_is_that_of_the_weights(model: LinearisedImage) -> None:
    found = model.posterior(model.q, True, 0.01)
    assert isinstance(found, GaussianImage)
    wanted = dense_posterior(model) + 1e-4 * torch.eye(len(model.jacobian), dtype=torch.double)
    torch.testing.assert_close(found.covariance_matrix, wanted, atol=1e-10, rtol=1e-9)
    torch.testing.assert_close(found.mean, model.fitted.image)


def test_the_structures_full_and_dual_agree(model: LinearisedImage) -> None:
    """A ∘ network is a network as any other."""
    data = model.fitted.input[None, None], model.data.reshape(1, -1)
    rows = osc.laplace(
        model._measured,
        Gaussian(SIGMA),
        data,
        structure="full",
        prior=prior_of(model),
        subset=filters_of(model.fitted.network),
        refine=False,
    )
    torch.testing.assert_close(osc.log_evidence(rows), osc.log_evidence(model.q), rtol=1e-8, atol=0)
    torch.testing.assert_close(rows.variance(), model.q.variance(), rtol=1e-7, atol=1e-12)


def test_the_exact_posterior_does_not_depend_on_the_rank_of_the_evidence(model: LinearisedImage) -> None:
    few = again(model, rank=10)
    whole, found = model.posterior(model.q, True, 0.0), few.posterior(few.q, True, 0.0)
    torch.testing.assert_close(found.variance, whole.variance, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.double])
def test_a_basis_of_few_directions_gives_a_lower_bound_of_the_evidence(dtype: torch.dtype) -> None:
    """That of all data in the end, in single precision too."""
    image = small(RayTransform((20, 20), 12), dtype=dtype, noise=1e-3)
    found = {rank: float(osc.log_evidence(again(image, rank=rank).q)) for rank in (25, 50, 200, 400)}
    lost = {rank: found[400] - value for rank, value in found.items()}
    assert lost[25] > 2 * lost[50] > 2
    assert lost[200] == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize("rank", [10, 30])
def test_directions_beyond_the_basis_have_their_mean_variance(rank: int) -> None:
    image = small(RayTransform(SHAPE, 9), rank=rank)
    basis = image.q.structure.structure.basis  # type: ignore[attr-defined]
    torch.testing.assert_close(basis @ basis.T, torch.eye(rank, dtype=torch.double))
    whole = dense_data_covariance(image) - SIGMA**2 * torch.eye(image.operator.measurements, dtype=torch.double)
    (part,) = image.q.precision.parts
    within = part.factor @ part.factor.mT - torch.eye(rank, dtype=torch.double)  # type: ignore[attr-defined]
    torch.testing.assert_close(SIGMA**2 * within, basis @ whole @ basis.T)
    beyond = (whole.trace() - SIGMA**2 * within.trace()) / (image.operator.measurements - rank)
    others = part.block.others  # type: ignore[attr-defined]
    assert float(SIGMA**2 * others.variance(part.delta)) == pytest.approx(float(beyond), rel=0.5)  # type: ignore[attr-defined]


def test_a_saturated_network_is_told() -> None:
    network = SkipUNet(width=2).double()
    network.outlet[0].bias.data.fill_(100.0)
    operator, z = RayTransform(SHAPE, 9), torch.rand(SHAPE, dtype=torch.double)
    fitted = FittedImage(network, z, torch.ones(SHAPE).double(), (), (), 1, 0.3)
    with pytest.raises(ValueError, match=says("saturated", "scale")):
        _ = LinearisedImage(operator, torch.ones(operator.data_shape).double(), fitted, SIGMA, rank=20).q


@pytest.mark.slow
def test_tuning_climbs_finds_the_noise_and_keeps_a_known_one(model: LinearisedImage) -> None:
    unknown = again(model, noise=None)
    start = unknown.q.replace(likelihood=Gaussian(1.0))
    free = osc.maximise_evidence(start, mode="linear")
    kept = osc.maximise_evidence(start, mode="linear", noise=False)
    values = [float(osc.log_evidence(q, mode="linear")) for q in (start, kept, free)]
    assert values == sorted(values)
    assert float(kept.likelihood.scale) == 1.0  # type: ignore[attr-defined]
    assert SIGMA / 2 < float(free.likelihood.scale) < 2 * SIGMA  # type: ignore[attr-defined]
    assert float(model.tuned().likelihood.scale) == SIGMA  # type: ignore[attr-defined]
    assert float(unknown.tuned().likelihood.scale) != unknown._level  # type: ignore[attr-defined]


def test_predcp_lets_images_vary_less(model: LinearisedImage) -> None:
    strong = replace(model.penalty, weight=30.0)
    plain, smooth = model.tuned(), osc.maximise_evidence(model.q, noise=False, hyperprior=strong)
    variation = model.penalty.expected_variation
    assert float(variation(smooth.prior).sum()) < float(variation(plain.prior).sum())


@pytest.mark.slow
@pytest.mark.parametrize("rank", [pytest.param(800, marks=pytest.mark.release), 30], ids=["whole basis", "part"])
def test_draws_have_the_exact_covariance(rank: int) -> None:
    """On 16 × 16 pixels, in single precision."""
    image = small(RayTransform((16, 16), 4), width=3, dtype=torch.float32, rank=rank)
    exact = image.posterior(image.q, True, 0.0)
    assert isinstance(exact, GaussianImage)
    generator = torch.Generator().manual_seed(0)
    drawn = image.posterior(image.q, False, 0.0, 400, generator)
    assert isinstance(drawn, DrawnImage)
    ratio = (drawn.variance / exact.variance).log()
    assert abs(float(ratio.mean())) < 0.05
    assert float(ratio.std()) < 0.15  # √(2/400) = .07 by chance
    probe = torch.randn(20, 256, generator=generator, dtype=torch.double)
    wanted = ((probe @ exact.covariance_matrix) * probe).sum(1)
    deviations = (drawn.draws - drawn.mean).flatten(1) @ probe.T
    torch.testing.assert_close(deviations.square().mean(0), wanted, rtol=0.3, atol=0)


def test_noise_is_carried_back_by_the_pseudo_inverse() -> None:
    rays = RayTransform(SHAPE, 3)
    pinv = torch.linalg.pinv(rays.matrix().T @ rays.matrix(), rtol=1e-9)
    assert image_noise(rays, 1e-6, 1000) == pytest.approx(1e-6 * float(pinv.diagonal().mean()) ** 0.5, rel=0.05)
    small_values = Matrix(torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0, 0.01, 0.0, 0.0]]), (2, 2))
    assert image_noise(small_values, 1e-3) == pytest.approx((1e-6 * (1 + 1e4) / 4) ** 0.5)
    assert image_noise(small_values, 0.1) == pytest.approx(((0.01 + 0.25) / 4) ** 0.5), "bounded"
    blurred = [image_noise(Blur((12, 12), width), 0.01) for width in (0.5, 1.0, 2.0, 4.0, 20.0)]
    assert blurred[:3] == sorted(blurred[:3])
    assert max(blurred) < 0.5
    assert image_noise(Subsampling(torch.eye(2, dtype=torch.bool)), 0.5) == pytest.approx(0.5 / 2**0.5)
    large = RayTransform((24, 24), 30)
    some = torch.linalg.svdvals(large.matrix())[:100].pow(-2).sum()
    assert image_noise(large, 1.0) == pytest.approx(float((some / 576) ** 0.5), rel=1e-6)


def test_wrong_measurements_are_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # users run without checks of types
    network, z, operator = SkipUNet(width=2), torch.rand(8, 8), RayTransform((8, 8), 3)
    fitted, data = FittedImage(network, z, z, (), (), 1, 0.3), torch.ones(operator.data_shape)
    with pytest.raises(ValueError, match=says("must have shape")):
        LinearisedImage(operator, data[:1], fitted)
    with pytest.raises(ValueError, match=says("noise")):
        LinearisedImage(operator, data, fitted, noise=-1.0)
    with pytest.raises(ValueError, match=says("(9, 9)", "operator of the fit")):
        LinearisedImage(operator, data, FittedImage(network, z, torch.rand(9, 9), (), (), 1, 0.3))
    with pytest.raises(TypeError, match=says("osc.priors.Filters()", "got 1.0")):
        LinearisedImage(operator, data, fitted, prior=1.0)  # type: ignore[arg-type]


def refused(network: torch.nn.Module, shape: tuple[int, int] = (8, 8)) -> Tensor:
    z, operator = torch.rand(shape), RayTransform(shape, 3)
    return LinearisedImage(operator, torch.ones(operator.data_shape), FittedImage(network, z, z, (), (), 1, 0.3), 0.1).q


def test_networks_that_cannot_be_linearised_are_refused() -> None:
    with pytest.raises(ValueError, match=says("two-dimensional convolutions")):
        refused(torch.nn.Linear(8, 8))
    with pytest.raises(ValueError, match=says("dropout")):
        refused(SkipUNet(width=2, dropout=0.1))
    normalised = torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv2d(1, 1, 3, padding=1))
    with pytest.raises(ValueError, match=says("parametrisation")):
        refused(torch.nn.Sequential(normalised))
    tied = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 3, padding=1), torch.nn.Conv2d(1, 1, 3, padding=1))
    tied[1].weight = tied[0].weight
    with pytest.raises(ValueError, match=says("1.weight", "shared")):
        refused(tied)
    with pytest.raises(ValueError, match=says("same shape")):
        refused(torch.nn.Conv2d(1, 1, 3, stride=2))
