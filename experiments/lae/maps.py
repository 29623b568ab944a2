"""Figures 1 and 8 of [miani2022]: the plane of codes of digits, with the decoder's uncertainty at each point."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from experiments import Findings, Record, Runner, Table, experiment
from experiments.lae import table2
from experiments.lae.models import DROPOUT, ENSEMBLE, LONG, ONLINE, POST_HOC, Models, Training
from osculate.autoencoders import LatentMap, Representation

#: Number of codes in the figure.
CODES = 600
AWAY = "σ of the output away from codes over that at codes"


@dataclass(frozen=True)
class Settings(Training):
    """Drawing of the plane.

    Args:
        samples: Number of sampled networks.
    """

    samples: int = 50


@dataclass(frozen=True)
class TableSettings(table2.Settings):
    """Settings of Table 2, with fewer samples."""

    samples: int = 50


@experiment(
    "lae-figure8",
    "The plane of codes by the posteriors of Table 2",
    "Laplacian Autoencoders [miani2022], Figure 8",
    paper=TableSettings(**vars(table2.measure.presets["paper"])),
)
def figure8(settings: TableSettings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Map the plane by each posterior of Table 2."""

    def representations(models: Models) -> dict[str, Representation]:
        return {name: Representation(q) for name, q in table2.posteriors_of_the_table(models, settings).items()}

    return _measure(settings, seeds, runner, representations)


@experiment(
    "lae-figure1",
    "The plane of codes, and where the decoder is unsure",
    "Laplacian Autoencoders [miani2022], Figure 1",
    paper=Settings(train_size=55_000, validation_size=5_000, fit=LONG, samples=100),
)
def figure1(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Map the plane by each method with random weights."""

    def representations(models: Models) -> dict[str, Representation]:
        return {method: models.representation(method) for method in (ONLINE, POST_HOC, ENSEMBLE, DROPOUT)}

    return _measure(settings, seeds, runner, representations)


def _measure(
    settings: Settings | TableSettings,
    seeds: Sequence[int],
    runner: Runner,
    representations: Callable[[Models], Mapping[str, Representation]],
) -> Findings:
    """Measure the contrast of all maps, and keep those of the first seed."""
    table, data = Table(), dict[str, Any]()

    def mapped(seed: int) -> tuple[dict[str, float], dict[str, Any]]:
        models = Models(settings, seed)
        maps = {name: LatentMap.of(r, models.test, settings.samples) for name, r in representations(models).items()}
        shown = {name: recorded(one) for name, one in maps.items()}
        labels = models.dataset.test[1][: settings.test_size][:CODES].tolist()
        return {name: one.contrast() for name, one in maps.items()}, {"maps": shown, "labels": labels}

    for contrasts, shown in runner.each("seeds", zip(seeds), mapped):
        table.append({(name, AWAY): value for name, value in contrasts.items()})
        data = data or shown
    return Findings(table.numbers(), (), data)


def recorded(one: LatentMap) -> dict[str, Any]:
    """Return a map as a record keeps it, with a part of its codes."""
    return {
        "codes": np.round(one.codes[:CODES], 3).tolist(),
        "axes": [np.round(axis, 4).tolist() for axis in one.axes],
        "deviation": np.round(one.deviation, 5).tolist(),
    }


HEADING = "Codes of test digits, and the uncertainty of the decoder around them"


def draw(record: Record, heading: str = HEADING) -> Any:
    """Draw one panel per method."""
    from osculate.plots import latent_map

    data = record.findings.data
    maps = {}
    for name, one in data["maps"].items():
        horizontal, vertical = map(np.asarray, one["axes"])
        maps[name] = LatentMap(np.asarray(one["codes"]), (horizontal, vertical), np.asarray(one["deviation"]))
    digits = [str(k) for k in range(10)]
    return latent_map(maps, np.asarray(data["labels"]), digits, heading=heading)


figure1.figure(draw)
figure8.figure(partial(draw, heading=f"{HEADING}: post-hoc at T = 1, online at T = 1/500"))
