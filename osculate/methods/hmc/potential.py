"""The negative log joint of all data as a potential, for several chains in one call of the network."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.func import vmap
from torch.fx.experimental.proxy_tensor import make_fx

from osculate.batches import Data, as_batches
from osculate.differentiation import Unfused
from osculate.inputs import Inputs, apply, as_floating, concatenate, floating, moved
from osculate.likelihoods import Likelihood
from osculate.methods._base import has_labels, require_labels
from osculate.parameters import Network
from osculate.posteriors.fit import check_density
from osculate.priors import Prior


class NegativeLogJoint:
    r"""U(θ) = −Σ_n log p(y_n|f_n) − log p(θ) of K chains at once, with its gradient, in double precision.

    Only the network runs under ``vmap``; the likelihood gets the data of all chains as one batch.

    Args:
        network: Network in double precision.
        likelihood: p(y|f).
        prior: p(θ), bound to the network's space.
        data: Training data; read once.
        chains: K.

    Attributes:
        inputs: All inputs, as one batch.
        num_data: N.

    Raises:
        ValueError: the data are invalid, the targets do not fit, or ``vmap`` cannot run the network.

    Cost: K forward and K backward passes over all data, whose activations are in memory together.
    """

    def __init__(self, network: Network, likelihood: Likelihood, prior: Prior, data: Data, chains: int) -> None:
        self.network, self.likelihood, self.chains = network, likelihood, chains
        batches = list(as_batches(data))
        self.inputs, targets = self._ready(concatenate([x for x, _ in batches]), torch.cat([y for _, y in batches]))
        self.num_data = len(targets)
        require_labels(has_labels(likelihood, targets))
        self._targets = _repeated(targets, chains)
        self._prior = prior.with_precision(prior.precision.detach())
        size = network.space.size
        self._normaliser = 0.5 * (size * math.log(2 * math.pi) - float(self._prior.log_det(network.space)))
        with torch.no_grad():
            f = network(self.inputs)
            likelihood.check(f, targets)
            check_density(likelihood, f, targets)
        self._require_vmap()
        start = torch.randn(chains, network.space.size, generator=torch.Generator().manual_seed(0)).to(network.mean)
        self._slope = recorded(self._log_likelihood_and_slope, start)

    def __call__(self, theta: Float[Tensor, "K P"]) -> tuple[Float[Tensor, " K"], Float[Tensor, "K P"]]:
        """U of each chain and its gradient."""
        fit, slope = self._slope(theta)
        apart = self._prior.apart(theta)
        force = self._prior.multiply(apart, self.network.space)
        return 0.5 * (force * apart).sum(1) + self._normaliser - fit, force - slope

    def _log_likelihood_and_slope(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        leaf = theta.detach().requires_grad_()
        with torch.enable_grad():
            fit = self._log_likelihoods(leaf, self.inputs, self._targets).sum(1)
            (slope,) = torch.autograd.grad(fit.sum(), leaf)
        return fit.detach(), slope

    @torch.no_grad()
    def log_likelihoods(self, theta: Float[Tensor, "K P"], x: Inputs, y: Tensor) -> Float[Tensor, "K N"]:
        """log p(y_n|f_n) of each chain for data of any floating type."""
        x, y = self._ready(x, y)
        self.likelihood.check(self.network(x), y)
        return self._log_likelihoods(theta, x, _repeated(y, len(theta)))

    def _log_likelihoods(self, theta: Float[Tensor, "K P"], x: Inputs, y: Tensor) -> Float[Tensor, "K N"]:
        f = vmap(self._function, in_dims=(0, None))(theta, x)
        return self.likelihood.log_prob(f.flatten(0, 1), y).unflatten(0, f.shape[:2])

    def _function(self, theta: Float[Tensor, " P"], x: Inputs) -> Float[Tensor, "N *C"]:
        with Unfused():  # a mode, with which layers also leave out the fused attention of evaluation mode
            return self.network(x, self.network.space.unflatten(theta))

    def _ready(self, x: Inputs, y: Tensor) -> tuple[Inputs, Tensor]:
        device = self.network.device
        return floating(moved(x, device), torch.double), as_floating(y.to(device), torch.double)

    def _require_vmap(self) -> None:
        few = apply(lambda tensor: tensor[:2], self.inputs)
        theta = self.network.mean.repeat(2, 1).requires_grad_()
        try:
            f = vmap(self._function, in_dims=(0, None))(theta, few)
            torch.autograd.grad(f.sum(), theta)
        except (RuntimeError, NotImplementedError) as error:
            first = str(error).strip().partition("\n")[0]
            named = self.network.module.named_modules()
            layers = [f"{type(layer).__name__} {name!r}" for name, layer in named if isinstance(layer, nn.RNNBase)]
            way_out = (
                f"The layer {layers[0]} cannot be vectorised over its weights: write it "
                "out as a loop over time steps, or use another method, such as MeanFieldVI."
                if layers
                else "Remove random numbers, branches on values (.item(), if tensor > 0: use torch.where) and in-place "
                "writes into its own tensors from its forward."
            )
            raise ValueError(
                f"the network cannot run for several chains at once: torch.func.vmap raised {first!r}. {way_out}"
            ) from error


def recorded(function: Callable[[Tensor], tuple[Tensor, Tensor]], example: Tensor) -> Callable:
    """Record the tensor operations of a function, to run it without the overhead of Python modules.

    The overhead dominates for small networks: recording halves the time for 41 weights. A function that cannot be
    recorded, or whose record gives different values at another point, is returned unchanged.
    """
    try:
        record = make_fx(lambda theta: function(theta))(example)  # a bound method would count as two arguments
        other = 0.9 * example + 0.1
        same = all(torch.equal(one, two) for one, two in zip(record(other), function(other), strict=True))
    except Exception:  # whatever cannot be recorded costs only speed
        return function
    return record if same else function


def _repeated(y: Tensor, chains: int) -> Tensor:
    return y.repeat(chains, *[1] * (y.ndim - 1))
