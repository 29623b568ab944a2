"""The plane of codes, with how unsure the decoder is at each place: what Figures 1 and 8 of [miani2022] show."""

from collections.abc import Callable, Mapping, Sequence
from statistics import mean
from typing import Any

import numpy as np

from experiments import Claim, Findings, Number, Record
from experiments.lae.models import Models, Training
from osculate.autoencoders import LatentMap, Representation
from osculate.progress import track

#: Codes that are drawn.
CODES = 600
AWAY = "σ of the output away from codes over that at codes"


def measure_maps(
    settings: Training,
    samples: int,
    seeds: Sequence[int],
    progress: bool,
    shown: Callable[[Models], Mapping[str, Representation]],
    claim: str,
    claimed: Sequence[str],
) -> Findings:
    """A map by each representation, of the first seed, and the contrast of all.

    Args:
        settings: what is trained.
        samples: networks drawn.
        seeds: of the networks.
        progress: show a progress bar.
        shown: what is drawn, by name.
        claim: in words, that the contrasts of ``claimed`` are above one.
        claimed: names.
    """
    found: dict[str, list[float]] = {}
    data: dict[str, Any] = {}
    for seed in track(seeds, "seeds", len(seeds), progress):
        models = Models(settings, seed)
        maps = {name: LatentMap.of(r, models.test, samples) for name, r in shown(models).items()}
        for name, one in maps.items():
            found.setdefault(name, []).append(one.contrast())
        if seed == seeds[0]:
            labels = models.dataset.test[1][: settings.test_size][:CODES].tolist()
            data = {"maps": {name: _short(one) for name, one in maps.items()}, "labels": labels}
    numbers = tuple(Number(name, AWAY, tuple(values)) for name, values in found.items())
    listed = ", ".join(f"{name} {mean(values):.2f}" for name, values in found.items())
    evidence = f"mean σ at places without codes over that at places with some: {listed}."
    holds = all(mean(found[name]) > 1 for name in claimed)
    return Findings(numbers, (Claim.judged(claim, holds, evidence),), data)


def _short(one: LatentMap) -> dict[str, Any]:
    """What the figure needs, as a record keeps it."""
    return {
        "codes": np.round(one.codes[:CODES], 3).tolist(),
        "axes": [np.round(axis, 4).tolist() for axis in one.axes],
        "deviation": np.round(one.deviation, 5).tolist(),
    }


def draw_maps(record: Record, heading: str) -> Any:
    """One panel a method."""
    from osculate.plots import latent_map

    data: Mapping[str, Any] = record.findings.data
    maps = {
        name: LatentMap(
            np.asarray(one["codes"]),
            (np.asarray(one["axes"][0]), np.asarray(one["axes"][1])),
            np.asarray(one["deviation"]),
        )
        for name, one in data["maps"].items()
    }
    labels: Sequence[int] = data["labels"]
    words = "σ of the decoded image, mean over pixels"
    return latent_map(maps, np.asarray(labels), [str(k) for k in range(10)], words, heading, shared=False)
