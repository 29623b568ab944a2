"""Train a network on a table, arrays or images of yours, or a data set.

--method NAME --help shows the options of a method. An autoencoder learns to reconstruct its inputs. Writes to --output
(by default runs/train): config.yaml, model.safetensors, metrics.json, training.csv, schema.json for your own data,
last.ckpt (last.safetensors for hmc) to resume, posterior.safetensors if the method has a posterior, report.html, and
its figures.
"""

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from torch import nn

from osculate import autoencoders
from osculate.autoencoders import VAE, Autoencoder
from osculate.cli.after_training import finished, measured, represented, warn_if_worse, with_noise_of
from osculate.cli.autoencoder_figures import draw_autoencoder, reconstruction_scores
from osculate.cli.checkpoint import ALIASES, MODEL, MODELS, Card, build_network, card_of, save_model, schema_of
from osculate.cli.folder import (
    POSTERIOR,
    SCHEMA,
    read_config,
    run_folder,
    versions,
    write_config,
    write_json,
    write_section,
)
from osculate.cli.methods import (
    LAYERWISE,
    METHODS,
    MethodOptions,
    SettingOptions,
    methods_with,
    require_distinct_options,
    summary,
)
from osculate.cli.options import DataOptions, RunOptions, naming, pick_device
from osculate.cli.page import command
from osculate.cli.predict import PosteriorOptions, drawn, predict_options
from osculate.cli.report import report_training
from osculate.cli.side_by_side import errors_of
from osculate.cli.tables import print_scores
from osculate.data import Dataset
from osculate.data.shifted import PARTNERS
from osculate.posteriors import Chains, Ensemble, Gaussian, Point, Posterior
from osculate.randomness import seeded
from osculate.registry import choose
from osculate.serialization import save
from osculate.tasks.calibration import columns, in_units, record_of
from osculate.training import train
from osculate.training.settings import LOGGERS

#: Noise scale in the training of a regression, in standard deviations of the targets, and of an autoencoder.
NOISE = {False: 0.3, True: 0.2}
#: Share of the hidden units of an autoencoder that dropout drops, as published. [miani2022]
DROPOUT = 0.2
#: Other networks with dropout, and its probability.
DROPPING, SHARE = ("mlp", "lenet", "cnn"), 0.1
#: Networks with ReLU by default, and the activation that replaces it for methods that need second derivatives.
KINKED, SMOOTH = ("lenet", "cnn"), "shifted_softplus"
#: Facts about the course of a training, and the columns of its log.
COURSE = {"lr": "rate", "rounds": "round"}
#: The method options of plain MAP.
PLAIN = MethodOptions()


@naming(networks=(*MODELS, *ALIASES), learning=methods_with("by_evidence"))
@dataclass(frozen=True)
class TrainOptions:
    """The training.

    Args:
        model: Name of the network, {networks}, or package.module:factory for your own; by default one that fits the
            data and the method.
        model_options: Keyword arguments of the network, as in --model-options.width 32; by default its own.
        prior: Precision of the Gaussian prior on the weights (1 / variance); fan_in, for each layer the number of its
            inputs; or layerwise, one for each parameter tensor. By default 1; layerwise for {learning}, which learn it.
        noise: Standard deviation of the noise of real-valued targets, in standard deviations of the targets; by
            default 0.3 in training (autoencoders 0.2), and then the error on the validation part.
        seed: Seed of the initial weights, the order of the data, and samples.
        resume: Continue from the checkpoint in the output folder.
        overwrite: Replace the run in the output folder.
    """

    model: str = "auto"
    model_options: dict[str, Any] | None = None
    prior: float | str | None = None
    noise: float | None = None
    seed: int = 0
    resume: bool = False
    overwrite: bool = False


@naming(loggers=LOGGERS)
@dataclass(frozen=True)
class LoggedRunOptions(RunOptions):
    """The output and the device.

    Args:
        output: Folder of the run; the default is in the description above.
        device: Device, cpu, cuda, cuda:1, mps; by default auto, an accelerator if there is one.
        progress: False to show no progress bars.
        logger: Logger of losses and of the history, {loggers}, which writes a folder of its name in the output
            folder; by default none, and the history is in training.csv.
    """

    logger: str | None = None


