"""UCI regression on gap splits: does the predictive know what it has not seen between two regions with data?"""

from collections.abc import Sequence
from statistics import median
from typing import Any

from experiments import Claim, Findings, Record, experiment
from experiments.linlap.uci_cells import Cells, measure_cells
from experiments.linlap.uci_report import ahead_of_us, average, by_set, differences, draw_cells, paired, table, word
from experiments.linlap.uci_splits import DIAG, DROPOUT, ENSEMBLE, FULL, MAP, PRESETS, SAMPLED, Settings

SETS = ("boston", "concrete", "energy", "kin8nm", "power", "wine", "yacht")
#: Test log likelihoods on gap splits that others published, made by the same rule (networks that predict their noise;
#: not for naval and protein).
PUBLISHED = {
    **by_set(
        SETS,
        {
            DROPOUT: (-2.51, -3.44, -7.9, 1.10, -2.92, -0.96, -2.57),
            ENSEMBLE: (-2.69, -3.36, -16.5, 1.21, -2.87, -1.03, -1.58),
        },
    ),
    MAP: {"energy": -266.0},
}
#: What the linearised predictive must reach, and by how much it must exceed MAP and the diagonal.
LEAST = {"yacht": -3.0, "boston": -3.6}
OVER_MAP = {"yacht": 100.0, "boston": 10.0}
OVER_DIAG = 2.0
#: Nats per point over MAP on energy that count as avoiding a catastrophe.
CATASTROPHE = 100.0


@experiment(
    "linlap-uci-gap",
    "UCI regression, gap splits: log likelihood and error in original units (in brackets: published by others)",
    "Linearised Laplace tutorial, section 4 [foong2019]",
    **PRESETS,
)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """All sets and splits."""
    found, seconds = measure_cells(settings, "gap", seeds, progress)
    return Findings(table(found, PUBLISHED), claims(found), {"cells": found}, seconds)


def claims(found: Cells) -> tuple[Claim, ...]:
    """Verdicts from the values by set and column."""
    reached = [_reached(found, name) for name in LEAST]
    over_map = [_over_map(found, name) for name in OVER_MAP]
    return (*reached, *over_map, _over_diag(found), _catastrophes(found), _published(found))


def _reached(found: Cells, name: str) -> Claim:
    value = average(found, name, FULL)
    return Claim.judged(
        f"Linearised Laplace, full covariance: a test log likelihood of at least {LEAST[name]} on {name}",
        None if value is None else value >= LEAST[name],
        f"{word(value)} nats per point over {len(found.get(name, {}).get(FULL, ()))} gaps.",
    )


def _over_map(found: Cells, name: str) -> Claim:
    gain = paired(found, name, FULL, MAP)
    gains = differences(found, name, FULL, MAP)
    middle = median(gains) if gains else None
    return Claim.judged(
        f"It exceeds MAP by {OVER_MAP[name]:g} nats per point and more on {name}",
        None if gain is None else gain >= OVER_MAP[name],
        f"by {word(gain)} in the mean over gaps, by {word(middle)} in the median. It grows with training, as "
        "the noise scale falls: MAP has no other width.",
    )


def _over_diag(found: Cells) -> Claim:
    gains = {name: paired(found, name, FULL, DIAG) for name in LEAST}
    each = {name: differences(found, name, FULL, DIAG) for name in LEAST}
    known = [gain for gain in gains.values() if gain is not None]
    return Claim.judged(
        f"The full covariance exceeds the diagonal by {OVER_DIAG:g} nats per point and more on both",
        None if len(known) < len(gains) else min(known) >= OVER_DIAG,
        "by "
        + ", ".join(
            f"{word(gain)} ({name}; median {word(median(each[name]) if each[name] else None)})"
            for name, gain in gains.items()
        )
        + ", at the same mode and hyperparameters.",
    )


def _catastrophes(found: Cells) -> Claim:
    energy, naval = (paired(found, name, FULL, MAP) for name in ("energy", "naval"))
    each = ", ".join(f"{value:.1f}" for value in found.get("energy", {}).get(FULL, ()))
    return Claim.judged(
        "Linearised Laplace avoids catastrophic results on gap splits for energy and naval",
        None if energy is None or naval is None else energy >= CATASTROPHE and naval > 0,
        f"energy: {word(average(found, 'energy', FULL))} against {word(average(found, 'energy', MAP))} of MAP and "
        f"{word(average(found, 'energy', SAMPLED))} of sampled networks; naval: {word(average(found, 'naval', FULL))} "
        f"against {word(average(found, 'naval', MAP))}. At least {CATASTROPHE:g} nats over MAP on energy, and any on "
        f"naval, count. On energy, by gap: {each or 'not measured'}; where it fails it is certain in a place without "
        "data, and broader predictives win.",
    )


def _published(found: Cells) -> Claim:
    names = [name for name in SETS if average(found, name, FULL) is not None]
    behind = ahead_of_us(found, names, PUBLISHED)
    return Claim.judged(
        "One network with linearised Laplace is at least as good as what others published for MC dropout and deep "
        "ensembles",
        None if len(names) < len(SETS) else not behind,
        (f"Behind the better of these on {'; '.join(behind)}." if behind else "On every set.")
        + " Their networks have ReLU units and predict their own noise.",
    )


@measure.figure
def draw(record: Record) -> Any:
    """One panel a set."""
    return draw_cells(
        record, "UCI, gap splits: does the predictive know where it has no data? (hollow: published)", PUBLISHED
    )
