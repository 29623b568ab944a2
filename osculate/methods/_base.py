"""What every trained method offers to ``osculate.train``."""

from abc import ABC, abstractmethod

from jaxtyping import Float
from torch import Tensor, nn

from osculate.inputs import Inputs
from osculate.likelihoods import Likelihood
from osculate.posteriors import Posterior


class Method(nn.Module, ABC):
    """A way to reach a posterior by training.

    What it learns is a parameter, what it must remember is a buffer: training then moves, saves and resumes it without
    knowing more.

    Attributes:
        model: the network f_θ; training changes it in place.
        likelihood: p(y|f).
    """

    model: nn.Module
    likelihood: Likelihood

    @abstractmethod
    def loss(self, x: Inputs, y: Tensor, num_data: int) -> Float[Tensor, ""]:
        """The scalar to descend, for one batch.

        Args:
            x: inputs of the batch, (B, ...).
            y: targets of the batch, (B, ...).
            num_data: N, the size of the whole data set.
        """

    @abstractmethod
    def result(self) -> Posterior:
        """The posterior it has reached, as a frozen value."""
