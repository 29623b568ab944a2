"""Codes and reconstructions as distributions: mixtures over drawn weights and, for a VAE, over drawn codes."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Shaped
from torch import Tensor
from torch.distributions import Distribution, Normal

from osculate.autoencoders.codes import CodePosterior, frozen
from osculate.likelihoods import Likelihood
from osculate.memory import budget
from osculate.parameters import Network
from osculate.randomness import drawn_on

#: Copies of the images of all draws held at once: outputs, means, and temporaries of their variance.
PEAK = 4


class Encoding(Distribution):
    r"""q(z|x): an equally weighted mixture over S drawn weights, of points, of N(μ_s, σ²_s), or of q(z|h_s).

    For a VAE it is the mixture of q(z|h_s) over the encoders (:meth:`drawn`), normal or not; for a linearised encoder a
    single normal (:meth:`normal`), whose variance includes that by the weights.

    .. math:: \operatorname{var} z = \underbrace{\operatorname{var}_s \mu_s}_{\text{weight}}
              + \underbrace{\operatorname{E}_s \sigma_s^2}_{\text{latent}}

    Attributes:
        samples: μ_s, (S, N, K).
        weight_variance: (N, K).
        latent_variance: (N, K), zero for deterministic codes.

    Args:
        samples: μ_s.
        spread: σ²_s, None for points.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(self, samples: Float[Tensor, "S N K"], spread: Float[Tensor, "S N K"] | None = None) -> None:
        super().__init__(samples.shape[1:2], samples.shape[2:], validate_args=False)
        self.samples, self._spread = samples, spread
        self._each: tuple[tuple[CodePosterior, Tensor], ...] = ()
        self.weight_variance = _variance(samples, 0)
        self.latent_variance = torch.zeros_like(self.weight_variance) if spread is None else spread.mean(0)

    @classmethod
    def drawn(cls, each: Sequence[tuple[CodePosterior, Float[Tensor, "N R"]]]) -> "Encoding":
        """The mixture for a VAE: for each drawn network, q(z|h) and the outputs h_s of its encoder.

        >>> from osculate.autoencoders import SigmoidCodes
        >>> one = Encoding.drawn([(SigmoidCodes(), torch.zeros(3, 4))])
        >>> one.mean[0], bool((one.sample((50,)) < 1).all())
        (tensor([0.5000, 0.5000]), True)
        """
        with torch.no_grad():
            means, spreads = zip(*((posterior.mean(h), posterior.variance(h)) for posterior, h in each), strict=True)
        made = cls(torch.stack(means), torch.stack(spreads))
        made._each = tuple(each)
        return made

    @classmethod
    def normal(
        cls,
        mean: Float[Tensor, "N K"],
        weight_variance: Float[Tensor, "N K"],
        latent_variance: Float[Tensor, "N K"],
    ) -> "Encoding":
        """A single component, N(mean, weight_variance + latent_variance), for a linearised encoder.

        >>> one = Encoding.normal(torch.zeros(3, 2), torch.ones(3, 2), torch.zeros(3, 2))
        >>> one.variance[0], one.samples.shape
        (tensor([1., 1.]), torch.Size([1, 3, 2]))
        """
        made = cls(mean.unsqueeze(0), (weight_variance + latent_variance).unsqueeze(0))
        made.weight_variance, made.latent_variance = weight_variance, latent_variance
        return made

    @property
    def mean(self) -> Float[Tensor, "N K"]:
        """E z."""
        return self.samples.mean(0)

    @property
    def variance(self) -> Float[Tensor, "N K"]:
        """The variance by weights and latents together."""
        return self.weight_variance + self.latent_variance

    @torch.no_grad()
    def sample(self, sample_shape: Any = ()) -> Float[Tensor, "..."]:
        """Draw codes, each with separately drawn weights."""
        which = _components(self.samples, sample_shape)
        z = _taken(self.samples, which)
        if self._each:
            for number, (posterior, h) in enumerate(self._each):
                at = which == number
                z[at] = posterior.codes(h.expand(*which.shape, -1)[at])[0]
            return z
        if self._spread is None:
            return z
        return z + _taken(self._spread, which).sqrt() * torch.randn_like(z)

    def log_prob(self, z: Float[Tensor, "... N K"]) -> Float[Tensor, "... N"]:
        """log q(z|x) of the mixture over weights.

        Raises:
            ValueError: deterministic codes, an unknown density, or codes of another shape.
        """
        if z.shape[-2:] != self.samples.shape[1:]:
            raise ValueError(
                f"codes have shape {tuple(z.shape)}: pass (…, N, K), with (N, K) = {tuple(self.mean.shape)}."
            )
        if self._each:
            densities = []
            for posterior, h in self._each:
                with frozen(posterior):
                    densities.append(posterior.distribution(h).log_prob(z))
            return torch.stack(densities).logsumexp(0) - math.log(len(densities))
        if self._spread is None or not bool((self._spread > 0).all()):
            raise ValueError(
                "the codes of drawn networks are points without a density: use encode(x, via='linearised'), or a VAE."
            )
        each = Normal(self.samples, self._spread.sqrt()).log_prob(z.unsqueeze(-3)).sum(-1)
        return each.logsumexp(-2) - math.log(len(self.samples))

    @torch.no_grad()
    def codes(self, samples: int, generator: torch.Generator | None = None) -> Float[Tensor, "S N K"]:
        """Draw one code of every datum from each of S networks, cycling through them if there are fewer.

        Unlike :meth:`sample`, the codes of one draw share their network.

        Raises:
            ValueError: fewer than one.
        """
        if samples < 1:
            raise ValueError(f"at least one code is needed, got samples={samples}.")
        which = torch.arange(samples, device=self.samples.device) % len(self.samples)
        if self._each:
            return torch.cat([posterior.codes(h, generator) for posterior, h in (self._each[s] for s in which)])
        z = self.samples[which]
        return z if self._spread is None else noisy(z, self._spread[which], generator)

    def __repr__(self) -> str:
        return f"Encoding(samples={len(self.samples)}, N={self.samples.shape[1]}, K={self.samples.shape[2]})"


