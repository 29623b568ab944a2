"""The deep image prior: an image as the output of an untrained network that is fitted to one measurement."""

import copy
import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from osculate.checks import require_positive, require_whole
from osculate.inverse.classical import total_variation, warn_of_scale
from osculate.inverse.operators import LinearOperator, require_adjoint
from osculate.inverse.operators._base import require_data
from osculate.inverse.stopping import STOPPING, Stopping
from osculate.networks import SkipUNet
from osculate.progress import track
from osculate.randomness import Stream, seeded
from osculate.registry import made

#: Smallest initial mean of an image and of its negative.
DARKEST = 0.02
#: Largest norm of a gradient.
CLIP = 1.0


@dataclass(frozen=True)
class FittedImage:
    """The result of :meth:`DeepImagePrior.fit`.

    Attributes:
        network: f_θ at θ̂.
        input: z, (H, W).
        image: f_θ̂(z).
        misfits: Mean squared residual of the data at each step of the training, with dropout if there is any.
        variations: Total variation of the image at each step.
        step: Step at which the weights were taken.
        penalty: λ of the training.
    """

    network: nn.Module
    input: Float[Tensor, "H W"]
    image: Float[Tensor, "H W"]
    misfits: tuple[float, ...]
    variations: tuple[float, ...]
    step: int
    penalty: float

    def misfit(self, operator: LinearOperator, data: Tensor) -> float:
        """Mean squared residual of the data with these weights, without dropout."""
        return float((operator(self.image) - data.to(self.image)).double().square().mean())

    def level(self, operator: LinearOperator, data: Tensor, noise: float | None) -> float:
        """σ: the one given, or the root mean square of the residual."""
        return self.misfit(operator, data) ** 0.5 if noise is None else noise


