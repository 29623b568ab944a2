"""The representations that tasks on codes and images take."""

from typing import Any

from osculate.autoencoders import Representation


def require_representation(r: Any, what: str) -> None:
    """Refuse what is none, a posterior above all.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(r, Representation):
        raise TypeError(
            f"{what} is a {type(r).__name__}, not an osc.autoencoders.Representation: make one as Representation(q), "
            "with a posterior q over an osc.autoencoders.Autoencoder."
        )
