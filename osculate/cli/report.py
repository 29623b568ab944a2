"""The demo's report: one HTML file with its pictures inside, for readers new to Laplace's method."""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from math import hypot
from pathlib import Path
from string import Template
from typing import Any

from osculate.cli.classification import Classification, recipe_for
from osculate.cli.page import Explanation, command, facts, figure, page, table
from osculate.cli.tables import Score, columns

BODY = Template("""<h1>Does a neural network know what it does not know?</h1>
<p class="lead">A small network was trained to classify $words. Given an image, it predicts a class with a probability.
This page examines whether that probability can be trusted, on images like the training images and on
out-of-distribution ones, and what a <em>Laplace approximation</em> of the finished network changes.</p>
<p>Training finds <em>one</em> set of weights, the best one. Many others explain the training images nearly as well, and
disagree about inputs unlike them. The Laplace approximation finds these: it measures how steeply the training objective
rises around the trained weights, and treats the directions in which it hardly rises as unknown. Predictions are then
averaged over all plausible weights. Nothing is trained again; the fit took $fit_seconds seconds.</p>
<dl><dt>MAP</dt><dd>the network as it was trained: one set of weights (“maximum a posteriori”)</dd>
<dt>Laplace</dt><dd>averaged over plausible weights; the prior precision comes from the training images alone</dd>
<dt>Laplace, tuned</dt><dd>the same, with prior precision and temperature chosen on $held_out held-out images</dd>
</dl>
<h2>The numbers</h2>
$classification
<p>$finding</p><p>$claims</p>
<dl><dt>accuracy</dt><dd>share of test images that are classified correctly; higher is better (↑)</dd>
<dt>NLL</dt><dd>negative log-likelihood of the true class, in nats; penalises confident errors; lower is better (↓)</dd>
<dt>ECE</dt><dd>expected calibration error: mean distance between confidence and accuracy</dd>
<dt>Brier</dt><dd>squared distance between the predicted probabilities and the truth</dd>
<dt>AUROC</dt><dd>probability that the prediction for an out-of-distribution image is less certain than that for a test
image; 0.5 is chance, 1 is perfect</dd></dl>
$which
$figures
<h2>Regression: the numbers</h2>
$regression
<dl><dt>RMSE</dt><dd>root mean square error of the predictive mean, which Laplace does not change</dd>
<dt>log lik.</dt><dd>log-likelihood of the test points, in nats per point; higher is better. “In the gap” counts only
the test points in the interval without training data</dd>
<dt>95 % covers</dt><dd>share of test points within the central 95 % interval; ideally 0.95</dd></dl>
<footer><h2>Command and settings</h2>
<p><code>$command</code></p>$facts
<p>The folder of this page also contains the numbers (<code>metrics.json</code>), the settings
(<code>config.yaml</code>) and the posterior (<code>posterior.safetensors</code>):
<code>osculate predict --posterior posterior.safetensors</code> uses it.</p></footer>""")

EXPLAINED: Mapping[str, Explanation] = {
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


@dataclass(frozen=True)
class Report:
    """The contents of the report.

    Args:
        data: name of the data set.
        settings: the options of the run.
        tables: scores of the classification and of the regression, by caption.
        figures: the pictures, by name.
        seconds: wall-clock time by step.
    """

    data: str
    settings: Mapping[str, Any]
    tables: Mapping[str, Mapping[str, Mapping[str, Score]]]
    figures: Mapping[str, Path]
    seconds: Mapping[str, float]

    def html(self, first: Classification, versions: Mapping[str, str]) -> str:
        """The page."""
        (caption, rows), (curve_caption, curve) = self.tables.items()
        body = BODY.substitute(
            words=escape(recipe_for(self.data).words),
            fit_seconds=f"{first.seconds['fit']:.1f}",
            held_out=f"{len(first.dataset.validation[0]):,}",
            classification=table(caption, rows),
            finding=escape(finding(rows)),
            claims=escape(claims(first, self._seed())),
            which=f"<p>The figures show the first run{self._seed()}.</p>" if self._seed() else "",
            figures="".join(figure(path, EXPLAINED[name]) for name, path in self.figures.items()),
            regression=table(curve_caption, curve),
            command=escape(command(self.settings)),
            facts=facts({"seconds": self.seconds, "versions": versions}),
        )
        return page(self.data, body)

    def _seed(self) -> str:
        """The run that is shown, if there are several."""
        return f" (seed {self.settings['seed']})" if self.settings["seeds"] > 1 else ""


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
