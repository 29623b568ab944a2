"""Subnetworks: a posterior over some parameters of a network, while the others stay at the mode."""

import copy
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from osculate.batches import Data, as_batches, shuffled
from osculate.checks import require_positive
from osculate.curvature.columns import Columns, Kind
from osculate.inputs import moved
from osculate.likelihoods import Likelihood
from osculate.methods.map import negative_log_joint
from osculate.methods.swag import SMALLEST
from osculate.parameters import Network
from osculate.priors import Isotropic
from osculate.progress import track
from osculate.registry import choose

#: Names of the selections.
WAYS = ("function_space", "swag", "magnitude", "random", "diag_variance")
#: Share g / (g + δ) of a parameter that the data determine, below which their outputs hardly depend on it.
INSENSITIVE = 0.01
#: Batch size of the descent, if the data are tensors or a data set.
BATCH_SIZE = 128


@dataclass(frozen=True)
class Units(Kind):
    """One column for each output: the sum of J_nᵀ J_n."""

    name: ClassVar[str] = "units"

    def columns(self, likelihood: Likelihood, f: Tensor, y: Tensor) -> Columns:
        """The unit columns, treated like any others because they are summed over data."""
        return replace(Columns.units(f, 1), identity=False)

    def fewer(self) -> str:
        """The ways to choose a subnetwork without a column for each output."""
        return "Choose the subnetwork by osc.Subnetwork(…, select='magnitude'), 'swag' or 'random'."


@runtime_checkable
class HasVariance(Protocol):
    """A posterior with a variance of each parameter, such as that of ``osc.methods.SWAG``."""

    def variance(self) -> Float[Tensor, " P"]:
        """The variances, in the order of the parameters."""


#: A function that gives the diagonals of G and of Σ_n J_nᵀ J_n.
Diagonals: TypeAlias = Callable[[], tuple[Float[Tensor, " P"], Float[Tensor, " P"]]]


@dataclass(frozen=True, eq=False)
class Subnetwork:
    r"""A share of the parameters, those with the highest scores, for a posterior with all their correlations.

    .. math:: \text{function space: } \frac{\sum_n \sum_c J_{ncp}^2}{g_p + \delta}, \qquad
              \text{swag: } \frac1K \sum_k (\theta_{kp} - \bar\theta_p)^2, \qquad
              \text{magnitude: } |\theta_p|, \qquad
              \text{diagonal variance: } \frac{1}{g_p + \delta}

    with g the diagonal of G. All other parameters are taken as known. [daxberger2021b]

    * "function_space" keeps the parameters whose individual uncertainty matters most for the outputs on the data.
    * "swag" keeps those that move most along stochastic gradient descent: the subnetwork whose posterior is closest in
      the Wasserstein distance, if the posterior were the diagonal SWAG. The descent runs from the mode on a copy of the
      network, in evaluation mode, with momentum 0.9. Its steps are those of the loss in nats per datum: a Gaussian
      likelihood with little noise needs a smaller rate. To use another descent, pass the posterior of
      ``osc.methods.SWAG``, or any other with ``variance()``, as ``select``.
    * "diag_variance" keeps those with the largest variance in a diagonal Laplace posterior. With ReLU these are weights
      without effect on the data, whose posterior is the prior: a warning counts them.

    Args:
        fraction: The share of the parameters that is kept, above 0 and at most 1.
        select: "function_space", "swag", "magnitude", "random", "diag_variance", a tensor of scores (P,), the
            highest of which are kept, or a posterior with ``variance()`` over the same parameters.
        precision: δ, the prior precision that the scores assume.
        weights_only: True to leave out vectors, which are biases and the parameters of normalisation layers.
        snapshots: Number of snapshots K of "swag", one after each epoch; at least 2.
        lr: The learning rate of "swag".
        seed: Seed of the choice in "random", and of the order of the data in "swag".

    Raises:
        ValueError: a value is out of range, or the selection is unknown.
        TypeError: ``select`` is neither a name nor scores, and has no variances.

    Cost of the choice: two passes for diagonals ("function_space", "diag_variance"), K epochs of training ("swag"), or
    nothing.

    >>> import osculate as osc
    >>> X, Y = torch.randn(30, 2), torch.randint(3, (30,))
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 20), torch.nn.ReLU(), torch.nn.Linear(20, 3))
    >>> some = osc.Subnetwork(0.2)
    >>> q = osc.laplace(model, osc.likelihoods.Categorical(), (X, Y), structure="full", subset=some, prior=1.0)
    >>> int((q.variance() > 0).sum()), q.mean.numel()
    (25, 123)
    """

    fraction: float
    select: Any = "function_space"
    precision: float = 1.0
    weights_only: bool = False
    snapshots: int = 40
    lr: float = 1e-2
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise ValueError(
                f"fraction, the share of parameters that is kept, must be above 0 and at most 1, got {self.fraction}."
            )
        require_positive("the prior precision", self.precision)
        require_positive("the learning rate", self.lr)
        if self.snapshots < 2:
            raise ValueError(f"a variance needs at least two snapshots, got {self.snapshots}.")
        if isinstance(self.select, str):
            choose("selection", self.select, WAYS)
        elif not isinstance(self.select, Tensor | HasVariance):
            raise TypeError(
                f"select must be one of {', '.join(map(repr, WAYS))}, scores (P,), or a posterior with variance(); "
                f"got {type(self.select).__name__}."
            )

    def mask(
        self, network: Network, diagonals: Diagonals, path: Callable[..., Float[Tensor, " P"]]
    ) -> Bool[Tensor, " P"]:
        """A mask of the parameters that are kept; only some selections pass over the data.

        Args:
            network: The network at its mode.
            diagonals: Passes over the data for the diagonals.
            path: Passes over the data for the variances along a descent; takes the last arguments of
                :func:`path_variance`.

        Raises:
            ValueError: the scores have another size or are NaN, or no parameter can be kept.
        """
        size = network.space.size
        scores = self._scores(network, diagonals, path).detach().cpu()
        if scores.shape != (size,):
            raise ValueError(
                f"the scores have shape {tuple(scores.shape)}, but the network has {size:,} tracked parameters."
            )
        if bool(scores.isnan().any()):
            raise ValueError(f"the score of parameter {int(scores.isnan().nonzero()[0])} is NaN: it cannot be ranked.")
        space = network.space
        allowed = torch.tensor([float(not self.weights_only or len(shape) > 1) for shape in space.shapes])
        if not bool(allowed.any()):
            raise ValueError(f"weights_only leaves nothing: {', '.join(space.names)} are vectors. Leave it out.")
        candidates = space.spread(allowed).nonzero().squeeze(-1)
        number = min(max(1, round(self.fraction * size)), len(candidates))
        mask = torch.zeros(size, dtype=torch.bool)
        mask[candidates[scores[candidates].topk(number).indices]] = True
        curvature = 1 / scores[mask] - self.precision
        if self.select == "diag_variance" and (dead := int((curvature < INSENSITIVE * self.precision).sum())):
            warnings.warn(
                f"{dead:,} of the {number:,} parameters chosen by 'diag_variance' have (nearly) zero "
                "curvature: the outputs on the data hardly depend on them, so that their variance is that of the prior "
                "and the largest of all. Such a subnetwork describes little uncertainty: choose by "
                "'function_space' or 'swag'.",
                stacklevel=4,
            )
        return mask

    def _scores(
        self, network: Network, diagonals: Diagonals, path: Callable[..., Float[Tensor, " P"]]
    ) -> Float[Tensor, " P"]:
        if isinstance(self.select, Tensor):
            return self.select
        if not isinstance(self.select, str):
            space = getattr(getattr(self.select, "network", None), "space", network.space)
            if space.names != network.space.names:
                raise ValueError(
                    f"the posterior that chooses the subnetwork is over {', '.join(space.names)}, the new one over "
                    f"{', '.join(network.space.names)}: their parameters must be the same."
                )
            return self.select.variance()
        if self.select == "magnitude":
            return network.mean.abs()
        if self.select == "random":
            return torch.rand(network.space.size, generator=torch.Generator().manual_seed(self.seed))
        if self.select == "swag":
            return path(precision=self.precision, snapshots=self.snapshots, lr=self.lr, seed=self.seed)
        curvature, outputs = diagonals()
        variance = 1 / (curvature + self.precision)
        return variance if self.select == "diag_variance" else outputs * variance


