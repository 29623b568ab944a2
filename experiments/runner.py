"""Measure cells over seeds, cache each of them in a file, and tabulate the values."""

import hashlib
import json
import re
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor, nn

import osculate as osc
from experiments.record import Number
from osculate.batches import Data
from osculate.files import write_text
from osculate.progress import track
from osculate.tensorfiles import fill, header_of, network_tensors, read_tensors, write_tensors

#: Entries of a cached cell with the seconds that it took, and with the checksum of the others.
TOOK, CHECKSUM = "seconds", "sha256"
#: Entry of a cell with a result of any form, and marks of what JSON has no form for.
RESULT, TUPLE, PAIRS, TENSOR = "result", "(tuple)", "(pairs)", "(tensor)"
#: Entry of a cached network's header with the values of its training.
HEADER = "osculate_cell"


@dataclass(frozen=True)
class Resumable:
    """Settings of an experiment whose cells may be kept for later runs and other settings.

    Args:
        cells: Folder of the cached cells, which are kept; by default a folder beside the record, until this is written.
    """

    cells: str = field(default="", kw_only=True, metadata={"recorded": False})


class OutOfTime(Exception):
    """The next cell is not begun, because it would not end in time."""


class Runner:
    """Measure the cells of an experiment over seeds, or read them from a cache.

    Attributes:
        seconds: Total time of all cells so far, including the earlier runs that measured cached ones.
        progress: Progress bars are shown.

    Args:
        cells: Folder of the cache; empty to cache nothing.
        progress: Show progress bars.
        version: A digest of all that cells of :meth:`each` depend on beside their job.
        until: Time of :func:`time.monotonic` after which no cell should end: one that is as long as the longest so far
            and would end later raises :class:`OutOfTime`.
    """

    def __init__(self, cells: str = "", progress: bool = False, version: str = "", until: float = inf) -> None:
        self._folder, self.progress, self._version, self.seconds = cells, progress, version, 0.0
        self._until, self._longest = until, 0.0

    def track(self, items: Iterable[Any], title: str) -> Iterator[Any]:
        """Yield the items below a progress bar."""
        every = list(items)
        return track(every, title, len(every), self.progress)

    def each(self, title: str, jobs: Iterable[Sequence[Any]], measure: Callable[..., Any]) -> Iterator[Any]:
        """Yield the result of ``measure`` for each job, from the cache if an interrupted run left it there.

        Args:
            title: Title of the progress bar, and name of the measurement.
            jobs: Words and numbers, the arguments of ``measure``; it may also depend on the settings.
            measure: Returns numbers, words and tensors, in lists, tuples and mappings of any keys.
        """
        for job in self.track(jobs, title):
            yield self.cached(title, job, (self._version,), lambda: {RESULT: measure(*job)})[RESULT]  # noqa: B023

    def over(
        self,
        title: str,
        jobs: Iterable[Sequence[Any]],
        measure: Callable[..., Any],
        kind: str = "",
        about: Sequence[Any] = (),
    ) -> dict[Any, list[Any]]:
        """Call ``measure`` with the values of each job, and collect the results over seeds.

        Args:
            title: Title of the progress bar.
            jobs: Arguments of ``measure``, such as (method, data, seed). The seed comes last.
            measure: Returns the result of one job.
            kind: Name of the measurement; if given, results are mappings and cached by kind, job and ``about``.
            about: Everything else that the results depend on.

        Returns:
            The results by job without its seed (a tuple, or the value itself if it is the only one), one per seed.
        """
        found: dict[Any, list[Any]] = {}
        for job in self.track(jobs, title):
            result = self.cached(kind, job, about, lambda: measure(*job)) if kind else measure(*job)  # noqa: B023
            found.setdefault(job[0] if len(job) == 2 else tuple(job[:-1]), []).append(result)
        return found

    def cached(
        self, kind: str, job: Sequence[Any], about: Sequence[Any], measure: Callable[[], Mapping[str, Any]]
    ) -> dict[str, Any]:
        """Return the values of one cell, from its file if there is a whole one.

        Args:
            kind: Name of the measurement.
            job: Words and numbers that identify the cell; the file is named after them.
            about: Everything else that the values depend on.
            measure: Returns the values, as for :meth:`each`.
        """
        path = self._path(kind, job, about)
        values = read_cell(path) if self._folder else None
        if values is None:
            found, seconds = self._timed(measure)
            values = {**found, TOOK: round(seconds, 2)}
            if self._folder:
                text = json.dumps(_packed(values))
                write_text(path, json.dumps({CHECKSUM: hashlib.sha256(text.encode()).hexdigest(), **json.loads(text)}))
                values = json.loads(text, object_hook=_unpacked)  # as a run that is resumed will read it
        self.seconds += values.pop(TOOK, 0.0)
        return values

    def network(
        self,
        kind: str,
        job: Sequence[Any],
        about: Sequence[Any],
        network: nn.Module,
        train: Callable[[], Mapping[str, Any] | None],
    ) -> dict[str, Any]:
        """Train a network in place, or fill it with cached weights, and return the values of its training.

        Args:
            kind: Name of the measurement.
            job: Words and numbers that identify the network; the file is named after them.
            about: Everything else that the weights depend on.
            network: The network.
            train: Trains it, and returns values to keep beside the weights.
        """
        path = self._path(kind, job, about).with_suffix(".safetensors")
        values = _filled(network, path) if self._folder else None
        if values is None:
            found, seconds = self._timed(train)
            values = {**(found or {}), TOOK: round(seconds, 2)}
            if self._folder:
                write_tensors(path, network_tensors(network), HEADER, values)
        self.seconds += values.pop(TOOK, 0.0)
        return values

    def _timed(self, work: Callable[[], Any]) -> tuple[Any, float]:
        """The result of a cell and its seconds, which include those of the cells in it."""
        if time.monotonic() + self._longest > self._until:
            raise OutOfTime
        before = self.seconds
        found, seconds = timed(work)
        seconds = max(seconds, self.seconds - before)  # cells in it may be of earlier runs
        self.seconds, self._longest = before, max(self._longest, seconds)
        return found, seconds

    def folder(self, kind: str, job: Sequence[Any], about: Sequence[Any]) -> Path | None:
        """Return a folder for checkpoints of a cell's training; None without a cache."""
        return self._path(kind, job, about).with_suffix("") if self._folder else None

    def _path(self, kind: str, job: Sequence[Any], about: Sequence[Any]) -> Path:
        name = "-".join(re.sub(r"[^\w.+]+", "-", str(part)).strip("-") for part in (kind, *job))
        return Path(self._folder) / f"{name}-{hashlib.sha256(json.dumps(list(about)).encode()).hexdigest()[:8]}.json"


