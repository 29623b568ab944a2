"""Section 7 of the tutorial on linearised Laplace: handwriting from few X-rays, with error bars."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from experiments import Findings, Resumable, Runner, Table, experiment
from experiments.dip import cells
from experiments.dip.cells import CHOSEN_DROPOUT, COVERED, DENSITY, JOINT, RANKED, Scan


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
    others: int = 3
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
    jobs = [(scan, number) for scan in scans for number in seeds if scan.title == main or number < settings.others]
    runs = runner.over("images", jobs, lambda scan, seed: cells.cell(scan, settings.first + seed, runner))
    found = {scan.title: [each["scores"] for each in images] for scan, images in runs.items()}
    rows = [(title, method) for title, images in found.items() for method in images[0]]
    table = Table.of({f"{title}: {method}": [each[method] for each in found[title]] for title, method in rows})
    columns = (DENSITY, JOINT, cells.PSNR, COVERED, RANKED, cells.NOISE, cells.SECONDS)
    first = {scan.title: images[0] for scan, images in runs.items()}
    picture = first.get(main) or next(iter(first.values()))
    compared = (next(iter(cells.LINEARISED)), CHOSEN_DROPOUT, cells.ENSEMBLE)
    shown = {method: picture["shown"][method] for method in compared if method in picture["shown"]}
    data = {"first": {"truth": picture["truth"], "shown": shown}}
    return Findings(table.numbers(columns), (), data)


HEADING = "Handwriting from ten X-rays: reconstructions, their errors, and their error bars"
measure.figure(partial(cells.draw_maps, heading=HEADING))
