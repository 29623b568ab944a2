"""Variational autoencoders of the report on auto-encoding variational Bayes, trained over seeds and compared."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import mean
from typing import Any

from torch import Tensor, nn

import osculate as osc
from experiments import TITLES, Record, Resumable, Runner, Table, seeded, train
from osculate.autoencoders import ELBO, VAE, BoundSettings
from osculate.data import Dataset
from osculate.likelihoods import Bernoulli, HeteroscedasticGaussian, Likelihood
from osculate.networks import mlp_coders

DOCUMENT = "MLSALT 4: Auto-Encoding Variational Bayes [nicholson2016]"
TRAINED, HELD_OUT = "training bound, nats", "validation bound, nats"
HIGHEST = "highest validation bound on the way, nats"


@dataclass(frozen=True)
class Task:
    """Images.

    Args:
        data: Name of the data set.
        train_size: Number of training images; None for all.
        validation_size: Number of validation images; 0 for the test images instead.
    """

    data: str = "mnist"
    train_size: int | None = 10_000
    validation_size: int = 2_000

    def load(self, seed: int) -> Dataset:
        """Load the data, with the validation images of this seed."""
        return osc.data.load(self.data, train_size=self.train_size, validation_size=self.validation_size, seed=seed)

    @property
    def title(self) -> str:
        """The name in figures and tables."""
        return TITLES.get(self.data, self.data)

    @property
    def likelihood(self) -> Likelihood:
        """p(x|z): the Frey Face's real-valued pixels with a variance each; cross entropy of the digits' grey pixels."""
        return HeteroscedasticGaussian(class_axis=1) if self.outputs == 2 else Bernoulli(grey=True)

    @property
    def outputs(self) -> int:
        """The decoder's numbers for each pixel."""
        return 2 if self.data == "frey_face" else 1


@dataclass(frozen=True)
class Coders:
    """Encoder and decoder.

    Args:
        latent: Size of the code, K.
        hidden: Units of the encoder's hidden layers.
        decoder: Units of the decoder's hidden layers.
        activation: Activation between layers.
        initialisation: Initialisation of the weights.
        floor: Smallest standard deviation of a real-valued pixel.
    """

    latent: int = 10
    hidden: tuple[int, ...] = (500,)
    decoder: tuple[int, ...] = (500,)
    activation: str = "tanh"
    initialisation: str = "orthogonal"
    floor: float = 0.01

    def build(self, shape: Sequence[int], seed: int, outputs: int = 1, codes: int = 1) -> tuple[nn.Module, nn.Module]:
        """Return a fresh encoder and decoder of images of a shape."""
        how: dict[str, Any] = {name: getattr(self, name) for name in ("activation", "initialisation", "floor")}
        with seeded(seed):
            return mlp_coders(shape, self.latent, self.hidden, outputs, codes, decoder_hidden=self.decoder, **how)

    def vae(self, task: Task, shape: Sequence[int], seed: int, **parts: Any) -> VAE:
        """Return a fresh variational autoencoder for a task, with other parts such as its prior."""
        return VAE(*self.build(shape, seed, task.outputs, codes=2), **parts)


@dataclass(frozen=True)
class Fit:
    """Training.

    Args:
        images: Number of images seen in training, with repetitions.
        batch: Batch size, M.
        lr: Learning rate.
        optimizer: Name of the optimiser.
        estimator: Estimator of the bound; None for the default.
        samples: Codes drawn for each image, L.
    """

    images: int = 1_500_000
    batch: int = 100
    lr: float = 1e-3
    optimizer: str = "adam"
    estimator: str | None = None
    samples: int = 1


#: The document's tasks: 50,000 digits; 1,500 frames, with the rest of the film held out, and 200 units.
DIGITS = Task(train_size=50_000, validation_size=10_000)
FREY = Task("frey_face", None, 0)
FREY_CODERS = Coders(hidden=(200,), decoder=(200,))
#: The document's training: Adagrad, and as many images as its result files hold.
PUBLISHED = Fit(images=100_000_000, lr=0.01, optimizer="adagrad")


@dataclass(frozen=True)
class Settings(Resumable):
    """One task with its networks and their training; experiments vary one thing.

    Args:
        task: Images.
        coders: Encoder and decoder.
        fit: Training.
    """

    task: Task = Task()
    coders: Coders = Coders()
    fit: Fit = Fit()


