"""What the rule says of claims that have limits."""

from experiments.documents import artefact
from experiments.record import Findings, Record, Setup
from experiments.statements import rejudged


def verdicts(name: str, findings: Findings) -> list[str]:
    """The verdicts on an artefact's claims of cost and exact claims, in order."""
    record = Record(name, "", "", Setup("small", {}, (0,), 1.0, {}), findings)
    stated = artefact(name)
    assert stated
    limited = [each for each in stated.statements if each.kind != "seeds"]
    claims = rejudged(record, limited, {}).findings.claims
    return [claim.verdict for claim in claims if claim.stated]
