"""The mode of small networks, to many digits."""

import torch
from torch import Tensor

import osculate as osc


def find_mode(method: osc.methods.MAP, x: Tensor, y: Tensor, steps: int = 500) -> None:
    """Bring a network to a mode of its posterior in place, by L-BFGS on all data at once.

    Args:
        method: Network, likelihood and prior.
        x: Inputs (N, …).
        y: Targets (N, …).
        steps: Most steps; each takes about one evaluation.
    """
    parameters = [p for p in method.model.parameters() if p.requires_grad]
    optimiser = torch.optim.LBFGS(
        parameters, max_iter=steps, tolerance_grad=1e-8, tolerance_change=1e-12, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimiser.zero_grad()
        loss = method.loss(x, y, len(y))
        loss.backward()
        return loss

    optimiser.step(closure)
    optimiser.zero_grad()
