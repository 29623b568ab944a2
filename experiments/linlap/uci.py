"""UCI regression on standard and on gap splits: linearised Laplace beside sampled networks and the baselines.

A network is trained with the evidence on every split, and every way to predict from it is measured, each after the
number of steps that is best for it on held-out data.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from math import inf, log
from statistics import mean, median
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

import osculate as osc
from experiments import Claim, Findings, Record, Resumable, Runner, evaluation, experiment, ignoring, seeded, train
from experiments.record import Number, listed, word
from osculate.data.uci import NAMES

#: Number of splits of each set.
STANDARD = {**dict.fromkeys(NAMES, 20), "protein": 5}
GAP = dict(zip(NAMES, (13, 8, 8, 8, 16, 4, 9, 11, 6), strict=True))
#: Gap splits that are left out: of naval's inputs, 8 and 11 are constant, and most others grow with the position of the
#: lever, so that the gap has the rows of the first. Energy's first two have the same rows; published means count both.
REPEATED = {"naval": (*range(1, 7), *range(8, 14))}
#: Sets by size.
MEDIUM, LARGE = ("concrete", "wine"), ("kin8nm", "naval", "power", "protein")

MAP, FULL, KRON, DIAG = "MAP", "linearised, full", "linearised, kron", "linearised, diag"
OWN_KRON, OWN_DIAG = "kron, own evidence", "diag, own evidence"
SAMPLED, LAST, ENSEMBLE, DROPOUT = "sampled networks", "linearised, last layer", "deep ensemble", "MC dropout"
#: Those that predict from one mode, and all.
OF_ONE_MODE = (MAP, FULL, KRON, DIAG, OWN_KRON, OWN_DIAG, SAMPLED, LAST)
WAYS = (*OF_ONE_MODE, ENSEMBLE, DROPOUT)
#: Ways whose mean is not that of a network at its mode.
OTHER_MEANS = (SAMPLED, ENSEMBLE, DROPOUT)
GAMMA, SECONDS = "γ", "CPU seconds of a fit"
STEPS, STEPS_MAP, STEPS_ENSEMBLE = "steps", "steps of MAP", "steps of the ensemble"
#: Networks of a sampled predictive: with 100 its density is too low by up to tens of nats where they spread.
DRAWS = 2000

#: By set and column, one value a split.
Cells = dict[str, dict[str, list[float]]]


@dataclass(frozen=True)
class Splits:
    """The largest number of splits of a set, by its size.

    Args:
        small: Splits of boston, energy and yacht.
        medium: Splits of concrete and wine.
        large: Splits of kin8nm, naval, power and protein.
    """

    small: int
    medium: int
    large: int

    def of(self, name: str) -> int:
        """Return the number of splits of a set."""
        return self.large if name in LARGE else self.medium if name in MEDIUM else self.small


@dataclass(frozen=True)
class Steps:
    """Numbers of steps, of which held-out data choose one for each set and way to predict.

    Args:
        usual: Candidates of the small sets.
        large: Candidates of kin8nm, naval, power and protein.
        splits: Number of splits of each set on which a tenth of the training data is held out.
    """

    usual: tuple[int, ...] = (20, 60, 150)
    large: tuple[int, ...] = (20, 60)
    splits: int = 3

    def of(self, name: str) -> tuple[int, ...]:
        """Return the candidates of a set."""
        return self.large if name in LARGE else self.usual


@dataclass(frozen=True)
class Baseline:
    """Training of the deep ensemble and of MC dropout.

    Args:
        splits: Number of splits on which the baselines are measured.
        members: Networks in the deep ensemble.
        dropout: Probability of dropout before each layer of the network with ReLU.
        steps: Steps of Adam for the network with dropout.
        lr: Initial learning rate of Adam; it falls by a cosine.
        scales: Candidate noise scales of the standardised target; validation data choose one.
    """

    splits: Splits = Splits(3, 1, 0)
    members: int = 5
    dropout: float = 0.05
    steps: int = 1500
    lr: float = 1e-2
    scales: tuple[float, ...] = (0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.45, 0.7, 1.0)


@dataclass(frozen=True)
class Settings(Resumable):
    """The data sets, their splits, and the training.

    Args:
        sets: Names of the data sets; a set without predefined splits, such as diabetes, has a single one.
        splits: Number of splits of each set.
        hidden: Units of the one hidden layer, with tanh.
        steps: Steps of Levenberg–Marquardt.
        baseline: Deep ensemble and MC dropout.
    """

    sets: tuple[str, ...] = NAMES
    splits: Splits = Splits(20, 20, 20)
    hidden: int = 50
    steps: Steps = Steps()
    baseline: Baseline = Baseline()


PAPER = Settings(
    steps=Steps(large=(20, 60, 150), splits=20), baseline=Baseline(splits=Splits(20, 20, 20), steps=20_000)
)


def measure_cells(settings: Settings, splits: str, seeds: Sequence[int], runner: Runner) -> Cells:
    """Measure every way to predict on every "standard" or "gap" split."""
    found: Cells = {name: {} for name in settings.sets}
    steps: dict[tuple[str, int], dict[str, int]] = {}
    steps_of_ensemble: dict[tuple[str, int], int] = {}
    todo = [(name, split, seed) for seed in seeds for name in settings.sets for split in chosen(settings, splits, name)]
    for name, split, seed in runner.track(todo, f"{splits} splits"):
        if (name, seed) not in steps:
            steps[name, seed] = validated_steps(settings, OF_ONE_MODE, name, splits, seed, runner)
        numbers, where = steps[name, seed], (name, splits, split, seed)
        about: list[Any] = [numbers, settings.hidden]
        values = {STEPS: float(numbers[FULL]), STEPS_MAP: float(numbers[MAP])}
        values |= runner.cached("cell", where, about, partial(cell, settings, *where, numbers))
        if split in chosen(settings, splits, name)[: settings.baseline.splits.of(name)]:
            if (name, seed) not in steps_of_ensemble:
                best = validated_steps(settings, (ENSEMBLE,), name, splits, seed, runner)
                steps_of_ensemble[name, seed] = best[ENSEMBLE]
            number = steps_of_ensemble[name, seed]
            about += [number, *(value for key, value in asdict(settings.baseline).items() if key != "splits")]
            values |= {STEPS_ENSEMBLE: float(number)}
            values |= runner.cached("baselines", where, about, partial(baselines, settings, *where, number))
        for column, value in values.items():
            found[name].setdefault(column, []).append(value)
    return found


def chosen(settings: Settings, splits: str, name: str) -> list[int]:
    """Return the numbers of the splits of a set that are measured."""
    every = range((STANDARD if splits == "standard" else GAP).get(name, 1))
    skipped = REPEATED.get(name, ()) if splits == "gap" else ()
    return [split for split in every if split not in skipped][: settings.splits.of(name)]


def validated_steps(
    settings: Settings, ways: Sequence[str], name: str, splits: str, seed: int, runner: Runner
) -> dict[str, int]:
    """Return the number of steps at which each of these ways to predict is best on held-out training data."""
    candidates = settings.steps.of(name)
    if len(candidates) == 1:
        return dict.fromkeys(ways, candidates[0])
    kind, about = "validation", [*candidates, settings.hidden]
    if ENSEMBLE in ways:
        kind, about = "validation of ensembles", [*about, settings.baseline.members]
    total = {way: dict.fromkeys(candidates, 0.0) for way in ways}
    for split in chosen(settings, splits, name)[: settings.steps.splits]:
        where = (name, splits, split, seed)
        found = runner.cached(kind, where, about, partial(validation, settings, ways, *where))
        for way, steps in product(ways, candidates):
            total[way][steps] += found[after(way, steps)]
    return {way: max(each, key=each.__getitem__) for way, each in total.items()}


def after(way: str, steps: int) -> str:
    """Return the name of a way's score after these steps."""
    return f"{way}, {steps} steps"