PARTS = (DataOptions, TrainOptions, MethodOptions, SettingOptions, LoggedRunOptions)
SUBJECT = "data"
#: Folder of a run by default; the next one is USUAL-2.
USUAL = Path("runs/train")
#: Files of a run, and of the commands that follow it.
WRITTEN = (
    MODEL,
    POSTERIOR,
    SCHEMA,
    "fit.yaml",
    "fit.html",
    "evaluation.json",
    "evaluation.html",
    "last.ckpt",
    "last.safetensors",
)
#: Names that no option of a method may have.
TAKEN = {"config", "help", "traceback"}.union(
    field.name for part in PARTS if part is not MethodOptions for field in fields(part)
)
require_distinct_options(METHODS, TAKEN)


def run(
    data: DataOptions,
    options: TrainOptions,
    method: MethodOptions,
    settings: SettingOptions,
    run_options: LoggedRunOptions,
) -> dict[str, Any]:
    """Train, measure, save; return the content of metrics.json."""
    started = time.perf_counter()
    if run_options.logger is not None:
        choose("logger", run_options.logger, LOGGERS)
    pick_device(run_options.device)
    settings.settings(method, options.seed)  # raises errors before any data are read
    dataset = data.load()
    folder = run_folder(run_options.output, USUAL, "config.yaml", options.overwrite, options.resume)
    if options.resume and not (folder / "config.yaml").is_file():
        raise ValueError(f"there is no run to resume in {str(folder)!r}: leave out --resume, or name its folder.")
    if options.overwrite:
        for name in WRITTEN:  # they are of the run that is replaced
            (folder / name).unlink(missing_ok=True)
    network, card = new_networks(dataset, data, options, options.seed, method)
    labelled, dataset = dataset, card.of(dataset)
    if (schema := schema_of(dataset)) is not None:
        write_json(folder / SCHEMA, schema.content())
        print(f"{dataset!r}, read as:\n{schema}")
    before: dict[str, Any] = {}
    if options.resume:
        before = read_config(folder / "config.yaml")
    if before.get("method") not in (None, method.method):  # checkpoints of other methods may have different names
        raise ValueError(
            f"the training in {str(folder)!r} was started with --method {before['method']} and cannot be resumed "
            f"with {method.method}: use the same method, or another --output."
        )
    if before:  # a run of an earlier version has one round
        rate, rounds = settings.lr or before.get("lr"), settings.rounds or before.get("rounds", 1)
        settings = replace(settings, lr=rate, rounds=rounds)
    resolved = settings.settings(method, options.seed, card.noise, len(dataset.train[0]))
    rounds = settings.most_rounds(method, len(dataset.validation[0]))
    method = method.resolved(resolved.epochs, card.noise is not None, before)
    prior = options.prior or before.get("prior") or (LAYERWISE if method.kind.by_evidence else 1.0)
    prepared = method.make(network, card, prior)
    again = replace(options, model=card.model, model_options=card.options, prior=prior)
    write_config(
        folder / "config.yaml", "train", data, again, method, SettingOptions.of(resolved, method, rounds), run_options
    )
    several = f", at most {rounds} rounds" if rounds > 1 else ""
    print(f"{summary(resolved, method)}{several}; prior {prior}")
    trained = train(
        prepared,
        dataset.train,
        resolved,
        validation=dataset.validation if len(dataset.validation[0]) else None,
        folder=folder,
        resume=options.resume,
        device=run_options.device,
        rounds=rounds,
        progress=run_options.progress,
        logger=run_options.logger,
    )
    last = trained.history[-1]
    course = {name: last[key] for name, key in COURSE.items() if key in last}
    if rounds > 1:
        course["kept epoch"] = min(trained.history, key=lambda row: row["validation_nll"])["epoch"]
    if course:
        print(
            f"trained: epochs {last['epoch']}, {', '.join(f'{name} {_short(value)}' for name, value in course.items())}"
        )
    if method.kind.by_evidence:
        card = with_noise_of(trained.posterior, card)
    elif options.noise is None:
        card = measured(trained.posterior, card, dataset)
    card = card.trained_by(method.kind)
    q = finished(trained.posterior, card, method, dataset, run_options.progress)
    as_evaluated = PosteriorOptions(folder)
    scores = scores_of(q, card, dataset, method, as_evaluated, run_options.progress)
    save_model(folder / MODEL, q.model, card)
    saved = not isinstance(q, Point)  # a point posterior is its network
    if saved:
        save(q, folder / POSTERIOR)
    facts: dict[str, Any] = {"parameters": sum(p.numel() for p in network(0).parameters())}
    if isinstance(q, Gaussian):
        facts["temperature"] = float(q.temperature)
    if isinstance(q, Ensemble):
        facts["members"] = len(q.members)
    if isinstance(q, Chains):
        facts["chains"], facts["draws"] = q.thetas.shape[:2]
    facts |= {**course, "epochs": len(trained.history)}
    seconds = round(time.perf_counter() - started, 2)
    summed = {**scores, **facts, "seconds": seconds, "versions": versions()}
    write_section(folder / "metrics.json", "train", summed, fresh=True)
    standardised = card.reconstructs and card.scaling("input") is not None
    said = " (in standardised units)" if standardised else "" if card.reconstructs else drawn(as_evaluated, q)
    print_scores(f"{card.model} on {dataset.name}{said}", scores)
    pictured = card.reconstructs and len(card.input_shape) == 3
    figures = draw_autoencoder(represented(q), labelled, folder) if pictured else {}
    if card.reconstructs:
        known = card.data_options().data in PARTNERS
        task = " --task bound" if isinstance(q.model, VAE) else " --task ood" if known else ""
        step = f"osculate evaluate --posterior {folder}{task}{card.own}"
    elif saved:
        step = f"osculate evaluate --posterior {folder / POSTERIOR}{card.own}"
    else:
        step = f"osculate fit --checkpoint {folder / MODEL}{card.own}"
    asked = command("train", data, options, method, settings)
    facts |= {"seconds": seconds}
    report_training(folder, asked, card, dataset, trained.history, scores, facts, figures, step)
    print(f"Saved in {folder}, with report.html. Next: {step}")
    return {"folder": folder, **summed}


