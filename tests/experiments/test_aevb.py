"""Claims of the report on auto-encoding variational Bayes: verdicts that can fall either way; cells that are kept."""

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from experiments import Runner
from experiments.aevb import (
    dvae,
    figure3 as batches,
    figure4 as depth,
    figure5 as estimators,
    figure6 as activations,
    figure7 as pairs,
    full_vb as full,
    implicit,
    priors,
)
from experiments.aevb.cells import Task, curve
from experiments.aevb.lines import Found
from experiments.record import FAILS, HOLDS, UNTESTED
from osculate.autoencoders import Distortion, RateDistortion
from tests.experiments.test_reproductions import verdicts


def run(validation: float, train: float = 0.0, early: int = 1) -> dict[str, Any]:
    """A curve that ends at these bounds."""
    return {"seen": [early, 10], "train": [train, train], "validation": [-100.0 if early < 9 else -200.0, validation]}


def test_a_curve_ends_with_the_training_and_counts_images() -> None:
    history = [{"epoch": n, "bound": float(n), "validation_nll": -float(n)} for n in range(1, 101)]
    found = curve(history, 50)
    assert found["seen"][0] == 50
    assert found["seen"][-1] == 5000
    assert found["validation"][-1] == 100.0
    assert found["seen"] == sorted(set(found["seen"]))


def test_a_network_is_trained_once_and_read_with_what_it_gave(tmp_path: Path) -> None:
    calls = []

    def train(net: nn.Module) -> Mapping[str, Any]:
        calls.append(1)
        with torch.no_grad():
            for parameter in net.parameters():
                parameter.fill_(3.0)
        return {"bound": [1.0, 2.0]}

    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    for net in (first, second):
        found = Runner(str(tmp_path)).network("net", ("a", 1), ["about"], net, lambda net=net: train(net))
        assert found == {"bound": [1.0, 2.0]}
    assert len(calls) == 1
    assert torch.equal(first.weight, second.weight)
    other = Runner(str(tmp_path)).network("net", ("a", 1), ["another"], second, lambda: {"bound": [5.0]})
    assert other == {"bound": [5.0]}


def of_estimators(better: float, first: float = -130.0, wide: float = 2.0) -> Found:
    settings = estimators.Settings((estimators.Part(latents=(3, 10), estimators=("A", "B")),))
    runs = {}
    for latent, bound in ((3, first), (10, -104.0)):
        for name, value in (("A", bound - better), ("B", bound)):
            columns = {
                "A": {estimators.VALUE: wide, estimators.GRADIENT: wide},
                "B": {estimators.VALUE: 1.0, estimators.GRADIENT: 1.0},
            }
            own = {"variances": columns} if name == "B" else {}
            line = estimators._line(settings.parts[0], settings, latent, name)
            runs[line] = [{**run(value), **own}, {**run(value), **own}]
    return Found(runs, 0.0)


@pytest.mark.parametrize(
    ("changes", "fails"),
    [
        ({}, ()),
        ({"better": -0.5}, (0,)),
        ({"first": -103.0}, (1,)),
        ({"first": -140.0}, (2,)),
        ({"wide": 0.5}, (3, 4)),
    ],
)
def test_each_claim_on_estimators_can_fail_alone(changes: dict[str, float], fails: tuple[int, ...]) -> None:
    settings = estimators.Settings((estimators.Part(latents=(3, 10), estimators=("A", "B")),))
    found = of_estimators(**{"better": 1.0, **changes})
    assert verdicts(estimators.claims(found, settings)) == [FAILS if n in fails else HOLDS for n in range(5)]
    assert verdicts(estimators.claims(Found({}, 0.0), settings)) == [UNTESTED] * 5


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        (
            {
                (depth.ADAGRAD, 4): -205.0,
                (depth.ORTHOGONAL, 4): -105.0,
                (depth.SMALL, 2): -100.0,
                (depth.ORTHOGONAL, 2): -100.0,
            },
            [HOLDS] * 3,
        ),
        ({(depth.ADAGRAD, 4): -110.0, (depth.ORTHOGONAL, 4): -205.0, (depth.SMALL, 2): -109.0}, [FAILS] * 3),
    ],
)
def test_each_claim_on_depth_can_fail(bounds: dict[tuple[str, int], float], expected: list[str]) -> None:
    settings = depth.Settings(depths=(1, 2, 4))
    runs = {
        depth._line(settings, panel, layers): [run(bounds.get((panel, layers), -105.0))] * 2
        for panel in depth.INITIAL
        for layers in depth._depths(settings, panel)
    }
    assert verdicts(depth.claims(Found(runs, 0.0), settings)) == expected
    assert verdicts(depth.claims(Found(runs, 0.0), replace(settings, task=Task("digits")))) == [UNTESTED] * 3


