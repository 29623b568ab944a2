"""Networks, data and runs that the tests of variational methods share."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

import osculate as osc
from osculate.batches import Fixed
from osculate.training import Training

CLASSES = osc.likelihoods.Categorical()


def data(n: int = 48) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(1), dtype=torch.double)
    return x, (x[:, 0] > 0).long() + (x[:, 1] > 0.5).long()


def network(seed: int = 0, p: float = 0.0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 6), nn.Softplus(), nn.Dropout(p), nn.Linear(6, 3)).double()


class Convolutional(nn.Module):
    """A user's own module: functional calls, a normalisation, a bias-free convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(1, 3, 3, padding=1, bias=False), nn.GroupNorm(1, 3)
        self.head = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.norm(self.conv(x.reshape(-1, 1, 2, 2))))
        return nn.functional.linear(h.mean((2, 3)), self.head.weight, self.head.bias)


def convolutional(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return Convolutional().double()


def run(method: Any, pair: tuple[Tensor, Tensor] | None = None, **settings: Any) -> Training:
    settings = {"epochs": 4, "batch_size": 16, "lr": 0.01, **settings}
    return osc.train(method, pair or data(), progress=False, device="cpu", **settings)


def descend(
    method: Any,
    pair: tuple[Tensor, Tensor],
    steps: int,
    lr: float,
    size: int | None = None,
    falls: bool = True,
    make: Any = torch.optim.Adam,
) -> Any:
    """What osc.train does without what surrounds it: steps on batches, or on all data, with a rate that falls."""
    x, y = pair
    generator = torch.Generator().manual_seed(0)
    optimizer = method.train().optimizer(lambda groups, rate: make(groups, rate), lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for group in optimizer.param_groups:
        group["lr"] *= group.get("multiplier", 1.0)
    schedule.base_lrs = [group["lr"] for group in optimizer.param_groups]
    method.prepare([pair])

    def batches() -> Iterator[Tensor]:
        while True:
            yield from torch.randperm(len(x), generator=generator).split(size or len(x))

    for _, rows in zip(range(steps), batches(), strict=False):
        batch = pair if size is None else (x[rows], y[rows])

        def closure(batch: tuple[Tensor, Tensor] = batch) -> Tensor:
            optimizer.zero_grad()
            loss = method.loss(*batch, len(y))
            loss.backward()
            return loss

        optimizer.step(closure)
        if falls:
            schedule.step()
    method.eval().after_training(Fixed(pair, size or len(x)))
    return method.result()


def flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


def linear_regression(n: int = 60) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(n, 5, generator=generator, dtype=torch.double) * torch.tensor([0.3, 1.0, 2.0, 1.0, 0.5]).double()
    return x, x @ torch.ones(5, 1).double() + 0.5 * torch.randn(n, 1, generator=generator, dtype=torch.double)


def linear_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(5, 1, bias=False).double()


def mean_field_optimum(x: Tensor, y: Tensor, scale: float, delta: float) -> tuple[Tensor, Tensor]:
    """μ and σ² of the best Gaussian with independent weights: the exact mean, and one over the exact precisions."""
    precision = x.T @ x / scale**2 + delta * torch.eye(x.shape[1]).double()
    return torch.linalg.solve(precision, x.T @ y / scale**2).squeeze(1), 1 / precision.diagonal()


def exact_elbo(x: Tensor, y: Tensor, scale: float, delta: float, mean: Tensor, variance: Tensor) -> float:
    """E_q log p(D|θ) − KL(q‖p) in closed form."""
    likelihood = osc.likelihoods.Gaussian(scale)
    fit = likelihood.log_prob((x @ mean).unsqueeze(1), y).sum()
    spread = 0.5 * (x.square().sum(0) * variance).sum() / scale**2
    divergence = 0.5 * (delta * (variance + mean.square()) - 1 - (delta * variance).log()).sum()
    return float(fit - spread - divergence)
