"""Small awkward networks, asymmetric on purpose: a swapped axis, stride or padding must show.

Every entry maps a batch of inputs to three outputs, in float64, in evaluation mode.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

OUTPUTS = 3


@dataclass(frozen=True)
class Case:
    """A network and its inputs."""

    build: Callable[[], nn.Module]
    inputs: Callable[[int], Tensor]

    def model(self, seed: int = 0) -> nn.Module:
        """The network with seeded random weights and buffers."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = self.build().double().eval()
            for name, parameter in model.named_parameters():
                nn.init.normal_(parameter, 0.1 if name.endswith("bias") else 0.0, 0.4)
            for buffer in model.buffers():
                if buffer.is_floating_point():
                    buffer.uniform_(0.5, 1.5)
        return model

    def x(self, n: int, seed: int = 1) -> Tensor:
        """A batch of n inputs."""
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return self.inputs(n)


class Residual(nn.Module):
    """A skip connection around two layers, one without bias, and an in-place activation."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 5)
        self.second = nn.Linear(5, 4, bias=False)
        self.head = nn.Linear(4, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x + self.second(F.relu_(self.first(x))))


class Tied(nn.Module):
    """One layer called twice, and one weight used in two layers with different biases."""

    def __init__(self) -> None:
        super().__init__()
        self.twice = nn.Linear(4, 4)
        self.shared = nn.Parameter(torch.empty(4, 4))
        self.b1 = nn.Parameter(torch.empty(4))
        self.b2 = nn.Parameter(torch.empty(4))
        self.head = nn.Linear(4, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.tanh(self.twice(torch.tanh(self.twice(x))))
        x = torch.tanh(F.linear(x, self.shared, self.b1))
        return self.head(torch.tanh(F.linear(x, self.shared, self.b2)))


class TiedEmbedding(nn.Module):
    """An embedding whose weight is also the output layer, as in language models: two orientations of one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(OUTPUTS, 4)
        self.mix = nn.Linear(4, 4)

    def forward(self, tokens: Tensor) -> Tensor:
        return F.linear(torch.tanh(self.mix(self.embed(tokens))).mean(1), self.embed.weight)


class PartlyRuled(nn.Module):
    """One bias used by rule and without one, in two layers that share their weight; a parameter without axes."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(4, 4))
        self.b1 = nn.Parameter(torch.empty(4))
        self.b2 = nn.Parameter(torch.empty(4))
        self.t = nn.Parameter(torch.empty(()))
        self.head = nn.Linear(4, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(F.linear(x, self.weight, self.b1))
        h = torch.tanh(F.linear(h, self.weight, self.b2)) * self.t
        return self.head(h * self.b2.exp())


class BiasFirst(nn.Module):
    """Biases registered before their weights, in an affine and in a normalisation layer."""

    def __init__(self) -> None:
        super().__init__()
        self.b = nn.Parameter(torch.empty(5))
        self.w = nn.Parameter(torch.empty(5, 4))
        self.shift = nn.Parameter(torch.empty(5))
        self.scale = nn.Parameter(torch.empty(5))
        self.head = nn.Linear(5, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(F.layer_norm(F.linear(x, self.w, self.b), (5,), self.scale, self.shift))


class Functional(nn.Module):
    """Bare parameters: functional calls, a matrix product, an elementwise scale, a free bias, an odd reduction."""

    def __init__(self) -> None:
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(5, 4))
        self.w2 = nn.Parameter(torch.empty(5, OUTPUTS))
        self.scale = nn.Parameter(torch.empty(5))
        self.shift = nn.Parameter(torch.empty(1, 5))
        self.unruled = nn.Parameter(torch.empty(OUTPUTS))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(F.linear(x, self.w1)) * self.scale + self.shift
        return h @ self.w2 + torch.outer(h.sum(-1), self.unruled.exp())


class Sequence(nn.Module):
    """Token embedding with padding, position table, LayerNorm, a linear over tokens, and time put first half-way."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4, padding_idx=0)
        self.position = nn.Parameter(torch.empty(1, 5, 4))
        self.norm = nn.LayerNorm(4)
        self.time_first = nn.Linear(4, 4)
        self.flat = nn.Linear(4, 4)
        self.head = nn.Linear(4, OUTPUTS)

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.norm(self.embed(tokens) + self.position)
        h = torch.tanh(self.time_first(h.transpose(0, 1))).transpose(0, 1)
        n, t, d = h.shape
        h = torch.tanh(self.flat(h.reshape(n * t, d))).reshape(n, t, d)
        return self.head(h.mean(1))


