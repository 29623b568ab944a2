"""Claims that no document makes: of osculate's defaults, of tasks of functions, and of posteriors of adapters.

Margins that the claims of the first records did not state were set after those runs (decision 39).
"""

from collections.abc import Mapping, Sequence
from statistics import mean

from experiments.methods.calibration import TASKS
from experiments.methods.fit_defaults import CHOSEN_ON, NEW, NEW_ERROR
from experiments.record import Record
from experiments.statements import (
    ABOVE,
    BELOW,
    OURS,
    RATIO,
    Artefact,
    Document,
    Pair,
    Parts,
    Statement,
    Test,
    cells_of,
    gap,
    level,
)

DEFAULT, LAPLACE, ENSEMBLE = "osc.laplace", "osc.laplace, refine=False", "ensemble of five"
NLL, LESS, HIGHER = "NLL, nats", ", less the network's", "log likelihood, nats, less that of the network"
COUNT = "a count, without an interval"
SETS = (
    *("boston", "concrete", "energy", "kin8nm", "naval", "power", "protein", "wine", "yacht"),
    *("australian", "banana", "breast_cancer", "glass", "ionosphere", "satellite", "uci_digits", "vehicle", "waveform"),
)
UNSEEN = tuple(name for name in SETS if name not in CHOSEN_ON)
MEAN = f"mean of {len(UNSEEN)} sets"
#: Overlap of splits that share a fifth of their test functions: r / (1 - r) [nadeau2003].
PACKAGES = 0.25
#: Test over training data: of standard splits of UCI (at least), and of digits that each seed draws, for 900 or 997.
SPLITS, DIGITS, MOST_DIGITS = 1 / 9, 600 / 900, 600 / 997
RATES = tuple(f"{{}}: rate {rate}" for rate in ("0.001", "0.003", "0.01", "0.03"))
OF_LORA = "osc.laplace, adapters and head"
SHARE, AUROC = "share in the patch, %", "AUROC, other packages"
DISTANCE = "distance to the optimum"
PROCESSES = ("Gaussian process", "Gaussian process, values not compressed")


def every(column: str) -> Parts:
    """Compare the default with the network in all tasks and all columns that begin alike."""

    def parts(record: Record) -> dict[str, Pair]:
        cells = cells_of(record)
        found: dict[str, Pair] = {}
        for (row, name), values in cells.items():
            task, _, way = row.partition(": ")
            if way == DEFAULT and name.startswith(column) and task in TASKS:
                found[f"{task}, {name}"] = values, cells.get((f"{task}: network", name))
        return found

    return parts


def on_average(column: str, other: str = "") -> Parts:
    """Take the mean of each data set, less that of its networks or of another way to predict.

    Classifiers of one data set share its test images, and so are averaged.
    """
    kind = "regressions" if column.startswith("log") else "classifiers"
    ours = f"{kind}: {DEFAULT}"
    each = gap(ours, f"{kind}: {other}", column + LESS) if other else level(ours, column + LESS)

    def parts(record: Record) -> dict[str, Pair]:
        cells = cells_of(record)
        columns = [(row, c) for row, c in cells if c.startswith(column) and not c.endswith("of the network")]
        sets = [task.data for name, task in TASKS.items() for row, _ in columns if row == f"{name}: {DEFAULT}"]

        def means(values: Sequence[float]) -> list[float]:
            found: dict[str, list[float]] = {}
            for name, value in zip(sets, values, strict=True):
                found.setdefault(name, []).append(value)
            return [mean(group) for group in found.values()]

        return {
            name: (means(own), None if theirs is None else means(theirs))
            for name, (own, theirs) in each(record).items()
        }

    return parts


def over_sets(of: Mapping[str, Sequence[float]], name: str) -> dict[str, Pair]:
    """Take the mean of each data set: the values are those of sets, since the claim is about these."""
    return {name: ([mean(values) for values in of.values()], None)}


def without_prior(record: Record) -> dict[str, Pair]:
    """Compare calibration errors of networks trained without a prior, by data set."""
    cells, found = cells_of(record), dict[str, list[float]]()
    for name, task in TASKS.items():
        rows = (f"{name}: {DEFAULT}", "ECE"), (f"{name}: network", "ECE")
        if rows[0] in cells and not task.has_prior:
            ours, theirs = (mean(cells[row]) for row in rows)
            found.setdefault(task.data, []).append(ours - theirs)
    return over_sets(found, "networks trained without a prior, mean of data sets")


