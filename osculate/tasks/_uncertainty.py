"""The uncertainty of predictions and its parts: one number for each input, with gradients by the inputs."""

from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.inputs import Inputs, count
from osculate.likelihoods.quadrature import normal_points
from osculate.linalg.psd import root
from osculate.posteriors import Gaussian, Sampled, as_posterior
from osculate.posteriors.linearised import interacting_outputs, moments
from osculate.predictive import functional_variance, predict, sample_functions
from osculate.tasks._predictions import in_closed_form

#: Draws of the function by default, as many as the default link of classes has.
SAMPLES = 256


def function_draws(
    q: Any, x: Inputs, samples: int = SAMPLES, generator: torch.Generator | None = None
) -> Float[Tensor, "S N *C"]:
    """Function values at each input: a fixed quasi-random set for a Gaussian posterior, draws for any other.

    The set has the covariances of those outputs of an input that interact in the likelihood, and no others.
    """
    posterior = as_posterior(q)
    if not isinstance(posterior, Gaussian):
        return sample_functions(posterior, x, samples, generator=generator)
    likelihood = posterior.likelihood
    mean, covariance = moments(posterior, x, partial(interacting_outputs, likelihood))
    white = normal_points(samples, covariance.shape[-1]).to(mean)
    around = torch.einsum("ntef,sf->snte", root(covariance), white)
    return likelihood.merge(likelihood.split(mean) + around, mean.shape)


def entropies(
    q: Any, x: Inputs, samples: int = SAMPLES, generator: torch.Generator | None = None
) -> tuple[Float[Tensor, " N"], Float[Tensor, " N"]]:
    """H[y|x] and E_f H[y|f], each summed over outputs; their difference is the mutual information of y and f.

    Raises:
        ValueError: a likelihood or a predictive whose entropy has no closed form.
        TypeError: a posterior without a distribution of functions.
    """
    likelihood = as_posterior(q).likelihood
    if likelihood.saturates:
        f = function_draws(q, x, samples, generator)
        each = likelihood.distribution(f.flatten(0, 1)).entropy()
        total, expected = likelihood.mixture(f).entropy(), each.reshape(*f.shape[:2], -1).mean(0)
    else:
        predictive = predict(q, x, samples=samples, generator=generator)
        closed = in_closed_form(predictive.entropy) if likelihood.quadratic else None
        if closed is None:
            raise _without_entropy(q)
        total, expected = closed, likelihood.distribution(predictive.mean).entropy()
    return total.reshape(count(x), -1).sum(1), expected.reshape(count(x), -1).sum(1)


def entropy(q: Any, x: Inputs, samples: int = SAMPLES, generator: torch.Generator | None = None) -> Float[Tensor, " N"]:
    """H[y|x], summed over outputs."""
    posterior = as_posterior(q)
    if isinstance(posterior, Sampled) and posterior.likelihood.saturates:
        return entropies(q, x, samples, generator)[0]
    found = in_closed_form(predict(q, x, samples=samples, generator=generator).entropy)
    if found is None:
        raise _without_entropy(q)
    return found.reshape(count(x), -1).sum(1)


def mutual_information(
    q: Any, x: Inputs, samples: int = SAMPLES, generator: torch.Generator | None = None
) -> Float[Tensor, " N"]:
    """I[y; f | x] = H[y|x] − E_f H[y|f]: the epistemic part of the entropy. [houlsby2011]"""
    total, expected = entropies(q, x, samples, generator)
    return total - expected


def expected_entropy(
    q: Any, x: Inputs, samples: int = SAMPLES, generator: torch.Generator | None = None
) -> Float[Tensor, " N"]:
    """E_f H[y|f]: the aleatoric part of the entropy, which no further data remove."""
    return entropies(q, x, samples, generator)[1]


def variance(
    q: Any, x: Inputs, samples: int = SAMPLES, generator: torch.Generator | None = None
) -> Float[Tensor, " N"]:
    """Trace of the covariance of f(x): exact for Gaussian posteriors and their mixtures, from draws for others."""
    posterior = as_posterior(q)
    if "linearised" in posterior.ways or not isinstance(posterior, Sampled):
        return functional_variance(posterior, x, diagonal=True).flatten(1).sum(1)
    return function_draws(q, x, samples, generator).var(0).flatten(1).sum(1)


def _without_entropy(q: Any) -> ValueError:
    posterior = as_posterior(q)
    return ValueError(
        f"the predictive of a {type(posterior).__name__} posterior with {type(posterior.likelihood).__name__} has no "
        "entropy in closed form, and no split into parts: use 'variance'."
    )
