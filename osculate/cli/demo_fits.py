"""The fits of the demo: a classifier of images, and a curve with a gap in its data."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from osculate.cli.after_training import held_out_noise
from osculate.cli.checkpoint import Card
from osculate.cli.options import DataOptions, pick_device
from osculate.cli.side_by_side import detection_scores, errors_of
from osculate.cli.train import TrainOptions, new_network
from osculate.data import Dataset, out_of_distribution, shuffled_pixels
from osculate.data.toys import SINE_GAP
from osculate.evidence import maximise_evidence
from osculate.likelihoods import Gaussian as GaussianLikelihood
from osculate.methods.laplace import laplace
from osculate.methods.map import MAP
from osculate.posteriors import Gaussian, Point
from osculate.predictive import predict, tune
from osculate.priors import Layerwise
from osculate.progress import Clock
from osculate.registry import lookup
from osculate.tasks import CalibrationRecord, Comparison, OODRecord, calibration, ood
from osculate.tasks.comparison import compared
from osculate.training import Settings, train


@dataclass(frozen=True)
class Recipe:
    """The settings of the demo on one data set.

    Args:
        model: The network.
        train_size: Number of training images; None for all.
        validation_size: Number of images held out for tuning and the choice of these settings.
        prior: Prior precision in training.
        training: Settings of the training.
        words: Description of the images.
    """

    model: str
    train_size: int | None
    validation_size: int
    prior: float
    training: Settings
    words: str


# Chosen once, over two seeds, the test part unseen. Digits: by the validation NLL of the network; precision 0.1, 1, 5
# or 20, learning rate 3e-3 or 1e-2, 10 to 80 epochs. Fashion-MNIST (12,000 images): by that of the network and of its
# Laplace posterior, added; precision 1 to 100, rate 1e-3 to 5e-3, 8 to 30 epochs. The others of its family follow it.
_LENET = Settings(epochs=15, lr=3e-3, batch_size=64)
RECIPES: Mapping[str, Recipe] = {
    "digits": Recipe(
        "cnn", None, 200, 1.0, Settings(epochs=40, lr=1e-2, batch_size=64), "handwritten digits, 8 × 8 pixels"
    ),
    "fashion_mnist": Recipe("lenet", 12_000, 2_000, 10.0, _LENET, "photographs of ten kinds of clothing"),
    "mnist": Recipe("lenet", 12_000, 2_000, 10.0, _LENET, "handwritten digits, 28 × 28 pixels"),
    "kmnist": Recipe("lenet", None, 1_000, 10.0, _LENET, "handwritten Japanese characters of ten kinds"),
}


@dataclass(frozen=True)
class Classification:
    """The results of one seed, by method: MAP, Laplace, Laplace tuned on held-out images.

    Args:
        dataset: The data.
        card: The network, for the run folder.
        q: The posterior with the prior by the evidence.
        records: Calibration on the test images, by method.
        shifted: Entropy in and out of distribution, by method.
        fit_seconds: Wall-clock time of the fit.
    """

    dataset: Dataset
    card: Card
    q: Gaussian
    records: Mapping[str, CalibrationRecord]
    shifted: Mapping[str, OODRecord]
    fit_seconds: float

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        """All numbers, by method."""
        return {
            name: {
                **record.metrics(),
                **errors_of(True, [record.probs.log(), record.targets]),
                **detection_scores(self.shifted[name]),
            }
            for name, record in self.records.items()
        }

    @property
    def comparisons(self) -> dict[str, Comparison]:
        """Each posterior beside the network, on the same test images."""
        known = {name: [record.probs.log(), record.targets] for name, record in self.records.items()}
        network = known.pop("MAP")
        return {name: compared(True, columns, network) for name, columns in known.items()}

    @property
    def tables(self) -> dict[str, dict[str, dict[str, float]]]:
        """All numbers, by caption and method."""
        test, train = len(self.dataset.test[0]), len(self.dataset.train[0])
        return {f"{self.dataset.name}: {test:,} test images, {train:,} to train on": self.scores}


def recipe_for(name: str) -> Recipe:
    """The recipe of a data set.

    Raises:
        ValueError: the demo has no recipe for the data set; the message lists those it has.
    """
    return lookup("data set of the demo", name, RECIPES)


def recipe_of(dataset: Dataset) -> Recipe:
    """The recipe of a data set, or one for small images and vectors."""
    return RECIPES.get(dataset.name) or Recipe("auto", 12_000, 0, 1.0, Settings(epochs=20, lr=3e-3), dataset.name)


def classify(
    name: str, *, train_size: int | None, structure: str | None, seed: int, device: str, progress: bool, clock: Clock
) -> Classification:
    """Train, fit, tune and measure once; the seed is that of held-out images, initial weights and data order."""
    recipe = recipe_for(name)
    structure = structure or "kron"
    data = DataOptions(name, None, train_size or recipe.train_size, recipe.validation_size, split_seed=seed)
    dataset = data.load()
    model, card = new_network(dataset, data, TrainOptions(recipe.model), seed)
    size = sum(p.numel() for p in model.parameters())
    with clock.step(
        "images: train", f"training a {recipe.model} with {size:,} weights on {len(dataset.train[0]):,} images"
    ):
        trained = train(
            MAP(model, card.likelihood, recipe.prior),
            dataset.train,
            recipe.training.changed(seed=seed),
            device=device,
            progress=progress,
        )
    model = model.eval().to(pick_device(device))
    before = clock.seconds.get("images: fit", 0.0)
    with clock.step("images: fit", f"fitting a {structure} Laplace posterior and tuning it by the evidence"):
        q = laplace(model, card.likelihood, dataset.train, structure=structure, progress=progress)
    with clock.step("images: tune", f"tuning a copy of it on {len(dataset.validation[0]):,} held-out images"):
        tuned = tune(q, dataset.validation, progress=progress)
    methods = {"MAP": trained.posterior, "Laplace": q, "Laplace, tuned": tuned}
    with clock.step(
        "images: evaluate", f"predicting {len(dataset.test[0]):,} test images and out-of-distribution ones"
    ):
        partners = out_of_distribution(dataset, seed=seed)
        if not partners:  # no other data set is available locally
            generator = torch.Generator().manual_seed(seed)
            partners = {"shuffled pixels": shuffled_pixels(dataset.test[0], generator)}
        progress = progress and len(dataset.test[0]) > 2_000  # shorter runs need no progress bar
        records: dict[str, CalibrationRecord] = {}
        shifted: dict[str, OODRecord] = {}
        for method, each in methods.items():
            record = calibration(each, dataset.test, progress=progress)
            assert isinstance(record, CalibrationRecord)
            records[method] = record
            shifted[method] = ood(each, dataset.test[0], partners, scores=["entropy"], progress=progress)
    return Classification(dataset, card, q, records, shifted, clock.seconds["images: fit"] - before)


STRUCTURES = ("full", "kron", "diag")
#: Chosen by the error on the validation part, four seeds: one or two hidden layers, 200 to 1000 epochs, about the same.
CURVE_SETTINGS = Settings(epochs=400, lr=1e-2, batch_size=200)
CURVE_HIDDEN = (32, 32)


@dataclass(frozen=True)
class Regression:
    """The results of the second part, by method: MAP, full, kron, diag, in original units.

    Args:
        data: Training inputs and targets.
        gap: The interval without data.
        lines: Inputs along the axis (G,), predictive means (G,) and standard deviations, noise included (G,).
        scores: Scores on all test data, and on those in the gap.
    """

    data: tuple[np.ndarray, np.ndarray]
    gap: tuple[float, float]
    lines: Mapping[str, tuple[np.ndarray, np.ndarray, np.ndarray]]
    scores: Mapping[str, Mapping[str, float]]


def regress(seed: int, progress: bool, clock: Clock) -> Regression:
    """Train once, fit three structures, and measure."""
    options = DataOptions("sine", split_seed=seed)
    dataset = options.load()
    model, card = new_network(dataset, options, TrainOptions("mlp", {"hidden": CURVE_HIDDEN}), seed)
    with clock.step("curve: train", f"training a network on a curve with {len(dataset.train[0])} points and a gap"):
        trained = train(
            MAP(model, card.likelihood),
            dataset.train,
            CURVE_SETTINGS.changed(seed=seed),
            device="cpu",
            progress=progress,
        )
    noise = held_out_noise(model.eval(), dataset, card.noise)
    assert noise is not None
    likelihood = GaussianLikelihood(noise)
    methods: dict[str, Point | Gaussian] = {"MAP": Point(trained.model, likelihood)}
    with clock.step("curve: fit", f"fitting {', '.join(STRUCTURES)} posteriors to it"):
        for structure in STRUCTURES:
            q = laplace(model, likelihood, dataset.train, structure=structure, prior=Layerwise(1.0))
            # the noise is the same for all, so that the bands differ by the structure alone
            methods[structure] = maximise_evidence(q, noise=False)
    inputs, targets = dataset.input_scaling, dataset.target_scaling
    assert inputs is not None
    assert targets is not None
    x, y = dataset.test
    inside = ((original := inputs.undo(x)[:, 0]) > SINE_GAP[0]) & (original < SINE_GAP[1])
    axis = torch.linspace(-5.5, 5.5, 300)[:, None]
    lines, scores = {}, {}
    for name, each in methods.items():
        with torch.no_grad():
            found = predict(each, inputs.apply(axis))
            mean, sd = targets.undo(found.mean), found.stddev * targets.scale
        lines[name] = axis[:, 0].numpy(), mean[:, 0].numpy(), sd[:, 0].numpy()
        everywhere, gap = (
            calibration(each, part, target_scale=dataset.target_scale).metrics()
            for part in (dataset.test, (x[inside], y[inside]))
        )
        scores[name] = {**everywhere, **{f"{score}_gap": value for score, value in gap.items()}}
    x, y = dataset.train
    return Regression((inputs.undo(x)[:, 0].numpy(), targets.undo(y)[:, 0].numpy()), SINE_GAP, lines, scores)


def draw_classification(first: Classification, curve: Regression, folder: Path) -> dict[str, Path]:
    """Draw the four figures of the first seed."""
    from osculate import plots

    shifted, classes = first.shifted, first.dataset.classes or ()
    images, targets = first.dataset.test
    bands = {
        name: plots.Band(*line, f"log-likelihood in the gap {curve.scores[name]['log_likelihood_gap']:.2f}")
        for name, line in curve.lines.items()
    }
    drawn = {
        "reliability": plots.reliability_diagram(first.records),
        "entropy": plots.entropy_histograms(
            {name: record.inside["entropy"] for name, record in shifted.items()},
            {name: {kind: s["entropy"] for kind, s in record.outside.items()} for name, record in shifted.items()},
            len(classes),
            {name: {kind: s["entropy"] for kind, s in record.auroc.items()} for name, record in shifted.items()},
        ),
        "least_sure": plots.most_uncertain(
            images.numpy(),
            targets.numpy(),
            {name: first.records[name].probs.numpy() for name in ("MAP", "Laplace")},
            classes,
        ),
        "regression": plots.regression_bands(bands, *curve.data, [curve.gap]),
    }
    return {name: plots.save(figure, folder / f"{name}.png") for name, figure in drawn.items()}
