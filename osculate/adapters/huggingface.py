"""A posterior at the end of a training by the Trainer of Hugging Face's transformers."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from osculate.adapters._loaders import Pairs
from osculate.checks import require_library
from osculate.likelihoods import Bernoulli, Categorical, Gaussian as GaussianNoise, Likelihood
from osculate.methods import laplace
from osculate.methods._base import unwrapped
from osculate.parameters import undisturbed
from osculate.posteriors import Gaussian
from osculate.serialization import save

require_library("transformers", "callbacks of Hugging Face's Trainer")
from transformers import TrainerCallback  # noqa: E402

#: The label that the losses of transformers ignore.
IGNORED = -100


class LaplaceTrainerCallback(TrainerCallback):
    """Fit the posterior when ``trainer.train()`` ends: ``trainer.add_callback(LaplaceTrainerCallback(path))``.

    The data are the batches of the Trainer's loader, with "labels" as targets, and the weights those with which the
    training ends (``load_best_model_at_end`` included). The labels of a causal language model are shifted by one, as
    its loss does. Predictions take the model's inputs as one mapping: ``osc.predict(q, {"input_ids": …})``.

    Args:
        path: File for the posterior, which the first process writes; None to keep it in :attr:`posterior` alone.
        likelihood: p(y|f); by default that of the model's loss: ``Categorical(ignore_index=-100)``, ``Gaussian`` for
            the problem type "regression" (whose noise scale the evidence chooses), ``Bernoulli`` for
            "multi_label_classification".
        validation: Held-out batches on which the posterior is tuned, such as ``trainer.get_eval_dataloader()``.
        **options: Further arguments of :func:`osculate.methods.laplace.laplace`, such as ``subset="lora"`` for the
            adapters of PEFT alone, ``structure``, ``curvature``.

    Attributes:
        posterior: The posterior; None until the training has ended.

    Raises:
        ValueError: when the training ends, what ``laplace`` raises; batches without "labels".

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
        self.path = path
        self.likelihood = likelihood
        self.validation = validation
        self.options = options
        self.posterior: Gaussian | None = None

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Fit the posterior, and write it.

        Args:
            args: Arguments of the training.
            state: State of the training, which knows the first process.
            control: Control flow of the training, which stays as it is.
            **kwargs: The model as ``model`` and the loader as ``train_dataloader``, among others.
        """
        model: nn.Module = kwargs["model"]
        pair = _Task(model)
        validation = self.validation
        if validation is not None:
            validation = Pairs(validation, pair)
        with undisturbed(model):
            self.posterior = laplace(
                model.eval(),
                self.likelihood or pair.likelihood,
                Pairs(kwargs["train_dataloader"], pair),
                validation=validation,
                **self.options,
            )
        if self.path is not None and state.is_world_process_zero:
            Path(self.path).parent.mkdir(parents=True, exist_ok=True)
            save(self.posterior, self.path)


class _Task:
    """Targets and likelihood of a model's loss."""

    def __init__(self, model: nn.Module) -> None:
        model = unwrapped(model)
        model = getattr(model, "_orig_mod", model)  # that of torch.compile
        base: Any = getattr(model, "get_base_model", lambda: model)()  # that of PEFT
        self._shifts = getattr(base, "loss_type", None) == "ForCausalLM"
        self._problem = getattr(getattr(base, "config", None), "problem_type", None)

    @property
    def likelihood(self) -> Likelihood:
        """The likelihood of the loss."""
        if self._problem == "regression":
            return GaussianNoise()
        return Bernoulli() if self._problem == "multi_label_classification" else Categorical(ignore_index=IGNORED)

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
