"""Calibration of any predictive: the same numbers as from its distribution, whatever the batches."""

import math
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import osculate as osc
from osculate import metrics
from osculate.tasks import CalibrationRecord, RegressionRecord, calibration
from osculate.tasks.calibration import reliability_bins
from tests.errors import says
from tests.laws import targets
from tests.zoo import ZOO

X = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
LABELS = torch.arange(60) % 4
NUMBERS = torch.stack([X.sum(1), X[:, 0] - X[:, 1]], 1) + 0.3


@pytest.fixture
def net() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 4))


@pytest.fixture
def classifier(net: nn.Module) -> Any:
    return osc.laplace(net, osc.likelihoods.Categorical(), (X, LABELS), structure="diag", prior=1.0, refine=False)


@pytest.fixture
def regressor() -> Any:
    return osc.laplace(
        nn.Linear(3, 2), osc.likelihoods.Gaussian(0.7), (X, NUMBERS), structure="full", prior=1.0, refine=False
    )


def test_the_numbers_are_those_of_the_predictive(classifier: Any) -> None:
    record = calibration(classifier, (X, LABELS), bins=10)
    probs = osc.predict(classifier, X).probs
    assert isinstance(record, CalibrationRecord)
    assert torch.allclose(record.probs, probs.double(), atol=1e-6)
    assert torch.equal(record.targets, LABELS)
    found = record.metrics()
    assert found["accuracy"] == pytest.approx(metrics.accuracy(probs, LABELS))
    assert found["nll"] == pytest.approx(float(-probs.log()[range(60), LABELS].mean()), rel=1e-5)
    assert found["ece"] == pytest.approx(metrics.ece(probs, LABELS, 10), abs=1e-6)
    assert found["ece"] <= found["rmsce"] <= found["mce"]


def test_a_point_predicts_what_the_network_says(net: nn.Module) -> None:
    record = calibration(osc.posteriors.Point(net, osc.likelihoods.Categorical()), (X, LABELS))
    assert torch.allclose(record.probs, net(X).softmax(-1).double(), atol=1e-6)


def test_the_batches_do_not_matter(classifier: Any) -> None:
    whole = calibration(classifier, (X, LABELS)).metrics()
    loader = DataLoader(TensorDataset(X, LABELS), batch_size=7)
    for found in (calibration(classifier, (X, LABELS), batch_size=11), calibration(classifier, loader)):
        assert found.metrics() == pytest.approx(whole, rel=1e-5, abs=1e-7)


def test_sampled_networks_are_the_same_for_all_batches(classifier: Any) -> None:
    def run(batch_size: int) -> CalibrationRecord:
        generator = torch.Generator().manual_seed(3)
        return calibration(
            classifier, (X, LABELS), batch_size=batch_size, via="sampled", samples=3, generator=generator
        )

    assert torch.allclose(run(60).probs, run(7).probs, atol=1e-6)


def test_options_reach_the_predictive(classifier: Any) -> None:
    default, probit = (calibration(classifier, (X, LABELS), **options) for options in ({}, {"link": "probit"}))
    assert not torch.allclose(default.probs, probit.probs, atol=1e-4)
    with pytest.raises(ValueError, match="'probits'"):
        calibration(classifier, (X, LABELS), link="probits")


def test_the_bins_give_the_expected_calibration_error(classifier: Any) -> None:
    record = calibration(classifier, (X, LABELS), bins=7)
    filled = record.count > 0
    gaps = (record.confidence - record.accuracy).abs()[filled]
    assert int(record.count.sum()) == 60
    assert record.confidence[~filled].isnan().all()
    assert float((gaps * record.count[filled] / 60).sum()) == pytest.approx(record.metrics()["ece"], abs=1e-6)
    assert float(gaps.max()) == pytest.approx(record.metrics()["mce"], abs=1e-6)


def test_certain_predictions_fall_in_the_last_bin() -> None:
    _, accuracy, count = reliability_bins(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([0, 0]), bins=3)
    assert count.tolist() == [0, 0, 2]
    assert float(accuracy[2]) == 0.5


def test_a_certain_and_wrong_network_pays_and_stays_finite() -> None:
    net = nn.Linear(1, 2, bias=False)
    nn.init.constant_(net.weight, 0)
    net.weight.data[0] = 200
    record = calibration(
        osc.posteriors.Point(net, osc.likelihoods.Categorical()), (torch.ones(1, 1), torch.ones(1).long())
    )
    assert record.metrics()["nll"] == pytest.approx(87.34, abs=0.01)


