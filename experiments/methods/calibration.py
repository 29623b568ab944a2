"""Calibration without held-out data: ``osc.laplace`` beside the network, other posteriors and an ensemble."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import product
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor, nn

import osculate as osc
from experiments import Claim, Findings, Record, Resumable, Runner, Table, experiment, listed, seeded, train
from experiments.evaluation import (
    COVERAGE,
    LIMIT,
    LOG_LIKELIHOOD,
    RMSE,
    class_probabilities,
    entropy,
    logs,
    of_numbers,
)
from experiments.methods.calibration_choice import STILL
from experiments.methods.networks import TEST, Task, batch, limited, outside
from osculate.curvature.linearisation import Linearisation
from osculate.data import Dataset
from osculate.data.dataset import Part
from osculate.data.loading import SPLITS
from osculate.evidence import refine

CATEGORICAL = osc.likelihoods.Categorical()
#: Noise scale in the training of a regression, in standard deviations of the targets.
NOISE = 0.3
NLL, ECE, ACCURACY, AUROC, SECONDS = "NLL, nats", "ECE", "accuracy, %", "AUROC", "fit or training, s"
APART = "NLL, nats, less that of the network"
HIGHER = "log likelihood, nats, less that of the network"
NETWORK, DEFAULT, LAPLACE, ENSEMBLE = "network", "osc.laplace", "osc.laplace, refine=False", "ensemble of five"
MEMBERS, DRAWS = 5, 30
#: Data in a product with the Jacobian.
ROWS = 500
#: Temperature of variational methods, the default of the command line.
COLD = 0.1
SMALL: Mapping[str, Any] = {"hidden": (50,), "activation": "tanh"}

IMAGES = (
    Task("mnist", "mlp", "MAP", 1_000, 500, epochs=30, options={"hidden": (100,)}),
    Task("mnist", "lenet", "AdamW", 3_000, 1_000, epochs=25, lr=2e-3),
    Task("mnist", "mlp", "SGD", 3_000, 1_000, epochs=40, lr=0.02, options={"hidden": (100, 100)}),
    Task("mnist", "lenet", "MAP", 12_000, 2_000, epochs=12, prior=10.0),
    Task("fashion_mnist", "cnn", "AdamW", 6_000, 1_000, stopped=True, epochs=15),
    Task(
        "fashion_mnist", "vit", "AdamW", 2_000, 1_000, epochs=25, lr=1e-3, options={"width": 32, "depth": 2, "heads": 4}
    ),
    Task("fashion_mnist", "mlp", "AdamW", 12_000, 2_000, stopped=True, epochs=15, lr=1e-3, options={"hidden": (100,)}),
    Task("kmnist", "mlp", "MAP", 6_000, 1_000, epochs=20, prior=10.0, options={"hidden": (100, 100)}),
    Task("kmnist", "cnn", "SGD", 1_500, 500, epochs=30, lr=0.02),
    Task("cifar10", "cnn", "AdamW", 4_000, 1_000, stopped=True, epochs=20),
)
VECTORS = tuple(
    Task(data, "mlp", training, stopped=stopped, epochs=60, lr=1e-2, options=SMALL)
    for data, training, stopped in (
        ("australian", "MAP", False),
        ("banana", "AdamW", False),
        ("breast_cancer", "MAP", False),
        ("glass", "AdamW", True),
        ("ionosphere", "AdamW", False),
        ("satellite", "AdamW", True),
        ("vehicle", "MAP", False),
        ("waveform", "MAP", False),
    )
)
CURVES = tuple(
    Task(data, "mlp", training, size, epochs=100 if size is None else 40, lr=1e-2, options=SMALL)
    for data, training, size in (
        ("boston", "MAP", None),
        ("kin8nm", "AdamW", 3_000),
        ("naval", "MAP", 3_000),
        ("power", "AdamW", 3_000),
        ("protein", "MAP", 3_000),
        ("wine", "AdamW", None),
        ("yacht", "MAP", None),
    )
)
TASKS = {task.label: task for task in (*IMAGES, *VECTORS, *CURVES)}
#: First split of sets whose split 0 was seen before the rules of `osc.laplace` and `osc.tune` were fixed.
FIRST = {"boston": 1, "glass": 1, "yacht": 1}


@dataclass(frozen=True)
class Settings(Resumable):
    """The cells.

    Args:
        tasks: Labels of the tasks; all if there are none.
        methods: Names of the methods; all if there are none.
        test: Number of test data that are predicted at most.
    """

    tasks: tuple[str, ...] = ()
    methods: tuple[str, ...] = ()
    test: int = TEST


@dataclass(frozen=True, eq=False)
class Trial:
    """A trained network with its data."""

    task: Task
    dataset: Dataset
    likelihood: Any
    network: nn.Module
    seed: int
    runner: Runner

    @staticmethod
    @lru_cache(maxsize=1)
    def of(runner: Runner, label: str, seed: int) -> "Trial":
        """Return the network of a task and seed, trained or from the cache; the last one is kept."""
        task = TASKS[label]
        dataset = task.load(seed)
        likelihood = CATEGORICAL if dataset.classes is not None else osc.likelihoods.Gaussian(NOISE)
        return Trial(task, dataset, likelihood, task.trained(runner, dataset, likelihood, seed), seed, runner)

    def alone(self) -> osc.posteriors.Point:
        """Return the network; that of a regression has the noise of its error on the validation part."""
        return osc.posteriors.Point(self.network, self._with_noise())

    def _with_noise(self) -> Any:
        if self.dataset.classes is not None:
            return self.likelihood
        x, y = self.dataset.validation
        with torch.no_grad():
            return osc.likelihoods.Gaussian(float((self.network(x) - y).square().mean().sqrt()))

    def laplace(self, **options: Any) -> osc.posteriors.Gaussian:
        """Return the posterior of all weights, refined unless the options say otherwise."""
        return osc.laplace(self.network, self.likelihood, self.dataset.train, **options)

    def mean_fixed(self) -> osc.posteriors.Gaussian:
        """Return the posterior with averaged curvature around the network."""
        return refine(self.laplace(refine=False), trust=STILL)

    def trained(self, kind: Any, network: nn.Module | None = None, **options: Any) -> osc.posteriors.Posterior:
        """Train a method, from fresh weights unless a network is given."""
        fresh = self.task.network(self.dataset, 100 * self.seed) if network is None else network
        settings = {"epochs": self.task.epochs, "batch_size": batch(self.dataset), "seed": self.seed}
        settings |= {name: options.pop(name) for name in ("lr", "optimizer", "schedule") if name in options}
        return train(kind(fresh, self.likelihood, **options), self.dataset.train, **settings).posterior

    def cold(self, kind: Any, lr: float) -> osc.posteriors.Posterior:
        """Train a variational method, with the prior of the network."""
        return self.trained(kind, prior=self.task.prior, temperature=COLD, lr=lr)

    def swag(self) -> osc.posteriors.Posterior:
        """Return the Gaussian of the iterates of SGD from the trained network on."""
        model = deepcopy(self.network).train()
        kind = osc.methods.SWAG
        return self.trained(kind, model, prior=self.task.prior, lr=0.01, optimizer="sgd", schedule="constant")

    def scaled(self) -> osc.posteriors.Posterior:
        """Return the network with the temperature of lowest loss on the validation part."""
        return train(osc.methods.TemperatureScaling(self.network, self.likelihood), self.dataset.validation).posterior

    def ensemble(self) -> osc.posteriors.Posterior:
        """Return five networks that are trained like the first, with its noise."""
        args = self.runner, self.dataset, self.likelihood, self.seed
        return osc.posteriors.Ensemble([self.task.trained(*args, n) for n in range(MEMBERS)], self._with_noise())

    def sandwich(self) -> "Sandwich":
        """Return the frequentist covariance around the network."""
        return Sandwich.of(self.laplace(refine=False), self.dataset.train, self.seed)


@dataclass(frozen=True, eq=False)
class Sandwich:
    """Draws with covariance Λ⁻¹ (Σ g gᵀ) Λ⁻¹ around a network, g the gradient of a datum: δ = Λ⁻¹ Σ ±g."""

    q: osc.posteriors.Gaussian
    draws: Tensor

    @classmethod
    def of(cls, q: osc.posteriors.Gaussian, data: Part, seed: int) -> "Sandwich":
        """Draw with random signs, which give exactly that covariance."""
        x, y = data
        generator, draws = torch.Generator().manual_seed(seed), torch.zeros(DRAWS, len(q.mean))
        for rows in torch.arange(len(x)).split(ROWS):
            at = Linearisation(q.network, x[rows])
            signs = torch.randint(2, (DRAWS, len(rows), 1), generator=generator) * 2 - 1
            draws += at.vjp(signs * CATEGORICAL.score(at.f, y[rows]))
        return cls(q, q.precision.solve(draws))

    def probabilities(self, x: Tensor) -> Tensor:
        """Return the class probabilities of the linear model, averaged over the draws."""
        found = []
        for part in x.split(ROWS):
            at = Linearisation(self.q.network, part)
            found.append((at.f + at.jvp(self.draws)).softmax(-1).mean(0).detach())
        return torch.cat(found)


METHODS: Mapping[str, Callable[[Trial], Any]] = {
    NETWORK: Trial.alone,
    DEFAULT: Trial.laplace,
    LAPLACE: partial(Trial.laplace, refine=False),
    "osc.laplace, last layer": partial(Trial.laplace, subset="last_layer"),
    "osc.laplace, last layer, refine=False": partial(Trial.laplace, subset="last_layer", refine=False),
    "mean fixed, curvature averaged": Trial.mean_fixed,
    "osc.laplace(validation=)": lambda t: t.laplace(validation=t.dataset.validation),
    "refine=False, tuned on held-out data": lambda t: osc.tune(t.laplace(refine=False), t.dataset.validation),
    "temperature scaling": Trial.scaled,
    "sandwich covariance": Trial.sandwich,
    "VariationalLaplace": lambda t: t.cold(osc.methods.VariationalLaplace, lr=t.task.lr),
    "IVON": lambda t: t.cold(osc.methods.IVON, lr=0.3),
    "SWAG": Trial.swag,
    ENSEMBLE: Trial.ensemble,
    "osc.laplace, full": partial(Trial.laplace, structure="full"),
}
#: Methods that have no sense where the noise is learned, or that need logits.
OF_CLASSES = (
    "temperature scaling",
    "VariationalLaplace",
    "IVON",
    "SWAG",
    "mean fixed, curvature averaged",
    "sandwich covariance",
)
#: Methods that are too large for images.
OF_CURVES = ("osc.laplace, full",)
#: Networks of convolutions and attention, and methods that take long for them, which are not run there.
HEAVY = ("cnn", "vit")
SLOW = (
    "sandwich covariance",
    "VariationalLaplace",
    "osc.laplace(validation=)",
    "refine=False, tuned on held-out data",
)


@experiment(
    "calibration",
    "Calibration without held-out data: osc.laplace beside its network",
    "No document: eighteen classifiers and seven regressions, other networks than those that the rule was chosen on",
    paper=Settings(test=10_000),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Score every method on the test part of every task."""
    jobs = [
        (label, name, seed + FIRST.get(TASKS[label].data, 0))
        for label, seed, name in product(settings.tasks or TASKS, seeds, settings.methods or METHODS)
        if name not in (OF_CURVES if TASKS[label] not in CURVES else OF_CLASSES)
        and not (name in SLOW and TASKS[label].model in HEAVY)
    ]
    each = runner.over(
        "networks and methods",
        jobs,
        lambda label, name, seed: scored(runner, label, name, seed, settings.test),
        "calibration",
        [settings.test],
    )
    runs = {label: {name: found for (of, name), found in each.items() if of == label} for label, _ in each}
    table = Table()
    for label, methods in runs.items():
        for name, found in methods.items():
            for values in found:
                table.add(f"{label}: {name}", {key: value for key, value in values.items() if "error" not in key})
    summarise(table, runs)
    return Findings(table.numbers(), claims(runs), {"runs": runs})


