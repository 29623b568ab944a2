"""The report of the autoencoder demo, for readers who have never heard of Laplace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import hypot, isfinite
from pathlib import Path
from string import Template
from typing import Any

from osculate.cli.lae import OURS
from osculate.cli.page import Explanation, command, facts, figure, page, table
from osculate.cli.tables import Score, columns

#: Standard errors by which the best must be ahead of the second to be called so.
CLEAR = 2.0

BODY = Template("""<h1>What does an autoencoder know that it does not know?</h1>
<p class="lead">An autoencoder squeezes an image into a code, here of two numbers, and makes the image again from
the code. It was trained on $size small pictures of handwritten digits, without being told which digits they are. This
page looks at four ways of doing that, and asks of each how well it knows what it can and what it cannot
reconstruct.</p>
<dl><dt>AE</dt><dd>the plain autoencoder: one network, one code, no doubts</dd>
<dt>VAE</dt><dd>variational: the encoder gives a cloud of codes for each image, the network is one</dd>
<dt>MC dropout</dt><dd>many networks: in each, some of the hidden units are left out, chosen at random</dd>
<dt>online Laplace</dt><dd>many networks: their weights are drawn around the best ones, the further apart the less the
training images say about a weight (its <em>curvature</em>). The network meets such draws already while it trains. How
wide they are was chosen on $held_out held-out images (temperature $temperature)</dd></dl>
<p>Where several networks, or several codes, disagree about an image, they do not know it: that disagreement is the
<em>standard deviation</em> on this page. The plain autoencoder has none.</p>
<h2>The numbers</h2>
<p>Behind ± stands the standard error: $errors. Each table is followed by what it says; “clearly” means by more than
two standard errors of the difference, as if the methods had been tried on different images. $count $plain</p>
$tables
$which
$figures
<footer><h2>What was run</h2>
<p><code>$command</code></p>$facts
<p>The folder of this page also holds the numbers (<code>metrics.json</code>), the settings
(<code>config.yaml</code>) and the posterior of online Laplace (<code>posterior.safetensors</code>), which
<code>osculate evaluate --posterior posterior.safetensors --task ood</code> uses.</p></footer>""")

#: What the columns mean, for each table in turn; the tables of foreign images share one.
MEANINGS = {
    "reconstruction": (
        ("log p(x)", "how probable the image is given its own reconstruction, in nats for the whole image; higher is "
         "better (↑). It asks for a good mean and for an honest spread"),
        ("pixel error", "typical error of a pixel of the mean reconstruction; ink is 1, paper 0; lower is better (↓)"),
    ),
    "AUROC": (
        ("−log p(x)", "how badly the image is reconstructed"),
        ("σ of code", "how much the codes of the image differ"),
        ("σ of image", "how much its reconstructions differ"),
        ("mean pixel", "the amount of ink, a baseline that needs no network; turning or shuffling an image does not "
         "change it"),
        ("AUROC", "a test image and one of another kind are drawn: how often has the foreign one the higher score? 0.5 "
         "is guessing, 1 is always, 0 is always wrong. A method without such a spread has no number"),
    ),
    "the upper half": (
        ("accuracy", "how often a classifier, trained on whole digits, still sees the right digit in ten images with "
         "the upper half filled in"),
        ("NLL, Brier", "surprise at the right digit, and squared distance from it; lower is better"),
        ("ECE", "expected calibration error: average distance between the probability that it claims and the share "
         "that is right"),
        ("hidden pixels", "mean squared error of the hidden pixels of the mean image"),
        ("classes seen", "how many different digits it sees among the ten images of one datum, on average"),
    ),
    "accuracy": (
        ("labels", "the share of test images that are sorted correctly when so many images of each digit are labelled, "
         "and each test image gets the label of those with the nearest codes"),
    ),
}  # fmt: skip

#: For each figure: heading, what it shows, how to read it.
EXPLAINED: Mapping[str, Explanation] = {
    "latent_map": (
        "A map of the codes",
        "Each dot is a test image at its code, coloured by its digit, which the networks were never told. The "
        "background is how much the decoders disagree about the image that belongs to each place, mean over pixels.",
        "White is agreement. AE and VAE have a single decoder, so that their background is white everywhere, also "
        "far from any image. A method that knows where it has seen images is light under the dots and darker between "
        "and beyond them.",
    ),
    "reconstructions": (
        "What comes back, and how sure it is",
        "Columns: test digits, digits turned by 90 degrees, and digits whose pixels were shuffled. For each method, "
        "the mean reconstruction and the standard deviation of each pixel.",
        "An autoencoder that has only seen upright digits makes upright digits of everything. It should be dark (sure) "
        "at the test digits and bright (unsure) at the foreign ones. All deviations share one scale.",
    ),
    "roc": (
        "Does it notice images of another kind?",
        "An alarm is raised above some threshold of a score. Each curve goes through all thresholds: the share of "
        "foreign images that are found, against the share of test images that raise a false alarm.",
        "The nearer to the upper left corner, the better; the dashed line is guessing. One column of panels for each "
        "score; methods without that kind of spread are missing there.",
    ),
    "imputations": (
        "What might the hidden half have been?",
        "Online Laplace is shown the lower half of test images. Each drawn network fills in the rest. Under each draw, "
        "the digit that a classifier sees in it.",
        "Draws should agree where the lower half leaves no doubt, and differ where it does; the blue row shows where. "
        "Draws that all agree on a wrong digit are the failures to look for.",
    ),
    "generated": (
        "New images",
        "Codes are drawn at random, near those of the training images (for the VAE from its prior), and decoded, each "
        "by a network of its own.",
        "They should look like digits, and differ. With two numbers in the code they are soft for every method.",
    ),
    "accuracy_against_labels": (
        "Are the codes good for something else?",
        "Test images are sorted by the labelled images whose codes are nearest, by majority over drawn networks. More "
        "labels help everyone.",
        "Codes that keep digits apart give a high curve. The bars are one standard error over the choice of the "
        "labelled images: curves whose bars overlap are not to be told apart.",
    ),
}


@dataclass(frozen=True)
class LaeReport:
    """What the report shows.

    Args:
        settings: the options of the run.
        tables: scores by method, by caption.
        figures: the pictures, by name.
        seconds: by step.
        sizes: of the training and of the held-out part.
        temperature: of the posterior that is shown.
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
            plain=escape(without_doubts(self.tables)),
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
    """Which meanings belong to a table."""
    return next(kind for kind in MEANINGS if caption.startswith(kind))


