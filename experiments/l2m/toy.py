"""The cubic with 20 points: one small network, and every posterior over it that Figure 1 of [perone2021] compares."""

import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam, AdamW, Optimizer

from experiments import seeded
from osculate.data import Dataset, load
from osculate.data.toys import CUBIC_NOISE
from osculate.evidence import maximise_evidence
from osculate.likelihoods import Gaussian
from osculate.methods import HMC, L2M, MAP, SWAG, MCDropout, RandomizedPriors, laplace
from osculate.posteriors import Chains, Ensemble, Gaussian as Posterior, Mixture
from osculate.priors import Layerwise
from osculate.training import train

#: The prior of everything but what the document trains: θ ~ N(0, 1), chosen before anything was measured.
PRIOR = 1.0
#: Messages of what the record holds as numbers.
EXPECTED = (
    "networks sampled from this posterior",
    "the chains do not agree",
    ".*trajectories diverged",
    "the second m",
)

PRIORS, DROPOUT, ENSEMBLE, DIAGONAL_SWAG = "randomised priors", "MC dropout", "deep ensemble", "SWAG, diagonal"
REFERENCE, PRINTED, SAMPLED = "HMC, the reference", "L2M as printed", "L2M corrected, sampled"
LINEARISED, EXACT, SEVERAL = "L2M corrected, linearised", "Laplace, exact diagonal", "L2M at each of the ensemble"
DECAYED = "L2M corrected, linearised, document's training"


@dataclass(frozen=True)
class Document:
    """The document's training: AdamW on the mean squared error.

    Args:
        lr: its rate, constant.
        decay: its decoupled weight decay, λ.
        epochs: passes over the data.
    """

    lr: float = 0.1
    decay: float = 0.1
    epochs: int = 5000


@dataclass(frozen=True)
class Own:
    """Training to the mode of the posterior that HMC draws from; the rate is constant, then falls linearly to zero.

    Args:
        lr: rate of Adam.
        epochs: passes over the data in batches, for L2M and the ensemble.
        full: passes over all data at once, for randomised priors and dropout.
        members: of the ensembles.
        dropout: probability, after the hidden layer.
    """

    lr: float = 0.01
    epochs: int = 3000
    full: int = 2000
    members: int = 5
    dropout: float = 0.1


@dataclass(frozen=True)
class Path:
    """SWAG: constant steps of SGD from the mode.

    Args:
        lr: its rate; at about three times this one the training diverges.
        epochs: passes over the data, of which the second half gives snapshots.
    """

    lr: float = 3e-4
    epochs: int = 400


@dataclass(frozen=True)
class Drawn:
    """HMC.

    Args:
        chains: side by side.
        warmup: transitions before the first draw.
        draws: of each chain.
        max_depth: doublings of a trajectory at most.
    """

    chains: int = 16
    warmup: int = 200
    draws: int = 200
    max_depth: int = 8


@dataclass(frozen=True)
class Settings:
    """What is measured.

    Args:
        hidden: units of the one hidden layer, with ReLU.
        batch: data in a batch; the document does not print it.
        samples: networks drawn for each predictive.
        document: its training.
        own: that to the mode.
        path: of SWAG.
        drawn: HMC.
    """

    hidden: int = 40
    batch: int = 5
    samples: int = 500
    document: Document = Document()
    own: Own = Own()
    path: Path = Path()
    drawn: Drawn = Drawn()


@dataclass(frozen=True)
class Shown:
    """A posterior, and how it predicts.

    Attributes:
        q: the posterior.
        via: the way to predict; None for its own.
        seconds: what it took, training included.
    """

    q: Any
    via: str | None
    seconds: float