def summarise(table: Table, runs: "Runs") -> None:
    """Add a row for each method with its differences to the network: one value a task, or for AUROC one a pair."""
    kinds = {"classifiers": (NLL, (NLL, ECE, AUROC, ACCURACY)), "regressions": (LOG_LIKELIHOOD, (LOG_LIKELIHOOD, RMSE))}
    for kind, (first, columns) in kinds.items():
        chosen = {label: methods for label, methods in runs.items() if first in next(iter(methods.values()))[0]}
        names = {name for methods in chosen.values() for name in methods}
        for name in [name for name in METHODS if name in names and all(NETWORK in each for each in chosen.values())]:
            for column in columns if name != NETWORK else ():
                for values in differences(chosen, name, column).values():
                    table.add(f"{kind}: {name}", {f"{column}, less the network's": mean(values)})
            for methods in chosen.values() if kind == "regressions" else ():
                table.add(f"{kind}: {name}", {COVERAGE: mean(run[COVERAGE] for run in methods[name])})


def scored(runner: Runner, label: str, name: str, seed: int, test: int) -> dict[str, float]:
    """Return the scores of a method for one network."""
    trial = Trial.of(runner, label, seed)
    start, before = time.process_time(), runner.seconds
    with seeded(seed):
        made = METHODS[name](trial)
    seconds = runner.seconds - before if name == ENSEMBLE else time.process_time() - start
    scores = classified(trial, made, test) if trial.dataset.classes is not None else regressed(trial, made)
    return {**scores, SECONDS: seconds}


