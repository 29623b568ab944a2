"""Count what becomes of damaged files, hostile files and killed commands, and write the record of docs/reliability.md.

python -m tests.faults --damaged 3000 --hostile 500 --kills 50
"""

import argparse
import json
import random
import tempfile
from collections import Counter
from pathlib import Path

import torch

from osculate.files import versions, write_text
from osculate.progress import track
from tests.faults.artefacts import MAKERS, TENSORS, answer, make, name_of
from tests.faults.damage import ACCIDENTS, swapped_tensors
from tests.faults.hostile import CANARY, hostile
from tests.faults.kills import ELSEWHERE, JOBS, Kills

RECORD = Path(__file__).with_name("record.json")
PAGE = Path(__file__).parents[2] / "docs" / "reliability.md"
MARKS = "<!-- reliability -->\n", "<!-- /reliability -->"


def filled(page: str, record: dict[str, dict[str, dict[str, int]]]) -> str:
    """The page with the table of a record."""
    lines = ["| | cases | outcomes |", "|---|---|---|"]
    for kind in ("files", "kills"):
        for what, outcomes in record.get(kind, {}).items():
            told = ", ".join(f"{outcome}: {count:,}" for outcome, count in sorted(outcomes.items()))
            name = f"killed: {what}" if kind == "kills" else what.replace("_", " ")
            lines.append(f"| {name} | {sum(outcomes.values()):,} | {told} |")
    before, after = page.split(MARKS[0])[0], page.split(MARKS[1])[1]
    return before + MARKS[0] + "\n".join(lines) + "\n" + MARKS[1] + after


#: Bytes that the reader of a hostile file may allocate.
LIMIT = 64 * 2**20


def tried(kind: str, path: Path, expected: torch.Tensor) -> str:
    """The outcome of reading a file that should not be trusted.

    Raises:
        AssertionError: it has executed something, or the reader has allocated more than :data:`LIMIT`.
    """
    before = resident(reset=True)
    try:
        found = answer(kind, path)
    except (ValueError, OSError):
        outcome = "refused in a sentence"
    except Exception as error:
        outcome = f"raw {type(error).__name__}"
    else:
        outcome = "the same answer" if torch.equal(found, expected) else "another answer"
    taken = resident() - before
    assert taken < LIMIT, f"{path} took {taken:,} bytes"
    assert not CANARY.exists(), f"{path} executed a command"
    return outcome


def resident(reset: bool = False) -> int:
    """The most bytes that the process has held since the last reset; zero where the system does not tell."""
    try:
        if reset:
            Path("/proc/self/clear_refs").write_text("5")
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))


def files(damaged: int, well_formed: int) -> dict[str, dict[str, int]]:
    """Count the outcomes of damaged and of hostile files, by kind of damage."""
    outcomes: dict[str, Counter] = {}
    harms = {**ACCIDENTS, "swapped_tensors": swapped_tensors, "hostile": hostile}
    names = [name for name in harms if name != "hostile"]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        places = {kind: folder / kind / name_of(kind) for kind in MAKERS}
        for kind, path in places.items():
            path.parent.mkdir()
            make(kind, path)
        whole = {kind: (path.read_bytes(), answer(kind, path)) for kind, path in places.items()}
        jobs = [names[number % len(names)] for number in range(damaged)] + ["hostile"] * well_formed
        for number, what in enumerate(track(jobs, "files", len(jobs), True)):
            kinds = TENSORS if what == "swapped_tensors" else tuple(MAKERS)
            draw = random.Random(number)
            kind = kinds[number // (1 if what == "hostile" else len(names)) % len(kinds)]
            content, expected = whole[kind]
            path = places[kind]
            path.unlink(missing_ok=True)  # it may be a link
            path.write_bytes(content)
            harms[what](path, draw)
            outcomes.setdefault(what, Counter())[tried(kind, path, expected)] += 1
    return {what: dict(counts) for what, counts in outcomes.items()}


def kills(count: int) -> dict[str, dict[str, int]]:
    """Count the outcomes of killed commands, half of them with temporary files on another file system."""
    outcomes: dict[str, Counter] = {}
    with tempfile.TemporaryDirectory() as name, tempfile.TemporaryDirectory(dir=ELSEWHERE) as elsewhere:
        harness = Kills(Path(name), Path(elsewhere))
        for number in track(range(count), "kills", count, True):
            job = list(JOBS)[number // 2 % len(JOBS)]
            outcomes.setdefault(job, Counter())[harness.outcome(job, number) or "the same result"] += 1
    return {what: dict(counts) for what, counts in outcomes.items()}


def main() -> None:
    """Run what is asked for, and keep the rest of the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("damaged", "hostile", "kills"):
        parser.add_argument(f"--{name}", type=int, default=0, help="number of cases")
    chosen = parser.parse_args()
    record = json.loads(RECORD.read_text()) if RECORD.is_file() else {}
    if chosen.damaged or chosen.hostile:
        record["files"] = files(chosen.damaged, chosen.hostile)
    if chosen.kills:
        record["kills"] = kills(chosen.kills)
    write_text(RECORD, json.dumps({**record, "versions": versions(("osculate",))}, indent=2) + "\n")
    write_text(PAGE, filled(PAGE.read_text(encoding="utf-8"), record))
    print(json.dumps({name: record[name] for name in ("files", "kills") if name in record}, indent=2))


if __name__ == "__main__":
    main()