class Reconstruction(Distribution):
    r"""p(x'|x): an equally weighted mixture over W drawn weights and Z drawn codes for each, of p(x'|f).

    .. math:: \operatorname{var} x' = \underbrace{\operatorname{var}_w \operatorname{E}_z m}_{\text{weight}}
              + \underbrace{\operatorname{E}_w \operatorname{var}_z m}_{\text{latent}}
              + \underbrace{\operatorname{E} v}_{\text{noise}}

    with mean m and variance v of p(x'|f). One draw of the weights is shared by all data and pixels. The means over
    finitely many codes vary by sampling: this part, E_w var_z m / (Z − 1), is counted as latent; with Z = 1 the latent
    variance is counted as that by weights.

    Attributes:
        outputs: f, (W, Z, N, \*D), with twice the channels if the variance of pixels is learned.
        weight_variance: (N, \*D).
        latent_variance: (N, \*D).
        noise_variance: (N, \*D).

    Args:
        outputs: f.
        likelihood: p(x'|f).
        shared: Set to True if all weights share the same codes, so that sampling of codes adds no variance by weights.
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(self, outputs: Float[Tensor, "W Z N *D"], likelihood: Likelihood, shared: bool = False) -> None:
        self.outputs, self.likelihood = outputs, likelihood
        each = likelihood.distribution(outputs.flatten(0, 2))
        means = each.mean.unflatten(0, outputs.shape[:3])
        super().__init__(means.shape[2:3], means.shape[3:], validate_args=False)
        self._mean = means.mean((0, 1))
        between, within = _variance(means.mean(1), 0), _variance(means, 1).mean(0)
        chance = 0.0 if shared else within / max(1, outputs.shape[1] - 1)
        self.weight_variance = (between - chance).clamp(min=0)
        self.latent_variance = between + within - self.weight_variance
        self.noise_variance = each.variance.unflatten(0, outputs.shape[:3]).mean((0, 1))

    @property
    def mean(self) -> Float[Tensor, "N *D"]:
        """E x'."""
        return self._mean

    @property
    def samples(self) -> Float[Tensor, "S N *D"]:
        """The mean image of each draw."""
        flat = self.outputs.flatten(0, 1)
        return self.likelihood.distribution(flat.flatten(0, 1)).mean.unflatten(0, flat.shape[:2])

    @property
    def mean_variance(self) -> Float[Tensor, "N *D"]:
        """The variance of the mean images of the draws, by weights and latents together, without noise."""
        return self.weight_variance + self.latent_variance

    @property
    def variance(self) -> Float[Tensor, "N *D"]:
        """The variance by weights, latents and noise together."""
        return self.mean_variance + self.noise_variance

    def log_probs(self, value: Float[Tensor, "N *D"]) -> Float[Tensor, "S N"]:
        """The log density of each draw, summed over the pixels of a datum, in nats.

        Raises:
            ValueError: images of another shape, or values that are not finite or that the likelihood does not have.
        """
        self.require_images(value)
        outputs = self.outputs.flatten(0, 1)
        self.likelihood.check(outputs[0], value)
        return torch.stack([self.likelihood.log_prob(f, value) for f in outputs])

    def require_images(self, value: Tensor) -> None:
        """Raise ValueError unless ``value`` is one finite image for each datum."""
        wanted = (*self.batch_shape, *self.event_shape)
        if tuple(value.shape) != wanted:
            raise ValueError(
                f"the images have shape {tuple(value.shape)}, and the reconstructions {tuple(wanted)}: pass the data "
                "that were reconstructed, in the shape of the decoder's output."
            )
        if not bool(value.isfinite().all()):
            raise ValueError("the images contain NaN or infinite values, which have no density: clean or impute them.")

    def log_prob(self, value: Float[Tensor, "N *D"]) -> Float[Tensor, " N"]:
        """The log of the mean density over draws."""
        each = self.log_probs(value)
        return each.logsumexp(0) - math.log(len(each))

    def sample(self, sample_shape: Any = ()) -> Float[Tensor, "..."]:
        """Draw images with noise, each with separately drawn weights and code."""
        flat = self.outputs.flatten(0, 1)
        which = _components(flat, sample_shape)
        f = _taken(flat, which)
        images = self.likelihood.distribution(f.reshape(-1, *flat.shape[2:])).sample()
        return images.reshape(*which.shape, *self.event_shape)

    def __repr__(self) -> str:
        weights, codes, size = self.outputs.shape[:3]
        return f"Reconstruction(weights={weights}, codes={codes}, N={size}, D={tuple(self.event_shape)})"


