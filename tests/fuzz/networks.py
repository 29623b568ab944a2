"""Random small networks: layers, activations, normalisations, shared weights and odd graphs, and those of the zoo."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

from osculate.inputs import Inputs
from tests.zoo import ZOO

ELEMENTWISE = (nn.Tanh, nn.ReLU, nn.GELU, nn.Sigmoid, nn.Softplus, nn.SiLU, nn.ELU, nn.LeakyReLU, nn.Softsign)


@dataclass(frozen=True)
class Net:
    """A network and its inputs.

    Attributes:
        name: Family.
        module: Network in float64 and evaluation mode.
        inputs: Makes that many inputs, in float64.
        output: "vector" (N, C), "sequence" (N, T, C) or "image" (N, C, H, W).
    """

    name: str
    module: nn.Module
    inputs: Callable[[int], Inputs]
    output: str = "vector"

    @property
    def ill_conditioned(self) -> bool:
        """True if normalisations of few numbers may lose most digits of single precision."""
        return self.name == "normed" or self.name.startswith("zoo")


class Few(nn.Module):
    """The first outputs of another network."""

    def __init__(self, network: nn.Module, outputs: int) -> None:
        super().__init__()
        self.network, self.outputs = network, outputs

    def forward(self, x: Tensor) -> Tensor:
        return self.network(x)[:, : self.outputs]


class Skip(nn.Module):
    """A residual connection, with a gain for each unit."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner, self.gain = nn.Linear(width, width, bias=False), nn.Parameter(torch.empty(width))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.gain * torch.tanh(self.inner(x))


class Towers(nn.Module):
    """Two paths that share a layer, are multiplied and joined with the inputs."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.shared, self.own = nn.Linear(inputs, 3), nn.Linear(3, 3)
        self.head = nn.Linear(3 + inputs, outputs)

    def forward(self, x: Tensor) -> Tensor:
        left, right = torch.tanh(self.shared(x)), torch.sigmoid(self.own(self.shared(x.flip(-1))))
        return self.head(torch.cat([left * right, x], -1))


class Pooled(nn.Module):
    """The mean over positions."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


def random_network(draw: Random) -> Net:
    """A network with seeded weights, initialised so that most parameters matter."""
    torch.manual_seed(draw.randrange(2**31))
    families = {mlp: 5, normed: 1, odd: 2, conv: 2, tokens: 1, at_positions: 1, image: 1, of_zoo: 6}
    net: Net = draw.choices(list(families), list(families.values()))[0](draw)
    module = net.module.double().eval()
    bias = draw.choice([0.0, 0.1, 1.0])
    for name, parameter in module.named_parameters():
        nn.init.normal_(parameter, bias if name.endswith("bias") else 0.0, 0.4)
    for buffer in module.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5)
    return net


def _vectors(size: int) -> Callable[[int], Tensor]:
    return lambda n: torch.randn(n, size, dtype=torch.double)


def mlp(draw: Random) -> Net:
    """Linear layers and elementwise activations alone, from no hidden layer to three."""
    sizes = [draw.randint(1, 4), *(draw.randint(1, 5) for _ in range(draw.randint(0, 3)))]
    layers: list[nn.Module] = []
    for before, after in zip(sizes, sizes[1:], strict=False):
        layers += [nn.Linear(before, after, bias=draw.random() < 0.8), draw.choice(ELEMENTWISE)()]
    layers.append(nn.Linear(sizes[-1], draw.randint(1, 4), bias=draw.random() < 0.8))
    return Net("mlp", nn.Sequential(*layers), _vectors(sizes[0]))


def normed(draw: Random) -> Net:
    """A normalisation between linear layers."""
    inputs, width = draw.randint(1, 4), draw.randint(2, 5)
    norm = draw.choice([nn.LayerNorm, nn.RMSNorm, nn.BatchNorm1d])(width)
    layers = [nn.Linear(inputs, width), norm, draw.choice([nn.Tanh(), nn.PReLU(width), nn.Dropout(0.5)])]
    return Net("normed", nn.Sequential(*layers, nn.Linear(width, draw.randint(1, 4))), _vectors(inputs))