def test_bernoulli_outputs_are_predictions_of_no_and_yes() -> None:
    y = torch.stack([X[:, 0] > 0, X[:, 1] > 0], 1).float()
    net = nn.Linear(3, 2)
    q = osc.posteriors.Point(net, osc.likelihoods.Bernoulli())
    record = calibration(q, (X, y))
    p = net(X).sigmoid().detach()
    expected = nn.functional.binary_cross_entropy(p, y)
    assert record.probs.shape == (120, 2)
    assert record.metrics()["nll"] == pytest.approx(float(expected), rel=1e-4)
    assert record.metrics()["accuracy"] == pytest.approx(float(((p > 0.5) == y.bool()).float().mean()))


def test_grey_targets_are_not_rounded_to_classes() -> None:
    q = osc.posteriors.Point(nn.Linear(3, 1), osc.likelihoods.Bernoulli(grey=True))
    with pytest.raises(ValueError, match="between 0 and 1.*torch.bernoulli"):
        calibration(q, (X, torch.full((len(X), 1), 0.7)))


def test_a_certain_and_wrong_bernoulli_keeps_the_digits_of_its_logit() -> None:
    net = nn.Linear(1, 1, bias=False)
    nn.init.constant_(net.weight, 40.0)
    q = osc.posteriors.Point(net, osc.likelihoods.Bernoulli())
    record = calibration(q, (torch.ones(1, 1), torch.zeros(1, 1)))
    assert record.metrics()["nll"] == pytest.approx(40.0, rel=1e-5)


@pytest.mark.parametrize("net", ["unet", "gpt"])
@pytest.mark.parametrize("options", [{}, {"link": "functions", "samples": 4}, {"via": "sampled", "samples": 3}])
def test_pixels_and_tokens_count_one_by_one_and_ignored_ones_not(net: str, options: dict[str, Any]) -> None:
    axis = 1 if net == "unet" else -1
    likelihood = osc.likelihoods.Categorical(class_axis=axis, ignore_index=-100)
    model, x = ZOO[net].model(), ZOO[net].x(6)
    y = targets(likelihood, model, x)
    y[0], y[::2, ..., 1] = -100, -100
    q = osc.laplace(model, likelihood, (x, y), structure="diag", prior=1.0, refine=False)
    kept = y != -100

    def generator() -> torch.Generator:
        return torch.Generator().manual_seed(0)

    record = calibration(q, (x, y), bins=5, **options, generator=generator())
    probs = osc.predict(q, x, **options, generator=generator()).probs[kept]
    assert torch.allclose(record.probs, probs)
    assert torch.equal(record.targets, y[kept])
    assert int(record.count.sum()) == int(kept.sum()) < y.numel()
    found = record.metrics()
    assert found["accuracy"] == pytest.approx(float((probs.argmax(-1) == y[kept]).double().mean()))
    nll = -torch.distributions.Categorical(probs=probs).log_prob(y[kept]).mean()
    assert found["nll"] == pytest.approx(float(nll), rel=1e-5)
    assert found["ece"] == pytest.approx(metrics.ece(probs, y[kept], 5))
    with pytest.raises(ValueError, match="every target is one that the likelihood ignores"):
        calibration(q, (x, torch.full_like(y, -100)))


def test_images_of_numbers_are_scored_pixel_by_pixel() -> None:
    model, x = ZOO["unet"].model(), ZOO["unet"].x(4)
    y = targets(osc.likelihoods.Gaussian(0.5), model, x)
    q = osc.laplace(model, osc.likelihoods.Gaussian(0.5), (x, y), structure="diag", prior=1.0, refine=False)
    record = calibration(q, (x, y), batch_size=3)
    predictive = osc.predict(q, x)
    assert record.mean.shape == (4, y[0].numel())
    assert record.metrics()["rmse"] == pytest.approx(float((predictive.mean - y).square().mean().sqrt()))
    expected = float(predictive.log_prob(y).flatten(1).sum(1).mean())
    assert record.metrics()["log_likelihood"] == pytest.approx(expected)


