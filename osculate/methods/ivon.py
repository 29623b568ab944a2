"""Natural-gradient variational inference at the cost of Adam."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer

from osculate.checks import require_object
from osculate.inputs import Inputs, drawn_outputs
from osculate.likelihoods import Likelihood
from osculate.linalg import white
from osculate.methods._base import PriorLike, require_memory
from osculate.methods._mean_field import FAN_IN, MeanFieldMethod
from osculate.methods._running import RunningFisher
from osculate.registry import choose

#: Estimates of the curvature.
HESSIANS = ("drawn", "squared")


@dataclass(frozen=True)
class NaturalSteps:
    """Settings of the natural-gradient steps.

    Args:
        momentum: β₁, the decay of the average gradient in a step.
        memory: γ, the decay of the average curvature in a step. Train for more than 1/(1 − γ) steps.
        curvature: Initial h (curvature per datum), in units of ``likelihood.curvature_unit``: 1/scale² for a Gaussian
            likelihood with one noise scale, 1 for classes.

    Raises:
        ValueError: a number is out of range.
    """

    momentum: float = 0.9
    memory: float = 0.999
    curvature: float = 0.1

    def __post_init__(self) -> None:
        require_memory("momentum", self.momentum)
        require_memory("memory", self.memory)
        if not self.curvature > 0:
            raise ValueError(f"curvature must be positive, got {self.curvature}.")


STEPS = NaturalSteps()


class NaturalGradient(Optimizer):
    r"""m ← m − α (h₀ + δ′)/u (ḡ/(1 − β₁ᵗ) + δ′ m) / (h + δ′), with ḡ ← β₁ ḡ + (1 − β₁) g and δ′ = δ T/N.

    The factor h₀ + δ′, with the mean δ′ of a parameter tensor, makes α the learning rate of plain gradient steps while
    h has its initial value, for a likelihood of curvature u = 1. Point parameters move by α ḡ/u.

    Args:
        method: Method with the trained mean; it adds the gradient to h before each step.
        lr: α.
        momentum: β₁.
    """

    def __init__(self, method: "IVON", lr: float, momentum: float) -> None:
        self._method, self._momentum = method, momentum
        weights = method.mean
        point_parameters = [p for n, p in method.model.named_parameters() if p.requires_grad and n not in weights]
        groups: list[dict[str, Any]] = [{"params": list(weights.values())}]
        super().__init__(groups + ([{"params": point_parameters}] if point_parameters else []), {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one step with the gradient at the sampled weights."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        weights, *point_parameters = self.param_groups
        method = self._method
        for group in point_parameters:
            momenta, debias = self._averages(group["params"])
            torch._foreach_add_(group["params"], momenta, alpha=-group["lr"] / method.unit / debias)
        means = weights["params"]
        apart = means  # m − μ, towards which the prior pulls
        if method.prior.mean is not None:
            apart = torch._foreach_sub(means, list(method.space.unflatten(method.prior.mean.to(method.delta)).values()))
        method.add_gradient({name: p.grad for name, p in method.mean.items() if p.grad is not None})
        ridged = list(method.space.unflatten(method.ridged).values())
        steps = [-weights["lr"] * scale for scale in method.scales]
        momenta, debias = self._averages(means)
        if method.decays is None:  # precisions that vary within a tensor
            ridge = list(method.space.unflatten(method.ridge).values())
            torch._foreach_addcdiv_(means, torch._foreach_mul(ridge, apart), ridged, steps)
        else:
            both = [step * decay for step, decay in zip(steps, method.decays, strict=True)]
            torch._foreach_addcdiv_(means, apart, ridged, both)
        torch._foreach_addcdiv_(means, momenta, ridged, [step / debias for step in steps])
        return loss

    def _averages(self, parameters: list[Tensor]) -> tuple[list[Tensor], float]:
        """ḡ of each parameter, and 1 − β₁ᵗ."""
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


class IVON(MeanFieldMethod):
    r"""q(θ) = N(m, diag(N h/T + δ)⁻¹) by natural-gradient steps, with one weight sample per step. [shen2024]

    .. math:: \theta = m + \epsilon \sigma, \quad g = -\nabla \tfrac1B \textstyle\sum_b \log p(y_b \mid f_\theta(x_b)),
              \quad \hat h = g\,\epsilon/\sigma, \\
              h \leftarrow \gamma h + (1 - \gamma) \hat h + \tfrac12 (1 - \gamma)^2 \frac{(h - \hat h)^2}{h + \delta'},
              \qquad m \leftarrow m - \alpha \frac{h_0 + \delta'}u \frac{\bar g + \delta' m}{h + \delta'},
              \qquad \delta' = \frac{T \delta}N

    ḡ is the average gradient, u the curvature of the likelihood. ĥ estimates the curvature without bias ("drawn");
    "squared" uses B g² instead, the empirical Fisher information of a batch, which is never negative but overcounts
    gradients that all data share.

    The method has its own optimiser, and does not use that of the training settings. The learning rate is that of plain
    gradient steps with momentum, such as 0.1 to 0.5 (0.3 by default, not Adam's 1e-3), for a likelihood of curvature 1.
    With Gaussian noise the steps are in units of its variance, so that the rate does not depend on the noise scale.

    Args:
        model: The network f_θ; training changes it in place: its parameters are m.
        likelihood: p(y|f).
        prior: p(θ): "fan_in" (precision fan-in of each layer), a precision, or an object of ``osc.priors``.
        temperature: T of the likelihood, the weight β of the divergence: 1 is Bayes.
        hessian: "drawn" or "squared".
        settings: Momentum of the mean, memory and start of the curvature.

    Raises:
        TypeError: ``model``, ``likelihood`` or ``prior`` is of the wrong type.
        ValueError: a value is out of range, or an unknown name.

    Cost: that of Adam, plus sampling. The loss in the history is the NLL of sampled networks.

    >>> x, y = torch.randn(60, 4), torch.randint(3, (60,))
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> done = osc.train(IVON(net, osc.likelihoods.Categorical()), (x, y), epochs=2, lr=0.1, progress=False)
    >>> osc.predict(done, x[:5], via="sampled", samples=10).probs.shape
    torch.Size([5, 3])
    """

    name = "ivon"
    fixed_settings = (*MeanFieldMethod.fixed_settings, "hessian", "settings")
    usual = {"lr": 0.3}
    refused = {"optimizer": "has its own optimiser"}

    @classmethod
    def defaults(cls, epochs: int, real_valued: bool) -> dict[str, Any]:
        """Temperature 1 for real-valued targets and 0.1 for classes, chosen by experiments on four small data sets."""
        return {"temperature": 1.0 if real_valued else 0.1}

    def __init__(
        self,
        model: nn.Module,
        likelihood: Likelihood,
        prior: PriorLike = FAN_IN,
        temperature: float = 1.0,
        hessian: str = "drawn",
        settings: NaturalSteps = STEPS,
    ) -> None:
        super().__init__(model, likelihood, prior, temperature)
        require_object("settings", settings, NaturalSteps)
        self.hessian, self.settings = choose("hessian", hessian, HESSIANS), settings
        self.running = RunningFisher(self.space, settings.memory, self.delta.dtype, self.delta.device)
        self.unit = likelihood.curvature_unit
        self.running.start(settings.curvature * self.unit)
        self._noise = torch.empty(0)  # θ − m in this step
        self._size = 0  # batch size of this step
        sizes = torch.tensor(self.space.sizes)
        self._means: list[float] = (self.space.totals(self.delta.double().cpu()) / sizes).tolist()  # δ of each tensor

    def optimizer(self, make: Callable[..., Optimizer], lr: float) -> Optimizer:
        """The optimiser of natural-gradient steps."""
        return NaturalGradient(self, lr, self.settings.momentum)

    @property
    def factor(self) -> float:
        """c = N/T."""
        return int(self.num_data) / self.temperature

    @property
    def ridge(self) -> Float[Tensor, " P"]:
        """δ′ = δ T/N."""
        return self.delta / self.factor

    @property
    def scales(self) -> list[float]:
        """(h₀ + δ′)/u of each tensor, the unit of its steps; u is the curvature of the likelihood."""
        return [self.settings.curvature + delta / self.factor / self.unit for delta in self._means]

    @property
    def decays(self) -> list[float] | None:
        """δ′ of each tensor; None if it varies within a tensor."""
        return None if self.prior.per_tensor(self.space) is None else [delta / self.factor for delta in self._means]

    @property
    def ridged(self) -> Float[Tensor, " P"]:
        """h + δ′."""
        return self.running.ridged(self.factor, self.delta)

    @property
    def settling(self) -> float:
        """The memory of the average curvature in steps; the average starts at the value in the settings."""
        return 1 / (1 - self.settings.memory)

    def deviations(self) -> Float[Tensor, " P"]:
        return self.running.deviations(self.factor, self.delta)

    def loss(self, x: Inputs, y: Tensor, num_data: int) -> Float[Tensor, ""]:
        """The mean NLL of one batch at sampled weights, in nats; the step adds the other terms of the bound."""
        self.store_size(y, num_data)
        self._size = self.share.size(y)
        # the same weights in all processes: ĥ is the product of the noise and of the gradient over all of their data
        with torch.no_grad(), self.share.same_draws(int(self.steps)):
            room = self._noise if len(self._noise) else None
            noise = white((self.space.size,), self.delta.dtype, self.delta.device, room)
            self._noise = noise.mul_(self.deviations())
        self.add_batch(x, y)
        f, divergence = drawn_outputs(self.model, x, self.moved_by(self._noise))
        self.likelihood.check(f, y)
        self.steps.add_(1)
        return -(self.likelihood.log_prob(f, y) - divergence).sum() / len(y)

    def add_batch(self, x: Inputs, y: Tensor) -> None:
        """Compute the curvature of a batch at the sampled weights, where the gradient does not give it."""

    def add_gradient(self, gradients: Mapping[str, Tensor]) -> None:
        """Add the gradient of this step to the average curvature."""
        if self.hessian == "squared":
            self.running.add_batch_gradient(gradients, self._size)
            return
        noise, ridged = (self.space.unflatten(each) for each in (self._noise, self.ridged))
        for name, h in self.running.named.items():
            if name in gradients:
                gradient = gradients[name].to(h.dtype)
                self.running.add_sampled_gradient(h, noise[name], gradient, ridged[name], self.factor)
