"""A convolutional autoencoder: images to a few numbers and back."""

import math
from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from osculate.networks.unet import image_channels


class ConvAutoencoder(nn.Sequential):
    """An encoder to K numbers and a decoder back to the image, as submodules of these names.

    Strided convolutions halve the resolution ``depth`` times, whatever it is; the decoder repeats pixels up to each of
    the same sizes and convolves.

    Args:
        input_shape: (channels, height, width) of the images.
        outputs: output channels: those of the image, or two for each where a variance is modelled too.
        latent: K, the width of the bottleneck.
        width: channels after the first convolution; doubled by each further one.
        depth: how often the resolution is halved.

    Raises:
        ValueError: the inputs are not images, or a size is not positive.

    >>> net = ConvAutoencoder((1, 9, 6), 1, latent=2, width=2, depth=2)
    >>> net.encoder(torch.zeros(5, 1, 9, 6)).shape, net(torch.zeros(5, 1, 9, 6)).shape
    (torch.Size([5, 2]), torch.Size([5, 1, 9, 6]))
    """

    def __init__(
        self, input_shape: Sequence[int], outputs: int, latent: int = 16, width: int = 16, depth: int = 3
    ) -> None:
        channels = image_channels("autoencoder", input_shape)
        if min(latent, width, depth) < 1:
            raise ValueError(
                f"an autoencoder needs a positive latent size, width and depth, not {latent}, {width} and {depth}"
            )
        sizes = [tuple(input_shape[1:])]
        for _ in range(depth):
            sizes.append(tuple(-(-side // 2) for side in sizes[-1]))
        widths = [width * 2**level for level in range(depth)]
        inner = (widths[-1], *sizes[-1])
        down: list[nn.Module] = []
        for before, after in zip([channels, *widths], widths, strict=False):
            down += [nn.Conv2d(before, after, 3, 2, padding=1), nn.Tanh()]
        up: list[nn.Module] = []
        for before, after, size in zip(widths[::-1], [*widths[-2::-1], outputs], sizes[-2::-1], strict=True):
            up += [nn.Tanh(), nn.Upsample(size=size), nn.Conv2d(before, after, 3, padding=1)]
        encoder = nn.Sequential(*down, nn.Flatten(), nn.Linear(math.prod(inner), latent))
        decoder = nn.Sequential(nn.Linear(latent, math.prod(inner)), nn.Unflatten(1, inner), *up)
        super().__init__(OrderedDict(encoder=encoder, decoder=decoder))
