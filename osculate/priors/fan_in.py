"""The prior under which signals keep their size from layer to layer."""

from collections.abc import Iterable

import torch
from torch import nn

from osculate.parameters import trainable
from osculate.priors.layerwise import Layerwise


def fan_in(
    model: nn.Module, names: Iterable[str] | None = None, scale: float = 1.0, biases: float | None = None
) -> Layerwise:
    r"""θ ~ N(0, scale²/fan-in) for weights and biases of a layer: a precision of fan-in/scale² for each tensor.

    The fan-in of a layer is the number of inputs that one of its outputs adds up, so that outputs have about the
    size of the inputs under the prior. A bias has that of its weight, as if it were the weight of one more input. Other
    parameters, such as those of a normalisation or an embedding, have 1.

    Args:
        model: The network.
        names: Names of the parameters; by default all that require gradients.
        scale: Factor on the prior's standard deviations.
        biases: Precision of the biases; by default that of their weights. Outputs that are not around zero, such as
            the grey values of a photograph or log variances, need a small one.

    Returns:
        One precision for each of these parameter tensors.

    Raises:
        ValueError: no parameter requires gradients, or the scale is zero.

    >>> fan_in(nn.Sequential(nn.Conv2d(3, 8, 5), nn.Flatten(), nn.Linear(8, 2)))
    Layerwise(75, 75, 8, 8)
    """
    chosen = trainable(model) if names is None else tuple(names)
    precisions = torch.tensor([_fan_in(model, name) for name in chosen]) / scale**2
    if biases is not None:
        precisions[["bias" in name.split(".")[-1] for name in chosen]] = biases
    return Layerwise(precisions, chosen)


def _fan_in(model: nn.Module, name: str) -> float:
    *path, own = name.split(".")
    layer = model.get_submodule(".".join(path))
    # in_proj_weight and in_proj_bias, weight_ih_l0 and bias_ih_l0: a bias is named after its weight
    weight = getattr(layer, own.replace("bias", "weight"), None)
    if not isinstance(weight, torch.Tensor) or weight.ndim < 2 or isinstance(layer, nn.Embedding | nn.EmbeddingBag):
        return 1.0
    if isinstance(layer, nn.modules.conv._ConvTransposeNd):  # (in, out/groups, *kernel)
        return float(weight[:, 0].numel() // layer.groups)
    return float(weight[0].numel())
