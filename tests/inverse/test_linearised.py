"""The linearised image: prior, classes of distance, evidence, TV-PredCP and posteriors against dense algebra."""

import math

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from osculate.data import shepp_logan
from osculate.inverse import (
    Blur,
    DrawnImage,
    FilterPrior,
    LinearisedImage,
    Matrix,
    Observed,
    PredCP,
    RayTransform,
    Subsampling,
    drawn_posterior,
    exact_posterior,
    image_noise,
    linear_mode,
    log_evidence,
    total_variation,
    tune_filters,
)
from osculate.inverse.evidence import _representatives, prior_product
from osculate.inverse.filters import class_diagonals
from osculate.networks import SkipUNet
from tests.errors import says
from tests.inverse.models import dense_data_covariance, dense_jacobian, dense_prior, small

SHAPE, SIGMA = (7, 8), 0.1


@pytest.fixture(scope="module")
def model() -> tuple[LinearisedImage, FilterPrior]:
    return small(SHAPE)


@pytest.fixture(scope="module")
def rays() -> RayTransform:
    return RayTransform(SHAPE, 3)


def measured(linearised: LinearisedImage, operator: RayTransform) -> Tensor:
    clean = operator(linearised.image + 0.1 * torch.rand(SHAPE, dtype=torch.double))
    return clean + SIGMA * torch.randn(clean.shape, dtype=torch.double)


def test_blocks_are_the_modules_that_hold_convolutions() -> None:
    prior = FilterPrior.of(SkipUNet(width=4))
    names = ["inlet", "down.0", "down.1", "skip.0", "skip.1", "up.0", "up.1", "outlet"]
    assert [block.name for block in prior.blocks] == names
    assert [len(block.distances) for block in prior.blocks] == [6, 6, 6, 1, 1, 6, 6, 1]
    assert prior.correlated == [0, 1, 2, 5, 6]
    assert all("bias" not in name for name in prior.space.names)


def test_filters_are_taken_apart_and_put_together(model: tuple[LinearisedImage, FilterPrior]) -> None:
    theta = torch.randn(3, model[1].space.size)
    assert torch.equal(model[1].merge(model[1].split(theta)), theta)


def test_the_prior_covariance_is_that_of_its_formula(model: tuple[LinearisedImage, FilterPrior]) -> None:
    prior, sigma = model[1], dense_prior(model[1])
    theta = torch.randn(2, prior.space.size, dtype=torch.double)
    torch.testing.assert_close(prior.covariance_product(theta), theta @ sigma)
    root = prior.root_product(torch.eye(prior.space.size, dtype=torch.double)).T
    torch.testing.assert_close(root @ root.T, sigma)
    torch.testing.assert_close(prior.penalty(theta[0]), theta[0] @ torch.linalg.solve(sigma, theta[0]))
    draws = prior.sample(4000, theta, torch.Generator().manual_seed(0))
    torch.testing.assert_close(draws.var(0).mean(), sigma.diagonal().mean(), rtol=0.02, atol=0)


def test_products_with_the_jacobian(model: tuple[LinearisedImage, FilterPrior]) -> None:
    linearised, _ = model
    jacobian = dense_jacobian(linearised)
    torch.testing.assert_close(linearised.jacobian, jacobian)
    v, u = torch.randn(2, jacobian.shape[1]).double(), torch.randn(2, *SHAPE).double()
    torch.testing.assert_close(linearised.jvp(v).flatten(1), v @ jacobian.T)
    torch.testing.assert_close(linearised.vjp(u), u.flatten(1) @ jacobian)