@dataclass(frozen=True)
class Toy:
    """The data of one seed, standardised, and the noise that is known.

    Attributes:
        settings: what is measured.
        seed: of the data and of all networks.
        data: 20 points to train on, 1,000 to test.
    """

    settings: Settings
    seed: int
    data: Dataset

    @classmethod
    def drawn(cls, settings: Settings, seed: int) -> "Toy":
        """That of a seed."""
        return cls(settings, seed, load("cubic", seed=seed, validation_size=0))

    @property
    def scale(self) -> float:
        """Standard deviation of the targets, in their own units."""
        assert self.data.target_scale is not None
        return float(self.data.target_scale)

    @property
    def likelihood(self) -> Gaussian:
        """The known noise, in standardised units."""
        return Gaussian(CUBIC_NOISE / self.scale)

    def network(self, number: int = 0, dropout: float = 0.0) -> nn.Sequential:
        """One of several networks of a seed."""
        hidden = self.settings.hidden
        with seeded(1000 * self.seed + number):
            layers = [nn.Linear(1, hidden), nn.ReLU(), nn.Linear(hidden, 1)]
        return nn.Sequential(*layers[:2], nn.Dropout(dropout), layers[2]) if dropout else nn.Sequential(*layers)

    def descend(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        epochs: int,
        loss: Callable[[Tensor, Tensor], Tensor],
        falls: bool,
    ) -> None:
        """A training of one's own, in shuffled batches."""
        x, y = self.data.train
        generator = torch.Generator().manual_seed(self.seed)
        rate = optimizer.param_groups[0]["lr"]
        for epoch in range(epochs):
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1.0, 2 * (1 - epoch / epochs)) if falls else rate
            for rows in torch.randperm(len(x), generator=generator).split(self.settings.batch):
                optimizer.zero_grad()
                loss(model(x[rows]), y[rows]).backward()
                optimizer.step()

    def documents(self) -> tuple[nn.Module, Optimizer]:
        """A network trained as the document says."""
        how, model = self.settings.document, self.network()
        optimizer = AdamW(model.parameters(), lr=how.lr, weight_decay=how.decay)
        self.descend(model, optimizer, how.epochs, nn.functional.mse_loss, falls=False)
        return model, optimizer

    def at_mode(self, number: int = 0) -> tuple[nn.Module, Optimizer]:
        """A network trained to the mode; Adam's weight decay is the prior over N, as the loss is a mean."""
        how, model, likelihood = self.settings.own, self.network(number), self.likelihood
        optimizer = Adam(model.parameters(), lr=how.lr, weight_decay=PRIOR / len(self.data.train[0]))
        self.descend(model, optimizer, how.epochs, lambda f, y: -likelihood.log_prob(f, y).mean(), falls=True)
        return model, optimizer

    def l2m(self, model: nn.Module, optimizer: Optimizer, **how: Any) -> Posterior:
        """L2M from the state that training has left."""
        data = self.data.train
        made = L2M.from_optimizer(
            model, optimizer, len(data[0]), self.settings.batch, self.likelihood, data, **{"prior_precision": 1.0} | how
        )
        return made.posterior

    def by_evidence(self, model: nn.Module, optimizer: Optimizer, **how: Any) -> Posterior:
        """L2M with one prior precision a layer of largest evidence; the noise is known and stays."""
        return maximise_evidence(self.l2m(model, optimizer, prior_precision=Layerwise(1.0), **how), noise=False)


def posteriors(toy: Toy) -> Iterator[tuple[str, Shown]]:
    """Every method on one data set."""
    yield from _of_the_document(toy)
    yield from _of_the_mode(toy)
    yield from _others(toy)
    with timed() as took:
        chains = _chains(toy)
    yield REFERENCE, Shown(chains, None, took())


def _of_the_document(toy: Toy) -> Iterator[tuple[str, Shown]]:
    with timed() as took:
        model, optimizer = toy.documents()
        decay = toy.settings.document.decay
        q = toy.l2m(model, optimizer, scaling="paper", prior_precision=decay, loss_scale="mse")
    yield PRINTED, Shown(q, "sampled", took())
    with timed() as more:
        q = toy.by_evidence(model, optimizer, loss_scale="mse")
    yield DECAYED, Shown(q, None, took() + more())


