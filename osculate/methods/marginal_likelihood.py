"""Training with the marginal likelihood: prior precisions and noise are learned together with the weights."""

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from osculate import curvature as curvatures, structures
from osculate.checks import require_object, require_positive, require_whole
from osculate.curvature.columns import Kind
from osculate.evidence import effective_parameters, log_evidence
from osculate.evidence.maximise import at_own_parameters
from osculate.evidence.problem import posterior_at_end
from osculate.inputs import Inputs
from osculate.likelihoods import Likelihood
from osculate.methods._base import Fitted, PriorLike, counter
from osculate.methods.laplace import laplace_in_training
from osculate.methods.map import MAP, negative_log_joint, require_precisions
from osculate.parameters import Network, trainable
from osculate.posteriors import Gaussian
from osculate.priors import Layerwise, Prior
from osculate.randomness import seeded
from osculate.registry import choose, made
from osculate.structures import Structure

#: Kinds of updates.
UPDATES = ("fixed_point", "gradient")


@dataclass(frozen=True)
class EvidenceUpdates:
    """Settings of the updates of prior precisions and noise scale.

    Args:
        update: "fixed_point" (to the maximum at the present weights, see ``osc.maximise_evidence``), or "gradient"
            (``steps`` steps of Adam on the log evidence, in the logs of the precisions and of the noise scale).
        burn_in: Epochs before the first interval; the first update follows epoch burn_in + every. With 0 there is
            also an update before the first epoch.
        every: Epochs from one update to the next.
        steps: Steps of Adam, for "gradient".
        lr: Learning rate of Adam, for the logs.
        noise: True to learn the noise scale, if the likelihood has one.

    Raises:
        ValueError: the update is unknown, or a number is out of range.

    >>> EvidenceUpdates(burn_in=2, every=3).due(5), EvidenceUpdates(burn_in=2, every=3).due(6)
    (True, False)
    """

    update: str = "fixed_point"
    burn_in: int = 0
    every: int = 1
    steps: int = 100
    lr: float = 0.1
    noise: bool = True

    def __post_init__(self) -> None:
        choose("update of the evidence", self.update, UPDATES)
        for name, least in (("burn_in", 0), ("every", 1), ("steps", 1)):
            require_whole(name, getattr(self, name), least)
        if not (math.isfinite(self.lr) and self.lr > 0):
            raise ValueError(f"lr must be a positive finite number, got {self.lr!r}.")

    def due(self, epoch: int) -> bool:
        """Return True if an update follows this epoch, counted from 1."""
        return epoch > self.burn_in and (epoch - self.burn_in) % self.every == 0

    def apply(self, q: Gaussian) -> Gaussian:
        """Return the posterior with updated precisions and noise scale, at the same weights."""
        if self.update == "fixed_point":
            # no warnings: early in training, precisions at their bounds are harmless
            return posterior_at_end(*at_own_parameters(q, self.noise and q.likelihood.has_noise))
        logs = q.prior.precision.detach().log().clone().requires_grad_()
        noise = logs.new_zeros(()).requires_grad_()
        tunes_noise = self.noise and q.likelihood.has_noise
        optimizer = torch.optim.Adam([logs, noise] if tunes_noise else [logs], lr=self.lr)

        def posterior(logs: Tensor, noise: Tensor) -> Gaussian:
            prior = q.prior.with_precision(logs.exp())
            return q.replace(prior=prior, likelihood=q.likelihood.times(noise.exp()) if tunes_noise else q.likelihood)

        for _ in range(self.steps):
            optimizer.zero_grad()
            with torch.enable_grad():
                (-log_evidence(posterior(logs, noise))).backward()
            optimizer.step()
        return posterior(logs.detach(), noise.detach())


#: Upper bound on precisions, in units of N. Larger ones would fix at zero for good any layer that is small early in
#: training, and make plain gradient descent unstable.
LARGEST_PER_DATUM = 10.0
#: One precision for each parameter tensor, and a full update after each epoch.
LAYERWISE, EACH_EPOCH = Layerwise(1.0), EvidenceUpdates()


