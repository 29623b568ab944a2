"""Test NLL, accuracy and calibration of variational Laplace beside variational inference and MAP."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments import Claim, Findings, Record, Resumable, Runner, Table, experiment, paired, printed
from experiments.by_image import IMAGES, errors_over_images
from experiments.vl import cells
from experiments.vl.cells import (
    ACCURACY,
    DRAWN,
    EVERY,
    LABEL,
    LAPLACE,
    MAXIMUM,
    NATURAL,
    NLL,
    PUBLISHED,
    VARIATIONAL,
    Fit,
    Run,
    Task,
)

ECE, BETA, EPOCH, RATIO, END = "ECE", "β", "epoch", "mean log σ/s", "NLL at the last epoch"
#: NLL, accuracy and ECE in the document, of VL, VI, VI with ten networks, and MAP.
SCORES = {
    "CIFAR-10": ((".23", "92.4", ".017"), (".37", "91.1", ".053"), (".35", "90.2", ".044"), (".43", "90.8", ".058")),
    "CIFAR-100": (
        ("1.00", "71.4", ".024"),
        ("1.29", "68.8", ".100"),
        ("1.49", "67.3", ".026"),
        ("1.61", "67.5", ".159"),
    ),
    "SVHN": ((".14", "97.1", ".009"), (".16", "96.3", ".012"), (".22", "95.5", ".022"), (".24", "95.7", ".028")),
    "Fashion-MNIST": (
        (".16", "94.6", ".010"),
        (".23", "94.0", ".034"),
        (".29", "93.6", ".016"),
        (".29", "93.6", ".096"),
    ),
}
PRINTED = {
    f"{title}: {method}": scores
    for title, rows in SCORES.items()
    for method, scores in zip((LAPLACE, VARIATIONAL, DRAWN, MAXIMUM), rows, strict=True)
}


@dataclass(frozen=True)
class Part:
    """Methods on one data set.

    Args:
        task: Images and network.
        methods: Names of the methods.
        fit: Settings of the training.
        seeds: Seeds below this number are used; None for all.
        temperatures: Candidates of β; held-out images choose, together with the epoch.
    """

    task: Task
    methods: tuple[str, ...] = (MAXIMUM, LAPLACE, LABEL, VARIATIONAL, NATURAL)
    fit: Fit = Fit()
    seeds: int | None = None
    temperatures: tuple[float, ...] = (0.01, 0.03, 0.1, 0.3)


@dataclass(frozen=True)
class Settings(Resumable):
    """Trainings.

    Args:
        parts: Methods and data sets.
    """

    parts: tuple[Part, ...]


_NARROW: dict[str, Any] = {"width": 8, "blocks": (1, 1, 1), **cells.SMOOTH}
_CIFAR10 = Task("cifar10_jpeg", "preact_resnet", _NARROW, train_size=10_000)
_QUARTER = Task("cifar10_jpeg", "preact_resnet", {"activation": "softplus", "width": 16}, train_size=None)
#: For it the β that held-out images chose for the smaller network, and those beside it.
_NEIGHBOURS = {MAXIMUM: (1.0, 3.0, 10.0), LAPLACE: (0.03, 0.1, 0.3), VARIATIONAL: (0.01, 0.03, 0.1)}
#: β for CIFAR-10; MAP, for which β is the weight of the prior alone, has its best value above those of the others.
_LOWER = (0.003, 0.01, 0.03, 0.1, 0.3)
_PUBLISHED = (MAXIMUM, EVERY, LABEL, LAPLACE, VARIATIONAL, NATURAL)


@experiment(
    "vl-table1",
    "Variational Laplace against variational inference and MAP, β and epoch of each by held-out images",
    "Variational Laplace [unlu2021], Table 1",
    small=Settings(
        (
            Part(Task()),
            Part(Task(), (EVERY,), seeds=1),
            Part(_CIFAR10, (MAXIMUM,), Fit(epochs=20), 1, (*_LOWER, 1.0, 3.0, 10.0)),
            Part(_CIFAR10, (LAPLACE, VARIATIONAL, NATURAL), Fit(epochs=20), 1, _LOWER),
        )
    ),
    # the document's network at a quarter of its width, and for minutes of an accelerator
    narrow=Settings(
        tuple(
            Part(_QUARTER, (method,), Fit(epochs=30, batch_size=128), temperatures=betas)
            for method, betas in _NEIGHBOURS.items()
        )
    ),
    # the document's network on the images at hand, for an accelerator
    large=Settings(
        tuple(
            Part(cells.published(data), _PUBLISHED, PUBLISHED, temperatures=(0.01, 0.03, 0.1, 0.3, 1.0))
            for data in ("cifar10_jpeg", "fashion_mnist")
        )
    ),
    paper=Settings(
        tuple(
            Part(cells.published(data), _PUBLISHED, PUBLISHED, temperatures=(0.01, 0.03, 0.1, 0.3, 1.0))
            for data in ("cifar10", "cifar100", "svhn", "fashion_mnist")
        )
    ),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Train every method at every temperature; held-out images choose temperature and epoch, for each seed anew."""

    def best(number: int, method: str, seed: int) -> dict[str, Any]:
        part = settings.parts[number]
        found = [cells.cell(Run(part.task, part.fit, method, beta, seed), runner) for beta in part.temperatures]
        place = min(range(len(found)), key=lambda n: found[n]["best"]["validation"]["nll"])
        every = {f"{beta:g}": one["best"]["test"]["nll"] for beta, one in zip(part.temperatures, found, strict=True)}
        return {**found[place], "beta": part.temperatures[place], "every": every}

    parts = list(enumerate(settings.parts))
    jobs = [
        (n, method, seed)
        for n, part in parts
        for method in part.methods
        for seed in seeds
        if part.seeds is None or seed < part.seeds
    ]
    table = Table()
    courses: dict[str, Any] = {}
    every: dict[str, dict[str, list[float]]] = {}
    images: dict[str, list[dict[str, Any]]] = {}
    for (number, method), runs in runner.over("methods and seeds", jobs, best).items():
        row = f"{settings.parts[number].task.title}: {method}"
        for run in runs:
            scores = {name: run["best"][part] for name, part in cells.scored_rows(method).items()}
            table.add(row, _scores(scores[method]) | {BETA: run["beta"], EPOCH: float(run["epoch"])})
            table.setdefault((row, RATIO), []).extend(run["ratio"][run["epoch"] - 1 : run["epoch"]])  # MAP has none
            table.add(row, {END: run["end"]["test"]["nll"]})
            if DRAWN in scores:
                table.add(f"{settings.parts[number].task.title}: {DRAWN}", _scores(scores[DRAWN]))
        images[row] = [{IMAGES: run["best"][IMAGES]} for run in runs]
        courses[row] = {"beta": runs[0]["beta"], "validation": runs[0]["validation"]}
        every[row] = {beta: [run["every"][beta] for run in runs] for beta in runs[0]["every"]}
    claim = Claim.over_seeds(
        "Drawn labels",
        "The document draws labels; the unbiased regulariser, of the row VL, differentiates a root of Λ.",
    )
    claims = (claim,) if any(LABEL in part.methods for part in settings.parts) else ()
    data = {"courses": courses, "test NLL by β": every, paired.ERRORS: errors_over_images(images)}
    return Findings(table.numbers(printed=printed((NLL, ACCURACY, ECE), PRINTED)), claims, data)


def _scores(scores: Mapping[str, float]) -> dict[str, float]:
    return {NLL: scores["nll"], ACCURACY: 100 * scores["accuracy"], ECE: scores["ece"]}


@measure.figure
def draw(record: Record) -> Any:
    """Draw the scores by method, one panel per data set and score."""
    from experiments.figures import method_scores

    return method_scores(record.findings.numbers, (NLL, ACCURACY, ECE), "Variational Laplace and its rivals")
