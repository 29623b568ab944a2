"""Figure 8 of S0: the plane of codes by five posteriors, post-hoc and online."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from osculate.autoencoders import Representation
from osculate.progress import track
from osculate.reproduce import lae_table2
from osculate.reproduce._base import Reproduction
from osculate.reproduce.lae_maps import CODES, draw_maps, latent_data
from osculate.reproduce.lae_models import Models
from osculate.reproduce.lae_table2 import ONLINE_APPROX, ONLINE_EXACT, posteriors_of_the_table
from osculate.reproduce.record import Claim, Findings, Number, Record


@dataclass(frozen=True)
class Settings(lae_table2.Settings):
    """As in Table 2."""


PRESETS = {"small": Settings(samples=50), "paper": Settings(**vars(lae_table2.PRESETS["paper"]))}
AWAY = "σ of the output away from codes over that at codes"


def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """A map by each posterior of Table 2, of the first seed, and its contrast."""
    found: dict[str, list[float]] = {}
    data: dict[str, Any] = {}
    for seed in track(seeds, "seeds", len(seeds), progress):
        models, maps = Models(settings, seed), {}
        for name, q in posteriors_of_the_table(models, settings).items():
            maps[name], contrast = latent_data(Representation(q), models.test, settings.samples)
            found.setdefault(name, []).append(contrast)
        if seed == seeds[0]:
            data = {"maps": maps, "labels": models.dataset.test[1][: settings.test_size][:CODES].tolist()}
    numbers = tuple(Number(name, AWAY, tuple(values)) for name, values in found.items())
    online = [mean(found[name]) for name in (ONLINE_EXACT, ONLINE_APPROX)]
    listed = ", ".join(f"{name} {mean(values):.2f}" for name, values in found.items())
    claim = Claim.judged(
        "Posteriors trained online are unsure away from the codes of the data",
        all(value > 1 for value in online),
        f"mean σ at places without codes over that at places with some: {listed}.",
    )
    return Findings(numbers, (claim,), data)


def draw(record: Record) -> Any:
    """One panel a posterior."""
    heading = "Codes of test digits, and how unsure the decoder is around them: post-hoc at T = 1, online at T = 1/500"
    return draw_maps(record, heading, shared=False)


REPRODUCTION = Reproduction(
    "lae-figure8", "The plane of codes by five posteriors", "S0, Figure 8", PRESETS, measure, draw
)
