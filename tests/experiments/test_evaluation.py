"""Scores of classes, differences with their errors, and one pass for several priors."""

import pytest
import torch
from torch import nn

import osculate as osc
from experiments.by_image import IMAGES, PLACES
from experiments.evaluation import (
    Difference,
    at_mode,
    best,
    entropy,
    linearised,
    nll_difference,
    sampled,
    scores,
)
from experiments.linlap import images as linlap_images, uci_classification as linlap_uci_classification
from osculate import metrics


@pytest.fixture
def q() -> osc.posteriors.Gaussian:
    x, y = torch.randn(40, 3), torch.randint(3, (40,))
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3))
    return osc.laplace(model, osc.likelihoods.Categorical(), (x, y), prior=1.0, refine=False)


def test_one_pass_gives_the_predictives_of_all_priors(q: osc.posteriors.Gaussian) -> None:
    x = torch.randn(120, 3)
    posteriors = [q, q.replace(prior=osc.priors.Isotropic(30.0)), osc.maximise_evidence(q)]
    found = linearised(posteriors, x, "", False)
    for posterior, probs in zip(posteriors, found, strict=True):
        torch.testing.assert_close(probs, osc.predict(posterior, x).probs, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(at_mode(q, x), q.model(x).softmax(-1))


@pytest.mark.filterwarnings("error")
def test_sampled_networks_are_the_same_for_the_same_seed_and_warn_of_nothing(q: osc.posteriors.Gaussian) -> None:
    wide = q.replace(prior=osc.priors.Isotropic(1e-4))
    x = torch.randn(7, 3)
    first, again, other = (sampled(wide, x, 3, seed) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_differences_are_those_of_the_scores() -> None:
    y = torch.randint(4, (500,))
    probs, other = (torch.randn(500, 4).softmax(-1) for _ in range(2))
    difference = nll_difference(probs, other, y)
    assert difference.value == pytest.approx(scores(probs, y)["NLL"] - scores(other, y)["NLL"], abs=1e-5)
    each = (other.log() - probs.log()).gather(1, y[:, None])
    assert difference.error == pytest.approx(float(each.std() / 500**0.5), rel=1e-4)
    assert scores(probs, y)["accuracy, %"] == pytest.approx(100 * metrics.accuracy(probs, y))
    assert float(entropy(torch.full((1, 4), 0.25))) == pytest.approx(torch.tensor(4.0).log().item())
    assert best([other, probs, torch.nn.functional.one_hot(y, 4).float()], (probs, y)) == 2


def test_a_probability_of_zero_costs_a_finite_number() -> None:
    y = torch.zeros(2, dtype=torch.long)
    sure, wrong = torch.tensor([[1.0, 0.0]] * 2), torch.tensor([[0.0, 1.0]] * 2)
    assert nll_difference(wrong, sure, y).value == pytest.approx(87.3, abs=0.1)


def test_the_mean_of_independent_differences() -> None:
    mean = Difference.over([Difference(-0.3, 0.03), Difference(-0.1, 0.04)])
    assert (mean.value, mean.error) == (pytest.approx(-0.2), pytest.approx(0.025))
    assert str(mean) == "-0.200 ± 0.025"


class TestImages:
    def test_perfect_predictions_score_best(self) -> None:
        m = linlap_images
        y = torch.arange(30) % 3
        sure = torch.cat([torch.nn.functional.one_hot(y, 3).float(), torch.full((20, 3), 1 / 3)])
        guess = torch.full((50, 3), 1 / 3) + 0.01 * torch.rand(50, 3)
        way = m.scored(sure, y, [12, 8])
        assert [way["scores"][column] for column in m.COLUMNS] == [100, 0, 0, 1]
        assert m.scored(guess / guess.sum(1, keepdim=True), y, [12, 8])["scores"][m.AUROC] < 0.8
        assert float(way[IMAGES][m.NLL].mean()) == pytest.approx(way["scores"][m.NLL])
        assert float(way[IMAGES][m.ACCURACY].mean()) == pytest.approx(way["scores"][m.ACCURACY])
        assert [float(above.mean()) for above, _ in way[PLACES]] == [1, 1]


class TestClassificationSets:
    @staticmethod
    def run(good: tuple[str, ...], without: tuple[str, ...] = ()) -> linlap_uci_classification.Run:
        m = linlap_uci_classification
        y = torch.arange(60) % 2
        logits = {row: 3.0 * torch.nn.functional.one_hot(y, 2) * (row in good) for row in m.ROWS if row not in without}
        probs = {row: f.softmax(-1) for row, f in logits.items()}
        return m.Run(probs, y, dict.fromkeys(m.ROWS, 10.0))

    def test_sets_of_lower_nll_are_counted(self) -> None:
        m = linlap_uci_classification
        good, bad = self.run((*m.LINEARISED.values(), m.EVIDENCE)), self.run(tuple(m.SAMPLED.values()))
        sampled, mode, _, evidence = (claim.evidence for claim in m.claims({(1, "a"): [good] * 2, (1, "b"): [bad]}))
        assert sampled.count("lower in 1 of 2 cases") == 3
        assert mode.count("lower in 1 of 2 cases") == 2
        assert "is 10 by the evidence and 10 by validation" in evidence

    def test_means_are_over_sets_that_every_row_has(self) -> None:
        m = linlap_uci_classification
        large = ("linearised, full", "sampled, full")
        findings = m.conclude({(1, "a"): [self.run((m.MODE,))], (1, "b"): [self.run((), large)]})
        found = {(n.row, n.column): n.mean for n in findings.numbers}
        assert found["1 hidden layer: linearised, full", "NLL, b"] is None
        mean_column = "mean NLL (sets with every row)"
        for row in ("MAP", "linearised, full", "linearised, kron"):
            assert found[f"1 hidden layer: {row}", mean_column] == found[f"1 hidden layer: {row}", "NLL, a"]
        assert "of 1 cases" in findings.claims[0].evidence

    def test_the_full_matrix_is_kept_in_its_smaller_form_or_left_out(self) -> None:
        m = linlap_uci_classification
        data = osc.data.load("two_moons", train_size=30)
        small, large = osc.networks.MLP(2, (3,), 2), osc.networks.MLP(2, (50,), 2)
        assert [m.forms(net, data, 100)["full"] for net in (small, large)] == ["full", "dual"]
        assert m.forms(large, data, 50) == {"kron": "kron", "diag": "diag"}
