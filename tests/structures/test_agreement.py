"""Every structure over the zoo: exact where it claims to be, and its algebra equal to its own dense matrix."""

from collections.abc import Iterator
from functools import cache

import pytest
import torch

import osculate as osc
from osculate.curvature import reference
from osculate.curvature.columns import Columns
from osculate.curvature.engine import Piece, pieces
from osculate.curvature.forms import Unit
from osculate.curvature.rules import RULES
from osculate.inputs import take
from tests.laws import (
    STRUCTURES,
    assert_close,
    check_algebra,
    check_effective_parameters,
    check_functional_variance,
    crossed,
    in_turn,
    targets,
)
from tests.zoo import ZOO

LIKELIHOODS = {
    "categorical": osc.likelihoods.Categorical(),
    "bernoulli": osc.likelihoods.Bernoulli(),
    "gaussian": osc.likelihoods.Gaussian(0.5),
    "gaussian per output": osc.likelihoods.Gaussian(torch.tensor([0.3, 1.0, 2.0], dtype=torch.double)),
}
PRIORS = {
    "isotropic": osc.priors.Isotropic(0.7),
    "layerwise": osc.priors.Layerwise(1.3),
    "diagonal": osc.priors.Diagonal(0.4),
}


def uneven(prior: osc.priors.Prior, space: osc.parameters.ParameterSpace) -> osc.priors.Prior:
    """The prior with a different precision in each of its groups."""
    precision = prior.bind(space).precision.double()
    return prior.bind(space).with_precision(
        precision * torch.linspace(0.3, 3.0, max(1, precision.numel())).reshape(precision.shape)
    )


@cache
def fitted(net: str, likelihood: osc.likelihoods.Likelihood, structure: str) -> tuple:
    """A network with data and a posterior, from uneven batches; made once."""
    case = ZOO[net]
    model, x = case.model(), case.x(6)
    y = targets(likelihood, model, x)
    batches = [(take(x, part), y[part]) for part in (slice(1), slice(1, 4), slice(4, 6))]
    return model, x, y, osc.laplace(model, likelihood, batches, structure=structure, prior=0.7, refine=False)


@cache
def jacobian(net: str) -> torch.Tensor:
    """The dense reference of a network, made once."""
    return reference.jacobian(ZOO[net].model(), ZOO[net].x(6))


@pytest.mark.parametrize("net", ZOO)
def test_no_network_of_the_zoo_is_dead(net: str) -> None:
    silent = jacobian(net).abs().amax((0, 1)) == 0
    assert float(silent.double().mean()) < 0.6  # with too few parameters that matter, agreement would mean nothing


@pytest.mark.parametrize(("net", "likelihood"), crossed(ZOO, LIKELIHOODS))
def test_full_and_diag_equal_the_dense_reference(net: str, likelihood: str) -> None:
    chosen = LIKELIHOODS[likelihood]
    if likelihood == "gaussian per output" and ZOO[net].output != "vector":
        pytest.skip("a scale for each of three outputs")
    model, x, y, full = fitted(net, chosen, "full")
    truth = reference.ggn(model, chosen, x, y)
    assert_close(full.structure.dense(), truth)
    diag = osc.laplace(model, chosen, (x, y), structure="diag", prior=0.7, refine=False)
    assert_close(diag.structure.dense(), truth.diagonal().diag())


@pytest.mark.parametrize(("net", "structure", "prior"), crossed(ZOO, STRUCTURES, PRIORS, quick=2))
def test_posterior_algebra_equals_that_of_its_dense_matrix(net: str, structure: str, prior: str) -> None:
    if structure in ("kron", "ekfac") and prior == "diagonal":
        pytest.skip("refused, see test_errors")
    _, x, _, q = fitted(net, LIKELIHOODS["categorical"], structure)
    q = q.replace(prior=uneven(PRIORS[prior], q.network.space), temperature=1.7)
    check_algebra(q)
    check_effective_parameters(q)
    check_functional_variance(q, jacobian(net), x)


@pytest.mark.parametrize(("net", "structure"), crossed(ZOO, STRUCTURES))
def test_uneven_batches_equal_one_batch(net: str, structure: str) -> None:
    model, x, y, parts = fitted(net, LIKELIHOODS["categorical"], structure)
    whole = osc.laplace(model, LIKELIHOODS["categorical"], (x, y), structure=structure, prior=0.7, refine=False)
    for name, tensor in whole.structure.tensors().items():
        assert_close(parts.structure.tensors()[name], tensor)
    assert_close(osc.log_evidence(parts), osc.log_evidence(whole))


def test_fits_add_over_data_sets() -> None:
    model, x, y, whole = fitted("mlp", LIKELIHOODS["gaussian"], "kron")
    one, two = (
        osc.laplace(model, LIKELIHOODS["gaussian"], (x[s], y[s]), prior=0.7, refine=False)
        for s in (slice(4), slice(4, None))
    )
    both = one.replace(fit=one.fit + two.fit)
    assert both.num_data == 6
    assert_close(osc.log_evidence(both), osc.log_evidence(whole))


