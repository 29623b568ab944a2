"""The demo's report: one HTML file with its pictures inside, for readers who have never heard of Laplace."""

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

BODY = Template("""<h1>What does a neural network know that it does not know?</h1>
<p class="lead">A small network was trained to sort $words. Asked about an image, it names a class and a probability.
This page looks at whether that probability can be trusted, on images like those it was trained on and on images of
another kind, and what changes when a <em>Laplace approximation</em> is put on top of the finished network.</p>
<p>Training finds <em>one</em> set of weights, the best one. Many others would have explained the training images nearly
as well, and would disagree where there were none to learn from. The Laplace approximation finds out which: it measures
how steeply the training objective rises around the trained weights, and treats the directions in which it hardly rises
as unknown. Predictions are then averaged over all plausible weights. Nothing is trained again; it took
$fit_seconds seconds.</p>
<dl><dt>MAP</dt><dd>the network as it was trained: one set of weights (“maximum a posteriori”)</dd>
<dt>Laplace</dt><dd>averaged over plausible weights; how plausible is decided from the training images alone</dd>
<dt>Laplace, tuned</dt><dd>the same, with the amount of uncertainty chosen on $held_out held-out images instead</dd>
</dl>
<h2>The numbers</h2>
$classification
<p>$finding</p><p>$claims</p>
<dl><dt>accuracy</dt><dd>share of test images that are sorted correctly; higher is better (↑)</dd>
<dt>NLL</dt><dd>negative log-likelihood: the surprise at the true class, in nats; punishes being sure and wrong;
lower is better (↓)</dd>
<dt>ECE</dt><dd>expected calibration error: average distance between claimed probability and share that is right</dd>
<dt>Brier</dt><dd>squared distance between the predicted probabilities and the truth</dd>
<dt>AUROC</dt><dd>an image from the test set and one of another kind are drawn: how often is the prediction for the
foreign one the less certain? 0.5 is guessing, 1 is always</dd></dl>
$which
$figures
<h2>The same on a curve: numbers</h2>
$regression
<dl><dt>RMSE</dt><dd>typical error of the predicted mean; Laplace leaves the mean as it is</dd>
<dt>log lik.</dt><dd>log-likelihood: how probable the test points were under the prediction, in nats per point; higher
is better. “In the gap” counts only test points where there were no data to train on</dd>
<dt>95 % covers</dt><dd>share of test points within the central 95 % interval; it should be 0.95</dd></dl>
<footer><h2>What was run</h2>
<p><code>$command</code></p>$facts
<p>The folder of this page also holds the numbers (<code>metrics.json</code>), the settings
(<code>config.yaml</code>) and the posterior (<code>posterior.safetensors</code>):
<code>osculate predict --posterior posterior.safetensors</code> uses it.</p></footer>""")

EXPLAINED: Mapping[str, Explanation] = {
    "reliability": (
        "Does a prediction hold what it promises?",
        "All test predictions, sorted by how sure they were. A dot at 0.8 stands for predictions that claimed about "
        "80 %, and its height is the share of them that was right.",
        "On the dashed line, claims are kept. Below it the network is too sure of itself, above it too modest. The "
        "bars below count the predictions (on a compressed scale): dots with few predictions jump about by chance, and "
        "the thin vertical lines show by how much.",
    ),
    "entropy": (
        "Does it notice images of another kind?",
        "How unsure the predictions are, for test images (grey area) and for images that belong to no class at all or "
        "look unlike anything in training (lines). The right answer to those is “I do not know”.",
        "Left is certain, right is no idea. The further the lines lie to the right of the grey area, the better they "
        "can be told apart; the AUROC in the legend measures it. A line with much weight on the left means confident "
        "answers to meaningless questions. Shares are drawn on a compressed scale, so that small ones can be seen.",
    ),
    "least_sure": (
        "Which images is it least sure of?",
        "The test images with the most uncertain Laplace predictions. Above each, its true class; below, each method's "
        "answer with its probability.",
        "Blue answers are right, bold orange ones wrong. On ambiguous images a sensible method gives low "
        "probabilities, above all when it is wrong.",
    ),
    "regression": (
        "The same on a curve",
        "A network learned a curve from the black points; between the grey edges it saw none. The line is its "
        "prediction, the bands hold it within one and two standard deviations.",
        "MAP knows only the noise of the data, so its band has the same width everywhere, also where it has to guess. "
        "A Laplace posterior adds what the data leave open (to the same noise): its band opens in the gap and beyond "
        "the last points. "
        "“full” keeps all dependencies between the weights; “kron” and “diag” keep fewer, cost less, and see less of "
        "the gap.",
    ),
}


@dataclass(frozen=True)
class Report:
    """What the report shows.

    Args:
        data: name of the data set.
        settings: the options of the run.
        tables: scores of the classification and of the regression, by caption.
        figures: the pictures, by name.
        seconds: by step.
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
        """Which run is shown, where there are several."""
        return f" (seed {self.settings['seed']})" if self.settings["seeds"] > 1 else ""


def finding(rows: Mapping[str, Mapping[str, Score]]) -> str:
    """What the table says, in a sentence for each comparison, whichever way it went.

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
    """What each method claims on average, and what it keeps."""
    parts = []
    for name, record in first.records.items():
        claimed, kept = float(record.probs.amax(-1).mean()), record.metrics()["accuracy"]
        verdict = "too sure" if claimed > kept + 0.01 else "too modest" if claimed < kept - 0.01 else "well calibrated"
        parts.append(f"{name} claims {100 * claimed:.1f} % on average and is right in {100 * kept:.1f} %: {verdict}")
    return (
        f"On the test images{seed}, {'; '.join(parts)}. A posterior whose prior comes from the training images alone "
        "tends to be too modest where these are few: it counts everything as possible that they do not rule out. "
        "Tuning on held-out images repairs most of that; the table shows what it costs or gains in caution towards "
        "foreign images."
    )