class TestRegression:
    def test_the_numbers_are_those_of_the_predictive(self, regressor: Any) -> None:
        record = calibration(regressor, (X, NUMBERS), batch_size=13)
        y = osc.predict(regressor, X)
        assert isinstance(record, RegressionRecord)
        assert record.metrics() == pytest.approx(
            {
                "rmse": float((y.mean - NUMBERS).square().mean().sqrt()),
                "log_likelihood": float(y.log_prob(NUMBERS).sum(1).mean()),
                **{
                    f"coverage_{level}": float(((y.cdf(NUMBERS) - 0.5).abs() <= level / 200).float().mean())
                    for level in (50, 90, 95)
                },
            },
            rel=1e-5,
        )

    def test_original_units(self, regressor: Any) -> None:
        standardised = calibration(regressor, (X, NUMBERS)).metrics()
        scaled = calibration(regressor, (X, NUMBERS), target_scale=torch.tensor([10.0, 10.0])).metrics()
        assert scaled["rmse"] == pytest.approx(10 * standardised["rmse"])
        assert scaled["log_likelihood"] == pytest.approx(standardised["log_likelihood"] - 2 * math.log(10))
        assert scaled["coverage_90"] == standardised["coverage_90"]

    def test_one_scale_for_each_output(self, regressor: Any) -> None:
        scale = torch.tensor([2.0, 5.0])
        record = calibration(regressor, (X, NUMBERS), target_scale=scale)
        y = osc.predict(regressor, X)
        density = torch.distributions.Normal(y.mean * scale, y.stddev * scale).log_prob(NUMBERS * scale)
        assert record.metrics()["log_likelihood"] == pytest.approx(float(density.sum(1).mean()), rel=1e-5)

    def test_a_mixture_of_sampled_networks(self, regressor: Any) -> None:
        record = calibration(regressor, (X, NUMBERS), via="sampled", samples=20)
        assert all(math.isfinite(value) for value in record.metrics().values())
        linearised = calibration(regressor, (X, NUMBERS)).metrics()  # a linear model: the two agree
        assert record.metrics()["log_likelihood"] == pytest.approx(linearised["log_likelihood"], abs=0.1)

    @pytest.mark.parametrize(
        ("likelihood", "fitted", "options"),
        [
            (osc.likelihoods.Poisson(), False, {}),
            (osc.likelihoods.Poisson(), True, {}),
            (osc.likelihoods.Poisson(), True, {"via": "sampled", "samples": 3}),
            (osc.likelihoods.StudentT(), True, {"via": "sampled", "samples": 3}),
        ],
    )
    def test_without_a_distribution_function_there_is_no_coverage(
        self, likelihood: Any, fitted: bool, options: dict[str, Any]
    ) -> None:
        net, y = nn.Linear(3, 2), X[:, :2].abs().round()
        q = osc.posteriors.Point(net, likelihood)
        if fitted:
            q = osc.laplace(net, likelihood, (X, y), structure="full", prior=1.0, refine=False)

        def generator() -> dict[str, Any]:
            return {**options, "generator": torch.Generator().manual_seed(0)} if options else {}

        found = calibration(q, (X, y), batch_size=13, **generator()).metrics()
        predictive = osc.predict(q, X, **generator())
        assert found == pytest.approx(
            {
                "rmse": float((predictive.mean - y).square().mean().sqrt()),
                "log_likelihood": float(predictive.log_prob(y).sum(1).mean()),
            },
            rel=1e-5,
        )

    def test_targets_that_would_broadcast_are_refused(self, regressor: Any) -> None:
        with pytest.raises(ValueError, match=says("(60,)", "(60, 2)", "y[:, None]")):
            calibration(regressor, (X, NUMBERS[:, 0]))


@pytest.mark.parametrize(
    ("targets", "options", "words"),
    [
        (LABELS[:, None], {}, ["(60, 1)", "(60,)"]),
        (LABELS + 1, {}, ["4", "4 classes"]),
        (LABELS, {"bins": 0}, ["0"]),
        (LABELS, {"batch_size": 0}, ["batch_size must be", "got 0"]),
        (LABELS[:5], {}, ["60", "5"]),
    ],
)
def test_what_does_not_fit_is_refused(classifier: Any, targets: torch.Tensor, options: dict, words: list[str]) -> None:
    with pytest.raises(ValueError, match=says(*words)):
        calibration(classifier, (X, targets), **options)
