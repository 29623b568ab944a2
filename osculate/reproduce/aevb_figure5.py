"""Figure 5 of the report on AEVB: estimators of the bound against the size of the code."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean
from typing import Any

from osculate.autoencoders import compare_estimators
from osculate.progress import track
from osculate.reproduce._base import Reproduction, seeded
from osculate.reproduce.aevb_cells import (
    DOCUMENT,
    PUBLISHED,
    VERSION,
    Coders,
    Fit,
    Task,
    draw_curves,
    fitted,
    held_out,
    likelihood_of,
)
from osculate.reproduce.keep import Keep
from osculate.reproduce.record import Claim, Findings, Number, Record

#: The estimators, as the document writes them, and the gradient through the path alone.
NAMES = {"A": "A, all sampled", "B": "B, divergence in closed form", "stl": "A, path gradients"}
#: Bounds that the document's result files hold after 1e8 images, by estimator and size of the code: validation images.
PRINTED = {
    "B": {3: -135.26, 5: -121.25, 10: -105.28, 20: -101.60, 200: -101.09},
    "A": {3: -138.92, 5: -125.74, 10: -112.21, 20: -108.52, 200: -108.82},
}
TRAINED, HELD_OUT = "training bound, nats", "validation bound, nats"
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

#: Curves and variances by size of the code, estimator and seed.
Curves = Mapping[int, Mapping[str, Sequence[Mapping[str, Any]]]]


def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Train with each estimator, and compare all of them at the weights that B has reached."""
    keep = Keep(settings.cells, VERSION)
    todo = [(latent, name, seed) for latent in settings.latents for name in settings.estimators for seed in seeds]
    found: dict[int, dict[str, list[dict[str, Any]]]] = {}
    for latent, name, seed in track(todo, "trainings", len(todo), progress):
        coders, fit = replace(settings.coders, latent=latent), replace(settings.fit, estimator=name)
        net, values = fitted(settings.task, coders, fit, seed, keep)
        if name == "B":
            values["variances"] = _variances(net, settings, seed)
        found.setdefault(latent, {}).setdefault(name, []).append(values)
    return Findings(tuple(_numbers(found)), _claims(found, settings), {"curves": _drawn(found, settings)}, keep.seconds)


def _variances(net: Any, settings: Settings, seed: int) -> dict[str, tuple[float, float, float]]:
    x = held_out(settings.task.load(seed))[: settings.fit.batch]
    with seeded(seed):
        reports = compare_estimators(
            net, likelihood_of(settings.task.data), x, settings.estimators, repeats=settings.repeats
        )
    return {name: (r.mean, r.value_variance, r.encoder_variance) for name, r in reports.items()}


def _numbers(found: Curves) -> list[Number]:
    numbers = []
    for latent, by_name in found.items():
        for name, runs in by_name.items():
            row, printed = f"{latent} codes, {NAMES[name]}", PRINTED.get(name, {}).get(latent)
            numbers.append(Number(row, TRAINED, tuple(run["train"][-1] for run in runs)))
            told = "" if printed is None else f"{printed}"
            numbers.append(Number(row, HELD_OUT, tuple(run["validation"][-1] for run in runs), told))
            given = [run["variances"][name] for run in by_name.get("B", ()) if name in run.get("variances", {})]
            numbers.append(Number(row, VALUE, tuple(each[1] for each in given)))
            numbers.append(Number(row, GRADIENT, tuple(each[2] for each in given)))
    return numbers


def _claims(found: Curves, settings: Settings) -> tuple[Claim, ...]:
    last = {
        (latent, name): mean(run["validation"][-1] for run in runs)
        for latent, by_name in found.items()
        for name, runs in by_name.items()
    }
    pairs = [latent for latent in found if {(latent, "A"), (latent, "B")} <= last.keys()]
    rising = [last[latent, "B"] for latent in sorted(found) if latent <= 10 and (latent, "B") in last]
    near = {latent: last[latent, "B"] - PRINTED["B"][latent] for latent in pairs if latent in PRINTED["B"]}
    margins = {latent: last[latent, "B"] - last[latent, "A"] for latent in pairs}
    images = f"after {settings.fit.images:.3g} images"
    wider = [
        (latent, run["variances"]["A"][1] > run["variances"]["B"][1])
        for latent in pairs
        for run in found[latent]["B"]
        if {"A", "B"} <= run.get("variances", {}).keys()
    ]
    return (
        Claim.judged(
            "In each case the bound of networks trained with B is better than with A",
            all(margin >= 0 for margin in margins.values()) if margins else None,
            f"B − A in validation bound, {images}: " + _listed(margins) + " nats." if margins else "nothing trained",
        ),
        Claim.judged(
            "The bound rises with the size of the code up to 10",
            all(a < b for a, b in zip(rising, rising[1:], strict=False)) if len(rising) > 1 else None,
            "validation bound: " + ", ".join(f"{value:.1f}" for value in rising) + f" {images}.",
        ),
        Claim.judged(
            f"At the document's number of images the bound is within {NEAR:g} nats of its own, or better",
            all(gap >= -NEAR for gap in near.values()) if near and settings.task.data == "mnist" else None,
            f"ours − the document's after 1e8 images: {_listed(near)} nats. Ours are {images} of "
            f"{settings.task.train_size or 'all'} training images.",
        ),
        Claim.judged(
            "For one network A has the larger variance",
            all(holds for _, holds in wider) if wider else None,
            f"in {sum(holds for _, holds in wider)} of {len(wider)} networks; the means of both are one (tests).",
        ),
    )


def _listed(values: Mapping[int, float]) -> str:
    return ", ".join(f"{value:+.1f} ({latent} codes)" for latent, value in values.items())


def _drawn(found: Curves, settings: Settings) -> dict[str, Any]:
    """The curves of the first seed."""
    return {
        str(latent): {
            name: {key: list(runs[0][key]) for key in ("seen", "train", "validation")} for name, runs in by_name.items()
        }
        for latent, by_name in found.items()
    }


def draw(record: Record) -> Any:
    """One panel a size of the code, one line an estimator."""
    found = record.findings.data["curves"]
    panels = {
        f"{latent} codes": {NAMES[name]: curve for name, curve in by_name.items()} for latent, by_name in found.items()
    }
    return draw_curves(panels, "Estimators of the bound against the size of the code")


REPRODUCTION = Reproduction(
    "aevb-figure5",
    "Estimators of the bound against the size of the code",
    f"{DOCUMENT}, Figure 5",
    PRESETS,
    measure,
    draw,
)
