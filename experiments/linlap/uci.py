"""UCI regression on the standard splits: linearised Laplace beside sampled networks and the baselines."""

from collections.abc import Sequence
from typing import Any

from experiments import Claim, Findings, Record, experiment
from experiments.linlap.uci_cells import Cells, measure_cells
from experiments.linlap.uci_report import ahead_of_us, average, by_set, draw_cells, paired, table, word
from experiments.linlap.uci_splits import (
    DIAG,
    DROPOUT,
    ENSEMBLE,
    FULL,
    KRON,
    MAP,
    PRESETS,
    SAMPLED,
    Settings,
)

SETS = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht")
#: Test log likelihoods of networks with 50 ReLU units that others published for these splits [nado2021]: one network,
#: an ensemble of ten, and dropout.
PUBLISHED = by_set(
    SETS,
    {
        MAP: (-16.1, -3.94, -1.29, 1.06, 5.06, -3.28, -3.16, -1.05, -1.89),
        ENSEMBLE: (-6.11, -3.20, -0.61, 1.17, 5.17, -3.18, -3.12, -0.97, -0.73),
        DROPOUT: (-2.40, -2.93, -1.21, 1.14, 4.45, -2.80, -2.87, -0.93, -1.25),
    },
)
#: What the linearised predictive must reach, and by how much it must exceed sampled networks there.
LEAST = {"yacht": -0.35, "energy": -0.75, "boston": -2.7}
MARGIN = 3.0
#: Sets of which a statement about "most" must hold.
MOST = 7


@experiment(
    "linlap-uci",
    "UCI regression, standard splits: log likelihood and error in original units (in brackets: published by others)",
    "Linearised Laplace tutorial, section 4 [foong2019]",
    **PRESETS,
)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """All sets and splits."""
    found, seconds = measure_cells(settings, "standard", seeds, progress)
    return Findings(table(found, PUBLISHED), claims(found), {"cells": found}, seconds)


def claims(found: Cells) -> tuple[Claim, ...]:
    """Verdicts from the values by set and column."""
    reached = [_reached(found, name, least) for name, least in LEAST.items()]
    return (*reached, _over_sampled(found), _well(found), _published(found), _structures(found))


def _reached(found: Cells, name: str, least: float) -> Claim:
    value = average(found, name, FULL)
    return Claim.judged(
        f"Linearised Laplace, full covariance: a test log likelihood of at least {least} on {name}",
        None if value is None else value >= least,
        f"{word(value)} nats per point over {len(found.get(name, {}).get(FULL, ()))} splits; MAP with the same noise "
        f"{word(average(found, name, MAP))}.",
    )


def _over_sampled(found: Cells) -> Claim:
    gains = {name: paired(found, name, FULL, SAMPLED) for name in LEAST}
    known = [gain for gain in gains.values() if gain is not None]
    return Claim.judged(
        f"It exceeds sampled networks by {MARGIN:g} nats per point and more on these three",
        None if len(known) < len(gains) else min(known) >= MARGIN,
        "by " + ", ".join(f"{word(gain)} ({name})" for name, gain in gains.items()) + "; 100 networks are sampled from "
        "the same Gaussian.",
    )


def _well(found: Cells) -> Claim:
    names = [name for name in found if average(found, name, FULL) is not None]
    good = [name for name in names if (paired(found, name, FULL, MAP) or 0.0) >= 0]
    bad = [name for name in names if (paired(found, name, SAMPLED, MAP) or 0.0) < 0]
    return Claim.judged(
        "Linearised Laplace performs very well on the standard splits, while sampled Laplace does not",
        None if len(names) < len(SETS) else len(good) >= MOST and len(bad) >= MOST,
        f"At least as good as MAP on {len(good)} of {len(names)} sets"
        + (f" (not {', '.join(sorted(set(names) - set(good)))})" if len(good) < len(names) else "")
        + f"; sampled networks are worse than MAP on {len(bad)}; {MOST} count as most.",
    )


def _published(found: Cells) -> Claim:
    names = [name for name in SETS if average(found, name, FULL) is not None]
    behind = ahead_of_us(found, names, PUBLISHED)
    ours = {name: gain for name in names if (gain := paired(found, name, FULL, DROPOUT)) is not None}
    own = [f"{name} (by {-gain:.2g})" for name, gain in ours.items() if gain < 0]
    return Claim.judged(
        "One network with linearised Laplace is at least as good as what others published for one network, an ensemble "
        "of ten and MC dropout",
        None if len(names) < len(SETS) else not behind,
        (f"Behind the best of these on {'; '.join(behind)}." if behind else "On every set.")
        + " Theirs have ReLU units and their own selection of hyperparameters. On the few splits that have both, MC "
        f"dropout as trained here is ahead of it on {', '.join(own) or 'no set'} of {len(ours)}.",
    )


def _structures(found: Cells) -> Claim:
    names = [name for name in found if average(found, name, FULL) is not None]
    kron = [name for name in names if (paired(found, name, FULL, KRON) or 0.0) >= 0]
    diag = [name for name in names if (paired(found, name, FULL, DIAG) or 0.0) >= 0]
    return Claim.judged(
        "The full covariance predicts better than its Kronecker and diagonal approximations, at the same mode and "
        "hyperparameters",
        None if len(names) < len(SETS) else len(kron) >= MOST and len(diag) >= MOST,
        f"At least as good as kron on {len(kron)} and as diag on {len(diag)} of {len(names)} sets. Rows with their own "
        "evidence have prior precisions and noise tuned for the approximation, as osc.laplace does by default.",
    )


@measure.figure
def draw(record: Record) -> Any:
    """One panel a set."""
    return draw_cells(
        record, "UCI, standard splits: one network and the ways to predict from it (hollow: published)", PUBLISHED
    )
