"""Posteriors beside their network on held-out data: scores, and paired differences with their errors."""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from osculate.cli.checkpoint import MODEL, Card
from osculate.cli.tables import Change, Score, console, table, with_errors
from osculate.data.dataset import Dataset, Part
from osculate.posteriors import Gaussian, Point, Posterior
from osculate.tasks import Comparison, OODRecord
from osculate.tasks.calibration import Record, columns, in_units, record_of
from osculate.tasks.comparison import compared, losses_of

#: The row of the differences in tables and files.
DIFFERENCE = "difference"


@dataclass(frozen=True)
class SideBySide:
    """A network and posteriors around it on the same data.

    Args:
        scores: Scores by row, the network first; the last row is compared with it.
        comparison: The last row beside the first; None for a network alone.
        records: Predictions and their calibration by row, for figures.
    """

    scores: Mapping[str, Mapping[str, float]]
    comparison: Comparison | None
    records: Mapping[str, Record] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        network: str,
        posteriors: Mapping[str, Posterior],
        part: Part,
        card: Card,
        dataset: Dataset,
        progress: bool = False,
        **options: Any,
    ) -> "SideBySide":
        """Predict with each posterior, and with the network of the last one alone.

        Args:
            network: Name of the network.
            posteriors: Posteriors by name, at least one; a point posterior is the network alone.
            part: Inputs and targets.
            card: Card of the network, with the likelihood.
            dataset: The data, with the scale of the targets.
            progress: Show progress bars.
            **options: Options of ``osculate.predict`` for the posteriors.
        """
        last = list(posteriors.values())[-1]
        alone = {network: Point(last.model.eval(), card.likelihood)}
        scores, records, found, discrete = {}, {}, {}, True
        for name, q in {**alone, **{name: q for name, q in posteriors.items() if not isinstance(q, Point)}}.items():
            discrete, values = columns(q, part, 500, progress, "predicting", {} if name in alone else options)
            records[name] = record_of(discrete, values, target_scale=dataset.target_scale)
            found[name] = values if discrete else in_units(values, dataset.target_scale)
            scores[name] = records[name].metrics() | errors_of(discrete, found[name])
        first, *others = found.values()
        # 200 resamplings of images take minutes
        return cls(scores, compared(discrete, others[-1], first) if others and not card.reconstructs else None, records)

    @property
    def changes(self) -> dict[str, float]:
        """The differences by score, with their errors as entries ``NAME_error``."""
        return {} if self.comparison is None else changes_of(self.comparison)

    def content(self) -> dict[str, Any]:
        """The content for a file: scores and, if there is a posterior, differences and a sentence."""
        found: dict[str, Any] = dict(self.scores)
        if self.comparison is not None:
            found |= {DIFFERENCE: self.changes, "finding": self.comparison.finding}
        return found

    @property
    def rows(self) -> dict[str, Mapping[str, Score]]:
        """The rows of a table."""
        rows: dict[str, Mapping[str, Score]] = {name: with_errors(row) for name, row in self.scores.items()}
        return rows if self.comparison is None else {**rows, DIFFERENCE: in_table(self.changes)}

    def print(self, caption: str, way_out: str | None) -> None:
        """Print the table and the sentence, as a warning if the posterior is worse than its network.

        Args:
            caption: Words above the table.
            way_out: Advice for the warning; None if there was a warning already.
        """
        console().print(table(caption, self.rows))
        if self.comparison is None:
            return
        if self.comparison.verdict < 0 and way_out is not None:
            warnings.warn(f"{self.comparison.finding} {way_out}", stacklevel=2)
        else:
            print(self.comparison.finding)


def errors_of(discrete: bool, found: list[Tensor]) -> dict[str, float]:
    """Standard errors of the mean log-likelihood and of the accuracy, as entries ``NAME_error``.

    Args:
        discrete: True for classes.
        found: Columns of the predictions (:func:`osculate.tasks.calibration.columns`), in original units.
    """
    if len(found[0]) < 2:
        return {}
    root = len(found[0]) ** 0.5
    loss = float(losses_of(discrete, found).std()) / root
    if not discrete:
        return {"log_likelihood_error": loss}
    right = (found[0].argmax(1) == found[1]).double()
    return {"nll_error": loss, "accuracy_error": float(right.std()) / root}


def detection_scores(record: OODRecord) -> dict[str, float]:
    """The scores of out-of-distribution detection, with the errors of AUROC by entropy as entries ``NAME_error``."""
    each = record.auroc_error.items()
    errors = {f"auroc/{name}/entropy_error": scores["entropy"] for name, scores in each if "entropy" in scores}
    return record.metrics() | errors


def changes_of(comparison: Comparison) -> dict[str, float]:
    """The differences by score, with their errors as entries ``NAME_error``."""
    by_name = {d.name: (d.value, d.standard_error) for d in comparison.differences}
    if "rmse" in by_name:  # regression, for which tables have log-likelihoods
        value, error = by_name.pop("nll")
        by_name["log_likelihood"] = -value, error
    values = {name: value for name, (value, _) in by_name.items()}
    return values | {f"{name}_error": error for name, (_, error) in by_name.items()}


def in_table(changes: Mapping[str, float]) -> dict[str, Score]:
    """The cells of a row of differences."""
    return {name: Change(score.mean, score.error) for name, score in with_errors(changes).items()}


def way_out(q: Posterior, card: Card, folder: object) -> str:
    """Advice for a posterior that is worse than its network.

    Args:
        q: The posterior.
        card: Card of the network.
        folder: Folder of the posterior.
    """
    alone = f"the network alone with --posterior {folder}/{MODEL}."
    if not isinstance(q, Gaussian):
        return f"Use {alone}"
    if card.method:
        return f"Fit another with osculate fit --checkpoint {folder} and another --output, or use {alone}"
    options = ["--refine"] * (q.offset is None) + ["--tune"] * (q.tuning is None)
    return f"Fit it again with {' or '.join(options)}, or use {alone}" if options else f"Use {alone}"
