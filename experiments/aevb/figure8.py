"""Figure 8 of the report on AEVB: digits as plain and variational autoencoders give them back."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from experiments import Claim, Findings, Number, Record, Runner, experiment
from experiments.aevb.cells import DOCUMENT
from experiments.aevb.figure7 import every
from experiments.aevb.pairs import AE_DOCUMENT, AE_EQUAL, PRESETS, VAE_DOCUMENT, VAE_EQUAL, Settings
from osculate.progress import track

#: What is drawn of the networks of Figure 7.
SHOWN = (AE_DOCUMENT, VAE_DOCUMENT, AE_EQUAL, VAE_EQUAL)
ERROR = "mean squared error of the digits shown"
SHARPER = "share of digits whose image by the VAE is nearer"


@experiment(
    "aevb-figure8", "Digits given back by plain and variational autoencoders", f"{DOCUMENT}, Figure 8", **PRESETS
)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """One test digit of each class, by each network of the first seed."""
    runner, task = Runner(settings.cells, progress), settings.tasks[0]
    pairs = [p for p in every(settings, seeds[:1]) if p.task == task and p.name in SHOWN]
    x, y = task.load(seeds[0]).test
    digits = torch.stack([x[(y == label).nonzero()[0, 0]] for label in y.unique()])
    images: dict[str, list] = {"digits": _rounded(digits)}
    errors: dict[tuple[int, str], Any] = {}
    numbers = []
    for pair in track(pairs, "networks", len(pairs), progress):
        net, likelihood, _ = pair.trained(runner)
        with torch.no_grad():
            back = likelihood.distribution(net(digits)).mean
        row = f"{pair.coders.latent} codes, {pair.name}"
        images[row] = _rounded(back)
        errors[pair.coders.latent, pair.name] = each = (back - digits).square().flatten(1).sum(1)
        numbers.append(Number(row, ERROR, (float(each.mean()),)))
    return Findings(tuple(numbers), claims(errors, settings), {"images": images}, runner.seconds)


def _rounded(images: torch.Tensor) -> list:
    return (100 * images).round().clamp(0, 100).int().tolist()


def claims(errors: Any, settings: Settings) -> tuple[Claim, ...]:
    """The verdict on single digits, of both protocols."""
    verdicts = []
    for plain, variational, where in (
        (AE_DOCUMENT, VAE_DOCUMENT, "trained as the document does"),
        (AE_EQUAL, VAE_EQUAL, "on equal terms (ours)"),
    ):
        shares = {
            latent: float((errors[latent, variational] < errors[latent, plain]).double().mean())
            for latent in settings.latents
            if {(latent, plain), (latent, variational)} <= errors.keys()
        }
        told = ", ".join(f"{share:.0%} ({latent} codes)" for latent, share in shares.items())
        verdicts.append(
            Claim.judged(
                f"In general the VAE's digits are more similar to the original, {where}",
                all(share > 0.5 for share in shares.values()) if shares else None,
                f"{SHARPER}, by squared error: {told or 'not measured'}.",
            )
        )
    return tuple(verdicts)


@measure.figure
def draw(record: Record) -> Any:
    """A row for each network, with the error of each digit."""
    from osculate import plots

    rows = {name: np.array(images) / 100 for name, images in record.findings.data["images"].items()}
    digits = rows["digits"]
    captions = {
        name: [f"{error:.1f}" for error in np.square(images - digits).sum((1, 2, 3))]
        for name, images in rows.items()
        if name != "digits"
    }
    heading = "Test digits given back through few numbers, and their squared errors"
    return plots.image_grid(rows, heading, (0.0, 1.0), captions=captions)
