"""The rule of verdicts: how often it is wrong, that every record obeys it, and that pages say what the records say."""

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from math import floor, inf, log10
from pathlib import Path

import numpy as np
import pytest

from experiments import Claim, Findings, Number, Record
from experiments.causes import CAUSES
from experiments.documents import BEYOND, DOCUMENTS, MOST, artefact, judge, judged
from experiments.lae.models import ONLINE as REFITTED, RUNNING
from experiments.pages import filled, pages
from experiments.record import FAILS, HOLDS, UNDECIDED, UNTESTED, Setup, records_in
from experiments.rule import LEVEL, Evidence, Sample, holm
from experiments.statements import (
    COST,
    EXACT,
    Limit,
    Outcome,
    Statement,
    Test,
    across,
    best,
    gap,
    level,
    place_of,
    pooled,
    rejudged,
)

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "experiments" / "results"
RUNS = 1000
#: Three standard errors of a share of a tenth in so many runs.
NOISE = 3 * (0.1 * 0.9 / RUNS) ** 0.5
DECISIVE = 2 * LEVEL + NOISE


def decided(make: Callable[[np.random.Generator], Evidence]) -> float:
    """The share of verdicts that are not undecided."""
    generator = np.random.default_rng(0)
    return sum(make(generator).verdict() is not None for _ in range(RUNS)) / RUNS


def drawn(generator: np.random.Generator, size: int, scale: float = 1.0) -> tuple[float, ...]:
    return tuple(generator.normal(0.0, scale, size).tolist())


@pytest.mark.parametrize("seeds", [2, 3, 5, 10])
def test_a_true_null_is_rejected_in_a_tenth_of_cases_at_most(seeds: int) -> None:
    assert decided(lambda g: Evidence.above(Sample(drawn(g, seeds)), 0.0)) < DECISIVE


def test_two_standard_errors_of_three_seeds_would_reject_it_more_often() -> None:
    values = np.random.default_rng(0).normal(size=(RUNS, 3))
    errors = values.std(1, ddof=1) / 3**0.5
    assert (abs(values.mean(1)) > 2 * errors).mean() > 0.15


@pytest.mark.parametrize("seeds", [2, 3, 5])
@pytest.mark.parametrize("shared", [0.25, 1.0, 4.0])
def test_a_shared_error_of_any_size_keeps_the_chance_of_a_wrong_verdict(seeds: int, shared: float) -> None:
    def wrong(generator: np.random.Generator, counted: float) -> bool:
        common = float(generator.normal(0.0, shared))
        low, high = Sample(tuple(common + v for v in drawn(generator, seeds, seeds**0.5)), counted).interval()
        return not low <= 0 <= high

    generator = np.random.default_rng(0)
    assert sum(wrong(generator, shared) for _ in range(RUNS)) / RUNS < DECISIVE
    if shared == 4.0 and seeds == 5:
        assert sum(wrong(generator, 0.0) for _ in range(RUNS)) / RUNS > 0.3


def test_an_error_over_shared_test_data_is_estimated_well_enough() -> None:
    def wrong(generator: np.random.Generator) -> bool:
        common = generator.normal(0.0, 0.5, 200)  # what is special about the test data, whatever the seed
        apart = common + generator.normal(0.0, 0.2, (5, 1))
        low, high = Sample(tuple(apart.mean(1).tolist()), float(common.std(ddof=1)) / 200**0.5).interval()
        return not low <= 0 <= high

    generator = np.random.default_rng(0)
    assert sum(wrong(generator) for _ in range(RUNS)) / RUNS < DECISIVE


