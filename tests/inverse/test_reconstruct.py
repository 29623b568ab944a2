"""Classical reconstructions, the deep image prior, distributions of images, and the whole way."""

import math

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal, Normal

import osculate as osc
from osculate.data import rectangles, shepp_logan
from osculate.inverse import (
    Blur,
    DeepImagePrior,
    ErrorBars,
    FittedImage,
    LinearOperator,
    Matrix,
    RayTransform,
    Subsampling,
    brightness,
    filtered_back_projection,
    image_noise,
    reconstruct,
    scores,
    tikhonov,
    total_variation,
    tv_reconstruction,
    with_error_bars,
)
from osculate.inverse.baselines import ensemble, isotropic, mc_dropout
from osculate.inverse.stopping import Discrepancy, Variance
from osculate.linalg import conjugate_gradients
from osculate.networks import SkipUNet
from osculate.posteriors import DrawnImage, GaussianImage, IndependentImage
from osculate.randomness import seeded
from tests.errors import says

SIGMA = 0.2
with seeded(0):
    TINY = DeepImagePrior(SkipUNet(width=4, skipped=2), steps=60, learning_rate=1e-2)


def measured(operator: LinearOperator, image: Tensor, sigma: float = SIGMA) -> Tensor:
    clean = operator(image)
    return clean + sigma * torch.randn(clean.shape, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def scan() -> tuple[RayTransform, Tensor, Tensor]:
    image = rectangles(16, 3, torch.Generator().manual_seed(1))
    operator = RayTransform((16, 16), 8)
    return operator, measured(operator, image), image


@pytest.fixture(scope="module")
def fitted(scan: tuple[RayTransform, Tensor, Tensor]) -> FittedImage:
    return TINY.fit(scan[0], scan[1], SIGMA)


def error(image: Tensor, truth: Tensor) -> float:
    return float((image - truth).square().mean().sqrt())


def test_phantoms_are_pictures() -> None:
    head = shepp_logan(64)
    assert float(head.min()) == 0.0
    assert float(head.max()) == 1.0
    assert float(head[32, 32]) == pytest.approx(0.2)
    torch.testing.assert_close(shepp_logan(128).reshape(64, 2, 64, 2).mean((1, 3)), head, atol=0.3, rtol=0)
    again = [rectangles(20, 4, torch.Generator().manual_seed(n)) for n in (0, 0, 1)]
    assert torch.equal(again[0], again[1])
    assert not torch.equal(again[0], again[2])


def test_filtered_back_projection_inverts_many_angles() -> None:
    y, x = torch.meshgrid(torch.arange(48.0), torch.arange(48.0), indexing="ij")
    image = torch.exp(-((x - 20).square() + (y - 26).square()) / 60)
    operator = RayTransform((48, 48), 90)
    assert error(filtered_back_projection(operator, operator(image)), image) < 0.01
    with pytest.raises(ValueError, match=says("ray transform", "tikhonov")):
        filtered_back_projection(Blur((8, 8)), torch.ones(8, 8))


def test_uneven_angles_and_other_units_are_told() -> None:
    rays = RayTransform((8, 8), [0.0, 0.3, 0.5])
    with pytest.warns(UserWarning, match=says("evenly", "tikhonov")):
        filtered_back_projection(rays, rays(torch.ones(8, 8)))
    with pytest.warns(UserWarning, match=says("bounds", "largest value")):
        tv_reconstruction(rays, rays(50 * torch.ones(8, 8)), 1.0)


def test_even_angles_over_a_whole_turn_are_even() -> None:
    image = shepp_logan(12)
    half, whole = RayTransform((12, 12), 10), RayTransform((12, 12), 2 * math.pi * torch.arange(20) / 20)
    found = filtered_back_projection(whole, whole(image))
    torch.testing.assert_close(found, filtered_back_projection(half, half(image)), atol=1e-5, rtol=0)


def in_other_units(operator: LinearOperator, unit: float) -> Matrix:
    return Matrix(unit * operator.matrix(), operator.image_shape, operator.data_shape)


@pytest.mark.parametrize("unit", [1e-4, pytest.param(1e4, marks=pytest.mark.slow)])
def test_tiny_and_huge_units_of_the_data_are_undone(scan: tuple[RayTransform, Tensor, Tensor], unit: float) -> None:
    operator, data, _ = scan
    other = in_other_units(operator, unit)
    wanted = tv_reconstruction(operator, data, 3 * SIGMA**2, iterations=300)
    found = tv_reconstruction(other, unit * data, 3 * (unit * SIGMA) ** 2, iterations=300)
    torch.testing.assert_close(found, wanted, atol=1e-3, rtol=0)
    exact = in_other_units(operator, 1.0)
    for noise in (SIGMA, None):
        wanted = TINY.fit(exact, data, noise).misfit(exact, data)
        found = TINY.fit(other, unit * data, None if noise is None else unit * noise).misfit(other, unit * data)
        assert found / unit**2 == pytest.approx(wanted, rel=0.05)


def test_tikhonov_solves_its_equations(scan: tuple[RayTransform, Tensor, Tensor]) -> None:
    operator, data, _ = scan
    matrix = operator.matrix()
    wanted = torch.linalg.solve(matrix.T @ matrix + 2.0 * torch.eye(256), matrix.T @ data.double().flatten())
    torch.testing.assert_close(tikhonov(operator, data.double(), 2.0).flatten(), wanted, atol=1e-5, rtol=1e-4)


def test_total_variation_reaches_the_minimum_of_its_objective(scan: tuple[RayTransform, Tensor, Tensor]) -> None:
    operator, data, truth = scan

    def objective(x: Tensor) -> float:
        return float(0.5 * (operator(x) - data).square().sum() + 0.1 * total_variation(x))

    found = tv_reconstruction(operator, data, 0.1)
    assert float(found.min()) >= 0
    assert float(found.max()) <= 1
    for seed in range(5):
        moved = (found + 0.01 * torch.randn(16, 16, generator=torch.Generator().manual_seed(seed))).clamp(0, 1)
        assert objective(found) < objective(moved)
    for other in (truth, 0.99 * found, (found + truth) / 2):
        assert objective(found) < objective(other)
    assert error(found, truth) < error(tikhonov(operator, data, 1.0), truth)


def test_the_deep_image_prior_fits_and_repeats_itself(
    scan: tuple[RayTransform, Tensor, Tensor], fitted: FittedImage
) -> None:
    operator, data, _ = scan
    assert fitted.misfits[-1] < 0.2 * fitted.misfits[0]
    assert len(fitted.misfits) == fitted.step == TINY.steps
    state = torch.get_rng_state()
    again = TINY.fit(operator, data, SIGMA)
    assert torch.equal(again.image, fitted.image)
    assert torch.equal(torch.get_rng_state(), state)
    assert TINY.network is not None
    assert not torch.equal(again.network.inlet[0].weight, TINY.network.inlet[0].weight)
    other = DeepImagePrior(steps=2).fit(operator, data, seed=1)
    assert not torch.equal(other.image, DeepImagePrior(steps=2).fit(operator, data, seed=2).image)


@pytest.mark.parametrize("operator", [Subsampling(torch.ones(24, 24, dtype=torch.bool)), Blur((24, 24), 1.0)], ids=repr)
def test_a_dark_image_does_not_end_in_black(operator: LinearOperator) -> None:
    """From grey, an optimiser carries all pixels past it into the flat end of the sigmoid."""
    image = shepp_logan(24)
    data = measured(operator, image, 0.05)
    found = DeepImagePrior(SkipUNet(width=32), steps=200).fit(operator, data, 0.05)
    assert error(found.image, image) < 0.5 * error(torch.zeros(24, 24), image)


def normalised() -> torch.nn.Sequential:
    layers = [torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.SiLU(), torch.nn.Conv2d(8, 1, 1)]
    return torch.nn.Sequential(*layers, torch.nn.Sigmoid())


def test_batch_normalisation_keeps_the_statistics_of_the_image(scan: tuple[RayTransform, Tensor, Tensor]) -> None:
    operator, data, _ = scan
    level = DeepImagePrior(normalised(), steps=40, learning_rate=1e-2).fit(operator, data, SIGMA).misfits[20] ** 0.5
    how = DeepImagePrior(normalised(), steps=40, learning_rate=1e-2, stopping="discrepancy")
    found = how.fit(operator, data, level)
    assert found.misfit(operator, data) == pytest.approx(found.misfits[found.step - 1], rel=1e-4)
    torch.testing.assert_close(found.network(found.input[None, None])[0, 0], found.image)
    assert with_error_bars(operator, data, found, level).stddev.isfinite().all()


def test_nothing_is_left_of_inference_mode(scan: tuple[RayTransform, Tensor, Tensor]) -> None:
    operator, data, _ = scan
    few = DeepImagePrior(TINY.network, steps=5)
    wanted = reconstruct(operator, data, prior=few)
    with torch.inference_mode():
        found = reconstruct(operator, data.clone(), prior=few)
    torch.testing.assert_close(found.stddev, wanted.stddev)
    assert not found.mean.is_inference()


def test_noise_that_is_not_known_is_profiled(scan: tuple[RayTransform, Tensor, Tensor], fitted: FittedImage) -> None:
    operator, data, truth = scan
    unknown = TINY.fit(operator, data)
    assert error(unknown.image, truth) < 1.3 * error(fitted.image, truth)


def test_variance_stops_before_noise_is_fitted() -> None:
    """Images that settle, stay, and then begin to wander."""
    rule, generator, image = Variance(window=5, patience=10), torch.Generator().manual_seed(0), torch.zeros(4, 4)
    best, stopped = 0, 0
    for step in range(1, 200):
        speed = math.exp(-step / 10) if step < 60 else 0.5
        image = image + speed * torch.randn(4, 4, generator=generator)
        better, stop = rule.look(image, 1.0, None)
        best = step if better else best
        if stop:
            stopped = step
            break
    assert 40 <= best <= 65 < stopped < 100


def test_stopping_rules_choose_the_weights(scan: tuple[RayTransform, Tensor, Tensor], fitted: FittedImage) -> None:
    operator, data, _ = scan
    level = fitted.misfits[30] ** 0.5
    found = DeepImagePrior(TINY.network, steps=60, learning_rate=1e-2, stopping="discrepancy").fit(
        operator, data, level
    )
    assert found.step == len(found.misfits) < 60
    assert found.misfits[-1] <= level**2
    misfit = (operator(found.image) - data).square().mean()
    assert float(misfit) == pytest.approx(found.misfits[-1], rel=1e-4), "the weights of that step, not of the next"
    with pytest.warns(UserWarning, match=says("chose none of 5 steps")):
        DeepImagePrior(TINY.network, steps=5, stopping="discrepancy").fit(operator, data, 1e-6)


def test_a_rule_compares_in_the_units_of_the_training(scan: tuple[RayTransform, Tensor, Tensor]) -> None:
    operator, data, _ = scan
    for scale in (1.0, 30.0):
        prior = DeepImagePrior(TINY.network, steps=80, learning_rate=1e-2, stopping=Discrepancy(factor=5.0))
        found = reconstruct(
            operator, scale * data, scale * SIGMA, prior=prior, error_bars=ErrorBars("none"), scale=scale
        ).fitted
        assert found.misfits[-1] <= 5 * SIGMA**2 < found.misfits[-2]


@pytest.mark.release
def test_the_variance_rule_ends_a_training_that_fits_noise(scan: tuple[RayTransform, Tensor, Tensor]) -> None:
    operator, _, truth = scan
    data = measured(operator, truth, 1.5)
    rule = Variance(window=20, patience=100)
    prior = DeepImagePrior(SkipUNet(width=8), variation=0.0, steps=1500, learning_rate=3e-3, stopping=rule)
    found = prior.fit(operator, data)
    assert found.step + 100 <= len(found.misfits) < 1500
    assert found.misfit(operator, data) == pytest.approx(found.misfits[found.step - 1], rel=1e-4)
    longest = DeepImagePrior(SkipUNet(width=8), variation=0.0, steps=1500, learning_rate=3e-3).fit(operator, data)
    assert error(found.image, truth) < error(longest.image, truth)
    assert not rule._images, "the rule itself is not used up"


def test_densities_of_images() -> None:
    root = torch.randn(12, 12, dtype=torch.double)
    mean, covariance = torch.randn(3, 4).double(), root @ root.T + torch.eye(12)
    image = torch.randn(3, 4).double()
    whole = GaussianImage(mean, covariance)
    truth = MultivariateNormal(mean.flatten(), covariance).log_prob(image.flatten())
    torch.testing.assert_close(whole.log_prob(image), truth)
    torch.testing.assert_close(whole.patch_log_prob(image, 4), truth)
    single = Normal(mean, covariance.diagonal().reshape(3, 4).sqrt()).log_prob(image).sum()
    torch.testing.assert_close(whole.patch_log_prob(image), single)
    alone = IndependentImage(mean, whole.variance)
    torch.testing.assert_close(alone.log_prob(image), single)
    torch.testing.assert_close(alone.patch_log_prob(image, 2), single)
    draws = whole.sample((20_000,))
    torch.testing.assert_close(draws.flatten(1).T.cov(), covariance, atol=1.5, rtol=0)
    drawn = DrawnImage(mean, draws, noise=0.5)
    torch.testing.assert_close(drawn.variance, whole.variance + 0.25, rtol=0.05, atol=0)
    pixels = torch.tensor([0, 5, 7])
    deviations = (draws - mean).flatten(1)
    covariance = deviations.T @ deviations / len(draws)
    halved = 0.5 * covariance + 0.5 * covariance.diagonal().diag_embed() + 0.25 * torch.eye(12)
    torch.testing.assert_close(drawn.covariance_of(pixels), halved[pixels][:, pixels])
    for each in (whole, alone, drawn):
        torch.testing.assert_close(each.times(3.0).mean, 3 * mean)
        torch.testing.assert_close(each.times(3.0).stddev, 3 * each.stddev)
        assert each.sample((2, 5)).shape == (2, 5, 3, 4)
    with pytest.raises(NotImplementedError, match=says("patch_log_prob", "exact")):
        drawn.log_prob(image)
    few = DrawnImage(mean, draws[:20])
    assert len(few.sample((20,)).flatten(1).unique(dim=0)) == 20, "each draw once"
    for each in (whole, alone, drawn):
        torch.testing.assert_close(each.sample((4000,)).mean(0), mean, atol=0.3, rtol=0)


@pytest.mark.parametrize(
    ("posterior", "objective"),
    [
        *(("exact", objective) for objective in ("map", "linear", "none")),
        ("drawn", "linear"),
        *(pytest.param("drawn", objective, marks=pytest.mark.slow) for objective in ("map", "none")),
    ],
)
def test_error_bars_of_every_kind(
    scan: tuple[RayTransform, Tensor, Tensor],
    fitted: FittedImage,
    objective: str,
    posterior: str,
) -> None:
    operator, data, _ = scan
    settings = ErrorBars(objective, predcp=objective == "map", posterior=posterior, samples=16)
    found = with_error_bars(operator, data, fitted, SIGMA, error_bars=settings)
    torch.testing.assert_close(found.mean.float(), fitted.image)
    assert found.stddev.shape == (16, 16)
    assert bool((found.stddev > 0).all())
    assert found.noise == pytest.approx(SIGMA)
    assert bool((found.weights.prior.precision == 1).all()) == (objective == "none")
    assert "posterior" in found.seconds


@pytest.mark.slow
def test_the_whole_way_and_in_other_units(scan: tuple[RayTransform, Tensor, Tensor]) -> None:
    operator, data, truth = scan
    longer = DeepImagePrior(SkipUNet(width=8), steps=400, learning_rate=3e-3)
    found = reconstruct(operator, data, SIGMA, prior=longer)
    assert set(found.seconds) == {"deep image prior", "Jacobian and covariances", "evidence", "posterior"}
    cdf = Normal(found.mean, found.stddev).cdf(truth.double())
    assert 0.8 < float(((cdf - 0.5).abs() < 0.475).double().mean()) <= 1
    errors = (found.mean - truth).abs().flatten()
    assert float(torch.corrcoef(torch.stack([errors, found.stddev.flatten()]))[0, 1]) > 0.2
    larger = reconstruct(operator, 8 * data, 8 * SIGMA, prior=longer, scale=8.0)
    torch.testing.assert_close(larger.mean, 8 * found.mean)
    torch.testing.assert_close(larger.stddev, 8 * found.stddev)
    assert larger.noise == pytest.approx(8 * SIGMA)
    assert larger.weights.likelihood.scale == pytest.approx(SIGMA)  # type: ignore[attr-defined]
    assert float(osc.log_evidence(larger.weights)) == pytest.approx(float(osc.log_evidence(found.weights)))


@pytest.mark.parametrize("angles", [4, 12, 40])
def test_few_bright_pixels_are_within_the_range_that_is_guessed(angles: int) -> None:
    spot = 0.3 * (shepp_logan(32) > 0)
    spot[16:18, 19:21] = 1.0  # back-projection smoothes a few pixels
    for image in (spot, shepp_logan(24), torch.ones(8, 9)):
        operator = RayTransform(tuple(image.shape), angles)
        for data in (operator(image), measured(operator, image, 0.05 * float(operator(image).abs().mean()))):
            assert float(image.max()) < brightness(operator, data) < 5 * float(image.max())


@pytest.mark.parametrize(
    "operator",
    [
        Blur((12, 9), 1.0),
        Subsampling.random((9, 14), 0.4, torch.Generator().manual_seed(0)),
        RayTransform((9, 13), 5),
        RayTransform((8, 8), 12),
    ],
    ids=["blur", "inpainting", "a wide image", "more data than pixels"],
)
def test_other_operators_shapes_and_an_unknown_noise(operator: LinearOperator) -> None:
    data = measured(operator, torch.rand(operator.image_shape), 0.05)
    found = reconstruct(operator, data, prior=TINY)
    assert found.mean.shape == operator.image_shape
    left = found.fitted.misfit(operator, data) ** 0.5
    assert 0.5 * left < found.noise < 1.2 * left, "what the linear model can explain beside the network is not noise"
    assert math.isfinite(float(found.posterior.log_prob(found.mean)))


def test_a_network_that_does_not_fit_is_told(scan: tuple[RayTransform, Tensor, Tensor]) -> None:
    operator, data, _ = scan
    with pytest.warns(UserWarning, match=says("has not fitted", "steps")):
        reconstruct(operator, data, SIGMA, prior=DeepImagePrior(SkipUNet(width=2), steps=5))


def test_a_forgotten_scale_is_told(scan: tuple[RayTransform, Tensor, Tensor]) -> None:
    operator, data, _ = scan
    with pytest.warns(UserWarning, match=says("scale", "largest value")):
        reconstruct(operator, 30 * data, prior=DeepImagePrior(SkipUNet(width=2), steps=5))
    with pytest.warns(UserWarning, match=says("scale", "largest value")):
        ensemble(operator, 30 * data, prior=DeepImagePrior(SkipUNet(width=2), steps=5), members=2)


def test_a_noise_that_is_too_large_is_told(scan: tuple[RayTransform, Tensor, Tensor], fitted: FittedImage) -> None:
    with pytest.warns(UserWarning, match=says("small beside the given noise")):
        with_error_bars(scan[0], scan[1], fitted, 100 * SIGMA)


def test_a_prior_over_hyperparameters_without_a_weight_is_told(scan: tuple[RayTransform, Tensor, Tensor]) -> None:
    operator, data, _ = scan
    with pytest.warns(UserWarning, match=says("predcp", "penalty")):
        reconstruct(
            operator,
            data,
            SIGMA,
            prior=DeepImagePrior(TINY.network, variation=0.0, steps=5),
            error_bars=ErrorBars(predcp=True),
        )


def test_what_is_taken_for_noise_is_told(scan: tuple[RayTransform, Tensor, Tensor]) -> None:
    operator, data, _ = scan
    with pytest.warns(UserWarning, match=says("unexplained", "order of angles")):
        reconstruct(operator, data.flip(0).flip(1).roll(7, 1), prior=DeepImagePrior(SkipUNet(width=2), steps=20))


def test_scores(fitted: FittedImage) -> None:
    truth = torch.zeros(10, 20)
    posterior = IndependentImage(truth, torch.full((10, 20), 0.04))
    assert scores.psnr(truth + 0.1, torch.eye(20)[:10] + truth) == pytest.approx(
        10 * math.log10(1 / (0.95 * 0.01 + 0.05 * 0.81))
    )
    off = truth + 0.2 * torch.randn(10, 20, generator=torch.Generator().manual_seed(0))
    assert scores.covered(posterior, off, (0.5, 0.95)) == pytest.approx([0.5, 0.95], abs=0.08)
    assert scores.error_correlation(posterior, off) == 0.0
    told = IndependentImage(truth, off.square() + 1e-6)
    assert scores.error_correlation(told, off) > 0.99
    bars, errors = scores.grouped(off, told.stddev, 10)
    assert bars == pytest.approx(errors, rel=0.05)
    assert sorted(bars) == bars


def test_double_precision_stays(scan: tuple[RayTransform, Tensor, Tensor]) -> None:
    operator, data, _ = scan
    found = reconstruct(operator, data.double(), SIGMA, prior=DeepImagePrior(SkipUNet(width=2), steps=3))
    assert found.fitted.image.dtype == found.fitted.input.dtype == torch.double
    assert next(found.fitted.network.parameters()).dtype == found.mean.dtype == found.stddev.dtype == torch.double


def test_baselines(scan: tuple[RayTransform, Tensor, Tensor], fitted: FittedImage) -> None:
    operator, data, truth = scan
    few = DeepImagePrior(steps=20)
    same = isotropic(operator, fitted.image)
    assert float(same.stddev.std()) == pytest.approx(0, abs=1e-9)
    one, dropped = mc_dropout(operator, data, SIGMA, few, dropout=0.3, samples=12)
    assert dropped.draws.shape == (12, 16, 16)
    assert float(dropped.draws.std(0).mean()) > 0
    assert not one.network.training
    unknown, spread = mc_dropout(operator, data, None, few, dropout=0.3, samples=12)
    assert unknown.misfit(operator, data) == pytest.approx(float((operator(unknown.image) - data).square().mean()))
    assert spread.noise == pytest.approx(image_noise(operator, unknown.misfit(operator, data) ** 0.5))
    members = ensemble(operator, data, None, few, members=3)
    given = ensemble(operator, data, None, DeepImagePrior(SkipUNet(width=3), steps=3), members=2)
    assert float(given.draws.std(0).max()) > 0, "each member has weights of its own"
    assert members.draws.shape == (3, 16, 16)
    for posterior in (same, dropped, members):
        assert math.isfinite(float(posterior.patch_log_prob(truth)))


def test_a_network_may_find_its_own_sizes() -> None:
    network = nn.Sequential(nn.LazyConv2d(4, 3, padding=1), nn.ReLU(), nn.LazyConv2d(1, 3, padding=1), nn.Sigmoid())
    image = shepp_logan(16)
    with seeded(0):
        found = reconstruct(
            Subsampling(torch.ones(16, 16, dtype=torch.bool)),
            image.flatten(),
            0.1,
            prior=DeepImagePrior(network, steps=20),
        )
    assert float(found.stddev.min()) > 0


@pytest.mark.release
def test_error_bars_that_are_mostly_noise_carried_back_are_told() -> None:
    operator = Blur((16, 16), 3.0)
    data = operator(shepp_logan(16))
    with pytest.warns(UserWarning, match="carried back"):
        found = reconstruct(
            operator, data, 0.01, prior=DeepImagePrior(SkipUNet(width=4), steps=300, learning_rate=1e-2)
        )
    assert 0.1 < float(found.stddev.min()) < float(found.stddev.max()) < 1


class Short(LinearOperator):
    """Leaves a measurement out."""

    def apply(self, images: Tensor) -> Tensor:
        return images[:, 1:]

    def transpose(self, data: Tensor) -> Tensor:
        return data


class Doubled(LinearOperator):
    """Has another transpose."""

    def apply(self, images: Tensor) -> Tensor:
        return images

    def transpose(self, data: Tensor) -> Tensor:
        return 2 * data


def untrained(network: nn.Module, steps: int = 3) -> object:
    return reconstruct(RayTransform((16, 16), 8), DATA, 0.1, prior=DeepImagePrior(network, steps=steps))


def alone() -> IndependentImage:
    return IndependentImage(torch.zeros(2, 2), torch.ones(2, 2))


DATA = torch.ones(8, 23)
EDGES = torch.zeros(4, 41).index_fill(1, torch.tensor([0, 1, 2, 3, 37, 38, 39, 40]), 1.0)
HOLES = DATA.index_fill(0, torch.tensor(1), math.nan)
EVERY = Subsampling(torch.ones(3, 3, dtype=torch.bool))
BAD = {
    "another shape": (lambda: reconstruct(RayTransform((16, 16), 8), torch.ones(9, 23)), ("(8, 23)", "(9, 23)")),
    "a transposed sinogram": (lambda: reconstruct(RayTransform((16, 16), 8), DATA.T), ("transpose",)),
    "NaN": (lambda: reconstruct(RayTransform((16, 16), 8), HOLES), ("23 of 184",)),
    "whole numbers": (lambda: reconstruct(RayTransform((16, 16), 8), DATA.long()), ("floating type",)),
    "half precision": (lambda: reconstruct(RayTransform((16, 16), 8), DATA.half()), ("data.float()",)),
    "nothing": (lambda: reconstruct(RayTransform((16, 16), 8), 0 * DATA), ("all measurements are zero",)),
    "no noise": (lambda: reconstruct(RayTransform((16, 16), 8), DATA, 0.0), ("noise", "0.0")),
    "negative noise": (lambda: reconstruct(RayTransform((16, 16), 8), DATA, -1.0), ("noise", "-1.0")),
    "a scale of zero": (lambda: reconstruct(RayTransform((16, 16), 8), DATA, scale=0.0), ("scale",)),
    "negative data": (lambda: brightness(RayTransform((16, 16), 8), -DATA), ("positive",)),
    "no positive guess": (lambda: brightness(RayTransform((8, 8), 4, 41), EDGES), ("positive",)),
    "a range of pixels": (lambda: brightness(EVERY, torch.ones(9)), ("ray transform", "scale")),
    "one draw": (lambda: mc_dropout(RayTransform((16, 16), 8), DATA, samples=1), ("samples",)),
    "dropping all": (lambda: mc_dropout(RayTransform((16, 16), 8), DATA, dropout=1.0), ("dropout",)),
    "rows of another length": (lambda: reconstruct(Short((4, 4), (16,)), torch.ones(16)), ("apply", "(3, 16)")),
    "an adjoint that is none": (
        lambda: ensemble(Doubled((4, 4), (16,)), torch.ones(16), 0.1, DeepImagePrior(SkipUNet(width=2), steps=1)),
        ("not its adjoint",),
    ),
    "frozen filters": (lambda: untrained(nn.Conv2d(1, 1, 3).requires_grad_(False)), ("that are trained",)),
    "frozen weights": (
        lambda: DeepImagePrior(nn.Linear(16, 16).requires_grad_(False)).fit(RayTransform((16, 16), 8), DATA),
        ("requires a gradient",),
    ),
    "a smaller image": (lambda: untrained(nn.Conv2d(1, 1, 3)), ("(1, 1, 16, 16)", "(1, 1, 14, 14)")),
    "several channels": (lambda: untrained(nn.Conv2d(1, 2, 3, padding=1)), ("(1, 2, 16, 16)",)),
    "a network without filters": (lambda: untrained(nn.Linear(16, 16), 10**9), ("the network has none",)),
    "an isotropic error bar without noise": (lambda: isotropic(EVERY, torch.ones(3, 3), 0.0), ("noise", "0.0")),
    "an isotropic error bar of another image": (lambda: isotropic(EVERY, torch.ones(3, 4)), ("(3, 3)", "(3, 4)")),
    "a prior where nothing is tuned": (lambda: ErrorBars("none", predcp=True), ("objective='none'",)),
    "no iterations": (
        lambda: tv_reconstruction(RayTransform((16, 16), 8), DATA, 1.0, iterations=0),
        ("iterations",),
    ),
    "no steps": (lambda: DeepImagePrior(steps=0), ("steps",)),
    "a negative penalty": (lambda: DeepImagePrior(variation=-1.0), ("variation",)),
    "an unknown rule": (lambda: DeepImagePrior(stopping="patience"), ("'discrepancy'", "'variance'")),
    "a rule without its noise": (
        lambda: DeepImagePrior(stopping="discrepancy", steps=1).fit(RayTransform((16, 16), 8), DATA),
        ("pass noise",),
    ),
    "NaN on the right": (lambda: conjugate_gradients(lambda x: x, HOLES), ("right-hand side",)),
    "an unknown objective": (lambda: ErrorBars(objective="mle"), ("'mle'", "'linear'")),
    "an unknown posterior": (lambda: ErrorBars(posterior="full"), ("'exact'",)),
    "no draws": (lambda: ErrorBars(samples=0), ("samples",)),
    "a rate that explodes": (
        lambda: DeepImagePrior(learning_rate=1e30, steps=5).fit(RayTransform((16, 16), 8), DATA),
        ("learning_rate",),
    ),
    "bounds upside down": (lambda: tv_reconstruction(RayTransform((16, 16), 8), DATA, 1.0, (1.0, 0.0)), ("bounds",)),
    "no weight": (lambda: tikhonov(RayTransform((16, 16), 8), DATA, 0.0), ("weight",)),
    "several images": (lambda: alone().patch_log_prob(torch.zeros(3, 2, 2), 2), ("one image",)),
    "no patch": (lambda: alone().patch_log_prob(torch.zeros(2, 2), 0), ("side of a patch",)),
    "a row": (lambda: alone().log_prob(torch.zeros(1, 2)), ("(2, 2)",)),
    "one member": (lambda: ensemble(RayTransform((16, 16), 8), DATA, members=1), ("members",)),
    "another covariance": (lambda: GaussianImage(torch.zeros(2, 2), torch.eye(3)), ("per pixel, 4", "(3, 3)")),
    "another image": (
        lambda: alone().patch_log_prob(torch.zeros(3, 2)),
        ("(2, 2)",),
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_used_is_refused_in_words(what: str) -> None:
    make, words = BAD[what]
    with pytest.raises(ValueError, match=says(*words)):
        make()
