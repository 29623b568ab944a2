"""Section 7 of the tutorial on linearised Laplace: handwriting from few X-rays, with error bars."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import mean

from experiments import Claim, Findings, Resumable, Runner, Table, clearly, experiment, listed, together
from experiments.dip import cells
from experiments.dip.cells import CHOSEN_DROPOUT, COVERED, DENSITY, JOINT, METHODS, RANKED, UNIT, Scan

EVIDENCE, WITH_TV = tuple(cells.LINEARISED)[:2]
#: Least number of images for a verdict on all scans, and on the one that is done for all images.
ENOUGH, MANY = 5, 10
#: Least advantages of the density of a pixel over the baselines, in nats.
MARGINS = {cells.DROPOUT: 0.1, CHOSEN_DROPOUT: 0.1, UNIT: 0.5}


@dataclass(frozen=True)
class Settings(Resumable):
    """The scans, and the number of images of each. Seeds count images.

    Args:
        scan: Settings of all scans.
        angles: Numbers of angles.
        noises: Levels of noise.
        main: Angles and noise of the scan that is done for all images and methods.
        others: Images of each other scan, which is done briefly.
        first: First test image; those before it were seen when claims were made.
    """

    scan: Scan = Scan()
    angles: tuple[int, ...] = (5, 10, 20, 30)
    noises: tuple[float, ...] = (0.05, 0.1)
    main: tuple[int, float] = (10, 0.05)
    others: int = 5
    first: int = 10


@experiment(
    "dip-kmnist",
    "Handwriting from few X-rays with error bars",
    cells.DOCUMENT,
    paper=Settings(Scan(steps=20_000, members=10), others=50),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Reconstruct every image of every scan by every method."""
    scans = [replace(settings.scan, angles=k, noise=noise) for noise in settings.noises for k in settings.angles]
    main = Scan(angles=settings.main[0], noise=settings.main[1]).title
    scans = [each if each.title == main else replace(each, brief=True) for each in scans]
    jobs = [(scan, number) for scan in scans for number in (seeds if scan.title == main else seeds[: settings.others])]
    runs = runner.over("images", jobs, lambda scan, seed: cells.cell(scan, settings.first + seed, runner))
    found = {scan.title: [each["scores"] for each in images] for scan, images in runs.items()}
    rows = [(title, method) for title, images in found.items() for method in images[0]]
    table = Table.of({f"{title}: {method}": [each[method] for each in found[title]] for title, method in rows})
    columns = (DENSITY, JOINT, cells.PSNR, COVERED, RANKED, cells.NOISE, cells.SECONDS)
    first = {scan.title: images[0] for scan, images in runs.items()}
    picture = first.get(main) or next(iter(first.values()))
    compared = (EVIDENCE, CHOSEN_DROPOUT, cells.ENSEMBLE)
    shown = {method: picture["shown"][method] for method in compared if method in picture["shown"]}
    data = {"first": {"truth": picture["truth"], "shown": shown}}
    return Findings(table.numbers(columns), claims(found, main), data)


#: Scores of one image by method and column.
Scores = Mapping[str, Mapping[str, float]]


def claims(found: Mapping[str, Sequence[Scores]], main: str) -> Iterator[Claim]:
    """Judge the order of the methods, coverage, and the correlation of error bars and errors.

    Args:
        found: Scores of each image, by scan.
        main: Scan that is done for all images.
    """

    def everywhere(text: str, method: str, other: str) -> Claim:
        pairs = {title: [each[method][DENSITY] - each[other][DENSITY] for each in s] for title, s in found.items()}
        verdicts = [clearly(each) if len(each) >= ENOUGH else None for each in pairs.values()]
        words = "; ".join(f"{title}: {mean(each):+.3f}" for title, each in pairs.items())
        text = f"In every scan {text}, by two standard errors"
        return Claim.judged(text, together(verdicts) if len(verdicts) > 1 else None, f"{words} nats a pixel.")

    for method in (EVIDENCE, WITH_TV):
        yield from claims_of_main(found.get(main, ()), main, method)
    for method in (EVIDENCE, WITH_TV):
        yield everywhere(f"{method} has a higher density than {CHOSEN_DROPOUT}", method, CHOSEN_DROPOUT)
    yield everywhere("TV-PredCP improves the density", WITH_TV, EVIDENCE)


def claims_of_main(scores: Sequence[Scores], main: str, method: str) -> Iterator[Claim]:
    """Judge one method on the scan that is done for all images."""
    enough = len(scores) >= MANY

    def average(method: str, column: str) -> float:
        return mean(each[method][column] for each in scores) if scores else 0.0

    densities = {other: average(other, DENSITY) for other in METHODS}
    above = all(densities[method] - densities[other] >= margin for other, margin in MARGINS.items())
    joint, joint_unit = average(method, JOINT), average(UNIT, JOINT)
    covered, ranked = average(method, COVERED), average(method, RANKED)
    yield Claim.judged(
        f"{main}: the mean marginal density of a pixel by {method} is at least 0.1 nats above that of MC dropout "
        "and 0.5 above that of DIP with σ² = 1",
        above if enough else None,
        f"{len(scores)} images: {listed(densities, '.2f') if scores else 'none'}.",
    )
    yield Claim.judged(
        f"{main}: the joint density of all pixels by {method} is at least 0.5 nats a pixel above that of DIP with "
        "σ² = 1",
        joint - joint_unit >= MARGINS[UNIT] if enough else None,
        f"{joint:.2f} against {joint_unit:.2f} nats a pixel.",
    )
    yield Claim.judged(
        f"{main}: {method} covers .90 to 1 of the pixels by its 95 % intervals, and its error bars correlate with "
        "the errors by at least .5",
        0.9 <= covered <= 1 and ranked >= 0.5 if enough else None,
        f"coverage {covered:.3f}, correlation {ranked:.2f}.",
    )


HEADING = "Handwriting from ten X-rays: reconstructions, their errors, and their error bars"
measure.figure(partial(cells.draw_maps, heading=HEADING))