def read_cell(path: Path) -> dict[str, Any] | None:
    """The values of a cell; None for no file, and, with a warning, for a damaged one."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        expected = values.pop(CHECKSUM, None)  # cells of earlier versions have none
        text = json.dumps(values)
        whole = expected in (None, hashlib.sha256(text.encode()).hexdigest())
    except FileNotFoundError:
        return None
    except (ValueError, AttributeError, TypeError, RecursionError):
        whole = False
    if not whole:
        _warn_of_damage(path)
        return None
    return json.loads(text, object_hook=_unpacked)


def _packed(value: Any) -> Any:
    """A value in terms of JSON, with marks for tuples, tensors and mappings with keys that are not text."""
    if isinstance(value, Tensor):
        return {TENSOR: [value.tolist(), str(value.dtype).removeprefix("torch.")]}
    if isinstance(value, tuple):
        return {TUPLE: [_packed(part) for part in value]}
    if isinstance(value, Mapping) and not all(isinstance(key, str) for key in value):
        return {PAIRS: [[_packed(key), _packed(part)] for key, part in value.items()]}
    if isinstance(value, Mapping):
        return {key: _packed(part) for key, part in value.items()}
    return [_packed(part) for part in value] if isinstance(value, list) else value


def _unpacked(found: dict[str, Any]) -> Any:
    """The value that a mark of :func:`_packed` stands for."""
    if found.keys() == {TENSOR}:
        return torch.tensor(found[TENSOR][0], dtype=getattr(torch, found[TENSOR][1]))
    return tuple(found[TUPLE]) if found.keys() == {TUPLE} else dict(found[PAIRS]) if found.keys() == {PAIRS} else found


def _filled(network: nn.Module, path: Path) -> dict[str, Any] | None:
    """The values of a network's training after its weights are filled in; None for no file or a damaged one."""
    try:
        metadata, tensors = read_tensors(path)
        values = header_of(path, metadata, HEADER)
        fill(network, tensors, path)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError):
        _warn_of_damage(path)
        return None
    return values