def classified(trial: Trial, made: Any, test: int) -> dict[str, float]:
    """Return the scores of a classifier."""
    (x, y), far = limited(trial.dataset.test, test), outside(trial.dataset, trial.seed)
    rows = torch.arange(len(y))
    options: dict[str, Any] = {"samples": DRAWS} if isinstance(made, osc.posteriors.Snapshots) else {}

    def predicted(x: Tensor) -> Tensor:
        return made.probabilities(x) if isinstance(made, Sandwich) else class_probabilities(made, x, **options)

    with seeded(trial.seed):
        probs, other = predicted(x), {name: predicted(images) for name, images in far.items()}
    apart = (logs(class_probabilities(trial.alone(), x)) - logs(probs))[rows, y].double()
    return {
        NLL: osc.metrics.nll(logs(probs), y),
        APART: float(apart.mean()),
        f"{APART}, standard error": float(apart.std()) / len(y) ** 0.5,
        ECE: osc.metrics.ece(probs, y),
        ACCURACY: 100 * osc.metrics.accuracy(probs, y),
        **{f"{AUROC}, {name}": osc.metrics.auroc(entropy(probs), entropy(each)) for name, each in other.items()},
    }


def regressed(trial: Trial, made: Any) -> dict[str, float]:
    """Return the scores of a regression."""
    x, y = trial.dataset.test
    apart = (osc.predict(made, x).log_prob(y) - osc.predict(trial.alone(), x).log_prob(y)).double().reshape(-1)
    return {
        **of_numbers(made, trial.dataset.test),
        HIGHER: float(apart.mean()),
        f"{HIGHER}, standard error": float(apart.std()) / len(apart) ** 0.5,
    }