def loaded(name: str, splits: str, split: int) -> osc.data.Dataset:
    """Load a data set in double precision."""
    data = osc.data.load(name, split=split, splits=splits if name in NAMES else "standard", validation_size=0)
    (x, y), (x_test, y_test) = data.train, data.test
    return replace(data, train=(x.double(), y.double()), test=(x_test.double(), y_test.double()))


def validation(
    settings: Settings, ways: Sequence[str], name: str, splits: str, split: int, seed: int
) -> dict[str, float]:
    """Return the log likelihood of a tenth of the training data, by way to predict and number of steps on the rest."""
    data, start = loaded(name, splits, split), start_of(split, seed)
    x, y = data.train
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(start))
    held, rest = order[: len(x) // 10], order[len(x) // 10 :]
    data, found = replace(data, train=(x[rest], y[rest]), test=(x[held], y[held])), dict[str, float]()
    for steps in settings.steps.of(name):
        if ENSEMBLE in ways:
            found[after(ENSEMBLE, steps)] = float(ensemble(settings, data, start, steps)[0].mean())
        if not (own := [way for way in ways if way in OF_ONE_MODE]):
            continue
        q, net, _ = fitted(settings, data, start, steps)
        with ignoring(evaluation.SAMPLED):
            for way, predictive in predictives(q, net, data, start, own):
                found[after(way, steps)] = predictive.log_prob(y[held]).mean().item()
    return found


def start_of(split: int, seed: int) -> int:
    """Return the seed of a split's trainings: splits repeat a measurement if nothing but data joins them."""
    return 10_000 * split + seed


def levenberg_marquardt(settings: Settings, x: Tensor, seed: int) -> osc.methods.LevenbergMarquardt:
    """Return the method with a network at its initial weights."""
    with seeded(seed):
        model = osc.networks.MLP(x.shape[1], (settings.hidden,), 1).double()
    return osc.methods.LevenbergMarquardt(model, osc.likelihoods.Gaussian(1.0))


def fitted(
    settings: Settings, data: osc.data.Dataset, seed: int, steps: int
) -> tuple[osc.posteriors.Gaussian, nn.Module, float]:
    """Return the posterior at the mode with the hyperparameters of largest evidence, the network, and γ."""
    method = levenberg_marquardt(settings, data.train[0], seed)
    done = train(method, data.train, epochs=steps)
    return done.posterior, method.model, float(done.history[-1]["gamma"])


def cell(
    settings: Settings, name: str, splits: str, split: int, seed: int, steps: Mapping[str, int]
) -> dict[str, float]:
    """Measure every way to predict from one mode, each after its own number of steps."""
    data, start, result = loaded(name, splits, split), start_of(split, seed), dict[str, float]()
    for number in sorted(set(steps.values())):
        started = time.process_time()
        q, net, gamma = fitted(settings, data, start, number)
        if number == steps[FULL]:
            result |= {GAMMA: gamma, SECONDS: time.process_time() - started}
        ways = [way for way, own in steps.items() if own == number]
        with ignoring(evaluation.SAMPLED):
            for way, predictive in predictives(q, net, data, start, ways):
                result |= scored(data, way, predictive.log_prob(data.test[1]), predictive.mean)
    return result


def scored(data: osc.data.Dataset, way: str, log_likelihood: Tensor, centre: Tensor) -> dict[str, float]:
    """Return log likelihood per point and root mean square error in original units, from those of each target."""
    assert data.target_scale is not None
    error = (centre - data.test[1]).square().mean().sqrt().item() * float(data.target_scale)
    return {way: data.log_likelihood_in_original_units(log_likelihood.mean().item()), rmse(way): error}


def rmse(way: str) -> str:
    """Return the column of an error."""
    return f"RMSE, {way}"


def predictives(
    q: osc.posteriors.Gaussian, net: nn.Module, data: osc.data.Dataset, seed: int, ways: Sequence[str]
) -> Iterator[tuple[str, Distribution]]:
    """Predict in these ways, with the precisions and the noise of the full posterior except where named "own"."""
    x = data.test[0]

    @torch.no_grad()
    def mode() -> Distribution:
        return q.likelihood.distribution(net(x))

    def sampled() -> Distribution:
        generator = torch.Generator().manual_seed(seed)
        return osc.predict(q, x, via="sampled", samples=DRAWS, generator=generator)

    def approximate(structure: str) -> osc.posteriors.Gaussian:
        return osc.laplace(net, q.likelihood, data.train, structure=structure, prior=q.prior, refine=False)

    def head() -> Distribution:
        names = list(q.network.space.names)
        prior = osc.priors.Layerwise({name: float(q.prior.precision[names.index(name)]) for name in names[2:]})
        full: dict[str, Any] = {"structure": "full", "subset": "last_layer", "refine": False}
        return osc.predict(osc.laplace(net, q.likelihood, data.train, prior=prior, **full), x)

    predicted: dict[str, Callable[[], Distribution]] = {
        MAP: mode,
        FULL: lambda: osc.predict(q, x),
        KRON: lambda: osc.predict(approximate("kron"), x),
        DIAG: lambda: osc.predict(approximate("diag"), x),
        OWN_KRON: lambda: osc.predict(osc.maximise_evidence(approximate("kron")), x),
        OWN_DIAG: lambda: osc.predict(osc.maximise_evidence(approximate("diag")), x),
        SAMPLED: sampled,
        LAST: head,
    }
    for way in ways:
        yield way, predicted[way]()


def baselines(settings: Settings, name: str, splits: str, split: int, seed: int, steps: int) -> dict[str, float]:
    """Measure a deep ensemble after this number of steps, and MC dropout."""
    data, start = loaded(name, splits, split), start_of(split, seed)
    return scored(data, ENSEMBLE, *ensemble(settings, data, start, steps)) | dropout(settings.baseline, data, start)


def ensemble(settings: Settings, data: osc.data.Dataset, seed: int, steps: int) -> tuple[Tensor, Tensor]:
    """Return the log density of each target by an ensemble with a noise for each member, and its mean prediction."""
    members = []
    for number in range(settings.baseline.members):
        q, net, _ = fitted(settings, data, seed + 1000 * number, steps)
        with torch.no_grad():
            members.append(q.likelihood.distribution(net(data.test[0])))
    logs = torch.stack([member.log_prob(data.test[1]) for member in members]).logsumexp(0) - log(len(members))
    return logs, torch.stack([member.mean for member in members]).mean(0)


def dropout(settings: Baseline, data: osc.data.Dataset, seed: int) -> dict[str, float]:
    """Choose the noise of a network with dropout on a tenth of the data, train it on all, and measure it."""
    (x, y), (x_test, y_test) = ((x.float(), y.float()) for x, y in (data.train, data.test))
    held = len(x) // 10  # the rows are in random order

    def trained(x: Tensor, y: Tensor, scale: float) -> nn.Module:
        p, batch = settings.dropout, 128
        with seeded(seed):
            layers = (nn.Dropout(p), nn.Linear(x.shape[1], 50), nn.ReLU(), nn.Dropout(p), nn.Linear(50, 1))
            method = osc.methods.MCDropout(nn.Sequential(*layers), osc.likelihoods.Gaussian(scale))
        epochs = max(1, round(settings.steps / -(-len(x) // batch)))
        return train(method, (x, y), epochs=epochs, batch_size=batch, lr=settings.lr, seed=seed).posterior.model

    def mixture(model: nn.Module, scale: float, x: Tensor) -> Distribution:
        generator = torch.Generator().manual_seed(seed)
        q = osc.posteriors.Dropout(model, osc.likelihoods.Gaussian(scale))
        return osc.predict(q, x, samples=100, generator=generator)

    first = trained(x[held:], y[held:], settings.scales[len(settings.scales) // 2])
    held_out = {scale: mixture(first, scale, x[:held]).log_prob(y[:held]).mean().item() for scale in settings.scales}
    best = max(held_out, key=held_out.__getitem__)
    found = mixture(trained(x, y, best), best, x_test)
    return scored(replace(data, test=(x_test, y_test)), DROPOUT, found.log_prob(y_test), found.mean)


DOCUMENT = "Linearised Laplace tutorial, section 4 [foong2019]"
#: By way to predict and set, test log likelihoods that others published.
Published = Mapping[str, Mapping[str, float]]


#: Networks with 50 ReLU units on the standard splits [nado2021]: one network, an ensemble of ten, and dropout.
PUBLISHED = {
    MAP: dict(zip(NAMES, (-16.1, -3.94, -1.29, 1.06, 5.06, -3.28, -3.16, -1.05, -1.89), strict=True)),
    ENSEMBLE: dict(zip(NAMES, (-6.11, -3.20, -0.61, 1.17, 5.17, -3.18, -3.12, -0.97, -0.73), strict=True)),
    DROPOUT: dict(zip(NAMES, (-2.40, -2.93, -1.21, 1.14, 4.45, -2.80, -2.87, -0.93, -1.25), strict=True)),
}
GAP_SETS = ("boston", "concrete", "energy", "kin8nm", "power", "wine", "yacht")
#: Networks that predict their noise on gap splits made by the same rule (not naval and protein).
GAP_PUBLISHED = {
    DROPOUT: dict(zip(GAP_SETS, (-2.51, -3.44, -7.9, 1.10, -2.92, -0.96, -2.57), strict=True)),
    ENSEMBLE: dict(zip(GAP_SETS, (-2.69, -3.36, -16.5, 1.21, -2.87, -1.03, -1.58), strict=True)),
    MAP: {"energy": -266.0},
}


def table(found: Cells, published: Published) -> tuple[Number, ...]:
    """Return a row of log likelihoods for each set, with published numbers in brackets, and a row of errors."""
    numbers = []
    for name, columns in found.items():
        likelihood, error = f"{name}, log likelihood", f"{name}, RMSE"
        for way in WAYS:
            printed = published.get(way, {}).get(name)
            text = "" if printed is None else f"{printed:g}"
            numbers.append(Number(likelihood, way, tuple(columns.get(way, ())), text))
            if way in (MAP, FULL, *OTHER_MEANS):
                numbers.append(Number(error, way, tuple(columns.get(rmse(way), ()))))
        for label, column in (("splits", MAP), ("… of the baselines", DROPOUT)):
            numbers.append(Number(likelihood, label, (float(len(columns.get(column, ()))),)))
        others = (GAMMA, STEPS, STEPS_MAP, STEPS_ENSEMBLE, SECONDS)
        numbers += [Number(likelihood, column, tuple(columns.get(column, ()))) for column in others]
    return tuple(numbers)


def differences(found: Cells, name: str, way: str, other: str) -> list[float]:
    """Return the differences between two ways on the splits that have both."""
    columns = found.get(name, {})
    return [a - b for a, b in zip(columns.get(way, ()), columns.get(other, ()), strict=False)]


def worse_on(found: Cells, way: str, other: str) -> str:
    """Return the sets on which a way is worse than another one in the mean over splits that have both, in words."""
    apart = {name: mean(values) for name in found if (values := differences(found, name, way, other))}
    return ", ".join(f"{name} (by {-value:.2g})" for name, value in apart.items() if value < 0) or "no set"


def behind(found: Cells, published: Published) -> str:
    """Return the sets on which the best published number exceeds the full linearised Laplace, in words."""
    ours = {name: mean(columns[FULL]) for name, columns in found.items() if columns.get(FULL)}
    best = {name: max([by[name] for by in published.values() if name in by], default=-inf) for name in ours}
    return ", ".join(name for name, value in ours.items() if value < best[name]) or "no set"


def claims(found: Cells) -> Iterator[Claim]:
    """Yield the claims that need words, about the standard splits."""
    yield Claim.over_seeds("linearised and sampled networks", f"{DRAWS:,} networks are sampled from one Gaussian.")
    yield Claim.over_seeds(
        "linearised Laplace on the standard splits",
        f"It is worse than MAP on {worse_on(found, FULL, MAP)}; MAP is worse than sampled networks on "
        f"{worse_on(found, MAP, SAMPLED)}.",
    )
    yield Claim.over_seeds(
        "published results",
        f"Behind the best of one network, an ensemble of ten and MC dropout on {behind(found, PUBLISHED)}. Theirs have "
        "ReLU units and their own selection of hyperparameters. On the few splits that have both, MC dropout as "
        f"trained here is ahead of it on {worse_on(found, FULL, DROPOUT)}.",
    )
    yield Claim.over_seeds(
        "full covariance and its approximations",
        "Each after its own number of steps, with the hyperparameters of the full posterior there, it is worse than "
        f"kron on {worse_on(found, FULL, KRON)} and than diag on {worse_on(found, FULL, DIAG)}. Columns with their own "
        "evidence have prior precisions and noise tuned for the approximation, as osc.laplace does by default.",
    )


def gap_claims(found: Cells) -> Iterator[Claim]:
    """Yield the claims that need words, about the gap splits."""

    def middle(name: str, other: str) -> str:
        values = differences(found, name, FULL, other)
        return word(median(values) if values else None)

    for name in ("yacht", "boston"):
        yield Claim.over_seeds(
            f"linearised Laplace and MAP on {name}",
            f"Median over gaps: {middle(name, MAP)}, each after the steps that held-out data like best.",
        )
    yield Claim.over_seeds(
        "full covariance and the diagonal",
        "Medians over gaps, each after its own number of steps and with the hyperparameters of the full posterior "
        f"there: yacht {middle('yacht', DIAG)}, boston {middle('boston', DIAG)}.",
    )
    energies = listed(found.get("energy", {}).get(FULL, ()), ".1f")
    yield Claim.over_seeds(
        "catastrophes on energy and naval",
        f"On energy, by gap: {energies or 'not measured'} (the first two leave out the same rows, and published means "
        "count both). Where it fails it is certain in a place without data, and broader predictives win.",
    )
    yield Claim.over_seeds(
        "published results",
        f"Behind the better of MC dropout and deep ensembles on {behind(found, GAP_PUBLISHED)}. Their networks have "
        "ReLU units and predict their own noise.",
    )


def draw(record: Record, heading: str, published: Published) -> Any:
    """Draw log likelihoods of all ways on all sets, with published numbers as hollow dots."""
    from experiments import figures

    values: dict[str, dict[str, tuple[float, float]]] = {}
    for number in record.findings.numbers:
        name, _, quantity = number.row.partition(", ")
        if quantity == "log likelihood" and number.column in WAYS and number.mean is not None:
            values.setdefault(name, {})[number.column] = number.pair
    others = {name: {way: by[name] for way, by in published.items() if name in by} for name in values}
    return figures.dots(values, "test log likelihood, nats per point", heading, others)


def register(
    name: str, splits: str, judge: Callable[[Cells], Iterator[Claim]], published: Published, heading: str
) -> None:
    """Register the experiment on the "standard" or "gap" splits."""
    title = f"UCI regression, {splits} splits: log likelihood and error in original units"

    @experiment(name, f"{title} (in brackets: published by others)", DOCUMENT, paper=PAPER)
    def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
        found = measure_cells(settings, splits, seeds, runner)
        return Findings(table(found, published), judge(found), {"cells": found})

    measure.figure(partial(draw, heading=heading, published=published))


HEADINGS = (
    "UCI, standard splits: one network and the ways to predict from it (baselines on fewer splits; hollow: published)",
    "UCI, gap splits: does the predictive know where it has no data? (baselines on fewer splits; hollow: published)",
)
register("linlap-uci", "standard", claims, PUBLISHED, HEADINGS[0])
register("linlap-uci-gap", "gap", gap_claims, GAP_PUBLISHED, HEADINGS[1])
