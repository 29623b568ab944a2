"""Well-formed files, with right checksums, that somebody made to do harm."""

import base64
import hashlib
import io
import json
import os
import pickle
import random
import struct
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from osculate.tensorfiles import CHECKSUM, digest
from osculate.training.checkpoints import checksum_of

#: The file that a payload makes if it is executed.
CANARY = Path("/tmp") / f"osculate-canary-{os.getpid()}"
#: Bytes that a bomb inflates to.
INFLATED = 2**28


def parts(path: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    """Metadata without the checksum, and tensors."""
    with safe_open(path, framework="pt") as file:
        metadata = {name: value for name, value in file.metadata().items() if name != CHECKSUM}
        return metadata, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def forge(path: Path, metadata: dict[str, str], tensors: dict[str, Tensor]) -> None:
    """Write a file whose checksum is right."""
    save_file(tensors, path, metadata={**metadata, CHECKSUM: digest(metadata, tensors)})


#: Values that stand in a hostile header in place of another.
BAD: list[Any] = [
    None,
    -1,
    0,
    1e308,
    float("nan"),
    2**63,
    10**400,
    "x" * 1000,
    "os:system",
    "../../etc/passwd",
    [],
    {},
    [[]],
    {"tensor": "network.0.weight"},
    True,
]


def forged(path: Path, draw: random.Random) -> None:
    """A well-formed file with a right checksum, in which one entry or one tensor is of another kind."""
    metadata, tensors = parts(path)
    (key,) = metadata
    header = json.loads(metadata[key])
    if draw.random() < 0.6:
        holder: Any = header
        while True:
            choice = draw.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
            if isinstance(holder[choice], dict | list) and holder[choice] and draw.random() < 0.7:
                holder = holder[choice]
                continue
            action = draw.random()
            if action < 0.7:
                holder[choice] = draw.choice(BAD)
            elif isinstance(holder, dict):
                del holder[choice]
            break
    else:
        name = draw.choice(list(tensors))
        old = tensors[name]
        tensors[name] = draw.choice(
            [
                old.new_zeros(0),
                old.reshape(-1)[:1].clone() if old.numel() else old,
                torch.full_like(old, 127),
                (old.double() * float("nan")).to(old.dtype) if old.is_floating_point() else -old - 1,
                torch.zeros(3, 5, 7),
                old.to(torch.int8),
            ]
        )
    forge(path, {key: json.dumps(header)}, {name: each.contiguous() for name, each in tensors.items()})


class Payload:
    """An object whose pickle runs a command when it is loaded."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {CANARY}",)


def pickled(path: Path, draw: random.Random) -> None:
    """A pickle that runs a command, alone or as torch writes it."""
    content = io.BytesIO()
    if draw.random() < 0.5:
        pickle.dump({"state_dict": Payload()}, content)
    else:
        torch.save({"state_dict": Payload(), "osculate": Payload()}, content)
    _write(path, content.getvalue())


def array_of_objects(path: Path, draw: random.Random) -> None:
    """An archive with arrays of pickled objects."""
    np.savez(path.with_suffix(".npz"), X=np.asarray([Payload()], dtype=object), y=np.zeros(1))
    _write(path, path.with_suffix(".npz").read_bytes())


def huge_array(path: Path, draw: random.Random) -> None:
    """An archive that declares an array of terabytes, in one of its headers or in both."""
    header = io.BytesIO()
    shape = draw.choice([(2**45,), (2**22, 2**22), (2**61,)])
    np.lib.format.write_array_header_2_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("X.npy", "../../y.npy"):
            archive.writestr(name, header.getvalue() + bytes(800))
        if draw.random() < 0.5:
            for each in archive.filelist:
                each.file_size = header.tell() + 8 * int(np.prod([float(size) for size in shape])) % 2**62
    _write(path, content.getvalue())


def bomb(path: Path, draw: random.Random) -> None:
    """An archive of which a small part inflates to much more than it declares, as arrays or as a checkpoint."""
    _write(path, _bomb(path.suffix == ".ckpt"))


@cache
def _bomb(checkpoint: bool) -> bytes:
    content = io.BytesIO()
    if not checkpoint:
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": (10,)})
        with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in ("X.npy", "y.npy"):
                archive.writestr(name, header.getvalue() + bytes(INFLATED))
        return content.getvalue()
    honest = io.BytesIO()
    torch.save({"state_dict": {"0.weight": torch.zeros(INFLATED, dtype=torch.uint8)}}, honest)
    with zipfile.ZipFile(honest) as whole, zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for each in whole.infolist():
            archive.writestr(each.filename, whole.read(each))
    return content.getvalue()


def huge_tensor(path: Path, draw: random.Random) -> None:
    """A safetensors file that declares a tensor of terabytes, with offsets inside or outside the file."""
    size = draw.choice([2**40, 2**62, 2**63 - 1, 10**30])
    end = draw.choice([16, 4 * size])
    tensors = {"network.0.weight": {"dtype": "F32", "shape": [size], "data_offsets": [0, end]}}
    header = json.dumps({"__metadata__": {"osculate": "{}"}, **tensors}).encode()
    length = draw.choice([len(header), 2**40, 2**63])
    _write(path, struct.pack("<Q", length) + header + bytes(16))


def deep(path: Path, draw: random.Random) -> None:
    """A header, or options, of a hundred thousand nested lists."""
    if path.suffix == ".safetensors":
        metadata, tensors = parts(path)
        (key,) = metadata
        forge(path, {key: "[" * 100_000 + "]" * 100_000}, tensors)
    else:
        _write(path, b"x: " + b"[" * 100_000 + b"]" * 100_000)


def link(path: Path, draw: random.Random) -> None:
    """A link to something without an end, to itself, or to a folder."""
    path.unlink()
    path.symlink_to(draw.choice(["/dev/zero", str(path), "/tmp", "/etc/passwd"]))


ALIASES = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 60))
#: Options that name code, or grow without a bound.
YAML = (
    "epochs: !!python/object/apply:os.system ['touch CANARY']\n",
    "model: !!python/name:os.system\n",
    "model: os:system\n",
    f"data: !!binary {base64.b64encode(pickle.dumps(Payload())).decode()}\n",
    ALIASES,
    "epochs: 0x" + "f" * 10_000 + "\n",
    "lr: " + "9" * 100_000 + "\n",
    "{" * 5_000 + "}" * 5_000,
    "x: y\n" * 400_000,
)


def options(path: Path, draw: random.Random) -> None:
    """A configuration file that names code, or grows without a bound."""
    _write(path, draw.choice(YAML).replace("CANARY", str(CANARY)).encode())


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    if path.suffix == ".ckpt":  # whoever forges a checkpoint forges its checksum
        checksum_of(path).write_text(f"{hashlib.sha256(content).hexdigest()}  {path.name}\n")


#: Attacks by the end of a file's name; the first is tried as often as all others.
ATTACKS: dict[str, tuple[Callable[[Path, random.Random], None], ...]] = {
    ".safetensors": (forged, huge_tensor, pickled, deep, link),
    ".ckpt": (pickled, bomb, link, huge_array),
    ".npz": (array_of_objects, huge_array, bomb, pickled, link),
    ".yaml": (options, deep, link),
}


def hostile(path: Path, draw: random.Random) -> None:
    """Put a hostile file in the place of an artefact."""
    first, *others = ATTACKS[path.suffix]
    (first if draw.random() < 0.5 else draw.choice(others))(path, draw)
