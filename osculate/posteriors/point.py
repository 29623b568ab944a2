"""All mass at one point: what ordinary training gives."""

from typing import Any, ClassVar

from torch import nn

from osculate.likelihoods import Likelihood
from osculate.parameters import Network
from osculate.posteriors._base import Posterior


class Point(Posterior):
    """q(θ) = δ(θ − θ*): predictions are those of the network itself, p(y | f(x; θ*)).

    Args:
        model: The trained module; it is copied.
        likelihood: p(y|f).

    >>> import osculate as osc
    >>> q = Point(nn.Linear(2, 3), osc.likelihoods.Categorical())
    >>> q
    Point(P=9, likelihood=Categorical)
    >>> osc.predict(q, torch.zeros(4, 2)).probs.shape
    torch.Size([4, 3])
    """

    ways: ClassVar[tuple[str, ...]] = ("mode",)

    def __init__(self, model: nn.Module, likelihood: Likelihood) -> None:
        self.network = Network(model, [name for name, _ in model.named_parameters()])
        self.likelihood = likelihood

    @classmethod
    def of(cls, network: Network, likelihood: Likelihood) -> "Point":
        """The point of a network that is already a copy, such as that of another posterior."""
        point = cls.__new__(cls)
        point.network, point.likelihood = network, likelihood
        return point

    def to(self, device: Any = None, dtype: Any = None) -> "Point":
        """The same posterior on another device or in another floating type."""
        return Point(self.network.to(device, dtype).module, self.likelihood)

    def __repr__(self) -> str:
        return f"Point(P={self.network.space.size:,}, likelihood={type(self.likelihood).__name__})"
