"""Section 7.1 of the report on AEVB: priors with nearly binary codes, which can be quantised to bits."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from experiments import Claim, Findings, Record, Runner, Table, clearly, experiment, listed
from experiments.aevb import cells
from experiments.aevb.cells import DIGITS, DOCUMENT, HELD_OUT, Coders, Fit, Line, Task
from osculate.autoencoders import VAE, CodePrior, SparseBeta, StandardNormal, TwoNormals, rate_distortion
from osculate.posteriors import Point

NORMAL, BETA, TWO = "normal", "sparse Beta", "two normals"
CONTINUOUS, SHARE = "squared error, codes as they are", "share of codes within 0.1 of 0 or 1"
#: Largest relative growth of the squared error with which a quantised code keeps an image.
KEEPS = 0.1
#: Smallest share of numbers near 0 or 1 in a nearly binary code.
BINARY = 0.8


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
    """Yield the verdicts on the purpose of such priors."""
    names = list(dict.fromkeys(row for row, _ in table))
    tested = settings.bits[:1] == (1,) and settings.task.data == "mnist"
    first, last = _column(settings.bits[0]), settings.bits[-1]

    def growth(name: str, column: str = first) -> list[float]:
        """Return the relative growth of the squared error by quantisation."""
        return [a / b - 1 for a, b in zip(table[name, column], table[name, CONTINUOUS], strict=True)]

    def fewest(name: str) -> str:
        """Return the smallest number of bits that keeps the images of every seed."""
        kept = [bits for bits in settings.bits if all(value <= KEEPS for value in growth(name, _column(bits)))]
        return f"{name} {kept[0]}" if kept else f"{name} more than {last}"

    near = {name: min(table[name, SHARE]) for name in names if table[name, SHARE]}
    growths = listed({name: growth(name) for name in names}, "+.0%", "; ")
    errors = "; ".join(f"{name} {listed(table[name, first], '.1f')}" for name in names)
    bounds = listed({name: table.mean(name, HELD_OUT) for name in names}, ".1f")
    rate = f"{settings.coders.latent} bits an image"
    yield Claim.judged(
        "A sparse prior makes each number of the code approximately 0 or 1",
        all(value > BINARY for value in near.values()) if tested else None,
        f"{SHARE}, of mean codes of test images: {listed(near, '.0%')}.",
    )
    yield Claim.judged(
        f"Cut to one bit a number, {rate}, nearly binary codes keep the image within {KEEPS:.0%} of its error",
        all(value < KEEPS for name in (BETA, TWO) for value in growth(name)) if tested else None,
        f"growth of the squared error from codes as they are to one bit a number, {rate}: {growths}. Fewest bits a "
        f"number that keep it within {KEEPS:.0%}: {', '.join(map(fewest, names))}.",
    )
    for name in (BETA, TWO):
        yield Claim.judged(
            f"{name}: at one bit a number they keep more than codes with a normal prior that are cut (ours)",
            clearly(table.differences(NORMAL, name, first)) if tested else None,
            f"squared error at one bit a number: {errors}. Validation bounds: {bounds} nats.",
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