def _of_the_mode(toy: Toy) -> Iterator[tuple[str, Shown]]:
    """From the state at one mode: L2M in two ways, and the exact diagonal; from several: ensembles."""
    with timed() as trained:
        model, optimizer = toy.at_mode()
    with timed() as took:
        q = toy.l2m(model, optimizer, prior_precision=PRIOR)
    yield SAMPLED, Shown(q, "sampled", trained() + took())
    with timed() as took:
        first = toy.by_evidence(model, optimizer)
    yield LINEARISED, Shown(first, None, trained() + took())
    with timed() as took:
        exact = laplace(model, toy.likelihood, toy.data.train, structure="diag", prior=Layerwise(1.0))
        exact = maximise_evidence(exact, noise=False)
    yield EXACT, Shown(exact, None, trained() + took())
    with timed() as more:
        others = [toy.at_mode(number) for number in range(1, toy.settings.own.members)]
    yield ENSEMBLE, Shown(Ensemble([model, *(m for m, _ in others)], toy.likelihood), None, trained() + more())
    with timed() as took:
        mixture = Mixture([first, *(toy.by_evidence(*other) for other in others)])
    yield SEVERAL, Shown(mixture, None, trained() + more() + took())


def _others(toy: Toy) -> Iterator[tuple[str, Shown]]:
    own, data = toy.settings.own, toy.data.train
    how: dict[str, Any] = {"seed": toy.seed, "device": "cpu", "progress": False, "batch_size": len(data[0])}
    with timed() as took:
        networks = [toy.network(number) for number in range(own.members)]
        functions = [from_the_prior(toy.network(number), 1000 * toy.seed + number) for number in range(own.members)]
        method = RandomizedPriors(networks, toy.likelihood, PRIOR, prior_networks=functions)
        q = train(method, data, epochs=own.full, lr=own.lr, **how).posterior
    yield PRIORS, Shown(q, None, took())
    with timed() as took:
        dropout = MCDropout(toy.network(dropout=own.dropout), toy.likelihood, PRIOR)
        q = train(dropout, data, epochs=own.full, lr=own.lr, **how).posterior
    yield DROPOUT, Shown(q, None, took())
    with timed() as took:
        model, path = toy.network(), toy.settings.path
        train(MAP(model, toy.likelihood, PRIOR), data, epochs=own.full, lr=own.lr, **how)
        how |= {"batch_size": toy.settings.batch, "optimizer": "sgd", "schedule": "constant"}
        q = train(SWAG(model, toy.likelihood, PRIOR, rank=0), data, epochs=path.epochs, lr=path.lr, **how).posterior
    yield DIAGONAL_SWAG, Shown(q, None, took())


def from_the_prior(model: nn.Module, seed: int) -> nn.Module:
    """Weights drawn from p(θ)."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * PRIOR**-0.5)
    return model


def _chains(toy: Toy) -> Chains:
    how = toy.settings.drawn
    method = HMC(toy.network(), toy.likelihood, PRIOR, chains=how.chains, warmup=how.warmup, max_depth=how.max_depth)
    done = train(method, toy.data.train, epochs=how.warmup + how.draws, seed=toy.seed, device="cpu", progress=False)
    chains = done.posterior
    assert isinstance(chains, Chains)
    return chains


def prior_bound(q: Posterior) -> Tensor:
    """Of each weight, its standard deviation as a share of the one that the prior alone would leave."""
    return (q.variance() * q.prior.vector(q.network.space)).sqrt()


@contextmanager
def expected() -> Iterator[None]:
    """Without warnings of what is shown here and stands in the record."""
    with warnings.catch_warnings():
        for words in EXPECTED:
            warnings.filterwarnings("ignore", words)
        yield


@contextmanager
def timed() -> Iterator[Callable[[], float]]:
    """What a block takes, in seconds, to be asked for after it."""
    started = time.perf_counter()
    end: list[float] = []
    yield lambda: end[0]
    end.append(time.perf_counter() - started)
