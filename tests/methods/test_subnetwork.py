"""Subnetworks: the dense matrix restricted to the parameters that are kept, everything else at the mode."""

import re
import warnings

import pytest
import torch
from torch import nn

import osculate as osc
from osculate.curvature import reference
from osculate.curvature.forms import Dense, Lookup, Outer
from osculate.methods.subnetwork import path_variance
from osculate.parameters import Network, trainable
from tests.laws import assert_close, targets
from tests.zoo import ZOO

LIKELIHOOD = osc.likelihoods.Categorical()


def fitted(net: str, select: object, structure: str = "full", fraction: float = 0.4) -> tuple:
    model, x = ZOO[net].model(), ZOO[net].x(8)
    y = targets(LIKELIHOOD, model, x)
    subset = osc.Subnetwork(fraction, select, snapshots=3)
    return (
        model,
        x,
        y,
        osc.laplace(model, LIKELIHOOD, (x, y), structure=structure, subset=subset, prior=0.5, refine=False),
    )


@pytest.mark.parametrize(
    ("net", "select"),
    [
        *((net, "random") for net in ("mlp", "conv2d", "tied", "functional", "attention", "sequence")),
        *(("conv2d", select) for select in ("magnitude", "diag_variance", "function_space", "swag")),
    ],
)
@pytest.mark.filterwarnings("ignore:.*nearly. zero curvature")
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
    theta = q.mean[kept] * (truth.diagonal() > 1e-20 * truth.diagonal().max())  # without the biases of keys, say
    expected = (
        LIKELIHOOD.log_prob(model(x), y).sum()
        - 0.25 * theta @ theta
        - 0.5 * (truth / 0.5).add(torch.eye(len(truth), dtype=truth.dtype)).logdet()
    )
    assert_close(osc.log_evidence(q), expected)


@pytest.mark.parametrize("select", ["function_space", "diag_variance"])
def test_a_single_layer_and_a_head_on_frozen_features_have_subnetworks(select: str) -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    x = torch.randn(9, 4, dtype=torch.double)
    y = torch.arange(9) % 3
    model[0].requires_grad_(False)
    for network, inputs in ((model, x), (nn.Linear(4, 3).double(), x)):
        q = osc.laplace(
            network, LIKELIHOOD, (inputs, y), structure="full", subset=osc.Subnetwork(0.3, select), refine=False
        )
        kept = q.structure.covered
        assert int(kept.sum()) == round(0.3 * len(kept))
        truth = reference.ggn(network, LIKELIHOOD, inputs, y)[kept][:, kept]
        assert_close(q.structure.dense()[kept][:, kept], truth)


