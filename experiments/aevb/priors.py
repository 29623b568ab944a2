"""Section 7.1 of the report on AEVB: priors under which codes are nearly binary, and can be cut to bits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from experiments import Claim, Findings, Number, Record, Resumable, Runner, clearly, experiment
from experiments.aevb.cells import DOCUMENT, Coders, Fit, Task, fitted, likelihood_of
from experiments.aevb.lines import HELD_OUT
from osculate.autoencoders import CodePrior, RateDistortion, SparseBeta, StandardNormal, TwoNormals, rate_distortion
from osculate.posteriors import Point
from osculate.progress import track

#: Priors by name.
NORMAL, BETA, TWO = "normal", "sparse Beta", "two normals"
#: Columns.
CONTINUOUS, SHARE = "squared error, codes as they are", "share of codes within 0.1 of 0 or 1"
#: A code cut to a bit a number keeps an image if the squared error grows by no more than this share.
KEEPS = 0.1
#: A code is nearly binary with this share of its numbers near 0 or 1.
BINARY = 0.8


@dataclass(frozen=True)
class Settings(Resumable):
    """What is trained.

    Args:
        task: images.
        coders: encoder and decoder.
        fit: how they are trained.
        shapes: of the Beta prior, and the scale of both normals.
        bits: for each number of a code.
    """

    task: Task = Task()
    coders: Coders = Coders(latent=32)
    fit: Fit = Fit(images=1_000_000)
    shapes: tuple[float, float] = (0.2, 0.1)
    bits: tuple[int, ...] = (1, 2, 3, 4, 6)


PRESETS = {
    "small": Settings(),
    "paper": Settings(Task(train_size=50_000, validation_size=10_000), fit=Fit(images=10_000_000)),
}


@experiment("aevb-priors", "Priors under which codes are nearly binary", f"{DOCUMENT}, section 7.1", **PRESETS)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Train under each prior, and cut the codes of test images."""
    runner, fit = Runner(settings.cells, progress), settings.fit
    priors: dict[str, CodePrior] = {
        NORMAL: StandardNormal(),
        BETA: SparseBeta(settings.shapes[0]),
        TWO: TwoNormals(settings.shapes[1]),
    }
    todo = [(name, seed) for name in priors for seed in seeds]
    found: dict[str, list[dict[str, Any]]] = {}
    for name, seed in track(todo, "trainings", len(todo), progress):
        given = replace(fit, estimator="stl") if fit.estimator is None else fit
        net, values = fitted(settings.task, settings.coders, given, seed, runner, prior=priors[name])
        q = Point(net, likelihood_of(settings.task.data))
        cut = rate_distortion(q, settings.task.load(seed).test[0], settings.bits)
        found.setdefault(name, []).append({HELD_OUT: values["validation"][-1], "cut": cut})
    return Findings(tuple(_numbers(found, settings)), claims(found, settings), {}, runner.seconds)


def _numbers(found: Mapping[str, Sequence[Mapping[str, Any]]], settings: Settings) -> list[Number]:
    numbers = []
    for name, runs in found.items():
        cuts: list[RateDistortion] = [run["cut"] for run in runs]
        numbers.append(Number(name, HELD_OUT, tuple(run[HELD_OUT] for run in runs)))
        numbers.append(Number(name, CONTINUOUS, tuple(cut.continuous.distortion for cut in cuts)))
        for place, bits in enumerate(settings.bits):
            numbers.append(Number(name, _column(bits), tuple(cut.levels[place].distortion for cut in cuts)))
        shares = tuple(cut.binary_share for cut in cuts if cut.binary_share is not None)
        numbers.append(Number(name, SHARE, shares))
    return numbers


def _column(bits: int) -> str:
    return f"squared error, {bits} bit{'s' if bits > 1 else ''} a number"


