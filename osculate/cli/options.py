"""Options that several commands share, as frozen dataclasses."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import torch

from osculate import data as datasets
from osculate.data import Dataset, from_arrays, load

T = TypeVar("T")


def naming(**known: Iterable[str]) -> Callable[[type[T]], type[T]]:
    """Decorate a part by filling names, such as those of a registry, into its docstring, the help of its options.

    >>> naming(links=("mc", "probit"))(type("Part", (), {"__doc__": "link: {links}."})).__doc__
    'link: mc, probit.'
    """
    texts = {placeholder: ", ".join(names) for placeholder, names in known.items()}

    def filled(part: type[T]) -> type[T]:
        part.__doc__ = (part.__doc__ or "").format(**texts)
        return part

    return filled


def own_arrays(path: str | Path, option: str, content: str) -> Path:
    """The path of an .npz file.

    Args:
        path: The path as it was typed.
        option: Name of its option.
        content: Arrays that it holds.

    Raises:
        FileNotFoundError: there is no such file.
    """
    if not Path(path).is_file():
        raise FileNotFoundError(
            f"there is no file {str(path)!r} relative to {str(Path.cwd())!r}: name it with {option}; it holds "
            f"{content}, written with numpy.savez."
        )
    return Path(path)


@dataclass(frozen=True)
class DataOptions:
    """The data.

    Args:
        data: Name of a data set (osculate data list) or an .npz file with X and y, for autoencoders X only; after
            training by default its data.
        data_folder: Folder of the named data set; by default $OSCULATE_DATA, the cache, or a download.
        train_size: Number of training rows; by default all.
        validation_size: Number of rows held out of training; by default a tenth, at most 2000.
        split: Number of the split, for sets with several; by default 0.
        splits: Family of splits, standard, gap or random; by default standard.
        split_seed: Seed of the choice of held-out rows; by default 0.
    """

    data: str | None = None
    data_folder: Path | None = None
    train_size: int | None = None
    validation_size: int | None = None
    split: int | None = None
    splits: str | None = None
    split_seed: int | None = None

    def over(self, other: "DataOptions") -> "DataOptions":
        """These options, with unset ones taken from the other if both name the same data set."""
        if self.data not in (None, other.data):
            return self
        return replace(other, **{name: value for name, value in vars(self).items() if value is not None})

    def load(self) -> Dataset:
        """Read the data set.

        Raises:
            ValueError: no data set is named, or its name is unknown.
            FileNotFoundError: its files are not found.
        """
        if self.data is None:
            raise ValueError(
                f"name the data with --data: an .npz file with X and y, or one of {', '.join(datasets.REGISTRY)}."
            )
        sizes: dict[str, Any] = {
            "train_size": self.train_size,
            "validation_size": self.validation_size,
            "seed": self.split_seed or 0,
        }
        if self.data.endswith(".npz"):
            return from_arrays(own_arrays(self.data, "--data", "arrays X and y"), **sizes)
        return load(
            self.data, folder=self.data_folder, split=self.split or 0, splits=self.splits or "standard", **sizes
        )


@dataclass(frozen=True)
class RunOptions:
    """The output and the device.

    Args:
        output: Folder or file of the results; the default is in the description above.
        device: Device, cpu, cuda, cuda:1, mps; by default auto, an accelerator if there is one.
        progress: Show progress bars, which --no-progress leaves out.
    """

    output: Path | None = None
    device: str = "auto"
    progress: bool = True


def pick_device(name: str) -> torch.device:
    """The torch device for a name; "auto" is an accelerator if there is one.

    Raises:
        ValueError: the device is unknown or not available.
    """
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ValueError(
            f"unknown device {name!r}: use auto or cpu; with an accelerator cuda, cuda:1 or mps."
        ) from None
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"device {name!r} cannot be used here ({reason}). Use auto or cpu.") from None
    return device


def plain(value: Any) -> Any:
    """A value in plain types for YAML and JSON: paths as strings, tuples as lists."""
    if isinstance(value, dict):
        return {str(name): plain(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [plain(part) for part in value]
    return str(value) if isinstance(value, Path) else value
