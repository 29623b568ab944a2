"""Variances of the linearised autoencoder: against drawn networks, dense Jacobians, and each other."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.autoencoders import ELBO, VAE, Autoencoder, LaplacianAutoencoder, Representation
from osculate.curvature import reference

LIKELIHOOD = osc.likelihoods.Gaussian(0.3)
#: Networks drawn, and the relative standard error of their variance.
DRAWS = 800
ERROR = (2 / DRAWS) ** 0.5


def images(n: int = 12, side: int = 4) -> Tensor:
    return torch.rand(n, 1, side, side, dtype=torch.double, generator=torch.Generator().manual_seed(0))


def network(kind: str = "mlp", model: type[Autoencoder] = Autoencoder, outputs: int = 1) -> Autoencoder:
    torch.manual_seed(0)
    codes = 2 if issubclass(model, VAE) else 1
    if kind == "mlp":
        coders = osc.networks.mlp_coders((1, 4, 4), 2, (8,), outputs=outputs, codes=codes)
    else:
        coders = osc.networks.conv_coders(
            (1, 4, 4),
            2,
            width=2,
            depth=1 if kind == "residual" else 2,
            outputs=outputs,
            codes=codes,
            residual=kind == "residual",
        )
    return model(*coders).double()


def posterior(structure: str, kind: str = "mlp", prior: float = 1e6, **options: Any) -> osc.posteriors.Gaussian:
    x = images()
    return osc.laplace(network(kind), LIKELIHOOD, (x, x), structure=structure, prior=prior, **options, refine=False)


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(1)


STRUCTURES = "full", "diag", "approx_diag", "kron"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("structure", "kind"),
    [
        *((name, "conv") for name in STRUCTURES),
        ("full", "mlp"),
        ("kron", "mlp"),
        pytest.param("diag", "residual", marks=pytest.mark.release),
    ],
)
def test_codes_vary_as_those_of_drawn_encoders_where_the_posterior_is_narrow(structure: str, kind: str) -> None:
    r, x = Representation(posterior(structure, kind)), images(5)
    drawn, linear = r.encode(x, DRAWS, generator()), r.encode(x, via="linearised")
    ratio = drawn.weight_variance / linear.weight_variance
    assert bool(((ratio - 1).abs() < 5 * ERROR).all()), ratio
    assert float((ratio - 1).mean().abs()) < 3 * ERROR
    deviation = (drawn.mean - linear.mean) / (linear.variance / DRAWS).sqrt()
    assert bool((deviation.abs() < 5).all())
    assert linear.mean.shape == linear.variance.shape == (5, 2)
    assert torch.equal(linear.variance, linear.weight_variance)
    torch.testing.assert_close(linear.mean, r.model(encode=x))


@pytest.mark.parametrize("structure", osc.structures.REGISTRY)
def test_every_structure_gives_the_diagonal_of_the_encoders_share(structure: str) -> None:
    q, x = posterior(structure, "conv", prior=10.0), images(3)
    encoder = network("conv").encoder
    size = sum(p.numel() for p in encoder.parameters())
    unit = torch.eye(len(q.mean), dtype=torch.double)
    covariance = q.precision.solve(unit)[:size, :size]
    jacobian = reference.jacobian(encoder, x)
    expected = torch.einsum("nkp,pq,nkq->nk", jacobian, covariance, jacobian)
    found = Representation(q).encode(x, via="linearised", batch_size=2).weight_variance
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=0)


@pytest.mark.parametrize("structure", ["full", "kron"])
def test_a_posterior_over_some_layers_leaves_the_others_certain(structure: str) -> None:
    x, names = images(3), dict(network().named_parameters())
    last = Representation(posterior(structure, prior=10.0, subset=["encoder.3"]))
    found = last.encode(x, via="linearised").weight_variance
    jacobian = reference.jacobian(network().encoder, x)[..., -names["encoder.3.weight"].numel() - 2 :]
    q = last.posterior
    covariance = q.precision.solve(torch.eye(len(q.mean), dtype=torch.double))
    torch.testing.assert_close(found, torch.einsum("nkp,pq,nkq->nk", jacobian, covariance, jacobian))
    decoder = Representation(posterior(structure, prior=10.0, subset=["decoder"]))
    assert not decoder.encode(x, via="linearised").weight_variance.any()
    assert bool((decoder.reconstruct(x, via="linearised", exact=True).weight_variance > 0).all())


@pytest.mark.slow
def test_few_single_weights_of_the_encoder() -> None:
    x, q = images(3), posterior("full", prior=10.0, subset=_chosen(0, 5))
    found = Representation(q).encode(x, via="linearised").weight_variance
    drawn = Representation(q.replace(prior=osc.priors.Isotropic(1e6))).encode(x, 1500, generator()).weight_variance
    again = Representation(q.replace(prior=osc.priors.Isotropic(1e6))).encode(x, via="linearised").weight_variance
    torch.testing.assert_close(drawn, again, rtol=0.15, atol=0)
    assert bool((found > 100 * again).all())
    outside = posterior("full", prior=10.0, subset=_chosen(-1))
    assert not Representation(outside).encode(x, via="linearised").weight_variance.any()


def _chosen(*places: int) -> osc.Subnetwork:
    scores = torch.zeros(sum(p.numel() for p in network().parameters()))
    scores[list(places)] = 1
    return osc.Subnetwork(len(places) / len(scores), select=scores)


@pytest.mark.parametrize("kind", ["mlp", "conv"])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_images_by_draws_of_the_linear_function_vary_as_its_exact_diagonal(structure: str, kind: str) -> None:
    r, x = Representation(posterior(structure, kind, prior=10.0)), images(3)
    drawn = r.reconstruct(x, DRAWS, generator=generator(), via="linearised")
    exact = r.reconstruct(x, via="linearised", exact=True)
    torch.testing.assert_close(exact.weight_variance, osc.functional_variance(r.posterior, x, diagonal=True))
    ratio = drawn.weight_variance / exact.weight_variance
    assert bool(((ratio - 1).abs() < 5 * ERROR).all())
    torch.testing.assert_close(exact.mean, r.model(x))
    assert bool(((drawn.mean - exact.mean).abs() < 5 * (exact.weight_variance / DRAWS).sqrt()).all())
    for each in (drawn, exact):
        torch.testing.assert_close(each.noise_variance, torch.full_like(x, 0.09))
        assert not each.latent_variance.any()
        torch.testing.assert_close(each.variance, each.weight_variance + each.noise_variance)
        images_drawn = each.sample((4000,))
        torch.testing.assert_close(images_drawn.var(0), each.variance, rtol=0.2, atol=0)
        assert each.log_prob(x).shape == (3,)
    normal = torch.distributions.Normal(exact.mean, exact.variance.sqrt())
    torch.testing.assert_close(exact.log_prob(x), normal.log_prob(x).flatten(1).sum(1))


@pytest.mark.slow
def test_the_linear_network_is_the_network_where_the_posterior_is_narrow() -> None:
    r, x = Representation(posterior("diag", "residual", prior=1e8)), images(3)
    drawn = r.reconstruct(x, 500, generator=generator())
    linear = r.reconstruct(x, 500, generator=generator(), via="linearised")
    torch.testing.assert_close(linear.outputs, drawn.outputs, rtol=0, atol=0.05 * float(drawn.outputs.std(0).mean()))


def vae(structure: str = "full", prior: float = 30.0) -> Representation:
    x, net = images(), network("mlp", VAE)
    osc.train(ELBO(net, LIKELIHOOD), (x, x), epochs=30, lr=0.02, progress=False)
    return Representation(
        osc.laplace(net, LIKELIHOOD, (x, x), structure=structure, prior=prior, subset=["decoder"], refine=False)
    )


def test_codes_of_a_vae_have_the_variance_of_its_encoder_on_top() -> None:
    r, x = vae(), images(4)
    found = r.encode(x, via="linearised")
    mean, log_variance = r.model(encode=x).chunk(2, 1)
    torch.testing.assert_close(found.mean, mean)
    torch.testing.assert_close(found.latent_variance, log_variance.exp())
    assert not found.weight_variance.any()  # the posterior is over the decoder
    torch.testing.assert_close(found.variance, found.weight_variance + found.latent_variance)
    torch.testing.assert_close(found.sample((5000,)).var(0), found.variance, rtol=0.15, atol=0)
    assert found.codes(7, generator()).shape == (7, 4, 2)


def test_images_of_a_vae_are_linear_in_weights_and_code() -> None:
    r, x = vae(), images(4)
    exact = r.reconstruct(x, via="linearised", exact=True)
    drawn = r.reconstruct(x, 1000, 400, generator(), via="linearised")
    assert drawn.outputs.shape == (1000, 400, 4, 1, 4, 4)
    mean, log_variance = r.model(encode=x).chunk(2, 1)
    jacobian = torch.autograd.functional.jacobian(lambda z: r.model(decode=z).sum(0), mean).movedim(-2, 0)
    slopes = jacobian.movedim(-1, 0) * (0.5 * log_variance).exp().T[:, :, None, None, None]
    torch.testing.assert_close(exact.latent_variance, slopes.square().sum(0))
    torch.testing.assert_close(drawn.latent_variance, exact.latent_variance, rtol=0.35, atol=0)
    torch.testing.assert_close(drawn.weight_variance, exact.weight_variance, rtol=5 * (2 / 1000) ** 0.5, atol=0)
    torch.testing.assert_close(exact.mean, r.model(x))
    few = r.reconstruct(x, 1000, 2, generator(), via="linearised")  # the pairs of codes leave the weights' share alone
    torch.testing.assert_close(few.weight_variance, drawn.weight_variance)
    torch.testing.assert_close(few.mean, drawn.mean)
    assert r.reconstruct(x, 3, via="linearised").outputs.shape[:2] == (3, 20)


def test_pixels_whose_variance_the_decoder_learns() -> None:
    x, likelihood = images(), osc.likelihoods.HeteroscedasticGaussian(class_axis=1)
    net = network("conv", outputs=2)
    r = Representation(osc.laplace(net, likelihood, (x, x), structure="diag", prior=100.0, refine=False))
    exact = r.reconstruct(x[:3], via="linearised", exact=True)
    drawn = r.reconstruct(x[:3], DRAWS, generator=generator(), via="linearised")
    assert exact.mean.shape == (3, 1, 4, 4)
    torch.testing.assert_close(exact.weight_variance, osc.functional_variance(r.posterior, x[:3], diagonal=True)[:, :1])
    torch.testing.assert_close(drawn.weight_variance, exact.weight_variance, rtol=5 * ERROR, atol=0)
    torch.testing.assert_close(drawn.noise_variance, exact.noise_variance, rtol=0.05, atol=0)


def test_pixels_behind_a_link_have_draws_that_go_through_it_and_no_exact_variance() -> None:
    x = images().round()
    r = Representation(
        osc.laplace(network(), osc.likelihoods.Bernoulli(), (x, x), structure="diag", prior=10.0, refine=False)
    )
    found = r.reconstruct(x[:3], 50, via="linearised")
    functions = osc.sample_functions(r.posterior, x[:3], 50, generator=generator())
    again = r.reconstruct(x[:3], 50, generator=generator(), via="linearised")
    torch.testing.assert_close(again.samples, functions.sigmoid())
    assert bool(((found.mean > 0) & (found.mean < 1)).all())
    with pytest.raises(ValueError, match="exact=True is for real-valued pixels, and Bernoulli"):
        r.reconstruct(x, via="linearised", exact=True)


def test_a_tuned_posterior_and_its_temperature() -> None:
    x = images(30)
    r = LaplacianAutoencoder.post_hoc(network("conv"), LIKELIHOOD, x[:20], validation=None, structure="kron")
    cold = LaplacianAutoencoder(r.posterior.replace(temperature=1e-4))
    warm = r.encode(x, via="linearised").weight_variance
    assert bool((cold.encode(x, via="linearised").weight_variance < 0.1 * warm).all())


def test_nearest_neighbours_take_the_codes_of_either_way() -> None:
    x = images(8)
    z = Representation(posterior("diag", prior=10.0)).encode(x, via="linearised")
    assert z.codes(5, generator()).shape == (5, 8, 2)
    assert torch.equal(z.codes(5, generator()), z.codes(5, generator()))


def others() -> list[object]:
    return [
        osc.posteriors.Point(network(), LIKELIHOOD),
        osc.posteriors.Ensemble([network(), _shifted(network())], LIKELIHOOD),
        osc.posteriors.Dropout(
            Autoencoder(
                nn.Sequential(nn.Flatten(), nn.Linear(16, 4), nn.Dropout(0.5), nn.Linear(4, 2)),
                nn.Sequential(nn.Linear(2, 16), nn.Unflatten(1, (1, 4, 4))),
            ).double(),
            LIKELIHOOD,
        ),
    ]


def _shifted(model: Autoencoder) -> Autoencoder:
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1)
    return model


@pytest.mark.parametrize("number", range(3))
def test_posteriors_that_are_not_gaussian_are_refused(number: int) -> None:
    q = others()[number]
    r, x, name = Representation(q), images(2), type(q).__name__
    for call in (
        lambda: r.encode(x, via="linearised"),
        lambda: r.reconstruct(x, via="linearised"),
        lambda: r.reconstruct(x, via="linearised", exact=True),
    ):
        with pytest.raises(TypeError, match=f"needs a Gaussian posterior.*this is a {name}.*via='sampled'"):
            call()


def test_what_makes_no_sense_is_refused() -> None:
    r, x = Representation(posterior("diag")), images(2)
    with pytest.raises(ValueError, match="unknown way to codes 'linearized'.*'linearised'"):
        r.encode(x, via="linearized")
    with pytest.raises(ValueError, match="unknown way to images 'exact'"):
        r.reconstruct(x, via="exact")
    with pytest.raises(ValueError, match="exact=True is for via='linearised'"):
        r.reconstruct(x, exact=True)
    with pytest.raises(ValueError, match="at least one sample is needed, got samples=0"):
        r.reconstruct(x, 0, via="linearised")
    with pytest.raises(ValueError, match="NaN or infinite"):
        r.encode(torch.full_like(x, torch.nan), via="linearised")
    with pytest.raises(ValueError, match="exactly one of x.*got 2"):
        r.model(x, centre=x)
