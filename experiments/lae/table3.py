"""Table 3 and Figure 11 of [miani2022]: the upper half of digits, imputed by sampled networks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import one_hot

import osculate as osc
from experiments import Claim, Findings, Record, Runner, Table, experiment, paired, printed, seeded, train
from experiments.lae import models as lae_models
from experiments.lae.detection import thousandths
from experiments.lae.models import (
    DROPOUT,
    ENSEMBLE,
    LONG,
    METHODS,
    ONLINE,
    POST_HOC,
    RUNNING,
    VARIANCES,
    Models,
)


@dataclass(frozen=True)
class Settings(lae_models.Training):
    """Half digits, and a classifier of the completed ones.

    Args:
        draws: Number of sampled networks, one for each completed image.
        rounds: Passes through each network.
        classifier_epochs: Passes of the classifier over the training images.
        images: Columns of the figure.
    """

    draws: int = 10
    rounds: int = 2
    classifier_epochs: int = 3
    images: int = 8


CLASSIFIER = "classifier on the true images"
ERROR, OF_DRAWS, MODES = "squared error per hidden pixel", "the same, of each draw", "effective number of classes seen"
ACCURACY, ECE, MCE, RMSCE = "accuracy", "ECE", "MCE", "RMSCE"
#: Columns by the names of the task's metrics.
HEADINGS = {"mse": ERROR, "mse_draw": OF_DRAWS, "modes": MODES}
HEADINGS |= {"accuracy": ACCURACY, "ece": ECE, "mce": MCE, "rmsce": RMSCE, "nll": "NLL"}
#: Values that the document prints. Its errors are against the noise in the hidden half.
PRINTED = printed(
    (ACCURACY, ECE, MCE, RMSCE),
    {
        VARIANCES: (".22", ".18", ".34", ".19"),
        DROPOUT: (".45", ".28", ".38", ".29"),
        ENSEMBLE: (".53", ".12", ".20", ".13"),
        POST_HOC: (".51", ".16", ".27", ".18"),
        RUNNING: (".53", ".12", ".16", ".13"),
    },
)
#: What the columns average over images, and the predictions that calibration errors are computed from.
ByImage = Mapping[str, Tensor]
PROBS, TARGETS = "probabilities", "classes"


@experiment(
    "lae-table3",
    "Half digits, filled in by drawn networks",
    "Laplacian Autoencoders [miani2022], Table 3 and Figure 11",
    paper=Settings(train_size=55_000, validation_size=5_000, test_size=5_000, fit=LONG, classifier_epochs=5),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Measure errors on the hidden pixels, and the predictions of a classifier."""
    table = Table()
    data: dict[str, Any] = {}

    def imputed(seed: int) -> tuple[dict[str, dict[str, float]], dict[str, ByImage], dict[str, Any]]:
        rows, images, shown = {}, dict[str, ByImage](), dict[str, Any]()
        models = Models(settings, seed)
        x, y = models.test, models.dataset.test[1][: settings.test_size]
        classifier = classifier_of(models, settings.classifier_epochs)
        rows[CLASSIFIER] = _named(osc.tasks.calibration(classifier, (x, y)).metrics())
        for name in METHODS:
            record = osc.tasks.imputation(
                models.representation(name),
                x,
                osc.tasks.lower_half(x.shape[1:]),
                draws=settings.draws,
                rounds=settings.rounds,
                classifier=classifier,
                targets=y,
                generator=torch.Generator().manual_seed(seed),
            )
            rows[name], images[name] = _named(record.metrics()), by_image(record, x)
            if name == ONLINE:
                assert record.predicted is not None
                first = slice(settings.images)
                shown = {
                    "truth": thousandths(x[first, 0]),
                    "images": thousandths(record.images[:, first, 0]),
                    "predicted": record.predicted[:, first].tolist(),
                }
        return rows, images, shown

    found: dict[str, list[ByImage]] = {name: [] for name in METHODS}
    for rows, images, shown in runner.each("seeds", zip(seeds), imputed):
        table.extend(rows)
        for name, each in images.items():
            found[name].append(each)
        data = data or shown
    data[paired.ERRORS] = errors_over_images(found)
    claim = Claim.over_seeds(
        "Classes among draws of a digit", "Draws of the plain autoencoder differ by the noise that they start from."
    )
    return Findings(table.numbers(HEADINGS.values(), PRINTED), (claim,), data)


