"""TV-PredCP: its closed form against draws, its gradient, and its effect on the evidence of any model."""

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.curvature.linearisation import Linearisation
from osculate.data import shepp_logan
from osculate.evidence import PredCP
from osculate.evidence.predcp import _representatives
from osculate.inverse import LinearisedImage, RayTransform, total_variation
from osculate.priors import Filters
from tests.errors import says
from tests.inverse.models import prior_of, small


@pytest.fixture(scope="module")
def image() -> LinearisedImage:
    return small(RayTransform((7, 8), 3))


def predcp_of(image: LinearisedImage, count: int = 512) -> PredCP:
    return PredCP.of(image.function, image.fitted.input[None, None], 0.3, count=count)


@pytest.mark.slow
def test_expected_variation_is_that_of_draws(image: LinearisedImage) -> None:
    prior, found = prior_of(image), predcp_of(image).expected_variation(prior_of(image))
    assert prior.space is not None
    white = torch.randn(600, prior.space.size, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    draws = prior.split(prior.colour(white, prior.space))
    at = Linearisation(image.function.network, image.fitted.input[None, None])
    for number in range(len(prior.blocks)):
        alone = [some if other == number else 0 * some for other, some in enumerate(draws)]
        images = image.fitted.image + at.jvp(prior.merge(alone))[:, 0, 0]
        assert float(found[number]) == pytest.approx(float(total_variation(images).mean()), rel=0.03)


def test_longer_length_scales_are_expected_to_vary_more(image: LinearisedImage) -> None:
    """So that only the change of variables in the density of TV-PredCP can ask for longer ones."""
    prior, predcp = prior_of(image), predcp_of(image)
    short, long = (
        predcp.expected_variation(prior.replace(prior.precision, prior.lengthscale * by)) for by in (1.0, 2.0)
    )
    assert bool((long[prior.with_lengthscale] > short[prior.with_lengthscale]).all())


def test_gradients_are_finite_differences(image: LinearisedImage) -> None:
    prior, predcp = prior_of(image), predcp_of(image)
    start = torch.cat([prior.precision.log(), prior.lengthscale.log()])

    def at(values: Tensor) -> Tensor:
        return predcp(prior.replace(values[: len(prior.blocks)].exp(), values[len(prior.blocks) :].exp()))

    leaf = start.clone().requires_grad_()
    (slope,) = torch.autograd.grad(at(leaf), leaf)
    for number in range(len(start)):
        step = torch.zeros_like(start)
        step[number] = 1e-4
        difference = float((at(start + step) - at(start - step)).detach()) / 2e-4
        assert float(slope[number]) == pytest.approx(difference, rel=0.02, abs=1e-5)


def test_few_differences_stand_for_all(image: LinearisedImage) -> None:
    every, some = (predcp_of(image, count) for count in (1000, 60))
    assert len(some.means) <= 60 < len(every.means)
    assert float(every.shares.sum()) == len(every.means)
    prior = prior_of(image)
    torch.testing.assert_close(some.expected_variation(prior), every.expected_variation(prior), rtol=0.1, atol=0)


def test_few_differences_of_a_picture_with_edges_stand_for_all() -> None:
    """Nearly all of its total variation is in few places: those that are chosen have to be likely there."""
    sizes = shepp_logan(64).double().diff(dim=0).abs().flatten()
    chosen, shares = _representatives(sizes, 512)
    assert float((shares * sizes[chosen]).sum() / sizes.sum()) == pytest.approx(1, abs=0.02)
    assert float(shares.sum()) == pytest.approx(len(sizes), rel=0.05)


def curve() -> tuple[osc.posteriors.Gaussian, Tensor]:
    torch.manual_seed(0)
    x = torch.linspace(-1, 1, 30, dtype=torch.double).unsqueeze(1)
    model = nn.Sequential(nn.Linear(1, 10), nn.Tanh(), nn.Linear(10, 1)).double()
    y = (3 * x).sin() + 0.3 * torch.randn(30, 1).double()
    prior = osc.priors.Layerwise(1.0)
    return osc.laplace(model, osc.likelihoods.Gaussian(0.3), (x, y), structure="full", prior=prior, refine=False), x


def test_any_model_has_it() -> None:
    """Along the inputs of a regression, with one precision for each layer."""
    q, x = curve()
    predcp = PredCP.of(q, x, 30.0, axes=(0,))
    plain, smooth = (osc.maximise_evidence(q, mode="linear", hyperprior=each) for each in (None, predcp))
    variation = predcp.expected_variation
    assert len(variation(q.prior)) == 4
    assert float(variation(smooth.prior).sum()) < 0.8 * float(variation(plain.prior).sum())


def test_without_a_prior_over_them_the_gradient_finds_what_the_fixed_point_finds() -> None:
    q, _ = curve()
    fixed = osc.maximise_evidence(q)
    climbed = osc.maximise_evidence(q, hyperprior=lambda prior: prior.precision.sum() * 0)
    assert float(osc.log_evidence(climbed)) == pytest.approx(float(osc.log_evidence(fixed)), abs=0.01)


def test_a_value_at_a_bound_stays_there(image: LinearisedImage) -> None:
    def switched_off(prior: osc.priors.Prior) -> Tensor:
        return -20 * prior.precision.log()[:2].sum()

    found = osc.maximise_evidence(image.q, mode="linear", hyperprior=switched_off)
    assert isinstance(found.prior, Filters)
    assert float(found.prior.precision[0].log()) == pytest.approx(14.0)


def test_values_without_neighbours_are_refused() -> None:
    q, x = curve()
    with pytest.raises(ValueError, match=says("neighbours", "axes=(0,)")):
        PredCP.of(q, x[:1], 1.0)


def test_wrong_requests_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # users run without checks of types
    q, x = curve()
    with pytest.raises(ValueError, match="weight must be positive"):
        PredCP.of(q, x, -1.0, axes=(0,))
    with pytest.raises(TypeError, match=says("axes must be a sequence", "got 0")):
        PredCP.of(q, x, 1.0, axes=0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=says("hyperprior must be a function", "got 3")):
        osc.maximise_evidence(q, hyperprior=3)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=says("made for 4 groups", "Isotropic")):
        PredCP.of(q, x, 1.0, axes=(0,))(osc.priors.Isotropic(1.0).bind(q.network.space))
