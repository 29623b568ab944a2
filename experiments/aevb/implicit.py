"""Section 7.2 of the report on AEVB: posteriors of codes beyond Gaussians."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from experiments import Claim, Findings, Record, Runner, Table, experiment, seeded, train
from experiments.aevb.cells import DOCUMENT
from osculate import autoencoders
from osculate.autoencoders import ELBO, VAE
from osculate.likelihoods import Gaussian

#: Size of the encoder's output for posteriors that are not Gaussian.
NUMBERS = 8
#: Posteriors of a two-dimensional code by name, with the size of the encoder's output.
POSTERIORS: Mapping[str, tuple[int, Callable[[], autoencoders.CodePosterior]]] = {
    "Gaussian": (4, autoencoders.GaussianCodes),
    "semi-implicit": (NUMBERS, lambda: autoencoders.SemiImplicitCodes(2, NUMBERS)),
    "adversarial": (NUMBERS, lambda: autoencoders.AdversarialCodes(2, NUMBERS)),
    "normalising flow": (NUMBERS, lambda: autoencoders.FlowCodes(2, NUMBERS)),
}
BOUND, GAP, KL = "bound on log p(x), nats", "log p(x) less the bound, nats", "KL(histogram of draws ‖ posterior), nats"
#: Half the side of the square on which the exact posterior is integrated, and its number of cells along a side.
REACH, CELLS = 5.0, 400
#: Cells of a histogram of draws along a side.
COARSE = 50


class Ring(nn.Module):
    """f(z) = ‖z‖: all codes at one distance give one image."""

    def forward(self, z: Float[Tensor, "N 2"]) -> Float[Tensor, "N 1"]:
        """Return the distance from the origin."""
        return z.square().sum(1, keepdim=True).clamp(min=1e-12).sqrt()


class Corners(nn.Module):
    """f(z) = (|z₁|, |z₂|): four codes give one image."""

    def forward(self, z: Float[Tensor, "N 2"]) -> Float[Tensor, "N 2"]:
        """Return the distances from both axes."""
        return z.abs()


#: Models with a posterior that is not Gaussian, and images of each.
MODELS: Mapping[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "ring": (Ring, torch.tensor([[1.0], [1.5], [2.0]])),
    "four corners": (Corners, torch.tensor([[1.0, 1.0], [1.5, 0.8], [0.8, 1.5]])),
}


@dataclass(frozen=True)
class Settings:
    """Models, posteriors and training.

    Args:
        models: Models, keys of :data:`MODELS`.
        posteriors: Posteriors, keys of :data:`POSTERIORS`.
        noise: Noise scale of the images.
        epochs: Steps of training.
        lr: Initial learning rate.
        copies: Copies of each image in a step.
        draws: Codes drawn for bounds and histograms.
    """

    models: tuple[str, ...] = tuple(MODELS)
    posteriors: tuple[str, ...] = tuple(POSTERIORS)
    noise: float = 0.2
    epochs: int = 3_000
    lr: float = 3e-3
    copies: int = 32
    draws: int = 20_000


@experiment(
    "aevb-implicit",
    "Posteriors of codes that need not be Gaussian",
    f"{DOCUMENT}, section 7.2",
    paper=Settings(epochs=20_000),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Train q alone; p(x, z) is fixed, and log p(x) known by quadrature."""
    jobs = [(model, name, seed) for model in settings.models for name in settings.posteriors for seed in seeds]
    found = runner.over("trainings", jobs, partial(fitted, settings), "q")
    table = Table.of(found, ": ".join, lambda run: run["values"])
    shown = {}
    for model in settings.models:
        shown[model] = {name: runs[0]["draws"] for (other, name), runs in found.items() if other == model}
        shown[model]["exact"] = _coarse(exact(model, settings.noise)[1][0].exp()).tolist()
    evidence = "log p(x) is by quadrature. The semi-implicit bound counts 51 components in place of all."
    claims = [Claim.over_seeds(f"{model}: bound of an implicit posterior", evidence) for model in settings.models]
    return Findings(table.numbers((BOUND, GAP, KL)), claims, {"posteriors": shown})


def exact(model: str, noise: float) -> tuple[Float[Tensor, " N"], Float[Tensor, "N G G"]]:
    """Return log p(x), and the log posterior probability of each cell of the square, by the midpoint rule."""
    decoder, x = MODELS[model][0](), MODELS[model][1].double()
    line = (torch.arange(CELLS, dtype=torch.double) + 0.5) * (2 * REACH / CELLS) - REACH
    z = torch.cartesian_prod(line, line)
    prior = -0.5 * z.square().sum(1) - math.log(2 * math.pi) + 2 * math.log(2 * REACH / CELLS)
    f = decoder(z)
    joint = torch.stack([Gaussian(noise).log_prob(f, each.expand_as(f)) for each in x]) + prior
    evidence = joint.logsumexp(1)
    return evidence, (joint - evidence.unsqueeze(1)).unflatten(1, (CELLS, CELLS))


def _coarse(cells: Float[Tensor, "G G"]) -> Float[Tensor, "c c"]:
    step = CELLS // COARSE
    return cells.unflatten(0, (COARSE, step)).unflatten(2, (COARSE, step)).sum((1, 3))


def fitted(settings: Settings, model: str, name: str, seed: int) -> dict[str, Any]:
    """Train a posterior, and return its values and the histogram of its draws for the first image."""
    numbers, make = POSTERIORS[name]
    decoder, x = MODELS[model]
    likelihood = Gaussian(settings.noise)
    with seeded(seed):
        encoder = nn.Sequential(nn.Linear(x.shape[1], 32), nn.Tanh(), nn.Linear(32, numbers))
        net = VAE(encoder, decoder(), make())
    copies = x.repeat(settings.copies, 1)
    how = {"epochs": settings.epochs, "batch_size": len(copies), "lr": settings.lr, "schedule": "cosine"}
    train(ELBO(net, likelihood, 1e-6), (copies, copies), **how, seed=seed)
    evidence, posterior = exact(model, settings.noise)
    values: dict[str, float] = {}
    with torch.no_grad(), seeded(seed):
        z = net.posterior.codes(net.code(x), samples=settings.draws)
        cells, ends = [COARSE, COARSE], [-REACH, REACH, -REACH, REACH]
        drawn = [torch.histogramdd(z[:, n].double(), cells, ends).hist / len(z) for n in range(len(x))]
        true = [_coarse(each.exp()) for each in posterior]
        values[KL] = sum(_divergence(a, b) for a, b in zip(drawn, true, strict=True)) / len(x)
        if net.posterior.has_density:
            parts = [
                autoencoders.estimates(net, likelihood, x, None, "A", 500) for _ in range(max(1, settings.draws // 500))
            ]
            values[BOUND] = float(torch.stack(parts).mean())
            values[GAP] = float(evidence.mean()) - values[BOUND]
    return {"values": values, "draws": (drawn[0] / drawn[0].sum()).tolist()}


def _divergence(drawn: Tensor, true: Tensor) -> float:
    """Return the KL divergence between cells; the draws' noise makes it a little too large."""
    filled = drawn > 0
    return float((drawn[filled] * (drawn[filled].log() - true[filled].clamp(min=1e-30).log())).sum())


@measure.figure
def draw(record: Record) -> Any:
    """Draw the exact posterior of one image and those of the families: a row per model."""
    from experiments.aevb import figures

    shown = {
        model: {name: np.array(cells) for name, cells in by.items()}
        for model, by in record.findings.data["posteriors"].items()
    }
    return figures.posteriors(shown, REACH, "Posteriors of two codes: where codes of one image lie")
