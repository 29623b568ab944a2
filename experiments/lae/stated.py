"""Claims of Laplacian Autoencoders [miani2022], in the document's order.

Margins that the claims of the first records did not state were set after those runs (decision 39).
"""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from experiments.lae.detection import NOISE, beside
from experiments.lae.explained import BLANKED, INPUT, MEAN, NEAREST, ON_AVERAGE, nearest_beside
from experiments.lae.faces import ACCURACY, AGREEMENT, ON_FACES, OVERALL
from experiments.lae.images import CLASSES, EDGES, FROM_NOISE, SHARP, SURE, SURER
from experiments.lae.models import (
    AE,
    BASELINES,
    DROPOUT,
    ENSEMBLE,
    FACTORED,
    HETEROSCEDASTIC,
    ONLINE,
    POST_HOC,
    RUNNING,
    VAES,
    VARIANCES,
    VARIATIONAL,
)
from experiments.paired import beside_best
from experiments.record import Record
from experiments.statements import (
    ABOVE,
    BELOW,
    CORRECTED,
    EXACT,
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
    best,
    cells_of,
    gap,
    level,
)

KMNIST, FASHION = "MNIST → KMNIST", "Fashion-MNIST → MNIST"
SIGMA, SPREAD = "AUROC by σ of the output", "σ of the output away from codes over that at codes"
INK, OVER = "AUROC by ink on pixels never lit", "AUROC by σ over isotropic"
NLL, MSE = "−log p (squared error of drawn networks, summed)", "squared error of their mean"
TIME, MEMORY = "time, power of the resolution R", "memory, power of R"
POWERS = (TIME, MEMORY, "time, power of the parameters W", "memory, power of W")
PIXELS, STORED = "time, power of the pixels", "memory, power of the pixels"
#: Powers from and up to which a cost counts as linear, and from which on as quadratic, nearer to two than to one; and
#: the factor up to which a ratio counts as steady from the smallest size to the largest.
SLOWER, LINEAR, QUADRATIC, STEADY = 0.85, 1.15, 1.5, 1.25
OTHERS, TRAINED = ("block", "kron", "diag"), ("online, convolutions", "online, residual")
POSTERIORS = ("post-hoc, KFAC", "post-hoc, exact diagonal", "post-hoc, approximate diagonal")
DRAWN = ("online, exact diagonal", "online, approximate diagonal")
INSIDE, OUTSIDE = "σ summed over pixels: test images", "σ summed over pixels: others"
FEW = tuple(f"accuracy with {number} labels a class" for number in (1, 2, 5, 10, 20))


def _beside_vaes(pair: str, ours: str) -> Parts:
    """Compare σ of the output with the best score of each VAE, seed by seed."""
    row = f"{pair}: {ours}"

    def parts(record: Record) -> dict[str, Pair]:
        found = dict[str, Pair]()
        spread, _ = level(row, SIGMA)(record)[f"{row}, {SIGMA}"]
        for vae in (f"{pair}: {name}" for name in VAES):
            (highest, _), *_ = best(vae, vae, {"best AUROC": "AUROC"})(record).values()
            found[beside_best(row, SIGMA, vae)] = spread, highest
        return found

    return parts


def _beside(ours: tuple[str, str], other: tuple[str, str]) -> Parts:
    """Compare one cell with another, each given by row and column."""

    def parts(record: Record) -> dict[str, Pair]:
        (a, _), *_ = level(*ours)(record).values()
        (b, _), *_ = level(*other)(record).values()
        return {beside(*ours, *other): (a, b)}

    return parts


def _weakest(record: Record) -> dict[str, Pair]:
    """Take the least area over all pairs, for each score of an autoencoder."""
    found: dict[str, list[Sequence[float]]] = {}
    for number in record.findings.numbers:
        pair, _, row = number.row.rpartition(": ")
        if row != INPUT and pair != MEAN and not pair.endswith(BLANKED):
            found.setdefault(f"{row}, {number.column}", []).append(number.values)
    return {name: ([min(each) for each in zip(*values, strict=True)], None) for name, values in found.items()}


def _alone(record: Record) -> dict[str, Pair]:
    """Compare the best score of the images alone with the best of all autoencoders, on average over pairs."""
    alone: dict[str, list[Sequence[float]]] = {}
    coded: dict[str, list[Sequence[float]]] = {}
    for number in record.findings.numbers:
        pair, _, row = number.row.rpartition(": ")
        if pair != MEAN and not pair.endswith(BLANKED):
            (alone if row == INPUT else coded).setdefault(pair, []).append(number.values)
    best = [np.mean([np.max(each, axis=0) for each in found.values()], axis=0).tolist() for found in (alone, coded)]
    return {ON_AVERAGE: (best[0], best[1])}


