"""Computations that survive an interruption: a file of what their parts have reached, such as sums over data."""

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves

from osculate.curvature.plan import Plan
from osculate.distributed import ALONE, Group
from osculate.files import locked
from osculate.inputs import Inputs
from osculate.parameters import Network
from osculate.schema import many, mapping, record, require, require_header, require_like, text, whole
from osculate.settings import described
from osculate.structures import Curvature
from osculate.tensorfiles import digest, header_of, network_tensors, read_tensors, write_tensors

HEADER = "osculate.sums"
#: Seconds in the units of an interval.
UNITS = {"s": 1, "sec": 1, "min": 60, "h": 3600}
#: Header of a file, and of the sums in it.
PARTS = {"parts": mapping(record(about=mapping(text), facts=mapping()))}
SUMS = {"position": many(whole()), "finished": whole(), "data": text, "size": whole()}
#: Longest text by which a setting is compared; longer ones are compared by a digest.
LONGEST = 200


def interval(every: str | int) -> tuple[float, int]:
    """Seconds and pieces of work between two writes.

    Args:
        every: A number of pieces, such as batches, or a time such as "30s", "5min" or "1h".

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


@dataclass(frozen=True)
class Part:
    """The state that one part of a computation has reached.

    Attributes:
        tensors: Tensors by name.
        facts: Numbers, texts and lists of them.
        about: Texts by name on which it depends, such as a digest of the weights.
    """

    tensors: Mapping[str, Tensor] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    about: Mapping[str, str] = field(default_factory=dict)


class Checkpoint(os.PathLike):
    """The file of a computation: what its parts have reached, written at intervals, and read if there is one.

    It is used in a ``with`` block, in which no other process can use the file; the block removes the file where it ends
    without an error.

    Args:
        path: The file; None for none, so that nothing is found and nothing written.
        every: See :func:`interval`.
        fresh: Begin anew, without what the file holds.

    Raises:
        ValueError: another process uses the file, or it is damaged.
    """

    def __init__(self, path: Path | None, every: str | int, fresh: bool = False) -> None:
        self.path, self._fresh = path, fresh
        self._seconds, self._pieces = interval(every)
        self._parts: dict[str, Callable[[], Part]] = {}
        self._unwritten, self._due = 0, time.monotonic() + self._seconds
        self._lock = ExitStack()

    def __fspath__(self) -> str:
        return str(self.path)

    def __enter__(self) -> "Checkpoint":
        if self.path is not None:
            self._lock.enter_context(locked(self.path))
            try:
                if self._fresh:
                    self.path.unlink(missing_ok=True)
                elif self.path.exists():
                    self._read(self.path)
            except BaseException:
                self._lock.close()
                raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with self._lock:
            if self.path is not None and kind is None:
                self.path.unlink(missing_ok=True)

    def _read(self, path: Path) -> None:
        metadata, tensors = read_tensors(path)
        require(HEADER in metadata, path, "it is no checkpoint of a fit")
        header = header_of(path, metadata, HEADER)
        require_header(path, header, PARTS)
        each: dict[str, dict[str, Tensor]] = {name: {} for name in header["parts"]}
        for name, tensor in tensors.items():
            part, _, rest = name.partition(".")
            require(part in each, path, f"it has {name!r}")
            # as aligned in memory as those of an uninterrupted computation: the rounding of products depends on it
            each[part][rest] = tensor.clone()
        for name, said in header["parts"].items():
            found = Part(each[name], said["facts"], said["about"])
            self._parts[name] = partial(_same, found)

    def part(self, name: str, about: Mapping[str, str] | None = None) -> Part | None:
        """Return what the file holds of a part, None for nothing.

        Args:
            name: Name of the part, without a dot.
            about: Texts on which it depends.

        Raises:
            ValueError: it was begun with other ones.
        """
        if name not in self._parts:
            return None
        found = self._parts[name]()
        for key, mine in (about or {}).items():
            if (theirs := found.about.get(key)) != mine:
                other = "other data: " if key.startswith("data") else ""
                raise ValueError(
                    f"the {name} in {str(self.path)!r} was begun with {other}{key}={theirs}, and this one has {mine}: "
                    "go on with the same, or remove the file to begin anew."
                )
        return found

    def keep(self, name: str, reached: Callable[[], Part], piece: bool = True) -> None:
        """Note what a part has reached, and write all parts if it is time.

        Args:
            name: Name of the part, without a dot.
            reached: Makes the part when it is written, then or later.
            piece: A piece of work is done; without, nothing is written.
        """
        if self.path is None:
            return
        self._parts[name] = reached
        self._unwritten += piece
        if piece and self._unwritten >= self._pieces and time.monotonic() >= self._due:
            self.write()

    def forget(self, *names: str) -> None:
        """Leave parts out of what is written from now on."""
        for name in names:
            self._parts.pop(name, None)

    def write(self) -> None:
        """Write all parts, if a piece of work is not in the file yet."""
        if self.path is None or not self._unwritten:
            return
        parts = {name: reached() for name, reached in self._parts.items()}
        tensors = {f"{name}.{key}": each for name, part in parts.items() for key, each in part.tensors.items()}
        said = {name: {"about": dict(part.about), "facts": dict(part.facts)} for name, part in parts.items()}
        write_tensors(self.path, tensors, HEADER, {"parts": said})
        self._unwritten, self._due = 0, time.monotonic() + self._seconds


def _same(part: Part) -> Part:
    return part


@contextmanager
def opened(checkpoint: str | os.PathLike | None, every: str | int, processes: Group = ALONE) -> Iterator[Checkpoint]:
    """The checkpoint of a path; one that is open already is used, and left to who has opened it.

    Args:
        checkpoint: A path, a checkpoint, or None.
        every: See :func:`interval`.
        processes: Processes that share the data: each has a file of its own.
    """
    if isinstance(checkpoint, Checkpoint):
        yield checkpoint
        return
    with Checkpoint(None if checkpoint is None else processes.own(Path(checkpoint)), every) as file:
        yield file


class Sums:
    """Sums over data as a part of a checkpoint.

    Data that were summed before are passed over, and compared with those that were seen by a digest. A resumed fit ends
    with the same bits as an uninterrupted one.

    Attributes:
        finished: Number of passes whose sums are complete.

    Args:
        file: The checkpoint.
        name: Name of the part.
        about: Texts by name on which the sums depend.
        draws: True for random columns: the states of torch's generator and of ``generator`` are then kept.
        generator: Source of random columns, None for torch's own.
    """

    def __init__(
        self,
        file: Checkpoint,
        name: str,
        about: Mapping[str, str],
        draws: bool = False,
        generator: torch.Generator | None = None,
    ) -> None:
        self._file, self._name, self._about, self._generator = file, name, dict(about), generator
        self._draws = draws
        self._seen, self._position, self.finished = (0, 0), (0, 0), 0
        self._chain, self._expected = "", ""
        self._random: dict[str, Tensor] = {}
        self._found = file.part(name, about)
        if self._found is not None:
            facts = self._found.facts
            require_header(file.path, facts, SUMS)
            require(len(facts["position"]) == 2, file.path, "its position is no pass and batch")
            self._position, self._expected = tuple(facts["position"]), facts["data"]
            self.finished = facts["finished"]

    def restored(self, curvature: Curvature, statistics: dict[str, Tensor]) -> tuple[Curvature, int]:
        """The curvature of the file, if there is one, and the number of data; statistics are filled in place.

        Raises:
            ValueError: the file holds other tensors.
        """
        if self._found is None:
            return curvature, 0
        parts: dict[str, dict[str, Tensor]] = {"curvature": {}, "statistics": {}, "random": {}}
        for name, tensor in self._found.tensors.items():
            kind, _, rest = name.partition(".")
            require(kind in parts, self._file.path, f"it has {name!r}")
            parts[kind][rest] = tensor
        device = next(iter(curvature.tensors().values())).device
        statistics.update({name: tensor.to(device, copy=True) for name, tensor in parts["statistics"].items()})
        self._random = parts["random"]
        return with_state(self._file, curvature, parts["curvature"]), self._found.facts["size"]

    def done(self, number: int, batch: int, data: tuple[Inputs, Tensor]) -> bool:
        """True for a batch whose sums are in the file.

        Args:
            number: Index of the pass.
            batch: Index of the batch in it.
            data: The batch.

        Raises:
            ValueError: the data are others than those that were summed.
        """
        self._chain = chained(self._chain, data)
        self._seen = number, batch + 1
        if (number, batch) >= self._position:
            self._restore_randomness()
            return False
        if (number, batch + 1) == self._position and self._chain != self._expected:
            raise ValueError(
                f"the {self._name} in {str(self._file.path)!r} was begun with other data, or with the same in another "
                "order: go on with the same data in a fixed order, or remove the file to begin anew."
            )
        return True

    def _restore_randomness(self) -> None:
        random, self._random = self._random, {}
        try:
            if "default" in random:
                torch.set_rng_state(random["default"])
            if self._generator is not None and "own" in random:
                self._generator.set_state(random["own"])
        except RuntimeError as error:
            path = str(self._file.path)
            raise ValueError(f"{path!r} is damaged: {error}. Remove it to begin anew.") from error

    def end_of_pass(self, number: int) -> None:
        """Raise ValueError if a pass has ended before the position of the file.

        Raises:
            ValueError: there are fewer data than those that were summed.
        """
        if self._position[0] == number and self._seen < self._position:
            raise ValueError(
                f"the {self._name} in {str(self._file.path)!r} was begun with more, other data than there are now: go "
                "on with the same data, or remove the file to begin anew."
            )

    def keep(self, curvature: Curvature, statistics: Mapping[str, Tensor], size: int, piece: bool = True) -> None:
        """Note the sums after a batch, or, as no ``piece``, after the end of a pass."""
        position, finished, chain = list(self._seen), self.finished, self._chain
        random: dict[str, Tensor] = {}
        if self._draws and self._generator is None:
            random["default"] = torch.get_rng_state()
        elif self._draws and self._generator is not None:
            random["own"] = self._generator.get_state()

        def reached() -> Part:
            tensors = {f"curvature.{name}": tensor for name, tensor in curvature.tensors().items()}
            tensors |= {f"statistics.{name}": tensor for name, tensor in statistics.items()}
            tensors |= {f"random.{name}": state for name, state in random.items()}
            facts = {"position": position, "finished": finished, "data": chain, "size": size}
            return Part(tensors, facts, self._about)

        self._file.keep(self._name, reached, piece)


def with_state(file: Checkpoint, curvature: Curvature, tensors: Mapping[str, Tensor]) -> Curvature:
    """The same matrix with the state that a checkpoint holds.

    Raises:
        ValueError: the state has other names or shapes.
    """
    mine = curvature.tensors()
    require_like(file.path, tensors, mine, "the curvature")
    return curvature.with_tensors({name: each.to(mine[name].device, copy=True) for name, each in tensors.items()})


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
        **{name: _text(setting) for name, setting in settings.items()},
    }


def _text(setting: object) -> str:
    """A setting in words, or a digest where these are many."""
    words = json.dumps(described(setting))
    return words if len(words) <= LONGEST else hashlib.sha256(words.encode()).hexdigest()[:16]


def chained(chain: str, data: tuple[Inputs, Tensor]) -> str:
    """A digest of the batches so far."""
    leaves = (each.detach().cpu() for each in tree_leaves(data) if isinstance(each, Tensor))
    return digest({"before": chain}, {str(number): tensor for number, tensor in enumerate(leaves)})
