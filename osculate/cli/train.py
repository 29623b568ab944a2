"""Train a network, built-in or your own, on a named data set or your own arrays.

A network that is an autoencoder learns to give back its inputs. Leaves in --output (runs/train): config.yaml,
model.safetensors, metrics.json, training.csv, last.ckpt to resume, posterior.safetensors where the method has one, and
figures of an autoencoder.
"""

import math
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from osculate.autoencoders import Autoencoder
from osculate.cli.checkpoint import MODEL, MODELS, Card, build_network, card_of, save_model
from osculate.cli.folder import POSTERIOR, versions, write_config, write_section
from osculate.cli.methods import MethodOptions, finished, method_of, network_name, network_options, represented
from osculate.cli.options import DataOptions, RunOptions, naming, pick_device
from osculate.cli.represented import draw_autoencoder, reconstruction_scores
from osculate.cli.tables import print_scores
from osculate.data import Dataset
from osculate.data.shifted import PARTNERS
from osculate.posteriors import Gaussian, Point, Posterior
from osculate.serialization import save
from osculate.tasks import calibration
from osculate.training import Settings, train

#: Noise scale while a regression trains, in standard deviations of the targets, and while an autoencoder does.
NOISE = {False: 0.3, True: 0.2}
#: Only the network as it is.
PLAIN = MethodOptions()


@naming(networks=MODELS)
@dataclass(frozen=True)
class TrainOptions:
    """What to train.

    Args:
        model: one of {networks}; package.module:factory for your own network; or auto: by the shape of the inputs; for
            data without targets, and for images and methods other than map, mlp_autoencoder. autoencoder is short for
            conv_autoencoder.
        model_options: keyword arguments of the network, as in --model-options.width 32.
        prior: precision of the Gaussian prior on the weights.
        noise: for real-valued targets, standard deviation of the noise in units of the standardised targets; by
            default 0.3 while training (of autoencoders 0.2, in units of the inputs, which of
            vectors are standardised), and the error on the validation
            part after it.
        resume: go on from last.ckpt in the output folder.
    """

    model: str = "auto"
    model_options: dict[str, Any] | None = None
    prior: float = 1.0
    noise: float | None = None
    resume: bool = False


PARTS = (DataOptions, TrainOptions, MethodOptions, Settings, RunOptions)


def run(data: DataOptions, options: TrainOptions, how: MethodOptions, settings: Settings, where: RunOptions) -> None:
    """Train, measure, save."""
    started = time.perf_counter()
    pick_device(where.device)
    dataset = data.load()
    folder = where.output or Path("runs/train")
    model, card = new_network(dataset, data, options, settings.seed, how)
    labelled, dataset = dataset, card.of(dataset)
    trained = train(
        method_of(model, card, options.prior, how),
        dataset.train,
        settings,
        validation=dataset.validation if len(dataset.validation[0]) else None,
        folder=folder,
        resume=options.resume,
        device=where.device,
        progress=where.progress,
    )
    if options.noise is None:
        card = card.with_noise(held_out_noise(model.eval(), dataset, card.noise))
    q = finished(trained.posterior, card, how, dataset, where.progress)
    scores = scores_of(q, card, dataset, where.progress)
    save_model(folder / MODEL, q.model, card)
    saved = _save(q, folder)
    write_config(folder / "config.yaml", "train", data, replace(options, model=card.model), how, settings, where)
    facts: dict[str, Any] = {"parameters": sum(p.numel() for p in model.parameters()), "epochs": len(trained.history)}
    if isinstance(q, Gaussian):
        facts |= {"temperature": float(q.temperature)}
    seconds = round(time.perf_counter() - started, 2)
    summary = {**scores, **facts, "seconds": seconds, "versions": versions()}
    write_section(folder / "metrics.json", "train", summary, fresh=True)
    units = " (in standardised units)" if card.reconstructs and card.scaling("input") is not None else ""
    print_scores(f"{card.model} on {dataset.name}{units}", scores)
    if card.reconstructs and len(card.input_shape) == 3:
        draw_autoencoder(represented(q), labelled, folder)
    print(_next(folder, card, saved))


def new_network(
    dataset: Dataset, data: DataOptions, options: TrainOptions, seed: int, how: MethodOptions = PLAIN
) -> tuple[nn.Module, Card]:
    """A fresh network for a data set, its initial weights drawn with this seed, and its card."""
    shape = tuple(dataset.input_shape)
    name = network_name(options.model, how, shape, dataset.has_targets)
    arguments = network_options(name, options.model_options or {}, how)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build_network(name, shape, dataset.outputs, arguments)
    reconstructs = isinstance(model, Autoencoder)
    noise = None if dataset.classes is not None and not reconstructs else options.noise or NOISE[reconstructs]
    return model, card_of(dataset, data, name, arguments, noise, reconstructs)


def _save(q: Posterior, folder: Path) -> bool:
    """Write the posterior, where there is more to it than the network."""
    if isinstance(q, Point):
        return False
    save(q, folder / POSTERIOR)
    return True


def _next(folder: Path, card: Card, saved: bool) -> str:
    """What was saved, and a command that uses it."""
    own = f" --model {card.model}" if ":" in card.model else ""
    if card.reconstructs:
        task = " --task ood" if card.data_options().data in PARTNERS else ""
        return f"Saved in {folder}. Next: osculate evaluate --posterior {folder}{task}{own}"
    if saved:
        return f"Saved {folder / POSTERIOR}. Next: osculate evaluate --posterior {folder / POSTERIOR}{own}"
    return f"Saved {folder / MODEL}. Next: osculate fit --checkpoint {folder / MODEL}{own}"


def held_out_noise(model: nn.Module, dataset: Dataset, noise: float | None) -> float | None:
    """The root mean square error on the validation part: the noise scale that fits it best; None for classes.

    Args:
        model: the network.
        dataset: the data, with the targets that it was trained on.
        noise: what is returned where there is nothing to measure.
    """
    x, y = dataset.validation
    if noise is None or not len(x):
        return noise
    device = next(model.parameters()).device
    modes = model.training
    with torch.no_grad():
        error = (model.eval()(x.to(device)) - y.to(device)).square().mean().sqrt().item()
    model.train(modes)
    return error if math.isfinite(error) and error > 0 else noise


def scores_of(q: Posterior, card: Card, dataset: Dataset, progress: bool = False) -> dict[str, dict[str, float]]:
    """The scores of what was trained, on validation and test part."""
    parts = {"validation": dataset.validation, "test": dataset.test}
    filled = {name: part for name, part in parts.items() if len(part[0])}
    if card.reconstructs:
        return {
            name: reconstruction_scores(represented(q), part[0], progress=progress) for name, part in filled.items()
        }
    return {name: calibration(q, part, target_scale=dataset.target_scale).metrics() for name, part in filled.items()}
