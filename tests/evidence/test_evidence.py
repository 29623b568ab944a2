"""The evidence: exact where it can be, close to quadrature where not, with gradients and a maximum that are checked."""

import warnings
from math import log

import numpy as np
import pytest
import torch
from scipy import integrate
from torch import Tensor, nn

import osculate as osc
from tests.laws import STRUCTURES, assert_close, targets
from tests.zoo import ZOO

DOUBLE = torch.double


def bayesian_linear_regression(outputs: int = 2) -> tuple[nn.Module, Tensor, Tensor, float, float]:
    """A linear layer at the exact posterior mean for precision δ and noise σ."""
    delta, sigma = 0.8, 0.6
    x, y = torch.randn(12, 3, dtype=DOUBLE), torch.randn(12, outputs, dtype=DOUBLE)
    phi = torch.cat([x, torch.ones(12, 1, dtype=DOUBLE)], 1)
    solution = torch.linalg.solve(phi.T @ phi / sigma**2 + delta * torch.eye(4, dtype=DOUBLE), phi.T @ y / sigma**2)
    model = nn.Linear(3, outputs).double()
    with torch.no_grad():
        model.weight.copy_(solution[:3].T)
        model.bias.copy_(solution[3])
    return model, x, y, delta, sigma


@pytest.mark.parametrize("structure", ["full", "kron"])
def test_exact_for_bayesian_linear_regression(structure: str) -> None:
    model, x, y, delta, sigma = bayesian_linear_regression()
    q = osc.laplace(model, osc.likelihoods.Gaussian(sigma), (x, y), structure=structure, prior=delta, refine=False)
    phi = torch.cat([x, torch.ones(12, 1, dtype=DOUBLE)], 1)
    marginal = torch.distributions.MultivariateNormal(
        torch.zeros(12, dtype=DOUBLE), phi @ phi.T / delta + sigma**2 * torch.eye(12, dtype=DOUBLE)
    )
    assert_close(osc.log_evidence(q), marginal.log_prob(y.T).sum())


@pytest.mark.parametrize("structure", ["full", "kron"])
def test_predictive_exact_for_bayesian_linear_regression(structure: str) -> None:
    model, x, y, delta, sigma = bayesian_linear_regression()
    q = osc.laplace(model, osc.likelihoods.Gaussian(sigma), (x, y), structure=structure, prior=delta, refine=False)
    phi = torch.cat([x, torch.ones(12, 1, dtype=DOUBLE)], 1)
    covariance = torch.linalg.inv(phi.T @ phi / sigma**2 + delta * torch.eye(4, dtype=DOUBLE))
    new = torch.cat([torch.randn(5, 3, dtype=DOUBLE), torch.ones(5, 1, dtype=DOUBLE)], 1)
    expected = (new @ covariance @ new.T).diagonal().unsqueeze(1).expand(-1, 2)
    predictive = osc.predict(q, new[:, :3])
    assert_close(predictive.variance, expected + sigma**2)
    assert_close(osc.predict(q, new[:, :3], noise=False).variance, expected)


def test_within_a_third_of_a_nat_of_quadrature_for_logistic_regression() -> None:
    x = torch.randn(30, 2, dtype=DOUBLE)
    y = (x @ torch.tensor([1.5, -1.0], dtype=DOUBLE) + 0.3 * torch.randn(30, dtype=DOUBLE) > 0).to(DOUBLE).unsqueeze(1)
    model = map_logistic(x, y, precision=1.0)
    q = osc.laplace(model, osc.likelihoods.Bernoulli(), (x, y), structure="full", prior=1.0, refine=False)

    def joint(b: float, a: float) -> float:
        logits = x.numpy() @ np.array([a, b])
        likelihood = -np.logaddexp(0, -logits * (2 * y.numpy()[:, 0] - 1)).sum()
        return float(np.exp(likelihood - 0.5 * (a * a + b * b) - log(2 * np.pi)))

    exact, _ = integrate.dblquad(joint, -8, 8, -8, 8, epsrel=1e-6)
    assert abs(float(osc.log_evidence(q)) - log(exact)) < 0.3


