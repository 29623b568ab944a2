"""The cell of the experiments of [unlu2021]: one training by variational Laplace or another method, with its scores."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

import osculate as osc
from experiments import TITLES, Runner, seeded
from experiments.by_image import IMAGES, by_image
from experiments.evaluation import logs
from osculate import metrics
from osculate.data import Dataset
from osculate.methods import IVON, MAP, MeanFieldVI, Method, VariationalLaplace
from osculate.methods.variational_laplace import EXACT
from osculate.parameters import ParameterSpace
from osculate.posteriors import Gaussian
from osculate.priors import fan_in
from osculate.training import Training

MAXIMUM, LAPLACE, LABEL, EVERY = "MAP", "VL", "VL, drawn labels", "VL, every step"
LEARNED, VARIATIONAL, NATURAL = "VL, learned variances", "VI", "IVON"
#: Scores of which a cell keeps those of each test image, as columns of tables.
NLL, ACCURACY = "test NLL, nats", "accuracy, %"
#: VI by ten drawn networks; the row "VI" is the network at the mean.
DRAWN = "VI, 10 networks"
LIKELIHOOD = osc.likelihoods.Categorical()
#: Bins of the calibration error, networks drawn for a prediction and for the bound, and images in a forward pass.
BINS, DRAWS, BOUND_DRAWS, ROWS = 15, 10, 8, 1_000
SMOOTH = {"activation": "sharp_softplus"}
#: Prior precision of the parameters of normalisations, which have no prior in the variational methods.
FREE = 1e-6


@dataclass(frozen=True)
class Fit:
    """Training: by Adam, with the same settings for all methods but IVON.

    Args:
        epochs: Passes over the training images.
        batch_size: Batch size.
        lr: Peak learning rate.
        natural_lr: Peak learning rate of IVON.
        schedule: Schedule of the learning rate.
        precision: Precision of forward and backward passes.
    """

    epochs: int = 40
    batch_size: int = 100
    lr: float = 3e-3
    natural_lr: float = 0.2
    schedule: str = "cosine"
    precision: str = "32"


#: The document's training, but for the precision.
PUBLISHED = Fit(epochs=200, batch_size=128, lr=1e-4, schedule="steps", precision="bf16")


@dataclass(frozen=True)
class Task:
    """Images and a network.

    Args:
        data: Name of the data set.
        network: Name of the network.
        options: Options of the network.
        train_size: Number of training images; None for all that are left.
        validation_size: Number of held-out images, which choose the temperature and the epoch.
        test_size: Number of test images; None for all.
    """

    data: str = "fashion_mnist"
    network: str = "lenet"
    options: Mapping[str, Any] = field(default_factory=lambda: dict(SMOOTH))
    train_size: int | None = 12_000
    validation_size: int = 2_000
    test_size: int | None = None

    @property
    def title(self) -> str:
        """Name of the data set."""
        return TITLES.get(self.data, self.data)


def published(data: str) -> Task:
    """Return the document's task on a data set: PreAct ResNet-18 with softplus, on all images."""
    return Task(data, "preact_resnet", {"activation": "softplus"}, train_size=None, validation_size=5_000)


@dataclass(frozen=True)
class Run:
    """One training.

    Args:
        task: Images and network.
        fit: Settings of the training.
        method: Name of the method, a key of :data:`METHODS`.
        temperature: Weight β of the divergence; for MAP, of the same prior.
        seed: Seed of the held-out images, initial weights and batches.
        options: Options of the method.
        to_end: Keep the weights of the last epoch, not those of the best validation epoch, and estimate their ELBO.
    """

    task: Task
    fit: Fit
    method: str
    temperature: float
    seed: int
    options: Mapping[str, Any] = field(default_factory=dict)
    to_end: bool = False


