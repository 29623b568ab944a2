"""Maximum a posteriori: the mode for a Laplace approximation."""

from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from osculate.inputs import Inputs, drawn_outputs
from osculate.likelihoods import Likelihood
from osculate.methods._base import FAN_IN, Method, PriorLike, require_network
from osculate.parameters import undisturbed
from osculate.posteriors import Point, earlier
from osculate.priors import Isotropic, Prior, fan_in


class MAP(Method):
    r"""The mode of the posterior: θ* = argmax log p(D|θ) + log p(θ). [mackay1992]

    The minibatch objective is the exact negative log joint per datum. With B of N data in the batch

        loss = -(1/B) Σ_b log p(y_b|f_b) - (1/N) log p(θ),

    with all constants, so that its value on the whole data set is -log p(D, θ) / N and its gradient is unbiased. The
    prior is a density rather than a separately tuned weight decay: the Laplace approximation uses the same precision.
    It covers all trained parameters (``requires_grad``).

    Args:
        model: The network f_θ; training changes it in place.
        likelihood: p(y|f).
        prior: p(θ): a number is the precision of an isotropic Gaussian, "fan_in" a precision of fan-in for each layer;
            or an object of ``osculate.priors``.

    Raises:
        TypeError: ``model``, ``likelihood`` or ``prior`` is of the wrong type.
        ValueError: the precision is not positive.

    >>> import torch
    >>> from osculate.likelihoods import Categorical
    >>> method = MAP(nn.Linear(2, 3), Categorical(), prior=1.0)
    >>> method.loss(torch.zeros(4, 2), torch.tensor([0, 1, 2, 0]), num_data=4).ndim
    0
    """

    name = "map"
    has_plain_steps = True
    fixed_settings: ClassVar[tuple[str, ...]] = ("likelihood", "prior")

    def __init__(self, model: nn.Module, likelihood: Likelihood, prior: PriorLike = 1.0) -> None:
        super().__init__()
        require_network(model, likelihood)
        self.model = model
        self.likelihood = likelihood
        self.prior = as_prior(prior, model)

    def loss(self, x: Inputs, y: Tensor, num_data: int) -> Float[Tensor, ""]:
        """Negative log joint per datum, -(1/B) Σ log p(y|f) - (1/N) log p(θ), in nats."""
        return negative_log_joint(self.model, self.likelihood, self.prior, x, y, num_data)

    def result(self) -> Point:
        """The present posterior: all mass at the current parameters, with the network in evaluation mode."""
        with undisturbed(self.model):
            return Point(self.model.eval(), self.likelihood)


def negative_log_joint(
    model: nn.Module,
    likelihood: Likelihood,
    prior: Prior,
    x: Inputs,
    y: Tensor,
    num_data: int,
    temperature: float = 1.0,
) -> Float[Tensor, ""]:
    """The loss per datum of one batch: -(1/B) Σ log p(y|f)/T - (1/N) log p(θ), θ all trained parameters, in nats."""
    f, divergence = drawn_outputs(model, x)
    likelihood.check(f, y)
    learned = {name: value for name, value in model.named_parameters() if value.requires_grad}
    bound = likelihood.log_prob(f, y) - divergence
    return -bound.sum() / len(y) / temperature - prior.log_prob(learned) / num_data


def as_prior(prior: Any, model: nn.Module | None = None) -> Prior:
    """Return the prior of a name, a precision or an object; raise TypeError for anything else.

    Args:
        prior: Prior, which is returned unchanged, an earlier posterior, precision of an isotropic prior, or "fan_in".
        model: Network of "fan_in".
    """
    prior = earlier.as_prior(prior)
    if isinstance(prior, Prior):
        return prior
    if model is not None and isinstance(prior, str) and prior == FAN_IN:
        return fan_in(model)
    if isinstance(prior, bool) or not isinstance(prior, int | float):
        raise TypeError(
            f"prior must be a precision (a positive number) or an object of osculate.priors, got {prior!r}."
        )
    return Isotropic(float(prior))


def require_precisions(prior: Prior, method: str) -> None:
    """Raise ValueError for a prior without precisions that a method could choose by the evidence.

    Raises:
        ValueError: the prior is an earlier posterior, or has length-scales too.
    """
    if not prior.independent:
        raise ValueError(
            f"{method} chooses the precisions of independent parameters, and {prior!r} has none: train methods.MAP "
            "under it, and fit osc.laplace with the same prior."
        )
