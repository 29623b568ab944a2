"""The table and the figure of UCI regression, and the means that its claims are judged by."""

from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from experiments import Number, Record
from experiments.linlap.uci_cells import Cells
from experiments.linlap.uci_splits import DROPOUT, FULL, GAMMA, MAP, OTHER_MEANS, SECONDS, STEPS, WAYS, rmse


def by_set(names: Sequence[str], values: Mapping[str, Sequence[float]]) -> dict[str, dict[str, float]]:
    """Values in the order of the sets, by way and set."""
    return {way: dict(zip(names, row, strict=True)) for way, row in values.items()}


def table(found: Cells, published: Mapping[str, Mapping[str, float]]) -> tuple[Number, ...]:
    """By set, a row of log likelihoods, with what others published in brackets, and a row of errors."""
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


def draw_cells(record: Record, heading: str, published: Mapping[str, Mapping[str, float]]) -> Any:
    """Log likelihoods of all ways on all sets, with what others published as hollow dots."""
    from experiments import figures

    values: dict[str, dict[str, tuple[float, float]]] = {}
    for number in record.findings.numbers:
        name, _, quantity = number.row.partition(", ")
        if quantity == "log likelihood" and number.column in WAYS and number.mean is not None:
            values.setdefault(name, {})[number.column] = (number.mean, number.standard_error or 0.0)
    others = {name: {way: by[name] for way, by in published.items() if name in by} for name in values}
    return figures.dots(values, "test log likelihood, nats per point", heading, others)


def average(found: Cells, name: str, way: str) -> float | None:
    """The mean over splits; None where nothing was measured."""
    values = found.get(name, {}).get(way)
    return mean(values) if values else None


def paired(found: Cells, name: str, way: str, other: str) -> float | None:
    """The mean difference between two ways, on the splits that have both."""
    values = differences(found, name, way, other)
    return mean(values) if values else None


def differences(found: Cells, name: str, way: str, other: str) -> list[float]:
    """Between two ways, on the splits that have both."""
    columns = found.get(name, {})
    return [a - b for a, b in zip(columns.get(way, ()), columns.get(other, ()), strict=False)]


def ahead_of_us(found: Cells, names: Sequence[str], published: Mapping[str, Mapping[str, float]]) -> list[str]:
    """The sets on which the best of what others published exceeds the full linearised Laplace, with both numbers."""
    behind = []
    for name in names:
        ours, best = average(found, name, FULL), max((by[name], way) for way, by in published.items() if name in by)
        if ours is not None and ours < best[0]:
            behind.append(f"{name} ({word(ours)} against {best[0]:g}, {best[1]})")
    return behind


def word(value: float | None) -> str:
    """A number of a claim's evidence."""
    return "not measured" if value is None else f"{value:.3g}"
