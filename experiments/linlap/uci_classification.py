"""Small classification sets of Immer et al.: MAP, sampled networks and the linearised predictive on their splits."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import log10
from statistics import mean
from typing import Any

import torch
from torch import Tensor, nn

import osculate as osc
from experiments import Claim, Findings, Record, Runner, Table, evaluation, experiment, ignoring, seeded, train
from experiments.evaluation import Difference
from osculate.data.uci import CLASSIFICATION


@dataclass(frozen=True)
class Steps:
    """Training by Adam with all data at once.

    Args:
        first: Steps for the network with the smallest precision.
        more: Steps for each other precision, from the weights of the one before.
        lr: Highest learning rate; it falls by a cosine.
    """

    first: int = 200
    more: int = 80
    lr: float = 3e-2


@dataclass(frozen=True)
class Settings:
    """The networks and the choice of their prior. A seed is one of the ten splits of each set, and initial weights.

    Args:
        sets: Names of the data sets.
        layers: Numbers of hidden layers of 50 tanh units.
        precisions: Rising prior precisions, with a network for each; validation data choose one for each predictive.
        steps: Steps of training.
        largest: Most rows of the full matrix, in parameters or in outputs; it is left out if both have more.
        samples: Sampled networks.
    """

    sets: tuple[str, ...] = tuple(CLASSIFICATION)
    layers: tuple[int, ...] = (1, 2)
    precisions: tuple[float, ...] = (0.1, 1.0, 10.0, 100.0)
    steps: Steps = Steps()
    largest: int = 2_000
    samples: int = 100


UNITS = 50
STRUCTURES = ("full", "kron", "diag")
MODE, EVIDENCE = "MAP", "linearised, kron, by the evidence"
LINEARISED = {structure: f"linearised, {structure}" for structure in STRUCTURES}
SAMPLED = {structure: f"sampled, {structure}" for structure in STRUCTURES}
ROWS = (MODE, *SAMPLED.values(), *LINEARISED.values(), EVIDENCE)

#: The runs of all splits, by number of layers and set.
Runs = Mapping[tuple[int, str], Sequence["Run"]]


@dataclass(frozen=True)
class Run:
    """One split of one set.

    Args:
        probs: Predictive probabilities of the test rows by way to predict, without ways that were too large.
        targets: Classes of the test rows.
        chosen: Precision that the chosen network was trained with, by way to predict.
    """

    probs: Mapping[str, Tensor]
    targets: Tensor
    chosen: Mapping[str, float]


@experiment(
    "linlap-uci-classification",
    "Small classification sets: MAP, sampled networks and the linearised predictive",
    "Improving predictions of Bayesian neural nets via local linearization [immer2021], classification sets",
    paper=Settings(
        precisions=tuple(10 ** (-2 + 4 * n / 9) for n in range(10)),
        steps=Steps(first=10_000, more=10_000, lr=1e-3),
        largest=30_000,
        samples=1_000,
    ),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Train networks on every split, choose the best by validation data, and score the test rows."""

    def one(layers: int, name: str, seed: int) -> dict[str, Any]:
        # a seed is one of the splits, or draws or splits a set that has none, such as "two_moons"
        data = osc.data.load(name, split=seed) if name in CLASSIFICATION else osc.data.load(name, seed=seed)
        return vars(run(data, layers, settings, seed))

    found = runner.over("splits", product(settings.layers, settings.sets, seeds), one, "split")
    return conclude({key: [Run(**each) for each in runs] for key, runs in found.items()})


def conclude(runs: Runs) -> Findings:
    """Return the table, the claims, and the data of the figure."""
    table, against_map = Table(), {}
    for layers in dict.fromkeys(layers for layers, _ in runs):
        sets = {name: found for (depth, name), found in runs.items() if depth == layers}
        title = f"{layers} hidden layer{'s' if layers > 1 else ''}"
        for row in ROWS:
            table |= scores(f"{title}: {row}", row, sets)
        against_map[title] = {
            row: {name: against(found, row, MODE) for name, found in sets.items() if row in found[0].probs}
            for row in ROWS
            if row != MODE
        }
    plain = {
        title: {row: {name: [d.value, d.error] for name, d in by_set.items()} for row, by_set in rows.items()}
        for title, rows in against_map.items()
    }
    chosen = {f"{layers}, {name}": dict(found[0].chosen) for (layers, name), found in runs.items()}
    return Findings(table.numbers(), claims(runs), {"against MAP": plain, "chosen in the first split": chosen})


