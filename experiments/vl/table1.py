"""Test NLL, accuracy and calibration of variational Laplace beside variational inference and MAP."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import mean, stdev
from typing import Any

from experiments import Claim, Findings, Number, Record, Resumable, Runner, experiment
from experiments.vl.cells import (
    EVERY,
    LABEL,
    LAPLACE,
    MAXIMUM,
    NATURAL,
    PUBLISHED,
    SMOOTH,
    VARIATIONAL,
    Fit,
    Run,
    Task,
    cell,
    chosen,
    published,
)
from osculate.progress import track

#: As [unlu2021] calls them; VI by the network of its mean, and by ten that are drawn.
DRAWN = "VI, 10 networks"
#: NLL, accuracy and ECE that the document prints.
PRINTED = {
    ("CIFAR-10", "VL"): (".23", "92.4", ".017"),
    ("CIFAR-10", "VI"): (".37", "91.1", ".053"),
    ("CIFAR-10", DRAWN): (".35", "90.2", ".044"),
    ("CIFAR-10", "MAP"): (".43", "90.8", ".058"),
    ("CIFAR-100", "VL"): ("1.00", "71.4", ".024"),
    ("CIFAR-100", "VI"): ("1.29", "68.8", ".100"),
    ("CIFAR-100", DRAWN): ("1.49", "67.3", ".026"),
    ("CIFAR-100", "MAP"): ("1.61", "67.5", ".159"),
    ("SVHN", "VL"): (".14", "97.1", ".009"),
    ("SVHN", "VI"): (".16", "96.3", ".012"),
    ("SVHN", DRAWN): (".22", "95.5", ".022"),
    ("SVHN", "MAP"): (".24", "95.7", ".028"),
    ("Fashion-MNIST", "VL"): (".16", "94.6", ".010"),
    ("Fashion-MNIST", "VI"): (".23", "94.0", ".034"),
    ("Fashion-MNIST", DRAWN): (".29", "93.6", ".016"),
    ("Fashion-MNIST", "MAP"): (".29", "93.6", ".096"),
}
NLL, ACCURACY, ECE = "test NLL, nats", "accuracy, %", "ECE"
BETA, EPOCH, RATIO, END = "β", "epoch", "mean log σ/s", "NLL at the last epoch"


@dataclass(frozen=True)
class Part:
    """Methods on one set of images.

    Args:
        task: images and network.
        methods: by name.
        fit: how networks are trained.
        seeds: how many of the seeds; None for all.
        temperatures: β from which held-out images choose, with the epoch.
    """

    task: Task
    methods: tuple[str, ...] = (MAXIMUM, LAPLACE, LABEL, VARIATIONAL, NATURAL)
    fit: Fit = Fit()
    seeds: int | None = None
    temperatures: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3)


@dataclass(frozen=True)
class Settings(Resumable):
    """What is trained.

    Args:
        parts: methods and images.
    """

    parts: tuple[Part, ...]


_NARROW: dict[str, Any] = {"width": 8, "blocks": (1, 1, 1), **SMOOTH}
_CIFAR10 = Task("cifar10_jpeg", "preact_resnet", _NARROW, train_size=10_000)
#: β for CIFAR-10; the mode's best, which is a weight of the prior alone, lies above the others'.
_LOWER = (0.003, 0.01, 0.03, 0.1, 0.3)
_PUBLISHED = (MAXIMUM, EVERY, LABEL, LAPLACE, VARIATIONAL, NATURAL)
PRESETS = {
    "small": Settings(
        (
            Part(Task()),
            Part(Task(), (EVERY,), seeds=1),
            Part(_CIFAR10, (MAXIMUM,), Fit(epochs=20), 1, (*_LOWER, 1.0, 3.0, 10.0)),
            Part(_CIFAR10, (LAPLACE, VARIATIONAL, NATURAL), Fit(epochs=20), 1, _LOWER),
        )
    ),
    "paper": Settings(
        tuple(
            Part(published(data), _PUBLISHED, PUBLISHED, temperatures=(0.01, 0.03, 0.1, 0.3, 1.0))
            for data in ("cifar10", "cifar100", "svhn", "fashion_mnist")
        )
    ),
}


@experiment(
    "vl-table1",
    "Variational Laplace against variational inference and MAP",
    "Variational Laplace [unlu2021], Table 1",
    **PRESETS,
)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Every method at every temperature; held-out images choose temperature and epoch, for each seed anew."""
    runner = Runner(settings.cells, progress)
    todo = [
        (part, method, seed) for part in settings.parts for method in part.methods for seed in list(seeds)[: part.seeds]
    ]
    found: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    every: dict[str, dict[str, list[float]]] = {}
    for part, method, seed in track(todo, "methods and seeds", len(todo), progress):
        runs = [Run(part.task, part.fit, method, beta, seed) for beta in part.temperatures]
        cells = [cell(run, runner) for run in runs]
        best = chosen(cells)
        kept = {**cells[best], "temperature": part.temperatures[best]}
        found.setdefault((part.task.title, method), []).append(kept)
        row = every.setdefault(f"{part.task.title}: {method}", {})
        for beta, one in zip(part.temperatures, cells, strict=True):
            row.setdefault(f"{beta:g}", []).append(one["best"]["test"]["nll"])
    numbers = [number for key, cells in found.items() for number in _numbers(key, cells)]
    titles = dict.fromkeys(part.task.title for part in settings.parts)
    claims = [claim for title in titles for claim in _claims(title, found)]
    return Findings(tuple(numbers), tuple(claims), {"courses": _courses(found), "test NLL by β": every}, runner.seconds)


