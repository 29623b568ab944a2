"""The Lightning module that trains any method, and the function that runs it without side effects."""

import logging
import math
import textwrap
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import Checkpoint, ModelCheckpoint, RichProgressBar
from lightning.pytorch.loggers import Logger
from torch import Tensor
from torch.optim import Optimizer
from torch.utils.checkpoint import CheckpointError

from osculate.batches import Data, Fixed, as_batches, fingerprint, rows_digest, shuffled
from osculate.curvature.columns import RECOMPUTES
from osculate.distributed import ALONE, Group, of_connection, same_data
from osculate.inputs import Inputs, tensors
from osculate.methods._base import Method, has_labels, require_labels
from osculate.methods._share import WHOLE, Share
from osculate.parameters import undisturbed
from osculate.randomness import preserved, seed_default
from osculate.settings import described
from osculate.training.checkpoints import Checkpoints
from osculate.training.convergence import FALL, chosen_rate, fall, least_nll
from osculate.training.processes import Piece, Started, Together, WeightedDDP, average_statistics, leaves_out_parameters
from osculate.training.runs import identity, require_same_data, same_run, write_log
from osculate.training.settings import AUTO, OPTIMIZERS, PRECISIONS, Settings

CHECKPOINT = "last.ckpt"
#: Largest number of steps between two losses that a logger gets.
LOGGED = 50


class Epochs:
    """Training data, one pass per epoch; `epoch` is the number of the next pass, `in_order` gives unshuffled data.

    A pass is a function of (seed, epoch) alone: it seeds torch's generator, draws its order, and yields checked
    batches. A resumed run therefore sees the same batches and dropout masks as an uninterrupted one. A user's loader
    keeps its own order; if it shuffles without its own generator, the order follows from the same seed.

    With several processes each passes over its own data with random numbers of its own; ``num_data`` is N of all, and
    ``num_batches`` the largest number of a process.
    """

    def __init__(self, data: Data, batch_size: int, seed: int, processes: Group = ALONE) -> None:
        with processes.together():
            self.in_order = Fixed(data, batch_size)
            first = "" if processes.alone else rows_digest(*tensors(next(iter(self.in_order))[0]).values())
        if not processes.alone and len(set(processes.gather(first))) == 1:
            raise same_data(self.in_order.num_data, processes.size)
        sizes = processes.gather((self.in_order.num_data, self.in_order.num_batches))
        self.num_data, self.num_batches = sum(size for size, _ in sizes), max(batches for _, batches in sizes)
        self.epoch, self.processes = 0, processes
        self._data, self._batch_size, self._seed = data, batch_size, seed
        self._own = () if processes.alone else (processes.rank,)

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[tuple[Inputs, Tensor]]:
        # Lightning asks for the first iterator before the epoch has begun, and for the first batch after: a generator
        # reads the counter only then. The caller has saved torch's random state (see `fit`).
        seed_default(self._mixed(*self._own))
        yield from as_batches(shuffled(self._data, self._batch_size))

    @property
    def shared_seed(self) -> int:
        """The seed of random numbers of this epoch that are the same in all processes."""
        return self._mixed()

    def _mixed(self, *parts: int) -> int:
        mixed = np.random.SeedSequence([self._seed, self.epoch, *parts])  # neighbouring seeds share no stream
        return int(mixed.generate_state(1, np.uint64)[0] >> 1)


