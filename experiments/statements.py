"""Claims as they are stated before their runs: what is compared, in which direction, unit and margin."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import exp, inf, log
from typing import Any

from experiments.paired import beside, columns_of, errors_in
from experiments.record import FAILS, HOLDS, UNDECIDED, UNTESTED, Claim, Number, Record, readable, rough
from experiments.rule import LEVEL, Evidence, Sample
from osculate.registry import choose

#: Values of a quantity, one a seed, and of what it is compared with, if it is compared with another quantity.
Pair = tuple[Sequence[float], Sequence[float] | None]
#: Rows or columns of a record's table.
Names = str | Sequence[str]
#: The parts of a claim that must all hold, by name.
Parts = Callable[[Record], Mapping[str, Pair]]

RATIO = "ratio"
#: Margins where a claim states none, by unit; factors for ratios.
MARGINS: Mapping[str, float] = {
    RATIO: 1.01,
    "nats": 0.01,
    "nats an image": 1.0,
    "AUROC": 0.005,
    "ECE": 0.005,
    "accuracy": 0.005,
    "points": 0.5,
    "correlation": 0.01,
    "dB": 0.1,
}
#: How numbers of a unit end; others have none.
SUFFIXES = {RATIO: "×", "nats an image": " nats"} | {unit: f" {unit}" for unit in ("nats", "points", "%", "dB")}
ABOVE, BELOW, WITHIN = "above", "below", "within"
PRINTED, CORRECTED, OURS = "as printed", "corrected", "ours"
#: Types of claims that repeat without seeds: of what follows from a computation, and of time and memory.
EXACT, COST = "exact", "cost"
KINDS = {EXACT: "a claim that is exact, without seeds", COST: "a claim of cost, decided by repeats"}
UNMEASURED = "not measured"
#: Reason of a claim about networks that no machine at hand can train.
NOT_RUN = "not run: it needs an accelerator"


@dataclass(frozen=True)
class Test:
    """A comparison over seeds.

    Args:
        direction: "above" or "below" a bound, or "within" it on both sides of zero (of one, for ratios).
        unit: Unit of the difference, or "ratio", which is judged by its logarithm.
        parts: Values of the record that are compared; each part must hold.
        bound: The margin; by default that of the unit in :data:`MARGINS`, on the side of the claim.
        overlap: Size of test over training data, where the values are those of splits of one set.
        shared: Standard errors over test data that all seeds share, by part; by default those that the record keeps.

    Raises:
        ValueError: Unknown direction, or no bound for a unit without a margin.
    """

    direction: str
    unit: str
    parts: Parts
    bound: float | None = None
    overlap: float = 0.0
    shared: Callable[[Record], Mapping[str, float]] = lambda record: errors_in(record.findings.data)

    __test__ = False  # pytest takes it for a test by its name

    def __post_init__(self) -> None:
        choose("direction", self.direction, (ABOVE, BELOW, WITHIN))
        if self.bound is None and self.unit not in MARGINS:
            raise ValueError(f"{self.unit!r} has no margin in MARGINS: state a bound.")

    @property
    def limit(self) -> float:
        """Bound in the unit, as it is read: a difference or a factor."""
        if self.bound is not None:
            return self.bound
        generic = MARGINS[self.unit]
        if self.direction == BELOW:
            return 1 / generic if self.unit == RATIO else -generic
        return generic

    @property
    def asked(self) -> str:
        """Direction and bound in signs."""
        sign = {ABOVE: "> ", BELOW: "< ", WITHIN: "within " if self.unit == RATIO else "± "}[self.direction]
        return f"{sign}{self.limit:.4g}{SUFFIXES.get(self.unit, '')}"

    @property
    def question(self) -> str:
        """Direction and bound in words."""
        about = {ABOVE: "above", BELOW: "below", WITHIN: "within a factor of" if self.unit == RATIO else "within"}
        stated = "" if self.bound is not None else ", the margin of the unit"
        return f"{about[self.direction]} {self.limit:.4g}{stated}"

    def samples(self, record: Record) -> dict[str, Sample]:
        """Return the differences, or logarithms of ratios, by part.

        Raises:
            LookupError: The record lacks a value.
            ValueError: A ratio of numbers that are not positive.
        """
        found, shared = {}, self.shared(record)
        for name, (values, others) in self.parts(record).items():
            if not values or others is not None and not others:
                raise LookupError(name)
            if self.unit == RATIO:
                values, others = [log(v) for v in values], None if others is None else [log(v) for v in others]
            # where the other has fewer splits, the first of them are common
            apart = values if others is None else [a - b for a, b in zip(values, others, strict=False)]
            found[name] = Sample(tuple(apart), shared.get(name, 0.0), self.overlap)
        return found

    @property
    def two_sided(self) -> bool:
        """True if the bounds are on both sides."""
        return self.direction == WITHIN

    @property
    def _bound(self) -> float:
        return log(self.limit) if self.unit == RATIO else self.limit

    def margin(self, sample: Sample) -> float:
        """Return how far the mean is beyond the bound, below zero where it falls short of it."""
        apart = {ABOVE: sample.mean - self._bound, BELOW: self._bound - sample.mean}
        return apart.get(self.direction, self._bound - abs(sample.mean))

    def evidence(self, sample: Sample) -> Evidence:
        """Judge one part."""
        bound = self._bound
        if self.direction == WITHIN:
            return Evidence.within(sample, bound)
        above = Evidence.above(sample, bound)
        return above if self.direction == ABOVE else Evidence(above.true, above.false)

    def words(self, record: Record, name: str, sample: Sample) -> str:
        """Return the mean with its standard error in the unit; of a ratio, the error of the logarithm times the ratio.

        Args:
            record: The record, by which a difference has a sign and a value none.
            name: Name of the part.
            sample: Values of the part.
        """
        ratio = self.unit == RATIO
        value = exp(sample.mean) if ratio else sample.mean
        number = readable(value, "+" if self.parts(record)[name][1] is not None and not ratio else "")
        if len(sample.values) > 1:
            error = sample.error * (value if ratio else 1)
            number += f" ± {rough(error)}"
        return number + SUFFIXES.get(self.unit, "")

    def interval(self, sample: Sample, level: float) -> tuple[float, float]:
        """Return the interval of the mean in the unit."""
        low, high = sample.interval(level)
        return (exp(min(low, 700.0)), exp(min(high, 700.0))) if self.unit == RATIO else (low, high)


@dataclass(frozen=True)
class Limit:
    """Bounds, both included, of numbers that repeat without seeds: a cost, or what follows from a computation.

    A cost is judged by the interval of its mean over repeats, like a comparison over seeds; one that does not vary, or
    has a single repeat, as it is.

    Args:
        rows: Rows of the record's table.
        columns: Columns; the numbers of each row must be within the bounds.
        low: Lower bound.
        high: Upper bound.
        over: Column by which the numbers of the same row are divided; empty for none.
        largest: Only the largest number of each row is judged.
        exact: Every repeat is judged, and not their mean.
    """

    rows: Names
    columns: Names
    low: float = -inf
    high: float = inf
    over: str = ""
    largest: bool = False
    exact: bool = False

    @property
    def asked(self) -> str:
        """Bounds in signs."""
        if self.low == -inf:
            return f"≤ {self.high:g}"
        return f"≥ {self.low:g}" if self.high == inf else f"{self.low:g} to {self.high:g}"

    @property
    def question(self) -> str:
        """Bounds in signs."""
        return self.asked

    @property
    def two_sided(self) -> bool:
        """True if the bounds are on both sides."""
        return -inf < self.low and self.high < inf

    def samples(self, record: Record) -> dict[str, Sample]:
        """Return the repeats of each number by its name, those of a quotient by the repeats of both where these pair.

        Raises:
            LookupError: The record lacks a number.
        """
        cells = {(n.row, n.column): n for n in record.findings.numbers if n.values}
        found = dict[str, Sample]()
        for row in _listed(self.rows):
            numbers = [cells[row, column] for column in _listed(self.columns)]
            for number in [max(numbers, key=_mean)] if self.largest else numbers:
                values, name = number.values, f"{row}, {number.column}"
                if self.over:
                    by = cells[row, self.over]
                    paired = by.values if len(by.values) == len(values) else [_mean(by)] * len(values)
                    values, name = tuple(a / b for a, b in zip(values, paired, strict=True)), f"{name} over {self.over}"
                found[name] = Sample(values)
        return found

    def margin(self, sample: Sample) -> float:
        """Return how far the value farthest out is within the bounds, below zero outside."""
        return min(min(value - self.low, self.high - value) for value in sample.values)

    def varies(self, sample: Sample) -> bool:
        """Return True if it is a cost of which the repeats differ, so that an interval decides."""
        return not self.exact and len(set(sample.values)) > 1

    def evidence(self, sample: Sample) -> Evidence:
        """Judge one number."""
        if not self.varies(sample):
            inside = self.margin(sample) >= 0
            return Evidence(float(not inside), float(inside))
        over, under = Evidence.above(sample, self.low), Evidence.above(sample.negative, -self.high)
        true = min(over.true, under.true)
        return Evidence(max(over.false, under.false), min(1.0, 2 * true) if self.two_sided else true)

    def words(self, record: Record, name: str, sample: Sample) -> str:
        """Return the mean with its standard error."""
        return f"{Number('', '', sample.values)}{'×' if self.over else ''}"

    def interval(self, sample: Sample, level: float) -> tuple[float, float]:
        """Return the interval of the mean; the whole line where it decides nothing."""
        return sample.interval(level) if self.varies(sample) else (-inf, inf)


@dataclass(frozen=True)
class Outcome:
    """Result of a statement on a record.

    Args:
        evidence: Chances of a wrong verdict; None if the claim is exact, or nothing was measured.
        number: The number that decides, with its error.
        seeds: Number of seeds, splits, images or tasks of the part that decides; 0 if the claim is not one over seeds.
        words: The comparison in words, with its interval.
        asked: Direction and bound of the part that decides.
        parts: Verdict on each part of the claim by itself.
    """

    evidence: Evidence | None
    number: str
    seeds: int
    words: str
    asked: str = ""
    parts: tuple[bool | None, ...] = ()

    @property
    def holds(self) -> bool | None:
        """True if the claim holds, False if it does not, None if it is undecided or was not measured."""
        if self.evidence:
            return self.evidence.verdict()
        return None if not self.parts else all(self.parts)

    @property
    def quoted(self) -> str:
        """The number, and how many of several parts hold by themselves where not all do."""
        held, number = self.parts.count(True), len(self.parts)
        return self.number + (f", {held} of {number} parts hold" if held < number > 1 else "")


@dataclass(frozen=True)
class Statement:
    """A claim as it is stated before its runs.

    Args:
        text: The claim in a short sentence.
        of: Text of the claim by the experiment, which adds words; empty for one that only its numbers decide.
        tests: Comparisons, or limits, which must all hold; or "exact" or "cost" for a claim that the experiment decides
            by repeats; or a reason why the record cannot decide.
        protocol: "as printed", "corrected", or "ours" for claims that the document does not make.
        headline: It is one of at most four of the document.
        cell: Row and column of the number that a claim is quoted with which the experiment decides.
        looks: Number of times that it is judged, above one if it was undecided and then had more seeds or was measured
            in another way. The level is divided by it.
        after: True if it was added after its record was seen, unlike the others of its artefact.
    """

    text: str
    of: str
    tests: tuple[Test, ...] | tuple[Limit, ...] | str
    protocol: str = CORRECTED
    headline: bool = False
    cell: tuple[str, str] = ("", "")
    looks: int = 1
    after: bool = False

    @property
    def kind(self) -> str:
        """Type of the claim: "seeds", "exact" or "cost"."""
        if isinstance(self.tests, str):
            return self.tests if self.tests in (EXACT, COST) else "seeds"
        first = self.tests[0]
        return "seeds" if isinstance(first, Test) else EXACT if first.exact else COST

    def outcome(self, record: Record) -> Outcome:
        """Judge the numbers of a record."""
        if isinstance(self.tests, str):
            quoted = (
                f"{n} ({', '.join(self.cell)})" for n in record.findings.numbers if (n.row, n.column) == self.cell
            )
            return Outcome(None, next(quoted, "" if self.kind != "seeds" else self.tests), 0, self.tests)
        try:
            return self._compared(record, self.tests)
        except LookupError:
            return Outcome(None, "–", 0, UNMEASURED)
        except ValueError:
            return Outcome(None, "–", 0, "a ratio of numbers that are not positive")

    def _compared(self, record: Record, tests: Sequence[Test] | Sequence[Limit]) -> Outcome:
        parts = [
            (test, name, sample, test.evidence(sample))
            for test in tests
            for name, sample in test.samples(record).items()
        ]
        whole = Evidence.all(evidence for *_, evidence in parts)
        refuted = whole.true < whole.false
        # where several are as clear, as are those of one seed, the one farthest out or nearest to its bound
        test, name, sample, _ = min(
            parts, key=lambda part: (part[3].true if refuted else -part[3].false, part[0].margin(part[2]))
        )
        number = test.words(record, name, sample)
        # one part that is refuted refutes all, and so counts for their number; a difference may leave zero either way
        chances = self.looks * (len(parts) * (2 if test.two_sided else 1) if refuted else 1)
        words = f"{name}: {number}{_interval(test, sample, chances)}, asked: {test.question}"
        if len(parts) > 1:
            words += f"; of {len(parts)} parts the {'clearest against it' if refuted else 'least clear'}"
        if self.looks > 1:
            words += f"; judged {self.looks} times, each at 1/{self.looks} of the level"
        words += "; decided with the other headlines (Holm)" if self.headline else ""
        each = tuple(evidence.times(self.looks).verdict() for *_, evidence in parts)
        if self.kind != "seeds":
            evidence = None if self.kind == EXACT else whole.times(self.looks)
            return Outcome(evidence, f"{number} ({name})", 0, f"{words}; {KINDS[self.kind]}", test.asked, each)
        seeds = len(sample.values)
        words += "; one seed" if seeds == 1 else ""
        return Outcome(whole.times(self.looks), number, seeds, words, test.asked, each)


def _mean(number: Number) -> float:
    return number.pair[0]


def _interval(test: Test | Limit, sample: Sample, chances: int) -> str:
    """Return the interval that decides, in words: at the level over the number of chances of a wrong verdict."""
    level = 1 - 2 * LEVEL / chances
    low, high = test.interval(sample, level)
    return "" if (low, high) == (-inf, inf) else f", {100 * level:.3g} % interval {readable(low)} to {readable(high)}"


def rejudged(record: Record, statements: Iterable[Statement], verdicts: Mapping[str, bool | None]) -> Record:
    """Return the record with its claims in the order of their statements, and the verdicts of the rule.

    Args:
        record: The record. Its numbers and the evidence in words stay.
        statements: Statements about it. Claims without one stay behind the others, if they have evidence.
        verdicts: Verdicts of statements that are not their own alone, such as those of a family, by text.
    """
    left, found = list(record.findings.claims), list[Claim]()
    for statement in statements:
        index = place_of(statement, left)
        if index is not None:
            found.append(_rejudged(record, statement, left.pop(index), verdicts))
        elif not isinstance(statement.tests, str) or statement.kind == "seeds":
            found.append(_rejudged(record, statement, Claim.over_seeds(statement.of or statement.text), verdicts))
    rest = (claim for claim in left if claim.evidence)
    return replace(record, findings=replace(record.findings, claims=(*found, *rest)))


def _rejudged(record: Record, statement: Statement, claim: Claim, verdicts: Mapping[str, bool | None]) -> Claim:
    outcome = statement.outcome(record)
    if isinstance(statement.tests, str) and statement.kind != "seeds":
        return replace(claim, stated=statement.text, tested=KINDS[statement.kind])
    if not outcome.parts:
        return replace(claim, verdict=UNTESTED, stated=statement.text, tested=outcome.words)
    verdict, words = named(verdicts.get(statement.text, outcome.holds)), outcome.words
    if verdict != named(outcome.holds):
        words += f"; by itself: {named(outcome.holds)}, judged with the other headlines: {verdict}"
    return replace(claim, verdict=verdict, stated=statement.text, tested=words)


def place_of(statement: Statement, claims: Sequence[Claim]) -> int | None:
    """Return the index of a statement's claim; None if there is none."""
    texts = [claim.text for claim in claims]
    wanted = statement.of or statement.text
    return texts.index(wanted) if wanted in texts else None


