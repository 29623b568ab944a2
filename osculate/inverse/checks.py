"""Measurements that a reconstruction can use, and the words for those that it cannot."""

import torch
from torch import Tensor

from osculate.checks import require_positive
from osculate.inverse.operators import LinearOperator


def require_data(operator: LinearOperator, data: Tensor, noise: float | None = None) -> None:
    """Refuse measurements that are not those of the operator, and a noise that is none.

    Raises:
        ValueError: this is no operator; the data have another shape or type, hold NaN, or are all zero; the noise is
            not positive.
    """
    if not isinstance(operator, LinearOperator):
        raise ValueError(
            f"the first argument is an operator such as RayTransform((H, W), angles) or Matrix(matrix, (H, W)), not "
            f"{operator if isinstance(operator, type) else type(operator)}."
        )
    if not isinstance(data, Tensor) or not data.is_floating_point():
        found = (
            f"a tensor of {data.dtype}: take data.float()"
            if isinstance(data, Tensor)
            else f"{type(data).__name__}: take torch.as_tensor"
        )
        raise ValueError(f"measurements are a tensor of floating type, not {found}.")
    if data.dtype in (torch.float16, torch.bfloat16):
        raise ValueError(f"measurements are in single or double precision, not {data.dtype}: take data.float().")
    if operator.pixels < 4:
        raise ValueError(f"an image of {operator.image_shape} has too few pixels for a network of convolutions.")
    if tuple(data.shape) != operator.data_shape:
        raise ValueError(
            f"measurements of {operator!r} have shape {operator.data_shape}, not {tuple(data.shape)}: check the "
            "number of angles and detectors, or transpose them."
        )
    if bad := int((~data.isfinite()).sum()):
        raise ValueError(f"{bad} of {data.numel()} measurements are NaN or infinite: leave them out, or repair them.")
    if not bool(data.any()):
        raise ValueError("all measurements are zero: there is nothing to reconstruct from.")
    if noise is not None:
        require_positive("the noise (a standard deviation, in the units of the measurements)", noise)