def test_kron_is_exact_on_one_linear_layer_with_a_gaussian_likelihood() -> None:
    model, x, y, kron = fitted("linear", LIKELIHOODS["gaussian per output"], "kron")
    assert_close(kron.structure.dense(), reference.ggn(model, LIKELIHOODS["gaussian per output"], x, y))


def test_kron_is_the_mean_of_inputs_times_the_sum_of_outputs() -> None:
    likelihood = LIKELIHOODS["categorical"]
    model, x, y, kron = fitted("linear", likelihood, "kron")
    a = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], 1)
    with torch.no_grad():
        outputs = likelihood.hessian(model(x), y).sum(0)
    order = kron.structure.blocks[0].positions  # (O, I + 1) to the order of named_parameters
    expected = torch.kron(outputs, a.T @ a / len(x))
    assert_close(kron.structure.dense()[order[:, None], order], expected)


def test_kron_counts_every_position_of_a_convolution() -> None:
    """[grosse2016], written as a loop over data and positions."""
    model, likelihood = (
        torch.nn.Sequential(torch.nn.Conv1d(2, 3, 2), torch.nn.Flatten()).double(),
        LIKELIHOODS["gaussian"],
    )
    x = torch.randn(4, 2, 5, dtype=torch.double)
    q = osc.laplace(
        model, likelihood, (x, torch.zeros(4, 12, dtype=torch.double)), structure="kron", prior=1.0, refine=False
    )
    a = torch.stack([torch.cat([x[n, :, r : r + 2].reshape(-1), torch.ones(1)]) for n in range(4) for r in range(4)])
    outputs = 4 * 4 * torch.eye(3, dtype=torch.double) / 0.5**2  # each position has an identity column for each channel
    block = q.structure.blocks[0]
    assert_close(block.inputs[0] / block.count, a.T @ a / 16)
    assert_close(block.outputs[0], outputs)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_the_fisher_tends_to_the_ggn(structure: str) -> None:
    model, x = ZOO["mlp"].model(), ZOO["mlp"].x(6)
    likelihood = LIKELIHOODS["categorical"]
    y = targets(likelihood, model, x)
    draws = osc.curvature.Fisher(samples=20_000, generator=torch.Generator().manual_seed(0))
    sampled = osc.laplace(
        model, likelihood, (x, y), structure=structure, curvature=draws, prior=1.0, refine=False
    ).structure.dense()
    exact = osc.laplace(model, likelihood, (x, y), structure=structure, prior=1.0, refine=False).structure.dense()
    assert_close(sampled, exact, 0.05)
    one = osc.laplace(
        model, likelihood, (x, y), structure=structure, curvature="fisher", prior=1.0, refine=False
    ).structure.dense()
    assert float((one - exact).abs().max()) > 0.05 * float(exact.abs().max())  # one draw is not the expectation


@pytest.mark.parametrize("net", in_turn(ZOO))
def test_without_any_rule_the_fallback_gives_the_same(net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, y, q = fitted(net, LIKELIHOODS["categorical"], "full")
    for operation in list(RULES):
        monkeypatch.delitem(RULES, operation)
    slow = osc.laplace(model, LIKELIHOODS["categorical"], (x, y), structure="full", prior=0.7, refine=False)
    assert all(block.kind == "fallback" for block in slow.fit.plan.blocks)
    assert_close(slow.structure.dense(), q.structure.dense())


def test_outputs_of_several_axes_are_flattened() -> None:
    model = torch.nn.Sequential(torch.nn.Conv1d(1, 2, 2)).double()
    x = torch.randn(5, 1, 4, dtype=torch.double)
    q = osc.laplace(
        model,
        LIKELIHOODS["gaussian"],
        (x, torch.randn(5, 2, 3, dtype=torch.double)),
        structure="full",
        prior=1.0,
        refine=False,
    )
    assert osc.functional_variance(q, x).shape == (5, 6, 6)
    assert osc.predict(q, x).mean.shape == (5, 2, 3)
    check_functional_variance(q, reference.jacobian(model, x), x)


@pytest.mark.parametrize("structure", ["kron", "ekfac", "diag", "full"])
def test_a_last_layer_in_closed_form_equals_its_dense_matrix(structure: str) -> None:
    model, x = ZOO["conv2d"].model(), ZOO["conv2d"].x(6)
    likelihood = LIKELIHOODS["categorical"]
    y = targets(likelihood, model, x)
    q = osc.laplace(model, likelihood, (x, y), structure=structure, subset="last_layer", prior=0.7, refine=False)
    q = q.replace(prior=uneven(PRIORS["layerwise"], q.network.space))
    for name, p in model.named_parameters():
        p.requires_grad_(name in q.network.space.names)
    check_functional_variance(q, reference.jacobian(model, x), x)
    piece = next(iter(projected_pieces(q, x)))
    assert isinstance(next(iter(piece.forms.values())), Unit)


def projected_pieces(q: osc.posteriors.Gaussian, x: torch.Tensor) -> Iterator[Piece]:
    plan = q.fit.plan
    return pieces(q.network, plan, x, lambda f, part: Columns.units(f, 1), plan.outputs, None)
