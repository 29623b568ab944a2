"""One training by variational Laplace or a rival, scored: what the experiments of [unlu2021] are made of."""

import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from experiments import Runner, seeded
from experiments.evaluation import logs
from osculate import metrics
from osculate.data import Dataset, load
from osculate.evidence import elbo
from osculate.likelihoods import Categorical
from osculate.methods import IVON, MAP, MeanFieldVI, NaturalSteps, VariationalLaplace
from osculate.methods._base import Method
from osculate.methods._mean_field import MeanField
from osculate.methods.variational_updates import EXACT
from osculate.networks import build
from osculate.parameters import ParameterSpace
from osculate.posteriors import Gaussian
from osculate.predictive import predict
from osculate.priors import fan_in
from osculate.training import Training, train

MAXIMUM, LAPLACE, LABEL, EVERY = "MAP", "VL", "VL, drawn labels", "VL, every step"
VARIATIONAL, NATURAL = "VI", "IVON"
LIKELIHOOD = Categorical()
#: Bins of the calibration error, networks drawn for a prediction, and images that pass a network at once.
BINS, DRAWS, ROWS = 15, 10, 1_000
#: Networks drawn for the bound.
BOUND_DRAWS = 8
#: Data sets as the document calls them.
TITLES = {"fashion_mnist": "Fashion-MNIST", "cifar10": "CIFAR-10", "cifar10_jpeg": "CIFAR-10", "cifar100": "CIFAR-100"}
TITLES |= {"svhn": "SVHN"}
SMOOTH = {"activation": "sharp_softplus"}


@dataclass(frozen=True)
class Fit:
    """How networks are trained: by Adam, the same for all methods but IVON.

    Args:
        epochs: passes over the training images.
        batch_size: images in a batch.
        lr: learning rate at its highest.
        natural_lr: that of IVON.
        schedule: course of the learning rate.
        precision: of passes.
    """

    epochs: int = 40
    batch_size: int = 100
    lr: float = 3e-3
    natural_lr: float = 0.2
    schedule: str = "cosine"
    precision: str = "32"


#: As published, but for the precision.
PUBLISHED = Fit(epochs=200, batch_size=128, lr=1e-4, schedule="steps", precision="bf16")


@dataclass(frozen=True)
class Task:
    """Images and a network.

    Args:
        data: name of the data set.
        network: name of the network.
        options: of the network.
        train_size: images to train on; None for all that are left.
        validation_size: held-out images, which choose the temperature and the epoch.
        test_size: test images; None for all.
    """

    data: str = "fashion_mnist"
    network: str = "lenet"
    options: Mapping[str, Any] = field(default_factory=lambda: dict(SMOOTH))
    train_size: int | None = 12_000
    validation_size: int = 2_000
    test_size: int | None = None

    @property
    def title(self) -> str:
        """The data, as the document calls them."""
        return TITLES.get(self.data, self.data)


def published(data: str) -> Task:
    """PreAct ResNet-18 with softplus on all of a data set, as published."""
    return Task(data, "preact_resnet", {"activation": "softplus"}, train_size=None, validation_size=5_000)


@dataclass(frozen=True)
class Run:
    """One training.

    Args:
        task: images and network.
        fit: how it is trained.
        method: by name.
        temperature: the weight β of the divergence; of the same prior for MAP.
        seed: of the held-out images, initial weights, and batches.
        options: of the method.
        to_end: whether the weights of the last epoch are kept, whatever held-out images say; the bound is then
            estimated with the network itself.
    """

    task: Task
    fit: Fit
    method: str
    temperature: float
    seed: int
    options: Mapping[str, Any] = field(default_factory=dict)
    to_end: bool = False


