"""Errors over the test data that all seeds share: beside closed forms, and in the verdict of a claim."""

from pathlib import Path
from statistics import mean
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import osculate as osc
from experiments import REGISTRY, Record, by_image, read_record
from experiments.documents import artefact
from experiments.lae import table3
from experiments.lae.explained import _error_on_average as on_average
from experiments.lae.models import AE, METHODS, ONLINE, VARIATIONAL
from experiments.lae.table3 import ECE, HEADINGS, MODES, PROBS
from experiments.paired import (
    ERRORS,
    area_error,
    beside,
    bootstrap_error,
    difference_error,
    errors_in,
    places,
    ratio_error,
)
from experiments.record import Findings, Number, Setup
from experiments.statements import ABOVE, Test, gap
from experiments.vl import figure1, table1
from tests.experiments.test_reproductions import TINY

RESULTS = Path(__file__).resolve().parents[2] / "experiments" / "results"


def losses(seed: int, seeds: int = 3, number: int = 500) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(number, generator=generator).double() + 0.5 for _ in range(seeds)]


def test_the_bootstrap_finds_the_error_over_test_data() -> None:
    apart = np.random.default_rng(0).normal(size=(1, 400)).repeat(3, axis=0)
    assert bootstrap_error(apart) == pytest.approx(apart[0].std(ddof=1) / 20, rel=0.1)
    assert bootstrap_error(apart) == bootstrap_error(apart)


def test_a_common_part_of_both_losses_has_no_error() -> None:
    ours = losses(0)
    assert difference_error(ours, [each + 1 for each in ours]) == pytest.approx(0, abs=1e-12)
    assert ratio_error(ours, [3 * each for each in ours]) == pytest.approx(0, abs=1e-12)


def test_the_error_of_a_ratio_is_that_over_new_test_data() -> None:
    ours, theirs = losses(0, 1, 100), losses(1, 1, 100)
    again = [(a.mean() / b.mean()).log() for a, b in zip(losses(2, 2000, 100), losses(3, 2000, 100), strict=True)]
    assert ratio_error(ours, theirs) == pytest.approx(float(torch.stack(again).std()), rel=0.2)


def test_the_shares_give_the_area_and_its_error() -> None:
    generator = torch.Generator().manual_seed(0)
    inside, outside = torch.randn(300, generator=generator).round(decimals=1), torch.randn(200, generator=generator) + 1
    outside[:20] = inside[:20]  # ties count half
    above, below = places(inside, outside)
    area = osc.metrics.auroc(inside, outside)
    assert float(above.mean()) == pytest.approx(area, abs=1e-6)
    assert float(below.mean()) == pytest.approx(area, abs=1e-6)
    constant = torch.full_like(above, 0.5), torch.full_like(below, 0.5)
    error = area_error([(above, below)], [constant])
    assert error == pytest.approx(osc.metrics.auroc_error(inside, outside), rel=0.1)


def test_an_average_over_pairs_with_separate_images_has_the_errors_of_both() -> None:
    generator = torch.Generator().manual_seed(0)
    ours, theirs = ([(torch.rand(50, generator=generator), torch.rand(40, generator=generator))] for _ in range(2))
    single = area_error(ours, theirs)
    assert on_average({"a → b": ours}, {"a → b": theirs}) == pytest.approx(single)
    apart = on_average({"a → b": ours, "c → d": ours}, {"a → b": theirs, "c → d": theirs})
    shared = on_average({"a → b": ours, "a → d": ours}, {"a → b": theirs, "a → d": theirs})
    assert apart == pytest.approx(single / 2**0.5)
    assert apart < shared < single


def test_differences_of_ways_to_predict_have_the_errors_of_their_images_within_a_task() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(3, (40,), generator=generator)

    def way() -> dict[str, Any]:
        probs = torch.rand(40, 3, generator=generator).softmax(1)
        shares = torch.rand(40, generator=generator), torch.rand(30, generator=generator)
        return {by_image.IMAGES: by_image.by_image(probs, y, ("NLL", "accuracy")), by_image.PLACES: [shares]}

    ours, other = [way(), way()], [way(), way()]
    rows = {"one: ours": ours, "one: other": other, "one: a seed less": ours[:1], "two: ours": [way()]}
    errors = by_image.errors_over_images(rows) | by_image.errors_of_detection(rows, "AUROC")
    names = [("one: ours", "one: other"), ("one: other", "one: ours")]
    assert errors.keys() == {beside(*pair, column) for pair in names for column in ("NLL", "accuracy", "AUROC")}
    nll = [[run[by_image.IMAGES]["NLL"] for run in runs] for runs in (ours, other)]
    assert errors[beside(*names[0], "NLL")] == pytest.approx(difference_error(*nll), rel=0.01)
    areas = [[run[by_image.PLACES][0] for run in runs] for runs in (ours, other)]
    assert errors[beside(*names[0], "AUROC")] == pytest.approx(area_error(*areas), rel=0.01)
    for run in ours + other:
        run[by_image.PLACES] *= 2  # a set that stands there twice counts as two of other images
    twice = by_image.errors_of_detection({"one: ours": ours, "one: other": other}, "AUROC")
    assert twice[beside(*names[0], "AUROC")] < errors[beside(*names[0], "AUROC")]


