"""Sensitivity: gradients are derivatives, integrated gradients add up, and the parts of the entropy do too."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.tasks import sensitivity
from tests.errors import says

X = torch.randn(30, 3, generator=torch.Generator().manual_seed(0)).double()
CLASSES = (X[:, 0] > 0).long() + (X[:, 1] > 0.5).long()


def network(outputs: int, activation: nn.Module | None = None, seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(3, 8), activation or nn.Tanh(), nn.Linear(8, outputs)).double()


def fitted(outputs: int, likelihood: Any, y: Tensor, activation: nn.Module | None = None) -> Any:
    return osc.laplace(network(outputs, activation), likelihood, (X, y), structure="full", prior=1.0, refine=False)


@pytest.fixture(scope="module")
def classifier() -> Any:
    return fitted(3, osc.likelihoods.Categorical(), CLASSES)


@pytest.mark.parametrize("of", ["entropy", "bald", "aleatoric", "variance", "mean"])
def test_gradients_are_derivatives_and_integrated_ones_add_up(classifier: Any, of: str) -> None:
    found = sensitivity(classifier, X[:4], of, method="gradient", samples=64)
    step = 1e-5
    for column in range(3):
        moved = [X[:4] + sign * step * torch.eye(3)[column].double() for sign in (1, -1)]
        up, down = (sensitivity(classifier, x, of, method="gradient", samples=64).values for x in moved)
        torch.testing.assert_close(found.attributions[:, column], (up - down) / (2 * step), rtol=1e-4, atol=1e-7)
    whole = sensitivity(classifier, X[:4], of, samples=64, baseline=0.3)
    assert float(whole.gap.abs().max()) < 1e-9
    at_baseline = sensitivity(classifier, torch.full((1, 3), 0.3).double(), of, samples=64).values
    if of != "mean":  # of the class that is most probable at the input
        torch.testing.assert_close(whole.baseline_values, at_baseline.expand(4))


def test_gradient_times_input_is_the_first_order(classifier: Any) -> None:
    slopes = sensitivity(classifier, X[:4], method="gradient").attributions
    baseline = X[4:8]
    found = sensitivity(classifier, X[:4], method="gradient_times_input", baseline=baseline)
    torch.testing.assert_close(found.attributions, slopes * (X[:4] - baseline))
    assert set(found.metrics()) == {"value", "gap"}


def test_the_parts_of_the_entropy_add_up(classifier: Any) -> None:
    total, epistemic, other = (
        sensitivity(classifier, X[:4], of, batch_size=5).attributions for of in ("entropy", "bald", "aleatoric")
    )
    torch.testing.assert_close(total, epistemic + other)


def test_an_input_that_the_network_ignores_has_no_attribution() -> None:
    net = network(2)
    with torch.no_grad():
        net[0].weight[:, 1] = 0
    q = osc.laplace(net, osc.likelihoods.Gaussian(0.3), (X, X[:, :2]), subset=["2"], structure="full", prior=1.0)
    for of in ("variance", "bald", "entropy"):
        found = sensitivity(q, X[:4], of)
        assert float(found.attributions[:, 1].abs().max()) == 0
        assert float(found.attributions[:, 0].abs().min()) > 0


def test_outputs_are_named(classifier: Any) -> None:
    q = fitted(2, osc.likelihoods.Gaussian(0.3), X[:, :2])
    both = [sensitivity(q, X[:4], "variance", output=n).attributions for n in (0, 1)]
    torch.testing.assert_close(sensitivity(q, X[:4], "variance").attributions, both[0] + both[1])
    torch.testing.assert_close(sensitivity(q, X[:4], "mean", output=1).values, osc.predict(q, X[:4]).mean[:, 1])
    top = osc.predict(classifier, X[:4]).probs.max(1).values
    torch.testing.assert_close(sensitivity(classifier, X[:4], "mean").values, top)
    with pytest.raises(ValueError, match=says("2 outputs", "output=None")):
        sensitivity(q, X[:4], "mean")
    with pytest.raises(ValueError, match=says("2 outputs", "output=2")):
        sensitivity(q, X[:4], "variance", output=2)
    with pytest.raises(ValueError, match=says("output=0", "'bald'")):
        sensitivity(q, X[:4], output=0)


@pytest.mark.parametrize("kind", ["ensemble", "dropout", "mixture"])
def test_posteriors_of_networks(classifier: Any, kind: str) -> None:
    likelihood = osc.likelihoods.Categorical()
    dropping = nn.Sequential(*network(3)[:2], nn.Dropout(0.2), network(3)[2])
    q = {
        "ensemble": osc.posteriors.Ensemble([network(3), network(3, seed=1)], likelihood),
        "dropout": osc.posteriors.Dropout(dropping, likelihood),
        "mixture": osc.posteriors.Mixture([classifier, classifier.replace(temperature=0.5)]),
    }[kind]
    for of in ("bald", "mean", "variance"):
        found = sensitivity(q, X[:4], of, samples=8)
        assert float(found.gap.abs().max()) < 1e-9, of
        assert float(found.attributions.abs().max()) > 0


def test_relu_networks_jump() -> None:
    q = fitted(1, osc.likelihoods.Gaussian(0.3), X[:, :1], nn.ReLU())
    gaps = [float(sensitivity(q, X[:8], "variance", steps=steps).gap.abs().max()) for steps in (32, 256)]
    assert min(gaps) > 1e-3


@pytest.mark.parametrize(
    ("x", "options", "error", "words"),
    [
        (X, {"of": "balds"}, ValueError, ("unknown quantity", "'bald'")),
        (X, {"method": "ig"}, ValueError, ("unknown method",)),
        (X, {"steps": 0}, ValueError, ("steps", "0")),
        (X, {"baseline": torch.zeros(2)}, ValueError, ("(2,)", "(30, 3)")),
        (X / 0, {}, ValueError, ("holds",)),
        (X[:0], {}, ValueError, ("no rows",)),
        (torch.zeros(2, 3).long(), {}, TypeError, ("int64",)),
    ],
)
def test_wrong_requests_are_refused(classifier: Any, x: Tensor, options: dict, error: type, words: tuple) -> None:
    with pytest.raises(error, match=says(*words)):
        sensitivity(classifier, x, **options)


def test_plain_gradients_have_no_gap(classifier: Any) -> None:
    found = sensitivity(classifier, X[:2], method="gradient")
    assert found.metrics().keys() == {"value"}
    with pytest.raises(ValueError, match=says("'integrated'")):
        found.gap  # noqa: B018
