"""Weights that are used at several positions: each position as a datum, or all positions together."""

import pytest
import torch
from torch import Tensor, nn

import osculate as osc

DOUBLE = torch.double


class Pooled(nn.Module):
    """Convolutions whose outputs are pooled over all positions."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 3, 3, padding=1), nn.Tanh(), nn.Conv2d(3, 4, 3, padding=1), nn.Tanh())
        self.last = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.layers(x).mean((2, 3)))


def dense(model: nn.Module, x: Tensor, y: Tensor, structure: object) -> Tensor:
    q = osc.laplace(model, osc.likelihoods.Categorical(), (x, y), structure=structure, prior=1.0, refine=False)
    return q.structure.dense()


def error(model: nn.Module, x: Tensor, y: Tensor, sharing: str, structure: type = osc.structures.Kron) -> float:
    exact = dense(model, x, y, "block")
    return float((dense(model, x, y, structure(sharing=sharing)) - exact).norm() / exact.norm())


def pooled() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    return Pooled().double(), torch.randn(20, 1, 6, 6, dtype=DOUBLE), torch.randint(3, (20,))


def sequence() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 3)).double()
    return model, torch.randn(20, 7, 3, dtype=DOUBLE), torch.randint(3, (20, 7))


def test_pooled_positions_are_taken_together() -> None:
    errors = {sharing: error(*pooled(), sharing) for sharing in ("expand", "reduce", "auto")}
    assert errors["reduce"] < 0.6 * errors["expand"]
    assert errors["auto"] <= min(errors["reduce"], errors["expand"]) * 1.01


def test_outputs_at_every_position_are_not() -> None:
    errors = {sharing: error(*sequence(), sharing) for sharing in ("expand", "reduce", "auto")}
    assert errors["expand"] < errors["reduce"]
    assert errors["auto"] == errors["expand"]


def test_the_eigenbasis_may_be_shared_too() -> None:
    assert error(*pooled(), "reduce", osc.structures.EKFAC) < error(*pooled(), "reduce")


def test_without_sharing_all_are_the_same() -> None:
    model, x, y = nn.Linear(4, 3).double(), torch.randn(9, 4, dtype=DOUBLE), torch.randint(3, (9,))
    each = [dense(model, x, y, osc.structures.Kron(sharing=sharing)) for sharing in ("expand", "reduce", "auto")]
    assert torch.equal(each[0], each[1])
    assert torch.equal(each[0], each[2])


def test_ignored_positions_do_not_count() -> None:
    model, x, y = sequence()
    likelihood = osc.likelihoods.Categorical(ignore_index=-100)
    y = y.clone()
    y[:, 4:] = -100
    short, padded = (
        osc.laplace(model, likelihood, data, structure=osc.structures.Kron(sharing="reduce"), prior=1.0, refine=False)
        for data in ((x[:, :4], y[:, :4]), (x, y))
    )
    assert torch.allclose(short.structure.dense(), padded.structure.dense())


@pytest.mark.parametrize("sharing", ["expand", "reduce", "auto"])
def test_data_without_targets_do_not_count(sharing: str) -> None:
    model, x, y = sequence()
    likelihood = osc.likelihoods.Categorical(ignore_index=-100)
    y = y.clone()
    y[12:] = -100
    short, padded = (
        osc.laplace(model, likelihood, data, structure=osc.structures.Kron(sharing=sharing), prior=1.0, refine=False)
        for data in ((x[:12], y[:12]), (x, y))
    )
    assert torch.allclose(short.structure.dense(), padded.structure.dense())


def test_decisions_that_differ_do_not_add() -> None:
    model, x, y = pooled()
    structure = osc.structures.Kron(sharing="auto")
    one, other = (
        osc.laplace(model, osc.likelihoods.Categorical(), data, structure=structure, prior=1.0, refine=False).fit
        for data in ((x[:10], y[:10]), (x[10:], y[10:]))
    )
    added = (one + other).curvature + one.curvature
    decisions = [int(block.reduces) for block in added.blocks]
    assert decisions == [int(block.reduces) for block in one.curvature.blocks]
    assert 1 in decisions
    block = other.curvature.blocks[decisions.index(1)]
    block.reduces.fill_(0)
    with pytest.raises(ValueError, match=r"sharing='auto' chose.*sharing='expand'"):
        one + other
    block.reduces.fill_(-1)
    assert decisions == [int(block.reduces) for block in (other + one).curvature.blocks]


def test_a_running_average_has_one_treatment() -> None:
    model, structure = pooled()[0], osc.structures.Kron(sharing="auto")
    with pytest.raises(ValueError, match="decide differently for each batch.*'reduce'"):
        osc.methods.OnlineLaplace(model, osc.likelihoods.Categorical(), structure=structure)


def test_an_unknown_treatment_is_refused() -> None:
    with pytest.raises(ValueError, match=r"sharing.*'expand'"):
        osc.structures.Kron(sharing="reduced")
