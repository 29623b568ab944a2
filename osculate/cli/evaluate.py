"""Compare a posterior with the network it was made from, on test data.

Prints one table and writes it as JSON to --output (evaluation.json beside the posterior).
"""

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from osculate.cli.folder import versions, write_json
from osculate.cli.options import DataOptions, RunOptions
from osculate.cli.predict import PosteriorOptions, how
from osculate.cli.tables import print_scores
from osculate.data import Dataset, out_of_distribution
from osculate.posteriors import Gaussian, Point
from osculate.registry import lookup
from osculate.tasks import calibration, ood


@dataclass(frozen=True)
class EvaluateOptions:
    """What to evaluate beside the scores on the test part.

    Args:
        ood: data of another kind to tell apart: all, or names with commas between (an unknown one lists the known).
    """

    ood: str | None = None


PARTS = (PosteriorOptions, EvaluateOptions, DataOptions, RunOptions)


def run(options: PosteriorOptions, what: EvaluateOptions, data: DataOptions, where: RunOptions) -> None:
    """Evaluate, print and write."""
    q, card = options.open(where.device)
    dataset = data.over(card.data_options()).load()
    partners = _partners(dataset, what.ood)
    point = Point(q.model, card.likelihood)
    scores = {
        "MAP": scores_of(point, dataset, partners, where.progress),
        "Laplace": scores_of(q, dataset, partners, where.progress, **how(options)),
    }
    output = where.output or options.posterior.parent / "evaluation.json"
    facts = {"data": dataset.name, "test_data": len(dataset.test[0]), "versions": versions()}
    write_json(output, {**scores, **facts})
    print_scores(f"{dataset.name}: {len(dataset.test[0]):,} test data", scores)
    print(f"Saved {output}")


def scores_of(
    q: Gaussian | Point, dataset: Dataset, partners: dict[str, Tensor], progress: bool = False, **options: Any
) -> dict[str, float]:
    """Scores on the test part, and AUROC against each of the partners."""
    scores = calibration(q, dataset.test, target_scale=dataset.target_scale, progress=progress, **options).metrics()
    if partners:
        scores |= ood(q, dataset.test[0], partners, progress=progress, **options).metrics()
    return scores


def _partners(dataset: Dataset, wanted: str | None) -> dict[str, Tensor]:
    if wanted is None:
        return {}
    known = out_of_distribution(dataset)
    if wanted == "all":
        return known
    names = [name.strip() for name in wanted.split(",")]
    return {name: lookup("out-of-distribution data", name, known) for name in names}
