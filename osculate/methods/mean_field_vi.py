"""Variational inference with sampled weights: Bayes by backprop, with the local reparameterisation."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from osculate.checks import require_positive, require_whole
from osculate.inputs import Inputs, drawn_outputs
from osculate.likelihoods import Likelihood
from osculate.linalg import white
from osculate.methods._base import PriorLike, counter
from osculate.methods._mean_field import FAN_IN, START, MeanFieldMethod
from osculate.priors import ScaleMixture

#: Operations that are linear in their input, called with (x, weight, bias, ...).
LINEAR: tuple[Callable, ...] = (
    F.linear,
    F.conv1d,
    F.conv2d,
    F.conv3d,
    F.conv_transpose1d,
    F.conv_transpose2d,
    F.conv_transpose3d,
)
#: Added to the variances of outputs, as the square root has no derivative at the zero variance of zero inputs.
TINY = 1e-16


class LocalReparameterisation(TorchFunctionMode):
    r"""A context in which linear layers and convolutions have Gaussian outputs in place of Gaussian weights.

    .. math:: h = A(x; \mu) + \sqrt{A(x^2; \sigma^2)} \circ \epsilon

    with an independent ε for every output: over data, where one weight sample would be shared by the whole batch, and
    also over positions and repeated uses of shared weights. Weights that enter any other operation are sampled
    once. [kingma2015, eq. 6]

    Args:
        mean: μ, by parameter; the network's own tensors, not copies.
        variance: σ².
    """

    def __init__(self, mean: Mapping[str, Tensor], variance: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._variance = {id(mean[name]): variance[name] for name in mean}
        self._drawn: dict[int, Tensor] = {}

    def __torch_function__(
        self, operation: Callable, types: Sequence[type], args: tuple = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if operation in LINEAR:
            x, weight, *others = [*args, *(named.pop(key) for key in ("input", "weight") if key in named)]
            bias = others.pop(0) if others else named.pop("bias", None)
            if id(weight) in self._variance:
                x = self._draw(x)
                mean = operation(x, weight, bias, *others, **named)
                of_bias = self._variance.get(id(bias))
                added = None if of_bias is None else of_bias.to(x)
                variance = operation(x.square(), self._variance[id(weight)].to(x), added, *others, **named)
                return torch.addcmul(mean, (variance + TINY).sqrt(), torch.randn_like(mean))
        return operation(*tree_map(self._draw, args), **tree_map(self._draw, kwargs or {}))

    def _draw(self, value: Any) -> Any:
        """Sample a weight; return anything else unchanged."""
        variance = self._variance.get(id(value))
        if variance is None:
            return value
        if id(value) not in self._drawn:
            self._drawn[id(value)] = torch.addcmul(value, variance.sqrt().to(value), torch.randn_like(value))
        return self._drawn[id(value)]


@dataclass(frozen=True)
class WarmUp:
    """A temperature that grows linearly over the first epochs, so that the data act before the prior.

    Args:
        epochs: Epochs of the warm-up; the first epoch has 1/epochs of the temperature.
        temperature: T.

    Raises:
        ValueError: there are no epochs, or the temperature is not positive.

    >>> WarmUp(4).after(1)
    0.5
    """

    epochs: int
    temperature: float = 1.0

    def __post_init__(self) -> None:
        require_whole("epochs", self.epochs)
        require_positive("the temperature", self.temperature)

    def after(self, epochs: int) -> float:
        """The temperature after a number of epochs."""
        return self.temperature * min(1.0, (epochs + 1) / self.epochs)


class MeanFieldVI(MeanFieldMethod):
    r"""q(θ) = N(μ, diag(σ²)) by stochastic gradients of the bound at sampled weights. [blundell2015]

    .. math:: \frac1N \mathcal L = \frac1B \sum_b \frac1S \sum_s \log p(y_b \mid f_{\mu + \sigma \epsilon_s}(x_b))
              - \frac TN \operatorname{KL}(q \,\|\, p)

    μ and log σ are learned, with separate learning rates. The divergence from a Gaussian prior is in closed form; that
    from a :class:`osculate.priors.ScaleMixture` is estimated from one sample.

    With ``local`` the noise of linear layers and convolutions is added to their outputs (see [kingma2015]): the same
    expectation if a weight is used once per datum, and gradients with less variance. For convolutions and sequences,
    positions are then independent, which is a common approximation. Batch normalisation uses the batch statistics of
    the sampled network; its parameters are point estimates without a prior.

    For a :class:`osculate.autoencoders.VAE` the posterior is over the decoder, and both halves are trained on the bound
    with sampled codes and weights: full variational Bayes. [kingma2014, appendix F]

    The result predicts with sampled networks, the linearised network, or the network at the mean:
    ``osc.predict(q, x, via="sampled" | "linearised" | "mode")``.

    Args:
        model: The network f_θ; training changes it in place: its parameters are μ.
        likelihood: p(y|f).
        prior: p(θ): "fan_in" (precision fan-in of each layer), a precision, or an object of ``osc.priors``;
            the result holds a mixture as the Gaussian with its variance.
        temperature: T of the likelihood, the weight β of the divergence: 1 is Bayes; or a :class:`WarmUp` to it.
        samples: S.
        local: True to sample the outputs of layers in place of their weights.
        multiplier: Factor on the learning rate of log σ.

    Raises:
        TypeError: ``model``, ``likelihood`` or ``prior`` is of the wrong type.
        ValueError: a value is out of range, or an unknown name.

    Cost: a step takes the time of about two plain ones with ``local`` and one sample, and one to two without ``local``.

    >>> x, y = torch.randn(60, 4), torch.randint(3, (60,))
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> done = osc.train(MeanFieldVI(net, osc.likelihoods.Categorical()), (x, y), epochs=2, progress=False)
    >>> osc.predict(done, x[:5], via="sampled", samples=10).probs.shape
    torch.Size([5, 3])
    """

    name = "mean_field_vi"
    fixed_settings = (*MeanFieldMethod.fixed_settings, "warmup", "samples", "local", "multiplier", "mixture")
    epochs: Tensor

    def __init__(
        self,
        model: nn.Module,
        likelihood: Likelihood,
        prior: PriorLike = FAN_IN,
        temperature: float | WarmUp = 1.0,
        samples: int = 1,
        local: bool = True,
        multiplier: float = 10.0,
    ) -> None:
        self.warmup = temperature if isinstance(temperature, WarmUp) else WarmUp(1, temperature)
        gaussian = prior.gaussian if isinstance(prior, ScaleMixture) else prior
        super().__init__(model, likelihood, gaussian, self.warmup.temperature)
        require_whole("samples", samples)
        if not multiplier >= 0:
            raise ValueError(f"multiplier must not be negative, got {multiplier}.")
        self.mixture = prior if isinstance(prior, ScaleMixture) else None
        self.samples, self.local, self.multiplier = samples, local, multiplier
        self.log_deviation = nn.Parameter((START * self.delta.rsqrt()).log())
        self.store(epochs=counter())

    @property
    def weight(self) -> float:
        """The weight of the divergence in this epoch."""
        return self.warmup.after(int(self.epochs))

    def before_training(self, data: Iterable[tuple[Inputs, Tensor]]) -> None:
        """Restart the warm-up, also for a method that was trained before."""
        super().before_training(data)
        self.epochs.zero_()

    def end_epoch(self, epoch: int, epochs: int, data: Iterable[tuple[Inputs, Tensor]]) -> Mapping[str, float]:
        """End an epoch, and set the weight of the divergence for the next."""
        row = super().end_epoch(epoch, epochs, data)
        self.epochs.fill_(epoch)
        return row

    def deviations(self) -> Float[Tensor, " P"]:
        return self.log_deviation.exp()

    def loss(self, x: Inputs, y: Tensor, num_data: int) -> Float[Tensor, ""]:
        """−L/N of one batch, in nats per datum."""
        self.store_size(y, num_data)
        variance = (2 * self.log_deviation).exp()
        total = self.log_deviation.new_zeros(())
        for _ in range(self.samples):
            if self.local:
                with LocalReparameterisation(self.mean, self.space.unflatten(variance)):
                    f, divergence = drawn_outputs(self.model, x)
            else:
                f, divergence = drawn_outputs(self.model, x, self._drawn())
            self.likelihood.check(f, y)
            total = total - (self.likelihood.log_prob(f, y) - divergence).sum() / (len(y) * self.samples)
        self.steps.add_(1)
        if self.mixture is not None:
            return total + self._sampled_divergence(self.mixture) * self.weight / num_data
        of_variances = self.divergence_of_variances(self.log_deviation, variance, num_data)
        return total + self.divergence_at_mean(num_data) + of_variances

    def _drawn(self) -> dict[str, Tensor]:
        """A sample of the weights, μ + σε."""
        dtype, device = self.log_deviation.dtype, self.log_deviation.device
        return self.moved_by(self.deviations() * white((self.space.size,), dtype, device))

    def _sampled_divergence(self, prior: ScaleMixture) -> Float[Tensor, ""]:
        """log q(θ) − log p(θ) at a sample; the random part of log q has no gradient and is replaced by its mean."""
        theta = self._drawn()
        entropy = self.log_deviation.sum() + 0.5 * self.space.size * (1 + math.log(2 * math.pi))
        return -entropy - prior.log_prob(theta)
