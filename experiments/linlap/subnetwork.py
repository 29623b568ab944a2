"""Subnetwork inference: a full covariance over a few weights, on a toy and under shift of images."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from experiments import Claim, Findings, Number, Record, experiment
from experiments.linlap.subnetworks import (
    DIAGONAL,
    DROPOUT,
    ENSEMBLE,
    FULL,
    MODE,
    PATH,
    Deviations,
    Images,
    Networks,
    Shifts,
    Source,
    Toy,
    average,
    images,
    share,
    subnetwork,
    toy,
)
from osculate.data import load
from osculate.progress import track

KINDS = ("gaussian_noise", "gaussian_blur", "fog", "contrast")
ANGLES, SEVERITIES = (0, 30, 60, 90, 120, 150, 180), (0, 1, 2, 3, 4, 5)
MNIST = Images(Source("mnist", (), ANGLES, 60), Networks("lenet"))
CIFAR = Images(Source("cifar10", KINDS, SEVERITIES, 1, test_size=250), Networks("cnn"))


@dataclass(frozen=True)
class Settings:
    """The three experiments.

    Args:
        toy: in-between uncertainty of a small network.
        rotated: images that are turned.
        corrupted: images that are corrupted.
    """

    toy: Toy = Toy()
    rotated: Images = MNIST
    corrupted: Images = CIFAR


#: The document's ResNet-18 needs an accelerator: the networks stay small ones also here.
ALL: dict[str, Any] = {"validation_size": 2_000, "test_size": 10_000}
PRESETS = {
    "small": Settings(),
    "paper": Settings(
        Toy(epochs=1_000),
        Images(
            Source("mnist", (), ANGLES, 60, train_size=58_000, **ALL), Networks("lenet", epochs=90, members=5), seeds=3
        ),
        Images(
            Source("cifar10", KINDS, SEVERITIES, 1, train_size=48_000, **ALL),
            Networks("cnn", epochs=90, members=5),
            seeds=3,
        ),
    ),
}

BETWEEN, INSIDE = "sd between clusters", "sd on the data"
KEPT = "sd between clusters, of the full one's"
#: Fraction of the toy that the claims are about.
TENTH = 0.1
#: What counts as kept, as lost, and as inflated; and as better than the mode under shift without a loss before it.
ENOUGH, LITTLE, INFLATED, BETTER, UNCHANGED = 0.7, 0.5, 3.0, 0.95, 0.2


@experiment(
    "linlap-subnetwork",
    "Subnetwork inference: in-between uncertainty, rotated MNIST, corrupted CIFAR-10",
    "The linearised Laplace approximation in Bayesian neural networks, section 5, results of [daxberger2021b]",
    **PRESETS,
)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """The toy for each seed, the images for as many as their settings allow."""
    toys = [toy(settings.toy, seed) for seed in track(seeds, "in-between uncertainty", len(seeds), progress)]
    shifts = {
        each: [images(each, seed, progress) for seed in seeds[: each.seeds]]
        for each in (settings.rotated, settings.corrupted)
    }
    return conclude(settings, toys, shifts)


def conclude(settings: Settings, toys: Sequence[Deviations], shifts: Mapping[Images, Sequence[Shifts]]) -> Findings:
    """The table, the claims, and what the figure shows."""
    numbers = [*_toy_numbers(toys)]
    for each, runs in shifts.items():
        numbers += _image_numbers(each, runs)
    found = {(n.row, n.column): n.mean for n in numbers if n.mean is not None}
    x, y = load(settings.toy.data, validation_size=0).train
    data = {
        "points": {"x": x.flatten().tolist(), "y": y.flatten().tolist()},
        "bands": dict(toys[0].bands),
        "evidence": {"noise": [t.noise for t in toys], "precision": [t.precision for t in toys]},
        "warned": [t.warned for t in toys],
        "shifts": {each.source.title: _curves(each, runs) for each, runs in shifts.items()},
    }
    every = [*toy_claims(found, [t.warned for t in toys])]
    for each in shifts:
        every += image_claims(found, each)
    return Findings(tuple(numbers), tuple(every), data)


def _toy_numbers(toys: Sequence[Deviations]) -> Iterator[Number]:
    for row in toys[0].between:
        kept = tuple(t.between[row] / t.between[FULL] for t in toys)
        yield Number(f"toy: {row}", KEPT, kept)
        yield Number(f"toy: {row}", BETWEEN, tuple(t.between[row] for t in toys))
        yield Number(f"toy: {row}", INSIDE, tuple(t.inside[row] for t in toys))


def _image_numbers(settings: Images, runs: Sequence[Shifts]) -> Iterator[Number]:
    """Without shift, and the mean over all levels that count as shifted."""
    source = settings.source
    clean, other = _columns(source)
    some = [number for number, level in enumerate(source.levels) if level >= source.shifted]
    for row in runs[0].nll:
        name = f"{source.title}: {row}"
        for quantity, found in (
            ("NLL", [run.nll[row] for run in runs]),
            ("accuracy, %", [run.accuracy[row] for run in runs]),
        ):
            yield Number(name, f"{quantity}, {clean}", tuple(values[0] for values in found))
            yield Number(name, f"{quantity}, {other}", tuple(average([v[n] for n in some]) for v in found))


def _columns(source: Source) -> tuple[str, str]:
    """In words: no shift, and the levels that count as shifted."""
    if source.kinds:
        return "no corruption", f"severities {source.shifted} to {source.levels[-1]}"
    return f"{source.levels[0]}°", f"{source.shifted}° to {source.levels[-1]}°"


def _curves(settings: Images, runs: Sequence[Shifts]) -> dict[str, Any]:
    """Means over the runs, by row."""

    def means(of: str) -> dict[str, list[float]]:
        rows = [getattr(run, of) for run in runs]
        return {row: [average(values) for values in zip(*(r[row] for r in rows), strict=True)] for row in rows[0]}

    chosen = [dict(run.chosen) for run in runs]
    return {
        "levels": list(settings.source.levels),
        "nll": means("nll"),
        "accuracy": means("accuracy"),
        "chosen": chosen,
    }


def toy_claims(found: Mapping[tuple[str, str], float], warned: Sequence[bool]) -> Iterator[Claim]:
    """Verdicts on the toy from means by row and column.

    Args:
        found: the numbers.
        warned: whether each run warned of weights without curvature.
    """

    def kept(select: str) -> float | None:
        return found.get((f"toy: {share(select, TENTH)}", KEPT))

    ratio = {row: _ratio(found, row) for row in (FULL, DIAGONAL, share("swag", TENTH))}
    for select, word in (("swag", "diagonal SWAG"), ("function_space", "the function-space score")):
        value = kept(select)
        yield Claim.judged(
            "A small subnetwork preserves the uncertainty of the whole network: 10 % of the weights, chosen by "
            f"{word}, keep {ENOUGH} of the standard deviation between the clusters",
            None if value is None else value >= ENOUGH,
            f"They keep {_word(value)} of it.",
        )
    value = kept("random")
    yield Claim.judged(
        f"It matters which weights: 10 % drawn at random keep at most {LITTLE}",
        None if value is None else value <= LITTLE,
        f"They keep {_word(value)}; the largest weights keep {_word(kept('magnitude'))}.",
    )
    value, other = ratio[share("swag", TENTH)], ratio[DIAGONAL]
    yield Claim.judged(
        "Expressive inference over a small subnetwork preserves more uncertainty than crude inference over the whole "
        "network",
        None if value is None or other is None else value > other,
        "Standard deviation between the clusters over that on the data: full "
        f"{_word(ratio[FULL])}, subnetwork of 10 % {_word(value)}, diagonal over all weights {_word(other)}: it does "
        "not tell the two apart.",
    )
    inside = (found.get((f"toy: {row}", INSIDE)) for row in (DIAGONAL, FULL))
    crude, exact = inside
    factor = None if crude is None or exact is None else crude / exact
    yield Claim.judged(
        "A diagonal posterior over all weights is unsure where the data are: its standard deviation there is at least "
        f"{INFLATED:g} times that of the full one",
        None if factor is None else factor >= INFLATED,
        f"{_word(factor)} times.",
    )
    value = kept("diag_variance")
    yield Claim.judged(
        f"The variances of a diagonal Laplace posterior choose well too: 10 % of the weights keep {ENOUGH}",
        None if value is None else value >= ENOUGH,
        f"The 10 % that a diagonal Laplace posterior is least sure of keep {_word(value)}: dead and insensitive "
        "weights have no curvature, their variance is the prior's and the largest. A warning said so in "
        f"{sum(warned)} of {len(warned)} runs. The document takes SWAG's variances, where such weights do not move.",
    )


def _ratio(found: Mapping[tuple[str, str], float], row: str) -> float | None:
    pair = [found.get((f"toy: {row}", column)) for column in (BETWEEN, INSIDE)]
    return None if pair[0] is None or not pair[1] else pair[0] / pair[1]


def image_claims(found: Mapping[tuple[str, str], float], settings: Images) -> Iterator[Claim]:
    """Verdicts on one set of images from means by row and column."""
    source = settings.source
    clean, other = _columns(source)
    title, ours = source.title, subnetwork(settings.fractions[0])
    nll = {row: found.get((f"{title}: {row}", f"NLL, {other}")) for row in (MODE, ours, DIAGONAL, *OTHERS)}
    protocol = (
        f"{source.train_size:,} images, {settings.networks.network}, {settings.seeds} seed(s); the prior precision of "
        f"Laplace posteriors by {source.validation_size} validation images without shift: the smallest within a "
        "standard error of the best NLL."
    )
    factor = _quotient(nll[ours], nll[MODE])
    yield Claim.judged(
        f"{title}: {ours} improves on MAP under shift, NLL over {other} at most {BETTER} times MAP's",
        None if factor is None else factor <= BETTER,
        f"NLL {_word(nll[ours])} against {_word(nll[MODE])} of MAP, {_word(factor)} times. {protocol}",
    )
    pair = [found.get((f"{title}: {row}", f"accuracy, %, {clean}")) for row in (ours, MODE)]
    change = None if pair[0] is None or pair[1] is None else pair[0] - pair[1]
    yield Claim.judged(
        f"{title}: its accuracy without shift is within {UNCHANGED} points of MAP's",
        None if change is None else abs(change) <= UNCHANGED + 1e-9,
        f"{_word(change)} points ({_word(pair[0])} against {_word(pair[1])} %).",
    )
    words = ", ".join(f"{row} {_word(value)}" for row, value in nll.items())
    factor = _quotient(nll[ours], nll[DIAGONAL])
    yield Claim.judged(
        f"{title}: it is better than crude approximations over all weights (diagonal Laplace)",
        None if factor is None else factor < 1,
        f"NLL over {other}: {words}.",
    )
    rivals = [nll[row] for row in OTHERS]
    known = [value for value in rivals if value is not None]
    value = nll[ours]
    yield Claim.judged(
        f"{title}: it can outperform some of the best existing methods for uncertainty quantification",
        None if value is None or len(known) < len(rivals) else any(value < rival for rival in known),
        f"Better than {_named(nll, ours)} over {other}; NLL {words}.",
    )


#: Methods that the document compares with; its VOGN is not among those of this library.
OTHERS = (DROPOUT, ENSEMBLE, PATH)


def _quotient(value: float | None, other: float | None) -> float | None:
    return None if value is None or not other else value / other


def _named(nll: Mapping[str, float | None], ours: str) -> str:
    value = nll[ours]
    beaten = [row for row in OTHERS if value is not None and (rival := nll[row]) is not None and value < rival]
    return ", ".join(beaten) or "none of the others"


def _word(value: float | None) -> str:
    return "? (not measured)" if value is None else f"{value:.3g}"


@measure.figure
def draw(record: Record) -> Any:
    """Bands on the toy, what each choice keeps of them, and scores against the shift."""
    from experiments.linlap import figures

    data, settings = record.findings.data, record.setup.settings
    found = {(n.row, n.column): n.mean for n in record.findings.numbers}
    fractions = settings["toy"]["fractions"]
    kept = {
        select: [found[f"toy: {share(select, fraction)}", KEPT] for fraction in fractions]
        for select in settings["toy"]["selections"]
    }
    rows = {"all weights, full covariance": FULL, "all weights, diagonal": DIAGONAL}
    tenth = {"10 %, SWAG": "swag", "10 %, function space": "function_space", "10 %, random": "random"}
    rows |= {title: share(select, TENTH) for title, select in tenth.items()}
    bands = {title: data["bands"][row] for title, row in rows.items() if row in data["bands"]}
    return figures.subnetworks(bands, data["points"], (fractions, kept), data["shifts"])
