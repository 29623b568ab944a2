"""Verdicts and evidence on reconstructions."""

import pytest
import torch

from experiments.dip import ard as dip_ard, large as dip_large
from experiments.dip.cells import kernel_log_prob
from experiments.record import FAILS, HOLDS, UNTESTED


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
    each = [
        {"scores": {dip_large.PLAIN: {dip_large.SECONDS: took, dip_large.MEMORY: memory}}} for took in (1.0, seconds)
    ]
    assert [claim.verdict for claim in dip_large.claims({f"rectangles, {size}²": each})] == expected


def test_a_kernel_estimate_is_a_density() -> None:
    draws, grid = torch.randn(50, 1, 1), torch.linspace(-6, 6, 2001)
    densities = torch.stack([kernel_log_prob(draws, x.reshape(1, 1), 0.2) for x in grid]).exp()
    assert float(torch.trapezoid(densities, grid.double())) == pytest.approx(1.0, abs=1e-3)
