"""Refined posteriors: exact where they can be, at the maximum of their bound, and known to everything that predicts."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal

import osculate as osc
from osculate import structures
from osculate.curvature.linearisation import Linearisation
from osculate.evidence import TEMPERATURE, TRUST, linear_elbo, variational
from osculate.evidence.refine import _between
from osculate.evidence.variational import Held, Smoothed
from tests.laws import assert_close

DOUBLE = torch.double


def network(outputs: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, outputs)).double()


def classifier(size: int = 60, seed: int = 0) -> tuple[nn.Module, Tensor, Tensor]:
    """A network that fits its training data, as users train them."""
    torch.manual_seed(seed)
    model, x = network(), torch.randn(size, 4, dtype=DOUBLE)
    y = (x[:, :3] + 0.5 * torch.randn(size, 3, dtype=DOUBLE)).argmax(-1)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.05)
    for _ in range(150):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()
    return model, x, y


@pytest.fixture(scope="module", name="trained")
def _trained() -> tuple[nn.Module, Tensor, Tensor]:
    return classifier()


def laplace(trained: tuple[nn.Module, Tensor, Tensor], **options: object) -> osc.posteriors.Gaussian:
    model, x, y = trained
    return osc.laplace(model, osc.likelihoods.Categorical(), (x, y), prior=1.0, **options, refine=False)


@pytest.mark.parametrize("structure", ["full", "dual"])
def test_the_exact_posterior_of_the_linear_model(structure: str) -> None:
    delta, sigma, size = 2.0, 0.4, 25
    model, x, y = network(2), torch.randn(size, 4, dtype=DOUBLE), torch.randn(size, 2, dtype=DOUBLE)
    q = osc.laplace(model, osc.likelihoods.Gaussian(sigma), (x, y), structure=structure, prior=delta, refine=False)
    refined = osc.refine(q, trust=None)
    theta, at, eye = q.network.mean, Linearisation(q.network, x), torch.eye(2 * size, dtype=DOUBLE)
    jacobian = at.vjp(eye.reshape(2 * size, size, 2))
    targets = (y - at.f).reshape(-1) + jacobian @ theta
    precision = jacobian.T @ jacobian / sigma**2 + delta * torch.eye(len(theta), dtype=DOUBLE)
    marginal = MultivariateNormal(torch.zeros_like(targets), jacobian @ jacobian.T / delta + sigma**2 * eye)
    assert_close(refined.mean, torch.linalg.solve(precision, jacobian.T @ targets / sigma**2))
    assert_close(refined.precision.multiply(precision.inverse()), torch.eye(len(theta), dtype=DOUBLE))
    assert_close(osc.log_evidence(refined), marginal.log_prob(targets))


def test_the_bound_is_stationary_in_mean_and_covariance() -> None:
    torch.manual_seed(0)
    model, x = network(1), torch.randn(40, 4, dtype=DOUBLE)
    data = x, (x.sum(-1, keepdim=True) > 0).to(DOUBLE)
    q = osc.laplace(model, osc.likelihoods.Bernoulli(), data, structure="full", prior=1.0, refine=False)
    refined = osc.refine(q, trust=None, tolerance=1e-9, steps=30)
    best, size = float(linear_elbo(refined)), len(refined.mean)

    def curved(factor: float) -> osc.posteriors.Gaussian:
        tensors = {name: factor * value for name, value in refined.structure.tensors().items()}
        return refined.replace(fit=replace(refined.fit, curvature=refined.structure.with_tensors(tensors)))

    step = 1e-3
    for seed in range(3):
        white = torch.randn(1, size, dtype=DOUBLE, generator=torch.Generator().manual_seed(seed))
        move = step * refined.precision.colour(white)[0]
        there = [float(linear_elbo(refined.replace(offset=refined.offset + way * move))) for way in (1, -1)]
        assert abs(there[0] - there[1]) < 1e-3 * step
        assert max(there) < best
    there = [float(linear_elbo(curved(1 + way * step))) for way in (1, -1)]
    assert abs(there[0] - there[1]) < 1e-2 * step
    assert max(there) < best


@pytest.mark.parametrize("trust", [0.25, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize("structure", structures.REGISTRY)
def test_the_bound_never_falls(trained: tuple[nn.Module, Tensor, Tensor], structure: str, trust: float | None) -> None:
    q = laplace(trained, structure=structure)
    bounds = [float(linear_elbo(osc.refine(q, trust=trust, steps=steps))) for steps in (1, 2)]
    again = osc.refine(osc.refine(q, trust=trust), trust=0.02)
    assert bounds[0] >= float(linear_elbo(q)) - 1e-6
    assert bounds[1] >= bounds[0] - 1e-6
    assert float(linear_elbo(again)) >= bounds[0] - 1e-6, "the mean does not leave for a smaller region"


def test_matrix_free_is_dual(trained: tuple[nn.Module, Tensor, Tensor]) -> None:
    dual = osc.refine(laplace(trained, structure="dual"))
    free = osc.refine(laplace(trained, structure=osc.structures.MatrixFree(tolerance=1e-8)))
    assert_close(free.mean, dual.mean, 1e-5)
    v = torch.randn(2, len(dual.mean), dtype=DOUBLE)
    assert_close(free.precision.solve(v), dual.precision.solve(v), 1e-4)


@pytest.mark.parametrize("dimensions", [1, 2])
def test_logistic_regression_beside_quadrature(dimensions: int) -> None:
    torch.manual_seed(1)
    x = torch.randn(12, dimensions, dtype=DOUBLE)
    y = (x.sum(-1, keepdim=True) + torch.randn(12, 1, dtype=DOUBLE) > 0).to(DOUBLE)
    model = nn.Linear(dimensions, 1, bias=False).double()
    q = osc.laplace(model, osc.likelihoods.Bernoulli(), (x, y), structure="full", prior=0.5, refine=False)
    refined = osc.refine(q, trust=None, tolerance=1e-8)
    grid = torch.linspace(-12, 14, 400, dtype=DOUBLE)
    theta = torch.cartesian_prod(*[grid] * dimensions).reshape(-1, dimensions)
    logits = theta @ x.T
    joint = (logits * y.T - nn.functional.softplus(logits)).sum(-1)
    joint = joint + torch.distributions.Normal(0.0, 0.5**-0.5).log_prob(theta).sum(-1)
    cell = float(grid[1] - grid[0]) ** dimensions
    evidence = float(joint.logsumexp(0)) + torch.tensor(cell).log()
    assert -0.05 < float(osc.log_evidence(refined) - evidence) < 1e-6
    weights = joint.softmax(0)
    assert_close(refined.mean, (weights[:, None] * theta).sum(0), 0.1)


def test_poisson_in_closed_form() -> None:
    f, y = torch.randn(7, 2, dtype=DOUBLE), torch.poisson(torch.ones(7, 2, dtype=DOUBLE))
    spread, shift = torch.rand(7, 2, 1, 1, dtype=DOUBLE), torch.randn(7, 2, dtype=DOUBLE)
    smoothed = Smoothed(osc.likelihoods.Poisson(), y, f, spread, shift)
    mean, rate = f + shift, (f + shift + spread.reshape(7, 2).square() / 2).exp()
    rows = torch.arange(7)
    assert_close(smoothed.log_prob(f, rows), (y * mean - rate - torch.lgamma(y + 1)).sum(-1))
    assert_close(smoothed.score(f, rows), y - rate)
    assert_close(smoothed.local_hessian(f, rows).reshape(7, 2), rate)


def test_mean_and_network_are_told_apart(trained: tuple[nn.Module, Tensor, Tensor], tmp_path: Path) -> None:
    q, x = laplace(trained), trained[1]
    refined = osc.refine(q)
    at = Linearisation(q.network, x)
    expected = at.f + at.jvp((refined.mean - q.mean).unsqueeze(0))[0]
    assert float((refined.mean - q.mean).norm()) > 1e-3
    generator = torch.Generator().manual_seed(0)
    draws = osc.sample_functions(refined, x[:3], 4000, generator=generator)
    covariance = osc.functional_variance(refined, x[:3])
    error = 5 * covariance.diagonal(dim1=-2, dim2=-1).sqrt() / 4000**0.5
    assert bool(((draws.mean(0) - expected[:3]).abs() < error).all())
    assert torch.equal(osc.predict(refined, x, via="mode").logits, osc.predict(q, x, via="mode").logits)
    theta = refined.sample(2000, generator)
    assert bool(((theta.mean(0) - refined.mean).abs() < 5 * (refined.variance() / 2000).sqrt()).all())
    networks = osc.sample_functions(refined, x[:3], 500, via="sampled", generator=generator).mean(0)
    assert float((networks - at.f[:3]).norm()) < float((networks - expected[:3]).norm()) + float(error.norm()) * 3
    assert float(refined.log_prob(refined.mean)) > float(refined.log_prob(q.mean))
    osc.save(refined, tmp_path / "refined.safetensors")
    again = osc.load(tmp_path / "refined.safetensors", network())
    assert torch.equal(osc.predict(again, x).probs, osc.predict(refined, x).probs)
    assert_close(again.to(dtype=torch.float32).mean, refined.mean.float(), 1e-6)
    assert float(osc.log_evidence(again, data=trained[1:])) == float(osc.log_evidence(refined))


def test_data_of_the_training_are_explained_better(trained: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = trained
    q = osc.laplace(model, osc.likelihoods.Categorical(), (x, y), refine=False)
    loss = [-float(osc.predict(each, x).log_prob(y).mean()) for each in (q, osc.refine(q))]
    assert loss[1] < loss[0]


@pytest.mark.parametrize("trust", [0.01, 0.25])
def test_the_mean_moves_no_farther_than_it_is_trusted(trained: tuple[nn.Module, Tensor, Tensor], trust: float) -> None:
    q = laplace(trained)
    move = osc.refine(q, trust=trust).offset
    allowed = trust * sum(osc.evidence.effective_parameters(q).values())
    assert float(move @ q.precision.multiply(move)) <= allowed * (1 + 1e-6)


@pytest.mark.parametrize(
    ("model", "likelihood", "shape"),
    [
        (nn.Linear(4, 50), osc.likelihoods.Categorical(), (30,)),
        (nn.Unflatten(1, (2, 2)), osc.likelihoods.Categorical(), (30, 5)),
        (nn.Unflatten(1, (1, 2, 2)), osc.likelihoods.Bernoulli(), (30, 2, 2, 2)),
    ],
    ids=["fifty classes", "sequences", "images"],
)
def test_outputs_of_every_shape(model: nn.Module, likelihood: osc.likelihoods.Likelihood, shape: tuple) -> None:
    torch.manual_seed(0)
    if shape == (30, 5):
        model = nn.Sequential(nn.Linear(4, 15), nn.Unflatten(1, (5, 3)))
    if shape == (30, 2, 2, 2):
        model = nn.Sequential(nn.Linear(4, 8), nn.Unflatten(1, (2, 2, 2)))
    model, x = model.double(), torch.randn(30, 4, dtype=DOUBLE)
    y = torch.randint(2, shape)
    y = y.double() if isinstance(likelihood, osc.likelihoods.Bernoulli) else y
    q = osc.laplace(model, likelihood, (x, y), prior=1.0, refine=False)
    assert float(linear_elbo(osc.refine(q))) >= float(linear_elbo(q))


def test_parts_of_a_network(trained: tuple[nn.Module, Tensor, Tensor]) -> None:
    for options in ({"subset": "last_layer"}, {"subset": osc.Subnetwork(0.3, select="magnitude")}):
        q = laplace(trained, structure="full", **options)
        refined = osc.refine(q)
        assert float(linear_elbo(refined)) > float(linear_elbo(q))
        assert not bool(refined.offset[~q.structure.covered].any())


def test_batches_and_pairs_agree(trained: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = trained
    batches = list(zip(x.split(17), y.split(17), strict=True))
    whole = osc.refine(laplace(trained))
    parts = osc.refine(osc.laplace(model, osc.likelihoods.Categorical(), batches, prior=1.0, refine=False))
    assert_close(parts.mean, whole.mean)
    assert_close(parts.variance(), whole.variance())


def test_what_cannot_be_refined_is_refused(trained: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = trained
    q = laplace(trained)
    with pytest.raises(ValueError, match="not the data of the fit"):
        osc.refine(q, (x, y.flip(0)))
    with pytest.raises(ValueError, match="60, and there"):
        osc.refine(q, (x[:50], y[:50]))
    with pytest.raises(ValueError, match="trust must be positive"):
        osc.refine(q, trust=0.0)
    with pytest.raises(ValueError, match="tolerance"):
        osc.refine(q, tolerance=1.5)
    once = osc.laplace(model, osc.likelihoods.Categorical(), iter([(x, y)]), prior=1.0, refine=False)
    with pytest.raises(ValueError, match="pass data="):
        osc.refine(once)
    assert float(linear_elbo(osc.refine(once, (x, y)), (x, y))) > float(linear_elbo(once, (x, y)))
    heavy = osc.laplace(network(1), osc.likelihoods.StudentT(), (x, torch.randn(60, 1, dtype=DOUBLE)), prior=1.0)
    assert heavy.offset is None
    with pytest.raises(ValueError, match="not log-concave"):
        osc.refine(heavy)


def test_laplace_refines_by_the_rule(trained: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = trained
    likelihood = osc.likelihoods.Categorical()
    for prior in (1.0, "evidence"):
        plain = osc.laplace(model, likelihood, (x, y), prior=prior, refine=False)
        expected = osc.refine(plain.replace(temperature=TEMPERATURE), trust=TRUST)
        for refine in (True, "auto"):
            found = osc.laplace(model, likelihood, (x, y), prior=prior, refine=refine)
            assert_close(found.mean, expected.mean)
            assert_close(osc.predict(found, x).probs, osc.predict(expected, x).probs)
    with pytest.raises(ValueError, match="refine"):
        osc.laplace(model, likelihood, (x, y), refine="always")
    targets = x[:, :2] + 0.1 * torch.randn(60, 2, dtype=DOUBLE)
    regression = osc.laplace(network(2), osc.likelihoods.Gaussian(), (x, targets), structure="full", refine=True)
    assert 0.05 < float(regression.likelihood.scale) < 0.2  # of the linear model, whose network is untrained
    with pytest.warns(UserWarning, match="not refined"):
        once = osc.laplace(model, likelihood, iter([(x, y)]), prior=1.0, refine=True)
    assert once.offset is None


def test_the_evidence_of_a_refined_posterior_is_maximised_before_it_is_refined_again(
    trained: tuple[nn.Module, Tensor, Tensor], tmp_path: Path
) -> None:
    model, x, y = trained
    likelihood = osc.likelihoods.Categorical()
    fixed, tuned = (osc.laplace(model, likelihood, (x, y), prior=prior) for prior in (1.0, "evidence"))
    again = osc.maximise_evidence(fixed.replace(prior=tuned.prior))
    assert_close(again.mean, tuned.mean, 1e-3)
    assert float(again.temperature) == float(tuned.temperature)
    osc.save(fixed, tmp_path / "q.safetensors")
    with pytest.raises(ValueError, match="refine=False"):
        osc.maximise_evidence(osc.load(tmp_path / "q.safetensors", model), data=(x, y))


def test_noise_and_mean_of_the_linear_model_belong_to_each_other() -> None:
    torch.manual_seed(0)
    x = torch.randn(80, 4, dtype=DOUBLE)
    y = x.sum(-1, keepdim=True) + 0.3 * torch.randn(80, 1, dtype=DOUBLE)
    model = network(1)
    q = osc.laplace(model, osc.likelihoods.Gaussian(1.0), (x, y), structure="full", prior="evidence")
    residuals = y - Linearisation(q.network, x).f - Linearisation(q.network, x).jvp(q.offset.unsqueeze(0))[0]
    free = len(x) - sum(osc.evidence.effective_parameters(q).values())
    assert abs(float(residuals.square().sum()) / free / float(q.likelihood.scale) ** 2 - 1) < 0.05
    again = osc.maximise_evidence(q)
    assert abs(float(again.likelihood.scale) / float(q.likelihood.scale) - 1) < 0.05
    fixed = osc.laplace(model, osc.likelihoods.Gaussian(0.7), (x, y), structure="full", prior=1.0)
    assert float(fixed.likelihood.scale) == 0.7, "noise is estimated with the prior only"


def test_data_that_cannot_be_held_leave_the_posterior_unrefined(
    trained: tuple[nn.Module, Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x, y = trained
    monkeypatch.setattr(variational, "free", lambda device: 1000)
    with pytest.warns(UserWarning, match="not refined: refinement holds the data"):
        q = osc.laplace(model, osc.likelihoods.Categorical(), (x, y), prior=1.0)
    assert q.offset is None
    with pytest.raises(ValueError, match="holds the data"):
        osc.laplace(model, osc.likelihoods.Categorical(), (x, y), prior=1.0, refine=True)


def test_data_that_change_are_noticed(trained: tuple[nn.Module, Tensor, Tensor]) -> None:
    smoothed = Smoothed(
        osc.likelihoods.Categorical(),
        trained[2],
        trained[0](trained[1]).detach(),
        torch.zeros(60, 1, 3, 1),
        torch.zeros(60, 3),
    )
    with pytest.raises(ValueError, match="another order"):
        smoothed.check(trained[0](trained[1].flip(0)).detach(), torch.arange(60))


# ---- parts -----------------------------------------------------------------------------------------------------------


def test_between_two_curvatures_is_their_mean(trained: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = trained
    for structure in ("full", "kron", "diag"):
        one, other = (
            osc.laplace(model, osc.likelihoods.Categorical(), part, structure=structure, prior=1.0, refine=False)
            for part in ((x, y), (x, (y + 1) % 3))
        )
        found = _between(one.structure, other.structure, 0.25)
        tensors = (each.tensors() for each in (found, one.structure, other.structure))
        for between, mine, theirs in zip(*(each.values() for each in tensors), strict=True):
            assert_close(between, 0.75 * mine + 0.25 * theirs, 1e-6)
    data = osc.laplace(model, osc.likelihoods.Categorical(), (x, y), structure="ekfac", prior=1.0, refine=False)
    assert _between(data.structure, data.structure, 0.5) is None  # it passes twice: its basis is no sum


def test_a_part_of_the_data_has_their_inputs_and_targets(trained: tuple[nn.Module, Tensor, Tensor]) -> None:
    model, x, y = trained
    batches = [(x[:7], y[:7]), (x[7:20], y[7:20]), (x[20:], y[20:])]
    q = osc.laplace(model, osc.likelihoods.Categorical(), batches, prior=1.0, refine=False)
    for rows in ([0, 3, 6, 7, 19, 20, len(x) - 1], [21, 22], list(range(len(x)))):
        part = Held.of(q, None).part(torch.tensor(rows))
        assert torch.equal(torch.cat([inputs for inputs, _ in part.batches]), x[rows])
        assert torch.equal(part.targets, y[rows])
        assert torch.equal(torch.cat([n for _, n in part.indexed]), torch.arange(len(rows)))


def test_an_interrupted_refinement_leaves_its_start_as_it_was(
    trained: tuple[nn.Module, Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    q = laplace(trained)
    before = {name: value.clone() for name, value in q.structure.tensors().items()}
    undisturbed = osc.refine(q)

    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(variational, "fitted", interrupted)
        with pytest.raises(KeyboardInterrupt):
            osc.refine(q)
    assert q.offset is None
    for name, value in q.structure.tensors().items():
        assert torch.equal(value, before[name])
    again = osc.refine(q)
    assert torch.equal(again.mean, undisturbed.mean)
