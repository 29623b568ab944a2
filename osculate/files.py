"""Files that are whole at any moment, and the software that a result depends on."""

import errno
import glob
import os
import platform
import secrets
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from filelock import FileLock, Timeout

#: Errors of a disk, and free bytes below which any error of a writer is taken for a full one.
DISK = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
SMALLEST = 2**16
_PACKAGES = ("torch", "lightning", "torchmetrics", "numpy", "scikit-learn")


@contextmanager
def written_aside(path: Path) -> Iterator[Path]:
    """A temporary name beside a path, for a file that takes its place when it is complete; folders are made.

    The file is on the disk before it is renamed, and has the permissions that the user's mask allows. What processes
    that were killed have left of the same file is removed.

    Raises:
        OSError: it cannot be written, because the disk is full or read-only; the previous file is whole.
    """
    aside = beside(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        remove_leftovers(path)
        yield aside
        put(aside, path)
    except Exception as error:
        code = _fault(error, path.parent)
        if code is None:
            raise
        what = "the previous file is unchanged" if path.exists() else "nothing was written"
        raise OSError(code, f"{os.strerror(code)}, {what}: choose another folder", str(path)) from error
    finally:
        with suppress(OSError):
            aside.unlink(missing_ok=True)


def put(aside: Path, path: Path) -> None:
    """Let a complete file take the place of another, once it is on the disk, with the permissions of the mask."""
    aside.chmod(0o666 & ~_mask())
    _to_disk(aside)
    os.replace(aside, path)
    if os.name != "nt":
        _to_disk(path.parent)


def beside(path: Path) -> Path:
    """A temporary name in the folder of a path, of this machine and process, and of no other call."""
    return path.with_name(f".{path.name}.{_machine()}.{os.getpid()}.{secrets.token_hex(4)}.tmp")


def _fault(error: Exception, folder: Path) -> int | None:
    """The number of an error of the disk; None for other errors. Libraries report a full disk in their own ways."""
    if isinstance(error, OSError) and error.errno in DISK:
        return error.errno
    try:
        full = not isinstance(error, OSError) and shutil.disk_usage(folder).free < SMALLEST
    except OSError:
        return None
    return errno.ENOSPC if full else None


def _machine() -> str:
    """A digest of the name of this machine, whose process numbers say nothing about others."""
    return sha256(platform.node().encode()).hexdigest()[:6]


def _to_disk(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk; systems that cannot promise it are passed over."""
    try:
        handle = os.open(path, os.O_RDWR if path.is_file() else os.O_RDONLY)
    except (PermissionError, IsADirectoryError):
        return
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
            raise
    finally:
        os.close(handle)


def _mask() -> int:
    """The permissions that the user does not give to new files."""
    try:  # without changing it for other threads, where the system tells
        line = next(each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("Umask"))
        return int(line.split()[1], 8)
    except (OSError, StopIteration):
        mask = os.umask(0o077)
        os.umask(mask)
        return mask


def remove_leftovers(path: Path) -> None:
    """Remove temporary files and folders of a path (:func:`beside`) whose processes on this machine have ended."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.{_machine()}.*.*.tmp"):
        process = left.name.split(".")[-3]
        if process.isdigit() and int(process) != os.getpid() and not _runs(int(process)):
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


def _runs(process: int) -> bool:
    if os.name == "nt":  # where a signal would end it
        return True
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other processes and threads that ask for it from a file, until the block or the process ends.

    Raises:
        ValueError: it is in use.
        OSError: there can be no lock in its folder.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise ValueError(
            f"{str(path)!r} is in use by another process or thread: wait for its end, or give each its own file."
        ) from error
    try:
        yield
    finally:
        with suppress(OSError):  # before it is released, as another may have it then
            Path(lock.lock_file).unlink()
        lock.release()


def write_text(path: Path, text: str) -> None:
    """Write a text file under a temporary name and rename it; folders are made."""
    with written_aside(path) as aside:
        aside.write_text(text, encoding="utf-8")


def versions(optional: Sequence[str] = ()) -> dict[str, str]:
    """The versions that a result depends on, by package, and the platform.

    Args:
        optional: Names of further distributions.

    Returns:
        The version of each, or "not installed".
    """
    found = {}
    for name in (*_PACKAGES, *optional):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return {"python": platform.python_version(), **found, "platform": f"{sys.platform} {platform.machine()}"}
