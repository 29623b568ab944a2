"""Calibration without held-out data: ``osc.laplace`` beside the network, other posteriors and an ensemble."""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import product
from statistics import mean, stdev
from typing import Any

import torch
from torch import Tensor, nn

import osculate as osc
from experiments import Claim, Findings, Record, Resumable, Runner, Table, experiment, listed, seeded, train
from experiments.evaluation import class_probabilities, entropy, logs
from experiments.methods.calibration_choice import STILL
from experiments.methods.networks import TEST, Task, batch, limited, outside
from osculate.curvature.linearisation import Linearisation
from osculate.data import Dataset
from osculate.evidence import refine

CATEGORICAL = osc.likelihoods.Categorical()
#: Noise scale in the training of a regression, in standard deviations of the targets.
NOISE = 0.3
NLL, ECE, ACCURACY, AUROC, SECONDS = "NLL, nats", "ECE", "accuracy, %", "AUROC", "CPU s"
APART = "NLL, nats, less that of the network"
LOG_LIKELIHOOD, RMSE, COVERAGE = "log likelihood, nats", "RMSE", "coverage of 95 % intervals"
HIGHER = "log likelihood, nats, less that of the network"
NETWORK, DEFAULT, LAPLACE, ENSEMBLE = "network", "osc.laplace", "osc.laplace, refine=False", "ensemble of five"
MEMBERS, DRAWS = 5, 30
#: Temperature of variational methods, the default of the command line.
COLD = 0.1
#: Standard errors of a limit of 95 %.
LIMIT = 1.96
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


@dataclass(frozen=True)
class Settings(Resumable):
    """The networks.

    Args:
        tasks: Labels of the tasks; all if there are none.
        test: Number of test data that are predicted at most.
    """

    tasks: tuple[str, ...] = ()
    test: int = TEST


@dataclass(frozen=True, eq=False)
class Trial:
    """A trained network with its data and its posteriors."""

    task: Task
    dataset: Dataset
    likelihood: Any
    network: nn.Module
    seed: int
    runner: Runner

    @cached_property
    def laplace(self) -> osc.posteriors.Gaussian:
        """Return the unrefined posterior of all weights."""
        return osc.laplace(self.network, self.likelihood, self.dataset.train, refine=False)

    @cached_property
    def default(self) -> osc.posteriors.Gaussian:
        """Return the posterior that is measured."""
        return osc.laplace(self.network, self.likelihood, self.dataset.train)

    def trained(self, kind: Any, network: nn.Module | None = None, **options: Any) -> osc.posteriors.Posterior:
        """Train a method, from fresh weights unless a network is given."""
        fresh = self.task.network(self.dataset, 100 * self.seed) if network is None else network
        settings = {"epochs": self.task.epochs, "batch_size": batch(self.dataset), "seed": self.seed}
        settings |= {name: options.pop(name) for name in ("lr", "optimizer", "schedule") if name in options}
        return train(kind(fresh, self.likelihood, **options), self.dataset.train, **settings).posterior

    def ensemble(self) -> osc.posteriors.Posterior:
        """Return five networks that are trained like the first."""
        args = self.runner, self.dataset, self.likelihood, self.seed
        return osc.posteriors.Ensemble([self.task.trained(*args, n) for n in range(MEMBERS)], self.likelihood)

    def mean_fixed(self) -> osc.posteriors.Gaussian:
        """Return the posterior with averaged curvature around the network."""
        return refine(self.laplace, trust=STILL)

    def swag(self) -> osc.posteriors.Posterior:
        """Return the Gaussian of the iterates of SGD from the trained network on."""
        model = deepcopy(self.network).train()
        kind = osc.methods.SWAG
        return self.trained(kind, model, prior=self.task.prior, lr=0.01, optimizer="sgd", schedule="constant")


