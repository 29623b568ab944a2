"""Reconstruct an image from few measurements, with error bars.

Writes to --output (by default reconstruction) the image and its error bars as pictures and arrays (reconstruction.npz),
samples, a calibration plot if the truth is known, metrics.json, and report.html.
"""

import hashlib
import json
import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from osculate.checks import require_library
from osculate.cli.folder import run_folder, staged, write_config, write_json
from osculate.cli.measurement import Measured, MeasurementOptions, OperatorOptions, measured
from osculate.cli.options import RunOptions, pick_device
from osculate.cli.page import command
from osculate.cli.reconstruct_report import FIGURES, ceiling, described, figures, numbers, report, white
from osculate.cli.tables import Measure, console, table
from osculate.inverse import (
    DeepImagePrior,
    ErrorBars,
    FittedImage,
    ImageReconstruction,
    with_error_bars,
)
from osculate.networks import SkipUNet
from osculate.progress import Clock
from osculate.randomness import seeded
from osculate.tensorfiles import fill, header_of, network_tensors, read_tensors, write_tensors

#: The positional argument of the command.
SUBJECT = "image"
FOLDER = Path("reconstruction")
#: The fitted network, from which a run can be resumed.
NETWORK, HEADER = "deep_image_prior.safetensors", "osculate_deep_image_prior"
#: Other files in the folder.
ARRAYS, PAGE, METRICS, CONFIG = "reconstruction.npz", "report.html", "metrics.json", "config.yaml"
MEAN, DEVIATION = "reconstruction.png", "stddev.png"
WRITTEN = (ARRAYS, PAGE, METRICS, CONFIG, MEAN, DEVIATION, *(f"{name}.png" for name in FIGURES))
#: Number of sampled images in the folder.
SAMPLES = 20


@dataclass(frozen=True)
class PriorOptions:
    """The training of the deep image prior.

    Args:
        steps: Number of training steps.
        learning_rate: Initial learning rate, which decays to zero.
        variation: Weight of the total variation, in nats per unit.
        width: Number of channels of the U-Net.
        depth: Number of times that the U-Net halves the resolution.
        stopping: Early stopping rule, variance or discrepancy; none by default.
        seed: Seed of initial weights and draws.
    """

    steps: int = DeepImagePrior.steps
    learning_rate: float = DeepImagePrior.learning_rate
    variation: float = DeepImagePrior.variation
    width: int = 32
    depth: int = 2
    stopping: str | None = None
    seed: int = 0


@dataclass(frozen=True)
class ErrorBarOptions:
    """The error bars.

    Args:
        objective: Kind of evidence: map (around the network's own weights), linear (exact), or none.
        predcp: Add TV-PredCP, a prior over the hyperparameters that expects images of low total variation.
        posterior: Exact, drawn (by conjugate gradients), or auto, exact up to 2,048 pixels.
        samples: Number of draws, if the posterior is drawn.
        rank: Largest number of directions in data space for the evidence.
        resume: Reuse the network of an earlier run with the same data and folder.
        overwrite: Replace the run in the output folder.
    """

    objective: str = ErrorBars.objective
    predcp: bool = ErrorBars.predcp
    posterior: str = ErrorBars.posterior
    samples: int = ErrorBars.samples
    rank: int = ErrorBars.rank
    resume: bool = False
    overwrite: bool = False

    @property
    def settings(self) -> ErrorBars:
        """The settings of the library for these options."""
        return ErrorBars(self.objective, self.predcp, self.posterior, self.samples, self.rank)


PARTS = (MeasurementOptions, OperatorOptions, PriorOptions, ErrorBarOptions, RunOptions)