class MarginalReconstruction(Reconstruction):
    r"""p(x'|x) of each pixel, N(mean, variance), with the parts of the variance and without correlations.

    Args:
        outputs: f at the mode.
        likelihood: p(x'|f), of real-valued pixels.
        marginals: Distribution of each pixel by weights and noise.
        weight_variance: Variance by weights alone.
        latent_variance: Additional variance by the code.
    """

    def __init__(
        self,
        outputs: Float[Tensor, "N *C"],
        likelihood: Likelihood,
        marginals: Any,
        weight_variance: Float[Tensor, "N *D"],
        latent_variance: Float[Tensor, "N *D"],
    ) -> None:
        super().__init__(outputs[None, None], likelihood)
        self.weight_variance, self.latent_variance = weight_variance, latent_variance
        self.noise_variance = (marginals.variance - weight_variance).clamp(min=0)

    @property
    def _normal(self) -> Normal:
        return Normal(self.mean, self.variance.sqrt())

    def log_probs(self, value: Float[Tensor, "N *D"]) -> Float[Tensor, "1 N"]:
        """The sum of the log densities of a datum's pixels in nats."""
        self.require_images(value)
        return self._normal.log_prob(value).flatten(1).sum(1).unsqueeze(0)

    def sample(self, sample_shape: Any = ()) -> Float[Tensor, "..."]:
        """Draw images with independent pixels."""
        return self._normal.sample(sample_shape)


def noisy(mean: Tensor, variance: Tensor, generator: torch.Generator | None) -> Tensor:
    """Draw from N(mean, diag variance)."""
    noise = torch.randn(mean.shape, generator=generator, dtype=mean.dtype, device=drawn_on(mean, generator))
    return mean + variance.sqrt() * noise.to(mean.device)


def at_once(x: Shaped[Tensor, "N *D"], samples: int, network: Network) -> int:
    """The number of data whose images, for all draws, fit into the memory of a pass."""
    each = PEAK * samples * x.shape[1:].numel() * torch.finfo(network.dtype).bits // 8
    return max(1, budget(None, network.device) // max(1, each))


def _variance(draws: Tensor, dim: int) -> Tensor:
    """The variance over one dimension; ``Tensor.var`` is many times slower along a dimension in the middle."""
    if draws.shape[dim] == 1:
        return torch.zeros_like(draws.select(dim, 0))
    return (draws - draws.mean(dim, keepdim=True)).square_().mean(dim)


def _components(draws: Tensor, sample_shape: Any) -> Tensor:
    """Draw the index of a component for each sample and datum."""
    return torch.randint(len(draws), (*sample_shape, draws.shape[1]), device=draws.device)


def _taken(draws: Tensor, which: Tensor) -> Tensor:
    return draws[which, torch.arange(draws.shape[1], device=draws.device)]
