"""Continual learning: exact on linear models in any order, the two weights, and what is forgotten without a prior."""

from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.posteriors import Gaussian
from tests.laws import assert_close

DOUBLE = torch.double
continual_learning = osc.tasks.continual_learning
LIKELIHOOD = osc.likelihoods.Gaussian(0.5)
#: A training after which a small linear model is at its mode.
EXACT = {"epochs": 150, "lr": 0.1, "batch_size": 20, "device": "cpu"}

Task = tuple[Tensor, Tensor]


def linear(tasks: int = 2) -> tuple[nn.Module, list[Task]]:
    torch.manual_seed(0)
    model, truth = nn.Linear(3, 1).double(), torch.randn(3, 1, dtype=DOUBLE)
    x = torch.randn(tasks, 20, 3, dtype=DOUBLE)
    return model, list(zip(x, x @ truth + 0.5 * torch.randn(tasks, 20, 1, dtype=DOUBLE), strict=True))


def precision(q: Gaussian) -> Tensor:
    """Λ as a matrix."""
    return q.precision.multiply(torch.eye(len(q.mean), dtype=DOUBLE))


def classes(tasks: int = 2) -> list[Task]:
    """Two classes in the plane, the upper and the lower half; in every other task, at another place, exchanged."""
    torch.manual_seed(0)
    x = torch.randn(tasks, 100, 2)
    place = torch.tensor([4.0, 0.0])
    return [(at + number * place, ((at[:, 1] > 0).long() + number) % 2) for number, at in enumerate(x)]


def small() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(2, 20), nn.Tanh(), nn.Linear(20, 2))


@pytest.mark.parametrize("structure", ["full", pytest.param("kron", marks=pytest.mark.slow)])
@pytest.mark.parametrize("order", [1, pytest.param(-1, marks=pytest.mark.release)])
def test_linear_models_end_at_the_posterior_of_all_data_in_any_order(structure: str, order: int) -> None:
    model, tasks = linear()
    found = continual_learning(model, LIKELIHOOD, tasks[::order], tasks, structure=structure, prior=2.0, **EXACT)
    x, y = (torch.cat(part) for part in zip(*tasks, strict=True))
    joint = osc.laplace(model, LIKELIHOOD, (x, y), structure=structure, prior=2.0, refine=False)
    joint = osc.refine(joint, trust=None, tolerance=1e-12)
    assert_close(found.posterior.mean, joint.mean, 1e-3)
    assert_close(precision(found.posterior), precision(joint), 1e-6)
    assert found.accuracy is None
    assert torch.equal(found.scores, found.log_likelihood)


def test_weight_and_decay() -> None:
    model, tasks = linear()
    options = {"structure": "full", "prior": 2.0, "epochs": 1, "device": "cpu"}
    found = continual_learning(model, LIKELIHOOD, tasks, tasks, weight=3.0, decay=0.5, **options).posterior
    rows = [torch.cat([x, torch.ones(len(x), 1, dtype=DOUBLE)], 1) / 0.5 for x, _ in tasks]
    first, second = (j.T @ j for j in rows)
    expected = 0.5 * (2 * torch.eye(4, dtype=DOUBLE) + 3 * first) + 3 * second
    assert_close(precision(found), expected, 1e-6)


def test_a_record_can_be_continued() -> None:
    tasks, options = classes(3), {"epochs": 2, "weight": 2.0, "device": "cpu"}
    whole = continual_learning(small(), osc.likelihoods.Categorical(), tasks, tasks, **options)
    model = small()
    first = continual_learning(model, osc.likelihoods.Categorical(), tasks[:2], tasks[:2], **options)
    earlier = first.posterior
    assert torch.equal(first.accuracy, whole.accuracy[:2, :2])
    rest = [tasks[2], tasks[2]]
    again = continual_learning(model, osc.likelihoods.Categorical(), rest, rest, prior=earlier, **options)
    assert torch.equal(again.accuracy[0, 0], whole.accuracy[2, 2])


@pytest.mark.release
def test_less_is_forgotten_than_without_earlier_tasks() -> None:
    tasks, options = classes(), {"epochs": 60, "lr": 0.03, "batch_size": 25, "device": "cpu"}
    found, forgetful = (
        continual_learning(small(), osc.likelihoods.Categorical(), tasks, tasks, decay=decay, **options)
        for decay in (1.0, 1e-6)
    )
    assert float(found.accuracy.diag().min()) > 0.9
    assert found.backward_transfer > forgetful.backward_transfer + 0.1
    assert float(found.average[-1]) > float(forgetful.average[-1])


def test_the_record() -> None:
    scores = torch.tensor([[0.9, 0.5], [0.7, 0.8]])
    model, tasks = linear()
    q = osc.laplace(model, LIKELIHOOD, tasks[0], prior=1.0, refine=False)
    record = osc.tasks.ContinualRecord(q, scores.log(), scores)
    assert_close(record.average, torch.tensor([0.9, 0.75]))
    assert record.backward_transfer == pytest.approx(-0.2)
    assert record.metrics()["average"] == pytest.approx(0.75)
    assert record.metrics()["after_2/task_1"] == pytest.approx(0.7)


def test_the_model_ends_at_the_last_mode_in_its_own_mode() -> None:
    model, tasks = small().train(), classes()
    found = continual_learning(model, osc.likelihoods.Categorical(), tasks, tasks, epochs=1, device="cpu")
    assert model.training
    flat = found.posterior.network.space.flatten(dict(model.named_parameters()))
    assert_close(flat.detach(), found.posterior.mean)


def test_what_is_no_sequence_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # users run without checks of types
    model, tasks = small(), classes(3)

    def run(*data: object, **options: object) -> None:
        continual_learning(deepcopy(model), osc.likelihoods.Categorical(), *data, epochs=1, device="cpu", **options)

    for few in ([], tasks[:1]):
        with pytest.raises(ValueError, match="at least two tasks"):
            run(few, few)
    with pytest.raises(ValueError, match="3 tasks and 2 test sets"):
        run(tasks, tasks[:2])
    with pytest.raises(ValueError, match=r"training data of task 2 have inputs of shape \(1,\), the first task of"):
        run([tasks[0], (tasks[1][0][:, :1], tasks[1][1])], tasks[:2])
    with pytest.raises(ValueError, match="test data of task 1"):
        run(tasks[:2], [(tasks[1][0][:, :1], tasks[1][1]), tasks[1]])
    with pytest.raises(TypeError, match="read only once"):
        run([tasks[0], iter([tasks[1]])], tasks[:2])
    for name in ("weight", "decay"):
        with pytest.raises(ValueError, match=f"{name} must be positive"):
            run(tasks, tasks, **{name: 0.0})
    with pytest.raises(TypeError, match="tasks must be a list of data sets, got list_iterator"):
        run(iter(tasks), tasks)
    with pytest.raises(ValueError, match="prior before the first task must be given, got 'evidence'"):
        run(tasks, tasks, prior="evidence")
    with pytest.raises(TypeError, match="does not add"):
        run(tasks, tasks, structure="ekfac")
    with pytest.raises(TypeError, match="unknown training setting"):
        run(tasks, tasks, stpes=3)
