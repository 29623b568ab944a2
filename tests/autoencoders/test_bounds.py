"""Bounds on log p(x) where it is known: linear decoders, one-dimensional codes by quadrature, and its own errors."""

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal
from torch.nn.functional import logsigmoid

import osculate as osc
from osculate.autoencoders import (
    VAE,
    AdversarialCodes,
    Annealing,
    Autoencoder,
    Bound,
    CodePosterior,
    FlowCodes,
    SemiImplicitCodes,
    SparseBeta,
    TwoNormals,
    active_units,
    bound,
    bounds,
    sandwich,
)
from osculate.autoencoders.annealed import prior_draws
from tests.errors import says

NOISE = 0.5
LIKELIHOOD = osc.likelihoods.Gaussian(NOISE)
FEW = Annealing(temperatures=20, leapfrogs=3)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Linear:
    """Probabilistic PCA x ~ N(Wz + b, σ² I) with orthogonal columns, of which the exact q(z|x) is diagonal."""

    def __init__(self, seed: int = 0, pixels: int = 6, latent: int = 2) -> None:
        rows = torch.randn(pixels, latent, dtype=torch.double, generator=generator(seed))
        self.basis = torch.linalg.qr(rows)[0] * torch.linspace(0.5, 1.5, latent, dtype=torch.double)
        self.offset = torch.linspace(-1, 1, pixels, dtype=torch.double)
        self.covariance = torch.linalg.inv(self.basis.T @ self.basis / NOISE**2 + torch.eye(latent))

    @property
    def marginal(self) -> MultivariateNormal:
        noise = NOISE**2 * torch.eye(len(self.offset))
        return MultivariateNormal(self.offset, self.basis @ self.basis.T + noise)

    def data(self, n: int) -> Tensor:
        torch.manual_seed(1)
        return self.marginal.sample((n,))

    def model(self, shift: float = 0.0, spread: float = 1.0, codes: CodePosterior | None = None) -> VAE:
        """With means of q that are off by so much, and variances by this factor."""
        pixels, latent = self.basis.shape
        encoder, decoder = nn.Linear(pixels, 2 * latent).double(), nn.Linear(latent, pixels).double()
        towards = self.covariance @ self.basis.T / NOISE**2
        with torch.no_grad():
            decoder.weight.copy_(self.basis)
            decoder.bias.copy_(self.offset)
            encoder.weight.copy_(torch.cat([towards, torch.zeros_like(towards)]))
            logs = (spread * self.covariance.diagonal()).log()
            encoder.bias.copy_(torch.cat([shift - towards @ self.offset, logs]))
        return VAE(encoder, decoder, codes).double()


LINEAR = Linear()


@pytest.mark.parametrize("kind", ["elbo", "iwae", "ais"])
def test_every_draw_of_the_exact_posterior_weighs_log_p(kind: str) -> None:
    x = LINEAR.data(10)
    exact = Annealing(temperatures=2, leapfrogs=2, start="posterior")
    found = bound(LINEAR.model(), x, kind, 3, likelihood=LIKELIHOOD, annealing=exact)
    torch.testing.assert_close(found.values, LINEAR.marginal.log_prob(x))
    assert float(found.errors.max()) < 1e-6
    one = bound(LINEAR.model(), x, kind, 1, likelihood=LIKELIHOOD, annealing=exact)
    torch.testing.assert_close(one.values, LINEAR.marginal.log_prob(x))
    assert bool(one.errors.isnan().all())


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("iwae", {}),
        ("ais", {"annealing": Annealing(temperatures=100, leapfrogs=5), "samples": 40}),
        ("ais", {"annealing": Annealing(10, 5, start="posterior", spacing="linear"), "samples": 40}),
    ],
)
@pytest.mark.slow
def test_many_draws_of_a_posterior_that_is_off_find_log_p(kind: str, options: dict[str, Any]) -> None:
    x = LINEAR.data(40)
    found = bound(LINEAR.model(0.2, 1.5), x, kind, likelihood=LIKELIHOOD, generator=generator(), **options)
    exact = LINEAR.marginal.log_prob(x)
    assert abs(found.mean - float(exact.mean())) < 0.05
    assert 0.7 < float(((found.values - exact) / found.errors).square().mean().sqrt()) < 1.4


