"""The report on auto-encoding variational Bayes: evidence in words, cached networks, and an exact posterior."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from experiments import Runner, Table
from experiments.aevb import figure3 as batches, figure5 as estimators, implicit, priors
from experiments.aevb.cells import Trained, curve


def test_a_curve_ends_with_the_training_and_counts_images() -> None:
    history = [{"epoch": n, "bound": float(n), "validation_nll": -float(n)} for n in range(1, 101)]
    found = curve(history, 50)
    assert found["seen"][0] == 50
    assert found["seen"][-1] == 5000
    assert found["validation"][-1] == 100.0
    assert found["seen"] == sorted(set(found["seen"]))


def test_a_network_is_trained_once_and_read_with_what_it_gave(tmp_path: Path) -> None:
    calls = []

    def train(net: nn.Module) -> Mapping[str, Any]:
        calls.append(1)
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.fill_(3.0)
        return {"bound": [1.0, 2.0]}

    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    for net in (first, second):
        found = Runner(str(tmp_path)).network("net", ("a", 1), ["about"], net, lambda net=net: train(net))
        assert found == {"bound": [1.0, 2.0]}
    assert len(calls) == 1
    assert torch.equal(first.weight, second.weight)
    other = Runner(str(tmp_path)).network("net", ("a", 1), ["another"], second, lambda: {"bound": [5.0]})
    assert other == {"bound": [5.0]}


def test_evidence_counts_the_networks_in_which_estimator_a_varies_more() -> None:
    def run(value: float, gradient: float) -> Mapping[str, Mapping[str, Mapping[str, float]]]:
        wide = {estimators.VALUE: value, estimators.GRADIENT: gradient}
        return {"variances": {"A": wide, "B": dict.fromkeys(wide, 1.0)}}

    found = Trained({}, {("mnist", 3, "A"): [{}], ("mnist", 3, "B"): [run(0.5, 2.0), run(0.5, 0.5)]})
    words = [claim.evidence for claim in estimators.claims(found, estimators.Settings())]
    assert "0 of 2 networks" in words[1]
    assert "1 of 2 networks" in words[2]


def test_evidence_has_the_range_of_the_bound_over_codes_for_each_batch() -> None:
    bounds = {(1, 20): 600.0, (2, 20): 700.0, (1, 100): 745.0, (2, 100): 750.0}
    found = Trained({}, {pair: [{"validation": [bound]}] for pair, bound in bounds.items()})
    first, _ = batches.claims(found, batches.Settings(samples=(1, 2), batches=(20, 100)))
    assert "100 (M = 20), 5 (M = 100) nats" in first.evidence


@pytest.mark.parametrize("model", implicit.MODELS)
def test_the_exact_posterior_sums_to_one_and_its_cells_are_fine_enough(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence, posterior = implicit.exact(model, 0.2)
    assert torch.allclose(posterior.exp().sum((1, 2)), torch.ones(len(evidence), dtype=torch.double))
    monkeypatch.setattr(implicit, "CELLS", 800)
    assert torch.allclose(implicit.exact(model, 0.2)[0], evidence, atol=1e-6)


@pytest.mark.parametrize(
    ("cut", "fewest"),
    [
        (10.5, "normal 3, sparse Beta 1, two normals 1."),
        (14.0, "normal 3, sparse Beta 3, two normals 3."),
    ],
)
def test_evidence_has_the_fewest_bits_that_keep_an_image(cut: float, fewest: str) -> None:
    table = Table()
    for name, one_bit in ((priors.NORMAL, 20.0), (priors.BETA, cut), (priors.TWO, cut)):
        errors = {priors._column(1): one_bit, priors._column(3): 10.9}
        for _ in range(2):
            table.add(name, {priors.CONTINUOUS: 10.0, **errors})
    *_, last = priors.claims(table, priors.Settings(bits=(1, 3)))
    assert fewest in last.evidence
    *_, last = priors.claims(table, priors.Settings(bits=(1,)))
    assert "normal more than 1" in last.evidence