def test_the_choice_of_a_batch_normalised_network_says_nothing_of_predicting() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Tanh(), nn.Linear(6, 3)).eval()
    data = torch.randn(30, 4), torch.arange(30) % 3
    subset = osc.Subnetwork(0.3, "swag", snapshots=2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        q = osc.laplace(model, LIKELIHOOD, data, structure="full", prior=1.0, subset=subset, refine=False)
    assert not [each for each in caught if "batch normalisation" in str(each.message)]
    assert int(q.structure.covered.sum()) == round(0.3 * len(q.mean))
    with pytest.warns(UserWarning, match="batch normalisation"):  # which the method itself does say
        osc.methods.SWAG(model, LIKELIHOOD)


@pytest.mark.parametrize("positions", [1, 3])
@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_some_entries_of_each_form_are_those_of_its_rows(positions: int, share: float) -> None:
    torch.manual_seed(0)
    a, g = torch.randn(4, positions, 2, 3), torch.randn(5, 4, positions, 2, 6)
    numbers = torch.tensor([[0, 2, 2], [-1, 1, 0], [2, 2, 2], [6, -1, -1]])[:, :positions]
    for form in (
        Outer(lambda: a, g),
        Lookup.of(numbers, 7, g[..., :1, :]),
        Dense(torch.randn(5, 4, 11)),
    ):
        rows = form.rows()
        kept = (torch.rand(rows.shape[-1]) < share).nonzero().squeeze(-1)
        torch.testing.assert_close(form.entries(kept), rows[..., kept])


@pytest.mark.parametrize("structure", ["full", "block", "diag"])
def test_the_whole_network_is_a_subnetwork_of_itself(structure: str) -> None:
    model, x, y, q = fitted("conv2d", "magnitude", structure, fraction=1.0)
    whole = osc.laplace(model, LIKELIHOOD, (x, y), structure=structure, prior=0.5, refine=False)
    assert_close(osc.log_evidence(q), osc.log_evidence(whole))
    assert_close(osc.functional_variance(q, x), osc.functional_variance(whole, x))
    best, best_whole = osc.maximise_evidence(q), osc.maximise_evidence(whole)
    assert_close(best.prior.precision, best_whole.prior.precision, 1e-3)


def test_layerwise_evidence_counts_kept_parameters_alone(tmp_path) -> None:
    model, x, y, _ = fitted("mlp", "magnitude")
    q = osc.laplace(model, LIKELIHOOD, (x, y), structure="diag", subset=osc.Subnetwork(0.3), refine=False)
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


def test_the_variances_of_a_posterior_choose() -> None:
    model, x, y, _ = fitted("mlp", "magnitude")
    other = osc.laplace(model, LIKELIHOOD, (x, y), structure="diag", prior=0.5, refine=False)
    kept = fitted("mlp", other)[-1].structure.covered
    assert other.variance()[kept].min() >= other.variance()[~kept].max()
    last = osc.laplace(model, LIKELIHOOD, (x, y), structure="diag", prior=0.5, subset="last_layer", refine=False)
    with pytest.raises(ValueError, match="is over 2.weight, 2.bias, the new one over 0.weight"):
        fitted("mlp", last)


def test_scores_are_those_of_the_formulas() -> None:
    model, x, y, _ = fitted("mlp", "magnitude")
    g = reference.ggn(model, LIKELIHOOD, x, y).diagonal()
    squares = reference.jacobian(model, x).square().sum((0, 1))
    # δ = 2, so that scores with and without it differ in their order
    for select, scores in {"function_space": squares / (g + 2.0), "diag_variance": 1 / (g + 2.0)}.items():
        subset = osc.Subnetwork(0.25, select, precision=2.0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kept = osc.laplace(
                model, LIKELIHOOD, (x, y), structure="diag", subset=subset, refine=False
            ).structure.covered
        assert scores[kept].min() >= scores[~kept].max()


def test_weights_only_leaves_vectors_out() -> None:
    model, x, y, _ = fitted("conv2d", "magnitude")
    subset = osc.Subnetwork(1.0, "magnitude", weights_only=True)
    q = osc.laplace(model, LIKELIHOOD, (x, y), structure="full", subset=subset, prior=0.5, refine=False)
    kept = q.network.space.unflatten(q.structure.covered)
    assert {name: bool(mask.all()) for name, mask in kept.items()} == {name: kept[name].ndim > 1 for name in kept}
    assert any(mask.ndim == 1 for mask in kept.values())
    norm, data = nn.LayerNorm(3), (torch.randn(4, 3), torch.randn(4, 3))
    with pytest.raises(ValueError, match="weights_only leaves nothing: weight, bias are vectors"):
        osc.laplace(norm, osc.likelihoods.Gaussian(), data, structure="diag", subset=subset, refine=False)


def dying() -> tuple[nn.Sequential, torch.Tensor, torch.Tensor]:
    """A network of which half of the hidden units are never active."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 20), nn.ReLU(), nn.Linear(20, 1))
    with torch.no_grad():
        model[0].bias[10:] = -50.0
    x = torch.linspace(-1, 1, 40)[:, None]
    return model, x, x.sin()


@pytest.mark.parametrize("select", ["diag_variance", "function_space", "swag"])
def test_dead_weights_are_warned_of_where_they_fill_the_subnetwork(select: str) -> None:
    model, x, y = dying()
    likelihood, subset = osc.likelihoods.Gaussian(0.3), osc.Subnetwork(0.3, select, snapshots=5)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        q = osc.laplace(model, likelihood, (x, y), structure="full", subset=subset, prior=1.0, refine=False)
    messages = [str(w.message) for w in caught if "zero curvature" in str(w.message)]
    variance = osc.functional_variance(q, x, diagonal=True)
    if select != "diag_variance":
        assert not messages
        assert float(variance.min()) > 0
        return
    assert float(variance.max()) == 0
    (message,) = messages
    found = re.match(r"(\d+) of the (\d+) parameters", message)
    assert found
    assert found[1] == found[2] == "18"
    assert "'function_space' or 'swag'" in message


def test_the_path_is_that_of_stochastic_gradient_descent_from_the_mode() -> None:
    model, x, y, _ = fitted("mlp", "magnitude")
    before = {name: p.clone() for name, p in model.named_parameters()}
    network = Network(model, trainable(model))
    theta = {name: p.clone().requires_grad_() for name, p in network.parameters.items()}
    optimizer, snapshots = torch.optim.SGD(theta.values(), 0.05, momentum=0.9), []
    for _ in range(4):  # all data in one batch, so that their order does not matter
        prior = 0.25 * sum(p.square().sum() for p in theta.values())
        loss = (prior - LIKELIHOOD.log_prob(network(x, theta), y).sum()) / len(y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        snapshots.append(network.space.flatten(theta).detach())
    found = path_variance(network, LIKELIHOOD, (x, y), 0.5, 4, 0.05, seed=0)
    assert_close(found, torch.stack(snapshots).var(0, correction=0), 1e-6)
    assert all(torch.equal(before[name], p) and p.grad is None for name, p in model.named_parameters())


def test_the_path_follows_its_seed_and_takes_loaders() -> None:
    model, x, y, _ = fitted("mlp", "magnitude")
    network, generator = Network(model, trainable(model)), torch.Generator().manual_seed(0)
    x, y = (torch.cat([part] * 40) for part in (x, y + 0))
    x = x + torch.randn(x.shape, generator=generator, dtype=x.dtype)
    state = torch.random.get_rng_state()
    first, again, other = (path_variance(network, LIKELIHOOD, (x, y), 1.0, 3, 0.01, seed) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(state, torch.random.get_rng_state())
    batches = list(zip(x.split(128), y.split(128), strict=True))
    assert float(path_variance(network, LIKELIHOOD, batches, 1.0, 3, 0.01, 0).min()) > 0


def test_a_descent_that_diverges_is_refused() -> None:
    model, x, y = dying()
    subset = osc.Subnetwork(0.3, "swag", lr=1e3)
    with pytest.raises(ValueError, match="diverges with the learning rate 1000.*smaller lr"):
        osc.laplace(model, osc.likelihoods.Gaussian(0.1), (x, y), structure="full", subset=subset, refine=False)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="above 0 and at most 1"):
        osc.Subnetwork(0.0)
    with pytest.raises(ValueError, match="learning rate must be positive"):
        osc.Subnetwork(0.1, lr=float("inf"))
    with pytest.raises(ValueError, match="prior precision must be positive"):
        osc.Subnetwork(0.1, precision=0.0)
    with pytest.raises(ValueError, match="at least two snapshots"):
        osc.Subnetwork(0.1, "swag", snapshots=1)
    with pytest.raises(ValueError, match="unknown selection 'biggest'.*'magnitude'"):
        osc.Subnetwork(0.1, "biggest")
    with pytest.raises(TypeError, match=r"a posterior with variance\(\); got int"):
        osc.Subnetwork(0.1, 3)
    with pytest.raises(ValueError, match="structure='kron' cannot keep single parameters.*'full'"):
        fitted("mlp", "magnitude", "kron")
    with pytest.raises(ValueError, match=r"scores have shape \(3,\)"):
        fitted("mlp", torch.ones(3))
    scores = torch.ones(sum(p.numel() for p in ZOO["mlp"].model().parameters()))
    scores[1] = torch.nan
    with pytest.raises(ValueError, match="score of parameter 1 is NaN"):
        fitted("mlp", scores)


def test_a_small_share_of_a_large_layer_takes_the_memory_of_the_share() -> None:
    """The rows of a convolution with 590 thousand weights, 49 positions and 16 columns would take 0.3 GB a datum."""
    model = nn.Sequential(nn.Conv2d(256, 256, 3, padding=1, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(256, 16))  # fmt: skip
    data = torch.randn(2, 256, 7, 7), torch.randint(16, (2,))
    subset = osc.Subnetwork(0.0005, "random")
    q = osc.laplace(model, LIKELIHOOD, data, structure="full", subset=subset, prior=1.0, memory="20MB", refine=False)
    assert osc.functional_variance(q, data[0], memory="20MB").shape == (2, 16, 16)
    with pytest.raises(ValueError, match="raise memory"):
        osc.laplace(
            model, LIKELIHOOD, data, structure="full", subset=osc.Subnetwork(0.9, "random"), memory="1MB", refine=False
        )
