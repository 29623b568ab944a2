"""Train a network, built-in or your own, on a named data set or your own arrays.

Leaves in --output (runs/train): config.yaml, model.safetensors, metrics.json, training.csv, and last.ckpt to resume.
"""

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from osculate.cli.checkpoint import MODEL, Card, build_network, card_of, save_model
from osculate.cli.folder import versions, write_config, write_section
from osculate.cli.options import DataOptions, RunOptions, naming, pick_device
from osculate.cli.tables import print_scores
from osculate.data import Dataset
from osculate.methods.map import MAP
from osculate.networks import NETWORKS
from osculate.posteriors import Point
from osculate.tasks import calibration
from osculate.training import Settings, train

#: Noise scale of a regression while it trains, in standard deviations of the targets.
NOISE = 0.3


@naming(networks=NETWORKS)
@dataclass(frozen=True)
class TrainOptions:
    """What to train.

    Args:
        model: one of {networks}; package.module:factory for your own network; or auto (by the shape of the inputs).
        model_options: keyword arguments of the network, as in --model-options.width 32.
        prior: precision of the Gaussian prior on the weights.
        noise: for real-valued targets, standard deviation of the noise in units of the standardised targets; by
            default 0.3 while training, and the error on the validation part after it.
        resume: go on from last.ckpt in the output folder.
    """

    model: str = "auto"
    model_options: dict[str, Any] | None = None
    prior: float = 1.0
    noise: float | None = None
    resume: bool = False


PARTS = (DataOptions, TrainOptions, Settings, RunOptions)


def run(data: DataOptions, options: TrainOptions, settings: Settings, where: RunOptions) -> None:
    """Train, measure, save."""
    started = time.perf_counter()
    pick_device(where.device)
    dataset = data.load()
    folder = where.output or Path("runs/train")
    model, card = new_network(dataset, data, options, settings.seed)
    trained = train(
        MAP(model, card.likelihood, options.prior),
        dataset.train,
        settings,
        validation=dataset.validation if len(dataset.validation[0]) else None,
        folder=folder,
        resume=options.resume,
        device=where.device,
        progress=where.progress,
    )
    if options.noise is None:
        card = replace(card, noise=held_out_noise(model, dataset, card.noise))
    scores = scores_of(Point(model.eval(), card.likelihood), dataset)
    save_model(folder / MODEL, model, card)
    write_config(folder / "config.yaml", "train", data, replace(options, model=card.model), settings, where)
    facts = {"parameters": sum(p.numel() for p in model.parameters()), "epochs": len(trained.history)}
    seconds = round(time.perf_counter() - started, 2)
    summary = {**scores, **facts, "seconds": seconds, "versions": versions()}
    write_section(folder / "metrics.json", "train", summary, fresh=True)
    print_scores(f"{card.model} on {dataset.name}", scores)
    own = f" --model {card.model}" if ":" in card.model else ""
    print(f"Saved {folder / MODEL}. Next: osculate fit --checkpoint {folder / MODEL}{own}")


def new_network(dataset: Dataset, data: DataOptions, options: TrainOptions, seed: int) -> tuple[nn.Module, Card]:
    """A fresh network for a data set, its initial weights drawn with this seed, and its card."""
    name = _by_shape(dataset.input_shape) if options.model == "auto" else options.model
    noise = None if dataset.classes is not None else options.noise or NOISE
    card = card_of(dataset, data, name, options.model_options or {}, noise)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_network(name, card.input_shape, card.outputs, card.options), card


def held_out_noise(model: nn.Module, dataset: Dataset, noise: float | None) -> float | None:
    """The root mean square error on the validation part: the noise scale that fits it best; None for classes."""
    x, y = dataset.validation
    if noise is None or not len(x):
        return noise
    device = next(model.parameters()).device
    modes = model.training
    with torch.no_grad():
        error = (model.eval()(x.to(device)) - y.to(device)).square().mean().sqrt().item()
    model.train(modes)
    return error if math.isfinite(error) and error > 0 else noise


def scores_of(point: Point, dataset: Dataset) -> dict[str, dict[str, float]]:
    """The scores of a network as it is, on validation and test part."""
    parts = {"validation": dataset.validation, "test": dataset.test}
    return {
        name: calibration(point, part, target_scale=dataset.target_scale).metrics()
        for name, part in parts.items()
        if len(part[0])
    }


def _by_shape(shape: tuple[int, ...]) -> str:
    if len(shape) == 3 and shape[1] == shape[2]:
        return "lenet" if shape[1] == 28 else "cnn"
    return "mlp"
