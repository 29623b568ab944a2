"""Bounds on log p(x) of a variational autoencoder, with their Monte Carlo errors."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from osculate.autoencoders.annealed import Annealed, Annealing, LogJoint, codes_at, prior_draws
from osculate.autoencoders.autoencoder import VAE, require_inputs, require_unrefined
from osculate.autoencoders.codes import drawn_by
from osculate.checks import require_object, require_whole
from osculate.likelihoods import Likelihood
from osculate.memory import even_parts
from osculate.parameters import Network
from osculate.posteriors import Chains, Dropout, Ensemble, Mixture, Point, Posterior
from osculate.posteriors._base import Sampled, as_posterior
from osculate.predictive.sampled import warn_if_far_worse
from osculate.progress import track
from osculate.registry import choose

#: Default K. A sample of "ais" is a chain of many passes.
SAMPLES: Mapping[str, int] = {"elbo": 5000, "iwae": 5000, "ais": 16}
WEIGHTS = ("mean", "drawn")
USUAL = Annealing()
#: Codes that are drawn together: a fixed number, so that the draws do not depend on the memory.
TOGETHER = 2**13
#: Independent calls for the codes of a datum, for posteriors whose draws within a call are dependent.
CALLS = 20


@dataclass(frozen=True, eq=False)
class Bound:
    """A bound on log p(x) of each datum, in nats, estimated by draws.

    Args:
        kind: "elbo", "iwae" or "ais", lower bounds, or "reverse ais", an upper one.
        samples: K, draws for each datum (and each network).
        values: The estimate for each datum.
        errors: Monte Carlo standard error of each estimate; NaN for a single draw.
        shifts: Change of the mean over the data by each drawn network; None if no networks are drawn.
    """

    kind: str
    samples: int
    values: Float[Tensor, " N"]
    errors: Float[Tensor, " N"]
    shifts: Float[Tensor, " W"] | None = None

    @property
    def mean(self) -> float:
        """The mean over the data."""
        return float(self.values.mean())

    @property
    def standard_error(self) -> float:
        """The standard error of the mean: the standard deviation of the estimates over data, divided by √N.

        It includes the differences between data and, since each datum has separate draws, the Monte Carlo error.
        Drawn networks are shared by all data; their contribution is added. NaN for a single datum.
        """
        if len(self.values) < 2:
            return math.nan
        shared = 0.0 if self.shifts is None else self.monte_carlo_error**2
        return math.sqrt(float(self.values.var()) / len(self.values) + shared)

    @property
    def monte_carlo_error(self) -> float:
        """The Monte Carlo error of the mean for fixed data: the part of its standard error that more draws reduce."""
        if self.shifts is not None:
            return float(self.shifts.std()) / math.sqrt(len(self.shifts))
        return float(self.errors.square().sum().sqrt()) / len(self.errors)

    def __repr__(self) -> str:
        sign = "≤" if self.kind == "reverse ais" else "≥"
        drawn = "" if self.shifts is None else f", networks={len(self.shifts)}"
        return (
            f"Bound(log p(x) {sign} {self.mean:.4g} ± {self.standard_error:.2g} nats, kind={self.kind!r}, "
            f"K={self.samples:,}, N={len(self.values):,}{drawn}, monte_carlo_error={self.monte_carlo_error:.2g})"
        )


#: A function of draws (S, N): the estimate for each datum, and its standard error.
Summary = Callable[[Tensor], tuple[Tensor, Tensor]]


@torch.inference_mode(False)
@torch.no_grad()
def bound(
    q: Any,
    x: Shaped[Tensor, "N *D"],
    kind: str = "iwae",
    samples: int | None = None,
    *,
    y: Tensor | None = None,
    likelihood: Likelihood | None = None,
    weights: str = "mean",
    networks: int = 20,
    annealing: Annealing = USUAL,
    generator: torch.Generator | None = None,
    progress: bool = False,
    memory: str | int | None = None,
) -> Bound:
    r"""A lower bound on log p(x) of each datum under a VAE.

    .. math:: \text{elbo}: \; \frac1K \sum_k \log w_k \qquad \text{iwae, ais}: \; \log \frac1K \sum_k w_k

    For "elbo" and "iwae" w_k = p(x, z_k)/q(z_k|x), of z_k ~ q(z|x) [burda2016, eq. 8]; for "ais" it is the weight of a
    chain that leads from p(z) or q(z|x) to p(z|x) [wu2017]. All are bounds in expectation: log p(x) ≥ E iwae ≥ E elbo,
    and iwae rises with K. The errors of iwae and ais are the relative errors of the mean weight (the delta method); if
    a few weights dominate, both the errors and the bound are too small.

    With ``weights="drawn"``, p(x) = E_{q(θ)} p(x|θ), and W networks θ_w are drawn, each member of an ensemble once:
    "elbo" is the mean over w of the bounds on log p(x|θ_w), at most E_{q(θ)} log p(x|θ) ≤ log p(x); "iwae" and "ais"
    are the log of the mean weight over w and k, a bound on log p(x).

    Args:
        q: A :class:`VAE`, a posterior over one, or the result of ``osc.train``.
        x: Data.
        kind: "elbo", "iwae" or "ais".
        samples: K, by default 5000, and 16 chains of "ais".
        y: Targets; ``x`` by default.
        likelihood: p(x|z); by default that of the posterior, and required for a VAE.
        weights: "mean", the network at the mean of the posterior, or "drawn".
        networks: W.
        annealing: Temperatures and transitions of "ais".
        generator: Source of random numbers.
        progress: Show a progress bar.
        memory: Memory for the images of a pass, in bytes or as "1GB". The draws do not depend on it.

    Raises:
        TypeError: ``q`` is not over a VAE, or the data are not floating point.
        ValueError: no data or NaN in them, no samples, an unknown name, a VAE without a likelihood, data that the
            likelihood does not allow, codes without a density (except "ais"), "mean" for a posterior without a mean
            network, or "drawn" for one that cannot be sampled.
        FloatingPointError: a bound is NaN.

    Cost: a pass of the encoder, and K of the decoder for each datum. "ais": that of
    :class:`osculate.autoencoders.annealed.Annealed`. Times W with drawn weights.

    >>> from osculate.autoencoders import VAE, bound
    >>> net, x = VAE(nn.Linear(6, 4), nn.Linear(2, 6)), torch.rand(5, 6)
    >>> found = bound(net, x, samples=100, likelihood=osc.likelihoods.Gaussian(0.5))
    >>> found.values.shape, found.kind, found.samples
    (torch.Size([5]), 'iwae', 100)
    """
    choose("kind of bound", kind, SAMPLES)
    choose("weights", weights, WEIGHTS)
    require_object("annealing", annealing, Annealing)
    samples = SAMPLES[kind] if samples is None else samples
    require_whole("samples", samples)
    posterior, model = as_vae(q, likelihood)
    if kind != "ais" and not model.posterior.has_density:
        raise ValueError(
            f"{kind!r} needs the density of {type(model.posterior).__name__}, which is unknown: pass kind='ais', which "
            "starts from p(z)."
        )
    x, y = _ready(posterior, x, x if y is None else y)
    summary: Summary = mean if kind == "elbo" else log_mean
    drawn = list(_networks(posterior, weights, networks, kind, generator))
    joints = [LogJoint(network, model, likelihood or posterior.likelihood, memory) for network in drawn]
    draws = partial(_annealed, settings=annealing) if kind == "ais" else partial(_weighed, summary=summary)
    total = len(joints) * len(even_parts(len(x), max(1, TOGETHER // samples)))
    each = track(
        (summary(logs) for joint in joints for logs in draws(joint, x, y, samples, generator)), kind, total, progress
    )
    values, errors = (torch.cat(part).view(len(joints), len(x)) for part in zip(*each, strict=True))
    if bool(values.isnan().any()):
        raise FloatingPointError(
            f"the bound of {int(values.isnan().any(0).sum())} of {len(x)} data is NaN: a weight of the network is NaN, "
            "or a variance of the encoder overflows."
        )
    if weights == "mean":
        return Bound(kind, samples, values[0], errors[0])
    together, error = summary(values)
    shifts = values - together if kind == "elbo" else (values - together).exp() - 1
    return Bound(kind, samples, together, error, shifts.mean(1))


def mean(logs: Float[Tensor, "S N"]) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """Return the mean over draws, and its standard error, NaN for a single draw."""
    spread = logs.std(0) if len(logs) > 1 else torch.full_like(logs[0], math.nan)
    return logs.mean(0), spread / math.sqrt(len(logs))


def log_mean(logs: Float[Tensor, "S N"]) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """Return the log of the mean weight, and the relative standard error of that mean, NaN for a single weight.

    >>> log_mean(torch.tensor([[1.0], [3.0]]).log())
    (tensor([0.6931]), tensor([0.5000]))
    """
    return logs.logsumexp(0) - math.log(len(logs)), len(logs) * mean(logs.softmax(0))[1]


def as_vae(q: Any, likelihood: Likelihood | None) -> tuple[Posterior, VAE]:
    """Return a posterior over a VAE, and the VAE.

    Raises:
        TypeError: not a posterior, or one over another network.
        ValueError: a VAE without a likelihood, or a refined posterior.
    """
    if isinstance(q, VAE):
        if likelihood is None:
            raise ValueError("a VAE alone does not define p(x|z): pass likelihood=, the one of its training.")
        q = Point(q, likelihood)
        q.model.eval()
    posterior = as_posterior(q)
    if not isinstance(posterior.model, VAE):
        raise TypeError(
            f"bounds on log p(x) need an osc.autoencoders.VAE, and this network is a {type(posterior.model).__name__}, "
            "which has no distribution of codes."
        )
    require_unrefined(posterior)
    return posterior, posterior.model


def at_mean(posterior: Posterior) -> Network:
    """Return the network at the mean of the weights.

    Raises:
        ValueError: the posterior is a set of networks, without a mean network.
    """
    if isinstance(posterior, Ensemble | Chains | Mixture):
        raise ValueError(
            f"this {type(posterior).__name__} has no network at its mean: take one of its networks, or "
            "bound(…, weights='drawn')."
        )
    return posterior.network


def _ready(posterior: Posterior, x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Check inputs and targets, and move them to the type and device of the network."""
    network = posterior.network
    require_inputs(x)
    if len(y) != len(x):
        raise ValueError(f"there are {len(x)} inputs and {len(y)} targets y: pass one for each.")
    if not bool(y.isfinite().all()):
        raise ValueError("the targets y contain NaN or infinite values, which have no density: clean or impute them.")
    x, y = (t.clone() if t.is_inference() else t for t in (x, y))
    return x.to(network.device, network.dtype), y.to(network.device, network.dtype if y.is_floating_point() else None)


