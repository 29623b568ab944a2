"""Figure 8 of [miani2022]: the plane of codes by the posteriors of Table 2, post-hoc and online."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from experiments import Findings, Record, experiment
from experiments.lae import table2 as lae_table2
from experiments.lae.maps import draw_maps, measure_maps
from experiments.lae.table2 import ONLINE_APPROX, ONLINE_EXACT, posteriors_of_the_table
from osculate.autoencoders import Representation


@dataclass(frozen=True)
class Settings(lae_table2.Settings):
    """As in Table 2."""


PRESETS = {"small": Settings(samples=50), "paper": Settings(**vars(lae_table2.PRESETS["paper"]))}


@experiment(
    "lae-figure8",
    "The plane of codes by the posteriors of Table 2",
    "Laplacian Autoencoders [miani2022], Figure 8",
    **PRESETS,
)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """A map by each posterior of Table 2, of the first seed, and its contrast."""
    return measure_maps(
        settings,
        settings.samples,
        seeds,
        progress,
        lambda models: {n: Representation(q) for n, q in posteriors_of_the_table(models, settings).items()},
        "Posteriors trained online are unsure away from the codes of the data",
        (ONLINE_EXACT, ONLINE_APPROX),
    )


@measure.figure
def draw(record: Record) -> Any:
    """One panel a posterior."""
    return draw_maps(
        record,
        "Codes of test digits, and how unsure the decoder is around them: post-hoc at T = 1, online at T = 1/500",
    )