def run(data: osc.data.Dataset, layers: int, settings: Settings, seed: int) -> Run:
    """Predict one split in every way, each with the network that is best on the validation rows."""
    x, y = data.validation
    both = torch.cat([x, data.test[0]])
    likelihood = osc.likelihoods.Categorical()
    candidates: dict[str, list[tuple[Tensor, float]]] = {}
    by_evidence: list[tuple[float, float, osc.posteriors.Gaussian]] = []
    for precision, model in networks(data, layers, settings, seed):
        for structure, name in forms(model, data, settings.largest).items():
            q = osc.laplace(model, likelihood, data.train, structure=name, prior=precision, refine=False)
            probs = {}
            if structure == "kron":
                probs[MODE] = evaluation.at_mode(q, both)
                # a large precision takes weights to zero, where the evidence has no maximum: it is small there
                with ignoring("the evidence has"):
                    tuned = osc.maximise_evidence(q.replace(prior=osc.priors.Layerwise(1.0)))
                by_evidence.append((float(osc.log_evidence(tuned)), precision, tuned))
            probs[LINEARISED[structure]] = evaluation.probabilities(osc.predict(q, both))
            probs[SAMPLED[structure]] = evaluation.sampled(q, both, settings.samples, seed)
            for way, found in probs.items():
                candidates.setdefault(way, []).append((found, precision))
    test, chosen = {}, {}
    for way, each in candidates.items():
        probs_of_best, chosen[way] = each[evaluation.best([found[: len(x)] for found, _ in each], (x, y))]
        test[way] = probs_of_best[len(x) :]
    _, chosen[EVIDENCE], posterior = max(by_evidence, key=lambda each: each[0])
    test[EVIDENCE] = evaluation.probabilities(osc.predict(posterior, data.test[0]))
    return Run(test, data.test[1], chosen)


def networks(data: osc.data.Dataset, layers: int, settings: Settings, seed: int) -> Iterator[tuple[float, nn.Module]]:
    """Train one module to the mode for each prior precision in turn."""
    with seeded(seed):
        model = osc.networks.MLP(data.input_shape[0], (UNITS,) * layers, data.outputs)
    for number, precision in enumerate(settings.precisions):
        method = osc.methods.MAP(model, osc.likelihoods.Categorical(), prior=precision)
        epochs = settings.steps.more if number else settings.steps.first
        train(method, data.train, epochs=epochs, lr=settings.steps.lr, batch_size=len(data.train[0]), seed=seed)
        yield precision, model


def forms(model: nn.Module, data: osc.data.Dataset, largest: int) -> dict[str, str]:
    """Return how each matrix is stored: the full one in parameters or outputs, whichever are fewer, or not at all."""
    parameters, outputs = sum(p.numel() for p in model.parameters()), len(data.train[0]) * data.outputs
    full = {"full": "full" if parameters <= outputs else "dual"} if min(parameters, outputs) <= largest else {}
    return {**full, "kron": "kron", "diag": "diag"}


def scores(label: str, row: str, sets: Mapping[str, Sequence[Run]]) -> Table:
    """Tabulate the NLL of each set, and means over the sets that have every row."""
    found = {
        name: [evaluation.scores(each.probs[row], each.targets) for each in runs] if row in runs[0].probs else []
        for name, runs in sets.items()
    }
    complete = [found[name] for name, runs in sets.items() if all(way in runs[0].probs for way in ROWS)]
    table = Table({(label, f"NLL, {name}"): [each["NLL"] for each in values] for name, values in found.items()})
    for column in ("NLL", "accuracy, %", "ECE"):
        splits = zip(*complete, strict=True)
        means = [mean(each[column] for each in split) for split in splits]
        table[label, f"mean {column} (sets with every row)"] = means
    return table


def against(found: Sequence[Run], row: str, other: str) -> Difference:
    """Return the mean difference of NLL between two ways to predict on one set."""
    return Difference.over([evaluation.nll_difference(r.probs[row], r.probs[other], r.targets) for r in found])


def claims(runs: Runs) -> Iterator[Claim]:
    """Yield the claims that need words, about differences of NLL over all sets and both depths."""

    def words(pairs: Mapping[str, tuple[str, str]]) -> str:
        parts = []
        for name, pair in pairs.items():
            cases = [against(found, *pair) for found in runs.values() if set(pair) <= set(found[0].probs)]
            if cases:
                lower = sum(each.value < 0 for each in cases)
                parts.append(f"{name} {Difference.over(cases)} (lower in {lower} of {len(cases)} cases)")
        differences = "; ".join(parts)
        return f"Mean NLL differences in nats, with errors over test rows: {differences}. A case is a set and a depth."

    trained_with = " and ".join(
        f"{10 ** mean(log10(one.chosen[row]) for found in runs.values() for one in found):.2g} by {way}"
        for way, row in (("the evidence", EVIDENCE), ("validation", LINEARISED["kron"]))
    )
    yield Claim.over_seeds(
        "linearised and sampled networks", words({s: (LINEARISED[s], SAMPLED[s]) for s in STRUCTURES})
    )
    yield Claim.over_seeds(
        "linearised predictive and MAP",
        words({s: (LINEARISED[s], MODE) for s in ("full", "kron")})
        + " Each way has the network that is best for it on validation data.",
    )
    yield Claim.over_seeds("MAP and sampled networks", words({s: (MODE, SAMPLED[s]) for s in STRUCTURES}))
    yield Claim.over_seeds(
        "choice by the evidence and by validation",
        words({"kron": (EVIDENCE, LINEARISED["kron"])})
        + " The evidence sees no validation rows. It gives each layer a precision after training, while the network "
        "was trained with one precision for all layers. The geometric mean of the precision that the chosen networks "
        f"were trained with is {trained_with}.",
    )


@measure.figure
def draw(record: Record) -> Any:
    """Draw the NLL of every way to predict less that of MAP, set by set."""
    from experiments.linlap import figures

    heading = "What a posterior adds to MAP on small classification sets"
    return figures.against_map(record.findings.data["against MAP"], heading)