@dataclass(frozen=True)
class DeepImagePrior:
    r"""Fit an untrained network to one measurement, with a total-variation penalty. [ulyanov2018; baguer2020]

    .. math:: \hat\theta = \operatorname{argmin}_\theta \frac{1}{2\sigma^2} \lVert y - A f_\theta(z) \rVert^2
              + \lambda\, \mathrm{TV}(f_\theta(z))

    by Adam with a learning rate that falls as a cosine, or is constant if a stopping rule ends the training. z is a
    classical reconstruction. If σ is unknown, the mean squared residual of each step replaces σ²: the profile
    likelihood, −M/2 log ‖y − A f‖². At the end, batch normalisation keeps the statistics of this one image.

    Args:
        network: A network from (1, 1, H, W) to an image of the same shape with values in [0, 1]; it is copied, and
            trained from its own weights. By default a :class:`~osculate.networks.SkipUNet` with new weights. The bias
            of the last layer of a SkipUNet is set to the brightness of z.
        variation: λ, nats per unit of total variation; 0 for no penalty.
        steps: Number of training steps.
        learning_rate: Initial learning rate of Adam.
        stopping: A rule that ends the training earlier, "variance" or "discrepancy", or an object; None for all steps
            with a falling rate.

    Raises:
        ValueError: a setting that is not positive, or an unknown rule.
        TypeError: the network is not a module.
    """

    network: nn.Module | None = None
    variation: float = 0.3
    steps: int = 2000
    learning_rate: float = 1e-3
    stopping: "str | Stopping | None" = None

    def __post_init__(self) -> None:
        require_whole("steps", self.steps)
        require_positive("the learning rate", self.learning_rate)
        if self.variation != 0:
            require_positive("variation (nats per unit of total variation), unless it is 0,", self.variation)
        if self.network is not None and not isinstance(self.network, nn.Module):
            raise TypeError(f"network must be a torch.nn.Module, got {self.network!r}.")
        self._rule()

    def fit(
        self,
        operator: LinearOperator,
        data: Tensor,
        noise: float | None = None,
        seed: int = 0,
        progress: bool = False,
    ) -> FittedImage:
        """Train.

        Args:
            operator: A.
            data: y, of an image with values in [0, 1]; for other images divide the data by the largest value.
            noise: σ, in the units of these data; None if unknown.
            seed: Seed of initial weights, if no network was given, and of dropout.
            progress: Show a bar.

        Returns:
            The weights of the last step, or of the one that the stopping rule chose.

        Raises:
            ValueError: data that do not fit, a noise that is not positive, an operator whose transpose is not its
                adjoint, a network that has no weights to train or returns another shape, or a loss that is not finite.

        Warns of data of an image that seems to be much brighter.

        Cost: a forward and a backward pass of the network per step.
        """
        require_data(operator, data, noise)
        require_adjoint(operator)
        with torch.inference_mode(False), torch.enable_grad():
            data = data.detach().clone()
            z, unit = operator.rough_inverse(data).detach(), own_unit(data)
            warn_of_scale(z)
            level = None if noise is None else noise / unit
            network = self._new(z, seed)
            optimizer = torch.optim.Adam(network.parameters(), self.learning_rate)
            rule = self._rule()
            # constant rate: with one that falls to zero, rules that compare images would wait for the end
            falling = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, self.steps) if rule is None else None
            misfits, variations, best, chosen = [], [], None, 0
            draws = Stream(seed, z.device)  # of dropout layers
            for step in track(range(1, self.steps + 1), "deep image prior", self.steps, progress):
                optimizer.zero_grad(set_to_none=True)
                with draws.continued():
                    image = _image(network, z)
                misfit = ((operator(image) - data) / unit).square().mean()
                varied = total_variation(image)
                variance = misfit.detach().clamp(min=1e-12) if level is None else level**2
                loss = misfit + 2 * variance * self.variation / operator.measurements * varied
                misfits.append(unit**2 * float(misfit.detach()))
                variations.append(float(varied.detach()))
                if not bool(loss.isfinite()):
                    raise ValueError(f"the deep image prior diverged at step {step}: use a smaller learning_rate.")
                better, stop = rule.look(image, misfits[-1], noise) if rule is not None else (False, False)
                if better:
                    best, chosen = copy.deepcopy(network.state_dict()), step
                if stop:
                    break
                loss.backward()
                nn.utils.clip_grad_norm_(network.parameters(), CLIP)
                optimizer.step()
                if falling is not None:
                    falling.step()
            if best is not None:
                network.load_state_dict(best)
            elif rule is not None:
                warnings.warn(
                    f"the stopping rule chose none of {self.steps} steps, so that the weights are those of the last "
                    "one. Train for more steps, or without a rule.",
                    stacklevel=2,
                )
            with torch.no_grad(), _own_statistics(network.eval()):
                image = _image(network, z)
            step = chosen or len(misfits)
            return FittedImage(network, z, image, tuple(misfits), tuple(variations), step, self.variation)

    def _new(self, z: Tensor, seed: int) -> nn.Module:
        """The untrained network, with about the brightness of its input if it is a SkipUNet."""
        with seeded(seed):
            network = (SkipUNet() if self.network is None else copy.deepcopy(self.network)).to(z).train()
        if not any(p.requires_grad for p in network.parameters()):
            raise ValueError(
                "the network of a deep image prior has no weight that requires a gradient: set requires_grad=True."
            )
        if isinstance(network, SkipUNet):
            network.show(z[None, None], min(max(float(z.clamp(0, 1).mean()), DARKEST), 1 - DARKEST))
        return network

    def _rule(self) -> Stopping | None:
        """A copy of the stopping rule, as an object serves one training."""
        if self.stopping is None:
            return None
        return copy.deepcopy(made("stopping rule", self.stopping, STOPPING, Stopping))


def _image(network: nn.Module, z: Float[Tensor, "H W"]) -> Float[Tensor, "H W"]:
    image = network(z[None, None])
    if image.shape != (1, 1, *z.shape):
        raise ValueError(
            f"the network of a deep image prior must return the shape of its input, got {(1, 1, *z.shape)} to "
            f"{tuple(image.shape)}."
        )
    return image[0, 0]


def own_unit(data: Tensor) -> float:
    """The power of ten thousand in units of which the size of the data is between 0.1 and 1,000.

    Adam's ε and the clipping of gradients are absolute, so that training depends on units: slightly within this range,
    while far outside it the data would not be fitted at all.
    """
    return 10.0 ** (4 * math.floor((math.log10(float(data.double().square().mean().sqrt())) + 1) / 4))


@contextmanager
def _own_statistics(network: nn.Module) -> Iterator[None]:
    """Let batch normalisation use the statistics of its input, and keep the last ones as running statistics."""

    def keep(layer: Any, inputs: tuple[Tensor, ...], _: Tensor) -> None:
        axes = [axis for axis in range(inputs[0].ndim) if axis != 1]
        layer.running_mean.copy_(inputs[0].mean(axes))
        layer.running_var.copy_(inputs[0].var(axes, correction=0))

    layers = [each for each in network.modules() if isinstance(each, _BatchNorm) and each.track_running_stats]
    hooks = [layer.train().register_forward_hook(keep) for layer in layers]
    yield
    for layer, hook in zip(layers, hooks, strict=True):
        layer.eval()
        hook.remove()
