"""The evidence at the mode of the linear model: exact where it can be, stationary, and without the scale of weights."""

import warnings
from copy import deepcopy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.curvature import reference
from osculate.evidence import Newton, QuasiNewton, Stochastic
from osculate.evidence.mode import _QuasiNewtonSearch, as_solver
from tests.errors import says
from tests.laws import assert_close, targets
from tests.zoo import ZOO

DOUBLE = torch.double
EXACT = Newton(tolerance=1e-16)
LIKELIHOODS = {
    "gaussian": osc.likelihoods.Gaussian(0.5),
    "categorical": osc.likelihoods.Categorical(),
    "poisson": osc.likelihoods.Poisson(),
}


def fitted(structure: str, likelihood: str = "gaussian", net: str = "mlp", n: int = 25) -> tuple:
    model, x = ZOO[net].model(), ZOO[net].x(n)
    chosen = LIKELIHOODS[likelihood]
    y = targets(chosen, model, x)
    precision = torch.linspace(0.5, 2.0, len(list(model.parameters())), dtype=DOUBLE)
    prior = osc.priors.Layerwise(precision)
    return osc.laplace(model, chosen, (x, y), structure=structure, prior=prior, refine=False), x, y


def jacobian(q: osc.posteriors.Gaussian, x: Tensor) -> Tensor:
    """(N, C, P), dense."""
    return reference.jacobian(deepcopy(q.model).requires_grad_(True), x)


def objective(q: osc.posteriors.Gaussian, x: Tensor, y: Tensor, theta: Tensor) -> Tensor:
    """−log p(y|h(θ)) / T + ½ ‖θ‖²_Λ by the dense Jacobian."""
    f = q.network(x)
    h = f + (jacobian(q, x) @ (theta - q.mean)).reshape(f.shape)
    loss = -q.likelihood.log_prob(h, y).sum() / q.temperature
    return loss + 0.5 * (q.prior.vector(q.network.space) * theta.square()).sum()


@pytest.mark.parametrize(
    ("structure", "likelihood"),
    [
        pytest.param(structure, name, marks=[pytest.mark.slow] * (structure != "full" and name != "categorical"))
        for structure in ("full", "kron", "diag", "dual", "low_rank", "matrix_free")
        for name in LIKELIHOODS
    ],
)
def test_the_mode_is_where_the_slope_of_the_objective_is_zero(structure: str, likelihood: str) -> None:
    q, x, y = fitted(structure, likelihood)
    q = q.replace(temperature=1.7)
    theta = osc.evidence.linear_mode(q, (x, y), Newton(tolerance=1e-14)).requires_grad_()
    (slope,) = torch.autograd.grad(objective(q, x, y, theta), theta)
    (first,) = torch.autograd.grad(objective(q, x, y, start := q.mean.clone().requires_grad_()), start)
    assert float(slope.norm()) < 1e-6 * float(first.norm())


@pytest.mark.slow
def test_minibatches_come_to_the_same_mode() -> None:
    q, x, y = fitted("kron", "categorical")
    exact = osc.evidence.linear_mode(q, (x, y), EXACT)
    solver = Stochastic(epochs=40, batch_size=10, lr=0.3)
    loader = [(x[:10], y[:10]), (x[10:], y[10:])]
    for data in ((x, y), loader):
        theta = osc.evidence.linear_mode(q, data, solver)
        assert float(objective(q, x, y, theta) - objective(q, x, y, exact)) < 0.05
    short = Stochastic(epochs=1, tolerance=100.0)
    assert torch.equal(osc.evidence.linear_mode(q, (x, y), short), osc.evidence.linear_mode(q, (x, y), short))


@pytest.mark.parametrize("structure", ["full", "dual"])
def test_the_evidence_is_that_of_the_bayesian_linear_model(structure: str) -> None:
    q, x, y = fitted(structure)
    rows = jacobian(q, x).flatten(0, 1)
    residual = (y - q.network(x)).flatten() + rows @ q.mean
    delta = q.prior.vector(q.network.space)
    covariance = rows / delta @ rows.T + 0.5**2 * torch.eye(len(residual), dtype=DOUBLE)
    exact = torch.distributions.MultivariateNormal(torch.zeros_like(residual), covariance).log_prob(residual)
    assert_close(osc.log_evidence(q, mode="linear", data=(x, y), solver=EXACT), exact)
    assert float(osc.log_evidence(q)) < float(exact) - 1