def cell(run: Run, runner: Runner) -> dict[str, Any]:
    """What a training gives (see :func:`measured`), from a file where there is one; a training goes on as well."""
    where = (run.task.data, run.method.replace(", ", "-").replace(" ", "-"), f"{run.temperature:g}", run.seed)
    about = [asdict(run.task), asdict(run.fit), dict(run.options), *([True] if run.to_end else [])]
    folder = runner.folder("vl", where, about)
    found = runner.cached("vl", where, about, partial(measured, run, folder))
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def measured(run: Run, folder: Path | None = None) -> dict[str, Any]:
    """Train, and score the network of the best validation epoch and that of the end.

    Args:
        run: the training.
        folder: of its checkpoints; None for none.

    Returns:
        "best" and "end", each with scores on validation and test images; "epoch", the best; the course of the loss, the
        validation NLL and log σ/s over the epochs; "elbo", the bound in nats per datum.
    """
    data = load(run.task.data, train_size=run.task.train_size, validation_size=run.task.validation_size, seed=run.seed)
    done, last = trained(run, data, folder)
    found: dict[str, Any] = {"best": _scores(done, run, data)}
    if run.to_end and isinstance(done.posterior, Gaussian):
        bound = elbo(done.posterior, data.train, BOUND_DRAWS, torch.Generator().manual_seed(0))
        found["elbo"] = bound.value / len(data.train[0])
    done.model.load_state_dict(last)
    found["end"] = _scores(done, run, data, sampled=False)
    rows = done.history
    courses = {"loss": "train_loss", "validation": "validation_nll", "ratio": "log_sigma_over_prior"}
    found |= {name: [row[key] for row in rows if key in row] for name, key in courses.items()}
    best = min(rows, key=lambda row: row["validation_nll"])
    return {**found, "epoch": best["epoch"], "steps": len(rows) * -(-len(data.train[0]) // run.fit.batch_size)}


def trained(run: Run, data: Dataset, folder: Path | None = None) -> tuple[Training, dict[str, Tensor]]:
    """The training, with the weights of the best validation epoch, and those of the last."""
    with seeded(run.seed):
        model = from_prior(build(run.task.network, data.input_shape, data.outputs, **run.task.options))
    method = METHODS[run.method](model, run.temperature, **run.options)
    fit, last, end_epoch = run.fit, {}, method.end_epoch

    def noted(*args: Any) -> Mapping[str, float]:
        last.update({name: value.clone() for name, value in model.state_dict().items()})
        return end_epoch(*args)

    method.end_epoch = noted  # type: ignore[assignment,method-assign]
    done = train(
        method,
        data.train,
        validation=data.validation,
        progress=False,
        device="auto",
        epochs=fit.epochs,
        batch_size=fit.batch_size,
        lr=fit.natural_lr if isinstance(method, IVON) else fit.lr,
        patience=None if run.to_end else fit.epochs,
        schedule=fit.schedule,
        precision=fit.precision,
        seed=run.seed,
        folder=folder,
        resume=folder is not None,
    )
    if not last:  # it had ended before, and the weights of its last epoch are gone
        assert folder is not None
        shutil.rmtree(folder)
        return trained(run, data, folder)
    return done, last


@torch.no_grad()
def from_prior(model: nn.Module) -> nn.Module:
    """Weights drawn from the prior of the variational methods, biases at zero: where the posterior's mean starts."""
    space = ParameterSpace.of(dict(model.named_parameters()))
    for (name, p), precision in zip(model.named_parameters(), fan_in(model).per_tensor(space), strict=True):
        if p.ndim > 1:
            p.normal_(std=float(precision) ** -0.5)
        elif name.endswith("bias"):
            p.zero_()
    return model


#: Prior precision of what has no prior in the variational methods: the parameters of normalisations.
FREE = 1e-6


def _maximum(model: nn.Module, temperature: float) -> Method:
    """With the prior of the variational methods."""
    names, prior = VariationalLaplace(model, LIKELIHOOD).names, fan_in(model)
    has = torch.tensor([name in names for name, p in model.named_parameters() if p.requires_grad])
    return MAP(model, LIKELIHOOD, prior.with_precision(torch.where(has, prior.precision * temperature, FREE)))


def _laplace(model: nn.Module, temperature: float, **options: Any) -> Method:
    return VariationalLaplace(model, LIKELIHOOD, temperature=temperature, **options)


def _learned(model: nn.Module, temperature: float, multiplier: float = 10.0) -> MeanField:
    settings = replace(EXACT, multiplier=multiplier)
    return VariationalLaplace(model, LIKELIHOOD, temperature=temperature, sigma="learned", settings=settings)


def _sampled(model: nn.Module, temperature: float, **options: Any) -> MeanField:
    return MeanFieldVI(model, LIKELIHOOD, temperature=temperature, **options)


def _natural(model: nn.Module, temperature: float, **options: Any) -> MeanField:
    return IVON(model, LIKELIHOOD, temperature=temperature, settings=NaturalSteps(**options))


LEARNED = "VL, learned variances"
#: Each makes a method of a network and a temperature; those of the library with its defaults.
METHODS: Mapping[str, Callable[..., Method]] = {
    MAXIMUM: _maximum,
    LAPLACE: _laplace,
    LABEL: partial(_laplace, fisher="label"),
    EVERY: partial(_laplace, settings=EXACT),
    LEARNED: _learned,
    VARIATIONAL: _sampled,
    NATURAL: _natural,
}


def _scores(done: Training, run: Run, data: Dataset, sampled: bool = True) -> dict[str, dict[str, float]]:
    """Of the network of the mean, and of networks that are drawn where there is a posterior to draw from."""
    parts = {"validation": data.validation, "test": data.test}
    size = run.task.test_size
    found = {}
    for name, (x, y) in parts.items():
        x, y = (x, y) if name == "validation" else (x[:size], y[:size])
        found[name] = scores(_at_mean(done.model, x), y)
        if sampled and isinstance(done.posterior, Gaussian):
            found[f"{name}, drawn"] = scores(_drawn(done.posterior, x), y)
    return found


@torch.no_grad()
def _at_mean(model: nn.Module, x: Tensor) -> Float[Tensor, "N C"]:
    model.eval()
    device = next(model.parameters()).device
    return torch.cat([model(part.to(device)).softmax(-1).cpu() for part in x.split(ROWS)])


def _drawn(q: Gaussian, x: Tensor) -> Float[Tensor, "N C"]:
    generator = torch.Generator().manual_seed(0)
    return predict(q, x, via="sampled", samples=DRAWS, generator=generator).probs.cpu()  # type: ignore[attr-defined]


def scores(probs: Float[Tensor, "N C"], y: Tensor) -> dict[str, float]:
    """NLL in nats, accuracy, ECE."""
    return {
        "nll": metrics.nll(logs(probs), y),
        "accuracy": metrics.accuracy(probs, y),
        "ece": metrics.ece(probs, y, BINS),
    }


def chosen(cells: Sequence[Mapping[str, Any]], part: str = "best", kind: str = "validation") -> int:
    """The number of the cell with the lowest validation NLL."""
    return min(range(len(cells)), key=lambda n: cells[n][part][kind]["nll"])
