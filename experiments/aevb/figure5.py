"""Figure 5 of the report on AEVB: estimators of the bound against the size of the code."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

from experiments import Claim, Findings, Resumable, Runner, experiment, listed, seeded, together
from experiments.aevb import cells
from experiments.aevb.cells import DOCUMENT, FREY, FREY_CODERS, PUBLISHED, Coders, Fit, Line, Task, Trained
from osculate.autoencoders import VAE, compare_estimators

#: Estimators under their names in the document, and the gradient through the path alone.
NAMES = {"A": "A, all sampled", "B": "B, divergence in closed form", "stl": "A, path gradients"}
#: Validation bounds in the document's result files, after 1e8 digits and 3e6 frames, by size of the code.
PRINTED: Mapping[tuple[str, str], Mapping[int, float]] = {
    ("mnist", "B"): {3: -135.26, 5: -121.25, 10: -105.28, 20: -101.60, 200: -101.09},
    ("mnist", "A"): {3: -138.92, 5: -125.74, 10: -112.21, 20: -108.52, 200: -108.82},
    (FREY.data, "B"): {2: 657.9, 5: 757.3, 10: 737.3, 20: 636.7},
}
VALUE, GRADIENT = "variance of an estimate, nats²", "variance of the encoder's gradient"
#: Largest difference in nats from the document's bounds.
NEAR = 3.0


@dataclass(frozen=True)
class Part:
    """One data set.

    Args:
        task: Images.
        coders: Encoder and decoder, but for the size of the code.
        fit: Training, but for the estimator.
        latents: Sizes of the code.
        estimators: Estimators, keys of :data:`NAMES`.
    """

    task: Task = Task()
    coders: Coders = Coders()
    fit: Fit = Fit()
    latents: tuple[int, ...] = (3, 5, 10, 20)
    estimators: tuple[str, ...] = ("A", "B", "stl")


#: All of MNIST, forty times.
DIGITS = Part(cells.DIGITS, fit=Fit(images=2_000_000), estimators=("B",))
#: The film, with the estimator of the document's result files.
FACES = Part(FREY, FREY_CODERS, Fit(images=600_000), (2, 5, 10, 20), ("B",))


@dataclass(frozen=True)
class Settings(Resumable):
    """Trainings.

    Args:
        parts: Data sets with their trainings.
        repeats: Draws for the variances of the estimators, in the networks trained with B.
    """

    parts: tuple[Part, ...] = (Part(), FACES)
    repeats: int = 200


@experiment(
    "aevb-figure5",
    "Estimators of the bound against the size of the code",
    f"{DOCUMENT}, Figure 5",
    whole=Settings((DIGITS,)),
    paper=Settings(
        (
            replace(DIGITS, fit=PUBLISHED, latents=(3, 5, 10, 20, 200), estimators=Part.estimators),
            replace(FACES, fit=replace(PUBLISHED, images=3_000_000)),
        )
    ),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Train with each estimator, and compare all estimators in the networks trained with B."""
    parts = {part.task.data: part for part in settings.parts}

    def score(key: tuple[str, int, str], net: VAE, seed: int) -> dict[str, Any]:
        data, _, estimator = key
        if estimator != "B":
            return {}
        part = parts[data]
        x = cells.held_out(part.task.load(seed))[: part.fit.batch]
        with seeded(seed):
            found = compare_estimators(net, part.task.likelihood, x, part.estimators, repeats=settings.repeats)
        each = {name: {VALUE: r.value_variance, GRADIENT: r.encoder_variance} for name, r in found.items()}
        return {"variances": each}

    found = cells.train_lines(lines(settings), seeds, runner, score)
    table = found.table()
    for key, runs in found.runs.items():
        for run in runs:
            for name, variances in run.get("variances", {}).items():
                table.add(f"{found.lines[key].panel}, {NAMES[name]}", variances)
    numbers = table.numbers(printed=found.printed)
    return Findings(numbers, claims(found, settings), {"curves": found.panels})


