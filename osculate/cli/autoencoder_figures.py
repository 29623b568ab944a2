"""Scores and figures of autoencoders, for ``train``, ``evaluate`` and ``demo --lae``."""

from collections.abc import Mapping
from math import sqrt
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from osculate.autoencoders import VAE, Bound, LatentMap, Reconstruction, Representation, interpolations, manifold
from osculate.autoencoders.distributions import at_once
from osculate.data import Dataset
from osculate.metrics import roc_curve
from osculate.posteriors import Point
from osculate.progress import track
from osculate.tasks import ImputationRecord, OODRecord, SemiSupervisedRecord

#: Number of sampled networks for figures and training scores.
SAMPLES = 50
#: Images of an interpolation, and along each side of a manifold.
WAY, PLACES = 10, 15
#: Number of test images in maps of the codes.
POINTS = 1500
#: Scores of out-of-distribution images that are shown, with their titles.
SCORES = {"nll": "−log p(x)", "latent_deviation": "deviation of the code", "output_deviation": "deviation of the image"}
#: Labels of their axes.
AXES = {
    "nll": "nats",
    "latent_deviation": "sum over the numbers of the code",
    "output_deviation": "sum over the pixels",
}
#: The baseline score, which needs no network.
BASELINE = {"mean_pixel": "mean pixel, no network"}


