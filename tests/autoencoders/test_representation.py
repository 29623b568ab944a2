"""Codes and images of drawn networks: one interface for all posteriors, and variances that add up."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, distributions as D, nn

import osculate as osc
from osculate.autoencoders import ELBO, VAE, Autoencoder, Encoding, Representation

LIKELIHOOD = osc.likelihoods.Gaussian(0.3)


def images(n: int = 12) -> Tensor:
    return torch.rand(n, 1, 4, 4, dtype=torch.double, generator=torch.Generator().manual_seed(0))


def network(kind: type[Autoencoder] = Autoencoder, drop: bool = False) -> Autoencoder:
    encoder, decoder = osc.networks.mlp_coders((1, 4, 4), 2, (8,), codes=2 if kind is VAE else 1)
    if drop:
        encoder = nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Dropout(0.5), nn.Tanh(), nn.Linear(8, 2))
    return kind(encoder, decoder).double()


def posterior(name: str) -> object:
    torch.manual_seed(0)
    x = images()
    if name == "point":
        return osc.posteriors.Point(network(), LIKELIHOOD)
    if name == "vae":
        return osc.train(ELBO(network(VAE), LIKELIHOOD), (x, x), epochs=2, progress=False)
    if name == "vae, laplace":
        return osc.laplace(
            network(VAE), LIKELIHOOD, (x, x), structure="diag", prior=100.0, subset=["decoder"], refine=False
        )
    if name == "ensemble":
        return osc.posteriors.Ensemble([network() for _ in range(3)], LIKELIHOOD)
    if name == "dropout":
        return osc.posteriors.Dropout(network(drop=True), LIKELIHOOD)
    return osc.laplace(network(), LIKELIHOOD, (x, x), structure=name, prior=100.0, refine=False)


@pytest.mark.parametrize("name", ["point", "vae", "vae, laplace", "ensemble", "dropout", "diag", "kron", "approx_diag"])
@pytest.mark.filterwarnings("ignore:networks sampled")
def test_every_posterior_has_codes_and_images_whose_variances_add_up(name: str) -> None:
    r, x = Representation(posterior(name), codes=images()), images(5)
    code, image = r.encode(x, samples=20), r.reconstruct(x, samples=20)
    assert code.mean.shape == code.variance.shape == (5, 2)
    assert image.mean.shape == image.variance.shape == x.shape
    torch.testing.assert_close(code.variance, code.weight_variance + code.latent_variance)
    parts = image.weight_variance + image.latent_variance + image.noise_variance
    torch.testing.assert_close(image.variance, parts)
    torch.testing.assert_close(image.noise_variance, torch.full_like(x, 0.09))
    assert (float(code.weight_variance.max()) > 1e-12) == (name not in ("point", "vae", "vae, laplace"))
    assert bool(code.latent_variance.any()) == name.startswith("vae")
    assert bool(image.weight_variance.any()) == (name not in ("point", "vae"))
    drawn = image.sample((4000,))
    assert drawn.shape == (4000, *x.shape)
    torch.testing.assert_close(drawn.mean(0), image.mean, atol=0.05, rtol=0)
    torch.testing.assert_close(drawn.var(0), image.variance, atol=0, rtol=0.25)
    assert r.generate(3).shape == (3, 1, 4, 4)
    assert bool(r.log_prob(x, samples=10).isfinite().all())


def test_the_density_is_the_mean_over_draws_of_all_pixels_together() -> None:
    r, x = Representation(posterior("ensemble")), images(4)
    each = [LIKELIHOOD.log_prob(member(x), x) for member in r.posterior.members]
    expected = torch.stack(each).logsumexp(0) - math.log(3)
    torch.testing.assert_close(r.log_prob(x), expected)
    image = r.reconstruct(x)
    torch.testing.assert_close(image.samples, torch.stack([member(x) for member in r.posterior.members]))


def test_codes_and_weights_of_a_vae_share_the_variance_by_the_law_of_total_variance() -> None:
    r, x = Representation(posterior("vae, laplace")), images(3)
    image = r.reconstruct(x, samples=30, codes=40, generator=torch.Generator().manual_seed(0))
    assert image.outputs.shape == (30, 40, 3, 1, 4, 4)
    total = image.outputs.flatten(0, 1).var(0, correction=0)
    torch.testing.assert_close(image.mean_variance, total)


@pytest.mark.release
def test_few_codes_of_many_networks_and_many_codes_of_few_give_the_same_parts_of_the_variance() -> None:
    r, x = Representation(posterior("vae, laplace")), images(3)
    few = r.reconstruct(x, samples=3000, generator=torch.Generator().manual_seed(1))
    many = r.reconstruct(x, samples=300, codes=60, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(
        few.weight_variance, many.weight_variance, rtol=0.3, atol=0.02 * float(few.mean_variance.max())
    )
    torch.testing.assert_close(few.latent_variance, many.latent_variance, rtol=0.15, atol=0)


@pytest.mark.slow
def test_codes_alone_give_no_variance_by_weights() -> None:
    x = images(3)
    sure = osc.laplace(network(VAE), LIKELIHOOD, (x, x), structure="diag", prior=1e12, subset=["decoder"], refine=False)
    image = Representation(sure).reconstruct(x, samples=600, generator=torch.Generator().manual_seed(0))
    assert float((image.weight_variance / image.latent_variance).mean()) < 0.1


@pytest.mark.slow
def test_the_latent_variance_of_a_linear_encoder_is_that_of_the_linearised_posterior() -> None:
    """Small variances: 1000 sampled encoders against K columns of J."""
    torch.manual_seed(0)
    x, net = images(), network()
    q = osc.laplace(net, osc.likelihoods.Gaussian(0.01), (x, x), structure="diag", prior=1e4, refine=False)
    found = Representation(q).encode(x[:4], samples=1000, generator=torch.Generator().manual_seed(0)).weight_variance
    encoder = osc.laplace(
        net.encoder, osc.likelihoods.Gaussian(1.0), (x, torch.zeros(12, 2).double()), structure="diag", refine=False
    )
    size = sum(p.numel() for p in net.encoder.parameters())
    jacobian = osc.curvature.reference.jacobian(net.encoder, x[:4])
    expected = jacobian.square() @ q.variance()[:size]
    torch.testing.assert_close(found, expected, rtol=0.15, atol=0)
    assert encoder.mean.numel() == size


def test_draws_follow_their_generator() -> None:
    r, x = Representation(posterior("diag")), images(3)
    one, two = (r.encode(x, 5, torch.Generator().manual_seed(3)).samples for _ in range(2))
    assert torch.equal(one, two)


@pytest.mark.slow
def test_the_bound_of_a_linear_vae_is_below_the_density_and_its_training_raises_it() -> None:
    torch.manual_seed(0)
    x = (
        torch.randn(200, 2, dtype=torch.double) @ torch.randn(2, 5, dtype=torch.double)
        + 0.3 * torch.randn(200, 5).double()
    )
    net = VAE(nn.Linear(5, 4), nn.Linear(2, 5)).double()
    method = ELBO(net, LIKELIHOOD, 1e-4)
    before = float(method.log_prob(x, x).mean())
    osc.train(method, (x, x), epochs=500, lr=0.05, batch_size=200, progress=False)
    after = float(torch.stack([method.log_prob(x, x).mean() for _ in range(50)]).mean())
    w, b = net.decoder.weight, net.decoder.bias
    marginal = torch.distributions.MultivariateNormal(b, w @ w.T + 0.09 * torch.eye(5, dtype=torch.double))
    exact = float(marginal.log_prob(x).mean())
    assert before < after < exact
    assert exact - after < 0.3


@pytest.mark.parametrize("name", ["point", "vae", "vae, laplace", "ensemble", "diag"])
@pytest.mark.filterwarnings("ignore:networks sampled")
def test_decoded_codes_are_the_images_of_each_network(name: str) -> None:
    r, z = Representation(posterior(name)), torch.randn(5, 2).double()
    image = r.decode(z, 4, torch.Generator().manual_seed(1))
    networks = list(r._draws(4, torch.Generator().manual_seed(1)))
    torch.testing.assert_close(image.samples, torch.stack([one({"decode": z}) for one in networks]))
    assert image.outputs.shape == (len(networks), 1, 5, 1, 4, 4)
    torch.testing.assert_close(image.weight_variance, image.samples.var(0, correction=0))
    assert not image.latent_variance.any()


@pytest.mark.parametrize("name", ["point", "vae", "vae, laplace", "ensemble", "dropout", "diag"])
@pytest.mark.filterwarnings("ignore:networks sampled")
def test_codes_and_images_come_from_the_same_networks(name: str) -> None:
    r, x = Representation(posterior(name)), images(5)
    code, image = r.represent(x, samples=3, generator=torch.Generator().manual_seed(2))
    again = r.reconstruct(x, samples=3, generator=torch.Generator().manual_seed(2))
    assert torch.equal(image.outputs, again.outputs)
    if name in ("ensemble", "diag"):
        decoded = torch.stack([f({"decode": z}) for f, z in zip(_networks(r), code.samples, strict=True)])
        torch.testing.assert_close(image.samples, decoded)
    if name not in ("dropout",):
        torch.testing.assert_close(code.samples[0], next(_networks(r))({"encode": x})[:, :2])


def _networks(r: Representation) -> Iterator[Callable[[Any], Tensor]]:
    generator = torch.Generator().manual_seed(2)
    if isinstance(r.model, VAE):
        torch.randint(2**62, (), generator=generator)  # the seed of the codes
    return r._draws(3, generator)


@pytest.mark.filterwarnings("ignore:networks sampled")
def test_how_many_inputs_come_changes_no_weights() -> None:
    r, x = Representation(posterior("vae, laplace")), images(5)
    many, few = (r.represent(part, 3, 2, torch.Generator().manual_seed(2))[0] for part in (x, x[:2]))
    torch.testing.assert_close(many.samples[:, :2], few.samples)


def test_a_vae_that_was_never_called_generates() -> None:
    fresh = Representation(osc.posteriors.Point(network(VAE), LIKELIHOOD))
    assert fresh.generate(3).shape == (3, 1, 4, 4)
    unknown = VAE(nn.Linear(4, 4), nn.Sequential(nn.Unflatten(1, (2, 1)), nn.Conv1d(2, 4, 1)))
    with pytest.raises(ValueError, match="encode an image first"):
        Representation(osc.posteriors.Point(unknown, LIKELIHOOD)).generate(1)


def calls() -> list[tuple[Callable[[], object], type[Exception], str]]:
    net, x = network(), images()
    plain = Representation(osc.posteriors.Point(net, LIKELIHOOD))
    trained = Representation(osc.posteriors.Point(net, LIKELIHOOD))
    trained.encode(x)
    bad = torch.full_like(x, torch.nan)
    return [
        (lambda: net(x, encode=x), ValueError, "exactly one of x.*got 2"),
        (lambda: Autoencoder(nn.Identity(), nn.Identity())(x), ValueError, "code is a vector"),
        (lambda: Autoencoder(net.encoder, nn.Linear(2, 3).double())(x), ValueError, "the shape of the inputs"),
        (lambda: VAE(nn.Linear(4, 3), nn.Linear(1, 4))(torch.zeros(2, 4)), ValueError, "3 outputs"),
        (lambda: Representation(osc.posteriors.Point(nn.Linear(2, 2), LIKELIHOOD)), TypeError, "Autoencoder"),
        (lambda: Representation(net), TypeError, "expected a posterior"),
        (lambda: plain.encode(x[:0]), ValueError, "no inputs"),
        (lambda: plain.reconstruct(bad), ValueError, "NaN or infinite"),
        (lambda: plain.encode(x, samples=0), ValueError, "at least one sample"),
        (lambda: plain.generate(2), ValueError, "codes=x"),
        (lambda: trained.decode(torch.zeros(3, 4)), ValueError, r"shape \(3, 4\).*\(N, 2\)"),
        (lambda: plain.decode(torch.full((3, 2), torch.inf)), ValueError, "infinite"),
    ]


@pytest.mark.parametrize("number", range(12))
def test_what_makes_no_sense_is_refused(number: int) -> None:
    call, kind, words = calls()[number]
    with pytest.raises(kind, match=words):
        call()


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (3, 64, 64), (1, 7, 5)])
@pytest.mark.parametrize("residual", [False, True])
def test_convolutional_coders_of_any_size(shape: tuple[int, ...], residual: bool) -> None:
    encoder, decoder = osc.networks.conv_coders(shape, latent=3, width=2, residual=residual, outputs=2, codes=2)
    z = encoder(torch.zeros(2, *shape))
    assert z.shape == (2, 6)
    assert decoder(z[:, :3]).shape == (2, 2 * shape[0], *shape[1:])


def test_a_decoder_may_learn_the_variance_of_each_pixel() -> None:
    torch.manual_seed(0)
    x, likelihood = images(), osc.likelihoods.HeteroscedasticGaussian(class_axis=1)
    net = Autoencoder(*osc.networks.mlp_coders((1, 4, 4), 2, (8,), outputs=2)).double()
    osc.train(osc.methods.MAP(net, likelihood), (x, x), epochs=3, progress=False)
    r = Representation(
        osc.laplace(net, likelihood, (x, x), structure="approx_diag", prior=100.0, refine=False), codes=x
    )
    image = r.reconstruct(x[:5], samples=6)
    assert image.mean.shape == image.variance.shape == (5, 1, 4, 4)
    assert image.outputs.shape == (6, 1, 5, 2, 4, 4)
    assert bool((image.noise_variance >= 0.05**2).all())
    assert image.noise_variance.std() > 0
    assert image.sample((7,)).shape == (7, 5, 1, 4, 4)
    assert r.log_prob(x).shape == (12,)
    assert r.generate(2).shape == (2, 1, 4, 4)


@pytest.mark.parametrize("name", ["point", "vae", "ensemble", "dropout", "diag"])
@pytest.mark.filterwarnings("ignore:networks sampled")
def test_networks_are_as_many_as_asked_for(name: str) -> None:
    r, x = Representation(posterior(name)), images(2)
    found = [network(x) for network in r.networks(5, torch.Generator().manual_seed(0))]
    assert [f.shape for f in found] == [x.shape] * 5
    different = {tuple(f.flatten().tolist()) for f in found}
    assert len(different) == {"point": 1, "ensemble": 3}.get(name, 5)


@pytest.mark.parametrize("name", sorted(osc.autoencoders.REGISTRY))
def test_every_autoencoder_is_built_by_name(name: str) -> None:
    x = torch.zeros(2, 1, 8, 8)
    plain, variational = (osc.autoencoders.build(name, (1, 8, 8), latent=3, variational=v) for v in (False, True))
    assert type(plain) is Autoencoder
    assert type(variational) is VAE
    for net in (plain, variational):
        assert net(x).shape == x.shape
        assert net.latent == 3
    with pytest.raises(ValueError, match="mlp_autoencoder"):
        osc.autoencoders.build("mlp_autoencodr", (1, 8, 8))


def test_codes_of_random_encoders_have_a_density() -> None:
    generator = torch.Generator().manual_seed(0)
    mean, spread = torch.randn(5, 3, 2, generator=generator), torch.rand(5, 3, 2, generator=generator) + 0.1
    z = torch.randn(4, 3, 2, generator=generator)
    each = D.Independent(D.Normal(mean.transpose(0, 1), spread.transpose(0, 1).sqrt()), 1)
    mixture = D.MixtureSameFamily(D.Categorical(torch.ones(3, 5)), each)
    torch.testing.assert_close(Encoding(mean, spread).log_prob(z), mixture.log_prob(z))
    assert Encoding(mean, spread).log_prob(z[0]).shape == (3,)
    with pytest.raises(ValueError, match="without a density"):
        Encoding(mean).log_prob(z)
    with pytest.raises(ValueError, match="without a density"):
        Encoding(mean, 0 * spread).log_prob(z)
    with pytest.raises(ValueError, match=r"shape \(3, 1\): pass"):
        Encoding(mean, spread).log_prob(z[0, :, :1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e-6, 1e6])
@pytest.mark.parametrize("count", [1, 2, 12])
def test_codes_of_few_data_or_of_any_size_can_be_drawn(dtype: torch.dtype, scale: float, count: int) -> None:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(16, 4))
    decoder = nn.Sequential(nn.Linear(4, 16), nn.Unflatten(1, (1, 4, 4)))
    x = (scale * images(count)).to(dtype)
    net = Autoencoder(encoder, decoder).to(dtype)
    q = osc.laplace(net, LIKELIHOOD, (x, x), structure="diag", prior=1e8, refine=False)
    r = Representation(q, codes=x)
    _, spread = r._moments
    codes = net.code(x).detach().double()
    expected = (codes - codes.mean(0)).T @ (codes - codes.mean(0)) / max(1, count - 1)
    torch.testing.assert_close(spread @ spread.T, expected, rtol=1e-6, atol=1e-9 * scale**2)
    assert bool(r.generate(3, torch.Generator().manual_seed(0)).isfinite().all())