def _networks(
    posterior: Posterior, weights: str, count: int, kind: str, generator: torch.Generator | None
) -> Iterator[Callable[[Any], Tensor]]:
    """Yield the network at the mean, or drawn networks."""
    name = type(posterior).__name__
    if weights == "mean":
        yield at_mean(posterior)
        return
    if not isinstance(posterior, Sampled):
        raise ValueError(f"this {name} cannot be sampled: pass weights='mean'.")
    if kind == "ais" and isinstance(posterior, Dropout):
        raise ValueError(
            "a chain of 'ais' needs one network, and dropout draws a new mask in each pass: pass kind='iwae'."
        )
    require_whole("networks", count, least=2)
    warn_if_far_worse(posterior)
    yield from posterior.draws(count, generator)


def _weighed(
    joint: LogJoint, x: Tensor, y: Tensor, samples: int, generator: torch.Generator | None, summary: Summary
) -> Iterator[Float[Tensor, "S n"]]:
    """Yield log w of draws from q(z|x), for one part of the data after another.

    If the draws of a call are dependent, each row is the summary of one call.
    """
    h = joint.encoded(x)
    together = TOGETHER if joint.posterior.independent else max(1, -(-samples // CALLS))
    for number, n in enumerate(even_parts(len(h), max(1, TOGETHER // samples))):
        logs: list[Tensor] = []
        for s in even_parts(samples, together):
            with drawn_by(generator):
                z, ratio = joint.posterior.draw(h[n], joint.prior, s.stop - s.start)
            if not number and not logs:
                joint.require_targets(y, z[0, :1])
            drawn = joint.log_prob(z, y[n]) - ratio.double()
            logs.append(drawn if joint.posterior.independent else summary(drawn)[0].unsqueeze(0))
        yield torch.cat(logs)


def _annealed(
    joint: LogJoint, x: Tensor, y: Tensor, samples: int, generator: torch.Generator | None, settings: Annealing
) -> Iterator[Float[Tensor, "C n"]]:
    """Yield log w of annealed chains, for one part of the data after another."""
    h = joint.encoded(x)
    joint.require_targets(y, h.new_zeros(1, joint.posterior.latent(h.shape[1])))
    for n in even_parts(len(h), max(1, TOGETHER // samples)):
        yield Annealed(joint, h[n], y[n], settings, generator).forward(samples)


@dataclass(frozen=True, eq=False)
class Sandwich:
    """A lower and an upper bound on log p(x) of the same data.

    Args:
        lower: Lower bound by annealed importance sampling.
        upper: Upper bound by the same chains in reverse.
        x: The data, drawn from the model.
    """

    lower: Bound
    upper: Bound
    x: Float[Tensor, "N *D"]

    @property
    def gap(self) -> float:
        """Upper minus lower mean in nats: the largest error of either bound, up to Monte Carlo error."""
        return self.upper.mean - self.lower.mean

    def __repr__(self) -> str:
        return f"Sandwich(gap={self.gap:.2g} nats, lower={self.lower!r}, upper={self.upper!r})"


@torch.inference_mode(False)
@torch.no_grad()
def sandwich(
    q: Any,
    n: int = 100,
    samples: int = SAMPLES["ais"],
    *,
    likelihood: Likelihood | None = None,
    annealing: Annealing = USUAL,
    generator: torch.Generator | None = None,
    progress: bool = False,
    memory: str | int | None = None,
) -> Sandwich:
    r"""Bidirectional Monte Carlo: bounds on both sides of log p(x), for data drawn from the model. [grosse2015]

    Data are drawn from the model, z ~ p(z) and x ~ p(x|z), so that z is an exact draw of p(z|x). Chains from p(z) or
    q(z|x) to p(z|x) bound log p(x) from below, and the reverse chains, which start from z, bound it from above:

    .. math:: \operatorname{E} \log \frac1K \sum_k w_k \;\le\; \log p(x) \;\le\;
              \operatorname{E}\Big[-\log \frac1K \sum_k \frac{1}{w'_k}\Big]

    The gap is that of data from the model; for real data similar to these, it indicates the accuracy of
    ``bound(kind="ais")`` with the same settings. All K reverse chains start from the same z: ``errors`` of the upper
    bound do not include the randomness of z, its ``standard_error`` over data does.

    Args:
        q: A :class:`VAE`, a posterior over one (its mean is taken), or what ``osc.train`` returned.
        n: N, the number of data drawn.
        samples: K, chains for each datum in each direction.
        likelihood: p(x|z); by default that of the posterior, and required for a VAE.
        annealing: Temperatures and transitions.
        generator: Source of random numbers.
        progress: Show a progress bar.
        memory: Memory for the images of a pass, in bytes or as "1GB".

    Raises:
        TypeError: ``q`` is not over a VAE.
        ValueError: fewer than one datum or chain, a VAE without a likelihood or with an unknown code size, or a start
            at codes without a density.

    Cost: twice that of ``bound(kind="ais")``.

    >>> from osculate.autoencoders import VAE, Annealing, sandwich
    >>> net, few = VAE(nn.Linear(6, 4), nn.Linear(2, 6)), Annealing(temperatures=20, leapfrogs=3)
    >>> found = sandwich(net, 10, samples=4, likelihood=osc.likelihoods.Gaussian(0.5), annealing=few)
    >>> found.lower.kind, found.upper.kind, found.upper.values.shape
    ('ais', 'reverse ais', torch.Size([10]))
    """
    require_whole("n", n)
    require_whole("samples", samples)
    require_object("annealing", annealing, Annealing)
    posterior, model = as_vae(q, likelihood)
    network = at_mean(posterior)
    joint = LogJoint(network, model, likelihood or posterior.likelihood, memory)
    like = torch.empty(n, model.code_size(), dtype=network.dtype, device=network.device)
    codes = prior_draws(joint.prior, like, generator)
    data, lower, upper = [], [], []
    parts = even_parts(n, max(1, TOGETHER // samples))
    for part in track(parts, "sandwich", len(parts), progress):
        f = network({"decode": codes_at(joint.prior, codes[part])})
        with drawn_by(generator):
            x = joint.likelihood.distribution(f).sample()
        chains = Annealed(joint, joint.encoded(x), x, annealing, generator)
        lower.append(log_mean(chains.forward(samples)))
        upper.append(log_mean(-chains.backward(codes[part], samples)))
        data.append(x)
    below, above = (tuple(torch.cat(part) for part in zip(*side, strict=True)) for side in (lower, upper))
    return Sandwich(Bound("ais", samples, *below), Bound("reverse ais", samples, -above[0], above[1]), torch.cat(data))