def _short(value: float | int) -> str:
    """A number in a line; whole ones in full.

    >>> _short(1150), _short(0.00123456)
    ('1150', '0.00123')
    """
    return str(value) if isinstance(value, int) else f"{value:.3g}"


def new_network(
    dataset: Dataset, data: DataOptions, options: TrainOptions, seed: int, method: MethodOptions = PLAIN
) -> tuple[nn.Module, Card]:
    """A fresh network for a data set, its initial weights drawn with this seed, and its card."""
    network, card = new_networks(dataset, data, options, seed, method)
    return network(0), card


def new_networks(
    dataset: Dataset, data: DataOptions, options: TrainOptions, seed: int, method: MethodOptions
) -> tuple[Callable[[int], nn.Module], Card]:
    """A function that makes fresh networks by number, with seed, seed + 1, …, and their card.

    Raises:
        ValueError: the network or some option is incompatible with the method or the data.
    """
    shape = tuple(dataset.input_shape)
    name = network_name(options.model, method, shape, dataset.has_targets)
    arguments = network_options(name, options.model_options or {}, method, options.model != "auto")

    @cache
    def network(number: int) -> nn.Module:
        with seeded(seed + number):
            return build_network(name, shape, dataset.outputs, arguments)

    reconstructs = isinstance(network(0), Autoencoder)
    if reconstructs and method.kind.adds_prior_network:
        raise ValueError(
            f"--method {method.method} adds a fixed network to the outputs, which does not work with the codes of an "
            "autoencoder: use --method deep_ensemble."
        )
    if method.has_codes and not method.coded.has_noise:
        if options.noise is not None:
            raise ValueError(
                f"--noise is for --codes.likelihood gaussian, not {method.coded.likelihood}: leave it out."
            )
        card = card_of(dataset, data, name, arguments, None, reconstructs)
        return network, replace(card, facts={**card.facts, "likelihood": method.coded.likelihood})
    noise = None if dataset.classes is not None and not reconstructs else options.noise or NOISE[reconstructs]
    return network, card_of(dataset, data, name, arguments, noise, reconstructs)


