"""The low-rank structure: equal to the full one at full rank, below it otherwise, with the same algebra."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.curvature import reference
from osculate.structures import LowRank
from osculate.structures.blocks import LowRankBlock
from tests.errors import says
from tests.laws import assert_close, check_algebra, check_effective_parameters, check_functional_variance, targets
from tests.zoo import VECTORS, ZOO

CATEGORICAL = osc.likelihoods.Categorical()


def wide(n: int = 60) -> tuple[nn.Module, Tensor, Tensor]:
    """More parameters than test vectors, and more directions in the data than eigenvalues are kept."""
    model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 4)).double()
    x = 2 * torch.randn(n, 5, dtype=torch.double)
    return model, x, targets(CATEGORICAL, model, x)


def fitted(
    structure: str | LowRank, model: nn.Module, x: Tensor, y: Tensor, **options: object
) -> osc.posteriors.Gaussian:
    return osc.laplace(model, CATEGORICAL, (x, y), structure=structure, **{"prior": 0.7, **options}, refine=False)


@pytest.mark.parametrize("net", VECTORS)
def test_at_full_rank_it_equals_full(net: str) -> None:
    model, x = ZOO[net].model(), ZOO[net].x(6)
    y = targets(CATEGORICAL, model, x)
    low, full = fitted("low_rank", model, x, y), fitted("full", model, x, y)
    assert_close(low.structure.dense(), full.structure.dense())
    assert_close(osc.log_evidence(low), osc.log_evidence(full))
    assert_close(low.variance(), full.variance())
    assert_close(osc.functional_variance(low, x), osc.functional_variance(full, x))


def test_few_data_are_exact_in_a_wide_network() -> None:
    """The sketch with random test vectors: 8 data of rank 3 each, 30 test vectors, 164 parameters."""
    model, x, y = wide(8)
    low = fitted(LowRank(rank=24, oversampling=6), model, x, y)
    assert low.structure.blocks[0].sketch.shape == (30, 164)
    assert_close(low.structure.dense(), reference.ggn(model, CATEGORICAL, x, y))


@pytest.mark.parametrize("rank", [5, 40])
def test_the_algebra_is_that_of_its_dense_matrix(rank: int) -> None:
    model, x, y = wide()
    q = fitted(LowRank(rank, oversampling=5), model, x, y)
    prior = osc.priors.Diagonal(torch.linspace(0.1, 2, 164, dtype=torch.double))
    q = q.replace(prior=prior, temperature=1.7)
    check_algebra(q)
    check_effective_parameters(q)
    check_functional_variance(q, reference.jacobian(model, x[:4]), x[:4])


def test_it_lies_below_the_full_matrix_and_comes_closer_with_rank() -> None:
    model, x, y = wide()
    G = reference.ggn(model, CATEGORICAL, x, y)
    errors = []
    for rank in (5, 20, 60):
        q = fitted(LowRank(rank, oversampling=5), model, x, y)
        assert int((torch.linalg.eigvalsh(q.structure.dense()) > 1e-8).sum()) == rank
        difference = G - q.structure.dense()
        assert float(torch.linalg.eigvalsh(difference).min()) > -1e-9 * float(G.norm())
        errors.append(float(difference.norm() / G.norm()))
    assert errors[0] > 2 * errors[1] > 4 * errors[2]
    assert float((q.variance() - fitted("full", model, x, y).variance()).min()) > -1e-9  # never too certain


@pytest.mark.parametrize("kind", ["ggn", "empirical_fisher"])
def test_sketches_add_over_uneven_batches(kind: str) -> None:
    model, x, y = wide()
    chosen = LowRank(rank=20, oversampling=5)
    whole = fitted(chosen, model, x, y, curvature=kind)
    batches = [(x[:1], y[:1]), (x[1:40], y[1:40]), (x[40:], y[40:])]
    parts = osc.laplace(
        model, CATEGORICAL, batches, structure=chosen, curvature=kind, prior=0.7, memory=200_000, refine=False
    )
    assert_close(parts.structure.tensors()["0.sketch"], whole.structure.tensors()["0.sketch"])
    assert_close(osc.log_evidence(parts), osc.log_evidence(whole))


def test_rows_give_the_same_sketch_as_products() -> None:
    model, x, y = wide(10)
    q = fitted(LowRank(rank=20, oversampling=5), model, x, y)
    (block,) = q.structure.blocks
    rows = torch.einsum(
        "vnc,ncp->vnp", CATEGORICAL.root(model(x).detach(), y), reference.jacobian(model, x)[..., block.positions]
    )
    other = LowRankBlock.zero(block.positions, 20, 25, 0, torch.double, torch.device("cpu"))
    other.accumulate(osc.curvature.forms.Dense(rows))
    assert_close(other.sketch, block.sketch)


@pytest.mark.parametrize("kind", ["empirical_fisher", "fisher"])
def test_other_curvatures_equal_those_of_full(kind: str) -> None:
    model, x, y = wide(10)

    def found(structure: str | LowRank) -> Tensor:
        chosen = osc.curvature.Fisher(2, torch.Generator().manual_seed(3)) if kind == "fisher" else kind
        return fitted(structure, model, x, y, curvature=chosen).structure.dense()

    assert_close(found(LowRank(rank=40)), found("full"))


def test_single_precision_agrees_with_double() -> None:
    model, x, y = wide()
    structure = LowRank(rank=30, oversampling=10)
    exact = fitted(structure, model, x, y, prior=1e-3)
    single = fitted(structure, model.float(), x.float(), y, prior=1e-3)
    assert_close(osc.log_evidence(single), osc.log_evidence(exact), 1e-4)
    found, expected = osc.functional_variance(single, x[:5].float()), osc.functional_variance(exact, x[:5])
    assert_close(found.double(), expected, 1e-3)
    assert bool((single.variance() > 0).all())


def test_evidence_tunes_it() -> None:
    model, x, y = wide()
    low, full = (fitted(structure, model, x, y, prior="evidence") for structure in (LowRank(rank=164), "full"))
    assert_close(low.prior.precision, full.prior.precision, 1e-6)


def test_the_evidence_has_gradients_in_precisions_and_noise() -> None:
    model, x, _ = wide(20)
    scale = torch.tensor(0.5, dtype=torch.double, requires_grad=True)
    precision = torch.tensor([0.5, 1.0, 2.0, 3.0], dtype=torch.double, requires_grad=True)
    y = torch.randn(20, 4, dtype=torch.double)
    q = osc.laplace(model, osc.likelihoods.Gaussian(0.5), (x, y), structure=LowRank(rank=10), prior=1.0, refine=False)

    def evidence(precision: Tensor, scale: Tensor) -> Tensor:
        return osc.log_evidence(
            q.replace(prior=osc.priors.Layerwise(precision), likelihood=osc.likelihoods.Gaussian(scale))
        )

    assert torch.autograd.gradcheck(evidence, (precision, scale))


def test_it_is_saved_and_loaded(tmp_path: Path) -> None:
    model, x, y = wide()
    q = fitted(LowRank(rank=12, oversampling=3, seed=5), model, x, y)
    osc.save(q, tmp_path / "q.safetensors")
    again = osc.load(tmp_path / "q.safetensors", model)
    assert again.structure.structure == LowRank(rank=12, oversampling=3, seed=5)
    assert_close(osc.log_evidence(again), osc.log_evidence(q))
    assert_close(osc.functional_variance(again, x[:3]), osc.functional_variance(q, x[:3]))


def test_it_moves_to_another_type() -> None:
    model, x, y = wide()
    q = fitted(LowRank(rank=12), model, x, y)
    assert_close(q.to(dtype=torch.float).structure.dense().double(), q.structure.dense(), 1e-4)


def test_a_subset_of_the_parameters() -> None:
    model, x, y = wide(8)
    q = fitted(LowRank(rank=30), model, x, y, subset=["2.weight", "0.bias"])
    check_functional_variance(q, reference.jacobian(model, x)[..., [*range(80, 96), *range(96, 160)]], x)


@pytest.mark.parametrize("net", ["gpt", "unet", "two_inputs", "named_inputs"])
def test_other_outputs_and_inputs(net: str) -> None:
    model, x = ZOO[net].model(), ZOO[net].x(4)
    likelihood = osc.likelihoods.Gaussian(0.5)
    with torch.no_grad():
        y = likelihood.distribution(osc.inputs.call(model, x)).sample()
    low, full = (
        osc.laplace(model, likelihood, [(x, y)], structure=structure, prior=0.7, refine=False)
        for structure in (LowRank(rank=500), "full")
    )
    assert_close(osc.functional_variance(low, x, diagonal=True), osc.functional_variance(full, x, diagonal=True))
    assert_close(osc.log_evidence(low), osc.log_evidence(full))


@pytest.mark.parametrize("options", [{"rank": 0}, {"oversampling": -1}])
def test_impossible_ranks_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=says("LowRank", *map(str, options.values()))):
        LowRank(**options)


def test_the_hessian_is_refused_with_the_ways_out() -> None:
    with pytest.raises(ValueError, match=says("Hessian", "matrix_free", "curvature='ggn'")):
        fitted("low_rank", *wide(), curvature="hessian")
