"""Figure 7 of the report on AEVB: how well plain and variational autoencoders give images back."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import mean, stdev
from typing import Any

from experiments import Claim, Findings, Number, Record, Runner, clearly, experiment, together
from experiments.aevb.cells import DOCUMENT, TITLES
from experiments.aevb.pairs import (
    AE_DOCUMENT,
    AE_EQUAL,
    AE_LIKELIHOOD,
    PRESETS,
    VAE_DOCUMENT,
    VAE_EQUAL,
    Pair,
    Settings,
)
from osculate.progress import track

#: Columns: squared error of a test image.
MEAN, AVERAGE = "mean code", "drawn codes"
HEADINGS = {MEAN: "squared error of an image", AVERAGE: "the same, average of 20 drawn codes"}
#: What the document's result files hold: by data, network and size of the code.
PRINTED = {
    "mnist": {
        AE_DOCUMENT: {2: 37.14, 10: 19.04, 20: 14.77},
        VAE_DOCUMENT: {2: 33.08, 10: 12.73, 20: 8.27},
    },
    "frey_face": {
        AE_DOCUMENT: {2: 6.81, 10: 3.61, 20: 3.27},
        VAE_DOCUMENT: {2: 6.85, 10: 3.97, 20: 3.73},
    },
}
DRAWN = {"mnist": {2: 33.13, 10: 13.10, 20: 8.96}, "frey_face": {2: 6.87, 10: 3.95, 20: 3.73}}

#: Errors by data, size of the code and network, one a seed.
Errors = Mapping[tuple[str, int, str], Sequence[Mapping[str, int | float]]]


@experiment("aevb-figure7", "Reconstruction by plain and variational autoencoders", f"{DOCUMENT}, Figure 7", **PRESETS)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Errors of all networks."""
    runner = Runner(settings.cells, progress)
    pairs = list(every(settings, seeds))
    found: dict[tuple[str, int, str], list[dict[str, float]]] = {}
    for pair in track(pairs, "trainings", len(pairs), progress):
        found.setdefault((pair.task.data, pair.coders.latent, pair.name), []).append(pair.trained(runner)[2])
    numbers = [
        Number(
            f"{TITLES.get(data, data)}, {latent} codes, {name}",
            HEADINGS[column],
            tuple(run[column] for run in runs),
            _printed(data, latent, name, column),
        )
        for (data, latent, name), runs in found.items()
        for column in HEADINGS
        if column in runs[0]
    ]
    return Findings(tuple(numbers), claims(found, settings), {}, runner.seconds)


def every(settings: Settings, seeds: Sequence[int]) -> Iterator[Pair]:
    """All networks of the comparison."""
    for task, coders in zip(settings.tasks, settings.coders, strict=True):
        for latent in settings.latents:
            for name in settings.networks:
                yield from (Pair(task, replace(coders, latent=latent), name, settings, seed) for seed in seeds)


def _printed(data: str, latent: int, name: str, column: str) -> str:
    table = PRINTED.get(data, {}).get(name, {}) if column == MEAN else DRAWN.get(data, {})
    return str(table.get(latent, "")) if name in (AE_DOCUMENT, VAE_DOCUMENT) else ""


def claims(found: Errors, settings: Settings) -> tuple[Claim, ...]:
    """Verdicts on the document's comparison, as it was made and on equal terms."""
    verdicts = [
        _better(found, settings, "mnist", AE_DOCUMENT, VAE_DOCUMENT, "Trained as the document does, on MNIST"),
        _better(found, settings, "frey_face", AE_DOCUMENT, VAE_DOCUMENT, "Trained as the document does, on Frey Face"),
        _better(found, settings, "mnist", AE_EQUAL, VAE_EQUAL, "On equal terms (ours), on MNIST"),
        _better(found, settings, "frey_face", AE_EQUAL, VAE_EQUAL, "On equal terms (ours), on Frey Face"),
        _better(found, settings, "mnist", AE_LIKELIHOOD, VAE_EQUAL, "With one likelihood too (ours), on MNIST"),
        _better(found, settings, "frey_face", AE_LIKELIHOOD, VAE_EQUAL, "With one likelihood too (ours), on Frey Face"),
    ]
    gains = {
        (data, latent): 1 - mean(r[MEAN] for r in runs) / mean(r[AVERAGE] for r in runs)
        for (data, latent, name), runs in found.items()
        if name == VAE_DOCUMENT
    }
    told = ", ".join(
        f"{TITLES.get(data, data)} {latent}: {100 * gain:+.1f} %" for (data, latent), gain in gains.items()
    )
    verdicts.append(
        Claim.judged(
            "Decoding the mean code is better than averaging drawn ones by about 0.2 %",
            all(0 < gain < 0.005 for gain in gains.values()) if gains else None,
            f"gain in squared error by data and size of the code: {told or 'not measured'}. The document's own files "
            "say .2 % with 2 codes, 3 and 8 % with 10 and 20, on MNIST.",
        )
    )
    return tuple(verdicts)


def _better(found: Errors, settings: Settings, data: str, plain: str, variational: str, where: str) -> Claim:
    """Whether the variational one has the lower error at every size of the code, by two standard errors where known."""
    margins, told = [], []
    for latent in settings.latents:
        pair = [[run[MEAN] for run in found.get((data, latent, name), ())] for name in (plain, variational)]
        if not all(pair):
            continue
        each = [a - b for a, b in zip(*pair, strict=True)]
        error = stdev(each) / len(each) ** 0.5 if len(each) > 1 else 0.0
        margins.append(clearly(each))
        told.append(f"{mean(each):+.2f}{f' ± {error:.2f}' if error else ''} ({latent} codes)")
    return Claim.judged(
        f"{where}, the variational autoencoder has the lower error at every size of the code",
        together(margins),
        f"squared error of {plain} less that of {variational}: {', '.join(told) or 'not measured'}.",
    )


@measure.figure
def draw(record: Record) -> Any:
    """Error against the size of the code: one panel a data set, one line a network."""
    from experiments.aevb import figures

    panels: dict[str, dict[str, tuple[list[float], list[float]]]] = {}
    for number in record.findings.numbers:
        if number.column == HEADINGS[MEAN] and number.mean is not None:
            data, latent, name = number.row.split(", ", 2)
            x, y = panels.setdefault(data, {}).setdefault(name, ([], []))
            x.append(float(latent.split()[0]))
            y.append(number.mean)
    return figures.curves(
        panels,
        "Test images given back through few numbers",
        shared=False,
        names=("numbers in the code", "squared error of an image"),
        places=record.setup.settings["latents"],
    )
