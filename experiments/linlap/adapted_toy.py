"""The toy of the adapted evidence: regression with a batch-normalised network on three clusters."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from experiments import seeded
from osculate.evidence import maximise_evidence
from osculate.likelihoods import Gaussian
from osculate.methods.laplace import laplace
from osculate.posteriors import Gaussian as Posterior
from osculate.predictive import functional_variance, predict
from osculate.priors import Grouped, Isotropic, Prior

#: Where the inputs lie, and the noise.
CLUSTERS, NOISE = ((-1.0, 0.0), (1.7, 2.5), (4.0, 5.0)), 0.25
#: Where predictions are judged: on the data, between the clusters, and three times as far out as they are wide.
GRID = torch.linspace(-2, 6, 161, dtype=torch.double).unsqueeze(1)
#: Data in a step of training, and its weight decay.
BATCH, DECAY = 64, 1e-4
SINGLE, MULTIPLE = "single λ", "multiple λ"
NETWORK, LINEAR = "θ̃", "θ*"


@dataclass(frozen=True)
class Toy:
    """Training of the network, 1 – hidden – hidden – 1 with ReLU and batch normalisation.

    Args:
        points: training data, a third in each cluster.
        hidden: units of both hidden layers.
        epochs: of stochastic gradient descent.
        lr: learning rate.
        scales: factors on the weights of the normalised layers.
        shown: prior precisions of which the figure shows the predictive.
    """

    points: int = 501
    hidden: int = 50
    epochs: int = 150
    lr: float = 1e-2
    scales: tuple[float, ...] = (0.25, 1.0, 4.0)
    shown: tuple[float, ...] = (100.0, 10.0, 1.0, 0.1)


@dataclass(frozen=True)
class Curves:
    """What the evidence at both modes makes of one network.

    Attributes:
        variance: prior variance of the single λ, by mode.
        noise: noise scale, by mode and prior.
        grid: mean log likelihood of new data on the grid, by mode and prior.
        deviation: mean standard deviation of the function on the grid, by prior and factor on the normalised weights.
        bands: mean and standard deviation on the grid, by what is shown; of new data.
        data: the training data.
    """

    variance: dict[str, float]
    noise: dict[tuple[str, str], float]
    grid: dict[tuple[str, str], float]
    deviation: dict[str, list[float]]
    bands: dict[str, Any]
    data: dict[str, list[float]]


def truth(x: Tensor) -> Tensor:
    """The function of which the data are noisy values."""
    return x - 0.1 * x**2 + torch.cos(torch.pi * x / 2)


def drawn(points: int, generator: torch.Generator) -> tuple[Float[Tensor, "N 1"], Float[Tensor, "N 1"]]:
    """Inputs in the clusters, and targets."""
    u = torch.rand(points, 1, generator=generator, dtype=torch.double).tensor_split(len(CLUSTERS))
    x = torch.cat([low + (high - low) * part for part, (low, high) in zip(u, CLUSTERS, strict=True)])
    return x, noisy(x, generator)


def noisy(x: Float[Tensor, "N 1"], generator: torch.Generator) -> Float[Tensor, "N 1"]:
    """Targets at given inputs."""
    return truth(x) + NOISE * torch.randn(x.shape, generator=generator, dtype=torch.double)


def trained(settings: Toy, x: Tensor, y: Tensor) -> nn.Sequential:
    """A network that stochastic gradient descent has left where it was after some epochs."""
    h = settings.hidden
    layers = (nn.Linear(1, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Linear(h, h), nn.BatchNorm1d(h), nn.ReLU())
    model = nn.Sequential(*layers, nn.Linear(h, 1)).double()
    optimiser = torch.optim.SGD(model.parameters(), settings.lr, momentum=0.9, weight_decay=DECAY)
    for _ in range(settings.epochs):
        for rows in torch.randperm(len(x)).split(BATCH):
            if len(rows) > 1:
                optimiser.zero_grad()
                F.mse_loss(model(x[rows]), y[rows]).backward()
                optimiser.step()
    return model.eval()


def rescaled(model: nn.Sequential, factor: float) -> nn.Sequential:
    """The same function with the weights and biases of the normalised layers, and their statistics, multiplied."""
    other = deepcopy(model)
    with torch.no_grad():
        for layer, norm in zip(other, list(other)[1:], strict=False):
            if isinstance(layer, nn.Linear) and isinstance(norm, nn.BatchNorm1d):
                layer.weight.mul_(factor)
                layer.bias.mul_(factor)
                assert norm.running_mean is not None
                assert norm.running_var is not None
                norm.running_mean.mul_(factor)
                norm.running_var.add_(norm.eps).mul_(factor**2).sub_(norm.eps)
    return other


def priors(model: nn.Module, x: Tensor) -> dict[str, Prior]:
    """Both priors, before they are tuned."""
    return {SINGLE: Isotropic(1.0), MULTIPLE: Grouped.normalised(model, x[:8])}


def tuned(model: nn.Module, x: Tensor, y: Tensor, prior: Prior, mode: str) -> Posterior:
    """The posterior with precisions and noise by the evidence at one of the modes, to many digits."""
    q = laplace(model, Gaussian(NOISE), (x, y), structure="dual", prior=prior)
    if mode == NETWORK:
        return maximise_evidence(q)
    return maximise_evidence(q, mode="linear", data=(x, y), tolerance=1e-5)


def toy(settings: Toy, seed: int) -> Curves:
    """Train one network, and tune its posterior in every way."""
    generator = torch.Generator().manual_seed(seed)
    x, y = drawn(settings.points, generator)
    new = noisy(GRID, generator)
    with seeded(seed):
        model = trained(settings, x, y)
    found = {(m, p): tuned(model, x, y, prior, m) for p, prior in priors(model, x).items() for m in (NETWORK, LINEAR)}
    deviation = {
        name: [
            float(functional_variance(_at(model, x, y, name, factor), GRID).sqrt().mean()) for factor in settings.scales
        ]
        for name in (SINGLE, MULTIPLE)
    }
    shown = {f"λ = {value:g}": found[LINEAR, SINGLE].replace(prior=Isotropic(value)) for value in settings.shown}
    shown |= {f"largest evidence at {m}": found[m, SINGLE] for m in (NETWORK, LINEAR)}
    return Curves(
        {m: float(1 / found[m, SINGLE].prior.precision) for m in (NETWORK, LINEAR)},
        {key: float(q.likelihood.scale) for key, q in found.items()},  # type: ignore[attr-defined]
        {key: float(predict(q, GRID).log_prob(new).mean()) for key, q in found.items()},
        deviation,
        {name: _band(q) for name, q in shown.items()},
        {"x": x.flatten().tolist(), "y": y.flatten().tolist()},
    )


def _at(model: nn.Sequential, x: Tensor, y: Tensor, name: str, factor: float) -> Posterior:
    """The posterior of the rescaled network, tuned at the mode of its linear model."""
    other = rescaled(model, factor)
    return tuned(other, x, y, priors(other, x)[name], LINEAR)


def _band(q: Posterior) -> dict[str, list[float]]:
    y = predict(q, GRID)
    rounded = {"mean": y.mean, "sd": y.variance.sqrt()}
    return {name: [float(f"{v:.4g}") for v in values.flatten().tolist()] for name, values in rounded.items()}


def relative_change(values: Sequence[float]) -> float:
    """The range of some numbers, relative to their mean."""
    return (max(values) - min(values)) / (sum(values) / len(values))
