"""List the data sets that have a name, and where their files are.

Files are looked for in the folder named by OSCULATE_DATA, then in the user's cache. Any command takes these names with
--data, and downloads what is missing if there is a public original with a checksum.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osculate.data.catalogue import CATALOGUE, Files
from osculate.data.files import VARIABLE, user_cache


@dataclass(frozen=True)
class ListOptions:
    """The folder.

    Args:
        data_folder: The only folder to look into; by default $OSCULATE_DATA, then the cache.
    """

    data_folder: Path | None = None


PARTS = (ListOptions,)


def run(options: ListOptions) -> dict[str, Any]:
    """Print a row for each data set.

    Raises:
        FileNotFoundError: there is no such folder.
    """
    if options.data_folder is not None and not options.data_folder.is_dir():
        raise FileNotFoundError(f"there is no folder {str(options.data_folder)!r}: name another with --data-folder.")
    found = {name: files.found(options.data_folder) for name, files in CATALOGUE.items()}
    width = 2 + max(map(len, CATALOGUE))
    for name, files in CATALOGUE.items():
        print(f"{name:<{width}}{_where(name, files, found[name])}")
    return {
        VARIABLE: os.environ.get(VARIABLE),
        "cache": user_cache(),
        "data_sets": {
            name: {
                "ready": files.built_in or found[name] is not None,
                "folder": found[name],
                "downloads": files.downloads,
                "files": list(files.originals),
            }
            for name, files in CATALOGUE.items()
        },
    }


def _where(name: str, files: Files, found: Path | None) -> str:
    if files.built_in:
        return "built in"
    if found is not None:
        return str(found)
    if files.downloads:
        return f"not here: osculate data get {name}"
    return f"not here, no download: {', '.join(files.originals)}"