def named(holds: bool | None) -> str:
    """Return a verdict in words."""
    return UNDECIDED if holds is None else HOLDS if holds else FAILS


# What is compared: cells of the record's table, by row and column.


def gap(rows: Names, others: Names, columns: Names, each: Sequence[Any] = ("",)) -> Parts:
    """Compare every row with every other one in every column.

    Args:
        rows: Rows, with ``{}`` where a word of ``each`` stands.
        others: Rows that they are compared with.
        columns: Columns.
        each: Words, each of which gives a part of its own.
    """

    def parts(record: Record) -> dict[str, Pair]:
        cells, found = cells_of(record), dict[str, Pair]()
        for word, row, other, column in product(each, _listed(rows), _listed(others), _listed(columns)):
            a, b, c = (name.replace("{}", str(word)) for name in (row, other, column))
            found[beside(a, b, c)] = cells[a, c], cells[b, c]
        return found

    return parts


def across(rows: Names, column: str, other: str, each: Sequence[Any] = ("",)) -> Parts:
    """Compare a column with another one in every row."""

    def parts(record: Record) -> dict[str, Pair]:
        cells = cells_of(record)
        names = [row.replace("{}", str(word)) for word in each for row in _listed(rows)]
        return {columns_of(row, column, other): (cells[row, column], cells[row, other]) for row in names}

    return parts