class MarginalLikelihood(Fitted):
    r"""Train weights on the log joint, and prior precisions and noise scale on the Laplace evidence, in turns.

    .. math:: \theta \leftarrow \operatorname{argmax}_\theta \; \tfrac1T \log p(D \mid \theta, \sigma)
              + \log p(\theta \mid \delta), \qquad
              (\delta, \sigma) \leftarrow \operatorname{argmax}_{\delta, \sigma} \; \log p(D \mid \delta, \sigma)

    The weights take minibatch steps on the negative log joint per datum, as in ``MAP``, with the present precisions.
    Precisions and noise are updated after whole epochs, with the curvature at the present weights in evaluation mode.
    No validation data are needed. The result is the Gaussian at the weights, precisions and noise with the largest log
    evidence; the module itself keeps the weights of the last epoch. [immer2021b]

    With ``burn_in=0`` the first update precedes the first epoch, so that an initial precision that is far too large
    cannot shrink the network to a constant, from which training hardly recovers. The precision of parameters that are
    all zero is not updated. No precision exceeds 10 N, so that parameters that are small early in training are not
    fixed at zero for good.

    Each row of the history that follows an update also has ``log_evidence`` (nats per datum), ``effective_parameters``,
    ``noise_factor`` (relative to the given noise scale, if it is learned), and each precision by the name of its tensor
    or group (except those of a ``Diagonal`` prior).

    Rescaling a layer before a normalisation does not change the function, so that its precision drifts together with
    its norm; use networks without normalisation (``osc.networks.FixupResNet``), or ``osc.priors.Grouped``.

    Args:
        model: The network f_θ; training changes it in place.
        likelihood: p(y|f), with the initial noise scale if it has one.
        prior: p(θ) with the initial precisions: one for each parameter tensor by default, or an object of
            ``osc.priors``. A number is the precision of an isotropic prior, which is learned too.
        settings: Frequency and kind of the updates of precisions and noise.
        structure: Structure of the curvature, by name or an object of ``osc.structures``.
        curvature: "ggn", "fisher" (one sampled label for each datum: cheaper), …
        temperature: T of the likelihood. If the data hold K augmented copies of each datum, N is overstated, and T = K
            corrects for it; random augmentation in each epoch acts as more data, for which T is below 1. T is not
            learned: the evidence of a tempered likelihood has no maximum in T (``osc.tune`` finds T on held-out data).

    Raises:
        TypeError: ``model`` is not a module, or ``prior`` is neither a number nor a prior.
        ValueError: a value is not positive, or precisions do not fit the network; in training, no epoch has an update.

    Cost: that of ``MAP``, plus one pass for the curvature at each update and at the end; twice the memory of the
        network.

    >>> x = torch.linspace(-1, 1, 40)[:, None]
    >>> y = torch.sin(3 * x) + 0.1 * torch.randn(40, 1)
    >>> net = nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1))
    >>> method = osc.methods.MarginalLikelihood(net, osc.likelihoods.Gaussian())
    >>> done = osc.train(method, (x, y), epochs=3, progress=False)
    >>> done.posterior
    Gaussian(structure='kron', P=61, N=40, likelihood=Gaussian, prior=Layerwise)
    """

    name = "marginal_likelihood"
    by_evidence = True
    takes_trials = True  # with the precisions and the noise before the first epoch
    fixed_settings = ("settings", "structure", "curvature", "temperature")

    precision: Tensor
    noise: Tensor
    kept_precision: Tensor
    kept_noise: Tensor
    kept_evidence: Tensor
    kept_epoch: Tensor

    def __init__(
        self,
        model: nn.Module,
        likelihood: Likelihood,
        prior: PriorLike = LAYERWISE,
        settings: EvidenceUpdates = EACH_EPOCH,
        structure: str | Structure = "kron",
        curvature: str | Kind = "ggn",
        temperature: float = 1.0,
    ) -> None:
        super().__init__()
        checked = MAP(model, likelihood, prior)
        require_positive("the temperature", temperature)
        require_object("settings", settings, EvidenceUpdates)
        self.model = model
        self.settings, self.temperature = settings, temperature
        self.structure = made("structure", structure, structures.REGISTRY, Structure)
        self.curvature = made("curvature", curvature, curvatures.REGISTRY, Kind)
        network = Network(model, trainable(model), frozen=())  # states are loaded into it
        #: The weights with the largest evidence, as a module, so that they are saved with the other state.
        self.kept = network.module
        require_precisions(checked.prior, type(self).__name__)
        self._given, self._family = likelihood, checked.prior.bind(network.space)
        start = self._family.precision.detach()
        self.store(precision=start.clone(), noise=start.new_ones(()))
        self.store(kept_precision=start.clone(), kept_noise=start.new_ones(()))
        self.store(kept_evidence=start.new_full((), -math.inf), kept_epoch=counter())

    def choices(self) -> Mapping[str, Any]:
        """The initial settings: noise and prior are learned."""
        return {**super().choices(), "likelihood": self._given, "prior": self._family}

    @property
    def prior(self) -> Prior:
        """p(θ|δ) with the present precisions."""
        return self._family.with_precision(self.precision)

    @property
    def likelihood(self) -> Likelihood:  # type: ignore[override]  # it follows from a buffer, also after a resume
        """p(y|f) with the present noise scale."""
        return self._likelihood(self.noise)

    def _likelihood(self, noise: Tensor) -> Likelihood:
        return self._given.times(noise.clone()) if self._learns_noise else self._given

    @property
    def _learns_noise(self) -> bool:
        return self.settings.noise and self._given.has_noise

    def loss(self, x: Inputs, y: Tensor, num_data: int) -> Float[Tensor, ""]:
        """Negative log joint per datum, -(1/B) Σ log p(y|f)/T - (1/N) log p(θ|δ), in nats."""
        return negative_log_joint(self.model, self.likelihood, self.prior, x, y, num_data, self.temperature)

    def require_epochs(self, epochs: int) -> None:
        """Raise ValueError if no update falls within this number of epochs."""
        if epochs < self.settings.burn_in + self.settings.every:
            raise self._without_update(f"{epochs} epochs")

    def before_training(self, data: Iterable[tuple[Inputs, Tensor]]) -> None:
        """Update precisions and noise at the initial weights, unless there is a burn-in."""
        if not self.settings.burn_in:
            self._updated(data, 0)

    def end_epoch(self, epoch: int, epochs: int, data: Iterable[tuple[Inputs, Tensor]]) -> Mapping[str, float]:
        """Update precisions and noise if an update is due, and keep the state with the largest evidence."""
        self.require_epochs(epochs)
        if not self.settings.due(epoch):
            return {}
        q = self._updated(data, epoch)
        evidence = log_evidence(q).detach() / q.num_data
        if evidence.to(self.kept_evidence) > self.kept_evidence:
            self.kept.load_state_dict(self.model.state_dict())
            self.kept_precision.copy_(self.precision)
            self.kept_noise.copy_(self.noise)
            self.kept_evidence.copy_(evidence)
            self.kept_epoch.fill_(epoch)
        row = {"log_evidence": evidence.item(), "effective_parameters": sum(effective_parameters(q).values())}
        if self._learns_noise:
            row["noise_factor"] = self.noise.item()
        space = q.network.space
        if self._family.per_tensor(space) is not None:  # not one precision for each parameter
            labels, values = self._family.members(space), self.precision.reshape(-1).tolist()
            row |= {f"precision {label}": value for label, value in zip(labels, values, strict=True)}
        return row

    def _updated(self, data: Iterable[tuple[Inputs, Tensor]], epoch: int) -> Gaussian:
        """Update precisions and noise, and return the posterior with them at the present weights."""
        q = self._fitted(self.model, self.prior, self.likelihood, data, epoch)
        new = self.settings.apply(q)
        silent = q.prior.totals(q.prior.apart(q.mean).square(), q.network.space) == 0  # parameters that are all zero
        precision = torch.where(silent, q.prior.precision, new.prior.precision)
        if self._learns_noise:
            squared = torch.as_tensor(new.likelihood.curvature_scale(q.likelihood))  # (old scale / new scale)²
            self.noise.mul_(squared.rsqrt().to(self.noise))
        self.precision.copy_(precision.clamp(max=LARGEST_PER_DATUM * q.num_data))
        return q.replace(prior=self._family.with_precision(self.precision.clone()), likelihood=self.likelihood)

    def _fitted(
        self, model: nn.Module, prior: Prior, likelihood: Likelihood, data: Iterable[tuple[Inputs, Tensor]], epoch: int
    ) -> Gaussian:
        """The Gaussian at these weights in evaluation mode; the epoch number seeds sampled labels."""
        choice: dict[str, Any] = {"structure": self.structure, "curvature": self.curvature, "prior": prior}
        choice["distributed"] = self.share.distributed
        with seeded(epoch, self.precision.device):
            return laplace_in_training(
                model, likelihood, data, self.temperature, subset=trainable(self.model), **choice
            )

    def after_training(self, data: Iterable[tuple[Inputs, Tensor]]) -> None:
        """Fit the posterior at the weights, precisions and noise with the largest evidence."""
        epoch = int(self.kept_epoch)
        if not epoch:
            raise self._without_update("this training")
        prior = self._family.with_precision(self.kept_precision.clone())
        q = self._fitted(self.kept, prior, self._likelihood(self.kept_noise), data, epoch)
        effective = sum(effective_parameters(q).values())
        if effective <= q.fit.plan.outputs:
            warnings.warn(
                f"the effective number of parameters is {effective:.1f}, at most the number of outputs: the network "
                "has become a constant. If the inputs do predict the targets, the initial precisions were too large "
                "for the burn-in: start with smaller ones, or with burn_in=0.",
                stacklevel=2,
            )
        self._posterior = q

    def _without_update(self, what: str) -> ValueError:
        burn_in, every = self.settings.burn_in, self.settings.every
        return ValueError(
            f"no update of the precisions falls within {what}: with burn_in={burn_in} and every={every} the first is "
            f"due after epoch {burn_in + every}. Train longer, or update earlier."
        )
