"""The documents whose claims the records test, each with its claims in order; and verdicts over all records."""

from collections.abc import Mapping
from pathlib import Path

from experiments.aevb.stated import DOCUMENT as VARIATIONAL_BAYES
from experiments.l2m.stated import DOCUMENT as SECOND_MOMENTS
from experiments.lae.stated import DOCUMENT as AUTOENCODERS
from experiments.linlap.stated import DOCUMENT as LINEARISED
from experiments.methods.stated import DOCUMENT as BEYOND
from experiments.record import Record, records_in
from experiments.rule import Evidence, holm
from experiments.statements import Artefact, Document, Outcome, rejudged
from experiments.vl.stated import DOCUMENT as VARIATIONAL_LAPLACE

#: In the order of the index.
DOCUMENTS = (AUTOENCODERS, LINEARISED, VARIATIONAL_LAPLACE, SECOND_MOMENTS, VARIATIONAL_BAYES, BEYOND)
#: Largest number of headlines of a document.
MOST = 4


def artefact(name: str) -> Artefact | None:
    """Return the claims of a record's file; None if nothing is stated about it."""
    return next((each for document in DOCUMENTS for each in document.artefacts if each.id == name), None)


def outcomes(document: Document, records: Mapping[str, Record]) -> dict[tuple[str, str], Outcome]:
    """Return what the records say about the claims of a document, by record and text."""
    return {
        (each.id, statement.text): statement.outcome(records[each.id])
        for each, statement in document.statements()
        if each.id in records
    }


def family(document: Document, found: Mapping[tuple[str, str], Outcome]) -> dict[tuple[str, str], bool | None]:
    """Return the verdicts on the headlines of a document, which share one chance of a wrong verdict."""
    keys = [(each.id, statement.text) for each, statement in document.statements() if statement.headline]
    judged = {key: found[key].evidence for key in keys if key in found}
    known = {key: evidence for key, evidence in judged.items() if isinstance(evidence, Evidence)}
    return dict(zip(known, holm(list(known.values())), strict=True))


def judged(records: Mapping[str, Record]) -> dict[str, Record]:
    """Return the records with the verdicts of the rule, by name of the file."""
    found = dict(records)
    for document in DOCUMENTS:
        headlines = family(document, outcomes(document, records))
        for each in document.artefacts:
            if each.id in records:
                verdicts = {text: holds for (name, text), holds in headlines.items() if name == each.id}
                found[each.id] = rejudged(records[each.id], each.statements, verdicts)
    return found


def judge(folder: Path) -> dict[str, Record]:
    """Judge all records of a folder anew, write those whose verdicts change, and return them by name.

    Headlines of a document are judged together.
    """
    before = records_in(folder)
    after = judged({path.stem: record for path, record in before.items()})
    changed = {path: after[path.stem] for path, record in before.items() if record != after[path.stem]}
    for path, record in changed.items():
        record.write(path)
    return {path.stem: record for path, record in changed.items()}
