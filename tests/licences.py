"""Licences of all libraries that osculate can need: `python -m tests.licences` prints them as a table."""

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

#: Licences that oblige whoever passes a program on to pass its source on; that of a library (LGPL) does not.
COPYLEFT = re.compile(r"(?<!L)(?<!Lesser )(?<!Library or Lesser )(\bA?GPL|General Public License)", re.IGNORECASE)
#: The extra that may have them, and is not part of `all`.
APART = ("astra",)


@dataclass(frozen=True)
class Library:
    """A library that is installed.

    Args:
        name: Its name.
        version: Its version.
        licence: As its authors name it: an expression, else a classifier, else the first line of their text.
        extras: The extras of osculate that bring it; "core" if it is always there.
    """

    name: str
    version: str
    licence: str
    extras: tuple[str, ...]

    @property
    def copyleft(self) -> bool:
        """True for the GPL and the AGPL."""
        return bool(COPYLEFT.search(self.licence))


def licence(found: Distribution) -> str:
    """The licence of a distribution, as its metadata name it."""
    data = found.metadata
    classifiers = [c.rsplit(" :: ", 1)[-1] for c in data.get_all("Classifier") or [] if c.startswith("License ::")]
    lines = (data.get("License") or "").strip().splitlines()
    return (
        data.get("License-Expression") or ", ".join(c for c in classifiers if c != "OSI Approved") or "".join(lines[:1])
    )


def needed(name: str, extra: str = "") -> Iterator[tuple[str, str]]:
    """Name and extra of everything that a distribution needs here, itself included."""
    known: set[tuple[str, str]] = set()
    waiting = [(canonicalize_name(name), extra)]
    while waiting:
        at = waiting.pop()
        if at in known:
            continue
        known.add(at)
        yield at
        try:
            requirements = [Requirement(text) for text in distribution(at[0]).requires or ()]
        except PackageNotFoundError:
            continue
        for each in requirements:
            if each.marker is None or each.marker.evaluate({"extra": at[1]}):
                waiting += [(canonicalize_name(each.name), chosen) for chosen in ("", *each.extras)]


def libraries(extras: Iterable[str]) -> list[Library]:
    """The installed libraries that the core and these extras bring, by name."""
    bring: dict[str, list[str]] = {}
    for extra in ("", *extras):
        for name in dict.fromkeys(name for name, _ in needed("osculate", extra)):
            bring.setdefault(name, []).append(extra or "core")
    found = []
    for name, by in sorted(bring.items()):
        if name == "osculate":
            continue
        try:
            each = distribution(name)
        except PackageNotFoundError:
            continue
        found.append(Library(name, each.version, licence(each) or "not said", ("core",) if "core" in by else tuple(by)))
    return found


def own_extras() -> list[str]:
    """The extras of osculate for its users, without those that are made of others."""
    found = distribution("osculate").metadata.get_all("Provides-Extra") or []
    return [extra for extra in found if extra not in ("all", "dev", "bench", "docs")]


def table(rows: Iterable[Library]) -> str:
    """The libraries in Markdown."""
    lines = [f"| {each.name} {each.version} | {each.licence} | {', '.join(each.extras)} |" for each in rows]
    return "\n".join(["| library | licence | extras |", "|---|---|---|", *lines])


if __name__ == "__main__":
    everything = libraries(own_extras())
    print(table(everything))
    if wrong := [each.name for each in everything if each.copyleft and not set(each.extras) <= set(APART)]:
        sys.exit(f"{', '.join(wrong)}: under the GPL, and not in the extra {' or '.join(APART)} alone.")