def test_the_elbo_is_below_log_p_by_the_divergence_of_the_posterior() -> None:
    x, shift, spread = LINEAR.data(30), 0.3, 1.7
    found = bound(LINEAR.model(shift, spread), x, "elbo", 2000, likelihood=LIKELIHOOD, generator=generator())
    distance = (shift**2 / LINEAR.covariance.diagonal()).sum()
    gap = 0.5 * (distance + 2 * (spread - 1 - math.log(spread)))
    off = (found.values - (LINEAR.marginal.log_prob(x) - gap)) / found.errors
    assert float(off.abs().max()) < 4
    assert 0.7 < float(off.square().mean().sqrt()) < 1.4


def test_the_bound_rises_with_the_number_of_draws() -> None:
    x = LINEAR.data(300)
    model = LINEAR.model(0.3, 2.0)
    found = [bound(model, x, samples=k, likelihood=LIKELIHOOD, generator=generator()) for k in (1, 10, 100, 1000)]
    exact = LINEAR.marginal.log_prob(x)
    for fewer, more in zip(found[:2], found[1:3], strict=True):
        rise = more.values - fewer.values
        assert float(rise.mean()) > 3 * float(rise.std()) / math.sqrt(len(x))
    assert abs(found[-1].mean - float(exact.mean())) < 4 * found[-1].monte_carlo_error
    assert all(each.mean < float(exact.mean()) for each in found[:3])


@pytest.mark.parametrize("kind", ["elbo", "iwae", "ais"])
def test_the_memory_does_not_change_the_draws(kind: str) -> None:
    x, model = LINEAR.data(4), LINEAR.model(0.2, 1.5)
    options = {"samples": 7, "likelihood": LIKELIHOOD, "annealing": Annealing(5, 2)}
    whole = bound(model, x, kind, generator=generator(), **options)
    parts = bound(model, x, kind, generator=generator(), memory=4000, **options)  # 10 codes at a time
    torch.testing.assert_close(parts.values, whole.values)
    torch.testing.assert_close(parts.errors, whole.errors)


def test_draws_that_are_not_held_together_count_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "TOGETHER", 64)
    x = LINEAR.data(5)
    found = bound(LINEAR.model(0.2, 1.5), x, samples=3000, likelihood=LIKELIHOOD, generator=generator())
    off = (found.values - LINEAR.marginal.log_prob(x)) / found.errors
    assert float(off.abs().max()) < 4


# ---- annealing -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [pytest.param("prior", marks=pytest.mark.release), "posterior"])
@pytest.mark.slow
def test_log_p_of_simulated_data_lies_between_the_bounds_and_these_close_with_temperatures(start: str) -> None:
    model, found = LINEAR.model(0.3, 2.0), []
    for temperatures in (4, 60):
        settings = Annealing(temperatures, leapfrogs=4, start=start)
        each = sandwich(model, 40, 6, likelihood=LIKELIHOOD, annealing=settings, generator=generator())
        exact = LINEAR.marginal.log_prob(each.x)
        for below in (exact - each.lower.values, each.upper.values - exact):
            assert float(below.mean()) > -3 * float(below.std()) / math.sqrt(40)
        found.append(each)
    for below in (exact - found[1].lower.values, found[1].upper.values - exact):
        ratio = (-below).exp()  # E w / p(x) and E p(x) / w'
        assert abs(float(ratio.mean()) - 1) < 4 * float(ratio.std()) / math.sqrt(40)
    assert found[1].gap < 0.4 * found[0].gap
    assert abs(found[1].gap) < 0.6
    assert found[0].upper.mean - found[0].lower.mean == found[0].gap