def level(rows: Names, columns: Names, each: Sequence[Any] = ("",)) -> Parts:
    """Take cells as they are."""

    def parts(record: Record) -> dict[str, Pair]:
        cells, found = cells_of(record), dict[str, Pair]()
        for word, row, column in product(each, _listed(rows), _listed(columns)):
            a, c = (name.replace("{}", str(word)) for name in (row, column))
            found[f"{a}, {c}"] = cells[a, c], None
        return found

    return parts


def best(rows: Names, others: Names, columns: Mapping[str, str], highest: bool = True) -> Parts:
    """Compare the best columns of rows, seed by seed, chosen on the same data that score them.

    Args:
        rows: Rows.
        others: Rows that they are compared with.
        columns: Common beginning of the columns, by the word for them.
        highest: The best is the highest.
    """
    ((word, start),) = columns.items()

    def parts(record: Record) -> dict[str, Pair]:
        cells, choice = cells_of(record), max if highest else min

        def chosen(row: str) -> list[float]:
            found = [values for (name, column), values in cells.items() if name == row and column.startswith(start)]
            return [choice(each) for each in zip(*found, strict=True)] if found else []

        return {
            beside(row, other, word): (chosen(row), chosen(other))
            for row, other in product(_listed(rows), _listed(others))
        }

    return parts


