"""Training of any method: its arguments are checked, and the loop for it is chosen."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from osculate import checks, methods, registry
from osculate.batches import Data, fingerprint
from osculate.distributed import ALONE, Group, group
from osculate.training import full_batch
from osculate.training.full_batch import History
from osculate.training.settings import AUTO, PRECISIONS, Settings, Training


def train(
    method: methods.Method,
    data: Data,
    settings: Settings | None = None,
    *,
    validation: Data | None = None,
    folder: str | Path | None = None,
    resume: bool = False,
    device: str = "auto",
    precision: str = "32",
    rounds: int = 1,
    progress: bool = True,
    distributed: str | bool = "auto",
    logger: Any = None,
    callbacks: Sequence[Any] = (),
    **changes: Any,
) -> Training:
    """Train a method: ``train(MAP(model, likelihood), data, epochs=20, lr=1e-3)``.

    The method's network is trained in place. Its mode (train or eval), its device and torch's random state are
    restored, also after an error. The same seed gives the same parameters, bit for bit on a CPU.

    With a `folder`, each epoch writes ``last.ckpt`` and ``training.csv`` there atomically, so that an interruption
    loses at most the current epoch. ``resume=True`` continues from ``last.ckpt`` (or starts anew if there is none) and
    gives the same result as an uninterrupted run.

    ``LevenbergMarquardt``, ``HMC`` and ``TemperatureScaling`` take all data at once: one epoch is one step, and of the
    settings only ``epochs`` and ``seed`` apply. The checkpoint is ``last.safetensors``, whose writing takes at most a
    tenth of the time; an interruption loses the steps since the last one. With ``device="auto"`` they use the device
    of the network.

    Args:
        method: Method to train, for example ``osculate.methods.MAP(model, likelihood)``; for a network that returns
            several things, ``MAP(osculate.networks.Output(model, 0), likelihood)``.
        data: A pair of tensors (X, Y) or a data set (both shuffled in each epoch), a loader, or batches (x, y).
        settings: The settings; any of its fields can also be given by name: ``epochs``, ``batch_size``, ``lr``,
            ``optimizer``, ``schedule``, ``patience``, ``seed`` (see :class:`Settings`). By default those of
            :class:`Settings`, but for a learning rate of 0.3 with ``IVON`` and ``VOGN``, and a constant one with
            ``SWAG``.
        validation: Held-out data; their NLL is recorded in each epoch, and with `patience` decides when to stop and
            which weights to keep. For variational methods it is the NLL at the mean, so that early stopping does not
            depend on the variances.
        folder: Folder for checkpoints and the log; by default nothing is written.
        resume: Continue from the checkpoint in `folder`.
        device: "auto" (an accelerator if there is one), "cpu", "cuda", "cuda:1", "mps".
        precision: "32", or "bf16" for forward and backward passes in bfloat16 where that is safe; parameters stay in
            single precision. For accelerators, and methods that take batches.
        rounds: Largest number of rounds of ``epochs``. While the validation loss falls by more than 0.01 nats in a
            round (in the second half of the first), its schedule begins again. The weights of the epoch with the
            lowest validation NLL are kept. For real values the fall is that at the best noise scale.
        progress: Show a progress bar.
        distributed: "auto": where a process group of ``torch.distributed`` is initialised, its processes train
            together by DDP, each on its share of the data, with gradients averaged over the data of a step; the members
            of an ensemble and the chains of HMC are shared out, on all data in each process. False for this process
            alone. ``batch_size`` is that of one process.
        logger: "csv" or "tensorboard" (the extra of this name), which write the loss of at least every fiftieth step
            and the rows of the history to the folder ``csv`` or ``tensorboard`` in `folder`; or a logger of Lightning.
        callbacks: Callbacks of Lightning (``lightning.pytorch.Callback``) for methods that take batches: they see
            ``loss`` if a bar or a logger shows it, and ``validation_nll``. Their state is in the checkpoints.
        **changes: Fields of `settings` by name.

    Returns:
        The posterior reached, the model, and the history (see :class:`Training`).

    Raises:
        ValueError: the data are empty or not finite, the likelihood ignores all targets, `patience` or `rounds` is
            given without validation data, `rounds` or ``lr="auto"`` is not for this method, there is nothing to train,
            the checkpoint belongs to other settings, another method or another network, the method is trained by one
            process alone, the logger is unknown or has no folder, or there are callbacks for a method without batches.
        TypeError: a setting does not exist, the data are not (x, y) batches, or a callback is none of Lightning.
        FloatingPointError: the loss is NaN or infinite; the message names epoch and batch.
        ConnectionError: another process has failed, or does not take part.

    >>> import torch
    >>> from osculate.likelihoods import Gaussian
    >>> from osculate.methods.map import MAP
    >>> x = torch.linspace(-1, 1, 20)[:, None]
    >>> done = train(MAP(nn.Linear(1, 1), Gaussian()), (x, 2 * x), epochs=2, progress=False)
    >>> len(done.history)
    2
    """
    if not isinstance(method, methods.Method):
        raise TypeError(
            f"a method of osculate.methods is trained, such as MAP(model, likelihood); got {type(method).__name__}."
        )
    settings = (settings or Settings().changed(**method.usual)).changed(**changes)
    if registry.choose("precision", precision, tuple(PRECISIONS)) != "32" and isinstance(method, methods.FullBatch):
        raise ValueError(
            f"precision={precision!r} is for methods that take batches, and {type(method).__name__} takes all data at "
            "once: leave it out."
        )
    if not any(parameter.requires_grad for parameter in method.parameters()):
        raise ValueError("no parameter of the method requires a gradient: there is nothing to train.")
    if settings.patience is not None and validation is None:
        raise ValueError(f"patience={settings.patience} needs validation data to watch: pass validation=(X, Y).")
    checks.require_whole("rounds", rounds)
    if rounds > 1 and (validation is None or settings.patience is not None):
        raise ValueError(f"rounds={rounds} needs validation data to watch, and no patience, which watches them too.")
    if not method.has_plain_steps and (rounds > 1 or (settings.lr == AUTO and not method.takes_trials)):
        what = f"rounds={rounds}" if rounds > 1 else f"lr={AUTO!r}"
        raise ValueError(f"{what} is not for {type(method).__name__}: leave it out.")
    method.require_epochs(settings.epochs)
    if resume and folder is None:
        raise ValueError("resume=True needs the folder of the run to resume: pass folder=...")
    where = None if folder is None else Path(folder)
    processes = group(distributed)
    if not processes.alone:
        _require_shared(method, data, device, processes)
    progress = progress and processes.rank == 0
    if callbacks and isinstance(method, methods.FullBatch):
        raise ValueError(
            f"callbacks are for methods that take batches, and {type(method).__name__} takes all data at once: leave "
            "them out."
        )
    log = None
    if logger is not None:
        checks.require_library("lightning", "loggers")
        from osculate.training.loggers import logger_of

        log = logger_of(logger, where)
    part = processes if method.in_parts else ALONE
    if isinstance(method, methods.FullBatch):
        run: Callable[..., History] = partial(full_batch.fit, part=part, logger=log)
    else:
        # Lightning takes seconds to import, and most uses of the library never train.
        checks.require_library("lightning", "methods that train in batches")
        if progress:
            checks.require_library("rich", "progress bars")
        from osculate.training import loop
        from osculate.training.loggers import require_callbacks

        steps, called = ALONE if method.in_parts else processes, require_callbacks(callbacks)
        of_run = partial(loop.fit, processes=steps, part=part, logger=log, callbacks=called)
        run = partial(of_run, precision=precision, rounds=rounds)
    if not part.alone:
        method.take_part(part)
    with part.together():
        history = run(method, data, validation, settings, folder=where, resume=resume, device=device, progress=progress)
    if not part.alone:
        method.exchange(part)
    return Training(method.result(), method.model, history)


def _require_shared(method: methods.Method, data: Data, device: str, processes: Group) -> None:
    """Raise an error unless several processes can train a method together.

    Raises:
        ValueError: one process alone trains it, the network is wrapped already, each process is to have all data and
            has not, or all are to use the same device.
    """
    if any(isinstance(module, nn.parallel.DistributedDataParallel) for module in method.modules()):
        raise ValueError(
            "the network is in DistributedDataParallel already, and training puts it there itself: make the method "
            "from model.module."
        )
    if method.alone:
        raise ValueError(
            f"{type(method).__name__} {method.alone}, in one process: call osc.train(..., distributed=False) in one of "
            f"the {processes.size} processes, or train another method."
        )
    if ":" in device:
        raise ValueError(f"device={device!r} is one device for {processes.size} processes: leave the number out.")
    if method.in_parts and len({str(each) for each in processes.gather(fingerprint(data))}) > 1:
        raise ValueError(
            f"each process trains its own part of {type(method).__name__} on all data, and these have different ones: "
            "pass all data to each."
        )
