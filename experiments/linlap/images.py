"""Fashion-MNIST and CIFAR-10: the network as it is, sampled networks, and the linearised predictive."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from experiments import Claim, Findings, Number, Record, experiment, seeded
from experiments.evaluation import (
    Difference,
    accuracy_difference,
    at_mode,
    auroc_difference,
    best,
    decided,
    entropy,
    linearised,
    logs,
    nll_difference,
    sampled,
    scores,
)
from osculate import metrics
from osculate.data import Dataset, load, out_of_distribution
from osculate.data.dataset import Part
from osculate.evidence import maximise_evidence
from osculate.likelihoods import Categorical
from osculate.methods.laplace import laplace
from osculate.methods.map import MAP
from osculate.networks import build
from osculate.posteriors import Gaussian
from osculate.priors import Isotropic, Layerwise
from osculate.training import train


@dataclass(frozen=True)
class Training:
    """The network, and how it is trained.

    Args:
        network: its name; the document's for CIFAR-10 is another one, with nine convolutions.
        images: images to train on, and for the curvature; None takes all.
        epochs: passes over them.
        lr: highest learning rate; it falls by a cosine.
        prior: precision that the one network is trained with; the document trains one for each precision.
    """

    network: str = "3c3d"
    images: int | None = 8_000
    epochs: int = 8
    lr: float = 1e-3
    prior: float = 1.0


@dataclass(frozen=True)
class HeldOut:
    """Images that are held out.

    Args:
        validation: those that choose the prior precision.
        test: those to test on, the first of the test part.
        outside: those of each out-of-distribution set.
    """

    validation: int = 300
    test: int = 1_000
    outside: int = 400


@dataclass(frozen=True)
class Settings:
    """The networks, and how much of the data they see.

    Args:
        sets: names of the data sets; "digits" needs no file, and takes the network "cnn".
        training: of the network.
        held_out: numbers of images.
        precisions: candidates for the validation data, as in the document's source from 0.01 to 1000.
        curvature: "fisher" (one sampled label for each image) or "ggn" (all ten columns, five times the cost).
        samples: networks that are drawn.
    """

    sets: tuple[str, ...] = ("fashion_mnist", "cifar10_jpeg")
    training: Training = Training()
    held_out: HeldOut = HeldOut()
    precisions: tuple[float, ...] = (0.01, 0.1, 1.0, 10.0, 100.0, 1000.0)
    curvature: str = "fisher"
    samples: int = 20


PRESETS = {
    "small": Settings(),
    "paper": Settings(
        sets=("fashion_mnist", "cifar10"),
        training=Training(images=None, epochs=500),
        held_out=HeldOut(validation=5_000, test=10_000, outside=10_000),
        precisions=tuple(10 ** (-2 + n / 3) for n in range(16)),
        curvature="ggn",
        samples=100,
    ),
}

MODE, SAMPLED, SAME = "MAP", "sampled, precision by validation", "sampled, layerwise precisions by the evidence"
TUNED, EVIDENCE = "linearised, precision by validation", "linearised, layerwise precisions by the evidence"
ROWS = (MODE, SAMPLED, SAME, TUNED, EVIDENCE)
AUROC = "OOD AUROC"
TITLES = {"fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10", "cifar10_jpeg": "CIFAR-10", "digits": "digits"}
#: Sets that stand outside; the document's for CIFAR-10, SVHN, is not among those that can be loaded.
OUTSIDE = {"Fashion-MNIST": ("MNIST",), "CIFAR-10": ("CelebA", "MNIST"), "digits": ("rotated digits",)}
#: As printed: accuracy, NLL, ECE, AUROC.
PRINTED = {
    ("Fashion-MNIST", MODE): ("91.39", "0.258", "0.017", "0.864"),
    ("Fashion-MNIST", SAMPLED): ("84.42", "0.942", "0.411", "0.945"),
    ("Fashion-MNIST", TUNED): ("92.25", "0.244", "0.012", "0.955"),
    ("CIFAR-10", MODE): ("80.92", "0.605", "0.066", "0.792 on SVHN"),
    ("CIFAR-10", SAMPLED): ("21.74", "2.114", "0.095", "0.689 on SVHN"),
    ("CIFAR-10", TUNED): ("81.37", "0.601", "0.084", "0.843 on SVHN"),
}
COLUMNS = ("accuracy, %", "NLL", "ECE", AUROC)
#: Nats per image, and percentage points, that count as much worse.
MUCH_NLL, MUCH_ACCURACY = 0.1, 5.0


@experiment(
    "linlap-images",
    "Fashion-MNIST and CIFAR-10: MAP, sampled networks and the linearised predictive",
    "The linearised Laplace approximation in Bayesian neural networks, section 4, results of [immer2021]",
    **PRESETS,
)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Train a network on each set and predict with it in every way, for each seed."""
    runs: dict[str, list[Run]] = {}
    for seed in seeds:
        for name in settings.sets:
            runs.setdefault(TITLES[name], []).append(run(name, settings, seed, progress))
    return conclude(runs, settings)


