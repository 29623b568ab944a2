"""Write predictions and their uncertainties to a file.

Inputs are --inputs (a table, arrays or images as in the training), every row of another file that --data names, or the
test part of the training data. --output names the file (.csv, .tsv, .parquet or .npz); by default a table has
predictions in its own format, and other inputs in .npz and .csv. A page of the same name (.html) shows the most
uncertain ones.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Categorical

from osculate.autoencoders import Autoencoder
from osculate.cli.checkpoint import MODEL, Card, read_model
from osculate.cli.folder import POSTERIOR
from osculate.cli.options import OWN, DataOptions, RunOptions, is_own, naming, own_data, pick_device
from osculate.cli.page import command
from osculate.cli.report import report_predictions
from osculate.data.own.content import Labels
from osculate.data.own.writing import WRITERS, write_predictions
from osculate.posteriors import Dropout, Ensemble, Gaussian, Mixture, Point
from osculate.posteriors.linearised import has_many_columns
from osculate.predictive import functional_variance, link as links, predict, sample_functions
from osculate.predictive.predict import FUNCTIONS
from osculate.predictive.variance import functional_mean
from osculate.progress import track
from osculate.registry import choose
from osculate.serialization import load
from osculate.tensorfiles import fill

#: Endings of the files of predictions by default, and those that are tables.
FORMATS, TABLES = (".npz", ".csv"), (".csv", ".tsv", ".parquet")
#: Batch size.
ROWS = 500


@naming(
    ways=dict.fromkeys(way for kind in (Gaussian, Ensemble, Dropout) for way in kind.ways),
    links=(*links.REGISTRY, FUNCTIONS),
)
@dataclass(frozen=True)
class PosteriorOptions:
    """The posterior, and its predictive.

    Args:
        posterior: The file posterior.safetensors of osculate fit or train, in one folder with model.safetensors; or
            this folder.
        model: The package.module:factory of your own network, which is then allowed to run; by default none.
        via: Kind of predictive, {ways}; by default linearised for a Gaussian, else sampled or the posterior's own.
        link: Integration of class probabilities, {links}; by default mc.
        samples: Number of sampled networks; by default 100, for imputation 10, for few labels 20.
        seed: Seed of the draws.
    """

    posterior: Path
    model: str | None = None
    via: str | None = None
    link: str | None = None
    samples: int | None = None
    seed: int = 0

    @property
    def folder(self) -> Path:
        """The folder of the posterior."""
        return self.posterior if self.posterior.is_dir() else self.posterior.parent

    def open(self, device: str) -> tuple[Any, Card]:
        """Read the posterior and the card of its network; a network without a posterior becomes a point posterior.

        Raises:
            FileNotFoundError: one of the two files is missing.
            ValueError: a file is no posterior, damaged or belongs to another network, there is fewer than one sample,
                or link or way to predict is unknown.
        """
        if self.samples is not None and self.samples < 1:
            raise ValueError(f"--samples must be at least 1, got {self.samples}.")
        if self.link is not None:
            choose("link", self.link, (*links.REGISTRY, FUNCTIONS))
        path = self.posterior / POSTERIOR if self.posterior.is_dir() else self.posterior
        beside = path.parent / MODEL
        alone = path == beside or (self.posterior.is_dir() and not path.is_file())
        if not (path.is_file() or (alone and beside.is_file())):
            raise FileNotFoundError(f"there is no file at {str(path)!r}: osculate fit writes posteriors.")
        if path.suffix != Path(POSTERIOR).suffix:
            raise ValueError(
                f"{str(path)!r} is no posterior: name posterior.safetensors or its folder with --posterior, and data "
                "with --data or --inputs."
            )
        if not beside.is_file():
            raise FileNotFoundError(
                f"there is no file at {str(beside)!r}: a posterior needs its network in the same folder. Copy it "
                "there, or run osculate fit again."
            )
        tensors, card = read_model(beside)
        if card is None:
            raise ValueError(f"{str(beside)!r} was not written by osculate train or fit.")
        if alone:
            network = fill(card.network(self.model), tensors, beside)
            return Point(network, card.likelihood).to(device=pick_device(device)), card
        q = load(path, fill(card.network(self.model), tensors, beside))  # a posterior may leave frozen weights out
        mode = q.network.module.state_dict()
        if not all(torch.equal(mode[name], value) for name, value in tensors.items()):
            raise ValueError(
                f"{str(path)!r} was fitted to other weights than those in {str(beside)!r}: the network was "
                "trained again after the fit. Run osculate fit again."
            )
        if self.via is not None:
            choose("--via of this posterior", self.via, q.ways)
        return q.to(device=pick_device(device)), card


@dataclass(frozen=True)
class InputOptions:
    """The inputs to predict for.

    Args:
        inputs: A table, arrays or a folder of images like the training data and in their units, without targets; by
            default the test part of the data.
    """

    inputs: Path | None = None


PARTS = (PosteriorOptions, InputOptions, DataOptions, RunOptions)
SUBJECT = "posterior"
#: Sizes of the parts of training, and what the schema of the run says.
LEAVES_OUT = ("train_size", "validation_size", *OWN)


def run(options: PosteriorOptions, inputs: InputOptions, data: DataOptions, run_options: RunOptions) -> dict[str, Any]:
    """Predict and write; return the files and what they hold."""
    output = run_options.output or options.folder / "predictions"
    if output.suffix and output.suffix not in WRITERS:
        raise ValueError(f"predictions are written as {', '.join(WRITERS)}, not {output.suffix!r}: rename --output.")
    q, card = options.open(run_options.device)
    if inputs.inputs is None and data.data is not None and is_own(data.data) and not data.same(card.data_options()):
        inputs = InputOptions(Path(data.data))
    own = "" if inputs.inputs is None else inputs.inputs.suffix.lower()
    suffixes = (output.suffix,) if output.suffix else (own,) if own in TABLES else FORMATS
    schema, labels = card.schema, dict[str, Any]()
    if inputs.inputs is not None:
        content = schema.open(own_data(inputs.inputs, "--inputs"), targets=False)
        x, labels = schema.tensors(content)[0], dict(schema.labels(content))
    else:
        x = card.loaded(data.over(card.data_options())).test[0]
    columns = predictions(q, x, card, options, run_options.progress)
    for suffix in suffixes:
        _write(output.with_suffix(suffix), columns, labels, card)
        print(f"Saved {len(x)} predictions to {output.with_suffix(suffix)}")
    page = output.with_suffix(".html")
    shapes = {name: list(values.shape) for name, values in columns.items()}
    files = [output.with_suffix(suffix) for suffix in suffixes]
    report_predictions(page, command("predict", options, inputs), columns, card, labels, files)
    return {"files": files, "page": page, "predictions": len(x), "columns": shapes}


def predictions(
    q: Any, x: Tensor, card: Card, options: PosteriorOptions, progress: bool = False
) -> dict[str, np.ndarray]:
    """Predictions and their uncertainties, as arrays with one row for each input.

    Classes: ``prediction``, ``probabilities``, ``entropy`` (nats), ``mean`` and ``functional_variance`` of the logits.
    Real values, in original units: ``mean``, ``sd`` (noise included), ``sd_function`` (noise left out).
    """
    # with the seed, each part uses the same networks
    parts = [
        _classes(q, part, options) if card.noise is None else _numbers(q, part, card, options)
        for part in track(x.split(ROWS), "predicting", -(-len(x) // ROWS), progress)
    ]
    return {name: torch.cat([part[name] for part in parts]).numpy() for name in parts[0]}


@torch.no_grad()
def _classes(q: Any, x: Tensor, options: PosteriorOptions) -> dict[str, Tensor]:
    """Class probabilities, and logits: over the networks if the posterior is a set of networks."""
    y = predict(q, x, **predict_options(options, q))
    assert isinstance(y, Categorical)
    values = {"prediction": y.probs.argmax(-1), "probabilities": y.probs, "entropy": y.entropy()}
    if isinstance(q, Point | Gaussian | Mixture):
        values["mean"] = functional_mean(q, x)
        if not isinstance(q, Point):
            how: dict[str, Any] = {}
            if has_many_columns(q, len(x)):  # no column for each
                generator = torch.Generator().manual_seed(options.seed)
                how = {"via": "samples", "samples": options.samples or 100, "generator": generator}
            values["functional_variance"] = functional_variance(q, x, diagonal=True, **how)
    else:
        f = sample_functions(q, x, options.samples or 100, generator=torch.Generator().manual_seed(options.seed))
        values |= {"mean": f.mean(0), "functional_variance": f.var(0, correction=0)}
    return {name: value.detach().cpu() for name, value in values.items()}


def _numbers(q: Any, x: Tensor, card: Card, options: PosteriorOptions) -> dict[str, Tensor]:
    noisy, clean = (predict(q, x, noise=noise, **predict_options(options, q)) for noise in (True, False))
    scaling = card.scaling("target")
    mean, sd, sd_function = (v.detach().cpu() for v in (noisy.mean, noisy.stddev, clean.stddev))
    if scaling is not None:
        mean, sd, sd_function = scaling.undo(mean), sd * scaling.scale, sd_function * scaling.scale
    return {"mean": mean, "sd": sd, "sd_function": sd_function}


def predict_options(options: PosteriorOptions, q: Any) -> dict[str, Any]:
    """The keyword arguments of `predict` for these options."""
    usual = "sampled" if isinstance(q.model, Autoencoder) and "sampled" in q.ways else q.ways[0]
    via = options.via or usual
    if via in ("linearised", "mode"):
        return {"via": via, "link": options.link}
    generator = torch.Generator().manual_seed(options.seed)
    return {"via": via, "samples": options.samples or 100, "generator": generator}


def drawn(options: PosteriorOptions, q: Any) -> str:
    """The number of sampled networks, for a caption; "" if predictions use no samples."""
    number = predict_options(options, q).get("samples")
    return "" if number is None or isinstance(q, Ensemble) else f", {number} networks drawn"


def _write(path: Path, columns: dict[str, np.ndarray], labels: Labels, card: Card) -> None:
    """Write predictions; in tables with the identifiers of the rows and names of classes."""
    names, targets = card.classes, card.schema.targets
    if path.suffix in TABLES:
        columns = {**{name: np.array(values, dtype=object) for name, values in labels.items()}, **columns}
        if names is not None and "prediction" in columns:
            columns["prediction"] = np.array(names, dtype=object)[columns["prediction"]]
    elif names is not None:
        columns = {**columns, "classes": np.array(names)}
    write_predictions(path, columns, names or (() if targets is None else targets.names))
