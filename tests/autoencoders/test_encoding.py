"""Codes of drawn networks as a distribution, also where a code given the weights is not normal."""

import math

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.autoencoders import (
    VAE,
    Encoding,
    Representation,
)
from tests.autoencoders.families import FAMILIES

LIKELIHOOD = osc.likelihoods.Gaussian(0.3)


def images(n: int = 3) -> Tensor:
    return torch.rand(n, 6, dtype=torch.double, generator=torch.Generator().manual_seed(0))


def network(family: str, seed: int = 0) -> VAE:
    torch.manual_seed(seed)
    net = VAE(nn.Linear(6, 4), nn.Linear(2, 6), FAMILIES[family]()).double()
    with torch.no_grad():
        for parameter in net.posterior.parameters():
            parameter.mul_(1 + 0.1 * seed)
        net.encoder.weight.mul_(3)
    return net


def members(family: str) -> list[VAE]:
    return [network(family, seed) for seed in range(3)]


def encoding(family: str) -> Encoding:
    return Representation(osc.posteriors.Ensemble(members(family), LIKELIHOOD)).encode(images())


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.release] * (name == "flow")) for name in FAMILIES]
)
@pytest.mark.slow
def test_codes_are_drawn_from_the_mixture_of_what_each_network_says(name: str) -> None:
    code, x, state = encoding(name), images(), torch.get_rng_state()
    assert torch.equal(code.codes(6, torch.Generator().manual_seed(1)), code.codes(6, torch.Generator().manual_seed(1)))
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(0)
    drawn = code.sample((6000,))
    assert not drawn.requires_grad
    with torch.no_grad():
        own = torch.cat([net.posterior.codes(net.code(x), samples=2000) for net in members(name)])
    for z in (drawn, code.codes(6000)):
        assert z.shape == (6000, 3, 2)
        at = torch.linspace(0.05, 0.95, 19, dtype=torch.double)
        shares = (z.unsqueeze(0) < own.quantile(at, 0).unsqueeze(1)).double().mean(1)
        assert float((shares - at.reshape(-1, 1, 1)).abs().max()) < 0.04
    torch.testing.assert_close(code.samples, torch.stack([net.posterior.mean(net.code(x)) for net in members(name)]))


@pytest.mark.parametrize("name", ["gaussian", "sigmoid", "flow"])
def test_the_density_is_the_mean_over_networks(name: str) -> None:
    code, x = encoding(name), images()
    z = code.sample((4,))
    each = [net.posterior.distribution(net.code(x)).log_prob(z) for net in members(name)]
    found = code.log_prob(z)
    assert not found.requires_grad
    torch.testing.assert_close(found, torch.stack(each).logsumexp(0) - math.log(3))
    assert code.log_prob(z[0]).shape == (3,)
    with pytest.raises(ValueError, match=r"shape \(4, 3, 1\): pass"):
        code.log_prob(z[..., :1])


def test_the_density_of_gaussian_codes_is_that_of_normals() -> None:
    code, x = encoding("gaussian"), images()
    spread = torch.stack([net.posterior.variance(net.code(x)) for net in members("gaussian")])
    z = code.sample((4,))
    torch.testing.assert_close(code.log_prob(z), Encoding(code.samples, spread).log_prob(z))
    torch.testing.assert_close(code.latent_variance, spread.mean(0))


@pytest.mark.parametrize("name", ["semi-implicit", "adversarial"])
def test_codes_without_a_density_say_so(name: str) -> None:
    code = encoding(name)
    with pytest.raises(ValueError, match="have no density in closed form"):
        code.log_prob(code.sample())


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.release] * (n == "flow")) for n in FAMILIES])
def test_images_are_decoded_from_codes_of_the_same_network(name: str) -> None:
    """The decoders give the code itself, and say which network they are of."""

    class Number(nn.Module):
        def __init__(self, number: int) -> None:
            super().__init__()
            self.offset = nn.Parameter(torch.tensor(1000.0 * number, dtype=torch.double))

        def forward(self, z: Tensor) -> Tensor:
            return torch.cat([z, z, z], 1) + self.offset

    nets = members(name)
    for number, net in enumerate(nets):
        net.decoder = Number(number)
    r, x = Representation(osc.posteriors.Ensemble(nets, LIKELIHOOD)), images()
    found = r.reconstruct(x, codes=300).outputs
    for number, net in enumerate(nets):
        with torch.no_grad():
            own = net.posterior.codes(net.code(x), samples=4000)
        z = found[number, ..., :2] - 1000 * number
        error = 5 * own.std(0) / 300**0.5
        assert bool(((z.mean(0) - own.mean(0)).abs() < error).all())
        torch.testing.assert_close(z.std(0), own.std(0), rtol=0.4, atol=0)


def test_codes_of_a_linearised_encoder_have_the_moments_of_those_between_0_and_1() -> None:
    x, net = images(), network("sigmoid")
    q = osc.laplace(net, LIKELIHOOD, (x, x), structure="diag", prior=10.0, subset=["decoder"], refine=False)
    r = Representation(q)
    code, linear = r.encode(x, 5), r.encode(x, via="linearised")
    torch.testing.assert_close(linear.mean, code.mean)
    torch.testing.assert_close(linear.variance, code.latent_variance)
    assert bool(((code.sample((500,)) >= 0) & (code.sample((500,)) <= 1)).all())


def test_draws_of_the_parameters_of_codes_are_refused() -> None:
    net, x = network("flow"), images()
    space = osc.parameters.Network(net, [name for name, _ in net.named_parameters()])
    chains = osc.posteriors.Chains(space, LIKELIHOOD, space.mean.expand(2, 3, -1))
    with pytest.raises(ValueError, match=r"Chains differ in the parameters of q\(z\|x\): use an ensemble"):
        Representation(chains)
    plain = osc.parameters.Network(network("gaussian"), [name for name, _ in network("gaussian").named_parameters()])
    r = Representation(osc.posteriors.Chains(plain, LIKELIHOOD, plain.mean.expand(2, 3, -1)))
    assert r.encode(x, 4).sample().shape == (3, 2)
