"""Bounds on log p(x) of a variational autoencoder, with the number of draws and the errors behind them."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor

from osculate.autoencoders.annealed import Annealed, Annealing, codes_at, prior_draws
from osculate.autoencoders.autoencoder import VAE
from osculate.autoencoders.checks import require_inputs
from osculate.autoencoders.code_priors import drawn_by
from osculate.autoencoders.log_joint import LogJoint
from osculate.checks import require_object, require_whole
from osculate.likelihoods import Likelihood
from osculate.memory import even_parts
from osculate.parameters import Network
from osculate.posteriors import Chains, Dropout, Ensemble, Mixture, Point, Posterior
from osculate.posteriors._base import Sampled, as_posterior
from osculate.predictive.sampled import warn_if_far_worse
from osculate.progress import track
from osculate.registry import choose

#: K by default. One of "ais" is a chain, of many passes.
SAMPLES: Mapping[str, int] = {"elbo": 5000, "iwae": 5000, "ais": 16}
WEIGHTS = ("mean", "drawn")
USUAL = Annealing()
#: Codes that are drawn together: a fixed number, so that what is drawn does not depend on the memory.
TOGETHER = 2**13
#: Independent calls for the codes of a datum, of posteriors whose draws of one call depend on each other.
CALLS = 20


@dataclass(frozen=True, eq=False)
class Bound:
    """A bound on log p(x) of each datum, in nats, estimated by draws.

    Args:
        kind: "elbo", "iwae" or "ais", lower bounds, or "reverse ais", an upper one.
        samples: K, draws for each datum (and each network).
        values: the estimate for each datum.
        errors: its standard error by the draws; NaN where a single one does not show it.
        shifts: of each drawn network, by how much it moves the mean over the data; None where no network is drawn.
    """

    kind: str
    samples: int
    values: Float[Tensor, " N"]
    errors: Float[Tensor, " N"]
    shifts: Float[Tensor, " W"] | None = None

    @property
    def mean(self) -> float:
        """Over the data."""
        return float(self.values.mean())

    @property
    def standard_error(self) -> float:
        """Of the mean: the standard deviation of the estimates over data, divided by √N.

        It covers how data differ and, as each datum has draws of its own, what is random in its estimate. Networks that
        are drawn serve all data: their part is added. NaN for a single datum.
        """
        if len(self.values) < 2:
            return math.nan
        shared = 0.0 if self.shifts is None else self.monte_carlo_error**2
        return math.sqrt(float(self.values.var()) / len(self.values) + shared)

    @property
    def monte_carlo_error(self) -> float:
        """Of the mean for these very data: the part of its standard error that more draws reduce."""
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


#: Of draws (S, N), what they estimate for each datum, and its standard error.
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
    and iwae rises with K. The errors of iwae and ais are those of the mean weight divided by it (the delta method);
    where a few weights outweigh all others they, and the bound, are too small.

    With ``weights="drawn"`` the data are explained by p(x) = E_{q(θ)} p(x|θ), and W networks θ_w are drawn, the members
    of an ensemble each once: "elbo" is the mean over w of the bounds on log p(x|θ_w), which is at most E_{q(θ)} log
    p(x|θ) ≤ log p(x); "iwae" and "ais" are the logarithm of the mean over w and k of the weights, a bound on log p(x).

    Args:
        q: a :class:`VAE`, a posterior over one, or what ``osc.train`` returned.
        x: data.
        kind: "elbo", "iwae" or "ais".
        samples: K, by default 5000, and 16 chains of "ais".
        y: what is to be explained; x itself by default.
        likelihood: p(x|z); by default that of the posterior, and needed for a VAE.
        weights: "mean", the network at the mean of the posterior, or "drawn".
        networks: W.
        annealing: temperatures and transitions of "ais".
        generator: for the draws.
        progress: show a progress bar.
        memory: what the images of a pass may take, in bytes or as "1GB". The draws do not depend on it.

    Raises:
        TypeError: no VAE, or data that are not floating.
        ValueError: no data or NaN, no sample, an unknown name, a VAE without a likelihood, data that the likelihood
            refuses, codes without a density but for "ais", or weights that have no mean or are not drawn.
        FloatingPointError: a bound that is NaN.

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
            f"the density of {type(model.posterior).__name__} is not known, and {kind!r} needs it: take kind='ais', "
            "which starts from p(z)."
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
            f"the bound of {int(values.isnan().any(0).sum())} of {len(x)} data is NaN: a weight of the network is, or "
            "a variance that the encoder gives overflows."
        )
    if weights == "mean":
        return Bound(kind, samples, values[0], errors[0])
    together, error = summary(values)
    shifts = values - together if kind == "elbo" else (values - together).exp() - 1
    return Bound(kind, samples, together, error, shifts.mean(1))


def mean(logs: Float[Tensor, "S N"]) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """The mean over draws, and its standard error; NaN for a single draw."""
    spread = logs.std(0) if len(logs) > 1 else torch.full_like(logs[0], math.nan)
    return logs.mean(0), spread / math.sqrt(len(logs))


def log_mean(logs: Float[Tensor, "S N"]) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """The logarithm of the mean of weights, and the relative standard error of that; NaN for a single weight.

    >>> log_mean(torch.tensor([[1.0], [3.0]]).log())
    (tensor([0.6931]), tensor([0.5000]))
    """
    return logs.logsumexp(0) - math.log(len(logs)), len(logs) * mean(logs.softmax(0))[1]


def as_vae(q: Any, likelihood: Likelihood | None) -> tuple[Posterior, VAE]:
    """A posterior over a VAE, and the VAE.

    Raises:
        TypeError: it is over another network, or no posterior.
        ValueError: a VAE without a likelihood.
    """
    if isinstance(q, VAE):
        if likelihood is None:
            raise ValueError("a VAE alone does not say what p(x|z) is: pass likelihood=, as in training.")
        q = Point(q, likelihood)
        q.model.eval()
    posterior = as_posterior(q)
    if not isinstance(posterior.model, VAE):
        raise TypeError(
            f"log p(x) is that of an osc.autoencoders.VAE, and this is a {type(posterior.model).__name__}, which has "
            "no distribution of codes."
        )
    return posterior, posterior.model


def at_mean(posterior: Posterior) -> Network:
    """The network at the mean of the weights.

    Raises:
        ValueError: the posterior is one of several networks.
    """
    if isinstance(posterior, Ensemble | Chains | Mixture):
        raise ValueError(
            f"no network of this {type(posterior).__name__} stands at its mean: take one of its networks, or "
            "bound(…, weights='drawn')."
        )
    return posterior.network


def _ready(posterior: Posterior, x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Data in the type and on the device of the network."""
    network = posterior.network
    require_inputs(x)
    if len(y) != len(x):
        raise ValueError(f"there are {len(x)} inputs and {len(y)} targets y: pass one for each.")
    if not bool(y.isfinite().all()):
        raise ValueError("the targets y hold NaN or infinite values, which have no density: clean or impute them.")
    x, y = (t.clone() if t.is_inference() else t for t in (x, y))
    return x.to(network.device, network.dtype), y.to(network.device, network.dtype if y.is_floating_point() else None)


