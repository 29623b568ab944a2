"""Download data sets into the user's cache, by https and with checksums.

Nothing is downloaded that is found in the folder named by OSCULATE_DATA or in the cache.
"""

from dataclasses import dataclass
from typing import Any

from osculate.data import REGISTRY
from osculate.data.catalogue import fetch
from osculate.registry import lookup


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
    """Download what is missing, and print where everything is."""
    names = [stripped for name in options.names.split(",") if (stripped := name.strip())]
    for name in names:  # before the first download
        lookup("data set", name, REGISTRY)
    found = {}
    for name in names:
        found[name] = fetch(name)
        print(f"{name}: {', '.join(map(str, found[name])) or 'built in'}")
    return {"data_sets": found}
