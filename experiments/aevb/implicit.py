"""Section 7.2 of the report on AEVB: posteriors of codes that need not be Gaussian."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from experiments import Claim, Findings, Number, Record, experiment, seeded
from experiments.aevb.cells import DOCUMENT
from osculate.autoencoders import (
    ELBO,
    VAE,
    AdversarialCodes,
    CodePosterior,
    FlowCodes,
    GaussianCodes,
    SemiImplicitCodes,
    estimates,
)
from osculate.likelihoods import Gaussian
from osculate.progress import track
from osculate.training import train

#: Posteriors by name: of a code of two numbers, from an encoder that gives as many numbers as asked for.
NUMBERS = 8
POSTERIORS: Mapping[str, tuple[int, Callable[[], CodePosterior]]] = {
    "Gaussian": (4, GaussianCodes),
    "semi-implicit": (NUMBERS, lambda: SemiImplicitCodes(2, NUMBERS)),
    "adversarial": (NUMBERS, lambda: AdversarialCodes(2, NUMBERS)),
    "normalising flow": (NUMBERS, lambda: FlowCodes(2, NUMBERS)),
}
GAUSSIAN, IMPLICIT, ADVERSARIAL = "Gaussian", "semi-implicit", "adversarial"
#: Columns.
BOUND, GAP, KL = "bound on log p(x), nats", "log p(x) less the bound, nats", "KL(histogram of draws ‖ posterior), nats"
#: The square on which the exact posterior is integrated, and its cells along a side.
REACH, CELLS = 5.0, 400
#: The cells of a histogram of draws.
COARSE = 50


class Ring(nn.Module):
    """f(z) = ‖z‖: all codes at one distance give one image."""

    def forward(self, z: Float[Tensor, "N 2"]) -> Float[Tensor, "N 1"]:
        """The distance from the origin."""
        return z.square().sum(1, keepdim=True).clamp(min=1e-12).sqrt()


class Corners(nn.Module):
    """f(z) = (|z₁|, |z₂|): four codes give one image."""

    def forward(self, z: Float[Tensor, "N 2"]) -> Float[Tensor, "N 2"]:
        """The distances from both axes."""
        return z.abs()


#: Models whose posterior is no Gaussian, and images of each.
MODELS: Mapping[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "ring": (Ring, torch.tensor([[1.0], [1.5], [2.0]])),
    "four corners": (Corners, torch.tensor([[1.0, 1.0], [1.5, 0.8], [0.8, 1.5]])),
}


@dataclass(frozen=True)
class Settings:
    """What is trained.

    Args:
        models: keys of :data:`MODELS`.
        posteriors: keys of :data:`POSTERIORS`.
        noise: of the images.
        epochs: steps of training.
        lr: learning rate at the start.
        copies: of each image in a step.
        draws: of codes, for bounds and histograms.
    """

    models: tuple[str, ...] = tuple(MODELS)
    posteriors: tuple[str, ...] = tuple(POSTERIORS)
    noise: float = 0.2
    epochs: int = 3_000
    lr: float = 3e-3
    copies: int = 32
    draws: int = 20_000


PRESETS = {"small": Settings(), "paper": Settings(epochs=20_000)}


@experiment("aevb-implicit", "Posteriors of codes that need not be Gaussian", f"{DOCUMENT}, section 7.2", **PRESETS)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Only q is trained; p(x, z) is given, and log p(x) known by quadrature."""
    todo = [(model, name, seed) for model in settings.models for name in settings.posteriors for seed in seeds]
    found: dict[tuple[str, str], list[dict[str, float]]] = {}
    shown: dict[str, dict[str, list]] = {}
    for model, name, seed in track(todo, "trainings", len(todo), progress):
        values, picture = _fitted(settings, model, name, seed)
        found.setdefault((model, name), []).append(values)
        shown.setdefault(model, {}).setdefault(name, picture)
    for model in settings.models:
        shown[model]["exact"] = _coarse(_exact(model, settings.noise)[1][0].exp()).tolist()
    numbers = tuple(
        Number(f"{model}: {name}", column, tuple(run[column] for run in runs))
        for (model, name), runs in found.items()
        for column in (BOUND, GAP, KL)
        if column in runs[0]
    )
    return Findings(numbers, claims(found), {"posteriors": shown})


