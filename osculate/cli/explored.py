"""Views of ``osculate explore``, one for each kind of run."""

import math
from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from osculate.autoencoders import Autoencoder, Reconstruction, Representation
from osculate.cli.explored_columns import ShownColumns
from osculate.cli.predict import PosteriorOptions
from osculate.cli.reconstruct import ARRAYS
from osculate.cli.served import Served, data_of, held_out, require_own_files
from osculate.data import Dataset, OwnData, out_of_distribution
from osculate.data.files import read_all_npz
from osculate.data.shifted import PARTNERS
from osculate.posteriors import Point, Sampled
from osculate.predictive import sample_functions
from osculate.serving.explorer import Action, RunView, number
from osculate.serving.refusals import Refused

#: Test inputs, and out-of-distribution inputs of each set, at most.
INPUTS = 2_000
#: Most uncertain inputs in the list.
UNCERTAIN = 48
#: Numbers of a vector that are shown.
SHOWN = 12
#: Draws of the function and rows for partial dependence.
DRAWS, ROWS = 64, 40
#: Networks drawn for images of codes, points of the plane and decoded examples along its sides.
NETWORKS, POINTS, EXAMPLES = 10, 24, 9
#: Codes of test inputs in the plane.
CODES = 1_000
#: Pixels of an image along a side that the page draws.
LARGEST = 512
#: Drawn images of a reconstruction.
SAMPLES = 12


def plain(values: Any) -> Any:
    """Numbers for JSON, with six digits."""
    array = np.asarray(values, dtype=np.float64)
    flat = [float(f"{value:.6g}") for value in array.ravel().tolist()]
    return np.array(flat, dtype=object).reshape(array.shape).tolist()


def picture(image: Tensor | np.ndarray, low: float, high: float) -> dict[str, Any] | None:
    """An image (1 or 3, height, width) as bytes for the page; None for other inputs.

    Args:
        image: The image.
        low: Value that is black.
        high: Value that is white.
    """
    array = np.asarray(image, dtype=np.float64)
    if array.ndim != 3 or array.shape[0] not in (1, 3) or max(array.shape) > LARGEST:
        return None
    grey = np.clip((array - low) / ((high - low) or 1.0), 0, 1)
    return {"shape": list(array.shape), "pixels": b64encode(np.round(255 * grey).astype(np.uint8).tobytes()).decode()}


def raw(array: np.ndarray) -> dict[str, Any]:
    """An array as float32 for the page."""
    return {"shape": list(array.shape), "values": b64encode(array.astype("<f4").tobytes()).decode()}


@dataclass(frozen=True, eq=False)
class ClassifierView(RunView):
    """Test inputs, their probabilities, and inputs out of distribution.

    Args:
        served: The posterior.
        dataset: The data of the training.
        outside: Inputs out of distribution by name.
        notes: Sentences above all.
    """

    served: Served
    dataset: Dataset
    outside: Mapping[str, Tensor]
    notes: tuple[str, ...] = ()

    def content(self, progress: bool = False) -> Mapping[str, Any]:
        """Probabilities of network and posterior, the most uncertain inputs, and entropies."""
        (x, y), served = (part[:INPUTS] for part in self.dataset.test), self.served
        network = Served(Point(served.q.model.eval(), served.card.likelihood), served.card, PosteriorOptions(Path()))
        models = {"network": network} | ({"posterior": served} if served.varies else {})
        each = {name: model.probabilities(x, progress) for name, model in models.items()}
        entropies = {name: _entropy(probs) for name, probs in each.items()}
        first = entropies[list(models)[-1]].argsort(descending=True)[:UNCERTAIN].tolist()
        ends, columns, scaling = (
            (float(x.min()), float(x.max())),
            ShownColumns.of(served.card),
            served.card.scaling("input"),
        )
        return {
            "kind": "classifier",
            "title": self.dataset.name,
            "notes": self.notes,
            "classes": list(served.classes),
            "columns": columns.facts(),
            "inputs": len(x),
            "scores": {
                name: {"confidence": plain(probs.amax(1)), "right": (probs.argmax(1) == y).int().tolist()}
                for name, probs in each.items()
            },
            "uncertain": [
                {
                    "index": index,
                    "label": served.classes[int(y[index])],
                    "entropy": {name: plain(values[index]) for name, values in entropies.items()},
                    "probabilities": {name: plain(probs[index]) for name, probs in each.items()},
                    "picture": picture(x[index], *ends),
                    "row": columns.rows(x[index, None])[0] if columns.each else [],
                    "values": plain((x[index] if scaling is None else scaling.undo(x[index])).flatten()[:SHOWN]),
                }
                for index in first
            ],
            "inside": {name: plain(values) for name, values in entropies.items()},
            "outside": {
                title: {
                    name: plain(_entropy(model.probabilities(z[:INPUTS], progress))) for name, model in models.items()
                }
                for title, z in self.outside.items()
            },
        }


