"""A posterior at the end of a training by Lightning."""

import os
from collections.abc import Callable
from math import inf, isfinite
from pathlib import Path
from typing import Any

from torch import nn

from osculate.adapters._loaders import Pairs
from osculate.checks import require_library
from osculate.likelihoods import Likelihood
from osculate.methods import laplace
from osculate.parameters import undisturbed
from osculate.posteriors import Gaussian
from osculate.serialization import save

require_library("lightning", "callbacks of Lightning")
from lightning.pytorch import Callback, LightningModule, Trainer  # noqa: E402


class LaplaceCallback(Callback):
    """Fit the posterior when ``trainer.fit`` ends: ``Trainer(callbacks=[LaplaceCallback(likelihood, path)])``.

    The data are those of the training loader, from the module or a data module, and the weights those with which the
    training ends, after callbacks that average them. Several processes fit together, each on its share of the data.

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
        posterior: The posterior; None until the training has ended.

    Raises:
        ValueError: when the training begins, the module has no such part, or the trainer no validation data; when it
            ends, what ``laplace`` raises.

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
        self.likelihood = likelihood
        self.path = path
        self.module = module
        self.batch = batch
        self.validation = validation
        self.options = options
        self.posterior: Gaussian | None = None

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refuse what could not be fitted before hours of training rather than after."""
        self.posterior = None
        self._network(pl_module)
        if self.validation is True and not trainer.enable_validation:
            raise ValueError(
                "validation=True tunes the posterior on the validation data of the trainer, which has none: pass "
                "validation=loader, or leave it out."
            )

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Fit the posterior, and write it."""
        network, data = self._network(pl_module), trainer.train_dataloader
        before = pl_module.device
        validation = _only(trainer.val_dataloaders) if self.validation is True else self.validation
        if validation is not None:
            validation = self._pairs(validation)
        batches = trainer.num_training_batches
        with undisturbed(pl_module):
            try:
                pl_module.to(trainer.strategy.root_device)  # at the end of a training Lightning moves it away
                self.posterior = laplace(
                    network.eval(),
                    self.likelihood,
                    self._pairs(data, int(batches) if isfinite(batches) else None),
                    validation=validation,
                    **self.options,
                )
            finally:
                pl_module.to(before)
        if self.path is not None and trainer.is_global_zero:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            save(self.posterior, self.path)

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
            names = ", ".join(repr(name) for name, _ in pl_module.named_children())
            raise ValueError(
                f"{type(pl_module).__name__} has no module {self.module!r}; its modules are {names or 'none'}."
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


def _only(loaders: Any) -> Any:
    """The loader of a list of one.

    Raises:
        ValueError: there are several.
    """
    if not isinstance(loaders, list | tuple):
        return loaders
    if len(loaders) != 1:
        raise ValueError(
            f"the trainer has {len(loaders)} validation loaders, and the posterior is tuned on one: pass it as "
            "validation=loader."
        )
    return loaders[0]


def _same(batch: Any) -> Any:
    return batch