def verdicts(rows: Mapping[str, Mapping[str, Score]]) -> list[str]:
    """For each column that has a better and a worse, who is best, and whether clearly.

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
            found.append(f"{words}: only {best} has it ({top}).")
            continue
        second, score = others[0]
        level = [other for other, score in others if not _clear(top, score)]
        if top.error is None:
            found.append(
                f"{words}: {best} has the best number ({top}; {second} {score}), which comes without an error."
            )
        elif level:
            found.append(f"{words}: {best} has the best number ({top}), but {_listed(level)} cannot be told from it.")
        else:
            found.append(f"{words}: {best} is clearly best ({top}; {second} {score}).")
    return found


def score_card(tables: Mapping[str, Mapping[str, Mapping[str, Score]]]) -> str:
    """In how many columns our method is clearly best, level with the best, and clearly behind."""
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
        f"Of {clear + level + behind} columns in which methods can be compared, {OURS} is clearly best in {clear}, not "
        f"to be told from the best in {level}, and clearly behind it in {behind}."
    )


def without_doubts(tables: Mapping[str, Mapping[str, Mapping[str, Score]]]) -> str:
    """How far foreign images are found by their bad reconstruction alone, which needs no uncertainty."""
    plain = [rows["AE"]["auroc_nll"].mean for rows in tables.values() if "auroc_nll" in rows.get("AE", {})]
    if not plain:
        return ""
    return (
        "Whether an image is foreign can also be seen from its bad reconstruction: by −log p(x) the plain autoencoder, "
        f"which has no doubts, has an AUROC of {min(plain):.3f} on the hardest of these sets."
    )


def _ranked(rows: Mapping[str, Mapping[str, Score]], name: str, heading: str) -> list[tuple[str, Score]] | None:
    """Methods with this score, best first; None where no direction is better."""
    if heading[-1] not in "↑↓":
        return None
    having = [(method, row[name]) for method, row in rows.items() if name in row and isfinite(row[name].mean)]
    return sorted(having, key=lambda pair: pair[1].mean, reverse=heading.endswith("↑")) or None


def _clear(best: Score, other: Score) -> bool:
    return abs(best.mean - other.mean) > CLEAR * hypot(best.error or 0.0, other.error or 0.0)


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
