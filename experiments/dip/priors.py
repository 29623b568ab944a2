"""Section 7 of the tutorial on linearised Laplace: draws of the priors over images, TV, TV-PredCP and factorised."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

import osculate as osc
from experiments import Findings, Record, Resumable, Runner, Table, experiment, rounded
from experiments.dip import cells
from osculate.inverse import DeepImagePrior, LinearisedImage, total_variation

TV, TUNED, SMOOTH, FACTORISED = "TV", "linearised DIP", "linearised DIP, TV-PredCP", "factorised Gaussian"
ROUGHNESS = "mean difference of neighbours over standard deviation"


@dataclass(frozen=True)
class Settings(Resumable):
    """Draws of each prior. Seeds count images.

    Args:
        scan: Measurement of the images, from which the priors of the deep image prior have their precisions.
        draws: Number of draws.
        weight: λ of exp(−λ TV(x)), for grey values in [0, 1].
        levels: Number of grey values.
        sweeps: Passes of the Gibbs sampler over all pixels.
        shown: Draws of each prior in the figure.
        first: First test image; those before it were seen when claims were made.
    """

    scan: cells.Scan = cells.Scan()
    draws: int = 30
    weight: float = 8.0
    levels: int = 33
    sweeps: int = 300
    shown: int = 6
    first: int = 10


@experiment(
    "dip-priors",
    "Draws of the priors over images: total variation, its surrogate, and pixels by themselves",
    cells.DOCUMENT,
    paper=Settings(cells.Scan(steps=20_000), draws=1_000),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Draw images of every prior, and compare how far neighbouring pixels differ."""
    table, data = Table(), dict[str, Any]()

    def drawn(seed: int) -> tuple[dict[str, float], dict[str, Any]]:
        images = draws(settings, settings.first + seed)
        first = {name: rounded(each[: settings.shown], 3) for name, each in images.items()}
        return {name: roughness(each) for name, each in images.items()}, first

    for found, first in runner.each("images", zip(seeds), drawn):
        table.append({(name, ROUGHNESS): value for name, value in found.items()})
        data = data or {"draws": first}
    return Findings(table.numbers(), (), data)


def draws(settings: Settings, number: int) -> dict[str, Float[Tensor, "S H W"]]:
    """Return draws of every prior by name, those of Gaussian ones around zero."""
    scan, generator = settings.scan, torch.Generator().manual_seed(number)
    operator, data, level = scan.measured(cells.images(scan.data)[1][number], number)
    image = LinearisedImage(operator, data, DeepImagePrior(steps=scan.steps).fit(operator, data, level, number), level)
    shape = (settings.draws, *operator.image_shape)
    found = {TV: gibbs(settings, shape, generator)}
    for name, predcp in ((TUNED, False), (SMOOTH, True)):
        found[name] = of_filters(image, image.tuned("network", predcp), settings.draws, generator)
    deviation = found[SMOOTH].square().mean().sqrt()
    return {**found, FACTORISED: deviation * torch.randn(shape, generator=generator)}


def of_filters(
    image: LinearisedImage, q: osc.posteriors.Gaussian, count: int, generator: torch.Generator
) -> Float[Tensor, "S H W"]:
    """Draw from N(0, J Λ⁻¹ Jᵀ)."""
    white = torch.randn(count, image.jacobian.shape[1], generator=generator).to(image.jacobian)
    filters = q.prior.colour(white, q.network.space)
    return (filters.to(white) @ image.jacobian.mT).unflatten(1, image.operator.image_shape).float()


def gibbs(settings: Settings, shape: tuple[int, ...], generator: torch.Generator) -> Float[Tensor, "S H W"]:
    """Draw from exp(−λ TV(x)) on a grid of grey values, the squares of a chessboard in turn."""
    values = torch.linspace(0, 1, settings.levels)
    x = values[torch.randint(settings.levels, shape, generator=generator)]
    white = (torch.arange(shape[1])[:, None] + torch.arange(shape[2])) % 2 == 0
    for _ in range(settings.sweeps):
        for square in (white, ~white):
            energy = torch.zeros(*shape, settings.levels)
            for axis in (1, 2):
                for step in (1, -1):
                    neighbour = x.roll(step, axis)
                    inside = torch.ones(shape[1:])
                    inside.select(axis - 1, 0 if step == 1 else -1).zero_()  # those at the border have fewer
                    energy += inside[..., None] * (values - neighbour[..., None]).abs()
            chosen = (-settings.weight * energy).softmax(-1).flatten(0, -2)
            new = values[torch.multinomial(chosen, 1, generator=generator)].view(shape)
            x = torch.where(square, new, x)
    return x


def roughness(images: Float[Tensor, "S H W"]) -> float:
    """Return the mean absolute difference of neighbours over the standard deviation of an image, root mean square."""
    height, width = images.shape[1:]
    differences = total_variation(images) / (height * (width - 1) + width * (height - 1))
    return float(differences.mean() / images.var((1, 2)).mean().sqrt())


@measure.figure
def draw(record: Record) -> Any:
    """Draw a row of images for each prior, each with its own grey values."""
    from osculate.plots import image_grid

    rows = {name: _stretched(np.asarray(images)) for name, images in record.findings.data["draws"].items()}
    heading = "Draws of priors over images"
    return image_grid(rows, heading, limits=(0.0, 1.0))


def _stretched(images: np.ndarray) -> np.ndarray:
    low, high = (function(images, axis=(1, 2), keepdims=True) for function in (np.min, np.max))
    return ((images - low) / (high - low))[:, None]
