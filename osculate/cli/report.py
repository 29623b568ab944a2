"""Reports of ``train``, ``fit``, ``evaluate`` and ``predict``."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from osculate.cli.checkpoint import MODEL, Card
from osculate.cli.folder import POSTERIOR
from osculate.cli.page import write_page
from osculate.cli.side_by_side import DIFFERENCE, SideBySide
from osculate.cli.tables import with_errors
from osculate.data import Dataset
from osculate.tasks import OODRecord
from osculate.tasks.calibration import CalibrationRecord, Record, RegressionRecord

#: Scores of methods or sets by name.
Scores = Mapping[str, Mapping[str, float]]
#: Words for the columns of a training that are drawn.
COURSE = {"train_loss": "training objective, nats a datum", "validation_nll": "validation NLL, nats a datum"}
#: Files of a run, and what they hold.
FILES = {
    MODEL: "the network",
    POSTERIOR: "the posterior, which osculate evaluate and osculate predict use with --posterior",
    "config.yaml": "the settings of the training, which --config reads",
    "fit.yaml": "the settings of the fit, which --config reads",
    "metrics.json": "the numbers",
    "training.csv": "the course of the training, a row for each epoch",
}
#: Data in a figure, rows in a list of predictions, and numbers of one prediction in it.
SHOWN, LISTED, FEW = 300, 10, 4


def draws() -> bool:
    """True if figures can be drawn; reports do without."""
    return find_spec("matplotlib") is not None


def data_words(dataset: Dataset, reconstructs: bool) -> dict[str, str]:
    """The data in words, for a list of facts."""
    sizes = {name: len(getattr(dataset, name)[0]) for name in ("train", "validation", "test")}
    kinds = "real-valued targets" if dataset.classes is None else f"{len(dataset.classes):,} classes"
    return {
        "data": f"{dataset.name}: {', '.join(f'{size:,} {name}' for name, size in sizes.items())}",
        "inputs": f"{' × '.join(map(str, dataset.input_shape))} each",
        "targets": "the inputs themselves" if reconstructs else kinds,
    }


def _number(value: float | int) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _files(folder: Path) -> dict[str, str]:
    return {name: words for name, words in FILES.items() if (folder / name).is_file()}


def _tables(found: Mapping[str, Scores]) -> dict[str, Any]:
    """Tables by caption, with a standard error in each cell."""
    return {caption: {label: with_errors(row) for label, row in rows.items()} for caption, rows in found.items()}


def report_training(
    folder: Path,
    command: str,
    card: Card,
    dataset: Dataset,
    history: Sequence[Mapping[str, float | int]],
    scores: Mapping[str, Mapping[str, float]],
    facts: Mapping[str, Any],
    drawn: Mapping[str, Path],
    step: str,
) -> None:
    """Write ``report.html`` of a training.

    Args:
        folder: Folder of the run.
        command: The command that repeats it.
        card: Card of the network.
        dataset: Data of the training.
        history: A row for each epoch.
        scores: Scores by part of the data, with their errors as entries ``NAME_error``.
        facts: Facts about the training.
        drawn: Figures of an autoencoder, by name.
        step: The next command.
    """
    curves = {
        words: [row.get(name, np.nan) for row in history] for name, words in COURSE.items() if name in history[-1]
    }
    figures = {}
    if curves and len(history) > 1 and draws():
        from osculate import plots

        figures["course"] = plots.course([row["epoch"] for row in history], curves)
    write_page(
        folder / "report.html",
        f"{card.model} on {dataset.name}",
        command,
        files=_files(folder),
        lead=f"The network {card.model} was trained by {card.method or 'map'} on {dataset.name}. Its scores are on "
        "data from which it has not learned: validation data may have chosen settings, test data have not.",
        tables=_tables({"Held-out data": scores} if scores else {}),
        about={**data_words(dataset, card.reconstructs), **{name: _number(value) for name, value in facts.items()}},
        figures={**figures, **drawn},
        next=step,
    )


def report_fit(
    folder: Path, command: str, card: Card, dataset: Dataset, summary: Mapping[str, Any], found: SideBySide | None
) -> None:
    """Write ``fit.html``, the report of a fitted posterior.

    Args:
        folder: Folder of the posterior.
        command: The command that repeats the fit.
        card: Card of the network.
        dataset: Data of the fit.
        summary: Summary of the posterior.
        found: The posterior beside its network on validation data.
    """
    about = {
        "posterior": f"{summary['structure']}, over {summary['parameters']:,} parameters from {summary['data']:,} data",
        "effective parameters": f"{summary['effective_parameters']:.1f}, the number that the data determine",
    }
    if summary["log_evidence"] is not None:
        about["log evidence"] = f"{summary['log_evidence']:.1f} nats"
    if summary["noise_scale"] is not None:
        about["noise scale"] = f"{summary['noise_scale']:.3g}, in the units in which the network was trained"
    about |= {"temperature": f"{summary['temperature']:.3g}", "seconds": f"{summary['seconds']:.1f} s"}
    precision = summary["prior_precision"]
    tensors = [
        (name, f"{value:.1f}", f"{precision[name]:.3g}" if name in precision else "")
        for name, value in summary["effective_parameters_by_tensor"].items()
    ]
    write_page(
        folder / "fit.html",
        f"A posterior around {card.model}",
        command,
        files=_files(folder),
        lead=f"A Laplace posterior was fitted around {card.model} with the training data of {dataset.name}: many "
        "networks that explain these data about as well. Their disagreement is the uncertainty of the weights.",
        listings={"Parameters": (("tensor", "effective parameters", "prior precision"), tensors)},
        about=about,
        next=f"osculate evaluate --posterior {folder / POSTERIOR}{card.own}",
        **_compared(found, f"{len(dataset.validation[0]):,} validation data"),
    )


def report_evaluation(
    path: Path,
    command: str,
    caption: str,
    found: SideBySide,
    alone: Mapping[str, Scores],
    shifted: Mapping[str, OODRecord],
    classes: int,
) -> None:
    """Write the report of a posterior beside its network.

    Args:
        path: Path of the page.
        command: The command that repeats the evaluation.
        caption: The data in words.
        found: Scores and their differences.
        alone: Scores of the inputs alone by set, under their caption, if there are any.
        shifted: Results in and out of distribution by method, if there are any.
        classes: Number of classes; 0 for real-valued targets.
    """
    content = _compared(found, caption)
    content["tables"] |= _tables(alone)
    if shifted and classes and draws():
        from osculate import plots

        content["figures"]["entropy"] = plots.entropy_histograms(
            {name: record.inside["entropy"] for name, record in shifted.items()},
            {name: {kind: s["entropy"] for kind, s in record.outside.items()} for name, record in shifted.items()},
            classes,
            {name: {kind: s["entropy"] for kind, s in record.auroc.items()} for name, record in shifted.items()},
        )
    write_page(
        path,
        "Can the predictions be trusted?",
        command,
        files={path.with_suffix(".json").name: "the numbers"},
        lead="A posterior is compared with its network alone, on the same data.",
        **content,
    )


def report_task(path: Path, command: str, tables: Mapping[str, Scores], figures: Mapping[str, Path]) -> None:
    """Write the report of a task of autoencoders.

    Args:
        path: Path of the page.
        command: The command that repeats the evaluation.
        tables: Scores under their captions, with their errors as entries ``NAME_error``.
        figures: Figures by name.
    """
    write_page(
        path,
        f"Task {path.stem} of an autoencoder",
        command,
        files={"metrics.json": "the numbers"},
        lead="Numbers and figures of one use of the codes and images of an autoencoder.",
        tables=_tables(tables),
        figures=figures,
    )


def report_predictions(
    path: Path,
    command: str,
    columns: Mapping[str, np.ndarray],
    card: Card,
    labels: Mapping[str, Sequence[Any]] | None = None,
    files: Sequence[Path] = (),
) -> None:
    """Write the report of predictions: their uncertainty, and the inputs with the most uncertain ones.

    Args:
        path: Path of the page.
        command: The command that repeats the predictions.
        columns: Predictions and their uncertainties, one row for each input.
        card: Card of the network.
        labels: Identifiers of the rows and names of files, by the name of their column.
        files: Files of all predictions.
    """
    labels = labels or {}
    classes = "probabilities" in columns
    unit = "entropy, nats" if classes else "standard deviation, units of the target"
    values = columns["entropy" if classes else "sd"]
    values = values.reshape(len(values), -1).mean(1)
    head: tuple[str, ...] = ("row, from 0", *labels, "prediction")
    if classes:
        names = card.classes or tuple(map(str, range(columns["probabilities"].shape[1])))
        best = columns["probabilities"].max(1)
        head += ("probability", unit)
        each = zip(columns["prediction"], best, values, strict=True)
        cells: list[tuple[str, ...]] = [(names[int(k)], f"{p:.3f}", f"{v:.3f}") for k, p, v in each]
    else:
        mean = columns["mean"].reshape(len(values), -1)
        head += (unit,)
        numbers = zip(mean, values, strict=True)
        cells = [(", ".join(f"{m:.4g}" for m in row[:FEW]), f"{v:.3g}") for row, v in numbers]
    order = np.argsort(-values, kind="stable")[:LISTED]
    figures = {}
    if len(values) and draws():
        from osculate import plots

        ends = f" (0 is certain, {np.log(len(names)):.2f} uniform over {len(names):,} classes)" if classes else ""
        figures["uncertainty"] = plots.uncertainties(values, unit + ends)
    shown = [(int(n), *(str(each[n]) for each in labels.values()), *cells[n]) for n in order]
    listings: dict[str, Any] = {"The most uncertain predictions": (head, shown)}
    if classes:
        counts = np.bincount(columns["prediction"].astype(int), minlength=len(names))
        frequent = np.argsort(-counts, kind="stable")[:LISTED]
        rows = [(names[k], f"{counts[k]:,}", f"{100 * counts[k] / len(values):.1f} %") for k in frequent]
        listings["The most frequent predictions"] = ("class", "inputs", "share"), rows
    write_page(
        path,
        f"Predictions for {len(values):,} inputs",
        command,
        files={each.name: "all predictions and their uncertainties" for each in files},
        lead="Each prediction has an uncertainty. Look at the most uncertain ones first: these inputs are ambiguous, "
        "or unlike the training data.",
        listings=listings,
        figures=figures,
    )


def _compared(found: SideBySide | None, caption: str) -> dict[str, Any]:
    """Table, sentence and figure of posteriors beside their network."""
    if found is None:
        return {}
    first, last = list(found.records)[0], list(found.records)[-1]
    rows = {f"{last} − {first}" if name == DIFFERENCE else name: row for name, row in found.rows.items()}
    content: dict[str, Any] = {"tables": {caption: rows}, "figures": _calibration(found.records)}
    if found.comparison is not None:
        worse = found.comparison.verdict < 0
        content["warnings" if worse else "findings"] = [found.comparison.finding]
    return content


def _calibration(records: Mapping[str, Record]) -> dict[str, Any]:
    """A reliability diagram of classes, or the errors of real values beside their error bars."""
    if not records or not draws():
        return {}
    from osculate import plots

    last = list(records.values())[-1]
    if isinstance(last, CalibrationRecord):
        classes = {name: each for name, each in records.items() if isinstance(each, CalibrationRecord)}
        return {"reliability": plots.reliability_diagram(classes)}
    if not isinstance(last, RegressionRecord):
        return {}
    rows = torch.randperm(len(last.mean), generator=torch.Generator().manual_seed(0))[:SHOWN]
    shown = (part[rows, 0] for part in (last.mean, last.standard_deviation, last.targets))
    return {"errors": plots.errors(*shown)}
