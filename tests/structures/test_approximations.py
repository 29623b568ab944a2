"""Block structures, corrected eigenvalues and the kinds of curvature beside the dense truth."""

import warnings

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.curvature import reference
from tests.laws import assert_close, targets
from tests.zoo import ZOO

LIKELIHOOD = osc.likelihoods.Categorical()
NETS = ["mlp", "conv2d", "tied", "lstm", "attention", "unet", "gpt"]


def fitted(net: str, structure: str | osc.structures.Structure, curvature: str | osc.curvature.Kind = "ggn") -> tuple:
    model, x = ZOO[net].model(), ZOO[net].x(8)
    y = targets(LIKELIHOOD, model, x)
    return (
        model,
        x,
        y,
        osc.laplace(model, LIKELIHOOD, (x, y), structure=structure, curvature=curvature, prior=0.5, refine=False),
    )


def same_block(q: osc.posteriors.Gaussian) -> Tensor:
    """Which entries of a matrix lie within one block."""
    number = torch.zeros(q.network.space.size, dtype=torch.long)
    for index, block in enumerate(q.structure.blocks):
        number[block.positions] = index
    return number.unsqueeze(1) == number


@pytest.mark.parametrize("net", NETS)
def test_block_is_the_dense_matrix_within_layers(net: str) -> None:
    model, x, y, q = fitted(net, "block")
    assert len(q.structure.blocks) > 1
    assert_close(q.structure.dense(), reference.ggn(model, LIKELIHOOD, x, y) * same_block(q))


@pytest.mark.parametrize("net", NETS)
def test_ekfac_is_never_further_from_the_truth_than_kfac(net: str) -> None:
    model, x, y, kfac = fitted(net, "kron")
    ekfac = fitted(net, "ekfac")[-1]
    truth = reference.ggn(model, LIKELIHOOD, x, y) * same_block(kfac)
    errors = [float((q.structure.dense() - truth).norm()) for q in (kfac, ekfac)]
    assert errors[1] <= errors[0] * (1 + 1e-9)
    assert errors[1] < 0.999 * errors[0]  # and closer wherever several data or positions disagree


@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("structure", ["full", "diag"])
def test_the_empirical_fisher_is_the_sum_of_squared_gradients(structure: str, net: str) -> None:
    model, x, y, q = fitted(net, structure, "empirical_fisher")
    with torch.no_grad():
        scores = LIKELIHOOD.score(model(x), y).flatten(1)
    gradients = torch.einsum("ncp,nc->np", reference.jacobian(model, x), scores)
    truth = gradients.T @ gradients
    assert_close(q.structure.dense(), truth if structure == "full" else truth.diagonal().diag())


@pytest.mark.parametrize("structure", ["full", "block"])
@pytest.mark.parametrize("net", ["mlp", "conv2d", "tied", "attention"])
def test_the_hessian_without_its_negative_directions(net: str, structure: str) -> None:
    with pytest.warns(UserWarning, match="directions of negative curvature"):
        model, x, y, q = fitted(net, structure, "hessian")
    truth = reference.hessian(model, LIKELIHOOD, x, y)
    expected = torch.zeros_like(truth)
    for block in q.structure.blocks:
        values, vectors = torch.linalg.eigh(truth[block.positions][:, block.positions])
        expected[block.positions.unsqueeze(1), block.positions] = vectors * values.clamp(min=0) @ vectors.T
    assert_close(q.structure.dense(), expected)


def test_the_hessian_of_a_linear_network_is_its_ggn_and_warns_of_nothing() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hessian = fitted("linear", "full", "hessian")[-1]
    assert_close(hessian.structure.dense(), fitted("linear", "full")[-1].structure.dense())


