"""The interface of a posterior q(θ) for predictives and tasks."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from osculate.inputs import Inputs
from osculate.likelihoods import Likelihood
from osculate.parameters import Network


class Posterior(ABC):
    """A distribution over the parameters of one network: a frozen value.

    Attributes:
        network: The private copy of the network at the mode.
        likelihood: p(y|f).
        ways: Ways to predict; the first is the default (``predict(…, via=…)``).
    """

    network: Network
    likelihood: Likelihood
    ways: ClassVar[tuple[str, ...]]
    #: Way to a Gaussian posterior, for error messages.
    gaussian_instead: ClassVar[str] = "Make one with osc.laplace(model, likelihood, data)."

    @property
    def model(self) -> nn.Module:
        """The network at the mode; a private copy that does not follow the module it was made from."""
        return self.network.module

    @abstractmethod
    def to(self, device: Any = None, dtype: Any = None) -> "Posterior":
        """The same posterior on another device or in another floating type."""


class Sampled(Posterior):
    """A posterior from which networks can be drawn, so that their mixture predicts."""

    @abstractmethod
    def draws(self, samples: int, generator: torch.Generator | None = None) -> Iterator[Callable[[Inputs], Tensor]]:
        """Networks, one after the other, as functions of their inputs.

        Args:
            samples: S.
            generator: Source of random numbers.
        """


def as_posterior(q: object) -> Posterior:
    """A posterior, given as itself or as the result of ``osc.train``.

    Raises:
        TypeError: any other object.
    """
    posterior = q if isinstance(q, Posterior) else getattr(q, "posterior", None)
    if not isinstance(posterior, Posterior):
        raise TypeError(f"expected a posterior or the result of osc.train, got {type(q).__name__}.")
    return posterior
