"""The reports of the demos, for readers new to Laplace's method: one HTML file with its pictures inside."""

from collections.abc import Mapping
from html import escape
from math import hypot, isfinite
from pathlib import Path
from typing import Any

from osculate.cli.demo_autoencoders import OURS, Comparison
from osculate.cli.demo_fits import Classification, recipe_for
from osculate.cli.page import Explanation, Facts, command, described, facts, figure, page, table
from osculate.cli.tables import Score, columns

#: Scores by method, by caption.
Tables = Mapping[str, Mapping[str, Mapping[str, Score]]]


CLASSIFIER_FIGURES: Mapping[str, Explanation] = {
    "reliability": (
        "Are the probabilities calibrated?",
        "All test predictions, grouped by their confidence. A dot at 0.8 stands for predictions with about 80 % "
        "confidence, and its height is their accuracy.",
        "On the dashed line, predictions are calibrated. Below it they are overconfident, above it underconfident. The "
        "bars at the bottom count the predictions on a compressed scale; the thin vertical lines are the standard "
        "errors of dots with few predictions.",
    ),
    "entropy": (
        "Are out-of-distribution images detected?",
        "Entropy of the predictions, for test images (grey area) and for out-of-distribution images (lines), which "
        "belong to no class or look unlike anything in training.",
        "Left is certain, right is uniform over the classes. The further the lines lie to the right of the grey area, "
        "the better the images are separated, which the AUROC in the legend measures. A line with much weight on the "
        "left means confident predictions for meaningless inputs. Shares are drawn on a compressed scale, so that "
        "small ones can be seen.",
    ),
    "least_sure": (
        "Which images are the most uncertain?",
        "The test images with the most uncertain Laplace predictions. Above each, its true class; below, the "
        "prediction of each method with its probability.",
        "Blue predictions are correct, bold orange ones wrong. Ambiguous images should get low probabilities, above "
        "all if the prediction is wrong.",
    ),
    "regression": (
        "Regression",
        "A network was fitted to the black points; there are none between the grey edges. The line is the predictive "
        "mean, the bands are one and two standard deviations.",
        "MAP has the noise of the data only, so its band has the same width everywhere. A Laplace posterior adds the "
        "uncertainty of the weights to the same noise: its band widens in the gap and beyond the last points. “full” "
        "keeps all correlations between the weights; “kron” and “diag” keep fewer, cost less, and widen less in the "
        "gap.",
    ),
}


def classifier_page(
    first: Classification, settings: Mapping[str, Any], tables: Tables, figures: Mapping[str, Path], about: Facts
) -> str:
    """The report of a classifier and a curve.

    Args:
        first: The results of the first seed.
        settings: The options of the run.
        tables: Scores of the classification and of the regression, by caption.
        figures: The pictures, by name.
        about: Wall-clock time by step, and versions.
    """
    (caption, rows), (curve_caption, curve) = tables.items()
    seed = f" (seed {settings['seed']})" if settings["seeds"] > 1 else ""
    return page(
        "classifier",
        first.dataset.name,
        words=escape(recipe_for(first.dataset.name).words),
        fit_seconds=f"{first.fit_seconds:.1f}",
        held_out=f"{len(first.dataset.validation[0]):,}",
        classification=table(caption, rows),
        finding=escape(finding(rows)),
        claims=escape(claims(first, seed)),
        which=f"<p>The figures show the first run{seed}.</p>" if seed else "",
        figures="".join(figure(path, CLASSIFIER_FIGURES[name]) for name, path in figures.items()),
        regression=table(curve_caption, curve),
        command=escape(command(settings)),
        facts=facts(about),
    )


def finding(rows: Mapping[str, Mapping[str, Score]]) -> str:
    """The table in words: a phrase for each score, better or worse.

    >>> finding({"MAP": {"nll": Score(0.3)}, "Laplace": {"nll": Score(0.4)}})
    'From MAP to Laplace, NLL goes from 0.300 to 0.400 (worse).'
    """
    before, after = rows["MAP"], rows["Laplace"]
    parts = []
    for name, heading in columns(rows).items():
        a, b = before[name].mean, after[name].mean
        better = (b > a) == heading.endswith("↑")
        chance = hypot(before[name].error or 0.0, after[name].error or 0.0)
        verdict = "unchanged" if f"{a:.3f}" == f"{b:.3f}" else "better" if better else "worse"
        verdict = "within the error" if verdict != "unchanged" and abs(b - a) <= chance else verdict
        parts.append(f"{heading.rstrip(' ↑↓')} goes from {a:.3f} to {b:.3f} ({verdict})")
    return f"From MAP to Laplace, {', '.join(parts)}."


