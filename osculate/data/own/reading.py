"""The user's own data, as a data set with a schema."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

from torch import Tensor

from osculate.checks import require_whole
from osculate.data.dataset import Dataset
from osculate.data.own.array_inputs import ArrayInputs
from osculate.data.own.content import Content, Fingerprint, Wanted, listed
from osculate.data.own.opening import content_of
from osculate.data.own.parts import Parts, Sizes
from osculate.data.own.pictures import FOLDER
from osculate.data.own.schema import Schema
from osculate.data.own.table_inputs import TableInputs
from osculate.data.own.tables import NO_TARGET, TEXT
from osculate.data.own.targets import Targets


@dataclass(frozen=True, repr=False)
class OwnData(Dataset):
    """The user's own data set: the three parts, and the schema by which they were made.

    Args:
        schema: The schema, which reads further data in the same way.
    """

    schema: Schema | None = None


def read(
    data: Any,
    target: str | Sequence[str] | None = None,
    *,
    task: str | None = None,
    columns: Mapping[str, str] | None = None,
    groups: str | None = None,
    split_column: str | None = None,
    image_size: int | None = None,
    channel_axis: str | None = None,
    missing: str | Sequence[str] | None = None,
    standardise: bool | None = None,
    train_size: int | None = None,
    validation_size: int | None = None,
    test_fraction: float = 0.2,
    seed: int = 0,
    schema: Schema | None = None,
) -> OwnData:
    """Read your own data and infer their schema: which columns are numbers, categories, dates or identifiers.

    ``print(data.schema)`` shows what was inferred. Its statistics (means, standard deviations, categories) are those of
    the training rows alone; ``data.schema.read(new)`` applies them to other data. What cannot be inferred is asked
    about in an error that names the argument.

    Args:
        data: A path or an object: a table (``.csv``, ``.tsv``, ``.parquet``, a pandas table or anything with
            ``to_pandas``, a mapping of columns), arrays (``.npz`` or a mapping with X and y, ``.npy``, a pair (X, y) of
            arrays or tensors), a folder of images (one folder for each class, or images alone), or a folder of
            ``Dataset.save_to_disk`` of Hugging Face.
        target: Name of the column or array to predict; several names for several real numbers. "none" for a table
            without targets; by default the array y, the folders of images, or the only column of class labels.
        task: "classification" or "regression", where the targets are whole numbers that may be either.
        columns: Kinds of columns by name, where they are inferred otherwise: "number", "category" (one 0 or 1 for each
            category), "date" (days), "exclude".
        groups: Name of the column or array of the groups, such as patients, each of which is in one part only.
        split_column: Name of the column or array that says train, validation or test for each row.
        image_size: Height and width to which images of a folder are cropped and scaled.
        channel_axis: "first" or "last", where the shape of images (N, channels, height, width) does not show it.
        missing: Words of CSV and TSV files that count as missing beside empty cells, such as ["?", "-"], or one text
            with commas; empty if all are words, such as NA for Namibia. By default "?" and what pandas knows: NA, NaN,
            None, null, …
        standardise: True or False; by default numbers of tables are standardised, and vectors in regression.
        train_size: Rows to train on; None for all that are left.
        validation_size: Rows for validation; None for a tenth of the training rows, at most 2,000.
        test_fraction: Share of the rows for testing, between 0 and 1, if the data do not say.
        seed: Seed of the random parts.
        schema: A schema to apply, in place of one that is inferred from these data, beside which the arguments
            by which one is inferred (task to standardise) are refused, and another target than that of the schema.

    Raises:
        FileNotFoundError: there is no such file or folder.
        ValueError: the data are of another kind, damaged, or leave open what they mean, or an argument contradicts
            the schema.
        TypeError: an object that is none of the above.
        ImportError: pandas and pyarrow (the extra ``tables``) or Pillow (the extra ``data``) are missing.

    Cost: everything is held in memory; :func:`osculate.data.stream` reads batches.

    >>> table = {"size": range(40), "colour": ["red", "blue"] * 20, "bought": ["no", "no", "yes", "no"] * 10}
    >>> data = read(table, target="bought")
    >>> data
    OwnData('data', train=29, validation=3, test=8, input_shape=(3,), outputs=2)
    >>> data.classes, data.schema.features
    (('no', 'yes'), ('size', 'colour=blue', 'colour=red'))
    """
    names = (target,) if isinstance(target, str) else None if target is None else tuple(target)
    if schema is not None:
        inferring = {
            "task": task,
            "columns": columns,
            "groups": groups,
            "split_column": split_column,
            "image_size": image_size,
            "channel_axis": channel_axis,
            "missing": missing,
            "standardise": standardise,
        }
        _require_for_schema(schema, inferring)
    if schema is None:
        size = None if image_size is None else (image_size, image_size)
        if image_size is not None:
            require_whole("image_size", image_size)
        words = _words(data, missing)
        content = content_of(data, Wanted(names, groups, split_column, words, size))
        if content.labels:  # a folder of images
            column = target if names not in (None, (), (NO_TARGET,), (FOLDER,)) else None
            _require_no_roles(content.name, {"target": column, "groups": groups, "split_column": split_column})
    else:
        content = data if isinstance(data, Content) else schema.open(data, parts=True, target=names)
    parts = Parts.of(content, Sizes(train_size, validation_size, test_fraction, seed))
    if schema is None:
        targets = None
        if content.y is not None:
            asks = content.is_table
            targets = Targets.of(content.y, content.names, task, content.name, asks).fitted(content.y, parts.train)
        inputs = _inputs(content, columns or {}, channel_axis, size is not None)
        default = content.is_table or targets is None or targets.classes is None
        inputs = inputs.fitted(content, parts.train, default if standardise is None else standardise)
        schema = Schema(inputs, targets, groups, split_column, Fingerprint.of(content), words)
    x, y = schema.tensors(content)
    train, validation, test = ((x[rows], y[rows]) for rows in (parts.train, parts.validation, parts.test))
    if schema.classes is not None:
        _warn_of_empty(schema.classes, train[1], content.name)
    path = data.name if isinstance(data, Content) else data
    name = Path(path).stem if isinstance(path, str | PathLike) else "data"
    scaling = None if schema.targets is None else schema.targets.scaling
    return OwnData(name, train, validation, test, schema.classes, schema.inputs.scaling, scaling, schema)


def _require_for_schema(schema: Schema, inferring: Mapping[str, Any]) -> None:
    """Raise an error for an argument that means nothing beside a schema.

    Args:
        schema: The schema.
        inferring: Arguments by which a schema is inferred.

    Raises:
        TypeError: it is no schema.
        ValueError: an argument is not None.
    """
    if not isinstance(schema, Schema):
        raise TypeError(f"schema must be the schema of data that were read, data.schema, got {type(schema).__name__}.")
    for name, value in inferring.items():
        if value is not None:
            raise ValueError(
                f"{name}={value!r} is for inferring a schema, and schema= is given, which says it already: leave one "
                "of the two out."
            )


def _words(data: Any, missing: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """The words that count as missing.

    Raises:
        ValueError: they are named for data that are no text.
    """
    if missing is None:
        return None
    if not isinstance(data, str | PathLike) or Path(data).suffix.lower() not in TEXT:
        raise ValueError(f"missing={missing!r} (--missing) is for {' and '.join(TEXT)} files: leave it out.")
    words = missing.split(",") if isinstance(missing, str) else missing
    return tuple(word.strip() for word in words if word.strip())


def _require_no_roles(folder: str, roles: Mapping[str, Any]) -> None:
    """Raise ValueError for a column that is named for a folder of images."""
    for role, name in roles.items():
        if name is not None:
            raise ValueError(
                f"{role}={name!r} (--{role.replace('_', '-')}) is for columns and arrays, and {folder} holds images, "
                "whose folders are their classes and parts: leave it out."
            )


def _inputs(
    content: Content, columns: Mapping[str, str], channel_axis: str | None, resized: bool
) -> TableInputs | ArrayInputs:
    """The inputs without their statistics.

    Raises:
        ValueError: an argument is for other data.
    """
    wrong = {"channel_axis": channel_axis, "image_size": resized or None} if content.is_table else {"columns": columns}
    for name, value in wrong.items():
        if value:
            kinds = ("tables", "arrays and images") if name == "columns" else ("images", "tables")
            raise ValueError(f"{name} is for {kinds[0]}, and {content.name} holds {kinds[1]}: leave it out.")
    return TableInputs.of(content, columns) if content.is_table else ArrayInputs.of(content, channel_axis, resized)


def _warn_of_empty(classes: tuple[str, ...], y: Tensor, source: str) -> None:
    """Warn of classes without training rows."""
    empty = [name for number, name in enumerate(classes) if not bool((y == number).any())]
    if empty:
        warnings.warn(f"no training row of {source} has the class {listed(empty, 5)}: add rows.", stacklevel=3)