def _warn_of_damage(path: Path) -> None:
    warnings.warn(f"the cell {str(path)!r} is damaged, and is measured again.", stacklevel=4)


class Table(dict[tuple[str, str], list[float]]):
    """Values by row and column, one per seed.

    >>> table = Table()
    >>> for seed in range(2):
    ...     table.add("MAP", {"NLL": 1.0 + seed, "ECE": 0.25})
    >>> table["MAP", "NLL"], table.mean("MAP", "NLL")
    ([1.0, 2.0], 1.5)
    >>> [str(number) for number in table.numbers(printed={("MAP", "NLL"): "1.2"})]
    ['1.5 ± 0.5', '0.25']
    """

    @classmethod
    def of(
        cls,
        runs: Mapping[Any, Sequence[Any]],
        row: Callable[[Any], str] = str,
        values: Callable[[Any], Mapping[str, Any]] = dict,
    ) -> "Table":
        """Tabulate results by row, as :meth:`Runner.over` returns them.

        Args:
            runs: Results by row, one per seed.
            row: Label of a row, by the key of its runs.
            values: Values by column, of one result; by default it is such a mapping.
        """
        table = cls()
        for key, each in runs.items():
            for result in each:
                table.add(row(key), values(result))
        return table

    def append(self, values: Mapping[tuple[str, str], Any]) -> None:
        """Append the values of one seed, by row and column."""
        for key, value in values.items():
            self.setdefault(key, []).append(value)

    def add(self, row: str, values: Mapping[str, Any]) -> None:
        """Append the values of one seed to a row, by column."""
        self.append({(row, column): value for column, value in values.items()})

    def extend(self, rows: Mapping[str, Mapping[str, Any]]) -> None:
        """Append the values of one seed, by row and then by column."""
        for row, values in rows.items():
            self.add(row, values)

    def mean(self, row: str, column: str) -> float:
        """Return the mean over seeds."""
        return mean(self[row, column])

    def numbers(
        self, columns: Iterable[str] | None = None, printed: Mapping[tuple[str, str], str] | None = None
    ) -> tuple[Number, ...]:
        """Return the cells of the record.

        Args:
            columns: Columns in their order; all by default, in the order of their first values.
            printed: Values that the document prints, by row and column.
        """
        rows = dict.fromkeys(row for row, _ in self)
        keys = list(self) if columns is None else [(row, c) for row in rows for c in list(columns) if (row, c) in self]
        return tuple(Number(*key, tuple(self[key]), (printed or {}).get(key, "")) for key in keys)


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a computation, and its seconds."""
    started = time.perf_counter()
    return work(), time.perf_counter() - started


@contextmanager
def ignoring(*messages: str) -> Iterator[None]:
    """Ignore warnings that begin like these (regular expressions), such as those of what an experiment measures."""
    with warnings.catch_warnings():
        for message in messages:
            warnings.filterwarnings("ignore", message)
        yield


def train(method: osc.methods.Method, data: Data, **options: Any) -> osc.training.Training:
    """Train a method on the CPU without a progress bar, by :func:`osculate.train`."""
    how: dict[str, Any] = {"device": "cpu", "progress": False}
    return osc.train(method, data, **how | options)
