"""Table 3 and Figure 11 of [miani2022]: the upper half of digits, filled in by drawn networks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import numpy as np
import torch

from experiments import Claim, Findings, Number, Record, experiment, seeded
from experiments.lae import models as lae_models
from experiments.lae.models import AE, DROPOUT, ENSEMBLE, LONG, METHODS, ONLINE, POST_HOC, VARIATIONAL, Models
from osculate.likelihoods import Categorical
from osculate.methods import MAP
from osculate.networks import SmallCNN
from osculate.posteriors import Point
from osculate.progress import track
from osculate.tasks import calibration, imputation, lower_half
from osculate.training import train


@dataclass(frozen=True)
class Settings(lae_models.Training):
    """Half digits, and a classifier that looks at what they become.

    Args:
        draws: networks, one for each completed image.
        rounds: passes through each network.
        classifier_epochs: passes of the classifier over the training images.
        images: columns of the figure.
    """

    draws: int = 10
    rounds: int = 2
    classifier_epochs: int = 3
    images: int = 8


PRESETS = {
    "small": Settings(),
    "paper": Settings(train_size=55_000, validation_size=5_000, test_size=5_000, fit=LONG, classifier_epochs=5),
}

CLASSIFIER = "classifier on the true images"
ERROR, OF_DRAWS, MODES = "squared error per hidden pixel", "the same, of each draw", "effective number of classes seen"
#: Columns by the names of the record, with their headings.
COLUMNS = {"accuracy": "accuracy", "ece": "ECE", "mce": "MCE", "rmsce": "RMSCE", "nll": "NLL"}
#: Accuracy, ECE, MCE and RMSCE that the document prints. Its errors are against the noise in the hidden half.
PRINTED = {
    VARIATIONAL: (".22", ".18", ".34", ".19"),
    DROPOUT: (".45", ".28", ".38", ".29"),
    ENSEMBLE: (".53", ".12", ".20", ".13"),
    POST_HOC: (".51", ".16", ".27", ".18"),
    ONLINE: (".53", ".12", ".16", ".13"),
}


@experiment(
    "lae-table3",
    "Half digits, filled in by drawn networks",
    "Laplacian Autoencoders [miani2022], Table 3 and Figure 11",
    **PRESETS,
)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Errors on the hidden pixels against the truth, and what a classifier says."""
    found: dict[str, list[Mapping[str, float]]] = {}
    data: dict[str, Any] = {}
    for seed in track(seeds, "seeds", len(seeds), progress):
        models = Models(settings, seed)
        x, y = models.test, models.dataset.test[1][: settings.test_size]
        classifier = _classifier(models, settings, seed)
        found.setdefault(CLASSIFIER, []).append(calibration(classifier, (x, y)).metrics())
        for method in METHODS:
            record = imputation(
                models.representation(method),
                x,
                lower_half(x.shape[1:]),
                draws=settings.draws,
                rounds=settings.rounds,
                classifier=classifier,
                targets=y,
                generator=torch.Generator().manual_seed(seed),
            )
            found.setdefault(method, []).append(record.metrics())
            if method == ONLINE and seed == seeds[0]:
                assert record.predicted is not None
                some = slice(settings.images)
                data = {
                    "truth": _listed(x[some, 0]),
                    "images": _listed(record.images[:, some, 0]),
                    "predicted": record.predicted[:, some].tolist(),
                }
    headings = {"mse": ERROR, "mse_draw": OF_DRAWS, "modes": MODES, **COLUMNS}
    printed = {
        (method, column): value
        for method, values in PRINTED.items()
        for column, value in zip(("accuracy", "ece", "mce", "rmsce"), values, strict=True)
    }
    numbers = [
        Number(method, heading, tuple(row[name] for row in rows), printed.get((method, name), ""))
        for method, rows in found.items()
        for name, heading in headings.items()
        if name in rows[0]
    ]
    return Findings(tuple(numbers), _claims(found), data)


def _classifier(models: Models, settings: Settings, seed: int) -> Point:
    with seeded(seed):
        net = SmallCNN.for_inputs(models.dataset.input_shape, models.dataset.outputs)
    options: dict[str, Any] = {"epochs": settings.classifier_epochs, "batch_size": 64, "lr": 1e-3, "seed": seed}
    method = MAP(net, Categorical())
    train(method, (models.train, models.dataset.train[1]), device="cpu", progress=False, **options)
    return Point(net.eval(), Categorical())


def _listed(images: torch.Tensor) -> list[Any]:
    """Numbers for a file: thousandths."""
    return (images * 1000).round().int().tolist()


def _claims(found: Mapping[str, Sequence[Mapping[str, float]]]) -> tuple[Claim, ...]:
    means = {
        method: {name: mean(row[name] for row in rows) for name in rows[0]}
        for method, rows in found.items()
        if method != CLASSIFIER
    }

    def listed(name: str) -> str:
        return ", ".join(f"{method} {Number('', '', tuple(row[name] for row in found[method]))}" for method in means)

    online, rivals = means[ONLINE], (VARIATIONAL, DROPOUT)
    return (
        Claim.judged(
            "Errors of calibration (ECE and MCE) are smaller by the online Laplacian autoencoder than by VAE and "
            "MC-dropout, and accuracy is not lower",
            all(online[name] < means[rival][name] for name in ("ece", "mce") for rival in rivals)
            and all(online["accuracy"] >= means[rival]["accuracy"] for rival in rivals),
            f"ECE: {listed('ece')}; MCE: {listed('mce')}; accuracy: {listed('accuracy')}. Means are compared; "
            "where they are closer than their standard errors the order is chance.",
        ),
        Claim.judged(
            "Its imputations show several modes: more classes than those of a plain autoencoder",
            online["modes"] > means[AE]["modes"],
            f"effective number of classes among the draws of a digit: {listed('modes')}. Draws of the plain "
            "autoencoder differ by the noise that they start from.",
        ),
        Claim.judged(
            "The online Laplacian autoencoder fills in the hidden pixels best",
            min(means, key=lambda method: means[method]["mse"]) == ONLINE,
            f"squared error of the mean per hidden pixel: {listed('mse')}.",
        ),
    )


@measure.figure
def draw(record: Record) -> Any:
    """Some digits with their imputations by the online Laplacian autoencoder."""
    from osculate.plots import imputations

    data = record.findings.data
    truth, images = (np.asarray(data[name]) / 1000 for name in ("truth", "images"))
    observed = np.asarray(lower_half(truth.shape[1:]))
    heading = "Upper halves filled in by networks that are drawn from an online Laplacian autoencoder"
    return imputations(truth, observed, images, heading, predicted=np.asarray(data["predicted"]))