def test_a_shared_error_can_only_widen_the_interval() -> None:
    sample = Sample((1.0, 1.2, 0.9))
    reaches = [Sample(sample.values, error).reach(0.05) for error in (0.0, 0.01, 0.1, 1.0)]
    assert reaches == sorted(reaches)
    chances = [Sample(sample.values, error).chance(0.5) for error in (0.0, 1e-6, 0.01, 0.1, 1.0)]
    assert chances == sorted(chances)
    assert chances[1] == pytest.approx(chances[0], rel=1e-3)
    assert Sample(sample.values, 0.1).chance(2.0) == pytest.approx(1 - Sample(sample.values, 0.1).negative.chance(-2.0))
    low, _ = Sample(sample.values, 0.1).interval()
    assert Sample(sample.values, 0.1).chance(low) == pytest.approx(LEVEL, rel=1e-6)


def test_two_looks_at_growing_data_are_judged_at_half_the_level() -> None:
    def wrong(generator: np.random.Generator, looks: int) -> bool:
        values = drawn(generator, 10)
        if Evidence.above(Sample(values[:5]), 0.0).times(looks).verdict() is not None:
            return True
        return Evidence.above(Sample(values), 0.0).times(looks).verdict() is not None

    generator = np.random.default_rng(0)
    assert sum(wrong(generator, 2) for _ in range(RUNS)) / RUNS < DECISIVE
    assert sum(wrong(generator, 1) for _ in range(RUNS)) / RUNS > 0.13


def test_overlapping_splits_are_corrected() -> None:
    def trial(generator: np.random.Generator, overlap: float) -> Evidence:
        common = float(generator.normal(0.0, 0.1**0.5))  # splits correlate by test over all data
        return Evidence.above(Sample(tuple(common + v for v in drawn(generator, 10, 0.9**0.5)), 0.0, overlap), 0.0)

    assert decided(lambda g: trial(g, 1 / 9)) < DECISIVE
    assert decided(lambda g: trial(g, 0.0)) > 0.15


def test_equality_is_shown_by_two_one_sided_tests() -> None:
    def holds(generator: np.random.Generator, mean: float, scale: float) -> bool:
        values = tuple(mean + v for v in drawn(generator, 5, scale))
        return Evidence.within(Sample(values), 1.0).verdict() is True

    def fails(generator: np.random.Generator, mean: float, scale: float) -> bool:
        values = tuple(mean + v for v in drawn(generator, 5, scale))
        return Evidence.within(Sample(values), 1.0).verdict() is False

    generator = np.random.default_rng(0)
    assert sum(holds(generator, 1.0, 0.2) for _ in range(RUNS)) / RUNS < LEVEL + NOISE
    assert sum(fails(generator, 0.99, 20.0) for _ in range(RUNS)) / RUNS < LEVEL + NOISE
    assert holds(generator, 0.0, 0.1)
    assert fails(generator, 5.0, 0.1)


@pytest.mark.parametrize("parts", [2, 10])
def test_a_claim_of_several_parts_is_as_rarely_decided_by_chance(parts: int) -> None:
    assert (
        decided(lambda g: Evidence.all(Evidence.above(Sample(drawn(g, 3)), 0.0) for _ in range(parts))) < LEVEL + NOISE
    )
    with pytest.raises(ValueError, match="without parts"):
        Evidence.all([])


def test_a_comparison_in_a_unit_without_a_margin_states_its_bound() -> None:
    with pytest.raises(ValueError, match="'of it' has no margin"):
        Test("above", "of it", level("row", "column"))
    assert Test("above", "of it", level("row", "column"), 0.0).limit == 0


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_a_family_of_headlines_has_one_false_verdict_in_a_tenth_of_cases_at_most(seeds: int) -> None:
    generator = np.random.default_rng(0)

    def any_decided() -> bool:
        family = [Evidence.above(Sample(drawn(generator, seeds)), 0.0) for _ in range(MOST)]
        return any(verdict is not None for verdict in holm(family))

    assert sum(any_decided() for _ in range(RUNS)) / RUNS < DECISIVE


