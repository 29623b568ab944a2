"""Tuning on held-out data: it finds the best candidate, repeats no pass, and says what it cannot do."""

import warnings

import pytest
import torch
from torch import nn

import osculate as osc
from osculate.predictive.tuning import METRICS
from tests.laws import assert_close, targets
from tests.zoo import ZOO


def overfitted() -> tuple[osc.posteriors.Gaussian, tuple[torch.Tensor, torch.Tensor]]:
    x = torch.randn(120, 2)
    y = (x[:, 0] + 0.8 * torch.randn(120) > 0).long()
    model = nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 2))
    optimizer = torch.optim.Adam(model.parameters(), 0.05)
    for _ in range(150):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x[:60]), y[:60]).backward()
        optimizer.step()
    q = osc.laplace(model, osc.likelihoods.Categorical(), (x[:60], y[:60]), prior=1.0, refine=False)
    return q, (x[60:], y[60:])


def held_out_nll(q: osc.posteriors.Gaussian, data: tuple[torch.Tensor, torch.Tensor], **how: object) -> float:
    return -float(osc.predict(q, data[0], **how).log_prob(data[1]).mean())


@pytest.mark.parametrize("link", [pytest.param("mc", marks=pytest.mark.slow), "probit"])
def test_nothing_on_a_fine_grid_is_much_better(link: str) -> None:
    q, data = overfitted()
    best = osc.tune(q, data, link=link, caution=0.0)
    found = held_out_nll(best, data, link=link)
    for decades in torch.linspace(-4, 4, 17):
        for temperature in (0.01, 0.1, 0.3, 1.0, 3.0):
            prior = q.prior.with_precision(q.prior.precision * 10**decades)
            other = held_out_nll(q.replace(prior=prior, temperature=temperature), data, link=link)
            assert found <= other + 2e-3
    assert found < held_out_nll(osc.posteriors.Point(q.model, q.likelihood), data)


def test_the_network_is_passed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    q, data = overfitted()
    calls: list[int] = []
    original = osc.parameters.Network._called

    def counted(self: object, x: torch.Tensor, *args: object, **options: object) -> torch.Tensor:
        calls.append(len(x))
        return original(self, x, *args, **options)

    monkeypatch.setattr(osc.parameters.Network, "_called", counted)
    osc.tune(q, [(data[0][:50], data[1][:50]), (data[0][50:], data[1][50:])])
    assert calls == [50, 10]


