"""A run folder as the model of a service."""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from osculate.autoencoders import Autoencoder
from osculate.cli.checkpoint import MODEL, Card
from osculate.cli.folder import POSTERIOR
from osculate.cli.options import is_own
from osculate.cli.predict import PosteriorOptions, predict_options
from osculate.data import Dataset
from osculate.data.dataset import Part
from osculate.data.own.columns import CATEGORY, NUMBER, Column
from osculate.data.own.table_inputs import TableInputs
from osculate.predictive import predict
from osculate.progress import track
from osculate.serving.application import ColumnFacts, Facts, Model, Prediction, application
from osculate.serving.guard import App
from osculate.serving.refusals import Refused
from osculate.serving.settings import Access, Limits
from osculate.tasks._uncertainty import mutual_information

#: Share of held-out inputs whose score is below the threshold.
LEVEL = 0.95
#: Inputs at once, after which a prediction may be given up.
ROWS = 100
#: Columns of the moments of real values.
MOMENTS = ("mean", "deviation", "function", "score")
#: Scores by kind of model.
ENTROPY, DEVIATION = "entropy", "standard deviation of the function, in standardised units"
NONE = "none: a single network has no variance of its function (osculate fit makes a posterior)"


def require_own_files(options: PosteriorOptions, *names: str) -> None:
    """Raise ValueError if a file of the run is a link to another folder, which may be anybody's.

    Args:
        options: The run.
        names: Names of its files; by default those of a network and its posterior.
    """
    folder = options.folder.resolve()
    for path in {options.posterior, *(options.folder / name for name in names or (MODEL, POSTERIOR))} - {
        options.folder
    }:
        if path.exists() and path.resolve().parent != folder:
            raise ValueError(f"{str(path)!r} is a link out of the folder of the run: copy the file into it.")