def pooled(parts: Parts, name: str) -> Parts:
    """Average the parts value by value, as one part; of different numbers of splits, the first are common."""

    def whole(record: Record) -> dict[str, Pair]:
        pairs = list(parts(record).values())
        firsts, seconds = [first for first, _ in pairs], [second for _, second in pairs if second is not None]
        return {name: (_averaged(firsts), _averaged(seconds) if seconds else None)}

    return whole


def _averaged(values: Sequence[Sequence[float]]) -> list[float]:
    return [sum(each) / len(each) for each in zip(*values, strict=False)]


def cells_of(record: Record) -> dict[tuple[str, str], Sequence[float]]:
    """Return the values of a record, one for each seed, by row and column."""
    return {(number.row, number.column): number.values for number in record.findings.numbers}


def _listed(names: Names) -> Sequence[str]:
    return (names,) if isinstance(names, str) else names


# Documents.


@dataclass(frozen=True)
class Artefact:
    """A table or figure of a document with its claims, in the document's order.

    Args:
        id: Name of the record's file.
        name: Name in the document.
        statements: Claims of the document about it.
        scale: Our scale over the document's, if the settings do not say it.
        before: True if its claims were stated, with their margins, before the runs of its record.
    """

    id: str
    name: str
    statements: tuple[Statement, ...]
    scale: str = ""
    before: bool = False


@dataclass(frozen=True)
class Document:
    """A document with its artefacts in order.

    Args:
        id: Name of its page, such as "S0".
        title: Title.
        authors: Authors, as they are cited.
        summary: Path of the hand-written lines, from the folder of the experiments.
        artefacts: Tables, figures and sections.
    """

    id: str
    title: str
    authors: str
    summary: str
    artefacts: tuple[Artefact, ...]

    def statements(self) -> Iterator[tuple[Artefact, Statement]]:
        """Yield all claims with their artefacts."""
        for artefact in self.artefacts:
            for statement in artefact.statements:
                yield artefact, statement
