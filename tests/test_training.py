"""Training: a run is a function of its settings, also when it is stopped, resumed, or broken off."""

import csv
import logging
import os
import signal
import warnings
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import osculate as osc
from osculate.batches import shuffled
from osculate.likelihoods import Categorical, Gaussian
from osculate.methods.map import MAP
from osculate.posteriors import Point
from osculate.training import Settings, Training, train

X, Y = torch.randn(50, 4, generator=torch.Generator().manual_seed(1)), torch.arange(50) % 3
HELD_OUT = (X[:20] + 0.1, Y[:20])


def network(activation: nn.Module | None = None) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 8), activation or nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))


def run(method: nn.Module | None = None, data: Any = (X, Y), **settings: Any) -> Training:
    settings = {"epochs": 4, "batch_size": 16, "lr": 1e-2, "progress": False, "device": "cpu", **settings}
    return train(method or MAP(network(), Categorical()), data, **settings)


def weights(training: Training) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in training.model.parameters()])


class Breaks(MAP):
    """Raises in the middle of an epoch: at the loss with this number."""

    def __init__(self, at: int, error: BaseException) -> None:
        super().__init__(network(), Categorical())
        self.at, self.error = at, error

    def loss(self, x: Tensor, y: Tensor, num_data: int) -> Tensor:
        self.at -= 1
        if self.at < 0:
            raise self.error
        return super().loss(x, y, num_data)


# ---- what training reaches -------------------------------------------------------------------------------------


def test_training_reaches_the_closed_form_mode_of_a_linear_model(float64: None) -> None:
    x = torch.randn(40, 3)
    y = x @ torch.tensor([[1.0], [-2.0], [0.5]]) + 0.1 * torch.randn(40, 1)
    model, scale, precision = nn.Linear(3, 1, bias=False), 0.5, 2.0
    mode = torch.linalg.solve(x.T @ x / scale**2 + precision * torch.eye(3), x.T @ y / scale**2)
    run(MAP(model, Gaussian(scale), precision), (x, y), epochs=300, batch_size=40, lr=0.1)
    torch.testing.assert_close(model.weight.detach(), mode.T, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
@pytest.mark.parametrize("schedule", ["constant", "cosine", "linear", "one_cycle"])
def test_every_optimiser_and_schedule_descends(optimizer: str, schedule: str) -> None:
    history = run(epochs=6, optimizer=optimizer, schedule=schedule).history
    assert history[-1]["train_loss"] < history[0]["train_loss"]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("constant", [1, 1, 1, 1]),
        ("linear", [0.8125, 0.5625, 0.3125, 0.0625]),  # at the last of four batches of each of four epochs
        ("cosine", [0.9157, 0.5975, 0.2222, 0.0096]),
    ],
)
def test_the_rate_follows_its_schedule(schedule: str, expected: list[float]) -> None:
    rates = [row["lr"] for row in run(schedule=schedule, lr=0.5).history]
    assert rates == pytest.approx([0.5 * factor for factor in expected], abs=1e-4)


def test_the_result_holds_posterior_model_and_history() -> None:
    model = network()
    done = run(MAP(model, Categorical()), validation=HELD_OUT)
    assert isinstance(done.posterior, Point)
    assert done.model is model
    assert [row["epoch"] for row in done.history] == [1, 2, 3, 4]
    assert set(done.history[0]) == {"epoch", "train_loss", "validation_nll", "lr", "seconds"}
    nll = -Categorical().log_prob(done.posterior.network(HELD_OUT[0]), HELD_OUT[1]).mean().item()
    assert done.history[-1]["validation_nll"] == pytest.approx(nll, rel=1e-5)


def test_the_train_loss_of_an_epoch_is_the_mean_over_the_data() -> None:
    done = run(MAP(nn.Linear(4, 3), Categorical()), epochs=1, lr=1e-12, batch_size=16)
    expected = MAP(done.model, Categorical()).loss(X, Y, len(X)).item()
    assert done.history[0]["train_loss"] == pytest.approx(expected, rel=1e-5)


# ---- what a method does at the end of an epoch --------------------------------------------------------------------