@pytest.mark.parametrize("structure", ["matrix_free", "kron"])
def test_posteriors_know_their_data(structure: str) -> None:
    q, x, y = fitted(structure)
    assert_close(osc.evidence.linear_mode(q), osc.evidence.linear_mode(q, (x, y)))
    assert_close(
        osc.maximise_evidence(q, mode="linear").prior.precision,
        osc.maximise_evidence(q, mode="linear", data=(x, y)).prior.precision,
    )
    stochastic = Stochastic(epochs=2, tolerance=1e9)
    assert_close(
        osc.evidence.linear_mode(q, solver=stochastic), osc.evidence.linear_mode(q, (x, y), solver=stochastic), 0.3
    )


def test_posteriors_without_their_data_ask_for_them(tmp_path: Path) -> None:
    q, x, y = fitted("kron")
    osc.save(q, tmp_path / "q.safetensors")
    loaded = osc.load(tmp_path / "q.safetensors", q.model)
    once = osc.laplace(q.model, q.likelihood, iter([(x, y)]), prior=1.0, subset=q.network.space.names, refine=False)
    for other in (loaded, once):
        with pytest.raises(ValueError, match=says("from a file", "data=")):
            osc.log_evidence(other, mode="linear")
        assert bool(osc.log_evidence(other, mode="linear", data=(x, y)).isfinite())


def test_a_search_ends_where_only_rounding_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """In single precision the gradient of 400 residuals with a noise of 0.001 is not below some 1e-4 nats."""
    x = torch.linspace(-2, 2, 400)[:, None] ** torch.arange(1, 8)
    x = (x - x.mean(0)) / x.std(0)
    y = (0.7 * x[:, :1]).sin() + 1e-3 * torch.randn(400, 1)
    net = nn.Sequential(nn.Linear(7, 30), nn.Tanh(), nn.Linear(30, 1))
    likelihood = osc.likelihoods.Gaussian(1e-3)
    q = osc.laplace(net, likelihood, (x, y), structure="full", refine=False, prior=0.01)
    steps, improve = [], _QuasiNewtonSearch.improve
    monkeypatch.setattr(_QuasiNewtonSearch, "improve", lambda *args: steps.append(improve(*args)) or steps[-1])
    with pytest.warns(UserWarning, match="the mode of the linear model was not reached"):
        theta = osc.evidence.linear_mode(q, (x, y), QuasiNewton(tolerance=1e-6))
    assert len(steps) < 100
    assert min(steps) < 1e-2
    assert theta.isfinite().all()


@pytest.mark.parametrize("broken", [-1e-9, 1e-320])
def test_a_search_goes_on_where_earlier_steps_point_uphill_or_nowhere(broken: float) -> None:
    """As rounding in the pairs of earlier steps can do."""
    q, x, y = fitted("diag", "categorical")
    search = QuasiNewton().search(q, (x, y), None)
    first = search.improve(q)
    step = search.theta - q.mean
    state = {**search.tensors(), "last.theta": search.theta, "step.0": step, "change.0": broken * step}
    search.restore(state, q)
    gaps = [search.improve(q) for _ in range(30)]
    assert search.gains[1] > 0
    assert gaps[-1] < 1e-6 * first


@pytest.mark.parametrize(
    ("gains", "stands"),
    [([], False), ([1.0, 0.0], True), ([1.0, 1e-9], False), ([1e-9] * 2, False), ([1.0, *[1e-9] * 3], True)],
)
def test_one_small_step_does_not_end_a_search(gains: list[float], stands: bool) -> None:
    q, x, y = fitted("diag")
    search = QuasiNewton().search(q, (x, y), None)
    search.gains = gains
    assert search.stands(1e-2, 200) is stands


def test_what_does_not_fit_the_linear_mode_is_refused() -> None:
    q, x, y = fitted("kron")
    with pytest.raises(ValueError, match=says("it had 25", "24 here")):
        osc.evidence.linear_mode(q, (x[1:], y[1:]))
    with pytest.raises(ValueError, match=says("'linaer'", "'network', 'linear'")):
        osc.maximise_evidence(q, mode="linaer")
    with pytest.raises(ValueError, match="unknown solver 'sgd'"):
        osc.evidence.linear_mode(q, (x, y), "sgd")
    with pytest.raises(TypeError, match="solver must be"):
        as_solver(3)
    with pytest.raises(ValueError, match="positive forcing, got 0.0"):
        Newton(forcing=0.0)
    with pytest.raises(ValueError, match="below 1"):
        Stochastic(momentum=1.0)


def test_a_mode_that_was_not_reached_is_a_warning() -> None:
    q, x, y = fitted("diag", "categorical")
    with pytest.warns(UserWarning, match="not reached"):
        osc.evidence.linear_mode(q, (x, y), Newton(max_steps=1, tolerance=1e-12, forcing=0.5))
    with pytest.warns(UserWarning, match="not reached"):
        osc.evidence.linear_mode(q, (x, y), Stochastic(epochs=1, lr=1e-3, tolerance=1e-3))


