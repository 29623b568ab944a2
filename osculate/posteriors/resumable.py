"""Sums over data that survive an interruption: partial curvature, and the position in the data."""

import hashlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from osculate.curvature.plan import Plan
from osculate.inputs import Inputs
from osculate.parameters import Network
from osculate.schema import many, mapping, require, require_header, require_like, text, whole
from osculate.settings import described
from osculate.structures import Curvature
from osculate.tensorfiles import digest, header_of, network_tensors, read_tensors, write_tensors

HEADER = "osculate.sums"
#: Seconds in the units of an interval.
UNITS = {"s": 1, "sec": 1, "min": 60, "h": 3600}
#: Header of a file.
SUMS = {"about": mapping(text), "position": many(whole()), "data": text, "size": whole()}


def interval(every: str | int) -> tuple[float, int]:
    """Seconds and batches between two writes.

    Args:
        every: A number of batches, or a time such as "30s", "5min" or "1h".

    Raises:
        ValueError: it is neither.

    >>> interval(10), interval("5min")
    ((0.0, 10), (300.0, 1))
    """
    if isinstance(every, int) and not isinstance(every, bool) and every > 0:
        return 0.0, every
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", str(every))
    if found is None or found[2] not in UNITS or float(found[1]) <= 0:
        raise ValueError(f'every must be a number of batches, or a time such as "30s", "5min" or "1h", got {every!r}.')
    return float(found[1]) * UNITS[found[2]], 1


