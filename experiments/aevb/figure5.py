"""Figure 5 of the report on AEVB: estimators of the bound against the size of the code."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from experiments import Claim, Findings, Number, Record, Resumable, experiment, seeded, together
from experiments.aevb.cells import (
    DOCUMENT,
    FREY,
    FREY_CODERS,
    PUBLISHED,
    Coders,
    Fit,
    Task,
    draw_curves,
    held_out,
    likelihood_of,
)
from experiments.aevb.lines import Found, Line, train_lines
from osculate.autoencoders import VAE, compare_estimators

#: The estimators, as the document writes them, and the gradient through the path alone.
NAMES = {"A": "A, all sampled", "B": "B, divergence in closed form", "stl": "A, path gradients"}
#: Bounds of held-out images in the document's result files, after 1e8 digits and 3e6 frames, by size of the code.
PRINTED: Mapping[tuple[str, str], Mapping[int, float]] = {
    ("mnist", "B"): {3: -135.26, 5: -121.25, 10: -105.28, 20: -101.60, 200: -101.09},
    ("mnist", "A"): {3: -138.92, 5: -125.74, 10: -112.21, 20: -108.52, 200: -108.82},
    (FREY.data, "B"): {2: 657.9, 5: 757.3, 10: 737.3, 20: 636.7},
}
VALUE, GRADIENT = "variance of an estimate, nats²", "variance of the encoder's gradient"
#: How near to the document's bounds ours must be.
NEAR = 3.0


@dataclass(frozen=True)
class Part:
    """One data set.

    Args:
        task: images.
        coders: but for the size of the code.
        fit: but for the estimator.
        latents: sizes of the code.
        estimators: keys of :data:`NAMES`.
    """

    task: Task = Task()
    coders: Coders = Coders()
    fit: Fit = Fit()
    latents: tuple[int, ...] = (3, 5, 10, 20)
    estimators: tuple[str, ...] = ("A", "B", "stl")


#: All of MNIST, forty times.
DIGITS = Part(Task(train_size=50_000, validation_size=10_000), fit=Fit(images=2_000_000), estimators=("B",))
#: The film, with the estimator that the document's result files have for it.
FACES = Part(FREY, FREY_CODERS, Fit(images=600_000), (2, 5, 10, 20), ("B",))


@dataclass(frozen=True)
class Settings(Resumable):
    """What is trained.

    Args:
        parts: data sets with what is trained on them.
        repeats: draws from which variances are taken, at the weights that B has reached.
    """

    parts: tuple[Part, ...] = (Part(), FACES)
    repeats: int = 200


PRESETS = {
    "small": Settings(),
    "whole": Settings((DIGITS,)),
    "paper": Settings(
        (
            replace(DIGITS, fit=PUBLISHED, latents=(3, 5, 10, 20, 200), estimators=Part.estimators),
            replace(FACES, fit=replace(PUBLISHED, images=3_000_000)),
        )
    ),
}


@experiment("aevb-figure5", "Estimators of the bound against the size of the code", f"{DOCUMENT}, Figure 5", **PRESETS)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Train with each estimator, and compare all of them at the weights that B has reached."""
    runs: dict[Line, Sequence[Mapping[str, Any]]] = {}
    seconds = 0.0
    for part in settings.parts:
        lines = [_line(part, settings, latent, name) for latent in part.latents for name in part.estimators]
        look = partial(_variances, part, settings.repeats)
        of_part = train_lines(part.task, lines, seeds, settings.cells, progress, look)
        runs |= of_part.runs
        seconds += of_part.seconds
    found = Found(runs, seconds)
    numbers = list(found.numbers())
    for line, each in found.runs.items():
        for name, columns in (each[0].get("variances") or {}).items():
            row = f"{line.panel}, {NAMES[name]}"
            for column in columns:
                numbers.append(Number(row, column, tuple(run["variances"][name][column] for run in each)))
    return Findings(tuple(numbers), claims(found, settings), {"curves": found.panels()}, found.seconds)


def _line(part: Part, settings: Settings, latent: int, name: str) -> Line:
    printed = PRINTED.get((part.task.data, name), {}).get(latent)
    coders, fit = replace(part.coders, latent=latent), replace(part.fit, estimator=name)
    panel = f"{part.task.title}, {latent} codes"
    return Line(panel, NAMES[name], coders, fit, "" if printed is None else f"{printed}")


