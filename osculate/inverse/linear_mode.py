"""From a network's own weights towards the mode of the linearised image under a total-variation penalty."""

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.inverse.dip import own_unit
from osculate.inverse.linearised import LinearisedImage
from osculate.inverse.operators import LinearOperator
from osculate.inverse.variation import total_variation
from osculate.progress import track


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

    w is small and the steps are short: this is on the way to a mode, not at one.

    Args:
        linearised: h.
        operator: A.
        data: y.
        noise: σ.
        variation: λ.
        steps: number of steps of Adam.
        learning_rate: learning rate of Adam.
        weight_decay: w, with residuals in :func:`~osculate.inverse.dip.own_unit`.
        progress: show a bar.

    Returns:
        θ, and h(θ).

    Cost: two passes through the network a step.
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