def between(a: float) -> tuple[VAE, Callable[[Tensor], Tensor], Tensor]:
    """A VAE of one code in (0, 1), log p(u) of its logit, and a grid of logits."""
    torch.manual_seed(0)
    net = VAE(nn.Linear(5, 2), nn.Linear(1, 5), prior=SparseBeta(a)).double()
    with torch.no_grad():
        net.encoder.bias[1] += 4.0  # the prior has heavy tails, of which few draws of a narrow q(z|x) know
    beta = 2 * math.lgamma(a) - math.lgamma(2 * a)
    return net, lambda u: a * (logsigmoid(u) + logsigmoid(-u)) - beta, torch.linspace(-150, 150, 30001).double()


def two_peaks() -> tuple[VAE, Callable[[Tensor], Tensor], Tensor]:
    torch.manual_seed(0)
    prior = TwoNormals(0.3)
    net = VAE(nn.Linear(5, 2), nn.Linear(1, 5), prior=prior).double()
    return net, lambda u: prior.each(u).log_prob(u), torch.linspace(-4, 5, 4001).double()


@pytest.mark.parametrize(
    ("made", "kind"),
    [
        *((made, "iwae") for made in (lambda: between(0.3), lambda: between(2.0), two_peaks)),
        (two_peaks, "posterior"),
        (lambda: between(0.3), "prior"),
        pytest.param(two_peaks, "prior", marks=pytest.mark.slow),
        pytest.param(lambda: between(0.3), "posterior", marks=pytest.mark.slow),
        *(pytest.param(lambda: between(2.0), start, marks=pytest.mark.slow) for start in ("prior", "posterior")),
    ],
)
def test_other_priors_agree_with_quadrature(made: Callable[[], Any], kind: str) -> None:
    net, log_prior, grid = made()
    likelihood = osc.likelihoods.Bernoulli()
    x = torch.bernoulli(torch.full((8, 5), 0.4, dtype=torch.double))
    z = grid.sigmoid() if isinstance(net.prior, SparseBeta) else grid
    with torch.no_grad():
        f = net(decode=z[:, None])
        logs = torch.stack([likelihood.log_prob(f, row.expand_as(f)) for row in x], 1) + log_prior(grid)[:, None]
    exact = logs.logsumexp(0) + (grid[1] - grid[0]).log()
    if kind == "iwae":
        found = bound(net, x, likelihood=likelihood, generator=generator())
    else:
        settings = Annealing(20, 4, start=kind)
        found = bound(net, x, "ais", 60, likelihood=likelihood, annealing=settings, generator=generator())
    torch.testing.assert_close(found.values, exact, atol=max(4 * float(found.errors.max()), 0.02), rtol=0)
    assert float(found.errors.max()) < 0.2


def test_simulated_codes_between_0_and_1_are_sandwiched() -> None:
    net = between(0.2)[0]
    found = sandwich(net, 60, 6, likelihood=osc.likelihoods.Bernoulli(), annealing=FEW, generator=generator())
    gap = found.upper.values - found.lower.values
    assert bool(gap.isfinite().all())
    assert float(gap.mean()) > -3 * float(gap.std()) / math.sqrt(60)
    assert found.gap < 0.5
    assert bool(((found.x == 0) | (found.x == 1)).all())


@pytest.mark.parametrize("a", [0.05, 0.5, 3.0])
def test_logits_of_codes_between_0_and_1_are_drawn_as_they_are_distributed(a: float) -> None:
    u = prior_draws(SparseBeta(a), torch.empty(20000, 1), generator())
    assert bool(u.isfinite().all())
    spread = 2 * torch.polygamma(1, torch.tensor(a))
    assert abs(float(u.mean())) < 4 * float((spread / 20000).sqrt())
    assert float(u.var() / spread) == pytest.approx(1, abs=0.1)


