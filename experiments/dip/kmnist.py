"""Section 7 of the tutorial on linearised Laplace: handwriting from few X-rays, with error bars."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

from experiments import Claim, Findings, Number, Record, Resumable, Runner, clearly, experiment, together
from experiments.dip.cells import (
    CHOSEN_DROPOUT,
    CLASSICAL,
    COVERED,
    DENSITY,
    DOCUMENT,
    DROPOUT,
    ENSEMBLE,
    JOINT,
    LINEARISED,
    METHODS,
    NOISE,
    PSNR,
    RANKED,
    SECONDS,
    UNIT,
    Scan,
    cell,
    draw_maps,
)
from osculate.progress import track

EVIDENCE, WITH_TV = tuple(LINEARISED)[:2]
#: Images that a verdict on all scans needs.
ENOUGH = 5
#: By how much a pixel's density shall be above that of a baseline, in nats.
MARGINS = {DROPOUT: 0.1, CHOSEN_DROPOUT: 0.1, UNIT: 0.5}


@dataclass(frozen=True)
class Settings(Resumable):
    """Which scans, and how many images of each: the seeds count images.

    Args:
        scan: what all scans have in common.
        angles: numbers of angles.
        noises: levels of noise.
        main: angles and noise of the scan that is done for all images.
        others: images of the other scans.
    """

    scan: Scan = Scan()
    angles: tuple[int, ...] = (5, 10, 20, 30)
    noises: tuple[float, ...] = (0.05, 0.1)
    main: tuple[int, float] = (10, 0.05)
    others: int = 5

    def scans(self) -> list[Scan]:
        """All of them."""
        return [replace(self.scan, angles=k, noise=noise) for noise in self.noises for k in self.angles]

    def numbers(self, scan: Scan, seeds: Sequence[int]) -> list[int]:
        """The images of a scan."""
        whole = (scan.angles, scan.noise) == self.main
        return list(seeds) if whole else list(seeds)[: self.others]


PRESETS = {
    "small": Settings(),
    "paper": Settings(Scan(steps=20_000, members=10), others=50),
}


@experiment("dip-kmnist", "Handwriting from few X-rays with error bars", DOCUMENT, **PRESETS)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Reconstruct every image of every scan by every method."""
    runner = Runner(settings.cells, progress)
    todo = [(scan, number) for scan in settings.scans() for number in settings.numbers(scan, seeds)]
    found: dict[str, list[dict[str, Any]]] = {}
    for scan, number in track(todo, "images", len(todo), progress):
        found.setdefault(scan.title, []).append(cell(scan, number, runner))
    numbers = tuple(
        Number(f"{title}: {method}", column, tuple(each["scores"][method][column] for each in cells))
        for title, cells in found.items()
        for method in (*METHODS, *CLASSICAL)
        for column in (DENSITY, JOINT, PSNR, COVERED, RANKED, NOISE, SECONDS)
        if column in cells[0]["scores"][method]
    )
    main = Scan(angles=settings.main[0], noise=settings.main[1]).title
    shown = found.get(main) or next(iter(found.values()))
    kept = {
        "truth": shown[0]["truth"],
        "shown": {m: shown[0]["shown"][m] for m in (EVIDENCE, CHOSEN_DROPOUT, ENSEMBLE)},
    }
    return Findings(numbers, claims(found, main), {"first": kept}, runner.seconds)


def claims(found: Mapping[str, Sequence[Mapping[str, Any]]], main: str) -> tuple[Claim, ...]:
    """Verdicts on the order of the methods, on coverage, and on what the error bars know of the errors."""

    def values(title: str, method: str, column: str) -> list[float]:
        return [each["scores"][method][column] for each in found[title]]

    def apart(method: str, other: str) -> dict[str, list[float]]:
        """How much denser one is than the other, image by image."""
        return {
            title: [a - b for a, b in zip(values(title, method, DENSITY), values(title, other, DENSITY), strict=True)]
            for title in found
        }

    def everywhere(words: str, method: str, other: str) -> Claim:
        """In every scan, of which there are several."""
        pairs = apart(method, other)
        verdicts = [clearly(each) if len(each) >= ENOUGH else None for each in pairs.values()]
        told = "; ".join(f"{title}: {mean(each):+.3f}" for title, each in pairs.items())
        words = f"In every scan {words}, by two standard errors"
        return Claim.judged(words, together(verdicts) if len(verdicts) > 1 else None, f"{told} nats a pixel.")

    return (
        *(claim for method in (EVIDENCE, WITH_TV) for claim in _of_main(found.get(main, ()), main, method)),
        *(
            everywhere(f"{method} has a higher density than {CHOSEN_DROPOUT}", method, CHOSEN_DROPOUT)
            for method in (EVIDENCE, WITH_TV)
        ),
        everywhere("TV-PredCP improves the density", WITH_TV, EVIDENCE),
    )


def _of_main(cells: Sequence[Mapping[str, Any]], main: str, method: str) -> tuple[Claim, Claim, Claim]:
    """Of the scan that is done for all images: at least ten are needed for a verdict."""
    enough = len(cells) >= 10
    means = {
        (other, column): mean(each["scores"][other][column] for each in cells)
        for other in METHODS
        for column in (DENSITY, JOINT, COVERED, RANKED)
        if cells and column in cells[0]["scores"][other]
    }
    told = ", ".join(f"{other} {means[other, DENSITY]:.2f}" for other in METHODS) if cells else "none"
    joint, joint_unit = (means.get((other, JOINT), 0.0) for other in (method, UNIT))
    above = enough and all(
        means[method, DENSITY] - means[other, DENSITY] >= margin for other, margin in MARGINS.items()
    )
    covered, ranked = (means.get((method, column), 0.0) for column in (COVERED, RANKED))
    return (
        Claim.judged(
            f"{main}: the mean marginal density of a pixel by {method} is at least 0.1 nats above that of MC dropout "
            "and 0.5 above that of DIP with σ² = 1",
            above if enough else None,
            f"{len(cells)} images: {told}.",
        ),
        Claim.judged(
            f"{main}: the joint density of all pixels by {method} is at least 0.5 nats a pixel above that of DIP with "
            "σ² = 1",
            joint - joint_unit >= MARGINS[UNIT] if enough else None,
            f"{joint:.2f} against {joint_unit:.2f} nats a pixel.",
        ),
        Claim.judged(
            f"{main}: {method} covers .90 to 1 of the pixels by its 95 % intervals, and its error bars correlate with "
            "the errors by at least .5",
            0.9 <= covered <= 1 and ranked >= 0.5 if enough else None,
            f"coverage {covered:.3f}, correlation {ranked:.2f}.",
        ),
    )


@measure.figure
def draw(record: Record) -> Any:
    """One image: reconstructions, their errors and their error bars."""
    heading = "Handwriting from ten X-rays: where the reconstructions are wrong, and where they say so"
    return draw_maps(record.findings.data["first"], heading)
