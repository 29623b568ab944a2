"""Small classification sets of Immer et al.: MAP, sampled networks and the linearised predictive on their splits."""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

import torch
from torch import Tensor, nn

from experiments import Claim, Findings, Number, Record, experiment, seeded
from experiments.evaluation import (
    Difference,
    at_mode,
    best,
    decided,
    nll_difference,
    probabilities,
    sampled,
    scores,
)
from osculate.data import Dataset, load
from osculate.data.uci_classification import FILES
from osculate.evidence import log_evidence, maximise_evidence
from osculate.likelihoods import Categorical
from osculate.methods.laplace import laplace
from osculate.methods.map import MAP
from osculate.networks import MLP
from osculate.posteriors import Gaussian
from osculate.predictive import predict
from osculate.priors import Layerwise
from osculate.progress import track
from osculate.training import train


@dataclass(frozen=True)
class Steps:
    """How long networks are trained: Adam with all data at once.

    Args:
        first: steps for the network with the smallest precision.
        more: steps for each of the others, which start where the one before ended.
        lr: highest learning rate; it falls by a cosine.
    """

    first: int = 200
    more: int = 80
    lr: float = 3e-2


@dataclass(frozen=True)
class Settings:
    """The networks, and how their prior is chosen.

    A seed is one of the ten splits that come with each set, and its initial weights.

    Args:
        sets: names of the data sets.
        layers: numbers of hidden layers of 50 tanh units.
        precisions: of the prior, rising: a network is trained with each, and each way to predict takes the one that is
            best on validation data.
        steps: of training.
        largest: the full matrix is left out where its smaller form, in parameters or in outputs, has more rows.
        samples: networks that are drawn.
    """

    sets: tuple[str, ...] = tuple(FILES)
    layers: tuple[int, ...] = (1, 2)
    precisions: tuple[float, ...] = (0.1, 1.0, 10.0, 100.0)
    steps: Steps = Steps()
    largest: int = 2_000
    samples: int = 100


PRESETS = {
    "small": Settings(),
    "paper": Settings(
        precisions=tuple(10 ** (-2 + 4 * n / 9) for n in range(10)),
        steps=Steps(first=10_000, more=10_000, lr=1e-3),
        largest=30_000,
        samples=1_000,
    ),
}

UNITS = 50
STRUCTURES = ("full", "kron", "diag")
MODE, EVIDENCE = "MAP", "linearised, kron, by the evidence"
LINEARISED = {structure: f"linearised, {structure}" for structure in STRUCTURES}
SAMPLED = {structure: f"sampled, {structure}" for structure in STRUCTURES}
ROWS = (MODE, *SAMPLED.values(), *LINEARISED.values(), EVIDENCE)
#: Nats by which the evidence may be worse than validation.
MARGIN = 0.02

#: By number of layers and set: the runs of all splits.
Runs = Mapping[tuple[int, str], Sequence["Run"]]


@dataclass(frozen=True)
class Run:
    """One split of one set.

    Args:
        probs: predictive probabilities of the test rows by way to predict; a way that was too large is missing.
        targets: the classes of the test rows.
        chosen: the precision that the chosen network was trained with, by way to predict.
    """

    probs: Mapping[str, Tensor]
    targets: Tensor
    chosen: Mapping[str, float]


