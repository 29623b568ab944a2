"""Training with networks sampled from a Laplace posterior that is updated online."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import vmap

from osculate import structures
from osculate.checks import require_object, require_positive, require_whole
from osculate.inputs import Inputs, call
from osculate.likelihoods import Likelihood
from osculate.linalg import white
from osculate.methods._base import TEMPERATURE, Fitted, Option, PriorLike, counter, require_memory
from osculate.methods._running import Running, RunningBlocks, RunningDiagonal, gaussian_with_curvature
from osculate.methods.laplace import laplace_in_training
from osculate.methods.map import MAP, require_precisions
from osculate.methods.marginal_likelihood import LARGEST_PER_DATUM
from osculate.parameters import Network, ParameterSpace, undisturbed
from osculate.priors import Prior
from osculate.registry import choose, made
from osculate.structures import Diag, Structure

#: Weights at which the curvature of a batch is computed, and its sources.
PLACES, SOURCES = ("sample", "mean"), ("ggn", "gradient")


@dataclass(frozen=True)
class OnlineUpdates:
    """Settings of the weight samples and of the running curvature.

    Args:
        every: Steps from one curvature of a batch to the next.
        memory: γ, the weight of the previous average in an update; 1 − α of eq. 10 [miani2022].
        at: The weights at which the curvature is computed: "sample" or "mean".
        source: "ggn" (in any structure, by a separate pass), or "gradient" (from the gradient at the sample, without
            another pass: ĥ = (θ_s − μ) ∇ / σ², as in IVON; for a diagonal; too large for large gradients) [shen2024].
        samples: Number of weight samples in each step.
        antithetic: True to sample in pairs θ = μ ± ε.
        recompute: True to give the result the curvature of all data at the final mean, in place of the average.

    Raises:
        ValueError: a number is out of range, or an unknown name.
    """

    every: int = 1
    memory: float = 0.999
    at: str = "sample"
    source: str = "ggn"
    samples: int = 1
    antithetic: bool = False
    recompute: bool = True

    def __post_init__(self) -> None:
        choose("place of the curvature", self.at, PLACES)
        choose("source of the curvature", self.source, SOURCES)
        require_memory("memory", self.memory)
        for name in ("every", "samples"):
            require_whole(name, getattr(self, name))
        if self.antithetic and self.samples % 2:
            raise ValueError(f"antithetic samples come in pairs, got samples={self.samples}: give an even number.")
        if self.source == "gradient" and self.samples > 1:
            raise ValueError(f"source='gradient' needs one sample per step, got samples={self.samples}.")


ALWAYS = OnlineUpdates()


#: Quantities that can be learned in addition to the weights.
LEARNED = ("noise", "prior")
#: Effective settings of the published code, whose H converges to ½ N E[JᵀJ] / (1 − γ). [miani2022]
PUBLISHED_MEMORY = 0.999
PUBLISHED_TEMPERATURE = 2 * (1 - PUBLISHED_MEMORY)


class OnlineLaplace(Fitted):
    r"""Monte Carlo EM: the mean of q by gradients at sampled weights, its precision by a running curvature.

    .. math:: \mu \leftarrow \mu + \lambda \nabla_\mu \Big[ \tfrac1B \textstyle\sum_b
              \operatorname{E}_{\theta \sim q} \log p(y_b \mid f_\theta(x_b)) + \tfrac TN \log p(\mu) \Big], \qquad
              q = \mathcal N\Big(\mu, \Big[\tfrac NT \bar G + \operatorname{diag}(\delta)\Big]^{-1}\Big)

    where Ḡ is the average curvature per datum over past batches, with bias-corrected weights that decay by ``memory``
    from one batch to the next. It does not contain N, T or the noise scale. [miani2022, eq. 8 to 11]

    The module is called with the weights μ + ε, so that the gradient is that of the sampled network. This works for any
    network and likelihood; an autoencoder has y = x.

    If ``learn`` names them, the noise scale and the prior precision are those of the M step,

    .. math:: \sigma^2 = \operatorname{E}_q \mathrm{SSE} / (N C), \qquad
              \delta_g = n_g / \big( \lVert\mu_g\rVert^2 + \operatorname{tr} \Sigma_{gg} \big)

    the first as an average over past steps, the second after each epoch.

    Args:
        model: The network f_θ; training changes it in place: its parameters are μ.
        likelihood: p(y|f).
        prior: p(θ): a precision, "fan_in", or an object of ``osc.priors``.
        settings: Settings of the weight samples and the running curvature.
        structure: Structure of the curvature, by name or an object of ``osc.structures``.
        temperature: T of the likelihood; 1 is Bayes, below 1 the samples stay closer to the mean.
        learn: "noise", "prior", or both, which are then learned from the given initial values.

    Raises:
        TypeError: ``model`` is not a module, or ``prior`` is neither a number nor a prior.
        ValueError: a value is out of range, the likelihood has no noise scale to learn, or ``source="gradient"`` is
            used with a structure that is not a diagonal.

    Cost: that of training, plus sampling, and the curvature of one batch every ``every`` steps.

    >>> x = torch.randn(60, 5)
    >>> net = nn.Sequential(nn.Linear(5, 2), nn.Tanh(), nn.Linear(2, 5))
    >>> done = osc.train(OnlineLaplace(net, osc.likelihoods.Gaussian()), (x, x), epochs=2, progress=False)
    >>> done.posterior
    Gaussian(structure='approx_diag', P=27, N=60, likelihood=Gaussian, prior=Isotropic)
    """

    name = "online_laplace"
    posterior_name = "Laplace"
    for_autoencoders = True
    # those of the published code, where temperature times squared noise (of autoencoders 0.04) is 1/500 [miani2022]
    training_temperatures = {False: 0.002, True: 0.05}
    fixed_settings = ("settings", "structure", "temperature")
    options = {
        "structure": Option(str, "structure of the running curvature, which must support averaging", "approx_diag"),
        "temperature": replace(
            TEMPERATURE, words=f"{TEMPERATURE.words} (by default 1 for real-valued targets, else by held-out data)"
        ),
    }

    precision: Tensor
    noise: Tensor
    error: Tensor
    steps: Tensor
    num_data: Tensor

    def __init__(
        self,
        model: nn.Module,
        likelihood: Likelihood,
        prior: PriorLike = 1.0,
        settings: OnlineUpdates = ALWAYS,
        structure: str | Structure = "approx_diag",
        temperature: float = 1.0,
        learn: str | Iterable[str] = (),
    ) -> None:
        super().__init__()
        checked = MAP(model, likelihood, prior)
        require_positive("the temperature", temperature)
        require_object("settings", settings, OnlineUpdates)
        names = (learn,) if isinstance(learn, str) else learn
        self.learn = frozenset(choose("learned quantity", name, LEARNED) for name in names)
        if "noise" in self.learn and not likelihood.has_noise:
            raise ValueError(f"{type(likelihood).__name__} has no noise scale to learn: remove 'noise' from learn.")
        self.model, self.settings, self.temperature = model, settings, temperature
        self.structure = made("structure", structure, structures.REGISTRY, Structure)
        if settings.source == "gradient" and not isinstance(self.structure, Diag):
            raise ValueError(
                f"source='gradient' needs a diagonal, got structure={self.structure.name!r}: use 'diag' or "
                "'approx_diag'."
            )
        if not self.structure.averages:
            *names, last = [repr(name) for name, kind in structures.REGISTRY.items() if kind().averages]
            raise ValueError(
                f"structure={self.structure.name!r} has no running average: use {', '.join(names)} or {last}."
            )
        if getattr(self.structure, "sharing", None) == "auto":
            raise ValueError(
                "sharing='auto' may decide differently for each batch, and factors of both kinds have no average: "
                "use Kron(sharing='expand') or Kron(sharing='reduce')."
            )
        self.running: Running
        if isinstance(self.structure, Diag):
            self.running = RunningDiagonal(model, likelihood, self.structure, settings.memory)
        else:
            self.running = RunningBlocks(model, likelihood, self.structure, settings.memory)
        require_precisions(checked.prior, type(self).__name__)
        self._given, self._family = likelihood, checked.prior.bind(self._space)
        self.store(precision=self._family.precision.detach().clone(), steps=counter(), num_data=counter())
        # factor on the given noise scale, and the average squared error in units of that scale, with its weight
        self.store(noise=torch.ones((), dtype=torch.double), error=torch.zeros(2, dtype=torch.double))

    def choices(self) -> Mapping[str, Any]:
        """The initial settings: noise and prior may be learned."""
        given = {"likelihood": self._given, "prior": self._family, "learn": sorted(self.learn)}
        return {**super().choices(), **given}

    @classmethod
    def published(
        cls, model: nn.Module, likelihood: Likelihood, structure: str | Structure = "approx_diag"
    ) -> "OnlineLaplace":
        """Make the method with the settings of the published code at its effective scale: T = 1/500, prior precision 1.

        The H of that code grows to ½ N/(1 − γ) times the average curvature, and is used in its result. [miani2022]

        Args:
            model: The network f_θ.
            likelihood: p(y|f); the published code has ``Gaussian(1.0)``.
            structure: "approx_diag", or "diag" for the exact diagonal.
        """
        settings = OnlineUpdates(memory=PUBLISHED_MEMORY, recompute=False)
        return cls(model, likelihood, 1.0, settings, structure, PUBLISHED_TEMPERATURE)

    @property
    def _space(self) -> ParameterSpace:
        return self.running.network.space

    @property
    def prior(self) -> Prior:
        """p(θ|δ) with the present precisions."""
        return self._family.with_precision(self.precision)

    @property
    def likelihood(self) -> Likelihood:  # type: ignore[override]  # it follows from a buffer, also after a resume
        """p(y|f) with the present noise scale."""
        return self._given.times(self.noise.clone()) if "noise" in self.learn else self._given

    def prepare(self, data: Iterable[tuple[Inputs, Tensor]]) -> None:
        """Make the state of the running curvature from the network's operations on the first batch."""
        self.running.record(*next(iter(data)))

    def loss(self, x: Inputs, y: Tensor, num_data: int) -> Float[Tensor, ""]:
        """-(1/B) Σ_b (1/S) Σ_s log p(y_b|f_s) - (T/N) log p(μ), in nats; also updates the average curvature."""
        self.store_size(y, num_data)
        self.running.record(x, y)
        if not self.steps:  # the average needs an initial value
            self.running.load_parameters(self.model)
            self.running.add_batch(x, y, self.share)
        mean = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        f = self._outputs(x, y, mean)
        likelihood = self.likelihood
        for each in f:
            likelihood.check(each, y)
        nll = -torch.stack([likelihood.log_prob(each, y).sum() for each in f]).mean() / len(y)
        with torch.no_grad():
            if "noise" in self.learn:
                balances = [self._given.noise_balance(self._given.statistics(each, y)) for each in f.detach()]
                error = torch.stack([error / count for count, error in balances]).mean()
                latest = torch.stack([error, torch.ones_like(error)]).to(self.error)
                self.share.average_([latest])
                self.error.lerp_(latest, 1 - self.settings.memory)
                self.noise.copy_((self.error[0] / self.error[1]).sqrt())
            self.steps.add_(1)
        return nll - self.temperature / num_data * self.prior.log_prob(mean)

    @property
    def _due(self) -> bool:
        return int(self.steps) % self.settings.every == 0

    @property
    def _factor(self) -> float:
        """c = N / T, with the present noise scale."""
        return self._scale * int(self.num_data) / self.temperature

    @property
    def _scale(self) -> float:
        """The curvature with the present noise scale, relative to that with the given scale."""
        with torch.no_grad():
            return float(self.likelihood.curvature_scale(self._given))

    def _outputs(self, x: Inputs, y: Tensor, mean: Mapping[str, Tensor]) -> Float[Tensor, "S B *C"]:
        """The outputs of the sampled networks; updates the average curvature when due."""
        settings = self.settings
        count = settings.samples // 2 if settings.antithetic else settings.samples
        device = next(iter(mean.values())).device
        draws = white((count, self._space.size), self.running.network.state_dtype, device)
        noise = list(self.running.coloured(draws, self._factor, self.prior))  # θ_s − μ of each sample
        if settings.antithetic:
            noise += [-each for each in noise]

        def at(theta: Mapping[str, Tensor]) -> Tensor:
            return call(self.model, x, theta)

        def around(offset: Float[Tensor, " P"]) -> dict[str, Tensor]:
            parts = self._space.unflatten(offset)
            return {name: p + parts[name].to(p.dtype) for name, p in mean.items()}

        if self._due and self.settings.source == "gradient":
            assert isinstance(self.running, RunningDiagonal)
            theta = around(noise[0])
            self.running.estimate_from(theta, noise[0], self._factor, self._scale, self.prior)
            return at(theta).unsqueeze(0)
        if self._due:
            single = self.settings.at == "sample" and len(noise) == 1
            if single and isinstance(self.running, RunningDiagonal) and self.running.shares_pass(self.model):
                self.running.clear_cache()  # the deviations will change: free their memory for the pass
                drawn = around(noise.pop())
                return self.running.run_with_curvature(lambda: at(drawn), (x, y), drawn, self.share).unsqueeze(0)
            self.running.load_parameters(
                self.model, self._space.unflatten(noise[0]) if self.settings.at == "sample" else None
            )
            self.running.add_batch(x, y, self.share)
        if len(noise) == 1:
            return at(around(noise[0])).unsqueeze(0)
        return vmap(lambda offset: at(around(offset)), randomness="different")(torch.stack(noise))

    def end_step(self) -> None:
        """Average the curvature that each process has estimated from its gradient."""
        if self.settings.source == "gradient" and not self.share.processes.alone:
            assert isinstance(self.running, RunningDiagonal)
            self.share.average_([self.running.fisher.values])
            self.running.clear_cache()

    def end_epoch(self, epoch: int, epochs: int, data: Iterable[tuple[Inputs, Tensor]]) -> Mapping[str, float]:
        """Update the prior if it is learned; the row has the standard deviation of the weights."""
        self.running.clear_cache()  # the noise scale may have changed
        variance = self.running.variance(self._factor, self.prior)
        row = {"weight_deviation": variance.mean().sqrt().item()}
        if "prior" in self.learn:
            mean = self._space.flatten(dict(self.model.named_parameters())).detach()
            sizes, squares = (
                self._family.totals(values, self._space)
                for values in (torch.ones_like(variance), self._family.apart(mean).square() + variance)
            )
            self.precision.copy_((sizes / squares).clamp(max=LARGEST_PER_DATUM * int(self.num_data)))
            self.running.clear_cache()
            row["prior_precision"] = self.precision.mean().item()
        if "noise" in self.learn:
            row["noise_factor"] = self.noise.item()
        return row

    def after_training(self, data: Iterable[tuple[Inputs, Tensor]]) -> None:
        """Make the posterior at the final mean, with the curvature of all data there or with the average."""
        names = self._space.names
        choice: dict[str, Any] = {"structure": self.structure, "prior": self.prior, "subset": names}
        if self.settings.recompute:
            choice["distributed"] = self.share.distributed
            self._posterior = laplace_in_training(self.model, self.likelihood, data, self.temperature, **choice)
        else:
            with undisturbed(self.model):
                network = Network(self.model.eval(), names)
                curvature, processes = self.running.of, self.share.processes
                q = gaussian_with_curvature(network, self._given, self.prior, data, curvature, None, processes)
            self._posterior = q.replace(likelihood=self.likelihood, temperature=self.temperature)
