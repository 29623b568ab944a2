"""Subnetwork inference: a full covariance over a few weights, on a toy and under shift of images."""

import copy
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

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
    ignoring,
    listed,
    paired,
    seeded,
    train,
)
from experiments.by_image import by_image

FULL, DIAGONAL = "full", "diagonal"
#: The document also compares with VOGN, which is not among the methods of this library.
MODE, ENSEMBLE, DROPOUT, PATH = "MAP", "deep ensemble", "MC dropout", "SWAG"
#: Batch size on the toy, and the noise scale in training: the evidence of the full posterior finds another.
BATCH_SIZE, SCALE = 64, 0.25
#: Points between two clusters, and the share of a gap on each side that is left out.
POINTS, MARGIN = 40, 0.1
BETWEEN, INSIDE = "sd between clusters", "sd on the data"
KEPT = "sd between clusters, of the full one's"
#: Fraction of the weights of the toy in the claims.
TENTH = 0.1
KINDS = ("gaussian_noise", "gaussian_blur", "fog", "contrast")
ANGLES, SEVERITIES = (0, 30, 60, 90, 120, 150, 180), (0, 1, 2, 3, 4, 5)


@dataclass(frozen=True)
class Toy:
    """Regression on clusters, by a network with ReLU.

    Args:
        data: Data set.
        hidden: Widths of the hidden layers.
        epochs: Epochs of training to the mode.
        lr: Highest learning rate.
        precision: Prior precision of the mode; the evidence of the full posterior chooses a new one for all posteriors.
        fractions: Shares of the parameters in a subnetwork.
        selections: Selections of the subnetwork.
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
    """Images and their shift.

    Args:
        data: Data set.
        kinds: Kinds of corruption; empty for a rotation.
        levels: Degrees of the rotation, or severities of the corruption; the first is no shift.
        shifted: Lowest level that counts as shifted.
        train_size: Images for training and for the curvature.
        validation_size: Images that choose the prior precisions.
        test_size: Images at each level (and for each kind).
    """

    data: str
    kinds: tuple[str, ...]
    levels: tuple[int, ...]
    shifted: int
    train_size: int = 8_000
    validation_size: int = 250
    test_size: int = 1_000

    @property
    def shift(self) -> str:
        """The shift in a word."""
        return "corrupted" if self.kinds else "rotated"

    @property
    def title(self) -> str:
        """The set and its shift in words: "rotated MNIST"."""
        return f"{self.shift} {TITLES.get(self.data, self.data)}"

    @property
    def columns(self) -> tuple[str, str]:
        """No shift, and the levels that count as shifted, in words."""
        if self.kinds:
            return "no corruption", f"severities {self.shifted} to {self.levels[-1]}"
        return f"{self.levels[0]}°", f"{self.shifted}° to {self.levels[-1]}°"

    @property
    def scores(self) -> dict[str, dict[str, list[int]]]:
        """Columns by quantity, with the places of the levels that each is the mean over."""
        shifted = [place for place, level in enumerate(self.levels) if level >= self.shifted]
        places = dict(zip(self.columns, ([0], shifted), strict=True))
        titles = {"nll": "NLL", "accuracy": "accuracy, %"}
        return {key: {f"{title}, {of}": places[of] for of in places} for key, title in titles.items()}


@dataclass(frozen=True)
class Networks:
    """Training of the networks.

    Args:
        network: Name of a plain sequence of layers.
        epochs: Epochs of training; the snapshots of SWAG take twice as many, from the mode.
        lr: Highest learning rate of Adam.
        precision: Prior precision of the mode.
        members: Members of the ensemble; the first one is the mode.
        dropout: Probability of dropout.
    """

    network: str
    epochs: int = 20
    lr: float = 2e-3
    precision: float = 1.0
    members: int = 3
    dropout: float = 0.1


@dataclass(frozen=True)
class Images:
    """Classification of images that are shifted more and more.

    Args:
        source: Images and their shift.
        networks: Training of the networks.
        fractions: Shares of the parameters in a subnetwork; claims compare the first one.
        samples: Networks drawn from SWAG and dropout.
    """

    source: Source
    networks: Networks
    fractions: tuple[float, ...] = (0.05, 0.01)
    samples: int = 20


@dataclass(frozen=True)
class Settings:
    """The three experiments.

    Args:
        toy: Regression by a small network.
        rotated: Rotated images.
        corrupted: Corrupted images.
    """

    toy: Toy = Toy()
    rotated: Images = Images(Source("mnist", (), ANGLES, 60), Networks("lenet"))
    corrupted: Images = Images(Source("cifar10_jpeg", KINDS, SEVERITIES, 1, test_size=250), Networks("cnn"))


#: Held-out images and training of the document's setting.
_HELD_OUT, _LONG = {"validation_size": 2_000, "test_size": 10_000}, {"epochs": 90, "members": 5}


def share(select: str, fraction: float) -> str:
    """Return the row of a subnetwork of the toy."""
    return f"{select}, {100 * fraction:g} %"


def subnetwork(fraction: float) -> str:
    """Return the row of a subnetwork of the images."""
    return share("subnetwork", fraction)


@experiment(
    "linlap-subnetwork",
    "Subnetwork inference: in-between uncertainty, rotated MNIST, corrupted CIFAR-10",
    "The linearised Laplace approximation in Bayesian neural networks, section 5, results of [daxberger2021b]",
    # the document's ResNet-18 needs an accelerator: the networks stay small ones also here
    paper=Settings(
        Toy(epochs=1_000),
        Images(Source("mnist", (), ANGLES, 60, 58_000, **_HELD_OUT), Networks("lenet", **_LONG)),
        Images(Source("cifar10", KINDS, SEVERITIES, 1, 48_000, **_HELD_OUT), Networks("cnn", **_LONG)),
    ),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Measure the toy and the images for each seed."""
    table, toys, shifts, errors = Table(), [], {}, dict[str, float]()
    for found, shown in runner.each("in-between uncertainty", zip(seeds), partial(toy, settings.toy)):
        table.append(found)
        toys.append(shown)
    for title, each in (("rotated", settings.rotated), ("corrupted", settings.corrupted)):
        runs = list(runner.each(title, zip(seeds), partial(images, each, runner)))
        for run in runs:
            for row, columns in run["images"].items():
                table.add(f"{each.source.title}: {row}", {name: float(v.mean()) for name, v in columns.items()})
        errors |= errors_over_images(each, runs)
        shifts[each.source.title] = {
            "levels": list(each.source.levels),
            **{quantity: averaged([run[quantity] for run in runs]) for quantity in ("nll", "accuracy")},
            "chosen": [run["chosen"] for run in runs],
        }
    x, y = osc.data.load(settings.toy.data, validation_size=0).train
    warned = [each["warned"] for each in toys]
    data = {
        "points": {"x": x.flatten().tolist(), "y": y.flatten().tolist()},
        "bands": toys[0]["bands"],
        "evidence": {key: [each[key] for each in toys] for key in ("noise", "precision")},
        "warned": warned,
        "shifts": shifts,
        paired.ERRORS: errors,
    }
    return Findings(table.numbers(), claims(table, warned, settings), data)