@dataclass(frozen=True)
class Line:
    """One training, and its place in the figure.

    Args:
        task: Images.
        coders: Encoder and decoder.
        fit: Training.
        panel: Panel of the figure.
        name: Name of the line.
        printed: Validation bound in the document.
        bound: Settings of the bound.
        parts: Parts of the autoencoder beside its coders.
    """

    task: Task
    coders: Coders
    fit: Fit
    panel: str
    name: str
    printed: str = ""
    bound: BoundSettings = BoundSettings()
    parts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def row(self) -> str:
        """The row of the table."""
        return f"{self.panel}, {self.name}"

    def trained(self, seed: int, runner: Runner) -> tuple[VAE, dict[str, Any]]:
        """Return the trained network and its curves, from the cache if possible."""
        dataset = self.task.load(seed)
        x, other = dataset.train[0], held_out(dataset)
        net = self.coders.vae(self.task, dataset.input_shape, seed, **self.parts)
        about = [asdict(self.task), asdict(self.coders), asdict(self.fit), repr(self.bound), repr(self.parts)]

        def fitted() -> Mapping[str, Any]:
            method = ELBO(net, self.task.likelihood, 1.0, self.fit.estimator, self.fit.samples, self.bound)
            return curve(descend(method, self.fit, x, other, seed), len(x))

        values = runner.network("vae", (self.task.data, self.coders.latent, seed), about, net, fitted)
        net.latent = self.coders.latent
        return net.eval(), values


def descend(
    method: Any, fit: Fit, x: Tensor, other: Tensor, seed: int, patience: int | None = None
) -> Sequence[Mapping[str, Any]]:
    """Train an autoencoder on images and watch others; return the history of its epochs."""
    how = {"epochs": epochs_of(fit, x), "batch_size": fit.batch, "lr": fit.lr, "optimizer": fit.optimizer}
    return train(
        method, (x, x), validation=(other, other), **how, schedule="constant", patience=patience, seed=seed
    ).history


def epochs_of(fit: Fit, x: Tensor) -> int:
    """Return the number of epochs in which the given number of images is seen."""
    return max(1, round(fit.images / len(x)))


def held_out(dataset: Dataset) -> Tensor:
    """Return the validation images, or the test images if there are none."""
    return dataset.validation[0] if len(dataset.validation[0]) else dataset.test[0]


def curve(history: Sequence[Mapping[str, int | float]], images: int) -> dict[str, list]:
    """Return the images seen and the bounds, in nats per image, at some forty epochs in logarithmic steps."""
    epochs = len(history)
    places = sorted({min(epochs, max(1, round(epochs ** (n / 39)))) for n in range(40)})
    rows = [history[place - 1] for place in places]
    return {
        "seen": [place * images for place in places],
        "train": [round(row["bound"], 3) for row in rows],
        "validation": [round(-row["validation_nll"], 3) for row in rows],
    }


@dataclass(frozen=True)
class Trained:
    """Trained lines.

    Args:
        lines: Lines by key.
        runs: Curves and other values of each line by its key, one per seed.
    """

    lines: Mapping[Any, Line]
    runs: Mapping[Any, Sequence[Mapping[str, Any]]]

    def last(self, key: Any, part: str = "validation") -> float:
        """Return the final bound, the mean over seeds."""
        return mean(run[part][-1] for run in self.runs[key])

    def table(self) -> Table:
        """Return the final bounds and the highest validation bound of each line."""

        def bounds(run: Mapping[str, Any]) -> dict[str, float]:
            return {TRAINED: run["train"][-1], HELD_OUT: run["validation"][-1], HIGHEST: max(run["validation"])}

        return Table.of(self.runs, lambda key: self.lines[key].row, bounds)

    @property
    def printed(self) -> dict[tuple[str, str], str]:
        """The document's validation bounds, by row and column."""
        return {(line.row, HELD_OUT): line.printed for line in self.lines.values()}

    @property
    def panels(self) -> dict[str, dict[str, dict[str, list]]]:
        """The curves of the first seed, by panel and name."""
        shown: dict[str, dict[str, dict[str, list]]] = {}
        for key, runs in self.runs.items():
            curves = {part: list(runs[0][part]) for part in ("seen", "train", "validation")}
            shown.setdefault(self.lines[key].panel, {})[self.lines[key].name] = curves
        return shown


def train_lines(
    lines: Mapping[Any, Line],
    seeds: Sequence[int],
    runner: Runner,
    score: Callable[[Any, VAE, int], Mapping[str, Any]] | None = None,
) -> Trained:
    """Train all lines over seeds.

    Args:
        lines: Lines by key.
        seeds: Seeds of each line.
        runner: Cache and progress bar.
        score: Further values of a trained network, from its key, the network and the seed.
    """

    def trained(key: Any, seed: int) -> dict[str, Any]:
        net, values = lines[key].trained(seed, runner)
        return {**values, **(score(key, net, seed) if score else {})}

    runs = runner.over("trainings", [(key, seed) for key in lines for seed in seeds], trained)
    return Trained(lines, runs)


def draw_curves(record: Record, heading: str, **how: Any) -> Any:
    """Draw the recorded bounds against images seen: validation images solid and training images dashed."""
    from experiments.aevb import figures

    solid, dashed = (
        {
            panel: {name: (curve["seen"], curve[key]) for name, curve in curves.items()}
            for panel, curves in record.findings.data["curves"].items()
        }
        for key in ("validation", "train")
    )
    return figures.curves(solid, heading, training=dashed, **how)