class Attention(nn.Module):
    """A transformer block, whose projections torch hides in one opaque call: the fallback."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True)
        self.head = nn.Linear(4, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(x).mean(1))


def frozen(model: nn.Module, *names: str) -> nn.Module:
    """The network with these parameters frozen."""
    for name in names:
        model.get_parameter(name).requires_grad_(False)
    return model


def conv2d() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, (1, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2),
        nn.ReLU(inplace=True),
        nn.Conv2d(4, 3, 2, padding="same", bias=False),
        nn.GroupNorm(3, 3),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(12, OUTPUTS),
    )


def conv1d() -> nn.Module:
    return nn.Sequential(
        nn.Conv1d(2, 3, 3, stride=2, padding=1), nn.BatchNorm1d(3), nn.PReLU(3), nn.Flatten(), nn.Linear(12, OUTPUTS)
    )


def conv3d() -> nn.Module:
    return nn.Sequential(
        nn.Conv3d(1, 2, (2, 1, 3), stride=(1, 2, 1)), nn.InstanceNorm3d(2, affine=True), nn.PReLU(), nn.Flatten(),
        nn.Linear(16, OUTPUTS),
    )  # fmt: skip


def transposed() -> nn.Module:
    return nn.Sequential(
        nn.ConvTranspose2d(2, 4, (3, 2), stride=(2, 1), padding=(1, 0), output_padding=(1, 0), groups=2),
        nn.Tanh(),
        nn.Conv2d(4, 1, 3),
        nn.Flatten(),
        nn.Linear(8, OUTPUTS),
    )


def transposed1d() -> nn.Module:
    return nn.Sequential(
        nn.ConvTranspose1d(2, 3, 2, stride=2, padding=2, dilation=3), nn.Tanh(), nn.Flatten(), nn.Linear(18, OUTPUTS)
    )


def vector(n: int) -> Tensor:
    return torch.randn(n, 4, dtype=torch.double)


ZOO: dict[str, Case] = {
    "linear": Case(lambda: nn.Linear(4, OUTPUTS), vector),
    "mlp": Case(lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, OUTPUTS)), vector),
    "conv1d": Case(conv1d, lambda n: torch.randn(n, 2, 7, dtype=torch.double)),
    "conv2d": Case(conv2d, lambda n: torch.randn(n, 2, 3, 5, dtype=torch.double)),
    "conv3d": Case(conv3d, lambda n: torch.randn(n, 1, 3, 3, 4, dtype=torch.double)),
    "conv_transpose2d": Case(transposed, lambda n: torch.randn(n, 2, 2, 5, dtype=torch.double)),
    "conv_transpose1d": Case(transposed1d, lambda n: torch.randn(n, 2, 4, dtype=torch.double)),
    "residual": Case(Residual, vector),
    "tied": Case(Tied, vector),
    "tied_embedding": Case(TiedEmbedding, lambda n: torch.randint(OUTPUTS, (n, 5))),
    "partly_ruled": Case(PartlyRuled, vector),
    "bias_first": Case(BiasFirst, vector),
    "functional": Case(Functional, vector),
    "sequence": Case(Sequence, lambda n: torch.randint(7, (n, 5))),
    "attention": Case(Attention, lambda n: torch.randn(n, 5, 4, dtype=torch.double)),
    "rms_norm": Case(
        lambda: nn.Sequential(nn.Linear(4, 6), nn.RMSNorm(6), nn.Linear(6, OUTPUTS)),
        lambda n: torch.randn(n, 5, 4, dtype=torch.double).mean(1),
    ),
    "frozen": Case(
        lambda: frozen(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, OUTPUTS)), "0.weight", "2.bias"), vector
    ),
}
