"""Records of experiments: the document's numbers beside ours, and a verdict on each of its claims."""

import json
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from math import isfinite, sqrt
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from torch import Tensor

from osculate.files import write_text
from osculate.registry import choose

#: First entry of every record's file, which distinguishes it from other JSON files in the folder.
SCHEMA = "osculate.reproduction/1"

#: Differences below this are rounding errors.
ROUNDING = 1e-9

#: Names of data sets in tables and figures.
TITLES = {
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "kmnist": "KMNIST",
    "digits": "digits",
    "frey_face": "Frey Face",
}
TITLES |= {"cifar10": "CIFAR-10", "cifar10_jpeg": "CIFAR-10", "cifar100": "CIFAR-100", "svhn": "SVHN"}

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"
#: Entries of a claim beside its text and verdict, which older records may lack.
WORDS = ("evidence", "stated", "tested")
#: Verdict of a claim that the measurement has no numbers for.
UNTESTED = "not tested at this scale"


@dataclass(frozen=True)
class Number:
    """One cell of a table: our values, and the one that the document prints.

    Args:
        row: Row of the table, such as a method.
        column: Quantity, with its unit.
        values: Our values, one per seed; empty if nothing was measured.
        printed: Value in the document, as printed there; empty if it prints none.

    Raises:
        ValueError: A value is not finite.
    """

    row: str
    column: str
    values: tuple[float, ...]
    printed: str = ""

    def __post_init__(self) -> None:
        for value in self.values:
            if not isfinite(value):
                raise ValueError(
                    f"{self.row}, {self.column}: got {value}. A record holds finite numbers; leave the values empty "
                    "where nothing was measured."
                )

    @property
    def mean(self) -> float | None:
        """Mean over seeds; None if nothing was measured."""
        return mean(self.values) if self.values else None

    @property
    def standard_error(self) -> float | None:
        """Standard error of the mean; None for fewer than two seeds."""
        return stdev(self.values) / sqrt(len(self.values)) if len(self.values) > 1 else None

    @property
    def pair(self) -> tuple[float, float]:
        """Mean and standard error, zero where there is none."""
        return self.mean or 0.0, self.standard_error or 0.0

    def __str__(self) -> str:
        if self.mean is None:
            return "–"
        error, noise = self.standard_error, max(ROUNDING, ROUNDING * abs(self.mean))
        if error is None or error < noise:
            return readable(0.0 if abs(self.mean) < ROUNDING else self.mean)
        return f"{readable(self.mean)} ± {rough(error)}"

    @property
    def cell(self) -> str:
        """Our value, and the document's in brackets."""
        return f"{self} ({self.printed})" if self.printed else str(self)


def readable(value: float, sign: str = "") -> str:
    """Return three digits, and all digits before the point; ``sign="+"`` also marks positive values."""
    return f"{value:{sign},.0f}" if 99.95 <= abs(value) < 1e9 else f"{value:{sign}.3g}"


def rough(error: float) -> str:
    """Return a standard error with one digit, and all digits before the point.

    >>> rough(0.0123), rough(9.7), rough(12.3)
    ('0.01', '10', '12')
    """
    return f"{error:.0f}" if 9.5 <= error < 1e9 else f"{error:.1g}"