class Counts(MAP):
    """Counts epochs in a buffer, and from the second on says how many; notes what it is given."""

    def __init__(self) -> None:
        super().__init__(network(), Categorical())
        self.register_buffer("ended", torch.zeros((), dtype=torch.long))
        self.given: list[tuple[int, int, Tensor, Tensor]] = []

    def end_epoch(self, epoch: int, epochs: int, data: Any) -> dict[str, float]:
        self.ended += 1
        first, again = ([torch.cat(part) for part in zip(*data, strict=True)] for _ in range(2))
        assert torch.equal(first[0], again[0])
        self.given.append((epoch, epochs, first[0], first[1]))
        return {"ended": float(self.ended)} if epoch > 1 else {}


@pytest.mark.parametrize("data", ["tensors", "dataset", "batches"])
def test_a_method_sees_every_epochs_end_with_the_data_in_their_own_order(data: str, tmp_path: Path) -> None:
    source = {
        "tensors": (X, Y),
        "dataset": TensorDataset(X, Y),
        "batches": list(zip(X.split(16), Y.split(16), strict=True)),
    }[data]
    method = Counts()
    done = run(method, source, folder=tmp_path)
    assert [(epoch, epochs) for epoch, epochs, _, _ in method.given] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert all(torch.equal(x, X) and torch.equal(y, Y) for _, _, x, y in method.given)
    assert [row.get("ended") for row in done.history] == [None, 2.0, 3.0, 4.0]
    with (tmp_path / "training.csv").open() as file:
        assert [row["ended"] for row in csv.DictReader(file)] == ["", "2.0", "3.0", "4.0"]
    assert torch.equal(weights(done), weights(run(data=source)))


def test_buffers_survive_an_interruption(tmp_path: Path) -> None:
    run(Counts(), epochs=2, schedule="constant", folder=tmp_path)
    method = Counts()
    run(method, epochs=5, schedule="constant", folder=tmp_path, resume=True)
    assert int(method.ended) == 5
    assert [epoch for epoch, *_ in method.given] == [3, 4, 5]


# ---- the same seed, the same run; stopped and resumed, still the same run ------------------------------------------


@pytest.mark.parametrize("data", ["tensors", "dataset", "shuffling loader"])
def test_the_same_seed_gives_the_same_parameters_and_another_seed_others(data: str) -> None:
    source = {
        "tensors": (X, Y),
        "dataset": TensorDataset(X, Y),
        "shuffling loader": DataLoader(TensorDataset(X, Y), batch_size=16, shuffle=True),
    }[data]
    first = weights(run(data=source))
    torch.manual_seed(99)
    assert torch.equal(first, weights(run(data=source)))
    assert not torch.equal(first, weights(run(data=source, seed=1)))


@pytest.mark.parametrize("data", ["tensors", "shuffling loader"])
@pytest.mark.parametrize("error", [RuntimeError("power cut"), KeyboardInterrupt()], ids=["exception", "ctrl-c"])
@pytest.mark.parametrize("validation", [None, HELD_OUT], ids=["alone", "validated"])
def test_an_interrupted_run_resumes_to_the_same_parameters(
    tmp_path: Path, data: str, error: BaseException, validation: Any
) -> None:
    source = (X, Y) if data == "tensors" else DataLoader(TensorDataset(X, Y), batch_size=16, shuffle=True)
    settings = {"data": source, "validation": validation}
    whole = run(**settings)
    with pytest.raises(type(error)):
        run(Breaks(10, error), folder=tmp_path, **settings)  # 4 batches an epoch: in the middle of the third
    resumed = run(folder=tmp_path, resume=True, **settings)
    assert torch.equal(weights(whole), weights(resumed))
    without = [{k: v for k, v in row.items() if k != "seconds"} for row in whole.history]
    assert without == [{k: v for k, v in row.items() if k != "seconds"} for row in resumed.history]


def test_a_run_stopped_after_some_epochs_continues_as_the_long_run(tmp_path: Path) -> None:
    whole = run(epochs=5, schedule="constant")
    run(epochs=2, schedule="constant", folder=tmp_path)
    resumed = run(epochs=5, schedule="constant", folder=tmp_path, resume=True)
    assert torch.equal(weights(whole), weights(resumed))
    assert len(resumed.history) == 5


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    first = run(folder=tmp_path)
    again = run(folder=tmp_path, resume=True)
    assert torch.equal(weights(first), weights(again))
    assert first.history == again.history


def test_resume_without_a_checkpoint_starts_from_the_beginning(tmp_path: Path) -> None:
    assert torch.equal(weights(run()), weights(run(folder=tmp_path, resume=True)))


