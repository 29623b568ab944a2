"""A posterior at the end of a training by Lightning."""

import os
from collections.abc import Callable, Mapping
from math import inf, isfinite
from typing import Any

from torch import nn

from osculate.adapters._ending import PosteriorAtEnd
from osculate.adapters._loaders import Pairs, few_rows
from osculate.checks import require_library
from osculate.likelihoods import Likelihood
from osculate.methods import laplace
from osculate.parameters import undisturbed
from osculate.posteriors import Gaussian

require_library("lightning", "callbacks of Lightning")
from lightning.pytorch import Callback, LightningModule, Trainer  # noqa: E402

#: What to do where the callback cannot fit.
WAY_OUT = "fit with osc.laplace(model, likelihood, loader) after the training in place of the callback"


class LaplaceCallback(PosteriorAtEnd, Callback):
    """Fit the posterior when ``trainer.fit`` ends: ``Trainer(callbacks=[LaplaceCallback(likelihood, path)])``.

    The data are those of the training loader, from the module or a data module, and the weights those with which the
    training ends, after callbacks that average them. Several processes fit together, each on its share of the data.

    What cannot be fitted is refused before the training, as far as the settings and two rows of a data set show it;
    nothing is read from a stream. An error of the fit itself takes nothing from the training: ``trainer.fit`` ends as
    it would without the callback, with its model and its checkpoints and a warning, and :attr:`posterior` raises the
    error. A posterior whose file cannot be written is in :attr:`posterior`, with a warning too.

    Args:
        likelihood: p(y|f), from ``osc.likelihoods``.
        path: File for the posterior, which the first process writes; None to keep it in :attr:`posterior` alone.
        module: Name of the network within the LightningModule, such as "network"; None for the LightningModule itself,
            whose ``forward`` returns f.
        batch: Function from a batch of the loader to inputs and targets (x, y), where it is no such pair.
        validation: Held-out data on which the posterior is tuned, or True for those of the trainer.
        **options: Further arguments of :func:`osculate.methods.laplace.laplace`, such as ``structure``, ``subset``,
            ``prior``, ``refine``.

    Attributes:
        posterior: The posterior; None until the training has ended. Raises the error of a fit that failed.

    Raises:
        TypeError: an option is no argument of ``laplace``.
        ValueError: when the training begins: the module has no such part, or no ``forward``; the trainer reads no
            training data, or several loaders together; it has no validation data, or several; a batch is no pair, or
            does not fit the network or the likelihood.
        IsADirectoryError: when the training begins, the path is a folder.

    Cost: that of :func:`osculate.methods.laplace.laplace`, after the training.
    """

    def __init__(
        self,
        likelihood: Likelihood,
        path: str | os.PathLike | None = None,
        *,
        module: str | None = None,
        batch: Callable[[Any], Any] | None = None,
        validation: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(path, options)
        self.likelihood = likelihood
        self.module = module
        self.batch = batch
        self.validation = validation

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse settings that cannot work, before the training."""
        self.begin()
        network = self._network(pl_module)
        if type(network).forward in (LightningModule.forward, nn.Module.forward):
            raise ValueError(
                f"{type(network).__name__} has no forward, which returns f for the inputs: write one, or name the "
                f"network within the LightningModule as module=, {_names(pl_module)}."
            )
        if trainer.limit_train_batches == 0:
            raise ValueError(
                "the trainer reads no training data, to which the posterior is fitted (limit_train_batches=0): "
                f"{WAY_OUT}."
            )
        if self.validation is True and not trainer.enable_validation:
            raise ValueError(
                "validation=True tunes the posterior on the validation data of the trainer, which has none: pass "
                "validation=loader, or leave it out."
            )

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse data that do not fit, before the training."""
        loader = _only(trainer.train_dataloader, f"training loaders together, and the posterior has one: {WAY_OUT}")
        if self.validation is True:
            self._held_out(trainer)
        if (batch := few_rows(loader)) is None:
            return
        if self.batch is not None:
            batch = self.batch(batch)
        way_out = "batch= makes pairs (x, y) of other batches, and module= names the network that takes x."
        self.attempt(self._network(pl_module), self.likelihood, batch, way_out)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Fit the posterior, and write it."""
        self.end(lambda: self._fitted(trainer, pl_module), trainer.is_global_zero)

    def _fitted(self, trainer: Trainer, pl_module: LightningModule) -> Gaussian:
        """The posterior, whatever the module and the data."""
        data, batches, before = trainer.train_dataloader, trainer.num_training_batches, pl_module.device
        validation = self._held_out(trainer) if self.validation is True else self.validation
        if validation is not None:
            validation = self._pairs(validation)
        with undisturbed(pl_module):
            try:
                pl_module.to(trainer.strategy.root_device)  # at the end of a training Lightning moves it away
                return laplace(
                    self._network(pl_module).eval(),
                    self.likelihood,
                    self._pairs(_only(data, "training loaders"), int(batches) if isfinite(batches) else None),
                    validation=validation,
                    **self.options,
                )
            finally:
                pl_module.to(before)

    @staticmethod
    def _held_out(trainer: Trainer) -> Any:
        """The validation data of the trainer."""
        reason = "validation loaders, and the posterior is tuned on one: pass it as validation=loader"
        return _only(trainer.val_dataloaders, reason)

    def _network(self, pl_module: LightningModule) -> nn.Module:
        """The network within the LightningModule.

        Raises:
            ValueError: it has no such part.
        """
        if self.module is None:
            return pl_module
        try:
            return pl_module.get_submodule(self.module)
        except AttributeError:
            raise ValueError(
                f"{type(pl_module).__name__} has no module {self.module!r}; {_names(pl_module)}."
            ) from None

    def _pairs(self, loader: Any, batches: int | None = None) -> Any:
        """The batches as pairs, as far as the training read them."""
        if self.batch is None and (batches is None or _length(loader) <= batches):
            return loader
        return Pairs(loader, self.batch or _same, batches)


def _length(loader: Any) -> int | float:
    """The number of batches of a loader, infinite if it does not know it."""
    try:
        return len(loader)
    except TypeError:
        return inf


def _names(module: nn.Module) -> str:
    """The modules within a module, in words."""
    names = ", ".join(repr(name) for name, _ in module.named_children())
    return f"its modules are {names or 'none'}"


def _only(loaders: Any, reason: str) -> Any:
    """The loader itself, or that of a collection of one.

    Raises:
        ValueError: there are several.
    """
    if not isinstance(loaders, list | tuple | Mapping):
        return loaders
    each = list(loaders.values() if isinstance(loaders, Mapping) else loaders)
    if len(each) != 1:
        raise ValueError(f"the trainer reads {len(each)} {reason}.")
    return each[0]


def _same(batch: Any) -> Any:
    return batch