def toy(settings: Toy, seed: int) -> tuple[dict[tuple[str, str], float], dict[str, Any]]:
    """Fit posteriors over all parameters of one network, over subnetworks, and without correlations.

    Returns:
        Standard deviations by row and column; and the noise scale and prior precision of largest evidence, bands of
        the function along a line by row, and True if a selection warned of weights without curvature.
    """
    data, likelihood = osc.data.load(settings.data, validation_size=0), osc.likelihoods.Gaussian(SCALE)
    with seeded(seed):
        model = osc.networks.MLP(1, settings.hidden, 1, "relu")
    method = osc.methods.MAP(model, likelihood, settings.precision)
    train(method, data.train, epochs=settings.epochs, batch_size=BATCH_SIZE, lr=settings.lr, seed=seed)
    fit = osc.laplace(model, likelihood, data.train, structure="full", prior=settings.precision, refine=False)
    full = osc.maximise_evidence(fit)
    assert isinstance(full.likelihood, osc.likelihoods.Gaussian)
    shared: dict[str, Any] = {"likelihood": full.likelihood, "data": data.train, "prior": full.prior}
    precision = float(full.prior.precision)
    posteriors = {FULL: full, DIAGONAL: osc.laplace(model, structure="diag", **shared, refine=False)}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for select in settings.selections:
            for fraction in settings.fractions:
                subset = osc.Subnetwork(fraction, select, precision=precision, seed=seed)
                posteriors[share(select, fraction)] = osc.laplace(
                    model, structure="full", subset=subset, **shared, refine=False
                )
    x = data.train[0]
    line = torch.linspace(float(x.min()) - 0.3, float(x.max()) + 0.3, 161)[:, None]
    found: dict[tuple[str, str], float] = {}
    bands = {}
    for row, q in posteriors.items():
        apart, inside = (
            float(osc.functional_variance(q, places, diagonal=True).sqrt().mean()) for places in (between(x), x)
        )
        found[f"toy: {row}", KEPT] = apart / found.get((f"toy: {FULL}", BETWEEN), apart)
        found[f"toy: {row}", BETWEEN], found[f"toy: {row}", INSIDE] = apart, inside
        f = osc.predict(q, line, noise=False)
        band = {"x": line, "mean": f.mean, "sd": f.variance.sqrt()}
        bands[row] = {name: [round(value, 4) for value in v.flatten().tolist()] for name, v in band.items()}
    warned = any("zero curvature" in str(warning.message) for warning in caught)
    scale = float(full.likelihood.scale)
    return found, {"noise": scale, "precision": precision, "bands": bands, "warned": warned}