@pytest.mark.parametrize("count", [3, 9])
def test_the_covariance_by_classes_is_the_dense_one(model: tuple[LinearisedImage, FilterPrior], count: int) -> None:
    """With fewer measurements than pixels, and with more, of which a basis of the range is enough."""
    linearised, prior = model
    operator = RayTransform(SHAPE, count)
    wanted = dense_data_covariance(linearised, prior, operator)
    observed = Observed.of(linearised, operator, measured(linearised, operator), prior, SIGMA)
    found = observed.covariance(torch.cat(prior.class_weights()))
    if observed.basis is not None:
        assert len(observed.basis) <= operator.pixels < operator.measurements
        found = observed.basis.T @ found @ observed.basis
    assert float((found - wanted).abs().max() / wanted.abs().max()) < 1e-8


@pytest.mark.parametrize("dtype", [torch.float32, torch.double])
def test_a_basis_of_few_directions_gives_a_lower_bound_of_the_evidence(dtype: torch.dtype) -> None:
    """That of all data in the end, in single precision too."""
    linearised, prior = small((20, 20), dtype=dtype)
    operator, noise = RayTransform((20, 20), 12), 1e-3
    found = {}
    for rank in (25, 50, 200, 400):
        observed = Observed.of(linearised, operator, operator(linearised.image), prior, noise, rank=rank)
        assert len(observed.grams[0]) == min(rank, operator.measurements)
        level = torch.tensor(noise, dtype=torch.double)
        found[rank] = float(log_evidence(observed, prior, level, linearised.weights, observed.prediction))
    lost = {rank: found[400] - value for rank, value in found.items()}
    assert lost[25] > 2 * lost[50] > 2
    assert lost[200] == pytest.approx(0, abs=0.1)


@pytest.mark.parametrize("rank", [10, 30])
def test_directions_beyond_the_basis_have_their_mean_variance(
    model: tuple[LinearisedImage, FilterPrior], rank: int
) -> None:
    linearised, prior = model
    operator = RayTransform(SHAPE, 9)
    few = Observed.of(linearised, operator, measured(linearised, operator), prior, SIGMA, rank=rank)
    whole = dense_data_covariance(linearised, prior, operator)
    assert few.basis is not None
    torch.testing.assert_close(few.basis @ few.basis.T, torch.eye(rank, dtype=torch.double))
    classes = torch.cat(prior.class_weights())
    torch.testing.assert_close(few.covariance(classes), few.basis @ whole @ few.basis.T)
    beyond = (whole.trace() - few.covariance(classes).trace()) / (operator.measurements - rank)
    assert float(classes @ few.rest) == pytest.approx(float(beyond), rel=0.5)


def test_a_saturated_network_is_told(model: tuple[LinearisedImage, FilterPrior]) -> None:
    network = SkipUNet(width=2).double()
    network.outlet[0].bias.data.fill_(100.0)
    prior = FilterPrior.of(network)
    linearised, operator = (
        LinearisedImage(network, torch.rand(SHAPE, dtype=torch.double), prior.space),
        RayTransform(SHAPE, 9),
    )
    with pytest.raises(ValueError, match=says("saturated", "scale")):
        Observed.of(linearised, operator, torch.ones(operator.data_shape).double(), prior, SIGMA, rank=20)


def test_diagonals_by_classes(model: tuple[LinearisedImage, FilterPrior]) -> None:
    linearised, prior = model
    jacobian = dense_jacobian(linearised)
    spreads = class_diagonals(prior, [jacobian[:10], jacobian[10:]])
    found = sum(w @ t for w, t in zip(prior.class_weights(), spreads, strict=True))
    torch.testing.assert_close(found, (jacobian @ dense_prior(prior) @ jacobian.T).diagonal())


@pytest.mark.parametrize("count", [3, 9])
def test_evidence_of_the_linear_mode_is_the_marginal_likelihood(
    model: tuple[LinearisedImage, FilterPrior], count: int
) -> None:
    linearised, prior = model
    operator = RayTransform(SHAPE, count)
    data = measured(linearised, operator)
    observed = Observed.of(linearised, operator, data, prior, SIGMA)
    covariance = dense_data_covariance(linearised, prior, operator) + SIGMA**2 * torch.eye(
        operator.measurements, dtype=torch.double
    )
    offset = linearised.image.flatten() - dense_jacobian(linearised) @ linearised.weights
    truth = MultivariateNormal(operator.matrix() @ offset, covariance).log_prob(data.flatten())
    torch.testing.assert_close(log_evidence(observed, prior, torch.tensor(SIGMA, dtype=torch.double)), truth)


