"""Figure 1 of [miani2022]: the plane of codes of digits, and where a Laplacian autoencoder is unsure of them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments import Findings, Record, experiment
from experiments.lae import models as lae_models
from experiments.lae.maps import draw_maps, measure_maps
from experiments.lae.models import DROPOUT, ENSEMBLE, LONG, ONLINE, POST_HOC


@dataclass(frozen=True)
class Settings(lae_models.Training):
    """How the plane is drawn.

    Args:
        samples: networks drawn.
    """

    samples: int = 50


PRESETS = {"small": Settings(), "paper": Settings(train_size=55_000, validation_size=5_000, fit=LONG, samples=100)}
METHODS = (ONLINE, POST_HOC, ENSEMBLE, DROPOUT)


@experiment(
    "lae-figure1",
    "The plane of codes, and where the decoder is unsure",
    "Laplacian Autoencoders [miani2022], Figure 1",
    **PRESETS,
)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """A map by each method with random weights, of the first seed, and its contrast."""
    return measure_maps(
        settings,
        settings.samples,
        seeds,
        progress,
        lambda models: {method: models.representation(method) for method in METHODS},
        "A Laplacian autoencoder is sure of the images that codes of the data stand for, and unsure away from them",
        (ONLINE,),
    )


@measure.figure
def draw(record: Record) -> Any:
    """One panel a method."""
    return draw_maps(record, "Codes of test digits, and how unsure the decoder is around them")