def _exact(model: str, noise: float) -> tuple[Float[Tensor, " N"], Float[Tensor, "N G G"]]:
    """log p(x), and the log posterior probability of each cell of the square, by the midpoint rule."""
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


def _fitted(settings: Settings, model: str, name: str, seed: int) -> tuple[dict[str, float], list]:
    numbers, make = POSTERIORS[name]
    decoder, x = MODELS[model]
    likelihood = Gaussian(settings.noise)
    with seeded(seed):
        encoder = nn.Sequential(nn.Linear(x.shape[1], 32), nn.Tanh(), nn.Linear(32, numbers))
        net = VAE(encoder, decoder(), make())
    every = x.repeat(settings.copies, 1)
    method = ELBO(net, likelihood, 1e-6)
    train(
        method,
        (every, every),
        epochs=settings.epochs,
        batch_size=len(every),
        lr=settings.lr,
        schedule="cosine",
        seed=seed,
        device="cpu",
        progress=False,
    )
    evidence, posterior = _exact(model, settings.noise)
    values: dict[str, float] = {}
    with torch.no_grad(), seeded(seed):
        z = net.posterior.codes(net.code(x), samples=settings.draws)
        drawn = [_histogram(z[:, n]) for n in range(len(x))]
        exact = [_coarse(each.exp()) for each in posterior]
        values[KL] = sum(_divergence(a, b) for a, b in zip(drawn, exact, strict=True)) / len(x)
        if net.posterior.has_density:
            parts = [estimates(net, likelihood, x, None, "A", 500) for _ in range(max(1, settings.draws // 500))]
            values[BOUND] = float(torch.stack(parts).mean())
            values[GAP] = float(evidence.mean()) - values[BOUND]
    return values, (drawn[0] / drawn[0].sum()).tolist()


def _histogram(z: Float[Tensor, "S 2"]) -> Float[Tensor, "c c"]:
    found = torch.histogramdd(z.double(), [COARSE, COARSE], [-REACH, REACH, -REACH, REACH]).hist
    return found / len(z)


def _divergence(drawn: Tensor, exact: Tensor) -> float:
    """KL between cells; the draws' noise makes it a little too large."""
    filled = drawn > 0
    return float((drawn[filled] * (drawn[filled].log() - exact[filled].clamp(min=1e-30).log())).sum())


def claims(found: Mapping[tuple[str, str], Sequence[Mapping[str, float]]]) -> tuple[Claim, ...]:
    """Verdicts on what free posteriors are worth, model by model."""
    models = dict.fromkeys(model for model, _ in found)
    return tuple(
        claim for model in models for claim in _of_model(model, {n: r for (m, n), r in found.items() if m == model})
    )


def _of_model(model: str, by: Mapping[str, Sequence[Mapping[str, float]]]) -> tuple[Claim, Claim]:
    gaps = [[run[GAP] for run in by.get(name, ())] for name in (IMPLICIT, GAUSSIAN)]
    divergences = {name: [run[KL] for run in runs] for name, runs in by.items()}
    usual = divergences.pop(GAUSSIAN, [])
    listed = ", ".join(f"{name} {sum(each) / len(each):.2f}" for name, each in divergences.items())
    return (
        Claim.judged(
            f"{model}: the bound of an implicit posterior is at least that of the Gaussian",
            max(gaps[0]) <= min(gaps[1]) if all(gaps) else None,
            f"log p(x), by quadrature, less the bound: {max(gaps[0]):.3f} nats in the worst of {len(gaps[0])} seeds, "
            f"against {min(gaps[1]):.3f} in the best. The semi-implicit bound counts 51 components in place of all."
            if all(gaps)
            else "not measured.",
        ),
        Claim.judged(
            f"{model}: posteriors that a network draws come nearer to the true one than the Gaussian",
            all(max(each) < min(usual) for each in divergences.values()) if usual and divergences else None,
            f"KL of a histogram of draws from the posterior: {listed}, Gaussian {sum(usual) / len(usual):.2f} nats."
            if usual
            else "not measured.",
        ),
    )


@measure.figure
def draw(record: Record) -> Any:
    """The exact posterior of one image and what each family makes of it: a row a model."""
    from experiments.aevb import figures

    shown = {
        model: {name: np.array(cells) for name, cells in by.items()}
        for model, by in record.findings.data["posteriors"].items()
    }
    return figures.posteriors(shown, REACH, "Posteriors of two codes: where codes of one image lie")
