"""The experiments with autoencoders, at the smallest scale: numbers in their bounds, figures, and what is kept."""

from pathlib import Path
from typing import Any

import pytest
import torch

from experiments import REGISTRY, Record
from experiments.experiment import changed
from experiments.lae import models as lae_models
from experiments.lae.detection import INSIDE, OUTSIDE, error_over_images
from experiments.lae.models import (
    AE,
    DROPOUT,
    ENSEMBLE,
    EXACT,
    HETEROSCEDASTIC,
    LAPLACIAN,
    LEARNED,
    METHODS,
    VAES,
    Models,
)
from osculate.methods.online_laplace import PUBLISHED_TEMPERATURE

pytestmark = pytest.mark.filterwarnings("ignore:networks sampled")

TINY: dict[str, Any] = {
    "data": "digits",
    "train_size": 200,
    "validation_size": 40,
    "test_size": 60,
    "network": {"hidden": (12,)},
    "fit": {"epochs": 3, "members": 2, "dropout": (0.1,), "every": 4},
}


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("cells"))


def run(name: str, cells: str, seeds: int = 1, **changes: Any) -> Record:
    return REGISTRY[name].run("small", seeds, {**TINY, "cells": cells, **changes}, progress=False)


def column(record: Record, name: str) -> dict[str, float]:
    found = {number.row: number.mean for number in record.findings.numbers if number.column == name}
    return {row: value for row, value in found.items() if value is not None}


def drawn(record: Record) -> None:
    assert REGISTRY[record.id].draw(record).axes
    assert "cells" not in record.setup.settings


def test_networks_are_trained_once_and_kept(cells: str, monkeypatch: pytest.MonkeyPatch) -> None:
    training = changed(lae_models.Training(), {**TINY, "cells": cells})
    first = Models(training, 0).autoencoder()
    files = {path.name: path.stat().st_mtime_ns for path in Path(cells).iterdir()}
    monkeypatch.setattr("osculate.train", lambda *_, **__: pytest.fail("trained again"))
    second = Models(training, 0).autoencoder()
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(one, other)
    assert {path.name: path.stat().st_mtime_ns for path in Path(cells).iterdir()} == files


@pytest.mark.slow
def test_every_method_has_the_spread_that_it_should(cells: str) -> None:
    models = Models(changed(lae_models.Training(), {**TINY, "cells": cells}), 0)
    for name in METHODS:
        image = models.representation(name).reconstruct(models.test[:5], 6)
        assert bool(image.weight_variance.any()) == (name in (ENSEMBLE, DROPOUT, *LAPLACIAN)), name
        assert bool(image.latent_variance.any()) == (name in VAES), name
        varied = image.noise_variance.std() > 1e-6
        assert bool(varied) == (name in HETEROSCEDASTIC), name
    again = models.online(EXACT)
    assert int(again.steps) == 4 * TINY["fit"]["epochs"]
    assert models.running(EXACT).temperature == PUBLISHED_TEMPERATURE


@pytest.mark.slow
def test_table2(cells: str) -> None:
    changes = {"samples": 4, "curve_samples": 4, "columns": 40, "outside": "rotated digits"}
    record = run("lae-table2", cells, **changes)
    drawn(record)
    nll, mse = (
        column(record, name)
        for name in ("−log p (squared error of drawn networks, summed)", "squared error of their mean")
    )
    assert all(nll[row] >= mse[row] for row in nll)  # Jensen
    assert sum("post-hoc, T" in row for row in nll) == 8
    areas = column(record, "AUROC by σ of the code")
    assert all(0 <= value <= 1 for value in areas.values())


@pytest.mark.slow
def test_maps(cells: str) -> None:
    for name, changes in (("lae-figure1", {"samples": 4}), ("lae-figure8", {"samples": 4, "columns": 40})):
        record = run(name, cells, **changes)
        drawn(record)
        assert all(value > 0 for value in column(record, "σ of the output away from codes over that at codes").values())


def test_the_error_of_a_spread_is_that_over_both_sets_of_images() -> None:
    others, inside = torch.rand(400, dtype=torch.double), 3 + torch.rand(300, dtype=torch.double)
    expected = sum(float(each.var() / len(each) / each.mean() ** 2) for each in (others, inside)) ** 0.5
    runs = [{OUTSIDE: scale * others, INSIDE: scale * inside} for scale in (1.0, 2.0)]
    assert error_over_images(runs) == pytest.approx(expected, rel=0.1)


@pytest.mark.release
def test_other_images(cells: str) -> None:
    pairs = {"pairs": (("digits", "rotated digits", 200),), "samples": 4}
    record = run("lae-figure9", cells, **pairs, usual=50)
    drawn(record)
    rows = column(record, "AUROC by −log p")
    assert set(rows) == {f"digits → rotated digits: {name}" for name in METHODS}
    deviations = column(record, "AUROC by σ of the output")
    assert not any(row.endswith((f": {AE}", f": {LEARNED}")) for row in deviations)
    assert len(column(record, "AUROC by σ of the noise")) == len(HETEROSCEDASTIC)
    assert len(column(record, "AUROC by mean pixel")) == 1
    drawn(run("lae-figure10", cells, **pairs, scored=20))


@pytest.mark.release
def test_half_digits_and_few_labels(cells: str) -> None:
    record = run("lae-table3", cells, classifier_epochs=1, images=3)
    drawn(record)
    error, of_draws = (column(record, name) for name in ("squared error per hidden pixel", "the same, of each draw"))
    assert all(error[row] <= of_draws[row] for row in error)
    assert all(1 <= value <= 10 for value in column(record, "effective number of classes seen").values())
    record = run("lae-figure12", cells, labels=(1, 5), repeats=3, samples=3, test_size=200)
    drawn(record)
    one, five = (column(record, f"accuracy with {n} labels a class") for n in (1, 5))
    assert sum(five.values()) > sum(one.values())


@pytest.mark.slow
def test_digits_of_noise_learned_variances_and_where_networks_differ(cells: str) -> None:
    record = run("lae-figure1a", cells)
    drawn(record)
    assert column(record, "σ at edges of an image over σ elsewhere")["VAE, learned variance"] > 0
    record = run("lae-figure11-digits", cells, generated=20, rounds=1, classifier_epochs=1, shown=3)
    drawn(record)
    kinds, sure = (column(record, name) for name in ("effective classes", "share that a classifier is sure of"))
    assert set(kinds) == {f"{name}, {way}" for name in METHODS for way in ("from noise", "from codes")}
    assert all(1 <= value <= 10 for value in kinds.values())
    assert all(0 <= value <= 1 for value in sure.values())
    record = run("lae-figure13-digits", cells, samples=3, scored=20, shown=2)
    drawn(record)
    agreement = column(record, "rank correlation of σ and error, over the pixels of an image")
    assert all(-1 <= value <= 1 for value in agreement.values())