def test_gradients_against_finite_differences_and_nothing_is_left_on_the_posterior() -> None:
    q, x, y = fitted("full", n=12)

    def evidence(log_precision: Tensor, log_scale: Tensor) -> Tensor:
        likelihood = osc.likelihoods.Gaussian(log_scale.exp())
        there = q.replace(prior=q.prior.with_precision(log_precision.exp()), likelihood=likelihood)
        return osc.log_evidence(there, mode="linear", data=(x, y), solver=EXACT)

    start = (q.prior.precision.log().requires_grad_(), torch.tensor(-0.9, dtype=DOUBLE, requires_grad=True))
    assert torch.autograd.gradcheck(evidence, start, eps=1e-6, atol=1e-6, rtol=1e-5)


def test_only_the_parameters_of_a_subnetwork_move() -> None:
    model, x = ZOO["mlp"].model(), ZOO["mlp"].x(25)
    likelihood = LIKELIHOODS["categorical"]
    y = targets(likelihood, model, x)
    q = osc.laplace(
        model, likelihood, (x, y), structure="full", prior=1.0, subset=osc.Subnetwork(0.4, "magnitude"), refine=False
    )
    theta = osc.evidence.linear_mode(q, (x, y), EXACT)
    covered = q.structure.covered
    assert torch.equal(theta[~covered], q.mean[~covered])
    leaf = theta.clone().requires_grad_()
    (slope,) = torch.autograd.grad(objective(q, x, y, leaf), leaf)
    assert float(slope[covered].abs().max()) < 1e-6 < float(slope[~covered].abs().max())


@pytest.mark.parametrize(
    ("structure", "likelihood"),
    [
        ("full", "gaussian"),
        pytest.param("kron", "categorical", marks=pytest.mark.slow),
        pytest.param("dual", "poisson", marks=pytest.mark.slow),
    ],
)
def test_at_the_maximum_mode_and_precisions_belong_to_each_other(structure: str, likelihood: str) -> None:
    q, x, y = fitted(structure, likelihood, n=60)
    q = q.replace(prior=osc.priors.Grouped({"first": ["0"], "last": ["2"]}, torch.ones(2, dtype=DOUBLE)))
    best = osc.maximise_evidence(q, mode="linear", data=(x, y), tolerance=1e-4, solver=Newton(tolerance=1e-10))
    theta = osc.evidence.linear_mode(best, (x, y), EXACT)
    space = best.network.space
    squares = best.prior.totals(theta.square(), space) * best.prior.precision
    gamma = best.prior.pooled(torch.tensor(list(osc.evidence.effective_parameters(best).values()), dtype=DOUBLE), space)
    inside = best.prior.precision < 1e11
    assert bool(inside.any())
    assert_close(squares[inside], gamma[inside], 1e-3)
    value = osc.log_evidence(best, mode="linear", data=(x, y), solver=EXACT)
    assert value >= osc.log_evidence(q, mode="linear", data=(x, y), solver=EXACT)
    for factor in (0.9, 1.1):
        other = best.replace(prior=best.prior.with_precision(best.prior.precision * factor))
        assert osc.log_evidence(other, mode="linear", data=(x, y), solver=EXACT) <= value
    assert torch.equal(best.mean, q.mean)  # predictions stay those of the network


def normalised(factor: float) -> tuple[nn.Module, Tensor, Tensor]:
    """A network with batch normalisation, whose normalised layer, with its statistics, is multiplied by a factor."""
    torch.manual_seed(0)
    x = torch.randn(40, 2, dtype=DOUBLE)
    y = x.sin().sum(1, keepdim=True) + 0.1 * torch.randn(40, 1, dtype=DOUBLE)
    model = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8, eps=1e-12), nn.ReLU(), nn.Linear(8, 1)).double()
    optimiser = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(60):
        optimiser.zero_grad()
        (model(x) - y).square().mean().backward()
        optimiser.step()
    with torch.no_grad():
        for tensor in (model[0].weight, model[0].bias, model[1].running_mean):
            tensor.mul_(factor)
        model[1].running_var.mul_(factor**2)
    return model.eval(), x, y


def deviations(prior: str, mode: str, factor: float) -> Tensor:
    model, x, y = normalised(factor)
    chosen = osc.priors.Grouped.normalised(model, x) if prior == "groups" else osc.priors.Isotropic(1.0)
    q = osc.laplace(model, osc.likelihoods.Gaussian(0.1), (x, y), structure="full", prior=chosen, refine=False)
    options = {"data": (x, y), "tolerance": 1e-4} if mode == "linear" else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        best = osc.maximise_evidence(q, mode=mode, **options)
    return osc.functional_variance(best, 2 * x, diagonal=True).sqrt()


