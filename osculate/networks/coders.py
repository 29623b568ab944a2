"""Pairs of encoders and decoders: from images or vectors to a code of K numbers, and back."""

import math
from collections import OrderedDict
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from osculate.checks import require_whole
from osculate.networks.activations import activation_layer, initialise
from osculate.networks.unet import image_channels

#: The smallest standard deviation of a pixel whose variance a decoder learns.
FLOOR = 0.05
#: An encoder and its decoder.
Coders = tuple[nn.Module, nn.Module]


def mlp_coders(
    input_shape: Sequence[int],
    latent: int = 2,
    hidden: Sequence[int] = (512, 256),
    outputs: int = 1,
    codes: int = 1,
    dropout: float = 0.0,
    decoder_hidden: Sequence[int] | None = None,
    activation: str = "tanh",
    initialisation: str = "torch",
    floor: float = FLOOR,
) -> Coders:
    """Fully connected coders; the decoder mirrors the encoder: 784-512-256-2 for 28 × 28 pixels. [miani2022]

    Args:
        input_shape: Shape of one datum.
        latent: K.
        hidden: Units of the encoder's hidden layers.
        outputs: Numbers of the decoder for each of the datum's (two where a variance is modelled too, which
            :class:`VarianceFloor` keeps above a floor).
        codes: Numbers of the encoder for each of the code's (two for a VAE).
        dropout: Share of the hidden units that are dropped before each activation; with 0 there is no such layer.
        decoder_hidden: Units of the decoder's hidden layers; those of the encoder in reverse by default.
        activation: A key of :data:`osculate.networks.activations.ACTIVATIONS`.
        initialisation: "orthogonal" keeps the size of signals and gradients through any number of layers; "torch" is
            the default of torch's layers, which shrinks the signal of a tanh network by 1.7 per layer; "small" is
            N(0, 0.01²), which shrinks a signal of 500 units to a fifth in each layer.
        floor: The smallest standard deviation of a pixel, where a variance is modelled too.

    Raises:
        ValueError: a size that is not positive, an unknown activation or initialisation.

    >>> encoder, decoder = mlp_coders((1, 4, 4), latent=3, hidden=(8,))
    >>> decoder(encoder(torch.zeros(5, 1, 4, 4))).shape
    torch.Size([5, 1, 4, 4])
    """
    _require_sizes(latent=latent, outputs=outputs, codes=codes, **{f"hidden[{n}]": h for n, h in enumerate(hidden)})
    size = math.prod(input_shape)
    shape = (outputs * input_shape[0], *input_shape[1:])
    backwards = hidden[::-1] if decoder_hidden is None else decoder_hidden
    encoder = _chain([size, *hidden, codes * latent], dropout, activation)
    decoder = _chain([latent, *backwards, outputs * size], dropout, activation)
    initialise([*encoder, *decoder], initialisation, activation)
    above = [VarianceFloor(floor)] if outputs == 2 else []
    return nn.Sequential(nn.Flatten(), *encoder), nn.Sequential(*decoder, nn.Unflatten(1, shape), *above)


def _chain(sizes: Sequence[int], dropout: float, activation: str) -> list[nn.Module]:
    layers: list[nn.Module] = [nn.Linear(sizes[0], sizes[1])]
    for before, after in zip(sizes[1:], sizes[2:], strict=False):
        layers += [*([nn.Dropout(dropout)] if dropout else []), activation_layer(activation), nn.Linear(before, after)]
    return layers