@dataclass(frozen=True)
class Claim:
    """A claim of the document, with a verdict by our numbers.

    Args:
        text: Name of its statement in ``stated.py`` (``Statement.of``), a few words; or the whole statement if only its
            numbers decide.
        verdict: "holds", "does not hold", "undecided" or "not tested at this scale".
        evidence: Words that the table does not say; of claims that are exact or of cost, what decides.
        stated: The claim as it is stated for the rule of verdicts.
        tested: Comparison that decides it.

    Raises:
        ValueError: Unknown verdict.
    """

    text: str
    verdict: str
    evidence: str = ""
    stated: str = ""
    tested: str = ""

    def __post_init__(self) -> None:
        choose("verdict", self.verdict, (HOLDS, FAILS, UNDECIDED, UNTESTED))

    @classmethod
    def over_seeds(cls, text: str, evidence: str = "") -> "Claim":
        """Return a claim that the rule of verdicts decides by the numbers of the record."""
        return cls(text, UNDECIDED, evidence)

    @classmethod
    def judged(cls, text: str, holds: bool | None, evidence: str) -> "Claim":
        """Return a claim that is exact or of cost, with its verdict.

        Args:
            text: Name of its statement.
            holds: None if it could not be tested at this scale.
            evidence: Numbers that decide.

        Raises:
            ValueError: There is no evidence.
        """
        if not evidence:
            raise ValueError(f"the claim {text!r} needs evidence for its verdict.")
        return cls(text, UNTESTED if holds is None else HOLDS if holds else FAILS, evidence)

    def __str__(self) -> str:
        """Return the verdict, the claim, the comparison that decides it, and the evidence in words.

        >>> str(Claim("width", HOLDS, "It is smooth.", "The error falls with the width", "-0.2 ± 0.01 nats"))
        'Holds: The error falls with the width (-0.2 ± 0.01 nats). It is smooth.'
        """
        tested = f" ({self.tested})" if self.tested else ""
        return f"{self.verdict.capitalize()}: {self.stated or self.text}{tested}. {self.evidence}".rstrip()


def printed(columns: Sequence[str], rows: Mapping[str, Sequence[str]]) -> dict[tuple[str, str], str]:
    """Return the values that a document prints, by row and column.

    >>> printed(("NLL", "ECE"), {"MAP": ("0.43", ".058")})
    {('MAP', 'NLL'): '0.43', ('MAP', 'ECE'): '.058'}
    """
    return {(row, column): text for row, texts in rows.items() for column, text in zip(columns, texts, strict=True)}


def rounded(values: Tensor, digits: int = 4) -> list:
    """Return numbers as a record keeps them, with a few digits after the point."""
    return values.detach().double().numpy().round(digits).tolist()


def word(value: Any, form: str = ".3g", missing: str = "not measured") -> str:
    """Return a value in words, for the evidence of a claim."""
    return missing if value is None else f"{value:{form}}"


def listed(values: Mapping[Any, Any] | Iterable[Any], form: str = ".3g", end: str = ", ") -> str:
    """Return values in words, with their names if they have some, for the evidence of a claim.

    >>> listed([0.5, 0.25], ".2f")
    '0.50, 0.25'
    >>> listed({"MAP": 0.5, "Laplace": None}, ".2f")
    'MAP 0.50, Laplace not measured'
    >>> listed({"digits": {"MAP": 0.5, "Laplace": 0.25}, "faces": [1.0]}, ".2f", "; ")
    'digits: MAP 0.50, Laplace 0.25; faces: 1.00'
    """
    if not isinstance(values, Mapping):
        return end.join(word(value, form) for value in values)
    return end.join(
        f"{name}: {listed(value, form)}" if isinstance(value, Mapping | list | tuple) else f"{name} {word(value, form)}"
        for name, value in values.items()
    )


@dataclass(frozen=True)
class Findings:
    """The results of an experiment.

    Args:
        numbers: Cells of the table.
        claims: Claims of the document, with verdicts; kept as a tuple.
        data: Data of the figure: lists, mappings, numbers and strings.
    """

    numbers: tuple[Number, ...]
    claims: Iterable[Claim]
    data: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "claims", tuple(self.claims))

    def table(self) -> list[list[str]]:
        """Return the cells of the table in words: its heading, then its rows."""
        columns = list(dict.fromkeys(number.column for number in self.numbers))
        cells = {(number.row, number.column): number.cell for number in self.numbers}
        rows = dict.fromkeys(number.row for number in self.numbers)
        return [["", *columns], *([row, *(cells.get((row, column), "") for column in columns)] for row in rows)]


