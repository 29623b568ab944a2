"""The evidence lower bound of any Gaussian posterior, by drawn networks."""

from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.batches import Data, as_batches
from osculate.checks import require_whole
from osculate.inputs import moved
from osculate.posteriors import Gaussian, as_gaussian


class EvidenceBound(NamedTuple):
    """A bound on the log evidence, times the temperature, in nats.

    Attributes:
        value: L_T.
        standard_error: Standard error of its estimate over the draws.
    """

    value: float
    standard_error: float


@torch.no_grad()
def elbo(q: Any, data: Data, samples: int = 32, generator: torch.Generator | None = None) -> EvidenceBound:
    r"""The evidence lower bound of a Gaussian posterior, with the network itself and not an expansion of it.

    .. math:: \mathcal L_T = \operatorname{E}_q \log p(D \mid \theta) - T \operatorname{KL}(q \,\|\, p), \qquad
              \operatorname{KL} = \tfrac12 \big[ \operatorname{tr}(\Delta \Sigma) + \mu^\top \Delta \mu - P
              + \log |\Sigma^{-1}| - \log |\Delta| \big]

    with the expectation over drawn networks. It is what variational methods maximise, and L_T/T is a bound on the log
    evidence of the tempered likelihood,

    .. math:: \tfrac1T \mathcal L_T \le \log \int p(D \mid \theta)^{1/T} \, p(\theta) \, d\theta,

    which :func:`osculate.log_evidence` approximates for a posterior of temperature T. So compare
    ``elbo(q, data).value`` with ``T * log_evidence(q)``: they are the same number where the tempered posterior is
    Gaussian and q is that posterior. How far they are apart, or L_T from the objective of variational Laplace, says how
    well their expansions hold within the width of q. [unlu2021, eq. 11]

    Args:
        q: A Gaussian posterior, or what ``osc.train`` returned. Its temperature T weighs the divergence.
        data: All that the evidence is of.
        samples: Networks that are drawn, each used for all data.
        generator: Source of random numbers.

    Raises:
        TypeError: the posterior is no Gaussian.
        ValueError: fewer than two samples, or no whole number of them.

    Cost: ``samples`` forward passes over the data.

    >>> import osculate as osc
    >>> x = torch.randn(40, 2, dtype=torch.double)
    >>> y = x @ torch.ones(2, 1, dtype=torch.double) + 0.1 * torch.randn(40, 1, dtype=torch.double)
    >>> net = torch.nn.Linear(2, 1, bias=False).double()
    >>> done = osc.train(osc.methods.LevenbergMarquardt(net, osc.likelihoods.Gaussian(0.1)), (x, y), progress=False)
    >>> bound = osc.evidence.elbo(done, (x, y), samples=2000)
    >>> bool(abs(bound.value - osc.log_evidence(done.posterior)) < 5 * bound.standard_error)
    True
    """
    q = as_gaussian(q, "elbo")
    require_whole("samples (two of which have a standard error)", samples, 2)
    totals = torch.zeros(samples, dtype=torch.double)
    thetas = [q.network.space.unflatten(q.sample(1, generator)[0]) for _ in range(samples)]
    for x, y in as_batches(data):
        x, y = moved(x, q.network.device), y.to(q.network.device)
        for number, theta in enumerate(thetas):
            totals[number] += q.likelihood.log_prob(q.network(x, theta), y).double().sum().cpu()
    error = float(totals.std()) / samples**0.5
    return EvidenceBound(float(totals.mean()) - float(q.temperature) * float(divergence(q)), error)


def divergence(q: Gaussian) -> Float[Tensor, ""]:
    """KL(q‖p) of a Gaussian posterior from its prior, over the parameters that it is over."""
    if q.prior.curvature is not None:
        raise ValueError(
            f"the divergence from {q.prior!r} is not computed, nor the bound of a posterior that is refined under it: "
            "take refine=False, or a likelihood with Gaussian noise."
        )
    apart = q.prior.apart(q.mean.double()) * q.structure.covered.to(q.mean.device)
    square = (apart * q.prior.multiply(apart, q.network.space)).sum()  # with tr(ΔΣ) = P − γ
    inside = square - q.precision.effective_parameters_by_tensor().sum()
    return 0.5 * (inside + q.precision.log_det_ratio() - q.prior.log_det_ratio())
