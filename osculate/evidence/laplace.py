"""The Laplace evidence, with every constant."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.posteriors import as_gaussian


def log_evidence(q: Any) -> Float[Tensor, ""]:
    r"""The Laplace approximation of log p(D|δ), in nats.

    .. math:: \log p(D \mid \delta) \approx \tfrac1T \log p(D \mid \theta^*) + \log p(\theta^* \mid \delta)
              + \tfrac{P}{2} \log 2\pi - \tfrac12 \log |\Lambda|,
              \qquad \Lambda = G/T + \operatorname{diag}(\delta)

    All constants are there, so that values are comparable between priors, structures and networks. [mackay1992]

    Args:
        q: a Gaussian posterior.

    Returns:
        A double-precision scalar, differentiable in the prior precisions and in the noise scale of ``q`` where those
        require gradients. Cost: O(P) for diag and kron once their eigenvalues are known, O(P³) for full.

    >>> import osculate as osc
    >>> torch.manual_seed(0)
    <torch._C.Generator object at ...>
    >>> data = torch.randn(20, 2), torch.randn(20, 1)
    >>> q = osc.laplace(torch.nn.Linear(2, 1), osc.likelihoods.Gaussian(), data, prior=1.0)
    >>> osc.log_evidence(q).ndim
    0
    """
    q = as_gaussian(q, "log_evidence")
    statistics = {name: value.double() for name, value in q.fit.statistics.items()}
    fit = q.likelihood.log_likelihood(statistics) / q.temperature
    delta = q.prior.vector(q.network.space).double().to(q.mean.device)
    theta = q.mean.double() * q.structure.covered.to(q.mean.device)
    # the constants of prior and volume, P/2 log 2π, cancel; so does log |diag δ|, against that of Λ
    return fit - 0.5 * (delta * theta.square()).sum() - 0.5 * q.precision.log_det_ratio()


def effective_parameters(q: Any) -> dict[str, float]:
    r"""γ for each parameter tensor: how many of its parameters the data determine.

    .. math:: \gamma_t = n_t - \sum_{p \in t} \delta_p \, (\Lambda^{-1})_{pp}, \qquad 0 \le \gamma_t \le n_t

    [mackay1992]; λ_i are the eigenvalues of the data term, γ = Σ λ_i / (λ_i + δ).

    Args:
        q: a Gaussian posterior.

    Returns:
        γ by parameter name. Cost: the posterior variances.
    """
    q = as_gaussian(q, "effective_parameters")
    with torch.no_grad():
        totals = q.precision.determined_by_tensor()
    return dict(zip(q.network.space.names, totals.tolist(), strict=True))
