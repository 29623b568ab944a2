"""The parts of linlap-subnetwork measure what they say."""

import pytest
import torch
from torch import nn

from experiments import Table
from experiments.linlap.subnetwork import BETWEEN, DIAGONAL, FULL, INSIDE, Settings, between, claims, with_dropout


def test_ratios_of_rows_that_were_measured_and_warnings_are_in_the_evidence() -> None:
    table = Table()
    for name, apart in ((FULL, 0.3), (DIAGONAL, 0.06)):
        table.add(f"toy: {name}", {BETWEEN: apart, INSIDE: 0.05})
    evidence = [claim.evidence for claim in claims(table, [True, False], Settings())]
    assert "full 6; diagonal 1.2." in evidence[0]
    assert "in 1 of 2 runs" in evidence[1]
    assert evidence[2].startswith("8,000 images, lenet;")


def test_between_is_within_the_two_largest_gaps() -> None:
    x = torch.tensor([3.0, 0.0, 0.1, 1.1, 1.2, 3.1])[:, None]  # gaps of 1.0 and of 1.8
    found = between(x).flatten()
    low, high = found[found < 1.15], found[found > 1.15]
    assert [float(part) for part in (low.min(), low.max(), high.min(), high.max())] == pytest.approx(
        [0.2, 1.0, 1.38, 2.82]
    )


def test_dropout_follows_each_activation_of_a_copy() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
    dropping = with_dropout(model, 0.3)
    assert [type(layer) for layer in dropping] == [nn.Linear, nn.ReLU, nn.Dropout, nn.Linear]
    assert dropping[0].weight is not model[0].weight
    assert torch.equal(dropping.eval()(torch.ones(1, 2)), model(torch.ones(1, 2)))