def run(
    measurement: MeasurementOptions,
    operator_options: OperatorOptions,
    prior: PriorOptions,
    error_bars: ErrorBarOptions,
    run_options: RunOptions,
) -> dict[str, Any]:
    """Measure or read, reconstruct, and write; return scores and facts."""
    settings, clock = error_bars.settings, Clock()
    given = measured(measurement, operator_options)
    folder = run_folder(run_options.output, FOLDER, NETWORK, error_bars.overwrite, error_bars.resume)
    folder.mkdir(parents=True, exist_ok=True)
    device = pick_device(run_options.device)
    data = (given.data / given.scale).to(device)
    noise = None if given.noise is None else given.noise / given.scale
    with clock.step("deep image prior"):
        fitted = _fitted(given, data, noise, prior, folder if error_bars.resume else None, run_options.progress)
        if not (error_bars.resume and (folder / NETWORK).is_file()):
            for name in WRITTEN:  # files of another network
                (folder / name).unlink(missing_ok=True)
        history = {"misfits": fitted.misfits, "variations": fitted.variations, "step": fitted.step}
        tensors = network_tensors(fitted.network) | {"input": fitted.input, "image": fitted.image}
        write_tensors(folder / NETWORK, tensors, HEADER, {"digest": _digest(given, data, prior), **history})
    found = with_error_bars(
        given.operator,
        data,
        fitted,
        noise,
        error_bars=settings,
        seed=prior.seed,
        progress=run_options.progress,
    )
    seconds = {name: round(value, 1) for name, value in (clock.seconds | found.seconds).items()}
    result = replace(found.times(given.scale), seconds=seconds)
    if guessed := ceiling(given, result):
        warnings.warn(f"{guessed}.", stacklevel=2)
    _write(folder, given, result, (measurement, operator_options, prior, error_bars, run_options))
    measured_by = numbers(given, result)
    scores = {name: Measure(value) for name, value in measured_by.items()}
    console().print(table("Reconstruction", {"linearised deep image prior": scores}))
    print(", ".join(f"{name}: {value}" for name, value in described(given, result).items()))
    print("seconds: " + ", ".join(f"{name} {value:.1f}" for name, value in result.seconds.items()))
    print(f"Saved {folder / PAGE}, with pictures, arrays and samples in the same folder")
    return {"folder": folder, "scores": measured_by, "seconds": result.seconds, "given": described(given, result)}


def _fitted(
    given: Measured, data: Tensor, noise: float | None, prior: PriorOptions, folder: Path | None, progress: bool
) -> FittedImage:
    """The deep image prior, newly trained or from an earlier run."""
    with seeded(prior.seed):
        network = SkipUNet(width=prior.width, depth=prior.depth)
    training = DeepImagePrior(network, prior.variation, prior.steps, prior.learning_rate, prior.stopping)
    if folder is not None and (folder / NETWORK).is_file():
        metadata, tensors = read_tensors(folder / NETWORK)
        header = header_of(folder / NETWORK, metadata, HEADER) if HEADER in metadata else {}
        if header.get("digest") != _digest(given, data, prior):
            raise ValueError(
                f"{str(folder / NETWORK)!r} was trained for other data or with other settings: pass --overwrite "
                "instead of --resume to train anew, or choose another --output."
            )
        z, image = tensors.pop("input").to(data), tensors.pop("image").to(data)
        fill(network, tensors, folder / NETWORK)
        history = (tuple(header["misfits"]), tuple(header["variations"]), header["step"], prior.variation)
        return FittedImage(network.to(data).eval(), z, image, *history)
    if folder is not None:
        print(f"nothing to resume in {folder}: training anew")
    return training.fit(given.operator, data, noise, prior.seed, progress)


def _digest(given: Measured, data: Tensor, prior: PriorOptions) -> str:
    """A digest of everything that the trained network depends on."""
    parts = [repr(given.operator), str(given.noise), json.dumps(asdict(prior))]
    numbers = data.cpu().numpy().tobytes() + given.operator.adjoint(data).cpu().numpy().tobytes()
    return hashlib.sha256("|".join(parts).encode() + numbers).hexdigest()[:16]


def _write(folder: Path, given: Measured, result: ImageReconstruction, parts: tuple[Any, ...]) -> None:
    with seeded(parts[2].seed), staged(folder) as aside:
        draws = result.posterior.sample((SAMPLES,)).cpu()
        arrays = {"mean": result.mean, "stddev": result.stddev, "samples": draws, "data": given.data}
        if given.truth is not None:
            arrays["truth"] = given.truth
        plain: Any = {name: value.cpu().float().numpy() for name, value in arrays.items()}
        np.savez_compressed(aside / ARRAYS, **plain)
        _grey(aside / MEAN, result.mean / white(given, result))
        _grey(aside / DEVIATION, result.stddev / result.stddev.max())
        scores = numbers(given, result)
        words = described(given, result)
        write_json(aside / METRICS, {"scores": scores, "seconds": result.seconds, "given": words})
        write_config(aside / CONFIG, "reconstruct", *parts)
        drawn = figures(aside, given, result, draws)
        report(aside / PAGE, given, result, scores, drawn, command("reconstruct", *parts))


def _grey(path: Path, image: Tensor) -> None:
    """Write an image with values in [0, 1] as a picture."""
    require_library("PIL", "image files")
    from PIL import Image

    Image.fromarray((255 * image.clamp(0, 1)).round().byte().cpu().numpy()).save(path)
