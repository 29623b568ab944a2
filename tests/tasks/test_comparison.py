"""Comparisons: exact differences, standard errors of pairs, and a word where a posterior is worse than its network."""

import warnings

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.tasks.calibration import columns
from osculate.tasks.comparison import to_ignorance
from tests.laws import assert_close


def classes(scale: float = 1.0, size: int = 400) -> tuple[nn.Module, Tensor, Tensor]:
    """A linear classifier that is right (scale 1) or overconfident."""
    torch.manual_seed(0)
    model, x = nn.Linear(2, 3), torch.randn(size, 2)
    y = torch.distributions.Categorical(logits=model(x)).sample()
    with torch.no_grad():
        model.weight.mul_(scale)
    return model, x, y


def test_differences_and_their_errors_are_those_of_pairs() -> None:
    model, x, y = classes(6.0)
    q = osc.laplace(model, osc.likelihoods.Categorical(), (x, y), prior=1.0)
    found = osc.compare(q, (x, y))
    network = nn.functional.cross_entropy(model(x), y, reduction="none").detach()
    each = -osc.predict(q, x).probs[torch.arange(len(x)), y].log() - network
    nll = found.differences[0]
    assert nll.name == "nll"
    assert_close(torch.tensor(nll.network), network.mean(), 1e-5)
    assert_close(torch.tensor(nll.value), each.mean(), 1e-4)
    assert_close(torch.tensor(nll.standard_error), each.std() / len(x) ** 0.5, 0.2)
    assert found.verdict == 1
    assert "better" in found.sentence
    assert f"{nll.posterior:.3f}" in str(found)
    assert found.metrics()["difference_nll"] == nll.value


def test_a_posterior_that_is_worse_is_announced() -> None:
    model, x, y = classes()
    q = osc.laplace(model, osc.likelihoods.Categorical(), (x, y), prior=1e-3).replace(temperature=1e4)
    with pytest.warns(UserWarning, match=r"worse than its network alone.*osc\.tune"):
        found = osc.compare(q, (x, y))
    assert found.verdict == -1
    assert "worse" in str(found)


def test_no_difference_is_none() -> None:
    model, x, y = classes()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = osc.compare(osc.posteriors.Point(model, osc.likelihoods.Categorical()), (x, y))
    assert found.verdict == 0
    assert all(difference.value == 0 for difference in found.differences)


@pytest.mark.parametrize(
    ("likelihood", "names"),
    [
        (osc.likelihoods.Gaussian(0.5), ["nll", "rmse", "coverage_95"]),
        (osc.likelihoods.Poisson(), ["nll", "rmse"]),
        (osc.likelihoods.StudentT(), ["nll", "rmse"]),
    ],
    ids=["numbers", "counts", "heavy tails"],
)
def test_scores_of_numbers(likelihood: osc.likelihoods.Likelihood, names: list[str]) -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(2, 1), torch.randn(60, 2)
    y = likelihood.distribution(model(x).detach()).sample()
    q = osc.laplace(model, likelihood, (x, y), prior=1.0)
    found = osc.compare(q, [(x[:30], y[:30]), (x[30:], y[30:])])
    assert [difference.name for difference in found.differences] == names
    assert found.num_data == 60


@pytest.mark.slow
def test_laplace_with_held_out_data() -> None:
    model, x, y = classes(6.0)
    data, held_out = (x[:200], y[:200]), (x[200:], y[200:])
    tuned = osc.laplace(model, osc.likelihoods.Categorical(), data, validation=held_out)
    by_hand = osc.tune(osc.laplace(model, osc.likelihoods.Categorical(), data), held_out)
    assert torch.equal(osc.predict(tuned, x).probs, osc.predict(by_hand, x).probs)
    assert osc.compare(tuned, held_out).verdict == 1


def test_the_distance_to_ignorance_is_that_of_pairs() -> None:
    model, x, y = classes()
    q, likelihood = osc.posteriors.Point(model, osc.likelihoods.Categorical()), osc.likelihoods.Categorical()
    found = to_ignorance(likelihood, *columns(q, (x, y), 500, False, "", {}))
    shares = (y.bincount() + 1.0) / (len(y) + 3)
    apart = nn.functional.cross_entropy(model(x), y, reduction="none").detach() + shares[y].log()
    assert found.difference == pytest.approx(float(apart.mean()), rel=1e-4)
    assert found.standard_error == pytest.approx(float(apart.std()) / len(x) ** 0.5, rel=1e-3)
    assert found.verdict == 1
    real, noise = osc.posteriors.Point(nn.Linear(2, 1), osc.likelihoods.Gaussian(0.01)), osc.likelihoods.Gaussian(0.01)
    assert to_ignorance(noise, *columns(real, (x, x[:, :1]), 500, False, "", {})).verdict == -1
