"""Train, fit, tune and compare from start to end, and write a report for newcomers.

Trains a small network on real images, fits a Laplace posterior, and prints a table of MAP and Laplace; then fits a
curve with error bars. With --lae it trains autoencoders of the digits: plain, variational, with dropout and with an
online Laplace posterior. Writes to --output (runs/demo, runs/demo-lae): report.html, metrics.json, config.yaml,
posterior.safetensors, model.safetensors, and the figures as PNG.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from osculate.cli.checkpoint import MODEL, save_model
from osculate.cli.demo_autoencoders import compare, draw
from osculate.cli.demo_fits import RECIPES, Classification, Clock, Regression, classify, recipe_for, regress
from osculate.cli.demo_report import LaeReport, Report, score_card
from osculate.cli.fit import POSTERIOR, STORABLE, require_storable, summary_of
from osculate.cli.folder import staged, versions, write_config, write_json, write_text
from osculate.cli.options import RunOptions, naming, pick_device
from osculate.cli.tables import Score, console, table, with_errors
from osculate.serialization import save


@naming(data=RECIPES, structures=STORABLE)
@dataclass(frozen=True)
class DemoOptions:
    """The demo.

    Args:
        data: name of the data set, {data}; digits comes with scikit-learn.
        train_size: number of training images; by default all digits, and 12,000 of other data sets.
        seed: seed of the held-out images, the initial weights and the order of the data.
        seeds: number of seeds, counted from the first; with several, tables show mean ± standard error.
        structure: structure of the posterior, {structures}; by default kron, with --lae approx_diag.
        lae: compare autoencoders of the digits; about two minutes on one core.
    """

    data: str = "digits"
    train_size: int | None = None
    seed: int = 0
    seeds: int = 1
    structure: str | None = None
    lae: bool = False


PARTS = (DemoOptions, RunOptions)


def run(options: DemoOptions, where: RunOptions) -> None:
    """Run the demo, print the tables and write the folder."""
    _require_sense(options, where)
    if options.lae:
        _autoencoders(options, where)
    else:
        _classifiers(options, where)


def _classifiers(options: DemoOptions, where: RunOptions) -> None:
    """The demo of a classifier and of a curve."""
    started = time.perf_counter()
    out, folder = console(), where.output or Path("runs/demo")
    runs = []

    def announce(prefix: str, words: str) -> None:
        out.print(f"… {prefix}{words}", style="dim")

    for seed in range(options.seed, options.seed + options.seeds):
        prefix = f"seed {seed}: " if options.seeds > 1 else ""
        run = classify(
            options.data,
            train_size=options.train_size,
            structure=options.structure or "kron",
            seed=seed,
            device=where.device,
            progress=where.progress,
            say=partial(announce, prefix),
        )
        runs.append(run)
    curve = regress(options.seed, where.progress, partial(announce, ""))
    rows, curves = _over_seeds([run.scores for run in runs]), _over_seeds([curve.scores])
    test, train = len(runs[0].dataset.test[0]), len(runs[0].dataset.train[0])
    seeds = f", mean ± standard error of {options.seeds} seeds" if options.seeds > 1 else ""
    captions = (
        f"{options.data}: {test:,} test images, {train:,} to train on{seeds}",
        "a curve with a gap in its data: 200 test points",
    )
    for caption, part in zip(captions, (rows, curves), strict=True):
        out.print(table(caption, part))
    with staged(folder) as aside:
        figures = _draw(aside, runs[0], curve)
        save(runs[0].q, aside / POSTERIOR)
        save_model(aside / MODEL, runs[0].q.model, runs[0].card)
        write_config(aside / "config.yaml", "demo", options, where)
        seconds = {f"images: {n}": round(sum(run.seconds[n] for run in runs), 2) for n in runs[0].seconds}
        seconds |= {f"curve: {name}": value for name, value in curve.seconds.items()}
        seconds["all"] = round(time.perf_counter() - started, 2)
        write_json(aside / "metrics.json", _metrics(options, runs, curve, seconds))
        report = Report(
            options.data, _settings(options), dict(zip(captions, (rows, curves), strict=True)), figures, seconds
        )
        write_text(aside / "report.html", report.html(runs[0], versions()))
    out.print(f"Saved in {folder}: open {folder / 'report.html'}  ({time.perf_counter() - started:.0f} s)")


def _settings(options: DemoOptions) -> dict[str, Any]:
    return {f.name: getattr(options, f.name) for f in fields(options)}


def _autoencoders(options: DemoOptions, where: RunOptions) -> None:
    """The demo of autoencoders."""
    started = time.perf_counter()
    out, folder = console(), where.output or Path("runs/demo-lae")
    clock = Clock(lambda words: out.print(f"… {words}", style="dim"))
    runs = [
        compare(
            train_size=options.train_size,
            structure=options.structure,
            seed=seed,
            device=where.device,
            progress=where.progress,
            clock=clock,
        )
        for seed in range(options.seed, options.seed + options.seeds)
    ]
    first = runs[0]
    tables = {
        caption: _over_seeds([run.tables[caption] for run in runs])
        if len(runs) > 1
        else {method: with_errors(row) for method, row in rows.items()}
        for caption, rows in first.tables.items()
    }
    for caption, rows in tables.items():
        out.print(table(caption, rows))
    out.print(score_card(tables))
    with staged(folder) as aside:
        with clock.step("draw", "drawing"):
            figures = draw(first, aside)
        save(first.q, aside / POSTERIOR)
        save_model(aside / MODEL, first.q.model, first.card)
        write_config(aside / "config.yaml", "demo", options, where)
        seconds = {**clock.seconds, "all": round(time.perf_counter() - started, 2)}
        content = {caption: {m: _plain(row) for m, row in rows.items()} for caption, rows in tables.items()}
        write_json(aside / "metrics.json", {**content, "seconds": seconds, "versions": versions()})
        sizes = len(first.dataset.train[0]), len(first.dataset.validation[0])
        temperature = float(getattr(first.q, "temperature", 1.0))
        report = LaeReport(_settings(options), tables, figures, seconds, sizes, temperature)
        write_text(aside / "report.html", report.html(versions()))
    out.print(f"Saved in {folder}: open {folder / 'report.html'}  ({time.perf_counter() - started:.0f} s)")


def _plain(row: Mapping[str, Score]) -> dict[str, dict[str, float | None]]:
    return {name: {"mean": score.mean, "standard_error": score.error} for name, score in row.items()}


def _require_sense(options: DemoOptions, where: RunOptions) -> None:
    """Raise ValueError for options that would fail after the training."""
    recipe_for(options.data)
    if options.structure is not None:
        require_storable(options.structure)
    if options.lae and options.data != "digits":
        raise ValueError(
            f"--lae shows the digits, not {options.data!r}: leave --data out, or train with osculate train --method "
            f"online_laplace --data {options.data}."
        )
    pick_device(where.device)
    if options.seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {options.seeds}.")


def _over_seeds(runs: list[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, Score]]:
    return {
        method: {
            name: Score.over([run[method][name] for run in runs]) for name in scores if not name.endswith("_error")
        }
        for method, scores in runs[0].items()
    }


def _draw(folder: Path, first: Classification, curve: Regression) -> dict[str, Path]:
    """Draw the four figures of the first seed."""
    from osculate import plots

    shifted = first.shifted
    inside = {name: np.asarray(record.inside["entropy"]) for name, record in shifted.items()}
    outside = {
        name: {kind: np.asarray(scores["entropy"]) for kind, scores in record.outside.items()}
        for name, record in shifted.items()
    }
    auroc = {
        name: {kind: scores["entropy"] for kind, scores in record.auroc.items()} for name, record in shifted.items()
    }
    classes = first.dataset.classes or ()
    bands = {
        name: plots.Band(
            np.asarray(line.x),
            np.asarray(line.mean),
            np.asarray(line.sd),
            f"log-likelihood in the gap {curve.scores[name]['log_likelihood_gap']:.2f}",
        )
        for name, line in curve.lines.items()
    }
    points = np.asarray(curve.data[0]), np.asarray(curve.data[1])
    images, targets = (np.asarray(part) for part in first.dataset.test)
    drawn = {
        "reliability": plots.reliability_diagram(first.records),
        "entropy": plots.entropy_histograms(inside, outside, len(classes), auroc),
        "least_sure": plots.least_sure(
            images, targets, {name: np.asarray(first.records[name].probs) for name in ("MAP", "Laplace")}, classes
        ),
        "regression": plots.regression_bands(bands, *points, [curve.gap]),
    }
    return {name: plots.save(figure, folder / f"{name}.png") for name, figure in drawn.items()}


def _metrics(
    options: DemoOptions, runs: list[Classification], curve: Regression, seconds: Mapping[str, float]
) -> dict[str, Any]:
    rows = _over_seeds([run.scores for run in runs])
    return {
        "data": options.data,
        "classification": {method: _plain(scores) for method, scores in rows.items()},
        "seeds": {str(options.seed + number): run.scores for number, run in enumerate(runs)},
        "regression": curve.scores,
        "posterior": summary_of(runs[0].q),
        "seconds": seconds,
        "versions": versions(),
    }
