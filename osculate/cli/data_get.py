"""Download data sets, by https and with checksums.

They go into the user's cache. Nothing is downloaded that is found in the folder named by OSCULATE_DATA or in the cache.
"""

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from osculate.data import REGISTRY
from osculate.data.catalogue import fetch


@dataclass(frozen=True)
class GetOptions:
    """The data sets.

    Args:
        names: Names of data sets as osculate data list shows them, separated by commas.
    """

    names: str


PARTS = (GetOptions,)
SUBJECT = "names"


def run(options: GetOptions) -> dict[str, Any]:
    """Download what is missing, and print where everything is.

    Raises:
        ValueError: a name is unknown, or a set is missing that has no public original.
        FileNotFoundError: a download has failed.
    """
    names = [stripped for name in options.names.split(",") if (stripped := name.strip())]
    for name in names:  # before the first download
        if name not in REGISTRY:
            near = get_close_matches(name, REGISTRY, n=1)
            hint = f" (did you mean {near[0]!r}?)" if near else ""
            raise ValueError(f"unknown data set {name!r}{hint}: osculate data list shows all.")
    found = {}
    for name in names:
        found[name] = fetch(name)
        print(f"{name}: {', '.join(map(str, found[name])) or 'built in'}")
    return {"data_sets": found}
