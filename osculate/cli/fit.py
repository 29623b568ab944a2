"""Fit a Laplace posterior to a trained network, and tune it.

Writes to --output (by default the checkpoint's folder): posterior.safetensors, model.safetensors, fit.yaml, fit.html,
and the section "fit" of metrics.json.
"""

import os
import time
import warnings
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from osculate.autoencoders import VAE, Autoencoder
from osculate.cli.after_training import held_out_noise
from osculate.cli.approximation import ApproximationOptions
from osculate.cli.checkpoint import ALIASES, MODEL, MODELS, Card, card_of, read_model, save_model
from osculate.cli.folder import POSTERIOR as POSTERIOR, versions, write_config, write_section
from osculate.cli.methods import METHODS, rows
from osculate.cli.options import DataOptions, RunOptions, naming, pick_device
from osculate.cli.page import command
from osculate.cli.report import report_fit
from osculate.cli.side_by_side import SideBySide, way_out
from osculate.cli.train import NOISE, require_targets
from osculate.data import Dataset
from osculate.distributed import Group, job
from osculate.evidence import effective_parameters, log_evidence
from osculate.methods import MAP
from osculate.networks import Output
from osculate.posteriors import Gaussian
from osculate.posteriors.linearised import has_many_columns
from osculate.posteriors.resumable import Checkpoint
from osculate.serialization import save
from osculate.tensorfiles import fill

#: Descriptions of checkpoints that are not MAP estimates, by their name in tables; {} is the method.
_WORDS = {
    "first member": "the first of its members: the new posterior is around this member and ignores the others",
    "its mean": "the mean of its posterior: the new posterior is around this mean, and uses nothing else of {}",
}


@naming(networks=(*MODELS, *ALIASES))
@dataclass(frozen=True)
class FitOptions:
    """The network.

    Args:
        checkpoint: Weights as safetensors: model.safetensors of osculate train or its folder, or your own state dict.
        model: Network of a checkpoint that osculate did not write, {networks}, or package.module:factory of your own;
            by default that of osculate train.
        resume: Go on with an interrupted fit in the output folder, which is written every minute.
    """

    checkpoint: Path
    model: str | None = None
    resume: bool = False


#: File of an interrupted fit, and the interval at which it is written.
SUMS, EVERY = "fit.partial.safetensors", "1min"
PARTS = (FitOptions, ApproximationOptions, DataOptions, RunOptions)
SUBJECT = "checkpoint"


def run(
    options: FitOptions, approximation: ApproximationOptions, data: DataOptions, run_options: RunOptions
) -> dict[str, Any] | None:
    """Fit, tune, save; the processes of torchrun share the data, and the first one speaks, saves and returns."""
    with job() as processes, ExitStack() as silence:
        if processes.rank:
            silence.enter_context(redirect_stdout(silence.enter_context(open(os.devnull, "w"))))
            run_options = replace(run_options, progress=False)
        summary = _run(options, approximation, data, run_options, processes)
        return None if processes.rank else summary