def _entropy(probs: Tensor) -> Tensor:
    return torch.special.entr(probs.double()).sum(-1)


@dataclass(frozen=True, eq=False)
class RegressionView(RunView):
    """Test inputs, predictions with bands, and partial dependence.

    Args:
        served: The posterior.
        dataset: The data of the training.
    """

    served: Served
    dataset: Dataset
    notes: tuple[str, ...] = ()

    @property
    def actions(self) -> Mapping[str, Action]:
        """Partial dependence, of inputs that are vectors."""
        return {"dependence": self.dependence} if self._columns.each else {}

    @cached_property
    def _columns(self) -> ShownColumns:
        return ShownColumns.of(self.served.card)

    def content(self, progress: bool = False) -> Mapping[str, Any]:
        """Predictions and targets in original units."""
        x, y = (part[:INPUTS] for part in self.dataset.test)
        targets = self.served.card.scaling("target")
        found = self.served.moments(x, progress)
        return {
            "kind": "regression",
            "title": self.dataset.name,
            "notes": self.notes,
            "outputs": self.served.outputs,
            "columns": self._columns.facts(),
            "x": self._columns.rows(x) if self.actions else [],
            "target": plain(y if targets is None else targets.undo(y)),
            **{name: plain(values) for name, values in found.items()},
        }

    def dependence(self, asked: Mapping[str, Any], ask: Callable[[], None]) -> Mapping[str, Any]:
        r"""The mean of the function over some test inputs of which one column is varied, 1/N Σ f(x_n with x_nj = v).

        Its band is the standard deviation over functions drawn from the posterior, each of which is averaged over the
        same inputs.
        """
        columns, x = self._columns, self.dataset.test[0]
        index = number(asked, "input", len(columns.each))
        values, entries = columns.tried(x, index)
        rows = x[torch.linspace(0, len(x) - 1, min(ROWS, len(x))).long()]
        varied = rows.repeat(len(entries), 1)
        varied[:, columns.places[index]] = entries.repeat_interleave(len(rows), 0)
        ask()
        if isinstance(self.served.q, Point):
            f = self.served.predictive(varied, noise=False).mean[None]
        else:
            f = sample_functions(self.served.q, varied, DRAWS, generator=torch.Generator().manual_seed(0))
        each = f.detach().unflatten(1, (len(entries), len(rows))).mean(2)
        mean, spread = each.mean(0), each.std(0, correction=0)
        targets = self.served.card.scaling("target")
        if targets is not None:
            mean, spread = targets.undo(mean), spread * targets.scale
        return {"values": values, "mean": plain(mean), "deviation": plain(spread)}


