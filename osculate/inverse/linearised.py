"""The image that a network shows, as a linear function of its filters."""

from collections.abc import Iterator
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor, nn

from osculate.curvature.linearisation import Linearisation
from osculate.inverse.classical import total_variation
from osculate.inverse.dip import own_unit
from osculate.inverse.operators import LinearOperator
from osculate.memory import even_parts
from osculate.parameters import Network, ParameterSpace, require_deterministic_layers
from osculate.progress import track

#: Number of directions that pass through the network at once.
AT_ONCE = 16


class LinearisedImage:
    r"""h(θ) = f(θ̂) + J (θ − θ̂), an image (H, W), linear in some weights of its network.

    Args:
        network: A function of its input (1, 1, H, W) with an image of the same shape; it is copied.
        input: (H, W).
        space: The weights θ.

    Raises:
        ValueError: the network has active dropout or batch normalisation, or does not return an image of that shape.
    """

    def __init__(self, network: nn.Module, input: Float[Tensor, "H W"], space: ParameterSpace) -> None:
        require_deterministic_layers(network)
        self._network = Network(network, space.names)
        self._input = input.detach().to(self._network.dtype)[None, None]
        if self._linearisation.f.shape != self._input.shape:
            raise ValueError(
                f"the network maps an input {tuple(self._input.shape)} to {tuple(self._linearisation.f.shape)}, "
                "but must return an image of the same shape."
            )

    @cached_property
    def _linearisation(self) -> Linearisation:
        return Linearisation(self._network, self._input)

    @property
    def image(self) -> Float[Tensor, "H W"]:
        """f(θ̂)."""
        return self._linearisation.f[0, 0]

    @property
    def weights(self) -> Float[Tensor, " P"]:
        """θ̂, flat."""
        return self._network.mean

    @cached_property
    def jacobian(self) -> Float[Tensor, "D P"]:
        """J, a row for each pixel; cached, and much larger than the image."""
        return self.vjp(torch.eye(self.image.numel()).reshape(-1, *self.image.shape))

    def jvp(self, tangents: Float[Tensor, "S P"]) -> Float[Tensor, "S H W"]:
        """J v for several directions; about three forward passes each."""
        parts = [self._linearisation.jvp(tangents[part]) for part in even_parts(len(tangents), AT_ONCE)]
        return torch.cat(parts)[:, 0, 0]

    def vjp(self, images: Float[Tensor, "S H W"]) -> Float[Tensor, "S P"]:
        """Jᵀ u for several images; a backward pass each."""
        return torch.cat(list(self.rows(images)))

    def rows(
        self, images: Float[Tensor, "V H W"], title: str = "Jacobian", progress: bool = False
    ) -> Iterator[Float[Tensor, "v P"]]:
        """Jᵀ u for several images in chunks, with a progress bar."""
        parts = even_parts(len(images), AT_ONCE)
        for part in track(parts, title, len(parts), progress):
            yield self._linearisation.vjp(images[part][:, None, None].to(self.image))


def linear_mode(
    linearised: LinearisedImage,
    operator: LinearOperator,
    data: Tensor,
    noise: float,
    variation: float,
    steps: int = 1000,
    learning_rate: float = 1e-4,
    weight_decay: float = 1e-6,
    progress: bool = False,
) -> tuple[Float[Tensor, " P"], Float[Tensor, "H W"]]:
    r"""Some steps of Adam from θ̂ down a convex function of θ. [antoran2023dip]

    .. math:: \frac{1}{M} \lVert y - A h(\theta) \rVert^2 + \frac{2\sigma^2\lambda}{M} \mathrm{TV}(h(\theta))
              + \frac{w}{2} \lVert \theta \rVert^2

    w is small and the steps are short: the result is on the way to a mode, not at one.

    Args:
        linearised: h.
        operator: A.
        data: y.
        noise: σ.
        variation: λ.
        steps: Number of steps of Adam.
        learning_rate: Learning rate of Adam.
        weight_decay: w, with residuals in :func:`~osculate.inverse.dip.own_unit`.
        progress: Show a progress bar.

    Returns:
        θ, and h(θ).

    Cost: two passes through the network per step.
    """
    start, unit = linearised.weights, own_unit(data)
    theta = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([theta], learning_rate)
    penalty = 2 * (noise / unit) ** 2 * variation / operator.measurements
    for _ in track(range(steps), "evidence: linear mode", steps, progress):
        image = (linearised.image + linearised.jvp((theta.detach() - start)[None])[0]).requires_grad_()
        with torch.enable_grad():
            loss = ((operator(image) - data) / unit).square().mean() + penalty * total_variation(image)
            (slope,) = torch.autograd.grad(loss, image)
        theta.grad = linearised.vjp(slope[None])[0] + weight_decay * theta.detach()
        optimizer.step()
    found = theta.detach()
    return found, linearised.image + linearised.jvp((found - start)[None])[0]
