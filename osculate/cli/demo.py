"""Run everything from training to error bars, and write a report.

Trains a small network on real images, fits a Laplace posterior, and prints a table of MAP and Laplace; then fits a
curve with error bars. With --lae it trains autoencoders of the digits: plain, variational, with dropout and with an
online Laplace posterior.

Writes to --output (by default runs/demo, runs/demo-lae): report.html, metrics.json, config.yaml,
posterior.safetensors, model.safetensors, and the figures as PNG.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from osculate.checks import require_library
from osculate.cli.approximation import STORABLE, require_storable
from osculate.cli.checkpoint import MODEL, save_model
from osculate.cli.demo_autoencoders import compare, draw
from osculate.cli.demo_fits import RECIPES, classify, draw_classification, recipe_for, regress
from osculate.cli.demo_report import FILES, autoencoder_page, classifier_page, score_card
from osculate.cli.fit import POSTERIOR, summary_of
from osculate.cli.folder import run_folder, staged, versions, write_config, write_json
from osculate.cli.options import RunOptions, naming, pick_device
from osculate.cli.page import command, write_page
from osculate.cli.side_by_side import changes_of
from osculate.cli.tables import Score, console, table, with_errors
from osculate.progress import Clock
from osculate.serialization import save


@naming(data=RECIPES, structures=STORABLE)
@dataclass(frozen=True)
class DemoOptions:
    """The demo.

    Args:
        data: Name of the data set, {data}; by default digits, which comes with scikit-learn.
        train_size: Number of training images; by default all digits, and 12,000 of other data sets.
        seed: Seed of the held-out images, the initial weights and the order of the data.
        seeds: Number of seeds, counted from the first; with several, tables show mean ± standard error.
        structure: Structure of the posterior, {structures}; by default kron, with --lae approx_diag.
        lae: Compare autoencoders of the digits; about two minutes on one core.
        overwrite: Replace the run in the output folder.
    """

    data: str = "digits"
    train_size: int | None = None
    seed: int = 0
    seeds: int = 1
    structure: str | None = None
    lae: bool = False
    overwrite: bool = False


PARTS = (DemoOptions, RunOptions)


def run(options: DemoOptions, run_options: RunOptions) -> dict[str, Any]:
    """Run the demo, print the tables and write the folder; return the content of metrics.json."""
    recipe_for(options.data)
    if options.structure is not None:
        require_storable(options.structure)
    if options.lae and options.data != "digits":
        raise ValueError(
            f"--lae shows the digits, not {options.data!r}: leave --data out, or train with osculate train --method "
            f"online_laplace --data {options.data}."
        )
    pick_device(run_options.device)
    if options.seeds < 1:
        raise ValueError(f"--seeds must be at least 1, got {options.seeds}.")
    for library, purpose in (("lightning", "trainings"), ("matplotlib", "figures"), ("sklearn", "the digits")):
        require_library(library, purpose)  # before the work
    started = time.perf_counter()
    usual = Path("runs/demo-lae" if options.lae else "runs/demo")
    out, folder = console(), run_folder(run_options.output, usual, "metrics.json", options.overwrite)
    clock = Clock(lambda words: out.print(f"… {words}", style="dim"))
    measure: Any = compare if options.lae else partial(classify, options.data)
    runs = []
    for seed in range(options.seed, options.seed + options.seeds):
        clock.prefix = f"seed {seed}: " if options.seeds > 1 else ""
        runs.append(
            measure(
                train_size=options.train_size,
                structure=options.structure,
                seed=seed,
                device=run_options.device,
                progress=run_options.progress,
                clock=clock,
            )
        )
    first, clock.prefix = runs[0], ""
    tables = {caption: _averaged([run.tables[caption] for run in runs]) for caption in first.tables}
    content: dict[str, Any] = {caption: _plain(rows) for caption, rows in tables.items()}
    if not options.lae:
        curve = regress(options.seed, run_options.progress, clock)
        ((caption, rows),) = tables.items()
        seeds = f", mean ± standard error of {options.seeds} seeds" if options.seeds > 1 else ""
        tables = {caption + seeds: rows, "a curve with a gap in its data: 200 test points": _averaged([curve.scores])}
        content = {
            "data": options.data,
            "classification": _plain(rows),
            "seeds": {str(options.seed + number): run.scores for number, run in enumerate(runs)},
            "differences": {name: changes_of(each) for name, each in first.comparisons.items()},
            "regression": curve.scores,
            "posterior": summary_of(first.q),
        }
    for caption, rows in tables.items():
        out.print(table(caption, rows))
    if options.lae:
        out.print(score_card(tables))
    with staged(folder) as aside:
        with clock.step("draw", "drawing"):
            figures = draw(first, aside) if options.lae else draw_classification(first, curve, aside)
        save(first.q, aside / POSTERIOR)
        save_model(aside / MODEL, first.q.model, first.card)
        write_config(aside / "config.yaml", "demo", options, run_options)
        clock.seconds["all"] = time.perf_counter() - started
        facts: dict[str, dict[str, Any]] = {
            "seconds": {name: round(seconds, 2) for name, seconds in clock.seconds.items()},
            "versions": versions(),
        }
        write_json(aside / "metrics.json", {**content, **facts})
        first_seed = f"seed {options.seed}" if options.seeds > 1 else ""
        page: Any = autoencoder_page if options.lae else classifier_page
        write_page(
            aside / "report.html",
            command=command("demo", options),
            files=FILES,
            facts={"seconds": facts["seconds"]},
            figures=figures,
            **page(first, tables, first_seed),
        )
    out.print(f"Saved in {folder}: open {folder / 'report.html'}  ({time.perf_counter() - started:.0f} s)")
    return {"folder": folder, **content, **facts}


def _plain(rows: Mapping[str, Mapping[str, Score]]) -> dict[str, dict[str, dict[str, float | None]]]:
    return {
        method: {name: {"mean": score.mean, "standard_error": score.error} for name, score in row.items()}
        for method, row in rows.items()
    }


def _averaged(runs: list[Mapping[str, Mapping[str, float]]]) -> dict[str, dict[str, Score]]:
    """Scores over seeds; of one seed with their own standard errors, if they have any."""
    if len(runs) == 1:
        return {method: with_errors(row) for method, row in runs[0].items()}
    return {
        method: {
            name: Score.over([run[method][name] for run in runs]) for name in scores if not name.endswith("_error")
        }
        for method, scores in runs[0].items()
    }
