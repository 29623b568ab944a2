"""Compare a posterior with its network on test data.

Prints a table for the test part of the training data set, or for every row of another file; --task runs other tasks,
some of them for autoencoders.

Writes JSON to --output (by default evaluation.json in the posterior's folder); the tasks for autoencoders write a
section of metrics.json in that folder, or --output, and figures. A page (evaluation.html, or TASK.html) shows them.
"""

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor

from osculate.autoencoders import Autoencoder
from osculate.cli import autoencoder_tasks
from osculate.cli.checkpoint import Card
from osculate.cli.folder import versions, write_json, write_section
from osculate.cli.methods import rows
from osculate.cli.options import OWN, DataOptions, RunOptions, is_own, naming, own_data
from osculate.cli.page import command
from osculate.cli.predict import PosteriorOptions, drawn, predict_options
from osculate.cli.report import Scores, report_evaluation, report_task
from osculate.cli.side_by_side import SideBySide, detection_scores, way_out
from osculate.cli.tables import parted, print_scores
from osculate.data import Dataset, out_of_distribution
from osculate.data.shifted import PARTNERS
from osculate.posteriors import Point, Posterior
from osculate.registry import choose, lookup
from osculate.tasks import OODRecord, ood

#: Ratio of the largest out-of-distribution input to the largest test input above which there is a warning.
LARGER = 10
#: Number of training inputs that scores of out-of-distribution inputs compare with.
USUAL = 2000
#: Tasks by name; all but calibration and ood are for autoencoders only.
TASKS = ("calibration", *autoencoder_tasks.TASKS)


@naming(partners=PARTNERS, tasks=TASKS)
@dataclass(frozen=True)
class EvaluateOptions:
    """The evaluation.

    Args:
        task: Task of the evaluation, {tasks}; imputation, semi_supervised and bound are for autoencoders.
        ood: Out-of-distribution data, separated by commas: files or folders as for --data and, for {partners}, names of
            data sets; by default all known ones with --task ood, else none.
        labels: Numbers of labelled images of each class for semi_supervised, separated by commas.
        classifier: Folder of a classifier from osculate train, for imputation; by default a small one is trained.
        test_size: Largest number of test images, and of out-of-distribution images, for the tasks of autoencoders.
    """

    task: str = "calibration"
    ood: str | None = None
    labels: str = "1,2,5,10,20,50"
    classifier: Path | None = None
    test_size: int = 2000


PARTS = (PosteriorOptions, EvaluateOptions, DataOptions, RunOptions)
SUBJECT = "posterior"
#: What the schema of the run says.
LEAVES_OUT = OWN


def run(
    options: PosteriorOptions, evaluation: EvaluateOptions, data: DataOptions, run_options: RunOptions
) -> dict[str, Any]:
    """Evaluate, print and write; return what is written."""
    choose("task", evaluation.task, TASKS)
    q, card = options.open(run_options.device)
    reconstructs, detects = isinstance(q.model, Autoencoder), evaluation.task == "ood"
    if reconstructs and evaluation.ood is not None and not detects:
        raise ValueError(f"--ood {evaluation.ood} with an autoencoder is for --task ood: give that too.")
    if not reconstructs and evaluation.task not in ("calibration", "ood"):
        raise ValueError(
            f"--task {evaluation.task} needs an autoencoder, but {card.model} is not one: train one with osculate "
            "train --method online_laplace on images, or leave --task out."
        )
    given = Given.of(card, data, detects or evaluation.ood is not None)
    task = _autoencoder if reconstructs and evaluation.task != "calibration" else _calibrated
    return task(q, card, given, options, evaluation, run_options)