def unseen(record: Record) -> dict[str, Pair]:
    """Take the loss on test data less that of the network, of the sets that were not looked at."""
    cells = cells_of(record)
    return over_sets({name: cells[name, NEW] for name in UNSEEN if (name, NEW) in cells}, MEAN)


def before_refinement(record: Record) -> dict[str, Pair]:
    """Compare the NLL of Laplace's own predictive on training data with the network's on test data."""
    cells = cells_of(record)
    ours, network = (
        cells["Laplace's own (refine=False)", "NLL on training data, nats"],
        cells["network", "NLL on test data, nats"],
    )
    return {"Laplace on training data beside the network on test data": (ours, network)}


def errors_over_data(record: Record) -> dict[str, float]:
    """Return standard errors over the test data of a set, which its seeds share."""
    return {f"{n.row}, {NEW}": n.mean or 0.0 for n in record.findings.numbers if n.column == NEW_ERROR}


def lora(text: str, column: str, other: str, bound: float, unit: str = "nats") -> Statement:
    """Return a claim on the posterior of adapters."""
    direction = ABOVE if column == AUROC else BELOW
    return Statement(text, "", (Test(direction, unit, gap(OF_LORA, other, column), bound, PACKAGES),), OURS)


def continual(data: str, of: str = "", looks: int = 1) -> tuple[Statement, ...]:
    """Return the claims on one series of tasks; that on elastic weight consolidation may be looked at again."""
    ours, accuracy = f"{data}: prior, kron", "final average accuracy, %"
    return (
        Statement(
            f"{data}: a posterior as prior closes 70 % of the gap to all tasks at once",
            of,
            (Test(ABOVE, "%", level(ours, "part of the gap closed, %"), 70.0),),
            OURS,
        ),
        Statement(
            f"{data}: … it ends above elastic weight consolidation",
            "",
            (Test(ABOVE, "points", gap(ours, f"{data}: prior, diag", accuracy)),),
            OURS,
            looks=looks,
        ),
        Statement(
            f"{data}: … and above replay",
            "",
            (Test(ABOVE, "points", gap(ours, f"{data}: replay", accuracy)),),
            OURS,
        ),
    )


def patch(way: str, words: str, start: str, other: str, of: str = "") -> Statement:
    """Return a claim on the share of a patch in an attribution."""
    ours = f"epistemic uncertainty (BALD), {way}"
    return Statement(
        f"{words}: the patch holds more of the epistemic uncertainty than {start}",
        of,
        (Test(ABOVE, "points", gap(ours, other, SHARE)),),
        OURS,
    )


