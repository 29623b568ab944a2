"""The two networks of the budgets, and data on which they can be trained."""

from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import osculate as osc
from benchmarks import timing

CLASSES, DATA, BATCH = 10, 2000, 100


@dataclass(frozen=True, eq=False)
class Setting:
    """A trained network and its data.

    Attributes:
        name: As it stands in the table.
        model: Plain ``nn.Sequential``, which every peer can take apart.
        x: Inputs (N, …).
        y: Class indices (N,).
    """

    name: str
    model: nn.Module
    x: Tensor
    y: Tensor

    @property
    def batches(self) -> list[tuple[Tensor, Tensor]]:
        """All data, in batches made beforehand: no loader is timed."""
        return list(zip(self.x.split(BATCH), self.y.split(BATCH), strict=True))

    def loader(self, count: int, batch: int = BATCH) -> DataLoader:
        """The first ``count`` data as the peers want them."""
        return DataLoader(TensorDataset(self.x[:count], self.y[:count]), batch_size=batch)

    def training_pass(self, count: int = DATA) -> None:
        """One unit: forward and backward once through the first ``count`` data."""
        for x, y in zip(self.x[:count].split(BATCH), self.y[:count].split(BATCH), strict=True):
            self.model.zero_grad()
            F.cross_entropy(self.model(x), y, reduction="sum").backward()


@lru_cache
def setting(name: str) -> Setting:
    """ "mlp" (784-512-512-10, 669,706 parameters) or "lenet" (61,706), briefly trained in float32.

    The data are noisy class means, so that some directions of the weights are determined and most are not.
    """
    generator = torch.Generator().manual_seed(0)
    shape = (784,) if name == "mlp" else (1, 28, 28)
    y = torch.randint(CLASSES, (DATA,), generator=generator)
    x = 0.15 * torch.randn(CLASSES, *shape, generator=generator)[y] + torch.randn(DATA, *shape, generator=generator)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = osc.networks.MLP(784, (512, 512), CLASSES, "relu") if name == "mlp" else osc.networks.LeNet()
    model, x, y = model.to(timing.device), x.to(timing.device), y.to(timing.device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
    for _ in range(5):
        for inputs, targets in zip(x.split(BATCH), y.split(BATCH), strict=True):
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
    return Setting(name, plain(model).eval(), x, y)


def plain(model: nn.Sequential) -> nn.Sequential:
    """The same layers in an ``nn.Sequential`` itself: some peers know no subclass of it."""
    return nn.Sequential(*model)


@lru_cache
def posterior(name: str, structure: str) -> osc.posteriors.Gaussian:
    """Our posterior with unit prior precision, its eigenvalues ready."""
    data = setting(name)
    q = osc.laplace(
        data.model, osc.likelihoods.Categorical(), data.batches, structure=structure, prior=1.0, refine=False
    )
    osc.log_evidence(q)
    return q
