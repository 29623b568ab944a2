"""Figure 5 of the report on AEVB: estimators of the bound against the size of the code."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from experiments import Claim, Findings, Resumable, Runner, experiment, seeded
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
    """Yield the evidence on the document's bounds and on the variance of estimators."""
    digits = settings.parts[0]
    yield Claim.over_seeds(
        "Distance from the document's bound",
        f"Ours after {digits.fit.images:.3g} images of {digits.task.train_size or 'all'} training images, the "
        "document's after 1e8.",
    )
    variances = [run["variances"] for runs in found.runs.values() for run in runs if "variances" in run]
    for word, column, cause in (
        (
            "value",
            VALUE,
            " Where q is near the posterior, log p(x, z) and log q(z|x) vary together and A varies less: with the "
            "exact posterior it does not vary at all.",
        ),
        ("gradient", GRADIENT, ""),
    ):
        wider = [each["A"][column] > each["B"][column] for each in variances if "A" in each]
        counts = f"It is larger in {sum(wider)} of {len(wider)} networks.{cause}" if wider else ""
        yield Claim.over_seeds(f"Variance of the {word} of estimator A", counts)


#: One panel per size of the code, one line per estimator.
measure.figure(partial(cells.draw_curves, heading="Estimators of the bound, by the size of the code", shared=False))
