"""Table 2 of [miani2022]: post-hoc and online Laplacian autoencoders, at the published and at equal temperatures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

import osculate as osc
from experiments import Claim, Findings, Record, Runner, Table, experiment, paired, printed
from experiments.lae import models as lae_models
from experiments.lae.models import EXACT, GRADIENT, LONG, ONLINE, Models
from osculate.autoencoders import Representation
from osculate.methods.online_laplace import PUBLISHED_TEMPERATURE


@dataclass(frozen=True)
class Settings(lae_models.Training):
    """The published autoencoder, on part of MNIST.

    Args:
        samples: Number of sampled networks for the table.
        curve_samples: Number of sampled networks for each point of a curve.
        temperatures: Temperatures of the curves, at noise scale 1 and prior precision 1.
        columns: Number of images whose exact curvature stands for that of all.
        outside: Out-of-distribution data set.
    """

    samples: int = 100
    curve_samples: int = 30
    test_size: int = 1_000
    temperatures: tuple[float, ...] = (1e-4, 5e-4, PUBLISHED_TEMPERATURE, 0.01, 0.03, 0.1, 0.3, 1.0)
    columns: int = 500
    outside: str = "KMNIST"


NLL, MSE = "−log p (squared error of drawn networks, summed)", "squared error of their mean"
#: Rows of the table, with what the document prints for both columns.
KFAC, DIAG, APPROX = "post-hoc, KFAC", "post-hoc, exact diagonal", "post-hoc, approximate diagonal"
ONLINE_EXACT, ONLINE_APPROX = "online, exact diagonal", "online, approximate diagonal"
ONLINE_GRADIENT = "online, diagonal of sampled gradients"
PRINTED = printed(
    (NLL, MSE),
    {
        KFAC: ("9683.9 ± 2455.0", "121.6 ± 24.5"),
        DIAG: ("283.3 ± 88.6", "27.1 ± 0.9"),
        APPROX: ("232.0 ± 65.5", "26.6 ± 0.6"),
        ONLINE_EXACT: ("25.8 ± 0.2", "25.7 ± 0.2"),
        ONLINE_APPROX: ("25.9 ± 0.4", "25.8 ± 0.4"),
    },
)
#: Curves, and their quantities.
CURVES = ("post-hoc", "online, average curvature", "online, recomputed")
SCORES = ("−log p", "σ of the output", "σ of the code")
#: Warm and cold ends of what is compared at equal temperature.
WARM, COLD = 0.1, PUBLISHED_TEMPERATURE

Row = dict[str, float]
#: Squared errors of each image, summed over its pixels.
Losses = dict[str, Tensor]


@experiment(
    "lae-table2",
    "Online and post-hoc Laplacian autoencoders, and what temperature makes of them",
    "Laplacian Autoencoders [miani2022], Table 2",
    paper=Settings(
        train_size=55_000, validation_size=5_000, test_size=5_000, fit=replace(LONG, every=1), columns=55_000
    ),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """The table, and the curves over temperatures, for each seed."""
    table, at_temperatures = Table(), Table()
    curves: dict[str, list[list[Row]]] = {name: [] for name in CURVES}
    losses: dict[tuple[str, str], list[Tensor]] = {}

    def measured(seed: int) -> tuple[dict[str, Losses], dict[str, list[tuple[Row, Tensor]]]]:
        models = Models(settings, seed)
        every = posteriors_of_the_table(models, settings)
        rows = {name: _errors(q, models.test, settings.samples) for name, q in every.items()}
        outside = models.outside[settings.outside]
        likelihood, data = osc.likelihoods.Gaussian(1.0), (models.train, models.train)
        online = models.online()
        # approximate diagonals, noise scale 1 and prior precision 1
        posteriors = (
            osc.laplace(models.autoencoder(), likelihood, data, structure="approx_diag", prior=1.0, refine=False),
            models.running(),
            osc.laplace(online.model.eval(), likelihood, data, structure="approx_diag", prior=1.0, refine=False),
        )
        return rows, {
            name: [
                _scores(q.replace(temperature=value), models.test, outside, settings.curve_samples)
                for value in settings.temperatures
            ]
            for name, q in zip(CURVES, posteriors, strict=True)
        }

    for rows, lines in runner.each("seeds", zip(seeds), measured):
        for name, columns in rows.items():
            table.add(name, {column: float(each.mean()) for column, each in columns.items()})
            for column, each in columns.items():
                losses.setdefault((name, column), []).append(each)
        for name, line in lines.items():
            curves[name].append([point for point, _ in line])
            for value, (point, each) in zip(settings.temperatures, line, strict=True):
                at_temperatures.add(f"{name}, T = {value:.3g}", point)
                losses.setdefault((f"{name}, T = {value:.3g}", NLL), []).append(each)
    found = {"temperatures": list(settings.temperatures), "outside": settings.outside, "curves": curves}
    found[paired.ERRORS] = errors_of_ratios(losses)
    numbers = (*table.numbers(printed=PRINTED), *at_temperatures.numbers())
    return Findings(numbers, claims(table), found)


def errors_of_ratios(losses: Mapping[tuple[str, str], Sequence[Tensor]]) -> dict[str, float]:
    """Return the errors over test images of the logarithms of the ratios that the claims compare, by their names."""
    rows = dict.fromkeys(row for row, _ in losses)
    drawn = [row for row in rows if (row, MSE) in losses]
    found = {paired.columns_of(row, NLL, MSE): ((row, NLL), (row, MSE)) for row in drawn}
    pairs = [(APPROX, DIAG), (ONLINE_APPROX, ONLINE_EXACT), (ONLINE_GRADIENT, ONLINE_APPROX)]
    found |= {paired.beside(*pair, c): ((pair[0], c), (pair[1], c)) for pair in pairs for c in (NLL, MSE)}
    post_hoc, _, recomputed = CURVES
    for value in (COLD, WARM):
        both = f"{post_hoc}, T = {value:.3g}", f"{recomputed}, T = {value:.3g}"
        if both[0] in rows:
            found[paired.beside(*both, NLL)] = (both[0], NLL), (both[1], NLL)
    return {name: float(f"{paired.ratio_error(losses[a], losses[b]):.3g}") for name, (a, b) in found.items()}


def posteriors_of_the_table(models: Models, settings: Settings) -> dict[str, osc.posteriors.Gaussian]:
    """The posteriors of the table: post-hoc at T = 1 with the prior of the evidence, online as published."""
    net, x, likelihood = models.autoencoder(), models.train, osc.likelihoods.Gaussian(1.0)
    part = x[: settings.columns]
    share = len(part) / len(x)  # at this temperature the curvature of a part counts as that of all

    def fitted(structure: str, images: Tensor, temperature: float) -> osc.posteriors.Gaussian:
        q = osc.laplace(net, likelihood, (images, images), structure=structure, prior=1.0, refine=False)
        return osc.maximise_evidence(q.replace(temperature=temperature), noise=False)

    return {
        KFAC: fitted("kron", part, share),
        DIAG: fitted("diag", part, share),
        APPROX: fitted("approx_diag", x, 1.0),
        ONLINE_EXACT: models.running(EXACT),
        ONLINE_APPROX: models.running(ONLINE),
        ONLINE_GRADIENT: models.running(GRADIENT),
    }


@torch.no_grad()
def _errors(q: osc.posteriors.Gaussian, x: Tensor, samples: int) -> Losses:
    """Squared errors of each image: of each drawn network, averaged, and of the mean over networks."""
    total, average = torch.zeros(len(x)), torch.zeros_like(x)
    for network in Representation(q).networks(samples, torch.Generator().manual_seed(0)):
        found = network(x)
        total += (found - x).square().flatten(1).sum(1) / samples
        average += found / samples
    return {NLL: total, MSE: (average - x).square().flatten(1).sum(1)}


@torch.no_grad()
def _scores(q: osc.posteriors.Gaussian, inside: Tensor, outside: Tensor, samples: int) -> tuple[Row, Tensor]:
    """Return squared errors, and how well three scores detect out-of-distribution images; and each image's error."""
    found = {}
    for name, x in (("inside", inside), ("outside", outside)):
        codes, images = Representation(q).represent(x, samples, generator=torch.Generator().manual_seed(0))
        errors = (images.samples - x).square().flatten(2).sum(2)
        found[name] = (
            errors.mean(0),
            images.weight_variance.sqrt().flatten(1).sum(1),
            codes.weight_variance.sqrt().sum(1),
        )
        if name == "inside":
            mse = float((images.mean - x).square().flatten(1).sum(1).mean())
    areas = {
        f"AUROC by {score}": osc.metrics.auroc(a, b)
        for score, a, b in zip(SCORES, found["inside"], found["outside"], strict=True)
    }
    losses = found["inside"][0]
    return {NLL: float(losses.mean()), MSE: mse, **areas}, losses


