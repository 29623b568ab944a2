"""A convolutional autoencoder: images to a few numbers and back."""

from collections import OrderedDict
from collections.abc import Sequence

from torch import nn

from osculate.networks.coders import convolutional


class ConvAutoencoder(nn.Sequential):
    """An encoder to K numbers and a decoder back to the image, as submodules of these names.

    Strided convolutions halve the resolution ``depth`` times, whatever it is; the decoder repeats pixels up to each of
    the same sizes and convolves.

    Args:
        input_shape: (channels, height, width) of the images.
        outputs: output channels: those of the image, or two for each where a variance is modelled too.
        latent: K, the width of the bottleneck.
        width: channels after the first convolution; doubled by each further one.
        depth: number of times the resolution is halved.

    Raises:
        ValueError: the inputs are not images, or a size is not positive.

    >>> net = ConvAutoencoder((1, 9, 6), 1, latent=2, width=2, depth=2)
    >>> net.encoder(torch.zeros(5, 1, 9, 6)).shape, net(torch.zeros(5, 1, 9, 6)).shape
    (torch.Size([5, 2]), torch.Size([5, 1, 9, 6]))
    """

    def __init__(
        self, input_shape: Sequence[int], outputs: int, latent: int = 16, width: int = 16, depth: int = 3
    ) -> None:
        encoder, decoder = convolutional(input_shape, outputs, latent, latent, width=width, depth=depth)
        super().__init__(OrderedDict(encoder=encoder, decoder=decoder))