def conv_coders(
    input_shape: Sequence[int],
    latent: int = 2,
    width: int = 16,
    depth: int = 3,
    outputs: int = 1,
    codes: int = 1,
    residual: bool = False,
    dropout: float = 0.0,
    activation: str = "tanh",
    initialisation: str = "torch",
    floor: float = FLOOR,
    channels: int | None = None,
) -> Coders:
    """Convolutional coders for any resolution: strided convolutions down, repeated pixels and convolutions up.

    Args:
        input_shape: (channels, height, width) of the images: 1 × 28 × 28, 3 × 32 × 32, 3 × 64 × 64, …
        latent: K.
        width: Channels after the first convolution; doubled by each further one, up to eight times as many.
        depth: Number of times the resolution is halved.
        outputs: Channels of the decoder for each of the image's (two where a variance is modelled too, which
            :class:`VarianceFloor` keeps above a floor).
        codes: Numbers of the encoder for each of the code's (two for a VAE).
        residual: True for a residual block with group normalisation after each convolution.
        dropout: Share of the inputs of each activation that is dropped; with 0 there is no such layer.
        activation: Activation between layers; residual blocks have their own.
        initialisation: Initialisation of the other layers, as in :func:`mlp_coders`.
        floor: Smallest standard deviation of a pixel, with two outputs.
        channels: Channels of the decoder in all; by default ``outputs`` for each of the image's.

    Raises:
        ValueError: the inputs are not images, a size is not positive, or an unknown name.

    >>> encoder, decoder = conv_coders((3, 32, 32), latent=8, width=4, residual=True)
    >>> decoder(encoder(torch.zeros(2, 3, 32, 32))).shape
    torch.Size([2, 3, 32, 32])
    """
    _require_sizes(outputs=outputs, codes=codes)
    shown = image_channels("conv_autoencoder", input_shape, "mlp_autoencoder")
    channels = outputs * shown if channels is None else channels
    _require_sizes(channels=channels, latent=latent, width=width, depth=depth)
    sizes = [tuple(input_shape[1:])]
    for _ in range(depth):
        sizes.append(tuple(-(-side // 2) for side in sizes[-1]))
    widths = [width * min(2**level, 8) for level in range(depth)]
    inner = (widths[-1], *sizes[-1])
    act = lambda: [*([nn.Dropout(dropout)] if dropout else []), activation_layer(activation)]  # noqa: E731
    down: list[nn.Module] = []
    for before, after in zip([shown, *widths], widths, strict=False):
        down += [nn.Conv2d(before, after, 3, 2, padding=1), *act(), *([Residual(after)] if residual else [])]
    up: list[nn.Module] = []
    for before, after, size in zip(widths[::-1], [*widths[-2::-1], channels], sizes[-2::-1], strict=True):
        block = [Residual(before)] if residual else []
        up += [*act(), *block, nn.Upsample(size=size), nn.Conv2d(before, after, 3, padding=1)]
    encoder = nn.Sequential(*down, nn.Flatten(), nn.Linear(math.prod(inner), codes * latent))
    decoder = nn.Sequential(nn.Linear(latent, math.prod(inner)), nn.Unflatten(1, inner), *up)
    initialise([*encoder, *decoder], initialisation, activation)
    return encoder, nn.Sequential(decoder, VarianceFloor(floor)) if outputs == 2 else decoder


class ConvAutoencoder(nn.Sequential):
    """An encoder to K numbers and a decoder back to the image, as submodules of these names.

    Strided convolutions halve any resolution ``depth`` times; the decoder repeats pixels up to each of the same sizes
    and convolves.

    Args:
        input_shape: (channels, height, width) of the images.
        outputs: Output channels: those of the image, or two for each where a variance is modelled too.
        latent: K, the width of the bottleneck.
        width: Channels after the first convolution; doubled by each further one.
        depth: Number of times the resolution is halved.

    Raises:
        ValueError: the inputs are not images, or a size is not positive.

    >>> net = ConvAutoencoder((1, 9, 6), 1, latent=2, width=2, depth=2)
    >>> net.encoder(torch.zeros(5, 1, 9, 6)).shape, net(torch.zeros(5, 1, 9, 6)).shape
    (torch.Size([5, 2]), torch.Size([5, 1, 9, 6]))
    """

    def __init__(
        self, input_shape: Sequence[int], outputs: int, latent: int = 16, width: int = 16, depth: int = 3
    ) -> None:
        encoder, decoder = conv_coders(input_shape, latent, width, depth, channels=outputs)
        super().__init__(OrderedDict(encoder=encoder, decoder=decoder))


class VarianceFloor(nn.Module):
    r"""A smooth lower bound 2 log σ_0 on the log variances s, the second half of the channels; means are unchanged.

    .. math:: s \leftarrow 2 \log \sigma_0 + \operatorname{softplus}(s - 2 \log \sigma_0)

    Without it the density of constant pixels, such as the border of a digit, is unbounded.

    Args:
        least: σ_0, in units of the data.

    >>> VarianceFloor(0.1)(torch.tensor([[3.0, -50.0]])).exp().sqrt()[0, 1]
    tensor(0.1000)
    """

    def __init__(self, least: float = FLOOR) -> None:
        super().__init__()
        if not least > 0:
            raise ValueError(f"a standard deviation is positive, got a floor of {least}.")
        self.least = 2 * math.log(least)

    def forward(self, f: Float[Tensor, "N twoC *D"]) -> Float[Tensor, "N twoC *D"]:
        """f with its second half of channels above the floor."""
        mean, log_variance = f.chunk(2, 1)
        return torch.cat([mean, self.least + F.softplus(log_variance - self.least)], 1)


class Residual(nn.Module):
    """x + F(x), F a group normalisation and two convolutions.

    Args:
        channels: Number of channels of x.

    >>> Residual(4)(torch.zeros(2, 4, 5, 5)).shape
    torch.Size([2, 4, 5, 5])
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        groups = math.gcd(channels, 8)  # groups need more than one channel
        self.norm = nn.GroupNorm(groups // 2 if groups == channels > 1 else groups, channels)
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.act = nn.SiLU()

    def forward(self, x: Tensor) -> Tensor:
        """x + F(x)."""
        return x + self.second(self.act(self.first(self.act(self.norm(x)))))


def _require_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        require_whole(name, size)