def test_evidence_around_the_weights_is_the_formula(
    model: tuple[LinearisedImage, FilterPrior], rays: RayTransform
) -> None:
    linearised, prior = model
    data = measured(linearised, rays)
    observed = Observed.of(linearised, rays, data, prior, SIGMA)
    covariance = dense_data_covariance(linearised, prior, rays) + SIGMA**2 * torch.eye(
        rays.measurements, dtype=torch.double
    )
    theta, seen = linearised.weights, rays(linearised.image).flatten()
    truth = -0.5 * (
        (data.flatten() - seen).square().sum() / SIGMA**2
        + theta @ torch.linalg.solve(dense_prior(prior), theta)
        + torch.logdet(covariance)
        + rays.measurements * math.log(2 * math.pi)
    )
    found = log_evidence(observed, prior, torch.tensor(SIGMA, dtype=torch.double), theta, seen)
    torch.testing.assert_close(found, truth)


def test_tuning_climbs_finds_the_noise_and_keeps_a_known_one(
    model: tuple[LinearisedImage, FilterPrior], rays: RayTransform
) -> None:
    linearised, prior = model
    data = measured(linearised, rays)
    observed = Observed.of(linearised, rays, data, prior, SIGMA)

    def evidence(proposal: FilterPrior, noise: Tensor) -> Tensor:
        return log_evidence(observed, proposal, noise)

    before = float(evidence(prior, torch.tensor(1.0, dtype=torch.double)))
    found = tune_filters(evidence, prior, 1.0, fixed_noise=False)
    kept = tune_filters(evidence, prior, 1.0, fixed_noise=True)
    assert found.log_evidence > kept.log_evidence > before
    assert kept.noise == 1.0
    assert 0 <= found.at_ends < len(prior.blocks)
    assert SIGMA / 2 < found.noise < 2 * SIGMA


@pytest.mark.slow
def test_expected_variation_is_that_of_draws(model: tuple[LinearisedImage, FilterPrior]) -> None:
    linearised, prior = model
    predcp = PredCP.of(linearised, prior, weight=0.3)
    found = predcp.expected_variation(prior)
    draws = prior.split(prior.sample(600, linearised.weights, torch.Generator().manual_seed(0)))
    for number in range(len(prior.blocks)):
        alone = [some if other == number else 0 * some for other, some in enumerate(draws)]
        images = linearised.image + linearised.jvp(prior.merge(alone))
        assert float(found[number]) == pytest.approx(float(total_variation(images).mean()), rel=0.03)


def test_longer_length_scales_are_expected_to_vary_more(model: tuple[LinearisedImage, FilterPrior]) -> None:
    """So that only the change of variables in the density of TV-PredCP can ask for longer ones."""
    linearised, prior = model
    predcp = PredCP.of(linearised, prior, weight=0.3)
    short, long = (
        predcp.expected_variation(prior.replace(prior.variance, prior.lengthscale * by)) for by in (1.0, 2.0)
    )
    assert bool((long[prior.correlated] > short[prior.correlated]).all())


def test_gradients_of_predcp_are_finite_differences(model: tuple[LinearisedImage, FilterPrior]) -> None:
    linearised, prior = model
    predcp = PredCP.of(linearised, prior, weight=0.3)
    start = torch.cat([prior.variance.log(), prior.lengthscale.log()])

    def at(values: Tensor) -> Tensor:
        return predcp(prior.replace(values[: len(prior.blocks)].exp(), values[len(prior.blocks) :].exp()))

    leaf = start.clone().requires_grad_()
    (slope,) = torch.autograd.grad(at(leaf), leaf)
    for number in range(len(start)):
        step = torch.zeros_like(start)
        step[number] = 1e-4
        difference = float((at(start + step) - at(start - step)).detach()) / 2e-4
        assert float(slope[number]) == pytest.approx(difference, rel=0.02, abs=1e-5)