def _nearest(record: Record) -> dict[str, Pair]:
    """Compare the distance to a training image with each score of an autoencoder, on average over pairs."""
    cells = cells_of(record)
    own, start = cells[f"{MEAN}: {INPUT}", f"AUROC by {NEAREST}"], f"{MEAN}: "
    rows = ((row.removeprefix(start), column) for row, column in cells if row.startswith(start))
    others = ((row, column) for row, column in rows if row != INPUT)
    return {nearest_beside(row, column): (own, cells[start + row, column]) for row, column in others}


def both(
    text: str, short: str, of: str, tests: Callable[[str], tuple[Test, ...]], protocol: str = CORRECTED
) -> Iterator[Statement]:
    """Yield a claim on the posterior that was refitted to all data, and the same on the running one, as published.

    Args:
        text: The claim in a short sentence.
        short: A word or two for its subject.
        of: Text of the claim in the record; empty if it has none.
        tests: Comparisons from the row.
        protocol: Protocol of the first.
    """
    yield Statement(f"{text} (refitted)", of, tests(ONLINE), protocol)
    yield Statement(f"… running: {short}", "", tests(RUNNING), PRINTED, after=True)


def wrong_pixels(*methods: str) -> Callable[[str], tuple[Test, ...]]:
    """Return a function from a row to the test that its σ agrees better with errors than those of these methods."""
    return lambda ours: (Test(ABOVE, "correlation", gap(ours, methods, AGREEMENT)),)


def detection(pair: str) -> tuple[Statement, ...]:
    """Return the claims of Figure 9 on one pair of data sets."""
    ours, rivals = f"{pair}: {ONLINE}", tuple(f"{pair}: {name}" for name in (*BASELINES, "mean pixel"))
    spread = tuple(f"{pair}: {name}" for name in (*VAES, DROPOUT, ENSEMBLE))
    return (
        Statement(
            f"{pair}: σ of a Laplacian autoencoder's output (refitted) detects better than a VAE by any score",
            "",
            (Test(ABOVE, "AUROC", _beside_vaes(pair, ONLINE)),),
            headline=True,
        ),
        Statement(
            f"{pair}: so does that of its running posterior",
            "",
            (Test(ABOVE, "AUROC", _beside_vaes(pair, RUNNING)),),
            PRINTED,
        ),
        Statement(
            f"{pair}: its best score beats the best of every baseline",
            f"{pair}: best scores",
            (Test(ABOVE, "AUROC", best(ours, rivals, {"best AUROC": "AUROC"})),),
            looks=2,
        ),
        Statement(
            f"{pair}: of all σ of the output, its own detects best",
            "",
            (
                Test(ABOVE, "AUROC", gap(ours, spread, SIGMA)),
                *(
                    Test(ABOVE, "AUROC", _beside((ours, SIGMA), (f"{pair}: {name}", f"AUROC by {NOISE}")))
                    for name in HETEROSCEDASTIC
                ),
            ),
            looks=2,
        ),
    )


#: The two pairs of data sets have other sizes each, which settings with one size do not tell.
PAIRS = "training images 0.36 and 0.18, epochs 0.27"