def test_codes_without_a_density_have_annealed_bounds() -> None:
    torch.manual_seed(0)
    x = LINEAR.data(20)
    exact = float(LINEAR.marginal.log_prob(x).mean())
    model = LINEAR.model(codes=AdversarialCodes(2, numbers=4))
    found = bound(model, x, "ais", 10, likelihood=LIKELIHOOD, annealing=Annealing(60, 4), generator=generator())
    assert abs(found.mean - exact) < 0.2
    with pytest.raises(ValueError, match=says("AdversarialCodes", "kind='ais'")):
        bound(model, x, "iwae", likelihood=LIKELIHOOD)
    with pytest.raises(ValueError, match="start='prior'"):
        bound(model, x, "ais", likelihood=LIKELIHOOD, annealing=Annealing(start="posterior"))


@pytest.mark.parametrize("codes", [SemiImplicitCodes, pytest.param(FlowCodes, marks=pytest.mark.release)])
@pytest.mark.slow
def test_codes_of_networks_have_bounds(codes: type[CodePosterior]) -> None:
    torch.manual_seed(0)
    x = LINEAR.data(20)
    exact = LINEAR.marginal.log_prob(x)
    model = LINEAR.model(codes=codes(2, numbers=4))
    loose = bound(model, x, "elbo", 100, likelihood=LIKELIHOOD, generator=generator())
    tight = bound(model, x, "iwae", 1000, likelihood=LIKELIHOOD, generator=generator())
    assert loose.mean < tight.mean < float(exact.mean()) + 3 * tight.monte_carlo_error
    if codes is FlowCodes:
        settings = Annealing(10, 4, start="posterior")
        found = bound(model, x[:8], "ais", 8, likelihood=LIKELIHOOD, annealing=settings, generator=generator())
        assert abs(found.mean - float(exact[:8].mean())) < 0.5


@pytest.mark.release
def test_errors_of_codes_that_share_components_are_those_between_calls() -> None:
    x = LINEAR.data(5)
    torch.manual_seed(0)
    model = LINEAR.model(codes=SemiImplicitCodes(2, numbers=4, mixtures=3))
    for kind in ("elbo", "iwae"):
        again = [bound(model, x, kind, 400, likelihood=LIKELIHOOD, generator=generator(n)) for n in range(30)]
        actual = float(torch.tensor([found.mean for found in again]).std())
        told = sum(found.monte_carlo_error for found in again) / len(again)
        assert 0.6 < told / actual < 1.7


@pytest.mark.release
def test_a_chain_that_diverges_is_refused_also_under_two_normals() -> None:
    torch.manual_seed(0)
    stiff = VAE(nn.Linear(3, 4), nn.Linear(2, 3), prior="two_normals").double()
    x = torch.randn(4, 3).double()
    found = bound(stiff, x, "ais", 2, likelihood=osc.likelihoods.Gaussian(1e-8), annealing=Annealing(10, leapfrogs=14))
    assert bool(found.values.isfinite().all())


@pytest.mark.parametrize("judge", [lambda q, x: sandwich(q, 3, 2, annealing=FEW), active_units])
def test_what_is_of_one_network_is_refused_of_several(judge: Callable[[Any, Tensor], object]) -> None:
    with pytest.raises(ValueError, match="this Ensemble has no network at its mean"):
        judge(osc.posteriors.Ensemble([LINEAR.model(), LINEAR.model(1.0)], LIKELIHOOD), LINEAR.data(4))


