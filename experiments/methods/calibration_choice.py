"""The rule by which ``osc.laplace`` refines, chosen on validation parts of digits, clothing and characters."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import torch

import osculate as osc
from experiments import Claim, Findings, Record, Resumable, Runner, Table, experiment, listed, seeded
from experiments.evaluation import LOG_LIKELIHOOD, class_probabilities, entropy, logs, of_numbers
from experiments.methods.networks import Task, limited, outside
from osculate.data.dataset import Part
from osculate.evidence import refine

LIKELIHOOD = osc.likelihoods.Categorical()
NLL, ECE, ACCURACY, AUROC = "NLL, nats", "ECE", "accuracy, %", "AUROC of entropy"
#: Validation data that are predicted.
SHOWN = 1_000
NETWORK, LAPLACE = "network", "Laplace"
#: The networks, all of small data; the first half of each pair is trained with a prior, the other as users train.
CLASSES = (
    Task("digits", "cnn", "MAP", held_out=300, epochs=40, lr=1e-2),
    Task("digits", "mlp", "AdamW", held_out=300, epochs=60, options={"hidden": (50,)}),
    Task("fashion_mnist", "lenet", "MAP", 3_000, 1_000, epochs=20, prior=10.0),
    Task("fashion_mnist", "cnn", "AdamW", 3_000, 1_000, epochs=30),
    Task("kmnist", "mlp", "MAP", 3_000, 1_000, epochs=20, prior=10.0, options={"hidden": (100,)}),
    Task("kmnist", "lenet", "AdamW", 3_000, 1_000, epochs=20, lr=2e-3),
)
CURVES = tuple(
    Task(data, "mlp", training, epochs=100, lr=1e-2, options={"hidden": (50,), "activation": "tanh"})
    for data in ("energy", "concrete")
    for training in ("MAP", "AdamW")
)
#: Temperatures, and trust regions; None moves the mean not at all.
TEMPERATURES, TRUSTS = (1.0, 0.1, 0.03), (None, 0.01, 0.02, 0.05)
#: Other structures and subsets, with the rule that the prototypes pointed to.
OTHERS: Mapping[str, Mapping[str, Any]] = {
    "last layer": {"subset": "last_layer"},
    "sharing reduced": {"structure": osc.structures.Kron(sharing="reduce")},
    "diagonal": {"structure": "diag"},
    "prior of precision 1": {"prior": 1.0},
}
POINTED = (0.1, 0.02)
#: A move of the mean that is none.
STILL = 1e-12


@dataclass(frozen=True)
class Settings(Resumable):
    """The candidates.

    Args:
        temperatures: Temperatures T of the likelihood.
        trusts: Trust regions c of the mean; None leaves it at the network.
        tasks: Indices of the classification tasks.
        curves: Indices of the regressions.
    """

    temperatures: tuple[float, ...] = TEMPERATURES
    trusts: tuple[float | None, ...] = TRUSTS
    tasks: tuple[int, ...] = tuple(range(len(CLASSES)))
    curves: tuple[int, ...] = tuple(range(len(CURVES)))


def rule(temperature: float, trust: float | None) -> str:
    """Return the name of a candidate."""
    return f"T = {temperature}, " + ("mean fixed" if trust is None else f"c = {trust}")


@experiment(
    "calibration-choice",
    "The rule by which osc.laplace refines: candidates on validation data",
    "No document: digits, Fashion-MNIST and KMNIST for classes, energy and concrete for regression",
    paper=Settings(trusts=(None, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25)),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Score every candidate on the validation part, beside the network and the unrefined posterior."""
    about = [settings.temperatures, settings.trusts]
    jobs = [(CLASSES[index].label, seed) for index in settings.tasks for seed in seeds]
    by_label = {task.label: task for task in (*CLASSES, *CURVES)}
    each = runner.over(
        "networks", jobs, lambda label, seed: classes(settings, runner, by_label[label], seed), "choice", about
    )
    jobs = [(CURVES[index].label, seed) for index, seed in product(settings.curves, seeds)]
    curves = runner.over("regressions", jobs, lambda label, seed: regression(runner, by_label[label], seed), "curves")
    table = Table()
    for label, runs in {**each, **curves}.items():
        for run in runs:
            for name, values in run.items():
                table.add(f"{label}: {name}", values)
    return Findings(table.numbers(), claims(each, curves), {"classes": each, "regression": curves})


