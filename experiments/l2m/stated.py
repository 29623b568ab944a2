"""Claims of L2M [perone2021], in the document's order.

Margins that the claims of the first records did not state were set after those runs (decision 39).
"""

from collections.abc import Sequence
from statistics import mean

from experiments.l2m.classification import ON_AVERAGE
from experiments.l2m.figure1 import MIXED
from experiments.l2m.uci import PASS, WHOLE
from experiments.paired import beside
from experiments.record import Record
from experiments.statements import (
    ABOVE,
    BELOW,
    CORRECTED,
    OURS,
    PRINTED,
    RATIO,
    WITHIN,
    Artefact,
    Document,
    Limit,
    Pair,
    Parts,
    Statement,
    Test,
    across,
    gap,
    level,
)

AS_PRINTED, LINEARISED, HMC = "L2M as printed", "L2M corrected, linearised", "HMC, the reference"
OTHERS = ("randomised priors", "MC dropout", "deep ensemble", "SWAG, diagonal")
NLL_POINT = "test NLL, nats per point"
SETS = ("yacht", "energy", "concrete", "wine")
#: Size of the test over that of the training data in a split.
OVERLAP = 1 / 9
TASKS = ("Fashion-MNIST, LeNet", "CIFAR-10, ResNet")
NLL, ACCURACY, AUROC = "test NLL, nats", "accuracy, %", "AUROC, entropy: "
CORRECT, ENSEMBLE = "L2M, prior by the evidence", "ensemble of L2M"


def by_split(parts: Parts) -> Parts:
    """Average the seeds of every split, which have all their data in common; a record lists them seed by seed."""

    def averaged(values: Sequence[float], splits: int) -> list[float]:
        if len(values) % splits:
            raise LookupError(f"{len(values)} values are not those of {splits} splits.")
        return [mean(values[split::splits]) for split in range(splits)]

    def of_splits(record: Record) -> dict[str, Pair]:
        splits, pairs = record.setup.settings["splits"], parts(record).items()
        return {name: (averaged(a, splits), None if b is None else averaged(b, splits)) for name, (a, b) in pairs}

    return of_splits


def detection(ours: str, other: str) -> Parts:
    """Compare AUROCs averaged over the sets that a task is compared with."""

    def parts(record: Record) -> dict[str, Pair]:
        cells: dict[str, list[tuple[float, ...]]] = {}
        for number in record.findings.numbers:
            if number.column.startswith(AUROC):
                cells.setdefault(number.row, []).append(number.values)
        means = {row: [sum(each) / len(each) for each in zip(*values, strict=True)] for row, values in cells.items()}
        pairs = ((f"{task}: {ours}", f"{task}: {other}") for task in TASKS)
        return {beside(*pair, ON_AVERAGE): (means[pair[0]], means[pair[1]]) for pair in pairs}

    return parts