@dataclass(frozen=True, eq=False)
class Served(Model):
    """A posterior, its card and its threshold.

    Args:
        q: The posterior.
        card: The card of its network.
        options: Options of predictions.
        threshold: Score above which inputs are out of distribution, or None.
    """

    q: Any
    card: Card
    options: PosteriorOptions
    threshold: float | None = None

    @cached_property
    def input_shape(self) -> tuple[int, ...]:  # type: ignore[override]
        """Shape of one input."""
        return self.card.input_shape

    @cached_property
    def columns(self) -> dict[str, bool] | None:  # type: ignore[override]
        """Columns of the table of the training that are used, with True for those of numbers; None for arrays."""
        used = self._used
        return None if used is None else {column.name: column.kind == NUMBER for column in used}

    @cached_property
    def _used(self) -> list[Column] | None:
        """Columns of the table of the training that are used; None for arrays."""
        inputs = self.card.schema.inputs
        return [each for each in inputs.columns if each.features] if isinstance(inputs, TableInputs) else None

    @property
    def of_classes(self) -> bool:
        """True for a classifier."""
        return self.card.noise is None

    @property
    def varies(self) -> bool:
        """False if predictions are those of a single network."""
        return predict_options(self.options, self.q)["via"] != "mode"

    @property
    def score(self) -> str:
        """The score by which inputs count as out of distribution."""
        return ENTROPY if self.of_classes else DEVIATION if self.varies else NONE

    @property
    def outputs(self) -> list[str]:
        """Names of real outputs."""
        targets = self.card.schema.targets
        names = () if targets is None else targets.names
        return list(names) if len(names) == self.card.outputs else [f"y{n + 1}" for n in range(self.card.outputs)]

    def facts(self) -> Facts:
        """Facts about the model for clients."""
        return Facts(
            kind="classification" if self.of_classes else "regression",
            posterior=type(self.q).__name__,
            input_shape=list(self.input_shape),
            columns=None
            if self._used is None
            else [
                ColumnFacts(name=each.name, kind=each.kind, categories=list(each.categories) or None)
                for each in self._used
            ],
            classes=list(self.classes) if self.of_classes else None,
            outputs=None if self.of_classes else self.outputs,
            score=self.score,
            threshold=None if self.score == NONE else self.threshold,
        )

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes; their numbers where they have no names."""
        return self.card.classes or tuple(map(str, range(self.card.outputs)))

    def answers(self, values: Any, ask: Callable[[], None]) -> list[Prediction]:
        """A prediction for each input.

        Raises:
            Refused: values do not fit the schema of the run, or have no finite prediction.
        """
        try:
            x = self.card.schema.read({"X": values} if self.columns is None else values, targets=False)[0]
        except ValueError as error:
            raise Refused(422, str(error)) from None
        found = []
        for part in x.split(ROWS):
            ask()
            try:
                found += self._classes(part) if self.of_classes else self._numbers(part)
            except (ValueError, torch.linalg.LinAlgError):  # by distributions whose parameters are not finite
                raise Refused(
                    422, "no finite prediction was found for these inputs: check their units, or send fewer at once."
                ) from None
        for prediction, names in zip(found, self._unknown(values, x), strict=False):
            prediction.unknown_columns = names
        return found

    def _unknown(self, values: Any, x: Tensor) -> list[list[str]]:
        """Names of the columns of each row whose value is none of the training; empty for arrays."""
        if self._used is None:
            return []
        found = [list[str]() for _ in x]
        parts = x.split([len(column.features) for column in self._used], 1)
        for column, part in zip(self._used, parts, strict=True):
            for names, entries, value in zip(found, part, values[column.name], strict=True):
                if not entries.any() if column.kind == CATEGORY else value is None and not column.missing:
                    names.append(column.name)
        return found

    def _classes(self, x: Tensor) -> list[Prediction]:
        y, names = self.predictive(x), self.classes
        more: list[float | None] = [None] * len(x)
        if self.varies and self.options.via in (None, self.q.ways[0]):
            generator = torch.Generator().manual_seed(self.options.seed)
            more = mutual_information(self.q, x, generator=generator).clamp_min(0).tolist()
        _require_finite(y.probs)
        return [
            Prediction(
                label=names[place],
                probabilities=probabilities,
                entropy=entropy,
                mutual_information=information,
                out_of_distribution=self.above(entropy),
            )
            for place, probabilities, entropy, information in zip(
                y.probs.argmax(-1).tolist(), y.probs.tolist(), y.entropy().tolist(), more, strict=True
            )
        ]

    def _numbers(self, x: Tensor) -> list[Prediction]:
        found = self._moments(x)
        _require_finite(*found.values())
        return [
            Prediction(
                mean=mean,
                standard_deviation=deviation,
                function_standard_deviation=function if self.varies else None,
                out_of_distribution=self.above(score),
            )
            for mean, deviation, function, score in zip(*(found[name].tolist() for name in MOMENTS), strict=True)
        ]

    def _moments(self, x: Tensor) -> dict[str, Tensor]:
        """Mean and standard deviations in the units of the targets, and the score."""
        noisy, clean = self.predictive(x), self.predictive(x, noise=False)
        scaling = self.card.scaling("target")
        mean, deviation, function = noisy.mean, noisy.stddev, clean.stddev
        if scaling is not None:
            mean, deviation, function = scaling.undo(mean), deviation * scaling.scale, function * scaling.scale
        return dict(zip(MOMENTS, (mean, deviation, function, _spread(clean)), strict=True))

    def moments(self, x: Tensor, progress: bool = False) -> dict[str, Tensor]:
        """Mean and standard deviations of many inputs of the network, in the units of the targets, and scores."""
        parts = [self._moments(part) for part in _tracked(x, progress)]
        return {name: torch.cat([part[name] for part in parts]) for name in MOMENTS}

    def probabilities(self, x: Tensor, progress: bool = False) -> Tensor:
        """Class probabilities of many inputs of the network."""
        return torch.cat([self.predictive(part).probs for part in _tracked(x, progress)])

    @torch.no_grad()
    def predictive(self, x: Tensor, **more: Any) -> Any:
        """p(y|x) by the options."""
        return predict(self.q, x, **predict_options(self.options, self.q), **more)

    def scores(self, x: Tensor, progress: bool = False) -> Tensor:
        """The score of each input, which is in the units of the network."""
        if self.of_classes:
            return torch.cat([self.predictive(part).entropy() for part in _tracked(x, progress)])
        return self.moments(x, progress)["score"]

    def above(self, score: float) -> bool | None:
        """True above the threshold; None without one, or without a score."""
        return None if self.threshold is None or self.score == NONE else score > self.threshold


def _tracked(x: Tensor, progress: bool) -> Iterable[Tensor]:
    return track(x.split(ROWS), "predicting", -(-len(x) // ROWS), progress)


def _require_finite(*values: Tensor) -> None:
    if not all(each.isfinite().all() for each in values):
        raise ValueError("a prediction is not finite: leave such inputs out.")


def _spread(y: Any) -> Tensor:
    """Root of the mean variance over the outputs of each input."""
    return y.variance.flatten(1).mean(1).sqrt()


def quantile(scores: Tensor) -> float:
    """The threshold for these scores of held-out data."""
    return float(scores.double().quantile(LEVEL))


def data_of(card: Card, folder: Path, named: str | None = None) -> Dataset:
    """The data of a run. The user's own data elsewhere than in its folder are read only if the user names them.

    A card from somebody else may name any file of this machine.

    Args:
        card: The card of the run.
        folder: The folder of the run.
        named: Path that the user has named in place of that in the card, or None.

    Raises:
        ValueError: the data are elsewhere and not named, or of another shape.
        OSError: the data are not found.
    """
    options = card.data_options()
    if named is not None:
        options = replace(options, data=named)
    elif options.data is not None and is_own(options.data) and not _lies_in(Path(options.data), folder):
        raise ValueError(
            f"the run names data outside of its folder, which are read only if you name them: pass --data "
            f"{options.data} if you trust it."
        )
    dataset = options.load(card.schema, card.data_options())
    card.require_shape(tuple(dataset.input_shape), dataset.name)
    return dataset


def _lies_in(path: Path, folder: Path) -> bool:
    """True if a file or a folder, and all that it holds, lie in a folder; links count as what they lead to."""
    root = folder.resolve()
    return all(each.resolve().is_relative_to(root) for each in chain([path], path.rglob("*")))


def held_out(dataset: Dataset, first: str) -> tuple[str, Part]:
    """Name and content of a part of the data that the training of the network has not used.

    Args:
        dataset: The data of a run.
        first: "validation" or "test", whose place the other takes if it is empty.

    Raises:
        ValueError: both parts are empty.
    """
    for name in sorted(("validation", "test"), key=lambda name: name != first):
        part: Part = getattr(dataset, name)
        if len(part[0]):
            return name, part
    raise ValueError(f"{dataset.name!r} has neither a validation nor a test part: name other data with --data.")


def opened(options: PosteriorOptions) -> Served:
    """Read a run, without its threshold.

    Raises:
        ValueError: a file is damaged, leads out of the folder, or is that of an autoencoder.
    """
    require_own_files(options)
    q, card = options.open("cpu")
    if isinstance(q.model, Autoencoder):
        raise ValueError(
            f"{str(options.folder)!r} holds an autoencoder, which has no predictions to serve: osculate explore shows "
            "its codes and images."
        )
    return Served(q, card, options)


def made(options: PosteriorOptions, threshold: float | None, access: Access, limits: Limits) -> App:
    """The application of a run that is read in the present process."""
    return served_by(replace(opened(options), threshold=threshold), access, limits)


def served_by(served: Served, access: Access, limits: Limits) -> App:
    """The application of a run, in the present process; one thread of torch for each prediction."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # those of the schema name values of the request
    return application(served, access, limits)


def maker(served: Served, workers: int) -> Callable[[Access, Limits], App]:
    """A function that makes the application in this process, or in any other if there are several workers."""
    if workers == 1:
        return partial(served_by, served)
    return partial(made, replace(served.options, posterior=served.options.posterior.resolve()), served.threshold)
