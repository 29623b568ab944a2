"""The autoencoders that the experiments of [miani2022] compare: trained once for each data set and seed, and kept."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from experiments import Resumable, seeded
from osculate.autoencoders import ELBO, VAE, Autoencoder, LaplacianAutoencoder, Representation
from osculate.data import Dataset, load, out_of_distribution
from osculate.likelihoods import Gaussian, HeteroscedasticGaussian, Likelihood
from osculate.methods import MAP, OnlineLaplace, OnlineUpdates
from osculate.methods.online_laplace import PUBLISHED_MEMORY, PUBLISHED_TEMPERATURE
from osculate.networks.coders import Coders, mlp_coders
from osculate.posteriors import Dropout, Ensemble, Gaussian as Posterior, Point
from osculate.tensorfiles import fill, network_tensors, read_tensors, write_tensors
from osculate.training import train

#: What is compared.
AE, LEARNED, ENSEMBLE = "AE", "AE, learned variance", "ensemble of AEs"
VARIATIONAL, DROPOUT = "VAE", "MC-dropout AE"
POST_HOC, ONLINE = "LAE, post-hoc", "LAE, online"
METHODS = (AE, LEARNED, VARIATIONAL, DROPOUT, ENSEMBLE, POST_HOC, ONLINE)
#: Online posteriors with the exact diagonal, and with the curvature of the sampled gradient.
EXACT, GRADIENT = "online, exact diagonal", "online, from gradients"
HEADER = "osculate_lae"
#: Of the fit of every network.
OPTIONS = ("epochs", "batch_size", "lr")


@dataclass(frozen=True)
class Network:
    """What the coders are made of.

    Args:
        hidden: units of the encoder's hidden layers.
        latent: K.
    """

    hidden: tuple[int, ...] = (512, 256)
    latent: int = 2


@dataclass(frozen=True)
class Fit:
    """How networks are trained.

    Args:
        epochs: passes over the training images, the same for all methods.
        batch_size: images in a batch.
        lr: learning rate of Adam.
        members: networks of the ensemble, of which the first is the single autoencoder.
        dropout: rates from which held-out images choose.
        every: steps from one exact diagonal to the next, where that is trained with.
    """

    epochs: int = 10
    batch_size: int = 50
    lr: float = 1e-3
    members: int = 5
    dropout: tuple[float, ...] = (0.05, 0.2)
    every: int = 50


#: As long as the published networks were trained.
LONG = Fit(epochs=37)


@dataclass(frozen=True)
class Training(Resumable):
    """What is trained, on which data. [miani2022]

    Args:
        data: the data set.
        train_size: images to train on.
        validation_size: held-out images, which choose temperatures, the rate of dropout, and noise scales.
        test_size: test images.
        network: what the coders are made of.
        fit: how networks are trained.
    """

    data: str = "mnist"
    train_size: int = 20_000
    validation_size: int = 2_000
    test_size: int = 2_000
    network: Network = Network()
    fit: Fit = Fit()


class Models:
    """The methods on one data set with one seed.

    Args:
        training: what is trained.
        seed: of the held-out images, initial weights and batches.
    """

    def __init__(self, training: Training, seed: int) -> None:
        self.training, self.seed = training, seed
        self.dataset = self._load()
        self.train, self.validation = self.dataset.train[0], self.dataset.validation[0]
        self.test = self.dataset.test[0][: training.test_size]
        about = {name: getattr(training, name) for name in ("data", "train_size", "validation_size")}
        about |= asdict(training.network) | {name: getattr(training.fit, name) for name in OPTIONS}
        self._about = sha256(json.dumps([seed, about]).encode()).hexdigest()[:10]

    def _load(self) -> Dataset:
        training = self.training
        return load(
            training.data, train_size=training.train_size, validation_size=training.validation_size, seed=self.seed
        )

    @cached_property
    def outside(self) -> dict[str, Tensor]:
        """Other images, as many of each kind as there are test images."""
        sets = out_of_distribution(self.dataset, seed=self.seed)
        return {name: images[: self.training.test_size] for name, images in sets.items()}

    def representation(self, name: str) -> Representation:
        """One of :data:`METHODS`, with the noise of held-out residuals, a Laplacian one of those of training."""
        if name == AE:
            return Representation(Point(self.autoencoder(), self._noise), codes=self.train)
        if name == LEARNED:
            net = self._trained(LEARNED, lambda: self._network(outputs=2), self._map(self._learned_variance))
            return Representation(Point(net, self._learned_variance), codes=self.train)
        if name == VARIATIONAL:
            method = lambda net: ELBO(net, self._noise)  # noqa: E731
            return Representation(Point(self._trained(VARIATIONAL, self._vae, method), self._noise))
        if name == ENSEMBLE:
            members = [self.autoencoder(number) for number in range(self.training.fit.members)]
            return Representation(Ensemble(members, self._noise), codes=self.train)
        if name == DROPOUT:
            tried = [self._with_dropout(rate) for rate in self.training.fit.dropout]
            scores = [float(r.log_prob(self.validation, 20, _fixed()).mean()) for r in tried]
            return tried[scores.index(max(scores))]
        if name == POST_HOC:
            return self._tuned(name, self.autoencoder())
        mean = self.online().model
        assert isinstance(mean, Autoencoder)
        return self._tuned(name, mean.eval())

    # ---- networks ----------------------------------------------------------------------------------------------------

    def autoencoder(self, member: int = 0) -> Autoencoder:
        """A plain one, by the squared error."""
        return self._trained(AE, self._network, self._map(Gaussian(1.0)), member)

    def online(self, name: str = ONLINE) -> OnlineLaplace:
        """The method after training at the published scale, with one of three curvatures.

        Args:
            name: :data:`ONLINE`, :data:`EXACT` or :data:`GRADIENT`.
        """

        def made() -> OnlineLaplace:
            with self._seeded(0):
                return self._published(self._network(), name)

        def trained() -> dict[str, Tensor]:
            method = made()
            self._fit(method, 0)
            return network_tensors(method)

        method, first = made(), self.train[: self.training.fit.batch_size]
        method.prepare([(first, first)])
        label = f"{name} every {self.training.fit.every}" if name == EXACT else name
        fill(method, self._kept(label, 0, trained), Path(name))
        return method

    def running(self, name: str = ONLINE) -> Posterior:
        """The online posterior as it was published: with the average curvature, at its temperature."""
        method = self.online(name)
        method.after_training(list(zip(self.train.split(500), self.train.split(500), strict=True)))
        return method.result()

    def _published(self, net: Autoencoder, name: str) -> OnlineLaplace:
        if name == ONLINE:
            return OnlineLaplace.published(net, Gaussian(1.0))
        every = self.training.fit.every
        settings = OnlineUpdates(every=every, memory=PUBLISHED_MEMORY**every, recompute=False)
        if name == GRADIENT:
            settings = OnlineUpdates(source="gradient", memory=PUBLISHED_MEMORY, recompute=False)
        return OnlineLaplace(net, Gaussian(1.0), 1.0, settings, "diag", PUBLISHED_TEMPERATURE)

    def _network(self, kind: type[Autoencoder] = Autoencoder, **changes: Any) -> Autoencoder:
        return kind(*self._coders(codes=2 if kind is VAE else 1, **changes))

    def _coders(self, **changes: Any) -> Coders:
        network = self.training.network
        return mlp_coders(self.dataset.input_shape, network.latent, network.hidden, **changes)

    def _vae(self) -> Autoencoder:
        return self._network(kind=VAE)

    def _with_dropout(self, rate: float) -> Representation:
        network = lambda: self._network(dropout=rate)  # noqa: E731
        net = self._trained(f"{DROPOUT} {rate}", network, self._map(Gaussian(1.0)))
        return Representation(Dropout(net, self._residual(net)), codes=self.train)

    @staticmethod
    def _map(likelihood: Likelihood) -> Callable[[Autoencoder], MAP]:
        return lambda net: MAP(net, likelihood)

    # ---- noise and temperature ---------------------------------------------------------------------------------------

    _learned_variance = HeteroscedasticGaussian(class_axis=1)

    @cached_property
    def _noise(self) -> Gaussian:
        """That of the plain autoencoder."""
        return self._residual(self.autoencoder())

    def _residual(self, net: Autoencoder) -> Gaussian:
        """The root mean squared error of held-out images."""
        with torch.no_grad():
            return Gaussian(float((net(self.validation) - self.validation).square().mean().sqrt()))

    def _tuned(self, name: str, net: Autoencoder) -> LaplacianAutoencoder:
        """The library's default: approximate diagonal of all data at the weights, temperature by held-out images."""
        q = LaplacianAutoencoder.post_hoc(net, Gaussian(1.0), self.train, validation=None).posterior
        assert isinstance(q, Posterior)

        def temperature() -> dict[str, Tensor]:
            tuned = LaplacianAutoencoder.tuned(q, self.validation)
            assert isinstance(tuned.posterior, Posterior)
            return {"temperature": torch.tensor(tuned.posterior.temperature)}

        found = float(self._kept(f"{name} temperature", 0, temperature)["temperature"])
        return LaplacianAutoencoder(q.replace(temperature=found), codes=self.train)

    # ---- training and keeping ----------------------------------------------------------------------------------------

    def _seeded(self, member: int) -> Any:
        return seeded(1000 * self.seed + member)

    def _trained(
        self,
        name: str,
        network: Callable[[], Autoencoder],
        method: Callable[[Any], MAP | OnlineLaplace],
        member: int = 0,
    ) -> Autoencoder:
        """A network of this kind, from the folder where it is there."""
        with self._seeded(member):
            net = network()

        def trained() -> dict[str, Tensor]:
            self._fit(method(net), member)
            return network_tensors(net)

        fill(net, self._kept(name, member, trained), Path(name))
        net.latent = self.training.network.latent
        return net.eval()

    def _fit(self, method: MAP | OnlineLaplace, member: int) -> None:
        options = {name: getattr(self.training.fit, name) for name in OPTIONS}
        data = (self.train, self.train)
        train(method, data, seed=1000 * self.seed + member, device="cpu", progress=False, **options)

    def _kept(self, name: str, member: int, make: Callable[[], dict[str, Tensor]]) -> Mapping[str, Tensor]:
        words = "-".join([*name.replace(",", "").split(), str(member), self._about])
        path = Path(self.training.cells) / f"{words}.safetensors"
        if self.training.cells and path.exists():
            return read_tensors(path)[1]
        tensors = {key: value.detach().clone().contiguous() for key, value in make().items()}
        if self.training.cells:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_tensors(path, tensors, HEADER, {"name": name, "seed": self.seed})
        return tensors


def _fixed() -> torch.Generator:
    """Draws that are the same for all that are compared."""
    return torch.Generator().manual_seed(0)
