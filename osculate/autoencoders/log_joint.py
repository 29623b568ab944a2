"""log p(y|z) of many codes under one network, in parts that fit into memory."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.autoencoders.autoencoder import VAE
from osculate.likelihoods import Likelihood
from osculate.memory import budget, even_parts
from osculate.parameters import Network

#: Bytes of images that each thread decodes at once, such that they stay in its cache.
CACHED = 2**19
#: Copies of the images held at once: outputs, and temporaries of their density.
PEAK = 8


class LogJoint:
    """q(z|x), p(z) and p(y|z) under one network, the terms of bounds on log p(y).

    Args:
        network: network of the posterior, or one drawn from it.
        model: autoencoder with the distributions of codes.
        likelihood: p(y|z).
        memory: memory for the images of a pass; by default the cache of a CPU, and :func:`osculate.memory.budget` on
            other devices.
    """

    def __init__(
        self, network: Callable[[Any], Tensor], model: VAE, likelihood: Likelihood, memory: str | int | None = None
    ) -> None:
        self.network, self.likelihood, self._memory = network, likelihood, memory
        member = (
            network.module if isinstance(network, Network) else model
        )  # members of an ensemble have different distributions of codes
        assert isinstance(member, VAE)
        self.posterior, self.prior = member.posterior, member.prior

    def encoded(self, x: Float[Tensor, "N *D"]) -> Float[Tensor, "N R"]:
        """The outputs of the encoder, the parameters of q(z|x)."""
        return torch.cat([self.network({"encode": x[part]}) for part in even_parts(len(x), self._rows(x))])

    def require_targets(self, y: Tensor, like: Float[Tensor, "1 K"]) -> None:
        """Raise the error of the likelihood if targets do not fit the image of any code ``like``."""
        for part in even_parts(len(y), self._rows(y)):
            self.likelihood.check(self.network({"decode": like.expand(len(y[part]), -1)}), y[part])

    def log_prob(self, z: Float[Tensor, "S N K"], y: Tensor) -> Float[Tensor, "S N"]:
        """log p(y_n|z_sn), in double precision."""
        found = torch.empty(z.shape[:2], dtype=torch.double, device=z.device)
        for s, n in self.parts(z, y):
            found[s, n] = self.each(z[s, n], y[n]).double()
        return found

    def each(self, z: Float[Tensor, "S N K"], y: Tensor) -> Float[Tensor, "S N"]:
        """log p(y_n|z_sn) in a single differentiable pass."""
        f = self.network({"decode": z.flatten(0, 1)})
        return self.likelihood.log_prob(f, y.expand(len(z), *y.shape).flatten(0, 1)).unflatten(0, z.shape[:2])

    def parts(self, z: Float[Tensor, "S N K"], y: Tensor) -> Iterator[tuple[slice, slice]]:
        """Yield slices of draws and data that may be decoded at once."""
        rows = self._rows(y)
        for n in even_parts(z.shape[1], rows):
            for s in even_parts(len(z), rows // (n.stop - n.start)):
                yield s, n

    def _rows(self, y: Tensor) -> int:
        """The number of images that may be decoded at once."""
        size, device = max(1, y[0].numel()) * y.element_size(), y.device
        if self._memory is None and device.type == "cpu":
            return max(1, torch.get_num_threads() * CACHED // size)
        return max(1, budget(self._memory, device) // (PEAK * size))
