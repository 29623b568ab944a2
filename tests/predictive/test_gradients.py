"""Derivatives of predictions by inputs and hyperparameters, beside finite differences in double precision."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import osculate as osc
from osculate.inputs import apply, tensors
from osculate.linalg import damped, damping, root
from osculate.structures import REGISTRY
from tests.laws import assert_close, crossed, targets
from tests.zoo import ZOO

STEP, NEAR = 1e-5, 2e-5
#: Networks whose inputs are not numbers, so that there is nothing to differentiate by.
INDICES = {"tied_embedding", "sequence", "gpt", "named_inputs"}
NETWORKS = sorted(name for name in ZOO if name not in INDICES)
GAUSSIAN, CLASSES = osc.likelihoods.Gaussian(0.5), osc.likelihoods.Categorical()


def made(net: str, structure: str, likelihood: osc.likelihoods.Likelihood) -> tuple[osc.posteriors.Gaussian, object]:
    """A posterior with a precision that probes and rank make exact, and test inputs."""
    case = ZOO[net]
    model, x = case.model(), case.x(6)
    options = {"tolerance": 1e-12} if structure == "matrix_free" else {}
    chosen = REGISTRY[structure](**options)
    if case.output != "vector":
        likelihood = osc.likelihoods.Gaussian(0.5)
    q = osc.laplace(model, likelihood, (x, targets(likelihood, model, x)), structure=chosen, prior=2.0, refine=False)
    return q, case.x(3, seed=5)


def check(value: Callable[[Tensor], Tensor], at: Tensor, relative: float = NEAR) -> None:
    """Compare the derivative along a direction with a central difference."""
    leaf = at.detach().clone().requires_grad_()
    out = value(leaf)
    weights = torch.randn(out.shape, generator=torch.Generator().manual_seed(3), dtype=torch.double)
    (gradient,) = torch.autograd.grad((weights * out).sum(), leaf)
    direction = torch.randn(at.shape, generator=torch.Generator().manual_seed(4), dtype=torch.double)
    with torch.no_grad():
        high, low = ((weights * value(at.detach() + s * STEP * direction)).sum() for s in (1, -1))
    expected, found = (high - low) / (2 * STEP), (gradient * direction).sum()
    scale = max(float(gradient.norm() * direction.norm()), abs(float(expected)), 1e-3)
    assert abs(float(found - expected)) <= relative * scale, (float(found), float(expected))


def first_leaf(x: object) -> tuple[Tensor, Callable[[Tensor], object]]:
    """A tensor of numbers among inputs, and a function that puts another one in its place."""
    leaf = next(tensor for tensor in tensors(x).values() if tensor.is_floating_point())
    return leaf, lambda new: apply(lambda tensor: new if tensor is leaf else tensor, x)


def draws(q: osc.posteriors.Gaussian, x: object, via: str = "linearised") -> Tensor:
    return osc.sample_functions(q, x, 3, via=via, generator=torch.Generator().manual_seed(0))


VALUES: dict[str, Callable[[osc.posteriors.Gaussian, object], Tensor]] = {
    "variance": lambda q, x: osc.functional_variance(q, x),
    "diagonal": lambda q, x: osc.functional_variance(q, x, diagonal=True),
    "predictive": lambda q, x: osc.predict(q, x).variance,
    "entropy": lambda q, x: osc.predict(q, x, joint="batch").entropy(),
    "draws": draws,
    "sampled": lambda q, x: draws(q, x, "sampled"),
}


@pytest.mark.parametrize("structure", sorted(REGISTRY))
@pytest.mark.parametrize("what", sorted(VALUES))
def test_by_the_inputs(structure: str, what: str) -> None:
    q, x = made("mlp", structure, GAUSSIAN)
    leaf, place = first_leaf(x)
    check(lambda new: VALUES[what](q, place(new)), leaf)


@pytest.mark.parametrize(("net", "structure"), crossed(NETWORKS, ["kron", "diag", "full", "dual", "matrix_free"]))
def test_by_the_inputs_of_every_network(net: str, structure: str) -> None:
    q, x = made(net, structure, GAUSSIAN)
    leaf, place = first_leaf(x)
    for what in ("diagonal", "draws"):
        check(lambda new, what=what: VALUES[what](q, place(new)), leaf, 1e-4)


@pytest.mark.parametrize("structure", sorted(REGISTRY))
@pytest.mark.parametrize("link", ["mc", "probit", "bridge", "mean_field"])
def test_class_probabilities_by_the_inputs(structure: str, link: str) -> None:
    q, x = made("mlp", structure, CLASSES)
    check(lambda x: osc.predict(q, x, link=link).probs, x)


@pytest.mark.parametrize("structure", sorted(REGISTRY))
@pytest.mark.parametrize("what", sorted(VALUES))
def test_by_prior_precision_noise_and_temperature(structure: str, what: str) -> None:
    q, x = made("mlp", structure, GAUSSIAN)

    def with_values(values: Tensor) -> Tensor:
        likelihood = osc.likelihoods.Gaussian(values[1])
        changed = q.replace(prior=osc.priors.Isotropic(values[0]), likelihood=likelihood, temperature=values[2])
        return VALUES[what](changed, x)

    if structure == "matrix_free" and what in ("draws", "sampled"):
        pytest.skip("draws with a gradient are others than draws without one: see the next test")
    check(with_values, torch.tensor([2.0, 0.5, 0.8], dtype=torch.double))


def test_draws_without_a_matrix_by_the_prior_precision() -> None:
    q, x = made("mlp", "matrix_free", GAUSSIAN)
    draw = lambda p: draws(q.replace(prior=osc.priors.Isotropic(p)), x)  # noqa: E731
    leaf = torch.tensor(2.0, dtype=torch.double, requires_grad=True)
    values = [draw((leaf + step).requires_grad_()) for step in (-STEP, 0.0, STEP)]
    (gradient,) = torch.autograd.grad(values[1].sum(), leaf)
    assert_close(gradient, ((values[2] - values[0]).sum() / (2 * STEP)).detach(), 1e-4)


@pytest.mark.parametrize("net", ["mlp", "conv2d", "attention"])
def test_gradcheck(net: str) -> None:
    q, x = made(net, "kron", CLASSES)
    leaf, place = first_leaf(x)
    leaf = leaf[:2].clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda new: osc.functional_variance(q, new, diagonal=True), leaf)


@pytest.mark.parametrize(
    "structure",
    ["kron", "full", "diag", "block", "dual", "low_rank", pytest.param("matrix_free", marks=pytest.mark.release)],
)
def test_second_derivatives(structure: str) -> None:
    q, x = made("mlp", structure, GAUSSIAN)
    leaf = x[:2].clone().requires_grad_()
    assert torch.autograd.gradgradcheck(
        lambda new: osc.functional_variance(q, new, diagonal=True), leaf, atol=1e-4, rtol=1e-3
    )


def test_the_mean_of_a_refined_posterior() -> None:
    q, x = made("mlp", "kron", CLASSES)
    q = osc.refine(q)
    assert q.offset is not None
    check(lambda x: osc.predict(q, x).probs, x)
    check(lambda x: osc.posteriors.linearised.mean_function(q, x, q.network(x)), x)


def test_nothing_carries_a_graph_without_being_asked() -> None:
    q, x = made("mlp", "kron", GAUSSIAN)
    for value in VALUES.values():
        assert not value(q, x).requires_grad
    leaf = x.clone().requires_grad_()
    with torch.no_grad():
        for value in VALUES.values():
            assert not value(q, leaf).requires_grad
    assert not any(p.requires_grad for p in q.network.module.parameters())


def test_two_backward_passes_through_one_posterior() -> None:
    q, x = made("mlp", "kron", GAUSSIAN)
    precision = torch.tensor(2.0, dtype=torch.double, requires_grad=True)
    q = q.replace(prior=osc.priors.Isotropic(precision))
    for _ in range(2):
        osc.predict(q, x).variance.sum().backward()
    assert float(precision.grad.abs()) > 0


def test_an_indefinite_posterior_refuses() -> None:
    model, x = ZOO["mlp"].model(), ZOO["mlp"].x(6)
    q = osc.laplace(
        model, GAUSSIAN, (x, torch.randn(6, 3).double()), structure="matrix_free", curvature="hessian", prior=5.0
    )
    with pytest.raises(ValueError, match="negative curvature keep the prior"):
        osc.functional_variance(q, x.requires_grad_())


def test_the_jacobian_of_a_variance_by_autograd() -> None:
    q, x = made("mlp", "kron", GAUSSIAN)
    jacobian = torch.autograd.functional.jacobian(lambda x: osc.functional_variance(q, x, diagonal=True), x)
    assert jacobian.shape == (3, 3, *x.shape)
    assert_close(jacobian[0, :, 1], torch.zeros_like(jacobian[0, :, 1]) + jacobian[0, :, 1] * 0, 1.0)


# ---- functions of matrices -------------------------------------------------------------------------------------------


def test_roots_and_dampings_of_matrices_with_equal_eigenvalues() -> None:
    eye = torch.eye(3, dtype=torch.double)
    singular = torch.diag(torch.tensor([1.0, 1.0, 0.0], dtype=torch.double))
    for matrix in (eye, singular + 0.5 * eye):
        leaf = matrix.clone().requires_grad_()
        assert torch.autograd.gradcheck(lambda m: damping(0.5 * (m + m.mT)), leaf)
    factor = torch.randn(4, 2, dtype=torch.double)
    leaf = factor.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(root(leaf @ leaf.mT).square().sum(), leaf)  # the trace of the covariance
    assert_close(gradient, 2 * factor, 1e-6)
    values = torch.tensor([0.0, 1e-9, 3.0], dtype=torch.double)
    assert_close(damped(values), torch.tensor([0.5, 0.5, (1 - 0.5) / 3.0], dtype=torch.double), 1e-8)


@pytest.mark.parametrize("likelihood", [CLASSES, osc.likelihoods.Bernoulli()], ids=["classes", "Bernoulli"])
def test_class_probabilities_of_an_ensemble_by_the_inputs(likelihood: osc.likelihoods.Likelihood) -> None:
    torch.manual_seed(0)
    nets = [torch.nn.Sequential(torch.nn.Linear(2, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3)).double() for _ in "abc"]
    q = osc.posteriors.Ensemble(nets, likelihood)
    check(lambda x: osc.predict(q, x).probs, torch.randn(5, 2).double())
