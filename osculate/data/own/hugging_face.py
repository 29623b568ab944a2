"""Data sets that the library ``datasets`` has saved with ``save_to_disk``: Arrow files and JSON, read by pyarrow."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from osculate.checks import require_library
from osculate.data.own.content import Content, Wanted, listed
from osculate.data.own.parts import NAMES as PARTS
from osculate.data.own.pictures import decoded
from osculate.data.own.tables import NO_TARGET, table_content

#: Files by which a saved data set, and a saved mapping of several, is known.
ONE, SEVERAL = "state.json", "dataset_dict.json"
#: Column with the name of the part.
PART = "split"


def is_saved(folder: Path) -> bool:
    """True for a folder that ``save_to_disk`` has written."""
    return (folder / ONE).is_file() or (folder / SEVERAL).is_file()


def saved_content(folder: Path, wanted: Wanted) -> Content:
    """The rows of a saved data set; the splits of a saved mapping are the parts.

    Raises:
        ValueError: a file is missing or damaged, or a split has another name than train, validation and test.
    """
    require_library("pyarrow", "data sets of Hugging Face")
    require_library("pandas", "tables")
    import pandas as pd

    if (folder / ONE).is_file():
        return _content(*_table(folder), str(folder), wanted)
    names = list(_json(folder / SEVERAL).get("splits", ()))
    if unknown := [name for name in names if name.lower() not in PARTS]:
        raise ValueError(
            f"{folder} has the split {unknown[0]!r}: name the folder of one split, such as {str(folder / names[0])!r}."
        )
    tables = [(name, *_table(folder / name)) for name in names]
    if wanted.parts and wanted.split_column is None:
        tables = [(name, table.assign(**{PART: name}), features) for name, table, features in tables]
        wanted = replace(wanted, split_column=PART)
    frame = pd.concat([table for _, table, _ in tables], ignore_index=True)
    return _content(frame, tables[0][2], str(folder), wanted)


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} is missing or damaged ({error}): save the data set again.") from error
    return content if isinstance(content, dict) else {}


def _table(folder: Path) -> tuple[Any, dict[str, Any]]:
    """The rows of one data set as a pandas table with names of classes, and the types of its columns."""
    import pyarrow as pa

    state, features = _json(folder / ONE), _json(folder / "dataset_info.json").get("features") or {}
    if state.get("_indices_files"):
        raise ValueError(f"{folder} holds a selection of rows: save it with dataset.flatten_indices().save_to_disk(…).")
    tables = []
    for each in state.get("_data_files", ()):
        path = folder / Path(str(each.get("filename", ""))).name  # never outside the folder
        try:
            with pa.memory_map(str(path)) as file:
                tables.append(pa.ipc.open_stream(file).read_all())
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{path} is missing or damaged ({error}): save the data set again.") from error
    if not tables:
        raise ValueError(f"{folder} names no data files: save the data set again.")
    frame = pa.concat_tables(tables).to_pandas()
    for name, kind in features.items():
        if name in frame and isinstance(kind, dict) and kind.get("_type") == "ClassLabel" and kind.get("names"):
            words = dict(enumerate(kind["names"]))
            frame[name] = frame[name].map(words)
    return frame, features


def _content(frame: Any, features: dict[str, Any], name: str, wanted: Wanted) -> Content:
    """A table, or the images of one of its columns."""
    kinds = {column: kind.get("_type") for column, kind in features.items() if isinstance(kind, dict)}
    images = [column for column, kind in kinds.items() if kind == "Image" and column in frame]
    classes = [column for column, kind in kinds.items() if kind == "ClassLabel" and column in frame]
    if wanted.target is None and wanted.targets and len(classes) == 1:
        wanted = replace(wanted, target=tuple(classes))
    if not images:
        return table_content(frame, name, wanted)
    if len(images) > 1:
        raise ValueError(f"{name} has several columns of images, {listed(images)}: keep one.")
    if wanted.target is None and wanted.targets:
        wanted = replace(wanted, target=(NO_TARGET,))
    cells = [cell.get("bytes") if isinstance(cell, dict) else None for cell in frame[images[0]]]
    rest = table_content(frame, name, wanted)
    pictures = [(f"row {number + 1} of {name}", cell) for number, cell in enumerate(cells) if cell is not None]
    if len(pictures) < len(cells):
        raise ValueError(f"the images of {name} are not in its files: save the data set with its images embedded.")
    x = decoded(pictures, wanted, name)
    return Content(name, x, rest.y, rest.names, rest.groups, rest.split)
