"""f_θ: plain networks to train, fit and compare. Nothing here is Bayesian, and any other ``nn.Module`` may be used."""

from collections.abc import Callable as _Callable, Sequence as _Sequence

from torch.nn import Module as _Module

from osculate.registry import lookup as _lookup
from osculate.networks.cnn import (
    CNN3C3D as CNN3C3D,
    LeNet as LeNet,
    NormalisedCNN as NormalisedCNN,
    SmallCNN as SmallCNN,
)
from osculate.networks.coders import (
    ConvAutoencoder as ConvAutoencoder,
    VarianceFloor as VarianceFloor,
    conv_coders as conv_coders,
    mlp_coders as mlp_coders,
)
from osculate.networks.mlp import MLP as MLP
from osculate.networks.resnet import FixupResNet as FixupResNet, PreActResNet as PreActResNet, ResNet as ResNet
from osculate.networks.transformer import GPT as GPT, ViT as ViT
from osculate.networks.unet import SkipUNet as SkipUNet, UNet as UNet
from osculate.networks.wrapped import Output as Output, Tempered as Tempered, WithPrior as WithPrior

#: Networks by name: each builds from the shape of one input and the number of outputs.
REGISTRY: dict[str, _Callable[..., _Module]] = {
    "mlp": MLP.for_inputs,
    "lenet": LeNet.for_inputs,
    "cnn": SmallCNN.for_inputs,
    "3c3d": CNN3C3D.for_inputs,
    "normalised_cnn": NormalisedCNN.for_inputs,
    "preact_resnet": PreActResNet.for_inputs,
    "resnet": ResNet.for_inputs,
    "fixup_resnet": FixupResNet.for_inputs,
    "vit": ViT.for_inputs,
    "unet": UNet.for_inputs,
    "autoencoder": ConvAutoencoder,
    "gpt": GPT.for_inputs,
}


def build(name: str, input_shape: _Sequence[int], outputs: int, **options: object) -> _Module:
    """Build a network by its name.

    Args:
        name: A key of :data:`REGISTRY`.
        input_shape: Shape of one input, without the batch axis: ``(13,)`` or ``(1, 28, 28)``.
        outputs: The number of outputs C; output channels of "unet" and "autoencoder", the vocabulary of "gpt".
        **options: Arguments of the network's constructor, for example ``hidden=(50, 50)`` for ``"mlp"``.

    Raises:
        ValueError: the name is unknown, or the network cannot take inputs of that shape.

    >>> build("mlp", (3,), 2, hidden=(5,))[0]
    Linear(in_features=3, out_features=5, bias=True)
    """
    maker = _lookup("network", name, REGISTRY)
    if outputs < 1:
        raise ValueError(f"outputs must be at least 1, got {outputs}.")
    return maker(tuple(input_shape), outputs, **options)
