"""Mixtures of posteriors: laws of what they predict, what they draw, and what they refuse."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MixtureSameFamily, Normal

import osculate as osc
from osculate.likelihoods import (
    Bernoulli,
    Categorical,
    ContinuousBernoulli,
    Gaussian,
    HeteroscedasticGaussian,
    Likelihood,
    Poisson,
    StudentT,
)
from osculate.parameters import Network
from osculate.posteriors import Dropout, Ensemble, Mixture, Point, Snapshots
from osculate.predictive.variance import functional_mean
from tests.errors import says
from tests.laws import assert_close, in_turn, targets

LIKELIHOODS = (
    Categorical(),
    Gaussian(0.5),
    Bernoulli(),
    ContinuousBernoulli(),
    HeteroscedasticGaussian(),
    StudentT(4.0, 0.5),
    Poisson(),
)
REAL_VALUED = [each for each in LIKELIHOODS if each.real_valued]


def net(seed: int = 0, outputs: int = 4) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, outputs)).double()


def inputs(n: int = 6, seed: int = 1) -> Tensor:
    return torch.randn(n, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.double)


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def fitted(likelihood: Likelihood, seed: int = 0, prior: float = 3.0, **how: object) -> osc.posteriors.Gaussian:
    x, model = inputs(20, 5), net(seed)
    return osc.laplace(model, likelihood, (x, targets(likelihood, net(), x)), **{"prior": prior, **how}, refine=False)


def mixture(likelihood: Likelihood, members: int = 3) -> Mixture:
    return Mixture([fitted(likelihood, seed) for seed in range(members)])


def snapshots(seed: int = 0) -> Snapshots:
    model = net(seed)
    size = sum(p.numel() for p in model.parameters())
    return Snapshots(
        Network(model, [n for n, _ in model.named_parameters()]),
        Categorical(),
        torch.full((size,), 0.05, dtype=torch.double),
        torch.zeros(0, size, dtype=torch.double),
    )


# ---- predictives -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", [{}, pytest.param({"link": "functions"}, marks=pytest.mark.slow), {"via": "sampled"}])
@pytest.mark.parametrize("likelihood", LIKELIHOODS, ids=repr)
def test_density_and_moments_are_those_of_the_members_mixed(likelihood: Likelihood, how: dict) -> None:
    q, x = mixture(likelihood), inputs()
    found = osc.predict(q, x, samples=12, generator=seeded(), **how)
    generator = seeded()  # each member draws its four in turn
    each = [osc.predict(member, x, samples=4, generator=generator, **how) for member in q.members]
    y = targets(likelihood, net(), x)
    y = y.double() if isinstance(likelihood, Bernoulli) else y
    assert_close(found.log_prob(y).exp(), torch.stack([p.log_prob(y).exp() for p in each]).mean(0), 1e-10)
    if isinstance(likelihood, Categorical):
        assert_close(found.probs, torch.stack([p.probs for p in each]).mean(0), 1e-12)
        return
    means = torch.stack([p.mean for p in each])
    within, between = torch.stack([p.variance for p in each]).mean(0), means.var(0, correction=0)
    assert_close(found.mean, means.mean(0), 1e-12)
    assert_close(found.variance, within + between, 1e-10)  # of Bernoulli too: p(1 - p)


@pytest.mark.parametrize("how", [{}, {"via": "sampled"}], ids=str)
@pytest.mark.parametrize("likelihood", REAL_VALUED, ids=repr)
def test_noise_is_left_out_of_each_member(likelihood: Likelihood, how: dict) -> None:
    q, x = mixture(likelihood), inputs()
    found = osc.predict(q, x, noise=False, samples=9, generator=seeded(), **how)
    assert isinstance(found, MixtureSameFamily)
    assert isinstance(found.component_distribution, Normal)
    assert found.component_distribution.batch_shape[-1] == 3
    assert bool((found.variance < osc.predict(q, x, samples=9, generator=seeded(), **how).variance).all())


def test_a_normal_for_each_member_with_its_own_noise() -> None:
    members = [fitted(Gaussian(0.5), 0), fitted(Gaussian(0.2), 1)]
    found, x = osc.predict(Mixture(members), inputs()), inputs()
    assert isinstance(found, MixtureSameFamily)
    for number, member in enumerate(members):
        assert_close(found.component_distribution.stddev[..., number], osc.predict(member, x).stddev, 1e-12)


@pytest.mark.parametrize("joint", ["outputs", "batch"])
def test_joint_normals_are_mixed_too(joint: str) -> None:
    q, x = mixture(Gaussian(0.5)), inputs()
    found, each = osc.predict(q, x, joint=joint), [osc.predict(member, x, joint=joint) for member in q.members]
    y = torch.randn(each[0].mean.shape, dtype=torch.double)
    assert_close(found.log_prob(y).exp(), torch.stack([p.log_prob(y).exp() for p in each]).mean(0), 1e-10)
    assert_close(found.mean, torch.stack([p.mean for p in each]).mean(0), 1e-12)


def test_a_mixture_takes_grey_targets_as_its_members_do() -> None:
    q, x = mixture(Bernoulli(grey=True)), inputs()
    found, y = osc.predict(q, x), torch.rand(6, 4, dtype=torch.double)
    assert_close(found.log_prob(y), y * found.probs.log() + (1 - y) * (1 - found.probs).log(), 1e-6)


def test_equal_members_predict_as_one() -> None:
    for likelihood in LIKELIHOODS:
        one, x, y = fitted(likelihood), inputs(), targets(likelihood, net(), inputs())
        y = y.double() if isinstance(likelihood, Bernoulli) else y
        twice = osc.predict(Mixture([one, one.to()]), x)
        assert_close(twice.log_prob(y), osc.predict(one, x).log_prob(y), 1e-10)


def test_narrow_members_are_the_ensemble_of_their_modes() -> None:
    members, x = [fitted(Categorical(), seed, prior=1e12) for seed in range(3)], inputs()
    ensemble = Ensemble([member.model for member in members], Categorical())
    assert_close(osc.predict(Mixture(members), x).probs, osc.predict(ensemble, x).probs, 1e-6)


def test_unequal_numbers_of_draws_leave_equal_weights() -> None:
    q, x = mixture(Gaussian(0.5)), inputs()
    found = osc.predict(q, x, via="sampled", samples=4, generator=seeded())
    weights = found.mixture_distribution.probs
    assert_close(weights, torch.tensor([1 / 6, 1 / 6, 1 / 3, 1 / 3], dtype=torch.double).expand_as(weights), 1e-12)
    few = osc.predict(q, x, via="sampled", samples=1)
    assert few.mixture_distribution.probs.shape[-1] == 3  # one of each, however few


def test_a_mixture_of_mixtures_weighs_its_members_equally() -> None:
    one, two, three = (fitted(Gaussian(0.5), seed) for seed in range(3))
    x = inputs()
    found = osc.predict(Mixture([Mixture([one, two]), three]), x)
    expected = (osc.predict(one, x).mean + osc.predict(two, x).mean) / 4 + osc.predict(three, x).mean / 2
    assert_close(found.mean, expected, 1e-12)


def test_predictives_that_cannot_be_put_together_are_refused() -> None:
    class Own(torch.distributions.Distribution):
        arg_constraints = {}

        def __init__(self, where: Tensor) -> None:
            super().__init__(where.shape, validate_args=False)

        @property
        def mean(self) -> Tensor:
            return torch.zeros(self.batch_shape)

    with pytest.raises(ValueError, match=says("members (Own) cannot be joined", "arg_constraints")):
        osc.predictive.mixed.mixed([Own(torch.zeros(3)), Own(torch.zeros(3))])
    with pytest.raises(ValueError, match=r"members \(Normal, Poisson\)"):
        osc.predictive.mixed.mixed([Normal(torch.zeros(3), 1.0), torch.distributions.Poisson(torch.ones(3))])


# ---- functions -------------------------------------------------------------------------------------------------


def test_total_covariance_of_the_functions() -> None:
    q, x = mixture(Gaussian(0.5)), inputs()
    within = torch.stack([osc.functional_variance(member, x) for member in q.members])
    modes = torch.stack([member.network(x) for member in q.members])
    apart = modes - modes.mean(0)
    expected = within.mean(0) + (apart.unsqueeze(-1) * apart.unsqueeze(-2)).mean(0)
    found, diagonal = osc.functional_variance(q, x), osc.functional_variance(q, x, diagonal=True)
    assert_close(found, expected, 1e-12)
    assert_close(diagonal, expected.diagonal(dim1=-2, dim2=-1), 1e-12)
    assert_close(osc.predict(q, x, noise=False).variance, diagonal, 1e-10)
    draws = osc.sample_functions(q, x, samples=30_000, generator=seeded())
    assert_close(draws.mean(0), modes.mean(0), 0.02)
    assert_close(draws.var(0), diagonal, 0.05)
    for via in ("samples", "sketch"):
        estimate = osc.functional_variance(q, x, diagonal=True, via=via, samples=3000, generator=seeded())
        assert_close(estimate, diagonal, 0.15)
    with pytest.raises(ValueError, match="samples=1"):
        osc.functional_variance(q, x, diagonal=True, via="sketch", samples=1)


@pytest.mark.slow
def test_refined_members_keep_their_mean_functions() -> None:
    members, x = [osc.refine(fitted(Gaussian(0.5), seed), trust=None) for seed in range(3)], inputs()
    inner = Mixture(members[:2])
    for q in (inner, Mixture([inner, members[2]])):
        variance = osc.functional_variance(q, x, diagonal=True)
        assert_close(osc.predict(q, x, noise=False).variance, variance, 1e-10)
        assert_close(functional_mean(q, x), osc.predict(q, x).mean, 1e-10)


@pytest.mark.parametrize("via", ["linearised", "sampled"])
def test_functions_come_from_the_members_in_turn(via: str) -> None:
    q, x = Mixture([fitted(Categorical(), seed, prior=1e10) for seed in range(3)]), inputs()
    found = osc.sample_functions(q, x, samples=8, via=via, generator=seeded())
    assert found.shape == (8, 6, 4)
    for number, f in enumerate(found):
        assert_close(f, q.members[number % 3].network(x), 1e-3)


def test_a_generator_decides() -> None:
    q, x = mixture(Categorical()), inputs()
    for via in set(q.ways) - {"mode"}:
        one, same, other = (osc.sample_functions(q, x, 7, via=via, generator=seeded(n)) for n in (0, 0, 1))
        assert torch.equal(one, same)
        assert not torch.equal(one, other)


def test_members_of_different_kinds_predict_by_what_they_share() -> None:
    q, x = Mixture([fitted(Categorical()), snapshots(1)]), inputs()
    assert q.ways == ("sampled",)
    assert repr(q) == "Mixture(1 x Gaussian + 1 x Snapshots, likelihood=Categorical)"
    generator = seeded()
    each = [osc.predict(m, x, via="sampled", samples=5, generator=generator).probs for m in q.members]
    assert_close(osc.predict(q, x, samples=10, generator=seeded()).probs, torch.stack(each).mean(0), 1e-12)
    with pytest.raises(ValueError, match="with a Mixture posterior 'linearised'.*known: 'sampled'"):
        osc.predict(q, x, via="linearised")
    with pytest.raises(TypeError, match="functional_variance needs a Gaussian posterior, got Snapshots"):
        osc.functional_variance(q, x)


def test_another_type_predicts_the_same() -> None:
    q, x = mixture(Gaussian(0.5)), inputs()
    single = q.to(dtype=torch.float32)
    assert isinstance(single, Mixture)
    assert_close(osc.predict(single, x.float()).variance, osc.predict(q, x).variance.float(), 1e-4)


# ---- on disk ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [
        lambda: mixture(Gaussian(torch.tensor([0.3, 1.0, 2.0, 0.5], dtype=torch.double))),
        lambda: Mixture([fitted(Categorical(), 0, structure="diag"), fitted(Categorical(), 1, subset="last_layer")]),
        lambda: Mixture([fitted(Categorical()), snapshots(1)]),
        lambda: Mixture([mixture(Categorical()), fitted(Categorical(), 7)]),
    ],
    ids=["gaussians", "structures and subsets", "kinds", "nested"],
)
def test_the_same_mixture_comes_back(make: Callable[[], Mixture], tmp_path: Path) -> None:
    q, x = make(), inputs()
    osc.save(q, tmp_path / "q.safetensors")
    again = osc.load(tmp_path / "q.safetensors", net(9).float())
    assert repr(again) == repr(q)
    for via in set(q.ways) - {"mode"}:
        one, other = (osc.sample_functions(each, x, 7, via=via, generator=seeded()) for each in (q, again))
        assert torch.equal(one, other)
        one, other = (osc.predict(each, x, via=via, samples=7, generator=seeded()) for each in (q, again))
        y = targets(q.likelihood, net(), x)
        assert torch.equal(one.log_prob(y), other.log_prob(y))
    with (
        pytest.warns(UserWarning, match="prints differently"),
        pytest.raises(ValueError, match="another network: '2.weight'"),
    ):
        osc.load(tmp_path / "q.safetensors", net(0, outputs=2))


# ---- refusals --------------------------------------------------------------------------------------------------


def test_what_is_no_mixture_is_refused() -> None:
    q = fitted(Categorical())
    cases: list[tuple[type[Exception], str, Callable[[], object]]] = [
        (ValueError, "at least two members, got 1", lambda: Mixture([q])),
        (ValueError, "members 0 and 1 of the mixture are the same posterior", lambda: Mixture([q, q])),
        (TypeError, "Mixture takes a list of posteriors, got Gaussian", lambda: Mixture(q)),
        (TypeError, "expected a posterior or the result of osc.train, got Sequential", lambda: Mixture([net(), net()])),
        (TypeError, "got a Point: .*posteriors.Ensemble", lambda: Mixture([q, Point(net(1), Categorical())])),
        (
            ValueError,
            r"member 1 of the mixture has another architecture.*'2.weight' has shape \(2, 5\), not \(4, 5\)",
            lambda: Mixture([q, Ensemble([net(1, outputs=2), net(2, outputs=2)], Categorical())]),
        ),
        (ValueError, "class Categorical against Bernoulli", lambda: Mixture([q, fitted(Bernoulli(), 1)])),
        (
            ValueError,
            "member 1 .* another likelihood .*ignore_index=None against 0",
            lambda: Mixture([q, fitted(Categorical(ignore_index=0), 1)]),
        ),
        (
            ValueError,
            "member 1 of the mixture is on cpu in torch.float32, the first on cpu in torch.float64",
            lambda: Mixture([q, fitted(Categorical(), 1).to(dtype=torch.float32)]),
        ),
        (
            ValueError,
            "a Ensemble, predicts by 'members', and the first, a Gaussian, by 'linearised', 'sampled'",
            lambda: Mixture([q, Ensemble([net(1), net(2)], Categorical())]),
        ),
    ]
    for error, message, make in cases:
        with pytest.raises(error, match=message):
            make()


def test_members_that_share_no_way_together_are_refused() -> None:
    class Both(Dropout):
        ways = ("dropout", "sampled")

    model = nn.Sequential(nn.Linear(3, 5), nn.Dropout(0.1), nn.Linear(5, 4)).double()
    network = Network(model, [name for name, _ in model.named_parameters()])
    size = network.space.size
    path = Snapshots(network, Categorical(), torch.ones(size), torch.zeros(0, size))
    with pytest.raises(ValueError, match="no way to predict is shared by all"):
        Mixture([Both(model, Categorical()), path, Dropout(model, Categorical())])


def test_what_is_done_to_one_gaussian_is_done_to_each_member() -> None:
    q, x = mixture(Categorical()), inputs()
    for ask in (
        lambda: osc.log_evidence(q),
        lambda: osc.maximise_evidence(q),
        lambda: osc.tune(q, (x, torch.zeros(6, dtype=torch.long))),
    ):
        with pytest.raises(TypeError, match=says("got Mixture", "Do it to each member", "for member in q.members")):
            ask()
    tuned = Mixture([osc.maximise_evidence(member) for member in q.members])
    assert osc.predict(tuned, x).probs.shape == (6, 4)


@pytest.mark.parametrize("ask", [osc.predict, osc.sample_functions])
def test_sampled_members_far_worse_than_their_modes_are_warned_of(ask: Callable) -> None:
    members = [fitted(Gaussian(0.5), seed, prior=1e-6) for seed in range(2)]
    with pytest.warns(UserWarning, match="far worse than its mode"):
        ask(Mixture(members), inputs(), via="sampled", samples=4)


# ---- the tasks -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("likelihood", in_turn(LIKELIHOODS), ids=repr)
def test_calibration_takes_a_mixture(likelihood: Likelihood) -> None:
    q, x = mixture(likelihood), inputs()
    y = targets(likelihood, net(), x)
    found = osc.tasks.calibration(q, (x, y), batch_size=4).metrics()
    predictive = osc.predict(q, x)
    y = y.double() if isinstance(likelihood, Bernoulli) else y
    log_prob = predictive.log_prob(y)
    if likelihood.links:
        assert found["nll"] == pytest.approx(-float(log_prob.mean()), rel=1e-4)
    else:
        assert found["log_likelihood"] == pytest.approx(float(log_prob.sum(1).mean()), rel=1e-4)


def test_out_of_distribution_scores_take_a_mixture() -> None:
    inside, outside = inputs(), 5 * inputs(8, 3)
    classes = osc.tasks.ood(mixture(Categorical()), inside, outside)
    assert set(classes.inside) == {"entropy", "max_probability", "functional_variance"}
    numbers = osc.tasks.ood(mixture(Gaussian(0.5)), inside, outside)
    assert set(numbers.inside) == {"functional_variance"}
    expected = osc.functional_variance(mixture(Gaussian(0.5)), inside, diagonal=True).sum(1)
    assert_close(numbers.inside["functional_variance"], expected, 1e-10)
