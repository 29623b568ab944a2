"""Compare a posterior with the network it was made from, on test data.

Test data are the test part of what it was trained on, or every row of another file.

Prints one table and writes it as JSON to --output (evaluation.json beside the posterior).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from osculate.cli.checkpoint import Card
from osculate.cli.folder import versions, write_json
from osculate.cli.options import DataOptions, RunOptions, naming
from osculate.cli.predict import PosteriorOptions, how
from osculate.cli.tables import print_scores
from osculate.data import Dataset, out_of_distribution, read_arrays
from osculate.data.shifted import PARTNERS
from osculate.posteriors import Gaussian, Point
from osculate.registry import lookup
from osculate.tasks import calibration, ood


@naming(partners=PARTNERS)
@dataclass(frozen=True)
class EvaluateOptions:
    """What to evaluate beside the scores on the test part.

    Args:
        ood: data of another kind to tell apart, where the data are one of {partners}: all, or names with commas
            between (an unknown one lists the known).
    """

    ood: str | None = None


PARTS = (PosteriorOptions, EvaluateOptions, DataOptions, RunOptions)


def run(options: PosteriorOptions, what: EvaluateOptions, data: DataOptions, where: RunOptions) -> None:
    """Evaluate, print and write."""
    q, card = options.open(where.device)
    dataset = _file(data, card) if _is_new_file(data, card) else data.over(card.data_options()).load()
    partners = _partners(dataset, what.ood)
    point = Point(q.model, card.likelihood)
    scores = {
        "MAP": scores_of(point, dataset, partners, where.progress),
        _label(options): scores_of(q, dataset, partners, where.progress, **how(options)),
    }
    output = where.output or options.posterior.parent / "evaluation.json"
    facts = {"data": dataset.name, "test_data": len(dataset.test[0]), "versions": versions()}
    write_json(output, {**scores, **facts})
    print_scores(f"{dataset.name}: {len(dataset.test[0]):,} test data", scores)
    print(f"Saved {output}")


def _label(options: PosteriorOptions) -> str:
    """The row of the posterior: how it predicts, where that is not the default."""
    return "Laplace" if options.via == "linearised" else f"Laplace, {options.via}"


def _is_new_file(data: DataOptions, card: Card) -> bool:
    """Whether --data names a file other than the one that was trained on: all of it is test data then."""
    known = card.data_options().data
    if data.data is None or not data.data.endswith(".npz"):
        return False
    return known is None or Path(data.data).resolve() != Path(known).resolve()


def _file(data: DataOptions, card: Card) -> Dataset:
    """Every row of a file as the test part, in the units of the training."""
    assert data.data is not None
    x, y = read_arrays(data.data)
    if y.is_floating_point() != (card.classes is None):
        kinds = ("real numbers (floats)", "classes (integers from 0)")
        wanted, found = kinds if card.classes is None else kinds[::-1]
        raise ValueError(f"the targets y in {data.data!r} are {found}, and the posterior is for {wanted}: convert y.")
    inputs, targets = card.scaling("input"), card.scaling("target")
    x = x if inputs is None else inputs.apply(x)
    y = y if targets is None else targets.apply(y)
    nothing = (x[:0], y[:0])
    classes = None if y.is_floating_point() else tuple(str(c) for c in range(card.outputs))
    return Dataset(Path(data.data).stem, nothing, nothing, (x, y), classes, inputs, targets)


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
    if dataset.name not in PARTNERS:
        raise ValueError(
            f"--ood {wanted!r}: no data of another kind are known for {dataset.name!r}, only for "
            f"{', '.join(PARTNERS)}. Leave it out; in Python, osculate.tasks.ood takes inputs of your own."
        )
    known = out_of_distribution(dataset)
    if wanted == "all":
        return known
    names = [name.strip() for name in wanted.split(",")]
    return {name: lookup("out-of-distribution data", name, known) for name in names}
