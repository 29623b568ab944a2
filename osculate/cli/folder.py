"""The run folder: files are written atomically, so that an interruption leaves the old or the new file."""

import json
import shutil
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import yaml

from osculate.cli.options import plain
from osculate.files import beside, put, remove_leftovers, versions as versions, write_text as write_text
from osculate.memory import readable

#: Bytes of a configuration file at most.
LARGEST_CONFIG = 2**16
#: Depth of the values of a configuration file at most: the time to read nested ones grows with its square.
DEEPEST_CONFIG = 20
STARTS = (
    yaml.FlowSequenceStartToken,
    yaml.FlowMappingStartToken,
    yaml.BlockSequenceStartToken,
    yaml.BlockMappingStartToken,
)
ENDS = yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken, yaml.BlockEndToken
#: Options that say what becomes of an earlier run; they do not describe one.
WAYS = ("resume", "overwrite")
#: The name of a saved posterior.
POSTERIOR = "posterior.safetensors"
#: The schema of the user's own data.
SCHEMA = "schema.json"


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file."""
    write_text(path, json.dumps(plain(content), indent=2) + "\n")


def write_section(path: Path, section: str, content: Mapping[str, Any], fresh: bool = False) -> None:
    """Write one section of a JSON file and keep the others, unless `fresh`."""
    others: dict[str, Any] = {}
    if path.is_file() and not fresh:
        try:
            others = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{str(path)!r} is not a JSON file ({error}): remove it or choose another --output."
            ) from error
        if not isinstance(others, dict):
            raise ValueError(f"{str(path)!r} has no named sections: remove it or choose another --output.")
    write_json(path, {**others, section: content})


def write_config(path: Path, command: str, *parts: Any) -> None:
    """Write the options of a run as YAML that ``--config`` reads, with a checksum."""
    options = {name: value for part in parts for name, value in asdict(part).items() if name not in WAYS}
    text = yaml.safe_dump(plain(options), sort_keys=False, allow_unicode=True)
    write_text(path, f"# osculate {command} --config {path.name} repeats this run; sha256 {_checksum(text)}\n{text}")


def _checksum(text: str) -> str:
    return sha256(text.strip().encode()).hexdigest()


def read_config(path: Path) -> dict[str, Any]:
    """Read the options of a file, which must not be large or deep or have aliases: these grow without bound when read.

    A warning says that a file which osculate has written was changed afterwards.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is too large or too deep, has aliases, or is no YAML file of options.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file at {str(path)!r}.")
    if (size := path.stat().st_size) > LARGEST_CONFIG:
        raise ValueError(f"{str(path)!r} has {readable(size)}, and options take less than 64 kB: name another file.")
    try:
        text = path.read_text(encoding="utf-8")
        depth = 0
        for token in yaml.scan(text):
            if isinstance(token, yaml.AliasToken):
                raise ValueError(f"{str(path)!r} has aliases (*name), which options do not need: write the values out.")
            depth += isinstance(token, STARTS) - isinstance(token, ENDS)
            if depth > DEEPEST_CONFIG:
                raise ValueError(f"{str(path)!r} has values in more than {DEEPEST_CONFIG} levels: name another file.")
        options = yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"{str(path)!r} is not a YAML file ({' '.join(str(error).split())}).") from error
    if not isinstance(options, dict) or not options:
        raise ValueError(f"{str(path)!r} holds no options, each with a name and a value: it is cut off, or another.")
    comment, _, rest = text.partition("\n")
    ours = comment.startswith("#") and any(word in comment for word in ("osculate", "repeats", "sha256"))
    without = comment.endswith(" repeats this run")  # version 0.1
    if ours and not without and not comment.endswith(f"; sha256 {_checksum(rest)}"):
        warnings.warn(
            f"{str(path)!r} is not as osculate wrote it: it is damaged, or was edited. Remove its first line if "
            "you have edited it.",
            stacklevel=2,
        )
    return options


def run_folder(
    output: Path | None, usual: Path, mark: str, overwrite: bool = False, resume: bool | None = None
) -> Path:
    """The folder of a run: an earlier run in it is resumed or replaced only where this is asked for.

    Args:
        output: Folder that the user has named; a run in it is not touched otherwise.
        usual: Folder where none is named; with a run in it, the next number is taken.
        mark: File by which a run is known.
        overwrite: True to replace it.
        resume: True to go on with it; None for a command that has no such option.

    Raises:
        ValueError: there is a run that would be replaced, or both options are given.
    """
    folder = output or usual
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"--output {str(folder)!r} is a file: name a folder.")
    if resume and overwrite:
        raise ValueError("--resume goes on with a run, and --overwrite replaces it: leave one out.")
    if resume or overwrite or not (folder / mark).is_file():
        return folder
    if output is None:
        numbers = (folder.with_name(f"{folder.name}-{number}") for number in count(2))
        return next(each for each in numbers if not (each / mark).is_file())
    ways = "--overwrite to replace it" if resume is None else "--resume to go on with it, --overwrite to replace it"
    raise ValueError(f"--output {folder} holds a run: pass {ways}, or another folder.")


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
            put(path, folder / path.name)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
