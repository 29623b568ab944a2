"""Sums over the processes of a job, each of which has a share of the data, by ``torch.distributed``."""

import atexit
import os
import socket
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

#: Numbers of tensors that are summed together; larger ones are summed alone.
TOGETHER = 2**16
#: Seconds between two signs of life of a process, and after which one without any counts as dead.
SIGN, SILENCE = 0.5, 3.0
#: Prefix of what the processes tell each other.
KEY = "osculate"


@dataclass
class Meeting:
    """Values that processes tell each other at the end of a block of :meth:`Group.together`.

    Attributes:
        said: Value of this process, set within the block; tensors in it should be small and on the CPU.
        heard: Values of all processes in their order, after the block.
    """

    said: Any = None
    heard: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Group:
    """The processes that share the data; each method is called by all of them at the same place.

    Attributes:
        rank: Number of this process.
        size: Number of processes.
    """

    rank: int
    size: int

    @property
    def alone(self) -> bool:
        """True if there is one process."""
        return self.size == 1

    def sum_(self, tensors: Iterable[Tensor]) -> None:
        """Replace tensors by their sums over all processes, in place, with the same bits everywhere."""
        if self.alone:
            return
        small: dict[tuple[torch.dtype, torch.device], list[Tensor]] = {}
        for tensor in tensors:
            if tensor.numel() > TOGETHER and tensor.is_contiguous():
                self._sum(tensor)
            else:
                small.setdefault((tensor.dtype, tensor.device), []).append(tensor)
        for each in small.values():
            joined = torch.cat([tensor.reshape(-1) for tensor in each])
            self._sum(joined)
            for tensor, part in zip(each, joined.split([tensor.numel() for tensor in each]), strict=True):
                tensor.copy_(part.reshape(tensor.shape))

    def summed(self, tensor: Tensor) -> Tensor:
        """The sum over all processes; a new tensor, or the same one where there is one process."""
        if self.alone:
            return tensor
        result = tensor.detach().clone(memory_format=torch.contiguous_format)
        self._sum(result)
        return result

    def _sum(self, tensor: Tensor) -> None:
        with self.meeting():
            dist.all_reduce(tensor)

    def send(self, tensor: Tensor, source: int) -> None:
        """Replace a contiguous tensor by that of one process, in place."""
        with self.meeting():
            dist.broadcast(tensor, source)

    def gather(self, value: Any) -> list[Any]:
        """The values of all processes, in their order; tensors among them should be small and on the CPU."""
        if self.alone:
            return [value]
        found: list[Any] = [None] * self.size
        with self.meeting():
            dist.all_gather_object(found, value)
        return found

    def joined(self, tensor: Tensor) -> Tensor:
        """The rows of all processes, one process after another."""
        if self.alone:
            return tensor
        return torch.cat([part.to(tensor) for part in self.gather(tensor.detach().cpu())])

    def sent(self, value: Any, sender: int) -> Any:
        """The value of one process; tensors in it should be on the CPU."""
        found = [value]
        with self.meeting():
            dist.broadcast_object_list(found, sender)
        return found[0]

    @contextmanager
    def together(self) -> Iterator[Meeting]:
        """Let an error of one process, such as one about its data, end the others as well, and share a value of each.

        Raises:
            ConnectionError: another process has failed; the message holds its own.
        """
        meeting = Meeting()
        if self.alone:
            yield meeting
            meeting.heard = [meeting.said]
            return
        failure: Exception | None = None
        try:
            yield meeting
        except Exception as error:
            failure = error
        each = self.gather((None, meeting.said) if failure is None else (f"{type(failure).__name__}: {failure}", None))
        if failure is not None:
            raise failure
        for rank, (words, _) in enumerate(each):
            if words is not None:
                raise ConnectionError(f"process {rank} of {self.size} failed: {words.rstrip('.')}.")
        meeting.heard = [said for _, said in each]

    def share(self, size: int) -> slice:
        """The rows of this process, of this number that all have: as even as possible, one process after another."""
        return slice(size * self.rank // self.size, size * (self.rank + 1) // self.size)

    def own(self, path: Path) -> Path:
        """The file of this process for a path that all processes name."""
        return path if self.alone else path.with_name(f"{path.stem}.{self.rank}-of-{self.size}{path.suffix}")

    def require_same(self, words: Sequence[Mapping[str, str]]) -> None:
        """Raise ValueError unless all processes say the same.

        Args:
            words: Descriptions of what each process has, by name.
        """
        for rank, theirs in enumerate(words):
            for name, mine in words[self.rank].items():
                if theirs.get(name) != mine:
                    raise ValueError(
                        f"processes {self.rank} and {rank} do not fit the same thing: {name}={mine} and "
                        f"{theirs.get(name)}. Load the same network and pass the same settings in each; only the data "
                        "differ."
                    )

    def require_alone(self, what: str, way_out: str) -> None:
        """Raise ValueError if there are several processes, for what only one can do.

        Args:
            what: A clause such as "a subnetwork is chosen".
            way_out: The end of a sentence on what else to do.
        """
        if not self.alone:
            raise ValueError(
                f"{what} by the data of one process, and this posterior has those of {self.size}: fit in one "
                f"(distributed=False), or {way_out}."
            )

    @contextmanager
    def meeting(self) -> Iterator[None]:
        """Name the processes that are missing where a sum fails."""
        _show_life(self.rank)
        try:
            yield
        except RuntimeError as error:
            missing = self._missing()
            who = f"process {', '.join(map(str, missing))} of {self.size}" if missing else "another process"
            raise ConnectionError(
                f"{who} did not take part in a sum over all processes ({_first_line(error)}): it has ended, or does "
                "not make this call, which all processes make together. Start the job again, with the same checkpoint "
                "if there is one; or fit on one process alone with distributed=False."
            ) from error

    def _missing(self) -> list[int]:
        """The processes that show no life, or have never called osculate."""
        before = [_sign_of(rank) for rank in range(self.size)]
        time.sleep(SILENCE)
        after = [_sign_of(rank) for rank in range(self.size)]
        others = (rank for rank in range(self.size) if rank != self.rank)
        return [rank for rank in others if after[rank] is None or after[rank] == before[rank]]


#: The group of a process that shares nothing.
ALONE = Group(0, 1)


def group(distributed: str | bool) -> Group:
    """The group of this process.

    Args:
        distributed: "auto" for the default process group, if there is one; False for this process alone.

    Raises:
        ValueError: another value.
    """
    if distributed is not False and distributed != "auto":
        raise ValueError(f'distributed must be "auto" or False, got {distributed!r}.')
    if distributed is False or not dist.is_available() or not dist.is_initialized() or dist.get_world_size() == 1:
        return ALONE
    return Group(dist.get_rank(), dist.get_world_size())


@contextmanager
def job(timeout: float = 600.0) -> Iterator[Group]:
    """Join the other processes that torchrun has started, if it has, and leave them at the end.

    Args:
        timeout: Seconds that a process waits for the others.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or not dist.is_available() or dist.is_initialized():
        yield group("auto")
        return
    local = int(os.environ.get("LOCAL_RANK", "0"))
    on_gpu = torch.cuda.is_available() and torch.cuda.device_count() > local
    if on_gpu:
        torch.cuda.set_device(local)
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo", timeout=timedelta(seconds=timeout))
    try:
        yield group("auto")
    finally:
        dist.destroy_process_group()


def same_data(size: int, times: int) -> ValueError:
    """The error of processes that all have the same data."""
    return ValueError(
        f"all processes have the same {size:,} data, which would count {times} times: give each process its own share, "
        "for example with torch.utils.data.DistributedSampler, or use one process with distributed=False."
    )


def of_connection(error: Exception) -> bool:
    """True for an error of the connections between processes."""
    return isinstance(error, dist.DistError) or "gloo" in str(error)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _store() -> Any:
    return dist.distributed_c10d._get_default_store()


@lru_cache(maxsize=1)
def _show_life(rank: int) -> None:
    """Write a growing number to the store of the group, in a thread of its own, until the process ends."""
    store, start, over = _store(), f"{socket.gethostname()}:{os.getpid()}", threading.Event()

    def signs() -> None:
        try:
            for number in count():
                store.set(f"{KEY}/{rank}", f"{start}:{number}")
                if over.wait(SIGN):
                    break
        except RuntimeError:  # the store is closed
            _show_life.cache_clear()

    thread = threading.Thread(target=signs, daemon=True, name="osculate signs of life")
    thread.start()

    def end() -> None:  # a thread within torch must not outlive Python
        over.set()
        thread.join()

    atexit.register(end)


def _sign_of(rank: int) -> bytes | None:
    """The last sign of life of a process; None for none, or where the store has ended with its process."""
    try:
        store, key = _store(), f"{KEY}/{rank}"
        return store.get(key) if store.check([key]) else None
    except RuntimeError:
        return None