def classes(settings: Settings, runner: Runner, task: Task, seed: int) -> dict[str, dict[str, float]]:
    """Return the scores of every candidate for one network."""
    dataset = task.load(seed)
    network, held_out = task.trained(runner, dataset, LIKELIHOOD, seed), limited(dataset.validation, SHOWN)
    far = {name: images[: SHOWN // 2] for name, images in outside(dataset, seed).items()}
    fit = partial(osc.laplace, network, LIKELIHOOD, dataset.train, refine=False)
    q = fit()
    score = partial(scored, held_out=held_out, outside=far)
    found = {NETWORK: score(osc.posteriors.Point(network, LIKELIHOOD)), LAPLACE: score(q)}
    for temperature, trust in product(settings.temperatures, settings.trusts):
        found[rule(temperature, trust)] = score(refined(q, temperature, trust))
    for name, options in OTHERS.items():
        found[f"{name}, {rule(*POINTED)}"] = score(refined(fit(**options), *POINTED))
    return found


def refined(q: osc.posteriors.Gaussian, temperature: float, trust: float | None) -> osc.posteriors.Gaussian:
    """Return the posterior by a rule."""
    return refine(q.replace(temperature=temperature), trust=STILL if trust is None else trust)


def scored(q: Any, held_out: Part, outside: dict[str, torch.Tensor]) -> dict[str, float]:
    """Return the scores of a posterior."""
    x, y = held_out
    with seeded(0):
        probs, far = class_probabilities(q, x), [class_probabilities(q, images) for images in outside.values()]
    aurocs = [osc.metrics.auroc(entropy(probs), entropy(each)) for each in far]
    return {
        NLL: osc.metrics.nll(logs(probs), y),
        ECE: osc.metrics.ece(probs, y),
        ACCURACY: 100 * osc.metrics.accuracy(probs, y),
        **{f"{AUROC}, {name}": value for name, value in zip(outside, aurocs, strict=True)},
    }


def regression(runner: Runner, task: Task, seed: int) -> dict[str, dict[str, float]]:
    """Return the scores of every candidate for one regression; the noise of the network is that of half of them."""
    likelihood = osc.likelihoods.Gaussian(0.3)
    dataset = task.load(seed)
    network, (x, y) = task.trained(runner, dataset, likelihood, seed), dataset.validation
    half = len(x) // 2
    with torch.no_grad():
        noise = float((network(x[:half]) - y[:half]).square().mean().sqrt())
    held_out = x[half:], y[half:]
    found = {NETWORK: of_numbers(osc.posteriors.Point(network, osc.likelihoods.Gaussian(noise)), held_out)}
    for structure in ("kron", "full"):
        q = osc.laplace(network, likelihood, dataset.train, structure=structure, refine=False)
        one_precision = osc.laplace(
            network, likelihood, dataset.train, structure=structure, prior=osc.priors.Isotropic(1.0), refine=False
        )
        candidates = {
            LAPLACE: q,
            "mean of the linear model": refine(q, trust=None),
            "mean and noise of the linear model": refine(q, trust=None, noise=True),
            "mean with c = 0.25": refine(q, trust=0.25),
            "linear evidence, one precision": refine(one_precision, trust=None, prior="evidence"),
            "linear evidence, one precision a tensor": refine(q, trust=None, prior="evidence"),
        }
        found |= {f"{name}, {structure}": of_numbers(each, held_out) for name, each in candidates.items()}
    return found


def losses(each: dict[str, list[dict[str, dict[str, float]]]]) -> dict[str, dict[str, float]]:
    """Return the declared losses of each candidate, from its differences to the network.

    Returns:
        By candidate: the mean of NLL and of ECE, the largest NLL over networks, and the mean of the AUROC.
    """
    found: dict[str, dict[str, float]] = {}
    names = next(iter(each.values()))[0]
    for name in names:
        if name == NETWORK:
            continue
        rows = [[_difference(run, name) for run in runs] for runs in each.values()]
        by_task = [{key: sum(r[key] for r in row) / len(row) for key in row[0]} for row in rows]
        mean = {key: sum(task[key] for task in by_task) / len(by_task) for key in by_task[0]}
        found[name] = {**mean, "worst NLL": max(task[NLL] for task in by_task)}
    return found


def _difference(run: dict[str, dict[str, float]], name: str) -> dict[str, float]:
    apart = {key: run[name][key] - run[NETWORK][key] for key in run[name]}
    aurocs = [value for key, value in apart.items() if key.startswith(AUROC)]
    return {NLL: apart[NLL], ECE: apart[ECE], ACCURACY: apart[ACCURACY], AUROC: sum(aurocs) / len(aurocs)}


def best(found: dict[str, dict[str, float]]) -> str:
    """Return the chosen candidate.

    Declared before these runs, after prototypes on the same networks had led to the candidates: the lowest mean NLL
    among those whose NLL is at most 0.02 nats above that of the network on each task, whose ECE is at most 0.01 above
    and whose AUROC at least 0.05 above on average; where none is, that of the lowest NLL on the worst task.
    """
    allowed = {
        name: loss
        for name, loss in found.items()
        if loss["worst NLL"] <= 0.02 and loss[ECE] <= 0.01 and loss[AUROC] >= 0.05
    }
    if allowed:
        return min(allowed, key=lambda name: allowed[name][NLL])
    return min(found, key=lambda name: found[name]["worst NLL"])


def claims(each: Any, curves: Any) -> Iterator[Claim]:
    """Yield what was chosen."""
    found = losses(each)
    chosen = best(found)
    yield Claim.over_seeds(
        "rule of osc.laplace for classes",
        f"It is {rule(*DEFAULT)}. The best is {chosen}: {listed(found[chosen], '+.3f')}; "
        f"Laplace alone: {listed(found[LAPLACE], '+.3f')}.",
    )
    count = sum(len(runs) for runs in curves.values())
    means = {
        name: sum(run[name][LOG_LIKELIHOOD] for runs in curves.values() for run in runs) / count
        for name in next(iter(curves.values()))[0]
        if name.endswith("kron")
    }
    yield Claim.over_seeds(
        "rule of osc.laplace for real values",
        "It is the mean and the noise of the linear model, at the precisions of the usual evidence. "
        f"Log likelihood in nats, on average: {listed(means)}.",
    )


#: The rule of osc.laplace for classes.
DEFAULT = (osc.evidence.TEMPERATURE, osc.evidence.TRUST)


@measure.figure
def draw(record: Record) -> Any:
    """NLL against detection, one dot for each candidate."""
    from experiments.figures import candidates

    found = losses(record.findings.data["classes"])
    named = {f"chosen: {rule(*DEFAULT)}": rule(*DEFAULT), "unrefined": LAPLACE}
    return candidates(found, (NLL, AUROC), named, "Candidates on validation data, mean over the networks")
