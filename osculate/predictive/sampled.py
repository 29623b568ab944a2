"""The network itself: at sampled weights, or at the mode."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.products import activations
from osculate.inputs import Inputs, count, moved, take
from osculate.memory import budget, even_parts
from osculate.parameters import Network
from osculate.posteriors import Gaussian

#: The most inputs that pass through a network at once.
ROWS = 1024


def sampled_networks(
    q: Gaussian, x: Inputs, samples: int, generator: torch.Generator | None = None, memory: str | int | None = None
) -> Iterator[Float[Tensor, "N *C"]]:
    """f(x; θ_s) for S draws of the weights, one after the other, each used for all inputs."""
    parts = _at_once(q.network, x, memory)
    for _ in range(samples):
        yield _outputs(q.network, parts, q.network.space.unflatten(q.sample(1, generator)[0]))


def network_at_mode(network: Network, x: Inputs, memory: str | int | None = None) -> Float[Tensor, "N *C"]:
    """f(x; θ*)."""
    return _outputs(network, _at_once(network, x, memory))


def _at_once(network: Network, x: Inputs, memory: str | int | None) -> list[Inputs]:
    """The inputs in parts whose activations fit into the memory."""
    x = moved(x, network.device)
    each = network.state_dtype.itemsize * activations(network, x)
    return [take(x, part) for part in even_parts(count(x), min(ROWS, budget(memory, network.device) // each))]


def _outputs(network: Network, parts: list[Inputs], theta: dict[str, Tensor] | None = None) -> Float[Tensor, "N *C"]:
    with torch.no_grad():
        found = [network(part, theta).to(network.state_dtype) for part in parts]
    return found[0] if len(found) == 1 else torch.cat(found)