def test_few_differences_stand_for_all(model: tuple[LinearisedImage, FilterPrior]) -> None:
    linearised, prior = model
    every, some = (PredCP.of(linearised, prior, 0.3, count) for count in (1000, 60))
    assert len(some.means) <= 60 < len(every.means)
    assert float(every.shares.sum()) == len(every.means)
    torch.testing.assert_close(some.expected_variation(prior), every.expected_variation(prior), rtol=0.1, atol=0)


def test_few_differences_of_a_picture_with_edges_stand_for_all() -> None:
    """Nearly all of its total variation is in few places: those that are chosen have to be likely there."""
    sizes = shepp_logan(64).double().diff(dim=0).abs().flatten()
    chosen, shares = _representatives(sizes, 512)
    assert float((shares * sizes[chosen]).sum() / sizes.sum()) == pytest.approx(1, abs=0.02)
    assert float(shares.sum()) == pytest.approx(len(sizes), rel=0.05)


def test_predcp_prefers_smaller_variances(model: tuple[LinearisedImage, FilterPrior], rays: RayTransform) -> None:
    linearised, prior = model
    observed = Observed.of(linearised, rays, measured(linearised, rays), prior, SIGMA)

    def evidence(proposal: FilterPrior, noise: Tensor) -> Tensor:
        return log_evidence(observed, proposal, noise)

    plain = tune_filters(evidence, prior, SIGMA, True)
    smooth = tune_filters(evidence, prior, SIGMA, True, PredCP.of(linearised, prior, weight=30.0))
    predcp = PredCP.of(linearised, prior, weight=0.3)
    assert float(predcp.expected_variation(smooth.prior).sum()) < float(predcp.expected_variation(plain.prior).sum())


def test_values_at_an_end_of_their_range_are_counted(model: tuple[LinearisedImage, FilterPrior]) -> None:
    def switched_off(proposal: FilterPrior, noise: Tensor) -> Tensor:
        return -proposal.variance[:2].log().sum() - (proposal.variance[2:].log() + 1).square().sum()

    found = tune_filters(switched_off, model[1], SIGMA, fixed_noise=True)
    assert found.at_ends == 2
    assert float(found.prior.variance[0].log()) == pytest.approx(-14.0)


def test_the_linear_mode_descends_its_loss(model: tuple[LinearisedImage, FilterPrior], rays: RayTransform) -> None:
    linearised, _ = model
    data = measured(linearised, rays)
    theta, image = linear_mode(linearised, rays, data, SIGMA, variation=0.3, steps=60, learning_rate=1e-3)

    def loss(x: Tensor) -> float:
        return float((rays(x) - data).square().sum() / (2 * SIGMA**2) + 0.3 * total_variation(x))

    assert loss(image) < 0.9 * loss(linearised.image)
    torch.testing.assert_close(image, linearised.image + linearised.jvp((theta - linearised.weights)[None])[0])


def dense_posterior(linearised: LinearisedImage, prior: FilterPrior, operator: RayTransform) -> Tensor:
    """From the precision of the weights, not from the covariance of the data."""
    jacobian = dense_jacobian(linearised)
    rows = operator.matrix() @ jacobian
    precision = torch.linalg.inv(dense_prior(prior)) + rows.T @ rows / SIGMA**2
    return jacobian @ torch.linalg.inv(precision) @ jacobian.T


