"""Variational Laplace: a bound without weight samples, from the squared gradients of sampled labels."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from osculate.checks import require_object, require_whole
from osculate.differentiation import Unfused
from osculate.inputs import Inputs, call, drawn_outputs, moved, take
from osculate.likelihoods import Likelihood
from osculate.methods._base import PriorLike, require_memory
from osculate.methods._mean_field import FAN_IN, START, MeanFieldMethod
from osculate.methods._running import RunningFisher
from osculate.methods.laplace import laplace_in_training
from osculate.operations import Calls, name_of
from osculate.parameters import is_active_dropout, undisturbed
from osculate.randomness import seeded
from osculate.registry import choose, lookup


@dataclass(frozen=True)
class VariationalUpdates:
    """Settings of the regulariser and of the variances.

    Args:
        every: Steps from one evaluation of the regulariser to the next; each is weighted by this number.
        rows: Share of the batch for the regulariser; with batch normalisation at least 16 data. The whole batch shares
            the forward pass of the loss if no dropout is active; a part takes a separate pass.
        memory: γ, the weight of the previous average in the running Fisher information, for ``sigma="closed_form"``.
        multiplier: Factor on the learning rate of log σ, for ``sigma="learned"``; 0 fixes σ at its initial value.
        start: Initial σ, in units of the prior's standard deviation.
        recompute: True to compute the variances of the result, for ``sigma="closed_form"``, from the exact curvature of
            all data at the final mean in place of the running average.

    Raises:
        ValueError: a number is out of range.
    """

    every: int = 2
    rows: float = 0.25
    memory: float = 0.99
    multiplier: float = 10.0
    start: float = START
    recompute: bool = True

    def __post_init__(self) -> None:
        require_whole("every", self.every)
        if not 0 < self.rows <= 1:
            raise ValueError(f"rows is a share of the batch and must be above 0 and at most 1, got {self.rows}.")
        require_memory("memory", self.memory)
        if not self.multiplier >= 0:
            raise ValueError(f"multiplier must not be negative, got {self.multiplier}.")
        if not self.start > 0:
            raise ValueError(f"start must be positive, got {self.start}.")


#: The regulariser of the whole batch in every step.
EXACT = VariationalUpdates(every=1, rows=1.0)


#: Names of operations with kinks, as calls are recorded; a maximum written with ``where`` is not recognised.
# fmt: off
KINKED = frozenset(
    {
        "abs", "adaptive_max_pool1d", "adaptive_max_pool2d", "adaptive_max_pool3d", "amax", "clamp", "clamp_min",
        "hardshrink", "hardsigmoid", "hardtanh", "leaky_relu", "max", "max_pool1d", "max_pool2d", "max_pool3d",
        "maximum", "prelu", "relu", "relu6", "rrelu", "selu", "softshrink", "threshold",
    }
)
# fmt: on


def warn_of_kinks(model: nn.Module, x: Inputs) -> None:
    """Warn of piecewise linear operations in a network."""
    with undisturbed(model), torch.no_grad(), Calls() as calls:
        device = next(model.parameters()).device
        model.eval()
        call(model, moved(take(x, slice(1)), device))
    names = dict.fromkeys(name_of(operation).rstrip("_") for operation in calls.seen)  # relu_ is relu in place
    if kinked := [name for name in names if name in KINKED]:
        warnings.warn(
            f"the network has piecewise linear operations ({', '.join(kinked)}): their second derivative is zero "
            "except at the kinks, so that the gradient of the mean omits the change of the curvature there. Use smooth "
            "ones, such as softplus or SiLU and average pooling (networks.LeNet(activation='shifted_softplus')).",
            stacklevel=3,
        )


#: Sources of the variances.
SIGMAS = ("closed_form", "learned")
DEFAULT = VariationalUpdates()
#: Smallest number of rows for batch statistics: with fewer, 1/variance and squared gradients have heavy tails.
FEWEST = 16
#: Decay per step of the initial excess of the precisions, because of which closed-form variances start small.
WARM_UP = 0.99


class VariationalLaplace(MeanFieldMethod):
    r"""A mean-field Gaussian with the expected log likelihood of a second-order expansion around its mean.

    .. math:: \frac1N \mathcal L = \frac1S \sum_b \log p(y_b \mid f_\mu(x_b))
              - \frac S2 \sum_p \sigma_p^2 \tilde g_p^2
              - \frac{T}{2N} \sum_p \Big[\delta_p (\sigma_p^2 + \mu_p^2) - 1 - \log \delta_p \sigma_p^2\Big]

    where g̃ = (1/S) Σ_b J_bᵀ s_b with random s_b of covariance Λ_b, so that E S g̃² is the diagonal of the Fisher
    information of one datum. No weights are sampled: the network runs at the mean. [unlu2021, eq. 30, with δ = 1/s² in
    the divergence]

    The choice of s_b (``fisher``) and its gradient:

    * "ggn": a root of Λ(f) times random signs, differentiated with f: the gradient of ½ tr(ΣG), without bias.
    * "label_linear": the score of a label sampled from the network, as a constant.
    * "label": the score of a sampled label, differentiated with f, as in [unlu2021]. The gradient omits the change of Λ
      with the mean, and has a noisy term of mean zero.

    The variances (``sigma``) are

    * "closed_form": the stationary variances, σ² = 1/(δ + N F̄/T), with the running average F̄ of S g̃², which need no
      training.
    * "learned": log σ is a parameter with its own learning rate.

    With batch normalisation the regulariser uses the batch statistics of its rows. E S g̃² is still the diagonal of the
    GGN, as the labels of a batch are independent given all its outputs, and the bound respects the invariance to the
    scale of weights before a normalisation. The variances of the result are those of the network in evaluation mode,
    unless they are learned or not recomputed. Parameters of normalisation layers are point estimates. Dropout is
    inactive in the regulariser.

    Args:
        model: The network f_θ; training changes it in place: its parameters are μ.
        likelihood: p(y|f).
        prior: p(θ): "fan_in" (precision fan-in of each layer), a precision, or an object of ``osc.priors``.
        temperature: T of the likelihood, the weight β of the divergence: 1 is Bayes.
        fisher: "ggn", "label_linear" or "label".
        sigma: "closed_form" or "learned".
        settings: Frequency and size of the regulariser, and settings of the variances.

    Raises:
        TypeError: ``model``, ``likelihood`` or ``prior`` is of the wrong type.
        ValueError: a value is out of range, or a name is unknown.

    Warns: of piecewise linear operations, which have no second derivative for the gradient of the mean.

    Cost: a step with the regulariser takes the time of 2.6 to 3.9 plain ones for the whole batch, by network and
    processor, and about 2 for a quarter of it. Recomputed closed-form variances take one exact diagonal at the end, a
    backward pass for each output. The loss in the history is −L/N on the training data.

    >>> x, y = torch.randn(60, 4), torch.randint(3, (60,))
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.Softplus(), nn.Linear(8, 3))
    >>> done = osc.train(VariationalLaplace(net, osc.likelihoods.Categorical()), (x, y), epochs=2, progress=False)
    >>> done.posterior
    Gaussian(structure='diag', P=67, N=60, likelihood=Categorical, prior=Layerwise)
    """

    name = "variational_laplace"
    needs_smooth_network = True
    fixed_settings = (*MeanFieldMethod.fixed_settings, "fisher", "sigma", "settings")

    def __init__(
        self,
        model: nn.Module,
        likelihood: Likelihood,
        prior: PriorLike = FAN_IN,
        temperature: float = 1.0,
        fisher: str = "ggn",
        sigma: str = "closed_form",
        settings: VariationalUpdates = DEFAULT,
    ) -> None:
        super().__init__(model, likelihood, prior, temperature)
        require_object("settings", settings, VariationalUpdates)
        self._column = lookup("fisher", fisher, COLUMNS)
        self.fisher, self.sigma = fisher, choose("sigma", sigma, SIGMAS)
        self.settings, self.multiplier = settings, settings.multiplier
        start = settings.start * self.delta.rsqrt()
        if sigma == "learned":
            self.log_deviation = nn.Parameter(start.log())
        else:
            self.running = RunningFisher(self.space, settings.memory, start.dtype, start.device)
        self._known: tuple[Tensor, Tensor] | None = None  # deviations, and their part of the divergence

    def prepare(self, data: Iterable[tuple[Inputs, Tensor]]) -> None:
        """Warn of operations without second derivatives."""
        warn_of_kinks(self.model, next(iter(data))[0])

    def deviations(self, scale: float = 1.0) -> Float[Tensor, " P"]:
        """σ of each parameter; in closed form with prior precisions of s δ.

        Args:
            scale: s.
        """
        if self.sigma == "learned":
            return self.log_deviation.exp()
        return self.running.deviations(int(self.num_data) / self.temperature, self.delta, scale)

    def _training_deviations(self) -> Float[Tensor, " P"]:
        """σ during training; in closed form it starts small."""
        last = int(self.steps) // self.settings.every * self.settings.every
        head = 1 + (self.settings.start**-2 - 1) * WARM_UP**last
        return self.deviations(head)

    def loss(self, x: Inputs, y: Tensor, num_data: int) -> Float[Tensor, ""]:
        """−L/N of one batch, in nats per datum."""
        self.store_size(y, num_data)
        due = int(self.steps) % self.settings.every == 0
        shared = due and self.settings.rows == 1 and not any(map(is_active_dropout, self.model.modules()))
        with Unfused() if shared else nullcontext():
            f, divergence = drawn_outputs(self.model, x)
        self.likelihood.check(f, y)
        total = -(self.likelihood.log_prob(f, y) - divergence).sum() / len(y)
        if shared:
            total = total + self.settings.every * self.regulariser(f, y)
        elif due:  # a random part of the batch
            size = max(1, round(self.settings.rows * len(y)), FEWEST if _normalising(self.model) else 1)
            rows = torch.randperm(len(y), generator=self.generator(torch.device("cpu"), stream=1))[:size].to(y.device)
            with _by_batch_statistics(self.model), Unfused():
                f, _ = drawn_outputs(self.model, take(x, rows))
                total = total + self.settings.every * self.regulariser(f, y[rows])
        self.steps.add_(1)
        return total + self.divergence_at_mean(num_data) + self._divergence_of_variances(num_data)

    def _divergence_of_variances(self, num_data: int) -> Tensor:
        if self.sigma == "learned":
            return self.divergence_of_variances(self.log_deviation, (2 * self.log_deviation).exp(), num_data)
        deviation = self._training_deviations()
        if self._known is None or self._known[0] is not deviation:  # they change with the regulariser
            self._known = deviation, self.divergence_of_variances(deviation.log(), deviation.square(), num_data)
        return self._known[1]

    def regulariser(self, f: Float[Tensor, "S *C"], y: Tensor) -> Float[Tensor, ""]:
        r"""(S/2) Σ σ² g̃², in nats per datum; also updates the running Fisher information.

        Args:
            f: Outputs with their graph.
            y: Targets, used only to exclude those that the likelihood ignores.

        Cost: with its backward pass, two backward passes through the gradient's graph.
        """
        size, weights = len(f), self.mean
        column = self._column(self.likelihood, f, y, self.generator(f.device))
        gradients = torch.autograd.grad(
            f, list(weights.values()), column / size, create_graph=True, materialize_grads=True
        )
        named = dict(zip(weights, gradients, strict=True))
        if self.sigma == "learned":
            variance = (2 * self.log_deviation).exp()
        else:
            self.running.add_batch_gradient({name: g.detach() for name, g in named.items()}, size, self.share)
            variance = self._training_deviations().square()
        parts = self.space.unflatten(variance)
        return 0.5 * size * torch.stack([(parts[name].to(g) * g.square()).sum() for name, g in named.items()]).sum()

    def after_training(self, data: Iterable[tuple[Inputs, Tensor]]) -> None:
        """Make the posterior at the final mean, with the curvature of all data there or with the running average."""
        if self.sigma == "learned" or not self.settings.recompute:
            super().after_training(data)
            return
        self.warn_of_nothing_learned()
        choice: dict[str, Any] = {"structure": "diag", "prior": self.prior, "subset": self.names}
        choice["distributed"] = self.share.distributed
        self._posterior = laplace_in_training(self.model, self.likelihood, data, self.temperature, **choice)


def _normalising(model: nn.Module) -> list[nn.modules.batchnorm._NormBase]:
    """Normalisation layers that use batch statistics."""
    return [layer for layer in model.modules() if layer.training and isinstance(layer, nn.modules.batchnorm._NormBase)]


@contextmanager
def _by_batch_statistics(model: nn.Module) -> Iterator[None]:
    """Evaluation mode, except that batch normalisation uses, but does not record, batch statistics."""
    before = [(layer, layer.track_running_stats, layer.momentum) for layer in _normalising(model)]
    with undisturbed(model):
        model.eval()
        try:
            for layer, _, _ in before:  # instance normalisation keeps them by its momentum alone
                layer.training, layer.track_running_stats, layer.momentum = True, False, 0.0
            yield
        finally:
            for layer, tracks, momentum in before:
                layer.track_running_stats, layer.momentum = tracks, momentum


def _of_labels(likelihood: Likelihood, f: Tensor, y: Tensor, generator: torch.Generator) -> Tensor:
    """The score of a sampled label, differentiable in f."""
    with seeded(generator.initial_seed(), f.device), torch.no_grad():
        drawn = likelihood.distribution(f).sample()
    counted = likelihood.counted(y)
    labels = drawn.to(y.dtype) if counted is None else torch.where(counted, drawn, y)
    return torch.autograd.grad(likelihood.log_prob(f, labels).sum(), f, create_graph=True)[0]


#: s_b of each kind of regulariser: a function of the likelihood, outputs, targets and a generator.
COLUMNS: Mapping[str, Callable[[Likelihood, Tensor, Tensor, torch.Generator], Tensor]] = {
    "ggn": lambda likelihood, f, y, generator: likelihood.signed_root(f, y, generator),
    "label_linear": lambda likelihood, f, y, generator: likelihood.sampled_root(f.detach(), y, 1, generator)[0],
    "label": _of_labels,
}
