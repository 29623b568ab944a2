"""The autoencoders that the experiments of [miani2022] compare: trained once for each data set and seed, and cached."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import osculate as osc
from experiments import Resumable, Runner, seeded, train
from osculate.autoencoders import ELBO, VAE, Autoencoder, LaplacianAutoencoder, Representation
from osculate.likelihoods import Gaussian, HeteroscedasticGaussian
from osculate.methods.online_laplace import PUBLISHED_MEMORY, PUBLISHED_TEMPERATURE
from osculate.networks.coders import Coders, conv_coders, mlp_coders
from osculate.tensorfiles import fill, network_tensors

#: The methods that are compared.
AE, LEARNED, ENSEMBLE = "AE", "AE, learned variance", "ensemble of AEs"
VARIATIONAL, VARIANCES, DROPOUT = "VAE", "VAE, learned variance", "MC-dropout AE"
#: Both with a posterior fitted anew to all data at the end, at a temperature chosen on held-out data.
POST_HOC, ONLINE = "LAE, post-hoc", "LAE, online, refitted"
#: The posterior of the training itself, as published: with the average curvature of its steps, at its temperature.
RUNNING = "LAE, online, running"
#: Post-hoc with Kronecker factors in place of the approximate diagonal.
FACTORED = "LAE, post-hoc, KFAC"
METHODS = (AE, LEARNED, VARIATIONAL, VARIANCES, DROPOUT, ENSEMBLE, POST_HOC, ONLINE, RUNNING)
#: VAEs with one noise scale, and with a second output of the decoder for the variance of each pixel.
VAES = (VARIATIONAL, VARIANCES)
#: Those whose decoder predicts the variance of the noise.
HETEROSCEDASTIC = (LEARNED, VARIANCES)
#: Those that are Laplacian, and the others.
LAPLACIAN = (POST_HOC, ONLINE, RUNNING)
BASELINES = tuple(name for name in METHODS if name not in LAPLACIAN)
#: Online posteriors with the exact diagonal, and with the curvature of the sampled gradient.
EXACT, GRADIENT = "online, exact diagonal", "online, from gradients"
#: Options of the fit of every network.
OPTIONS = ("epochs", "batch_size", "lr")


@dataclass(frozen=True)
class Network:
    """Encoder and decoder.

    Args:
        hidden: Units of the encoder's hidden layers.
        latent: Size K of the code.
    """

    hidden: tuple[int, ...] = (512, 256)
    latent: int = 2


@dataclass(frozen=True)
class Convolutions(Network):
    """Strided convolutions.

    Args:
        width: Channels of the first convolution.
        depth: Number of times that the resolution is halved.
    """

    hidden: tuple[int, ...] = ()
    latent: int = 32
    width: int = 8
    depth: int = 4


@dataclass(frozen=True)
class Fit:
    """Training of all networks.

    Args:
        epochs: Passes over the training images, the same for all methods.
        batch_size: Images in a batch.
        lr: Learning rate of Adam.
        members: Networks of the ensemble; the first is the single autoencoder.
        dropout: Candidate rates; held-out images choose.
        every: Steps between two exact diagonals, for the training that uses them.
    """

    epochs: int = 10
    batch_size: int = 50
    lr: float = 1e-3
    members: int = 5
    dropout: tuple[float, ...] = (0.05, 0.2)
    every: int = 50


#: The length of the published trainings.
LONG = Fit(epochs=37)


@dataclass(frozen=True)
class Training(Resumable):
    """Data, networks and their training [miani2022].

    Args:
        data: Name of the data set.
        train_size: Number of training images.
        validation_size: Number of held-out images, which choose temperatures, the rate of dropout, and noise scales.
        test_size: Number of test images.
        network: Encoder and decoder.
        fit: Training of all networks.
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
        training: Data, networks and their training.
        seed: Seed of the held-out images, initial weights and batches.
    """

    def __init__(self, training: Training, seed: int) -> None:
        self.training, self.seed = training, seed
        self.dataset = self._load()
        self.train, self.validation = self.dataset.train[0], self.dataset.validation[0]
        self.test = self.dataset.test[0][: training.test_size]
        self._runner = Runner(training.cells)
        self._options = {name: getattr(training.fit, name) for name in OPTIONS}
        sizes = [training.train_size, training.validation_size]
        self._about = [training.data, *sizes, asdict(training.network), self._options]

    def _load(self) -> osc.data.Dataset:
        training = self.training
        return osc.data.load(
            training.data, train_size=training.train_size, validation_size=training.validation_size, seed=self.seed
        )

    @cached_property
    def outside(self) -> dict[str, Tensor]:
        """Out-of-distribution images, as many of each kind as there are test images."""
        sets = osc.data.out_of_distribution(self.dataset, seed=self.seed)
        return {name: images[: self.training.test_size] for name, images in sets.items()}

    def representation(self, name: str) -> Representation:
        """Return one of :data:`METHODS`, or :data:`FACTORED`.

        The noise is that of held-out residuals, for Laplacian ones of training.
        """
        if name == AE:
            return Representation(osc.posteriors.Point(self.autoencoder(), self._noise), codes=self.train)
        if name in HETEROSCEDASTIC:
            likelihood = HeteroscedasticGaussian(class_axis=1)
            network = partial(self._network, kind=Autoencoder if name == LEARNED else VAE, outputs=2)
            method = osc.methods.MAP if name == LEARNED else ELBO
            net = self._trained(name, network, lambda net: method(net, likelihood))
            return Representation(osc.posteriors.Point(net, likelihood), codes=self.train)
        if name == VARIATIONAL:
            network = partial(self._network, kind=VAE)
            net = self._trained(VARIATIONAL, network, lambda net: ELBO(net, self._noise))
            return Representation(osc.posteriors.Point(net, self._noise))
        if name == ENSEMBLE:
            members = [self.autoencoder(number) for number in range(self.training.fit.members)]
            return Representation(osc.posteriors.Ensemble(members, self._noise), codes=self.train)
        if name == DROPOUT:
            rates = []
            for rate in self.training.fit.dropout:
                network = partial(self._network, dropout=rate)
                net = self._trained(f"{name} {rate}", network, lambda net: osc.methods.MAP(net, Gaussian(1.0)))
                rates.append(Representation(osc.posteriors.Dropout(net, self._residual(net)), codes=self.train))
            draws = (torch.Generator().manual_seed(0) for _ in rates)
            scores = [float(r.log_prob(self.validation, 20, g).mean()) for r, g in zip(rates, draws, strict=True)]
            return rates[scores.index(max(scores))]
        if name == POST_HOC:
            return self._tuned(name, self.autoencoder())
        if name == FACTORED:
            return self._tuned(name, self.autoencoder(), structure="kron", curvature="fisher")
        if name == RUNNING:
            return LaplacianAutoencoder(self.running(), codes=self.train)
        mean = self.online().model
        assert isinstance(mean, Autoencoder)
        return self._tuned(name, mean.eval())

    def autoencoder(self, member: int = 0) -> Autoencoder:
        """Return a plain autoencoder, trained by the squared error."""
        return self._trained(AE, self._network, lambda net: osc.methods.MAP(net, Gaussian(1.0)), member)

    def online(self, name: str = ONLINE) -> osc.methods.OnlineLaplace:
        """Return the method after training at the published scale.

        Args:
            name: Curvature: :data:`ONLINE`, :data:`EXACT` or :data:`GRADIENT`.
        """
        every = self.training.fit.every
        updates = {
            EXACT: osc.methods.OnlineUpdates(every=every, memory=PUBLISHED_MEMORY**every, recompute=False),
            GRADIENT: osc.methods.OnlineUpdates(source="gradient", memory=PUBLISHED_MEMORY, recompute=False),
        }

        def new() -> osc.methods.OnlineLaplace:
            with seeded(1000 * self.seed):
                net = self._network()
                if name == ONLINE:
                    return osc.methods.OnlineLaplace.published(net, Gaussian(1.0))
                return osc.methods.OnlineLaplace(net, Gaussian(1.0), 1.0, updates[name], "diag", PUBLISHED_TEMPERATURE)

        method, first = new(), self.train[: self.training.fit.batch_size]
        method.prepare([(first, first)])

        def run() -> None:
            trained = new()
            self._fit(trained, 0)
            fill(method, network_tensors(trained), Path(name))

        about = [*self._about, every] if name == EXACT else self._about
        self._runner.network("lae", (name, self.seed), about, method, run)
        return method

    def running(self, name: str = ONLINE) -> osc.posteriors.Gaussian:
        """Return the online posterior as published: with the average curvature, at the published temperature."""
        method = self.online(name)
        method.after_training(list(zip(self.train.split(500), self.train.split(500), strict=True)))
        return method.result()

    def _network(self, kind: type[Autoencoder] = Autoencoder, **changes: Any) -> Autoencoder:
        return kind(*self._coders(codes=2 if kind is VAE else 1, **changes))

    def _coders(self, **changes: Any) -> Coders:
        network, shape = self.training.network, self.dataset.input_shape
        if isinstance(network, Convolutions):
            return conv_coders(shape, network.latent, network.width, network.depth, **changes)
        return mlp_coders(shape, network.latent, network.hidden, **changes)

    @cached_property
    def _noise(self) -> Gaussian:
        """The likelihood with the residual scale of the plain autoencoder."""
        return self._residual(self.autoencoder())

    def _residual(self, net: Autoencoder) -> Gaussian:
        """Return the likelihood whose scale is the root mean squared error on held-out images."""
        with torch.no_grad():
            return Gaussian(float((net(self.validation) - self.validation).square().mean().sqrt()))

    def _tuned(self, name: str, net: Autoencoder, **options: Any) -> LaplacianAutoencoder:
        """Fit a posterior to all data at the weights, by default an approximate diagonal; held-out data temper it."""
        with seeded(self.seed):  # targets that a Fisher draws
            r = LaplacianAutoencoder.post_hoc(net, Gaussian(1.0), self.train, validation=None, **options)
        q = r.posterior
        assert isinstance(q, osc.posteriors.Gaussian)

        def temperature() -> dict[str, float]:
            tuned = LaplacianAutoencoder.tuned(q, self.validation).posterior
            assert isinstance(tuned, osc.posteriors.Gaussian)
            return {"temperature": float(torch.tensor(tuned.temperature))}

        found = self._runner.cached("lae-temperature", (name, self.seed), self._about, temperature)
        return LaplacianAutoencoder(q.replace(**found), codes=self.train)

    def _trained(
        self,
        name: str,
        network: Callable[[], Autoencoder],
        method: Callable[[Any], osc.methods.MAP | osc.methods.OnlineLaplace],
        member: int = 0,
    ) -> Autoencoder:
        """Train a network of this kind, or read it from the cache."""
        with seeded(1000 * self.seed + member):
            net = network()
        job = (name, self.seed, member)
        self._runner.network("lae", job, self._about, net, lambda: self._fit(method(net), member))
        net.latent = self.training.network.latent
        return net.eval()

    def _fit(self, method: osc.methods.MAP | osc.methods.OnlineLaplace, member: int) -> None:
        data = (self.train, self.train)
        train(method, data, seed=1000 * self.seed + member, **self._options)
