"""Each likelihood: closed forms equal the autograd defaults, roots are roots, targets are checked."""

import pytest
import torch
from torch import Tensor

import osculate as osc
from osculate.likelihoods import Likelihood
from tests.laws import assert_close

CASES = {
    "categorical": osc.likelihoods.Categorical(),
    "bernoulli": osc.likelihoods.Bernoulli(),
    "gaussian": osc.likelihoods.Gaussian(0.7),
    "gaussian per output": osc.likelihoods.Gaussian(torch.tensor([0.3, 1.0, 2.0, 0.5])),
}


def outputs_and_targets(likelihood: Likelihood) -> tuple[Tensor, Tensor]:
    f = torch.randn(5, 4, dtype=torch.double) * 2
    return f, likelihood.distribution(f).sample()


def test_every_registered_likelihood_is_tested() -> None:
    assert {type(likelihood) for likelihood in CASES.values()} == set(osc.likelihoods.REGISTRY.values())


@pytest.mark.parametrize("likelihood", CASES.values(), ids=CASES)
def test_log_prob_is_that_of_the_distribution(likelihood: Likelihood) -> None:
    f, y = outputs_and_targets(likelihood)
    assert_close(likelihood.log_prob(f, y), likelihood.distribution(f).log_prob(y).reshape(5, -1).sum(-1))


@pytest.mark.parametrize("likelihood", CASES.values(), ids=CASES)
def test_hessian_equals_the_autograd_default(likelihood: Likelihood) -> None:
    f, y = outputs_and_targets(likelihood)
    assert_close(likelihood.hessian(f, y), Likelihood.hessian(likelihood, f, y))


@pytest.mark.parametrize("likelihood", CASES.values(), ids=CASES)
@pytest.mark.parametrize("default", [False, True])
def test_root_times_its_transpose_is_the_hessian(likelihood: Likelihood, default: bool) -> None:
    f, y = outputs_and_targets(likelihood)
    root = Likelihood.root(likelihood, f, y) if default else likelihood.root(f, y)
    assert_close(torch.einsum("vnc,vnd->ncd", root, root), likelihood.hessian(f, y))


@pytest.mark.parametrize("likelihood", CASES.values(), ids=CASES)
@pytest.mark.parametrize("default", [False, True])
def test_sampled_roots_average_to_the_hessian(likelihood: Likelihood, default: bool) -> None:
    f, y = outputs_and_targets(likelihood)
    draw = Likelihood.sampled_root if default else type(likelihood).sampled_root
    columns = draw(likelihood, f, y, 40_000, torch.Generator().manual_seed(0))
    assert_close(torch.einsum("vnc,vnd->ncd", columns, columns), likelihood.hessian(f, y), 0.05)


@pytest.mark.parametrize("likelihood", CASES.values(), ids=CASES)
def test_statistics_add_and_give_the_log_likelihood(likelihood: Likelihood) -> None:
    f, y = outputs_and_targets(likelihood)
    parts = [likelihood.statistics(f[s], y[s]) for s in (slice(2), slice(2, None))]
    total = {name: parts[0][name] + parts[1][name] for name in parts[0]}
    assert_close(likelihood.log_likelihood(total), likelihood.log_prob(f, y).sum(), 1e-6)


def test_the_root_of_a_saturated_softmax_is_finite() -> None:
    f = torch.tensor([[200.0, 0.0, -300.0], [-1e4, 0.0, 1e4], [0.0, 0.0, 0.0]])
    root = osc.likelihoods.Categorical().root(f, torch.zeros(3).long())
    assert bool(root.isfinite().all())
    assert_close(
        torch.einsum("vnc,vnd->ncd", root, root), osc.likelihoods.Categorical().hessian(f, torch.zeros(3).long()), 1e-6
    )


def test_log_prob_alone_is_enough_for_a_fit() -> None:
    class Laplacian(Likelihood):
        """A smoothed Laplace density, with nothing but its density."""

        def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
            return -((y - f) ** 2 + 0.1).sqrt().sum(-1)

    model, x, y = torch.nn.Linear(2, 3).double(), torch.randn(9, 2).double(), torch.randn(9, 3).double()
    likelihood = Laplacian()
    q = osc.laplace(model, likelihood, (x, y), structure="full", prior=1.0)
    assert_close(q.structure.dense(), osc.curvature.reference.ggn(model, likelihood, x, y))
    assert osc.functional_variance(q, x).shape == (9, 3, 3)
    with pytest.raises(NotImplementedError, match="distribution"):
        likelihood.distribution(x)


def test_the_noise_scale_must_be_positive() -> None:
    with pytest.raises(ValueError, match="-1"):
        osc.likelihoods.Gaussian(-1.0)


def test_other_proportions_of_noise_need_a_new_fit() -> None:
    old, new = osc.likelihoods.Gaussian(torch.tensor([1.0, 2.0])), osc.likelihoods.Gaussian(torch.tensor([2.0, 2.0]))
    with pytest.raises(ValueError, match="proportions"):
        new.curvature_scale(old)
    assert float(osc.likelihoods.Gaussian(torch.tensor([2.0, 4.0])).curvature_scale(old)) == pytest.approx(0.25)
