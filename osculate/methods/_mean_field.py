"""The base class of variational methods: a mean-field Gaussian trained on the evidence lower bound."""

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer

from osculate.checks import require_positive
from osculate.inputs import Inputs
from osculate.likelihoods import Likelihood
from osculate.methods._base import FAN_IN, TEMPERATURE, Fitted, PriorLike, counter, require_network
from osculate.methods._running import constant_diagonal, gaussian_with_curvature
from osculate.methods.map import as_prior
from osculate.parameters import Network, ParameterSpace, point_estimated, trainable, undisturbed
from osculate.priors import fan_in
from osculate.registry import choose

#: σ at the start, in units of the prior's standard deviation. [unlu2021]
START = math.exp(-3)
#: Nats of KL(q‖p) for each datum, and for each weight; below both the posterior is nearly the prior.
LEAST = 0.02
#: Normalisation layers: a prior around zero on their parameters would shrink the activations.
NORMALISATIONS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.LocalResponseNorm)


class MeanFieldMethod(Fitted):
    r"""q(θ) = N(μ, diag(σ²)) with the bound

    .. math:: \frac1N \mathcal L_T = \frac1N \operatorname{E}_q \log p(D \mid \theta) - \frac TN \sum_p \tfrac12
              \Big[\delta_p (\sigma_p^2 + \mu_p^2) - 1 - \log \delta_p \sigma_p^2 \Big]

    whose maximum over all distributions q is the tempered posterior. μ are the parameters of the module. Parameters of
    normalisation layers are point estimates without a prior; the posterior is over all other parameters.

    Args:
        model: The network f_θ; training changes it in place.
        likelihood: p(y|f).
        prior: p(θ): "fan_in" (precision fan-in of each layer), a precision, or an object of ``osc.priors``.
        temperature: T of the likelihood, which is the weight β of the divergence.

    Attributes:
        log_deviation: Parameter log σ, only of methods that learn it.
        multiplier: Factor on the learning rate of log σ.

    Raises:
        TypeError: ``model``, ``likelihood`` or ``prior`` is of the wrong type.
        ValueError: a value is out of range.
    """

    options = {"temperature": replace(TEMPERATURE, default=0.1)}
    network_name = "its mean"
    fixed_settings: ClassVar[tuple[str, ...]] = ("likelihood", "prior", "temperature")

    steps: Tensor
    delta: Tensor
    multiplier: float

    def __init__(self, model: nn.Module, likelihood: Likelihood, prior: PriorLike, temperature: float) -> None:
        super().__init__()
        require_network(model, likelihood)
        require_positive("the temperature", temperature)
        for name, layer in model.named_modules():
            if getattr(layer, "sparse", False) is True:
                raise ValueError(
                    f"layer {name!r} has sparse gradients, which {type(self).__name__} does not take: set its "
                    "attribute sparse to False, which changes no output."
                )
        self.model, self.likelihood, self.temperature = model, likelihood, temperature
        self.names = _weights(model)
        self.space = ParameterSpace.of({name: model.get_parameter(name) for name in self.names})
        if isinstance(prior, str):
            choose("prior of a variational method", prior, (FAN_IN,))
            prior = fan_in(model, self.names)
        self.prior = as_prior(prior).bind(self.space)
        if not self.prior.independent:
            raise ValueError(
                f"{type(self).__name__} has independent parameters, and the prior {self.prior!r} has not: pass a "
                "posterior with structure='diag', or train methods.MAP under it."
            )
        # on the device of the weights; in single precision for half-precision weights
        weight = model.get_parameter(self.names[0])
        dtype = torch.promote_types(weight.dtype, torch.float32)
        delta = self.prior.vector(self.space).detach().to(weight.device, dtype).clone()
        self.store(delta=delta, num_data=counter(), steps=counter())
        self._rate = 0.0  # the learning rate of log σ

    @property
    def mean(self) -> dict[str, Tensor]:
        """μ by parameter: the trained tensors themselves."""
        return {name: self.model.get_parameter(name) for name in self.names}

    def moved_by(self, offset: Float[Tensor, " P"]) -> dict[str, Tensor]:
        """μ plus an offset, by parameter."""
        parts = self.space.unflatten(offset)
        return {name: m + parts[name].to(m.dtype) for name, m in self.mean.items()}

    @abstractmethod
    def deviations(self) -> Float[Tensor, " P"]:
        """σ of each parameter."""

    def divergence_at_mean(self, num_data: int) -> Float[Tensor, ""]:
        """The part of T KL/N that depends on μ, as in the loss of ``MAP``: −T log p(μ)/N."""
        return -self.prior.log_prob(self.mean) * self.weight / num_data

    @property
    def weight(self) -> float:
        """The current weight of the divergence, T."""
        return self.temperature

    def divergence_of_variances(
        self, log_deviation: Float[Tensor, " P"], variance: Float[Tensor, " P"], num_data: int
    ) -> Float[Tensor, ""]:
        """The part of T KL/N that depends on σ: T/N Σ ½ [δσ² − 1 − log 2πσ²], from log σ and σ²."""
        constant = self.space.size * (1 + math.log(2 * math.pi))
        divergence = torch.dot(self.delta, variance) - 2 * log_deviation.sum() - constant
        return 0.5 * self.weight / num_data * divergence

    def optimizer(self, make: Callable[..., Optimizer], lr: float) -> Optimizer:
        """The optimiser of the settings, with log σ, if it is learned, in a group with its own learning rate."""
        log_deviation = getattr(self, "log_deviation", None)
        if log_deviation is None:
            return super().optimizer(make, lr)
        weights = [p for p in self.model.parameters() if p.requires_grad]
        self._rate = lr * self.multiplier
        return make([{"params": weights}, {"params": [log_deviation], "multiplier": self.multiplier}], lr)

    def generator(self, device: torch.device, stream: int = 0) -> torch.Generator:
        """The generator of this step's samples, which depends only on the epoch's seed, the step and the stream."""
        seed = (torch.initial_seed() + 0x9E3779B97F4A7C15 * (int(self.steps) + 1) + 0xD1B54A32D192ED03 * stream) % 2**63
        return torch.Generator(device).manual_seed(seed)

    @torch.no_grad()
    def end_epoch(self, epoch: int, epochs: int, data: Iterable[tuple[Inputs, Tensor]]) -> Mapping[str, float]:
        """Return a row with log σ/s, where s is the prior's standard deviation, and KL/N in nats."""
        ratio = self.deviations().log() + 0.5 * self.delta.log()
        return {"log_sigma_over_prior": float(ratio.mean()), "divergence": self._divergence()}

    def _divergence(self) -> float:
        """KL(q‖p) in nats for each datum."""
        deviation, number = self.deviations(), int(self.num_data)
        rest = self.divergence_of_variances(deviation.log(), deviation.square(), number)
        return float(self.divergence_at_mean(number) + rest) / self.weight

    @property
    def settling(self) -> float:
        """Largest number of steps in which the variances can reach those of the prior; 0 if unknown."""
        return -math.log(START) / self._rate if self._rate else 0.0

    @torch.no_grad()
    def warn_of_nothing_learned(self) -> None:
        """Warn if the posterior is close to the prior, or the variances are close to their initial values."""
        if int(self.steps) < self.settling:
            warnings.warn(
                f"{int(self.steps)} steps are few for the variances, which can need about {self.settling:.0f}: train "
                "for more epochs, with smaller batches, or with faster updates of the variances.",
                stacklevel=2,
            )
        divergence = self._divergence()
        if divergence < LEAST and divergence * int(self.num_data) / self.space.size < LEAST:
            warnings.warn(
                "the posterior is nearly the prior: the data are too few to outweigh the divergence of so many "
                f"weights. Take a lower temperature (it was {self.temperature:g}), a prior with lower precisions, or a "
                "smaller network.",
                stacklevel=2,
            )

    @torch.no_grad()
    def after_training(self, data: Iterable[tuple[Inputs, Tensor]]) -> None:
        """Make the posterior with the curvature T (1/σ² − δ); one pass over the data gives its statistics."""
        self.warn_of_nothing_learned()
        with undisturbed(self.model), torch.no_grad():
            self.model.eval()
            curvature = self.temperature * (self.deviations().square().reciprocal() - self.delta)
            network = Network(self.model, self.names)
            diagonal = constant_diagonal(network, curvature)
            q = gaussian_with_curvature(
                network, self.likelihood, self.prior, data, diagonal, None, self.share.processes
            )
            self._posterior = q.replace(temperature=self.temperature)


def _weights(model: nn.Module) -> tuple[str, ...]:
    """Trained parameters, except those of normalisation layers and those listed in the module's ``point_estimated``."""
    every = trainable(model)
    fixed = point_estimated(model) | {
        f"{path}.{name}" if path else name
        for path, layer in model.named_modules()
        if isinstance(layer, NORMALISATIONS)
        for name, _ in layer.named_parameters(recurse=False)
    }
    chosen = tuple(name for name in every if name not in fixed)
    if not chosen:
        raise ValueError(
            "all trained parameters belong to normalisation layers, which have no posterior. Set requires_grad=True on "
            "the weights that the posterior should cover."
        )
    return chosen
