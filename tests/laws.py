"""Assertions shared by many tests: what must hold for every structure, likelihood and network."""

from collections.abc import Iterable
from itertools import cycle, product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.inputs import Inputs, call
from osculate.posteriors import Gaussian

#: Relative agreement asked of exact results in float64.
EXACT = 1e-8

#: Structures that take every network and are exact in their own algebra; the others need a bottleneck, or estimate.
STRUCTURES = tuple(name for name in osc.structures.REGISTRY if name not in ("mixed_diag", "matrix_free"))


def crossed(first: Iterable[Any], *others: Iterable[Any], quick: int = 1) -> list[Any]:
    """Parameters of a test: all combinations, of which a few stay unmarked.

    For each entry of the first axis ``quick`` combinations of the others stay unmarked. They are taken in turn, so that
    entries of all axes are in an unmarked test where the first axis is long enough. Of the rest every second one is
    slow, and the others wait for a release.
    """
    combinations = list(product(*others))
    found = []
    for number, entry in enumerate(first):
        unmarked = {(number * quick + turn) % len(combinations) for turn in range(quick)}
        later = cycle((pytest.mark.slow, pytest.mark.release)[:: -1 if number % 2 else 1])
        for place, each in enumerate(combinations):
            marks = () if place in unmarked else next(later)
            found.append(pytest.param(entry, *each, marks=marks, id="-".join((entry, *each))))
    return found


def in_turn(names: Iterable[Any]) -> list[Any]:
    """Parameters of a test: of four one stays unmarked, one is slow, and two wait for a release."""
    marks = ((), pytest.mark.slow, pytest.mark.release, pytest.mark.release)
    return [pytest.param(name, marks=each) for name, each in zip(names, cycle(marks))]


def assert_close(found: Tensor, expected: Tensor, relative: float = EXACT) -> None:
    """Equal up to a tolerance relative to the largest entry expected."""
    found, expected = torch.as_tensor(found), torch.as_tensor(expected)
    assert found.shape == expected.shape, (found.shape, expected.shape)
    scale = float(expected.detach().abs().max().clamp(min=1e-30))
    error = float((found.to(expected) - expected).detach().abs().max()) / scale
    assert error <= relative, f"relative error {error:.2e} > {relative:.0e}"


def targets(likelihood: osc.likelihoods.Likelihood, model: nn.Module, x: Inputs, seed: int = 2) -> Tensor:
    """Targets drawn from the likelihood at the network's outputs."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        return likelihood.distribution(call(model, x)).sample()


def dense_precision(q: Gaussian) -> Tensor:
    """The posterior precision as a matrix, from the structure's own dense curvature and the prior vector."""
    scale = q.likelihood.curvature_scale(q.fit.likelihood) / q.temperature
    return scale * q.structure.dense() + q.prior.vector(q.network.space).to(q.mean).diag()


def check_algebra(q: Gaussian) -> None:
    """Every verb of a posterior agrees with the dense matrix."""
    dense = dense_precision(q)
    inverse = dense.inverse()
    v = torch.randn(3, len(dense), dtype=dense.dtype)
    assert_close(q.log_det(), dense.logdet())
    assert_close(q.precision.multiply(v), v @ dense)
    assert_close(q.precision.multiply(q.precision.solve(v)), v)
    assert_close(q.variance(), inverse.diagonal())
    eye = torch.eye(len(dense), dtype=dense.dtype)
    columns = q.precision.colour(eye)  # row p is M e_p
    assert_close(columns.T @ columns, inverse)
    density = torch.distributions.MultivariateNormal(q.mean, precision_matrix=dense)
    theta = q.mean + v
    assert_close(q.log_prob(theta), density.log_prob(theta))


def check_functional_variance(q: Gaussian, jacobian: Tensor, x: Inputs) -> None:
    """J Λ⁻¹ Jᵀ from the factors equals the dense product, in blocks, on the diagonal, and over the batch."""
    inverse = dense_precision(q).inverse()
    expected = jacobian @ inverse @ jacobian.mT
    assert_close(osc.functional_variance(q, x), expected)
    variance = osc.functional_variance(q, x, diagonal=True)
    assert variance.shape == q.network(x).shape
    assert_close(variance.flatten(1), expected.diagonal(dim1=1, dim2=2))
    flat = jacobian.flatten(0, 1)
    found = osc.posteriors.linearised.joint_covariance(q, x)[1]
    assert_close(found, flat @ inverse @ flat.T)


def check_effective_parameters(q: Gaussian) -> None:
    """γ equals 1 − δ_p (Λ⁻¹)_pp, and as totals the slope of the log determinant in the prior precisions."""
    expected = 1 - q.prior.vector(q.network.space).to(q.mean) * dense_precision(q).inverse().diagonal()
    assert_close(q.precision.effective_parameters(), expected)
    assert_close(q.precision.effective_parameters_by_tensor(), q.network.space.totals(expected))