@pytest.mark.slow
def test_with_groups_the_scale_of_normalised_weights_does_not_matter_and_with_one_precision_it_does() -> None:
    assert_close(deviations("groups", "linear", 4.0), deviations("groups", "linear", 0.25), 1e-3)
    one, other = (float(deviations("one", "linear", factor).mean()) for factor in (4.0, 0.25))
    assert max(one / other, other / one) > 1.3
    bias_elsewhere = normalised(1.0)[0]
    assert osc.priors.Grouped.normalised(bias_elsewhere, torch.ones(2, 2).double()).groups["0"] == (
        "0.weight",
        "0.bias",
    )


def test_an_evidence_without_a_maximum_says_for_which_groups_and_what_it_means() -> None:
    model, x = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)).double(), torch.randn(40, 3, dtype=DOUBLE)
    with torch.no_grad():
        model[2].weight.mul_(0.01)
        model[2].bias.zero_()
    y = torch.zeros(40, 1, dtype=DOUBLE)  # nothing to learn
    q = osc.laplace(
        model, osc.likelihoods.Gaussian(1.0), (x, y), structure="full", prior=osc.priors.Layerwise(), refine=False
    )
    with pytest.warns(UserWarning, match=says("no maximum", "without end", "2.weight", "at zero")):
        best = osc.maximise_evidence(q, mode="linear", data=(x, y), noise=False)
    assert best.prior.precision.tolist()[2] == pytest.approx(1e12)


def test_parameters_that_no_output_depends_on_are_named_and_zero_biases_are_not() -> None:
    model, x = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 1)).double(), torch.rand(40, 3, dtype=DOUBLE)
    y = torch.randn(40, 1, dtype=DOUBLE)
    with torch.no_grad():
        model[2].bias.zero_()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        osc.laplace(model, osc.likelihoods.Gaussian(1.0), (x, y), structure="full", prior="evidence", refine=False)
    with torch.no_grad():
        model[0].weight.copy_(-model[0].weight.abs())
        model[0].bias.fill_(-1.0)  # every unit is dead
    q = osc.laplace(
        model, osc.likelihoods.Gaussian(1.0), (x, y), structure="full", prior=osc.priors.Layerwise(), refine=False
    )
    with pytest.warns(UserWarning, match=says("0.weight", "0.bias", "no output depends", "keep the precision")):
        best = osc.maximise_evidence(q)
    assert best.prior.precision[:2].tolist() == [1.0, 1.0]
    with torch.no_grad():
        model[0].weight.abs_()
        model[0].bias.fill_(1.0)
        model[2].weight.zero_()
    q = osc.laplace(
        model, osc.likelihoods.Gaussian(1.0), (x, y), structure="full", prior=osc.priors.Layerwise(), refine=False
    )
    with pytest.warns(UserWarning, match=says("2.weight", "1e+12")):
        osc.maximise_evidence(q)


def test_a_linear_model_that_would_do_without_weights_that_the_network_has_is_announced_as_such() -> None:
    model, x = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)).double(), torch.randn(40, 3, dtype=DOUBLE)
    y = torch.zeros(40, 1, dtype=DOUBLE)
    q = osc.laplace(
        model, osc.likelihoods.Gaussian(1.0), (x, y), structure="full", prior=osc.priors.Layerwise(), refine=False
    )
    with pytest.warns(UserWarning, match=says("error bars vanish", "the network keeps its weights", "2.weight")):
        osc.maximise_evidence(q, mode="linear", data=(x, y), noise=False)


@pytest.mark.parametrize("solver", ["newton", "stochastic"])
def test_other_data_than_those_of_the_fit_are_refused(solver: str) -> None:
    x, y = torch.randn(20, 2), torch.randn(20, 1)
    q = osc.laplace(nn.Linear(2, 1), osc.likelihoods.Gaussian(), (x, y), structure="full", prior=1.0, refine=False)
    with pytest.raises(ValueError, match=says("it had 20", "7 here")):
        osc.evidence.linear_mode(q, (x[:7], y[:7]), solver)


@pytest.mark.parametrize("solver", ["newton", "stochastic"])
def test_the_mode_of_a_half_precision_network_is_found_in_single_precision(solver: str) -> None:
    x, y = torch.randn(40, 3), torch.arange(40) % 3
    q = osc.laplace(nn.Linear(3, 3), osc.likelihoods.Categorical(), (x, y), structure="full", prior=1.0, refine=False)
    half = q.to(dtype=torch.bfloat16)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        expected, found = (
            osc.evidence.linear_mode(
                p,
                (x.to(p.network.dtype), y),
                osc.evidence.Newton() if solver == "newton" else osc.evidence.Stochastic(epochs=60),
            )
            for p in (q, half)
        )
    assert found.dtype == torch.float32
    assert_close(found, expected, 3e-2)
