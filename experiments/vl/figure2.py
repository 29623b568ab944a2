"""Early stopping of variances: the bound and the scores against the learning rate of log σ."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from experiments import Claim, Findings, Number, Record, Resumable, Runner, experiment
from experiments.vl.cells import (
    EVERY,
    LEARNED,
    PUBLISHED,
    VARIATIONAL,
    Fit,
    Run,
    Task,
    cell,
    published,
)
from osculate.progress import track
from osculate.training.settings import SCHEDULES

#: Log σ/s at the start.
START = -3.0
BOUND, NLL, ACCURACY, RATIO, REACH = (
    "ELBO, nats per image",
    "test NLL, nats",
    "accuracy, %",
    "mean log σ/s at the end",
    "log σ can move by at most",
)
CLOSED = "VL, closed form"
#: Bounds this near to each other, in nats per image, count as equal.
SLACK = 0.005


@dataclass(frozen=True)
class Settings(Resumable):
    """What is trained, each to its last epoch.

    Args:
        task: images and network.
        fit: how networks are trained; the learning rate is small, as in the document, so that it decides how far the
            variances get.
        temperatures: β.
        multipliers: of the learning rate of log σ.
    """

    task: Task = Task()
    fit: Fit = Fit(epochs=20, lr=5e-4)
    temperatures: tuple[float, ...] = (1.0, 0.1)
    multipliers: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0)


PRESETS = {
    "small": Settings(),
    "paper": Settings(
        published("cifar10"),
        PUBLISHED,
    ),
}


def reach(cell: Mapping[str, Any], multiplier: float, fit: Fit) -> float:
    """How far log σ can get: the sum of the learning rates of all steps."""
    factor = SCHEDULES[fit.schedule]
    return float(cell["steps"]) * fit.lr * multiplier * mean(factor((k + 0.5) / 1000) for k in range(1000))


@experiment("vl-figure2", "Early stopping of the variances", "Variational Laplace [unlu2021], Figure 2", **PRESETS)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """VI and VL with learned variances for each multiplier, and the closed form, which has none."""
    runner = Runner(settings.cells, progress)
    arms: list[tuple[str, float, dict[str, float]]] = [
        (method, beta, {"multiplier": multiplier})
        for beta in settings.temperatures
        for method in (VARIATIONAL, LEARNED)
        for multiplier in settings.multipliers
    ]
    arms += [(EVERY, beta, {}) for beta in settings.temperatures]
    todo = [(*arm, seed) for arm in arms for seed in seeds]
    found: dict[tuple[str, float, str], list[Mapping[str, Any]]] = {}
    for method, beta, options, seed in track(todo, "trainings", len(todo), progress):
        run = Run(settings.task, settings.fit, method, beta, seed, options, to_end=True)
        multiplier = f"{options['multiplier']:g}" if options else ""
        found.setdefault((CLOSED if method == EVERY else method, beta, multiplier), []).append(cell(run, runner))
    numbers = [number for key, cells in found.items() for number in _numbers(key, cells, settings)]
    return Findings(tuple(numbers), _claims(found, settings), {"arms": _arms(found)}, runner.seconds)


def _numbers(key: tuple[str, float, str], cells: Sequence[Mapping[str, Any]], settings: Settings) -> list[Number]:
    method, beta, multiplier = key
    row = f"{method}, β = {beta:g}" + (f", × {multiplier}" if multiplier else "")
    most = tuple(reach(one, float(multiplier), settings.fit) for one in cells) if multiplier else ()
    return [
        Number(row, BOUND, tuple(one["elbo"] for one in cells)),
        Number(row, NLL, tuple(one["end"]["test"]["nll"] for one in cells)),
        Number(row, ACCURACY, tuple(100 * one["end"]["test"]["accuracy"] for one in cells)),
        Number(row, RATIO, tuple(one["ratio"][-1] for one in cells)),
        Number(row, REACH, most),
    ]


def _arms(found: Mapping[tuple[str, float, str], Sequence[Mapping[str, Any]]]) -> list[dict[str, Any]]:
    """For the figure: of the first seed the courses, of all the ends."""
    return [
        {
            "method": method,
            "beta": beta,
            "multiplier": multiplier,
            "ratio": cells[0]["ratio"],
            "bound": [-value for value in cells[0]["loss"]],
            "elbo": [one["elbo"] for one in cells],
            "nll": [one["end"]["test"]["nll"] for one in cells],
            "accuracy": [one["end"]["test"]["accuracy"] for one in cells],
        }
        for (method, beta, multiplier), cells in found.items()
    ]


def _claims(
    found: Mapping[tuple[str, float, str], Sequence[Mapping[str, Any]]], settings: Settings
) -> tuple[Claim, ...]:
    def bound(method: str, beta: float, multiplier: str) -> float:
        return mean(one["elbo"] for one in found[method, beta, multiplier])

    def nll(method: str, beta: float, multiplier: str) -> float:
        return mean(one["end"]["test"]["nll"] for one in found[method, beta, multiplier])

    names = [f"{m:g}" for m in settings.multipliers]
    best = {
        beta: max(bound(m, beta, n) for m in (VARIATIONAL, LEARNED) for n in names) for beta in settings.temperatures
    }
    closed = {beta: bound(CLOSED, beta, "") for beta in settings.temperatures}
    return (
        _arithmetic(found, settings),
        _steadier("The bound", bound, names, settings),
        _steadier("The test NLL", nll, names, settings),
        Claim.judged(
            "Variances in closed form reach the best bound without a multiplier",
            all(closed[beta] >= best[beta] - SLACK for beta in settings.temperatures),
            "; ".join(
                f"β = {beta:g}: {closed[beta]:.3f}, best of all others {best[beta]:.3f} nats per image"
                for beta in settings.temperatures
            )
            + f". Within {SLACK} nats they count as equal.",
        ),
    )


def _steadier(what: str, of: Callable[[str, float, str], float], names: Sequence[str], settings: Settings) -> Claim:
    """Whether something varies less over the multipliers with VL than with VI."""
    values = {
        (method, beta): [of(method, beta, name) for name in names]
        for method in (VARIATIONAL, LEARNED)
        for beta in settings.temperatures
    }
    ranges = {key: max(each) - min(each) for key, each in values.items()}
    return Claim.judged(
        f"{what} of VL depends less on the multiplier than that of VI",
        all(ranges[LEARNED, beta] < ranges[VARIATIONAL, beta] for beta in settings.temperatures),
        "; ".join(
            f"β = {beta:g}: range {ranges[LEARNED, beta]:.3f} (VL), {ranges[VARIATIONAL, beta]:.3f} (VI)"
            for beta in settings.temperatures
        )
        + ", in nats per image.",
    )


def _arithmetic(found: Mapping[tuple[str, float, str], Sequence[Mapping[str, Any]]], settings: Settings) -> Claim:
    """How far log σ has moved, and how far it could have."""
    moved = {}
    for (method, beta, multiplier), cells in found.items():
        if multiplier:
            most = reach(cells[0], float(multiplier), settings.fit)
            moved[method, beta, multiplier] = (max(one["ratio"][-1] for one in cells) - START, most)
    slowest = {key: value for key, value in moved.items() if key[2] == f"{settings.multipliers[0]:g}"}
    return Claim.judged(
        "With the learning rate of the weights log σ cannot get back to the prior: it moves by at most the number "
        "of steps times the rate",
        all(distance <= 1.02 * most for distance, most in moved.values())
        and all(most < -START for _, most in slowest.values()),
        "; ".join(
            f"{method}, β = {beta:g}: moved by {distance:.2f} of at most {most:.2f}, 3 to the prior"
            for (method, beta, _), (distance, most) in slowest.items()
        )
        + ".",
    )


@measure.figure
def draw(record: Record) -> Any:
    """The course of log σ/s, and the bound and the scores against the multiplier."""
    from experiments.vl.figures import multipliers

    return multipliers(record.findings.data["arms"], "How far the variances get: learning rates of log σ")
