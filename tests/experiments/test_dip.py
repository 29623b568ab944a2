"""Verdicts on reconstructions, which can fall either way."""

from collections.abc import Iterable

import pytest
import torch

from experiments.dip import (
    ard as dip_ard,
    calibration as dip_calibration,
    choices as dip_choices,
    kmnist as dip_kmnist,
    large as dip_large,
)
from experiments.dip.cells import (
    CHOSEN_DROPOUT,
    COVERED,
    DENSITY,
    DROPOUT,
    JOINT,
    METHODS,
    PSNR,
    RANKED,
    UNIT,
    kernel_log_prob,
)
from experiments.record import FAILS, HOLDS, UNTESTED, Claim

TITLE = "10 angles, 5 %"


def verdicts(claims: Iterable[Claim]) -> list[str]:
    return [claim.verdict for claim in claims]


def scans(ours: float, dropout: float, covered: float, tv: float, count: int) -> dict[str, list[dict]]:
    """Scores of a scan: densities of the linearised model without and with TV-PredCP, and of dropout."""
    densities = {
        dip_kmnist.EVIDENCE: ours,
        dip_kmnist.WITH_TV: ours + tv,
        DROPOUT: dropout,
        CHOSEN_DROPOUT: dropout,
        UNIT: 1.5,
    }
    return {
        TITLE: [
            {
                method: {
                    DENSITY: densities.get(method, 0.0) + 0.001 * number * (method == dip_kmnist.WITH_TV),
                    JOINT: densities.get(method, 0.0),
                    COVERED: covered,
                    RANKED: 0.7,
                }
                for method in METHODS
            }
            for number in range(count)
        ]
    }


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (scans(2.5, 2.0, 0.95, 0.1, 10), [HOLDS] * 9),
        (scans(2.05, 2.0, 0.95, -0.2, 10), [FAILS, HOLDS, HOLDS, FAILS, FAILS, HOLDS, HOLDS, FAILS, FAILS]),
        (scans(2.5, 2.0, 0.85, 0.1, 10), [HOLDS, HOLDS, FAILS, HOLDS, HOLDS, FAILS, HOLDS, HOLDS, HOLDS]),
        (scans(2.5, 2.0, 0.95, 0.1, 4), [UNTESTED] * 9),
    ],
)
def test_verdicts_on_handwriting(cells: dict[str, list[dict]], expected: list[str]) -> None:
    assert verdicts(dip_kmnist.claims(cells | {"5 angles, 5 %": cells[TITLE]}, TITLE)) == expected
    assert verdicts(dip_kmnist.claims(cells, TITLE))[-3:] == [UNTESTED] * 3, "one scan is not every scan"


def curves(shift: float, count: int) -> list[list[float]]:
    return [[min(1.0, level + shift + 0.001 * n) for level in dip_calibration.LEVELS] for n in range(count)]


@pytest.mark.parametrize(
    ("ours", "theirs", "ratios", "count", "expected"),
    [
        (0.0, 0.2, (1.1, 3.0), 3, [HOLDS, FAILS, HOLDS]),
        (0.2, 0.0, (1.1, 1.2), 3, [FAILS, HOLDS, FAILS]),
        (0.0, 0.2, (2.0, 3.0), 3, [HOLDS, FAILS, FAILS]),
        (0.0, 0.2, (1.1, 3.0), 1, [UNTESTED, UNTESTED, UNTESTED]),
    ],
)
def test_verdicts_on_calibration(
    ours: float, theirs: float, ratios: tuple[float, float], count: int, expected: list[str]
) -> None:
    linearised = (dip_calibration.EVIDENCE, dip_calibration.WITH_TV)
    methods = dip_calibration.COMPARED
    covered = {method: curves(ours if method in linearised else theirs, count) for method in methods}
    within = {method: curves(theirs if method in linearised else ours, count) for method in methods}
    groups = {method: ([1.0], [ratios[method not in linearised]]) for method in methods}
    assert verdicts(dip_calibration.claims(covered, within, groups)) == expected


