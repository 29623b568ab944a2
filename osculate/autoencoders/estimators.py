"""Estimators of the evidence lower bound of each datum, by drawn codes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.autoencoders.autoencoder import VAE
from osculate.autoencoders.checks import require_inputs
from osculate.checks import require_whole
from osculate.likelihoods import Likelihood
from osculate.progress import track
from osculate.registry import choose

#: Estimators by name: True if log q is differentiated through the codes alone, and if the average over draws is inside
#: the logarithm.
ESTIMATORS: Mapping[str, tuple[bool, bool]] = {
    "A": (False, False),
    "B": (False, False),
    "stl": (True, False),
    "iwae": (False, True),
    "dreg": (True, True),
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
        model: encoder, decoder, and distributions of codes.
        likelihood: p(x|z).
        x: inputs of the encoder.
        y: targets; ``x`` by default.
        estimator: a key of :data:`ESTIMATORS`.
        samples: L.
        weight: factor of log q − log p; below 1 the result is not a bound.

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
        estimator: name of the estimator.
        samples: L.
        mean: mean of the estimates in nats per datum.
        standard_error: standard error of the mean, by the repetitions.
        value_variance: variance of the estimate of a datum in nats², averaged over data.
        encoder_variance: variance of the gradient with respect to encoder and codes, summed over their parameters.
        decoder_variance: variance of the gradient with respect to the decoder, summed over its parameters.
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
        model: the network; it is not changed.
        likelihood: p(x|z).
        x: a batch.
        estimators: names; by default "A", "stl", and "B" if the divergence has a closed form.
        samples: L.
        repeats: repetitions of each estimator.
        progress: show a progress bar.

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