@dataclass(frozen=True, eq=False)
class CodesView(RunView):
    """The codes of an autoencoder, and images of codes.

    Args:
        representation: Codes and images of networks drawn from the posterior.
        dataset: The data of the training, with its labels.
        notes: Sentences above all.
    """

    representation: Representation
    dataset: Dataset
    notes: tuple[str, ...] = ()

    @property
    def actions(self) -> Mapping[str, Action]:
        """The image of a code, and the plane through a code."""
        return {"decode": self.decode, "plane": self.plane}

    @cached_property
    def _found(self) -> tuple[Tensor, Tensor]:
        """Means and standard deviations of the codes of test inputs."""
        found = self.representation.encode(self.dataset.test[0][:CODES], NETWORKS, _seeded(), batch_size=500)
        return found.mean, found.variance.sqrt()

    @cached_property
    def _ends(self) -> tuple[Tensor, Tensor]:
        """Limits of the codes, with a margin."""
        mean, _ = self._found
        low, high = mean.amin(0), mean.amax(0)
        room = torch.where(high > low, 0.15 * (high - low), 1.0)
        return low - room, high + room

    def content(self, progress: bool = False) -> Mapping[str, Any]:
        """Codes of test inputs, and the first plane."""
        (mean, deviation), (low, high) = self._found, self._ends
        y, classes = self.dataset.test[1][:CODES], self.dataset.classes
        middle = mean.median(0).values
        axes = [0, min(1, mean.shape[1] - 1)]
        asked = {"axes": axes, "code": middle.tolist()}
        return {
            "kind": "autoencoder",
            "title": self.dataset.name,
            "notes": self.notes,
            "codes": plain(mean),
            "deviations": plain(deviation),
            "labels": y.tolist() if classes is not None else None,
            "classes": None if classes is None else list(classes),
            "low": plain(low),
            "high": plain(high),
            "middle": plain(middle),
            "networks": 1 if isinstance(self.representation.posterior, Point) else NETWORKS,
            "plane": self.plane(asked, lambda: None),
            "decoded": self.decode(asked, lambda: None),
        }

    @cached_property
    def _networks(self) -> list[Callable[[Any], Tensor]]:
        """Drawn networks, which are kept: to draw them takes longer than to decode a code."""
        q = self.representation.posterior
        return list(q.draws(NETWORKS, _seeded())) if isinstance(q, Sampled) else [q.network]

    def _images(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Means and standard deviations of the images of codes, by the same drawn networks in every call."""
        with torch.no_grad():
            images = torch.stack([draw({"decode": z}).unsqueeze(0) for draw in self._networks])
        found = Reconstruction(images, self.representation.posterior.likelihood)
        return found.mean, found.mean_variance.sqrt()

    @cached_property
    def _range(self) -> tuple[float, float]:
        """Values that are black and white."""
        x = self.dataset.test[0]
        return float(x.min()), float(x.max())

    def decode(self, asked: Mapping[str, Any], ask: Callable[[], None]) -> Mapping[str, Any]:
        """The image of a code, and its standard deviation."""
        mean, deviation = self._images(self._code(asked)[None])
        top = float(deviation.max())
        shape = mean[0].shape
        return {
            "mean": picture(mean[0], *self._range),
            "deviation": picture(deviation[0], 0.0, top),
            "values": None if len(shape) == 3 else plain(mean[0].flatten()[:SHOWN]),
            "average": plain(deviation.mean()),
            "largest": plain(top),
        }

    def plane(self, asked: Mapping[str, Any], ask: Callable[[], None]) -> Mapping[str, Any]:
        """The mean deviation of images in a plane of codes, and images in it; the other numbers are those of a code."""
        axes, code = asked.get("axes"), self._code(asked)
        if type(axes) is not list or len(axes) != 2:
            raise Refused(422, "axes must be a list of two places in a code.")
        first, second = (number({"axis": axis}, "axis", len(code)) for axis in axes)
        low, high = self._ends

        def grid(places: int) -> Tensor:
            """Codes at the centres of cells, row by row from the highest second number."""
            cells = (torch.arange(places) + 0.5) / places
            z = code.repeat(places * places, 1)
            z[:, second] = (high[second] - cells * (high[second] - low[second])).repeat_interleave(places)
            z[:, first] = (low[first] + cells * (high[first] - low[first])).repeat(places)
            return z

        heat = []
        for part in grid(POINTS).split(POINTS):
            ask()
            heat.append(self._images(part)[1].flatten(1).mean(1))
        images = self._images(grid(EXAMPLES))[0]
        shown = [picture(image, *self._range) for image in images]
        return {
            "heat": plain(torch.cat(heat)),
            "points": POINTS,
            "examples": shown if shown[0] is not None else [],
            "places": EXAMPLES,
        }

    def _code(self, asked: Mapping[str, Any]) -> Tensor:
        """The code of a request."""
        code, size = asked.get("code"), len(self._ends[0])
        if type(code) is not list or len(code) != size or not all(type(value) in (int, float) for value in code):
            raise Refused(422, f"code must be a list of {size} numbers.")
        if not all(math.isfinite(value) and abs(value) < 1e6 for value in code):
            raise Refused(422, "code must hold finite numbers below 1e6.")
        return torch.tensor(code, dtype=torch.float32)


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@dataclass(frozen=True, eq=False)
class ReconstructionView(RunView):
    """An image with its error bars, as osculate reconstruct has left it.

    Args:
        folder: Folder of the run.
    """

    folder: Path

    def content(self, progress: bool = False) -> Mapping[str, Any]:
        """The image, its standard deviation, samples, and the truth if it is known.

        Raises:
            ValueError: an array is missing or of another shape.
        """
        path = self.folder / ARRAYS
        arrays = read_all_npz(path)
        for name in ("mean", "stddev", "samples"):
            if name not in arrays:
                raise ValueError(f"{str(path)!r} has no array {name!r}: run osculate reconstruct again.")
        shape, draws = arrays["mean"].shape, arrays["samples"][:SAMPLES]
        truth = arrays.get("truth")
        every = [arrays["mean"], arrays["stddev"], *draws, *([] if truth is None else [truth])]
        if len(shape) != 2 or max(shape) > LARGEST or any(each.shape != shape for each in every):
            raise ValueError(f"{str(path)!r} does not hold images of one shape, at most {LARGEST} pixels along a side.")
        if not all(np.isfinite(each).all() for each in every):
            raise ValueError(f"{str(path)!r} holds a number that is not finite: run osculate reconstruct again.")
        return {
            "kind": "reconstruction",
            "title": self.folder.resolve().name,
            "mean": raw(arrays["mean"]),
            "deviation": raw(arrays["stddev"]),
            "samples": [raw(each) for each in draws],
            "truth": None if truth is None else raw(truth),
        }


def view_of(options: PosteriorOptions, data: str | None = None) -> RunView:
    """The view of a run folder.

    Args:
        options: The run.
        data: Path of the user's own data as the user has named it, or None.

    Raises:
        FileNotFoundError: it holds no run, or the data of the run are not found.
        ValueError: a file is damaged, or leads out of the folder.
    """
    if (options.folder / ARRAYS).is_file():
        require_own_files(options, ARRAYS)
        return ReconstructionView(options.folder)
    require_own_files(options)
    torch.set_num_threads(1)
    q, card = options.open("cpu")
    dataset = data_of(card, options.folder, data)
    name, part = held_out(dataset, "test")
    dataset, notes = replace(dataset, test=part), list[str]()
    if name != "test":
        notes.append("These data have no test part: test inputs are those of the validation part.")
    if isinstance(q, Point):
        notes.append("This run has no posterior: run osculate fit.")
    if isinstance(q.model, Autoencoder):
        return CodesView(Representation(q), dataset, tuple(notes))
    served, dataset = Served(q, card, options), card.of(dataset)
    if not served.of_classes:
        return RegressionView(served, dataset, tuple(notes))
    named = not isinstance(dataset, OwnData) and dataset.name in PARTNERS
    outside = out_of_distribution(dataset, folder=card.data_options().data_folder) if named else {}
    return ClassifierView(served, dataset, outside, tuple(notes))
