"""Dropout kept active when predicting."""

from torch import nn

from osculate.likelihoods import Likelihood
from osculate.methods._base import PriorLike
from osculate.methods.map import MAP
from osculate.posteriors import Dropout
from osculate.posteriors.samples import require_dropout


class MCDropout(MAP):
    r"""Train with dropout, and predict with it: the mixture over random masks. [gal2016]

    The loss is that of :class:`osculate.methods.MAP`, -(1/B) Σ_b log p(y_b|f_b) - (1/N) log p(θ), with masks drawn for
    every datum of every batch; only prediction differs.

    Args:
        model: The network, with dropout layers; training changes it in place.
        likelihood: p(y|f).
        prior: p(θ): a precision, "fan_in", or an object of ``osculate.priors``.

    Raises:
        TypeError: ``model`` is not a module, or ``prior`` is neither a number nor a prior.
        ValueError: the network has no dropout layer with p > 0.

    >>> import osculate as osc
    >>> model = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 1))
    >>> data = torch.randn(20, 2), torch.randn(20, 1)
    >>> done = osc.train(MCDropout(model, osc.likelihoods.Gaussian()), data, epochs=2, progress=False)
    >>> osc.predict(done, data[0], samples=10).mean.shape
    torch.Size([20, 1])
    """

    name = "mc_dropout"
    network_name = "no unit dropped"
    needs_dropout = True

    def __init__(self, model: nn.Module, likelihood: Likelihood, prior: PriorLike = 1.0) -> None:
        super().__init__(model, likelihood, prior)
        require_dropout(model)

    def result(self) -> Dropout:  # type: ignore[override]
        """Networks with random masks around the current parameters."""
        return Dropout(self.model, self.likelihood)