def claims(table: Table) -> tuple[Claim, ...]:
    """Return what the table does not say about its temperatures and its curvature."""
    factor = table.mean(APPROX, NLL) / table.mean(ONLINE_APPROX, NLL)
    return (
        Claim.over_seeds(
            "Networks drawn after training",
            "Post-hoc at temperature 1 with the prior by the evidence, online at the temperature that the published "
            "code has in effect, 1/500.",
        ),
        Claim.over_seeds("Curvature from sampled gradients", "It takes no pass of its own."),
        Claim.over_seeds(
            "Equal temperature", f"In the document's rows temperatures differ, and the ratio is {factor:.3g}."
        ),
    )


@measure.figure
def draw(record: Record) -> Any:
    """−log p and AUROC against temperature."""
    from experiments.figures import against

    data = record.findings.data
    quantities = {"squared error per image, summed over pixels": NLL}
    quantities |= {f"AUROC against {data['outside']} by {score}": f"AUROC by {score}" for score in SCORES[1:]}
    panels = {
        quantity: {
            name: [[point[column] for point in seed] for seed in found] for name, found in data["curves"].items()
        }
        for quantity, column in quantities.items()
    }
    return against(
        "temperature T of the posterior",
        data["temperatures"],
        panels,
        "At equal temperature, online and post-hoc Laplacian autoencoders hardly differ",
        marks={"published, online": PUBLISHED_TEMPERATURE, "published, post-hoc": 1.0},
    )
