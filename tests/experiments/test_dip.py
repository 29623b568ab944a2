"""Verdicts and evidence on reconstructions."""

import pytest
import torch

from experiments.dip import ard as dip_ard, large as dip_large
from experiments.dip.cells import kernel_log_prob
from experiments.record import FAILS, HOLDS, UNTESTED, Findings, Number
from tests.experiments.limits import verdicts


def test_blocks_are_switched_off_where_their_share_is_small() -> None:
    def image(exact: float) -> dict[str, dict]:
        shares = dict.fromkeys(dip_ard.OBJECTIVES, 0.5) | {"exact": exact}
        return {name: {"a": {dip_ard.SHARE: share}, "b": {dip_ard.SHARE: 0.5}} for name, share in shares.items()}

    exact, around, *_ = dip_ard.claims([image(1e-6), image(1e-3)])
    assert exact.evidence.startswith("0.5 of 2 blocks")
    assert around.evidence.startswith("0.0 of 2 blocks")


@pytest.mark.parametrize(
    ("size", "seconds", "memory", "expected"),
    [
        (128, 300.0, 1.4, [HOLDS, UNTESTED]),
        (128, 901.0, 1.4, [FAILS, UNTESTED]),
        (128, 300.0, 4.1, [FAILS, UNTESTED]),
        (256, 2000.0, 7.9, [UNTESTED, HOLDS]),
        (256, 300.0, 9.0, [UNTESTED, FAILS]),
    ],
)
def test_verdicts_on_the_cost_of_larger_images(size: int, seconds: float, memory: float, expected: list[str]) -> None:
    numbers = tuple(
        Number(f"{image}, {size}²: {dip_large.PLAIN}", column, (value, value))
        for image in ("shepp_logan", "rectangles")
        for column, value in ((dip_large.SECONDS, seconds), (dip_large.MEMORY, memory))
    )
    assert verdicts("dip-large", Findings(numbers, ())) == expected


def test_a_kernel_estimate_is_a_density() -> None:
    draws, grid = torch.randn(50, 1, 1), torch.linspace(-6, 6, 2001)
    densities = torch.stack([kernel_log_prob(draws, x.reshape(1, 1), 0.2) for x in grid]).exp()
    assert float(torch.trapezoid(densities, grid.double())) == pytest.approx(1.0, abs=1e-3)
