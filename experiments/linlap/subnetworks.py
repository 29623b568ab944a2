"""What a subnetwork's posterior is worth: between the clusters of a toy, and for images that are shifted."""

import copy
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from experiments import seeded
from experiments.evaluation import logs, probabilities
from osculate import metrics
from osculate.data import Dataset, load
from osculate.data.corruptions import corrupted
from osculate.data.shifted import rotated
from osculate.evidence import maximise_evidence
from osculate.likelihoods import Categorical, Gaussian
from osculate.methods import MAP, SWAG, DeepEnsemble, MCDropout, Subnetwork, laplace
from osculate.networks import MLP, build
from osculate.posteriors import Gaussian as GaussianPosterior, Posterior
from osculate.predictive import functional_variance, predict, tune
from osculate.progress import track
from osculate.training import train

FULL, DIAGONAL = "full", "diagonal"
MODE, ENSEMBLE, DROPOUT, PATH = "MAP", "deep ensemble", "MC dropout", "SWAG"
NAMES = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
#: Data in a step of the toy, and the scale of the noise in training: the evidence of the full posterior finds another.
BATCH_SIZE, SCALE = 64, 0.25
#: Points between two clusters, and the share of a gap on each side that is left out.
POINTS, MARGIN = 40, 0.1


@dataclass(frozen=True)
class Toy:
    """Regression on clusters, by a network with ReLU.

    Args:
        data: the set.
        hidden: widths of the hidden layers.
        epochs: of training to the mode.
        lr: highest learning rate.
        precision: of the prior of the mode; the evidence of the full posterior chooses it anew for all posteriors.
        fractions: of the parameters that a subnetwork keeps.
        selections: how it is chosen.
    """

    data: str = "cos3"
    hidden: tuple[int, ...] = (50, 50)
    epochs: int = 300
    lr: float = 5e-3
    precision: float = 1.0
    fractions: tuple[float, ...] = (0.5, 0.1, 0.03, 0.01)
    selections: tuple[str, ...] = ("swag", "function_space", "magnitude", "random", "diag_variance")


@dataclass(frozen=True)
class Source:
    """Images, and how they are shifted.

    Args:
        data: the set.
        kinds: of corruption; none for a rotation.
        levels: degrees of the rotation, or severities of the corruption; the first is no shift.
        shifted: from this level on an image counts as shifted.
        train_size: images to train on, and for the curvature.
        validation_size: images that choose the prior precisions.
        test_size: images at each level (and for each kind).
    """

    data: str
    kinds: tuple[str, ...]
    levels: tuple[int, ...]
    shifted: int
    train_size: int = 3_000
    validation_size: int = 250
    test_size: int = 1_000

    @property
    def title(self) -> str:
        """What a reader calls the set: "rotated MNIST"."""
        return f"{'corrupted' if self.kinds else 'rotated'} {NAMES.get(self.data, self.data)}"


@dataclass(frozen=True)
class Networks:
    """What is trained.

    Args:
        network: by name; a plain sequence of layers.
        epochs: of training; twice as many for the snapshots of SWAG, from the mode.
        lr: highest learning rate of Adam.
        precision: of the prior of the mode.
        members: of the ensemble, the first of which is the mode.
        dropout: its probability.
    """

    network: str
    epochs: int = 12
    lr: float = 2e-3
    precision: float = 1.0
    members: int = 3
    dropout: float = 0.1


@dataclass(frozen=True)
class Images:
    """Classification of images that are shifted more and more.

    Args:
        source: the images.
        networks: what is trained on them.
        fractions: of the parameters that a subnetwork keeps; the first is compared in the claims.
        samples: networks drawn from SWAG and dropout.
        seeds: at most so many of the repetitions.
    """

    source: Source
    networks: Networks
    fractions: tuple[float, ...] = (0.05, 0.01)
    samples: int = 20
    seeds: int = 1


def percent(fraction: float) -> str:
    """A share in words: "5 %"."""
    return f"{100 * fraction:g} %"


def share(select: str, fraction: float) -> str:
    """The row of a subnetwork of the toy."""
    return f"{select}, {percent(fraction)}"