def claims(first: Classification, seed: str = "") -> str:
    """Mean confidence and accuracy of each method."""
    parts = []
    for name, record in first.records.items():
        claimed, kept = float(record.probs.amax(-1).mean()), record.metrics()["accuracy"]
        verdict = "overconfident" if claimed > kept + 0.01 else "underconfident"
        verdict = verdict if abs(claimed - kept) > 0.01 else "well calibrated"
        parts.append(
            f"{name} has a mean confidence of {100 * claimed:.1f} % and {100 * kept:.1f} % accuracy: {verdict}"
        )
    return (
        f"On the test images{seed}, {'; '.join(parts)}. A posterior whose prior comes from the training images alone "
        "tends to be underconfident if these are few: it keeps every function that they do not rule out. Tuning on "
        "held-out images corrects most of that; the table shows its effect on out-of-distribution detection."
    )


#: Standard errors of the difference beyond which one method is clearly better than another.
CLEAR = 2.0


#: Meanings of the columns of each table; those of out-of-distribution images share one.
MEANINGS = {
    "reconstruction": (
        ("log p(x)", "log density of the image under its reconstruction, in nats for the whole image; higher is better "
         "(↑). It takes a good mean and a calibrated standard deviation"),
        ("pixel error", "root mean square error of the mean reconstruction; ink is 1, paper 0; lower is better (↓)"),
    ),
    "AUROC": (
        ("−log p(x)", "reconstruction error of the image"),
        ("σ of code", "standard deviation of the codes of the image"),
        ("σ of image", "standard deviation of its reconstructions"),
        ("mean pixel", "amount of ink, a baseline without a network; rotation and shuffling do not change it"),
        ("AUROC", "probability that an out-of-distribution image has a higher score than a test image: 0.5 is chance, "
         "1 perfect, 0 always wrong. A method without such a standard deviation has no number"),
    ),
    "the upper half": (
        ("accuracy", "accuracy of a classifier, trained on whole digits, on ten images with the upper half filled in"),
        ("NLL, Brier", "negative log-likelihood of the digit, and squared distance from it; lower is better"),
        ("ECE", "expected calibration error: mean distance between confidence and accuracy"),
        ("hidden pixels", "mean squared error of the hidden pixels of the mean image"),
        ("classes seen", "mean number of different digits among the ten images of one datum"),
    ),
    "accuracy": (
        ("labels", "accuracy on test images with this number of labelled images of each digit; each test image gets "
         "the label of those with the nearest codes"),
    ),
}  # fmt: skip

#: Heading, description and reading guide of each figure.
AUTOENCODER_FIGURES: Mapping[str, Explanation] = {
    "latent_map": (
        "A map of the codes",
        "Each dot is a test image at its code, coloured by its digit, which training did not use. The "
        "background is the standard deviation of the decoders at each point, mean over pixels.",
        "White is agreement. AE and VAE have a single decoder, so that their background is white everywhere, also "
        "far from any image. A well-calibrated background is light under the dots and darker between and beyond them.",
    ),
    "reconstructions": (
        "Reconstructions and their uncertainty",
        "Columns: test digits, digits rotated by 90 degrees, and digits whose pixels were shuffled. For each method, "
        "the mean reconstruction and the standard deviation of each pixel.",
        "An autoencoder trained on upright digits reconstructs upright digits from everything. The standard deviation "
        "should be dark (small) at the test digits and bright (large) at the others. All share one scale.",
    ),
    "roc": (
        "Are out-of-distribution images detected?",
        "An image is flagged above some threshold of a score. Each curve goes through all thresholds: the share of "
        "out-of-distribution images that are flagged, against the share of test images.",
        "The nearer to the upper left corner, the better; the dashed line is chance. One column of panels for each "
        "score; methods without that kind of standard deviation are missing there.",
    ),
    "imputations": (
        "Imputation of the hidden half",
        "Online Laplace sees the lower half of test images. Each drawn network fills in the rest. Under each draw, "
        "the digit that a classifier predicts.",
        "Draws should agree where the lower half determines the rest, and differ elsewhere; the blue row shows where. "
        "Failures are draws that all agree on a wrong digit.",
    ),
    "generated": (
        "New images",
        "Codes are drawn near those of the training images (for the VAE from its prior), and each is decoded by "
        "another network.",
        "They should look like digits, and differ. With codes of two numbers they are blurred for every method.",
    ),
    "accuracy_against_labels": (
        "Are the codes useful for classification?",
        "Test images are classified by the labelled images with the nearest codes, by majority over drawn networks.",
        "Codes that separate digits give a high curve. The bars are one standard error over the choice of the labelled "
        "images: curves whose bars overlap do not differ clearly.",
    ),
}


