"""A posterior as a model of BoTorch: differentiable acquisition functions, conditioning, fantasies."""

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from osculate.checks import require_library
from osculate.evidence import maximise_evidence
from osculate.likelihoods import Gaussian as GaussianNoise
from osculate.linalg import jittered
from osculate.methods import LevenbergMarquardt, laplace
from osculate.networks import MLP
from osculate.posteriors import Gaussian, as_gaussian
from osculate.posteriors.functions import conditioned
from osculate.posteriors.linearised import all_outputs, joint_covariance, moments
from osculate.training import train

require_library("botorch", "the adapter to BoTorch")
from botorch.models.model import Model  # noqa: E402
from botorch.posteriors.gpytorch import GPyTorchPosterior  # noqa: E402
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal  # noqa: E402

#: Function values whose joint covariance is computed at once.
VALUES = 512
#: Hidden layers and training steps of :meth:`LaplaceModel.fitted`.
HIDDEN, STEPS = (40, 40), 40
#: Noise scales for values without noise, relative to their standard deviation: in training, where the evidence would
#: explain few data as noise if it could choose, and in the posterior.
TRAINED, SHARP = 1e-2, 1e-3


class OnCircles(nn.Module):
    r"""Each coordinate of the unit cube on half a circle: x ↦ (cos πx_1, …, cos πx_d, sin πx_1, …, sin πx_d).

    Products of two points are Σ_i cos π(x_i − x′_i): under a prior that is invariant to rotations a function has the
    same variance everywhere, and its covariances depend on differences of coordinates alone.

    >>> OnCircles()(torch.tensor([[0.0, 0.5]])).abs().round()
    tensor([[1., 0., 0., 1.]])
    """

    def forward(self, x: Tensor) -> Tensor:
        """Points (*, d) to features (*, 2 d)."""
        return torch.cat([(torch.pi * x).cos(), (torch.pi * x).sin()], -1)