# ---- networks --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_drawn_networks_explain_the_data_together() -> None:
    members = [Linear(seed) for seed in range(3)]
    x = members[0].data(10)
    q = osc.posteriors.Ensemble([member.model(0.1, 1.2) for member in members], LIKELIHOOD)
    exact = torch.stack([member.marginal.log_prob(x) for member in members])
    found = bound(q, x, samples=4000, weights="drawn", generator=generator())
    torch.testing.assert_close(found.values, exact.logsumexp(0) - math.log(3), atol=0.1, rtol=0)
    average = bound(q, x, "ais", 20, weights="drawn", annealing=Annealing(40, 2), generator=generator())
    torch.testing.assert_close(average.values, exact.logsumexp(0) - math.log(3), atol=1.5, rtol=0)
    each = [bound(m.model(0.1, 1.2), x, "elbo", 1000, likelihood=LIKELIHOOD) for m in members]
    mean = bound(q, x, "elbo", 1000, weights="drawn", generator=generator())
    assert abs(mean.mean - sum(one.mean for one in each) / 3) < 0.2
    assert mean.shifts is not None
    assert mean.monte_carlo_error == pytest.approx(float(torch.tensor([o.mean for o in each]).std()) / 3**0.5, rel=0.1)
    assert mean.standard_error**2 == pytest.approx(float(mean.values.var()) / 10 + mean.monte_carlo_error**2)
    assert "networks=3" in repr(mean)


def test_a_posterior_and_what_training_returned_bring_their_likelihood() -> None:
    x, model = LINEAR.data(12), LINEAR.model(0.2, 1.5)
    alone = bound(model, x, samples=50, likelihood=LIKELIHOOD, generator=generator())
    q = osc.laplace(model, LIKELIHOOD, (x, x), structure="diag", prior=1e6, subset=["decoder"], refine=False)
    torch.testing.assert_close(bound(q, x, samples=50, generator=generator()).values, alone.values)
    drawn = bound(q, x, samples=50, weights="drawn", networks=3, generator=generator())
    torch.testing.assert_close(drawn.values, alone.values, atol=1.5, rtol=0)
    done = osc.train(osc.autoencoders.ELBO(model, LIKELIHOOD), (x, x), epochs=1, progress=False)
    assert bound(done, x, samples=5).values.shape == (12,)
    other = bound(q, x, samples=50, likelihood=osc.likelihoods.Gaussian(5.0), generator=generator())
    assert other.mean != alone.mean


def test_the_network_stays_as_it_was_and_gradients_may_be_off() -> None:
    x, model = LINEAR.data(3).float(), LINEAR.model(0.2, 1.5).float().train()
    with torch.inference_mode():
        inside = bound(model, x.clone(), "ais", 4, likelihood=LIKELIHOOD, annealing=FEW, generator=generator())
    outside = bound(model, x, "ais", 4, likelihood=LIKELIHOOD, annealing=FEW, generator=generator())
    torch.testing.assert_close(inside.values, outside.values)
    assert model.training
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    assert bound(model, x, samples=4, likelihood=LIKELIHOOD).values.dtype == torch.double


def test_errors_of_the_mean_are_those_of_data_and_of_draws() -> None:
    values, errors = torch.randn(50).double(), torch.rand(50).double()
    found = Bound("iwae", 10, values, errors)
    assert found.mean == pytest.approx(float(values.mean()))
    assert found.standard_error == pytest.approx(float(values.std()) / 50**0.5)
    assert found.monte_carlo_error == pytest.approx(float(errors.square().sum()) ** 0.5 / 50)
    assert re.search(r"log p\(x\) ≥ .* K=10, N=50", repr(found))
    assert math.isnan(Bound("iwae", 10, values[:1], errors[:1]).standard_error)
    assert "≤" in repr(Bound("reverse ais", 10, values, errors))


# ---- active units ----------------------------------------------------------------------------------------------------