#: Scores of every run, by task and method.
Runs = Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]


def differences(runs: Runs, name: str, column: str) -> dict[str, list[float]]:
    """Return the differences of a method to the network, by task and seed; AUROCs by task and pair of data sets."""
    found: dict[str, list[float]] = {}
    for label, methods in runs.items():
        for key in methods.get(name, [{}])[0]:
            if key == column or (column == AUROC and key.startswith(AUROC)):
                pairs = zip(methods[name], methods[NETWORK], strict=True)
                found[f"{label}{key.removeprefix(column)}"] = [own[key] - other[key] for own, other in pairs]
    return found


def limits(runs: Runs) -> dict[str, tuple[float, float]]:
    """Return by task the default's NLL less the network's, and its upper 95 % limit.

    The limit is by the errors over test data and over seeds together. Seeds that share their test data share its error;
    those with splits of their own show it among their differences.
    """
    found = {}
    for label, methods in runs.items():
        each = methods[DEFAULT]
        apart, errors = [run[APART] for run in each], [run[f"{APART}, standard error"] for run in each]
        between = stdev(apart) / len(apart) ** 0.5 if len(apart) > 1 else 0.0
        if TASKS[label].data in SPLITS:
            error = max(math.hypot(*errors) / len(each), between)
        else:
            error = math.hypot(mean(errors), between)
        found[label] = mean(apart), mean(apart) + LIMIT * error
    return found