@pytest.mark.parametrize("angles", [None, 30], ids=["fewer numbers than pixels", "more"])
def test_the_exact_posterior_is_that_of_the_weights(
    model: tuple[LinearisedImage, FilterPrior], rays: RayTransform, angles: int | None
) -> None:
    linearised, prior = model
    operator = rays if angles is None else RayTransform(rays.image_shape, angles)
    assert (operator.measurements > operator.pixels) == (angles is not None)
    found = exact_posterior(linearised, operator, prior, SIGMA, floor=0.01)
    wanted = dense_posterior(linearised, prior, operator) + 1e-4 * torch.eye(rays.pixels, dtype=torch.double)
    torch.testing.assert_close(found.covariance_matrix, wanted, atol=1e-8, rtol=1e-6)
    torch.testing.assert_close(found.mean, linearised.image)


@pytest.mark.parametrize("observed", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_draws_by_conjugate_gradients_have_the_exact_covariance(observed: bool) -> None:
    """On 16 × 16 pixels, in single precision, with and without a preconditioner."""
    linearised, prior = small((16, 16), width=3, dtype=torch.float32)
    operator = RayTransform((16, 16), 4)
    data = operator(linearised.image)
    exact = exact_posterior(linearised, operator, prior, SIGMA)
    seen = Observed.of(linearised, operator, data, prior, SIGMA) if observed else None
    generator = torch.Generator().manual_seed(0)
    drawn = drawn_posterior(linearised, operator, prior, SIGMA, 0.0, seen, 400, generator)
    assert isinstance(drawn, DrawnImage)
    ratio = (drawn.variance / exact.variance).log()
    assert abs(float(ratio.mean())) < 0.05
    assert float(ratio.std()) < 0.15  # √(2/400) = .07 by chance
    probe = torch.randn(20, 256, generator=generator, dtype=torch.double)
    wanted = ((probe @ exact.covariance_matrix) * probe).sum(1)
    deviations = (drawn.draws - drawn.mean).flatten(1) @ probe.T
    torch.testing.assert_close(deviations.square().mean(0), wanted, rtol=0.3, atol=0)


def test_products_of_the_prior_covariance(model: tuple[LinearisedImage, FilterPrior], rays: RayTransform) -> None:
    linearised, prior = model
    u = torch.randn(3, rays.measurements, dtype=torch.double)
    torch.testing.assert_close(
        prior_product(linearised, rays, prior, u), u @ dense_data_covariance(linearised, prior, rays)
    )


def test_noise_is_carried_back_by_the_pseudo_inverse(rays: RayTransform) -> None:
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


def test_blocks_are_the_parts_of_a_network() -> None:
    convolutions = [torch.nn.Conv2d(1, 1, size, padding=size // 2) for size in (3, 1, 3)]
    assert [block.name for block in FilterPrior.of(torch.nn.Sequential(*convolutions)).blocks] == ["0", "1", "2"]
    held = FilterPrior.of(torch.nn.Sequential(torch.nn.Sequential(*convolutions))).blocks
    assert [(block.name, len(block.parameters)) for block in held] == [("0, 3 × 3", 2), ("0, 1 × 1", 1)]


def test_networks_that_cannot_be_linearised_are_refused() -> None:
    with pytest.raises(ValueError, match=says("two-dimensional convolutions")):
        FilterPrior.of(torch.nn.Linear(3, 3))
    network = SkipUNet(width=2, dropout=0.1)
    with pytest.raises(ValueError, match=says("dropout")):
        LinearisedImage(network, torch.rand(8, 8), FilterPrior.of(network).space)
    normalised = torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv2d(1, 1, 3))
    with pytest.raises(ValueError, match=says("parametrisation")):
        FilterPrior.of(torch.nn.Sequential(normalised))
    tied = torch.nn.Sequential(torch.nn.Conv2d(1, 1, 3), torch.nn.Conv2d(1, 1, 3))
    tied[1].weight = tied[0].weight
    with pytest.raises(ValueError, match=says("1.weight", "shared")):
        FilterPrior.of(tied)
    half = torch.nn.Conv2d(1, 1, 3, stride=2)
    with pytest.raises(ValueError, match=says("same shape")):
        LinearisedImage(half, torch.rand(8, 8), FilterPrior.of(half).space)
