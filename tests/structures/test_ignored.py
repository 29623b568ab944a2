"""Ignored targets leave no trace, as if their positions were not there."""

import pytest
import torch
from torch import nn

import osculate as osc

IGNORED = -100


@pytest.mark.parametrize("structure", ["kron", "ekfac", "diag", "full"])
@pytest.mark.parametrize("curvature", ["ggn", "empirical_fisher"])
@pytest.mark.parametrize("table", [False, True])
def test_padding_changes_nothing(structure: str, curvature: str, table: bool) -> None:
    body = nn.Embedding(7, 4) if table else nn.Linear(5, 4)
    network = nn.Sequential(body, nn.Tanh(), nn.Linear(4, 3)).double()
    x = torch.randint(7, (6, 4)) if table else torch.randn(6, 4, 5, dtype=torch.double)
    y = torch.randint(3, (6, 4))
    padding = torch.full_like(x, 3) if table else 9 * torch.randn_like(x)
    padded = torch.cat([x, padding], 1), torch.cat([y, torch.full_like(y, IGNORED)], 1)
    likelihood = osc.likelihoods.Categorical(ignore_index=IGNORED)
    options = {"structure": structure, "curvature": curvature, "prior": 1.0}
    plain, ignoring = (osc.laplace(network, likelihood, data, **options, refine=False) for data in ((x, y), padded))
    torch.testing.assert_close(ignoring.structure.dense(), plain.structure.dense())
    torch.testing.assert_close(osc.log_evidence(ignoring), osc.log_evidence(plain))


@pytest.mark.parametrize("structure", ["kron", "ekfac"])
def test_positions_are_counted_alike_in_batches_with_ignored_targets_and_without(structure: str) -> None:
    """A dead unit leaves columns of zeros, which are no mark of an ignored target."""
    network = nn.Sequential(nn.Linear(2, 1), nn.ReLU(), nn.Linear(1, 3)).double()
    nn.init.ones_(network[0].weight)
    x = torch.tensor([[1.0, 2.0], [-3.0, -1.0], [2.0, 1.0], [1.0, 1.0]], dtype=torch.double)
    y = torch.tensor([0, 1, 2, IGNORED])
    likelihood = osc.likelihoods.Categorical(ignore_index=IGNORED)
    options = {"structure": structure, "prior": 1.0, "refine": False}
    whole = osc.laplace(network, likelihood, (x, y), **options)
    parts = osc.laplace(network, likelihood, [(x[:3], y[:3]), (x[3:], y[3:])], **options)
    torch.testing.assert_close(parts.structure.dense(), whole.structure.dense())


@pytest.mark.parametrize("sharing", ["expand", "reduce"])
@pytest.mark.parametrize("structure", ["kron", "ekfac"])
@pytest.mark.parametrize("table", [False, True])
def test_columns_in_chunks_count_the_same_positions(structure: str, sharing: str, table: bool) -> None:
    """The first chunk, with which the inputs are read, has the columns of a few positions."""
    body = nn.Embedding(7, 4) if table else nn.Linear(5, 4)
    network = nn.Sequential(body, nn.Tanh(), nn.Linear(4, 3)).double()
    x = torch.randint(7, (6, 5)) if table else torch.randn(6, 5, 5, dtype=torch.double)
    y = torch.randint(3, (6, 5)).index_fill_(1, torch.tensor([1, 4]), IGNORED)
    options = {
        "structure": osc.structures.REGISTRY[structure](sharing=sharing),  # type: ignore[call-arg]
        "prior": 1.0,
        "refine": False,
    }
    likelihood = osc.likelihoods.Categorical(ignore_index=IGNORED)
    whole, chunks = (osc.laplace(network, likelihood, (x, y), memory=memory, **options) for memory in (None, 5_700))
    torch.testing.assert_close(chunks.structure.dense(), whole.structure.dense())


def test_a_long_sequence_counts_every_position() -> None:
    """It has more columns than are pulled back at once at any memory."""
    network = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 3)).double()
    x, y = torch.randn(2, 300, 2, dtype=torch.double), torch.randint(3, (2, 300))
    options = {"structure": "kron", "prior": 1.0, "refine": False}
    plain, ignoring = (
        osc.laplace(network, osc.likelihoods.Categorical(ignore_index=ignored), (x, y), **options)
        for ignored in (None, IGNORED)
    )
    torch.testing.assert_close(ignoring.structure.dense(), plain.structure.dense())