@pytest.mark.parametrize(
    ("module", "name", "over"),
    [(table1, "vl-table1", ("{}",)), (figure1, "vl-figure1", ("{}, β = 0.1", "{}, β = 1"))],
    ids=["table 1", "figure 1"],
)
def test_the_losses_of_images_average_to_the_scores_of_variational_laplace(
    module: ModuleType, name: str, over: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: dict[str, Any] = {}
    monkeypatch.setattr(module, "errors_over_images", lambda rows: compared.update(rows) or {})
    numbers = REGISTRY[name].run("small", 1, TINY[name], progress=False).findings.numbers
    cells = {(number.row, number.column): number.pair[0] for number in numbers}
    assert len(compared) > 2
    for row, (run,) in compared.items():
        for column, losses in run[by_image.IMAGES].items():
            expected = mean(cells[each.format(row), column] for each in over)
            assert float(losses.mean()) == pytest.approx(expected, rel=1e-5)


def test_what_completed_images_average_is_what_their_table_shows_and_has_its_error() -> None:
    generator = torch.Generator().manual_seed(0)
    truth, targets = torch.rand(60, 1, 4, 4, generator=generator), torch.arange(60) % 3
    net = osc.autoencoders.Autoencoder(*osc.networks.mlp_coders((1, 4, 4), hidden=(8,)))
    r = osc.autoencoders.Representation(osc.posteriors.Point(net, osc.likelihoods.Gaussian()))
    layers = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(16, 3))
    classifier = osc.posteriors.Point(layers, osc.likelihoods.Categorical())
    observed = osc.tasks.lower_half((1, 4, 4))
    record = osc.tasks.imputation(r, truth, observed, draws=5, classifier=classifier, targets=targets)
    found = table3.by_image(record, truth)
    for name, heading in HEADINGS.items():
        if heading in found:
            assert float(found[heading].mean()) == pytest.approx(record.scores[name], rel=1e-5)
    other = {**found, PROBS: torch.full((60, 3), 1 / 3), MODES: 1 + torch.rand(60)}
    each = {name: [other if name == VARIATIONAL else found] for name in METHODS}
    errors = table3.errors_over_images(each, draws=50)
    assert errors[beside(ONLINE, AE, ECE)] == 0.0
    assert errors[beside(ONLINE, VARIATIONAL, ECE)] > 0.0
    assert errors[beside(ONLINE, VARIATIONAL, MODES)] > 0.0


@pytest.mark.parametrize("name", ["lae-detection", "lae-table3", "l2m-classification", "linlap-images"])
def test_all_that_claims_compare_has_its_error(name: str) -> None:
    record = read_record(RESULTS / f"{name}.json")
    known = artefact(name)
    assert known is not None
    tests = [test for statement in known.statements for test in statement.tests if isinstance(test, Test)]
    names = {name for test in tests for name in test.parts(record)}
    assert len(tests) >= len(known.statements)
    assert names <= set(errors_in(record.findings.data))


@pytest.mark.parametrize(("error", "verdict"), [(0.0, True), (1.0, None)])
def test_a_verdict_counts_the_error_that_its_record_keeps(error: float, verdict: bool | None) -> None:
    numbers = (Number("ours", "score", (1.0, 1.1, 1.2)), Number("other", "score", (0.5, 0.6, 0.8)))
    data = {ERRORS: {beside("ours", "other", "score"): error}}
    setup = Setup("small", {}, (0, 1, 2), 1.0, {})
    record = Record("one", "One", "none", setup, Findings(numbers, (), data))
    assert errors_in(record.findings.data) == data[ERRORS]
    test = Test(ABOVE, "nats", gap("ours", "other", "score"))
    (sample,) = test.samples(record).values()
    assert test.evidence(sample).verdict() is verdict
    assert errors_in({}) == {}
