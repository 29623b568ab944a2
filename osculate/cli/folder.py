"""The run folder: files are written atomically, so that an interruption leaves the old or the new file."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import yaml

from osculate.cli.options import plain
from osculate.files import beside, remove_leftovers, versions as versions, write_text as write_text
from osculate.memory import readable

#: Bytes of a configuration file at most.
LARGEST_CONFIG = 2**20
#: The name of a saved posterior.
POSTERIOR = "posterior.safetensors"


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file."""
    write_text(path, json.dumps(plain(content), indent=2) + "\n")


def write_section(path: Path, section: str, content: Mapping[str, Any], fresh: bool = False) -> None:
    """Write one section of a JSON file and keep the others, unless `fresh`."""
    others: dict[str, Any] = {}
    if path.is_file() and not fresh:
        try:
            others = json.loads(path.read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise ValueError(
                f"{str(path)!r} is not a JSON file ({error}): remove it or choose another --output."
            ) from error
    write_json(path, {**others, section: content})


def write_config(path: Path, command: str, *parts: Any) -> None:
    """Write the options of a run as YAML that ``--config`` reads."""
    options = {name: value for part in parts for name, value in asdict(part).items()}
    text = yaml.safe_dump(plain(options), sort_keys=False, allow_unicode=True)
    write_text(path, f"# osculate {command} --config {path.name} repeats this run\n{text}")


def read_config(path: Path) -> dict[str, Any]:
    """Read the options of a file, which must not be large or have aliases: these can grow without bound when read.

    Raises:
        ValueError: it is too large, has aliases, or is no YAML file of options.
    """
    if (size := path.stat().st_size) > LARGEST_CONFIG:
        raise ValueError(f"{str(path)!r} has {readable(size)}, and options take less than 1 MB: name another file.")
    try:
        text = path.read_text(encoding="utf-8")
        if any(isinstance(token, yaml.AliasToken) for token in yaml.scan(text)):
            raise ValueError(f"{str(path)!r} has aliases (*name), which options do not need: write the values out.")
        options = yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} is not a YAML file ({' '.join(str(error).split())}).") from error
    if not isinstance(options, dict | None):
        raise ValueError(f"{str(path)!r} is not a YAML file of options, each with a name and a value.")
    return options or {}


@contextmanager
def staged(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder, whose files replace those in `folder` only when all are complete.

    Other files in `folder` are kept; after an error nothing there has changed.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder)
    aside = beside(folder)
    aside.mkdir()
    try:
        yield aside
        folder.mkdir(exist_ok=True)
        for path in sorted(aside.iterdir()):
            os.replace(path, folder / path.name)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