def between(x: Float[Tensor, "N 1"]) -> Float[Tensor, "M 1"]:
    """Return inputs within the two largest gaps of data, without a tenth of each gap on either side."""
    ordered = x.flatten().sort().values
    starts = ordered.diff().topk(2).indices
    parts = []
    for low, high in zip(ordered[starts].tolist(), ordered[starts + 1].tolist(), strict=True):
        margin = MARGIN * (high - low)
        parts.append(torch.linspace(low + margin, high - margin, POINTS))
    return torch.cat(parts)[:, None]


def images(settings: Images, runner: Runner, seed: int) -> dict[str, dict[str, Any]]:
    """Train one network to its mode, and others; score all posteriors at every level of the shift.

    Returns:
        "nll" and "accuracy" at each level by row; "images" with those of each image by row and column, as the mean
        over the levels (and kinds) of the column; and the "chosen" prior precisions by row.
    """
    source = settings.source
    train_size, validation_size = source.train_size, source.validation_size
    data = osc.data.load(source.data, train_size=train_size, validation_size=validation_size, seed=seed)
    sets = shifted(source, data, seed)
    laplace, posteriors = fitted(settings, data, seed, runner)
    chosen = {row: choose_prior(q, data, runner) for row, q in laplace.items()}
    scored: dict[str, dict[str, list[Tensor]]] = {"nll": {}, "accuracy": {}}
    for x, y in runner.track(sets, f"{source.title}: predictions"):
        for row, q in (posteriors | chosen).items():
            generator = torch.Generator().manual_seed(seed)
            probs = evaluation.probabilities(osc.predict(q, x, samples=settings.samples, generator=generator))
            for quantity, values in by_image(probs, y, ("nll", "accuracy")).items():
                over_kinds = values.double().unflatten(0, (-1, len(sets[0][1]))).mean(0)
                scored[quantity].setdefault(row, []).append(over_kinds)
    return {
        **{
            quantity: {row: [float(level.mean()) for level in levels] for row, levels in rows.items()}
            for quantity, rows in scored.items()
        },
        "images": {
            row: {
                column: torch.stack(scored[quantity][row])[levels].mean(0)
                for quantity, columns in source.scores.items()
                for column, levels in columns.items()
            }
            for row in scored["nll"]
        },
        "chosen": {row: float(q.prior.precision) for row, q in chosen.items()},
    }