@experiment(
    "linlap-uci-classification",
    "Small classification sets: MAP, sampled networks and the linearised predictive",
    "Improving predictions of Bayesian neural nets via local linearization [immer2021], classification sets",
    **PRESETS,
)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Train networks on every split, choose, and score the test rows."""
    cases = [(layers, name, seed) for layers in settings.layers for name in settings.sets for seed in seeds]
    runs: dict[tuple[int, str], list[Run]] = {}
    for layers, name, seed in track(cases, "splits", len(cases), progress):
        runs.setdefault((layers, name), []).append(run(load_split(name, seed), layers, settings, seed))
    return conclude(runs)


def load_split(name: str, seed: int) -> Dataset:
    """A set with its own splits, or one that is drawn or split by the seed, such as "two_moons"."""
    return load(name, split=seed) if name in FILES else load(name, seed=seed)


def run(data: Dataset, layers: int, settings: Settings, seed: int) -> Run:
    """Every way to predict on one split, each with the network that is best on its validation rows."""
    x, y = data.validation
    both = torch.cat([x, data.test[0]])
    candidates: dict[str, list[tuple[Tensor, float]]] = {}
    by_evidence: list[tuple[float, float, Gaussian]] = []
    for precision, model in networks(data, layers, settings, seed):
        for way, probs in predictives(model, data, precision, both, settings, seed, by_evidence):
            candidates.setdefault(way, []).append((probs, precision))
    found, chosen = {}, {}
    for way, each in candidates.items():
        number = best([probs[: len(x)] for probs, _ in each], (x, y))
        found[way], chosen[way] = each[number][0][len(x) :], each[number][1]
    _, chosen[EVIDENCE], posterior = max(by_evidence, key=lambda each: each[0])
    found[EVIDENCE] = probabilities(predict(posterior, data.test[0]))
    return Run(found, data.test[1], chosen)


def networks(data: Dataset, layers: int, settings: Settings, seed: int) -> Iterator[tuple[float, nn.Module]]:
    """Networks at their modes, by prior precision; the same module each time."""
    with seeded(seed):
        model = MLP(data.input_shape[0], (UNITS,) * layers, data.outputs)
    for number, precision in enumerate(settings.precisions):
        train(
            MAP(model, Categorical(), prior=precision),
            data.train,
            epochs=settings.steps.more if number else settings.steps.first,
            lr=settings.steps.lr,
            batch_size=len(data.train[0]),
            seed=seed,
            device="cpu",
            progress=False,
        )
        yield precision, model


def predictives(
    model: nn.Module,
    data: Dataset,
    precision: float,
    x: Tensor,
    settings: Settings,
    seed: int,
    by_evidence: list[tuple[float, float, Gaussian]],
) -> Iterator[tuple[str, Tensor]]:
    """Probabilities of one network by way to predict; the posterior by the evidence is added to the list."""
    for structure, name in forms(model, data, settings.largest).items():
        q = laplace(model, Categorical(), data.train, structure=name, prior=precision)
        if structure == "kron":
            yield MODE, at_mode(q, x)
            tuned = most_evident(q)
            by_evidence.append((float(log_evidence(tuned)), precision, tuned))
        yield LINEARISED[structure], probabilities(predict(q, x))
        yield SAMPLED[structure], sampled(q, x, settings.samples, seed)


def most_evident(q: Gaussian) -> Gaussian:
    """The posterior with the layerwise precisions of largest evidence."""
    with warnings.catch_warnings():
        # a large precision takes weights to zero, where the evidence has no maximum: it is small there
        warnings.filterwarnings("ignore", "the evidence has")
        return maximise_evidence(q.replace(prior=Layerwise(1.0)))


def forms(model: nn.Module, data: Dataset, largest: int) -> dict[str, str]:
    """How each matrix is stored: the full one in parameters or in outputs, whichever are fewer, or not at all."""
    parameters, outputs = sum(p.numel() for p in model.parameters()), len(data.train[0]) * data.outputs
    full = {"full": "full" if parameters <= outputs else "dual"} if min(parameters, outputs) <= largest else {}
    return {**full, "kron": "kron", "diag": "diag"}


def conclude(runs: Runs) -> Findings:
    """The table, the claims, and what the figure shows."""
    numbers: list[Number] = []
    differences: dict[str, dict[str, dict[str, Difference]]] = {}
    for layers in dict.fromkeys(layers for layers, _ in runs):
        sets = {name: found for (depth, name), found in runs.items() if depth == layers}
        title = f"{layers} hidden layer{'s' if layers > 1 else ''}"
        complete = [name for name, found in sets.items() if all(row in found[0].probs for row in ROWS)]
        for row in ROWS:
            numbers += row_of_numbers(f"{title}: {row}", row, sets, complete)
        differences[title] = {
            row: {name: against(found, row, MODE) for name, found in sets.items() if row in found[0].probs}
            for row in ROWS
            if row != MODE
        }
    plain = {
        title: {row: {name: [d.value, d.error] for name, d in by_set.items()} for row, by_set in rows.items()}
        for title, rows in differences.items()
    }
    chosen = {f"{layers}, {name}": dict(found[0].chosen) for (layers, name), found in runs.items()}
    return Findings(tuple(numbers), claims(runs), {"against MAP": plain, "chosen in the first split": chosen})


def row_of_numbers(
    label: str, row: str, sets: Mapping[str, Sequence[Run]], complete: Sequence[str]
) -> Iterator[Number]:
    """NLL of each set, and means over the sets that every row has."""
    table = {
        name: [scores(each.probs[row], each.targets) for each in found] if row in found[0].probs else []
        for name, found in sets.items()
    }
    for name, found in table.items():
        yield Number(label, f"NLL, {name}", tuple(each["NLL"] for each in found))
    for column in ("NLL", "accuracy, %", "ECE"):
        splits = zip(*(table[name] for name in complete), strict=True)
        yield Number(
            label,
            f"mean {column} (sets with every row)",
            tuple(mean(each[column] for each in split) for split in splits),
        )


def against(found: Sequence[Run], row: str, other: str) -> Difference:
    """The mean difference of NLL between two ways to predict on one set."""
    return Difference.over([nll_difference(each.probs[row], each.probs[other], each.targets) for each in found])


def claims(runs: Runs) -> tuple[Claim, ...]:
    """Verdicts from differences of NLL over all sets and both depths; two standard errors over the test rows decide."""

    def compared(row: str, other: str) -> tuple[Difference, str]:
        each = [against(found, row, other) for found in runs.values() if {row, other} <= set(found[0].probs)]
        pooled = Difference.over(each)
        better, worse = ([d.below() for d in each].count(is_below) for is_below in (True, False))
        return pooled, f"{pooled} (clearly better in {better} of {len(each)} cases, clearly worse in {worse})"

    def claim(text: str, pairs: Mapping[str, tuple[str, str]], bound: float, rest: str = "") -> Claim:
        found = {name: compared(*pair) for name, pair in pairs.items() if _measured(runs, pair)}
        words = "; ".join(f"{name} {words}" for name, (_, words) in found.items())
        verdicts = [difference.below(bound) for difference, _ in found.values()] or [None]
        return decided(text, verdicts, f"Mean difference of NLL in nats: {words}. A case is a set and a depth.{rest}")

    return (
        claim(
            "The linearised predictive beats sampled networks of the same posterior family",
            {s: (LINEARISED[s], SAMPLED[s]) for s in STRUCTURES},
            0.0,
        ),
        claim(
            "The linearised predictive beats MAP",
            {s: (LINEARISED[s], MODE) for s in ("full", "kron")},
            0.0,
            " Each way has the network that is best for it on validation data.",
        ),
        claim(
            "Sampled networks underfit: MAP beats them",
            {s: (MODE, SAMPLED[s]) for s in STRUCTURES},
            0.0,
        ),
        claim(
            f"The evidence chooses networks and precisions as well as validation (within {MARGIN} nats)",
            {"kron": (EVIDENCE, LINEARISED["kron"])},
            MARGIN,
            " The evidence sees no validation rows. It gives each layer a precision after training, while the network "
            f"was trained with one precision for all layers. {trained_with(runs)}",
        ),
    )


def trained_with(runs: Runs) -> str:
    """Which networks evidence and validation choose, in words."""
    each = {
        way: [math.log10(one.chosen[row]) for found in runs.values() for one in found]
        for way, row in (("the evidence", EVIDENCE), ("validation", LINEARISED["kron"]))
    }
    words = " and ".join(f"{10 ** mean(logs):.2g} by {way}" for way, logs in each.items())
    return f"The geometric mean of the precision that the chosen networks were trained with is {words}."


def _measured(runs: Runs, pair: tuple[str, str]) -> bool:
    return any(set(pair) <= set(found[0].probs) for found in runs.values())


@measure.figure
def draw(record: Record) -> Any:
    """The NLL of every way to predict less that of MAP, set by set."""
    from experiments.linlap import figures

    panels = {
        title: {row: {name: tuple(pair) for name, pair in by_set.items()} for row, by_set in rows.items()}
        for title, rows in record.findings.data["against MAP"].items()
    }
    return figures.against_map(panels, "What a posterior adds to MAP on small classification sets")