def test_large_effects_are_decided_and_one_seed_never_is() -> None:
    sample = Sample((1.0, 1.1, 0.9))
    assert Evidence.above(sample, 0.0).verdict() is True
    assert Evidence.above(sample, 2.0).verdict() is False
    assert Evidence.above(Sample((5.0,)), 0.0).verdict() is None
    assert Evidence.within(Sample((0.0,)), 1.0).verdict() is None
    assert Evidence.above(Sample((1.0, 1.0)), 0.0).verdict() is True
    assert Evidence.above(Sample((1.0, 1.0)), 1.5).verdict() is False
    assert Evidence.above(Sample((1.0, 1.0)), 1.0).verdict() is None
    low, high = Sample((1.0, 2.0, 3.0)).interval()
    assert (high - 2) / (1 / 3**0.5) == pytest.approx(2.92, abs=0.01)
    assert (low + high) / 2 == pytest.approx(2.0)


def record(**rows: tuple[float, ...]) -> Record:
    numbers = tuple(Number(row, "NLL", values) for row, values in rows.items())
    claims = (Claim.over_seeds("ours is below", "means"), Claim.judged("it is fast", True, "1 s"))
    return Record("test", "title", "document", Setup("small", {}, (0, 1), 1.0, {}), Findings(numbers, claims))


BELOW = Statement("NLL below", "ours is below", (Test("below", "nats", gap("ours", "theirs", "NLL")),))


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [((1.0, 1.1, 0.9), HOLDS), ((3.0, 3.1, 2.9), FAILS), ((1.0, 3.1, 2.0), UNDECIDED), ((1.0,), UNDECIDED)],
)
def test_a_record_is_judged_by_its_numbers(ours: tuple[float, ...], verdict: str) -> None:
    statements = (BELOW, Statement("fast", "it is fast", COST))
    before = record(ours=ours, theirs=(2.0, 2.1, 1.9)[: len(ours)])
    after = rejudged(before, statements, {})
    assert [claim.verdict for claim in after.findings.claims] == [verdict, HOLDS]
    assert [claim.evidence for claim in after.findings.claims] == ["means", "1 s"]
    assert after.findings.numbers == before.findings.numbers
    assert rejudged(after, statements, {}) == after
    assert "asked: below -0.01, the margin of the unit" in after.findings.claims[0].tested


@pytest.mark.parametrize(
    ("limit", "verdict", "kind"),
    [
        (Limit("fast", "NLL", high=2.0), HOLDS, COST),  # by the interval of the mean
        (Limit("fast", "NLL", high=1.75), UNDECIDED, COST),
        (Limit(("slow", "fast"), "NLL", 1.65, 1.75), FAILS, COST),  # one number refutes all
        (Limit("fast", "NLL", high=1.75, exact=True), FAILS, EXACT),  # by every repeat
        (Limit("fast", "NLL", low=2.0), FAILS, COST),
        (Limit(("fast", "slow"), "NLL", 0.0, 3.0), FAILS, COST),
        (Limit("slow", "NLL", 2.0, 2.5, over="NLL"), FAILS, COST),
        (Limit("absent", "NLL", high=2.0), UNTESTED, COST),
    ],
)
def test_a_cost_is_judged_by_its_limit(limit: Limit, verdict: str, kind: str) -> None:
    statement = Statement("it is fast", "", (limit,))
    claim = rejudged(record(fast=(1.6, 1.7, 1.8), slow=(4.0, 4.0, 4.0)), (statement,), {}).findings.claims[0]
    assert (claim.verdict, statement.kind) == (verdict, kind)
    assert statement.outcome(record(fast=(1.6, 1.7, 1.8))).seeds == 0


@pytest.mark.parametrize(("high", "holds"), [(2.0, True), (1.5, False)])
def test_a_cost_that_does_not_repeat_is_judged_as_it_is(high: float, holds: bool) -> None:
    outcome = Statement("it is fast", "", (Limit("fast", "NLL", high=high),)).outcome(record(fast=(1.7,)))
    assert outcome.holds is holds
    assert "interval" not in outcome.words


