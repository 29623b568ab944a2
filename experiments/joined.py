"""Records that grow: further seeds, measured by the same code, beside those that a record has."""

from collections.abc import Sequence
from dataclasses import replace

from experiments.paired import ERRORS, errors_in
from experiments.record import UNDECIDED, Claim, Number, Record


def grows(record: Record) -> bool:
    """Return True if other seeds can join: each cell has a value for each of several seeds, or one or none in all."""
    had = len(record.setup.seeds)
    return had > 1 and all(len(number.values) in (0, 1, had) for number in record.findings.numbers)


def joined(before: Record, more: Record) -> Record:
    """Return a record with the seeds of two.

    Cells with a value for each seed have the values of both. Others stay those of the first record: cells with one
    value for all of its seeds, and the data of the figure with their errors over test data; an error that it lacks
    is that of the other seeds. Words of a claim that differ stand side by side; those that the code of today leaves out
    are left out.

    Args:
        before: A record that is not stale and :func:`grows`, so that today's code gives its numbers.
        more: Other seeds of the same experiment and settings, of today's code.

    Raises:
        ValueError: The two are of other scales or code, share seeds, have other cells, or decide an exact claim or one
            of cost differently. All seeds are to be measured by one run.
    """
    old, new = before.setup, more.setup
    if (before.id, old.scale) != (more.id, new.scale) or set(old.seeds) & set(new.seeds):
        raise _refused(before, f"the others are {_of(new.seeds)} of {more.id}, {new.scale}")
    if old.origin.code != new.origin.code:
        raise _refused(before, "the code of the others is not that of the record")
    cells = {(number.row, number.column): number for number in more.findings.numbers}
    numbers = tuple(
        _cell(before, more, number, cells.pop((number.row, number.column), None)) for number in before.findings.numbers
    )
    if cells:
        raise _refused(before, f"it has no cell {next(iter(cells))}")
    words = {claim.text: claim for claim in more.findings.claims}
    claims = tuple(_claim(before, more, claim, words.get(claim.text)) for claim in before.findings.claims)
    others = {_of(new.seeds): new.origin.commit} if new.origin.commit != old.origin.commit else {}
    origin = replace(old.origin, added={**old.origin.added, **others})
    setup = replace(old, seeds=(*old.seeds, *new.seeds), seconds=round(old.seconds + new.seconds, 1), origin=origin)
    errors = {**errors_in(more.findings.data), **errors_in(before.findings.data)}
    data = {**before.findings.data, **({ERRORS: errors} if errors else {})}
    return replace(before, setup=setup, findings=replace(before.findings, numbers=numbers, claims=claims, data=data))


def _cell(before: Record, more: Record, number: Number, other: Number | None) -> Number:
    had, found = len(before.setup.seeds), len(more.setup.seeds)
    if other is None or len(number.values) < had:
        return number
    if (len(number.values), len(other.values)) != (had, found):
        counts = f"of {had} and {found} seeds it has {len(number.values)} and {len(other.values)} values"
        raise _refused(before, f"{number.row}, {number.column}: {counts}")
    return replace(number, values=number.values + other.values)


def _claim(before: Record, more: Record, claim: Claim, other: Claim | None) -> Claim:
    if other is None:
        return claim
    if UNDECIDED != other.verdict != claim.verdict:  # that of the rule is not decided yet
        raise _refused(before, f"by {_of(more.setup.seeds)} {claim.text!r} is decided differently")
    if claim.evidence.startswith(other.evidence):  # words that today's code does not say any more
        return replace(claim, evidence=other.evidence)
    first, further = (_of(record.setup.seeds) for record in (before, more))
    words = claim.evidence if claim.evidence.startswith("Seed") else f"{first.capitalize()}: {claim.evidence}"
    return replace(claim, evidence=f"{words} {further.capitalize()}: {other.evidence}")


def _refused(record: Record, reason: str) -> ValueError:
    return ValueError(f"seeds cannot be added to {record.id}: {reason}. All of them are measured by one run.")


def _of(seeds: Sequence[int]) -> str:
    return f"seeds {seeds[0]}–{seeds[-1]}" if len(seeds) > 1 else f"seed {seeds[0]}"