class Loop(pl.LightningModule):
    """The training loop of all methods that take batches."""

    def __init__(
        self,
        method: Method,
        epochs: Epochs,
        settings: Settings,
        folder: Path | None,
        precision: str = "32",
        rounds: int = 1,
        held_out: Fixed | None = None,
    ) -> None:
        super().__init__()
        self.method: Method = method
        self.epochs = epochs
        self.processes = epochs.processes
        self.writes = self.processes.rank == 0  # the log
        self._about_data = _about_data(epochs)
        self.settings = settings
        self.folder = folder
        self.passes = precision
        self.rounds, self.rate = rounds, settings.first_rate
        self._least, self._outputs = None, 1
        if held_out is not None:
            _, y = next(iter(held_out))
            self._least = least_nll(method.likelihood, y.to(next(method.parameters()).device))
            self._outputs = y[0].numel()
        self.identity = identity(method)
        self.history: list[dict[str, int | float]] = []
        self.best: dict[str, Any] | None = None
        self.read = False  # True after a checkpoint was read
        self._labelled = False  # True once a target was seen that the likelihood does not ignore
        self._loss = self._nll = self._seen = self._held_out = 0.0

    def configure_optimizers(self) -> Optimizer:
        """Return the named optimiser over all trained parameters, or the method's own."""
        return self.method.optimizer(OPTIMIZERS[self.settings.optimizer], self.rate)

    def on_train_start(self) -> None:
        """Prepare the method in a new run; a resumed run that had stopped early stays stopped."""
        if not self.read:
            self.method.before_training(self.epochs.in_order)
            if self.settings.lr == AUTO:
                rates = self.processes.gather(chosen_rate(self.method, self.epochs, self.settings))
                self.rate = rates[0]  # by the data of the first process
        self._stop_if_stale()

    def on_train_epoch_start(self) -> None:
        """Set the number of the pass over the data."""
        self.epochs.epoch = self.current_epoch
        self._loss = self._nll = self._seen = self._held_out = 0.0
        self._started = time.perf_counter()

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        """Set the learning rate, which depends on the step only, so that a resume needs no scheduler state."""
        done = (self.current_epoch % self.settings.epochs + batch_idx / self.epochs.num_batches) / self.settings.epochs
        for group in self._groups():
            group["lr"] = self.rate * self.settings.factor(min(done, 1.0)) * group.get("multiplier", 1.0)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return the method's loss on one batch; raise FloatingPointError if it is not finite."""
        x, y = batch if self.processes.alone else self._shared(batch)
        loss = self.method.loss(x, y, self.epochs.num_data)
        value, size = loss.item(), self.method.share.size(y)
        if not self.processes.alone:
            value = self._joint(value)
        if not math.isfinite(value):
            raise FloatingPointError(
                f"the loss is {value} in epoch {self.current_epoch + 1}, batch {batch_idx + 1} of "
                f"{self.epochs.num_batches}. Lower the learning rate (it is {self.rate:g}), or scale the data."
            )
        self._labelled = self._labelled or has_labels(self.method.likelihood, y)
        self._loss += value * size
        self._seen += size
        if self.trainer.progress_bar_callback is not None or self.trainer.loggers:
            self.log("loss", value, prog_bar=True, logger=bool(self.trainer.loggers), batch_size=len(y))
        return loss

    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        """Differentiate the loss.

        Raises:
            ValueError: the network recomputes activations, which uses other parameters than those of the method.
        """
        try:
            super().backward(loss, *args, **kwargs)
        except CheckpointError as error:
            raise ValueError(RECOMPUTES) from error

    def _shared(self, piece: Piece) -> tuple[Inputs, Tensor]:
        """The batch of this process, after the method has learned its share in the step.

        Raises:
            ConnectionError: another process could not read its data.
        """
        failure, own = (piece, 0) if isinstance(piece, Exception) else (None, piece[2])
        total, failed = self.processes.summed(torch.tensor([own, failure is not None], device=self.device)).tolist()
        if failed:
            with self.processes.together():
                if failure is not None:
                    raise failure
        assert not isinstance(piece, Exception)
        self.method.share = Share(self.processes, own, total, self.epochs.shared_seed)
        return piece[0], piece[1]

    def _joint(self, value: float) -> float:
        """The mean of the loss over the data of all processes."""
        share = self.method.share
        mean = torch.tensor(value * share.own / share.total, dtype=torch.double, device=self.device)
        return float(self.processes.summed(mean))

    def on_train_batch_end(self, outputs: Any, batch: Any, batch_idx: int) -> None:
        """End the step of the method, and with the last one the statistics of normalisation layers."""
        self.method.end_step()
        if not self.processes.alone and batch_idx + 1 == self.epochs.num_batches:
            average_statistics(self.method.model, self.processes)

    def validation_step(self, batch: tuple[Inputs, Tensor], batch_idx: int) -> None:
        """Sum the NLL of the held-out data."""
        x, y = batch
        self._nll -= self.method.log_prob(x, y).sum().item()
        self._held_out += len(y)

    def on_validation_epoch_end(self) -> None:
        """Show the mean validation NLL."""
        if not self.processes.alone:  # of all their held-out data, which may be the same
            sums = torch.tensor([self._nll, self._held_out], dtype=torch.double, device=self.device)
            self._nll, self._held_out = self.processes.summed(sums).tolist()
        self.log("validation_nll", self._nll / self._held_out, prog_bar=True, logger=False)

    def on_train_epoch_end(self) -> None:
        """End the epoch: call the method, extend history and log, keep the best weights, and stop early if due."""
        self._labelled = any(self.processes.gather(self._labelled))
        require_labels(self._labelled)
        row: dict[str, int | float] = {"epoch": self.current_epoch + 1, "train_loss": self._loss / self._seen}
        if self._held_out:
            row["validation_nll"] = self._nll / self._held_out
        row["lr"] = self._groups()[0]["lr"]
        if self.settings.lr == AUTO:
            row["rate"] = self.rate
        if self.rounds > 1:
            row["round"] = self.current_epoch // self.settings.epochs + 1
        row |= self.method.end_epoch(self.current_epoch + 1, self.settings.epochs, self.epochs.in_order)
        row["seconds"] = round(time.perf_counter() - self._started, 3)
        self.history.append(row)
        if self.settings.patience is not None or self.rounds > 1:
            nll = row["validation_nll"]
            if self.best is None or nll < self.best["validation_nll"]:
                state = {name: value.detach().clone() for name, value in self.method.state_dict().items()}
                self.best = {"epoch": row["epoch"], "validation_nll": nll, "state": state}
        for logger in self.trainer.loggers:
            logger.log_metrics({name: float(value) for name, value in row.items()}, self.global_step)
        self._stop_if_stale()
        if self.folder is not None and self.writes:
            write_log(self.folder, self.history)

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add the state that a resume needs to Lightning's checkpoint."""
        checkpoint["osculate"] = {
            "settings": {**asdict(self.settings), "precision": self.passes},
            "choices": described(self.method.choices()),
            "num_data": self.epochs.num_data,
            "identity": self.identity,
            "data": self._about_data,
            "history": self.history,
            "best": self.best,
            "rate": self.rate,
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restore the state, after checking that the checkpoint belongs to this run."""
        saved = checkpoint["osculate"]
        # checkpoints of version 0.1 have neither precisions nor identities
        found = {"precision": "32", **saved["settings"], **saved["choices"], "num_data": saved["num_data"]}
        theirs = saved.get("identity", self.identity)
        self.read = True
        with same_run(theirs, self.identity, self.folder):
            self._require_same_settings(found)
            self._require_same_parameters(checkpoint["state_dict"])
        require_same_data(saved.get("data", {}), self._about_data, self.folder)
        self.history, self.best = saved["history"], saved["best"]
        self.rate = saved.get("rate", self.rate)

    @property
    def falls(self) -> bool:
        """True if the validation loss was still falling at the end of the last round."""
        return fall(self.history, self.settings.epochs, self._least, self._outputs) > FALL

    @property
    def _round_ended(self) -> bool:
        return bool(self.history) and len(self.history) % self.settings.epochs == 0

    def _groups(self) -> list[dict[str, Any]]:
        (optimizer,) = self.trainer.optimizers
        return optimizer.param_groups

    def _require_same_settings(self, found: dict[str, Any]) -> None:
        # With a constant rate a longer run begins as the shorter one did; with any other the total shapes every step.
        free = {"epochs", "patience"} if self.settings.schedule == "constant" else {"patience"}
        choices = described(self.method.choices())
        here = {**asdict(self.settings), "precision": self.passes, **choices, "num_data": self.epochs.num_data}
        for name in {**here, **found}:
            if name not in free and here.get(name) != found.get(name):
                theirs, mine = (textwrap.shorten(repr(each.get(name)), 200) for each in (found, here))
                raise ValueError(
                    f"the checkpoint in {self.folder} was trained with {name}={theirs}, not {mine}: a resumed run must "
                    "end where the uninterrupted one would. Use the same value, or another folder."
                )

    def _require_same_parameters(self, saved: dict[str, Tensor]) -> None:
        here = {name: tuple(value.shape) for name, value in self.state_dict().items()}
        there = {name: tuple(value.shape) for name, value in saved.items()}
        for name in sorted(here.keys() | there.keys()):
            if here.get(name) != there.get(name):
                raise ValueError(
                    f"the checkpoint in {self.folder} belongs to another network: {name.removeprefix('method.')} has "
                    f"shape {there.get(name)} there and {here.get(name)} here. Resume with the same network, or use "
                    "another folder."
                )

    def _stop_if_stale(self) -> None:
        if self.settings.patience is not None and self.best is not None:
            self.trainer.should_stop = self.history[-1]["epoch"] - self.best["epoch"] >= self.settings.patience
        elif self.rounds > 1 and self._round_ended:
            self.trainer.should_stop = not self.falls


def fit(
    method: Method,
    data: Data,
    validation: Data | None,
    settings: Settings,
    *,
    folder: Path | None,
    resume: bool,
    device: str,
    precision: str,
    rounds: int,
    progress: bool,
    processes: Group = ALONE,
    part: Group = ALONE,
    logger: Logger | None = None,
    callbacks: Sequence[pl.Callback] = (),
) -> list[dict[str, int | float]]:
    """Run the loop and return its history; see :func:`osculate.training.train`.

    ``processes`` take each step together; each process of ``part`` trains its own part of the method alone.
    """
    epochs = Epochs(data, settings.batch_size, settings.seed, processes)
    held_out = None if validation is None else Fixed(validation, settings.batch_size)
    accelerator, devices = _accelerator(device)
    strategy: Any = "auto"
    if not processes.alone:
        environment, (x, _) = Started(), next(iter(epochs.in_order))
        leaves_out = any(processes.gather(leaves_out_parameters(method, x)))
        strategy, devices = WeightedDDP(method, environment, leaves_out), environment.local_size
    loop = Loop(method, epochs, settings, folder, precision, rounds, held_out)
    loop.writes &= part.rank == 0
    state = None if folder is None else part.own(folder / CHECKPOINT)
    checkpoint = state if resume and state is not None and state.exists() else None
    every: list[pl.Callback] = [*callbacks, *([RichProgressBar()] if progress else [])]
    if folder is not None and state is not None:
        folder.mkdir(parents=True, exist_ok=True)
        name = state.name.removesuffix(state.suffix)
        every.append(ModelCheckpoint(folder, name, save_on_train_epoch_end=True, enable_version_counter=False))
    with _contained(method, accelerator):
        method.share = Share(processes)
        method.train()
        method.prepare(epochs.in_order)
        trainer = pl.Trainer(
            accelerator=accelerator,
            devices=devices,
            num_nodes=max(1, processes.size // devices) if isinstance(devices, int) else 1,
            strategy=strategy,
            use_distributed_sampler=False,
            max_epochs=settings.epochs * rounds,
            precision=PRECISIONS[precision],
            callbacks=every,
            plugins=[Checkpoints()],
            default_root_dir=folder,
            logger=logger or False,
            log_every_n_steps=min(LOGGED, epochs.num_batches),
            enable_checkpointing=folder is not None or any(isinstance(each, Checkpoint) for each in callbacks),
            enable_progress_bar=progress,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            inference_mode=False,  # inference tensors that a user's module caches would poison later training
        )
        try:
            trainer.fit(
                loop, epochs if processes.alone else Together(epochs), held_out, ckpt_path=checkpoint, weights_only=True
            )
        except Exception as error:
            if of_connection(error):  # in DDP or Lightning
                with processes.meeting():
                    raise
            if checkpoint is None or loop.read or isinstance(error, ConnectionError):
                raise
            raise ValueError(  # in place of Lightning's internal errors
                f"{checkpoint} is not a checkpoint that can be resumed ({type(error).__name__}: {error}). Remove it to "
                "start from the beginning."
            ) from error
        if loop.best is not None:
            method.load_state_dict(loop.best["state"])
        method.after_training(epochs.in_order)
    if (rounds > 1 or settings.lr == AUTO) and settings.patience is None and held_out is not None and loop.falls:
        done = "1 round" if rounds == 1 else f"{rounds} rounds"
        warnings.warn(
            f"the validation loss is still falling after {done} of {settings.epochs} epochs: allow more rounds and "
            f"resume, with rounds={2 * rounds} and resume=True, or on the command line with --rounds {2 * rounds} "
            "--resume.",
            stacklevel=3,
        )
    return loop.history


def _about_data(epochs: Epochs) -> dict[str, str]:
    """The fingerprint of the data; that of several processes depends on their number."""
    processes = epochs.processes
    each = processes.gather(fingerprint(epochs.in_order.data))
    if processes.alone:
        return each[0]
    return {f"{name} in {processes.size} processes": str([one.get(name) for one in each]) for name in each[0]}


def _accelerator(device: str) -> tuple[str, int | list[int]]:
    """Lightning's names of a device."""
    if device == "auto":
        return "auto", 1
    try:
        wanted = torch.device(device)
    except RuntimeError:
        raise ValueError(f"unknown device {device!r}; known: 'auto', 'cpu', 'cuda', 'cuda:<index>', 'mps'.") from None
    if wanted.type == "cuda":
        if not torch.cuda.is_available():
            raise ValueError(
                f"device {device!r} is not available: this torch sees no CUDA device. Use 'cpu' or 'auto'."
            )
        return "gpu", [wanted.index or 0]
    return wanted.type, 1


@contextmanager
def _contained(method: Method, accelerator: str) -> Iterator[None]:
    """Restore modes, device, gradients and random state after the run, and silence Lightning during it.

    Other threads need not wait until training has ended, as for :func:`osculate.randomness.seeded`.
    """
    device = next(method.parameters()).device
    gpus = list(range(torch.cuda.device_count())) if accelerator != "cpu" else []
    loggers = [logging.getLogger(name) for name in ("lightning.pytorch", "lightning.fabric", "lightning")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings(), undisturbed(method), preserved(gpus):
            warnings.filterwarnings("ignore", module=r"lightning\.")
            yield
    except SystemExit as error:
        if isinstance(error.__context__, KeyboardInterrupt):
            raise KeyboardInterrupt from None
        raise
    finally:
        method.share = WHOLE
        method.zero_grad(set_to_none=True)
        method.to(device)
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