@pytest.mark.parametrize(
    ("early", "bounds", "expected"),
    [
        ({"relu": 1, "tanh": 2, "sigmoid": 3}, {"sigmoid": -108.0}, [HOLDS] * 3),
        ({"relu": 2, "tanh": 3, "sigmoid": 1}, {"relu": -100.0}, [FAILS] * 3),
    ],
)
def test_each_claim_on_activations_can_fail(
    early: dict[str, int], bounds: dict[str, float], expected: list[str]
) -> None:
    settings = activations.Settings(activations=("tanh", "relu", "sigmoid"))
    runs = {
        activations._line(settings, name): [run(bounds.get(name, -105.0), early=early[name])] * 2
        for name in settings.activations
    }
    assert verdicts(activations.claims(Found(runs, 0.0), settings)) == expected
    one = {line: each[:1] for line, each in runs.items()}
    assert verdicts(activations.claims(Found(one, 0.0), settings)) == [UNTESTED] * 3


def test_each_claim_on_batches_can_fail() -> None:
    settings = batches.Settings(samples=(1, 2), batches=(20, 100))

    def found(values: Mapping[tuple[int, int], tuple[float, float]], seeds: int = 2) -> Found:
        return Found({batches._line(settings, *pair): [run(v, t)] * seeds for pair, (v, t) in values.items()}, 0.0)

    good = {(1, 20): (600.0, 1200.0), (2, 20): (700.0, 1210.0), (1, 100): (745.0, 900.0), (2, 100): (750.0, 910.0)}
    bad = {(1, 20): (700.0, 800.0), (2, 20): (700.0, 810.0), (1, 100): (760.0, 900.0), (2, 100): (650.0, 910.0)}
    assert verdicts(batches.claims(found(good), settings)) == [HOLDS] * 3
    assert verdicts(batches.claims(found(bad), settings)) == [FAILS] * 3
    assert verdicts(batches.claims(found(good, 1), settings)) == [UNTESTED] * 3


def test_a_comparison_of_autoencoders_needs_every_size_and_counts_errors() -> None:
    settings = pairs.Settings(latents=(2, 10))

    def errors(margins: tuple[float, float]) -> Any:
        found: dict[tuple[str, int, str], list[dict[str, float]]] = {}
        for latent, margin in zip((2, 10), margins, strict=True):
            found["mnist", latent, pairs.AE_EQUAL] = [{pairs.MEAN: 10.0 + margin + noise} for noise in (0.0, 0.5)]
            found["mnist", latent, pairs.VAE_EQUAL] = [{pairs.MEAN: 10.0}] * 2
        return found

    said = [pairs.claims(errors(margins), settings)[2].verdict for margins in ((1.0, 2.0), (1.0, -1.0), (0.1, 2.0))]
    assert said == [HOLDS, FAILS, FAILS]
    alone = {key: runs[:1] for key, runs in errors((1.0, 2.0)).items()}
    assert pairs.claims({}, settings)[2].verdict == UNTESTED
    assert pairs.claims(alone, settings)[2].verdict == UNTESTED, "one seed shows no difference"


def of_full(naive: float = 60.0, drawn: float = 800.0, gap: float = 20.0, mean: float = 1000.0) -> Any:
    columns = {full.TRAIN_DRAWN: drawn + gap, full.TEST_DRAWN: drawn, full.TRAIN_MEAN: mean + 1, full.TEST_MEAN: mean}
    point = {full.TRAIN_MEAN: 1150.0, full.TEST_MEAN: 990.0}
    bad = {**columns, full.TEST_DRAWN: naive}
    return {full.POINT: [{"400": point}] * 2, full.NAIVE: [{"400": bad}] * 2, full.CURED: [{"400": columns}] * 2}


