"""The report of a reconstruction: numbers, pictures and their explanations."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.cli.measurement import Measured
from osculate.cli.page import write_page
from osculate.cli.tables import Measure
from osculate.inverse import ImageReconstruction
from osculate.inverse.reconstruct import UNFITTED
from osculate.inverse.scores import LEVELS, covered, error_correlation, grouped, psnr

#: Warning for a network that has not fitted the data.
UNFITTED_WORDS = (
    "The network has not fitted the data (the residual is above the noise): its image is biased, and error bars leave "
    "such a bias out. Train for more steps, and check scale and noise."
)
#: Files in the folder, and what they hold.
FILES = {
    "reconstruction.npz": "mean, standard deviation and whole sampled images",
    "metrics.json": "the numbers",
    "config.yaml": "the settings, which --config reads",
    "deep_image_prior.safetensors": "the network, which --resume uses",
}
#: Share of the guessed largest value above which pixels may be brighter.
TOUCHING = 0.95
#: Names of the figures, in their order.
FIGURES = ("error_maps", "samples", "calibration", "training")


def described(given: Measured, result: ImageReconstruction) -> dict[str, str]:
    """The inputs of the reconstruction, given or guessed, in words."""
    share = 100 * result.noise / float(given.data.abs().mean())
    return {
        "operator": type(given.operator).__name__,
        "measurements": _sides(given.operator.data_shape),
        "image": f"{_sides(given.operator.image_shape)} pixels",
        "largest value": f"{given.scale:.3g}, {'guessed' if given.guessed else 'given'}",
        "noise": f"{result.noise:.3g} ({share:.0f} % of the mean absolute measurement), "
        + ("estimated" if given.noise is None else "given"),
    }


def ceiling(given: Measured, result: ImageReconstruction) -> str | None:
    """A warning if the image reaches the guessed largest value."""
    if not given.guessed or float(result.mean.max()) < TOUCHING * given.scale:
        return None
    return (
        f"the brightest pixels reach {given.scale:.3g}, the guessed largest value, and may be brighter: give the "
        "largest value with --scale"
    )


def white(given: Measured, result: ImageReconstruction) -> float:
    """The value of white in figures: the given largest value, or the largest pixel."""
    shown = [result.mean] if given.truth is None else [result.mean, given.truth]
    return max(float(image.max()) for image in shown) if given.guessed else given.scale


def _sides(shape: Sequence[int]) -> str:
    return " × ".join(f"{size:,}" for size in shape)


def numbers(given: Measured, result: ImageReconstruction) -> dict[str, float]:
    """Scores of a reconstruction, including those against the truth if it is known."""
    residual = result.fitted.misfit(given.operator, given.data / given.scale) * given.scale**2 / result.noise**2
    found = {"sigma": result.noise, "mean_stddev": float(result.stddev.mean()), "residual": residual}
    if given.truth is None:
        return found
    truth = given.truth.to(result.mean)
    posterior = result.posterior
    if bool(truth.max() > truth.min()):
        found["psnr"] = psnr(result.mean, truth)
    return found | {
        "pixel_rmse": float((result.mean - truth).square().mean().sqrt()),
        "coverage_95": covered(posterior, truth, (0.95,))[0],
        "error_correlation": error_correlation(posterior, truth),
        "pixel_log_density": float(posterior.patch_log_prob(truth)) / truth.numel(),
    }


def figures(
    folder: Path, given: Measured, result: ImageReconstruction, draws: Float[Tensor, "S H W"]
) -> dict[str, Path]:
    """Draw the figures."""
    from osculate import plots

    mean, deviation = result.mean.cpu(), result.stddev.cpu()
    truth = None if given.truth is None else given.truth.double()
    made = {
        "error_maps": plots.error_maps(
            truth,
            {"linearised deep image prior": (mean, deviation)},
            "Where is the reconstruction uncertain?",
            white=white(given, result),
        ),
        "samples": plots.image_grid(
            {"": torch.cat([mean[None], draws[:7]])[:, None]},
            "The reconstruction, and other images that fit the data",
            limits=(white(given, result), 0.0),
            captions={"": ["reconstruction", *[f"draw {n + 1}" for n in range(len(draws[:7]))]]},
        ),
        "training": plots.residuals(
            result.fitted.misfits,
            (result.noise / given.scale) ** 2,
            result.fitted.step,
            "Fit of the network",
            given.noise is None,
        ),
    }
    if truth is not None:
        name = "linearised deep image prior"
        shares = {name: covered(result.posterior, truth.to(result.mean))}
        groups = {name: grouped(mean - truth, deviation)}
        made["calibration"] = plots.image_calibration(LEVELS, shares, groups, "Are the error bars calibrated?")
    return {name: plots.save(made[name], folder / f"{name}.png") for name in FIGURES if name in made}


def report(
    path: Path,
    given: Measured,
    result: ImageReconstruction,
    scores: Mapping[str, float],
    drawn: Mapping[str, Path],
    command: str,
) -> None:
    """Write the page.

    Args:
        path: Path of the page.
        given: Measurement.
        result: The reconstruction.
        scores: Scores of the reconstruction.
        drawn: Paths of the figures.
        command: The command that repeats the run.
    """
    guessed = ceiling(given, result)
    write_page(
        path,
        "An image from few measurements, and where it can be trusted",
        command,
        template="reconstruction",
        files=FILES,
        facts={"given": described(given, result), "seconds": result.seconds},
        figures=drawn,
        count=_sides(given.operator.data_shape),
        operator=type(given.operator).__name__,
        pixels=_sides(given.operator.image_shape),
        warnings=[UNFITTED_WORDS] * (scores["residual"] > UNFITTED)
        + ([f"Possibly too dark: {guessed}."] if guessed else []),
        tables={
            "Reconstruction": {"linearised deep image prior": {name: Measure(value) for name, value in scores.items()}}
        },
    )