@dataclass(frozen=True)
class Run:
    """One network on one set.

    Args:
        table: scores by row and column.
        gains: differences to other rows on the same images, by name.
        curves: validation NLL of each candidate precision, by way to predict.
        chosen: the precisions that were chosen, by row.
    """

    table: Mapping[tuple[str, str], float]
    gains: Mapping[str, Difference]
    curves: Mapping[str, Sequence[float]]
    chosen: Mapping[str, float | Sequence[float]]


def run(name: str, settings: Settings, seed: int, progress: bool) -> Run:
    """Train, fit, choose the precisions on validation data, and score the test images."""
    title = TITLES[name]
    held_out = settings.held_out
    data = load(name, train_size=settings.training.images, validation_size=held_out.validation, seed=seed)
    fit = fitted(data, settings, seed, progress)
    candidates = [fit.replace(prior=Isotropic(precision)) for precision in settings.precisions]
    x, y = data.validation
    on_validation = {
        TUNED: linearised(candidates, x, f"{title}: validation, linearised", progress),
        SAMPLED: [sampled(q, x, settings.samples, seed) for q in candidates],
    }
    number = {row: best(probs, (x, y)) for row, probs in on_validation.items()}
    posteriors = {
        TUNED: candidates[number[TUNED]],
        SAMPLED: candidates[number[SAMPLED]],
        EVIDENCE: maximise_evidence(fit.replace(prior=Layerwise(1.0))),
    }
    test = (data.test[0][: held_out.test], data.test[1][: held_out.test])
    outside = out_of_distribution(data, seed=seed)
    others = {key: outside[key][: held_out.outside] for key in OUTSIDE[title]}
    inputs = torch.cat([test[0], *others.values()])
    lines = linearised([posteriors[TUNED], posteriors[EVIDENCE]], inputs, f"{title}: test, linearised", progress)
    probs = {
        MODE: at_mode(fit, inputs),
        SAMPLED: sampled(posteriors[SAMPLED], inputs, settings.samples, seed),
        SAME: sampled(posteriors[EVIDENCE], inputs, settings.samples, seed),
        TUNED: lines[0],
        EVIDENCE: lines[1],
    }
    curves = {row: [metrics.nll(logs(p), y) for p in each] for row, each in on_validation.items()}
    curves[MODE] = [metrics.nll(logs(at_mode(fit, x)), y)]
    chosen = {row: q.prior.precision.tolist() for row, q in posteriors.items()}
    return Run(*compare(probs, test, [len(other) for other in others.values()]), curves, chosen)


def fitted(data: Dataset, settings: Settings, seed: int, progress: bool) -> Gaussian:
    """A trained network, with KFAC at its mode."""
    with seeded(seed):
        how = settings.training
        model: nn.Module = build(how.network, data.input_shape, data.outputs)
        method = MAP(model, Categorical(), prior=how.prior)
        train(method, data.train, epochs=how.epochs, lr=how.lr, seed=seed, device="cpu", progress=progress)
        return laplace(
            model.eval(),
            Categorical(),
            data.train,
            curvature=settings.curvature,
            prior=how.prior,
            progress=progress,
        )


def compare(
    probs: Mapping[str, Tensor], test: Part, sizes: Sequence[int]
) -> tuple[dict[tuple[str, str], float], dict[str, Difference]]:
    """Scores of each row, and differences that the claims are about.

    Args:
        probs: by row, of the test images and then of the outside images.
        test: the test images and their labels.
        sizes: of the outside sets, whose AUROCs are averaged.
    """
    y = test[1]
    count = len(y)
    table, spread = {}, {}
    for row, values in probs.items():
        inside, *others = entropy(values).split([count, *sizes])
        spread[row] = [(inside, other) for other in others]
        found = scores(values[:count], y)
        found[AUROC] = sum(metrics.auroc(*pair) for pair in spread[row]) / len(sizes)
        table.update({(row, column): value for column, value in found.items()})
    gains = {}
    for row in (TUNED, EVIDENCE):
        pairs = [auroc_difference(a, b) for a, b in zip(spread[row], spread[MODE], strict=True)]
        gains[f"AUROC of {row}"] = Difference.over(pairs)
        gains[f"NLL of {row}"] = nll_difference(probs[row][:count], probs[MODE][:count], y)
        gains[f"accuracy of {row}"] = accuracy_difference(probs[row][:count], probs[MODE][:count], y)
    for row, same in ((SAMPLED, TUNED), (SAME, EVIDENCE)):
        gains[f"NLL of {row}"] = nll_difference(probs[row][:count], probs[same][:count], y)
        gains[f"accuracy of {row}"] = accuracy_difference(probs[row][:count], probs[MODE][:count], y)
    gains["NLL of the evidence against validation"] = nll_difference(probs[EVIDENCE][:count], probs[TUNED][:count], y)
    return table, gains


