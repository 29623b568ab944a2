"""The training of the command line by default: its learning rate and rounds beside fixed rates."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import osculate as osc
from experiments import Claim, Findings, Record, Resumable, Runner, Table, experiment, ignoring, listed, seeded, train
from osculate.cli.methods import ROUNDS, MethodOptions, SettingOptions
from osculate.cli.train import NOISE
from osculate.data import Dataset, load
from osculate.data.dataset import Part
from osculate.data.uci import CLASSIFICATION, NAMES
from osculate.training.convergence import CAUTION, FALL, LAST, MISSED, RATES as RATES_TRIED, SHARE

#: The data sets, and the training rows of the largest ones.
SETS, LARGEST = (*NAMES, *CLASSIFICATION), 3_000
#: The rate that was the default before, and the grid.
OLD, RATES = 1e-3, (1e-3, 3e-3, 1e-2, 3e-2)
DEFAULT = "default"
VALIDATION, TEST = "validation NLL, nats", "test NLL, nats"
#: Difference in nats above which a set is listed.
NEAR = 0.05


@dataclass(frozen=True)
class Trainings(Resumable):
    """The data.

    Args:
        sets: Names of the data sets.
        epochs: Epochs of a round; by default those of the command line.
    """

    sets: tuple[str, ...] = SETS
    epochs: int | None = None


@dataclass(frozen=True)
class Settings(Trainings):
    """The data and the rates.

    Args:
        rates: Fixed learning rates.
    """

    rates: tuple[float, ...] = RATES


def fixed(rate: float) -> str:
    """Return the name of a training with a fixed rate."""
    return f"rate {rate:g}"


@experiment(
    "training-defaults",
    "Training by the defaults of the command line: rate by trials, rounds while the validation loss falls",
    "No document: nine regressions and nine classifications of UCI, the first split of each",
    small=Settings(sets=("yacht", "glass")),
    paper=Settings(),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Train on each set by default and with every fixed rate, in one round."""
    about = [settings.epochs]
    jobs = [(name, rate, seed) for name in settings.sets for rate in settings.rates for seed in seeds]
    others = runner.over("fixed rates", jobs, lambda *job: trained(settings, *job), "fixed-rate", about)
    pairs = [(name, seed) for name in settings.sets for seed in seeds]
    rule = [*about, RATES_TRIED, MISSED, CAUTION, SHARE, FALL, LAST]
    chosen = runner.over("default", pairs, lambda name, seed: trained(settings, name, None, seed), "by-default", rule)
    each = {
        name: [
            {DEFAULT: chosen[name][n], **{fixed(rate): others[name, rate][n] for rate in settings.rates}}
            for n in range(len(seeds))
        ]
        for name in settings.sets
    }
    table = Table()
    for name, runs in each.items():
        for run in runs:
            for row, values in run.items():
                table.add(f"{name}: {row}", values)
    return Findings(table.numbers(), claims(each), {"runs": each})


def trained(settings: Settings, name: str, rate: float | None, seed: int) -> dict[str, float]:
    """Return the losses of one training of the default network, by MAP at the default prior."""
    dataset = load(name)
    dataset = load(name, train_size=LARGEST) if len(dataset.train[0]) > LARGEST else dataset
    options = SettingOptions(epochs=settings.epochs, lr=rate, rounds=ROUNDS if rate is None else 1)
    noise = None if dataset.classes is not None else NOISE[False]
    likelihood = osc.likelihoods.Categorical() if noise is None else osc.likelihoods.Gaussian(noise)
    how = options.settings(MethodOptions(), seed, noise, len(dataset.train[0]))
    with seeded(seed):
        network = osc.networks.build("mlp", dataset.input_shape, dataset.outputs)
    with ignoring("the validation loss is still falling"):
        done = train(
            osc.methods.MAP(network, likelihood),
            dataset.train,
            settings=how,
            validation=dataset.validation,
            rounds=options.rounds,
        )
    last = done.history[-1]
    return {
        **losses(network.eval(), dataset),
        "rate": float(last.get("rate", how.lr)),
        "rounds": float(last.get("round", 1)),
        "s": sum(row["seconds"] for row in done.history),
    }


def losses(network: nn.Module, dataset: Dataset) -> dict[str, float]:
    """Return the NLL on the validation and test parts, for regression with the noise of the validation part."""

    @torch.no_grad()
    def errors(part: Part) -> torch.Tensor:
        f, y = network(part[0]), part[1]
        if dataset.classes is not None:
            return nn.functional.cross_entropy(f, y)
        return (f - y).square().mean()

    validation, test = errors(dataset.validation), errors(dataset.test)
    if dataset.classes is not None:
        return {VALIDATION: float(validation), TEST: float(test)}
    unit = 0.5 * (2 * math.pi * validation).log()
    return {VALIDATION: float(unit + 0.5), TEST: float(unit + 0.5 * test / validation)}


Runs = Mapping[str, Sequence[Mapping[str, Mapping[str, float]]]]


def average(runs: Runs, name: str, row: str, column: str) -> float:
    """Return the mean over seeds."""
    return sum(run[row][column] for run in runs[name]) / len(runs[name])


def claims(runs: Runs) -> Iterator[Claim]:
    """Yield where the default is worse than the old rate, and than the best one."""
    rows = [row for row in next(iter(runs.values()))[0] if row != DEFAULT]
    old = fixed(OLD) if fixed(OLD) in rows else rows[0]
    best = {name: min(rows, key=lambda row: average(runs, name, row, VALIDATION)) for name in runs}
    for column, words in ((VALIDATION, "validation"), (TEST, "test")):
        for other, what in ((dict.fromkeys(runs, old), "the old rate"), (best, "the best rate")):
            apart = {
                name: average(runs, name, DEFAULT, column) - average(runs, name, other[name], column) for name in runs
            }
            worse = listed({name: value for name, value in apart.items() if value > NEAR}, "+.3f")
            yield Claim.over_seeds(
                f"{words} loss beside {what}",
                f"Beside {'the rate of lowest validation loss' if other is best else what}: mean difference "
                f"{sum(apart.values()) / len(apart):+.3f}, largest {max(apart.values()):+.3f}; "
                f"above by {NEAR} nats on {worse or 'none'}.",
            )


@measure.figure
def draw(record: Record) -> Any:
    """Validation loss of the default and of two fixed rates, less that of the best rate."""
    from experiments.figures import dots

    runs: Runs = record.findings.data["runs"]
    rows = [row for row in next(iter(runs.values()))[0] if row != DEFAULT]
    best = {name: min(average(runs, name, row, VALIDATION) for row in rows) for name in runs}
    shown = {
        row: {name: (best[name] - average(runs, name, row, VALIDATION), 0.0) for name in runs}
        for row in (DEFAULT, fixed(OLD) if fixed(OLD) in rows else rows[0])
    }
    return dots(shown, "nats below the best rate of the grid", record.title)