def classifier_of(models: Models, epochs: int) -> osc.posteriors.Point:
    """Train a small network to classify the training images."""
    seed, kinds = models.seed, models.dataset.train[1]
    with seeded(seed):
        net = osc.networks.SmallCNN.for_inputs(models.dataset.input_shape, models.dataset.outputs)
    method = osc.methods.MAP(net, osc.likelihoods.Categorical())
    train(method, (models.train, kinds), epochs=epochs, batch_size=64, lr=1e-3, seed=seed)
    return osc.posteriors.Point(net.eval(), method.likelihood)


def by_image(record: osc.tasks.ImputationRecord, x: Tensor) -> ByImage:
    """Return for each image the squared error of a hidden pixel, the number of classes seen, and the prediction."""
    assert record.predicted is not None
    assert record.calibration is not None
    hidden, probs, targets = ~record.observed, record.calibration.probs, record.calibration.targets
    error = ((record.mean - x).double().square() * hidden).flatten(1).sum(1) / hidden.flatten(1).sum(1)
    share = one_hot(record.predicted, probs.shape[-1]).double().mean(0)
    return {
        ERROR: error,
        MODES: torch.special.entr(share).sum(-1).exp(),
        ACCURACY: (probs.argmax(1) == targets).double(),
        PROBS: probs,
        TARGETS: targets,
    }


def errors_over_images(found: Mapping[str, Sequence[ByImage]], draws: int = 1000) -> dict[str, float]:
    """Return the errors over test images of what the claims compare, by its name.

    Args:
        found: Numbers and predictions for each image, by method, seed by seed.
        draws: Number of resampled test sets for the calibration errors; each is the same for all methods and seeds.
    """
    errors = dict[str, float]()
    resampled = {name: _resampled(runs, draws) for name, runs in found.items()}
    for row, other in product((ONLINE, RUNNING), METHODS):
        if row == other:
            continue
        for column, error in (
            (ERROR, paired.ratio_error),
            (MODES, paired.ratio_error),
            (ACCURACY, paired.difference_error),
        ):
            errors[paired.beside(row, other, column)] = error(
                *([run[column] for run in found[name]] for name in (row, other))
            )
        for place, column in enumerate((ECE, MCE)):
            errors[paired.beside(row, other, column)] = float((resampled[row] - resampled[other])[:, place].std())
    return {name: float(f"{error:.3g}") for name, error in errors.items()}


def _resampled(runs: Sequence[ByImage], draws: int) -> Tensor:
    """Return ECE and MCE of resampled test sets (draws, 2), averaged over seeds."""
    generator, size = torch.Generator().manual_seed(0), len(runs[0][TARGETS])
    rows = torch.randint(size, (draws, size), generator=generator)
    scores = (osc.metrics.ece, osc.metrics.mce)
    each = [[[score(run[PROBS][row], run[TARGETS][row]) for score in scores] for row in rows] for run in runs]
    return torch.tensor(each, dtype=torch.double).mean(0)


def _named(metrics: Mapping[str, float]) -> dict[str, float]:
    return {heading: metrics[name] for name, heading in HEADINGS.items() if name in metrics}


@measure.figure
def draw(record: Record) -> Any:
    """Draw digits with their imputations by the online Laplacian autoencoder."""
    from osculate.plots import imputations

    data = record.findings.data
    truth, images = (np.asarray(data[name]) / 1000 for name in ("truth", "images"))
    observed = np.asarray(osc.tasks.lower_half(truth.shape[1:]))
    heading = "Upper halves imputed by networks sampled from an online Laplacian autoencoder"
    return imputations(truth, observed, images, heading, predicted=np.asarray(data["predicted"]))
