"""Fashion-MNIST and CIFAR-10: the network alone, sampled networks, and the linearised predictive."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor

import osculate as osc
from experiments import (
    TITLES,
    Claim,
    Findings,
    Record,
    Runner,
    Table,
    evaluation,
    experiment,
    listed,
    paired,
    seeded,
    train,
)
from experiments.by_image import IMAGES, PLACES, by_image, errors_of_detection, errors_over_images
from experiments.evaluation import Difference
from experiments.record import printed


@dataclass(frozen=True)
class Training:
    """The network and its training.

    Args:
        network: Name of the network; the document's for CIFAR-10 is another one, with nine convolutions.
        images: Number of images for training and for the curvature; None takes all.
        epochs: Passes over the images.
        lr: Highest learning rate; it falls by a cosine.
        prior: Prior precision of the one trained network; the document trains a network for each precision.
    """

    network: str = "3c3d"
    images: int | None = 19_500
    epochs: int = 20
    lr: float = 1e-3
    prior: float = 1.0


@dataclass(frozen=True)
class HeldOut:
    """Numbers of held-out images.

    Args:
        validation: Images that choose the prior precision.
        test: First images of the test part.
        outside: Images of each out-of-distribution set.
    """

    validation: int = 300
    test: int = 1_000
    outside: int = 400


@dataclass(frozen=True)
class Settings:
    """The networks, and how much of the data they see.

    Args:
        sets: Names of the data sets; "digits" needs no file, and takes the network "cnn".
        training: Training of the network.
        held_out: Numbers of held-out images.
        precisions: Candidates for the validation data, as in the document's source from 0.01 to 1000.
        curvature: "fisher" (one sampled label for each image) or "ggn" (all ten columns, five times the cost).
        samples: Number of sampled networks.
    """

    sets: tuple[str, ...] = ("fashion_mnist", "cifar10_jpeg")
    training: Training = Training()
    held_out: HeldOut = HeldOut()
    precisions: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
    curvature: str = "fisher"
    samples: int = 20


MODE, SAMPLED, SAME = "MAP", "sampled, precision by validation", "sampled, layerwise precisions by the evidence"
TUNED, EVIDENCE = "linearised, precision by validation", "linearised, layerwise precisions by the evidence"
SCALED = "MAP, temperature by validation"
ROWS = (MODE, SAMPLED, SAME, TUNED, EVIDENCE, SCALED)
ACCURACY, NLL, AUROC = "accuracy, %", "NLL", "OOD AUROC"
COLUMNS = (ACCURACY, NLL, "ECE", AUROC)
#: Out-of-distribution sets; the document's for CIFAR-10, SVHN, is not among those that can be loaded.
OUTSIDE = {"Fashion-MNIST": ("MNIST",), "CIFAR-10": ("CelebA", "MNIST"), "digits": ("rotated digits",)}
#: Printed values by row and column.
PRINTED = printed(
    COLUMNS,
    {
        f"Fashion-MNIST: {MODE}": ("91.39", "0.258", "0.017", "0.864"),
        f"Fashion-MNIST: {SAMPLED}": ("84.42", "0.942", "0.411", "0.945"),
        f"Fashion-MNIST: {TUNED}": ("92.25", "0.244", "0.012", "0.955"),
        f"CIFAR-10: {MODE}": ("80.92", "0.605", "0.066", "0.792 on SVHN"),
        f"CIFAR-10: {SAMPLED}": ("21.74", "2.114", "0.095", "0.689 on SVHN"),
        f"CIFAR-10: {TUNED}": ("81.37", "0.601", "0.084", "0.843 on SVHN"),
    },
)


@experiment(
    "linlap-images",
    "Fashion-MNIST and CIFAR-10: MAP, sampled networks and the linearised predictive",
    "The linearised Laplace approximation in Bayesian neural networks, section 4, results of [immer2021]",
    # all images at hand, trained to the end, for an accelerator
    large=Settings(
        sets=("fashion_mnist", "cifar10_jpeg"),
        training=Training(images=None, epochs=100),
        held_out=HeldOut(validation=2_000, test=8_000, outside=2_000),
        curvature="ggn",
        samples=100,
    ),
    paper=Settings(
        sets=("fashion_mnist", "cifar10"),
        training=Training(images=None, epochs=500),
        held_out=HeldOut(validation=5_000, test=10_000, outside=10_000),
        precisions=tuple(10 ** (-2 + n / 3) for n in range(16)),
        curvature="ggn",
        samples=100,
    ),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Train a network on each set and predict with it in every way, for each seed."""
    jobs = product(settings.sets, seeds)
    each = runner.over("networks", jobs, lambda name, seed: run(name, settings, seed, runner), "network")
    runs = {TITLES[name]: cells for name, cells in each.items()}
    rows = {f"{title}: {row}": [cell["rows"][row] for cell in cells] for title, cells in runs.items() for row in ROWS}
    table = Table.of({row: [way["scores"] for way in ways] for row, ways in rows.items()})
    errors = errors_over_images(rows) | errors_of_detection(rows, AUROC)
    data = {
        "precisions": list(settings.precisions),
        "curves": {title: dict(cells[0]["curves"]) for title, cells in runs.items()},
        "chosen": {title: dict(cells[0]["chosen"]) for title, cells in runs.items()},
        "outside": {title: list(OUTSIDE[title]) for title in runs},
        paired.ERRORS: errors,
    }
    return Findings(table.numbers(COLUMNS, PRINTED), claims(table, errors, list(runs)), data)