def test_the_interval_of_a_cost_stands_at_the_level_of_its_numbers() -> None:
    repeats = {"fast": (1.6, 1.7, 1.8), "slow": (4.0, 4.1, 4.2)}
    low, high = Sample(repeats["fast"]).interval()
    words = Statement("it is fast", "", (Limit("fast", "NLL", high=2.0),)).outcome(record(**repeats)).words
    assert f"90 % interval {low:.3g} to {high:.3g}, asked: ≤ 2;" in words
    both = Statement("both are fast", "", (Limit(("fast", "slow"), "NLL", high=2.0),)).outcome(record(**repeats))
    assert "4.1 ± 0.06, 95 % interval" in both.words  # one of two that refutes both


def cost(looks: int = 1, high: float = 2.0, low: float = -inf, **rows: tuple[float, ...]) -> Outcome:
    """The outcome of a cost of all rows."""
    return Statement("all are fast", "", (Limit(tuple(rows), "NLL", low, high),), looks=looks).outcome(record(**rows))


def test_a_cost_that_does_not_vary_may_be_at_its_bound() -> None:
    assert cost(fast=(2.0, 2.0, 2.0)).holds is True
    assert cost(low=2.0, high=3.0, fast=(2.0,)).holds is True
    assert cost(fast=(2.1, 2.1, 2.1)).holds is False


def test_the_number_of_a_cost_is_that_of_the_part_that_decides() -> None:
    unclear = cost(near=(1.9, 1.91, 1.9), wide=(0.5, 1.5, 3.0))
    assert (unclear.holds, unclear.parts) == (None, (True, None))
    assert unclear.words.startswith("wide, NLL: ")
    refuted = cost(wide=(1.0, 1.5, 6.0), near=(2.1, 2.11, 2.1))
    assert (refuted.holds, refuted.parts) == (False, (None, False))
    assert refuted.words.startswith("near, NLL: ")
    assert cost(one=(1.0,), other=(1.5,)).words.startswith("other, NLL: 1.5, asked")  # nearest to the bound


def test_looks_and_bounds_on_both_sides_count_for_a_cost() -> None:
    values = (1.9, 1.95, 1.93)
    assert [cost(looks, high=1.97, fast=values).holds for looks in (1, 2)] == [True, None]
    beyond = (3.535, 3.585, 3.635)
    assert [cost(low=low, high=3.5, fast=beyond).holds for low in (-inf, 2.25)] == [False, None]


def test_a_quotient_of_costs_pairs_its_repeats() -> None:
    numbers = (Number("fast", "a", (1.0, 2.0, 3.0)), Number("fast", "b", (2.0, 4.0, 6.0)), Number("fast", "c", (4.0,)))
    both = Record("test", "t", "d", Setup("small", {}, (0,), 1.0, {}), Findings(numbers, ()))
    assert Limit("fast", "a", over="b").samples(both) == {"fast, a over b": Sample((0.5, 0.5, 0.5))}
    assert Limit("fast", "a", over="c").samples(both) == {"fast, a over c": Sample((0.25, 0.5, 0.75))}


def test_the_number_of_parts_that_hold_is_quoted() -> None:
    limit = Limit(("fast", "slow"), "NLL", high=2.0)
    outcome = Statement("both are fast", "", (limit,)).outcome(record(fast=(1.0, 1.0), slow=(4.0, 4.0)))
    assert outcome.quoted == "4 (slow, NLL), 1 of 2 parts hold"
    assert outcome.asked == "≤ 2"
    assert Limit("fast", "NLL", 1.0, 2.0).asked == "1 to 2"
    assert Limit("fast", "NLL", 1.0).asked == "≥ 1"
    largest = Limit("fast", ("NLL", "ECE"), low=3.0, largest=True)
    numbers = (Number("fast", "NLL", (1.0,)), Number("fast", "ECE", (3.5,)))
    one = Record("test", "t", "d", Setup("small", {}, (0,), 1.0, {}), Findings(numbers, ()))
    assert largest.samples(one) == {"fast, ECE": Sample((3.5,))}


