"""Early stopping of variances: the bound and the scores against the learning rate of log σ."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from experiments import Claim, Findings, Record, Resumable, Runner, Table, experiment
from experiments.vl import cells
from experiments.vl.cells import ACCURACY, EVERY, LEARNED, NLL, PUBLISHED, VARIATIONAL, Fit, Run, Task
from osculate.training.settings import SCHEDULES

#: Initial value of log σ/s.
START = -3.0
BOUND = "ELBO, nats per image"
RATIO, REACH = "mean log σ/s at the end", "log σ can move by at most"
CLOSED = "VL, closed form"

#: Method, β, and multiplier of the learning rate of log σ, None for the closed form.
Arm = tuple[str, float, float | None]


@dataclass(frozen=True)
class Settings(Resumable):
    """Trainings, each to its last epoch.

    Args:
        task: Images and network.
        fit: Settings of the training. Its learning rate is small, as in the document, and limits the variances.
        temperatures: Weights β of the divergence.
        multipliers: Multipliers of the learning rate of log σ.
    """

    task: Task = Task()
    fit: Fit = Fit(epochs=20, lr=5e-4)
    temperatures: tuple[float, ...] = (1.0, 0.1)
    multipliers: tuple[float, ...] = (1.0, 3.0, 10.0, 30.0)


@experiment(
    "vl-figure2",
    "Early stopping of the variances",
    "Variational Laplace [unlu2021], Figure 2",
    paper=Settings(cells.published("cifar10"), PUBLISHED),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Train VI and VL with learned variances for each multiplier, and VL in closed form, which has none."""
    betas = settings.temperatures

    def trained(method: str, beta: float, multiplier: float | None, seed: int) -> dict[str, Any]:
        name, options = (EVERY, {}) if multiplier is None else (method, {"multiplier": multiplier})
        return cells.cell(Run(settings.task, settings.fit, name, beta, seed, options, to_end=True), runner)

    arms: list[Arm] = [
        (m, beta, each) for beta in betas for m in (VARIATIONAL, LEARNED) for each in settings.multipliers
    ]
    arms += [(CLOSED, beta, None) for beta in betas]
    found = runner.over("trainings", [(*arm, seed) for arm in arms for seed in seeds], trained)
    table, shown = Table(), []
    for (method, beta, multiplier), runs in found.items():
        row = f"{method}, β = {beta:g}" + ("" if multiplier is None else f", × {multiplier:g}")
        for run in runs:
            scores = run["end"]["test"]
            values = {BOUND: run["elbo"], NLL: scores["nll"], ACCURACY: 100 * scores["accuracy"]}
            table.add(row, values | {RATIO: run["ratio"][-1]})
            reached = [] if multiplier is None else [reach(run, multiplier, settings.fit)]
            table.setdefault((row, REACH), []).extend(reached)
        shown.append(
            {
                "method": method,
                "beta": beta,
                "multiplier": "" if multiplier is None else f"{multiplier:g}",
                "ratio": runs[0]["ratio"],
                "bound": [-value for value in runs[0]["loss"]],
                "elbo": [run["elbo"] for run in runs],
                "nll": [run["end"]["test"]["nll"] for run in runs],
                "accuracy": [run["end"]["test"]["accuracy"] for run in runs],
            }
        )
    return Findings(table.numbers(), claims(found, settings), {"arms": shown})


def reach(run: Mapping[str, Any], multiplier: float, fit: Fit) -> float:
    """Return the largest possible change of log σ: the sum of the learning rates of all steps."""
    factor = SCHEDULES[fit.schedule]
    return float(run["steps"]) * fit.lr * multiplier * mean(factor((k + 0.5) / 1000) for k in range(1000))


