"""UCI regression on standard and on gap splits: linearised Laplace beside sampled networks and the baselines."""

from collections.abc import Mapping, Sequence
from functools import partial
from statistics import mean, median
from typing import Any

from experiments import Claim, Findings, Number, Record, experiment
from experiments.linlap.uci_regression import (
    DIAG,
    DROPOUT,
    ENSEMBLE,
    FULL,
    GAMMA,
    KRON,
    MAP,
    OTHER_MEANS,
    PAPER,
    SAMPLED,
    SECONDS,
    STEPS,
    WAYS,
    Cells,
    Settings,
    measure_cells,
    rmse,
)

DOCUMENT = "Linearised Laplace tutorial, section 4 [foong2019]"
#: By way to predict and set, test log likelihoods that others published.
Published = Mapping[str, Mapping[str, float]]


def by_set(names: Sequence[str], values: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    """Return values in the order of the sets by way and set."""
    return {way: dict(zip(names, row, strict=True)) for way, row in values.items()}


SETS = ("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht")
#: Networks with 50 ReLU units on the standard splits [nado2021]: one network, an ensemble of ten, and dropout.
PUBLISHED = by_set(
    SETS,
    {
        MAP: (-16.1, -3.94, -1.29, 1.06, 5.06, -3.28, -3.16, -1.05, -1.89),
        ENSEMBLE: (-6.11, -3.20, -0.61, 1.17, 5.17, -3.18, -3.12, -0.97, -0.73),
        DROPOUT: (-2.40, -2.93, -1.21, 1.14, 4.45, -2.80, -2.87, -0.93, -1.25),
    },
)
GAP_SETS = ("boston", "concrete", "energy", "kin8nm", "power", "wine", "yacht")
#: Networks that predict their noise on gap splits made by the same rule (not naval and protein).
GAP_PUBLISHED = {
    **by_set(
        GAP_SETS,
        {
            DROPOUT: (-2.51, -3.44, -7.9, 1.10, -2.92, -0.96, -2.57),
            ENSEMBLE: (-2.69, -3.36, -16.5, 1.21, -2.87, -1.03, -1.58),
        },
    ),
    MAP: {"energy": -266.0},
}
#: Log likelihoods that the linearised predictive must reach, and its least gain over sampled networks on these sets.
LEAST, MARGIN = {"yacht": -0.35, "energy": -0.75, "boston": -2.7}, 3.0
#: Sets of which a statement about "most" must hold.
MOST = 7
#: The same on gap splits, and the least gains over MAP and over the diagonal.
GAP_LEAST, OVER_MAP, OVER_DIAG = {"yacht": -3.0, "boston": -3.6}, {"yacht": 100.0, "boston": 10.0}, 2.0
#: Nats per point over MAP on energy that count as avoiding a catastrophe.
CATASTROPHE = 100.0


def table(found: Cells, published: Published) -> tuple[Number, ...]:
    """Return a row of log likelihoods for each set, with published numbers in brackets, and a row of errors."""
    numbers = []
    for name, columns in found.items():
        likelihood, error = f"{name}, log likelihood", f"{name}, RMSE"
        for way in WAYS:
            printed = published.get(way, {}).get(name)
            text = "" if printed is None else f"{printed:g}"
            numbers.append(Number(likelihood, way, tuple(columns.get(way, ())), text))
            if way == MAP or way in OTHER_MEANS:
                numbers.append(Number(error, way, tuple(columns.get(rmse(way), ()))))
        for label, column in (("splits", MAP), ("… of the baselines", DROPOUT)):
            numbers.append(Number(likelihood, label, (float(len(columns.get(column, ()))),)))
        numbers += [Number(likelihood, column, tuple(columns.get(column, ()))) for column in (GAMMA, STEPS, SECONDS)]
    return tuple(numbers)


def differences(found: Cells, name: str, way: str, other: str) -> list[float]:
    """Return the differences between two ways on the splits that have both."""
    columns = found.get(name, {})
    return [a - b for a, b in zip(columns.get(way, ()), columns.get(other, ()), strict=False)]


def paired(found: Cells, name: str, way: str, other: str) -> float | None:
    """Return the mean difference between two ways on the splits that have both; None without any."""
    values = differences(found, name, way, other)
    return mean(values) if values else None


def average(found: Cells, name: str, way: str = FULL) -> float | None:
    """Return the mean over splits; None where nothing was measured."""
    values = found.get(name, {}).get(way)
    return mean(values) if values else None


def behind(found: Cells, names: Sequence[str], published: Published) -> list[str]:
    """Return the sets on which the best published number exceeds the full linearised Laplace, with both numbers."""
    losses = []
    for name in names:
        ours, best = average(found, name), max((by[name], way) for way, by in published.items() if name in by)
        if ours is not None and ours < best[0]:
            losses.append(f"{name} ({word(ours)} against {best[0]:g}, {best[1]})")
    return losses


def word(value: float | None) -> str:
    """Return a number as the evidence of a claim prints it."""
    return "not measured" if value is None else f"{value:.3g}"


def at_least(verdicts: Sequence[float | None], bound: float) -> bool | None:
    """Return True if all values reach a bound, None where one was not measured."""
    known = [value for value in verdicts if value is not None]
    return None if len(known) < len(verdicts) else min(known) >= bound


def reached(found: Cells, name: str, least: float, splits: str, rest: str = "") -> Claim:
    """Judge a log likelihood on one set."""
    value = average(found, name)
    return Claim.judged(
        f"Linearised Laplace, full covariance: a test log likelihood of at least {least} on {name}",
        at_least([value], least),
        f"{word(value)} nats per point over {len(found.get(name, {}).get(FULL, ()))} {splits}{rest}.",
    )


def claims(found: Cells) -> tuple[Claim, ...]:
    """Return the verdicts on the standard splits."""
    value, gain = partial(average, found), partial(paired, found)
    names = [name for name in found if value(name) is not None]
    good, kron, diag = (
        [name for name in names if (gain(name, FULL, other) or 0.0) >= 0] for other in (MAP, KRON, DIAG)
    )
    bad = [name for name in names if (gain(name, SAMPLED, MAP) or 0.0) < 0]
    gains = {name: gain(name, FULL, SAMPLED) for name in LEAST}
    known = [name for name in SETS if name in names]
    losses = behind(found, known, PUBLISHED)
    over_dropout = {name: each for name in known if (each := gain(name, FULL, DROPOUT)) is not None}
    own = [f"{name} (by {-each:.2g})" for name, each in over_dropout.items() if each < 0]
    return (
        *(
            reached(found, name, least, "splits", f"; MAP with the same noise {word(value(name, MAP))}")
            for name, least in LEAST.items()
        ),
        Claim.judged(
            f"It exceeds sampled networks by {MARGIN:g} nats per point and more on these three",
            at_least(list(gains.values()), MARGIN),
            f"by {', '.join(f'{word(each)} ({name})' for name, each in gains.items())}; 100 networks are sampled from "
            "the same Gaussian.",
        ),
        Claim.judged(
            "Linearised Laplace performs very well on the standard splits, while sampled Laplace does not",
            None if len(names) < len(SETS) else len(good) >= MOST and len(bad) >= MOST,
            f"At least as good as MAP on {len(good)} of {len(names)} sets"
            + (f" (not {', '.join(sorted(set(names) - set(good)))})" if len(good) < len(names) else "")
            + f"; sampled networks are worse than MAP on {len(bad)}; {MOST} count as most.",
        ),
        Claim.judged(
            "One network with linearised Laplace is at least as good as what others published for one network, an "
            "ensemble of ten and MC dropout",
            None if len(known) < len(SETS) else not losses,
            (f"Behind the best of these on {'; '.join(losses)}." if losses else "On every set.")
            + " Theirs have ReLU units and their own selection of hyperparameters. On the few splits that have both, "
            f"MC dropout as trained here is ahead of it on {', '.join(own) or 'no set'} of {len(over_dropout)}.",
        ),
        Claim.judged(
            "The full covariance predicts better than its Kronecker and diagonal approximations, at the same mode and "
            "hyperparameters",
            None if len(names) < len(SETS) else len(kron) >= MOST and len(diag) >= MOST,
            f"At least as good as kron on {len(kron)} and as diag on {len(diag)} of {len(names)} sets. Rows with their "
            "own evidence have prior precisions and noise tuned for the approximation, as osc.laplace does by default.",
        ),
    )


def gap_claims(found: Cells) -> tuple[Claim, ...]:
    """Return the verdicts on the gap splits."""
    value, gain, each = partial(average, found), partial(paired, found), partial(differences, found)

    def middle(name: str, other: str) -> str:
        values = each(name, FULL, other)
        return word(median(values) if values else None)

    over_diag = {name: gain(name, FULL, DIAG) for name in GAP_LEAST}
    diag_words = (f"{word(gained)} ({name}; median {middle(name, DIAG)})" for name, gained in over_diag.items())
    energy, naval = (gain(name, FULL, MAP) for name in ("energy", "naval"))
    energies = ", ".join(f"{value:.1f}" for value in found.get("energy", {}).get(FULL, ()))
    names = [name for name in GAP_SETS if value(name) is not None]
    losses = behind(found, names, GAP_PUBLISHED)
    return (
        *(reached(found, name, least, "gaps") for name, least in GAP_LEAST.items()),
        *(
            Claim.judged(
                f"It exceeds MAP by {least:g} nats per point and more on {name}",
                at_least([gain(name, FULL, MAP)], least),
                f"by {word(gain(name, FULL, MAP))} in the mean over gaps, by {middle(name, MAP)} in the median. It "
                "grows with training, as the noise scale falls: MAP has no other width.",
            )
            for name, least in OVER_MAP.items()
        ),
        Claim.judged(
            f"The full covariance exceeds the diagonal by {OVER_DIAG:g} nats per point and more on both",
            at_least(list(over_diag.values()), OVER_DIAG),
            f"by {', '.join(diag_words)}, at the same mode and hyperparameters.",
        ),
        Claim.judged(
            "Linearised Laplace avoids catastrophic results on gap splits for energy and naval",
            None if energy is None or naval is None else energy >= CATASTROPHE and naval > 0,
            f"energy: {word(value('energy'))} against {word(value('energy', MAP))} of MAP and "
            f"{word(value('energy', SAMPLED))} of sampled networks; naval: {word(value('naval'))} against "
            f"{word(value('naval', MAP))}. At least {CATASTROPHE:g} nats over MAP on energy, and any on naval, count. "
            f"On energy, by gap: {energies or 'not measured'}; where it fails it is certain in a place without data, "
            "and broader predictives win.",
        ),
        Claim.judged(
            "One network with linearised Laplace is at least as good as what others published for MC dropout and deep "
            "ensembles",
            None if len(names) < len(GAP_SETS) else not losses,
            (f"Behind the better of these on {'; '.join(losses)}." if losses else "On every set.")
            + " Their networks have ReLU units and predict their own noise.",
        ),
    )


def draw(record: Record, heading: str, published: Published) -> Any:
    """Draw log likelihoods of all ways on all sets, with published numbers as hollow dots."""
    from experiments import figures

    values: dict[str, dict[str, tuple[float, float]]] = {}
    for number in record.findings.numbers:
        name, _, quantity = number.row.partition(", ")
        if quantity == "log likelihood" and number.column in WAYS and number.mean is not None:
            values.setdefault(name, {})[number.column] = (number.mean, number.standard_error or 0.0)
    others = {name: {way: by[name] for way, by in published.items() if name in by} for name in values}
    return figures.dots(values, "test log likelihood, nats per point", heading, others)


@experiment(
    "linlap-uci",
    "UCI regression, standard splits: log likelihood and error in original units (in brackets: published by others)",
    DOCUMENT,
    small=Settings(),
    paper=PAPER,
)
def standard(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Measure all sets on the standard splits."""
    found, seconds = measure_cells(settings, "standard", seeds, progress)
    return Findings(table(found, PUBLISHED), claims(found), {"cells": found}, seconds)


@standard.figure
def draw_standard(record: Record) -> Any:
    """Draw one panel a set."""
    heading = "UCI, standard splits: one network and the ways to predict from it (hollow: published)"
    return draw(record, heading, PUBLISHED)


@experiment(
    "linlap-uci-gap",
    "UCI regression, gap splits: log likelihood and error in original units (in brackets: published by others)",
    DOCUMENT,
    small=Settings(),
    paper=PAPER,
)
def gap(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Measure all sets on the gap splits."""
    found, seconds = measure_cells(settings, "gap", seeds, progress)
    return Findings(table(found, GAP_PUBLISHED), gap_claims(found), {"cells": found}, seconds)


@gap.figure
def draw_gap(record: Record) -> Any:
    """Draw one panel a set."""
    heading = "UCI, gap splits: does the predictive know where it has no data? (hollow: published)"
    return draw(record, heading, GAP_PUBLISHED)
