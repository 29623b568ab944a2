"""A posterior as a model of BoTorch, and optimisation with it."""

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from tests.laws import assert_close

pytest.importorskip("botorch")
from botorch.acquisition import LogExpectedImprovement, qLogExpectedImprovement, qLogNoisyExpectedImprovement
from botorch.optim import optimize_acqf
from botorch.sampling import SobolQMCNormalSampler

from osculate.adapters.botorch import LaplaceModel
from osculate.tasks.bayesian_optimisation import compressed

DOUBLE = torch.double


def model(outputs: int = 1, **options: object) -> LaplaceModel:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(2, 10), nn.Tanh(), nn.Linear(10, outputs)).double()
    x = torch.rand(20, 2, dtype=DOUBLE)
    q = osc.laplace(network, osc.likelihoods.Gaussian(0.1), (x, x.sin()[:, :outputs]), structure="full", prior=1.0)
    return LaplaceModel(q, **options)


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize("points", [1, 4])
def test_posteriors_have_the_shapes_and_values_of_the_function(
    outputs: int, batch: tuple[int, ...], points: int
) -> None:
    made = model(outputs, offset=torch.full((outputs,), 5.0), scale=torch.full((outputs,), 2.0))
    x = torch.rand(*batch, points, 2, dtype=DOUBLE)
    found = made.posterior(x)
    assert found.mean.shape == found.variance.shape == (*batch, points, outputs)
    assert found.rsample(torch.Size([6])).shape == (6, *batch, points, outputs)
    one = x.reshape(-1, points, 2)[0]
    g = osc.function_posterior(made.q, one)
    assert_close(found.mean.reshape(-1, points, outputs)[0], 5 + 2 * g.mean, 1e-9)
    covariance = found.distribution.covariance_matrix
    assert_close(covariance.reshape(-1, *covariance.shape[-2:])[0], 4 * g.covariance, 1e-7)
    noisy = made.posterior(x, observation_noise=True)
    noise = 4 * 0.01 * float(made.q.temperature)
    assert_close(noisy.variance - found.variance, torch.full_like(found.variance, noise), 1e-5)


def test_conditioning_is_that_of_the_function() -> None:
    made, x = model(2), torch.rand(3, 2, dtype=DOUBLE)
    seen, y = torch.rand(4, 2, dtype=DOUBLE), torch.rand(4, 2, dtype=DOUBLE)
    expected = osc.function_posterior(made.q, x).condition(seen, y)
    for found in (
        made.condition_on_observations(seen, y),
        made.condition_on_observations(seen[:1], y[:1]).condition_on_observations(seen[1:], y[1:]),
    ):
        assert_close(found.posterior(x).mean, expected.mean, 1e-8)
        assert_close(found.posterior(x).variance, expected.variance, 1e-7)
    less_sure = made.condition_on_observations(seen, y, noise=torch.full((4, 2), 4.0, dtype=DOUBLE))
    assert bool((less_sure.posterior(x).variance > expected.variance).all())


def test_fantasies_are_a_batch_of_models() -> None:
    made = model()
    fantasies = made.fantasize(torch.rand(5, 2, 2, dtype=DOUBLE), SobolQMCNormalSampler(torch.Size([3])))
    assert fantasies.batch_shape == (3, 5)
    assert fantasies.posterior(torch.rand(5, 4, 2, dtype=DOUBLE)).mean.shape == (3, 5, 4, 1)


@pytest.mark.parametrize("conditioned", [False, True])
def test_acquisitions_are_differentiable(conditioned: bool) -> None:
    made = model()
    if conditioned:
        made = made.condition_on_observations(torch.rand(2, 2, dtype=DOUBLE), torch.rand(2, 1, dtype=DOUBLE))
    for acquisition, q in (
        (LogExpectedImprovement(made, best_f=0.5), 1),
        (qLogExpectedImprovement(made, best_f=0.5, sampler=SobolQMCNormalSampler(torch.Size([8]), seed=0)), 3),
    ):
        x = torch.rand(2, q, 2, dtype=DOUBLE, requires_grad=True)
        assert torch.autograd.gradcheck(acquisition, x, atol=1e-4, rtol=1e-3)
    point, value = optimize_acqf(
        LogExpectedImprovement(made, best_f=0.5), torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=DOUBLE), 1, 2, 16
    )
    assert point.shape == (1, 2)
    assert value.isfinite()