METHODS: Mapping[str, Callable[[Trial], Any]] = {
    DEFAULT: lambda t: t.default,
    LAPLACE: lambda t: t.laplace,
    "osc.laplace, last layer": lambda t: osc.laplace(
        t.network, t.likelihood, t.dataset.train, subset="last_layer", refine=False
    ),
    "osc.laplace, last layer, refined": lambda t: osc.laplace(
        t.network, t.likelihood, t.dataset.train, subset="last_layer"
    ),
    "mean fixed, curvature averaged": Trial.mean_fixed,
    "osc.laplace(validation=)": lambda t: osc.tune(t.default, t.dataset.validation),
    "unrefined, tuned on held-out data": lambda t: osc.tune(t.laplace, t.dataset.validation),
    "temperature scaling": lambda t: (
        train(osc.methods.TemperatureScaling(t.network, t.likelihood), t.dataset.validation).posterior
    ),
    "VariationalLaplace": lambda t: t.trained(osc.methods.VariationalLaplace, temperature=COLD, lr=t.task.lr),
    "IVON": lambda t: t.trained(osc.methods.IVON, temperature=COLD, lr=0.3),
    "SWAG": Trial.swag,
    ENSEMBLE: Trial.ensemble,
}
#: Methods that have no sense where the noise is learned, or that need logits.
OF_CLASSES = ("temperature scaling", "VariationalLaplace", "IVON", "SWAG", "mean fixed, curvature averaged")