def conclude(runs: Mapping[str, Sequence[Run]], settings: Settings) -> Findings:
    """The table, the claims, and what the figure shows."""
    numbers = [
        Number(
            f"{title}: {row}",
            column,
            tuple(each.table[row, column] for each in found),
            PRINTED[title, row][place] if (title, row) in PRINTED else "",
        )
        for title, found in runs.items()
        for row in ROWS
        for place, column in enumerate(COLUMNS)
    ]
    gains = {
        title: {name: Difference.over([each.gains[name] for each in found]) for name in found[0].gains}
        for title, found in runs.items()
    }
    data = {
        "precisions": list(settings.precisions),
        "curves": {title: dict(found[0].curves) for title, found in runs.items()},
        "chosen": {title: dict(found[0].chosen) for title, found in runs.items()},
        "outside": {title: list(OUTSIDE[title]) for title in runs},
    }
    return Findings(tuple(numbers), tuple(claims(gains)), data)


def _each(gains: Mapping[str, Mapping[str, Difference]], name: str) -> tuple[list[Difference], str]:
    found = {title: each[name] for title, each in gains.items()}
    return list(found.values()), ", ".join(f"{title} {value}" for title, value in found.items())


def claims(gains: Mapping[str, Mapping[str, Difference]]) -> Iterator[Claim]:
    """Verdicts from differences between rows, by set and name; two standard errors over the images decide."""
    of = partial(_each, gains)
    found, words = of(f"AUROC of {TUNED}")
    yield decided(
        "The linearised predictive tells outside images better than MAP (OOD AUROC)",
        [d.above() for d in found],
        f"AUROC less that of MAP: {words}.",
    )
    found, words = of(f"NLL of {TUNED}")
    yield decided(
        "The linearised predictive improves over MAP in NLL",
        [d.below() for d in found],
        f"NLL less that of MAP, in nats: {words}. The document's differences are -0.014 and -0.004.",
    )
    found, words = of(f"accuracy of {TUNED}")
    yield decided(
        "The linearised predictive improves over MAP in accuracy",
        [d.above() for d in found],
        f"Accuracy less that of MAP, in points: {words}. One network serves all precisions here, so that only "
        "the averaging over the logits can change the class.",
    )
    found, words = of(f"NLL of {SAMPLED}")
    yield decided(
        f"Sampled networks are much worse in NLL (by {MUCH_NLL} nats or more), also at their own best precision",
        [d.above(MUCH_NLL) for d in found],
        f"NLL less that of the linearised predictive, in nats: {words}. The document retrains the network for each "
        "precision, and a large one costs it the fit; here it only narrows the posterior around the same mode.",
    )
    found, words = of(f"NLL of {SAME}")
    yield decided(
        f"Of one and the same posterior, that of the evidence, sampled networks predict much worse than the linearised "
        f"network (by {MUCH_NLL} nats or more)",
        [d.above(MUCH_NLL) for d in found],
        f"NLL less that of the linearised predictive, in nats: {words}.",
    )
    found, words = of(f"accuracy of {SAME}")
    yield decided(
        f"Sampled networks underfit: of that posterior they lose {MUCH_ACCURACY:.0f} points of accuracy or more",
        [d.below(-MUCH_ACCURACY) for d in found],
        f"Accuracy less that of MAP, in points: {words}.",
    )
    found, words = of("NLL of the evidence against validation")
    yield decided(
        "The evidence chooses precisions without validation data that predict as well (within 0.02 nats)",
        [d.below(0.02) for d in found],
        f"NLL with layerwise precisions by the evidence less that by validation, in nats: {words}; AUROC of the "
        f"evidence less that of MAP: {of(f'AUROC of {EVIDENCE}')[1]}. The evidence gives the wider posterior: it is "
        "less sure of test images (ECE in the table) and of outside images. The document tunes precisions during "
        "training.",
    )


@measure.figure
def draw(record: Record) -> Any:
    """Validation NLL against the prior precision, and the two scores that matter beside each other."""
    from experiments.linlap import figures

    data = record.findings.data
    found = {(n.row, n.column): n.mean for n in record.findings.numbers if n.mean is not None}
    panels = {
        title: figures.Predictives(
            precisions=data["precisions"],
            curves=curves,
            chosen={row: data["chosen"][title][row] for row in (TUNED, SAMPLED)},
            points={row: (found[f"{title}: {row}", "NLL"], found[f"{title}: {row}", AUROC]) for row in ROWS},
            outside=" and ".join(data["outside"][title]),
        )
        for title, curves in data["curves"].items()
    }
    return figures.predictives(
        panels, "The same posterior: networks drawn from it fail, the linearised network does not"
    )