def test_a_headline_that_only_the_others_leave_undecided_says_so() -> None:
    found = rejudged(record(ours=(1.0, 1.1, 0.9), theirs=(2.0, 2.1, 1.9)), (BELOW,), {BELOW.text: None})
    assert found.findings.claims[0].verdict == UNDECIDED
    assert "by itself: holds" in found.findings.claims[0].tested


def test_what_was_not_measured_is_not_tested_and_other_claims_are_added() -> None:
    known = record(theirs=(2.0, 2.1))
    missing = rejudged(known, (BELOW,), {})
    assert missing.findings.claims[0].verdict == UNTESTED
    more = Statement("theirs is above 1", "", (Test("above", "nats", level("theirs", "NLL"), 1.0),))
    assert rejudged(known, (more,), {}).findings.claims[0].verdict == HOLDS
    assert rejudged(known, (more,), {more.text: None}).findings.claims[0].verdict == UNDECIDED
    assert len(rejudged(known, (Statement("absent", "nobody says", EXACT),), {}).findings.claims) == 2


def test_ratios_are_judged_by_logarithms() -> None:
    test = Test("below", "ratio", gap("ours", "theirs", "NLL"), 0.5)
    made = record(ours=(1.0, 1.0), theirs=(4.0, 4.0))
    ((name, sample),) = test.samples(made).items()
    assert sample.mean == pytest.approx(-np.log(4))
    assert test.words(made, name, sample) == "0.25 ± 0×"
    assert test.evidence(sample).verdict() is True
    zero = Statement("zero", "", (test,)).outcome(record(ours=(0.0, 1.0), theirs=(4.0, 4.0)))
    assert zero.evidence is None
    assert "not positive" in zero.words


def test_cells_are_compared_as_they_are_named() -> None:
    numbers = [Number(row, c, v) for row, c, v in (("a", "x 1", (1.0, 4.0)), ("a", "x 2", (3.0, 2.0)))]
    numbers += [Number("b", "x 1", (0.0, 1.0)), Number("b", "x 2", (1.0, 0.0))]
    one = Record("test", "t", "d", Setup("small", {}, (0, 1), 1.0, {}), Findings(tuple(numbers), ()))
    assert best("a", "b", {"best": "x"})(one) == {"a beside b, best": ([3.0, 4.0], [1.0, 1.0])}
    assert across(("a", "b"), "x 1", "x 2")(one)["b, x 1 beside x 2"] == ((0.0, 1.0), (1.0, 0.0))
    assert gap("a", "b", "x {}", (1, 2))(one).keys() == {"a beside b, x 1", "a beside b, x 2"}
    assert pooled(level(("a", "b"), "x 1"), "mean")(one) == {"mean": ([0.5, 2.5], None)}


@cache
def records() -> dict[str, Record]:
    return {path.stem: found for path, found in records_in(RESULTS).items()}


def stated() -> Iterator[tuple[str, Statement]]:
    for document in DOCUMENTS:
        for each, statement in document.statements():
            yield each.id, statement


def test_every_record_has_the_verdicts_of_the_rule() -> None:
    anew = judged(records())
    assert [name for name, found in records().items() if anew[name] != found] == [], "run python -m experiments --judge"


def test_every_claim_of_a_record_is_stated_once() -> None:
    for name, found in records().items():
        known = artefact(name)
        assert known is not None, f"{name} is in no document"
        places = [place_of(statement, found.findings.claims) for statement in known.statements]
        assert sorted(places, key=str) == sorted(range(len(found.findings.claims)), key=str), name


def test_statements_are_unique_and_headlines_few() -> None:
    assert max(Counter((name, statement.text) for name, statement in stated()).values()) == 1
    for document in DOCUMENTS:
        assert sum(statement.headline for _, statement in document.statements()) <= MOST
        assert len({each.id for each in document.artefacts}) == len(document.artefacts)