def reconstruction_scores(
    r: Representation, x: Tensor, samples: int = SAMPLES, progress: bool = False
) -> dict[str, float]:
    """Log density of an image in nats, root mean square error per pixel, and their standard errors."""
    densities, squares = [], []
    size = at_once(x, samples, r.posterior.network)
    for part in track(x.split(size), "measuring reconstructions", -(-len(x) // size), progress):
        found = _reconstruct(r, part, samples)
        part = part.to(found.mean)
        densities.append(found.log_prob(part))
        squares.append((found.mean - part).square().flatten(1).mean(1))
    density, square = torch.cat(densities).double(), torch.cat(squares).double()
    rmse, root = float(square.mean().sqrt()), sqrt(len(x))
    return {
        "log_density": float(density.mean()),
        "log_density_error": float(density.std()) / root if len(x) > 1 else 0.0,
        "pixel_rmse": rmse,
        "pixel_rmse_error": float(square.std()) / root / (2 * rmse) if len(x) > 1 and rmse else 0.0,
    }


def _reconstruct(r: Representation, x: Tensor, samples: int) -> Reconstruction:
    return r.reconstruct(x, samples, generator=torch.Generator().manual_seed(0))


def picked(x: Tensor, y: Tensor | None, number: int) -> Tensor:
    """Indices of a few images, one of each class in turn if classes are known."""
    if y is None or y.is_floating_point():
        return torch.arange(min(number, len(x)))
    first = [int((y == kind).nonzero()[0]) for kind in y.unique()]
    return torch.tensor([*first, *(n for n in range(len(x)) if n not in first)][:number])


def pictures(r: Representation, x: Tensor, samples: int = SAMPLES) -> tuple[np.ndarray, np.ndarray]:
    """Mean reconstructions, and their standard deviations over weights and codes."""
    found = _reconstruct(r, x, samples)
    return found.mean.cpu().numpy(), found.mean_variance.sqrt().cpu().numpy()


def draw_autoencoder(r: Representation, dataset: Dataset, folder: Path) -> dict[str, Path]:
    """Draw the figures of a training, reconstructions and, for two-dimensional codes, the latent map; return the paths.

    Args:
        r: Trained autoencoder.
        dataset: Data set with its labels.
        folder: Folder for the figures.
    """
    from osculate import plots

    x, y = dataset.test
    if x.shape[1] not in (1, 3):
        return {}
    examples = x[picked(x, y, 10)]
    one = isinstance(r.posterior, Point)
    by = "sampled codes" if one else "networks sampled from the posterior"
    heading = f"Test images and their reconstructions by {by}: mean and standard deviation"
    figure = plots.reconstructions(examples.numpy(), {"network": pictures(r, examples)}, heading=heading)
    drawn = {"reconstructions": plots.save(figure, folder / "reconstructions.png")}
    if isinstance(r.model, VAE):
        drawn |= _draw_codes(r, examples, folder)
    if r.model.latent == 2:
        heading = f"Codes of the test images{'' if one else ', and the standard deviation of the decoder'}"
        labels = None if dataset.classes is None else y[:POINTS].numpy()
        figure = plots.latent_map({"": LatentMap.of(r, x[:POINTS])}, labels, dataset.classes, heading=heading)
        drawn["latent_map"] = plots.save(figure, folder / "latent_map.png")
    return drawn


def _draw_codes(r: Representation, x: Tensor, folder: Path) -> dict[str, Path]:
    """Draw samples of a VAE, interpolations and, for two-dimensional codes, the manifold."""
    from osculate import plots

    generator = torch.Generator().manual_seed(0)
    half = len(x) // 2
    ways = interpolations(r, x, [(n, n + half) for n in range(half)], WAY, generator=generator)
    rows = {"new": r.generate(WAY, generator), **{f"interpolation {n + 1}": way for n, way in enumerate(ways)}}
    scale = plots.grey_scale(
        x, *rows.values()
    )  # generated images alone may be too blurred to tell ink from photographs
    figure = plots.image_grid(rows, "New images, and interpolations between test images", scale)
    drawn = {"new_images": plots.save(figure, folder / "new_images.png")}
    if r.model.latent == 2:
        images = manifold(r, PLACES)
        heading = "Images generated from codes of two numbers"
        figure = plots.manifold({"": images}, heading, limits={"": plots.grey_scale(x, images)})
        drawn["manifold"] = plots.save(figure, folder / "manifold.png")
    return drawn


def draw_bounds(weighted: Mapping[int, Bound], dataset: Dataset, path: Path) -> Path:
    """Draw the importance-weighted bound of the test images against the number of samples."""
    from osculate import plots

    values = [found.mean for found in weighted.values()], [found.standard_error for found in weighted.values()]
    heading = f"{dataset.name}: bounds on log p(x) of test images"
    return plots.save(plots.sandwich({"": plots.Bounds(list(weighted), values)}, heading), path)


def draw_roc(panels: Mapping[str, Mapping[str, tuple[OODRecord, str, str]]], path: Path) -> Path:
    """Draw ROC curves.

    Args:
        panels: Record, set and score of each curve, by panel and label.
        path: Path of the figure.
    """
    from osculate import plots

    curves = {
        panel: {
            label: roc_curve(record.inside[score], record.outside[name][score])
            for label, (record, name, score) in found.items()
        }
        for panel, found in panels.items()
    }
    areas = {
        panel: {
            label: (record.auroc[name][score], record.auroc_error[name][score])
            for label, (record, name, score) in found.items()
        }
        for panel, found in panels.items()
    }
    return plots.save(plots.roc_curves(curves, areas), path)


def draw_histograms(record: OODRecord, path: Path) -> Path:
    """Draw histograms of each score of one method."""
    from osculate import plots

    shown = [score for score in SCORES if score in record.inside]
    figure = plots.score_histograms(
        {SCORES[score]: record.inside[score].numpy() for score in shown},
        {SCORES[score]: {name: scores[score].numpy() for name, scores in record.outside.items()} for score in shown},
        {SCORES[score]: {name: areas[score] for name, areas in record.auroc.items()} for score in shown},
        {SCORES[score]: AXES[score] for score in shown},
    )
    return plots.save(figure, path)


def draw_few_labels(record: SemiSupervisedRecord, classes: int, path: Path) -> Path:
    """Draw the accuracy against the number of labels."""
    from osculate import plots

    curves = {name: (record.mean[name].numpy(), record.standard_error[name].numpy()) for name in record.accuracy}
    heading = "Classifying test images by their codes, with few labels"
    return plots.save(plots.accuracy_against_labels(record.labels, curves, heading, 1 / classes), path)


def draw_imputations(record: ImputationRecord, dataset: Dataset, path: Path, columns: int = 8) -> Path:
    """Draw a few test images with imputed halves."""
    from osculate import plots

    x, y = dataset.test
    examples = picked(x, y, columns)
    figure = plots.imputations(
        x[examples].numpy(),
        record.observed[examples].numpy(),
        record.images[:, examples].cpu().numpy(),
        "Upper half hidden: sampled completions",
        None if record.predicted is None else record.predicted[:, examples].numpy(),
        classes=dataset.classes,
    )
    return plots.save(figure, path)