def test_the_diagonal_of_the_hessian_is_estimated() -> None:
    model, x, y, q = fitted("linear", "diag", osc.curvature.Hessian(samples=4000))
    truth = reference.hessian(model, LIKELIHOOD, x, y)
    spread = (2 * (truth.square().sum(1) - truth.diagonal().square()) / 4000).sqrt()
    assert bool(((q.structure.dense().diagonal() - truth.diagonal()).abs() < 5 * spread + 1e-12).all())


def below_zero(net: nn.Module, x: Tensor, y: Tensor, samples: int) -> tuple[str, Tensor]:
    hessian = osc.curvature.Hessian(samples)
    with pytest.warns(UserWarning, match="entries of the Hessian's diagonal") as caught:
        q = osc.laplace(
            net, LIKELIHOOD, [(x[:40], y[:40]), (x[40:], y[40:])], structure="diag", curvature=hessian, refine=False
        )
    return " ".join(str(w.message) for w in caught), q.structure.dense().diagonal()


@pytest.mark.parametrize("samples", [1, 100])
def test_noise_of_an_estimated_diagonal_is_not_taken_for_negative_curvature(samples: int) -> None:
    """The negative log-likelihood of a linear network is convex, and strong correlations make its estimate noisy."""
    net = nn.Linear(20, 3).double()
    x = torch.randn(300, 1).double() * torch.tensor([0.1] * 5 + [3.0] * 15) + 0.1 * torch.randn(300, 20).double()
    y = torch.randint(3, (300,))
    assert float(reference.hessian(net, LIKELIHOOD, x, y).diagonal().min()) > 0
    warning, diagonal = below_zero(net, x, y, samples)
    count = int((diagonal == 0).sum())
    assert f"{count} of the 63 entries" in warning
    assert f"{count} of them are below it by less" in warning
    assert "Hessian(samples=" in warning
    assert "directions" not in warning
    assert "train longer" not in warning


def test_entries_of_an_estimated_diagonal_far_below_zero_count_as_negative() -> None:
    net = nn.Sequential(nn.Linear(2, 1, bias=False), nn.Softplus(), nn.Linear(1, 3, bias=False)).double()
    nn.init.zeros_(net[0].weight)
    net[2].weight.data = torch.tensor([[1.0], [0.0], [0.0]]).double()  # a larger output fits better: -log p is concave
    x, y = torch.randn(60, 2).double(), torch.zeros(60, dtype=torch.long)
    negative = reference.hessian(net, LIKELIHOOD, x, y).diagonal() < 0
    warning, diagonal = below_zero(net, x, y, 500)
    count = int(negative.sum())
    assert 0 < count < len(negative)
    assert f"{count} of them are below it by more than 3 standard errors: train longer" in warning
    assert torch.equal(diagonal == 0, negative)


@pytest.mark.parametrize("structure", ["kron", "ekfac"])
def test_structures_of_columns_refuse_the_hessian(structure: str) -> None:
    with pytest.raises(ValueError, match="full Hessian has none.*'full', 'block', 'diag' or 'matrix_free'"):
        fitted("mlp", structure, "hessian")


def test_ekfac_reads_the_data_twice_and_does_not_add() -> None:
    model, x, y, q = fitted("mlp", "ekfac")
    with pytest.raises(ValueError, match="reads the data 2 times"):
        osc.laplace(model, LIKELIHOOD, iter([(x, y)]), structure="ekfac", refine=False)
    with pytest.raises(TypeError, match="cannot be added"):
        q.structure + q.structure


def test_the_dense_matrix_of_blocks_in_single_and_double_precision() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.LayerNorm(3))
    x, y = torch.randn(8, 4), torch.randint(3, (8,))
    q = osc.laplace(model, osc.likelihoods.Categorical(), (x, y), structure="kron", prior=1.0, refine=False)
    dense = q.structure.dense()
    assert len({block.dense().dtype for block in q.structure.blocks}) == 2
    assert dense.dtype == torch.double
    for block in q.structure.blocks:
        assert_close(dense[block.positions[:, None], block.positions], block.dense().double())
