"""Figure 1 of [perone2021]: error bars of L2M and others on y = x³ with 20 points, beside Hamiltonian Monte Carlo."""

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

import torch
from torch import Tensor

from experiments import Claim, Findings, Number, Record, experiment
from experiments.l2m.toy import (
    DECAYED,
    DIAGONAL_SWAG,
    DROPOUT,
    ENSEMBLE,
    EXACT,
    LINEARISED,
    PRINTED,
    PRIORS,
    REFERENCE,
    SAMPLED,
    SEVERAL,
    Drawn,
    Own,
    Settings,
    Shown,
    Toy,
    expected,
    posteriors,
    prior_bound,
)
from osculate.data.toys import CUBIC_NOISE
from osculate.posteriors import Chains, Gaussian
from osculate.predictive import predict
from osculate.progress import track

PRESETS = {
    "small": Settings(),
    # the document prints its own training, which is that of "small" too: closer modes and longer chains
    "paper": Settings(own=Own(epochs=20_000, full=20_000), drawn=Drawn(warmup=1000, draws=1000, max_depth=10)),
}
#: Panels, in the document's order, then ours; the document's six come first.
PANELS = (PRIORS, DROPOUT, ENSEMBLE, DIAGONAL_SWAG, REFERENCE, PRINTED, SAMPLED, LINEARISED, EXACT, SEVERAL)
ROWS = (*PANELS, DECAYED)
#: Where the function is looked at: beyond the data, amid them, and beyond them.
PLACES = (-6.0, 0.0, 6.0)
GRID = 121

SD = {x: f"sd of f at x = {x:g}" for x in PLACES}
OVER = {x: f"sd over that of HMC at x = {x:g}" for x in PLACES}
RATIO, COVERAGE, NLL, SECONDS = "sd(6) / sd(0)", "coverage of y, 95 % band", "test NLL, nats per point", "seconds"
BOUND, R_HAT, ESS = "weights near the width of their prior, %", "R-hat of f, worst", "ESS of f, least"
COLUMNS = (*SD.values(), RATIO, *OVER.values(), COVERAGE, NLL, SECONDS, BOUND, R_HAT, ESS)
#: Bounds of the claims: sd(6)/sd(0), the factor to HMC, coverage, R-hat, and what counts as "on par".
GROWS, NEAR, COVERED, MIXED, PAR = 3.0, 3.0, (0.85, 1.0), 1.05, 0.1
#: A weight is near the width of its prior above this share of it; the document's band is the prior's where most are.
SHARE, MOST = 0.95, 90.0

#: Values over seeds, by row and column.
Values = Mapping[tuple[str, str], Sequence[float]]


@experiment(
    "l2m-figure1",
    "A cubic with 20 points: error bars of L2M and of six others, beside Hamiltonian Monte Carlo",
    "L2M [perone2021], Figure 1",
    **PRESETS,
)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """All methods on the data of each seed; the figure shows the first."""
    found: dict[tuple[str, str], list[float]] = {}
    shown: dict[str, Any] = {}
    todo = ((seed, each) for seed in seeds for each in _each(settings, seed))
    with expected():
        for seed, (name, values, band) in track(todo, "posteriors", len(seeds) * len(ROWS), progress):
            for column, value in values.items():
                found.setdefault((name, column), []).append(value)
            if seed == seeds[0]:
                shown[name] = band
    _beside_hmc(found)
    toy = Toy.drawn(settings, seeds[0])
    x, y = _original(toy, *toy.data.train)
    figure = {"x": _rounded(x), "y": _rounded(y), "grid": _rounded(_grid()), "bands": shown}
    order = sorted(found, key=lambda key: (ROWS.index(key[0]), COLUMNS.index(key[1])))
    numbers = tuple(Number(*key, tuple(found[key])) for key in order)
    return Findings(numbers, claims(found), figure)


def _each(settings: Settings, seed: int) -> Iterator[tuple[str, dict[str, float], dict[str, Any]]]:
    toy = Toy.drawn(settings, seed)
    for name, shown in posteriors(toy):
        numbers, band = scored(toy, shown)
        yield name, numbers, band


