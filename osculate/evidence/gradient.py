"""All hyperparameters by the gradient of the evidence: for priors with more than precisions, and priors over them."""

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from osculate.evidence.mode import Search, evidence_at
from osculate.posteriors import Gaussian
from osculate.priors import Prior

#: Bounds on the logarithms of the hyperparameters, and on that of the noise relative to its initial value.
BOUNDS: Mapping[str, tuple[float, float]] = {"precision": (-10.0, 14.0), "lengthscale": (-3.0, 4.0)}
NOISE = (-5.0, 5.0)
#: A prior over the hyperparameters: −log p, differentiable.
HyperPrior = Callable[[Prior], Tensor]


def climb(
    q: Gaussian,
    noise: bool,
    point: Search | tuple[Float[Tensor, " P"], Mapping[str, Tensor]],
    hyperprior: HyperPrior | None = None,
    max_steps: int = 300,
) -> Gaussian:
    """Maximise the evidence over the logarithms of all hyperparameters and, if it is tuned, the noise.

    By L-BFGS within wide bounds, from the values of ``q``.

    Args:
        q: The posterior.
        noise: True to tune the noise scale.
        point: A search for the mode of the linear model, at which the evidence is taken, or parameters with the
            statistics of its likelihood there.
        hyperprior: −log p of the hyperparameters, which is added to the objective.
        max_steps: Largest number of evaluations.

    Raises:
        ValueError: the objective is not finite at the start.
    """
    start = {name: value.detach().double() for name, value in q.prior.hyperparameters.items()}
    sizes = [value.numel() for value in start.values()]

    def posterior(x: Float[Tensor, " D"]) -> Gaussian:
        parts = x[: sum(sizes)].split(sizes)
        values = {
            name: part.exp().reshape(value.shape) for (name, value), part in zip(start.items(), parts, strict=True)
        }
        likelihood = q.likelihood.times(x[-1].exp()) if noise else q.likelihood
        return q.replace(prior=q.prior.with_hyperparameters(values), likelihood=likelihood)

    def loss(x: Float[Tensor, " D"]) -> Tensor:
        here = posterior(x)
        if isinstance(point, Search):
            point.improve(posterior(x.detach()))
            value = -point.evidence(here)
        else:
            value = -evidence_at(here, *point)
        return value if hyperprior is None else value + hyperprior(here.prior)

    def objective(values: np.ndarray) -> tuple[float, np.ndarray]:
        x = torch.tensor(values, requires_grad=True)
        with torch.enable_grad():
            value = loss(x)
            (slope,) = torch.autograd.grad(value, x)
        return value.item(), slope.numpy()

    x = torch.cat([*(value.log().reshape(-1).cpu() for value in start.values()), torch.zeros(int(noise)).double()])
    bounds: list[Any] = [
        BOUNDS.get(name, (-20.0, 20.0)) for name, size in zip(start, sizes, strict=True) for _ in range(size)
    ]
    bounds += [NOISE] * noise
    labels = [f"{name} {number}" for name, size in zip(start, sizes, strict=True) for number in range(size)]
    labels += ["the noise scale"] * noise
    if not math.isfinite(objective(x.numpy())[0]):
        raise ValueError("the evidence is not finite at the initial values: check the data, the noise and the network.")
    from scipy.optimize import minimize

    found = minimize(objective, x.numpy(), jac=True, method="L-BFGS-B", bounds=bounds, options={"maxfun": max_steps})
    if found.nfev >= max_steps:
        warnings.warn(
            f"the evidence was still rising after {found.nfev} evaluations: raise max_steps.",
            stacklevel=3,
        )
    ends = [name for name, value, limits in zip(labels, found.x, bounds, strict=True) if value in limits]
    if ends and not q.prior.correlated:  # of filters, blocks that are switched off are usual
        warnings.warn(
            f"the evidence has no maximum inside of its bounds for {', '.join(ends[:5])}: the data do not "
            "determine them.",
            stacklevel=3,
        )
    best = posterior(torch.tensor(found.x)).prior.hyperparameters
    values = {name: best[name].to(value) for name, value in q.prior.hyperparameters.items()}
    likelihood = q.likelihood.times(math.exp(found.x[-1])) if noise else q.likelihood
    return q.replace(prior=q.prior.with_hyperparameters(values), likelihood=likelihood)