DOCUMENT = Document(
    "beyond",
    "Beyond the documents: defaults, functions, adapters",
    "",
    "methods/summary.md",
    (
        Artefact(
            "calibration",
            "Defaults",
            (
                Statement(
                    "osc.laplace: NLL below that of the network, mean of 12 data sets",
                    "",
                    (Test(BELOW, "nats", on_average(NLL)),),
                    OURS,
                    True,
                    looks=2,
                ),
                Statement(
                    "… its upper limit at most .02 nats above, in 80 % of tasks",
                    "upper limit of the NLL, by task",
                    COUNT,
                    OURS,
                ),
                Statement("… ECE at most .01 above", "", (Test(BELOW, "ECE", on_average("ECE"), 0.01),), OURS),
                Statement(
                    "… ECE below, of networks trained without a prior",
                    "",
                    (Test(BELOW, "ECE", without_prior),),
                    OURS,
                ),
                Statement(
                    "… accuracy at most .3 points below, 1.5 anywhere",
                    "accuracy of classifiers",
                    (
                        Test(ABOVE, "points", on_average("accuracy, %"), -0.3),
                        Test(ABOVE, "points", every("accuracy, %"), -1.5, SPLITS),
                    ),
                    OURS,
                    looks=2,
                ),
                Statement(
                    "osc.laplace: AUROC .05 above on average, .05 below in no pair",
                    "AUROC of classifiers",
                    (
                        Test(ABOVE, "AUROC", on_average("AUROC"), 0.05),
                        Test(ABOVE, "AUROC", every("AUROC"), -0.05, SPLITS),
                    ),
                    OURS,
                    True,
                    looks=2,
                ),
                Statement(
                    "… AUROC at most .04 below the unrefined posterior's",
                    "",
                    (Test(ABOVE, "AUROC", on_average("AUROC", LAPLACE), -0.04),),
                    OURS,
                    looks=2,
                ),
                Statement(
                    "… NLL below that of an ensemble of five",
                    "NLL beside an ensemble of five",
                    (Test(BELOW, "nats", on_average(NLL, ENSEMBLE)),),
                    OURS,
                    looks=2,
                ),
                Statement(
                    "Regressions: log likelihood at most .05 nats below the network's, in each of seven",
                    "log likelihood of regressions",
                    (
                        Test(
                            ABOVE,
                            "nats",
                            lambda record: {k: (v, None) for k, (v, _) in every(HIGHER)(record).items()},
                            -0.05,
                            SPLITS,
                        ),
                    ),
                    OURS,
                    looks=2,
                ),
                Statement(
                    "… .05 above the unrefined posterior's",
                    "",
                    (Test(ABOVE, "nats", on_average("log likelihood, nats", LAPLACE), 0.05),),
                    OURS,
                    looks=2,
                ),
                Statement(
                    "… 95 % intervals hold .92 to .98 of the targets",
                    "",
                    (
                        Test(ABOVE, "of them", level(f"regressions: {DEFAULT}", "coverage of 95 % intervals"), 0.92),
                        Test(BELOW, "of them", level(f"regressions: {DEFAULT}", "coverage of 95 % intervals"), 0.98),
                    ),
                    OURS,
                ),
            ),
        ),
        Artefact(
            "calibration-cause",
            "Defaults",
            (
                Statement(
                    "Laplace's own posterior predicts training data worse than the network test data",
                    "",
                    (Test(ABOVE, "nats", before_refinement, overlap=MOST_DIGITS),),
                    OURS,
                ),
                Statement(
                    "Refinement halves the deviation of margins",
                    "",
                    (
                        Test(
                            BELOW,
                            RATIO,
                            gap(DEFAULT, "Laplace's own (refine=False)", "deviation of the margin on training data"),
                            0.5,
                            MOST_DIGITS,
                        ),
                    ),
                    OURS,
                ),
            ),
        ),
        Artefact(
            "calibration-choice",
            "Defaults",
            (
                Statement(
                    "It refines by the rule that was best on other data",
                    "rule of osc.laplace for classes",
                    "one seed",
                    OURS,
                ),
                Statement("… for real values too", "rule of osc.laplace for real values", "one seed", OURS),
            ),
        ),
        Artefact(
            "methods",
            "Defaults",
            (
                Statement(
                    "Most methods have a lower NLL than the mode", "methods of lower NLL than the mode", COUNT, OURS
                ),
                Statement(
                    "osc.laplace: NLL below the mode's, AUROC of at least .9",
                    "",
                    (
                        Test(BELOW, "nats", gap(DEFAULT, "MAP", "test NLL, nats"), overlap=DIGITS),
                        Test(ABOVE, "AUROC", level(DEFAULT, "AUROC, shuffled pixels"), 0.9, DIGITS),
                    ),
                    OURS,
                ),
                Statement(
                    "Most methods tell shuffled pixels better", "methods of higher AUROC than the mode", COUNT, OURS
                ),
            ),
        ),
        Artefact(
            "fit-defaults",
            "Command line",
            (
                Statement(
                    "osculate fit: loss on test data at most .05 nats above the network's, on each of 18 sets",
                    "",
                    (Test(BELOW, "nats", level(SETS, NEW), 0.05, shared=errors_over_data),),
                    OURS,
                ),
                Statement(
                    f"… below it, {MEAN} that were not looked at when the rule was chosen",
                    "loss on test data of sets that were not looked at",
                    (Test(BELOW, "nats", unseen),),
                    OURS,
                ),
            ),
        ),
        Artefact(
            "training-defaults",
            "Command line",
            tuple(
                Statement(
                    f"osculate train: {kind} loss at most .05 nats above that of {words}, on each set",
                    f"{kind} loss beside {other}",
                    (Test(BELOW, "nats", gap("{}: default", rivals, f"{kind} NLL, nats", SETS), 0.05),),
                    OURS,
                )
                for kind in ("validation", "test")
                for words, other, rivals in (
                    ("rate .001", "the old rate", RATES[:1]),
                    ("every rate", "the best rate", RATES),
                )
            ),
        ),
        Artefact(
            "foundation-worth",
            "Adapters",
            (
                lora("LoRA: NLL .02 nats below the network's", NLL, "network", -0.02),
                lora("… ECE .01 below", "ECE", "network", -0.01, "ECE"),
                lora("… AUROC .01 above", AUROC, "network", 0.01, "AUROC"),
                lora("… NLL .02 nats below that of temperature scaling", NLL, "temperature scaling", -0.02),
                lora("… .02 below that of the ensemble", NLL, "ensemble of adapters", -0.02),
                Statement(
                    "Cause: the network is overconfident by .02",
                    "",
                    (Test(ABOVE, "", level("network", "confidence less accuracy"), 0.02),),
                    OURS,
                ),
                lora(
                    "Cause: with the best temperature under each, .02 nats remain",
                    "NLL at that temperature, nats",
                    "network",
                    -0.02,
                ),
                lora("Cause: NLL .02 nats below that of the head alone", NLL, "osc.laplace, head alone", -0.02),
            ),
        ),
        Artefact(
            "functions-active",
            "Functions",
            (
                Statement(
                    "Active learning: the chosen rule needs at most 70 % of the labels of chance",
                    "labels needed",
                    "read off mean curves",
                    OURS,
                ),
                Statement(
                    "… its accuracy over rounds is above that of chance",
                    "",
                    (
                        Test(
                            ABOVE,
                            "points",
                            gap(
                                "Fashion-MNIST: reduction of the pool's uncertainty",
                                "Fashion-MNIST: random",
                                "accuracy, mean over rounds, %",
                            ),
                        ),
                    ),
                    OURS,
                    looks=2,
                ),
            ),
        ),
        Artefact(
            "functions-continual",
            "Functions",
            (*continual("permuted MNIST", looks=2), *continual("split MNIST", "gap closed on split classes")),
        ),
        Artefact(
            "functions-optimisation",
            "Functions",
            (
                Statement(
                    "Branin: within .004 of the optimum",
                    "",  # a hundredth of the optimum, 0.397887
                    (Test(BELOW, "", level("Branin: Laplace", DISTANCE), 0.004),),
                    OURS,
                ),
                Statement(
                    "Hartmann-6: no farther from it than Gaussian processes",
                    "",
                    (
                        Test(
                            BELOW,
                            "",
                            gap("Hartmann-6: Laplace", [f"Hartmann-6: {p}" for p in PROCESSES], DISTANCE),
                            0.0,
                        ),
                    ),
                    OURS,
                    looks=2,
                ),
                Statement(
                    "Rosenbrock-20: nearer than Sobol points",
                    "",
                    (Test(BELOW, RATIO, gap("Rosenbrock-20: Laplace", "Rosenbrock-20: Sobol points", DISTANCE)),),
                    OURS,
                ),
                Statement(
                    "… no farther than Gaussian processes",
                    "",
                    (
                        Test(
                            BELOW,
                            RATIO,
                            gap("Rosenbrock-20: Laplace", [f"Rosenbrock-20: {p}" for p in PROCESSES], DISTANCE),
                            1.0,
                        ),
                    ),
                    OURS,
                    looks=2,
                ),
                Statement(
                    "Held-out values have the log density of a Gaussian process, within .01 nats",
                    "log density of held-out values",
                    (
                        Test(
                            ABOVE,
                            "nats",
                            gap(
                                "{}: Laplace",
                                "{}: Gaussian process",
                                "held-out log density, nats",
                                ("Branin", "Hartmann-6", "Rosenbrock-20"),
                            ),
                            -0.01,
                        ),
                    ),
                    OURS,
                ),
            ),
        ),
        Artefact(
            "functions-sensitivity",
            "Functions",
            (
                patch("integrated gradients", "Integrated gradients", "its share of the area", "area"),
                patch(
                    "integrated gradients",
                    "Integrated gradients",
                    "its share of the brightness",
                    "brightness",
                    "patch beside its share of the brightness",
                ),
                patch(
                    "integrated gradients",
                    "Integrated gradients",
                    "of the attributions of the class probability",
                    "class probability, integrated gradients",
                ),
                patch("plain gradient", "Plain gradient", "its share of the area", "area"),
                patch(
                    "plain gradient",
                    "Plain gradient",
                    "of the attributions of the class probability",
                    "class probability, plain gradient",
                ),
            ),
        ),
    ),
)