def test_noisy_improvement_and_a_classifier() -> None:
    made = model()
    acquisition = qLogNoisyExpectedImprovement(made, X_baseline=torch.rand(5, 2, dtype=DOUBLE), prune_baseline=False)
    assert acquisition(torch.rand(2, 1, 2, dtype=DOUBLE)).shape == (2,)
    q = osc.laplace(
        nn.Linear(2, 2), osc.likelihoods.Categorical(), (torch.randn(9, 2), torch.randint(2, (9,))), prior=1.0
    )
    with pytest.raises(TypeError, match="needs real values with Gaussian noise, got Categorical"):
        LaplaceModel(q)


def bowl(x: Tensor) -> Tensor:
    return -(x - 0.3).square().sum(1)


@pytest.mark.release
def test_an_optimisation_finds_the_maximum_of_a_bowl() -> None:
    found = osc.tasks.bayesian_optimisation(bowl, [(-1.0, 1.0)] * 2, LaplaceModel.fitted, evaluations=12)
    assert len(found.values) == 12
    assert bool((found.best.diff() >= 0).all())
    assert float(found.best[-1]) > -5e-3
    assert_close(found.point, torch.full((2,), 0.3, dtype=DOUBLE), 0.3)


@pytest.mark.slow
def test_a_fit_passes_through_values_without_noise_and_is_uncertain_elsewhere() -> None:
    x = torch.rand(12, 1, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    y = 100 + 50 * (6 * x).sin()
    made = LaplaceModel.fitted(x, y)
    here, gap = made.posterior(x), made.posterior(torch.tensor([[-0.5], [1.5]], dtype=DOUBLE))
    assert float((here.mean - y).abs().max()) < 0.5
    assert float(here.variance.sqrt().max()) < 0.5 < float(gap.variance.sqrt().min())
    noisy = y + 20 * torch.randn(y.shape, generator=torch.Generator().manual_seed(0), dtype=DOUBLE)
    learned = LaplaceModel.fitted(x, noisy, noise=None)
    assert float(learned.q.likelihood.scale) > 0.1


def test_compressed_values_keep_their_order_and_bring_outliers_near() -> None:
    y = torch.cat([torch.linspace(0, 1, 20, dtype=DOUBLE), torch.tensor([-1e6], dtype=DOUBLE)])
    z = compressed(y)
    assert torch.equal(z.argsort(), y.argsort())
    assert float(z.min()) > -20
    assert torch.equal(compressed(torch.ones(3)), torch.zeros(3))
    same = []
    osc.tasks.bayesian_optimisation(
        bowl,
        [(-1.0, 1.0)] * 2,
        lambda x, y: same.append(y) or LaplaceModel.fitted(x, y, steps=2),
        evaluations=4,
        compress=False,
    )
    assert float(same[0].max()) <= 0  # the values as they are


def test_what_cannot_be_optimised_is_refused() -> None:
    optimise = osc.tasks.bayesian_optimisation
    with pytest.raises(ValueError, match="lower and a larger upper bound"):
        optimise(bowl, [(1.0, 1.0)], LaplaceModel.fitted)
    with pytest.raises(ValueError, match="is not finite"):
        optimise(lambda x: x[:, 0] / 0, [(1.0, 2.0)], LaplaceModel.fitted)
    with pytest.raises(ValueError, match="gave 1 values for"):
        optimise(lambda x: torch.zeros(1), [(1.0, 2.0)], LaplaceModel.fitted)
