"""Active learning: scores are what they say, a batch does not repeat itself, and the loop labels what it should."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.tasks import Acquisition, acquire, active_learning
from osculate.tasks.active_learning import SCORES
from tests.errors import says

X = torch.randn(30, 2, generator=torch.Generator().manual_seed(0)).double()
CLASSES = (X[:, 0] > 0).long() + (X[:, 1] > 0.5).long()
VALUES = (2 * X[:, :1]).sin()
POOL = 2 * torch.randn(40, 2, generator=torch.Generator().manual_seed(1)).double()


def fitted(outputs: int, likelihood: Any, y: Tensor, seed: int = 0) -> Any:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, outputs)).double()
    return osc.laplace(net, likelihood, (X, y), structure="full", prior=1.0, refine=False)


@pytest.fixture(scope="module")
def classifier() -> Any:
    return fitted(3, osc.likelihoods.Categorical(), CLASSES)


@pytest.fixture(scope="module")
def regression() -> Any:
    return fitted(1, osc.likelihoods.Gaussian(0.3), VALUES)


def information(q: Any, rows: Tensor) -> Tensor:
    """I(y; f) of the labels of several inputs together: ½ log det (I + K/σ²)."""
    covariance = osc.function_posterior(q, POOL[rows]).covariance
    return 0.5 * torch.linalg.slogdet(torch.eye(len(covariance)) + covariance / 0.3**2).logabsdet


def test_entropy_is_that_of_the_predictive(classifier: Any, regression: Any) -> None:
    for q in (classifier, regression):
        found = acquire(q, POOL, 5, "entropy", batch_size=7)
        expected = osc.predict(q, POOL).entropy().reshape(len(POOL), -1).sum(1)
        torch.testing.assert_close(found.scores, expected)
        torch.testing.assert_close(found.gains, expected.sort(descending=True).values[:5])


def test_bald_converges_to_the_mutual_information(classifier: Any) -> None:
    draws = osc.sample_functions(classifier, POOL, 10_000, generator=torch.Generator().manual_seed(0)).softmax(-1)
    each = torch.special.entr(draws).sum(-1).mean(0)
    expected = torch.special.entr(draws.mean(0)).sum(-1) - each
    errors = [float((acquire(classifier, POOL, 1, samples=s).scores - expected).abs().max()) for s in (8, 2048)]
    assert errors[1] < 4e-3 < errors[0]


def test_bald_of_a_regression_is_a_ratio_of_variances(regression: Any) -> None:
    variance = osc.functional_variance(regression, POOL, diagonal=True).sum(1)
    torch.testing.assert_close(acquire(regression, POOL, 1).scores, 0.5 * (1 + variance / 0.3**2).log())
    torch.testing.assert_close(acquire(regression, POOL, 1, "variance").scores, variance)


def test_a_batch_is_greedy_in_the_information_of_its_labels(regression: Any) -> None:
    found = acquire(regression, POOL, 4, "batch", candidates=len(POOL))
    torch.testing.assert_close(found.gains.sum(), information(regression, found.indices))
    for number in range(4):
        before = found.indices[:number]
        each = torch.stack([information(regression, torch.cat([before, torch.tensor([n])])) for n in range(len(POOL))])
        each[before] = -torch.inf
        assert int(each.argmax()) == found.indices[number]


def test_a_batch_does_not_take_a_copy(regression: Any) -> None:
    copies = POOL[:5].repeat(4, 1)
    assert len(set((acquire(regression, copies, 2, "bald").indices % 5).tolist())) == 1
    assert len(set((acquire(regression, copies, 2, "batch").indices % 5).tolist())) == 2


def test_reduction_is_the_fall_of_the_variance_of_others(regression: Any) -> None:
    found = acquire(regression, POOL, 1, "reduction", candidates=len(POOL))
    g = osc.function_posterior(regression, POOL)
    point = POOL[found.indices]
    after = g.condition(point, torch.zeros(1, 1).double())
    torch.testing.assert_close(found.gains[0], 0.5 * (g.variance - after.variance).mean() / 0.3**2)


def test_a_batch_counts_the_temperature(classifier: Any) -> None:
    cold = acquire(classifier.replace(temperature=0.1), POOL, 1, "batch").gains
    scaled = classifier.replace(temperature=0.1)
    assert scaled.temperature == 0.1
    f = osc.function_posterior(scaled, POOL[acquire(scaled, POOL, 1, "batch").indices])
    draws = torch.distributions.MultivariateNormal(f.mean[0], f.covariance).sample((20_000,)).softmax(-1)
    hessian = (draws.diag_embed() - draws.unsqueeze(-1) * draws.unsqueeze(-2)).mean(0) / 0.1
    expected = 0.5 * torch.linalg.slogdet(torch.eye(3).double() + hessian @ f.covariance).logabsdet
    torch.testing.assert_close(cold[0], expected, rtol=0.05, atol=0.0)


@pytest.mark.parametrize("score", SCORES)
def test_a_seed_repeats_the_choice_among_a_part_of_the_pool(classifier: Any, score: str) -> None:
    first, again = (
        acquire(classifier, POOL, 3, score, among=10, generator=torch.Generator().manual_seed(4)) for _ in range(2)
    )
    assert torch.equal(first.indices, again.indices)
    assert len(set(first.indices.tolist())) == 3
    if score != "random":
        assert int((~first.scores.isnan()).sum()) == 10
        assert not bool(first.scores[first.indices].isnan().any())
    assert set(first.metrics()) == {"gain", "score"}


def test_an_ensemble_has_mutual_information_and_a_point_has_none(classifier: Any) -> None:
    nets = [fitted(3, osc.likelihoods.Categorical(), CLASSES, seed=seed).model for seed in range(2)]
    ensemble = osc.posteriors.Ensemble(nets, osc.likelihoods.Categorical())
    probs = torch.stack([net(POOL).softmax(-1) for net in nets])
    expected = torch.special.entr(probs.mean(0)).sum(-1) - torch.special.entr(probs).sum(-1).mean(0)
    torch.testing.assert_close(acquire(ensemble, POOL, 2).scores, expected.detach())
    point = osc.posteriors.Point(classifier.model, osc.likelihoods.Categorical())
    assert acquire(point, POOL, 2, "entropy").indices.shape == (2,)
    with pytest.raises(TypeError, match=says("Point", "no distribution")):
        acquire(point, POOL, 2)
    with pytest.raises(TypeError, match=says("Gaussian posterior", "Ensemble")):
        acquire(ensemble, POOL, 2, "batch")


@pytest.mark.parametrize(
    ("pool", "options", "words"),
    [
        (POOL, {"count": 41}, ("41", "40")),
        (POOL, {"count": 11, "among": 10}, ("11", "10")),
        (POOL, {"count": 0}, ("count", "0")),
        (POOL[:0], {"count": 1}, ("no rows",)),
        (POOL / 0, {"count": 1}, ("holds", "inf")),
        (POOL, {"count": 1, "score": "batchbald"}, ("'batchbald'", "'batch'")),
        (POOL, {"count": 1, "samples": 1}, ("samples", "1")),
    ],
)
def test_wrong_requests_are_refused(classifier: Any, pool: Tensor, options: dict[str, Any], words: tuple) -> None:
    with pytest.raises(ValueError, match=says(*words)):
        acquire(classifier, pool, **options)


def test_scores_that_a_likelihood_does_not_have() -> None:
    q = fitted(1, osc.likelihoods.StudentT(4.0), VALUES)
    for score in ("entropy", "bald", "batch"):
        with pytest.raises(ValueError, match=says("StudentT", "'variance'")):
            acquire(q, POOL, 2, score)
    assert acquire(q, POOL, 2, "variance").indices.shape == (2,)


def fit_classes(x: Tensor, y: Tensor) -> Any:
    net = nn.Linear(2, 3).double()
    nn.init.zeros_(net.weight)
    return osc.laplace(net, osc.likelihoods.Categorical(), (x, y), structure="diag", prior=1.0, refine=False)


def test_the_loop_labels_what_the_rule_chooses_and_nothing_twice() -> None:
    asked: list[Tensor] = []
    labels = torch.arange(40) % 3

    def label(rows: Tensor) -> Tensor:
        asked.append(rows)
        return labels[rows]

    def largest(q: Any, pool: Tensor, count: int, generator: torch.Generator) -> Acquisition:
        scores = pool[:, 0]
        rows = scores.argsort(descending=True)[:count]
        return Acquisition(rows, scores[rows], scores)

    found = active_learning(fit_classes, POOL, label, (X, CLASSES), rule=largest, first=4, count=3, rounds=2, seed=5)
    assert found.labels == (4, 7, 10)
    assert torch.equal(torch.cat(asked), found.indices)
    assert len(set(found.indices.tolist())) == 10
    rest = POOL[:, 0].index_fill(0, found.indices[:4], -torch.inf)
    assert torch.equal(found.indices[4:], rest.argsort(descending=True)[:6])
    expected = osc.predict(found.posterior, X).probs
    assert found.scores["accuracy"][-1] == pytest.approx(osc.metrics.accuracy(expected, CLASSES))
    assert found.scores["nll"][-1] == pytest.approx(osc.metrics.nll(expected.log(), CLASSES))
    assert set(found.metrics()) == {f"{name}/{n}" for name in ("accuracy", "nll") for n in (4, 7, 10)}
    other = active_learning(fit_classes, POOL, labels, (X, CLASSES), rule="random", first=4, count=3, rounds=1, seed=5)
    assert torch.equal(other.indices[:4], found.indices[:4])


def test_the_loop_of_a_regression() -> None:
    def fit(x: Tensor, y: Tensor) -> Any:
        net = nn.Linear(2, 1).double()
        return osc.laplace(net, osc.likelihoods.Gaussian(0.3), (x, y), structure="full", prior=1.0, refine=False)

    rule = partial(acquire, score="reduction", candidates=5)
    rows = torch.tensor([3, 1])
    found = active_learning(fit, POOL, POOL[:, :1], (X, VALUES), rule=rule, first=rows, count=2, rounds=2, via="mode")
    assert torch.equal(found.indices[:2], rows)
    expected = osc.metrics.rmse(osc.predict(found.posterior, X, via="mode").mean, VALUES)
    assert found.scores["rmse"][-1] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rounds": 20}, ("20 labels", "pool has 40")),
        ({"rule": "balds"}, ("unknown rule", "'bald'")),
        ({"first": 0}, ("first", "0")),
        ({"label": torch.zeros(3).long()}, ("40 inputs and 3 labels",)),
        ({"first": [1, 1]}, ("first", "different rows from 0 to 39")),
        ({"first": [40]}, ("first", "different rows from 0 to 39")),
    ],
)
def test_wrong_loops_are_refused_before_a_fit(options: dict[str, Any], words: tuple) -> None:
    arguments = {"label": torch.arange(40) % 3, "first": 20, "count": 2, "rounds": 2, **options}
    with pytest.raises(ValueError, match=says(*words)):
        active_learning(lambda x, y: pytest.fail("it was fitted"), POOL, test=(X, CLASSES), **arguments)


def test_rows_may_be_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # users run without checks of types

    def fit(x: Tensor, y: Tensor) -> Any:
        return osc.posteriors.Point(torch.nn.Linear(2, 3).double(), osc.likelihoods.Categorical())

    arguments = (fit, POOL, torch.arange(40) % 3, (X, CLASSES))
    found = active_learning(*arguments, rule=lambda q, pool, count, generator: [0, 2], first=[3, 1], count=2, rounds=1)
    assert found.indices.tolist() == [3, 1, 0, 4]
    with pytest.raises(TypeError, match="the choice of the rule must be rows of the pool, got None"):
        active_learning(*arguments, rule=lambda *rest, generator: None, first=[3, 1], count=2, rounds=1)


def test_scores_that_are_all_zero_are_warned_of() -> None:
    members = [nn.Linear(2, 3), nn.Linear(2, 3)]
    for each in members:
        nn.init.zeros_(each.bias)  # at x = 0 they agree
    ensemble = osc.posteriors.Ensemble(members, osc.likelihoods.Categorical())
    with pytest.warns(UserWarning, match="zero for every input"):
        acquire(ensemble, torch.zeros(5, 2), 2, "variance")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("structure", ["full", "dual"])
@pytest.mark.parametrize("score", ["batch", "reduction"])
def test_a_vague_prior_and_inputs_of_different_size_are_no_obstacle(
    dtype: torch.dtype, structure: str, score: str
) -> None:
    """Variances of 1e12 and more, of which whitening and conditioning leave less than their rounding."""
    torch.manual_seed(0)
    x, y = torch.randn(12, 4, dtype=dtype), torch.randn(12, 2, dtype=dtype)
    net = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2)).to(dtype)
    wide = x * torch.tensor([1e-15, 1.0, 1.0, 1e4], dtype=dtype)
    for likelihood, inputs, targets, prior in (
        (osc.likelihoods.Categorical(), x, y.argmax(1), 1e-8),
        (osc.likelihoods.Gaussian(), wide, y, 1e-8),
        (osc.likelihoods.Gaussian(), x[:1].expand(12, 4), y, 1e-8),
    ):
        q = osc.laplace(net, likelihood, (inputs[:2], targets[:2]), structure=structure, prior=prior, refine=False)
        found = acquire(q, inputs, 4, score, generator=torch.Generator().manual_seed(0))
        assert bool((found.gains >= 0).all())
        assert len(found.indices.unique()) == 4
