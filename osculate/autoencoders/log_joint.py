"""log p(y|z) of many codes under one network, a few at a time."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.autoencoders.autoencoder import VAE
from osculate.likelihoods import Likelihood
from osculate.memory import budget, even_parts
from osculate.parameters import Network

#: Bytes of images that are decoded at once by each thread, where they are to stay in its cache.
CACHED = 2**19
#: The images are held about this often at once: as outputs, and while their density is taken.
PEAK = 8


class LogJoint:
    """What bounds on log p(y) are made of: q(z|x), p(z) and p(y|z) under one network.

    Args:
        network: of the posterior, or one drawn from it.
        model: the autoencoder, for how its codes are distributed.
        likelihood: p(y|z).
        memory: what the images of a pass may take; by default as much as stays in the cache of a CPU, and as
            :func:`osculate.memory.budget` has it on another device.
    """

    def __init__(
        self, network: Callable[[Any], Tensor], model: VAE, likelihood: Likelihood, memory: str | int | None = None
    ) -> None:
        self.network, self.likelihood, self._memory = network, likelihood, memory
        member = network.module if isinstance(network, Network) else model  # one of an ensemble has codes of its own
        assert isinstance(member, VAE)
        self.posterior, self.prior = member.posterior, member.prior

    def encoded(self, x: Float[Tensor, "N *D"]) -> Float[Tensor, "N R"]:
        """The numbers of q(z|x)."""
        return torch.cat([self.network({"encode": x[part]}) for part in even_parts(len(x), self._rows(x))])

    def require_targets(self, y: Tensor, like: Float[Tensor, "1 K"]) -> None:
        """Refuse targets that do not fit the images of this network.

        Args:
            y: targets.
            like: any code.

        Raises:
            ValueError: or TypeError, as the likelihood says it.
        """
        for part in even_parts(len(y), self._rows(y)):
            self.likelihood.check(self.network({"decode": like.expand(len(y[part]), -1)}), y[part])

    def log_prob(self, z: Float[Tensor, "S N K"], y: Tensor) -> Float[Tensor, "S N"]:
        """log p(y_n|z_sn), in double precision."""
        found = torch.empty(z.shape[:2], dtype=torch.double, device=z.device)
        for s, n in self.parts(z, y):
            found[s, n] = self.each(z[s, n], y[n]).double()
        return found

    def each(self, z: Float[Tensor, "S N K"], y: Tensor) -> Float[Tensor, "S N"]:
        """log p(y_n|z_sn), all at once, and differentiable."""
        f = self.network({"decode": z.flatten(0, 1)})
        return self.likelihood.log_prob(f, y.expand(len(z), *y.shape).flatten(0, 1)).unflatten(0, z.shape[:2])

    def parts(self, z: Float[Tensor, "S N K"], y: Tensor) -> Iterator[tuple[slice, slice]]:
        """Draws and data, as many at a time as may be decoded at once."""
        rows = self._rows(y)
        for n in even_parts(z.shape[1], rows):
            for s in even_parts(len(z), rows // (n.stop - n.start)):
                yield s, n

    def _rows(self, y: Tensor) -> int:
        """How many images are decoded at once."""
        size, device = max(1, y[0].numel()) * y.element_size(), y.device
        if self._memory is None and device.type == "cpu":
            return max(1, torch.get_num_threads() * CACHED // size)
        return max(1, budget(self._memory, device) // (PEAK * size))
