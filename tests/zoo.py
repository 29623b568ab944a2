"""Small awkward networks, asymmetric on purpose: a swapped axis, stride or padding must show.

Every entry is in float64 and in evaluation mode. Those in ``VECTORS`` map a batch of tensors to three outputs each; the
others have sequences (N, T, V) or images (N, C, H, W) for outputs, or several tensors for an input.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations, weight_norm

from osculate.inputs import Inputs
from osculate.networks import GPT, UNet, ViT
from osculate.networks.resnet import Bias, Bottleneck, FixupBlock, PreActBlock

OUTPUTS = 3


@dataclass(frozen=True)
class Case:
    """A network and its inputs.

    Attributes:
        build: makes the network.
        inputs: makes that many inputs.
        output: "vector" (N, 3), "sequence" (N, T, V) or "image" (N, C, H, W).
        fallback: parameters that no rule covers.
        seed: of weights with which most parameters matter: a small network of rectifiers is easily dead.
    """

    build: Callable[[], nn.Module]
    inputs: Callable[[int], Inputs]
    output: str = "vector"
    fallback: tuple[str, ...] = ()
    seed: int = 0

    def model(self, seed: int = 0) -> nn.Module:
        """The network with seeded random weights and buffers."""
        with torch.random.fork_rng():
            torch.manual_seed(seed + self.seed)
            model = self.build().double().eval()
            for name, parameter in model.named_parameters():
                nn.init.normal_(parameter, 0.1 if name.endswith("bias") else 0.0, 0.4)
            for buffer in model.buffers():
                if buffer.is_floating_point():
                    buffer.uniform_(0.5, 1.5)
        return model

    def x(self, n: int, seed: int = 1) -> Any:
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
        return self.head(torch.maximum(h, self.b2))


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
    """A transformer block, whose projections torch hides in one call."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True)
        self.head = nn.Linear(4, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.block(x).mean(1))


