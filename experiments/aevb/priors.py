"""Section 7.1 of the report on AEVB: priors with nearly binary codes, which can be quantised to bits."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from experiments import Claim, Findings, Record, Runner, Table, experiment
from experiments.aevb import cells
from experiments.aevb.cells import DIGITS, DOCUMENT, HELD_OUT, Coders, Fit, Line, Task
from osculate.autoencoders import VAE, CodePrior, SparseBeta, StandardNormal, TwoNormals, rate_distortion
from osculate.posteriors import Point

NORMAL, BETA, TWO = "normal", "sparse Beta", "two normals"
CONTINUOUS, SHARE = "squared error, codes as they are", "share of codes within 0.1 of 0 or 1"
#: Largest relative growth of the squared error with which a quantised code keeps an image.
KEEPS = 0.1


@dataclass(frozen=True)
class Settings(cells.Settings):
    """Trainings that differ in the prior.

    Args:
        shapes: Shape of the Beta prior, and scale of both normals.
        bits: Numbers of bits for each number of a code.
    """

    coders: Coders = Coders(latent=32)
    fit: Fit = Fit(images=1_000_000)
    shapes: tuple[float, float] = (0.2, 0.1)
    bits: tuple[int, ...] = (1, 2, 3, 4, 6)


@experiment(
    "aevb-priors",
    "Priors under which codes are nearly binary",
    f"{DOCUMENT}, section 7.1",
    paper=Settings(DIGITS, fit=Fit(images=10_000_000)),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Train under each prior, and quantise the codes of test images."""
    task, fit = settings.task, settings.fit
    fit = replace(fit, estimator="stl") if fit.estimator is None else fit
    priors: dict[str, CodePrior] = {
        NORMAL: StandardNormal(),
        BETA: SparseBeta(settings.shapes[0]),
        TWO: TwoNormals(settings.shapes[1]),
    }
    lines = {name: Line(task, settings.coders, fit, "", name, parts={"prior": p}) for name, p in priors.items()}

    def score(name: str, net: VAE, seed: int) -> dict[str, Any]:
        return {"quantised": rate_distortion(Point(net, task.likelihood), task.load(seed).test[0], settings.bits)}

    found = cells.train_lines(lines, seeds, runner, score)
    table = Table()
    for name, runs in found.runs.items():
        for run in runs:
            values, quantised = {HELD_OUT: run["validation"][-1]}, run["quantised"]
            values[CONTINUOUS] = quantised.continuous.distortion
            for bits, level in zip(settings.bits, quantised.levels, strict=True):
                values[_column(bits)] = level.distortion
            table.add(name, values)
            share = quantised.binary_share
            table.setdefault((name, SHARE), []).extend([] if share is None else [share])
    return Findings(table.numbers(), claims(table, settings))


def _column(bits: int) -> str:
    return f"squared error, {bits} bit{'s' if bits > 1 else ''} a number"


def claims(table: Table, settings: Settings) -> Iterator[Claim]:
    """Yield the evidence on the purpose of such priors."""

    def fewest(name: str) -> str:
        """Return the smallest number of bits that keeps the images of every seed."""
        for bits in settings.bits:
            pairs = zip(table[name, _column(bits)], table[name, CONTINUOUS], strict=True)
            if all(cut / whole - 1 <= KEEPS for cut, whole in pairs):
                return f"{name} {bits}"
        return f"{name} more than {settings.bits[-1]}"

    yield Claim.over_seeds("Nearly binary codes", "The codes are mean codes of test images.")
    yield Claim.over_seeds(
        "Cut to one bit a number",
        f"That is {settings.coders.latent} bits an image. Fewest bits a number that keep the squared error within "
        f"{KEEPS:.0%}: {', '.join(fewest(name) for name in dict.fromkeys(row for row, _ in table))}.",
    )


@measure.figure
def draw(record: Record) -> Any:
    """Draw error against bits for an image, one line per prior."""
    from experiments.aevb import figures

    settings, means = record.setup.settings, record.means
    rates = [bits * settings["coders"]["latent"] for bits in settings["bits"]]
    names = dict.fromkeys(row for row, _ in means)
    lines = {name: (rates, [means[name, _column(bits)] for bits in settings["bits"]]) for name in names}
    continuous = {name: means[name, CONTINUOUS] for name in names}
    title = Task(**settings["task"]).title
    return figures.rate_distortion(lines, f"{title}: codes quantised to bits, by their prior", continuous)