def subnetwork(fraction: float) -> str:
    """The row of a subnetwork of the images."""
    return f"subnetwork, {percent(fraction)}"


@dataclass(frozen=True)
class Deviations:
    """What one run of the toy gives.

    Args:
        between: mean standard deviation of the function between the clusters, by row.
        inside: the same on the data.
        warned: whether the choice by diag_variance warned of weights without curvature.
        noise: the scale by the evidence.
        precision: of the prior by the evidence.
        bands: by row, mean and standard deviation of the function along a line.
    """

    between: Mapping[str, float]
    inside: Mapping[str, float]
    warned: bool
    noise: float
    precision: float
    bands: Mapping[str, Mapping[str, list[float]]]


def toy(settings: Toy, seed: int) -> Deviations:
    """One network, and the posterior over all of its parameters, over some of them, and without correlations."""
    data = load(settings.data, validation_size=0)
    likelihood = Gaussian(SCALE)
    with seeded(seed):
        model = MLP(1, settings.hidden, 1, "relu")
    changes: dict[str, Any] = {
        "epochs": settings.epochs,
        "batch_size": BATCH_SIZE,
        "lr": settings.lr,
        "seed": seed,
    }
    train(MAP(model, likelihood, settings.precision), data.train, device="cpu", progress=False, **changes)
    fit = laplace(model, likelihood, data.train, structure="full", prior=settings.precision)
    full = maximise_evidence(fit)
    assert isinstance(full.likelihood, Gaussian)
    shared: dict[str, Any] = {"likelihood": full.likelihood, "data": data.train, "prior": full.prior}
    precision = float(full.prior.precision)
    posteriors = {FULL: full, DIAGONAL: laplace(model, structure="diag", **shared)}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for select in settings.selections:
            for fraction in settings.fractions:
                subset = Subnetwork(fraction, select, precision=precision, seed=seed)
                posteriors[share(select, fraction)] = laplace(model, structure="full", subset=subset, **shared)
    x = data.train[0]
    line = torch.linspace(float(x.min()) - 0.3, float(x.max()) + 0.3, 161)[:, None]
    return Deviations(
        {row: deviation(q, between(x)) for row, q in posteriors.items()},
        {row: deviation(q, x) for row, q in posteriors.items()},
        any("zero curvature" in str(warning.message) for warning in caught),
        float(full.likelihood.scale),
        precision,
        {row: _band(q, line) for row, q in posteriors.items()},
    )


def between(x: Float[Tensor, "N 1"]) -> Float[Tensor, "M 1"]:
    """Inputs within the two largest gaps of some data, without a tenth of each gap on either side."""
    ordered = x.flatten().sort().values
    starts = ordered.diff().topk(2).indices
    parts = []
    for low, high in zip(ordered[starts].tolist(), ordered[starts + 1].tolist(), strict=True):
        margin = MARGIN * (high - low)
        parts.append(torch.linspace(low + margin, high - margin, POINTS))
    return torch.cat(parts)[:, None]


def deviation(q: GaussianPosterior, x: Tensor) -> float:
    """The mean standard deviation of the function."""
    return float(functional_variance(q, x, diagonal=True).sqrt().mean())


def _band(q: GaussianPosterior, x: Float[Tensor, "G 1"]) -> dict[str, list[float]]:
    f = predict(q, x, noise=False)
    found = {"x": x, "mean": f.mean, "sd": f.variance.sqrt()}
    return {name: [round(value, 4) for value in values.flatten().tolist()] for name, values in found.items()}


@dataclass(frozen=True)
class Shifts:
    """What one run on images gives: by row, a score at each level, and the prior precisions that were chosen."""

    nll: Mapping[str, list[float]]
    accuracy: Mapping[str, list[float]]
    chosen: Mapping[str, float]


