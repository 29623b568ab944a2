"""Autoencoders by name."""

from collections.abc import Callable, Mapping, Sequence

from torch import nn

from osculate.autoencoders.autoencoder import VAE, Autoencoder
from osculate.networks import conv_coders, mlp_coders
from osculate.registry import lookup

#: What makes an encoder and a decoder from the shape of one input, by name.
REGISTRY: Mapping[str, Callable[..., tuple[nn.Module, nn.Module]]] = {
    "mlp_autoencoder": mlp_coders,
    "conv_autoencoder": conv_coders,
}


def build(
    name: str, input_shape: Sequence[int], *, variational: bool = False, prior: str = "normal", **options: object
) -> Autoencoder:
    """Build an autoencoder by its name.

    Args:
        name: a key of :data:`REGISTRY`.
        input_shape: shape of one input, without the batch axis.
        variational: whether it is a :class:`VAE`.
        prior: of the codes of one, a key of ``CODE_PRIORS``.
        **options: of ``osc.networks.mlp_coders`` or ``conv_coders``, for example ``latent=8``.

    Raises:
        ValueError: a name is unknown, or the networks cannot take inputs of that shape.

    >>> build("mlp_autoencoder", (1, 4, 4), hidden=[8])(torch.zeros(3, 1, 4, 4)).shape
    torch.Size([3, 1, 4, 4])
    """
    coders = lookup("autoencoder", name, REGISTRY)
    if variational:
        return VAE(*coders(tuple(input_shape), codes=2, **options), prior=prior)
    return Autoencoder(*coders(tuple(input_shape), **options))
