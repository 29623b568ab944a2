"""Outputs and classes by the hundred thousand: served in seconds, or refused before the work with the way out."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from tests.errors import says

C = 100_000
KINDS = tuple(osc.curvature.REGISTRY)
STRUCTURES = tuple(osc.structures.REGISTRY)
#: Pairs that take a quarter of a minute.
LONG = {("low_rank", kind) for kind in KINDS} | {("matrix_free", kind) for kind in KINDS} | {("diag", "hessian")}


def problem(task: str, size: int = 32) -> tuple[nn.Module, osc.likelihoods.Likelihood, tuple[Tensor, Tensor]]:
    """A network with many outputs, its likelihood, and data whose labels leave out most classes."""
    torch.manual_seed(0)
    layers = [nn.Linear(8, 4), nn.Tanh(), nn.Linear(4, C)]
    x, labels = torch.randn(size, 8), torch.arange(size) % 2 * (C - 1)
    if task == "classification":
        return nn.Sequential(*layers), osc.likelihoods.Categorical(), (x, labels)
    if task == "regression":
        return nn.Sequential(*layers), osc.likelihoods.Gaussian(), (x, torch.randn(size, C))
    positions = nn.Sequential(*layers, nn.Unflatten(1, (1000, 100)))
    return positions, osc.likelihoods.Categorical(class_axis=1), (x, torch.randint(2, (size, 100)) * 999)


def served_or_refused(compute: Callable[[], Any]) -> Any:
    """The result; or None if a sentence refuses it, which names a size and a way out."""
    try:
        return compute()
    except ValueError as error:
        message = str(error)
    except NotImplementedError as error:  # a network whose outputs have no such distribution
        message = str(error)
    if not re.search(r"(?i)\b(use|draw|take|predict|leave|choose|ask)\b", message):
        pytest.fail(f"the refusal names no way out: {message}")
    return None


def fit(
    task: str, structure: Any, curvature: str = "fisher", size: int = 32, **options: Any
) -> osc.posteriors.Gaussian:
    model, likelihood, data = problem(task, size)
    options = {"prior": 1.0, "refine": False} | options
    return osc.laplace(model, likelihood, data, structure=structure, curvature=curvature, **options)


TABLE = [
    pytest.param(structure, kind, marks=[pytest.mark.release] if (structure, kind) in LONG else [])
    for structure in STRUCTURES
    for kind in KINDS
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("task", ["classification", "regression", "positions"])
@pytest.mark.parametrize(("structure", "kind"), TABLE)
def test_every_structure_fits_or_says_why_not(structure: str, kind: str, task: str) -> None:
    q = served_or_refused(lambda: fit(task, structure, kind))
    if q is not None:
        assert bool(q.sample(1).isfinite().all())


@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.filterwarnings("ignore:predicted with 16 draws")
def test_the_default_is_served_by_a_way_that_ends_and_what_is_named_is_refused(task: str) -> None:
    model, likelihood, data = problem(task)
    with pytest.warns(UserWarning, match="insists on") as said:
        q = osc.laplace(model, likelihood, data)
    words = [str(each.message) for each in said]
    assert any("2.weight" in each and "structure='kron' insists" in each for each in words)
    assert any("curvature='fisher'" in each and "curvature='ggn' insists" in each for each in words)
    assert bool(osc.log_evidence(q).isfinite())
    assert bool(osc.predict(q, data[0][:2]).mean.isfinite().all()) or task == "classification"
    with pytest.raises(ValueError, match=says("structure='kron'", "100,000 x 5", "GB", "'diag'", "curvature='fisher'")):
        osc.laplace(model, likelihood, data, structure="kron")


def test_columns_for_all_outputs_are_counted_beforehand() -> None:
    with pytest.raises(ValueError, match=says("100,000 backward passes", "32 data", "'fisher'", "GGN(limit=")):
        fit("regression", "diag", "ggn")
    with pytest.raises(ValueError, match=says("100,000 backward passes", "32 data")):  # of a small part of the network
        fit("regression", "kron", "ggn", subset=["0"])
    model, likelihood, (x, y) = problem("regression")
    loader = [(x[n : n + 1], y[n : n + 1]) for n in range(len(x))]  # one datum would be possible, and not all of them
    with pytest.raises(ValueError, match=says("100,000 backward passes", "32 data")):
        osc.laplace(model, likelihood, loader, structure="diag", curvature="ggn", prior=1.0)


def test_the_limit_of_columns_is_a_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("osculate.curvature.engine.LONG", 1.0)
    model, data = nn.Linear(2, 3), (torch.randn(5, 2), torch.randint(3, (5,)))
    fitted = [
        osc.laplace(model, osc.likelihoods.Categorical(), data, structure="diag", curvature=curvature, prior=1.0)
        for curvature in ("fisher", osc.curvature.GGN(limit=3))
    ]
    assert len(fitted) == 2
    with pytest.raises(ValueError, match=says("3 backward passes", "5 data")):
        osc.laplace(model, osc.likelihoods.Categorical(), data, structure="diag", curvature=osc.curvature.GGN(limit=2))


def test_rows_of_a_dual_posterior_are_counted_beforehand() -> None:
    for options in ({}, {"points": 2}):
        with pytest.raises(ValueError, match=says("structure='dual'", "rows", "limit is 20,000", "'fisher'")):
            fit("regression", osc.structures.Dual(**options), "ggn")


@pytest.mark.parametrize("select", ["function_space", "magnitude"])
def test_a_subnetwork_of_a_network_with_many_outputs(select: str) -> None:
    some = osc.Subnetwork(1e-4, select)
    q = served_or_refused(lambda: fit("regression", "full", subset=some))
    assert (q is None) == (select == "function_space")


#: Uses of a posterior; True where it is served.
USES: dict[str, tuple[Callable[[Any, Tensor], Any], bool]] = {
    "default": (lambda q, x: osc.predict(q, x[:3]), True),
    "probit": (lambda q, x: osc.predict(q, x[:3], link="probit"), False),
    "functions": (lambda q, x: osc.predict(q, x[:1], link="functions", samples=5), True),
    "networks": (lambda q, x: osc.predict(q, x, via="sampled", samples=5), True),
    "mode": (lambda q, x: osc.predict(q, x, via="mode"), True),
    "outputs together": (lambda q, x: osc.predict(q, x[:1], joint="outputs"), False),
    "inputs together": (lambda q, x: osc.predict(q, x[:2], joint="batch"), False),
    "draws": (lambda q, x: osc.sample_functions(q, x, 5), True),
    "very many draws": (lambda q, x: osc.sample_functions(q, x, 10**6), False),
    "covariances": (lambda q, x: osc.functional_variance(q, x[:1]), False),
    "variances": (lambda q, x: osc.functional_variance(q, x, diagonal=True), False),
    "estimated variances": (lambda q, x: osc.functional_variance(q, x, True, via="samples", samples=5), True),
    "process": (lambda q, x: osc.function_posterior(q, x[:1]).covariance, False),
    "evidence": (lambda q, x: osc.log_evidence(q), True),
    "prior": (lambda q, x: osc.maximise_evidence(q), True),
    "refinement": (lambda q, x: osc.refine(q, trust=0.1), True),
    "calibration": (lambda q, x: osc.tasks.calibration(q, q.data), True),
    "calibration of the mode": (lambda q, x: osc.tasks.calibration(q, q.data, via="mode"), True),
    "information": (lambda q, x: osc.tasks.acquire(q, x, 2, "bald", samples=5), True),
    "entropy": (lambda q, x: osc.tasks.acquire(q, x, 2, "entropy", samples=5), True),
    "batch of labels": (lambda q, x: osc.tasks.acquire(q, x, 2, "batch"), False),
    "sensitivity": (lambda q, x: osc.tasks.sensitivity(q, x[:1], "variance", steps=2, samples=2), True),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("use", USES)
def test_every_use_of_a_posterior_is_served_or_refused(use: str, task: str) -> None:
    function, served = USES[use]
    q = fit(task, "diag", size=4)
    found = served_or_refused(lambda: function(q, q.data[0]))
    assert (found is not None) == served


def test_draws_that_do_not_fit_are_refused_in_words_of_the_task() -> None:
    q = fit("classification", "diag", size=4)
    with pytest.raises(ValueError, match=says("1,000,000 draws", "100,000 outputs", "GB", "samples=…", "batch_size=…")):
        osc.tasks.acquire(q, q.data[0], 2, "bald", samples=10**6)
    with pytest.raises(ValueError, match=says("100,000 backward passes", "Tuning", "'sampled'", "TemperatureScaling")):
        osc.tune(q, q.data)


def test_a_likelihood_without_a_closed_form_builds_no_matrix_of_all_outputs() -> None:
    class Own(osc.likelihoods.Likelihood):
        def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
            return -(f - y).abs().exp().sum(1)

    f = torch.zeros(1, C)
    for compute in (Own().local_hessian, Own().local_root, Own().root, osc.likelihoods.Categorical().local_hessian):
        with pytest.raises(ValueError, match=says("100,000 x 100,000", "GB", "curvature='fisher'")):
            compute(
                f, torch.zeros(1, C) if isinstance(getattr(compute, "__self__", None), Own) else torch.zeros(1).long()
            )