def test_a_second_run_into_the_same_folder_starts_afresh(tmp_path: Path) -> None:
    run(folder=tmp_path, seed=5)
    assert torch.equal(weights(run()), weights(run(folder=tmp_path)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["last.ckpt", "last.ckpt.sha256", "training.csv"]


# ---- early stopping --------------------------------------------------------------------------------------------


def overfitting() -> dict[str, Any]:
    noise = torch.randint(3, (20,), generator=torch.Generator().manual_seed(7))
    return {"epochs": 60, "lr": 0.1, "schedule": "constant", "validation": (X[:20], noise), "patience": 3}


def test_early_stopping_keeps_the_best_weights() -> None:
    done = run(**overfitting())
    nlls = [row["validation_nll"] for row in done.history]
    best = min(range(len(nlls)), key=nlls.__getitem__)
    assert len(nlls) == best + 1 + 3 < 60
    x, y = overfitting()["validation"]
    nll = -Categorical().log_prob(done.posterior.network(x), y).mean().item()
    assert nll == pytest.approx(nlls[best], rel=1e-5)


def test_an_early_stopped_run_resumes_to_the_same_weights(tmp_path: Path) -> None:
    whole = run(**overfitting())
    with pytest.raises(RuntimeError):
        run(Breaks(9, RuntimeError()), folder=tmp_path, **overfitting())
    resumed = run(folder=tmp_path, resume=True, **overfitting())
    again = run(folder=tmp_path, resume=True, **overfitting())
    assert len(whole.history) == len(resumed.history) == len(again.history)
    assert torch.equal(weights(whole), weights(resumed))
    assert torch.equal(weights(whole), weights(again))


# ---- what it leaves --------------------------------------------------------------------------------------------


def test_the_log_holds_one_row_per_epoch(tmp_path: Path) -> None:
    done = run(folder=tmp_path, validation=HELD_OUT)
    with (tmp_path / "training.csv").open() as file:
        rows = [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
    assert rows == done.history


@pytest.mark.parametrize("mode", [True, False])
@pytest.mark.parametrize("fails", [False, True])
def test_mode_gradients_and_random_state_are_given_back(mode: bool, fails: bool) -> None:
    method = Breaks(6 if fails else 1000, RuntimeError("stop"))
    method.model.train(mode)
    method.model[2].train(not mode)
    state = torch.get_rng_state()
    if fails:
        with pytest.raises(RuntimeError, match="stop"):
            run(method)
    else:
        run(method)
    assert [method.model.training, method.model[2].training] == [mode, not mode]
    assert all(p.grad is None for p in method.parameters())
    assert torch.equal(state, torch.get_rng_state())


def test_frozen_parameters_stay_and_stay_frozen() -> None:
    model = network()
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    run(MAP(model, Categorical()))
    assert torch.equal(before, model[0].weight)
    assert not model[0].weight.requires_grad


def test_silence_is_silent_and_local(capfd: pytest.CaptureFixture[str]) -> None:
    level = logging.getLogger("lightning.pytorch").level
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(validation=HELD_OUT)
    assert not caught, [str(warning.message) for warning in caught]
    out, err = capfd.readouterr()
    assert out == err == ""
    assert logging.getLogger("lightning.pytorch").level == level


def test_the_progress_bar_shows_when_asked(capfd: pytest.CaptureFixture[str]) -> None:
    run(epochs=2, progress=True)
    assert "Epoch" in capfd.readouterr().out


def test_ctrl_c_is_an_interrupt_and_gives_the_signal_back(tmp_path: Path) -> None:
    handler = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run(Breaks(6, KeyboardInterrupt()), folder=tmp_path)
    assert signal.getsignal(signal.SIGINT) is handler
    assert (tmp_path / "last.ckpt").exists()


# ---- data of every accepted kind --------------------------------------------------------------------------------


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        return iter(zip(X, Y, strict=True))


@pytest.mark.parametrize(
    "data",
    [
        [(X[:30], Y[:30]), (X[30:], Y[30:])],
        DataLoader(TensorDataset(X, Y), batch_size=7),
        DataLoader(Stream(), batch_size=20),
    ],
    ids=["batches", "loader", "stream"],
)
def test_batches_are_counted_as_they_come(data: Any) -> None:
    done = run(MAP(nn.Linear(4, 3), Categorical()), data, epochs=2, lr=1e-12)
    expected = MAP(done.model, Categorical()).loss(X, Y, len(X)).item()
    assert done.history[1]["train_loss"] == pytest.approx(expected, rel=1e-5)


def test_images_that_are_their_own_targets_are_taken_once_and_in_the_same_order() -> None:
    x = torch.rand(10, 2)
    own, apart = (list(shuffled(data, 4, torch.Generator().manual_seed(0))) for data in ((x, x), (x, x.clone())))
    assert all(part is target for part, target in own)
    for (part, _), (same, _) in zip(own, apart, strict=True):
        assert torch.equal(part, same)


# ---- refusals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data", [[], (X[:0], Y[:0]), DataLoader([])], ids=["list", "tensors", "loader"])
def test_empty_data_are_refused(data: Any) -> None:
    with pytest.raises(ValueError, match="no batch"):
        run(data=data)


def test_a_generator_is_refused() -> None:
    with pytest.raises(TypeError, match="only once"):
        run(data=iter([(X, Y)]))


def test_a_loss_that_is_not_finite_stops_with_epoch_and_batch() -> None:
    class Explodes(MAP):
        count = 0

        def loss(self, x: Tensor, y: Tensor, num_data: int) -> Tensor:
            self.count += 1
            return super().loss(x, y, num_data) * (float("nan") if self.count == 7 else 1.0)

    with pytest.raises(FloatingPointError, match=r"nan in epoch 2, batch 3 of 4.*learning rate"):
        run(Explodes(network(), Categorical()))


def test_data_that_are_not_finite_are_refused_by_batch_and_index() -> None:
    bad = X.clone()
    bad[20, 1] = float("inf")
    with pytest.raises(ValueError, match=r"x of batch 1 holds inf at index \(4, 1\)"):
        run(data=(bad, Y))


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"optimizer": "adan"}, "unknown optimizer 'adan'.*'adamw'"),
        ({"schedule": "cosin"}, "unknown schedule 'cosin'.*'constant'"),
        ({"epochs": 0}, "epochs.*at least 1, got 0"),
        ({"batch_size": -3}, "batch_size.*got -3"),
        ({"lr": 0.0}, "lr must be a positive"),
        ({"lr": float("nan")}, "lr must be a positive"),
        ({"patience": 2}, "patience=2 needs validation data"),
        ({"resume": True}, "resume=True needs the folder"),
        ({"device": "gpuu"}, "unknown device 'gpuu'.*'cpu'"),
    ],
)
def test_settings_out_of_range_are_refused(setting: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        run(**setting)


def test_an_unknown_setting_is_answered_with_the_known_ones() -> None:
    with pytest.raises(TypeError, match=r"'weight_decay'; known: epochs, batch_size, lr"):
        run(weight_decay=1e-4)


def test_what_is_no_method_is_refused() -> None:
    with pytest.raises(TypeError, match="Linear"):
        train(nn.Linear(1, 1), (X, Y))


def test_nothing_to_train_is_refused() -> None:
    with pytest.raises(ValueError, match="nothing to train"):
        run(MAP(network().requires_grad_(False), Categorical()))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lr": 0.5}, "lr=0.01, not 0.5"),
        ({"epochs": 9}, "epochs=4, not 9"),
        ({"data": (X[:40], Y[:40])}, "num_data=50, not 40"),
        ({"precision": "bf16"}, "precision='32', not 'bf16'"),
        ({"method": MAP(nn.Linear(4, 3), Categorical())}, r"another network: model\.0"),
        ({"method": MAP(network(nn.Tanh()), Categorical())}, r"another network: '\(1\): ReLU\(\)' in place of .*Tanh"),
        ({"method": osc.methods.MeanFieldVI(network(), Categorical()), "lr": 0.5}, "of MAP, not MeanFieldVI"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    run(folder=tmp_path)
    with pytest.raises(ValueError, match=message):
        run(folder=tmp_path, resume=True, **change)


@pytest.mark.parametrize("data", [(X + 1, Y), (X, (Y + 1) % 3)], ids=["inputs", "targets"])
def test_other_data_are_refused(tmp_path: Path, data: Any) -> None:
    run(folder=tmp_path)
    with pytest.raises(ValueError, match="other data: other values in some rows"):
        run(data=data, folder=tmp_path, resume=True)


@pytest.mark.parametrize("damage", ["truncated", "nonsense", "executes", "one bit"])
def test_a_damaged_or_hostile_checkpoint_is_refused_and_not_executed(tmp_path: Path, damage: str) -> None:
    class Hostile:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {tmp_path / 'executed'}",)

    run(folder=tmp_path)
    path = tmp_path / "last.ckpt"
    if damage == "executes":
        torch.save({"osculate": Hostile()}, path)
    elif damage == "one bit":
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    else:
        path.write_bytes(path.read_bytes()[:200] if damage == "truncated" else b"not a checkpoint")
    with pytest.raises(ValueError, match="not a checkpoint that can be resumed"):
        run(folder=tmp_path, resume=True)
    assert not (tmp_path / "executed").exists()


def test_settings_are_a_value() -> None:
    settings = Settings(epochs=3, batch_size=16, lr=1e-2)
    again = train(MAP(network(), Categorical()), (X, Y), settings, progress=False, device="cpu", epochs=4)
    assert settings.epochs == 3
    assert torch.equal(weights(again), weights(run()))


class Own(Gaussian):
    """A likelihood of the user's, with something that no file holds."""

    def __init__(self, scale: float) -> None:
        super().__init__(scale)
        object.__setattr__(self, "note", lambda: scale)


@pytest.mark.parametrize(
    ("begun", "resumed"),
    [
        (lambda net: MAP(net, Gaussian(0.5), 1.0), lambda net: MAP(net, Gaussian(0.5), 1.0001)),
        (lambda net: MAP(net, Gaussian(0.5), 1.0), lambda net: MAP(net, Own(0.5), 1.0)),
        (
            lambda net: MAP(net, Gaussian(0.5), osc.priors.Diagonal(torch.ones(253))),
            lambda net: MAP(net, Gaussian(0.5), osc.priors.Diagonal(1 + torch.eye(253)[7])),
        ),
        (
            lambda net: osc.methods.MarginalLikelihood(net, Gaussian(0.5)),
            lambda net: osc.methods.MarginalLikelihood(net, Gaussian(0.5), temperature=0.1),
        ),
        (
            lambda net: osc.methods.DeepEnsemble(twice(net), Gaussian(0.5), 1.0),
            lambda net: osc.methods.DeepEnsemble(twice(net), Gaussian(0.5), 100.0),
        ),
        (
            lambda net: osc.methods.LevenbergMarquardt(net, Gaussian(0.5)),
            lambda net: osc.methods.LevenbergMarquardt(net, Gaussian(0.4)),
        ),
    ],
    ids=["prior", "likelihood", "many precisions", "temperature", "members", "full batch"],
)
def test_a_run_resumes_with_what_it_was_begun_with_alone(begun: Any, resumed: Any, tmp_path: Path) -> None:
    def begin(make: Any, **more: Any) -> Any:
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(2, 63), nn.Tanh(), nn.Linear(63, 1))
        x = torch.randn(12, 2, generator=torch.Generator().manual_seed(1))
        return train(make(net), (x, x[:, :1]), epochs=2, folder=tmp_path, progress=False, **more)

    begin(begun)
    begin(begun, resume=True)
    with pytest.raises(ValueError, match="the checkpoint in .* (trained|made) with"):
        begin(resumed, resume=True)


def twice(net: nn.Module) -> list[nn.Module]:
    """Two networks from two starts."""
    other = deepcopy(net)
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.add_(0.1)
    return [net, other]


@pytest.mark.parametrize("make", ["MAP", "VariationalLaplace", "MeanFieldVI"])
def test_half_precision_passes_leave_parameters_in_single(make: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 8), nn.Softplus(), nn.Linear(8, 3))
    x = torch.randn(60, 3)
    method = getattr(osc.methods, make)(net, osc.likelihoods.Categorical())
    done = osc.train(method, (x, x.argmax(1)), epochs=20, lr=0.02, precision="bf16", device="cpu", progress=False)
    assert done.history[-1]["train_loss"] < done.history[0]["train_loss"]
    assert all(p.dtype == torch.float32 for p in done.model.parameters())
    with pytest.raises(ValueError, match="unknown precision 'bf15'"):
        osc.train(method, (x, x.argmax(1)), precision="bf15", progress=False)