def cell(run: Run, runner: Runner) -> dict[str, Any]:
    """Return what :func:`measured` returns, from the cache if possible; an interrupted training is resumed."""
    job = (run.task.data, run.method, f"{run.temperature:g}", run.seed)
    about = [asdict(run.task), asdict(run.fit), dict(run.options), run.to_end]
    folder = runner.folder("vl", job, about)
    found = runner.cached("vl", job, about, partial(measured, run, folder))
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def measured(run: Run, folder: Path | None = None) -> dict[str, Any]:
    """Train, and score the network of the best validation epoch and that of the last epoch.

    Args:
        run: The training.
        folder: Folder of its checkpoints; None for no checkpoints.

    Returns:
        "best" and "end", each with scores on validation and test images, and "best" with those of the network at the
        mean on each test image; "epoch", the best one; "loss", "validation" (NLL) and "ratio" (log σ/s) over the
        epochs; "elbo", the bound in nats per datum, with ``to_end``.
    """
    task, fit = run.task, run.fit
    data = osc.data.load(task.data, train_size=task.train_size, validation_size=task.validation_size, seed=run.seed)
    done, last = trained(run, data, folder)
    probs = _probs(done, run, data)
    found: dict[str, Any] = {"best": _scores(probs) | {IMAGES: by_image(*probs["test"], (NLL, ACCURACY))}}
    if run.to_end and isinstance(done.posterior, Gaussian):
        bound = osc.evidence.elbo(done.posterior, data.train, BOUND_DRAWS, torch.Generator().manual_seed(0))
        found["elbo"] = bound.value / len(data.train[0])
    done.model.load_state_dict(last)
    found["end"] = _scores(_probs(done, run, data, sampled=False))
    rows = done.history
    courses = {"loss": "train_loss", "validation": "validation_nll", "ratio": "log_sigma_over_prior"}
    found |= {name: [row[key] for row in rows if key in row] for name, key in courses.items()}
    best = min(rows, key=lambda row: row["validation_nll"])
    return {**found, "epoch": best["epoch"], "steps": len(rows) * -(-len(data.train[0]) // fit.batch_size)}


def trained(run: Run, data: Dataset, folder: Path | None = None) -> tuple[Training, dict[str, Tensor]]:
    """Return the training, with the weights of the best validation epoch, and the weights of the last epoch."""
    with seeded(run.seed):
        model = from_prior(osc.networks.build(run.task.network, data.input_shape, data.outputs, **run.task.options))
    method = METHODS[run.method](model, temperature=run.temperature, **run.options)
    how, last, end_epoch = asdict(run.fit), {}, method.end_epoch
    natural_lr = how.pop("natural_lr")

    def noted(*args: Any) -> Mapping[str, float]:
        last.update({name: value.clone() for name, value in model.state_dict().items()})
        return end_epoch(*args)

    method.end_epoch = noted  # type: ignore[assignment,method-assign]
    done = osc.train(
        method,
        data.train,
        **how | ({"lr": natural_lr} if isinstance(method, IVON) else {}),
        validation=data.validation,
        progress=False,
        device="auto",
        patience=None if run.to_end else run.fit.epochs,
        seed=run.seed,
        folder=folder,
        resume=folder is not None,
    )
    if not last:  # the training was complete already, without the weights of its last epoch
        assert folder is not None
        shutil.rmtree(folder)
        return trained(run, data, folder)
    return done, last


@torch.no_grad()
def from_prior(model: nn.Module) -> nn.Module:
    """Draw weights from the variational methods' prior, with biases at zero: the initial mean of the posterior."""
    space = ParameterSpace.of(dict(model.named_parameters()))
    for (name, p), precision in zip(model.named_parameters(), fan_in(model).per_tensor(space), strict=True):
        if p.ndim > 1:
            p.normal_(std=float(precision) ** -0.5)
        elif name.endswith("bias"):
            p.zero_()
    return model


def _maximum(model: nn.Module, temperature: float) -> Method:
    """MAP with the prior of the variational methods."""
    names, prior = VariationalLaplace(model, LIKELIHOOD).names, fan_in(model)
    has = torch.tensor([name in names for name, p in model.named_parameters() if p.requires_grad])
    return MAP(model, LIKELIHOOD, prior.with_precision(torch.where(has, prior.precision * temperature, FREE)))


def _learned(model: nn.Module, multiplier: float = 10.0, **options: Any) -> Method:
    settings = replace(EXACT, multiplier=multiplier)
    return VariationalLaplace(model, LIKELIHOOD, sigma="learned", settings=settings, **options)


#: Methods by name: functions of a network, a temperature and options.
METHODS: Mapping[str, Callable[..., Method]] = {
    MAXIMUM: _maximum,
    LAPLACE: partial(VariationalLaplace, likelihood=LIKELIHOOD),
    LABEL: partial(VariationalLaplace, likelihood=LIKELIHOOD, fisher="label"),
    EVERY: partial(VariationalLaplace, likelihood=LIKELIHOOD, settings=EXACT),
    LEARNED: _learned,
    VARIATIONAL: partial(MeanFieldVI, likelihood=LIKELIHOOD),
    NATURAL: partial(IVON, likelihood=LIKELIHOOD),
}


@torch.no_grad()
def _probs(done: Training, run: Run, data: Dataset, sampled: bool = True) -> dict[str, tuple[Tensor, Tensor]]:
    """Return what the network at the mean and, for a posterior, networks drawn from it predict, with the labels."""
    size, model, found = run.task.test_size, done.model.eval(), {}
    device = next(model.parameters()).device
    for name, (x, y) in {"validation": data.validation, "test": (data.test[0][:size], data.test[1][:size])}.items():
        parts = [model(part.to(device)).softmax(-1).cpu() for part in x.split(ROWS)]
        found[name] = torch.cat(parts), y
        if sampled and isinstance(done.posterior, Gaussian):
            generator = torch.Generator().manual_seed(0)
            drawn = osc.predict(done.posterior, x, via="sampled", samples=DRAWS, generator=generator)
            found[f"{name}, drawn"] = drawn.probs.cpu(), y  # type: ignore[attr-defined]
    return found


def _scores(probs: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, dict[str, float]]:
    return {part: scores(*each) for part, each in probs.items()}


def scores(probs: Float[Tensor, "N C"], y: Tensor) -> dict[str, float]:
    """Return NLL in nats, accuracy and ECE."""
    return {
        "nll": metrics.nll(logs(probs), y),
        "accuracy": metrics.accuracy(probs, y),
        "ece": metrics.ece(probs, y, BINS),
    }


def scored_rows(method: str) -> dict[str, str]:
    """Return the rows of a method in a table, and the part of a cell with the scores of each."""
    return {method: "test"} | ({DRAWN: "test, drawn"} if method == VARIATIONAL else {})