def _numbers(key: tuple[str, str], cells: Sequence[Mapping[str, Any]]) -> Iterable[Number]:
    name, method = key
    kinds = {method: "test", **({DRAWN: "test, drawn"} if method == VARIATIONAL else {})}
    for label, kind in kinds.items():
        printed = PRINTED.get((name, label), ("", "", ""))
        row, scores = f"{name}: {label}", [one["best"][kind] for one in cells]
        yield Number(row, NLL, tuple(s["nll"] for s in scores), printed[0])
        yield Number(row, ACCURACY, tuple(100 * s["accuracy"] for s in scores), printed[1])
        yield Number(row, ECE, tuple(s["ece"] for s in scores), printed[2])
        if label == method:
            yield Number(row, BETA, tuple(one["temperature"] for one in cells))
            yield Number(row, EPOCH, tuple(float(one["epoch"]) for one in cells))
            yield Number(row, RATIO, tuple(one["ratio"][one["epoch"] - 1] for one in cells if one["ratio"]))
            yield Number(row, END, tuple(one["end"]["test"]["nll"] for one in cells))


def difference(
    found: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]],
    one: tuple[str, str],
    other: tuple[str, str],
    score: str,
) -> tuple[float, float]:
    """Mean over common seeds of a difference of test scores, and its standard error; nan for one seed."""
    pairs = zip(found[one], found[other], strict=False)
    each = [a["best"]["test"][score] - b["best"]["test"][score] for a, b in pairs]
    return mean(each), stdev(each) / sqrt(len(each)) if len(each) > 1 else float("nan")


def _claims(name: str, found: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]) -> Iterable[Claim]:
    methods = [method for data, method in found if data == name]
    scale = f"β and epoch of each by held-out images, {len(found[name, methods[0]])} seed(s)"

    def told(value: float, error: float) -> str:
        return f"{value:+.4f} ± {error:.4f}" if error == error else f"{value:+.4f} (one seed)"

    if not {MAXIMUM, LAPLACE} <= set(methods):
        return
    for rival in [each for each in (MAXIMUM, VARIATIONAL) if each in methods]:
        value, error = difference(found, (name, LAPLACE), (name, rival), "nll")
        clear = value + 2 * error < 0 if error == error else None
        yield Claim.judged(
            f"{name}: the test NLL of VL is below that of {rival}, by more than two standard errors",
            clear if clear is not None or value < 0 else False,
            f"VL − {rival}: {told(value, error)} nats; {scale}.",
        )
        value, error = difference(found, (name, LAPLACE), (name, rival), "accuracy")
        yield Claim.judged(
            f"{name}: the accuracy of VL is not below that of {rival} by more than two standard errors",
            value + 2 * error >= 0 if error == error else None,
            f"VL − {rival}: {told(100 * value, 100 * error)} points; {scale}.",
        )
        value, error = difference(found, (name, LAPLACE), (name, rival), "ece")
        yield Claim.judged(
            f"{name}: the calibration error of VL is below that of {rival}",
            value < 0 if error == error else None,
            f"VL − {rival}: {told(value, error)}; {scale}.",
        )
    if LABEL in methods:
        value, error = difference(found, (name, LABEL), (name, LAPLACE), "nll")
        yield Claim.judged(
            f"{name}: drawn labels, as in the document, train as well as the unbiased regulariser, within two errors",
            abs(value) <= 2 * error if error == error else None,
            f"test NLL with drawn labels minus that with a differentiated root of Λ: {told(value, error)} nats.",
        )


def _courses(found: Mapping[tuple[str, str], Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Validation NLL over the epochs, of the first seed."""
    return {
        f"{name}: {method}": {"beta": cells[0]["temperature"], "validation": cells[0]["validation"]}
        for (name, method), cells in found.items()
    }


@measure.figure
def draw(record: Record) -> Any:
    """Scores by method, one panel a data set and score."""
    from experiments.figures import method_scores

    return method_scores(record.findings.numbers, (NLL, ACCURACY, ECE), "Variational Laplace beside its rivals")