@dataclass
class Sums:
    """The file of a fit: its sums so far, written at intervals, and read if there is one.

    Data that were summed before are passed over, and compared with those that were seen by a digest. A resumed fit ends
    with the same bits as an uninterrupted one.

    Attributes:
        path: The file; it is removed at the end.
        every: See :func:`interval`.
        about: Texts by name on which the sums depend, such as a digest of the weights.
        draws: True for random columns: the states of torch's generator and of ``generator`` are then kept.
        generator: Source of random columns, None for torch's own.
    """

    path: Path
    every: str | int
    about: Mapping[str, str]
    draws: bool = False
    generator: torch.Generator | None = None
    _position: tuple[int, int] = field(default=(0, 0), init=False)
    _chain: str = field(default="", init=False)
    _expected: str = field(default="", init=False)
    _found: dict[str, Tensor] = field(default_factory=dict, init=False)
    _size: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._seconds, self._batches = interval(self.every)
        self._seen, self._written, self._random = (0, 0), (0, 0), dict[str, Tensor]()
        self._due = time.monotonic() + self._seconds
        if not self.path.exists():
            return
        metadata, tensors = read_tensors(self.path)
        require(HEADER in metadata, self.path, "it is no checkpoint of a fit")
        header = header_of(self.path, metadata, HEADER)
        require_header(self.path, header, SUMS)
        require(len(header["position"]) == 2, self.path, "its position is no pass and batch")
        for name, mine in self.about.items():
            if (theirs := header["about"].get(name)) != mine:
                raise ValueError(
                    f"the fit in {str(self.path)!r} was begun with {name}={theirs}, and this one has {mine}: fit with "
                    "the same, or remove the file to begin anew."
                )
        self._position, self._expected = tuple(header["position"]), header["data"]
        self._found, self._size = tensors, header["size"]

    def restored(self, curvature: Curvature, statistics: dict[str, Tensor]) -> tuple[Curvature, int]:
        """The curvature of the file, if there is one, and the number of data; statistics are filled in place.

        Raises:
            ValueError: the file holds other tensors.
        """
        if not self._found:
            return curvature, 0
        parts: dict[str, dict[str, Tensor]] = {"curvature": {}, "statistics": {}, "random": {}}
        for name, tensor in self._found.items():
            kind, _, rest = name.partition(".")
            require(kind in parts, self.path, f"it has {name!r}")
            parts[kind][rest] = tensor
        require_like(self.path, parts["curvature"], curvature.tensors(), "the curvature")
        device = next(iter(curvature.tensors().values())).device
        statistics.update({name: tensor.to(device) for name, tensor in parts["statistics"].items()})
        self._random = parts["random"]
        # as aligned in memory as those of an uninterrupted fit: the rounding of products depends on it
        moved = {name: tensor.to(device).clone() for name, tensor in parts["curvature"].items()}
        return curvature.with_tensors(moved), self._size

    def done(self, number: int, batch: int, data: tuple[Inputs, Tensor]) -> bool:
        """True for a batch whose sums are in the file.

        Args:
            number: Index of the pass.
            batch: Index of the batch in it.
            data: The batch.

        Raises:
            ValueError: the data are others than those that were summed.
        """
        self._chain = _chained(self._chain, data)
        self._seen = number, batch + 1
        if (number, batch) >= self._position:
            self._restore_randomness()
            return False
        if (number, batch + 1) == self._position and self._chain != self._expected:
            raise ValueError(
                f"the fit in {str(self.path)!r} was begun with other data, or with the same in another order: fit with "
                "the same data in a fixed order, or remove the file to begin anew."
            )
        return True

    def _restore_randomness(self) -> None:
        random, self._random = self._random, {}
        try:
            if "default" in random:
                torch.set_rng_state(random["default"])
            if self.generator is not None and "own" in random:
                self.generator.set_state(random["own"])
        except RuntimeError as error:
            raise ValueError(f"{str(self.path)!r} is damaged: {error}. Remove it to begin anew.") from error

    def end_of_pass(self, number: int) -> None:
        """Raise ValueError if a pass has ended before the position of the file.

        Raises:
            ValueError: there are fewer data than those that were summed.
        """
        if self._position[0] == number and self._seen < self._position:
            raise ValueError(
                f"the fit in {str(self.path)!r} was begun with more, other data than there are now: fit with the same "
                "data, or remove the file to begin anew."
            )

    def beyond(self, number: int) -> bool:
        """True if the file was written in a later pass, so that its curvature has this one complete."""
        return self._position[0] > number

    def keep(self, curvature: Curvature, statistics: Mapping[str, Tensor], size: int, at_end: bool = False) -> None:
        """Write the sums after a batch, if it is time, or at the end of the last pass."""
        number, batch = self._seen
        due = time.monotonic() >= self._due and batch % self._batches == 0
        if self._seen <= max(self._position, self._written) or not (at_end or due):
            return
        tensors = {f"curvature.{name}": tensor for name, tensor in curvature.tensors().items()}
        tensors |= {f"statistics.{name}": tensor for name, tensor in statistics.items()}
        if self.draws:
            tensors["random.default"] = torch.get_rng_state()
            if self.generator is not None:
                tensors["random.own"] = self.generator.get_state()
        header = {"about": dict(self.about), "position": [number, batch], "data": self._chain, "size": size}
        write_tensors(self.path, tensors, HEADER, header)
        self._due, self._written = time.monotonic() + self._seconds, self._seen

    def remove(self) -> None:
        """Remove the file, once the fit is complete."""
        self.path.unlink(missing_ok=True)


def dependencies(network: Network, plan: Plan, **settings: object) -> dict[str, str]:
    """Texts on which the sums of a fit depend: a digest of weights and buffers, the parameters, and settings."""
    weights = digest({}, {name: tensor.detach().cpu() for name, tensor in network_tensors(network.module).items()})
    names = hashlib.sha256("\n".join(network.space.names).encode()).hexdigest()
    each = (part for block in plan.blocks for part in (block.positions, block.kept) if part is not None)
    blocks = digest({}, {str(number): part.cpu() for number, part in enumerate(each)})
    printed = hashlib.sha256(repr(network.module).encode()).hexdigest()
    return {
        "weights": weights[:16],
        "parameters": names[:16],
        "blocks": blocks[:16],
        "network": printed[:16],
        "torch": torch.__version__,
        **{name: json.dumps(described(setting)) for name, setting in settings.items()},
    }


def _chained(chain: str, data: tuple[Inputs, Tensor]) -> str:
    """A digest of the batches so far."""
    leaves = (each.detach().cpu() for each in tree_leaves(data) if isinstance(each, Tensor))
    return digest({"before": chain}, {str(number): tensor for number, tensor in enumerate(leaves)})
