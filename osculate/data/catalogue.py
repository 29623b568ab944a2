"""The data sets that have a name: their files, where these are, and what can be downloaded."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from osculate.data import mnist, photographs, toys, uci
from osculate.data.files import VARIABLE, Download, find, places
from osculate.data.loading import REGISTRY
from osculate.registry import lookup


@dataclass(frozen=True)
class Files:
    """The files of a data set; none for those that come with scikit-learn or are generated.

    Args:
        originals: Paths inside the data folder, with the public originals that have a checksum.
        instead: Paths of a copy that is used where it exists.
        shape: Shape of one input if it is known without the files.
    """

    originals: Mapping[str, Download | None] = field(default_factory=dict)
    instead: tuple[str, ...] = ()
    shape: tuple[int, ...] | None = None

    @property
    def built_in(self) -> bool:
        """True if there are no files."""
        return not self.originals

    @property
    def downloads(self) -> bool:
        """True if there are public originals of all files."""
        return not self.built_in and None not in self.originals.values()

    def found(self, folder: str | Path | None = None) -> Path | None:
        """The folder of the first file, if all are found; see :func:`osculate.data.files.find` for the places."""
        for names in (self.instead, tuple(self.originals)):
            paths = [next((path for path in places(name, folder) if path.is_file()), None) for name in names]
            if paths and (first := paths[0]) is not None and all(paths):
                return first.parent
        return None


def _alone(*paths: str) -> Files:
    """Files without a public original."""
    return Files(dict.fromkeys(paths))


def _family(name: str) -> Files:
    family, files = mnist.FAMILY[name], mnist.FILES if mnist.FAMILY[name].mirror else mnist.FILES[2:]
    originals = {
        f"{name}/{file}": Download(family.mirror + file, family.md5[number]) if family.mirror else None
        for number, file in enumerate(files)
    }
    return Files(originals, tuple(f"{name}/{file}" for file in family.archives), (1, 28, 28))


_COLOUR = (3, 32, 32)
_PARTS = ("train", "test")

#: The files of the data sets of :data:`osculate.data.REGISTRY`, by name.
CATALOGUE: Mapping[str, Files] = {
    **dict.fromkeys(("digits", "diabetes", "two_moons", "sine", "cubic"), Files()),
    **{name: _alone(f"toy/{row[0]}") for name, row in toys.PUBLISHED.items()},
    **{name: _family(name) for name in mnist.FAMILY},
    "cifar10": Files(
        {"cifar10/cifar-10-binary.tar.gz": photographs.ORIGINAL},
        tuple(f"cifar10/cifar10_{part}.npz" for part in _PARTS),
        _COLOUR,
    ),
    "cifar10_jpeg": _alone(*(f"cifar10_jpeg/cifar10_jpeg_{part}.zip" for part in _PARTS)),
    "cifar100": Files({"cifar100/cifar-100-binary.tar.gz": photographs.ORIGINAL_100}, (), _COLOUR),
    "svhn": Files(
        {f"svhn/{part}_32x32.mat": original for part, original in photographs.SVHN_ORIGINALS.items()}, (), _COLOUR
    ),
    "frey_face": _alone("frey_face/frey_face.npz"),
    **{name: _alone(f"uci_regression/{name}.npz") for name in uci.NAMES},
    **{name: _alone(f"uci_classification/{name.removeprefix('uci_')}.npz") for name in uci.CLASSIFICATION},
}


def fetch(name: str) -> list[Path]:
    """Find the files of a data set, and download those that are missing into the user's cache.

    Returns:
        Their paths; empty for a data set without files.

    Raises:
        ValueError: the name is unknown, or files are missing that have no public original with a checksum.
        FileNotFoundError: a download has failed.
    """
    lookup("data set", name, REGISTRY)
    files = CATALOGUE[name]
    if (folder := files.found()) is not None:
        return [folder]
    missing = [path for path, original in files.originals.items() if original is None]
    if missing:
        raise ValueError(
            f"{name!r} has no public original with a known checksum: set {VARIABLE} to a folder that holds "
            f"{' and '.join(missing)}."
        )
    return [find(path, download=original) for path, original in files.originals.items()]
