"""A posterior at the end of a user's own training by Lightning, by one line."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset, TensorDataset

import osculate as osc

pytest.importorskip("lightning")
import lightning.pytorch as pl
from lightning.pytorch.callbacks import WeightAveraging

from osculate.adapters._loaders import Pairs
from osculate.adapters.lightning import LaplaceCallback

X = torch.randn(60, 2, generator=torch.Generator().manual_seed(0))
Y = (X[:, 0] > 0).long()
LIKELIHOOD = osc.likelihoods.Categorical()
#: Settings of a trainer that writes nothing.
SILENT = {
    "max_epochs": 2,
    "accelerator": "cpu",
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:lightning")


class Classifier(pl.LightningModule):
    """As a user writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.1), nn.Tanh(), nn.Linear(8, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)

    def training_step(self, batch: Any, number: int) -> Tensor:
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch: Any, number: int, dataloader_idx: int = 0) -> None:
        self.log("nll", nn.functional.cross_entropy(self(batch[0]), batch[1]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-2)


class Points(pl.LightningDataModule):
    """The data of a user."""

    def train_dataloader(self) -> DataLoader:
        return DataLoader(TensorDataset(X, Y), batch_size=16, shuffle=True)

    def val_dataloader(self) -> DataLoader:
        return DataLoader(TensorDataset(X[:20], Y[:20]), batch_size=16)


def trained(callback: LaplaceCallback, *others: pl.Callback, data: Any = None, **changes: Any) -> Classifier:
    model = Classifier()
    trainer = pl.Trainer(**{**SILENT, **changes}, callbacks=[callback, *others])
    trainer.fit(model, datamodule=data or Points())
    return model


def test_one_line_fits_refines_and_saves(tmp_path: Path) -> None:
    callback = LaplaceCallback(LIKELIHOOD, tmp_path / "new" / "q.safetensors")
    model = trained(callback)
    q = callback.posterior
    assert q is not None
    assert q.num_data == 60
    assert q.offset is not None  # refined
    assert torch.equal(q.network.mean, torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert model.training
    again = osc.load(tmp_path / "new" / "q.safetensors", model)
    assert torch.equal(osc.predict(again, X).probs, osc.predict(q, X).probs)
    expected = osc.laplace(model.eval(), LIKELIHOOD, (X, Y))
    torch.testing.assert_close(osc.predict(q, X).probs, osc.predict(expected, X).probs, rtol=1e-2, atol=1e-3)


def test_options_the_network_within_and_held_out_data() -> None:
    callback = LaplaceCallback(LIKELIHOOD, module="network", validation=True, structure="full", prior=1.0)
    model = trained(callback)
    assert callback.posterior is not None
    assert callback.posterior.structure.structure.name == "full"
    assert callback.posterior.tuning is not None
    assert repr(callback.posterior.model) == repr(model.network)
    flipped = LaplaceCallback(LIKELIHOOD, batch=lambda batch: (batch[0], 1 - batch[1]), refine=False)
    trained(flipped, limit_train_batches=2)
    assert flipped.posterior is not None
    assert flipped.posterior.num_data == 32  # as far as the training read
    loader = LaplaceCallback(LIKELIHOOD, validation=(X, Y))
    trained(loader)
    assert loader.posterior is not None
    assert loader.posterior.tuning is not None


def test_weights_are_those_after_other_callbacks() -> None:
    callback = LaplaceCallback(LIKELIHOOD, prior=1.0, refine=False)
    model = trained(callback, WeightAveraging())  # copies the average in its on_train_end
    assert callback.posterior is not None
    assert torch.equal(callback.posterior.mean, torch.cat([p.detach().flatten() for p in model.parameters()]))


class WithoutValidation(Points):
    """Training data alone."""

    val_dataloader = pl.LightningDataModule.val_dataloader


class WithoutForward(Classifier):
    """A LightningModule whose steps call its network."""

    forward = pl.LightningModule.forward

    def training_step(self, batch: Any, number: int) -> Tensor:
        return nn.functional.cross_entropy(self.network(batch[0]), batch[1])


class Named(Points):
    """Batches that are mappings, or several loaders together."""

    def __init__(self, together: bool) -> None:
        super().__init__()
        self.together = together

    def train_dataloader(self) -> Any:
        if self.together:
            return {"a": super().train_dataloader(), "b": super().train_dataloader()}
        return DataLoader([{"x": x, "y": y} for x, y in zip(X, Y, strict=True)], batch_size=16)

    val_dataloader = pl.LightningDataModule.val_dataloader


class OfNames(Classifier):
    """Takes batches that are mappings."""

    def training_step(self, batch: Any, number: int) -> Tensor:
        batch = batch.get("a", batch)
        x, y = (batch["x"], batch["y"]) if isinstance(batch, dict) else batch
        return nn.functional.cross_entropy(self.network(x), y)


@pytest.mark.parametrize(
    ("model", "options", "data", "limit", "words"),
    [
        (Classifier, {"module": "net"}, Points(), 1.0, "has no module 'net'; its modules are 'network'"),
        (WithoutForward, {}, Points(), 1.0, "has no forward.*module=, its modules are 'network'"),
        (Classifier, {"validation": True}, WithoutValidation(), 1.0, "validation data of the trainer, which has none"),
        (OfNames, {}, Named(together=False), 1.0, "is a dict of length 2, not a pair.*batch= makes pairs"),
        (OfNames, {}, Named(together=True), 1.0, "reads 2 training loaders together.*osc.laplace"),
        (Classifier, {}, Points(), 0, "reads no training data.*osc.laplace"),
        (Classifier, {"subset": ["head"]}, Points(), 1.0, "no posterior could be fitted after this training.*'head'"),
        (Classifier, {"prior": "evidance"}, Points(), 1.0, "unknown prior 'evidance'"),
    ],
)
def test_what_cannot_be_fitted_is_refused_before_the_training(
    model: type, options: dict, data: Any, limit: float, words: str
) -> None:
    module = model()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    trainer = pl.Trainer(**SILENT, callbacks=[LaplaceCallback(LIKELIHOOD, **options)], limit_train_batches=limit)
    with pytest.raises(ValueError, match=words):
        trainer.fit(module, datamodule=data)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_names_and_paths_are_refused_before_the_training(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'strcture'"):
        LaplaceCallback(LIKELIHOOD, strcture="diag")
    with pytest.raises(IsADirectoryError, match="is a folder: name a file"):
        trained(LaplaceCallback(LIKELIHOOD, tmp_path))


def test_mappings_with_a_function_to_pairs() -> None:
    callback = LaplaceCallback(LIKELIHOOD, batch=lambda batch: (batch["x"], batch["y"]), refine=False)
    pl.Trainer(**SILENT, callbacks=[callback]).fit(OfNames(), datamodule=Named(together=False))
    assert callback.posterior is not None
    assert callback.posterior.num_data == 60


def test_an_error_of_the_fit_takes_nothing_from_the_training(tmp_path: Path) -> None:
    x = X.clone()
    x[-1] = torch.nan  # which the network of this user takes, and the trial before the training does not see
    checkpoints = pl.callbacks.ModelCheckpoint(tmp_path)
    callback = LaplaceCallback(LIKELIHOOD, tmp_path / "q.safetensors", batch=lambda batch: (batch[0] * 1, batch[1]))
    trainer = pl.Trainer(**{**SILENT, "enable_checkpointing": True}, callbacks=[callback, checkpoints])
    model = Classifier()
    model.network.insert(0, Cleaned())
    with pytest.warns(UserWarning, match="the training is complete, and has no posterior: ValueError: x of batch"):
        trainer.fit(model, DataLoader(TensorDataset(x, Y), batch_size=16))
    assert trainer.state.finished
    saved = torch.load(checkpoints.best_model_path, weights_only=True)["state_dict"]
    assert all(torch.equal(saved[name], value) for name, value in model.state_dict().items())
    assert model.training
    assert not (tmp_path / "q.safetensors").exists()
    with pytest.raises(ValueError, match="holds nan"):
        callback.posterior  # noqa: B018
    trainer = pl.Trainer(**SILENT, callbacks=[callback])  # the next training begins anew
    trainer.fit(model, datamodule=Points())
    assert callback.posterior is not None


class Cleaned(nn.Module):
    """Zeros in place of NaN."""

    def forward(self, x: Tensor) -> Tensor:
        return x.nan_to_num()


def test_a_file_that_cannot_be_written_leaves_the_posterior(tmp_path: Path) -> None:
    callback = LaplaceCallback(LIKELIHOOD, tmp_path / "new" / "q.safetensors", refine=False)

    class Removes(pl.Callback):
        def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
            (tmp_path / "new").rmdir()

    with pytest.warns(UserWarning, match="is not written to .*FileNotFoundError"):
        trained(callback, Removes())
    assert callback.posterior is not None


class InLists(Points):
    """A stream, and validation loaders in a list."""

    def __init__(self, held_out: int) -> None:
        super().__init__()
        self.held_out = held_out

    def train_dataloader(self) -> DataLoader:
        return DataLoader(Stream(), batch_size=16)

    def val_dataloader(self) -> list:
        return [super().val_dataloader()] * self.held_out


class Stream(IterableDataset):
    """Rows without a length."""

    def __iter__(self) -> Any:
        return iter(zip(X, Y, strict=True))


def test_streams_and_lists_of_loaders() -> None:
    callback = LaplaceCallback(LIKELIHOOD, validation=True, refine=False)
    trained(callback, data=InLists(1), limit_train_batches=2)
    assert callback.posterior is not None
    assert callback.posterior.num_data == 32
    assert callback.posterior.tuning is not None
    with pytest.raises(ValueError, match="2 validation loaders, and the posterior is tuned on one"):
        trained(LaplaceCallback(LIKELIHOOD, validation=True, refine=False), data=InLists(2))


def test_pairs_of_a_loader_without_the_rows_that_a_sampler_repeats() -> None:
    data = TensorDataset(X[:5], Y[:5])
    loader = DataLoader(data, batch_size=2, sampler=DistributedSampler(data, 2, 1, shuffle=False))
    pairs = Pairs(loader, lambda batch: (batch[0], 1 - batch[1]))
    assert [len(y) for _, y in pairs] == [2]  # of three rows the last is repeated
    assert [len(y) for _, y in Pairs(loader, lambda batch: batch, batches=1)] == [2]
    assert len(pairs) == 2
    assert torch.equal(next(iter(pairs))[1], 1 - Y[1:5:2])
