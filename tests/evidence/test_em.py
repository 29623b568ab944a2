"""Precisions by posterior samples: unbiased, close to those of exact variances, and of draws that are independent."""

import warnings
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.evidence.em import PosteriorDraws, expectation_maximisation
from osculate.posteriors import Gaussian
from osculate.structures import MatrixFree
from osculate.structures.blocks import Batch
from tests.errors import says
from tests.laws import assert_close, dense_precision, targets

CATEGORICAL = osc.likelihoods.Categorical()
#: A sketch that has the largest twenty eigenvalues, and leaves the rest to the samples.
STRUCTURE = MatrixFree(rank=20, tolerance=1e-4)


def classes(n: int = 200) -> tuple[nn.Module, Tensor, Tensor]:
    """A three-class problem, and a network of 99 parameters that was trained a little."""
    x = torch.randn(n, 2, dtype=torch.double)
    f = torch.stack([1.5 * x[:, 0], x[:, 1] ** 2 - 1, (2 * x[:, 0]).sin() * x[:, 1]], 1)
    y = torch.distributions.Categorical(logits=1.5 * f).sample()
    model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 3)).double()
    optimiser = torch.optim.LBFGS(model.parameters(), max_iter=60, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimiser.zero_grad()
        penalty = 0.5 * sum(p.square().sum() for p in model.parameters())
        loss = nn.functional.cross_entropy(model(x), y, reduction="sum") + penalty
        loss.backward()
        return loss

    optimiser.step(closure)
    return model, x, y


def fitted(structure: str | MatrixFree = STRUCTURE, **options: object) -> tuple[Gaussian, Tensor, Tensor]:
    torch.manual_seed(0)
    model, x, y = classes()
    return osc.laplace(model, CATEGORICAL, (x, y), structure=structure, **{"prior": 0.4, **options}, refine=False), x, y


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_estimates_of_gamma_are_unbiased_for_each_group() -> None:
    """Each form, with a rough sketch, a noise scale, a temperature and a precision for each tensor."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    x = torch.randn(12, 3, dtype=torch.double)
    y = torch.randn(12, 2, dtype=torch.double)
    likelihood = osc.likelihoods.Gaussian(0.5)
    q = osc.laplace(model, likelihood, (x, y), structure=MatrixFree(rank=3, tolerance=1e-6), prior=1.0, refine=False)
    prior = osc.priors.Layerwise(torch.tensor([0.5, 1.0, 2.0, 3.0], dtype=torch.double))
    q = q.replace(prior=prior, likelihood=osc.likelihoods.Gaussian(0.4), temperature=1.5)
    delta = q.prior.vector(q.network.space)
    expected = q.network.space.totals(1 - delta * dense_precision(q).inverse().diagonal())
    found = PosteriorDraws.of(q, 1500, generator()).effective_parameters(q)
    assert set(found) == {"curvature", "norm", "both", "sketch"}
    for name, each in found.items():
        error = each.std(0) / len(each) ** 0.5
        assert float(((each.mean(0) - expected) / error).abs().max()) < 4, name
        assert float(error.max()) < 0.4, name
    spread, means = (torch.stack([getattr(each, f)(0) for each in found.values()]) for f in ("std", "mean"))
    chosen = PosteriorDraws.of(q, 1500, generator()).mean(q)
    assert torch.equal(chosen, means[spread.argmin(0), torch.arange(4)])
    assert len(set(spread.argmin(0).tolist())) > 1  # no form is best for all groups


@pytest.mark.slow
def test_64_samples_come_within_five_percent_of_exact_variances() -> None:
    q, x, y = fitted()
    exact = osc.maximise_evidence(fitted("full")[0], mode="linear", data=(x, y), tolerance=1e-4)
    found = expectation_maximisation(q, samples=64, generator=generator())
    assert float(found.prior.precision / exact.prior.precision) == pytest.approx(1, abs=0.05)
    gamma = sum(osc.evidence.effective_parameters(exact).values())
    assert float(PosteriorDraws.of(found, 64, generator()).mean(found)[0]) == pytest.approx(gamma, rel=0.01)
    few = expectation_maximisation(q, samples=2, generator=generator())
    assert float(few.prior.precision) != float(found.prior.precision)


@pytest.mark.slow
def test_the_mode_em_is_that_and_a_seed_repeats() -> None:
    q, *_ = fitted()
    one, two = (osc.maximise_evidence(q, mode="em") for _ in range(2))
    assert torch.equal(one.prior.precision, two.prior.precision)
    assert torch.equal(one.prior.precision, expectation_maximisation(q).prior.precision)
    other = expectation_maximisation(q, generator=generator(5))
    assert 0 < float((other.prior.precision - one.prior.precision).abs()) < 0.1 * float(one.prior.precision)


@pytest.mark.slow
def test_groups_and_noise_of_a_regression_are_those_of_exact_variances() -> None:
    torch.manual_seed(0)
    x = torch.randn(40, 2, dtype=torch.double)
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    noise = 0.1 * torch.randn(40, 1, dtype=torch.double)
    y = 3 * model(x).detach() + (2 * x[:, :1]).sin() * x[:, 1:] + noise
    prior, likelihood = osc.priors.Layerwise(1.0), osc.likelihoods.Gaussian(1.0)
    exact, sampled = (
        osc.laplace(model, likelihood, (x, y), structure=structure, prior=prior, refine=False)
        for structure in ("full", MatrixFree(tolerance=1e-5))
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the evidence has no maximum")
        exact = osc.maximise_evidence(exact, mode="linear", data=(x, y), tolerance=1e-3)
        sampled = osc.maximise_evidence(sampled, mode="em", tolerance=1e-3)
    assert_close(sampled.likelihood.scale, exact.likelihood.scale, 1e-2)  # the sketch is exact here, and so is γ
    logs = torch.stack([q.prior.precision.log() for q in (sampled, exact)])
    held = logs > 20  # groups that the data explain best at zero
    assert torch.equal(held[0], held[1])
    assert int((~held[0]).sum()) >= 3
    assert float((logs[0] - logs[1])[~held[0]].abs().max()) < 0.05


def test_tensors_of_the_same_shape_have_draws_of_their_own() -> None:
    model = nn.Sequential(nn.Linear(4, 4, bias=False), nn.Tanh(), nn.Linear(4, 4, bias=False)).double()
    x = torch.randn(6, 4, dtype=torch.double)
    q = osc.laplace(
        model, CATEGORICAL, (x, targets(CATEGORICAL, model, x)), structure=STRUCTURE, prior=1.0, refine=False
    )
    draws = PosteriorDraws.of(q, 400, generator())
    one, other = draws.white.split(16, 1)
    correlation = (one.T @ other / 400).abs()
    assert float(correlation.max()) < 5 / 400**0.5


@pytest.mark.slow
def test_stochastic_dual_descent_finds_the_samples_too() -> None:
    torch.manual_seed(0)
    model = nn.Linear(2, 2).double()
    x = torch.randn(12, 2, dtype=torch.double)
    y = targets(CATEGORICAL, model, x)
    found = []
    for structure in (MatrixFree(tolerance=1e-6), MatrixFree(solver="sdd", tolerance=1e-2)):
        q = osc.laplace(model, CATEGORICAL, (x, y), structure=structure, prior=3.0, refine=False)
        draws = PosteriorDraws.of(q, 2, generator())
        draws.mean(q)
        found.append(draws.theta)
    assert_close(found[1], found[0], 2e-2)


def test_errors_and_the_warning_name_the_way_out() -> None:
    q, x, y = fitted()
    with pytest.raises(TypeError, match=says("'full'", "matrix_free", "mode='linear'")):
        osc.maximise_evidence(fitted("full")[0], mode="em", data=(x, y))
    with pytest.raises(ValueError, match=says("samples=1", "2 at least")):
        expectation_maximisation(q, samples=1)
    with pytest.warns(UserWarning, match=says("1 steps", "fewer precisions")):
        expectation_maximisation(q.replace(prior=osc.priors.Isotropic(5.0)), samples=4, max_steps=1)


@pytest.mark.slow
def test_the_last_solutions_save_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Warm starts: of the same draws for a precision near by."""
    q, *_ = fitted(replace(STRUCTURE, rank=2))
    draws = PosteriorDraws.of(q, 4, generator())
    draws.mean(q)
    near = q.replace(prior=osc.priors.Isotropic(torch.tensor(0.41, dtype=torch.double)))
    calls: list[int] = []
    product = Batch.product

    def counted(batch: Batch, v: Tensor) -> Tensor:
        calls.append(len(v))
        return product(batch, v)

    monkeypatch.setattr(Batch, "product", counted)
    counts = []
    for start in (None, draws.theta):
        calls.clear()
        near.precision.parts[0].optimised(draws.data, draws.white, start)
        counts.append(len(calls))
    assert counts[1] < 0.8 * counts[0]