def blocks(exact: float, variance: float, scale: float, around: float = 0.5) -> dict[str, dict]:
    def block(share: float, change: float = 0.0, longer: float = 0.0) -> dict[str, float]:
        return {dip_ard.SHARE: share, dip_ard.VARIANCE: change, dip_ard.NEIGHBOURS: 0.1 + longer}

    plain, smooth, tv, linear = dip_ard.OBJECTIVES
    return {
        plain: {"a": block(around)},
        smooth: {"a": block(0.5, variance, scale)},
        tv: {"a": block(0.5)},
        linear: {"a": block(exact)},
    }


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([blocks(1e-6, -1.0, 0.2)] * 2, [HOLDS, FAILS, HOLDS, HOLDS]),
        ([blocks(0.5, -1.0, -0.2)] * 2, [FAILS, FAILS, HOLDS, FAILS]),
        ([blocks(1e-6, -1.0, 0.2, 1e-6), blocks(1e-6, 0.1, 0.2, 1e-6)], [HOLDS, HOLDS, FAILS, HOLDS]),
        ([blocks(1e-6, -1.0, 0.2)], [UNTESTED] * 4),
    ],
)
def test_verdicts_on_blocks(cells: list[dict], expected: list[str]) -> None:
    assert verdicts(dip_ard.claims(cells)) == expected


def large(density: float, tv: float, seconds: float, memory: float, share: float = 0.93) -> dict:
    plain, smooth = (
        {DENSITY: value, dip_large.SECONDS: seconds, dip_large.MEMORY: memory, COVERED: share}
        for value in (density, density + tv)
    )
    return {"scores": {dip_large.PLAIN: plain, dip_large.WITH_TV: smooth, dip_large.DROPOUT: {DENSITY: 2.0}}}


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        ([large(2.5, 0.1, 300.0, 1.4), large(2.1, 0.1, 300.0, 1.4)], [HOLDS] * 7),
        ([large(1.9, 0.2, 901.0, 1.4), large(2.6, 0.2, 300.0, 9.0)], [FAILS, FAILS, FAILS, HOLDS, HOLDS, HOLDS, HOLDS]),
        ([large(2.1, -0.2, 300.0, 1.4), large(2.6, 0.1, 300.0, 1.4, 0.85)], [HOLDS] * 3 + [FAILS] * 4),
        ([large(2.5, 0.1, 300.0, 1.4)], [HOLDS, HOLDS] + [UNTESTED] * 5),
    ],
)
def test_verdicts_on_larger_images(cells: list[dict], expected: list[str]) -> None:
    assert verdicts(dip_large.claims({"rectangles, 128²": cells})) == [expected[0], UNTESTED, *expected[2:]]
    whole = list(dip_large.claims({"rectangles, 128²": cells[:1], "rectangles, 256²": cells[1:] or cells}))
    assert verdicts(whole)[1] == expected[1]


@pytest.mark.parametrize(
    ("chosen", "rate", "count", "expected"),
    [
        (30.0, 2.5, 2, [HOLDS, HOLDS, HOLDS]),
        (28.0, 1.0, 2, [FAILS, FAILS, HOLDS]),
        (30.0, 2.0, 2, [HOLDS, HOLDS, FAILS]),
        (30.0, 2.5, 1, [UNTESTED, UNTESTED, UNTESTED]),
    ],
)
def test_verdicts_on_choices(chosen: float, rate: float, count: int, expected: list[str]) -> None:
    found = {
        (TITLE, "penalty", 0.3): [{PSNR: chosen}] * count,
        (TITLE, "penalty", 1.0): [{PSNR: 29.0}] * count,
        (TITLE, "dropout", 0.4): [{PSNR: 1.0, DENSITY: rate}] * count,
        (TITLE, "dropout", 0.05): [{PSNR: 1.0, DENSITY: 2.0}] * count,
    }
    assert verdicts(dip_choices.claims(found)) == expected


def test_a_kernel_estimate_is_a_density() -> None:
    draws, grid = torch.randn(50, 1, 1), torch.linspace(-6, 6, 2001)
    densities = torch.stack([kernel_log_prob(draws, x.reshape(1, 1), 0.2) for x in grid]).exp()
    assert float(torch.trapezoid(densities, grid.double())) == pytest.approx(1.0, abs=1e-3)