def claims(found: Mapping[str, Sequence[Mapping[str, Any]]], settings: Settings) -> tuple[Claim, ...]:
    """Verdicts on what such priors are for."""

    def lost(name: str) -> list[float]:
        """By how much one bit for each number makes the error larger, as a share."""
        cuts = [run["cut"] for run in found.get(name, ())]
        return [cut.levels[0].distortion / cut.continuous.distortion - 1 for cut in cuts]

    shares = {name: [s for run in runs if (s := run["cut"].binary_share) is not None] for name, runs in found.items()}
    near = {name: min(values) for name, values in shares.items() if values}
    tested = settings.bits[:1] == (1,) and settings.task.data == "mnist"
    told = "; ".join(f"{name}: " + ", ".join(f"{value:+.0%}" for value in lost(name)) for name in found)
    bounds = ", ".join(f"{name} {sum(r[HELD_OUT] for r in runs) / len(runs):.1f}" for name, runs in found.items())
    fewest = ", ".join(_fewest(found, name, settings) for name in found)
    rate = f"{settings.coders.latent} bits an image"
    return (
        Claim.judged(
            "A sparse prior makes each number of the code approximately 0 or 1",
            all(value > BINARY for value in near.values()) if tested else None,
            f"{SHARE}, of mean codes of test images: "
            + ", ".join(f"{name} {value:.0%}" for name, value in near.items())
            + ".",
        ),
        Claim.judged(
            f"Cut to one bit a number, {rate}, nearly binary codes keep the image within {KEEPS:.0%} of its error",
            all(value < KEEPS for name in (BETA, TWO) for value in lost(name)) if tested else None,
            f"growth of the squared error from codes as they are to one bit a number, {rate}: {told}. Fewest bits a "
            f"number that keep it within {KEEPS:.0%}: {fewest}.",
        ),
        *(
            Claim.judged(
                f"{name}: at one bit a number they keep more than codes with a normal prior that are cut (ours)",
                clearly(_differences(found, NORMAL, name)) if tested and {NORMAL, name} <= found.keys() else None,
                "squared error at one bit a number: "
                + "; ".join(f"{each} " + ", ".join(f"{e:.1f}" for e in _errors(found, each)) for each in found)
                + f". Validation bounds: {bounds} nats.",
            )
            for name in (BETA, TWO)
        ),
    )


def _fewest(found: Mapping[str, Sequence[Mapping[str, Any]]], name: str, settings: Settings) -> str:
    """The bits for each number from which on the error of every seed has grown by no more than the share allowed."""
    kept = [
        bits
        for place, bits in enumerate(settings.bits)
        if all(
            run["cut"].levels[place].distortion <= (1 + KEEPS) * run["cut"].continuous.distortion for run in found[name]
        )
    ]
    return f"{name} {kept[0]}" if kept else f"{name} more than {settings.bits[-1]}"


def _errors(found: Mapping[str, Sequence[Mapping[str, Any]]], name: str) -> list[float]:
    return [run["cut"].levels[0].distortion for run in found.get(name, ())]


def _differences(found: Mapping[str, Sequence[Mapping[str, Any]]], first: str, second: str) -> list[float]:
    return [a - b for a, b in zip(_errors(found, first), _errors(found, second), strict=True)]


@measure.figure
def draw(record: Record) -> Any:
    """Error against bits for an image, one line a prior."""
    from experiments.aevb import figures

    settings, lines, continuous = record.setup.settings, {}, {}
    found = {(number.row, number.column): number.mean for number in record.findings.numbers}
    for name in dict.fromkeys(number.row for number in record.findings.numbers):
        rates = [bits * settings["coders"]["latent"] for bits in settings["bits"]]
        lines[name] = (rates, [found[name, _column(bits)] for bits in settings["bits"]])
        continuous[name] = found[name, CONTINUOUS]
    title = Task(**settings["task"]).title
    return figures.rate_distortion(lines, f"{title}: codes cut to bits, by their prior", continuous)