class CrossAttention(nn.Module):
    """Packed projections of different queries and keys, the batch second, a float mask, and the weights returned."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2)
        self.head = nn.Linear(4, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        keys = x.transpose(0, 1)
        mask = torch.linspace(-1, 1, 2 * len(keys), dtype=x.dtype, device=x.device).reshape(2, -1)
        h, weights = self.attention(keys[:2].tanh(), keys, keys, attn_mask=mask)
        return self.head(h.sum(0)) + weights.square().sum((1, 2)).unsqueeze(-1)


class SeparateAttention(nn.Module):
    """Projections of their own for keys and values, learned and zero keys behind them, and a padding mask."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(
            4, 2, kdim=3, vdim=2, add_bias_kv=True, add_zero_attn=True, batch_first=True
        )
        self.head = nn.Linear(4, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        padding = torch.arange(x.shape[1], device=x.device) >= 3 + (x[:, :1, 0] > 0)
        h, _ = self.attention(x[:, :2], x[..., :3], x[..., 2:], key_padding_mask=padding, need_weights=False)
        return self.head(h.sum(1))


class LongMemory(nn.Module):
    """An LSTM in both directions with projections, read at its last states."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True, bidirectional=True, proj_size=2)
        self.head = nn.Linear(4, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        output, (hidden, _) = self.lstm(x)
        return self.head(output.mean(1) + hidden.transpose(0, 1).flatten(1))


class Gated(nn.Module):
    """A GRU of two layers with time first, behind a plain recurrent network without biases."""

    def __init__(self) -> None:
        super().__init__()
        self.plain = nn.RNN(3, 2, nonlinearity="relu", bias=False, bidirectional=True)
        self.tanh = nn.RNN(3, 4, batch_first=True)
        self.gru = nn.GRU(4, 2, num_layers=2)
        self.head = nn.Linear(2, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        output, _ = self.gru(self.plain(x.transpose(0, 1))[0] + self.tanh(x)[0].transpose(0, 1))
        return self.head(output[-1])


class Cells(nn.Module):
    """Cells called step by step, from an initial state that is learned."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTMCell(3, 2)
        self.gru = nn.GRUCell(2, 2)
        self.plain = nn.RNNCell(2, 2)
        self.relu = nn.RNNCell(2, 2, nonlinearity="relu")
        self.start = nn.Parameter(torch.empty(2))
        self.head = nn.Linear(2, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        h = c = x[:, 0, :2] * self.start
        g = p = torch.zeros_like(h)
        for t in range(x.shape[1]):
            h, c = self.lstm(x[:, t], (h, c))
            g = self.gru(h, g)
            p = self.relu(self.plain(g, p), p)
        return self.head(p)


class Views(nn.Module):
    """Slices and transposes of packed parameters in products of every kind, and a token that is repeated."""

    def __init__(self) -> None:
        super().__init__()
        self.packed = nn.Parameter(torch.empty(9, 4))
        self.bias = nn.Parameter(torch.empty(2, 4))
        self.square = nn.Parameter(torch.empty(4, 4))
        self.flat = nn.Parameter(torch.empty(12))
        self.token = nn.Parameter(torch.empty(1, 4))
        self.last = nn.Parameter(torch.empty(4, OUTPUTS))
        self.offset = nn.Parameter(torch.empty(OUTPUTS))
        self.gain = nn.Parameter(torch.empty(4))

    def forward(self, x: Tensor) -> Tensor:
        a, b, rest = self.packed.split([3, 4, 2])
        h = torch.tanh(torch.matmul(x, a.t()) @ self.flat.view(3, 4))
        h = torch.tanh(self.bias[0].addmm(h, b) + F.linear(h, self.square.T, self.bias[1]))
        h = torch.cat([self.token.repeat(len(x), 1).unsqueeze(1), h.unsqueeze(1)], 1)
        h = torch.tanh(self.square @ h.mT).mT.sum(1) + (x @ self.gain).unsqueeze(1)
        h = h + torch.mm(h, rest.flatten(0).reshape(4, 2))[:, :1].exp() + h.mm(self.bias.T)[:, 1:].exp()
        h += self.gain.flip(0)
        return torch.addmm(self.offset, h, self.last)


class Derived(nn.Module):
    """Weights that are functions of parameters: masked, low-rank beside a frozen one, norms of both makes."""

    def __init__(self) -> None:
        super().__init__()
        self.masked = nn.Parameter(torch.empty(4, 4))
        self.register_buffer("mask", torch.empty(4, 4))
        self.base = nn.Parameter(torch.empty(4, 4), requires_grad=False)
        self.a = nn.Parameter(torch.empty(1, 4))
        self.b = nn.Parameter(torch.empty(4, 1))
        self.spectral = parametrizations.spectral_norm(nn.Linear(4, 4))
        self.normed = parametrizations.weight_norm(nn.Conv1d(2, 3, 2))
        self.position = nn.Embedding(5, 3)
        self.head = nn.Linear(3, OUTPUTS)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(F.linear(x, self.masked * self.mask))
        h = torch.tanh(torch.add(F.linear(h, self.base + self.b @ self.a), self.a[0]))
        h = torch.tanh(self.spectral(h))
        h = self.normed(h.reshape(len(x), 2, 2)).transpose(1, 2)
        return self.head((h + self.position(torch.arange(h.shape[1], device=h.device))).sum(1))


class TwoInputs(nn.Module):
    """Two tensors for an input."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(4, 5)
        self.right = nn.Linear(2, 5, bias=False)
        self.head = nn.Linear(5, OUTPUTS)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        return self.head(torch.tanh(self.left(left)) * self.right(right))


class NamedInputs(nn.Module):
    """Tokens and a mask by name; an embedding with a padding row."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(6, 4, padding_idx=0)
        self.kind = nn.Embedding(2, 4)
        self.head = nn.Linear(4, OUTPUTS)

    def forward(self, tokens: Tensor, mask: Tensor) -> Tensor:
        kinds = torch.zeros_like(tokens)
        h = torch.tanh(self.embed(tokens) + self.kind(kinds)) * mask.unsqueeze(-1)
        return self.head(h.sum(1) / mask.sum(1, keepdim=True))


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
        nn.Conv3d(1, 2, (2, 1, 3), stride=(1, 2, 1)), nn.InstanceNorm3d(2, affine=True), nn.PReLU(),
        nn.ConvTranspose3d(2, 1, (1, 2, 1), stride=(1, 1, 2)), nn.Flatten(), nn.Linear(18, OUTPUTS),
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


def bottleneck() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 3, (1, 2)), Bottleneck(3, 2, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, OUTPUTS)
    )


