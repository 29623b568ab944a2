"""Compare random cases with the dense truth, and write the record.

python -m tests.fuzz --cases 20000   goes on where the record ends, so that it may be killed at any time
python -m tests.fuzz --mutants       counts the cases of `make check` that notice each seeded mistake
python -m tests.fuzz --seed 1234     shows one case, with the traceback of its failure
"""

import argparse
import hashlib
import json
import warnings
from pathlib import Path
from typing import Any

import torch

import osculate as osc
from osculate.files import versions, write_text
from osculate.progress import track
from tests.fuzz.cases import Case, random_case
from tests.fuzz.mutants import MUTANTS, caught
from tests.fuzz.operations import OPERATIONS, run
from tests.fuzz.outcomes import FAILURES, WEIGHTS, outcome

RECORD = Path(__file__).with_name("record.json")
#: Cases in `make check`, and cases after which the record is written.
CHECKED, EVERY = 500, 500
STRUCTURES = tuple(osc.structures.REGISTRY)


def digest() -> str:
    """A digest of the files that make cases, compare them, and are compared."""
    folders = (Path(__file__).parent, Path(osc.__file__).parent)
    files = sorted(path for folder in folders for path in folder.rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def add(record: dict[str, Any], case: Case, what: str, said: str) -> None:
    """Count one case."""
    record["cases"] += 1
    record["outcomes"][what] = record["outcomes"].get(what, 0) + 1
    if what in FAILURES:
        record["failures"].append(line(case, what, said))
        print(record["failures"][-1])
    table = record["coverage"].setdefault(case.operation, {})
    counts = table.setdefault(type(case.likelihood).__name__, [0] * len(STRUCTURES))
    counts[STRUCTURES.index(case.structure.name)] += 1


def line(case: Case, what: str, said: str) -> str:
    """One line that reproduces a case."""
    return f"python -m tests.fuzz --seed {case.seed}  # {what}: {' '.join(said.split())[:200]} | {case}"


def written(record: dict[str, Any]) -> str:
    """The record as JSON, a line for each row of the coverage."""
    text = json.dumps({**record, "versions": versions(("osculate",))}, indent=2)
    rows = [counts for table in record.get("coverage", {}).values() for counts in table.values()]
    for row in rows:
        text = text.replace(json.dumps(row, indent=2).replace("\n", "\n      "), json.dumps(row))
    return text + "\n"


def cases(total: int) -> None:
    """Run cases up to a number, from where the record ends; from the first if it is of other code."""
    record = json.loads(RECORD.read_text()) if RECORD.is_file() else {}
    if record.get("digest") != digest():
        record = {"mutants": record.get("mutants", {})}
    record = {"cases": 0, "outcomes": {}, "failures": [], "structures": STRUCTURES, "coverage": {}, **record}
    record["digest"] = digest()
    left = range(record["cases"], total)
    for seed in track(left, "cases", len(left), True):
        add(record, *outcome(seed))
        if (seed + 1) % EVERY == 0 or seed + 1 == total:
            write_text(RECORD, written(record))
    print(json.dumps(record["outcomes"]))


def mutants() -> None:
    """Count the cases of `make check` that notice each mistake, and agree without it."""
    record = json.loads(RECORD.read_text()) if RECORD.is_file() else {}
    record["mutants"] = {}
    for mutant in track(MUTANTS, "mutants", len(MUTANTS), True):
        record["mutants"][mutant.name] = count = caught(mutant, range(CHECKED), fails)
        print(f"{count:4d} of {CHECKED}: {mutant.name} ({mutant.place})")
        write_text(RECORD, written(record))


def fails(seed: int) -> bool:
    """True if a case is wrong or ends in a raw exception."""
    return outcome(seed)[1] in FAILURES


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=0, help="number of cases in the record")
    parser.add_argument("--mutants", action="store_true", help="seed mistakes")
    parser.add_argument("--seed", type=int, help="one case")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if chosen.seed is not None:
        case = random_case(chosen.seed, WEIGHTS)
        print(case, case.net.module, OPERATIONS[case.operation][0].__doc__, sep="\n")
        run(case)
    if chosen.cases:
        cases(chosen.cases)
    if chosen.mutants:
        mutants()


if __name__ == "__main__":
    main()
