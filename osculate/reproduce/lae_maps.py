"""The plane of codes, with how unsure the decoder is at each place: what Figures 1 and 8 of [miani2022] show."""

from collections.abc import Callable, Mapping, Sequence
from statistics import mean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from osculate.autoencoders import Representation
from osculate.progress import track
from osculate.reproduce.lae_models import Models, Training
from osculate.reproduce.record import Claim, Findings, Number, Record

#: Places along each axis, and by how much the plane is larger than the range of the codes.
PLACES, MARGIN = 32, 0.3
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
        models, maps = Models(settings, seed), {}
        for name, r in shown(models).items():
            maps[name], contrast = latent_data(r, models.test, samples)
            found.setdefault(name, []).append(contrast)
        if seed == seeds[0]:
            data = {"maps": maps, "labels": models.dataset.test[1][: settings.test_size][:CODES].tolist()}
    numbers = tuple(Number(name, AWAY, tuple(values)) for name, values in found.items())
    listed = ", ".join(f"{name} {mean(values):.2f}" for name, values in found.items())
    evidence = f"mean σ at places without codes over that at places with some: {listed}."
    holds = all(mean(found[name]) > 1 for name in claimed)
    return Findings(numbers, (Claim.judged(claim, holds, evidence),), data)


def latent_data(r: Representation, x: Tensor, samples: int) -> tuple[dict[str, Any], float]:
    """A map for a figure, and σ of the output away from codes over that at codes.

    Args:
        r: with two-dimensional codes.
        x: test images.
        samples: networks drawn.

    Returns:
        Codes, axes and deviations (mean over pixels) as lists; and the mean deviation over places of the grid whose
        cell holds no code, over that of those that hold one.
    """
    codes = r.encode(x, samples, torch.Generator().manual_seed(0)).mean
    low, high = codes.amin(0), codes.amax(0)
    room = MARGIN * (high - low)
    axes = [torch.linspace(float(a), float(b), PLACES) for a, b in zip(low - room, high + room, strict=True)]
    grid = torch.cartesian_prod(axes[1], axes[0]).flip(1)
    image = r.decode(grid.to(codes), samples, torch.Generator().manual_seed(0))
    deviation = image.weight_variance.sqrt().flatten(1).mean(1).reshape(PLACES, PLACES)
    cells = [((codes[:, k] - axes[k][0]) / (axes[k][1] - axes[k][0])).round().long() for k in (0, 1)]
    taken = torch.zeros(PLACES, PLACES, dtype=torch.bool)
    taken[cells[1], cells[0]] = True
    data = {
        "codes": np.round(codes[:CODES].double().numpy(), 3).tolist(),
        "axes": [np.round(axis.double().numpy(), 4).tolist() for axis in axes],
        "deviation": np.round(deviation.double().numpy(), 5).tolist(),
    }
    return data, float(deviation[~taken].mean() / deviation[taken].mean())


def draw_maps(record: Record, heading: str) -> Any:
    """One panel a method."""
    from osculate.plots import LatentMap, latent_map

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
