"""Computations that survive an interruption: a file of what their parts have reached, such as sums over data."""

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.utils._pytree import tree_leaves

from osculate.batches import hashed_rows
from osculate.curvature.plan import Plan
from osculate.distributed import ALONE, Group
from osculate.files import locked
from osculate.inputs import Inputs, take
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
#: Names of the rows in sums of several processes, and of the seed of random columns, and the end of that of a state of
#: a second pass.
ROWS, SEED, SECOND = "rows.summed", "random.seed", ".corrected"
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

    Attributes:
        others: Files of another number of processes from which these go on; removed with the file.

    Raises:
        ValueError: another process uses the file, or it is damaged.
    """

    def __init__(self, path: Path | None, every: str | int, fresh: bool = False) -> None:
        self.path, self._fresh = path, fresh
        self.others: list[Path] = []
        self._seconds, self._pieces = interval(every)
        self._parts: dict[str, Callable[[], Part]] = {}
        self._unwritten, self._due = 0, time.monotonic() + self._seconds
        self._lock = ExitStack()

    def __fspath__(self) -> str:
        return str(self.path)

    def __enter__(self) -> "Checkpoint":
        if self.path is not None:
            if self.path.is_dir():
                raise ValueError(f"the checkpoint {str(self.path)!r} is a folder: name a file in it.")
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
                for path in (self.path, *self.others):
                    path.unlink(missing_ok=True)

    def _read(self, path: Path) -> None:
        self._parts = {name: partial(_same, found) for name, found in _parts_of(path).items()}

    def adopt(self, others: list[Path], processes: Group) -> None:
        """Go on from the sums of another number of processes; what follows on the sums begins anew.

        Args:
            others: Their files, one for each.
            processes: These processes, each of which takes the sums of some.
        """
        self.others, found = others, [_parts_of(path).get("fit") for path in others]
        parts = [part for part in found if part is not None]
        for part in parts:
            require_header(self.path or "", part.facts, SUMS)
        whole = next((part for part in parts if part.facts["finished"]), None)
        mine = [whole] if whole else parts[processes.rank :: processes.size]  # the sums of a whole pass are of all
        if not mine:
            return
        tensors: dict[str, Tensor] = {}
        for part in mine:
            for name, tensor in part.tensors.items():
                if whole and name == ROWS:
                    continue
                if name == SEED:
                    tensors[name] = tensor
                elif name == ROWS and name in tensors:
                    tensors[name] = torch.cat([tensors[name], tensor])
                else:
                    tensors[name] = tensors[name] + tensor if name in tensors else tensor
        tensors = {n: torch.zeros_like(t) if whole and n.endswith(SECOND) else t for n, t in tensors.items()}
        finished = int(whole is not None)
        size = sum(part.facts["size"] for part in mine)
        facts = {"position": [finished, 0], "finished": finished, "data": "", "size": size}
        self._parts = {"fit": partial(_same, Part(tensors, facts, mine[0].about))}

    @property
    def finished(self) -> int:
        """Number of whole passes in the sums of the fit."""
        return int(self._parts["fit"]().facts.get("finished", 0)) if "fit" in self._parts else 0

    @property
    def has_rows(self) -> bool:
        """True if the sums of the fit are to know their rows, as those of several processes do."""
        return bool(self.others) or ("fit" in self._parts and ROWS in self._parts["fit"]().tensors)

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
            theirs = found.about.get(key)
            if theirs is None and key.startswith("data"):  # data that could only be read in order: by their digest
                continue
            if theirs != mine:
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


def _parts_of(path: Path) -> dict[str, Part]:
    """The parts in a file."""
    metadata, tensors = read_tensors(path)
    if HEADER not in metadata:
        raise ValueError(f"{str(path)!r} is a file of another kind, not the checkpoint of a fit: name another file.")
    header = header_of(path, metadata, HEADER)
    require_header(path, header, PARTS)
    each: dict[str, dict[str, Tensor]] = {name: {} for name in header["parts"]}
    for name, tensor in tensors.items():
        part, _, rest = name.partition(".")
        require(part in each, path, f"it has {name!r}")
        # as aligned in memory as those of an uninterrupted computation: the rounding of products depends on it
        each[part][rest] = tensor.clone()
    return {name: Part(each[name], said["facts"], said["about"]) for name, said in header["parts"].items()}


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
    path = None if checkpoint is None else Path(checkpoint)
    with Checkpoint(None if path is None else processes.own(path), every) as file:
        if path is not None and (others := _others(path, file, processes)):
            file.adopt(others, processes)
        yield file


def _others(path: Path, file: Checkpoint, processes: Group) -> list[Path]:
    """The files to go on from in place of one's own: of another number of processes, or of another pass.

    A set of files serves without those of processes that had nothing to write, such as one without data: rows that are
    in no sums are summed anew. A whole set comes first, that of these processes before others, then the newest.

    Raises:
        ValueError: the file of a fit in one process, whose rows are not known.
    """
    if path.exists():
        if processes.alone:
            return []
        raise ValueError(
            f"the fit in {str(path)!r} was begun in one process, and these are {processes.size}: go on in one, or "
            "remove the file to begin anew."
        )
    found: dict[int, list[Path]] = {}
    for each in path.parent.glob(f"{path.stem}.*-of-*{path.suffix}"):
        if numbers := re.fullmatch(r"\d+-of-(\d+)", each.name.removesuffix(path.suffix)[len(path.stem) + 1 :]):
            found.setdefault(int(numbers[1]), []).append(each)

    def rank(size: int) -> tuple[bool, bool, float]:
        whole = len(found[size]) == size
        return whole, whole and size == processes.size, max(each.stat().st_mtime for each in found[size])

    size = max(found, key=rank, default=processes.size)
    alike = len(set(processes.gather(file.finished))) == 1
    serves = size == processes.size and alike  # each goes on from its own
    return [Path(name) for name in processes.gather([] if serves else [str(each) for each in found.get(size, [])])[0]]


class Sums:
    """Sums over data as a part of a checkpoint.

    Data that were summed before are passed over, and compared with those that were seen by a digest. A resumed fit ends
    with the same bits as an uninterrupted one.

    Attributes:
        finished: Number of passes whose sums are complete.
        seed: Seed of random columns, None for none.

    Args:
        file: The checkpoint.
        name: Name of the part.
        about: Texts by name on which the sums depend.
    """

    def __init__(self, file: Checkpoint, name: str, about: Mapping[str, str]) -> None:
        self._file, self._name, self._about = file, name, dict(about)
        self._seen, self._position, self.finished = (0, 0), (0, 0), 0
        self._chain, self._expected = "", ""
        self.seed: int | None = None
        self._found = file.part(name, about)
        if self._found is not None:
            facts = self._found.facts
            require_header(file.path, facts, SUMS)
            require(len(facts["position"]) == 2, file.path, "its position is no pass and batch")
            self._position, self._expected = tuple(facts["position"]), facts["data"]
            self.finished = facts["finished"]
            if SEED in self._found.tensors:
                self.seed = int(self._found.tensors[SEED])

    def restored(self, curvature: Curvature, statistics: dict[str, Tensor]) -> tuple[Curvature, int]:
        """The curvature of the file, if there is one, and the number of data; statistics are filled in place.

        Raises:
            ValueError: the file holds other tensors.
        """
        if self._found is None:
            return curvature, 0
        parts: dict[str, dict[str, Tensor]] = {"curvature": {}, "statistics": {}}
        for name, tensor in self._found.tensors.items():
            if name in (ROWS, SEED):
                continue
            kind, _, rest = name.partition(".")
            require(kind in parts, self._file.path, f"it has {name!r}")
            parts[kind][rest] = tensor
        device = next(iter(curvature.tensors().values())).device
        statistics.update({name: tensor.to(device, copy=True) for name, tensor in parts["statistics"].items()})
        return with_state(self._file, curvature, parts["curvature"]), self._found.facts["size"]

    def left(
        self, number: int, batches: Iterable[tuple[Inputs, Tensor]]
    ) -> Iterator[tuple[int, tuple[Inputs, Tensor], Tensor]]:
        """The batches of a pass that are not summed yet, with their numbers and those of their rows."""
        for batch, data, rows in numbered(batches):
            if not self.done(number, batch, data):
                yield batch, data, rows
        self.end_of_pass(number)

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
            return False
        if (number, batch + 1) == self._position and self._chain != self._expected:
            raise ValueError(
                f"the {self._name} in {str(self._file.path)!r} was begun with other data, or with the same in another "
                "order: go on with the same data in a fixed order, or remove the file to begin anew."
            )
        return True

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

        def reached() -> Part:
            tensors = {f"curvature.{name}": tensor for name, tensor in curvature.tensors().items()}
            tensors |= {f"statistics.{name}": tensor for name, tensor in statistics.items()}
            tensors |= ({} if self.seed is None else {SEED: torch.tensor(self.seed)}) | self._more()
            facts = {"position": position, "finished": finished, "data": chain, "size": size}
            return Part(tensors, facts, self._about)

        self._file.keep(self._name, reached, piece)

    def _more(self) -> dict[str, Tensor]:
        """Further tensors of the part."""
        return {}


class SharedSums(Sums):
    """The sums of one of several processes, which know the rows that are in them.

    So another number of processes can go on, whatever the share of each. A row that occurs several times is left out
    as often as it was summed.

    Args:
        file: The checkpoint.
        name: Name of the part.
        about: Texts by name on which the sums depend; those about the data only where the processes are the same.
        processes: The processes.
        again: Makes the batches of this process once more.
    """

    def __init__(
        self,
        file: Checkpoint,
        name: str,
        about: Mapping[str, str],
        processes: Group,
        again: Callable[[], Iterable[tuple[Inputs, Tensor]]],
    ) -> None:
        if file.others:
            about = {key: words for key, words in about.items() if not key.startswith("data")}
        super().__init__(file, name, about)
        self._processes, self._again = processes, again
        self._rows: list[Tensor] = []
        if self._found is not None and ROWS in self._found.tensors:
            self._rows = [self._found.tensors[ROWS]]

    def left(
        self, number: int, batches: Iterable[tuple[Inputs, Tensor]]
    ) -> Iterator[tuple[int, tuple[Inputs, Tensor], Tensor]]:
        """The rows of a pass that are not summed yet, in batches, with the numbers of batches and rows.

        Raises:
            ValueError: the data lack rows that were summed.
        """
        if number < self.finished:
            return
        if number > self._position[0]:
            self._rows.clear()
        done = self._done()
        for batch, (x, y), rows in numbered(batches):
            mask = None if done is None else ~done[rows]
            if mask is not None and not bool(mask.all()):
                left = mask.nonzero().squeeze(-1)
                if not len(left):
                    continue
                x, y, rows = take(x, left), y[left], rows[left]
            self._seen = number, batch + 1
            self._rows.append(hashed_rows(x, y))
            yield batch, (x, y), rows

    def _done(self) -> Tensor | None:
        """A mask of the rows of this process that are in the sums; None where no process has any."""
        own = torch.cat(self._rows) if self._rows else torch.zeros(0, dtype=torch.long)
        if not sum(self._processes.gather(len(own))):
            return None
        with self._processes.together():
            here = [hashed_rows(x, y) for x, y in self._again()]
        mine = torch.cat(here) if here else torch.zeros(0, dtype=torch.long)
        if all(self._processes.gather(not self._file.others and len(own) == int(among(mine, own).sum()))):
            return among(mine, own)  # the same shares as before
        everywhere = self._processes.gather((mine, own))
        sums = torch.cat([rows for _, rows in everywhere])
        found = among(torch.cat([rows for rows, _ in everywhere]), sums)
        if int(found.sum()) != len(sums):
            raise ValueError(
                f"the {self._name} in {str(self._file.path)!r} was begun with other data: of {len(sums):,} rows in "
                f"its sums {len(sums) - int(found.sum()):,} are missing. Go on with the same data, or remove "
                "the files of all processes to begin anew."
            )
        return found.split([len(rows) for rows, _ in everywhere])[self._processes.rank]

    def _more(self) -> dict[str, Tensor]:
        return {ROWS: torch.cat(self._rows)} if self._rows else {}


def numbered(batches: Iterable[tuple[Inputs, Tensor]]) -> Iterator[tuple[int, tuple[Inputs, Tensor], Tensor]]:
    """Batches with their numbers, and those of their rows."""
    start = 0
    for batch, (x, y) in enumerate(batches):
        yield batch, (x, y), torch.arange(start, start + len(y))
        start += len(y)


def among(rows: Int[Tensor, " n"], others: Int[Tensor, " m"]) -> Bool[Tensor, " n"]:
    """A mask of the rows that are among others, each as often as it is there, the first ones first."""
    values, inverse, counts = torch.cat([rows, others]).unique(return_inverse=True, return_counts=True)
    mine, theirs = inverse[: len(rows)], inverse[len(rows) :]
    order = mine.argsort(stable=True)
    own = torch.zeros_like(counts).index_add_(0, mine, torch.ones_like(mine))
    first = own.cumsum(0) - own
    occurrence = torch.empty_like(mine)
    occurrence[order] = torch.arange(len(mine)) - first[mine[order]]
    available = torch.zeros_like(counts).index_add_(0, theirs, torch.ones_like(theirs))
    return occurrence < available[mine]


def with_state(file: Checkpoint, curvature: Curvature, tensors: Mapping[str, Tensor]) -> Curvature:
    """The same matrix with the state that a checkpoint holds.

    Raises:
        ValueError: the state has other names or shapes.
    """
    mine = curvature.tensors()
    require_like(file.path, tensors, mine, "the curvature")
    return curvature.with_tensors({name: each.to(mine[name].device, copy=True) for name, each in tensors.items()})


def dependencies(network: Network, plan: Plan, with_positions: bool = True, **settings: object) -> dict[str, str]:
    """Texts on which the sums of a fit depend: a digest of weights and buffers, the parameters, and settings.

    Args:
        network: The network.
        plan: Blocks of the network.
        with_positions: True for the positions of all parameters in their blocks, whose digest takes longer than that of
            the weights; False for their names alone.
        settings: Further settings by name.
    """
    weights = digest({}, {name: tensor.detach().cpu() for name, tensor in network_tensors(network.module).items()})
    names = hashlib.sha256("\n".join(network.space.names).encode()).hexdigest()
    each = (part for block in plan.blocks for part in (block.positions, block.kept) if part is not None)
    blocks = digest(
        {} if with_positions else {"blocks": str([(block.kind, block.names) for block in plan.blocks])},
        {str(number): part.cpu() for number, part in enumerate(each)} if with_positions else {},
    )
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
