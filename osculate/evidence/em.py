"""Expectation maximisation of the prior precisions with posterior samples, for networks too large for variances."""

from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.batches import Data
from osculate.evidence.mode import Solver, as_solver
from osculate.evidence.problem import LinearProblem, alternate, finish
from osculate.posteriors import Gaussian, as_gaussian
from osculate.structures.blocks import MatrixFreePrecision


def expectation_maximisation(
    q: Any,
    samples: int = 64,
    data: Data | None = None,
    solver: str | Solver = "newton",
    tolerance: float = 0.01,
    max_steps: int = 50,
    noise: bool = True,
    generator: torch.Generator | None = None,
    progress: bool = False,
) -> Gaussian:
    r"""The same posterior with prior precisions, and noise scale, of largest evidence by posterior samples.

    .. math:: \Lambda \theta_k = \textstyle\sum_n J_n^\top S_n \varepsilon_{nk} + D^{1/2} z_k, \qquad
              \gamma_g = \operatorname{E}_k\, \theta_{kg}^\top (G \theta_k)_g
              = \operatorname{E}_k\big[ n_g - \delta_g \lVert\theta_{kg}\rVert^2 \big], \qquad
              \delta_g = \gamma_g / \lVert\theta_{*g}\rVert^2

    E step: zero-mean posterior samples θ_k, each the solution of a least-squares problem with random targets
    (sample-then-optimise, with the noise in the regulariser), so that neither a log determinant nor a variance is
    needed. M step: MacKay's update, with the mode θ_* of the linear model for the current precisions. [antoran2023]

    Of several unbiased estimates of γ_g (:meth:`PosteriorDraws.effective_parameters`) the one with least variance is
    used.

    ε and z are drawn once. For another precision the samples follow from the same draws, started from the last
    samples, so that the rounds converge to one fixed point, up to the error of the samples. With several precisions the
    evidence at θ_* may have several maxima, in which different groups vanish: the result depends on the start.

    Args:
        q: A Gaussian posterior with structure="matrix_free", which also sets the solver and tolerance of the samples.
        samples: K.
        data: The data that ``q`` was fitted to; by default those of the fit.
        solver: Finds the mode of the linear model, see :func:`osculate.evidence.linear_mode`.
        tolerance: Bound on max_g |γ_g − δ_g‖θ_*g‖²| / γ_g, the relative violation of the stationarity condition.
        max_steps: Largest number of rounds; a warning is issued if they do not suffice.
        noise: Tune the noise scale of a Gaussian likelihood too.
        generator: Source of ε and z; by default seeded by the structure.
        progress: Show a progress bar.

    Returns:
        A new posterior.

    Raises:
        TypeError: another structure.
        ValueError: fewer than two samples.

    Cost: a round takes K solves, from the solutions of the round before, and a few passes over the data for the mode;
    ten to twenty rounds. Memory of a few times K parameter vectors.

    >>> X, Y = torch.randn(60, 2), torch.randint(3, (60,))
    >>> structure = osc.structures.MatrixFree(rank=10)
    >>> q = osc.laplace(nn.Linear(2, 3), osc.likelihoods.Categorical(), (X, Y), structure=structure, prior=1.0)
    >>> bool(osc.evidence.expectation_maximisation(q, samples=8).prior.precision > 0)
    True
    """
    q = as_gaussian(q, "expectation_maximisation")
    if samples < 2:
        raise ValueError(f"expectation maximisation averages over samples: pass 2 at least, got samples={samples}.")
    draws = PosteriorDraws.of(q, samples, generator)
    problem = SampledProblem(q, noise and q.likelihood.has_noise, as_solver(solver).search(q, data, None), draws)
    return finish(problem, alternate(problem, tolerance, max_steps, progress), tolerance, max_steps)


def matrix_free_part(q: Gaussian) -> MatrixFreePrecision:
    """The precision of a matrix-free posterior.

    Raises:
        TypeError: another structure.
    """
    (part, *_) = q.precision.parts
    if not isinstance(part, MatrixFreePrecision):
        raise TypeError(
            f"expectation maximisation draws samples by products with the data, and structure="
            f"{q.structure.structure.name!r} keeps none. Fit with structure='matrix_free', or use "
            "mode='linear', which uses the variances of this structure."
        )
    return part


@dataclass
class PosteriorDraws:
    """Posterior samples of zero mean for any prior and noise, from the same random numbers.

    Attributes:
        data: Σ_n J_nᵀ S_n ε_nk.
        white: z_k.
        theta: The samples for the last prior and noise.
    """

    data: Float[Tensor, "K p"]
    white: Float[Tensor, "K p"]
    theta: Float[Tensor, "K p"] | None = None

    @classmethod
    def of(cls, q: Gaussian, samples: int, generator: torch.Generator | None) -> "PosteriorDraws":
        """Draw ε and z. Cost: a pass over the data."""
        part = matrix_free_part(q)
        generator = generator or torch.Generator().manual_seed(part.curvature.accuracy.seed)
        return cls(*part.targets(samples, generator))

    def effective_parameters(self, q: Gaussian) -> dict[str, Float[Tensor, "K G"]]:
        r"""Unbiased estimates of γ of each group from each sample, by name. Cost: K solves.

        * "curvature": θ_gᵀ (Gθ)_g.
        * "norm": n_g − δ_g ‖θ_g‖².
        * "both": their average, in which the second has the weight γ_g / n_g.
        * "sketch": γ̂_g − z_gᵀ D^{1/2} (θ − θ̂)_g, with γ̂ and θ̂ from the sketch of the curvature for the same draws.
        """
        part = matrix_free_part(q)
        self.theta = part.optimised(self.data, self.white, self.theta)
        root = part.base.diagonal.sqrt()
        right = float(part.scale.sqrt()) * self.data + root * self.white
        square = part.base.diagonal * self.theta.square()
        change = self.white * root * (self.theta - part.base.solve(right))
        rows = torch.cat([self.theta * right - square, 1 - square, part.base.effective_parameters() - change])
        ordered = rows.new_zeros(len(rows), q.network.space.size, dtype=torch.double)
        ordered[:, part.curvature.positions] = rows.double()
        totals = torch.stack([q.prior.totals(row, q.network.space).reshape(-1) for row in ordered]).cpu()
        curvature, norm, sketch = totals.tensor_split(3)
        share = 0.5 * (curvature + norm).mean(0) / self._sizes(q).clamp(min=1)
        both = (1 - share) * curvature + share * norm
        return {"curvature": curvature, "norm": norm, "both": both, "sketch": sketch}

    def _sizes(self, q: Gaussian) -> Float[Tensor, " G"]:
        """n of each group."""
        covered = q.structure.covered.double().to(self.data.device)
        return q.prior.totals(covered, q.network.space).reshape(-1).cpu()

    def mean(self, q: Gaussian) -> Float[Tensor, " G"]:
        """γ of each group, by the estimate with the least variance over the samples."""
        found = torch.stack(list(self.effective_parameters(q).values()))  # (estimates, K, G)
        least = found.var(1).argmin(0, keepdim=True)
        gamma = found.mean(1).gather(0, least).squeeze(0)
        return torch.minimum(gamma.clamp(min=0), self._sizes(q))


@dataclass(frozen=True)
class SampledProblem(LinearProblem):
    """The evidence at the mode of the linear model, with γ from samples.

    Attributes:
        draws: The samples.
    """

    draws: PosteriorDraws

    @torch.no_grad()
    def gamma(self, q: Gaussian) -> Float[Tensor, " G"]:
        return self.draws.mean(q)
