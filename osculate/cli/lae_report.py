"""The report of the autoencoder demo, for readers new to Laplace's method."""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from math import hypot, isfinite
from pathlib import Path
from string import Template
from typing import Any

from osculate.cli.lae import OURS
from osculate.cli.page import Explanation, command, facts, figure, page, table
from osculate.cli.tables import Score, columns

#: Standard errors of the difference beyond which one method is clearly better than another.
CLEAR = 2.0

BODY = Template("""<h1>Does an autoencoder know what it does not know?</h1>
<p class="lead">An autoencoder compresses an image into a code, here of two numbers, and reconstructs the image from
the code. It was trained on $size small images of handwritten digits, without their labels. This page compares four
methods of training one, and how well each knows what it can and cannot reconstruct.</p>
<dl><dt>AE</dt><dd>the plain autoencoder: one network, one code, no uncertainty</dd>
<dt>VAE</dt><dd>variational: the encoder gives a distribution of codes for each image; there is one network</dd>
<dt>MC dropout</dt><dd>many networks: each leaves out random hidden units</dd>
<dt>online Laplace</dt><dd>many networks: their weights are drawn around the best ones, more widely where the training
images determine a weight less (its <em>curvature</em>). Training uses such draws too. Their scale was chosen on
$held_out held-out images (temperature $temperature)</dd></dl>
<p>The disagreement of networks or codes about an image is the <em>standard deviation</em> on this page. The plain
autoencoder has none.</p>
<h2>The numbers</h2>
<p>± is the standard error: $errors. Below each table are its results in words; “clearly” means by more than two
standard errors of the difference, as if the methods had been tried on different images. $count $plain</p>
$tables
$which
$figures
<footer><h2>Command and settings</h2>
<p><code>$command</code></p>$facts
<p>The folder of this page also contains the numbers (<code>metrics.json</code>), the settings
(<code>config.yaml</code>) and the posterior of online Laplace (<code>posterior.safetensors</code>), which
<code>osculate evaluate --posterior posterior.safetensors --task ood</code> uses.</p></footer>""")

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

#: For each figure: heading, what it shows, how to read it.
EXPLAINED: Mapping[str, Explanation] = {
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


@dataclass(frozen=True)
class LaeReport:
    """The contents of the report.

    Args:
        settings: the options of the run.
        tables: scores by method, by caption.
        figures: the pictures, by name.
        seconds: wall-clock time by step.
        sizes: sizes of the training and the held-out part.
        temperature: temperature of the posterior that is shown.
    """

    settings: Mapping[str, Any]
    tables: Mapping[str, Mapping[str, Mapping[str, Score]]]
    figures: Mapping[str, Path]
    seconds: Mapping[str, float]
    sizes: tuple[int, int]
    temperature: float

    def html(self, versions: Mapping[str, str]) -> str:
        """The page."""
        several = self.settings["seeds"] > 1
        body = BODY.substitute(
            size=f"{self.sizes[0]:,}",
            held_out=f"{self.sizes[1]:,}",
            temperature=f"{self.temperature:.2g}",
            errors=f"over {self.settings['seeds']} seeds"
            if several
            else "that of the choice of test images, or of labelled ones",
            count=escape(score_card(self.tables)),
            plain=escape(reconstruction_error_alone(self.tables)),
            tables="".join(self._table(caption, rows) for caption, rows in self.tables.items()),
            which=f"<p>The figures show the first run (seed {self.settings['seed']}).</p>" if several else "",
            figures="".join(figure(path, EXPLAINED[name]) for name, path in self.figures.items()),
            command=escape(command(self.settings)),
            facts=facts({"seconds": self.seconds, "versions": versions}),
        )
        return page("autoencoders", body)

    def _table(self, caption: str, rows: Mapping[str, Mapping[str, Score]]) -> str:
        """One table, what it says, and what its columns mean, the first time."""
        kind = kind_of(caption)
        first = next(other for other in self.tables if kind_of(other) == kind)
        meanings = "".join(f"<dt>{escape(a)}</dt><dd>{escape(b)}</dd>" for a, b in MEANINGS[kind])
        said = "".join(f"<li>{escape(sentence)}</li>" for sentence in verdicts(rows))
        said = f"{table(caption, rows)}<ul>{said}</ul>"
        return said + (f"<dl>{meanings}</dl>" if caption == first else "")


def kind_of(caption: str) -> str:
    """The kind of a table, a key of :data:`MEANINGS`."""
    return next(kind for kind in MEANINGS if caption.startswith(kind))


def verdicts(rows: Mapping[str, Mapping[str, Score]]) -> list[str]:
    """The best method of each column with a direction, and how clearly it is best.

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


def score_card(tables: Mapping[str, Mapping[str, Mapping[str, Score]]]) -> str:
    """The numbers of columns in which our method is clearly best, level with the best, and clearly behind."""
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


def reconstruction_error_alone(tables: Mapping[str, Mapping[str, Mapping[str, Score]]]) -> str:
    """The detection of out-of-distribution images by reconstruction error alone, without any uncertainty."""
    plain = [rows["AE"]["auroc_nll"].mean for rows in tables.values() if "auroc_nll" in rows.get("AE", {})]
    if not plain:
        return ""
    return (
        "Out-of-distribution images are also detected by their reconstruction error: −log p(x) of the plain "
        f"autoencoder has an AUROC of {min(plain):.3f} on the hardest of these sets."
    )


def _ranked(rows: Mapping[str, Mapping[str, Score]], name: str, heading: str) -> list[tuple[str, Score]] | None:
    """Methods with this score, best first; None where no direction is better."""
    if heading[-1] not in "↑↓":
        return None
    having = [(method, row[name]) for method, row in rows.items() if name in row and isfinite(row[name].mean)]
    return sorted(having, key=lambda pair: pair[1].mean, reverse=heading.endswith("↑")) or None


def _clear(best: Score, other: Score) -> bool:
    return abs(best.mean - other.mean) > CLEAR * hypot(best.error or 0.0, other.error or 0.0)
