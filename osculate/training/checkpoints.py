"""Checkpoints of Lightning: written whole beside their place, with a checksum, and read without executing anything."""

import hashlib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.fabric.plugins.io import TorchCheckpointIO

from osculate.files import write_text, written_aside


class Checkpoints(TorchCheckpointIO):
    """Reads and writes the checkpoints of a run.

    Lightning's own class renames a file from the folder for temporary files, which may be on another file system. The
    checksum lies beside the checkpoint, in the format of ``sha256sum``; while a checkpoint takes the place of another,
    it holds those of both. Checkpoints of version 0.1 have none.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        """Write a checkpoint in the place of the previous one."""
        path = Path(path)
        beside = checksum_of(path)
        before = beside.read_text(encoding="utf-8").splitlines() if beside.is_file() else []
        with written_aside(path) as aside:
            torch.save(checkpoint, aside)
            line = f"{_digest(aside)}  {path.name}"
            write_text(beside, "\n".join([line, *before]) + "\n")
        write_text(beside, f"{line}\n")

    def load_checkpoint(
        self, path: Any, map_location: Callable | None = None, weights_only: bool | None = True
    ) -> dict[str, Any]:
        """Read a checkpoint.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: its content is not that of its checksum, or is compressed, as no checkpoint is.
        """
        path = Path(path)
        if not path.is_file():
            raise FileNotFoundError(f"there is no file at {str(path)!r}.")
        if zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                if any(each.compress_type != zipfile.ZIP_STORED for each in archive.infolist()):
                    raise ValueError("its content is compressed, and might fill the memory when it is read.")
        beside = checksum_of(path)
        if beside.is_file():
            known = {line.split(" ")[0] for line in beside.read_text(encoding="utf-8", errors="replace").splitlines()}
            if _digest(path) not in known:
                raise ValueError("its content is not that of its checksum: it is damaged.")
        return torch.load(path, map_location=map_location or "cpu", weights_only=True)

    def remove_checkpoint(self, path: Any) -> None:
        """Remove a checkpoint and its checksum."""
        super().remove_checkpoint(path)
        checksum_of(Path(path)).unlink(missing_ok=True)


def checksum_of(path: Path) -> Path:
    """The file beside a checkpoint that holds its checksum."""
    return path.with_name(f"{path.name}.sha256")


def _digest(path: Path) -> str:
    total = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(2**20):
            total.update(block)
    return total.hexdigest()
