"""Gradients of batches at weights that do not move, and what they say of those of single data."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.batches import Data, as_batches, is_pair, shuffled
from osculate.inputs import Inputs, count
from osculate.likelihoods import Likelihood
from osculate.methods._moments import Sampling
from osculate.parameters import Network

#: Batches with which a second moment is compared, and the factor between the two from which it is told.
COMPARED, FACTOR = 16, 3.0


@dataclass(frozen=True)
class BatchGradients:
    """∇ of the mean log likelihood of batches.

    Args:
        network: at the weights, in evaluation mode.
        likelihood: p(y|f).
        data: training data, or some of them.
        sampling: how batches were made in training: these have the same size.
        labels: "data", or "drawn" for labels of the network.
        generator: for the order of the data, and the labels.
    """

    network: Network
    likelihood: Likelihood
    data: Data
    sampling: Sampling
    labels: str = "data"
    generator: torch.Generator | None = None

    def __iter__(self) -> Iterator[tuple[int, Float[Tensor, " P"]]]:
        """Each with the number of its pass over the data, over and over; it ends where a pass is the one before.

        Raises:
            ValueError: no batch has the size of those in training.
        """
        size, number, first = self.sampling.batch_size, 0, None
        while True:
            whole = 0
            for x, y in as_batches(shuffled(self.data, size, self.generator)):
                if len(y) == size:
                    g, whole = self._of(x, y), whole + 1
                    if whole == 1 and first is not None and torch.equal(g, first):
                        return
                    first = g if whole == 1 else first
                    yield number, g
            if not whole:
                raise ValueError(
                    f"no batch of the data holds {size} data, as those in training did: pass them as tensors (X, Y), "
                    f"or a loader with batch_size={size}."
                )
            number += 1

    def _of(self, x: Inputs, y: Tensor) -> Float[Tensor, " P"]:
        theta = {name: value.requires_grad_() for name, value in self.network.parameters.items()}
        with torch.enable_grad():
            f = self.network(x, theta)
        y, drawn = y.to(f.device), self.labels == "drawn"
        here = f.detach()
        if drawn:
            column = self.likelihood.sampled_root(here, y, 1, self.generator)[0]
        else:
            column = self.likelihood.score(here, y)
        parts = torch.autograd.grad(f, list(theta.values()), column / len(f), materialize_grads=True)
        return torch.cat([part.reshape(-1) for part in parts])

    def fisher(self, steps: int) -> Float[Tensor, " P"]:
        r"""Σ_i l_i² of the N single data, without bias, from so many batches.

        .. math:: \frac1S \sum_s g_s^2 - \bar g^2 \approx C (w - V), \qquad
                  F = N \big(C (1 - V) + \bar g^2\big)

        C is the variance of single gradients, w C that of a batch's mean and V C that of ḡ, the mean over passes of
        which each but the last is complete.

        Raises:
            ValueError: there are fewer than two different batches.
        """
        number, size, passes = self.sampling.num_data, self.sampling.batch_size, [0]
        total = squares = torch.zeros(())
        for _, (which, g) in zip(range(steps), self, strict=False):
            passes += [0] * (which + 1 - len(passes))
            passes[which] += 1
            total, squares = total + g.double(), squares + g.double().square()
        taken = sum(passes)
        if self.labels == "drawn":  # of mean zero, whatever the batch
            return number * size * squares / taken
        if taken < 2:
            raise ValueError(f"a variance needs at least two different batches of {size}, and the data have {taken}.")
        there = Sampling(count(self.data[0]) if is_pair(self.data) else number, size)
        there.require_noise()
        mean = total / taken
        off = sum((here / taken) ** 2 * there.noise(here * size) for here in passes)
        single = ((squares / taken - mean.square()) / (there.noise(size) - off)).clamp(min=0)
        return number * (single * (1 - off) + mean.square())

    def compare(self, fisher: Float[Tensor, " P"]) -> None:
        """Warn where Σ_i l_i² from the state of an optimiser is not that of the gradients at these weights."""
        try:
            here = self.fisher(COMPARED)
        except ValueError:  # too few of the data are there
            return
        ratio = float(fisher.double().sum() / here.sum().clamp(min=torch.finfo(torch.double).tiny))
        if not 1 / FACTOR <= ratio <= FACTOR:
            warnings.warn(
                f"the curvature in the state of the optimiser is {ratio:.2g} times that of a few batches at the "
                "weights as they are: either training had not come to rest, or batch_size, num_data or loss_scale are "
                "not those of the training. Let the learning rate fall to zero and the last steps be many, or call "
                "refresh(200).",
                stacklevel=4,
            )
