"""Random cases agree with the dense truth or are refused in a sentence, and notice seeded mistakes."""

import json
from collections import Counter

import pytest

import osculate as osc
from tests.fuzz.__main__ import CHECKED, RECORD, fails, line
from tests.fuzz.cases import random_case
from tests.fuzz.mutants import MUTANTS, Mutant, caught
from tests.fuzz.operations import OPERATIONS
from tests.fuzz.outcomes import AGREES, FAILURES, WEIGHTS, outcome

#: Cases of one test, and of `make check`.
CHUNK, IN_CHECK = 50, 100
#: Mistakes that the first cases notice.
QUICK = ("stale decomposition", "wrong sign in the root of class probabilities")


@pytest.fixture(autouse=True)
def _without_checks_of_types(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # users run without them


def check(seeds: range) -> Counter:
    """Outcomes of some cases, none of which fails."""
    found = [outcome(seed) for seed in seeds]
    failed = [line(case, what, said) for case, what, said in found if what in FAILURES]
    assert not failed, "\n".join(failed)
    return Counter(what for _, what, _ in found)


def test_a_few_cases() -> None:
    check(range(CHECKED, CHECKED + 8))


@pytest.mark.slow
@pytest.mark.parametrize(
    "start",
    [pytest.param(n, marks=[pytest.mark.release] * (n >= IN_CHECK)) for n in range(0, CHECKED, CHUNK)],
)
def test_cases_agree_with_the_dense_truth(start: int) -> None:
    outcomes = check(range(start, start + CHUNK))
    assert outcomes[AGREES] >= 0.7 * CHUNK, outcomes  # the others are refused


def test_a_seed_makes_the_same_case_each_time() -> None:
    assert str(random_case(7, WEIGHTS)) == str(random_case(7, WEIGHTS))


def test_the_cases_of_make_check_reach_every_operation_likelihood_and_structure() -> None:
    cases = [random_case(seed, WEIGHTS) for seed in range(IN_CHECK)]
    assert {case.operation for case in cases} == set(OPERATIONS)
    assert {type(case.likelihood) for case in cases} == set(osc.likelihoods.REGISTRY.values())
    assert {case.structure.name for case in cases} == set(osc.structures.REGISTRY)


def test_the_record_has_no_failure_and_every_mistake_was_noticed() -> None:
    record = json.loads(RECORD.read_text())
    assert record["cases"] >= 20_000
    assert not record["failures"]
    assert set(record["mutants"]) == {mutant.name for mutant in MUTANTS}
    assert all(record["mutants"].values())


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_mistake_can_be_seeded(mutant: Mutant) -> None:
    function = mutant.function()
    own = function.__code__
    with mutant.seeded():
        assert function.__code__ != own
    assert function.__code__ is own


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICK)
def test_a_seeded_mistake_is_noticed(name: str) -> None:
    (mutant,) = (mutant for mutant in MUTANTS if mutant.name == name)
    assert caught(mutant, range(CHECKED), fails, enough=1)


@pytest.mark.release
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_every_seeded_mistake_is_noticed(mutant: object) -> None:
    assert caught(mutant, range(CHECKED), fails, enough=1)
