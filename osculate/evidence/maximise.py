r"""Prior precisions and noise scale by the evidence: MacKay's fixed point, accelerated.

At a maximum over log δ_g and the log noise precision log β,

.. math:: \delta_g \lVert\theta_g\rVert^2 = \gamma_g, \qquad \beta \, \mathrm{SSE} = N C - \sum_g \gamma_g .

Setting each side to the other (MacKay's update T) oscillates where most eigenvalues are far below δ, since the slope
of T in log δ is between −1 and 0. With x the vector of log precisions, the damped step (x + T(x))/2 contracts by at
least one half; Anderson acceleration over the last steps makes it superlinear.
"""

import warnings
from dataclasses import dataclass
from math import log

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.posteriors import Gaussian
from osculate.registry import choose

#: Precisions are kept within these bounds (per unit² of a parameter).
SMALLEST, LARGEST = 1e-8, 1e12
#: Steps that the acceleration looks back.
MEMORY = 5


def maximise_evidence(
    q: Gaussian, mode: str = "fixed_point", tolerance: float = 1e-4, max_steps: int = 200, noise: bool = True
) -> Gaussian:
    r"""The same posterior with prior precisions, and the noise scale of a Gaussian likelihood, that maximise the evidence.

    .. math:: \delta_g = \gamma_g / \lVert\theta_g\rVert^2, \qquad
              \beta = (N C - \textstyle\sum_g \gamma_g) / \mathrm{SSE}

    One precision for each group of the prior (all parameters, each tensor, or each parameter). A noise scale for each
    output keeps its proportions. [mackay1992]

    Args:
        q: a Gaussian posterior; its prior and noise scale are the start.
        mode: "fixed_point", at the network's own mode θ*.
        tolerance: on max_g |log(γ_g / δ_g‖θ_g‖²)|, the relative violation of the stationarity condition.
        max_steps: evaluations of the log determinant and its gradient at most.
        noise: whether the noise scale of a Gaussian likelihood is tuned too.

    Returns:
        A new posterior. ``osc.evidence.effective_parameters`` gives its γ.

    Raises:
        ValueError: an unknown mode.

    Cost: about ten evaluations of :func:`log_evidence` with gradient; no pass over the data.

    >>> import osculate as osc
    >>> torch.manual_seed(0)
    <torch._C.Generator object at ...>
    >>> x = torch.randn(50, 3)
    >>> y = x @ torch.ones(3, 1) + 0.1 * torch.randn(50, 1)
    >>> net = torch.nn.Linear(3, 1)
    >>> solution = torch.linalg.lstsq(torch.cat([x, torch.ones(50, 1)], 1), y).solution
    >>> _ = net.weight.data.copy_(solution[:3].T), net.bias.data.copy_(solution[3])
    >>> q = osc.laplace(net, osc.likelihoods.Gaussian(1.0), (x, y), structure="full", prior="evidence")
    >>> round(float(q.likelihood.scale), 2)
    0.1
    """
    choose("mode of the evidence", mode, ("fixed_point",))
    problem = Problem(q, noise and q.likelihood.has_noise)
    x = problem.start()
    points: list[Tensor] = []
    residuals: list[Tensor] = []
    for _ in range(max_steps):
        residual = problem.update(x) - x
        if float(residual.abs().max()) <= tolerance:
            return problem.at(x)
        if residuals and residual.norm() > 2 * residuals[-1].norm():
            points, residuals = points[-1:], residuals[-1:]
            x = points[-1] + 0.5 * residuals[-1]
            points, residuals = [], []
            continue
        points, residuals = [*points[-MEMORY:], x], [*residuals[-MEMORY:], residual]
        x = _next(points, residuals)
    warnings.warn(
        f"the evidence has not converged after {max_steps} steps: the stationarity condition of the worst of "
        f"{len(x)} precisions is violated by {float(residual.abs().max()):.1e} (relative). Raise max_steps, or use a "
        "prior with fewer precisions.",
        stacklevel=2,
    )
    return problem.at(x)


def _next(points: list[Tensor], residuals: list[Tensor]) -> Tensor:
    """The damped step from the best combination of the last points (Anderson acceleration)."""
    x, r = points[-1], residuals[-1]
    if len(points) > 1:
        dx = torch.stack([a - b for a, b in zip(points[1:], points[:-1], strict=True)], 1)
        dr = torch.stack([a - b for a, b in zip(residuals[1:], residuals[:-1], strict=True)], 1)
        weights = torch.linalg.lstsq(dr.cpu(), r.unsqueeze(1).cpu(), driver="gelsd").solution.to(r)
        x = x - (dx @ weights).squeeze(1)
        r = r - (dr @ weights).squeeze(1)
    step = x + 0.5 * r
    move = (step - points[-1]).clamp(-4, 4)  # at most a factor of 55 a step
    return (points[-1] + move).clamp(log(SMALLEST), log(LARGEST))


@dataclass(frozen=True)
class Problem:
    """The evidence of a posterior as a function of x: log precisions, then log noise precision where that is tuned."""

    q: Gaussian
    tunes_noise: bool

    def start(self) -> Float[Tensor, " D"]:
        """x at the posterior's own prior and noise."""
        x = self.q.prior.precision.detach().double().log().reshape(-1)
        return torch.cat([x, x.new_zeros(1)]) if self.tunes_noise else x

    def at(self, x: Float[Tensor, " D"]) -> Gaussian:
        """The posterior at x."""
        precision = self.q.prior.precision
        logs = x[:-1] if self.tunes_noise else x
        prior = self.q.prior.with_precision(logs.exp().to(precision).reshape(precision.shape))
        if not self.tunes_noise:
            return self.q.replace(prior=prior)
        return self.q.replace(prior=prior, likelihood=self.q.likelihood.times((-0.5 * x[-1]).exp().to(precision)))

    def update(self, x: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """MacKay's update T(x); γ is the gradient of −log |I + δ⁻¹ G| in log δ."""
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(self.at(x).precision.log_det_ratio(), x)
        squares = self.q.prior.totals(self.q.mean.double().square(), self.q.network.space).reshape(-1)
        gamma = -gradient[: len(squares)]
        new = (gamma.clamp(min=1e-300) / squares.clamp(min=1e-300)).log()
        if self.tunes_noise:
            factor = self.q.likelihood.noise_update(self.q.fit.statistics, gradient[-1])
            new = torch.cat([new, -2 * factor.log().reshape(1).to(new)])
        return new.detach().clamp(log(SMALLEST), log(LARGEST))