def network_name(model: str, method: MethodOptions, shape: tuple[int, ...], has_targets: bool) -> str:
    """The name of the network to train: the given one, or one that fits the method and the data.

    Raises:
        ValueError: the method or the network does not take some option.
    """
    method.check()
    if model != "auto":
        name = model
    elif method.has_codes or not has_targets or (len(shape) == 3 and method.kind.for_autoencoders):
        name = "mlp_autoencoder"
    elif not method.kind.hidden_units and len(shape) == 3 and shape[1] == shape[2]:
        name = "lenet" if shape[1] == 28 else "cnn"
    else:
        name = "mlp"
        if len(shape) == 3 and not method.kind.hidden_units:
            warnings.warn(
                f"images of {shape[1]} × {shape[2]} pixels get the network mlp, because the convolutional ones take "
                "square images: crop those of a folder with --image-size, or name your own network with --model.",
                stacklevel=2,
            )
    built_in = is_autoencoder(name)
    if method.has_codes and not built_in and ":" not in name:
        raise ValueError(
            f"--method {method.method} trains an autoencoder, but --model {name} is another network: use "
            f"{' or '.join(autoencoders.REGISTRY)}, or leave --model out."
        )
    require_targets(name, has_targets)
    if method.latent is not None and not built_in:
        raise ValueError(
            f"--latent is for the built-in autoencoders, but --model {name} is another network: use "
            f"{' or '.join(autoencoders.REGISTRY)}, or leave --latent out."
        )
    return name


def require_targets(name: str, has_targets: bool) -> None:
    """Raise ValueError if a built-in network learns from targets and the data have none."""
    if not has_targets and not is_autoencoder(name) and ":" not in name:
        raise ValueError(
            f"--model {name} learns from targets, but the data have no y: add it to the file, or use "
            f"{' or '.join(autoencoders.REGISTRY)}, which learn from X alone."
        )


def is_autoencoder(name: str) -> bool:
    """Return True if a built-in network is an autoencoder."""
    return ALIASES.get(name, name) in autoencoders.REGISTRY


def network_options(name: str, given: Mapping[str, Any], method: MethodOptions, chosen: bool = True) -> dict[str, Any]:
    """Keyword arguments of the network, including those that the method needs.

    Args:
        name: The network.
        given: Arguments from the user, which take precedence.
        method: The method.
        chosen: True if the user has named the network; otherwise its arguments are adapted to the method.

    Raises:
        ValueError: the method needs dropout, and the built-in network has none.
    """
    follows: dict[str, Any] = {}
    if is_autoencoder(name):
        follows = {} if method.latent is None else {"latent": method.latent}
        if method.has_codes:
            follows |= method.coded.network
        if method.kind.needs_dropout:
            follows["dropout"] = DROPOUT
    elif method.kind.needs_dropout and ":" not in name:
        if name not in DROPPING:
            raise ValueError(
                f"--method {method.method} needs dropout, but --model {name} has none: use --model "
                f"{', '.join(DROPPING)} or an autoencoder, or your own network with torch.nn.Dropout between its "
                "layers."
            )
        follows["dropout"] = SHARE
    elif not chosen and method.kind.needs_smooth_network and name in KINKED:
        follows["activation"] = SMOOTH
    elif not chosen and method.kind.hidden_units:
        follows["hidden"] = list(method.kind.hidden_units)
    return {**follows, **given}


def scores_of(
    q: Posterior,
    card: Card,
    dataset: Dataset,
    method: MethodOptions,
    options: PosteriorOptions,
    progress: bool = False,
) -> dict[str, dict[str, float]]:
    """The scores on the validation and test parts, the latter as in osculate evaluate; the code warns of bad ones."""
    parts = {"validation": dataset.validation, "test": dataset.test}
    filled = {name: part for name, part in parts.items() if len(part[0])}
    if card.reconstructs:
        return {
            name: reconstruction_scores(represented(q), part[0], progress=progress) for name, part in filled.items()
        }
    scores = {}
    for name, part in filled.items():
        found = columns(q, part, 500, progress, "predicting", predict_options(options, q))
        record = record_of(*found, target_scale=dataset.target_scale)
        values = found[1] if found[0] else in_units(found[1], dataset.target_scale)
        scores[name] = record.metrics() | errors_of(found[0], values)
        if part is dataset.validation:
            warn_if_worse(q, card, method, part, found)
    return scores