@pytest.mark.parametrize(("link", "kept"), [("mc", 8), pytest.param("probit", 0, marks=pytest.mark.slow)])
def test_a_refined_posterior_is_scored_as_it_predicts(link: str, kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("osculate.predictive.tuning.KEPT", kept)
    q, (x, y) = overfitted()
    q = q.replace(offset=0.3 * torch.randn(len(q.mean), generator=torch.Generator().manual_seed(0)))
    scored: list[torch.Tensor] = []

    def loss(predictive: torch.distributions.Categorical, y: torch.Tensor) -> torch.Tensor:
        scored.append(-predictive.log_prob(y))
        return scored[-1]

    osc.tune(q, [(x[:25], y[:25]), (x[25:], y[25:])], metric=loss, link=link, caution=0.0)
    expected = -osc.predict(q, x, link=link).log_prob(y)[:25]
    first = torch.stack([each for each in scored if len(each) == 25])
    assert float((first - expected).abs().amax(1).min()) < 1e-5  # the candidate that changes nothing


@pytest.mark.slow
def test_data_that_do_not_fit_into_memory_are_passed_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    q, data = overfitted()
    kept = osc.tune(q, data)
    monkeypatch.setattr("osculate.predictive.tuning.KEPT", 0)
    assert_close(osc.tune(q, data).prior.precision, kept.prior.precision, 1e-5)


def test_temperature_can_be_left_alone_and_metrics_given() -> None:
    q, data = overfitted()
    assert osc.tune(q, data, temperature=False).temperature == pytest.approx(1.0)
    assert isinstance(osc.tune(q, data, metric="brier"), osc.posteriors.Gaussian)
    wide = osc.tune(q, data, metric=lambda predictive, y: -predictive.entropy(), temperature=False)
    assert wide.prior.precision < 1e-3  # the most unsure posterior that the search allows


def test_refusals() -> None:
    q, data = overfitted()
    with pytest.raises(ValueError, match="unknown metric 'nlll'.*did you mean 'nll'"):
        osc.tune(q, data, metric="nlll")
    with pytest.raises(ValueError, match="no batch"):
        osc.tune(q, [])
    with pytest.raises(ValueError, match="out of range"):
        osc.tune(q, (data[0], data[1] + 5))
    with pytest.raises(TypeError, match="Gaussian posterior"):
        osc.tune(osc.posteriors.Point(q.model, q.likelihood), data)


def test_between_equals_the_more_unsure_posterior_is_taken() -> None:
    q, data = overfitted()
    best, cautious = osc.tune(q, data, caution=0.0), osc.tune(q, data)
    outside = 20 * torch.randn(50, 2)
    assert osc.functional_variance(cautious, outside).mean() >= osc.functional_variance(best, outside).mean()
    losses = [-osc.predict(p, data[0]).log_prob(data[1]) for p in (cautious, best)]
    difference = losses[0] - losses[1]
    assert float(difference.mean()) <= 1.05 * float(difference.std()) / len(difference) ** 0.5 + 1e-4


def dense(net: str, n: int, ignore: int) -> tuple[osc.likelihoods.Likelihood, nn.Module, torch.Tensor, torch.Tensor]:
    """A network with a class for each position, and targets of which some stand for none."""
    case = ZOO[net]
    likelihood = osc.likelihoods.Categorical(class_axis=1 if net == "unet" else -1, ignore_index=ignore)
    model, x = case.model(), case.x(n)
    y = targets(likelihood, model, x)
    y[::3, ..., 0] = ignore
    y[1] = ignore
    return likelihood, model, x, y


@pytest.mark.parametrize("ignore", [-100, 7])
@pytest.mark.parametrize("metric", ["nll", "brier"])
@pytest.mark.parametrize("net", [pytest.param("unet", marks=pytest.mark.slow), "gpt"])
def test_ignored_positions_do_not_count(net: str, metric: str, ignore: int) -> None:
    likelihood, model, x, y = dense(net, 8, ignore)
    q = osc.laplace(model, likelihood, (x, y), structure="diag", prior=1.0, refine=False)
    found = osc.tune(q, (x, y), metric=metric, temperature=False, caution=0.0)

    def by_hand(predictive: torch.distributions.Categorical, y: torch.Tensor) -> torch.Tensor:
        p, kept = predictive.probs, y != ignore
        right = p.gather(-1, torch.where(kept, y, 0).unsqueeze(-1)).squeeze(-1)
        terms = -right.log() if metric == "nll" else p.square().sum(-1) - 2 * right + 1
        return torch.stack([each[k].sum() for each, k in zip(terms, kept, strict=True)])

    expected = osc.tune(q, (x, y), metric=by_hand, temperature=False, caution=0.0)
    assert_close(found.prior.precision, expected.prior.precision, 1e-6)
    loss = METRICS[metric](osc.predict(q, x), y, likelihood.counted(y))
    assert_close(loss, by_hand(osc.predict(q, x), y), 1e-6)
    assert float(loss[1]) == 0.0


def test_without_any_target_there_is_nothing_to_tune() -> None:
    likelihood, model, x, y = dense("gpt", 4, -1)
    q = osc.laplace(model, likelihood, (x, y), structure="diag", prior=1.0, refine=False)
    with pytest.raises(ValueError, match="every validation target is one that the likelihood ignores"):
        osc.tune(q, (x, torch.full_like(y, -1)))


@pytest.mark.parametrize("net", ["unet", "gpt"])
def test_data_without_targets_leave_fit_and_evidence_as_they_are(net: str) -> None:
    likelihood, model, x, y = dense(net, 5, -1)
    both = osc.laplace(model, likelihood, (x, y), structure="full", prior=1.0, refine=False)
    kept = (y != -1).flatten(1).any(1)
    assert 0 < int(kept.sum()) < 5
    labelled = osc.laplace(model, likelihood, (x[kept], y[kept]), structure="full", prior=1.0, refine=False)
    assert_close(osc.log_evidence(both), osc.log_evidence(labelled))


@pytest.mark.parametrize("metric", METRICS)
def test_truth_values_are_scored_like_0_and_1(metric: str) -> None:
    x = torch.randn(20, 3)
    y = x[:, :1] + 0.5 * torch.randn(20, 1) > 0
    q = osc.laplace(nn.Linear(3, 1), osc.likelihoods.Bernoulli(), (x, y), structure="full", prior=1.0, refine=False)
    found, expected = (osc.tune(q, (x, target), metric=metric) for target in (y, y.float()))
    assert_close(found.prior.precision, expected.prior.precision)
    predictive = osc.predict(q, x)
    assert_close(METRICS[metric](predictive, y, None), METRICS[metric](predictive, y.double(), None), 1e-6)


# ---- losses ----------------------------------------------------------------------------------------------------------


def test_the_losses_are_those_of_predictions() -> None:
    q, (x, y) = overfitted()
    q = q.replace(temperature=0.7)
    tuned = osc.tune(q, (x, y), metric="brier")
    found = tuned.tuning
    network = osc.posteriors.Point(q.model, q.likelihood)
    losses = [METRICS["brier"](osc.predict(each, x), y, None).detach().double() for each in (network, q, tuned)]
    assert found.metric == "brier"
    assert found.num_data == len(x)
    assert found.network == pytest.approx(float(losses[0].mean()), rel=1e-5)
    for loss, each in ((found.start, losses[1]), (found.choice, losses[2])):
        apart = each - losses[0]
        assert loss.mean == pytest.approx(float(each.mean()), rel=1e-4)
        assert loss.difference == pytest.approx(float(apart.mean()), rel=1e-3)
        assert loss.standard_error == pytest.approx(float(apart.std()) / len(x) ** 0.5, rel=1e-3)
    assert found.sentence in str(found)
    assert f"{found.choice.mean:.3f}" in str(found)


def regression(
    noise: float = 0.1, size: float = 1.5
) -> tuple[osc.posteriors.Gaussian, tuple[torch.Tensor, torch.Tensor]]:
    """A refined posterior of a network with so many times its weights, and data with a noise of 0.3."""
    torch.manual_seed(0)
    model, x = nn.Linear(3, 1, bias=False), torch.randn(400, 3)
    y = model(x).detach() + 0.3 * torch.randn(400, 1)
    with torch.no_grad():
        model.weight.mul_(size)
    q = osc.laplace(model, osc.likelihoods.Gaussian(noise), (x[:20], y[:20]), structure="full", prior=1.0)
    return q.replace(likelihood=osc.likelihoods.Gaussian(noise)), (x[20:], y[20:])


def test_the_noise_is_that_of_the_held_out_data() -> None:
    q, data = regression()
    tuned = osc.tune(q, data)
    assert float(tuned.likelihood.scale) == pytest.approx(0.3, rel=0.15)
    assert tuned.tuning.choice.mean == pytest.approx(held_out_nll(tuned, data), rel=1e-4)
    left = osc.tune(q, data, temperature=False)
    assert float(left.likelihood.scale) == pytest.approx(0.1)
    assert_close(left.offset, q.offset, 1e-6)


@pytest.mark.slow
def test_the_network_alone_is_a_limit_of_the_candidates() -> None:
    q, data = regression()
    wrong = q.replace(offset=-4 * q.offset)
    tuned = osc.tune(wrong, data, caution=0.0)
    assert float(tuned.offset.norm()) < 1e-3
    assert tuned.tuning.choice.difference < 1e-3
    network = osc.posteriors.Point(
        q.model, q.likelihood.times(float((data[1] - q.model(data[0])).square().mean()) ** 0.5 / 0.1)
    )
    assert tuned.tuning.network == pytest.approx(held_out_nll(network, data), rel=1e-4)


@pytest.mark.parametrize("size", [1, 2, 5])
def test_few_data_do_not_determine_the_noise(size: int) -> None:
    q, (x, y) = regression(0.3, 1.0)
    held_out, new = (x[:size], y[:size]), (x[100:], y[100:])
    assert held_out_nll(osc.tune(q, held_out), new) <= held_out_nll(q, new) + 0.2


def test_a_comparison_gives_the_network_its_own_noise() -> None:
    q, (x, y) = regression()
    tuned = osc.tune(q, (x[:100], y[:100]))
    own = float(tuned.tuning.chosen.alone.scale)
    assert own == pytest.approx(float((y[:100] - q.model(x[:100])).square().mean() ** 0.5), rel=0.1)
    found = osc.compare(tuned, (x[100:], y[100:])).differences[0].network
    alone = osc.posteriors.Point(q.model, osc.likelihoods.Gaussian(own))
    assert found == pytest.approx(held_out_nll(alone, (x[100:], y[100:])), rel=1e-5)


@pytest.mark.parametrize("size", [2, 10, 50])
def test_few_data_leave_the_choice_close_to_the_network(size: int) -> None:
    for make in (overfitted, regression):
        q, (x, y) = make()
        change = osc.tune(q, (x[:size], y[:size])).tuning.choice
        assert change.difference + 2 * change.standard_error <= 0.05 + 1e-6


def test_ignorance_of_each_likelihood() -> None:
    torch.manual_seed(0)
    x, likelihoods = torch.randn(40, 2), osc.likelihoods
    real = torch.randn(40, 2) * torch.tensor([1.0, 3.0]) + 5
    counts = torch.poisson(torch.full((40, 2), 3.0))
    truths = (torch.rand(40, 2) < 0.3).float()
    shares, normal = (truths.sum(0) + 1) / 42, torch.distributions.Normal
    one, each = (real - real.mean(0)).square().mean().sqrt(), real.std(0, correction=0)
    cases = [
        (likelihoods.Bernoulli(), truths, torch.distributions.Bernoulli(shares)),
        (likelihoods.Poisson(), counts, torch.distributions.Poisson(counts.mean(0))),
        (likelihoods.Gaussian(1.0), real, normal(real.mean(0), one)),
        (likelihoods.Gaussian(torch.ones(2)), real, normal(real.mean(0), each)),
        (likelihoods.HeteroscedasticGaussian(), real, normal(real.mean(0), each)),
        (likelihoods.StudentT(), real, None),
    ]
    for likelihood, y, expected in cases:
        model = nn.Linear(2, 4 if isinstance(likelihood, likelihoods.HeteroscedasticGaussian) else 2)
        q = osc.laplace(model, likelihood, (x, y), structure="diag", prior=1.0, refine=False)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = osc.tune(q, [(x[:15], y[:15]), (x[15:], y[15:])], temperature=False).tuning.ignorance
        if expected is None:
            assert found is None
        else:
            assert found.mean == pytest.approx(-float(expected.log_prob(y).sum(1).mean()), rel=1e-4), likelihood


def test_ignorance_of_classes_leaves_out_ignored_positions() -> None:
    likelihood, model, x, y = dense("gpt", 6, -1)
    q = osc.laplace(model, likelihood, (x, y), structure="diag", prior=1.0, refine=False)
    found = osc.tune(q, (x, y), temperature=False).tuning.ignorance
    counts = torch.bincount(y[y >= 0], minlength=model(x).shape[-1]) + 1.0
    logs = (counts / counts.sum()).log()
    expected = -torch.stack([logs[row[row >= 0]].sum() for row in y]).mean()
    assert found.mean == pytest.approx(float(expected), rel=1e-5)


def test_losses_stay_with_the_same_posterior_alone() -> None:
    q, data = overfitted()
    tuned = osc.tune(q, data, temperature=False)
    assert q.tuning is None
    assert tuned.replace(first_data=None).tuning is tuned.tuning
    for changes in ({"temperature": 2.0}, {"prior": osc.priors.Isotropic(3.0)}, {"offset": torch.ones_like(q.mean)}):
        assert tuned.replace(**changes).tuning is None


def linear(scale: float) -> tuple[osc.posteriors.Gaussian, tuple[torch.Tensor, torch.Tensor]]:
    """A posterior over a linear classifier whose logits are some factor times those of the truth."""
    torch.manual_seed(0)
    model, x = nn.Linear(2, 3), torch.randn(400, 2)
    y = torch.distributions.Categorical(logits=3 * model(x)).sample()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3 * scale)
    return osc.laplace(model, osc.likelihoods.Categorical(), (x, y), prior=1.0, refine=False), (x, y)