class LaplaceModel(Model):
    r"""A linearised Laplace posterior in the interface of ``botorch.models.Model``.

    Points are (*B, n, d), with a joint Gaussian over the n points and m outputs of each element of the batch; gradients
    flow to the points. Conditioning on observations is that of a Gaussian process, without a fit (see
    :meth:`osculate.posteriors.functions.FunctionPosterior.condition`), and fantasies are batches of such models.

    Args:
        q: A Gaussian posterior over a network of points (N, d) with Gaussian noise, or what ``osc.train`` returned.
        offset: Mean that is added to the outputs, for targets that were standardised.
        scale: Standard deviation by which outputs are multiplied.
        observed: Points (*B, M, d), values (*B, M, m) and noise variances (*B, M, m), in the network's own units.

    Raises:
        TypeError: the posterior has no linearised function, or its likelihood no noise scale.

    >>> import osculate as osc
    >>> X, Y = torch.rand(20, 2), torch.rand(20, 1)
    >>> q = osc.laplace(torch.nn.Linear(2, 1), osc.likelihoods.Gaussian(0.1), (X, Y), prior=1.0)
    >>> LaplaceModel(q).posterior(torch.rand(5, 3, 2)).mean.shape
    torch.Size([5, 3, 1])
    """

    def __init__(
        self,
        q: Any,
        offset: float | Tensor = 0.0,
        scale: float | Tensor = 1.0,
        observed: tuple[Tensor, Tensor, Tensor] | None = None,
    ) -> None:
        super().__init__()
        self.q: Gaussian = as_gaussian(q, "LaplaceModel")
        if not self.q.likelihood.has_noise:
            raise TypeError(
                f"LaplaceModel needs real values with Gaussian noise, got {type(self.q.likelihood).__name__}: fit with "
                "osc.likelihoods.Gaussian."
            )
        self._offset, self._scale = (torch.as_tensor(value).to(self.q.mean) for value in (offset, scale))
        self._observed = observed

    @classmethod
    def fitted(
        cls,
        X: Tensor,
        Y: Tensor,
        hidden: tuple[int, ...] = HIDDEN,
        seed: int = 0,
        steps: int = STEPS,
        noise: float | None = SHARP,
    ) -> "LaplaceModel":
        """Train a small network on standardised values, with its precisions, and wrap its posterior.

        The precisions are those of largest evidence of the network's linear model, from the network's own as a start.
        With the network's own, error bars are wider, and searches of test functions mostly ended farther from the
        optimum. Those by the evidence are too narrow on all test functions
        (``functions-optimisation``).

        Args:
            X: Points (N, d), in the unit cube.
            Y: Values (N, m).
            hidden: Widths of the hidden layers.
            seed: Seed of the initial weights.
            steps: Steps of :class:`osculate.methods.LevenbergMarquardt` at most.
            noise: Noise scale relative to the standard deviation of the values; None to learn it.

        Cost: about a second for a hundred points.
        """
        mean, deviation = Y.mean(0), Y.std(0).clamp(min=1e-8) if len(Y) > 1 else torch.ones_like(Y[0])
        data = X, (Y - mean) / deviation
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            layers = MLP(2 * X.shape[-1], hidden, Y.shape[-1])
            for layer in layers:
                if isinstance(layer, nn.Linear):
                    nn.init.normal_(layer.weight, std=layer.in_features**-0.5)
        network = nn.Sequential(OnCircles(), *layers).to(X)
        start = GaussianNoise(0.1 if noise is None else max(noise, TRAINED))
        method = LevenbergMarquardt(network, start, evidence=True if noise is None else "prior")
        trained = train(method, data, epochs=steps, progress=False).posterior
        structure = "dual" if Y.numel() < len(trained.mean) else "full"  # the smaller matrix
        q = laplace(network, trained.likelihood, data, structure=structure, prior=trained.prior, refine=False)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the evidence has no maximum")  # layers that it does without
            q = maximise_evidence(q, mode="linear", data=data, noise=noise is None)
        if noise is not None:
            q = q.replace(likelihood=GaussianNoise(noise))
        return cls(q, mean, deviation)

    @property
    def num_outputs(self) -> int:
        """m."""
        return self.q.fit.plan.outputs

    @property
    def batch_shape(self) -> torch.Size:
        """The batch of the observations on which the model is conditioned."""
        return torch.Size() if self._observed is None else self._observed[0].shape[:-2]

    def posterior(
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: Any = None,
    ) -> Any:
        """The joint Gaussian over the values at the points of each element of the batch.

        Args:
            X: Points (*B, n, d).
            output_indices: Outputs to keep; all by default.
            observation_noise: Add the noise of the likelihood, or these variances.
            posterior_transform: Transform of BoTorch, applied last.
        """
        points = self.transform_inputs(X).to(self.q.mean.dtype)
        batch = torch.broadcast_shapes(points.shape[:-2], self.batch_shape)
        points = points.expand(*batch, *points.shape[-2:])
        size, outputs = points.shape[-2], self.num_outputs
        mean, covariance = self._conditioned(points.reshape(-1, *points.shape[-2:]), batch)
        if isinstance(observation_noise, Tensor):
            noise = (observation_noise / self._scale**2).expand(*batch, size, outputs)
            covariance = covariance + noise.reshape(len(mean), -1).double().diag_embed()
        elif observation_noise:
            covariance = covariance + self._noise().expand(size, outputs).reshape(-1).diag()
        scale = self._scale.double().expand(size, outputs).reshape(-1)
        mean = mean * scale + self._offset.double().expand(size, outputs).reshape(-1)
        covariance = covariance * scale * scale.unsqueeze(-1)
        mean = mean.reshape(*batch, size, outputs)
        covariance = covariance.reshape(*batch, size * outputs, size * outputs)
        if output_indices is not None:
            kept = torch.arange(size * outputs).reshape(size, outputs)[:, output_indices].reshape(-1)
            mean, covariance = mean[..., output_indices], covariance[..., kept, :][..., kept]
        factor, jitter = jittered(covariance)
        if jitter:
            covariance = factor @ factor.mT
        mean, covariance = mean.to(X.dtype), covariance.to(X.dtype)
        if mean.shape[-1] == 1:
            found = GPyTorchPosterior(MultivariateNormal(mean.squeeze(-1), covariance))
        else:
            found = GPyTorchPosterior(MultitaskMultivariateNormal(mean, covariance, interleaved=True))
        return found if posterior_transform is None else posterior_transform(found)

    def condition_on_observations(self, X: Tensor, Y: Tensor, **options: Any) -> "LaplaceModel":
        """The model given further observations.

        Args:
            X: Points (*B, n, d).
            Y: Values (*S, *B, n, m); leading axes make a batch of models.
            **options: ``noise``, variances of these observations; by default that of the likelihood.
        """
        points = self.transform_inputs(X).to(self.q.mean.dtype)
        y = ((Y.to(points) - self._offset) / self._scale).to(self.q.mean.dtype)
        noise = options.get("noise")
        variances = self._noise().expand(y.shape) if noise is None else noise.to(y) / self._scale**2
        batch = torch.broadcast_shapes(points.shape[:-2], y.shape[:-2], self.batch_shape)
        parts = [points.expand(*batch, *points.shape[-2:]), *(t.expand(*batch, *y.shape[-2:]) for t in (y, variances))]
        if self._observed is not None:
            before = (t.expand(*batch, *t.shape[-2:]) for t in self._observed)
            parts = [torch.cat(pair, -2) for pair in zip(before, parts, strict=True)]
        made = LaplaceModel(self.q, self._offset, self._scale, (parts[0], parts[1], parts[2]))
        if hasattr(self, "input_transform"):
            made.input_transform = self.input_transform
        return made

    def fantasize(self, X: Tensor, sampler: Any, observation_noise: Tensor | None = None, **options: Any) -> Any:
        """Models given values at points that are drawn from their predictive, one for each draw.

        Args:
            X: Points (*B, n, d).
            sampler: Sampler of BoTorch; its shape leads that of the batch of the result.
            observation_noise: Variances of the observations; by default those of the likelihood.
            **options: Other options of BoTorch, without effect.
        """
        values = sampler(self.posterior(X, observation_noise=True)).detach()
        return self.condition_on_observations(X, values, noise=observation_noise)

    def _noise(self) -> Tensor:
        """The noise variance of each output, at the temperature of the posterior."""
        scale = torch.as_tensor(self.q.likelihood.scale, dtype=torch.double)  # type: ignore[attr-defined]
        return scale.square() * self.q.temperature * torch.ones(self.num_outputs, dtype=torch.double)

    def _conditioned(self, points: Tensor, batch: torch.Size) -> tuple[Tensor, Tensor]:
        """Means (b, n·m) and covariances (b, n·m, n·m) of the values of each element, given the observations."""
        if self._observed is None:
            return self._blocks(points)
        x, y, noise = (t.expand(*batch, *t.shape[-2:]).reshape(-1, *t.shape[-2:]) for t in self._observed)
        mean, covariance = self._blocks(torch.cat([x, points], 1))
        return conditioned(mean, covariance, y.flatten(1).double(), noise.flatten(1).double())

    def _blocks(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Means and covariances within each element of a batch (b, n, d), in double precision."""
        b, n, d = points.shape
        size = n * self.num_outputs
        if n == 1:
            mean, covariance = moments(self.q, points[:, 0], all_outputs)
            return mean.reshape(b, -1).double(), covariance.squeeze(1).double()
        means, covariances = [], []
        for part in points.split(max(1, VALUES // size)):
            mean, covariance = joint_covariance(self.q, part.reshape(-1, d))
            means.append(mean.reshape(len(part), size).double())
            blocks = covariance.reshape(len(part), size, len(part), size)
            covariances.append(torch.stack([blocks[k, :, k] for k in range(len(part))]))
        return torch.cat(means), torch.cat(covariances)