def scored(toy: Toy, shown: Shown) -> tuple[dict[str, float], dict[str, Any]]:
    """The numbers of a posterior, and mean and deviation of f along the line, in the units of the data."""
    generator = torch.Generator().manual_seed(toy.seed)
    how: dict[str, Any] = {"via": shown.via, "samples": toy.settings.samples, "generator": generator}
    assert toy.data.input_scaling is not None
    assert toy.data.target_mean is not None
    line = toy.data.input_scaling.apply(_grid()[:, None])
    f = predict(shown.q, line, noise=False, **how)
    mean, sd = (f.mean * toy.scale + toy.data.target_mean).flatten(), (f.stddev * toy.scale).flatten()
    x, y = toy.data.test
    of_y = predict(shown.q, x, **how)
    at = {place: float(sd[round((place + 6) / 12 * (GRID - 1))]) for place in PLACES}
    numbers = {SD[place]: value for place, value in at.items()}
    numbers[RATIO] = at[6.0] / at[0.0]
    numbers[COVERAGE] = float(((y - of_y.mean).abs() <= 1.96 * of_y.stddev).double().mean())
    numbers[NLL] = -toy.data.log_likelihood_in_original_units(of_y.log_prob(y).mean().item())
    numbers[SECONDS] = shown.seconds
    if isinstance(shown.q, Gaussian):
        numbers[BOUND] = 100 * float((prior_bound(shown.q) > SHARE).double().mean())
    if isinstance(shown.q, Chains):
        numbers[R_HAT] = float(shown.q.r_hat(line).max())
        numbers[ESS] = float(shown.q.effective_sample_size(line).min())
    return numbers, {"mean": _rounded(mean), "sd": _rounded(sd)}


def _grid() -> Tensor:
    return torch.linspace(-6, 6, GRID)


