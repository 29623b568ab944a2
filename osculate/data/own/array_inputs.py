"""Inputs from arrays and images: shape, channel axis and standardisation."""

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from osculate.data.dataset import Scaling, as_inputs
from osculate.data.own.content import Content, Labels
from osculate.registry import choose

#: Places of the channel axis in the source: first after the batch axis, last, or nowhere.
FIRST, LAST, NONE = "first", "last", "none"
#: Numbers of channels by which their axis is recognised.
CHANNELS = (1, 2, 3, 4)
#: Largest value of floating-point images without a warning.
BRIGHTEST = 20.0


@dataclass(frozen=True)
class ArrayInputs:
    """An array of numbers or images.

    Args:
        shape: Shape of one input of the network, for images (channels, height, width).
        channel_axis: Place of the channels in the source, "first", "last" or "none"; "" for other inputs.
        resized: True if images of other sizes are cropped and scaled to this one.
        mean: Training mean of each of the F numbers of a vector; empty if they are not standardised.
        scale: Training standard deviations.
        bytes: True if training inputs were bytes, which are divided by 255; None in schemas that do not say.
    """

    shape: tuple[int, ...]
    channel_axis: str = ""
    resized: bool = False
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    bytes: bool | None = None

    @classmethod
    def of(cls, content: Content, channel_axis: str | None, resized: bool) -> "ArrayInputs":
        """The shape of the inputs, with the channel axis recognised or as the user has chosen.

        Raises:
            ValueError: it is not clear which axis holds the channels.
        """
        x = content.x
        if channel_axis is not None:
            choose("channel axis", channel_axis, (FIRST, LAST))
            if x.ndim != 4:
                raise ValueError(
                    f"channel_axis={channel_axis!r} is for images of shape (N, channels, height, width) or (N, height, "
                    f"width, channels), and the inputs of {content.name} have shape {x.shape}: leave it out."
                )
        if x.ndim == 4:
            axis = channel_axis or _channel_axis(x.shape, content.name)
        else:
            axis = NONE if x.ndim == 3 and x.dtype == np.uint8 else ""
        moved = {LAST: (x.shape[-1], *x.shape[1:-1]), NONE: (1, *x.shape[1:])}
        if axis and x.dtype.kind == "f" and float(np.abs(x).max()) > BRIGHTEST:
            warnings.warn(
                f"the images in {content.name} reach {float(np.abs(x).max()):.4g}, and networks expect 0 to 1: convert "
                "bytes with astype('uint8'), which are divided by 255.",
                stacklevel=2,
            )
        return cls(tuple(moved.get(axis, x.shape[1:])), axis, resized, bytes=x.dtype == np.uint8)

    def fitted(self, content: Content, rows: np.ndarray, standardise: bool) -> "ArrayInputs":
        """The same, with the statistics of these rows if vectors of numbers are to be standardised."""
        if not standardise or len(self.shape) != 1 or content.x.dtype == np.uint8:
            return self
        scaling = Scaling.of(torch.from_numpy(content.x[rows].astype(np.float64)))
        return replace(self, mean=tuple(scaling.mean.tolist()), scale=tuple(scaling.scale.tolist()))

    @property
    def scaling(self) -> Scaling | None:
        """The standardisation, or None."""
        return Scaling(torch.tensor(self.mean), torch.tensor(self.scale)) if self.mean else None

    def tensor(self, content: Content) -> Float[Tensor, "N *F"]:
        """The inputs of a network; bytes are divided by 255, unless training has standardised other numbers.

        Raises:
            ValueError: the shape is another one, also after the channel axis is moved; or training inputs were bytes
                and these are numbers in other units, or the other way round.
        """
        if content.is_table:
            raise ValueError(
                f"{content.name} is a table, and the network was trained on arrays of shape {self.shape}: pass an .npz "
                "file with X."
            )
        x = torch.from_numpy(np.ascontiguousarray(content.x))
        found = tuple(x.shape[1:])
        moved = (found[-1], *found[:-1]) == self.shape  # where both fit, as in training
        if x.ndim == 4 and moved and (found != self.shape or self.channel_axis == LAST):
            x = x.permute(0, 3, 1, 2).contiguous()
        elif x.ndim == 3 and (1, *found) == self.shape:
            x = x[:, None]
        if tuple(x.shape[1:]) != self.shape:
            resize = " or name the size with image_size= (--image-size) in training" if content.labels else ""
            raise ValueError(
                f"the inputs in {content.name!r} have shape {found} each, but the network takes {self.shape}: reshape "
                f"them{resize}."
            )
        if not self.mean:
            self._require_units(x, content.name)
            return as_inputs(x)
        mean, scale = (torch.tensor(each, dtype=torch.float64) for each in (self.mean, self.scale))
        return Scaling(mean, scale).apply(x.double()).float()

    def _require_units(self, x: Tensor, source: str) -> None:
        """Raise ValueError for bytes where training had other vectors, or for 0 to 255 in another type than bytes."""
        if self.bytes is False and len(self.shape) == 1 and x.dtype == torch.uint8:
            raise ValueError(
                f"{source} holds bytes, which are divided by 255, and the network was trained on other numbers: "
                "convert them to the units of the training with astype('float32')."
            )
        reached = float(x.abs().max()) if self.bytes and x.dtype != torch.uint8 and x.numel() else 0.0
        if reached > BRIGHTEST or (reached > 1 and bool((x == x.round()).all())):
            raise ValueError(
                f"{source} reaches {reached:.4g}, and the network was trained on bytes, which are divided by "
                "255: convert it with astype('uint8'), or divide it by 255."
            )

    def labels(self, content: Content) -> Labels:
        """The names of the rows, for tables of predictions."""
        return content.labels

    def lines(self) -> list[tuple[str, str]]:
        """Names and descriptions for the print-out."""
        if self.channel_axis:
            channels, height, width = self.shape
            where = {FIRST: "", LAST: ", moved to the front from the last axis", NONE: ", no channel axis in the data"}
            how = ", cropped and scaled to this size" if self.resized else ""
            plural = "channels" if channels > 1 else "channel"
            text = f"{channels} {plural}{where[self.channel_axis]}, {height} × {width} pixels{how}"
            return [("images", text)]
        how = "standardised by the training rows" if self.mean else "not standardised"
        return [("inputs", f"shape {self.shape}, {how}")]

    def content(self) -> dict[str, Any]:
        """Plain types for JSON."""
        return asdict(self)

    @classmethod
    def from_content(cls, content: Mapping[str, Any]) -> "ArrayInputs":
        """The inputs that :meth:`content` has written."""
        shape, axis, resized = tuple(map(int, content["shape"])), str(content["channel_axis"]), bool(content["resized"])
        mean, scale = (tuple(map(float, content[name])) for name in ("mean", "scale"))
        return cls(shape, axis, resized, mean, scale, content.get("bytes"))


def _channel_axis(shape: tuple[int, ...], source: str) -> str:
    """The place of the channels: the axis of 1 to 4 entries; of two such axes, the one beside a square.

    Raises:
        ValueError: none is, or both are.
    """
    found = [place for place, size in ((FIRST, shape[1]), (LAST, shape[3])) if size in CHANNELS]
    if len(found) == 2:
        square = {FIRST: shape[2] == shape[3], LAST: shape[1] == shape[2]}
        found = [place for place in found if square[place]]
    if len(found) != 1:
        raise ValueError(
            f"the inputs in {source} have shape {shape}, in which the channels may be the axis of {shape[1]} or that "
            f"of {shape[3]}: pass channel_axis='first' or 'last' (--channel-axis)."
        )
    return found[0]