def cost(runs: Runs, name: str) -> float:
    """Return the seconds of a method, averaged over tasks and seeds; for an ensemble those of its training."""
    return mean(mean(run[SECONDS] for run in methods[name]) for methods in runs.values())


def claims(runs: Runs) -> Iterator[Claim]:
    """Yield the claims on the default, nothing held out, that need words."""
    if any({NETWORK, DEFAULT, ENSEMBLE} - set(methods) for methods in runs.values()):
        return  # not all methods were measured
    classes = {label: methods for label, methods in runs.items() if NLL in methods[NETWORK][0]}
    if classes:
        yield from _claims_of_classes(classes)
    higher = [mean(values) > 0 for values in differences(runs, DEFAULT, HIGHER).values()]
    if higher:
        yield Claim.over_seeds(
            "log likelihood of regressions", f"Above the network's in {sum(higher)} of {len(higher)}."
        )


def _claims_of_classes(runs: Runs) -> Iterator[Claim]:
    nll = limits(runs)
    above = {label: values for label, values in nll.items() if values[1] > 0.02}
    yield Claim.over_seeds(
        "upper limit of the NLL, by task",
        f"{len(nll) - len(above)} of {len(nll)}. Above, mean and 95 % limit: {listed(above, '+.3f', '; ') or 'none'}.",
    )
    accuracy = min(map(mean, differences(runs, DEFAULT, ACCURACY).values()))
    yield Claim.over_seeds("accuracy of classifiers", f"{accuracy:+.2f} points in the worst task.")
    auroc = [mean(values) for values in differences(runs, DEFAULT, AUROC).values()]
    if auroc:
        lower = sum(value < 0 for value in auroc)
        yield Claim.over_seeds(
            "AUROC of classifiers", f"Lower in {lower} of {len(auroc)} pairs, {min(auroc):+.3f} at worst."
        )
    yield Claim.over_seeds(
        "NLL beside an ensemble of five",
        f"{cost(runs, DEFAULT):.0f} s of fitting against {cost(runs, ENSEMBLE):.0f} s of training on average.",
    )


@measure.figure
def draw(record: Record) -> Any:
    """Differences to the network by method: NLL, ECE and AUROC, averaged over tasks."""
    from experiments.figures import beside_network

    runs = {k: v for k, v in record.findings.data["runs"].items() if NLL in v[NETWORK][0]}
    names = [name for name in next(iter(runs.values())) if name != NETWORK]
    columns = [column for column in (NLL, ECE, AUROC) if differences(runs, DEFAULT, column)]
    values = {name: {c: [mean(d) for d in differences(runs, name, c).values()] for c in columns} for name in names}
    heading = "Posteriors beside their networks, by task; scaling, tuning and validation= use held-out data"
    return beside_network(values, DEFAULT, heading, ", less the network's")
