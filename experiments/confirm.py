"""Records that code made which is other than today's and gives the same numbers in a small run."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isclose
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from experiments.experiment import REGISTRY, changed
from experiments.record import Record
from experiments.sources import commit
from experiments.stale import CODE, Stale, asked
from osculate.files import write_text

#: The working tree of this code, and the program that runs an experiment with tiny settings in any tree.
TREE, PROBE = Path(__file__).parent.parent, Path(__file__).with_name("probe.py")
#: Relative difference of numbers that are called the same: rounding is amplified by the steps of a training.
TOLERANCE = 1e-3
#: Least share of the numbers that two runs of the same code agree on; the others, such as seconds, are left out.
LEAST = 0.5


class Differs(Exception):
    """Today's code gives other numbers than that of a record, or they cannot be compared."""


def confirmed(stale: Stale) -> Record:
    """Return a record with the digests of today's code, if that gives the numbers of the record's own commit.

    Compared are the tiny runs of the tests, with one seed, in a working tree of the commit and in this one. Numbers
    that a repetition does not give, such as seconds, are not compared. The words of its claims stay those of then.
    The numbers of the commit are kept beside the records (``small/``); if today's agree with these, one run will do.

    Args:
        stale: A record of which only the code is another.

    Raises:
        ValueError: Code of this tree is not committed.
        Differs: The numbers, the settings of the run, or more than the code are other, or there is no such commit. The
            record is to be measured again.
    """
    if not (present := commit()) or present.endswith("-dirty"):
        raise ValueError("the code of this tree differs from its commit, which a record is to name: commit it first.")
    record, origin = stale.record, stale.record.setup.origin
    if others := [reason for reason in stale.reasons if not reason.startswith(CODE)]:
        raise Differs("; ".join(others))
    before = origin.confirmed or origin.commit
    commits = (before, *origin.added.values())
    if unknown := [each for each in commits if not each or each.endswith("-dirty")]:
        raise Differs(f"the code of its commit ({unknown[0] or 'unknown'}) is not known")
    path, today = stale.path.parent / "small" / stale.path.name, _probe(TREE, record.id)
    kept = _kept(path, origin.commit)
    if not kept or not _as_kept(kept, today):
        before = origin.commit if kept else before  # numbers that are compared with the last ones only may drift
        again = _probe(TREE, record.id)
        with TemporaryDirectory() as folder:
            tree = Path(folder) / "tree"
            _git("worktree", "add", "--detach", str(tree), before)
            try:
                lasting = _lasting(_probe(tree, record.id), today, again)
            finally:
                _git("worktree", "remove", "--force", str(tree))
        write_text(
            path, json.dumps({"commit": origin.commit, "settings": today["settings"], "numbers": lasting}) + "\n"
        )
    scale, changes = asked(record)
    chosen = REGISTRY[record.id]
    now = chosen.origin(changed(chosen.presets[scale], changes))
    return replace(
        record,
        setup=replace(record.setup, origin=replace(origin, confirmed=present, code=now.code, data=now.data)),
    )


def _lasting(before: dict[str, Any], today: dict[str, Any], again: dict[str, Any]) -> list[float | None]:
    """Return the numbers of a tree that another gives too, None for those that a repetition does not give.

    Numbers are compared in their order: rows may have been renamed.

    Raises:
        Differs: other settings, other numbers, or too few that are given again.
    """
    if before["settings"] != today["settings"]:
        raise Differs("the tiny settings are others")
    values = [_numbers(run) for run in (before, today, again)]
    if len({len(each) for each in values}) > 1:
        raise Differs(f"there are {len(values[1])} numbers, and {len(values[0])} before")
    found = [old if new == repeated else None for old, new, repeated in zip(*values, strict=True)]
    lasting = len(found) - found.count(None)
    if lasting < LEAST * len(found):
        raise Differs(f"a repetition gives {lasting} of {len(found)} numbers again")
    if other := sum(not _same(old, new) for old, new in zip(found, values[1], strict=True)):
        raise Differs(f"{other} of {lasting} numbers of a small run are others")
    return found


def _kept(path: Path, of: str) -> dict[str, Any]:
    """Return what is kept of a commit; nothing if it is of another one, or damaged."""
    try:
        kept = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    whole = isinstance(kept, dict) and kept.keys() >= {"commit", "settings", "numbers"}
    return kept if whole and kept["commit"] == of else {}


def _as_kept(kept: Mapping[str, Any], today: Mapping[str, Any]) -> bool:
    """Return True if a run gives the numbers that are kept."""
    old, new = kept["numbers"], _numbers(today)
    return kept["settings"] == today["settings"] and len(old) == len(new) and all(map(_same, old, new))


def _numbers(run: Mapping[str, Any]) -> list[float]:
    return [number for row in run["numbers"] for number in row]


def _same(old: float | None, new: float) -> bool:
    return old is None or isclose(old, new, rel_tol=TOLERANCE, abs_tol=1e-9)


def _probe(tree: Path, name: str) -> dict[str, Any]:
    """Run the tiny experiment in a tree."""
    surroundings = {**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
    done = _run([sys.executable, "-W", "ignore", str(PROBE), name], cwd=tree, env=surroundings)
    found: dict[str, Any] = json.loads(done.splitlines()[-1])
    return found


def _git(*words: str) -> None:
    _run(["git", "-C", str(TREE), *words])


def _run(words: Sequence[str], **options: Any) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False, **options)
    if done.returncode:
        raise Differs((done.stderr.strip().splitlines() or [f"{words[0]} failed"])[-1])
    return done.stdout
