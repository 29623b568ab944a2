"""The network itself, at sampled weights or at the mode, and a warning if samples do not explain the data."""

import warnings
from collections.abc import Callable, Iterable, Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.products import activations
from osculate.inputs import Inputs, apply, count, moved, needs_gradient, take
from osculate.memory import budget, even_parts
from osculate.parameters import Network
from osculate.posteriors import Gaussian, Mixture, Posterior, Sampled
from osculate.predictive.losses import negative_log_likelihood

#: Largest number of inputs that pass through a network at once.
ROWS = 1024
#: Number of networks that are drawn for the comparison.
DRAWS = 8
#: Nats per target by which their mixture may be worse than the mode. Measured on digits (KFAC, 64-40-40-10, trained at
#: prior precision 1): worse by 5.1, 2.7, 0.94, 0.27 and 0.06 at precisions 0.1, 1, 10, 30 and 100, by 2.4 at those of
#: the evidence; for even against odd, where a fair coin is worse by 0.69, by 0.81, 0.79, 0.22, 0.06, 0.02 and 0.86.
#: Below 0.3 test accuracy falls by four points at most, from 0.79 up by four to ninety.
MARGIN = 0.5


def sampled_networks(
    q: Sampled, x: Inputs, samples: int, generator: torch.Generator | None = None, memory: str | int | None = None
) -> Iterator[Float[Tensor, "N *C"]]:
    """The outputs of the networks that are drawn from a posterior, one after the other, each used for all inputs."""
    graph = needs_gradient(x) or (isinstance(q, Gaussian) and q.differentiated)
    yield from _outputs(q.draws(samples, generator), q.network, x, memory, graph)


def network_at_mode(network: Network, x: Inputs, memory: str | int | None = None) -> Float[Tensor, "N *C"]:
    """f(x; θ*)."""
    return next(_outputs([network], network, x, memory, needs_gradient(x)))


def _outputs(
    functions: Iterable[Callable[[Inputs], Tensor]],
    network: Network,
    x: Inputs,
    memory: str | int | None,
    graph: bool,
) -> Iterator[Float[Tensor, "N *C"]]:
    """The outputs of functions like a network, in chunks of inputs whose activations fit into memory."""
    x = moved(x, network.device)
    each = activations(network, x)
    parts = even_parts(count(x), min(ROWS, budget(memory, network.device) // each))
    for function in functions:
        with torch.set_grad_enabled(graph):
            f = function(take(x, parts[0])).to(network.state_dtype)
            if len(parts) > 1:
                first, f = f, f.new_empty(count(x), *f.shape[1:])
                f[parts[0]] = first
                for part in parts[1:]:
                    f[part] = function(take(x, part)).to(f)
        yield f


def warn_if_far_worse(q: Posterior) -> None:
    """Warn if networks drawn from a Gaussian posterior are far worse than its mode on data that it was fitted to.

    The mean log likelihood of the mixture of a few drawn networks is compared with that of the mode, on the first data
    of the fit, once for each posterior. The draws have a separate generator. A posterior from a file has no data.

    Cost: :data:`DRAWS` draws of the weights, and as many forward passes of at most 64 data.
    """
    if isinstance(q, Mixture):
        for member in q.members:
            warn_if_far_worse(member)
    if not isinstance(q, Gaussian) or q.first_data is None or q.compared:
        return
    skip_comparison(q)  # the posterior is frozen, so that once is enough
    mode, mixture = log_likelihoods(q, *q.first_data)
    if mixture < mode - MARGIN:
        warnings.warn(
            "networks sampled from this posterior explain the data it was fitted to far worse than its mode does: "
            f"{mixture:.2f} against {mode:.2f} nats per target (the mixture of {DRAWS} of them, on "
            f"{len(q.first_data[1])} data). The Gaussian describes the linearised network, and the network itself is "
            "not linear within its width. Use via='linearised' (the default), a larger prior precision, or a "
            "temperature tuned on held-out data (osc.tune; for autoencoders LaplacianAutoencoder.tuned).",
            stacklevel=3,
        )


def skip_comparison(q: Gaussian) -> None:
    """Mark a posterior as compared, for one of many that are tried: :func:`warn_if_far_worse` stays silent."""
    object.__setattr__(q, "compared", True)


def log_likelihoods(q: Gaussian, x: Inputs, y: Tensor, draws: int = DRAWS) -> tuple[float, float]:
    """The mean log likelihood per target: of the mode, and of the mixture of drawn networks."""
    network, likelihood = q.network, q.likelihood

    def ready(tensor: Tensor) -> Tensor:
        return tensor.to(network.device, network.dtype if tensor.is_floating_point() else None)

    x, y = apply(ready, x), y.to(network.device)
    counted = likelihood.counted(y)
    targets = y.numel() if counted is None else int(counted.sum())
    with torch.no_grad():
        drawn = q.draws(draws, torch.Generator().manual_seed(0))
        parts = (f(x).to(network.state_dtype).unsqueeze(0) for f in drawn)
        mixture = -negative_log_likelihood(likelihood.mixture_of_parts(parts), y, counted).sum()
        mode = likelihood.log_prob(network(x).to(network.state_dtype), y).sum()
    return float(mode) / max(1, targets), float(mixture) / max(1, targets)
