"""Variational autoencoders of the report on auto-encoding variational Bayes, each trained once and kept."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from experiments import Runner, seeded
from osculate.autoencoders import ELBO, VAE, BoundSettings
from osculate.data import Dataset, load
from osculate.likelihoods import Bernoulli, HeteroscedasticGaussian, Likelihood
from osculate.networks import mlp_coders
from osculate.training import train

#: The document, as records name it.
DOCUMENT = "MLSALT 4: Auto-Encoding Variational Bayes [nicholson2016]"
#: How images are named in figures and tables.
TITLES = {"mnist": "MNIST", "frey_face": "Frey Face", "digits": "digits"}


@dataclass(frozen=True)
class Task:
    """Images.

    Args:
        data: name of the data set.
        train_size: images to train on; None for all.
        validation_size: held-out images whose bound is watched; 0 takes the test part in their place.
    """

    data: str = "mnist"
    train_size: int | None = 10_000
    validation_size: int = 2_000

    def load(self, seed: int) -> Dataset:
        """The data, with the held-out images of this seed."""
        return load(self.data, train_size=self.train_size, validation_size=self.validation_size, seed=seed)

    @property
    def title(self) -> str:
        """As figures say it."""
        return TITLES.get(self.data, self.data)


@dataclass(frozen=True)
class Coders:
    """Encoder and decoder.

    Args:
        latent: K.
        hidden: units of the encoder's hidden layers.
        decoder: units of the decoder's.
        activation: between layers.
        initialisation: of the weights.
        floor: smallest standard deviation of a pixel, for real-valued ones.
    """

    latent: int = 10
    hidden: tuple[int, ...] = (500,)
    decoder: tuple[int, ...] = (500,)
    activation: str = "tanh"
    initialisation: str = "orthogonal"
    floor: float = 0.01


@dataclass(frozen=True)
class Fit:
    """How they are trained.

    Args:
        images: seen in training, each as often as it is.
        batch: M.
        lr: learning rate.
        optimizer: its name.
        estimator: of the bound.
        samples: L.
    """

    images: int = 1_500_000
    batch: int = 100
    lr: float = 1e-3
    optimizer: str = "adam"
    estimator: str | None = None
    samples: int = 1


#: The document's: 1,500 frames to train on and the rest of the film to watch, 200 units.
FREY = Task("frey_face", None, 0)
FREY_CODERS = Coders(hidden=(200,), decoder=(200,))
#: As published: Adagrad, and as many images as its result files hold.
PUBLISHED = Fit(images=100_000_000, lr=0.01, optimizer="adagrad")


def likelihood_of(data: str) -> Likelihood:
    """p(x|z): real-valued pixels of the film with a variance each; cross entropy of grey pixels of digits."""
    return HeteroscedasticGaussian(class_axis=1) if data == FREY.data else Bernoulli(grey=True)


def network(task: Task, coders: Coders, shape: Sequence[int], seed: int, **parts: Any) -> VAE:
    """A fresh one. ``codes`` are the numbers of the encoder for each of the code's, ``parts`` of the VAE."""
    codes = parts.pop("codes", 2)
    outputs = 2 if isinstance(likelihood_of(task.data), HeteroscedasticGaussian) else 1
    with seeded(seed):
        halves = mlp_coders(
            shape,
            coders.latent,
            coders.hidden,
            outputs,
            codes,
            decoder_hidden=coders.decoder,
            activation=coders.activation,
            initialisation=coders.initialisation,
            floor=coders.floor,
        )
        return VAE(*halves, **parts)


def held_out(dataset: Dataset) -> Tensor:
    """The validation images, or the test images where there are none."""
    return dataset.validation[0] if len(dataset.validation[0]) else dataset.test[0]


def fitted(
    task: Task, coders: Coders, fit: Fit, seed: int, runner: Runner, settings: BoundSettings | None = None, **parts: Any
) -> tuple[VAE, dict[str, Any]]:
    """A trained network, and its curve: images seen, and the bound of training and of held-out images on the way."""
    dataset = task.load(seed)
    x, other = dataset.train[0], held_out(dataset)
    net = network(task, coders, dataset.input_shape, seed, **parts)
    about = [asdict(task), asdict(coders), asdict(fit), repr(settings), repr(parts)]

    def trained() -> Mapping[str, Any]:
        method = ELBO(net, likelihood_of(task.data), 1.0, fit.estimator, fit.samples, settings or BoundSettings())
        history = train(
            method,
            (x, x),
            validation=(other, other),
            epochs=max(1, round(fit.images / len(x))),
            batch_size=fit.batch,
            lr=fit.lr,
            optimizer=fit.optimizer,
            schedule="constant",
            seed=seed,
            device="cpu",
            progress=False,
        ).history
        return curve(history, len(x))

    values = runner.network("vae", (task.data, coders.latent, seed), about, net, trained)
    net.latent = coders.latent
    return net.eval(), values


def curve(history: Sequence[Mapping[str, int | float]], images: int) -> dict[str, list]:
    """Some forty epochs of a history, evenly on the logarithm: images seen, and bounds in nats an image."""
    epochs = len(history)
    places = sorted({min(epochs, max(1, round(epochs ** (n / 39)))) for n in range(40)})
    rows = [history[place - 1] for place in places]
    return {
        "seen": [place * images for place in places],
        "train": [round(row["bound"], 3) for row in rows],
        "validation": [round(-row["validation_nll"], 3) for row in rows],
    }


def draw_curves(panels: Mapping[str, Mapping[str, Mapping[str, Sequence]]], heading: str, **how: Any) -> Any:
    """Bounds against images seen: panels of named curves, held-out images solid and training images dashed."""
    from experiments.aevb import figures

    solid, dashed = (
        {
            panel: {name: (curve["seen"], curve[key]) for name, curve in curves.items()}
            for panel, curves in panels.items()
        }
        for key in ("validation", "train")
    )
    return figures.curves(solid, heading, training=dashed, **how)
