"""L2M on UCI regression: the curvature that Adam has left, beside a pass with the squared gradients of single data."""

from collections.abc import Mapping, Sequence
from functools import partial
from math import sqrt
from statistics import mean, stdev
from typing import Any

import numpy as np

from experiments import Claim, Findings, Number, Record, Runner, experiment
from experiments.l2m.cells import (
    AGAIN,
    COLUMNS,
    DETERMINED,
    ENSEMBLE,
    GGN,
    MIXTURE,
    MOMENTS,
    PASS,
    PRESETS,
    PRIOR,
    RANK,
    RANK_AGAIN,
    RATIO,
    RATIO_AGAIN,
    READ,
    SCATTER,
    SINGLE,
    TUNED,
    WAYS,
    WHOLE,
    Settings,
    cell,
    splits_of,
)
from osculate.progress import track

#: Bounds of the claims: rank correlation, nats per point, and per cent of the time of training.
ALIKE, CLOSE, CHEAP = 0.9, 0.05, 1.0

#: By set, a value a split and seed by column.
Cells = dict[str, dict[str, list[float]]]


@experiment(
    "l2m-uci",
    "UCI regression: L2M beside diagonal Laplace approximations, and an ensemble of it",
    "L2M [perone2021], sections 4.2 and 4.3, and what section 5 leaves to others",
    **PRESETS,
)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """All sets, splits and seeds; the figure shows the curvatures of the first of them."""
    found: Cells = {name: {} for name in settings.sets}
    scatter: dict[str, Any] = {}
    todo = [
        (name, split, seed) for seed in seeds for name in settings.sets for split in range(splits_of(settings, name))
    ]
    runner, t = Runner(settings.cells, progress), settings.training
    about = [settings.hidden, t.steps, t.batch, t.lr, t.members, t.refreshed, *settings.scales]
    for where in track(todo, "splits", len(todo), progress):
        values = runner.cached("l2m", where, about, partial(cell, settings, *where))
        scatter.setdefault(where[0], values.pop(SCATTER))
        for column, value in values.items():
            found[where[0]].setdefault(column, []).append(value)
    numbers = tuple(
        Number(name, column, tuple(columns.get(column, ()))) for name, columns in found.items() for column in COLUMNS
    )
    return Findings(numbers, claims(found), {SCATTER: scatter}, runner.seconds)


def claims(found: Cells) -> tuple[Claim, ...]:
    """Verdicts; each must hold for every set."""
    return (_alike(found), _close(found), _cheap(found), _mixed(found))


def _alike(found: Cells) -> Claim:
    ranks = _means(found, RANK)
    return Claim.judged(
        f"The curvature that Adam has left orders the weights as a pass with single gradients does: Spearman "
        f"correlation above {ALIKE:g} on every set",
        min(ranks.values()) > ALIKE if ranks else None,
        f"{_listed(ranks)}. Of the weights whose curvature is above the prior precision "
        f"{_listed(_means(found, DETERMINED))}: the data say next to nothing of the others. With the second moment "
        f"taken again at weights that do not move {_listed(_means(found, RANK_AGAIN))}. The median ratio of the "
        f"precisions is {_listed(_means(found, RATIO), 2)}; taken again {_listed(_means(found, RATIO_AGAIN), 2)}: what "
        "Adam has left is an average over its last 1,000 steps, on which the weights still moved.",
    )


def _close(found: Cells) -> Claim:
    why = (
        " Where it is ahead, what Adam remembers of the way to the mode makes good what the residuals at training "
        "points, smaller than the noise, take from the squared gradients."
    )
    gaps, exact, again = (_gaps(found, MOMENTS, SINGLE), _gaps(found, MOMENTS, GGN), _gaps(found, AGAIN, SINGLE))
    return Claim.judged(
        f"It predicts as well: test log likelihood within {CLOSE:g} nats per point of that with single gradients",
        max(abs(gap) for gap, _ in gaps.values()) <= CLOSE if gaps else None,
        f"{_differences(gaps)}; taken again {_differences(again)}; against the diagonal of the GGN matrix "
        f"{_differences(exact)}." + (why if any(gap > CLOSE for gap, _ in gaps.values()) else ""),
    )


def _cheap(found: Cells) -> Claim:
    shares = {column: _means(found, column) for column in (READ, WHOLE, TUNED, PASS)}
    saved = any(whole < shares[PASS][name] for name, whole in shares[WHOLE].items())
    lost = "" if saved else ", so that on data of this size nothing is saved"
    return Claim.judged(
        f"It needs no extra computation: below {CHEAP:g} % of the time of training",
        max(shares[WHOLE].values()) < CHEAP if shares[WHOLE] else None,
        f"reading the state and scaling it takes {_listed(shares[READ], 3)} % of training. The pass over the data that "
        "the statistics of the likelihood need, and the gradients of 16 batches that tell whether training has come to "
        f"rest, make it {_listed(shares[WHOLE], 2)} %, and the evidence adds {_listed(shares[TUNED], 2)} %; the pass "
        f"with single gradients takes {_listed(shares[PASS], 2)} %{lost}.",
    )


def _mixed(found: Cells) -> Claim:
    gains, plain = _gaps(found, MIXTURE, MOMENTS), _gaps(found, MIXTURE, ENSEMBLE)
    return Claim.judged(
        "An ensemble of L2M is not worse than one",
        min(gain for gain, _ in gains.values()) >= 0 if gains else None,
        f"test log likelihood, nats per point: {_differences(gains)}; against the deep ensemble {_differences(plain)}.",
    )


def _means(found: Cells, column: str) -> dict[str, float]:
    return {name: mean(values[column]) for name, values in found.items() if values.get(column)}


def _gaps(found: Cells, way: str, other: str) -> dict[str, tuple[float, float]]:
    return {name: pair for name, values in found.items() if (pair := _paired(values, way, other))}


def _paired(values: Mapping[str, Sequence[float]], way: str, other: str) -> tuple[float, float] | None:
    """The mean difference and its standard error over splits and seeds."""
    each = [a - b for a, b in zip(values.get(way, ()), values.get(other, ()), strict=True)]
    return (mean(each), _error(each)) if each else None


def _error(values: Sequence[float]) -> float:
    return stdev(values) / sqrt(len(values)) if len(values) > 1 else 0.0


def _differences(pairs: Mapping[str, tuple[float, float]]) -> str:
    return ", ".join(f"{gap:+.3f} ± {error:.3f} ({name})" for name, (gap, error) in pairs.items()) or "not measured"


def _listed(values: Mapping[str, float], digits: int = 3) -> str:
    return ", ".join(f"{value:.{digits}f} ({name})" for name, value in values.items()) or "not measured"


@measure.figure
def draw(record: Record) -> Any:
    """The curvatures of the first split, and the log likelihoods of all."""
    from experiments.l2m import figures

    pairs = {name: (np.array(theirs), np.array(mine)) for name, (theirs, mine) in record.findings.data[SCATTER].items()}
    scores: dict[str, dict[str, tuple[float, float]]] = {name: {} for name in pairs}
    for number in record.findings.numbers:
        if number.column in WAYS and number.values:
            scores[number.row][number.column] = (mean(number.values), _error(number.values))
    return figures.curvatures_and_scores(
        pairs,
        scores,
        ("squared gradients of single data", "from the state of Adam"),
        "What Adam has left against a pass of its own: the curvature of each weight, and what predictions are worth",
        PRIOR,
    )
