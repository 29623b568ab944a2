"""Claims of the report on auto-encoding variational Bayes: verdicts that can fall either way, and cached networks."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from experiments import Runner, Table
from experiments.aevb import (
    dvae,
    figure3 as batches,
    figure4 as depth,
    figure5 as estimators,
    figure6 as activations,
    full_vb as full,
    implicit,
    priors,
    reconstruction,
)
from experiments.aevb.cells import Task, Trained, curve
from experiments.record import FAILS, HOLDS, UNTESTED
from tests.experiments.test_reproductions import verdicts


def run(validation: float, train: float = 0.0, early: int = 1) -> dict[str, Any]:
    """Return a curve that ends at these bounds."""
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


ESTIMATORS = estimators.Settings((estimators.Part(latents=(3, 10), estimators=("A", "B")),))


def of_estimators(better: float, first: float = -130.0, wide: float = 2.0) -> Trained:
    """Return runs by size of the code and estimator: how much better B is, its bound with 3 codes, A's variances."""
    names = (estimators.VALUE, estimators.GRADIENT)
    variances = {"A": dict.fromkeys(names, wide), "B": dict.fromkeys(names, 1.0)}
    runs = {}
    for latent, bound in ((3, first), (10, -104.0)):
        runs["mnist", latent, "A"] = [run(bound - better)] * 2
        runs["mnist", latent, "B"] = [{**run(bound), "variances": variances}] * 2
    return Trained(estimators.lines(ESTIMATORS), runs)


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
    found = of_estimators(**{"better": 1.0, **changes})
    assert verdicts(estimators.claims(found, ESTIMATORS)) == [FAILS if n in fails else HOLDS for n in range(5)]
    assert verdicts(estimators.claims(Trained({}, {}), ESTIMATORS)) == [UNTESTED] * 5


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
    lines = depth.lines(settings)
    found = Trained(lines, {key: [run(bounds.get(key, -105.0))] * 2 for key in lines})
    assert verdicts(depth.claims(found, settings)) == expected
    assert verdicts(depth.claims(found, replace(settings, task=Task("digits")))) == [UNTESTED] * 3


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
    lines = activations.lines(settings)
    runs = {name: [run(bounds.get(name, -105.0), early=early[name])] * 2 for name in lines}
    assert verdicts(activations.claims(Trained(lines, runs), settings)) == expected
    one = {name: each[:1] for name, each in runs.items()}
    assert verdicts(activations.claims(Trained(lines, one), settings)) == [UNTESTED] * 3


def test_each_claim_on_batches_can_fail() -> None:
    settings = batches.Settings(samples=(1, 2), batches=(20, 100))

    def found(values: Mapping[tuple[int, int], tuple[float, float]], seeds: int = 2) -> Trained:
        return Trained(batches.lines(settings), {pair: [run(v, t)] * seeds for pair, (v, t) in values.items()})

    good = {(1, 20): (600.0, 1200.0), (2, 20): (700.0, 1210.0), (1, 100): (745.0, 900.0), (2, 100): (750.0, 910.0)}
    bad = {(1, 20): (700.0, 800.0), (2, 20): (700.0, 810.0), (1, 100): (760.0, 900.0), (2, 100): (650.0, 910.0)}
    assert verdicts(batches.claims(found(good), settings)) == [HOLDS] * 3
    assert verdicts(batches.claims(found(bad), settings)) == [FAILS] * 3
    assert verdicts(batches.claims(found(good, 1), settings)) == [UNTESTED] * 3


def test_a_comparison_of_autoencoders_needs_every_size_and_counts_errors() -> None:
    r, settings = reconstruction, reconstruction.Settings(latents=(2, 10))

    def errors(margins: tuple[float, float], seeds: int = 2) -> Any:
        found: dict[tuple[str, int, str], list[dict[str, float]]] = {}
        for latent, margin in zip((2, 10), margins, strict=True):
            found["mnist", latent, r.AE_EQUAL] = [{r.MEAN: 10.0 + margin + noise} for noise in (0.0, 0.5)[:seeds]]
            found["mnist", latent, r.VAE_EQUAL] = [{r.MEAN: 10.0}] * seeds
        return found

    def verdict(found: Any) -> str:
        return next(
            claim for claim in r.claims(found, settings) if "equal terms (ours), on MNIST" in claim.text
        ).verdict

    assert [verdict(errors(each)) for each in ((1.0, 2.0), (1.0, -1.0), (0.1, 2.0))] == [HOLDS, FAILS, FAILS]
    assert verdict({}) == UNTESTED
    assert verdict(errors((1.0, 2.0), seeds=1)) == UNTESTED, "one seed shows no difference"


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
    def found(gap: float, divergence: float) -> list[str]:
        table = Table()
        table.add("ring: Gaussian", {implicit.GAP: 1.5, implicit.KL: 1.4})
        table.add("ring: semi-implicit", {implicit.GAP: gap, implicit.KL: divergence})
        table.add("four corners: semi-implicit", {implicit.GAP: gap, implicit.KL: divergence})
        assert verdicts(implicit.claims("four corners", table)) == [UNTESTED] * 2
        return verdicts(implicit.claims("ring", table))

    assert found(0.5, 0.4) == [HOLDS, HOLDS]
    assert found(1.6, 0.4) == [FAILS, HOLDS]
    assert found(0.5, 1.6) == [HOLDS, FAILS]


@pytest.mark.parametrize("model", implicit.MODELS)
def test_the_exact_posterior_sums_to_one_and_its_cells_are_fine_enough(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    evidence, posterior = implicit.exact(model, 0.2)
    assert torch.allclose(posterior.exp().sum((1, 2)), torch.ones(len(evidence), dtype=torch.double))
    monkeypatch.setattr(implicit, "CELLS", 800)
    assert torch.allclose(implicit.exact(model, 0.2)[0], evidence, atol=1e-6)


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
    settings, table = priors.Settings(bits=(1, 3)), Table()
    for name, one_bit, shares in ((priors.NORMAL, 20.0, ()), (priors.BETA, cut, (share,)), (priors.TWO, cut, (share,))):
        errors = {priors._column(1): one_bit, priors._column(2): one_bit, priors._column(3): 10.9}
        for _ in range(2):
            table.add(name, {priors.HELD_OUT: -100.0, priors.CONTINUOUS: 10.0, **errors})
        table[name, priors.SHARE] = [*shares]
    claims = list(priors.claims(table, settings))
    assert verdicts(claims) == expected
    assert fewest in claims[1].evidence
    assert verdicts(priors.claims(table, replace(settings, bits=(2,)))) == [UNTESTED] * 4