def _original(toy: Toy, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Points in their own units."""
    assert toy.data.input_scaling is not None
    assert toy.data.target_scaling is not None
    return toy.data.input_scaling.undo(x).flatten(), toy.data.target_scaling.undo(y).flatten()


def _rounded(values: Tensor) -> list[float]:
    return [round(float(value), 2) for value in values]


def _beside_hmc(found: dict[tuple[str, str], list[float]]) -> None:
    """Every deviation over that of HMC on the same data."""
    for row in ROWS:
        for place in PLACES:
            pairs = zip(found.get((row, SD[place]), ()), found.get((REFERENCE, SD[place]), ()), strict=False)
            if row != REFERENCE and (ratios := [mine / theirs for mine, theirs in pairs]):
                found[row, OVER[place]] = ratios


def claims(found: Values) -> tuple[Claim, ...]:
    """Verdicts; each must hold for every seed."""
    return (
        _grows(found),
        _near(found),
        _covers(found),
        _documents(found),
        *_par(found),
        _slip(found),
        _mixed(found),
    )


def _grows(found: Values) -> Claim:
    ratios = found.get((LINEARISED, RATIO), ())
    return Claim.judged(
        f"Corrected L2M, linearised, with the prior by the evidence, is unsure beyond the data: sd(6) / sd(0) above "
        f"{GROWS:g}",
        min(ratios) > GROWS if ratios else None,
        f"{_list(ratios, 1)}, a number a seed; HMC {_list(found.get((REFERENCE, RATIO), ()), 1)}.",
    )


def _near(found: Values) -> Claim:
    ratios = {place: found.get((LINEARISED, OVER[place]), ()) for place in PLACES}
    every = [value for values in ratios.values() for value in values]
    exact = {place: found.get((EXACT, OVER[place]), ()) for place in PLACES}
    worst = max((max(value, 1 / value) for value in every), default=0.0)
    outside = sum(max(value, 1 / value) > NEAR for value in every)
    why = f" {outside} of {len(every)} are off by more: a diagonal around one mode is what is left to blame."
    return Claim.judged(
        f"Its standard deviation is within a factor {NEAR:g} of that of HMC at x = -6, 0 and 6",
        not outside if every else None,
        f"over that of HMC, a number a seed: {_places(ratios)}; the worst factor is {worst:.2f}. The Laplace "
        f"approximation with the exact diagonal at the same modes: {_places(exact)}." + (why if outside else ""),
    )


def _covers(found: Values) -> Claim:
    shares = found.get((LINEARISED, COVERAGE), ())
    low, high = COVERED
    return Claim.judged(
        f"Its 95 % band covers {low:.0%} to {high:.0%} of new targets on [-4, 4]",
        min(shares) >= low and max(shares) <= high if shares else None,
        f"{_list(shares, 3)} of 1,000 test points each, noise included. After the document's training in place of that "
        f"to the mode {_list(found.get((DECAYED, COVERAGE), ()), 3)}: its constant rate and its decay keep the network "
        "off the data.",
    )


def _documents(found: Values) -> Claim:
    inside, beyond = found.get((PRINTED, SD[0.0]), ()), [found.get((PRINTED, SD[x]), ()) for x in (-6.0, 6.0)]
    holds = None
    if inside and all(beyond):
        holds = max(inside) < CUBIC_NOISE and min(map(min, beyond)) > 2 * max(inside)
    return Claim.judged(
        "L2M as printed: uncertainty is high in regions with no data points and low in regions with several",
        holds,
        f"sd of f at -6, 0 and 6: {_list(beyond[0], 0)}; {_list(inside, 0)}; {_list(beyond[1], 0)}. Low means below "
        f"the noise of one target ({CUBIC_NOISE:g}), high more than twice that at 0. Corrected and sampled it is worse "
        f"({_list(found.get((SAMPLED, SD[0.0]), ()), 0)} at 0): the network bends within the width of a diagonal "
        f"Gaussian; linearised it is {_list(found.get((LINEARISED, SD[0.0]), ()), 1)} there.",
    )


def _par(found: Values) -> Iterator[Claim]:
    others = {row: found.get((row, NLL), ()) for row in (PRIORS, DROPOUT, ENSEMBLE, DIAGONAL_SWAG, REFERENCE)}
    why = (
        f" The exact diagonal at the same modes has {_list(found.get((EXACT, NLL), ()), 2)}: residuals at training "
        "points are smaller than the noise, and squared gradients take the curvature for smaller than it is."
    )
    for row, name in ((PRINTED, "L2M as printed"), (LINEARISED, "Corrected L2M, linearised,")):
        ours = found.get((row, NLL), ())
        worst = max((median(values), other) for other, values in others.items() if values) if ours else None
        yield Claim.judged(
            f"{name} performs on par with the other methods",
            median(ours) <= worst[0] + PAR if worst and ours and all(others.values()) else None,
            f"test NLL on [-4, 4], a number a seed: {_list(ours, 2)}; "
            + "; ".join(f"{other} {_list(values, 2)}" for other, values in others.items())
            + f". On par is a median at most {PAR:g} nats above the worst of these."
            + (why if row == LINEARISED else ""),
        )


def _slip(found: Values) -> Claim:
    shares = found.get((PRINTED, BOUND), ())
    return Claim.judged(
        "The band of the printed formula is its prior, with 1/λ = 10 for a precision in place of λ = 0.1, and not the "
        "curvature",
        min(shares) > MOST if shares else None,
        f"{_list(shares, 0)} % of the weights have more than {SHARE:.0%} of the standard deviation that N(0, λ) alone "
        f"would give them; of corrected L2M {_list(found.get((LINEARISED, BOUND), ()), 0)} % have that of their prior.",
    )


def _mixed(found: Values) -> Claim:
    worst = found.get((REFERENCE, R_HAT), ())
    return Claim.judged(
        f"The chains of the reference agree about the function: R-hat below {MIXED:g} on [-6, 6]",
        max(worst) < MIXED if worst else None,
        f"{_list(worst, 3)}; effective draws {_list(found.get((REFERENCE, ESS), ()), 0)}.",
    )


def _places(ratios: Mapping[float, Sequence[float]]) -> str:
    return "; ".join(f"{_list(values, 2)} at {place:g}" for place, values in ratios.items())


def _list(values: Sequence[float], digits: int) -> str:
    return ", ".join(f"{value:,.{digits}f}" for value in values) or "not measured"


@measure.figure
def draw(record: Record) -> Any:
    """One panel a method."""
    from experiments.l2m import figures
    from osculate.plots import Band

    data = record.findings.data
    numbers = {(number.row, number.column): number.values for number in record.findings.numbers}
    panels = {
        name: Band(
            data["grid"],
            data["bands"][name]["mean"],
            data["bands"][name]["sd"],
            f"sd(6)/sd(0) {numbers[name, RATIO][0]:.1f}, covers {numbers[name, COVERAGE][0]:.0%} of y",
        )
        for name in PANELS
    }
    return figures.shades(
        panels,
        (data["x"], data["y"]),
        [x**3 for x in data["grid"]],
        "How sure is each method of y = x³ from 20 points? Mean and standard deviations of f; share of new y in "
        "[-4, 4] within the 95 % band",
    )
