"""Figure 1 of S0: the plane of codes of digits, and where a Laplacian autoencoder does not know what they mean."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from osculate.progress import track
from osculate.reproduce import lae_models
from osculate.reproduce._base import Reproduction
from osculate.reproduce.lae_maps import CODES, draw_maps, latent_data
from osculate.reproduce.lae_models import DROPOUT, ENSEMBLE, LONG, ONLINE, POST_HOC, Models
from osculate.reproduce.record import Claim, Findings, Number, Record


@dataclass(frozen=True)
class Settings(lae_models.Training):
    """How the plane is drawn.

    Args:
        samples: networks drawn.
    """

    samples: int = 50


PRESETS = {"small": Settings(), "paper": Settings(train_size=55_000, validation_size=5_000, fit=LONG, samples=100)}
METHODS = (ONLINE, POST_HOC, ENSEMBLE, DROPOUT)
AWAY = "σ of the output away from codes over that at codes"


def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """A map by each method with random weights, of the first seed, and its contrast."""
    found: dict[str, list[float]] = {}
    data: dict[str, Any] = {}
    for seed in track(seeds, "seeds", len(seeds), progress):
        models, maps = Models(settings, seed), {}
        for method in METHODS:
            maps[method], contrast = latent_data(models.representation(method), models.test, settings.samples)
            found.setdefault(method, []).append(contrast)
        if seed == seeds[0]:
            data = {"maps": maps, "labels": models.dataset.test[1][: settings.test_size][:CODES].tolist()}
    numbers = tuple(Number(method, AWAY, tuple(values)) for method, values in found.items())
    listed = ", ".join(f"{method} {mean(values):.2f}" for method, values in found.items())
    claim = Claim.judged(
        "A Laplacian autoencoder is sure of the images that codes of the data stand for, and unsure away from them",
        mean(found[ONLINE]) > 1,
        f"mean σ at places without codes over that at places with some: {listed}.",
    )
    return Findings(numbers, (claim,), data)


def draw(record: Record) -> Any:
    """One panel a method."""
    return draw_maps(record, "Codes of test digits, and how unsure the decoder is around them", shared=False)


REPRODUCTION = Reproduction(
    "lae-figure1", "The plane of codes, and where the decoder is unsure", "S0, Figure 1", PRESETS, measure, draw
)