@experiment(
    "calibration",
    "Calibration without held-out data: osc.laplace beside its network",
    "No document: eighteen classifiers and seven regressions that the rule was not chosen on",
    paper=Settings(test=10_000),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Score every method on the test part of every task."""
    labels = settings.tasks or tuple(TASKS)
    each = runner.over(
        "networks",
        product(labels, seeds),
        lambda label, seed: scored(runner, TASKS[label], seed, settings.test),
        "calibration",
        [settings.test],
    )
    table = Table()
    for label, runs in each.items():
        for run in runs:
            for name, values in run.items():
                table.add(f"{label}: {name}", {key: value for key, value in values.items() if "error" not in key})
    return Findings(table.numbers(), claims(each), {"runs": each})


def scored(runner: Runner, task: Task, seed: int, test: int) -> dict[str, dict[str, float]]:
    """Return the scores of all methods for one network."""
    dataset = task.load(seed)
    likelihood = CATEGORICAL if dataset.classes is not None else osc.likelihoods.Gaussian(NOISE)
    network = task.trained(runner, dataset, likelihood, seed)
    trial = Trial(task, dataset, likelihood, network, seed, runner)
    return classified(trial, test) if dataset.classes is not None else regressed(trial)


def classified(trial: Trial, test: int) -> dict[str, dict[str, float]]:
    """Return the scores of a classifier."""
    (x, y), far = limited(trial.dataset.test, test), outside(trial.dataset, trial.seed)
    network = partial(class_probabilities, osc.posteriors.Point(trial.network, CATEGORICAL))
    alone = logs(network(x))[torch.arange(len(y)), y]

    def scores(predicted: Callable[[Tensor], Tensor], seconds: float = 0.0) -> dict[str, float]:
        with seeded(trial.seed):
            probs, other = predicted(x), {name: predicted(images) for name, images in far.items()}
        apart = (alone - logs(probs)[torch.arange(len(y)), y]).double()
        return {
            NLL: osc.metrics.nll(logs(probs), y),
            APART: float(apart.mean()),
            f"{APART}, standard error": float(apart.std()) / len(y) ** 0.5,
            ECE: osc.metrics.ece(probs, y),
            ACCURACY: 100 * osc.metrics.accuracy(probs, y),
            **{f"{AUROC}, {name}": osc.metrics.auroc(entropy(probs), entropy(each)) for name, each in other.items()},
            SECONDS: seconds,
        }

    found = {NETWORK: scores(network)}
    for name, make in METHODS.items():
        start = time.process_time()
        with seeded(trial.seed):
            made = make(trial)
        seconds = time.process_time() - start
        options: dict[str, Any] = {"samples": DRAWS} if isinstance(made, osc.posteriors.Snapshots) else {}
        found[name] = scores(partial(class_probabilities, made, **options), seconds)
    found["sandwich covariance"] = scores(sandwich(trial))
    return found


def sandwich(trial: Trial) -> Callable[[Tensor], Tensor]:
    """Return predictions with the covariance Λ⁻¹ (Σ g gᵀ) Λ⁻¹ around the network, g the gradient of a datum.

    Draws with random signs, δ = Λ⁻¹ Σ ε_n g_n, have exactly that covariance.
    """
    q, (x, y) = trial.laplace, trial.dataset.train
    generator, draws = torch.Generator().manual_seed(trial.seed), torch.zeros(DRAWS, len(q.mean))
    for rows in torch.arange(len(x)).split(500):
        at = Linearisation(q.network, x[rows])
        score = CATEGORICAL.score(at.f, y[rows])
        signs = torch.randint(2, (DRAWS, len(rows), 1), generator=generator) * 2 - 1
        draws += at.vjp(signs * score)
    draws = q.precision.solve(draws)

    def predicted(x: Tensor) -> Tensor:
        found = []
        for part in x.split(500):
            at = Linearisation(q.network, part)
            found.append((at.f + at.jvp(draws)).softmax(-1).mean(0).detach())
        return torch.cat(found)

    return predicted


def regressed(trial: Trial) -> dict[str, dict[str, float]]:
    """Return the scores of a regression; the network has the noise of its error on the validation part."""
    (vx, vy), (x, y) = trial.dataset.validation, trial.dataset.test
    with torch.no_grad():
        noise = float((trial.network(vx) - vy).square().mean().sqrt())
    alone = osc.predict(osc.posteriors.Point(trial.network, osc.likelihoods.Gaussian(noise)), x).log_prob(y)

    def scores(q: Any, seconds: float = 0.0) -> dict[str, float]:
        predictive = osc.predict(q, x)
        apart = (predictive.log_prob(y) - alone).double().reshape(-1)
        inside = (y - predictive.mean).abs() < LIMIT * predictive.stddev
        return {
            LOG_LIKELIHOOD: float(predictive.log_prob(y).mean()),
            HIGHER: float(apart.mean()),
            f"{HIGHER}, standard error": float(apart.std()) / len(apart) ** 0.5,
            RMSE: float((predictive.mean - y).square().mean().sqrt()),
            COVERAGE: float(inside.float().mean()),
            SECONDS: seconds,
        }

    found = {NETWORK: scores(osc.posteriors.Point(trial.network, osc.likelihoods.Gaussian(noise)))}
    for name, make in METHODS.items():
        if name in OF_CLASSES:
            continue
        start = time.process_time()
        q = make(trial)
        if name == ENSEMBLE:
            q = osc.posteriors.Ensemble([member.module for member in q.members], osc.likelihoods.Gaussian(noise))
        found[name] = scores(q, time.process_time() - start)
    found["osc.laplace, full"] = scores(
        osc.laplace(trial.network, trial.likelihood, trial.dataset.train, structure="full")
    )
    return found


Runs = Mapping[str, Sequence[Mapping[str, Mapping[str, float]]]]


def differences(runs: Runs, name: str, column: str, to: str = NETWORK) -> dict[str, list[float]]:
    """Return the differences of a method to the network, by task and seed; AUROCs by task and pair of data sets."""
    found: dict[str, list[float]] = {}
    for label, each in runs.items():
        for key in each[0][name]:
            if key == column or (column == AUROC and key.startswith(AUROC)):
                own = f"{label}{key.removeprefix(column)}"
                found[own] = [run[name][key] - run[to][key] for run in each]
    return found


def limits(runs: Runs, name: str, column: str, sign: int) -> dict[str, tuple[float, float]]:
    """Return the mean difference of a task, and its 95 % limit: clustered by seed, and not below the data's error."""
    found = {}
    for label, each in runs.items():
        if column not in each[0][name]:
            continue
        apart = [run[name][column] for run in each]
        within = math.hypot(*(run[name][f"{column}, standard error"] for run in each)) / len(each)
        between = stdev(apart) / len(apart) ** 0.5 if len(apart) > 1 else 0.0
        found[label] = mean(apart), mean(apart) + sign * LIMIT * max(within, between)
    return found


def average(found: Mapping[str, Sequence[float]]) -> float:
    """Return the mean over tasks of the means over seeds."""
    return mean(mean(values) for values in found.values())


def claims(runs: Runs) -> Iterator[Claim]:
    """Yield the verdicts on the default, nothing held out."""
    classes = {label: each for label, each in runs.items() if NLL in each[0][NETWORK]}
    curves = {label: each for label, each in runs.items() if label not in classes}
    if classes:
        yield from _claims_of_classes(classes)
    if curves:
        yield from _claims_of_curves(curves)


def _claims_of_classes(runs: Runs) -> Iterator[Claim]:
    nll = limits(runs, DEFAULT, APART, 1)
    low = sum(limit <= 0.02 for _, limit in nll.values())
    gain = mean(value for value, _ in nll.values())
    yield Claim.judged("NLL is below that of the network on average", gain < 0, f"{gain:+.4f} nats.")
    yield Claim.judged(
        "The upper 95 % limit of the NLL is at most 0.02 nats above the network in 80 % of the tasks",
        low >= 0.8 * len(nll),
        f"{low} of {len(nll)}. Above: {listed({k: v for k, v in nll.items() if v[1] > 0.02}, '+.3f', '; ')}.",
    )
    ece, users = differences(runs, DEFAULT, ECE), [label for label in runs if not TASKS[label].has_prior]
    yield Claim.judged("ECE is at most 0.01 above on average", average(ece) <= 0.01, f"{average(ece):+.4f}.")
    without = average({label: ece[label] for label in users})
    yield Claim.judged("ECE is below over networks trained without a prior", without < 0, f"{without:+.4f}.")
    accuracy = {label: mean(values) for label, values in differences(runs, DEFAULT, ACCURACY).items()}
    yield Claim.judged(
        "Accuracy is at most 0.3 points below on average and 1.5 anywhere",
        mean(accuracy.values()) >= -0.3 and min(accuracy.values()) >= -1.5,
        f"{mean(accuracy.values()):+.2f} on average, {min(accuracy.values()):+.2f} at worst.",
    )
    auroc = {pair: mean(values) for pair, values in differences(runs, DEFAULT, AUROC).items()}
    if auroc:
        lower = sum(value < -0.01 for value in auroc.values())
        yield Claim.judged(
            "AUROC is 0.05 above on average, at most 0.01 below in 90 % of the pairs, and 0.05 below in none",
            mean(auroc.values()) >= 0.05 and lower <= 0.1 * len(auroc) and min(auroc.values()) >= -0.05,
            f"{mean(auroc.values()):+.3f} on average over {len(auroc)} pairs; {lower} below by 0.01; "
            f"{min(auroc.values()):+.3f} at worst.",
        )
        loss = average(differences(runs, DEFAULT, AUROC, LAPLACE))
        yield Claim.judged("AUROC is at most 0.04 below the unrefined posterior", loss >= -0.04, f"{loss:+.3f}.")
    beside = {c: average(differences(runs, DEFAULT, c, ENSEMBLE)) for c in (NLL, ECE, AUROC) if c != AUROC or auroc}
    yield Claim.judged(
        "Its NLL is below that of an ensemble of five on average",
        beside[NLL] < 0,
        f"{listed(beside, '+.3f')}; {average(differences(runs, DEFAULT, SECONDS)):.0f} CPU s of fitting against "
        f"{average(differences(runs, ENSEMBLE, SECONDS)):.0f} of training.",
    )


def _claims_of_curves(runs: Runs) -> Iterator[Claim]:
    gains = limits(runs, DEFAULT, HIGHER, -1)
    higher = sum(value > 0 for value, _ in gains.values())
    yield Claim.judged(
        "The log likelihood is above that of the network in five of seven regressions, and its lower 95 % limit above "
        "-0.05 in all",
        7 * higher >= 5 * len(gains) and all(limit > -0.05 for _, limit in gains.values()),
        f"{higher} of {len(gains)}; {listed(gains, '+.3f', '; ')}.",
    )
    above = average(differences(runs, DEFAULT, LOG_LIKELIHOOD, LAPLACE))
    yield Claim.judged("It is 0.05 above the unrefined posterior on average", above >= 0.05, f"{above:+.3f}.")
    inside = mean(mean(run[DEFAULT][COVERAGE] for run in each) for each in runs.values())
    yield Claim.judged("95 % intervals hold 92 to 98 % of the targets", 0.92 <= inside <= 0.98, f"{inside:.3f}.")


@measure.figure
def draw(record: Record) -> Any:
    """Differences to the network by method: NLL, ECE and AUROC, averaged over tasks."""
    from experiments.figures import beside_network

    runs = {k: v for k, v in record.findings.data["runs"].items() if NLL in v[0][NETWORK]}
    names = [name for name in next(iter(runs.values()))[0] if name != NETWORK]
    columns = [column for column in (NLL, ECE, AUROC) if differences(runs, DEFAULT, column)]
    values = {name: {c: [mean(d) for d in differences(runs, name, c).values()] for c in columns} for name in names}
    return beside_network(values, DEFAULT, "Posteriors beside their networks, nothing held out", ", less the network's")
