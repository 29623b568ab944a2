"""Compare a posterior with the network it was made from, on test data; or give an autoencoder one of its tasks.

Test data are the test part of what it was trained on, or every row of another file.

Prints one table. Of calibration it is written as JSON to --output (evaluation.json beside the posterior); of the tasks
for autoencoders as a section of metrics.json beside the posterior, or to --output, with figures beside it.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from osculate.autoencoders import Autoencoder
from osculate.cli import autoencoder_tasks
from osculate.cli.checkpoint import Card
from osculate.cli.folder import versions, write_json, write_section
from osculate.cli.methods import rows
from osculate.cli.options import DataOptions, RunOptions, naming
from osculate.cli.predict import PosteriorOptions, drawn, how
from osculate.cli.tables import print_scores
from osculate.data import Dataset, out_of_distribution, read_arrays
from osculate.data.shifted import PARTNERS
from osculate.posteriors import Point, Posterior
from osculate.registry import lookup
from osculate.tasks import calibration, ood

#: How many times larger inputs of another kind may be without a warning.
LARGER = 10
#: What can be evaluated; all but the first are for autoencoders alone, ood for others too.
TASKS: Mapping[str, Callable[..., Any]] = {
    "calibration": calibration,
    "ood": autoencoder_tasks.foreign,
    "imputation": autoencoder_tasks.imputed,
    "semi_supervised": autoencoder_tasks.few_labels,
    "bound": autoencoder_tasks.bounded,
}


@naming(partners=PARTNERS, tasks=TASKS)
@dataclass(frozen=True)
class EvaluateOptions:
    """What to evaluate.

    Args:
        task: one of {tasks}. For autoencoders ood scores data of another kind, imputation fills in the upper half of
            images and lets a classifier judge them where there are labels, semi_supervised sorts images by their codes,
            with few labels, bound tells bounds on log p(x) of a VAE, each with its draws (--samples, 5,000 by default)
            and its standard error.
        ood: data of another kind to tell apart, with commas between: .npz files with X and, where the data are one of
            {partners}, names (an unknown one lists the known) or all.
        labels: for semi_supervised, numbers of labelled images of each class, with commas between.
        classifier: for imputation, the folder of a classifier of osculate train; by default a small one is trained.
        test_size: for the tasks of autoencoders, at most so many test images, and as many of another kind.
    """

    task: str = "calibration"
    ood: str | None = None
    labels: str = "1,2,5,10,20,50"
    classifier: Path | None = None
    test_size: int = 2000


PARTS = (PosteriorOptions, EvaluateOptions, DataOptions, RunOptions)


def run(options: PosteriorOptions, what: EvaluateOptions, data: DataOptions, where: RunOptions) -> None:
    """Evaluate, print and write."""
    lookup("task", what.task, TASKS)
    q, card = options.open(where.device)
    dataset = _file(data, card) if _is_new_file(data, card) else data.over(card.data_options()).load()
    if isinstance(q.model, Autoencoder) and what.task != "calibration":
        _autoencoder(q, card, dataset, options, what, where)
    elif what.task in ("calibration", "ood"):
        _calibrated(q, card, dataset, options, what, where)
    else:
        raise ValueError(
            f"--task {what.task} needs an autoencoder, and {card.model} is none: train one with osculate train "
            "--method online_laplace on images, or leave --task out."
        )


def _calibrated(
    q: Posterior, card: Card, dataset: Dataset, options: PosteriorOptions, what: EvaluateOptions, where: RunOptions
) -> None:
    """The network beside the posterior."""
    wanted = "all" if what.task == "ood" and what.ood is None else what.ood
    partners, dataset = _partners(dataset, wanted, card), card.of(dataset)
    network, posterior = rows(card.method)
    network = card.fitted_around or network
    scores = {network: scores_of(Point(q.model.eval(), card.likelihood), dataset, partners, where.progress)}
    if not isinstance(q, Point):
        scores[_label(posterior, options, q)] = scores_of(q, dataset, partners, where.progress, **how(options, q))
    output = where.output or options.folder / "evaluation.json"
    facts = {"data": dataset.name, "test_data": len(dataset.test[0]), "versions": versions()}
    write_json(output, {**scores, **facts})
    print_scores(f"{dataset.name}: {len(dataset.test[0]):,} test data{drawn(options, q)}", scores)
    print(f"Saved {output}")


def _autoencoder(
    q: Posterior, card: Card, dataset: Dataset, options: PosteriorOptions, what: EvaluateOptions, where: RunOptions
) -> None:
    """One of the tasks of autoencoders."""
    if what.test_size < 1:
        raise ValueError(f"--test-size is {what.test_size}: at least one image is needed.")
    output = where.output or options.folder / "metrics.json"
    for option, value in {"--via": options.via, "--link": options.link}.items():
        if value is not None:
            raise ValueError(f"{option} {value} is for predictions; --task {what.task} draws networks: leave it out.")
    dataset = autoencoder_tasks.smaller(dataset, what.test_size)
    setting = autoencoder_tasks.Setting(output.parent, options.samples, options.seed, where.progress)
    if what.task == "ood":
        partners = {name: x[: what.test_size] for name, x in _partners(dataset, what.ood or "all", card).items()}
        caption, rows = autoencoder_tasks.foreign(q, dataset, partners, setting)
    elif what.task == "bound":
        caption, rows = autoencoder_tasks.bounded(q, dataset, setting)
    elif what.task == "imputation":
        caption, rows = autoencoder_tasks.imputed(q, dataset, what.classifier, setting)
    else:
        caption, rows = autoencoder_tasks.few_labels(q, dataset, _numbers(what.labels), setting)
    facts = {"data": dataset.name, "test_data": len(dataset.test[0]), "versions": versions()}
    write_section(output, what.task, {**rows, **facts})
    print_scores(caption, rows)
    print(f"Saved {output}, and figures beside it")


def _numbers(words: str) -> tuple[int, ...]:
    """Numbers with commas between."""
    try:
        return tuple(int(word) for word in str(words).split(","))
    except ValueError:
        raise ValueError(f"--labels {words!r} are no whole numbers with commas between, such as 1,5,20.") from None


def _label(posterior: str, options: PosteriorOptions, q: Posterior) -> str:
    """The row of the posterior: how it predicts, where that is not the default."""
    return posterior if options.via in (None, q.ways[0]) else f"{posterior}, {options.via}"


def _is_new_file(data: DataOptions, card: Card) -> bool:
    """Whether --data names a file other than the one that was trained on: all of it is test data then."""
    known = card.data_options().data
    if data.data is None or not data.data.endswith(".npz"):
        return False
    return known is None or Path(data.data).resolve() != Path(known).resolve()


def _file(data: DataOptions, card: Card) -> Dataset:
    """Every row of a file as the test part, in the units of the training."""
    assert data.data is not None
    x, y = read_arrays(data.data, targets=not card.reconstructs)
    x, inputs = card.inputs(x, data.data), card.scaling("input")
    if card.reconstructs:
        return Dataset(Path(data.data).stem, (x[:0],) * 2, (x[:0],) * 2, (x, x), input_scaling=inputs)
    if y.is_floating_point() != (card.classes is None):
        kinds = ("real numbers (floats)", "classes (integers from 0)")
        wanted, found = kinds if card.classes is None else kinds[::-1]
        raise ValueError(f"the targets y in {data.data!r} are {found}, and the posterior is for {wanted}: convert y.")
    targets = card.scaling("target")
    y = y if targets is None else targets.apply(y)
    nothing = (x[:0], y[:0])
    classes = None if y.is_floating_point() else tuple(str(c) for c in range(card.outputs))
    return Dataset(Path(data.data).stem, nothing, nothing, (x, y), classes, inputs, targets)


def scores_of(
    q: Posterior, dataset: Dataset, partners: dict[str, Tensor], progress: bool = False, **options: Any
) -> dict[str, float]:
    """Scores on the test part, and AUROC against each of the partners."""
    scores = calibration(q, dataset.test, target_scale=dataset.target_scale, progress=progress, **options).metrics()
    if partners:
        scores |= ood(q, dataset.test[0], partners, progress=progress, **options).metrics()
    return scores


def _partners(dataset: Dataset, wanted: str | None, card: Card) -> dict[str, Tensor]:
    """Data of another kind by name: those of files, and known ones."""
    words = [] if wanted is None else [stripped for word in wanted.split(",") if (stripped := word.strip())]
    files = [word for word in words if word.endswith(".npz")]
    found = {Path(file).name: card.inputs(read_arrays(file, targets=False)[0], file) for file in files}
    if len(found) < len(files):
        raise ValueError(f"--ood {wanted}: two files have one name, by which their scores are told apart: rename one.")
    for name, x in found.items():
        _warn_of_scale(name, x, dataset)
    names = [word for word in words if word not in files]
    return found | _known_partners(dataset, names) if names else found


def _warn_of_scale(name: str, x: Tensor, dataset: Dataset) -> None:
    """Warn of inputs that are far larger than those of the data set, as whole numbers to 255 are beside shares."""
    theirs, ours = float(x.abs().max()), float(dataset.test[0].abs().max())
    if theirs > LARGER * ours:
        warnings.warn(
            f"the inputs in {name!r} reach {theirs:.3g}, those of {dataset.name!r} {ours:.3g}: where only the scale "
            "differs, any score tells them apart. Bring them to one scale (uint8 images are divided by 255).",
            stacklevel=2,
        )


def _known_partners(dataset: Dataset, names: list[str]) -> dict[str, Tensor]:
    if dataset.name not in PARTNERS:
        typed = "" if names == ["all"] else f"--ood {', '.join(map(repr, names))}: "
        raise ValueError(
            f"{typed}no data of another kind are known for {dataset.name!r}, only for {', '.join(PARTNERS)}. Pass your "
            "own with --ood file.npz, which holds X."
        )
    known = out_of_distribution(dataset)
    if "all" in names:
        return known
    titles = {_plain(title): title for title in known}
    chosen = [titles.get(_plain(name), name) for name in names]
    return {name: lookup("out-of-distribution data", name, known) for name in chosen}


def _plain(title: str) -> str:
    """Fashion-MNIST as fashion_mnist, as --data has it."""
    return title.lower().replace("-", "_").replace(" ", "_")