def test_a_network_worse_than_ignorance_is_named_so() -> None:
    q, data = linear(-3.0)
    with pytest.warns(UserWarning, match="worse than ignorance, by"):
        found = osc.tune(q, data, link="probit").tuning
    assert found.ignorance.verdict == 1
    assert "worse than ignorance" in found.sentence


def test_uncertainty_to_the_edge_does_not_mean_ignorance() -> None:
    q, data = linear(1.0)
    with pytest.warns(UserWarning, match="up to the boundary of the grid") as caught:
        found = osc.tune(q, data, metric=lambda predictive, y: -predictive.entropy()).tuning
    assert found.ignorance.mean < found.network
    q, data = linear(0.3)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = osc.tune(q, data, caution=0.0).tuning
    assert found.network < found.ignorance.mean
    assert not any("worse than ignorance" in str(each.message) for each in caught)


def test_a_choice_worse_than_its_network_is_announced() -> None:
    q, data = linear(1.0)
    worse = q.replace(offset=-2 * q.network.mean)
    with pytest.warns(UserWarning, match="worse than its network alone, by .*use another structure"):
        found = osc.tune(worse, data, link="probit", temperature=False).tuning
    assert found.choice.verdict == -1
    assert "worse than its network" in str(found)
    assert osc.tune(worse, data, link="probit").tuning.choice.verdict >= 0  # the mean goes back to the network


def test_no_uncertainty_is_said_of_a_choice_that_is_no_better() -> None:
    q, data = linear(1.0)
    with pytest.warns(UserWarning, match="almost no uncertainty.*the difference is"):
        found = osc.tune(q, data, metric=lambda predictive, y: predictive.entropy(), link="probit", caution=0.0).tuning
    assert found.choice.verdict == 0