def errors_over_images(settings: Images, runs: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Return the errors over test images of the first subnetwork beside all other rows, by their names."""
    found, ours, title = dict[str, float](), subnetwork(settings.fractions[0]), settings.source.title
    for quantity, columns in settings.source.scores.items():
        error = paired.ratio_error if quantity == "nll" else paired.difference_error
        for other, column in product(runs[0]["images"], columns):
            if other != ours:
                both = ([run["images"][row][column] for run in runs] for row in (ours, other))
                name = paired.beside(f"{title}: {ours}", f"{title}: {other}", column)
                found[name] = float(f"{error(*both):.3g}")
    return found


def averaged(runs: Sequence[Mapping[str, list[float]]]) -> dict[str, list[float]]:
    """Return the means over runs at each level, by row."""
    return {row: [sum(v) / len(v) for v in zip(*(run[row] for run in runs), strict=True)] for row in runs[0]}


def shifted(source: Source, data: osc.data.Dataset, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Return the test images at each level, with all kinds of corruption together."""
    x, y = data.test[0][: source.test_size], data.test[1][: source.test_size]
    if not source.kinds:
        return [(osc.data.rotated(x, level), y) for level in source.levels]
    generator = torch.Generator().manual_seed(seed)
    found = []
    for level in source.levels:
        kinds = source.kinds if level else source.kinds[:1]
        corrupted = torch.cat([osc.data.corrupted(x, kind, level, generator) for kind in kinds])
        found.append((corrupted, y.repeat(len(kinds))))
    return found


def fitted(
    settings: Images, data: osc.data.Dataset, seed: int, runner: Runner
) -> tuple[dict[str, osc.posteriors.Gaussian], dict[str, osc.posteriors.Posterior]]:
    """Return Laplace posteriors whose prior is still to be chosen, and all other posteriors."""
    networks, m = settings.networks, osc.methods
    likelihood, precision = osc.likelihoods.Categorical(), networks.precision
    with seeded(seed):
        models = [osc.networks.build(networks.network, data.input_shape, data.outputs) for _ in range(networks.members)]
        dropping = with_dropout(models[0], networks.dropout)
    run = partial(train, data=data.train, seed=seed, progress=runner.progress)
    adam = partial(run, epochs=networks.epochs, lr=networks.lr)
    ensemble = adam(m.DeepEnsemble(models, likelihood, precision))
    dropout = adam(m.MCDropout(dropping, likelihood, precision))
    mode = models[0].eval()
    swag = m.SWAG(copy.deepcopy(mode), likelihood, precision, burn_in=0.0)
    path = run(swag, epochs=2 * networks.epochs, lr=1e-2, optimizer="sgd", schedule="constant").posterior
    fit: dict[str, Any] = {"prior": precision, "progress": runner.progress}
    laplace = {
        subnetwork(f): osc.laplace(
            mode, likelihood, data.train, structure="full", subset=osc.Subnetwork(f, path), **fit, refine=False
        )
        for f in settings.fractions
    }
    laplace[DIAGONAL] = osc.laplace(mode, likelihood, data.train, structure="diag", **fit, refine=False)
    others = {ENSEMBLE: ensemble.posterior, DROPOUT: dropout.posterior, PATH: path}
    return laplace, {MODE: m.MAP(mode, likelihood, precision).result(), **others}


def with_dropout(model: nn.Module, probability: float) -> nn.Sequential:
    """Return a copy of a sequence of layers with dropout after each activation."""
    layers: list[nn.Module] = []
    for layer in copy.deepcopy(model).children():
        layers += [layer, nn.Dropout(probability)] if isinstance(layer, nn.ReLU) else [layer]
    return nn.Sequential(*layers)


def choose_prior(q: osc.posteriors.Gaussian, data: osc.data.Dataset, runner: Runner) -> osc.posteriors.Gaussian:
    """Return the posterior with the prior precision that the validation images choose, by the rule of ``osc.tune``.

    Images without shift hardly say how uncertain to be about shifted ones, and often prefer less uncertainty. The
    smallest of the precisions within one standard error of the best is taken.
    """
    with ignoring("on these held-out data no uncertainty is best"):
        return osc.tune(q, data.validation, temperature=False, progress=runner.progress)


def claims(table: Table, warned: Sequence[bool], settings: Settings) -> Iterator[Claim]:
    """Yield the claims that need words.

    Args:
        table: Values by row and column.
        warned: Warnings of weights without curvature, by run.
        settings: Settings of all three experiments.
    """
    rows = {name: f"toy: {name}" for name in (FULL, share("swag", TENTH), DIAGONAL)}
    apart = {
        name: table.mean(row, BETWEEN) / table.mean(row, INSIDE) for name, row in rows.items() if (row, INSIDE) in table
    }
    yield Claim.over_seeds(
        "subnetwork and diagonal over all weights",
        f"Standard deviation between the clusters over that on the data: {listed(apart, end='; ')}. At 1 the two "
        "are not told apart.",
    )
    yield Claim.over_seeds(
        "choice by the variances of a diagonal Laplace",
        "Dead and insensitive weights have no curvature, their variance is the prior's and the largest. A warning said "
        f"so in {sum(warned)} of {len(warned)} runs. The document takes SWAG's variances, where such weights do not "
        "move.",
    )
    for each in (settings.rotated, settings.corrupted):
        source = each.source
        yield Claim.over_seeds(
            f"{source.shift} images, NLL under shift",
            f"{source.train_size:,} images, {each.networks.network}; the prior precision of Laplace posteriors by "
            f"{source.validation_size} validation images without shift: the smallest within a standard error of the "
            "best NLL.",
        )


@measure.figure
def draw(record: Record) -> Any:
    """Draw bands on the toy, the share that each selection keeps of them, and scores against the shift."""
    from experiments.linlap import figures

    data, settings, found = record.findings.data, record.setup.settings, record.means
    fractions, selections = settings["toy"]["fractions"], settings["toy"]["selections"]
    kept = {select: [found[f"toy: {share(select, f)}", KEPT] for f in fractions] for select in selections}
    rows = {"all weights, full covariance": FULL, "all weights, diagonal": DIAGONAL}
    tenth = {"10 %, SWAG": "swag", "10 %, function space": "function_space", "10 %, random": "random"}
    rows |= {title: share(select, TENTH) for title, select in tenth.items()}
    bands = {title: data["bands"][row] for title, row in rows.items() if row in data["bands"]}
    return figures.subnetworks(bands, data["points"], (fractions, kept), data["shifts"])