@dataclass(frozen=True)
class Origin:
    """Code and data that a measurement was made with.

    Args:
        commit: Commit of the code, with "-dirty" if files of code differed from it. In records from before digests were
            kept (``code`` is empty) the commit that brought their numbers; what code had made them is not known.
        date: Day on which the measurement began.
        code: Digests of the parts of the imported code.
        data: Bytes of the files of each data set that code or settings name.
        confirmed: Later commit whose code gave the same numbers in a small run, if any; ``code`` is of that one.
        added: Later commits that measured further seeds, by these.
    """

    commit: str = ""
    date: str = ""
    code: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, int] = field(default_factory=dict)
    confirmed: str = ""
    added: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Setup:
    """Settings and circumstances of a measurement.

    Args:
        scale: Name of the preset, followed by the settings that were changed.
        settings: All settings.
        seeds: Seeds of the repetitions.
        seconds: Total wall-clock time.
        versions: Versions of the software.
        origin: Code and data.
    """

    scale: str
    settings: Mapping[str, Any]
    seeds: tuple[int, ...]
    seconds: float
    versions: Mapping[str, str]
    origin: Origin = field(default_factory=Origin)


@dataclass(frozen=True)
class Record:
    """One table or figure of a document, measured again.

    Args:
        id: Name of the experiment, such as "lae-figure7".
        title: Contents of the table or figure.
        document: Citation of the document, with the number of the table or figure.
        setup: Settings and circumstances of the measurement.
        findings: Results.
    """

    id: str
    title: str
    document: str
    setup: Setup
    findings: Findings

    @property
    def means(self) -> dict[tuple[str, str], float]:
        """Means over seeds by row and column, of all that was measured."""
        return {(n.row, n.column): n.mean for n in self.findings.numbers if n.mean is not None}

    def write(self, path: Path) -> None:
        """Write the record as JSON: aside first, then renamed."""
        content = {"schema": SCHEMA, **asdict(self)}
        for entry, number in zip(content["findings"]["numbers"], self.findings.numbers, strict=True):
            entry |= {"mean": number.mean, "standard_error": number.standard_error}
        text = json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False, default=str)
        # each list of numbers on one line
        write_text(path, re.sub(r"\[[\s\d.,eE+-]*\]", lambda found: re.sub(r"\s+", " ", found[0]), text) + "\n")


def read_record(path: Path) -> Record:
    """Read a record.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It lacks an entry, or is not a record of this version.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no record at {str(path)!r}: python -m experiments --json writes one.")
    content = _content(path)
    if content is None:
        raise ValueError(f"{str(path)!r} is not a record of an experiment ({SCHEMA}).")
    try:
        found, setup = content["findings"], content["setup"]
        numbers = (Number(n["row"], n["column"], tuple(n["values"]), n["printed"]) for n in found["numbers"])
        claims = (Claim(c["text"], c["verdict"], *(c.get(e, "") for e in WORDS)) for c in found["claims"])
        known = (setup["scale"], setup["settings"], tuple(setup["seeds"]), setup["seconds"], setup["versions"])
        return Record(
            content["id"],
            content["title"],
            content["document"],
            Setup(*known, Origin(**setup.get("origin", {}))),
            Findings(tuple(numbers), tuple(claims), found["data"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"the record {str(path)!r} lacks or misnames {error}: measure it again.") from error


def records_in(folder: Path) -> dict[Path, Record]:
    """Return all records of a folder by path.

    Other JSON files are skipped; damaged ones, such as half a record, with a warning.

    Raises:
        ValueError: A record lacks an entry.
    """
    return {path: read_record(path) for path in sorted(folder.glob("*.json")) if _content(path) is not None}


def _content(path: Path) -> dict[str, Any] | None:
    """Return the content of a record's file, None for another file."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        warnings.warn(
            f"{str(path)!r} holds no record, it is damaged or no JSON file ({error}): remove it, or measure it again.",
            stacklevel=3,
        )
        return None
    return content if isinstance(content, dict) and content.get("schema") == SCHEMA else None
