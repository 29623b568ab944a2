"""The natural-gradient step on the mean of a diagonal Gaussian."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.optim import Optimizer

if TYPE_CHECKING:
    from osculate.methods.ivon import IVON


class NaturalGradient(Optimizer):
    r"""m ← m − α (h₀ + δ′)/u (ḡ/(1 − β₁ᵗ) + δ′ m) / (h + δ′), with ḡ ← β₁ ḡ + (1 − β₁) g and δ′ = δ T/N.

    The factor h₀ + δ′, with the mean δ′ of a parameter tensor, makes α a learning rate of ordinary gradient steps while
    h is as it was at the start, for a likelihood of curvature 1; u is that of the likelihood. What is a point, and no
    part of the Gaussian, moves by α ḡ/u.

    Args:
        method: whose mean is trained; it takes the gradient into h before each step.
        lr: α.
        momentum: β₁.
    """

    def __init__(self, method: "IVON", lr: float, momentum: float) -> None:
        self._method, self._momentum = method, momentum
        weights = method.mean
        points = [p for n, p in method.model.named_parameters() if p.requires_grad and n not in weights]
        groups: list[dict[str, Any]] = [{"params": list(weights.values())}]
        super().__init__(groups + ([{"params": points}] if points else []), {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step with the gradient at the drawn network."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        weights, *points = self.param_groups
        method = self._method
        for group in points:
            momenta, debias = self._averages(group["params"])
            torch._foreach_add_(group["params"], momenta, alpha=-group["lr"] / method.unit / debias)
        means = weights["params"]
        method.take({name: p.grad for name, p in method.mean.items() if p.grad is not None})
        ridged = list(method.space.unflatten(method.ridged).values())
        steps = [-weights["lr"] * scale for scale in method.scales]
        momenta, debias = self._averages(means)
        if method.decays is None:  # precisions that vary within a tensor
            ridge = list(method.space.unflatten(method.ridge).values())
            torch._foreach_addcdiv_(means, torch._foreach_mul(ridge, means), ridged, steps)
        else:
            both = [step * decay for step, decay in zip(steps, method.decays, strict=True)]
            torch._foreach_addcdiv_(means, means, ridged, both)
        torch._foreach_addcdiv_(means, momenta, ridged, [step / debias for step in steps])
        return loss

    def _averages(self, parameters: list[Tensor]) -> tuple[list[Tensor], float]:
        """ḡ of each, and 1 − β₁ᵗ."""
        gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        for p in parameters:
            if not self.state[p]:
                self.state[p] = {"step": torch.zeros((), device=p.device), "momentum": torch.zeros_like(p)}
        states = [self.state[p] for p in parameters]
        for state in states:
            state["step"] += 1
        momenta = [state["momentum"] for state in states]
        torch._foreach_lerp_(momenta, gradients, 1 - self._momentum)
        return momenta, 1 - self._momentum ** float(states[0]["step"])
