"""Memory budgets of a pass, and chunks that fit into them."""

import ctypes
import mmap
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path

import torch

#: Bytes of a pass by default: larger chunks of small networks are no faster, since allocating memory takes time.
DEFAULT_BUDGET = 2**28
#: Largest default for large networks, whose layers are slow on small batches.
LARGEST_BUDGET = 2**30
#: Bytes of a pass by default on a GPU, where starting an operation takes longer than small chunks of it.
GPU_BUDGET = 2**33
#: Bytes for which nobody looks how much is free.
NEGLIGIBLE = 2**20
#: Largest share of the free memory that a default may take, and that on a GPU.
SHARE, GPU_SHARE = 0.25, 0.5
#: Share of an amount that is asked for which temporaries may take as they are counted: the rest is for results, copies
#: inside operations, and what the allocator keeps.
TEMPORARY = 0.35
#: Folder of the control groups, and names of limit and use in the first version of them.
CGROUPS, V1 = Path("/sys/fs/cgroup"), ("memory.limit_in_bytes", "memory.usage_in_bytes")
#: Folder of what the system reports of this process, and bytes of a page in it.
PROCESS, PAGE = Path("/proc/self"), mmap.PAGESIZE
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}


def budget(memory: str | int | None, device: torch.device, wanted: int = 0) -> int:
    """Bytes that the temporaries of a pass may take.

    Args:
        memory: Bytes that a call may take in all, of which :data:`TEMPORARY` is returned, or a text such as "2GB" or
            "500 MiB"; None for 256 MiB (more where more is wanted) or a quarter of what is free, on a GPU 8 GiB
            or half of it, whichever is smaller.
        device: Device of the pass.
        wanted: Bytes below which the pass would be slow; up to 1 GiB of them are granted by default.

    Raises:
        ValueError: ``memory`` is not a positive amount.

    >>> budget("2GB", torch.device("cpu"))
    700000000
    """
    if memory is None:
        on_gpu = device.type == "cuda"
        usual = GPU_BUDGET if on_gpu else max(DEFAULT_BUDGET, min(wanted, LARGEST_BUDGET))
        share = int((GPU_SHARE if on_gpu else SHARE) * _lately_free(device, int(time.monotonic())))
        return min(usual, max(2**20, share))
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", str(memory))
    amount = float(found[1]) * UNITS.get(found[2].upper(), 0) if found else 0.0
    if amount < 1:
        raise ValueError(f'memory must be a number of bytes or a text such as "2GB" or "500MB", got {memory!r}.')
    return int(TEMPORARY * amount)


def free(device: torch.device) -> int:
    """Bytes that are free on a device, within the limits of a container and of the process.

    Half of the memory of the machine where the system does not report what is free.
    """
    if device.type == "cuda":  # torch keeps what is freed, for the next tensors
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + kept
    available = _unused(Path("/proc/meminfo"))
    limits = [*_container(CGROUPS), *_address_space(PROCESS)]
    return min([available, *(max(0, limit - used) for limit, used in limits)])


def _unused(report: Path) -> int:
    """Bytes that the system reports as available; where it does not, half of the machine's memory, or 1 GiB."""
    try:
        lines = report.read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration):
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, OSError, ValueError):  # Windows
        return 4 * DEFAULT_BUDGET


def require(needed: float | int, device: torch.device, what: str, way_out: str) -> None:
    """Raise ValueError, with sizes, if something does not fit into the free memory.

    Args:
        needed: Bytes.
        device: Device on which they would be taken.
        what: Name of the things that take them, a plural.
        way_out: A sentence on what to do instead.

    Raises:
        ValueError: the message names the bytes that are needed and those that are free.
    """
    if needed > NEGLIGIBLE and needed > (available := free(device)):
        raise ValueError(f"{what} take {readable(float(needed))}, and {readable(float(available))} are free. {way_out}")


def _container(root: Path) -> Iterator[tuple[int, int]]:
    """Limits of the control groups of a container, of either version, and what is used of them without cached files."""
    for folder, (limit, used) in ((root, ("memory.max", "memory.current")), (root / "memory", V1)):
        try:
            most, now = int((folder / limit).read_text()), int((folder / used).read_text())
        except (OSError, ValueError):  # no such group, or "max"
            continue
        try:  # cached files give way
            lines = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
            cached = next((int(value) for name, value in lines if name in ("inactive_file", "total_inactive_file")), 0)
        except (OSError, ValueError):
            cached = 0
        yield most, max(0, now - cached)


def _address_space(process: Path) -> Iterator[tuple[int, int]]:
    """The limit that a shell has set on the memory of this process (``ulimit -v``), and what is used of it."""
    try:
        lines = (process / "limits").read_text().splitlines()
        limit = next((line.split()[3] for line in lines if line.startswith("Max address space")), "unlimited")
        pages = int((process / "statm").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return
    if limit.isdigit():
        yield int(limit), pages * PAGE


#: The same, read at most once a second: reading it takes longer than a small layer.
_lately_free = lru_cache(maxsize=8)(lambda device, second: free(device))


def even_parts(size: int, largest: int) -> list[slice]:
    """Slices of ``range(size)`` with at most ``largest`` entries, as even as possible: a short last slice is slow.

    >>> even_parts(9, 8)
    [slice(0, 5, None), slice(5, 9, None)]
    """
    step = -(-size // -(-size // max(1, largest))) if size else 1
    return [slice(start, min(size, start + step)) for start in range(0, size, step)]


#: glibc's name of the size from which blocks are mapped, that size within :func:`sparing`, and its own largest one.
MMAP_THRESHOLD, LARGE, LARGEST_IN_HEAP = -3, 2**18, 2**25
#: True within :func:`sparing`.
_SPARING: ContextVar[bool] = ContextVar("sparing", default=False)


@contextmanager
def sparing(memory: str | int | None) -> Iterator[None]:
    """Let :func:`give_back` act in this context, and chunks be small, where less than the default was asked for."""
    asked = memory is not None and budget(memory, torch.device("cpu")) < DEFAULT_BUDGET
    begins = asked and not is_sparing()
    token = _SPARING.set(begins or is_sparing())
    if begins:
        _map_from(LARGE)
    try:
        yield
    finally:
        _SPARING.reset(token)
        if begins:
            _map_from(LARGEST_IN_HEAP)


def is_sparing() -> bool:
    """True in the context of :func:`sparing` with less than the default."""
    return _SPARING.get()


def give_back() -> None:
    """Return freed memory to the system under a small budget, where the C library is glibc.

    It keeps what is freed for new temporaries; those that do not fit into the gaps come on top, up to twice what is
    used. Returning it takes up to a tenth of a second.
    """
    if is_sparing() and (trim := _trim()) is not None:
        trim(0)


def _map_from(size: int) -> None:
    """Let glibc map blocks from this size on, so that they go back to the system when they are free."""
    try:
        ctypes.CDLL(None).mallopt(MMAP_THRESHOLD, size)
    except (AttributeError, OSError, TypeError):  # another C library
        return


@lru_cache(maxsize=1)
def _trim() -> Callable[[int], int] | None:
    """glibc's ``malloc_trim``."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
        trim.argtypes = [ctypes.c_size_t]
        return trim
    except (AttributeError, OSError, TypeError):  # another C library
        return None


def readable(size: float | int) -> str:
    """A number of bytes as text with a unit.

    >>> readable(3.2e9)
    '3.2 GB'
    """
    for unit in ("B", "KB", "MB", "GB"):
        if size < 1000 or unit == "GB":
            break
        size /= 1000
    return f"{size:.0f} B" if unit == "B" else f"{size:,.1f} {unit}"