def odd(draw: Random) -> Net:
    """A skip connection, one layer called twice, or towers with a shared layer."""
    inputs, outputs = draw.randint(2, 4), draw.randint(1, 4)
    layer = nn.Linear(inputs, inputs)
    module: nn.Module = draw.choice(
        [
            nn.Sequential(Skip(inputs), nn.Linear(inputs, outputs)),
            nn.Sequential(layer, nn.Tanh(), layer, nn.Linear(inputs, outputs)),
            Towers(inputs, outputs),
        ]
    )
    return Net("odd", module, _vectors(inputs))


def conv(draw: Random) -> Net:
    """Convolutions of one or two axes, whose positions are pooled or flattened."""
    channels, groups = draw.randint(1, 2), draw.randint(1, 2)
    kernel, outputs = draw.randint(1, 2), draw.randint(1, 4)
    if draw.random() < 0.5:
        first: nn.Module = nn.Conv1d(channels * groups, 2 * groups, kernel, draw.randint(1, 2), 1, groups=groups)
        end = [nn.AdaptiveAvgPool1d(2), nn.Flatten(), nn.Linear(4 * groups, outputs)]
        return Net("conv", nn.Sequential(first, nn.Tanh(), *end), lambda n: _normal(n, channels * groups, 4))
    first = nn.Conv2d(channels, 2, (kernel, 2), 1, (0, 1), bias=draw.random() < 0.7)
    end = [nn.MaxPool2d(2, 1) if draw.random() < 0.5 else nn.AvgPool2d(2, 1), nn.AdaptiveAvgPool2d((1, 2))]
    layers = [first, nn.SiLU(), *end, nn.Flatten(), nn.Linear(4, outputs)]
    return Net("conv", nn.Sequential(*layers), lambda n: _normal(n, channels, 3, 4))


def _normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.double)


def tokens(draw: Random) -> Net:
    """An embedding, taken together over the tokens of a datum."""
    words, length = draw.randint(2, 5), draw.randint(1, 4)
    layers = [nn.Embedding(words, 3), nn.Linear(3, 3), nn.Tanh(), Pooled(), nn.Linear(3, draw.randint(1, 4))]
    return Net("tokens", nn.Sequential(*layers), lambda n: torch.randint(words, (n, length)))


def at_positions(draw: Random) -> Net:
    """The same layers at every position, with outputs there."""
    length, inputs, outputs = draw.randint(1, 3), draw.randint(1, 3), draw.randint(1, 3)
    layers = [nn.Linear(inputs, 3), nn.Tanh(), nn.Linear(3, outputs)]
    return Net("at positions", nn.Sequential(*layers), lambda n: _normal(n, length, inputs), "sequence")


def image(draw: Random) -> Net:
    """An image for an output."""
    channels, outputs = draw.randint(1, 2), draw.randint(1, 3)
    layers = [nn.Conv2d(channels, 2, 2, padding=1), nn.Tanh(), nn.Conv2d(2, outputs, 2)]
    return Net("image", nn.Sequential(*layers), lambda n: _normal(n, channels, 2, 3), "image")


def of_zoo(draw: Random) -> Net:
    """A network of the zoo, sometimes with fewer outputs."""
    name = draw.choice(list(ZOO))
    case = ZOO[name]
    module, inputs = case.build(), case.inputs
    if case.output == "vector" and isinstance(case.x(1), Tensor) and draw.random() < 0.5:
        module = Few(module, draw.randint(1, 3))
    return Net(f"zoo: {name}", module, inputs, case.output)


def scaled(x: Any, scale: float) -> Any:
    """Real-valued inputs times a factor."""
    return x * scale if isinstance(x, Tensor) and x.is_floating_point() else x
