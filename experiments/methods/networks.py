"""The trained networks of the studies of calibration: with a prior, and as users train, on small and larger data."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

import osculate as osc
from experiments import Runner, seeded, train
from osculate.data import Dataset, load, out_of_distribution, shuffled_pixels
from osculate.data.dataset import Part

#: Images that are predicted at most, in and out of distribution.
TEST, OUTSIDE = 2_000, 1_000
#: Out-of-distribution sets at most, for colour images.
PARTNERS = 3
#: Optimisers of users, who train without a prior.
OPTIMISERS = {
    "AdamW": lambda parameters, lr: torch.optim.AdamW(parameters, lr=lr),
    "SGD": lambda parameters, lr: torch.optim.SGD(parameters, lr=lr, momentum=0.9),
}


@dataclass(frozen=True)
class Task:
    """A network and the data that it is trained on.

    Args:
        data: Name of the data set.
        model: Name of the network.
        training: "MAP", or "AdamW" or "SGD" without a prior.
        size: Number of training data; None for all but the validation part.
        held_out: Number of validation data; None for the usual part.
        stopped: The training ends where the validation loss is lowest.
        epochs: Passes over the data.
        lr: Learning rate.
        prior: Prior precision of MAP.
        options: Options of the network.
    """

    data: str
    model: str
    training: str
    size: int | None = None
    held_out: int | None = None
    stopped: bool = False
    epochs: int = 30
    lr: float = 3e-3
    prior: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Return the name of the task in tables."""
        size = f" {self.size:,}" if self.size else ""
        return f"{self.data}{size}, {self.model}, {self.training}{', stopped early' if self.stopped else ''}"

    @property
    def has_prior(self) -> bool:
        """Return True if the network is trained with a prior."""
        return self.training == "MAP"

    def load(self, seed: int) -> Dataset:
        """Return the data; of those that come in splits, the split with the number of the seed."""
        split = seed if self.data in osc.data.loading.SPLITS else 0
        return load(self.data, train_size=self.size, validation_size=self.held_out, split=split, seed=seed)

    def network(self, dataset: Dataset, seed: int) -> nn.Module:
        """Return a new network."""
        with seeded(seed):
            return osc.networks.build(self.model, dataset.input_shape, dataset.outputs, **self.options)

    def trained(
        self, runner: Runner, dataset: Dataset, likelihood: Any, seed: int, member: int = 0, epochs: int | None = None
    ) -> nn.Module:
        """Return the trained network of a seed, or another member of its ensemble; for a test with fewer epochs."""
        if epochs is not None and epochs != self.epochs:
            return replace(self, epochs=epochs).trained(runner, dataset, likelihood, seed, member)
        network = self.network(dataset, 100 * seed + member)
        about = [self.stopped, self.epochs, self.lr, self.prior, str(dict(self.options)), self.held_out]
        job = (self.data, self.size, self.model, self.training, seed, member)
        runner.network("trained", job, about, network, lambda: self._train(network, dataset, likelihood, seed + member))
        return network.eval()

    def _train(self, network: nn.Module, dataset: Dataset, likelihood: Any, seed: int) -> None:
        if self.has_prior:
            method = osc.methods.MAP(network, likelihood, self.prior)
            train(method, dataset.train, epochs=self.epochs, lr=self.lr, batch_size=batch(dataset), seed=seed)
        else:
            self._train_as_users(network, dataset, likelihood, seed)

    def _train_as_users(self, network: nn.Module, dataset: Dataset, likelihood: Any, seed: int) -> None:
        x, y = dataset.train
        optimiser = OPTIMISERS[self.training](network.parameters(), self.lr)
        generator, best, kept = torch.Generator().manual_seed(seed), math.inf, network.state_dict()
        for _ in range(self.epochs):
            network.train()
            for rows in torch.randperm(len(x), generator=generator).split(batch(dataset)):
                optimiser.zero_grad()
                (-likelihood.log_prob(network(x[rows]), y[rows]).mean()).backward()
                optimiser.step()
            network.eval()
            if self.stopped:
                with torch.no_grad():
                    loss = -float(likelihood.log_prob(network(dataset.validation[0]), dataset.validation[1]).mean())
                if loss < best:
                    best, kept = loss, {name: value.clone() for name, value in network.state_dict().items()}
        if self.stopped:
            network.load_state_dict(kept)


def batch(dataset: Dataset) -> int:
    """Return the number of data in a step."""
    return 64 if len(dataset.train[0]) >= 1_000 else 32


def limited(part: Part, size: int = TEST) -> Part:
    """Return the first data of a part."""
    return part[0][:size], part[1][:size]


def outside(dataset: Dataset, seed: int) -> dict[str, Tensor]:
    """Return images that are out of distribution, by name; nothing for data that are not images."""
    if len(dataset.input_shape) < 3:
        return {}
    found = out_of_distribution(dataset, seed=seed) or {"shuffled pixels": shuffled_pixels(dataset.test[0])}
    return {name: images[:OUTSIDE] for name, images in list(found.items())[:PARTNERS]}
