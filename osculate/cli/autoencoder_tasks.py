"""``osculate evaluate --task``: the tasks of autoencoders, with their tables and figures."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import sqrt
from pathlib import Path

import torch
from torch import Tensor

from osculate import tasks
from osculate.autoencoders import VAE, Bound, Representation, active_units, bound, sandwich
from osculate.cli import autoencoder_figures as figures
from osculate.cli.after_training import represented
from osculate.cli.checkpoint import MODEL, read_model
from osculate.cli.demo_fits import recipe_of
from osculate.cli.options import DataOptions
from osculate.cli.tables import error_entries
from osculate.cli.train import TrainOptions, new_network
from osculate.data import Dataset
from osculate.methods import MAP
from osculate.posteriors import Point, Posterior
from osculate.tensorfiles import fill
from osculate.training import train

#: A caption, and scores by method.
Rows = tuple[str, dict[str, dict[str, float]]]
#: Number of random choices of the labelled images.
REPEATS = 10
#: Number of images for annealed importance sampling, which takes thousands of passes for each.
ANNEALED = 20
#: Numbers of samples of the importance-weighted bound in its figure.
COUNTS = (1, 10, 100, 1000)


@dataclass(frozen=True)
class OtherData:
    """The data that ood compares test images with.

    Args:
        sets: Out-of-distribution data by name.
        train: Training inputs, if there are any.
    """

    sets: Mapping[str, Tensor] = field(default_factory=dict)
    train: Tensor | None = None


@dataclass(frozen=True)
class Setting:
    """The settings of a task.

    Args:
        folder: Folder for figures.
        samples: Number of networks drawn; None for the default of the task.
        seed: Seed of the draws.
        progress: Show progress bars.
        others: Other data, for ood.
        classifier: Folder of a classifier, for imputation.
        labels: Numbers of labelled images, separated by commas, for semi_supervised.
    """

    folder: Path
    samples: int | None = None
    seed: int = 0
    progress: bool = False
    others: OtherData = OtherData()
    classifier: Path | None = None
    labels: str = ""

    @property
    def generator(self) -> torch.Generator:
        """A new generator with the seed."""
        return torch.Generator().manual_seed(self.seed)


def detected(q: Posterior, dataset: Dataset, setting: Setting) -> Rows:
    """Detect out-of-distribution data: a row for each set."""
    inside, others = dataset.test[0], setting.others
    record = tasks.ood(
        represented(q),
        inside,
        others.sets,
        train=others.train,
        samples=setting.samples or 100,
        generator=setting.generator,
        progress=setting.progress,
    )
    shown = {score: words for score, words in (figures.SCORES | figures.BASELINE).items() if score in record.inside}
    panels = {name: {words: (record, name, score) for score, words in shown.items()} for name in others.sets}
    figures.draw_roc(panels, setting.folder / "ood_roc.png")
    figures.draw_histograms(record, setting.folder / "ood_histograms.png")
    rows = {name: ood_scores(record, name) for name in others.sets}
    return f"{dataset.name}: AUROC, {len(inside):,} test images against out-of-distribution images", rows


def ood_scores(record: tasks.OODRecord, name: str) -> dict[str, float]:
    """AUROC of each score for one set, and its standard error."""
    return error_entries("auroc_", record.auroc[name], record.auroc_error[name])


def imputed(q: Posterior, dataset: Dataset, setting: Setting) -> Rows:
    """Impute the upper half of the test images, and classify the results if there are labels."""
    if len(dataset.input_shape) < 2:
        raise ValueError(
            f"imputation hides the upper half of images, but the inputs of {dataset.name!r} have shape "
            f"{dataset.input_shape}: use images, or in Python osc.tasks.imputation with your own mask."
        )
    judge, classifier = None, setting.classifier
    if dataset.classes is not None:
        judge = read_classifier(classifier, dataset) if classifier else trained_classifier(dataset, setting.progress)
    elif classifier is not None:
        raise ValueError(f"--classifier {str(classifier)!r}: {dataset.name!r} has no classes: leave it out.")
    record = impute(represented(q), dataset, judge, setting)
    figures.draw_imputations(record, dataset, setting.folder / "imputations.png")
    caption = f"{dataset.name}: {len(dataset.test[0]):,} test images whose upper half was hidden and filled in"
    rows = {"filled in": imputation_scores(record)}
    if judge is not None:
        rows["the images themselves"] = tasks.calibration(judge, dataset.test).metrics()
    return caption, rows


def impute(r: Representation, dataset: Dataset, judge: Point | None, setting: Setting) -> tasks.ImputationRecord:
    """Impute the upper half of the test images."""
    x, y = dataset.test
    return tasks.imputation(
        r,
        x,
        tasks.lower_half(x.shape[1:]),
        draws=setting.samples or 10,
        classifier=judge,
        targets=None if judge is None else y,
        generator=setting.generator,
        progress=setting.progress,
    )


def imputation_scores(record: tasks.ImputationRecord) -> dict[str, float]:
    """The scores of the record, with the standard error of the accuracy if there is one."""
    scores = record.metrics()
    if "accuracy" not in scores:
        return scores
    images = record.images.shape[1]
    return {**scores, "accuracy_error": sqrt(scores["accuracy"] * (1 - scores["accuracy"]) / images)}


def few_labels(q: Posterior, dataset: Dataset, setting: Setting) -> Rows:
    """Classify test images by the nearest codes of few labelled training images."""
    try:
        labels = tuple(int(word) for word in str(setting.labels).split(","))
    except ValueError:
        raise ValueError(f"--labels {setting.labels!r} must be whole numbers and commas, such as 1,5,20.") from None
    task = "semi_supervised classifies images with few labels"
    if not len(dataset.train[0]):
        raise ValueError(f"{task} of the training part, but {dataset.name!r} is another file: leave --data out.")
    if dataset.classes is None:
        raise ValueError(f"{task}, but {dataset.name!r} has no classes: use data with labels, or --task ood.")
    record = tasks.semi_supervised(
        {"codes": represented(q)},
        *dataset.train,
        dataset.test,
        labels=labels,
        repeats=REPEATS,
        samples=setting.samples or 20,
        seed=setting.seed,
        progress=setting.progress,
    )
    figures.draw_few_labels(record, len(dataset.classes), setting.folder / "accuracy_against_labels.png")
    caption = f"{dataset.name}: accuracy by nearest codes, {REPEATS} choices of the labelled images of each class"
    return caption, {"codes": few_label_scores(record, "codes")}


def bounded(q: Posterior, dataset: Dataset, setting: Setting) -> Rows:
    """Bounds on log p(x) of test images, two-sided bounds for simulated images, and the number of active units.

    Raises:
        ValueError: the codes of the network have no prior.
    """
    if not isinstance(q.model, VAE):
        raise ValueError(
            "--task bound needs codes with a prior, but a plain autoencoder has none: train one with --method vae."
        )
    x, generator = dataset.test[0], setting.generator
    rows: dict[str, dict[str, float]] = {}
    weighted: dict[int, Bound] = {}
    if q.model.posterior.has_density:
        elbo = bound(q, x, "elbo", setting.samples, generator=generator, progress=setting.progress)
        counts = sorted({*(number for number in COUNTS if number < elbo.samples), elbo.samples})
        weighted = {k: bound(q, x, "iwae", k, generator=generator, progress=setting.progress) for k in counts}
        for found in (elbo, weighted[elbo.samples]):
            rows[f"{found.kind}, {found.samples:,} draws"] = _bound_scores(found)
    few = x[:ANNEALED]
    annealed = bound(q, few, "ais", generator=generator, progress=setting.progress)
    both = sandwich(q, len(few), generator=generator, progress=setting.progress)
    for found, kind in ((annealed, "lower"), (both.lower, "lower, simulated"), (both.upper, "upper, simulated")):
        rows[f"annealed, {kind}: {len(few)} images, {found.samples} chains"] = _bound_scores(found)
    if weighted:
        figures.draw_bounds(weighted, dataset, setting.folder / "bounds.png")
    units = active_units(q, x)
    caption = (
        f"{dataset.name}: bounds on log p(x), {len(x):,} test images; {units.count} of {len(units.variances)} numbers "
        "of the code are active"
    )
    return caption, rows


def _bound_scores(found: Bound) -> dict[str, float]:
    return {
        "log_p": found.mean,
        "log_p_error": found.standard_error,
        "monte_carlo_error": found.monte_carlo_error,
        "draws": float(found.samples),
    }


#: The tasks for autoencoders, by name.
TASKS: Mapping[str, Callable[[Posterior, Dataset, Setting], Rows]] = {
    "ood": detected,
    "imputation": imputed,
    "semi_supervised": few_labels,
    "bound": bounded,
}


#: Figures of a task and their files, by the names of their words.
FIGURES: Mapping[str, Mapping[str, str]] = {
    "ood": {"roc": "ood_roc.png", "ood_histograms": "ood_histograms.png"},
    "imputation": {"imputations": "imputations.png"},
    "semi_supervised": {"accuracy_against_labels": "accuracy_against_labels.png"},
    "bound": {"bounds": "bounds.png"},
}


def few_label_scores(record: tasks.SemiSupervisedRecord, method: str) -> dict[str, float]:
    """Accuracy of one method for each number of labels, and its standard error."""
    means, errors = (
        dict(zip(record.labels, part[method].tolist(), strict=True)) for part in (record.mean, record.standard_error)
    )
    return error_entries("accuracy/", means, errors)


def trained_classifier(dataset: Dataset, progress: bool, seed: int = 0) -> Point:
    """A small classifier, trained on the labelled training part."""
    recipe = recipe_of(dataset)
    model, card = new_network(dataset, DataOptions(dataset.name), TrainOptions(recipe.model), seed)
    x, y = dataset.train
    part = slice(None, recipe.train_size)
    done = train(
        MAP(model, card.likelihood, recipe.prior),
        (x[part], y[part]),
        recipe.training.changed(seed=seed),
        progress=progress,
    )
    return done.posterior.to("cpu")


def read_classifier(folder: Path, dataset: Dataset) -> Point:
    """The network in a folder of ``osculate train``.

    Raises:
        FileNotFoundError: the folder has no network.
        ValueError: the network is not a classifier of such images.
    """
    path = folder / MODEL if folder.is_dir() else folder
    tensors, card = read_model(path)
    fits = card is not None and card.noise is None and card.input_shape == tuple(dataset.input_shape)
    if card is None or not fits or card.outputs != dataset.outputs:
        raise ValueError(
            f"--classifier {str(folder)!r} holds no classifier of images {tuple(dataset.input_shape)} of "
            f"{dataset.outputs} classes: train one with osculate train --data {dataset.name}, or leave it out."
        )
    if ":" in card.model:
        raise ValueError(
            f"--classifier takes built-in networks, not {card.model}; in Python, osc.tasks.imputation takes any."
        )
    return Point(fill(card.network(), tensors, path), card.likelihood)
