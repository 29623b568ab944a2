"""Layers that work on rows picked by their values: portions of unequal length are never taken for equal ones."""

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.curvature.reference import ggn

LIKELIHOOD = osc.likelihoods.Categorical()
LABELS = torch.tensor([0, 2, 1, 1])


class Unpadded(nn.Module):
    """Works on the tokens that are no padding, all data's together, as fast attention does."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(3, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        kept = x[..., 0] > -50
        hidden = x.new_zeros(*x.shape[:2], 4)
        hidden[kept] = torch.tanh(self.inner(x[kept]))
        return self.head(hidden.mean(1))


def sequences(*lengths: int) -> Tensor:
    x = torch.randn(len(lengths), 6, 3, dtype=torch.double)
    for row, length in zip(x, lengths, strict=True):
        row[length:, 0] = -99
    return x


@pytest.mark.parametrize("lengths", [(3, 1, 6, 6), (3, 6, 3, 4), (4, 2, 6, 4), (2, 3, 6, 1)])
def test_unequal_portions_in_the_first_batch_go_to_the_fallback(lengths: tuple) -> None:
    model = Unpadded().double()
    x = sequences(*lengths)
    q = osc.laplace(model, LIKELIHOOD, (x, LABELS), structure="full", prior=1.0, refine=False)
    torch.testing.assert_close(q.structure.dense(), ggn(model, LIKELIHOOD, x, LABELS))


def test_unequal_portions_in_a_later_batch_are_refused() -> None:
    model, whole, ragged = Unpadded().double(), sequences(6, 6, 6, 6), sequences(3, 1, 6, 6)
    batches = [(whole, LABELS), (ragged, LABELS)]
    with pytest.raises(ValueError, match="first batch"):
        osc.laplace(model, LIKELIHOOD, batches, structure="diag", prior=1.0, refine=False)
    q = osc.laplace(model, LIKELIHOOD, batches[:1], structure="diag", prior=1.0, refine=False)
    with pytest.raises(ValueError, match="inner"):
        osc.predict(q, ragged)
    osc.predict(osc.laplace(model, LIKELIHOOD, batches[::-1], structure="diag", prior=1.0, refine=False), whole)


def test_batches_of_other_lengths_are_no_offence() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    batches = [(torch.randn(4, t, 3, dtype=torch.double), torch.randint(3, (4, t))) for t in (6, 2)]
    q = osc.laplace(model, LIKELIHOOD, batches, structure="full", prior=1.0, refine=False)
    truth = sum(ggn(model, LIKELIHOOD, x, y) for x, y in batches)
    torch.testing.assert_close(q.structure.dense(), truth)


def test_one_datum_at_a_time_does_not_hide_a_dependence() -> None:
    class Centred(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(x - x.mean(0) if len(x) > 1 else x)

    with pytest.raises(ValueError, match="depends on the other inputs"):
        osc.laplace(Centred(), LIKELIHOOD, [(torch.randn(1, 3), LABELS[:1])], prior=1.0, refine=False)