DOCUMENT = Document(
    "S0",
    "Laplacian Autoencoders for Learning Stochastic Representations",
    "[miani2022]",
    "lae/summary.md",
    (
        Artefact(
            "lae-figure1a",
            "Figure 1a",
            (
                Statement(
                    "The σ that a VAE learns is smaller away from its codes than at them",
                    "",
                    (Test(BELOW, RATIO, level(VARIANCES, SPREAD)),),
                    PRINTED,
                ),
                Statement(
                    "… over most of the map it is below its mean at codes",
                    "Most of the map",
                    (Test(ABOVE, "of it", level(VARIANCES, SURER), 0.5),),
                    PRINTED,
                    after=True,
                ),
                Statement(
                    "… and it is larger at edges of an image than elsewhere",
                    "Edges of an image",
                    (Test(ABOVE, RATIO, level(VARIANCES, EDGES)),),
                    PRINTED,
                ),
            ),
            before=True,
        ),
        Artefact(
            "lae-figure1",
            "Figure 1",
            (
                Statement(
                    "It is certain at the codes of the data, and uncertain away from them",
                    "",
                    (Test(ABOVE, RATIO, level((ONLINE, POST_HOC), SPREAD)),),
                ),
            ),
        ),
        Artefact(
            "lae-table1",
            "Table 1",
            (
                Statement(
                    "The approximate diagonal is linear in resolution and in parameters",
                    "Approximate diagonal",
                    (Limit("approx_diag", POWERS, high=LINEAR),),
                ),
                Statement("So is the mixed diagonal", "Mixed diagonal", (Limit("mixed_diag", POWERS, high=LINEAR),)),
                Statement(
                    "No other is linear in both",
                    "The other approximations",
                    (Limit(OTHERS, POWERS, low=LINEAR, largest=True),),
                ),
                Statement(
                    "Blocks, KFAC and exact diagonal: time quadratic in the resolution",
                    "Time of blocks, KFAC and exact diagonal",
                    (Limit(OTHERS, TIME, low=QUADRATIC),),
                ),
                Statement(
                    "… and memory quadratic in the resolution",
                    "Memory of blocks, KFAC and exact diagonal",
                    (Limit(OTHERS, MEMORY, low=QUADRATIC),),
                ),
                Statement(
                    "Blocks are quadratic in the parameters of a layer",
                    "Blocks and the parameters of a layer",
                    (Limit("block", POWERS[2:], low=QUADRATIC),),
                ),
            ),
        ),
        Artefact(
            "lae-figure5",
            "Figure 5",
            (
                Statement(
                    "Exact layers around the bottleneck lessen the error of the approximate diagonal",
                    "Exact layers around the bottleneck",
                    (Test(BELOW, RATIO, gap("mixed_diag", "approx_diag", "error of the diagonal")),),
                ),
                Statement(
                    "Features of a layer may be assumed uncorrelated: error at most .01",
                    "Uncorrelated features of a layer",
                    (Test(BELOW, "relative", level("approx_diag", "error of the diagonal"), 0.01),),
                ),
                Statement(
                    "Layers are independent of each other: error at most .01",
                    "Independent layers",
                    (Test(BELOW, "relative", level("block", "error against the GGN"), 0.01),),
                ),
            ),
        ),
        Artefact(
            "lae-figure7",
            "Figure 7",
            (
                Statement(
                    "The approximate diagonal is linear in the pixels, in time",
                    "Time of the approximate diagonal",
                    (Limit("approx_diag", PIXELS, SLOWER, LINEAR),),
                ),
                Statement(
                    "… and in memory",
                    "Memory of the approximate diagonal",
                    (Limit("approx_diag", STORED, high=LINEAR),),
                ),
                Statement(
                    "Exact diagonal and KFAC scale poorly, in time",
                    "Time of exact diagonal and KFAC",
                    (Limit(("diag", "kron"), PIXELS, low=QUADRATIC),),
                ),
                Statement(
                    "… and in memory, with all columns at once",
                    "Memory with all columns at once, as in the programs of the time",
                    (Limit("BackPACK diag", STORED, low=QUADRATIC),),
                ),
                Statement(
                    "… and in memory, whatever the program",
                    "Memory of exact diagonal and KFAC",
                    (Limit(("diag", "kron"), STORED, low=QUADRATIC),),
                ),
                Statement(
                    "The approximate diagonal is viable for large images",
                    "Large images",
                    (Limit("approx_diag", "largest side", low=256.0),),
                ),
            ),
        ),
        Artefact(
            "lae-memory",
            "Section 4",
            (
                Statement(
                    "Memory of a step of online training is linear in the pixels",
                    "Memory of a step",
                    (Limit(TRAINED, STORED, SLOWER, LINEAR),),
                ),
                Statement("… and its time grows no faster", "Time of a step", (Limit(TRAINED, PIXELS, high=LINEAR),)),
                Statement(
                    "Beside a step of MAP, memory is a constant factor",
                    "Memory beside MAP",
                    (Limit(TRAINED, "change of the memory in plain steps", high=STEADY),),
                ),
                Statement(
                    "… and so is time",
                    "Time beside MAP",
                    (Limit(TRAINED, "change of the time in plain steps", high=STEADY),),
                ),
                Statement(
                    "It trains on colour images of 64 × 64 pixels",
                    "Training on colour images",
                    EXACT,
                    cell=("faces, 64²", "loss of the last epoch, nats"),
                ),
            ),
        ),
        Artefact(
            "lae-table2",
            "Table 2",
            (
                Statement(
                    "Networks drawn after online training reconstruct, those drawn post-hoc do not",
                    "Networks drawn after training",
                    (
                        Test(BELOW, RATIO, across(DRAWN, NLL, MSE), 1.1),
                        Test(ABOVE, RATIO, across(POSTERIORS, NLL, MSE), 1.5),
                    ),
                    PRINTED,
                    headline=True,
                ),
                Statement(
                    "The approximate diagonal is as good as the exact one, within 5 %",
                    "",
                    (
                        Test(WITHIN, RATIO, gap(POSTERIORS[2], POSTERIORS[1], (NLL, MSE)), 1.05),
                        Test(WITHIN, RATIO, gap(DRAWN[1], DRAWN[0], (NLL, MSE)), 1.05),
                    ),
                    PRINTED,
                ),
                Statement(
                    "Curvature from sampled gradients does as well as the GGN, within 5 %",
                    "Curvature from sampled gradients",
                    (Test(BELOW, RATIO, gap("online, diagonal of sampled gradients", DRAWN[1], (NLL, MSE)), 1.05),),
                    OURS,
                ),
                Statement(
                    "At equal temperature −log p of post-hoc is at least twice that of online",
                    "Equal temperature",
                    (Test(ABOVE, RATIO, gap("post-hoc, T = 0.002", "online, recomputed, T = 0.002", NLL), 2.0),),
                    headline=True,
                ),
                Statement(
                    "Trained online, networks stand noise of temperature .1 better",
                    "",
                    (Test(ABOVE, RATIO, gap("post-hoc, T = 0.1", "online, recomputed, T = 0.1", NLL)),),
                    OURS,
                    looks=2,
                ),
                Statement(
                    "Curvature of all data at the end detects better than the running average",
                    "",
                    (
                        Test(
                            ABOVE,
                            "AUROC",
                            gap(
                                "online, recomputed, T = 0.002",
                                "online, average curvature, T = 0.002",
                                (SIGMA, "AUROC by σ of the code"),
                            ),
                        ),
                    ),
                    OURS,
                ),
            ),
        ),
        Artefact(
            "lae-figure8",
            "Figure 8",
            (
                Statement(
                    "Posteriors trained online are uncertain away from the codes",
                    "",
                    (Test(ABOVE, RATIO, level((*DRAWN, "online, diagonal of sampled gradients"), SPREAD)),),
                ),
            ),
        ),
        Artefact(
            "lae-figure9",
            "Figure 9",
            (
                Statement(
                    "MNIST → KMNIST: AUROC of σ of code and output reaches .98",
                    f"{KMNIST}: σ of code and output",
                    (Test(ABOVE, "AUROC", level(f"{KMNIST}: {ONLINE}", (SIGMA, "AUROC by σ of the code")), 0.98),),
                ),
                *detection(KMNIST),
                *detection(FASHION),
            ),
            scale=PAIRS,
        ),
        Artefact(
            "lae-detection",
            "Section 5.2, explained",
            (
                Statement(
                    "Over all pairs the best score of the images alone detects better than that of every autoencoder",
                    "Images alone beside autoencoders",
                    (Test(ABOVE, "AUROC", _alone),),
                    OURS,
                    after=True,
                ),
                Statement(
                    "… on average over them the distance to a training image alone, than each score of an autoencoder",
                    "",
                    (Test(ABOVE, "AUROC", _nearest),),
                    OURS,
                    after=True,
                ),
                Statement(
                    "MNIST → KMNIST: ink on pixels never lit in training detects as well as σ of the output",
                    "",
                    (
                        Test(
                            ABOVE,
                            "AUROC",
                            _beside((f"{KMNIST}: image alone", INK), (f"{KMNIST}: {ONLINE}", SIGMA)),
                            -0.005,
                        ),
                    ),
                    OURS,
                ),
                Statement(
                    "… and with these pixels blanked σ of the output detects better than the best score of a VAE",
                    "",
                    (Test(ABOVE, "AUROC", _beside_vaes(f"{KMNIST}{BLANKED}", ONLINE)),),
                    OURS,
                ),
                Statement(
                    "Fashion-MNIST → MNIST: σ of the output detects better with KFAC than with a diagonal",
                    "",
                    (Test(ABOVE, "AUROC", gap(f"{FASHION}: {FACTORED}", f"{FASHION}: {POST_HOC}", SIGMA)),),
                    OURS,
                ),
                Statement(
                    "… and better still over that of isotropic noise",
                    "",
                    (Test(ABOVE, "AUROC", across(f"{FASHION}: {FACTORED}", OVER, SIGMA)),),
                    OURS,
                ),
                Statement(
                    "No score of an autoencoder reaches .9 on every pair",
                    "",
                    (Test(BELOW, "AUROC", _weakest, 0.9),),
                    OURS,
                ),
            ),
            before=True,
        ),
        Artefact(
            "lae-figure10",
            "Figure 10",
            (
                *(
                    Statement(
                        f"{pair}: {name}, σ is larger on others",
                        "",
                        (Test(ABOVE, RATIO, across(f"{pair}: {name}", OUTSIDE, INSIDE)),),
                    )
                    for pair in (KMNIST, FASHION)
                    for name in (POST_HOC, ONLINE, RUNNING)
                ),
                Statement(
                    "MC dropout is more uncertain about test images",
                    "",
                    (Test(BELOW, RATIO, across(f"{{}}: {DROPOUT}", OUTSIDE, INSIDE, (KMNIST, FASHION))),),
                ),
            ),
            scale=PAIRS,
        ),
        Artefact(
            "lae-table3",
            "Table 3, Figure 11",
            (
                *both(
                    "Filled-in digits: ECE and MCE below VAE and MC dropout, accuracy not lower",
                    "calibration",
                    "",
                    lambda ours: (
                        Test(BELOW, "ECE", gap(ours, (*VAES, DROPOUT), ("ECE", "MCE"))),
                        Test(ABOVE, "accuracy", gap(ours, (*VAES, DROPOUT), "accuracy"), -0.005),
                    ),
                ),
                *both(
                    "They show more classes than those of an autoencoder",
                    "classes",
                    "Classes among draws of a digit",
                    lambda ours: (Test(ABOVE, RATIO, gap(ours, AE, "effective number of classes seen")),),
                ),
                *both(
                    "Hidden pixels are filled in best",
                    "hidden pixels",
                    "",
                    lambda ours: (
                        Test(BELOW, RATIO, gap(ours, (*BASELINES, POST_HOC), "squared error per hidden pixel")),
                    ),
                ),
            ),
        ),
        Artefact(
            "lae-figure11-digits",
            "Figure 11",
            (
                Statement(
                    "Digits that it makes of noise are sharper than those of a VAE",
                    "",
                    (
                        Test(
                            ABOVE,
                            RATIO,
                            gap(f"{RUNNING}, {FROM_NOISE}", [f"{vae}, {FROM_NOISE}" for vae in VAES], SHARP),
                        ),
                    ),
                ),
                Statement(
                    "… and of more classes than those of an autoencoder",
                    "",
                    (Test(ABOVE, RATIO, gap(f"{RUNNING}, {FROM_NOISE}", f"{AE}, {FROM_NOISE}", CLASSES)),),
                ),
                Statement(
                    "A classifier is sure of half of them",
                    "",
                    (Test(ABOVE, "of them", level(f"{RUNNING}, {FROM_NOISE}", SURE), 0.5),),
                    OURS,
                ),
            ),
            before=True,
        ),
        Artefact(
            "lae-figure12",
            "Figure 12",
            (
                *both(
                    "With 1 to 20 labels a class it classifies better than AE, VAE and MC dropout",
                    "labels",
                    "",
                    lambda ours: (Test(ABOVE, "accuracy", gap(ours, (AE, *VAES, DROPOUT), FEW)),),
                ),
            ),
        ),
        Artefact(
            "lae-table4",
            "Table 4",
            (
                *both(
                    "Codes tell attributes of faces best",
                    "attributes",
                    "Attributes of faces",
                    lambda ours: (Test(ABOVE, "accuracy", gap(ours, (AE, VARIATIONAL, DROPOUT), ACCURACY + OVERALL)),),
                ),
            ),
        ),
        Artefact(
            "lae-figure13",
            "Figure 13",
            (
                *both(
                    "σ tells best which pixels of a face are wrong",
                    "faces",
                    "Wrong pixels",
                    wrong_pixels(*(name for name in (*BASELINES[1:], POST_HOC) if name in ON_FACES)),
                ),
            ),
        ),
        Artefact(
            "lae-figure13-digits",
            "Figure 13",
            (
                *both(
                    "σ tells best which pixels of a digit are wrong",
                    "digits",
                    "Wrong pixels",
                    wrong_pixels(*BASELINES[1:], POST_HOC),
                    OURS,
                ),
            ),
            before=True,
        ),
    ),
)
