"""The evidence lower bound of a variational autoencoder: its estimators, and training on it, also with noisy inputs."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from osculate.autoencoders.autoencoder import VAE, require_inputs
from osculate.checks import require_object, require_positive, require_whole
from osculate.inputs import Inputs
from osculate.likelihoods import Likelihood
from osculate.likelihoods._elementwise import require_unit_interval
from osculate.methods import MAP, WarmUp
from osculate.priors import Prior
from osculate.progress import track
from osculate.registry import choose, lookup

#: Estimators by name: True if log q is differentiated through the codes alone, and if the average over draws is inside
#: the logarithm.
ESTIMATORS: Mapping[str, tuple[bool, bool]] = {
    "A": (False, False),
    "B": (False, False),
    "stl": (True, False),
    "iwae": (False, True),
    "dreg": (True, True),
}
#: Functions that add noise of some level to images, by name.
NOISES: Mapping[str, Callable[[Tensor, float], Tensor]] = {
    "gaussian": lambda x, level: x + level * torch.randn_like(x),
    "mask": lambda x, level: x * (torch.rand_like(x) >= level),
}
#: The level relative to the first one, after a fraction t of the training.
SCHEDULES: Mapping[str, Callable[[float], float]] = {
    "constant": lambda t: 1.0,
    "linear": lambda t: 1 - t,
    "cosine": lambda t: 0.5 * (1 + math.cos(math.pi * t)),
    "step": lambda t: 1.0 if t < 0.5 else 0.5 if t < 0.75 else 0.0,
}


def estimates(
    model: VAE,
    likelihood: Likelihood,
    x: Float[Tensor, "N *D"],
    y: Tensor | None = None,
    estimator: str = "B",
    samples: int = 1,
    weight: float = 1.0,
) -> Float[Tensor, " N"]:
    r"""Estimate the bound on log p(x) of each datum by L codes, differentiably.

    .. math:: \text{A}: \; \frac1L \sum_l \log \frac{p(x, z_l)}{q(z_l | x)} \qquad
              \text{B}: \; \frac1L \sum_l \log p(x | z_l) - \operatorname{KL}(q \,\|\, p) \qquad
              \text{iwae}: \; \log \frac1L \sum_l \frac{p(x, z_l)}{q(z_l | x)}

    "stl" has the value of A and differentiates log q through z alone [roeder2017]; "dreg" has the value of iwae and its
    doubly reparameterised gradient [tucker2019]. A and B have the same mean; iwae and dreg are bounds that rise with L.
    For N data, N/M times the sum over a batch of M estimates the total bound. [kingma2014, eqs 6, 7]

    Args:
        model: Encoder, decoder, and distributions of codes.
        likelihood: p(x|z).
        x: Inputs of the encoder.
        y: Targets; ``x`` by default.
        estimator: A key of :data:`ESTIMATORS`.
        samples: L.
        weight: Factor of log q − log p; below 1 the result is not a bound.

    Raises:
        ValueError: an unknown estimator, no samples, "B" without a closed form, "iwae" or "dreg" with codes for which
            its gradient is biased, or data that the likelihood does not allow.

    Cost: a pass of the encoder, and L of the decoder.

    >>> from osculate.autoencoders import VAE, estimates
    >>> net = VAE(nn.Linear(6, 4), nn.Linear(2, 6))
    >>> estimates(net, osc.likelihoods.Gaussian(0.5), torch.rand(5, 6), estimator="A", samples=3).shape
    torch.Size([5])
    """
    path_only, inside = ESTIMATORS[choose("estimator", estimator, ESTIMATORS)]
    require_whole("samples", samples)
    if inside and estimator not in model.posterior.inside:
        raise ValueError(
            f"the gradient of {estimator!r} is biased with {type(model.posterior).__name__}, whose log q cannot be "
            f"differentiated with respect to its parameters and codes separately: pass {model.posterior.inside[0]!r}."
        )
    h, y = model.code(x), x if y is None else y
    ratio: Tensor | None  # log q − log p of each code, or its expectation
    if estimator == "B":
        ratio = model.posterior.divergence(h, model.prior)
        if ratio is None:
            raise ValueError(
                f"estimator 'B' needs the divergence of {type(model.posterior).__name__} from {model.prior!r}, which "
                "has no closed form: pass estimator 'A' or 'stl'."
            )
        z = model.posterior.codes(h, samples=samples)
    else:
        z, ratio = model.posterior.draw(h, model.prior, samples, path_only)
    f, y = model(decode=z.flatten(0, 1)), y.expand(samples, *y.shape).flatten(0, 1)
    likelihood.check(f, y)
    each = likelihood.log_prob(f, y).unflatten(0, z.shape[:2]) - weight * ratio
    if not inside:
        return each.mean(0)
    if path_only and z.requires_grad:  # at weight 1 the factor is the normalised weight of each draw
        factor = 1 - weight * (1 - each.detach().softmax(0))
        z.register_hook(lambda gradient: gradient * factor.unsqueeze(-1))
    return each.logsumexp(0) - math.log(samples)


@dataclass(frozen=True)
class EstimatorReport:
    """Variances of an estimator of the bound and of its gradients, for a fixed network.

    Args:
        estimator: Name of the estimator.
        samples: L.
        mean: Mean of the estimates in nats per datum.
        standard_error: Standard error of the mean, by the repetitions.
        value_variance: Variance of the estimate of a datum in nats², averaged over data.
        encoder_variance: Variance of the gradient with respect to encoder and codes, summed over their parameters.
        decoder_variance: Variance of the gradient with respect to the decoder, summed over its parameters.
    """

    estimator: str
    samples: int
    mean: float
    standard_error: float
    value_variance: float
    encoder_variance: float
    decoder_variance: float


def compare_estimators(
    model: VAE,
    likelihood: Likelihood,
    x: Float[Tensor, "N *D"],
    estimators: Sequence[str] | None = None,
    samples: int = 1,
    repeats: int = 100,
    progress: bool = False,
) -> dict[str, EstimatorReport]:
    """Compare the means and variances of estimators and of their gradients, at the current weights.

    Args:
        model: The network; it is not changed.
        likelihood: p(x|z).
        x: A batch.
        estimators: Names; by default "A", "stl", and "B" if the divergence has a closed form.
        samples: L.
        repeats: Repetitions of each estimator.
        progress: Show a progress bar.

    Raises:
        ValueError: an unknown estimator, or fewer than two repetitions.

    Cost: ``repeats`` steps of training for each estimator.

    >>> from osculate.autoencoders import VAE, compare_estimators
    >>> net = VAE(nn.Linear(6, 4), nn.Linear(2, 6))
    >>> found = compare_estimators(net, osc.likelihoods.Gaussian(0.5), torch.rand(5, 6), repeats=20)
    >>> found["A"].value_variance > 0
    True
    """
    if repeats < 2:
        raise ValueError(f"a variance needs at least two repetitions, got repeats={repeats}.")
    require_inputs(x)
    if estimators is None:
        estimators = ("A", "B", "stl") if model.closed_form else ("A", "stl")
    parameters = {name: p for name, p in model.named_parameters() if p.requires_grad}
    decoding = [name.startswith("decoder.") for name in parameters]
    found = {}
    for estimator in track(estimators, "comparing estimators", len(estimators), progress):
        values, gradients = [], []
        for _ in range(repeats):
            each = estimates(model, likelihood, x, None, estimator, samples)
            values.append(each.detach())
            gradients.append(torch.autograd.grad(each.mean(), list(parameters.values()), materialize_grads=True))
        stacked = torch.stack(values).double()
        variances = [torch.stack(parts).double().var(0).sum().item() for parts in zip(*gradients, strict=True)]
        found[estimator] = EstimatorReport(
            estimator,
            samples,
            float(stacked.mean()),
            float(stacked.mean(1).std()) / math.sqrt(repeats),
            float(stacked.var(0).mean()),
            sum(v for v, of in zip(variances, decoding, strict=True) if not of),
            sum(v for v, of in zip(variances, decoding, strict=True) if of),
        )
    return found


@dataclass(frozen=True)
class Corruption:
    r"""Noise x̃ ~ p(x̃|x) on the inputs of the encoder while a VAE trains. [im2017, geras2015]

    .. math:: \operatorname{E}_{p(\tilde x|x)} \operatorname{E}_{q(z|\tilde x)} \log \frac{p(x, z)}{q(z|\tilde x)}
              \le \log p(x)

    This bounds log p(x) of the clean image, encoded from a corrupted one. Training reports it for the training
    images, and for held-out images the bound with x̃ = x.

    Args:
        noise: "gaussian" (standard deviation ``level``, in units of the pixels) or "mask" (a share ``level`` of the
            pixels is set to zero).
        level: Initial level.
        schedule: "constant", or "linear", "cosine" or "step", which decrease to zero at the end of the training.

    Raises:
        ValueError: an unknown name, a level that is not positive, or a share above 1.

    >>> Corruption("mask", 0.5, "linear").level_at(0.5)
    0.25
    """

    noise: str = "gaussian"
    level: float = 0.25
    schedule: str = "constant"

    def __post_init__(self) -> None:
        lookup("noise", self.noise, NOISES)
        lookup("schedule of the noise", self.schedule, SCHEDULES)
        require_positive("the level of the noise", self.level)
        if self.noise == "mask" and self.level > 1:
            raise ValueError(f"the share of masked pixels is {self.level}: pass a level of at most 1.")

    def level_at(self, done: float) -> float:
        """The level after a fraction of the training."""
        return self.level * SCHEDULES[self.schedule](done)

    def __call__(self, x: Float[Tensor, "N *D"], done: float = 0.0) -> Float[Tensor, "N *D"]:
        """Draw x̃ after a fraction of the training."""
        return NOISES[self.noise](x, self.level_at(done))


@dataclass(frozen=True)
class BoundSettings:
    """Settings of the training of a VAE besides its bound.

    Args:
        warmup: Epochs over which the weight of the divergence grows to 1; 0 for no warm-up.
        corruption: Noise on the inputs of the encoder; None for clean inputs.
        binarise: Resample binary images in each step, with the pixel values as probabilities.
        learn_noise: Learn the noise scale of the likelihood, one number for all pixels.

    Raises:
        TypeError: ``corruption`` is not a :class:`Corruption`.
        ValueError: a negative number of epochs.
    """

    warmup: int = 0
    corruption: Corruption | None = None
    binarise: bool = False
    learn_noise: bool = False

    def __post_init__(self) -> None:
        require_whole("warmup", self.warmup, least=0)
        if self.corruption is not None:
            require_object("corruption", self.corruption, Corruption)


PLAIN = BoundSettings()


class ELBO(MAP):
    r"""Train a VAE on a bound on log p(x). [kingma2014]

    .. math:: \mathcal L(x) = \operatorname{E}_{q(z|x)} \log p(x \mid z) - \operatorname{KL}(q(z|x) \,\|\, p(z))

    The loss is -(1/B) Σ_b L(x_b) - (1/N) log p(θ), in nats, by the estimators of
    :func:`osculate.autoencoders.estimates`. Held-out data are scored by the bound of clean images.

    Args:
        model: The network; training changes it in place.
        likelihood: p(x|z).
        prior: p(θ).
        estimator: "B", with the divergence in closed form, "A", "stl", "iwae" or "dreg"; by default "B" if there is a
            closed form, else "stl".
        samples: L, codes drawn for each datum.
        settings: Warm-up of the divergence, noise on the inputs, binarised images, learned noise scale.

    Raises:
        TypeError: ``model`` is not a :class:`VAE`.
        ValueError: an unknown estimator, no samples, or ``learn_noise`` with a likelihood without a noise scale.

    >>> from osculate.autoencoders import ELBO, VAE
    >>> x = torch.rand(20, 6)
    >>> method = ELBO(VAE(nn.Linear(6, 4), nn.Linear(2, 6)), osc.likelihoods.Gaussian(0.1))
    >>> osc.train(method, (x, x), epochs=1, progress=False).posterior.ways
    ('mode',)
    """

    name = "vae"
    has_plain_steps = False
    for_autoencoders = True

    model: VAE
    done: Tensor
    epochs: Tensor

    def __init__(
        self,
        model: VAE,
        likelihood: Likelihood,
        prior: float | Prior = 1.0,
        estimator: str | None = None,
        samples: int = 1,
        settings: BoundSettings = PLAIN,
    ) -> None:
        if not isinstance(model, VAE):
            raise TypeError(f"ELBO trains an osc.autoencoders.VAE, got {type(model).__name__}.")
        super().__init__(model, likelihood, prior)
        require_whole("samples", samples)
        require_object("settings", settings, BoundSettings)
        usual = "B" if model.closed_form else "stl"
        self.estimator = choose("estimator", usual if estimator is None else estimator, ESTIMATORS)
        self.samples, self.settings = samples, settings
        self._total, self._count = 0.0, 0  # sum and number of bounds in this epoch
        self.register_buffer("done", torch.zeros((), dtype=torch.double))
        self.register_buffer("epochs", torch.zeros((), dtype=torch.long))
        if settings.learn_noise:
            likelihood.times(1.0)  # raises for one without a noise scale
            self.log_noise = nn.Parameter(torch.zeros(()))

    def choices(self) -> Mapping[str, Any]:
        """The choices of :class:`MAP`, with the objective and its estimator."""
        how = {"estimator": self.estimator, "samples": self.samples, "settings": self.settings}
        return {**super().choices(), "objective": "evidence lower bound", **how}

    def loss(self, x: Inputs, y: Tensor, num_data: int) -> Float[Tensor, ""]:
        """-(1/B) Σ_b L(x_b) - (1/N) log p(θ), where y is the target, usually x."""
        assert isinstance(x, Tensor)
        model = self.model
        x, y = self._binarised(x, y)
        if self.settings.corruption is not None:
            x = self.settings.corruption(x, float(self.done))
        bound = self._estimates(x, y, WarmUp(self.settings.warmup or 1).after(int(self.epochs)))
        self._total += float(bound.detach().sum())
        self._count += len(x)
        learned = {name: value for name, value in model.named_parameters() if value.requires_grad}
        own = model.posterior.extra_loss(model.code(x), model.prior) if not model.posterior.has_density else 0.0
        return own - bound.mean() - self.prior.log_prob(learned) / num_data

    def _estimates(self, x: Tensor, y: Tensor, weight: float = 1.0) -> Float[Tensor, " B"]:
        likelihood = self.likelihood.times(self.log_noise.exp()) if self.settings.learn_noise else self.likelihood
        return estimates(self.model, likelihood, x, y, self.estimator, self.samples, weight)

    def log_prob(self, x: Inputs, y: Tensor) -> Float[Tensor, " B"]:
        """The bound on log p(x) of clean images, by the estimator of training."""
        assert isinstance(x, Tensor)
        return self._estimates(*self._binarised(x, y))

    def _binarised(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return x and y, or one binary image for both."""
        if not self.settings.binarise:
            return x, y
        if y is not x and not torch.equal(x, y):
            raise ValueError(
                "with binarise=True the target is the binary image: pass the images as both inputs and targets, (x, x)."
            )
        require_unit_interval("binarise=True", x)
        drawn = torch.bernoulli(x)
        return drawn, drawn

    def before_training(self, data: Iterable[tuple[Inputs, Tensor]]) -> None:
        """Restart warm-up and noise, also after an earlier training."""
        self.epochs.zero_()
        self.done.zero_()

    def end_epoch(self, epoch: int, epochs: int, data: Iterable[tuple[Inputs, Tensor]]) -> Mapping[str, float]:
        """Return the mean training bound of the epoch in nats per image, and advance warm-up and noise."""
        self.epochs.fill_(epoch)
        self.done.fill_(epoch / max(1, epochs - 1))
        found = {"bound": self._total / max(1, self._count)}
        self._total, self._count = 0.0, 0
        if self.settings.learn_noise:
            found["noise_factor"] = float(self.log_noise.detach().exp())
        return found

    def after_training(self, data: Iterable[tuple[Inputs, Tensor]]) -> None:
        """Set the likelihood to the learned noise scale."""
        if self.settings.learn_noise:
            self.likelihood = self.likelihood.times(float(self.log_noise.detach().exp()))
            with torch.no_grad():
                self.log_noise.zero_()