def preactivation() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 2, (1, 2)), PreActBlock(2, 3, 2), nn.BatchNorm2d(3), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(3, OUTPUTS),
    )  # fmt: skip


def fixup() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 2, (1, 2), bias=False), FixupBlock(2, 3, 2), Bias(), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), Bias(), nn.Linear(3, OUTPUTS),
    )  # fmt: skip


def old_weight_norm() -> nn.Module:
    return nn.Sequential(
        weight_norm(nn.Linear(4, 5)), nn.LeakyReLU(0.2, inplace=True), weight_norm(nn.Linear(5, OUTPUTS), dim=None)
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
    "partly_ruled": Case(PartlyRuled, vector, fallback=("weight", "b1", "b2")),
    "bias_first": Case(BiasFirst, vector),
    "functional": Case(Functional, vector, fallback=("unruled",)),
    "sequence": Case(Sequence, lambda n: torch.randint(7, (n, 5)), fallback=("time_first.weight", "time_first.bias")),
    "attention": Case(Attention, lambda n: torch.randn(n, 5, 4, dtype=torch.double)),
    "cross_attention": Case(CrossAttention, lambda n: torch.randn(n, 5, 4, dtype=torch.double)),
    "separate_attention": Case(SeparateAttention, lambda n: torch.randn(n, 5, 4, dtype=torch.double)),
    "lstm": Case(LongMemory, lambda n: torch.randn(n, 4, 3, dtype=torch.double)),
    "gru": Case(Gated, lambda n: torch.randn(n, 4, 3, dtype=torch.double)),
    "cells": Case(Cells, lambda n: torch.randn(n, 3, 3, dtype=torch.double)),
    "resnet": Case(bottleneck, lambda n: torch.randn(n, 2, 5, 4, dtype=torch.double)),
    "preact_resnet": Case(preactivation, lambda n: torch.randn(n, 1, 5, 4, dtype=torch.double)),
    "fixup_resnet": Case(fixup, lambda n: torch.randn(n, 1, 5, 4, dtype=torch.double)),
    "unet": Case(
        lambda: UNet(2, 1, width=1, depth=1), lambda n: torch.randn(n, 1, 3, 2, dtype=torch.double), "image", seed=3
    ),
    "vit": Case(
        lambda: ViT(OUTPUTS, (1, 2, 2), patch=1, width=4, depth=1, heads=2),
        lambda n: torch.randn(n, 1, 2, 2, dtype=torch.double),
    ),
    "gpt": Case(lambda: GPT(3, context=4, width=4, depth=1), lambda n: torch.randint(3, (n, 3)), "sequence"),
    "views": Case(Views, vector),
    "derived": Case(Derived, vector),
    "weight_norm": Case(old_weight_norm, vector),
    "two_inputs": Case(TwoInputs, lambda n: (vector(n), torch.randn(n, 2, dtype=torch.double))),
    "named_inputs": Case(
        NamedInputs, lambda n: {"tokens": torch.randint(6, (n, 4)), "mask": torch.rand(n, 4, dtype=torch.double)}
    ),
    "rms_norm": Case(
        lambda: nn.Sequential(nn.Linear(4, 6), nn.RMSNorm(6), nn.Linear(6, OUTPUTS)),
        lambda n: torch.randn(n, 5, 4, dtype=torch.double).mean(1),
    ),
    "frozen": Case(
        lambda: frozen(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, OUTPUTS)), "0.weight", "2.bias"), vector
    ),
}

#: The entries that map one tensor to three outputs for each datum.
VECTORS: tuple[str, ...] = tuple(
    name for name, case in ZOO.items() if case.output == "vector" and isinstance(case.x(1), Tensor)
)