def _variances(part: Part, repeats: int, line: Line, net: VAE, seed: int) -> dict[str, Any]:
    if line.fit.estimator != "B":
        return {}
    x = held_out(part.task.load(seed))[: part.fit.batch]
    with seeded(seed):
        found = compare_estimators(net, likelihood_of(part.task.data), x, part.estimators, repeats=repeats)
    return {"variances": {name: {VALUE: r.value_variance, GRADIENT: r.encoder_variance} for name, r in found.items()}}


def claims(found: Found, settings: Settings) -> tuple[Claim, ...]:
    """Verdicts on what the document says of estimators and sizes."""
    digits = settings.parts[0]
    lines = {
        (latent, name): line
        for latent in digits.latents
        for name in digits.estimators
        if (line := _line(digits, settings, latent, name)) in found.runs
    }
    last = {which: found.last(line) for which, line in lines.items()}
    both = [latent for latent in digits.latents if {(latent, "A"), (latent, "B")} <= last.keys()]
    margins = {latent: last[latent, "B"] - last[latent, "A"] for latent in both}
    rising = [last[latent, "B"] for latent in sorted(digits.latents) if latent <= 10 and (latent, "B") in last]
    printed = PRINTED.get((digits.task.data, "B"), {})
    near = {n: last[n, "B"] - bound for n, bound in printed.items() if (n, "B") in last}
    images = f"after {digits.fit.images:.3g} images"
    variances = [run["variances"] for runs in found.runs.values() for run in runs if "variances" in run]
    wider = {column: [v["A"][column] > v["B"][column] for v in variances if "A" in v] for column in (VALUE, GRADIENT)}
    return (
        Claim.judged(
            "In each case the bound of networks trained with B is better than with A",
            together(found.above(lines[latent, "B"], lines[latent, "A"]) for latent in both),
            f"B − A in validation bound, {images}: {_listed(margins)} nats.",
        ),
        Claim.judged(
            "The bound rises with the size of the code up to 10",
            all(a < b for a, b in pairwise(rising)) if len(rising) > 1 else None,
            f"validation bound {images}: {', '.join(f'{value:.1f}' for value in rising)}.",
        ),
        Claim.judged(
            f"The bound is within {NEAR:g} nats of the document's after 1e8 images, or better",
            all(gap >= -NEAR for gap in near.values()) if near else None,
            f"ours {images} of {digits.task.train_size or 'all'} training images, less the document's: "
            f"{_listed(near)} nats.",
        ),
        Claim.judged(
            "Of one network, estimator A has the larger variance of its value",
            all(wider[VALUE]) if wider[VALUE] else None,
            f"in {sum(wider[VALUE])} of {len(wider[VALUE])} networks. Where q is near the posterior, log p(x, z) "
            "and log q(z|x) vary together and A varies less: with the exact posterior it does not vary at all.",
        ),
        Claim.judged(
            "Of one network, estimator A has the larger variance of its gradient (ours)",
            all(wider[GRADIENT]) if wider[GRADIENT] else None,
            f"in {sum(wider[GRADIENT])} of {len(wider[GRADIENT])} trained networks.",
        ),
        *(_overfitting(found, settings, part) for part in settings.parts[1:]),
    )


def _overfitting(found: Found, settings: Settings, part: Part) -> Claim:
    """Whether the film is explained best by codes of middle size."""
    lines = {latent: _line(part, settings, latent, "B") for latent in part.latents}
    last = {latent: found.last(line) for latent, line in lines.items() if line in found.runs}
    best = max(last, key=lambda latent: last[latent], default=None)
    told = ", ".join(f"{value:.0f} ({latent} codes)" for latent, value in last.items())
    return Claim.judged(
        f"{part.task.title}: held-out frames are explained best with 5 or 10 numbers, and worse with 20",
        best in (5, 10) if {2, 5, 10, 20} <= last.keys() else None,
        f"validation bound after {part.fit.images:.3g} frames: {told or 'none trained'}.",
    )


def _listed(values: Mapping[int, float]) -> str:
    return ", ".join(f"{value:+.1f} ({latent} codes)" for latent, value in values.items()) or "none trained"


@measure.figure
def draw(record: Record) -> Any:
    """One panel a size of the code, one line an estimator."""
    return draw_curves(record.findings.data["curves"], "Estimators of the bound, by the size of the code", shared=False)