def path_variance(
    network: Network,
    likelihood: Likelihood,
    data: Data,
    precision: float,
    snapshots: int,
    lr: float,
    seed: int,
    progress: bool = False,
) -> Float[Tensor, " P"]:
    """The variances of the parameters along stochastic gradient descent from the mode: a diagonal SWAG.

    The network is copied. The order of the data is random if they are a pair of tensors or a data set, and
    otherwise that of the loader.

    Args:
        network: The network at its mode.
        likelihood: p(y|f).
        data: The training data of the network.
        precision: Precision of the isotropic prior.
        snapshots: Epochs, with a snapshot at the end of each.
        lr: The learning rate, for the loss in nats per datum; the momentum is 0.9.
        seed: Seed of the order of the data.
        progress: Show a progress bar.

    Raises:
        ValueError: the descent diverges.
    """
    module = copy.deepcopy(network.module)
    weights = {name: module.get_parameter(name).requires_grad_() for name in network.space.names}
    optimizer = torch.optim.SGD(weights.values(), lr, momentum=0.9)
    generator = torch.Generator().manual_seed(seed)
    prior, size = Isotropic(precision), sum(len(y) for _, y in as_batches(data))
    mean = squares = torch.zeros_like(network.mean)
    for epoch in track(range(1, snapshots + 1), "choice of the subnetwork: descent", snapshots, progress):
        for x, y in as_batches(shuffled(data, BATCH_SIZE, generator)):
            batch = moved(x, network.device), y.to(network.device)
            with torch.enable_grad():
                loss = negative_log_joint(module, likelihood, prior, *batch, size)
            if not bool(loss.isfinite()):
                raise ValueError(
                    f"the descent of select='swag' diverges with the learning rate {lr:g} (loss {loss.item():g} in "
                    f"epoch {epoch}): give Subnetwork a smaller lr."
                )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        theta = network.space.flatten(weights).detach().to(mean)
        before = theta - mean
        mean = mean + before / epoch
        squares = squares + before * (theta - mean)  # Welford's recursion
    return (squares / snapshots).clamp(min=SMALLEST)
