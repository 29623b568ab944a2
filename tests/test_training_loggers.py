"""Loggers by name, and the callbacks of a user, in training."""

import csv
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn

from osculate.likelihoods import Gaussian
from osculate.methods import HMC, MAP
from osculate.training import Training, train
from osculate.training.settings import LOGGERS
from tests.errors import says

X = torch.linspace(-1, 1, 40)[:, None]
DATA = (X, 2 * X)


def run(**options: Any) -> Training:
    torch.manual_seed(0)
    method = options.pop("method", None) or MAP(nn.Linear(1, 1), Gaussian())
    return train(method, DATA, **{"epochs": 3, "batch_size": 10, "progress": False, "device": "cpu", **options})


def rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_the_logger_of_tables_has_steps_and_epochs(tmp_path: Path) -> None:
    done = run(folder=tmp_path, logger="csv", validation=DATA)
    written = rows(tmp_path / "csv" / "version_0" / "metrics.csv")
    assert sum(bool(row["loss"]) for row in written) == 3, "of each epoch of four steps"
    epochs = [row for row in written if row["train_loss"]]
    assert [float(row["epoch"]) for row in epochs] == [1, 2, 3]
    assert [float(row["validation_nll"]) for row in epochs] == pytest.approx(
        [row["validation_nll"] for row in done.history]
    )


def test_a_logger_does_not_change_the_training_and_a_resumed_run_has_another_version(tmp_path: Path) -> None:
    plain, logged = run(), run(folder=tmp_path, logger="csv", schedule="constant")
    assert [row["epoch"] for row in logged.history] == [row["epoch"] for row in plain.history]
    assert run(schedule="constant").model.weight.equal(logged.model.weight)
    run(folder=tmp_path, logger="csv", schedule="constant", epochs=4, resume=True)
    second = rows(tmp_path / "csv" / "version_1" / "metrics.csv")
    assert [float(row["epoch"]) for row in second if row["train_loss"]] == [4]
    assert len(rows(tmp_path / "training.csv")) == 4


def test_a_method_by_steps_on_all_data_is_logged(tmp_path: Path) -> None:
    run(method=HMC(nn.Linear(1, 1), Gaussian(), warmup=2), epochs=6, batch_size=128, folder=tmp_path, logger="csv")
    assert [int(row["step"]) for row in rows(tmp_path / "csv" / "version_0" / "metrics.csv")] == [1, 2, 3, 4, 5, 6]


def test_the_logger_of_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    run(folder=tmp_path, logger="tensorboard")
    (events,) = (tmp_path / "tensorboard" / "version_0").glob("events.*")
    assert b"train_loss" in events.read_bytes()


def test_loggers_and_callbacks_that_cannot_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=says("'tensorbord'", "did you mean 'tensorboard'")):
        run(logger="tensorbord", folder=tmp_path)
    with pytest.raises(ValueError, match=says("logger='csv'", "folder=")):
        run(logger="csv")
    with pytest.raises(TypeError, match=says("logger must be one of", *map(repr, LOGGERS), "got 3")):
        run(logger=3)
    with pytest.raises(TypeError, match=says("lightning.pytorch.Callback", "got 3")):
        run(callbacks=[3])
    with pytest.raises(ValueError, match=says("callbacks", "HMC", "all data at once")):
        run(method=HMC(nn.Linear(1, 1), Gaussian()), callbacks=[pl.Callback()])
    monkeypatch.setitem(__import__("sys").modules, "tensorboard", None)
    with pytest.raises(ImportError, match=says("TensorBoard", "'osculate[tensorboard]'")):
        run(logger="tensorboard", folder=tmp_path)


class Counts(pl.Callback):
    """Counts epochs, and keeps the number in checkpoints."""

    def __init__(self) -> None:
        self.epochs = 0

    def on_train_epoch_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.epochs += 1

    def state_dict(self) -> dict[str, int]:
        return {"epochs": self.epochs}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.epochs = state_dict["epochs"]


def test_callbacks_see_the_training_and_are_resumed(tmp_path: Path) -> None:
    counts = Counts()
    done = run(callbacks=[counts], folder=tmp_path, schedule="constant")
    assert counts.epochs == 3
    assert done.model.weight.equal(run(schedule="constant").model.weight), "which is that without them"
    again = Counts()
    run(callbacks=[again], folder=tmp_path, schedule="constant", epochs=5, resume=True)
    assert again.epochs == 5


def test_callbacks_of_lightning_work(tmp_path: Path) -> None:
    stop = EarlyStopping("validation_nll", min_delta=1e6, patience=1)
    assert len(run(callbacks=[stop], validation=DATA, epochs=9).history) == 2
    run(callbacks=[ModelCheckpoint(tmp_path, "mine", monitor="validation_nll")], validation=DATA)
    assert (tmp_path / "mine.ckpt").is_file()
    run(logger=CSVLogger(tmp_path, name="own"))
    assert (tmp_path / "own" / "version_0" / "metrics.csv").is_file()