def _networks(
    posterior: Posterior, weights: str, count: int, kind: str, generator: torch.Generator | None
) -> Iterator[Callable[[Any], Tensor]]:
    """That at the mean, or those that are drawn.

    Raises:
        ValueError: there are none.
    """
    name = type(posterior).__name__
    if weights == "mean":
        yield at_mean(posterior)
        return
    if not isinstance(posterior, Sampled):
        raise ValueError(f"the weights of a {name} are not random: take weights='mean'.")
    if kind == "ais" and isinstance(posterior, Dropout):
        raise ValueError("a chain of 'ais' needs one network, and dropout draws another in each pass: take 'iwae'.")
    require_whole("networks", count, least=2)
    warn_if_far_worse(posterior)
    yield from posterior.draws(count, generator)


def _weighed(
    joint: LogJoint, x: Tensor, y: Tensor, samples: int, generator: torch.Generator | None, summary: Summary
) -> Iterator[Float[Tensor, "S n"]]:
    """log w of draws from q(z|x), for some of the data after the other.

    Where those of one call are not independent, each row sums up a call, of which there are a few.
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
    """log w of annealed chains, for some of the data after the other."""
    h = joint.encoded(x)
    joint.require_targets(y, h.new_zeros(1, joint.posterior.latent(h.shape[1])))
    for n in even_parts(len(h), max(1, TOGETHER // samples)):
        yield Annealed(joint, h[n], y[n], settings, generator).forward(samples)


@dataclass(frozen=True, eq=False)
class Sandwich:
    """A lower and an upper bound on log p(x) of the same data.

    Args:
        lower: by annealed importance sampling.
        upper: by the same backwards.
        x: the data, drawn from the model.
    """

    lower: Bound
    upper: Bound
    x: Float[Tensor, "N *D"]

    @property
    def gap(self) -> float:
        """Upper minus lower mean, nats: by how much either may be wrong, but for its Monte Carlo error."""
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
    r"""Bidirectional Monte Carlo: how far annealing is from log p(x), where that can be known. [grosse2015]

    Data are drawn from the model, z ~ p(z) and x ~ p(x|z), so that z is an exact draw of p(z|x). Chains from p(z) or
    q(z|x) to p(z|x) bound log p(x) from below, and the same chains backwards, from z, from above:

    .. math:: \operatorname{E} \log \frac1K \sum_k w_k \;\le\; \log p(x) \;\le\;
              \operatorname{E}\Big[-\log \frac1K \sum_k \frac{1}{w'_k}\Big]

    The gap is for data of the model; as far as real data are like them, it says how good ``bound(kind="ais")`` with
    the same settings is for these. All K chains back start from the one z: ``errors`` of the upper bound leave out what
    is random in z, its ``standard_error`` over data does not.

    Args:
        q: a :class:`VAE`, a posterior over one (its mean is taken), or what ``osc.train`` returned.
        n: N, how many data are drawn.
        samples: K, chains of each in both directions.
        likelihood: p(x|z); by default that of the posterior, and needed for a VAE.
        annealing: temperatures and transitions.
        generator: for all draws.
        progress: show a progress bar.
        memory: what the images of a pass may take.

    Raises:
        TypeError: no VAE.
        ValueError: no data, no chain, a VAE without a likelihood or one whose length of codes is not known, or a start
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
