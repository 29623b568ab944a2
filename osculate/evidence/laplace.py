"""The Laplace evidence, with every constant."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.batches import Data
from osculate.evidence.linear import LinearModel
from osculate.evidence.mode import Solver, evidence_at, found
from osculate.evidence.variational import linear_elbo
from osculate.posteriors import Gaussian, as_gaussian
from osculate.registry import choose

#: The points at which the evidence can be taken: θ̃ of the network itself, or θ_* of the linear model around it.
MODES = ("network", "linear")


def log_evidence(
    q: Any, mode: str | Float[Tensor, " P"] = "network", data: Data | None = None, solver: str | Solver = "newton"
) -> Float[Tensor, ""]:
    r"""The Laplace approximation of log p(D|δ), in nats.

    .. math:: \log p(D \mid \delta) \approx \tfrac1T \log p(D \mid \theta^*) + \log p(\theta^* \mid \delta)
              + \tfrac{P}{2} \log 2\pi - \tfrac12 \log |\Lambda|,
              \qquad \Lambda = G/T + \operatorname{diag}(\delta)

    All constants are included, so that values are comparable between priors, structures and networks at T = 1 (a
    tempered likelihood is not normalised). [mackay1992]

    With ``mode="linear"`` it is that of the linear model h(θ, x) = f(θ̃, x) + J(x) (θ − θ̃) that predictions are made
    with: θ* is the mode of that model for the prior of ``q``, its likelihood is that of h, and G is kept at θ̃
    [antoran2022]. The network need not be at its mode. For a Gaussian likelihood and the structures "full" and
    "dual" it is exact,

    .. math:: -\tfrac12 \big(r_0^\top K^{-1} r_0 + \log |K| + N C \log 2\pi\big), \qquad
              r_0 = y - f + J \tilde\theta, \quad K = J \operatorname{diag}(\delta)^{-1} J^\top + \sigma^2 I

    Of a refined posterior (:func:`osculate.refine`) it is the evidence lower bound of the linear model, whatever the
    mode, computed when it is asked for.

    Args:
        q: A Gaussian posterior.
        mode: "network", at the network's own parameters; "linear", at the mode of the linear model; or parameters of
            the linear model, flat, for example of a search that was stopped early.
        data: The data that ``q`` was fitted to, for mode="linear" and refined posteriors; only needed for a posterior
            from a file, or one fitted to an iterator.
        solver: Finds the mode of the linear model, see :func:`osculate.evidence.linear_mode`.

    Returns:
        A double-precision scalar, differentiable in the prior precisions and in the noise scale of ``q`` where those
        require gradients. Cost: O(P) for diag and kron once their eigenvalues are known, O(P³) for full; with
        mode="linear" also a search for the mode.

    Raises:
        ValueError: an unknown mode, or no data where they are needed.

    >>> import osculate as osc
    >>> torch.manual_seed(0)
    <torch._C.Generator object at ...>
    >>> data = torch.randn(20, 2), torch.randn(20, 1)
    >>> q = osc.laplace(torch.nn.Linear(2, 1), osc.likelihoods.Gaussian(), data, prior=1.0)
    >>> osc.log_evidence(q).ndim
    0
    """
    q = as_gaussian(q, "log_evidence")
    if q.offset is not None:
        return linear_elbo(q, data)
    if isinstance(mode, Tensor) or choose("mode of the evidence", mode, MODES) == "network":
        return evidence_at(q, *fixed_point(q, mode, data))
    return found(q, data, solver).evidence(q)


def fixed_point(
    q: Gaussian, mode: str | Float[Tensor, " P"], data: Data | None
) -> tuple[Float[Tensor, " P"], Mapping[str, Tensor]]:
    """The network's parameters, or those given, with the statistics of the linear model's likelihood there."""
    if not isinstance(mode, Tensor):
        return q.network.mean, q.fit.statistics
    if mode.shape != q.mean.shape:
        raise ValueError(f"parameters of shape {tuple(mode.shape)} are not those of a posterior over {len(q.mean):,}.")
    model = LinearModel(q, data)
    place = model.place(mode)
    return place.theta, model.statistics(q, place)


def effective_parameters(q: Any) -> dict[str, float]:
    r"""γ for each parameter tensor: the effective number of its parameters.

    .. math:: \gamma_t = n_t - \sum_{p \in t} \delta_p \, (\Lambda^{-1})_{pp}, \qquad 0 \le \gamma_t \le n_t

    [mackay1992]; λ_i are the eigenvalues of the data term, γ = Σ λ_i / (λ_i + δ).

    Args:
        q: A Gaussian posterior.

    Returns:
        γ by parameter name. Cost: the posterior variances.
    """
    q = as_gaussian(q, "effective_parameters")
    with torch.no_grad():
        totals = q.precision.effective_parameters_by_tensor()
    return dict(zip(q.network.space.names, totals.tolist(), strict=True))
