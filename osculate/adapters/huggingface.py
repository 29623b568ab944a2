"""A posterior at the end of a training by the Trainer of Hugging Face's transformers."""

import os
from collections.abc import Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from osculate.adapters._ending import PosteriorAtEnd
from osculate.adapters._loaders import Pairs, few_rows
from osculate.checks import require_library
from osculate.likelihoods import Bernoulli, Categorical, Gaussian as GaussianNoise, Likelihood
from osculate.methods import laplace
from osculate.methods._base import unwrapped
from osculate.parameters import undisturbed
from osculate.posteriors import Gaussian

require_library("transformers", "callbacks of Hugging Face's Trainer")
from accelerate.utils import send_to_device  # noqa: E402
from transformers import TrainerCallback  # noqa: E402
from transformers.loss.loss_utils import ForCausalLMLoss  # noqa: E402

#: Relative difference to the loss of the model at which the likelihood is another one; half precision has 0.01.
APART = 0.02
#: The label that the losses of transformers ignore.
IGNORED = -100


class LaplaceTrainerCallback(PosteriorAtEnd, TrainerCallback):
    """Fit the posterior when ``trainer.train()`` ends: ``trainer.add_callback(LaplaceTrainerCallback(path))``.

    The data are the batches of the Trainer's loader, with "labels" as targets, and the weights those with which the
    training ends (``load_best_model_at_end`` included). The labels of a causal language model are shifted by one, as
    its loss does. Predictions take the model's inputs as one mapping: ``osc.predict(q, {"input_ids": …})``.

    What cannot be fitted is refused before the training, as far as the settings and two rows of a data set show it;
    nothing is read from a stream. An error of the fit itself takes nothing from the training: ``trainer.train`` ends as
    it would without the callback, with a warning, and :attr:`posterior` raises the error. A posterior whose file cannot
    be written is in :attr:`posterior`, with a warning too.

    Args:
        path: File for the posterior, which the first process writes; None to keep it in :attr:`posterior` alone.
        likelihood: p(y|f); by default that of the model's loss: ``Categorical(ignore_index=-100)``, ``Gaussian`` for
            the problem type "regression" (whose noise scale the evidence chooses), ``Bernoulli`` for
            "multi_label_classification".
        validation: Held-out batches on which the posterior is tuned, such as ``trainer.get_eval_dataloader()``.
        **options: Further arguments of :func:`osculate.methods.laplace.laplace`, such as ``subset="lora"`` for the
            adapters of PEFT alone, ``structure``, ``curvature``.

    Attributes:
        posterior: The posterior; None until the training has ended. Raises the error of a fit that failed.

    Raises:
        TypeError: an option is no argument of ``laplace``.
        ValueError: when the training begins, batches without "labels", labels whose -log p is not the loss of the
            model, or a batch that does not fit the network or the likelihood.
        IsADirectoryError: when the training begins, the path is a folder.

    Cost: that of :func:`osculate.methods.laplace.laplace`, after the training.
    """

    def __init__(
        self,
        path: str | os.PathLike | None = None,
        *,
        likelihood: Likelihood | None = None,
        validation: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(path, options)
        self.likelihood = likelihood
        self.validation = validation

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Refuse labels that are not those of the loss, and all that cannot be fitted, before the training.

        Args:
            args: Arguments of the training.
            state: State of the training.
            control: Control flow of the training, which stays as it is.
            **kwargs: The model as ``model`` and the loader as ``train_dataloader``, among others.
        """
        self.begin()
        if (batch := few_rows(kwargs["train_dataloader"])) is None:
            return
        task = _Task(kwargs["model"])
        task.check(kwargs["model"], batch, self.likelihood)
        way_out = "Fit with osc.laplace(model, likelihood, data) in place of the callback."
        self.attempt(kwargs["model"], self.likelihood or task.likelihood, task(batch), way_out)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Fit the posterior, and write it.

        Args:
            args: Arguments of the training.
            state: State of the training, which knows the first process.
            control: Control flow of the training, which stays as it is.
            **kwargs: The model as ``model`` and the loader as ``train_dataloader``, among others.
        """
        self.end(lambda: self._fitted(kwargs["model"], kwargs["train_dataloader"]), state.is_world_process_zero)

    def _fitted(self, model: nn.Module, loader: Any) -> Gaussian:
        """The posterior of a model with the data of a loader."""
        task = _Task(model)
        validation = None if self.validation is None else Pairs(self.validation, task)
        with undisturbed(model):
            likelihood, data = self.likelihood or task.likelihood, Pairs(loader, task)
            return laplace(model.eval(), likelihood, data, validation=validation, **self.options)


class _Task:
    """Targets and likelihood of a model's loss."""

    def __init__(self, model: nn.Module) -> None:
        model = unwrapped(model)
        model = getattr(model, "_orig_mod", model)  # that of torch.compile
        base: Any = getattr(model, "get_base_model", lambda: model)()  # that of PEFT
        self._shifts = getattr(base, "loss_function", None) is ForCausalLMLoss
        self._config = getattr(base, "config", None)

    @property
    def _problem(self) -> str | None:
        """The type of the problem, which a classifier finds in its first batch."""
        return getattr(self._config, "problem_type", None)

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood of the loss."""
        if self._problem == "regression":
            return GaussianNoise()
        return Bernoulli() if self._problem == "multi_label_classification" else Categorical(ignore_index=IGNORED)

    @torch.no_grad()
    def check(self, model: nn.Module, batch: Mapping[str, Any], likelihood: Likelihood | None) -> None:
        """Compare the likelihood of classes with the loss of the model, on one batch.

        Raises:
            ValueError: they differ, or the batch has no labels.
        """
        self(batch)  # has labels
        device = next(model.parameters()).device
        with undisturbed(model):
            found = model.eval()(**send_to_device(dict(batch), device))
        if likelihood is not None or not isinstance(self.likelihood, Categorical):
            return  # noise scales and means over entries are not in the loss
        _, y = self(batch)
        logits = found.logits.float()
        ours = F.cross_entropy(logits.flatten(0, -2), y.to(device).flatten(), ignore_index=IGNORED)
        if not bool((ours - found.loss.float()).abs() <= APART * ours.abs()):
            raise ValueError(
                f"the loss of {type(unwrapped(model)).__name__} on a batch is {float(found.loss):.4g}, and -log p of "
                f"its labels {float(ours):.4g}: the posterior would have other targets than the training. Pass "
                "likelihood=, or fit with osc.laplace on pairs (x, y)."
            )

    def __call__(self, batch: Mapping[str, Any]) -> tuple[dict[str, Any], Tensor]:
        """Inputs and targets of a batch.

        Raises:
            ValueError: it has no labels.
        """
        if "labels" not in batch:
            raise ValueError(
                f"a batch has {', '.join(batch)}, and no 'labels', which are the targets of the posterior: let the "
                "data collator add them, or fit with osc.laplace on pairs (x, y)."
            )
        x = {name: value for name, value in batch.items() if name != "labels"}
        y = batch["labels"]
        if self._shifts:
            y = F.pad(y[:, 1:], (0, 1), value=IGNORED)
        if self._problem == "regression":
            y = y.float().reshape(len(y), -1)
        return x, y
