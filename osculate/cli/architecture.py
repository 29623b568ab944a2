"""The network for ``osculate train``: the named one, or one that fits the method and the data."""

from collections.abc import Mapping
from typing import Any

from osculate import autoencoders
from osculate.cli.checkpoint import ALIASES
from osculate.cli.methods import MethodOptions

#: Share of the hidden units of an autoencoder that dropout drops, as published. [miani2022]
DROPOUT = 0.2
#: Other networks with dropout, and its probability.
DROPPING, SHARE = ("mlp", "lenet", "cnn"), 0.1
#: Methods that train an autoencoder of images if no network is named.
OF_AUTOENCODERS = ("online_laplace", "vae")
#: Networks with ReLU by default, and the activation that replaces it for methods that need second derivatives.
KINKED, SMOOTH = ("lenet", "cnn"), "shifted_softplus"
#: Hidden units for HMC, which takes thousands of passes over the data.
FEW = [10]


def network_name(model: str, how: MethodOptions, shape: tuple[int, ...], has_targets: bool) -> str:
    """The name of the network to train: the given one, or one that fits the method and the data.

    Raises:
        ValueError: the method or the network does not take some option.
    """
    how.check()
    if model != "auto":
        name = model
    elif how.method == "vae" or not has_targets or (len(shape) == 3 and how.method in OF_AUTOENCODERS):
        name = "mlp_autoencoder"
    elif how.method != "hmc" and len(shape) == 3 and shape[1] == shape[2]:
        name = "lenet" if shape[1] == 28 else "cnn"
    else:
        name = "mlp"
    built_in = is_autoencoder(name)
    if how.method == "vae" and not built_in and ":" not in name:
        raise ValueError(
            f"--method vae trains an autoencoder, but --model {name} is another network: use "
            f"{' or '.join(autoencoders.REGISTRY)}, or leave --model out."
        )
    require_targets(name, has_targets)
    if how.latent is not None and not built_in:
        raise ValueError(
            f"--latent is for the built-in autoencoders, but --model {name} is another network: use "
            f"{' or '.join(autoencoders.REGISTRY)}, or leave --latent out."
        )
    return name


def require_targets(name: str, has_targets: bool) -> None:
    """Raise ValueError if a built-in network learns from targets and the data have none."""
    if not has_targets and not is_autoencoder(name) and ":" not in name:
        raise ValueError(
            f"--model {name} learns from targets, but the data have no y: add it to the file, or use "
            f"{' or '.join(autoencoders.REGISTRY)}, which learn from X alone."
        )


def is_autoencoder(name: str) -> bool:
    """Return True if a built-in network is an autoencoder."""
    return ALIASES.get(name, name) in autoencoders.REGISTRY


def network_options(name: str, given: Mapping[str, Any], how: MethodOptions, chosen: bool = True) -> dict[str, Any]:
    """Keyword arguments of the network, including those that the method needs.

    Args:
        name: the network.
        given: arguments from the user, which take precedence.
        how: the method.
        chosen: True if the user has named the network; otherwise its arguments are adapted to the method.

    Raises:
        ValueError: mc_dropout is used with a built-in network without dropout.
    """
    follows: dict[str, Any] = {}
    if is_autoencoder(name):
        follows = {} if how.latent is None else {"latent": how.latent}
        if how.method == "vae":
            follows |= how.coded.network
        if how.method == "mc_dropout":
            follows["dropout"] = DROPOUT
    elif how.method == "mc_dropout" and ":" not in name:
        if name not in DROPPING:
            raise ValueError(
                f"--method mc_dropout needs dropout, but --model {name} has none: use --model {', '.join(DROPPING)} "
                "or an autoencoder, or your own network with torch.nn.Dropout between its layers."
            )
        follows["dropout"] = SHARE
    elif not chosen and how.method == "variational_laplace" and name in KINKED:
        follows["activation"] = SMOOTH
    elif not chosen and how.method == "hmc":
        follows["hidden"] = FEW
    return {**follows, **given}