def test_a_number_that_the_encoder_does_not_use_is_not_active() -> None:
    torch.manual_seed(0)
    net, x = VAE(nn.Linear(6, 6), nn.Linear(3, 6)), torch.randn(100, 6)
    with torch.no_grad():
        net.encoder.weight[1] = 0.0
        net.encoder.weight[3:] = 5.0
    found = active_units(net, x, batch_size=30)
    torch.testing.assert_close(found.variances, net.encoder(x)[:, :3].double().var(0))
    assert found.active.tolist() == [True, False, True]
    assert found.count == 2
    assert active_units(osc.posteriors.Point(net, LIKELIHOOD), x, threshold=1e3).count == 0
    assert active_units(Autoencoder(nn.Linear(6, 3), nn.Linear(3, 6)), x).count == 3


# ---- what is refused -------------------------------------------------------------------------------------------------


X = LINEAR.data(4)
MODEL = LINEAR.model()
REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], tuple[str, ...]]] = {
    "no data": (lambda: bound(MODEL, X[:0], likelihood=LIKELIHOOD), ValueError, ("no inputs",)),
    "NaN": (lambda: bound(MODEL, X / 0, likelihood=LIKELIHOOD), ValueError, ("NaN",)),
    "NaN targets": (lambda: bound(MODEL, X, y=X * math.nan, likelihood=LIKELIHOOD), ValueError, ("targets", "NaN")),
    "targets of others": (lambda: bound(MODEL, X, y=X[:2], likelihood=LIKELIHOOD), ValueError, ("4", "2 targets")),
    "whole numbers": (lambda: bound(MODEL, X.long(), likelihood=LIKELIHOOD), TypeError, ("x.float()",)),
    "no draw": (lambda: bound(MODEL, X, samples=0, likelihood=LIKELIHOOD), ValueError, ("samples", "0")),
    "kind": (lambda: bound(MODEL, X, "iwea", likelihood=LIKELIHOOD), ValueError, ("'iwea'", "'iwae'")),
    "weights": (lambda: bound(MODEL, X, weights="all", likelihood=LIKELIHOOD), ValueError, ("'all'", "'drawn'")),
    "no likelihood": (lambda: bound(MODEL, X), ValueError, ("likelihood=",)),
    "grey": (lambda: bound(MODEL, X, likelihood=osc.likelihoods.Bernoulli()), ValueError, ("0 or 1",)),
    "grey, ais": (lambda: bound(MODEL, X, "ais", likelihood=osc.likelihoods.Bernoulli()), ValueError, ("0 or 1",)),
    "no posterior": (lambda: bound(nn.Linear(6, 2), X), TypeError, ("Linear",)),
    "no VAE": (
        lambda: bound(osc.posteriors.Point(Autoencoder(nn.Linear(6, 2), nn.Linear(2, 6)), LIKELIHOOD), X),
        TypeError,
        ("VAE", "Autoencoder"),
    ),
    "drawn point": (lambda: bound(MODEL, X, weights="drawn", likelihood=LIKELIHOOD), ValueError, ("weights='mean'",)),
    "mean of members": (
        lambda: bound(osc.posteriors.Ensemble([MODEL, LINEAR.model(1.0)], LIKELIHOOD), X),
        ValueError,
        ("Ensemble", "weights='drawn'"),
    ),
    "no temperature": (lambda: Annealing(temperatures=0), ValueError, ("temperatures", "0")),
    "start": (lambda: Annealing(start="priors"), ValueError, ("'priors'", "'prior'")),
    "spacing": (lambda: Annealing(spacing="log"), ValueError, ("'log'", "'sigmoid'")),
    "acceptance": (lambda: Annealing(acceptance=1.0), ValueError, ("acceptance", "1.0")),
    "no simulated data": (lambda: sandwich(MODEL, 0, likelihood=LIKELIHOOD), ValueError, ("n must", "0")),
    "one datum": (lambda: active_units(MODEL, X[:1]), ValueError, ("at least two",)),
    "threshold": (lambda: active_units(MODEL, X, threshold=0.0), ValueError, ("threshold",)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_bound_is_refused_in_words(name: str) -> None:
    call, kind, words = REFUSED[name]
    with pytest.raises(kind, match=says(*words)):
        call()