def lines(settings: Settings) -> dict[tuple[str, int, str], Line]:
    """Return the trainings by data set, size of the code and estimator."""
    found = {}
    for part in settings.parts:
        for latent in part.latents:
            for name in part.estimators:
                coders, fit = replace(part.coders, latent=latent), replace(part.fit, estimator=name)
                printed = str(PRINTED.get((part.task.data, name), {}).get(latent, ""))
                panel = f"{part.task.title}, {latent} codes"
                found[part.task.data, latent, name] = Line(part.task, coders, fit, panel, NAMES[name], printed)
    return found


def claims(found: Trained, settings: Settings) -> Iterator[Claim]:
    """Yield the verdicts on claims about estimators and sizes."""
    digits, films = settings.parts[0], settings.parts[1:]
    data = digits.task.data
    last = {key: found.last(key) for key in found.runs}
    both = [n for n in digits.latents if {(data, n, "A"), (data, n, "B")} <= last.keys()]
    margins = {n: last[data, n, "B"] - last[data, n, "A"] for n in both}
    rising = [last[data, n, "B"] for n in sorted(digits.latents) if n <= 10 and (data, n, "B") in last]
    printed = PRINTED.get((data, "B"), {})
    near = {n: last[data, n, "B"] - bound for n, bound in printed.items() if (data, n, "B") in last}
    images = f"after {digits.fit.images:.3g} images"
    variances = [run["variances"] for runs in found.runs.values() for run in runs if "variances" in run]
    wider = {column: [v["A"][column] > v["B"][column] for v in variances if "A" in v] for column in (VALUE, GRADIENT)}
    yield Claim.judged(
        "In each case the bound of networks trained with B is better than with A",
        together(found.above((data, n, "B"), (data, n, "A")) for n in both),
        f"B − A in validation bound, {images}: {_by_size(margins)} nats.",
    )
    yield Claim.judged(
        "The bound rises with the size of the code up to 10",
        all(a < b for a, b in pairwise(rising)) if len(rising) > 1 else None,
        f"validation bound {images}: {listed(rising, '.1f')}.",
    )
    yield Claim.judged(
        f"The bound is within {NEAR:g} nats of the document's after 1e8 images, or better",
        all(gap >= -NEAR for gap in near.values()) if near else None,
        f"ours {images} of {digits.task.train_size or 'all'} training images, less the document's: "
        f"{_by_size(near)} nats.",
    )
    yield Claim.judged(
        "Of one network, estimator A has the larger variance of its value",
        all(wider[VALUE]) if wider[VALUE] else None,
        f"in {sum(wider[VALUE])} of {len(wider[VALUE])} networks. Where q is near the posterior, log p(x, z) "
        "and log q(z|x) vary together and A varies less: with the exact posterior it does not vary at all.",
    )
    yield Claim.judged(
        "Of one network, estimator A has the larger variance of its gradient (ours)",
        all(wider[GRADIENT]) if wider[GRADIENT] else None,
        f"in {sum(wider[GRADIENT])} of {len(wider[GRADIENT])} trained networks.",
    )
    for part in films:
        frames = {n: last[k, n, e] for k, n, e in last if k == part.task.data}
        yield Claim.judged(
            f"{part.task.title}: held-out frames are explained best with 5 or 10 numbers, and worse with 20",
            max(frames, key=frames.__getitem__) in (5, 10) if {2, 5, 10, 20} <= frames.keys() else None,
            f"validation bound after {part.fit.images:.3g} frames: {_by_size(frames, '.0f')}.",
        )


def _by_size(values: Mapping[int, float], form: str = "+.1f") -> str:
    return ", ".join(f"{value:{form}} ({latent} codes)" for latent, value in values.items()) or "none trained"


#: One panel per size of the code, one line per estimator.
measure.figure(partial(cells.draw_curves, heading="Estimators of the bound, by the size of the code", shared=False))