def autoencoder_page(
    first: Comparison, settings: Mapping[str, Any], tables: Tables, figures: Mapping[str, Path], about: Facts
) -> str:
    """The report of the autoencoders; arguments as in :func:`classifier_page`."""
    several = settings["seeds"] > 1
    parts = []
    for number, (caption, rows) in enumerate(tables.items()):
        sentences = "".join(f"<li>{escape(sentence)}</li>" for sentence in verdicts(rows))
        parts.append(f"{table(caption, rows)}<ul>{sentences}</ul>")
        kind = kind_of(caption)
        if kind not in map(kind_of, list(tables)[:number]):  # the meanings of its columns, at the first use
            parts.append(f"<dl>{described(MEANINGS[kind])}</dl>")
    return page(
        "autoencoders",
        "autoencoders",
        size=f"{len(first.dataset.train[0]):,}",
        held_out=f"{len(first.dataset.validation[0]):,}",
        temperature=f"{float(getattr(first.q, 'temperature', 1.0)):.2g}",
        errors=f"over {settings['seeds']} seeds"
        if several
        else "that of the choice of test images, or of labelled ones",
        count=escape(score_card(tables)),
        plain=escape(reconstruction_error_alone(tables)),
        tables="".join(parts),
        which=f"<p>The figures show the first run (seed {settings['seed']}).</p>" if several else "",
        figures="".join(figure(path, AUTOENCODER_FIGURES[name]) for name, path in figures.items()),
        command=escape(command(settings)),
        facts=facts(about),
    )


def kind_of(caption: str) -> str:
    """The kind of a table, a key of :data:`MEANINGS`."""
    return next(kind for kind in MEANINGS if caption.startswith(kind))


def verdicts(rows: Mapping[str, Mapping[str, Score]]) -> list[str]:
    """The best method of each column with a direction, and the significance of its lead.

    >>> verdicts({"AE": {"nll": Score(0.3, 0.01)}, "VAE": {"nll": Score(0.2, 0.01)}})
    ['NLL: VAE is clearly best (0.200 ± 0.010; AE 0.300 ± 0.010).']
    """
    found = []
    for name, heading in columns(rows).items():
        order = _ranked(rows, name, heading)
        if order is None:
            continue
        (best, top), *others = order
        words = heading.rstrip(" ↑↓")
        if not others:
            found.append(f"{words}: only {best} has this score ({top}).")
            continue
        second, score = others[0]
        level = [other for other, score in others if not _clear(top, score)]
        if top.error is None:
            found.append(f"{words}: {best} has the best number ({top}; {second} {score}), without a standard error.")
        elif level:
            names = level[0] if len(level) == 1 else f"{', '.join(level[:-1])} and {level[-1]}"
            found.append(f"{words}: {best} has the best number ({top}), but is not clearly better than {names}.")
        else:
            found.append(f"{words}: {best} is clearly best ({top}; {second} {score}).")
    return found


def score_card(tables: Tables) -> str:
    """The numbers of columns in which online Laplace is clearly best, level with the best, and clearly behind."""
    clear = level = behind = 0
    for rows in tables.values():
        for name, heading in columns(rows).items():
            order = _ranked(rows, name, heading) or []
            if len(order) < 2 or OURS not in dict(order) or order[0][1].error is None:
                continue
            (best, top), (_, second) = order[:2]
            if best == OURS and _clear(top, second):
                clear += 1
            elif best != OURS and _clear(top, dict(order)[OURS]):
                behind += 1
            else:
                level += 1
    return (
        f"Of {clear + level + behind} columns in which methods can be compared, {OURS} is clearly best in {clear}, "
        f"level with the best in {level}, and clearly behind it in {behind}."
    )


def reconstruction_error_alone(tables: Tables) -> str:
    """The detection of out-of-distribution images by reconstruction error alone, without any uncertainty."""
    plain = [rows["AE"]["auroc_nll"].mean for rows in tables.values() if "auroc_nll" in rows.get("AE", {})]
    if not plain:
        return ""
    return (
        "Out-of-distribution images are also detected by their reconstruction error: −log p(x) of the plain "
        f"autoencoder has an AUROC of {min(plain):.3f} on the hardest of these sets."
    )


def _ranked(rows: Mapping[str, Mapping[str, Score]], name: str, heading: str) -> list[tuple[str, Score]] | None:
    """Methods with this score, best first; None if the score has no better direction."""
    if heading[-1] not in "↑↓":
        return None
    having = [(method, row[name]) for method, row in rows.items() if name in row and isfinite(row[name].mean)]
    return sorted(having, key=lambda pair: pair[1].mean, reverse=heading.endswith("↑")) or None


def _clear(best: Score, other: Score) -> bool:
    return abs(best.mean - other.mean) > CLEAR * hypot(best.error or 0.0, other.error or 0.0)
