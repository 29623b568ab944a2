"""The learning rate by trials, and rounds of training while the validation loss falls."""

import csv
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.training import Training, train
from osculate.training.convergence import CAUTION, FALL, RATES, fall

X = torch.randn(80, 4, generator=torch.Generator().manual_seed(1))
Y = X @ torch.tensor([[1.0], [-2.0], [0.5], [0.0]])
DATA, HELD_OUT = (X[:64], Y[:64]), (X[64:], Y[64:])


class Breaks(osc.methods.MAP):
    """Raises at the loss with this number."""

    def __init__(self, at: int) -> None:
        super().__init__(network(), osc.likelihoods.Gaussian(0.3))
        self.at = at

    def loss(self, x: Tensor, y: Tensor, num_data: int) -> Tensor:
        self.at -= 1
        if self.at < 0:
            raise RuntimeError
        return super().loss(x, y, num_data)


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Dropout(0.1), nn.Linear(8, 1))


def run(method: Any = None, **options: Any) -> Training:
    method = method or osc.methods.MAP(network(), osc.likelihoods.Gaussian(0.3))
    options = {"epochs": 7, "batch_size": 2, "lr": "auto", "validation": HELD_OUT, **options}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the validation loss is still falling")
        return train(method, DATA, progress=False, device="cpu", **options)


def weights(training: Training) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in training.model.parameters()])


@pytest.mark.slow
def test_the_chosen_rate_trains_as_if_it_were_given() -> None:
    chosen = run()
    (rate,) = {row["rate"] for row in chosen.history}
    assert rate in [each / CAUTION for each in RATES]
    assert rate > 1.1e-3, "on so few steps small rates lose"
    assert torch.equal(weights(chosen), weights(run(lr=rate))), "the trials leave no trace"


def test_a_diverging_rate_loses_its_trial() -> None:
    class Fragile(osc.methods.MAP):
        def loss(self, x: Tensor, y: Tensor, num_data: int) -> Tensor:
            moved = (self.model[0].weight - network()[0].weight).abs().max()
            return super().loss(x, y, num_data) + (torch.inf if moved > 0.06 else 0.0)

    with pytest.raises(FloatingPointError, match=f"it is {RATES[0] / CAUTION:g}"):
        run(Fragile(network(), osc.likelihoods.Gaussian(0.3)), epochs=12, schedule="constant")


def test_a_training_too_short_for_trials_has_the_usual_rate() -> None:
    assert {row["rate"] for row in run(epochs=4).history} == {1e-3}
    assert "rate" not in run(epochs=2, lr=0.01).history[0]


def test_rounds_go_on_while_the_validation_loss_falls_and_begin_the_schedule_again() -> None:
    done = run(lr=1e-2, epochs=4, rounds=3, batch_size=16)
    assert [row["round"] for row in done.history] == [1] * 4 + [2] * 4 + [3] * 4
    assert done.history[4]["lr"] == done.history[0]["lr"]
    assert done.history[-1]["validation_nll"] < done.history[3]["validation_nll"] - FALL


def test_rounds_end_where_the_loss_does_not_fall_and_the_best_weights_are_kept() -> None:
    noise = torch.randn(16, 1, generator=torch.Generator().manual_seed(7))
    method = osc.methods.MAP(network(), osc.likelihoods.Gaussian(0.3))
    held_out = HELD_OUT[0], noise
    done = run(method, lr=0.05, epochs=8, batch_size=16, rounds=3, validation=held_out)
    assert len(done.history) == 8
    best = min(row["validation_nll"] for row in done.history)
    assert best < done.history[-1]["validation_nll"]
    found = -method.eval().log_prob(*held_out).mean().item()
    assert found == pytest.approx(best, rel=1e-5)


def test_a_loss_that_is_still_falling_at_the_end_warns_with_the_way_out() -> None:
    method = osc.methods.MAP(network(), osc.likelihoods.Gaussian(0.3))
    with pytest.warns(UserWarning, match=r"still falling after 2 rounds of 4 epochs.*rounds=4.*--rounds 4 --resume"):
        train(method, DATA, validation=HELD_OUT, epochs=4, lr=1e-2, batch_size=16, rounds=2, progress=False)


@pytest.mark.release
@pytest.mark.parametrize("at", [40, 300])
def test_an_interrupted_run_goes_on_with_its_rate_and_rounds(at: int, tmp_path: Path) -> None:
    how: dict[str, Any] = {"epochs": 7, "rounds": 2}  # 224 steps a round, three trials of 14
    whole = run(**how)
    assert len(whole.history) == 14
    with pytest.raises(RuntimeError):
        run(Breaks(42 + at), folder=tmp_path, **how)
    resumed = run(folder=tmp_path, resume=True, **how)
    assert torch.equal(weights(whole), weights(resumed))
    with (tmp_path / "training.csv").open() as file:
        assert {row["rate"] for row in csv.DictReader(file)} == {str(whole.history[0]["rate"])}


def test_a_run_goes_on_with_further_rounds(tmp_path: Path) -> None:
    how: dict[str, Any] = {"epochs": 3, "batch_size": 16, "lr": 1e-2, "folder": tmp_path}
    run(rounds=2, **how)
    assert len(run(rounds=3, resume=True, **how).history) == 9


def test_the_fall_is_that_of_the_logarithm_of_the_error_where_there_is_noise() -> None:
    """Half the error is the same fall, whatever the noise scale of the training."""
    for scale in (0.1, 3.0):
        noise = osc.likelihoods.Gaussian(scale)
        zero = torch.zeros(1, 2)
        least, *rows = (-float(noise.log_prob(zero + error, zero)) for error in (0.0, 0.4, 0.2))
        found = fall([{"validation_nll": nll} for nll in rows], 1, least, 2)
        assert found == pytest.approx(0.6931, abs=1e-3)
    assert fall([{"validation_nll": 1.0}], 1, None, 1) == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 2, "validation": None}, "rounds=2 needs validation data"),
        ({"rounds": 2, "patience": 3}, "and no patience"),
        ({"rounds": 0}, "rounds must be a whole number"),
        ({"lr": "fast"}, "lr must be a positive finite number or 'auto', got 'fast'"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(**options)


def test_methods_with_steps_of_their_own_choose_no_rate() -> None:
    for change in ({}, {"lr": 0.1, "rounds": 2}):
        with pytest.raises(ValueError, match="is not for IVON: leave it out"):
            run(osc.methods.IVON(network(), osc.likelihoods.Gaussian(0.3)), **change)