def _run(
    options: FitOptions,
    approximation: ApproximationOptions,
    data: DataOptions,
    run_options: RunOptions,
    processes: Group,
) -> dict[str, Any]:
    started = time.perf_counter()
    approximation.check()
    options = replace(options, checkpoint=_file(options.checkpoint))
    model, card, dataset, held_out = _opened(options, data)
    _require_mode(card, options, run_options)
    if isinstance(model, VAE) and approximation.subset == "all":
        raise ValueError(
            "the weights behind the log variances of a VAE's code have no curvature: pass --subset decoder, or fit an "
            "autoencoder of --method map."
        )
    folder, network = run_options.output or options.checkpoint.parent, card.fitted_around or rows(card.method)[0]
    sums = processes.own(folder / SUMS)
    if not options.resume and sums.is_file():
        print(f"leaving the interrupted fit in {folder}, with which --resume would have gone on")
    elif options.resume and not sums.is_file():
        print(f"no interrupted fit in {folder}: beginning at the first batch")
    device = pick_device(run_options.device)
    with Checkpoint(sums, EVERY, fresh=not options.resume) as file:
        fitted = approximation.fit(model.to(device), card, dataset, run_options.progress, file)
        q = approximation.tuned(fitted, dataset, card, held_out, run_options.progress)
        found, many = None, has_many_columns(fitted, len(dataset.validation[0]))
        if len(dataset.validation[0]) and not card.reconstructs and not many:
            posteriors = {"Laplace": fitted} | ({} if q is fitted else {"Laplace, tuned": q})
            found = SideBySide.of(network, posteriors, dataset.validation, card, dataset, run_options.progress)
        card = card.fitted(network)
        if processes.rank == 0:
            save_model(folder / MODEL, model, card)
            save(q, folder / POSTERIOR)
        evidence = approximation.evidence or "network"
        summary = {
            **summary_of(q, evidence),
            **({} if q is fitted else {"log_evidence": summary_of(fitted, evidence)["log_evidence"]}),
            **({} if found is None else {"validation": found.content()}),
            "seconds": round(time.perf_counter() - started, 2),
            "versions": versions(),
        }
        if processes.rank == 0:
            write_section(folder / "metrics.json", "fit", summary)
            asked = replace(options, resume=False)
            typed = command("fit", options, approximation, card.data_options())
            report_fit(folder, typed, card, dataset, summary, found)
            write_config(folder / "fit.yaml", "fit", asked, approximation, card.data_options(), run_options)
    _print(q, fitted, summary, card)
    if many:
        print(
            f"Neither tuned nor compared with its network: {fitted.fit.plan.outputs:,} outputs are too many for a "
            "column each. Draws do without: osculate evaluate --via sampled."
        )
    if found is not None:
        size = len(dataset.validation[0])
        _warn_of_units(found, network, dataset)
        if q is fitted and approximation.tune is None:
            print(f"Not tuned: if the network has not seen these {size:,} validation data, pass --tune.")
        also = "" if q is fitted else ", by which it was tuned"
        found.print(
            f"{dataset.name}: {size:,} validation data{also}", way_out(q, card, folder) if q is fitted else None
        )
    own = f" --model {card.model}" if ":" in card.model else ""
    print(f"Saved {folder / POSTERIOR}. Next: osculate evaluate --posterior {folder / POSTERIOR}{own}")
    return {"posterior": folder / POSTERIOR, **summary}


def _warn_of_units(found: SideBySide, network: str, dataset: Dataset) -> None:
    """Warn of a regression network that is worse than the mean of the targets, as one trained in other units is."""
    if dataset.target_scale is None or "rmse" not in found.scores[network]:
        return
    error, spread = found.scores[network]["rmse"], float(dataset.target_scale.square().mean().sqrt())
    if error > spread:
        warnings.warn(
            f"the network is worse than the mean of the targets: its RMSE is {error:.3g}, their standard deviation "
            f"{spread:.3g}. The command line standardises inputs and targets; fit a network that was trained in other "
            "units in Python, by osc.laplace.",
            stacklevel=2,
        )


def _file(checkpoint: Path) -> Path:
    """The file of the weights, which may be named by its folder.

    Raises:
        FileNotFoundError: there is no such file.
    """
    path = checkpoint / MODEL if checkpoint.is_dir() else checkpoint
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no file {str(path)!r}: name a safetensors file, or the folder of osculate train, with "
            "--checkpoint."
        )
    return path


def summary_of(q: Gaussian, mode: str = "network") -> dict[str, Any]:
    """A summary of the fit: evidence, effective number of parameters, prior precisions, noise.

    Args:
        q: The posterior.
        mode: Parameters at which the evidence is evaluated.
    """
    gamma = effective_parameters(q)
    space = q.network.space
    per_tensor = q.prior.per_tensor(space)
    precision = {} if per_tensor is None else dict(zip(space.names, per_tensor.tolist(), strict=True))
    covered = {name for name, part in space.unflatten(q.structure.covered).items() if bool(part.any())}
    scale = getattr(q.likelihood, "scale", None)
    return {
        "structure": q.structure.structure.name,
        # a tempered likelihood is not normalised, so that its evidence is not comparable
        "log_evidence": float(log_evidence(q, mode)) if float(q.temperature) == 1 else None,
        "parameters": space.size,
        "data": q.num_data,
        "effective_parameters": sum(gamma.values()),
        "effective_parameters_by_tensor": gamma,
        "prior_precision": {name: value for name, value in precision.items() if name in covered},
        "noise_scale": None if scale is None else float(scale),
        "temperature": float(q.temperature),
    }


