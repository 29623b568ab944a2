"""The network itself: at sampled weights, or at the mode."""

from collections.abc import Callable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.products import activations
from osculate.inputs import Inputs, count, moved, take
from osculate.memory import budget, even_parts
from osculate.parameters import Network
from osculate.posteriors import Sampled

#: The most inputs that pass through a network at once.
ROWS = 1024


def sampled_networks(
    q: Sampled, x: Inputs, samples: int, generator: torch.Generator | None = None, memory: str | int | None = None
) -> Iterator[Float[Tensor, "N *C"]]:
    """The outputs of the networks that are drawn from a posterior, one after the other, each used for all inputs."""
    x = moved(x, q.network.device)
    parts = _at_once(q.network, x, memory)
    for drawn in q.draws(samples, generator):
        yield _outputs(drawn, x, parts, q.network.state_dtype)


def network_at_mode(network: Network, x: Inputs, memory: str | int | None = None) -> Float[Tensor, "N *C"]:
    """f(x; θ*)."""
    x = moved(x, network.device)
    return _outputs(network, x, _at_once(network, x, memory), network.state_dtype)


def _at_once(network: Network, x: Inputs, memory: str | int | None) -> list[slice]:
    """Slices of the inputs that pass through the network together: their activations fit into the memory."""
    each = network.state_dtype.itemsize * activations(network, x)
    return even_parts(count(x), min(ROWS, budget(memory, network.device) // each))


def _outputs(
    network: Callable[[Inputs], Tensor], x: Inputs, parts: list[slice], dtype: torch.dtype
) -> Float[Tensor, "N *C"]:
    whole = torch.empty(0)
    with torch.no_grad():
        for part in parts:
            f = network(take(x, part)).to(dtype)
            if len(parts) == 1:
                return f
            if part.start == 0:
                whole = f.new_empty(count(x), *f.shape[1:])
            whole[part] = f
    return whole
