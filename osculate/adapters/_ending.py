"""A posterior at the end of a training that another library runs."""

import inspect
import os
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from osculate.likelihoods import Likelihood
from osculate.methods import Subnetwork, laplace
from osculate.methods.laplace import prior_named
from osculate.methods.planning import plan
from osculate.networks import Output
from osculate.parameters import undisturbed
from osculate.posteriors import Gaussian
from osculate.serialization import save

#: Rows of a trial before the training.
ROWS = 2
#: Arguments of a fit that its plan takes too.
PLANNED = ("structure", "curvature", "subset", "memory")


class PosteriorAtEnd:
    """The fit and the file of a posterior when a training ends, whose errors take nothing from the training.

    Args:
        path: File for the posterior; None for none.
        options: Arguments of the fit.
    """

    def __init__(self, path: str | os.PathLike | None, options: dict[str, Any]) -> None:
        inspect.signature(laplace).bind(None, None, None, **options)  # has no misspelt names
        self.path = path
        self.options = options
        self._posterior: Gaussian | None = None
        self._error: Exception | None = None

    @property
    def posterior(self) -> Gaussian | None:
        """The posterior; None until the training has ended.

        Raises:
            Exception: the error with which the fit ended.
        """
        if self._error is not None:
            raise self._error
        return self._posterior

    def begin(self) -> None:
        """Forget an earlier posterior, and make the folder of the file.

        Raises:
            IsADirectoryError: the path of the file is a folder.
            OSError: the folder cannot be made.
        """
        self._posterior = self._error = None
        if self.path is None:
            return
        path = Path(self.path)
        if path.is_dir():
            raise IsADirectoryError(f"{str(path)!r} is a folder: name a file for the posterior, as in 'q.safetensors'.")
        path.parent.mkdir(parents=True, exist_ok=True)

    def attempt(self, network: nn.Module, likelihood: Likelihood, batch: Any, way_out: str) -> None:
        """Refuse before the training what a fit would refuse after it, as far as a few rows show it.

        Args:
            network: The network, which stays as it is.
            likelihood: p(y|f).
            batch: A pair of inputs and targets, or what a loader gives in its place.
            way_out: A sentence for the message.

        Raises:
            ValueError: no posterior can be fitted.
        """
        counted = {name: self.options[name] for name in PLANNED if name in self.options}
        if "output" in self.options:
            network = Output(network, self.options["output"])
        if isinstance(counted.get("subset"), Subnetwork) or "output" in self.options:
            counted.pop("subset", None)  # of single parameters, or in names of the model
        try:
            prior_named(self.options.get("prior", "evidence"))
            with undisturbed(network):
                plan(network.eval(), likelihood, [batch], **counted)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:
            raise ValueError(f"no posterior could be fitted after this training: {error} {way_out}") from error

    def end(self, fit: Callable[[], Gaussian], writes: bool) -> None:
        """Fit the posterior, and write it; an error becomes a warning, so that the training ends as it would without.

        Args:
            fit: Function that fits.
            writes: True in the process that writes the file.
        """
        try:
            self._posterior = fit()
        except Exception as error:
            traceback.clear_frames(error.__traceback__)  # with what they hold in memory
            self._error = error
            warnings.warn(
                f"the training is complete, and has no posterior: {type(error).__name__}: {error} The callback's "
                "attribute posterior raises this error; osc.laplace(model, likelihood, data) fits again.",
                stacklevel=2,
            )
            return
        if self.path is None or not writes:
            return
        try:
            save(self._posterior, self.path)
        except Exception as error:
            warnings.warn(
                f"the posterior is not written to {str(self.path)!r}: {type(error).__name__}: {error} The callback's "
                "attribute posterior has it, for osc.save(callback.posterior, path).",
                stacklevel=2,
            )