@dataclass(frozen=True)
class Given:
    """The data of an evaluation.

    Args:
        options: The options that name them, with those of the training.
        dataset: The data set, whose test part is evaluated.
        trained: Name of the data set of the training; empty if it cannot be read, or is not needed.
        train: Training inputs that scores of out-of-distribution inputs compare with; None without that data set.
    """

    options: DataOptions
    dataset: Dataset
    trained: str
    train: Tensor | None

    @classmethod
    def of(cls, card: Card, data: DataOptions, detects: bool) -> "Given":
        """Read the data, and the training inputs for a task that detects out-of-distribution data."""
        training = card.data_options()
        options, trained = data.over(training), None
        other = data.data is not None and is_own(data.data) and not data.same(training)
        dataset = _file(data, card) if other else card.loaded(options)
        if detects:
            try:
                trained = dataset if data.same(training) else card.loaded(training)
            except (OSError, ValueError, ImportError):
                print(
                    f"The training data {training.data} cannot be read as they were. Scores that compare with training "
                    "inputs are left out; osculate evaluate without --data says what is wrong."
                )
        train = trained.train[0][:USUAL] if trained is not None and len(trained.train[0]) else None
        return cls(options, dataset, "" if trained is None else trained.name, train)

    @property
    def caption_alone(self) -> str:
        """The caption of scores of the inputs alone."""
        beside = "" if self.train is None else f", beside {len(self.train):,} training inputs of {self.trained}"
        return f"{self.dataset.name}: AUROC of the inputs alone, without a network{beside}"


def _calibrated(
    q: Posterior,
    card: Card,
    given: Given,
    options: PosteriorOptions,
    evaluation: EvaluateOptions,
    run_options: RunOptions,
) -> dict[str, Any]:
    """Compare the network and the posterior."""
    wanted = "all" if evaluation.task == "ood" and evaluation.ood is None else evaluation.ood
    partners, dataset = _partners(given.dataset, wanted, card), card.of(given.dataset)
    network, posterior = rows(card.method)
    network = card.fitted_around or network
    label = posterior if options.via in (None, q.ways[0]) else f"{posterior}, {options.via}"
    chosen = {} if isinstance(q, Point) else predict_options(options, q)
    found = SideBySide.of(network, {label: q}, dataset.test, card, dataset, run_options.progress, **chosen)
    shifted: dict[str, OODRecord] = {}
    if partners:
        x, each = dataset.test[0], {network: (Point(q.model.eval(), card.likelihood), {}), label: (q, chosen)}
        shifted = {
            name: ood(each[name][0], x, partners, progress=run_options.progress, **each[name][1])
            for name in found.scores
        }
        found = replace(
            found, scores={name: {**row, **detection_scores(shifted[name])} for name, row in found.scores.items()}
        )
    alone: Scores = {}
    if partners:
        record = ood(None, dataset.test[0], partners, train=given.train, progress=run_options.progress)
        alone = {name: autoencoder_tasks.ood_scores(record, name) for name in partners}
    output = run_options.output or options.folder / "evaluation.json"
    facts = {"data": dataset.name, "test_data": len(dataset.test[0]), "versions": versions()}
    content = {**found.content(), **({"inputs_alone": alone} if alone else {}), **facts}
    write_json(output, content)
    caption = f"{dataset.name}: {len(dataset.test[0]):,} test data{drawn(options, q)}"
    found.print(caption, way_out(q, card, options.folder))
    if alone:
        print_scores(given.caption_alone, alone)
    typed = command("evaluate", options, evaluation, given.options)
    page = output.with_suffix(".html")
    report_evaluation(
        page, typed, caption, found, {given.caption_alone: alone} if alone else {}, shifted, len(dataset.classes or ())
    )
    print(f"Saved {output} and {page}")
    return {"file": output, "page": page, **content}


