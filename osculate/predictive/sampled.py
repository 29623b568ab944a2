"""The network itself at sampled weights."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.inputs import Inputs, count, moved, take
from osculate.posteriors import Gaussian

#: Rows of x that pass through a network at once.
ROWS = 1024


def sampled_networks(
    q: Gaussian, x: Inputs, samples: int, generator: torch.Generator | None = None
) -> Iterator[Float[Tensor, "N *C"]]:
    """f(x; θ_s) for S draws of the weights, one after the other, each used for all inputs."""
    x = moved(x, q.network.device)
    parts = [take(x, slice(start, start + ROWS)) for start in range(0, count(x), ROWS)]
    for _ in range(samples):
        theta = q.network.space.unflatten(q.sample(1, generator)[0])
        with torch.no_grad():
            found = [q.network(rows, theta).to(q.network.state_dtype) for rows in parts]
        yield found[0] if len(found) == 1 else torch.cat(found)