def test_one_seed_decides_nothing() -> None:
    single = {name for name, found in records().items() if len(found.setup.seeds) == 1} - {
        "linlap-uci",
        "linlap-uci-gap",
    }
    for name in single:
        known = artefact(name)
        assert known is not None
        for statement, claim in zip(known.statements, records()[name].findings.claims, strict=True):
            assert statement.kind != "seeds" or claim.verdict in (UNDECIDED, UNTESTED), claim.text


@pytest.mark.parametrize("of", ["figure9", "figure10", "figure12", "figure13", "figure13-digits", "table3", "table4"])
def test_the_running_posterior_of_a_training_is_measured_beside_the_refitted_one(of: str) -> None:
    columns: dict[str, set[str]] = {REFITTED: set(), RUNNING: set()}
    for each in records()[f"lae-{of}"].findings.numbers:
        pair, _, name = each.row.rpartition(": ")
        if "online" in name:
            assert name in columns, "it does not say whether it was refitted"
            columns[name].add(f"{pair} {each.column}")
    assert columns[RUNNING]
    assert columns[RUNNING] <= columns[REFITTED]


def test_the_pages_are_those_of_the_records() -> None:
    made = pages(RESULTS)
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, "run python -m experiments --results experiments/results"
    assert {path for path in made if path != ROOT / "experiments" / "RESULTS.md"} == set(RESULTS.glob("*.md"))


@pytest.mark.parametrize("name", [document.id for document in DOCUMENTS])
def test_a_page_has_five_lines_in_words_and_few_words(name: str) -> None:
    lines = (RESULTS / f"{name}.md").read_text(encoding="utf-8").splitlines()
    assert sum(line.startswith("* ") for line in lines) == 5
    # of the table of claims the claims, which are words; of that of causes everything
    prose = " ".join(line.split("|")[2] if len(re.findall(r"(?<!\\)\|", line)) == 9 else line for line in lines)
    assert len(re.sub(r"\]\([^)]*\)", "]", prose).split()) <= 1200
    assert "verdicts are expected to be wrong" in prose


def test_ten_claims_that_do_not_hold_have_a_cause_that_was_measured() -> None:
    made = (RESULTS / "causes.md").read_text(encoding="utf-8")
    assert sum(f": {text} | {filled(cause, records())} | [" in made for (_, text), cause in CAUSES.items()) >= 10
    known = {(artefact.id, each.text) for d in DOCUMENTS for artefact, each in d.statements()}
    assert set(CAUSES) <= known
    assert all("{{" in cause for cause in CAUSES.values())


def test_the_index_fits_a_screen_and_leads_to_every_document() -> None:
    text = (ROOT / "experiments" / "RESULTS.md").read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 50
    assert all(f"](results/{document.id}.md)" in text for document in DOCUMENTS)


def test_numbers_of_hand_written_lines_are_those_of_records() -> None:
    for document in DOCUMENTS:
        text = (ROOT / "experiments" / document.summary).read_text(encoding="utf-8")
        assert not re.findall(r"\d*\.\d{2,}", re.sub(r"\{\{.*?\}\}", "", text, flags=re.DOTALL).replace(".01²", ""))
        filled(text, records())
    with pytest.raises(ValueError, match="absent"):
        filled("{{lae-figure9; absent; AUROC}}", records())


def test_links_of_the_pages_lead_somewhere() -> None:
    for page in [ROOT / "experiments" / "RESULTS.md", *RESULTS.glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:\s]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).is_file(), f"{page.name} -> {target}"


