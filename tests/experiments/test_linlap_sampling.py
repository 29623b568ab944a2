"""Verdicts on sampled against linearised predictives, which can fall either way."""

import pytest

from experiments.linlap import sampling as s
from experiments.record import FAILS, HOLDS, UNTESTED

Found = dict[tuple[str, str], list[float]]


def found(**changes: float) -> Found:
    """Values with which every claim holds, but for some."""
    good = {"off": 80.0, "inside": 0.5, "fit": -5.0, "accuracy": 0.955, "sampled": 0.3, "auroc": 0.85, **changes}
    rows: Found = {
        ("curve: linearised", s.OFF): [good["inside"]],
        ("curve: sampled", s.OFF): [good["off"]],
        ("curve: linearised", s.FIT): [1.0],
        ("curve: sampled", s.FIT): [good["fit"]],
    }
    for precision in s.Digits().precisions:
        values = {
            s.MODE: (0.96, 0.8),
            s.LINEARISED: (good["accuracy"], good["auroc"]),
            s.SAMPLED: (good["sampled"], 0.5),
        }
        for name, (accuracy, auroc) in values.items():
            rows[f"precision {precision:g}: {name}", s.ACCURACY] = [accuracy]
            rows[f"precision {precision:g}: {name}", s.AUROC] = [auroc]
    # a tight prior keeps the draws near the mode: of it nothing is claimed
    rows[f"precision 10: {s.SAMPLED}", s.ACCURACY] = [0.9]
    return rows


def verdicts(values: Found, settings: s.Settings) -> list[str]:
    return [claim.verdict for claim in s.claims(values, settings)]


def test_all_hold_together() -> None:
    assert verdicts(found(), s.Settings()) == [HOLDS] * 5


@pytest.mark.parametrize(
    ("change", "which"),
    [
        ({"off": 40.0}, 0),
        ({"inside": 6.0}, 0),
        ({"fit": 0.5}, 1),
        ({"accuracy": 0.94}, 2),
        ({"sampled": 0.6}, 3),
        ({"auroc": 0.83}, 4),
    ],
)
def test_each_can_fail_alone(change: dict[str, float], which: int) -> None:
    expected = [HOLDS] * 5
    expected[which] = FAILS
    assert verdicts(found(**change), s.Settings()) == expected


def test_without_a_vague_prior_sampled_networks_are_not_judged() -> None:
    settings = s.Settings(digits=s.Digits(precisions=(10.0,)))
    assert verdicts(found(), settings)[3] == UNTESTED
