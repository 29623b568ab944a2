"""The uncertainty of predictions and its parts: one number for each input, with gradients by the inputs."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Distribution

from osculate.inputs import Inputs, count
from osculate.likelihoods.quadrature import normal_points
from osculate.linalg.psd import root
from osculate.posteriors import Gaussian, Sampled, as_posterior
from osculate.posteriors.linearised import has_many_columns
from osculate.predictive import functional_variance, predict, sample_functions
from osculate.predictive.predict import choose_link, interacting_moments, require_room_for_draws
from osculate.predictive.variance import functional_mean
from osculate.tasks._predictions import in_closed_form

#: Draws of the function by default, as many as the default link of classes has.
SAMPLES = 256
#: Copies of all draws that an entropy of them takes.
COPIES = 8


def function_draws(
    q: Any, x: Inputs, samples: int = SAMPLES, generator: torch.Generator | None = None
) -> Float[Tensor, "S N *C"]:
    """Function values at each input: a fixed quasi-random set for a Gaussian posterior, draws for any other.

    The set has the covariances of those outputs of an input that interact in the likelihood, and no others. Where a
    column for each output would take very long, draws stand for it.
    """
    posterior = as_posterior(q)
    if not isinstance(posterior, Gaussian) or has_many_columns(posterior, count(x)):
        require_room_for_draws(posterior, x, samples, COPIES, "Take fewer (samples=…), or fewer inputs (batch_size=…).")
        return sample_functions(posterior, x, samples, generator=generator)
    likelihood = posterior.likelihood
    mean, covariance = interacting_moments(posterior, x)
    white = normal_points(samples, covariance.shape[-1]).to(mean)
    around = torch.einsum("ntef,sf->snte", root(covariance), white)
    return likelihood.merge(likelihood.split(mean) + around, mean.shape)


def _predictive(q: Any, x: Inputs, samples: int, generator: torch.Generator | None) -> Distribution:
    """The predictive of each output, its variance from draws where there are very many."""
    posterior = as_posterior(q)
    if not has_many_columns(posterior, count(x)) or not posterior.likelihood.quadratic:
        return predict(q, x, samples=samples, generator=generator)
    spread = functional_variance(posterior, x, diagonal=True, via="samples", samples=samples, generator=generator)
    return posterior.likelihood.marginal(functional_mean(posterior, x), spread, choose_link(posterior.likelihood, None))


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
        predictive = _predictive(q, x, samples, generator)
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
    found = in_closed_form(_predictive(q, x, samples, generator).entropy)
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
    """Trace of the covariance of f(x): exact for Gaussian posteriors and their mixtures, from draws for others.

    It is from draws too where a column for each output would take very long.
    """
    posterior = as_posterior(q)
    if "linearised" in posterior.ways or not isinstance(posterior, Sampled):
        options: dict[str, Any] = {}
        if has_many_columns(posterior, count(x)):
            options = {"via": "samples", "samples": samples, "generator": generator}
        return functional_variance(posterior, x, diagonal=True, **options).flatten(1).sum(1)
    return function_draws(q, x, samples, generator).var(0).flatten(1).sum(1)


def _without_entropy(q: Any) -> ValueError:
    posterior = as_posterior(q)
    return ValueError(
        f"the predictive of a {type(posterior).__name__} posterior with {type(posterior.likelihood).__name__} has no "
        "entropy in closed form, and no split into parts: use 'variance'."
    )
