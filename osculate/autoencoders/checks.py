"""What is no image and no number of draws, refused in words."""

from typing import Any

import torch
from torch import Tensor

from osculate.posteriors import Chains, Posterior, Snapshots

#: Of what at least one is needed, by the name of the argument.
SOME = {
    "samples": "sample",
    "codes": "code for each network",
    "batch_size": "input at a time",
    "n": "image",
    "places": "image along each side",
}


def require_inputs(x: Any) -> None:
    """Refuse what is no tensor (N, …) of finite floating values.

    Raises:
        TypeError: no tensor, or one of whole numbers.
        ValueError: a single input, none, or values that are not finite.
    """
    require_floats(x)
    if x.ndim < 2:
        raise ValueError(f"the inputs have shape {tuple(x.shape)}: the first axis counts them, so pass x.unsqueeze(0).")
    if not len(x):
        raise ValueError("there are no inputs: pass a tensor with at least one row.")
    if not bool(torch.isfinite(x).all()):
        raise ValueError("the inputs hold NaN or infinite values; impute them with osc.tasks.imputation.")


def require_floats(x: Any) -> None:
    """Refuse what is no tensor of floating values.

    Raises:
        TypeError: it is none.
    """
    if not isinstance(x, Tensor):
        raise TypeError(f"the inputs are a {type(x).__name__}: pass a tensor, of an array torch.from_numpy(x).")
    if not x.is_floating_point():
        raise TypeError(
            f"the inputs are of {x.dtype}, and networks take floating values: pass x.float(), divided by 255 where the "
            "network was trained on values up to 1."
        )


def require_some(**numbers: int | None) -> None:
    """Refuse fewer than one of what is drawn."""
    for name, value in numbers.items():
        if value is not None and value < 1:
            raise ValueError(f"at least one {SOME[name]} is needed, got {name}={value}.")


def require_one_posterior_of_codes(q: Posterior) -> None:
    """Refuse draws of the parameters of a VAE's own q(z|h): how the codes of a draw are distributed is not known then.

    Raises:
        ValueError: they are drawn.
    """
    if isinstance(q, Snapshots | Chains) and any(name.startswith("posterior.") for name in q.network.space.names):
        raise ValueError(
            f"the networks of these {type(q).__name__} differ in the parameters of q(z|x) itself: take an ensemble, a "
            "posterior over the decoder, or codes without parameters of their own, such as GaussianCodes()."
        )
