"""How codes are distributed given an image: draws, densities and moments of each kind."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal

from osculate.autoencoders import (
    VAE,
    AdversarialCodes,
    CodePosterior,
    FlowCodes,
    GaussianCodes,
    SemiImplicitCodes,
    SigmoidCodes,
    SparseBeta,
    StandardNormal,
    TwoNormals,
)
from osculate.autoencoders.codes import CodePrior
from tests.autoencoders.families import EXPLICIT, FAMILIES

NORMAL = StandardNormal()


def family(name: str) -> CodePosterior:
    """With weights so large that a code is far from normal."""
    torch.manual_seed(0)
    made = FAMILIES[name]().double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.mul_(2)
    return made


def numbers(n: int = 3) -> Tensor:
    return torch.randn(n, 4, dtype=torch.double, generator=torch.Generator().manual_seed(1))


def test_distributions_of_torch_go_on_checking_beside_flows() -> None:
    family("flow")
    with pytest.raises(ValueError, match="support"):
        torch.distributions.Bernoulli(0.5).log_prob(torch.tensor(2.0))


@pytest.mark.parametrize("name", FAMILIES)
def test_printing_draws_nothing_and_tells_families_apart(name: str) -> None:
    made, before = family(name), torch.random.get_rng_state()
    words = repr(made)
    assert torch.equal(before, torch.random.get_rng_state())
    assert all(words != repr(family(other)) for other in FAMILIES if other != name)


def test_a_network_tells_the_prior_of_its_codes() -> None:
    wide, narrow = (str(VAE(nn.Linear(6, 4), nn.Linear(2, 6), prior=TwoNormals(scale))) for scale in (0.1, 0.2))
    assert "TwoNormals(scale=0.1)" in wide != narrow


@pytest.mark.parametrize("name", FAMILIES)
def test_codes_follow_their_generator_and_leave_the_state_of_torch(name: str) -> None:
    q, h, state = family(name), numbers(), torch.get_rng_state()
    one, two = (q.codes(h, torch.Generator().manual_seed(3), 4) for _ in range(2))
    q.mean(h), q.variance(h)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(one, two)
    assert one.shape == (4, 3, q.latent(4))
    assert not torch.equal(q.codes(h), q.codes(h))


@pytest.mark.parametrize("name", FAMILIES)
def test_moments_are_those_of_many_draws(name: str) -> None:
    q, h = family(name), numbers()
    with torch.no_grad():
        z = q.codes(h, torch.Generator().manual_seed(0), 40000)
        deviation = z.std(0)
        assert bool(((q.mean(h) - z.mean(0)).abs() < 0.2 * deviation).all())
        torch.testing.assert_close(q.variance(h).sqrt(), deviation, rtol=0.3, atol=0)
        if name in ("gaussian", "sigmoid"):
            assert bool(((q.mean(h) - z.mean(0)).abs() < 4 * deviation / 200).all())
            torch.testing.assert_close(q.variance(h).sqrt(), deviation, rtol=0.02, atol=0)


@pytest.mark.parametrize("name", FAMILIES)
def test_the_mean_code_of_a_datum_does_not_depend_on_the_others(name: str) -> None:
    q, h = family(name), numbers()
    torch.testing.assert_close(q.mean(h[1:2]), q.mean(h)[1:2])
    torch.testing.assert_close(q.variance(h.flip(0)), q.variance(h).flip(0))


@pytest.mark.parametrize("name", EXPLICIT)
def test_densities_integrate_to_one(name: str) -> None:
    q, h = family(name), numbers(1)
    steps, side = 601, 12.0
    u = torch.linspace(-side, side, steps, dtype=torch.double)
    z = torch.cartesian_prod(u, u).unsqueeze(1)
    log_volume = torch.zeros(steps**2, dtype=torch.double)
    if name == "sigmoid":
        log_volume, z = (z.sigmoid() * (-z).sigmoid()).log().sum((1, 2)), z.sigmoid()
    with torch.no_grad():
        density = (q.distribution(h).log_prob(z)[:, 0] + log_volume).exp()
    assert float(density.sum()) * (2 * side / (steps - 1)) ** 2 == pytest.approx(1, abs=2e-3)


@pytest.mark.parametrize("prior", [NORMAL, TwoNormals(0.5)], ids=repr)
@pytest.mark.parametrize("name", EXPLICIT)
def test_the_ratio_of_a_draw_is_that_of_the_densities(name: str, prior: CodePrior) -> None:
    q, h = family(name), numbers()
    for path_only in (False, True):
        z, ratio = q.draw(h, prior, 5, path_only)
        assert ratio.shape == (5, 3)
        torch.testing.assert_close(ratio, q.distribution(h).log_prob(z) - prior.over(z).log_prob(z))


@pytest.mark.parametrize("name", EXPLICIT)
def test_the_gradient_by_the_path_is_that_through_the_code_alone(name: str) -> None:
    q, h = family(name), numbers().requires_grad_()
    learned = [h, *q.parameters()]

    def gradient(value: Tensor, retain: bool = False) -> list[Tensor]:
        return list(torch.autograd.grad(value, learned, materialize_grads=True, retain_graph=retain))

    torch.manual_seed(5)
    z, ratio = q.draw(h, NORMAL, 5, path_only=True)
    found = gradient(ratio.sum(), retain=True)
    fixed = z.detach().requires_grad_()
    with torch.no_grad():
        here = h.clone()
    density = q.distribution(here).log_prob(fixed) - NORMAL.over(fixed).log_prob(fixed)
    (slope,) = torch.autograd.grad(density.sum(), fixed)
    for one, other in zip(found, gradient((z * slope).sum()), strict=True):
        torch.testing.assert_close(one, other)
    torch.manual_seed(5)
    whole = gradient(q.draw(h, NORMAL, 5)[1].sum())
    assert not torch.allclose(whole[0], found[0])
    assert all(parameter.requires_grad for parameter in q.parameters())


@pytest.mark.parametrize("path_only", [False, True])
@pytest.mark.parametrize("u", [-40.0, 40.0])
def test_codes_that_are_rounded_to_0_and_1_have_the_ratio_of_their_logits(u: float, path_only: bool) -> None:
    torch.manual_seed(0)
    h = torch.tensor([[u, math.log(0.25)]]).expand(2000, 2)
    z, ratio = SigmoidCodes().draw(h, SparseBeta(0.2), 1, path_only)
    assert bool(((z == 1.0) | (z < 1e-10)).all())
    # E log N(u; μ, σ²) − E log p(u), of which the tail is linear
    beta = torch.tensor(0.2, dtype=torch.double)
    log_b = 2 * beta.lgamma() - (2 * beta).lgamma()
    expected = -0.5 * math.log(2 * math.pi * math.e * 0.25) + 0.2 * abs(u) + float(log_b)
    assert float(ratio.mean()) == pytest.approx(expected, abs=0.1)
    assert float(ratio.std()) < 1


def test_a_network_that_ignores_its_noise_is_a_gaussian() -> None:
    q, h = family("semi-implicit"), numbers()
    assert isinstance(q, SemiImplicitCodes)
    with torch.no_grad():
        q.net[0].weight[:, 4:] = 0
    z, ratio = q.draw(h, NORMAL, 6)
    mean, log_variance = q.net(torch.cat([h, torch.zeros(3, 3).double()], 1)).chunk(2, 1)
    normal = Independent(Normal(mean, (0.5 * log_variance).exp()), 1)
    torch.testing.assert_close(ratio, normal.log_prob(z) - NORMAL.over(z).log_prob(z))


def test_implicit_codes_have_no_density() -> None:
    for name in ("semi-implicit", "adversarial"):
        with pytest.raises(ValueError, match=r"no density in closed form: draw codes with codes\(h\)"):
            family(name).distribution(numbers())


def test_the_discriminator_and_the_codes_are_trained_apart() -> None:
    q = family("adversarial")
    assert isinstance(q, AdversarialCodes)
    h = numbers().requires_grad_()
    own, others = list(q.discriminator.parameters()), [h, *q.net.parameters()]
    loss = q.extra_loss(h, NORMAL)
    assert all(bool(g.any()) for g in torch.autograd.grad(loss, own, retain_graph=True))
    assert torch.autograd.grad(loss, others, allow_unused=True) == (None,) * len(others)
    _, ratio = q.draw(h, NORMAL, 2)
    assert torch.autograd.grad(ratio.sum(), own, allow_unused=True, retain_graph=True) == (None,) * len(own)
    assert all(bool(g.any()) for g in torch.autograd.grad(ratio.sum(), others[1:]))


def test_the_best_discriminator_gives_the_divergence() -> None:
    """Codes N(1.5, 1) before N(0, 1): KL = 1.125."""
    torch.manual_seed(0)

    class Shifted(AdversarialCodes):
        def transform(self, h: Tensor, noise: Tensor) -> Tensor:
            return 1.5 + noise.expand(-1, len(h), -1)

    q = Shifted(1, 1, hidden=16, noise=1)
    optimizer, h = torch.optim.Adam(q.discriminator.parameters(), 0.01), torch.zeros(256, 1)
    for _ in range(300):
        optimizer.zero_grad()
        q.extra_loss(h, NORMAL).backward()
        optimizer.step()
    with torch.no_grad():
        assert float(q.draw(h, NORMAL, 20)[1].mean()) == pytest.approx(1.125, abs=0.15)


def test_only_gaussian_codes_before_a_normal_prior_have_a_divergence_in_closed_form() -> None:
    h = numbers()
    known = family("gaussian").divergence(h, NORMAL)
    mean, log_variance = h.chunk(2, 1)
    torch.testing.assert_close(known, 0.5 * (log_variance.exp() + mean.square() - 1 - log_variance).sum(1))
    assert family("gaussian").divergence(h, TwoNormals()) is None
    assert all(family(name).divergence(h, NORMAL) is None for name in FAMILIES if name != "gaussian")
    net = VAE(nn.Linear(3, 4), nn.Linear(2, 3))
    assert net.closed_form
    assert not VAE(nn.Linear(3, 4), nn.Linear(2, 3), SigmoidCodes()).closed_form


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: FlowCodes(1, 2), "latent is 1: take at least 2"),
        (lambda: FlowCodes(2, 0), "numbers must be a whole number"),
        (lambda: SemiImplicitCodes(0, 2), "latent must be a whole number"),
        (lambda: SemiImplicitCodes(2, 2, mixtures=0), "mixtures must be a whole number"),
        (lambda: AdversarialCodes(2, 2, noise=0), "noise must be a whole number"),
        (lambda: AdversarialCodes(2, 2, hidden=0), "hidden must be a whole number"),
        (lambda: GaussianCodes().latent(3), "has 3 outputs, but needs an even number"),
        (
            lambda: VAE(nn.Linear(3, 4), nn.Linear(2, 3), GaussianCodes(), "beta"),
            "unbounded: pass posterior=SigmoidCodes",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_words(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_a_posterior_of_another_kind_is_refused() -> None:
    with pytest.raises(TypeError):
        VAE(nn.Linear(3, 4), nn.Linear(2, 3), GaussianCodes)
