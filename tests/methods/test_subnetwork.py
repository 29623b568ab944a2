"""Subnetworks: the dense matrix restricted to the parameters that are kept, everything else at the mode."""

import pytest
import torch

import osculate as osc
from osculate.curvature import reference
from tests.laws import assert_close, targets
from tests.zoo import ZOO

LIKELIHOOD = osc.likelihoods.Categorical()


def fitted(net: str, select: str | torch.Tensor, structure: str = "full", fraction: float = 0.4) -> tuple:
    model, x = ZOO[net].model(), ZOO[net].x(8)
    y = targets(LIKELIHOOD, model, x)
    subset = osc.Subnetwork(fraction, select)
    return model, x, y, osc.laplace(model, LIKELIHOOD, (x, y), structure=structure, subset=subset, prior=0.5)


@pytest.mark.parametrize("select", ["magnitude", "random", "diag_variance", "function_space"])
@pytest.mark.parametrize("net", ["mlp", "conv2d", "tied", "functional", "attention"])
def test_full_is_the_dense_matrix_of_the_kept_parameters(net: str, select: str) -> None:
    model, x, y, q = fitted(net, select)
    kept = q.structure.covered
    assert int(kept.sum()) == round(0.4 * len(kept))
    truth = reference.ggn(model, LIKELIHOOD, x, y)[kept][:, kept]
    assert_close(q.structure.dense()[kept][:, kept], truth)
    precision = truth + 0.5 * torch.eye(len(truth), dtype=truth.dtype)
    assert_close(q.log_det(), precision.logdet())
    assert_close(q.variance()[kept], precision.inverse().diagonal())
    assert float(q.variance()[~kept].abs().max()) == 0
    J = reference.jacobian(model, x)[..., kept]
    assert_close(osc.functional_variance(q, x), J @ precision.inverse() @ J.mT)
    drawn = q.sample(5)
    assert torch.equal(drawn[:, ~kept], q.mean[~kept].expand(5, -1))
    theta = q.mean[kept]
    expected = (
        LIKELIHOOD.log_prob(model(x), y).sum()
        - 0.25 * theta @ theta
        - 0.5 * (truth / 0.5).add(torch.eye(len(truth), dtype=truth.dtype)).logdet()
    )
    assert_close(osc.log_evidence(q), expected)


@pytest.mark.parametrize("structure", ["full", "block", "diag"])
def test_the_whole_network_is_a_subnetwork_of_itself(structure: str) -> None:
    model, x, y, q = fitted("conv2d", "magnitude", structure, fraction=1.0)
    whole = osc.laplace(model, LIKELIHOOD, (x, y), structure=structure, prior=0.5)
    assert_close(osc.log_evidence(q), osc.log_evidence(whole))
    assert_close(osc.functional_variance(q, x), osc.functional_variance(whole, x))
    best, best_whole = osc.maximise_evidence(q), osc.maximise_evidence(whole)
    assert_close(best.prior.precision, best_whole.prior.precision, 1e-3)


def test_layerwise_evidence_counts_kept_parameters_alone(tmp_path) -> None:
    model, x, y, _ = fitted("mlp", "magnitude")
    q = osc.laplace(model, LIKELIHOOD, (x, y), structure="diag", subset=osc.Subnetwork(0.3))
    gamma = sum(osc.evidence.effective_parameters(q).values())
    assert 0 < gamma < int(q.structure.covered.sum())
    osc.save(q, tmp_path / "q.safetensors")
    again = osc.load(tmp_path / "q.safetensors", ZOO["mlp"].model(seed=5))
    assert_close(osc.functional_variance(again, x), osc.functional_variance(q, x))
    assert_close(osc.log_evidence(again), osc.log_evidence(q))


def test_own_scores_choose() -> None:
    size = sum(p.numel() for p in ZOO["mlp"].model().parameters())
    scores = torch.arange(size).flip(0).double()
    q = fitted("mlp", scores, fraction=3 / size)[-1]
    assert q.structure.covered.nonzero().squeeze(1).tolist() == [0, 1, 2]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        osc.Subnetwork(0.0)
    with pytest.raises(ValueError, match="unknown selection 'biggest'.*'magnitude'"):
        osc.Subnetwork(0.1, "biggest")
    with pytest.raises(ValueError, match="structure='kron' cannot keep single parameters.*'full'"):
        fitted("mlp", "magnitude", "kron")
    with pytest.raises(ValueError, match=r"scores have shape \(3,\)"):
        fitted("mlp", torch.ones(3))