def _autoencoder(
    q: Posterior,
    card: Card,
    given: Given,
    options: PosteriorOptions,
    evaluation: EvaluateOptions,
    run_options: RunOptions,
) -> dict[str, Any]:
    """Run one of the tasks of autoencoders."""
    if evaluation.test_size < 1:
        raise ValueError(f"--test-size must be at least 1, got {evaluation.test_size}.")
    output = run_options.output or options.folder / "metrics.json"
    for option, value in {"--via": options.via, "--link": options.link}.items():
        if value is not None:
            raise ValueError(
                f"{option} {value} is for predictions, but --task {evaluation.task} samples networks: leave it out."
            )
    x, y = given.dataset.test
    dataset = replace(given.dataset, test=(x[: evaluation.test_size], y[: evaluation.test_size]))
    partners = _partners(dataset, evaluation.ood or "all", card) if evaluation.task == "ood" else {}
    setting = autoencoder_tasks.Setting(
        output.parent,
        options.samples,
        options.seed,
        run_options.progress,
        others=autoencoder_tasks.OtherData(
            {name: x[: evaluation.test_size] for name, x in partners.items()}, given.train
        ),
        classifier=evaluation.classifier,
        labels=evaluation.labels,
    )
    caption, rows = autoencoder_tasks.TASKS[evaluation.task](q, dataset, setting)
    facts = {"data": dataset.name, "test_data": len(dataset.test[0]), "versions": versions()}
    content = {**rows, **facts}
    write_section(output, evaluation.task, content)
    tables = parted(rows, caption, given.caption_alone)
    for words, part in tables.items():
        print_scores(words, part)
    drawn_here = {name: output.parent / file for name, file in autoencoder_tasks.FIGURES[evaluation.task].items()}
    figures = {name: path for name, path in drawn_here.items() if path.is_file()}
    page = output.parent / f"{evaluation.task}.html"
    report_task(page, command("evaluate", options, evaluation, given.options), tables, figures)
    print(f"Saved {output} and {page}, and figures in the same folder")
    return {"file": output, "page": page, **content}


def _file(data: DataOptions, card: Card) -> Dataset:
    """Every row of a file as the test part, in the units of the training."""
    assert data.data is not None
    schema, path = card.schema, own_data(data.data, "--data")
    target = None if data.target is None else (data.target,)
    x, y = schema.tensors(schema.open(path, targets=not card.reconstructs, target=target))
    inputs, targets = card.scaling("input"), card.scaling("target")
    if card.reconstructs:
        return Dataset(Path(path).stem, (x[:0],) * 2, (x[:0],) * 2, (x, x), input_scaling=inputs)
    nothing = (x[:0], y[:0])
    return Dataset(Path(path).stem, nothing, nothing, (x, y), schema.classes, inputs, targets)


def _partners(dataset: Dataset, wanted: str | None, card: Card) -> dict[str, Tensor]:
    """Out-of-distribution data by name, from files and built-in sets."""
    words = [] if wanted is None else [stripped for word in wanted.split(",") if (stripped := word.strip())]
    files = [word for word in words if is_own(word)]
    paths = [own_data(file, "--ood") for file in files]
    found = {Path(path).name: card.schema.read(path, targets=False)[0] for path in paths}
    if len(found) < len(files):
        raise ValueError(f"--ood {wanted}: two files have the same name, by which scores are listed: rename one.")
    largest = float(dataset.test[0].abs().max())
    for name, x in found.items():
        if (reached := float(x.abs().max())) > LARGER * largest:  # such as 0 to 255 against 0 to 1
            warnings.warn(
                f"the inputs in {name!r} reach {reached:.3g}, those of {dataset.name!r} {largest:.3g}: if only the "
                "scale differs, any score separates them. Bring them to one scale (uint8 images are divided by 255).",
                stacklevel=2,
            )
    names = [word for word in words if word not in files]
    if not names:
        return found
    if dataset.name not in PARTNERS:
        typed = "" if names == ["all"] else f"--ood {', '.join(map(repr, names))}: "
        raise ValueError(
            f"{typed}no out-of-distribution data are known for {dataset.name!r}, only for {', '.join(PARTNERS)}. Pass "
            "your own with --ood file.npz, which holds X, or another file or folder as in --data."
        )
    known = out_of_distribution(dataset)
    if "all" in names:
        return found | known
    titles = {_plain(title): title for title in known}
    chosen = [titles.get(_plain(name), name) for name in names]
    return found | {name: lookup("out-of-distribution data", name, known) for name in chosen}


def _plain(title: str) -> str:
    """The title in the form of --data: fashion_mnist for Fashion-MNIST."""
    return title.lower().replace("-", "_").replace(" ", "_")