def claims(found: Mapping[Arm, Sequence[Mapping[str, Any]]], settings: Settings) -> Iterator[Claim]:
    """Yield the claim on how far log σ moves."""
    moved = {}  # the largest change of log σ over seeds, and the largest possible one
    for (method, beta, multiplier), runs in found.items():
        if multiplier is not None:
            most = reach(runs[0], multiplier, settings.fit)
            moved[method, beta, multiplier] = (max(run["ratio"][-1] for run in runs) - START, most)
    slowest = {
        (method, beta): each
        for (method, beta, multiplier), each in moved.items()
        if multiplier == settings.multipliers[0]
    }
    yield Claim.judged(
        "Reach of log σ at the rate of the weights",
        all(distance <= 1.02 * most for distance, most in moved.values())
        and all(most < -START for _, most in slowest.values()),
        "It moves by at most the number of steps times the rate; "
        + "; ".join(
            f"{method}, β = {beta:g}: moved by {distance:.2f} of at most {most:.2f}, 3 to the prior"
            for (method, beta), (distance, most) in slowest.items()
        )
        + ".",
    )


@measure.figure
def draw(record: Record) -> Any:
    """Draw one row per β: log σ/s by epoch, then the bound and the scores against the multiplier.

    Courses are the darker, the larger the multiplier; the closed form is dashed, the prior the line at zero.
    """
    import numpy as np

    from osculate import plots
    from osculate.plots import style

    ends = {"elbo": "ELBO, nats per datum", "nll": "test NLL, nats", "accuracy": "test accuracy"}
    arms = record.findings.data["arms"]
    betas = list(dict.fromkeys(arm["beta"] for arm in arms))
    tints = {VARIATIONAL: style.GREEN, LEARNED: style.BLUE, CLOSED: style.ORANGE}
    steps = sorted({float(arm["multiplier"]) for arm in arms if arm["multiplier"]})
    figure, axes = style.panels(len(betas), 1 + len(ends), 3.3, 2.7)
    for row, beta in zip(axes, betas, strict=True):
        here = [arm for arm in arms if arm["beta"] == beta]
        style.label(row[0], y=f"β = {beta:g}\nmean log σ/s")
        row[0].axhline(0, color=style.INK, linewidth=0.8, linestyle=":")
        for arm in here:
            course, tint = np.asarray(arm["ratio"]), tints[arm["method"]]
            epochs = np.arange(1, len(course) + 1)
            if not arm["multiplier"]:
                row[0].plot(epochs, course, "--", color=tint, linewidth=1.4)
                continue
            alpha = np.clip(0.3 + 0.7 * np.log(float(arm["multiplier"]) + 1e-9) / np.log(30), 0.3, 1)
            row[0].plot(epochs, course, color=tint, linewidth=1.2, alpha=float(alpha))
            if arm["method"] == VARIATIONAL:  # half-way, since the ends lie together
                half = int(np.argmax(course >= (course[0] + course[-1]) / 2))
                place = (epochs[half], course[half])
                row[0].annotate(f"× {arm['multiplier']}", place, (5, -7), textcoords="offset points", fontsize=8)
        for ax, (name, words) in zip(row[1:], ends.items(), strict=True):
            style.label(ax, y=words)
            means: dict[str, tuple[list[float], list[float]]] = {}
            for arm in here:
                if not arm["multiplier"]:
                    line = {"color": style.ORANGE, "linestyle": "--", "linewidth": 1.4, "label": arm["method"]}
                    ax.axhline(float(np.mean(arm[name])), **line)
                    continue
                x, y = means.setdefault(arm["method"], ([], []))
                x.append(float(arm["multiplier"]))
                y.append(float(np.mean(arm[name])))
                ax.plot([x[-1]] * len(arm[name]), arm[name], ".", color=tints[arm["method"]], markersize=3)
            plots.lines(ax, means, tints, markers="os")
            style.ticks(ax, steps)
    style.legend(axes[0, 1])
    for ax in axes[-1, 1:]:
        style.label(ax, x="multiplier of the learning rate of log σ")
    style.label(axes[-1, 0], x="epoch")
    return style.title(figure, "How far the variances get: learning rates of log σ")
