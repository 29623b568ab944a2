"""A run folder as the model of a service."""

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from osculate.autoencoders import Autoencoder
from osculate.cli.checkpoint import MODEL, Card
from osculate.cli.folder import POSTERIOR
from osculate.cli.predict import PosteriorOptions, predict_options
from osculate.data.own.columns import NUMBER
from osculate.data.own.table_inputs import TableInputs
from osculate.posteriors import Point
from osculate.predictive import predict
from osculate.progress import track
from osculate.serving.application import Facts, Model, Prediction, application
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
        inputs = self.card.schema.inputs
        if not isinstance(inputs, TableInputs):
            return None
        return {column.name: column.kind == NUMBER for column in inputs.columns if column.features}

    @property
    def of_classes(self) -> bool:
        """True for a classifier."""
        return self.card.noise is None

    def facts(self) -> Facts:
        """Facts about the model for clients."""
        return Facts(
            kind="classification" if self.of_classes else "regression",
            posterior=type(self.q).__name__,
            input_shape=list(self.input_shape),
            columns=None if self.columns is None else list(self.columns),
            classes=list(self.classes) if self.of_classes else None,
            score=ENTROPY if self.of_classes else DEVIATION,
            threshold=self.threshold,
        )

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes; their numbers where they have no names."""
        return self.card.classes or tuple(map(str, range(self.card.outputs)))

    def answers(self, values: Any, ask: Callable[[], None]) -> list[Prediction]:
        """A prediction for each input."""
        try:
            x = self.card.schema.read({"X": values} if self.columns is None else values, targets=False)[0]
        except ValueError as error:
            raise Refused(422, str(error)) from None
        found = []
        for part in x.split(ROWS):
            ask()
            found += self._classes(part) if self.of_classes else self._numbers(part)
        return found

    def _classes(self, x: Tensor) -> list[Prediction]:
        y, names = self.predictive(x), self.classes
        more: list[float | None] = [None] * len(x)
        if not isinstance(self.q, Point) and self.options.via in (None, self.q.ways[0]):
            generator = torch.Generator().manual_seed(self.options.seed)
            more = mutual_information(self.q, x, generator=generator).clamp_min(0).tolist()
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
        return [
            Prediction(
                mean=mean,
                standard_deviation=deviation,
                function_standard_deviation=function,
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
        """True above the threshold; None without one."""
        return None if self.threshold is None else score > self.threshold


def _tracked(x: Tensor, progress: bool) -> Iterable[Tensor]:
    return track(x.split(ROWS), "predicting", -(-len(x) // ROWS), progress)


def _spread(y: Any) -> Tensor:
    """Root of the mean variance over the outputs of each input."""
    return y.variance.flatten(1).mean(1).sqrt()


def quantile(scores: Tensor) -> float:
    """The threshold for these scores of held-out data."""
    return float(scores.double().quantile(LEVEL))


def held_out(card: Card) -> Tensor:
    """Inputs of the run that its training has not used: its validation part, or its test part if that is empty.

    Raises:
        ValueError: the data are of another shape.
        OSError: the data are not found.
    """
    dataset = card.data_options().load(card.schema)
    x = dataset.validation[0] if len(dataset.validation[0]) else dataset.test[0]
    if tuple(x.shape[1:]) != card.input_shape:
        raise ValueError(f"the data have inputs of shape {tuple(x.shape[1:])}, the network takes {card.input_shape}.")
    return x


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
    """The application of a run, in the present process; one thread of torch for each prediction."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")  # those of the schema name values of the request
    served = opened(options)
    return application(Served(served.q, served.card, options, threshold), access, limits)


def maker(options: PosteriorOptions, threshold: float | None) -> Callable[[Access, Limits], App]:
    """A function that makes the application in any process."""
    return partial(
        made, PosteriorOptions(**{**vars(options), "posterior": Path(options.posterior).resolve()}), threshold
    )