def map_logistic(x: Tensor, y: Tensor, precision: float) -> nn.Module:
    """Logistic regression without bias at its mode, by Newton steps."""
    w = torch.zeros(x.shape[1], dtype=DOUBLE)
    for _ in range(50):
        p = torch.sigmoid(x @ w)
        gradient = x.T @ (p - y[:, 0]) + precision * w
        hessian = (x * (p * (1 - p)).unsqueeze(1)).T @ x + precision * torch.eye(len(w), dtype=DOUBLE)
        w = w - torch.linalg.solve(hessian, gradient)
    model = nn.Linear(x.shape[1], 1, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(w.unsqueeze(0))
    return model


def regression_posterior(structure: str, scale: float | Tensor = 0.5, net: str = "mlp") -> osc.posteriors.Gaussian:
    model, x = ZOO[net].model(), ZOO[net].x(25)
    likelihood = osc.likelihoods.Gaussian(scale)
    y = targets(likelihood, model, x)
    prior = osc.priors.Layerwise(torch.linspace(0.5, 2.0, len(list(model.parameters())), dtype=DOUBLE))
    return osc.laplace(model, likelihood, (x, y), structure=structure, prior=prior, refine=False)


@pytest.mark.parametrize("net", ["mlp", "conv1d", "tied"])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_gradients_against_finite_differences(structure: str, net: str) -> None:
    q = regression_posterior(structure, net=net)

    def evidence(log_precision: Tensor, log_scale: Tensor) -> Tensor:
        likelihood = osc.likelihoods.Gaussian(log_scale.exp())
        return osc.log_evidence(q.replace(prior=q.prior.with_precision(log_precision.exp()), likelihood=likelihood))

    start = (q.prior.precision.log().requires_grad_(), torch.tensor(log(0.4), dtype=DOUBLE, requires_grad=True))
    assert torch.autograd.gradcheck(evidence, start, eps=1e-6, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("prior", ["isotropic", "layerwise", "diagonal"])
@pytest.mark.parametrize("structure", STRUCTURES)
def test_at_the_maximum_the_condition_of_mackay_holds(structure: str, prior: str) -> None:
    if structure in ("kron", "ekfac") and prior == "diagonal":
        pytest.skip("refused, see test_errors")
    q = regression_posterior(structure, scale=torch.tensor([0.3, 0.5, 0.9], dtype=DOUBLE))
    q = q.replace(prior=osc.priors.REGISTRY[prior](torch.tensor(1.0, dtype=DOUBLE)))
    best = osc.maximise_evidence(q)
    assert osc.log_evidence(best) >= osc.log_evidence(q)
    space = best.network.space
    delta = best.prior.vector(space)
    determined = best.prior.totals(1 - delta * best.variance(), space)
    squares = best.prior.totals(best.mean.square(), space) * best.prior.precision
    inside = (best.prior.precision < 1e11) & (best.prior.precision > 1e-7)
    assert bool(((squares - determined).abs() <= 1e-3 * determined)[inside].all())
    assert bool(inside.any())
    gamma = float(determined.sum())
    assert gamma == pytest.approx(sum(osc.evidence.effective_parameters(best).values()), rel=1e-6)
    errors = best.fit.statistics["squared_error"] / best.likelihood.scale**2
    assert float(errors.sum()) == pytest.approx(25 * 3 - gamma, rel=1e-3)


def test_the_maximum_does_not_depend_on_the_start() -> None:
    q = regression_posterior("kron")
    found = [
        osc.maximise_evidence(q.replace(prior=osc.priors.Layerwise(torch.tensor(s, dtype=DOUBLE)))) for s in (1e-4, 1e4)
    ]
    assert_close(found[0].prior.precision.log(), found[1].prior.precision.log(), 1e-3)


def test_the_maximum_is_one_among_its_neighbours() -> None:
    best = osc.maximise_evidence(regression_posterior("kron"))
    value = osc.log_evidence(best)
    for step in (0.9, 1.1):
        for t in range(len(best.prior.precision)):
            other = best.prior.precision.clone()
            other[t] *= step
            assert osc.log_evidence(best.replace(prior=best.prior.with_precision(other))) < value
        assert osc.log_evidence(best.replace(likelihood=best.likelihood.times(step))) < value


def test_a_run_that_is_cut_short_says_so() -> None:
    with pytest.warns(UserWarning, match="not converged after 1 steps"):
        osc.maximise_evidence(regression_posterior("kron"), max_steps=1)


def test_effective_parameters_are_between_none_and_all() -> None:
    q = regression_posterior("kron")
    for precision, share in ((1e-9, 1.0), (1e9, 0.0)):
        gamma = osc.evidence.effective_parameters(q.replace(prior=osc.priors.Isotropic(precision)))
        data_rank = osc.evidence.effective_parameters(q.replace(prior=osc.priors.Isotropic(1e-9)))
        assert sum(gamma.values()) == pytest.approx(share * sum(data_rank.values()), abs=1e-3)


@pytest.mark.parametrize("structure", STRUCTURES)
def test_weights_that_are_all_zero_get_the_largest_precision_and_the_others_converge(structure: str) -> None:
    model, x = ZOO["mlp"].model(), ZOO["mlp"].x(25)
    with torch.no_grad():
        model[0].bias.zero_()
    likelihood = osc.likelihoods.Gaussian(0.5)
    q = osc.laplace(
        model, likelihood, (x, targets(likelihood, model, x)), structure=structure, prior="evidence", refine=False
    )
    assert float(q.prior.precision[1]) >= 1e11
    assert float(q.prior.precision[[0, 2, 3]].max()) < 1e6


@pytest.mark.parametrize("start", [0.1, 1.0])
def test_noise_of_targets_in_units_of_their_own_is_found_from_any_start(start: float) -> None:
    """Targets of some ten thousands, and weights as large: the answer is that of the standardised problem."""
    torch.manual_seed(0)
    x = torch.randn(100, 2).double()
    y = 5e4 * (torch.randn(100, 1).double() + x[:, :1])
    model = nn.Linear(2, 1).double()
    design = torch.cat([x, torch.ones(100, 1).double()], 1)
    best = torch.linalg.lstsq(design, y).solution
    with torch.no_grad():
        model.weight.copy_(best[:2].T)
        model.bias.copy_(best[2])
    q = osc.laplace(model, osc.likelihoods.Gaussian(start), (x, y), refine=False)
    residual = float((model(x) - y).square().mean().sqrt())
    assert float(q.likelihood.scale) == pytest.approx(residual, rel=0.03)


@pytest.mark.parametrize("structure", ["full", "block", "kron", "diag"])
@pytest.mark.parametrize("mode", ["network", "linear"])
def test_parameters_without_a_derivative_keep_their_precision_and_are_named(structure: str, mode: str) -> None:
    class Detached(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.features, self.head = nn.Linear(2, 4), nn.Linear(4, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.features(x).detach())

    torch.manual_seed(0)
    x = torch.randn(30, 2)
    data = x, x.sum(1, keepdim=True) + 0.1 * torch.randn(30, 1)
    q = osc.laplace(
        Detached(),
        osc.likelihoods.Gaussian(0.3),
        data,
        structure=structure,
        prior=osc.priors.Layerwise(2.0),
        refine=False,
    )
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        best = osc.maximise_evidence(q, mode=mode, data=data if mode == "linear" else None)
    assert any("none has a derivative" in str(each.message) for each in caught)
    assert best.prior.precision[:2].tolist() == pytest.approx([2.0, 2.0], rel=1e-3)


@pytest.mark.parametrize("structure", ["full", "block", "dual"])
def test_a_vague_prior_in_single_precision_gives_the_variances_of_double_precision(structure: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(1, 30), nn.Tanh(), nn.Linear(30, 1))
    x = torch.linspace(-3, 1, 60)[:, None]
    found = []
    for dtype in (torch.float32, torch.float64):
        network, inputs = model.to(dtype), x.to(dtype)
        q = osc.laplace(
            network,
            osc.likelihoods.Gaussian(0.01),
            (inputs, inputs.sin()),
            structure=structure,
            prior=0.01,
            refine=False,
        )
        found.append(osc.functional_variance(q, torch.tensor([[0.0], [2.5], [4.0]], dtype=dtype), diagonal=True).sqrt())
    torch.testing.assert_close(found[0].double(), found[1], rtol=0.01, atol=0)
