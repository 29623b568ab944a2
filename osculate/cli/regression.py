"""The demo's second part: a curve with a gap in its data, and error bars from three structures."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from osculate.cli.classification import Clock
from osculate.cli.noise import held_out_noise
from osculate.cli.options import DataOptions
from osculate.cli.train import TrainOptions, new_network
from osculate.data import Dataset
from osculate.data.toys import SINE_GAP
from osculate.evidence import maximise_evidence
from osculate.likelihoods import Gaussian as GaussianLikelihood
from osculate.methods.laplace import laplace
from osculate.methods.map import MAP
from osculate.posteriors import Gaussian, Point
from osculate.predictive import predict
from osculate.priors import Layerwise
from osculate.tasks import calibration
from osculate.training import Settings, train

STRUCTURES = ("full", "kron", "diag")
#: Chosen by the error on the validation part, four seeds: one or two hidden layers, 200 to 1000 epochs, about the same.
SETTINGS = Settings(epochs=400, lr=1e-2, batch_size=200)
HIDDEN = (32, 32)


@dataclass(frozen=True)
class Line:
    """A predictive along a line, in original units.

    Args:
        x: inputs (G,).
        mean: predictive mean (G,).
        sd: predictive standard deviation, noise included (G,).
    """

    x: Tensor
    mean: Tensor
    sd: Tensor


@dataclass(frozen=True)
class Regression:
    """The results of the second part, by method: MAP, full, kron, diag.

    Args:
        data: training inputs and targets in original units.
        gap: the interval without data.
        lines: the predictive along the input axis.
        scores: scores on all test data, and on those in the gap.
        seconds: wall-clock time by step.
    """

    data: tuple[Tensor, Tensor]
    gap: tuple[float, float]
    lines: Mapping[str, Line]
    scores: Mapping[str, Mapping[str, float]]
    seconds: Mapping[str, float] = field(default_factory=dict)


def regress(seed: int, progress: bool, say: Callable[[str], None]) -> Regression:
    """Train once, fit three structures, and measure."""
    clock = Clock(say)
    options = DataOptions("sine", split_seed=seed)
    dataset = options.load()
    model, card = new_network(dataset, options, TrainOptions("mlp", {"hidden": HIDDEN}), seed)
    with clock.step("train", f"training a network on a curve with {len(dataset.train[0])} points and a gap"):
        trained = train(
            MAP(model, card.likelihood), dataset.train, SETTINGS.changed(seed=seed), device="cpu", progress=progress
        )
    noise = held_out_noise(model.eval(), dataset, card.noise)
    assert noise is not None
    likelihood = GaussianLikelihood(noise)
    methods: dict[str, Point | Gaussian] = {"MAP": Point(trained.model, likelihood)}
    with clock.step("fit", f"fitting {', '.join(STRUCTURES)} posteriors to it"):
        for structure in STRUCTURES:
            q = laplace(model, likelihood, dataset.train, structure=structure, prior=Layerwise(1.0))
            # the noise is the same for all, so that the bands differ by the structure alone
            methods[structure] = maximise_evidence(q, noise=False)
    lines = {name: _line(q, dataset) for name, q in methods.items()}
    scores = {name: _scores(q, dataset) for name, q in methods.items()}
    return Regression(_original(*dataset.train, dataset), SINE_GAP, lines, scores, clock.seconds)


def _line(q: Point | Gaussian, dataset: Dataset) -> Line:
    x = torch.linspace(-5.5, 5.5, 300)[:, None]
    assert dataset.input_scaling is not None
    assert dataset.target_scaling is not None
    y = predict(q, dataset.input_scaling.apply(x))
    with torch.no_grad():
        mean, sd = dataset.target_scaling.undo(y.mean), y.stddev * dataset.target_scaling.scale
    return Line(x[:, 0], mean[:, 0].detach(), sd[:, 0].detach())


def _scores(q: Point | Gaussian, dataset: Dataset) -> dict[str, float]:
    x, y = dataset.test
    original = _original(x, y, dataset)[0]
    inside = (original > SINE_GAP[0]) & (original < SINE_GAP[1])
    everywhere = calibration(q, dataset.test, target_scale=dataset.target_scale).metrics()
    gap = calibration(q, (x[inside], y[inside]), target_scale=dataset.target_scale).metrics()
    return {**everywhere, **{f"{name}_gap": value for name, value in gap.items()}}


def _original(x: Tensor, y: Tensor, dataset: Dataset) -> tuple[Tensor, Tensor]:
    """One-dimensional inputs and targets in original units."""
    assert dataset.input_scaling is not None
    assert dataset.target_scaling is not None
    return dataset.input_scaling.undo(x)[:, 0], dataset.target_scaling.undo(y)[:, 0]
