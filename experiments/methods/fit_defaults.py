"""osculate train and osculate fit by their defaults: the posterior beside its network on the part that it is tuned on.

The command line tunes the posterior, and for a regression the network's noise, on the same held-out part. The study
shows whether this choice does harm there, not how well it predicts new data: the study "calibration" does.
"""

import contextlib
import io
import json
import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from experiments import Claim, Findings, Record, Runner, Table, experiment, seeded
from experiments.methods.training_defaults import LARGEST, Trainings
from osculate.cli import main
from osculate.data import load
from osculate.data.uci import CLASSIFICATION

LIMIT = "upper limit of the difference"
DIFFERENCE, ERROR, SECONDS = "loss less that of the network", "standard error", "s"
#: Standard errors of a limit of 95 %, and nats that it may be above zero.
ERRORS, NEAR = 1.96, 0.05


@experiment(
    "fit-defaults",
    "osculate train and osculate fit by their defaults: the posterior beside its network on the held-out part",
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
    many = len(load(name).train[0]) > LARGEST
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        train = ["train", "--data", name, "--seed", str(seed), "--output", folder]
        train += ["--train-size", str(LARGEST)] if many else []
        train += [] if epochs is None else ["--epochs", str(epochs)]
        with warnings.catch_warnings(), seeded(seed):
            warnings.simplefilter("ignore")  # they are judged in the study of training
            for arguments in (train, ["fit", "--checkpoint", folder]):
                if main(arguments):
                    raise RuntimeError(f"osculate {' '.join(arguments)} failed.")
        found = json.loads((Path(folder) / "metrics.json").read_text())["fit"]
    change = found["validation"]["difference"]
    value = change["nll"] if "nll" in change else -change["log_likelihood"]
    error = change["nll_error"] if "nll" in change else change["log_likelihood_error"]
    return {DIFFERENCE: value, ERROR: error, LIMIT: value + ERRORS * error, SECONDS: found["seconds"]}


def claims(runs: Mapping[str, Sequence[Mapping[str, float]]]) -> Iterator[Claim]:
    """Yield the verdict on the limit."""
    limits = {name: max(run[LIMIT] for run in each) for name, each in runs.items()}
    above = {name: f"{value:+.3f}" for name, value in limits.items() if value > NEAR}
    average = mean(run[DIFFERENCE] for each in runs.values() for run in each)
    yield Claim.judged(
        f"The upper 95 % limit of the loss, less that of the network, is at most {NEAR} nats on every set",
        not above,
        f"Mean difference {average:+.3f}; "
        + (f"above on {', '.join(f'{n} {v}' for n, v in above.items())}." if above else "none above."),
    )


@measure.figure
def draw(record: Record) -> Any:
    """The difference and its limits on every set."""
    from experiments.figures import dots

    runs = record.findings.data["runs"]
    shown: dict[str, dict[str, tuple[float, float]]] = {"regressions": {}, "classifiers": {}}
    for name, each in runs.items():
        panel = shown["classifiers" if name in CLASSIFICATION else "regressions"]
        panel[name] = -mean(run[DIFFERENCE] for run in each), ERRORS * mean(run[ERROR] for run in each)
    heading = "Posteriors of osculate fit on the held-out part"
    return dots(shown, "nats below the network, with 95 % intervals", heading)
