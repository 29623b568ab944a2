"""L2M on the cubic and on UCI sets: verdicts on what is exact or of cost, and measurements against what is known."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import osculate as osc
from experiments import Findings, Number, Record, Table, seeded
from experiments.l2m import figure1 as f, uci as u
from experiments.l2m.stated import SETS, by_split
from experiments.record import FAILS, HOLDS, Setup
from experiments.statements import across, level
from tests.experiments.limits import verdicts


@pytest.mark.parametrize(("r_hat", "expected"), [(1.01, HOLDS), (1.06, FAILS)])
def test_verdict_on_the_chains_and_the_worst_error_bar(r_hat: float, expected: str) -> None:
    table = Table({(f.LINEARISED, f.OVER[place]): [1.5, 0.4] for place in f.PLACES})
    table.append({(f.REFERENCE, f.R_HAT): r_hat, (f.REFERENCE, f.ESS): 1000.0})
    found = Findings((Number(f.REFERENCE, f.R_HAT, (1.0, r_hat)),), f.claims(table))
    assert verdicts("l2m-figure1", found) == [expected]
    assert "is 2.50" in found.claims[0].evidence


@pytest.fixture(scope="module")
def toy() -> f.Toy:
    return f.Toy(f.Settings(hidden=10, own=f.Own(epochs=400)), 0)


@pytest.fixture(scope="module")
def mode(toy: f.Toy) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
    return toy.at_mode()


def test_a_plain_training_loop_ends_at_the_mode_of_the_posterior(toy: f.Toy, mode: Any) -> None:
    model, _ = mode
    x, y = toy.data.train
    weights = torch.cat([p.flatten() for p in model.parameters()])
    joint = -toy.likelihood.log_prob(model(x), y).sum() + f.PRIOR / 2 * weights.square().sum()
    gradient = torch.cat([g.flatten() for g in torch.autograd.grad(joint, list(model.parameters()))])
    start = toy.network()
    first = -toy.likelihood.log_prob(start(x), y).sum()
    begin = torch.cat([g.flatten() for g in torch.autograd.grad(first, list(start.parameters()))])
    assert float(gradient.norm()) < 0.05 * float(begin.norm())


def test_the_printed_formula_has_the_width_of_its_prior_and_the_corrected_one_has_not(toy: f.Toy, mode: Any) -> None:
    model, optimizer = mode
    printed = toy.l2m(model, optimizer, scaling="paper", prior_precision=0.1)
    assert float(printed.prior.vector(printed.network.space)[0]) == pytest.approx(10.0)
    assert f.scored(toy, toy.l2m(model, optimizer))[0][f.BOUND] < 50
    tuned = toy.tuned(model, optimizer)
    assert float(tuned.likelihood.scale) == pytest.approx(float(toy.likelihood.scale))  # type: ignore[attr-defined]
    again = osc.maximise_evidence(toy.l2m(model, optimizer), noise=False)
    assert again.prior.precision.numel() == 1


def test_numbers_of_the_cubic_are_in_its_own_units(toy: f.Toy) -> None:
    class Certain(torch.nn.Module):
        """x³ in standardised units, without weights that matter."""

        def __init__(self) -> None:
            super().__init__()
            self.free = torch.nn.Parameter(torch.zeros(1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return toy.targets.apply(toy.inputs.undo(x) ** 3) + self.free / toy.targets.scale

    q = osc.laplace(Certain(), toy.likelihood, toy.data.train, structure="diag", prior=1.0, refine=False)
    numbers, band = f.scored(toy, q)
    expected = (1 / (20 / 9 + 1)) ** 0.5  # of one constant, known by 20 data with noise 3 and a prior N(0, 1)
    assert [numbers[f.SD[place]] for place in f.PLACES] == pytest.approx([expected] * 3, rel=1e-3)
    assert band["mean"][0] == pytest.approx(-216, abs=0.1)
    assert numbers[f.COVERAGE] == pytest.approx(0.95, abs=0.04)
    assert numbers[f.NLL] == pytest.approx(0.5 + np.log(3 * (2 * np.pi) ** 0.5), abs=0.1)


@pytest.mark.parametrize(("share", "single", "expected"), [(0.1, 0.2, HOLDS), (0.3, 0.2, FAILS), (0.2, 0.2, HOLDS)])
def test_verdict_on_the_cost(share: float, single: float, expected: str) -> None:
    shares = {u.READ: 0.01, u.WHOLE: 0.1, u.TUNED: 0.3, u.PASS: single}
    table = Table.of({name: [shares] * 2 for name in SETS} | {"wine": [shares | {u.WHOLE: share}] * 2})
    numbers = tuple(Number(row, column, tuple(values)) for (row, column), values in table.items())
    found = Findings(numbers, u.claims(table))
    assert verdicts("l2m-uci", found) == [expected]
    cost = found.claims[-1]
    assert "nothing is saved" not in cost.evidence
    dear = list(u.claims(Table.of({"yacht": [shares | {u.WHOLE: single + 0.1}] * 2})))[-1]
    assert "nothing is saved" in dear.evidence


def test_the_noise_scale_is_that_of_held_out_data(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = replace(u.Settings(), hidden=3, training=u.Training(steps=200))
    found = u.chosen_scale(settings, "diabetes", 0, 0)
    data = osc.data.load("diabetes")
    spoilt = replace(data, test=(data.test[0], data.test[1] + 100))
    monkeypatch.setattr(osc.data, "load", lambda *_, **__: spoilt)
    assert u.chosen_scale(settings, "diabetes", 0, 0) == found
    noisy = replace(data, validation=(data.validation[0], 10 * data.validation[1]))
    monkeypatch.setattr(osc.data, "load", lambda *_, **__: noisy)
    assert u.chosen_scale(settings, "diabetes", 0, 0) == max(settings.scales)


def test_curvatures_taken_again_are_those_of_single_gradients() -> None:
    data = osc.data.load("diabetes", validation_size=0)
    settings = replace(u.Settings(), hidden=2, training=u.Training(steps=600, batch=8))
    trained = u.trained(settings, data.train, osc.likelihoods.Gaussian(0.7), 0)
    method = trained.method(1.0)
    with seeded(0):
        again = method.refresh(1000)
    found = u.compared(trained.method(1.0).posterior, again, trained.diagonal("empirical_fisher"))
    assert found[u.RANK_AGAIN] > 0.95
    assert 0.8 < found[u.RATIO_AGAIN] < 1.2
    mine, read = u.curvature(trained.method(1.0).posterior), trained.fisher().double()
    torch.testing.assert_close(mine, read, rtol=1e-4, atol=1e-6)


def test_curvatures_that_are_zero_are_left_out_of_the_logarithm() -> None:
    findings = Findings((Number("a", "MAP", (-1.0,)),), (), {u.SCATTER: {"a": [[0.0, 1.0, 10.0], [1.0, 2.0, 5.0]]}})
    above, below = u.draw(Record("l2m-uci", "", "", Setup("small", {}, (0,), 1.0, {}), findings)).axes
    assert len(above.lines[1].get_xdata()) == 2
    assert [label.get_text() for label in below.get_yticklabels()] == ["MAP"]


def test_seeds_of_a_split_are_averaged() -> None:
    ours = Number("yacht", "L2M", (1.0, 2.0, 3.0, 5.0, 4.0, 7.0))  # two seeds of three splits
    theirs = Number("yacht", "MAP", (0.0, 1.0, 2.0, 0.0, 1.0, 2.0))
    setup = Setup("small", {"splits": 3}, (0, 1), 1.0, {})
    record = Record("l2m-uci", "", "", setup, Findings((ours, theirs), (), {}))
    (pair,) = by_split(across("yacht", "L2M", "MAP"))(record).values()
    assert pair == ([3.0, 3.0, 5.0], [0.0, 1.0, 2.0])
    with pytest.raises(LookupError, match="6 values"):
        by_split(level("yacht", "L2M"))(replace(record, setup=replace(setup, settings={"splits": 4})))


def test_no_two_trainings_start_alike() -> None:
    members = range(u.Training().members)
    starts = [u.start_of(split, seed) + k for split in range(20) for seed in range(10) for k in members]
    assert len(set(starts)) == len(starts)
