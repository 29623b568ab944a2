"""Figure 5 of the report on AEVB: estimators of the bound against the size of the code."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Any

from osculate.autoencoders import VAE, compare_estimators
from osculate.reproduce._base import Reproduction, seeded
from osculate.reproduce.aevb_cells import DOCUMENT, PUBLISHED, Coders, Fit, Task, draw_curves, held_out, likelihood_of
from osculate.reproduce.aevb_lines import Found, Line, train_lines
from osculate.reproduce.record import Claim, Findings, Number, Record

#: The estimators, as the document writes them, and the gradient through the path alone.
NAMES = {"A": "A, all sampled", "B": "B, divergence in closed form", "stl": "A, path gradients"}
#: Bounds that the document's result files hold after 1e8 images, by estimator and size of the code: validation images.
PRINTED = {
    "B": {3: -135.26, 5: -121.25, 10: -105.28, 20: -101.60, 200: -101.09},
    "A": {3: -138.92, 5: -125.74, 10: -112.21, 20: -108.52, 200: -108.82},
}
VALUE, GRADIENT = "variance of an estimate, nats²", "variance of the encoder's gradient"
#: How near to the document's bounds ours must be.
NEAR = 3.0


@dataclass(frozen=True)
class Settings:
    """What is trained.

    Args:
        task: images.
        coders: but for the size of the code.
        fit: but for the estimator.
        latents: sizes of the code.
        estimators: keys of :data:`NAMES`.
        repeats: draws from which variances are taken, at the weights that B has reached.
        cells: folder where trained networks are kept; empty for none.
    """

    task: Task = Task()
    coders: Coders = Coders()
    fit: Fit = Fit()
    latents: tuple[int, ...] = (3, 5, 10, 20)
    estimators: tuple[str, ...] = ("A", "B", "stl")
    repeats: int = 200
    cells: str = field(default="", metadata={"recorded": False})


PRESETS = {
    "small": Settings(),
    "paper": Settings(Task(train_size=50_000, validation_size=10_000), fit=PUBLISHED, latents=(3, 5, 10, 20, 200)),
}


def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Train with each estimator, and compare all of them at the weights that B has reached."""
    lines = [_line(settings, latent, name) for latent in settings.latents for name in settings.estimators]
    look = partial(_variances, settings)
    found = train_lines(settings.task, lines, seeds, settings.cells, progress, look)
    numbers = list(found.numbers())
    for line, runs in found.runs.items():
        for name, columns in (runs[0].get("variances") or {}).items():
            row = f"{line.panel}, {NAMES[name]}"
            for column in columns:
                numbers.append(Number(row, column, tuple(run["variances"][name][column] for run in runs)))
    return Findings(tuple(numbers), claims(found, settings), {"curves": found.panels()}, found.seconds)


def _line(settings: Settings, latent: int, name: str) -> Line:
    printed = PRINTED.get(name, {}).get(latent) if settings.task.data == "mnist" else None
    coders, fit = replace(settings.coders, latent=latent), replace(settings.fit, estimator=name)
    return Line(f"{latent} codes", NAMES[name], coders, fit, "" if printed is None else f"{printed}")


def _variances(settings: Settings, line: Line, net: VAE, seed: int) -> dict[str, Any]:
    if line.fit.estimator != "B":
        return {}
    x = held_out(settings.task.load(seed))[: settings.fit.batch]
    with seeded(seed):
        found = compare_estimators(
            net, likelihood_of(settings.task.data), x, settings.estimators, repeats=settings.repeats
        )
    return {"variances": {name: {VALUE: r.value_variance, GRADIENT: r.encoder_variance} for name, r in found.items()}}


def claims(found: Found, settings: Settings) -> tuple[Claim, ...]:
    """Verdicts on what the document says of estimators and sizes."""
    last = {(line.coders.latent, line.fit.estimator): found.last(line) for line in found.runs}
    both = [latent for latent in settings.latents if {(latent, "A"), (latent, "B")} <= last.keys()]
    margins = {latent: last[latent, "B"] - last[latent, "A"] for latent in both}
    rising = [last[latent, "B"] for latent in sorted(settings.latents) if latent <= 10 and (latent, "B") in last]
    near = {k: last[k, "B"] - PRINTED["B"][k] for k in both if k in PRINTED["B"] and settings.task.data == "mnist"}
    images = f"after {settings.fit.images:.3g} images"
    variances = [run["variances"] for runs in found.runs.values() for run in runs if "variances" in run]
    wider = {column: [v["A"][column] > v["B"][column] for v in variances if "A" in v] for column in (VALUE, GRADIENT)}
    return (
        Claim.judged(
            "In each case the bound of networks trained with B is better than with A",
            all(margin >= 0 for margin in margins.values()) if margins else None,
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
            f"ours {images} of {settings.task.train_size or 'all'} training images, less the document's: "
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
    )


def _listed(values: Mapping[int, float]) -> str:
    return ", ".join(f"{value:+.1f} ({latent} codes)" for latent, value in values.items()) or "none trained"


def draw(record: Record) -> Any:
    """One panel a size of the code, one line an estimator."""
    return draw_curves(record.findings.data["curves"], "Estimators of the bound, by the size of the code")


REPRODUCTION = Reproduction(
    "aevb-figure5",
    "Estimators of the bound against the size of the code",
    f"{DOCUMENT}, Figure 5",
    PRESETS,
    measure,
    draw,
)