DOCUMENT = Document(
    "S3",
    "L2M: Practical posterior Laplace approximation with optimization-driven second moment estimation",
    "[perone2021]",
    "l2m/summary.md",
    (
        Artefact(
            "l2m-figure1",
            "Figure 1",
            (
                Statement(
                    "Corrected, error bars grow beyond the data: sd(6) over sd(0) above 3",
                    "",
                    (Test(ABOVE, RATIO, level(LINEARISED, "sd(6) / sd(0)"), 3.0),),
                ),
                Statement(
                    "… they are within a factor of 3 of those of HMC",
                    "Error bars of corrected L2M over those of HMC",
                    (
                        Test(
                            WITHIN,
                            RATIO,
                            level(LINEARISED, [f"sd over that of HMC at x = {x}" for x in (-6, 0, 6)]),
                            3.0,
                        ),
                    ),
                ),
                Statement(
                    "… its 95 % band covers at least 85 % of new targets",
                    "Band of corrected L2M",
                    (Test(ABOVE, "of them", level(LINEARISED, "coverage of y, 95 % band"), 0.85),),
                ),
                Statement(
                    "As printed, error bars are below the noise at 0, and twice it at ±6",
                    "Error bars of L2M as printed",
                    (
                        Test(BELOW, "", level(AS_PRINTED, "sd of f at x = 0"), 3.0),
                        Test(
                            ABOVE,
                            RATIO,
                            across(AS_PRINTED, "sd of f at x = 6", "sd of f at x = 0"),
                            2.0,
                        ),
                        Test(
                            ABOVE,
                            RATIO,
                            across(AS_PRINTED, "sd of f at x = -6", "sd of f at x = 0"),
                            2.0,
                        ),
                    ),
                    PRINTED,
                    headline=True,
                    looks=2,
                ),
                *(
                    Statement(
                        f"{words}, it performs on par: NLL at most .1 nats above four methods'",
                        of,
                        (Test(BELOW, "nats", gap(row, OTHERS, NLL_POINT), 0.1),),
                        protocol,
                        protocol == PRINTED,
                        looks=2,
                    )
                    for words, of, row, protocol in (
                        ("As printed", "", AS_PRINTED, PRINTED),
                        ("Corrected", "NLL of corrected L2M", LINEARISED, CORRECTED),
                    )
                ),
                Statement(
                    "The band of the printed formula is that of its prior",
                    "Band of the printed formula",
                    (Test(ABOVE, "%", level(AS_PRINTED, "weights near the width of their prior, %"), 90.0),),
                    PRINTED,
                ),
                Statement(
                    "The chains of the reference agree",
                    "Chains of the reference",
                    (Limit("HMC, the reference", "R-hat of f, worst", high=MIXED, exact=True),),
                    OURS,
                ),
            ),
        ),
        Artefact(
            "l2m-uci",
            "Sections 4.2, 4.3",
            (
                Statement(
                    "UCI: the moments of Adam order the weights as single gradients do: rank correlation above .9",
                    "Order of the weights by the moments of Adam",
                    (Test(ABOVE, "correlation", by_split(level(SETS, "Spearman correlation")), 0.9, OVERLAP),),
                    headline=True,
                    looks=3,
                ),
                Statement(
                    "UCI: … and predict as well, within .05 nats",
                    "Predictions by the moments of Adam",
                    (Test(WITHIN, "nats", by_split(across(SETS, "L2M", "diagonal, single gradients")), 0.05, OVERLAP),),
                    looks=2,
                ),
                Statement(
                    "UCI: no extra computation: its posterior costs less than a pass with single gradients",
                    "Extra computation of L2M",
                    (Limit(SETS, WHOLE, high=1.0, over=PASS),),
                    headline=True,
                ),
                Statement(
                    "UCI: … and reading the state alone below .1 %",
                    "",
                    (Test(BELOW, "%", by_split(level(SETS, "reading the state, % of training")), 0.1, OVERLAP),),
                    PRINTED,
                ),
                Statement(
                    "UCI: an ensemble of L2M is not worse than one, within .01 nats",
                    "",
                    (Test(ABOVE, "nats", by_split(across(SETS, "ensemble of L2M", "L2M")), -0.01, OVERLAP),),
                    looks=3,
                ),
            ),
        ),
        Artefact(
            "l2m-classification",
            "Section 6",
            (
                Statement(
                    "Images: detects better than MAP, at an NLL at most .05 nats higher",
                    "",
                    (
                        Test(ABOVE, "AUROC", detection(CORRECT, "MAP")),
                        Test(BELOW, "nats", gap(f"{{}}: {CORRECT}", "{}: MAP", NLL, TASKS), 0.05),
                    ),
                ),
                Statement(
                    "Images: NLL within .05 nats of that with single gradients",
                    "",
                    (
                        Test(
                            WITHIN,
                            "nats",
                            gap(f"{{}}: {CORRECT}", "{}: diagonal, single gradients", NLL, TASKS),
                            0.05,
                        ),
                    ),
                    looks=2,
                ),
                Statement(
                    "Images: the printed formula keeps MAP's accuracy, within a point",
                    "Accuracy of the printed formula",
                    (Test(ABOVE, "points", gap("{}: L2M as printed, sampled", "{}: MAP", ACCURACY, TASKS), -1.0),),
                    PRINTED,
                ),
                Statement(
                    "Images: an ensemble of L2M has a lower NLL than the ensemble",
                    "",
                    (Test(BELOW, "nats", gap(f"{{}}: {ENSEMBLE}", "{}: deep ensemble", NLL, TASKS)),),
                ),
                Statement(
                    "Images: it detects better than the ensemble",
                    "",
                    (Test(ABOVE, "AUROC", detection(ENSEMBLE, "deep ensemble")),),
                    looks=2,
                ),
            ),
        ),
    ),
)