@pytest.mark.parametrize(
    ("changes", "fails"),
    [({}, ()), ({"naive": 790.0}, (0, 1)), ({"drawn": 300.0}, (1,)), ({"gap": 90.0}, (2,)), ({"mean": 900.0}, (3,))],
)
def test_each_claim_on_full_variational_bayes_can_fail(changes: dict[str, float], fails: tuple[int, ...]) -> None:
    settings = full.Settings(epochs=(100, 400))
    assert verdicts(full.claims(of_full(**changes), settings)) == [FAILS if n in fails else HOLDS for n in range(4)]
    assert verdicts(full.claims({}, settings)) == [UNTESTED] * 4


def test_each_claim_on_implicit_posteriors_can_fail() -> None:
    def found(gap: float, divergence: float) -> Any:
        return {
            ("ring", implicit.GAUSSIAN): [{implicit.GAP: 1.5, implicit.KL: 1.4}],
            ("ring", implicit.IMPLICIT): [{implicit.GAP: gap, implicit.KL: divergence}],
            ("four corners", implicit.IMPLICIT): [{implicit.GAP: gap, implicit.KL: divergence}],
        }

    assert verdicts(implicit.claims(found(0.5, 0.4))) == [HOLDS, HOLDS, UNTESTED, UNTESTED]
    assert verdicts(implicit.claims(found(1.6, 0.4))) == [FAILS, HOLDS, UNTESTED, UNTESTED]
    assert verdicts(implicit.claims(found(0.5, 1.6))) == [HOLDS, FAILS, UNTESTED, UNTESTED]


@pytest.mark.parametrize("model", implicit.MODELS)
def test_the_exact_posterior_sums_to_one_and_its_cells_are_fine_enough(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence, posterior = implicit._exact(model, 0.2)
    assert torch.allclose(posterior.exp().sum((1, 2)), torch.ones(len(evidence), dtype=torch.double))
    monkeypatch.setattr(implicit, "CELLS", 800)
    assert torch.allclose(implicit._exact(model, 0.2)[0], evidence, atol=1e-6)


def test_each_claim_on_noise_that_fades_can_fail() -> None:
    settings = dvae.Settings()

    def found(fading: float, error: float) -> Any:
        def one(bound: float, error: float) -> list[dict[str, Any]]:
            return [{**run(bound), dvae.ERROR: error}] * 2

        return {"none": one(-105.0, 10.0), "mask 0.25, constant": one(-106.0, 11.0)} | {
            f"mask 0.25, {how}": one(fading, error) for how in dvae.FADING
        }

    assert verdicts(dvae.claims(found(-104.0, 9.0), settings)) == [HOLDS] * 3
    assert verdicts(dvae.claims(found(-105.5, 10.5), settings)) == [HOLDS, FAILS, FAILS]
    assert verdicts(dvae.claims(found(-107.0, 9.0), settings)) == [FAILS, FAILS, HOLDS]


@pytest.mark.parametrize(
    ("share", "cut", "expected", "fewest"),
    [
        (0.9, 10.5, [HOLDS] * 4, "normal 3, sparse Beta 1, two normals 1."),
        (0.5, 10.5, [FAILS, HOLDS, HOLDS, HOLDS], "sparse Beta 1"),
        (0.9, 14.0, [HOLDS, FAILS, HOLDS, HOLDS], "sparse Beta 3"),
        (0.9, 25.0, [HOLDS, FAILS, FAILS, FAILS], "sparse Beta 3"),
    ],
)
def test_each_claim_on_binary_priors_can_fail(share: float, cut: float, expected: list[str], fewest: str) -> None:
    settings = priors.Settings(bits=(1, 3))

    def of(one_bit: float, share: float | None) -> list[dict[str, Any]]:
        levels = [Distortion(bits, 32.0 * bits, 0.0, error, 0.1, 0.0) for bits, error in ((1.0, one_bit), (3.0, 10.9))]
        found = RateDistortion(tuple(levels), Distortion(math.inf, math.inf, 0.0, 10.0, 0.1, 0.0), share)
        return [{priors.HELD_OUT: -100.0, "cut": found}] * 2

    found = {priors.NORMAL: of(20.0, None), priors.BETA: of(cut, share), priors.TWO: of(cut, share)}
    claims = priors.claims(found, settings)
    assert verdicts(claims) == expected
    assert fewest in claims[1].evidence
    assert verdicts(priors.claims(found, replace(settings, bits=(2,)))) == [UNTESTED] * 4
