"""A linearised deep image prior: the posterior of A ∘ network over its filters, and that of the image."""

import copy
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor, nn

from osculate.checks import require_whole
from osculate.curvature.linearisation import Linearisation
from osculate.evidence import PredCP, maximise_evidence
from osculate.evidence.pathwise import AT_ONCE, pathwise_draws
from osculate.inverse.dip import FittedImage
from osculate.inverse.operators import LinearOperator
from osculate.inverse.operators._base import require_data
from osculate.likelihoods import Gaussian as GaussianNoise
from osculate.memory import even_parts
from osculate.methods.laplace import laplace
from osculate.parameters import Network
from osculate.posteriors import Gaussian
from osculate.posteriors.images import DrawnImage, GaussianImage, ImageDistribution
from osculate.priors import Filters, Prior, filters_of
from osculate.progress import track
from osculate.structures import Dual

#: Default limit on the directions in data space that the evidence uses.
RANK = 800
#: Share of the noise variance below which the prior variance of the data counts as zero.
NEGLIGIBLE = 0.001
#: Bytes of temporaries while directions are pulled back.
MEMORY = 2**28
#: Largest number of evaluations of the evidence.
EVALUATIONS = 300


@dataclass(frozen=True)
class LinearisedImage:
    r"""y = A h(θ) + ε with the linearised image h(θ) = f(θ̂) + J (θ − θ̂): a posterior over the filters θ of a network.

    A ∘ f is a network with one datum, y, and Gaussian noise; the rest is that of any posterior with the structure
    "dual" and the prior :class:`osculate.priors.Filters`.

    Args:
        operator: A.
        data: y.
        fitted: f(θ̂) of a deep image prior.
        noise: σ; None for the residual of the deep image prior.
        prior: Prior over the filters.
        rank: Largest number of directions in data space that the evidence uses.
        progress: Show progress bars.

    Raises:
        ValueError: data or an image of another shape, a noise that is not positive, a network without filters, one that
            does not return an image, or whose image does not change with its filters.
        TypeError: a prior of another type.
    """

    operator: LinearOperator
    data: Tensor
    fitted: FittedImage
    noise: float | None = None
    prior: Prior | None = None
    rank: int = RANK
    progress: bool = False

    def __post_init__(self) -> None:
        require_data(self.operator, self.data, self.noise)
        require_whole("rank", self.rank)
        if not isinstance(self.prior, Prior | None):
            raise TypeError(f"prior must be an object such as osc.priors.Filters(), got {self.prior!r:.80}.")
        if self.fitted.image.shape != self.operator.image_shape:
            raise ValueError(
                f"the fitted image has shape {tuple(self.fitted.image.shape)}, and {self.operator!r} takes "
                f"{self.operator.image_shape}: pass the operator of the fit."
            )

    @cached_property
    def q(self) -> Gaussian:
        """The posterior over the filters with the given prior, at the network's own filters.

        Cost: a backward pass for each direction in data space, and two more where the rank limits their number.
        """
        structure = Dual(basis=self._basis, probes=0 if self._complete else Dual.probes)
        q = self._posterior(structure)
        (part,) = q.precision.parts
        largest = float(torch.linalg.eigvalsh(part.factor @ part.factor.mT).max()) - 1  # type: ignore[attr-defined]
        if not largest > NEGLIGIBLE:
            raise ValueError(
                "the network's image does not change with its filters by as much as the noise: it is black, or "
                "saturated at its largest value. Check scale and noise, or train for more steps."
            )
        return q

    @cached_property
    def penalty(self) -> PredCP:
        """TV-PredCP with the weight of the deep image prior's penalty."""
        return PredCP.of(self.function, self._input, self.fitted.penalty, progress=self.progress)

    @cached_property
    def jacobian(self) -> Float[Tensor, "D P"]:
        """J, a row for each pixel, much larger than the image."""
        units = torch.eye(self.operator.pixels).to(self._input)
        parts = even_parts(len(units), AT_ONCE)
        tracked = track(parts, "Jacobian of the image", len(parts), self.progress)
        return torch.cat([self._tangent.vjp(units[part].reshape(-1, *self._input.shape)) for part in tracked])

    def tuned(self, mode: str | Float[Tensor, " P"] = "network", predcp: bool = False) -> Gaussian:
        """The posterior with precisions, length-scales and, if it is unknown, the noise of largest evidence.

        Args:
            mode: Place at which the evidence is taken, see :func:`osculate.maximise_evidence`.
            predcp: Use TV-PredCP.
        """
        hyperprior = self.penalty if predcp and self.fitted.penalty else None
        noise = self.noise is None
        return maximise_evidence(
            self.q, mode, max_steps=EVALUATIONS, noise=noise, hyperprior=hyperprior, progress=self.progress
        )

    def posterior(
        self, q: Gaussian, exact: bool, floor: float, samples: int = 64, generator: torch.Generator | None = None
    ) -> ImageDistribution:
        r"""The posterior of the image around f(θ̂). [antoran2023dip]

        .. math:: N\big(f(\hat\theta),\; J \Lambda^{-1} J^\top + \sigma_x^2 I\big)

        Args:
            q: The posterior over the filters, with its prior and noise.
            exact: True for the whole covariance, False for draws (:func:`osculate.evidence.pathwise_draws`).
            floor: σ_x, see :func:`image_noise`.
            samples: Number of draws.
            generator: Source of random numbers.

        Cost: exact, D backward passes for D pixels, once, D²·P operations and D·P numbers; for each draw 10 to 30
        iterations of conjugate gradients.
        """
        mean = self.fitted.image
        if not exact:
            drawn = pathwise_draws(q, samples, generator, progress=self.progress)
            images = torch.cat([self._tangent.jvp(theta)[:, 0, 0] for theta in drawn])
            return DrawnImage(mean, mean + images, floor)
        whole = q if self._complete else self._whole.replace(prior=q.prior, likelihood=q.likelihood)
        covariance = whole.precision.covariance(self.jacobian)
        return GaussianImage(mean, 0.5 * (covariance + covariance.T) + floor**2 * torch.eye(len(covariance)))

    @property
    def _input(self) -> Float[Tensor, "1 1 H W"]:
        return self.fitted.input[None, None]

    @cached_property
    def _level(self) -> float:
        """σ of the fit."""
        return self.fitted.level(self.operator, self.data, self.noise)

    @cached_property
    def _names(self) -> list[str]:
        return filters_of(self.fitted.network)

    @cached_property
    def _measured(self) -> nn.Module:
        """A ∘ f, with the parameters of the network by their own names."""
        network, operator = copy.deepcopy(self.fitted.network), self.operator
        network.register_forward_hook(lambda module, inputs, image: operator(image[:, 0]).flatten(1))
        return network

    @cached_property
    def function(self) -> Gaussian:
        """The same posterior, for the image f itself in place of A f."""
        return self.q.through(self.fitted.network, self._input)

    @cached_property
    def _tangent(self) -> Linearisation:
        return Linearisation(self.function.network, self._input)

    @property
    def _complete(self) -> bool:
        """True if the rank does not limit the directions in data space."""
        return self.rank >= min(self.operator.measurements, self.operator.pixels)

    @cached_property
    def _whole(self) -> Gaussian:
        """The posterior from all measurements, or as many combinations of them as there are pixels."""
        few = self.operator.measurements <= self.operator.pixels
        return self._posterior(Dual(basis=None if few else range_of(self.operator, self._input), probes=0))

    def _posterior(self, structure: Dual) -> Gaussian:
        with torch.no_grad():
            image = self.fitted.network(self._input)
        if image.shape != self._input.shape:
            raise ValueError(
                f"the network maps an input {tuple(self._input.shape)} to {tuple(image.shape)}, but must return an "
                "image of the same shape."
            )
        data = self._input, self.data.to(self._input).reshape(1, -1)
        likelihood, prior = GaussianNoise(self._level), self.prior or Filters()
        return laplace(
            self._measured,
            likelihood,
            data,
            structure=structure,
            prior=prior,
            subset=self._names,
            refine=False,
            memory=MEMORY,
            progress=self.progress,
        )

    @cached_property
    def _basis(self) -> Float[Tensor, "R M"] | None:
        """All directions in data space, a basis of the range of A, or of that of A J Σ Jᵀ Aᵀ. [halko2011]"""
        size = self.operator.measurements
        if size <= min(self.rank, self.operator.pixels):
            return None
        if self._complete:
            return range_of(self.operator, self._input)
        at = Linearisation(Network(self._measured, self._names), self._input)
        space = at._network.space
        prior = (self.prior or Filters()).bind(space)
        generator = torch.Generator().manual_seed(0)
        tests = torch.randn(self.rank, 1, size, generator=generator, dtype=torch.double).to(self._input)
        parts = even_parts(len(tests), AT_ONCE)
        sketch = [
            at.jvp(prior.solve(at.vjp(tests[part]), space))[:, 0]
            for part in track(parts, "directions in data space", len(parts), self.progress)
        ]
        return torch.linalg.qr(torch.cat(sketch).double().T).Q.T.to(self._input)


def range_of(operator: LinearOperator, like: Tensor) -> Float[Tensor, "R M"]:
    """An orthonormal basis of the range of A."""
    left, values, _ = torch.linalg.svd(operator.matrix(), full_matrices=False)
    return left[:, values > 1e-10 * values[0]].T.to(like)
