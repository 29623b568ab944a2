"""osculate train and osculate fit by their defaults: the posterior beside its network, held out and on test data.

The command line tunes the posterior, and for a regression the network's noise, on the same held-out part: there the
study shows whether the choice does harm by what it has seen, and on the test part what it is worth.
"""

import contextlib
import io
import json
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

from experiments import Claim, Findings, Record, Runner, Table, experiment, listed, seeded
from experiments.methods.training_defaults import LARGEST, Trainings
from osculate.cli import main
from osculate.data import load
from osculate.data.uci import CLASSIFICATION

LIMIT = "upper limit of the difference"
DIFFERENCE, ERROR, SECONDS = "loss less that of the network", "standard error", "s"
NEW, NEW_ERROR = "the same on test data", "standard error on test data"
#: Sets on whose test parts the rules of ``osc.tune`` and of the default were chosen, or looked at meanwhile.
CHOSEN_ON = ("boston", "concrete", "energy", "glass", "uci_digits", "yacht")
#: Standard errors of a limit of 95 %.
ERRORS = 1.96


@experiment(
    "fit-defaults",
    "osculate train and osculate fit by their defaults: the posterior beside its network",
    "No document: nine regressions and nine classifications of UCI",
    small=Trainings(sets=("yacht", "glass")),
    paper=Trainings(),
)
def measure(settings: Trainings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Run both commands on each set."""
    jobs = [(name, seed) for name in settings.sets for seed in seeds]
    each = runner.over("sets", jobs, lambda name, seed: fitted(name, seed, settings.epochs), "fit", [settings.epochs])
    table = Table.of(each)
    return Findings(table.numbers(), claims(each), {"runs": each})


def fitted(name: str, seed: int, epochs: int | None) -> dict[str, float]:
    """Return the loss of the posterior that both commands leave, less that of its network, in nats."""
    options = ["--progress", "false"]
    many = len(load(name).train[0]) > LARGEST
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        train = ["train", "--data", name, "--seed", str(seed), "--output", folder]
        train += ["--train-size", str(LARGEST)] if many else []
        train += [] if epochs is None else ["--epochs", str(epochs)]
        with warnings.catch_warnings(), seeded(seed):
            warnings.simplefilter("ignore")  # they are judged in the study of training
            for arguments in (train, ["fit", "--checkpoint", folder], ["evaluate", "--posterior", folder]):
                if main(arguments + options):
                    raise RuntimeError(f"osculate {' '.join(arguments)} failed.")
        found = json.loads((Path(folder) / "metrics.json").read_text())["fit"]
        test = json.loads((Path(folder) / "evaluation.json").read_text())
    value, error = apart(found["validation"])
    new, new_error = apart(test)
    seconds = {SECONDS: found["seconds"]}
    return {DIFFERENCE: value, ERROR: error, LIMIT: value + ERRORS * error, NEW: new, NEW_ERROR: new_error, **seconds}


def apart(scores: Mapping[str, Any]) -> tuple[float, float]:
    """Return the loss of a posterior less that of its network, with the standard error, from a file of scores."""
    change = scores["difference"]
    name, sign = ("nll", 1) if "nll" in change else ("log_likelihood", -1)
    return sign * change[name], change[f"{name}_error"]


def claims(runs: Mapping[str, Sequence[Mapping[str, float]]]) -> Iterator[Claim]:
    """Yield on how many sets the loss is below that of the network."""
    new = {name: mean(run[NEW] for run in each) for name, each in runs.items() if name not in CHOSEN_ON}
    worse = {name: value for name, value in new.items() if value > 0}
    words = "No such set was measured."
    if len(new) > 1:
        first = min(new, key=new.__getitem__)
        rest = mean(value for name, value in new.items() if name != first)
        words = f"Above on {len(worse)} of {len(new)}: {listed(worse, '+.3f') or 'none'}; "
        words += f"median {median(new.values()):+.3f}. {first.capitalize()} has {new[first]:+.3f}; "
        words += f"the mean of the others is {rest:+.3f}."
    yield Claim.over_seeds("loss on test data of sets that were not looked at", words)


@measure.figure
def draw(record: Record) -> Any:
    """The difference on the test part of every set, with its limits."""
    from experiments.figures import dots

    runs = record.findings.data["runs"]
    shown: dict[str, dict[str, tuple[float, float]]] = {"regressions": {}, "classifiers": {}}
    for name, each in runs.items():
        panel = shown["classifiers" if name in CLASSIFICATION else "regressions"]
        panel[name] = -mean(run[NEW] for run in each), ERRORS * mean(run[NEW_ERROR] for run in each)
    heading = "Posteriors of osculate fit on test data"
    return dots(shown, "nats below the network, with 95 % intervals", heading)