def _opened(options: FitOptions, data: DataOptions) -> tuple[nn.Module, Card, Dataset, bool]:
    """The network with its weights, its card, its training data, and whether it was trained on these alone."""
    tensors, card = read_model(options.checkpoint)
    if card is None and options.model is None:
        raise ValueError(
            f"{str(options.checkpoint)!r} does not name its network: pass --model with one of "
            f"{', '.join(MODELS)}, or package.module:factory."
        )
    chosen = data if card is None else data.over(card.data_options())
    if card is not None:
        card.require_known_shape(chosen)
    dataset = chosen.load() if card is None else chosen.load(card.schema, card.data_options())
    if card is not None:
        _require_fitting(dataset, card)
        card = replace(card, data=card_of(dataset, chosen, card.model, {}, None).data)
        return fill(card.network(options.model), tensors, options.checkpoint), card, card.of(dataset), True
    assert options.model is not None
    require_targets(options.model, dataset.has_targets)
    card = card_of(dataset, chosen, options.model, {}, None)
    model = card.network(options.model)
    bare = isinstance(model, Output) and not all(name.startswith("network.") for name in tensors)
    fill(model.get_submodule("network") if bare else model, tensors, options.checkpoint)
    reconstructs = isinstance(model, Autoencoder)
    noise = None if dataset.classes is not None and not reconstructs else NOISE[reconstructs]
    card = card_of(dataset, chosen, options.model, {}, noise, reconstructs)
    dataset = card.of(dataset)
    return model, replace(card, noise=held_out_noise(model, dataset, noise)), dataset, False


def _require_mode(card: Card, options: FitOptions, run_options: RunOptions) -> None:
    """Raise ValueError if the network is not at a mode, or the output would overwrite a posterior from training."""
    if card.method in METHODS and not METHODS[card.method].result_is_mode:
        raise ValueError(
            f"the network in {str(options.checkpoint)!r} is {METHODS[card.method].network_name} of --method "
            f"{card.method}, but fit needs a mode: train a network with --method map."
        )
    target = run_options.output or options.checkpoint.parent
    own = card.method in METHODS and METHODS[card.method] is not MAP  # a MAP estimate leaves no posterior
    if own and target.resolve() == options.checkpoint.parent.resolve() and (target / POSTERIOR).is_file():
        raise ValueError(
            f"{str(target / POSTERIOR)!r} is the posterior of --method {card.method}, which fit would overwrite: name "
            "another folder with --output."
        )
    if card.method and (words := _WORDS.get(rows(card.method)[0])):
        print(f"The checkpoint of --method {card.method} holds {words.format(card.method)}.")


def _require_fitting(dataset: Dataset, card: Card) -> None:
    facts: list[tuple[str, Any, Any]] = [("inputs of shape {}", tuple(dataset.input_shape), card.input_shape)]
    if not card.reconstructs:  # an autoencoder ignores labels
        facts += [
            ("{} outputs", dataset.outputs, card.outputs),
            ("regression: {}", dataset.classes is None, card.classes is None),
        ]
    for text, of_data, of_network in facts:
        if of_data != of_network:
            raise ValueError(
                f"the network was trained for {text.format(of_network)}, but {dataset.name!r} has "
                f"{text.format(of_data)}: fit it to its training data."
            )


def _print(q: Gaussian, fitted: Gaussian, summary: dict[str, Any], card: Card) -> None:
    print(f"{summary['structure']} posterior over {summary['parameters']:,} parameters from {q.num_data:,} data")
    if summary["log_evidence"] is not None:
        kind = "log evidence" if q.offset is None else "bound on log evidence"
        print(f"{kind:<27} {summary['log_evidence']:.1f} nats{'' if q is fitted else ', before tuning'}")
    print(f"effective parameters        {summary['effective_parameters']:.1f}")
    for name, value in summary["prior_precision"].items():
        print(f"prior precision             {value:.3g}  {name}")
    if summary["noise_scale"] is not None:
        standardised = card.scaling("target") is not None
        unit = f"of {'standardised ' if standardised else ''}{'inputs' if card.reconstructs else 'targets'}"
        print(f"noise scale                 {summary['noise_scale']:.3g} ({unit})")
    if summary["temperature"] != 1 or q is not fitted:
        print(f"temperature                 {summary['temperature']:.3g}")
    if q is not fitted and not card.reconstructs:
        factor = float((q.prior.precision / fitted.prior.precision).mean())
        noise = "" if summary["noise_scale"] is None else " and noise scale"
        print(f"Tuning has set this temperature{noise}, and multiplied the precisions by {factor:.3g}.")
        if q.offset is not None and fitted.offset is not None and bool(fitted.offset.any()):
            share = float(q.offset.norm() / fitted.offset.norm())
            print(f"The mean has gone {share:.0%} of the way from the network to that of the refined posterior.")
        print("--no-tune skips tuning.")