def run(name: str, settings: Settings, seed: int, runner: Runner) -> dict[str, Any]:
    """Train, fit, choose the precisions and the temperature on validation data, and score the test images.

    Returns:
        The "rows": "scores" by column, scores of each image, and shares that give the AUROCs; the "curves": validation
        NLL of each candidate precision; the "chosen" precisions.
    """
    title, likelihood = TITLES[name], osc.likelihoods.Categorical()
    held_out = settings.held_out
    data = osc.data.load(name, train_size=settings.training.images, validation_size=held_out.validation, seed=seed)
    fit = fitted(data, settings, seed, runner)
    candidates = [fit.replace(prior=osc.priors.Isotropic(precision)) for precision in settings.precisions]
    x, y = data.validation
    on_validation = {
        TUNED: evaluation.linearised(candidates, x, f"{title}: validation, linearised", runner.progress),
        SAMPLED: [evaluation.sampled(q, x, settings.samples, seed) for q in candidates],
    }
    posteriors = {row: candidates[evaluation.best(probs, (x, y))] for row, probs in on_validation.items()}
    posteriors[EVIDENCE] = osc.maximise_evidence(fit.replace(prior=osc.priors.Layerwise(1.0)))
    scaled = train(osc.methods.TemperatureScaling(fit.model, likelihood), data.validation).posterior
    sets = osc.data.out_of_distribution(data, seed=seed)
    outside = [sets[key][: held_out.outside] for key in OUTSIDE[title]]
    inputs = torch.cat([data.test[0][: held_out.test], *outside])
    pair = [posteriors[TUNED], posteriors[EVIDENCE]]
    tuned, by_evidence = evaluation.linearised(pair, inputs, f"{title}: test, linearised", runner.progress)
    probs = {
        MODE: evaluation.at_mode(fit, inputs),
        SAMPLED: evaluation.sampled(posteriors[SAMPLED], inputs, settings.samples, seed),
        SAME: evaluation.sampled(posteriors[EVIDENCE], inputs, settings.samples, seed),
        TUNED: tuned,
        EVIDENCE: by_evidence,
        SCALED: evaluation.class_probabilities(scaled, inputs),
    }
    on_validation |= {MODE: [evaluation.at_mode(fit, x)], SCALED: [evaluation.class_probabilities(scaled, x)]}
    targets, sizes = data.test[1][: held_out.test], [len(far) for far in outside]
    return {
        "rows": {row: scored(values, targets, sizes) for row, values in probs.items()},
        "curves": {row: [osc.metrics.nll(evaluation.logs(p), y) for p in each] for row, each in on_validation.items()},
        "chosen": {row: q.prior.precision.tolist() for row, q in posteriors.items()},
    }


