"""Options that several commands share, as frozen dataclasses."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import KW_ONLY, dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

import torch

from osculate import data as datasets
from osculate.data import Dataset, Schema, load, read
from osculate.data.own.opening import ACCEPTED

T = TypeVar("T")

#: Options of the user's own data, which say what is not inferred, and those of named data sets.
OWN = ("target", "target_task", "columns", "groups", "split_column", "image_size", "channel_axis", "missing")
NAMED = ("data_folder", "split", "splits")
#: Options by which the data of a trained network are read as in the training, and the defaults of some.
READ_ALIKE = ("split", "splits", "split_seed", "validation_size", *OWN)
USUAL: Mapping[str, Any] = {"splits": "standard", "split": 0, "split_seed": 0, "validation_size": "a tenth"}
#: What --data takes, in words.
TAKEN = f"{ACCEPTED}, or the name of a data set (osculate data list)"


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


def is_own(data: str) -> bool:
    """True for a path, and not the name of a data set."""
    return data not in datasets.REGISTRY and (Path(data).exists() or bool(Path(data).suffix) or "/" in data)


def own_data(path: str | Path, option: str) -> str:
    """The path of the user's own data as it was typed, which may be a file or a folder.

    Raises:
        FileNotFoundError: there is neither.
    """
    if "://" not in str(path) and not Path(path).exists():
        kind = "file" if Path(path).suffix else "file or folder"
        raise FileNotFoundError(
            f"there is no {kind} {str(path)!r} relative to {str(Path.cwd())!r}{_near(str(path))}: name one "
            f"with {option}; accepted are {ACCEPTED}."
        )
    return str(path)


def _near(name: str, known: Iterable[str] = ()) -> str:
    """A question with the nearest of some names and of the files beside a path that does not exist."""
    folder = Path(name).parent
    beside = [str(folder / each.name) for each in folder.iterdir()] if folder.is_dir() else []
    near = get_close_matches(name, [*known, *beside], n=1)
    return f" (did you mean {near[0]!r}?)" if near else ""


@dataclass(frozen=True)
class _Source:
    """The place of the data; :class:`DataOptions` describes all fields."""

    data: str | None = None
    target: str | None = field(default=None, kw_only=True)
    data_folder: Path | None = None
    train_size: int | None = None
    validation_size: int | None = None


@dataclass(frozen=True)
class _Parts(_Source):
    """The rows for training, validation and test."""

    split: int | None = None
    splits: str | None = None
    split_seed: int | None = None
    _: KW_ONLY
    target_task: str | None = None
    columns: dict[str, str] | None = None


@dataclass(frozen=True)
class DataOptions(_Parts):
    """The data.

    Args:
        data: Your own table (.csv, .tsv, .parquet), arrays (.npz with X and y, .npy) or folder of images, or the name
            of a data set (osculate data list); after training by default its data.
        target: Column or array of your data to predict, or none; by default the array y, or the folders of the images.
        data_folder: Folder of the named data set; by default $OSCULATE_DATA, the cache, or a download.
        train_size: Number of training rows; by default all.
        validation_size: Number of rows held out of training; by default a tenth, at most 2000.
        split: Number of the split, for sets with several; by default 0.
        splits: Family of splits, standard, gap or random; by default standard.
        split_seed: Seed of the choice of held-out rows; by default 0.
        target_task: Classification or regression; by default inferred, and asked for where both are possible.
        columns: Kinds of columns, number, category, date or exclude, as in --columns.month category; by default
            inferred.
        groups: Column or array of groups, such as patients, each of which is in one part only; by default none.
        split_column: Column or array that says train, validation or test; by default the rows are split at random.
        image_size: Height and width in pixels to which images are cropped and scaled; by default they keep theirs.
        channel_axis: Place of the channels of images, first or last; by default inferred.
        missing: Words of .csv and .tsv that count as missing beside empty cells, separated by commas, "" for none; by
            default NA, NaN, ? and the like.
    """

    _: KW_ONLY
    groups: str | None = None
    split_column: str | None = None
    image_size: int | None = None
    channel_axis: str | None = None
    missing: str | None = None

    def same(self, other: "DataOptions") -> bool:
        """True if both name the same data set, or these options none."""
        if self.data is None or other.data is None or self.data == other.data:
            return self.data in (None, other.data)
        return is_own(self.data) and is_own(other.data) and Path(self.data).resolve() == Path(other.data).resolve()

    def over(self, other: "DataOptions") -> "DataOptions":
        """These options, with unset ones taken from those of the training if both name the same data set.

        Raises:
            ValueError: they would read the same data otherwise, so that rows of the training would be in other parts.
        """
        if not self.same(other):
            return self
        for name in READ_ALIKE:
            value, known = getattr(self, name), getattr(other, name)
            known = USUAL.get(name) if known is None else known
            if value not in (None, known):
                was = "it had none" if known is None else f"it had {known}"
                raise ValueError(
                    f"--{name.replace('_', '-')} {value} is not that of the training ({was}), whose rows would then "
                    "count as others, such as held-out data: leave it out, or train again with it."
                )
        if self.train_size is not None and other.train_size is not None and self.train_size > other.train_size:
            raise ValueError(
                f"--train-size {self.train_size} is more than the training had ({other.train_size}), and the network "
                "has not seen the further rows: leave it out, or train again with it."
            )
        return replace(other, **{name: value for name, value in vars(self).items() if value is not None})

    def load(self, schema: Schema | None = None, training: "DataOptions | None" = None) -> Dataset:
        """Read the data set.

        Args:
            schema: The schema of the training data, for own data that a trained network gets.
            training: The options of the training, whose file must still hold the same rows.

        Raises:
            ValueError: no data set is named, its name is unknown, or the file of the training has changed.
            FileNotFoundError: its files are not found.
        """
        if self.data is None:
            raise ValueError(f"name the data with --data: {TAKEN}.")
        sizes: dict[str, Any] = {
            "train_size": self.train_size,
            "validation_size": self.validation_size,
            "seed": self.split_seed or 0,
        }
        if is_own(self.data):
            path = own_data(self.data, "--data")
            self._require_unset(NAMED, "named data sets", "your own")
            if schema is not None:
                if training is None or not self.same(training):
                    self._require_unset(set(OWN) - {"target"}, "the training", "read by its schema")
                content = schema.open(path, parts=True, target=None if self.target is None else (self.target,))
                at_random = content.split is None
                if at_random and schema.source is not None and training is not None and self.same(training):
                    schema.source.require_same(content)
                return read(content, schema=schema, **sizes)
            options = {name: getattr(self, name) for name in OWN}
            return read(path, task=options.pop("target_task"), **options, **sizes)
        if self.data not in datasets.REGISTRY:
            raise ValueError(
                f"there is no file, folder or data set {self.data!r}{_near(self.data, datasets.REGISTRY)}: accepted "
                f"are {TAKEN}."
            )
        self._require_unset(OWN, "your own files", "a named data set")
        return load(
            self.data, folder=self.data_folder, split=self.split or 0, splits=self.splits or "standard", **sizes
        )

    def _require_unset(self, names: Iterable[str], use: str, kind: str) -> None:
        """Raise ValueError for an option that these data do not use."""
        for name in names:
            if getattr(self, name) is not None:
                raise ValueError(f"--{name.replace('_', '-')} is for {use}, and {self.data!r} is {kind}: leave it out.")


@dataclass(frozen=True)
class RunOptions:
    """The output and the device.

    Args:
        output: Folder or file of the results; the default is in the description above.
        device: Device, cpu, cuda, cuda:1, mps; by default auto, an accelerator if there is one.
        progress: False to show no progress bars.
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