def test_a_question_is_answered_from_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    section = readme.split("out-of-distribution data better than a VAE?")[1].split("<!-- end -->")[0]
    answer = " ".join(section.split("<!--")[0].split())
    assert "](experiments/results/S0.md)" in answer
    assert "ahead by WAIC on both pairs" in answer
    assert "wins on the first pair and falls short on the second" in answer
    found = records()["lae-figure9"]
    for pair, wins in (("MNIST → KMNIST", True), ("Fashion-MNIST → MNIST", False)):
        claim = next(c for c in found.findings.claims if c.stated.startswith(f"{pair}: σ of a Laplacian"))
        assert claim.verdict == "does not hold"
        areas = {(n.row, n.column): n for n in found.findings.numbers if n.column.startswith("AUROC")}
        ours = areas[f"{pair}: LAE, online, refitted", "AUROC by σ of the output"]
        assert str(ours) in section
        best = {}
        for vae in ("VAE", "VAE, learned variance"):
            rivals = [number for (row, _), number in areas.items() if row == f"{pair}: {vae}"]
            best[vae] = max(rivals, key=lambda number: number.mean)
            assert str(best[vae]) in section
        assert best["VAE, learned variance"].column == "AUROC by WAIC"
        assert best["VAE, learned variance"].mean > ours.mean
        assert (ours.mean > best["VAE"].mean) == wins


def test_a_folder_is_judged_in_place(tmp_path: Path) -> None:
    name, found = "lae-figure5", records()["lae-figure5"]
    raw = [replace(claim, verdict=HOLDS, tested="") for claim in found.findings.claims]
    spoilt = Record(
        found.id, found.title, found.document, found.setup, Findings(found.findings.numbers, raw, found.findings.data)
    )
    spoilt.write(tmp_path / f"{name}.json")
    changed = judge(tmp_path)
    assert [claim.verdict for claim in changed[name].findings.claims] == [c.verdict for c in found.findings.claims]
    assert judge(tmp_path) == {}
    assert BEYOND.id == "beyond"


def rounding(number: float) -> float:
    """Half a unit of the last of three digits, in which pages print an interval."""
    return 0.5 * 10 ** (floor(log10(abs(number))) - 2) if number else 0.0


def test_the_interval_on_a_page_is_the_one_that_decides() -> None:
    found = Counter[bool | None]()
    for document in DOCUMENTS:
        for each, statement in document.statements():
            record = records().get(each.id)
            if record is None or statement.headline or isinstance(statement.tests, str):
                continue
            outcome = statement.outcome(record)
            shown = re.search(r"% interval (\S+) to (\S+), asked: (above|below) (\S+?)[,;]? ", outcome.words + " ")
            if shown is None:
                continue
            low, high, bound = (float(shown[n].replace(",", "")) for n in (1, 2, 4))
            if shown[3] == "below":
                low, high, bound = -high, -low, -bound
            below, above = rounding(low), rounding(high)
            expected = {
                True: bound <= low + below,
                False: high - above <= bound,
                None: low - below <= bound <= high + above,
            }
            assert expected[outcome.holds], outcome.words
            found[outcome.holds] += 1
    assert min(found[verdict] for verdict in (True, False, None)) > 5, found


def test_pairs_that_the_pages_count() -> None:
    areas: dict[str, dict[tuple[str, str], float]] = {}
    for number in records()["lae-detection"].findings.numbers:
        pair, _, row = number.row.rpartition(": ")
        if "→" in pair and not pair.endswith("blanked") and number.column.startswith("AUROC"):
            areas.setdefault(pair, {})[row, number.column.removeprefix("AUROC by ")] = number.mean
    alone, nearest, detected = [], [], []
    for found in areas.values():
        best = max(area for (row, _), area in found.items() if row != "image alone")
        alone.append(max(area for (row, _), area in found.items() if row == "image alone") > best - 0.01)
        nearest.append(found["image alone", "distance to a training image"] > max(found.values()) - 0.1)
        detected.append(found["VAE, learned variance", "WAIC"] > 0.9)
    assert [sum(alone), sum(nearest), sum(detected), len(areas)] == [8, 8, 7, 9]
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    advice = " ".join((ROOT / "docs" / "how_to_choose.md").read_text(encoding="utf-8").split())
    assert "In eight of nine pairs the best of six scores" in readme
    assert "of the best area on eight of these nine pairs" in advice
    assert "on seven of these nine pairs" in advice