def fitted(data: osc.data.Dataset, settings: Settings, seed: int, runner: Runner) -> osc.posteriors.Gaussian:
    """Train a network, and fit KFAC at its mode."""
    how, likelihood = settings.training, osc.likelihoods.Categorical()
    with seeded(seed):
        model = osc.networks.build(how.network, data.input_shape, data.outputs)
        method = osc.methods.MAP(model, likelihood, prior=how.prior)
        train(method, data.train, epochs=how.epochs, lr=how.lr, seed=seed, progress=runner.progress)
        fit = partial(osc.laplace, model.eval(), likelihood, data.train, prior=how.prior, refine=False)
        return fit(curvature=settings.curvature, progress=runner.progress)


def scored(probs: Tensor, y: Tensor, sizes: Sequence[int]) -> dict[str, Any]:
    """Return the scores of a way to predict, those of each image, and the shares that give the AUROC of each set.

    Args:
        probs: Probabilities of the test images and then of the out-of-distribution images.
        y: Labels of the test images.
        sizes: Sizes of the out-of-distribution sets, whose AUROCs are averaged.
    """
    inside, *others = evaluation.entropy(probs).split([len(y), *sizes])
    probs = probs[: len(y)]
    detected = sum(osc.metrics.auroc(inside, far) for far in others) / len(others)
    return {
        "scores": {**evaluation.scores(probs, y), AUROC: detected},
        IMAGES: by_image(probs, y, (NLL, ACCURACY)),
        PLACES: [paired.places(inside, far) for far in others],
    }


def claims(table: Table, errors: Mapping[str, float], titles: Sequence[str]) -> Iterator[Claim]:
    """Yield the claims that need words, about differences of rows.

    Args:
        table: Values by row and column.
        errors: Errors of the differences over test images, by name.
        titles: Titles of the data sets.
    """

    def words(row: str, other: str, column: str) -> str:
        found = {}
        for title in titles:
            both = f"{title}: {row}", f"{title}: {other}"
            value = table.mean(both[0], column) - table.mean(both[1], column)
            found[title] = Difference(value, errors[paired.beside(*both, column)])
        return listed(found, "")

    def claim(text: str, what: str, row: str, other: str, column: str, rest: str = "") -> Claim:
        evidence = f"{what}, with its error over images: {words(row, other, column)}.{rest}"
        return Claim.over_seeds(text, evidence)

    nll, accuracy = "NLL less that of the linearised predictive, in nats", "Accuracy less that of MAP, in points"
    yield claim("linearised predictive on outside images", "AUROC less that of MAP", TUNED, MODE, AUROC)
    yield claim(
        "NLL of the linearised predictive",
        "NLL less that of MAP, in nats",
        TUNED,
        MODE,
        NLL,
        " The document's differences are -0.014 and -0.004. Less that of MAP with a temperature chosen on the same "
        f"images: {words(TUNED, SCALED, NLL)}.",
    )
    yield claim(
        "accuracy of the linearised predictive",
        accuracy,
        TUNED,
        MODE,
        ACCURACY,
        " One network serves all precisions here, so that only the averaging over the logits can change the class.",
    )
    yield claim(
        "sampled networks at their own best precision",
        nll,
        SAMPLED,
        TUNED,
        NLL,
        " The document retrains the network for each precision, and a large one costs it the fit; here it only narrows "
        "the posterior around the same mode.",
    )
    yield claim("sampled networks at the precisions of the evidence", nll, SAME, EVIDENCE, NLL)
    yield claim("accuracy of sampled networks", accuracy, SAME, MODE, ACCURACY)
    yield claim(
        "choice by the evidence and by validation",
        "NLL with layerwise precisions by the evidence less that by validation, in nats",
        EVIDENCE,
        TUNED,
        NLL,
        f" AUROC of the evidence less that of MAP: {words(EVIDENCE, MODE, AUROC)}. The evidence gives the wider "
        "posterior: it is less sure of test images and of outside images. The document tunes "
        "precisions during training.",
    )


@measure.figure
def draw(record: Record) -> Any:
    """Draw validation NLL against the prior precision, and NLL beside AUROC."""
    from experiments.linlap import figures

    found, titles = record.means, record.findings.data["curves"]
    scores = {
        title: {r: (found[f"{title}: {r}", "NLL"], found[f"{title}: {r}", AUROC]) for r in ROWS} for title in titles
    }
    heading = "Where the posterior is wide, sampled networks are worse than chance, the linearised network is not"
    return figures.predictives(record.findings.data, scores, heading)
