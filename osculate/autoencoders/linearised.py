"""Codes and images of the linearised network: exact variances, and draws of the linear function."""

from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Normal

from osculate.autoencoders.autoencoder import Autoencoder
from osculate.autoencoders.distributions import Encoding, Reconstruction
from osculate.curvature.linearisation import recording
from osculate.differentiation import forward_derivative
from osculate.likelihoods import Likelihood, drawn_on
from osculate.posteriors import Gaussian, Posterior
from osculate.predictive.linearised import interacting_outputs, linear_functions, moments, single_outputs
from osculate.predictive.predict import choose_link

#: Default number of codes of a VAE for each datum.
CODES = 20


class MarginalReconstruction(Reconstruction):
    r"""p(x'|x) of each pixel, N(mean, variance), with the parts of the variance and without correlations.

    Args:
        outputs: f at the mode.
        likelihood: p(x'|f), of real-valued pixels.
        marginals: distribution of each pixel by weights and noise.
        weight_variance: variance by weights alone.
        latent_variance: additional variance by the code.
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


def linear_encoding(q: Posterior, x: Float[Tensor, "N *D"], batch_size: int | None = None) -> Encoding:
    r"""The normal distribution of the code of the linearised encoder, without correlations.

    .. math:: \operatorname{var} z = \operatorname{diag}(J_e \Sigma J_e^\top) + \sigma^2(x)

    with the mean of the code linear in the weights, and the variance σ² of a VAE's encoder at the mode; codes that are
    not normal are replaced by normal ones with the same mean and variance.

    Cost: one forward and K backward passes of the encoder, without weight gradients.
    """
    gaussian, model = require_gaussian(q)
    random_encoder = any(name.startswith("encoder.") for block in gaussian.fit.plan.blocks for name in block.names)
    parts = []
    for part in x.split(batch_size or len(x)):
        raw = q.network({"encode": part})
        mean, latent = model.centre(raw), model.spread(raw)
        weight = torch.zeros_like(mean)
        if random_encoder:
            variance = moments(gaussian, {"centre": part}, single_outputs, outputs=mean.shape[1])[1]
            weight = variance.reshape(mean.shape).to(mean)
        parts.append((mean, weight, torch.zeros_like(mean) if latent is None else latent))
    return Encoding.normal(*(torch.cat(each) for each in zip(*parts, strict=True)))


def linear_reconstruction(
    q: Posterior, x: Float[Tensor, "N *D"], samples: int, codes: int | None, generator: torch.Generator | None
) -> Reconstruction:
    r"""Draw from the linear function, f + J(θ_s − θ*) + J_d (z − μ), with z the codes of a VAE.

    J is the Jacobian of the network with respect to its weights and J_d that of the decoder with respect to the code,
    both at the mode. All draws of the weights share the same codes, in antithetic pairs z and 2μ − z, so that neither
    the mean image nor its variance by weights depends on them.

    Cost: one Jacobian-vector product per draw; for a VAE one more for each code dimension.
    """
    gaussian, model = require_gaussian(q)
    f = torch.cat(list(linear_functions(gaussian, x, samples, generator))).to(x)
    slopes, codes = _slopes(gaussian, model, x), CODES if codes is None else codes
    if slopes is None:
        return Reconstruction(f.unsqueeze(1), q.likelihood)
    size, device = (-(-codes // 2), len(slopes), len(x)), drawn_on(x, generator)
    half = torch.randn(size, generator=generator, dtype=x.dtype, device=device).to(x.device)
    noise = torch.cat([half, -half])[:codes]
    offsets = torch.einsum("zkn,kn...->zn...", noise, slopes)
    return Reconstruction(f.unsqueeze(1) + offsets, q.likelihood, shared=True)


def marginal_reconstruction(q: Posterior, x: Float[Tensor, "N *D"]) -> MarginalReconstruction:
    r"""The exact variance of each pixel of the linear function.

    .. math:: \operatorname{var} x' = \operatorname{diag}(J \Sigma J^\top)
              + \operatorname{diag}(J_d \operatorname{diag}(\sigma^2) J_d^\top) + \text{noise}

    Raises:
        ValueError: pixels that are not real-valued.

    Cost: one forward pass and one backward pass for each output of the decoder, without weight gradients.
    """
    (gaussian, model), likelihood = require_gaussian(q), q.likelihood
    if not likelihood.real_valued:
        raise ValueError(
            f"exact=True is for real-valued pixels, and {type(likelihood).__name__} has a nonlinear link: leave it out "
            "(draws pass through the link), or use osc.functional_variance for the logits."
        )
    link = choose_link(likelihood, None)
    units = partial(interacting_outputs, likelihood) if likelihood.needs_covariance(link) else single_outputs
    f, covariance = moments(gaussian, x, units)
    weight = likelihood.marginal(f, covariance, link, noise=False).variance
    slopes = _slopes(gaussian, model, x)
    latent = torch.zeros_like(weight)
    if slopes is not None:
        latent = torch.stack([likelihood.distribution(f + s).mean - likelihood.distribution(f).mean for s in slopes])
        latent = latent.square().sum(0)
    return MarginalReconstruction(f, likelihood, likelihood.marginal(f, covariance, link), weight, latent)


def _slopes(q: Gaussian, model: Autoencoder, x: Tensor) -> Float[Tensor, "K N *C"] | None:
    """σ_k ∂d/∂z_k at the mean code of each datum; None where codes are not random."""
    raw = q.network({"encode": x})
    mean, spread = model.centre(raw), model.spread(raw)
    if spread is None:
        return None
    found = []
    with recording():
        for number in range(mean.shape[1]):
            direction = torch.zeros_like(mean)
            direction[:, number] = spread[:, number].sqrt()
            found.append(forward_derivative(lambda z: q.network({"decode": z}), mean, direction).detach())
    return torch.stack(found)


def require_gaussian(q: Posterior) -> tuple[Gaussian, Autoencoder]:
    """Return the posterior and its network, or raise TypeError if it is not Gaussian."""
    if not isinstance(q, Gaussian):
        raise TypeError(
            f"via='linearised' needs a Gaussian posterior over the weights, and this is a {type(q).__name__}: pass "
            "via='sampled', or fit one with osc.laplace or osc.autoencoders.LaplacianAutoencoder.post_hoc."
        )
    assert isinstance(q.model, Autoencoder)
    return q, q.model