def images(settings: Images, seed: int, progress: bool) -> Shifts:
    """The mode of one network and everything that is made of it, and networks that are trained otherwise."""
    source = settings.source
    data = load(source.data, train_size=source.train_size, validation_size=source.validation_size, seed=seed)
    sets = shifted(source, data, seed)
    candidates, sampled = posteriors(settings, data, seed, progress)
    chosen = {row: choose_prior(q, data, progress) for row, q in candidates.items()}
    nll: dict[str, list[float]] = {}
    accuracy: dict[str, list[float]] = {}
    for x, y in track(sets, f"{source.title}: predictions", len(sets), progress):
        for row, q in (sampled | chosen).items():
            generator = torch.Generator().manual_seed(seed)
            probs = probabilities(predict(q, x, samples=settings.samples, generator=generator))
            nll.setdefault(row, []).append(metrics.nll(logs(probs), y))
            accuracy.setdefault(row, []).append(100 * metrics.accuracy(probs, y))
    return Shifts(nll, accuracy, {row: float(q.prior.precision) for row, q in chosen.items()})


def shifted(source: Source, data: Dataset, seed: int) -> list[tuple[Tensor, Tensor]]:
    """The test images at each level; of all kinds of corruption together."""
    x, y = data.test[0][: source.test_size], data.test[1][: source.test_size]
    if not source.kinds:
        return [(rotated(x, level), y) for level in source.levels]
    generator = torch.Generator().manual_seed(seed)
    found = []
    for level in source.levels:
        kinds = source.kinds if level else source.kinds[:1]
        found.append((torch.cat([corrupted(x, kind, level, generator) for kind in kinds]), y.repeat(len(kinds))))
    return found


def posteriors(
    settings: Images, data: Dataset, seed: int, progress: bool
) -> tuple[dict[str, GaussianPosterior], dict[str, Posterior]]:
    """Laplace posteriors whose prior is still to be chosen, and all the others."""
    networks = settings.networks
    likelihood, precision = Categorical(), networks.precision
    with seeded(seed):
        models = [build(networks.network, data.input_shape, data.outputs) for _ in range(networks.members)]
        dropping = with_dropout(models[0], networks.dropout)
    changes: dict[str, Any] = {"epochs": networks.epochs, "lr": networks.lr, "seed": seed}
    options: dict[str, Any] = {"device": "cpu", "progress": progress}
    ensemble = train(DeepEnsemble(models, likelihood, precision), data.train, **changes, **options)
    dropout = train(MCDropout(dropping, likelihood, precision), data.train, **changes, **options)
    mode = models[0].eval()
    descent: dict[str, Any] = {"epochs": 2 * networks.epochs, "lr": 1e-2, "schedule": "constant"}
    method = SWAG(copy.deepcopy(mode), likelihood, precision, burn_in=0.0)
    path = train(method, data.train, optimizer="sgd", seed=seed, **descent, **options)
    fits = {
        subnetwork(fraction): laplace(
            mode,
            likelihood,
            data.train,
            structure="full",
            prior=precision,
            subset=Subnetwork(fraction, path.posterior),
            progress=progress,
        )
        for fraction in settings.fractions
    }
    fits[DIAGONAL] = laplace(mode, likelihood, data.train, structure="diag", prior=precision, progress=progress)
    others = {ENSEMBLE: ensemble.posterior, DROPOUT: dropout.posterior, PATH: path.posterior}
    return fits, {MODE: MAP(mode, likelihood, precision).result(), **others}


def with_dropout(model: nn.Module, probability: float) -> nn.Sequential:
    """A copy of a sequence of layers with dropout after each activation."""
    layers: list[nn.Module] = []
    for layer in copy.deepcopy(model).children():
        layers += [layer, nn.Dropout(probability)] if isinstance(layer, nn.ReLU) else [layer]
    return nn.Sequential(*layers)


def choose_prior(q: GaussianPosterior, data: Dataset, progress: bool) -> GaussianPosterior:
    """The posterior with the prior precision that the validation images choose, as ``osc.tune`` does by default.

    Images without shift hardly tell how unsure to be of others, and often less is better for them: of the precisions
    that they cannot tell from the best (one standard error), the smallest is taken.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "on these held-out data no uncertainty is best")
        return tune(q, data.validation, temperature=False, progress=progress)


def average(values: Sequence[float]) -> float:
    """The mean."""
    return sum(values) / len(values)
