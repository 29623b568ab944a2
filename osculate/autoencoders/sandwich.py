"""Log p(x) of data that a variational autoencoder made itself, between two bounds."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.autoencoders.annealed import Annealed, Annealing, codes_at, prior_draws
from osculate.autoencoders.bounds import SAMPLES, TOGETHER, USUAL, Bound, as_vae, at_mean, log_mean
from osculate.autoencoders.code_priors import drawn_by
from osculate.autoencoders.log_joint import LogJoint
from osculate.checks import require_object, require_whole
from osculate.likelihoods import Likelihood
from osculate.memory import even_parts
from osculate.progress import track


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
