"""A Gaussian from the path of stochastic gradient descent."""

import warnings
from collections.abc import Callable, Iterable, Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer

from osculate.checks import require_whole
from osculate.inputs import Inputs
from osculate.likelihoods import Likelihood
from osculate.methods._base import PriorLike, counter, set_parameters
from osculate.methods.map import MAP
from osculate.parameters import Network, trainable
from osculate.posteriors import Snapshots
from osculate.posteriors.samples import batch_normalisation, refusal

#: Smallest variance of a parameter, for parameters that never move.
SMALLEST = 1e-30
#: Share of the learning rate below which steps have shrunk.
SHRUNK = 0.9


class SWAG(MAP):
    r"""A Gaussian fitted to snapshots of the weights during training: SWA-Gaussian. [maddox2019]

    .. math:: \bar\theta = \frac1K \sum_k \theta_k, \qquad \sigma^2 = \frac1K \sum_k (\theta_k - \bar\theta)^2, \qquad
              d_k = \theta_k - \bar\theta_k

    The loss is that of :class:`osculate.methods.MAP`. After the share `burn_in` of the epochs, each `every` epochs end
    with a snapshot θ_k. Mean and variance are over all snapshots (by Welford's recursion, which avoids the cancellation
    in E[θ²] − E[θ]²; at least 1e-30), and the last `rank` deviations from the running mean are kept.

    The result depends on the training: SGD with a constant, rather high learning rate explores around the mode
    (``osc.train(method, data, optimizer="sgd", schedule="constant", lr=1e-2)``); with a rate that falls to zero the
    snapshots nearly coincide. The statistics of batch normalisation belong to particular weights, and fit neither the
    mean nor a sample: for such a network :meth:`Snapshots.variance` is valid (to choose a subnetwork), and predictions
    raise an error.

    Args:
        model: The network, possibly trained already; training changes it in place.
        likelihood: p(y|f).
        prior: p(θ): a precision, "fan_in", or an object of ``osculate.priors``.
        rank: The number of deviations kept, at least 2; 0 for a diagonal Gaussian.
        burn_in: The share of the epochs before the first snapshot, at least 0 and below 1.
        every: Epochs between snapshots.

    Raises:
        TypeError: ``model`` is not a module, or ``prior`` is neither a number nor a prior.
        ValueError: a value is out of range, or no parameter is trained.

    Warns: if the network has batch normalisation, and if the learning rate falls while snapshots are taken.

    Cost: that of training, and memory for (rank + 2) P numbers.

    >>> import osculate as osc
    >>> data = torch.randn(20, 2), torch.randn(20, 1)
    >>> method = SWAG(nn.Linear(2, 1), osc.likelihoods.Gaussian(), rank=2)
    >>> done = osc.train(method, data, epochs=8, optimizer="sgd", schedule="constant", lr=1e-2, progress=False)
    >>> done.posterior
    Snapshots(rank=2, P=3, likelihood=Gaussian)
    """

    count: Tensor
    planned: Tensor
    mean: Tensor
    squares: Tensor
    deviations: Tensor

    name = "swag"
    has_plain_steps = False
    usual = {"schedule": "constant"}
    recommended = {"lr": 0.05, "optimizer": "sgd"}
    refused = {
        "schedule": "takes snapshots along a path whose steps must not shrink",
        "patience": "takes snapshots until the last epoch",
    }
    network_name = "its mean"

    def __init__(
        self,
        model: nn.Module,
        likelihood: Likelihood,
        prior: PriorLike = 1.0,
        rank: int = 20,
        burn_in: float = 0.5,
        every: int = 1,
    ) -> None:
        super().__init__(model, likelihood, prior)
        if isinstance(rank, bool) or not isinstance(rank, int) or rank < 0 or rank == 1:
            raise ValueError(f"rank must be 0 (diagonal) or a whole number of at least 2, got {rank!r}.")
        if not 0 <= burn_in < 1:
            raise ValueError(f"burn_in is a share of the epochs, at least 0 and below 1, got {burn_in!r}.")
        require_whole("every", every)
        self.rank, self.burn_in, self.every = rank, burn_in, every
        self._names = trainable(model)
        theta = self._theta()
        if name := batch_normalisation(model):
            warnings.warn(f"{refusal(name)} The variances of the weights will be right.", stacklevel=2)
        self.store(count=counter(), planned=counter(), deviations=theta.new_zeros(rank, len(theta)))
        self.store(mean=torch.zeros_like(theta), squares=torch.zeros_like(theta))
        self._optimizer: Optimizer | None = None
        self._rate = 0.0  # largest so far
        self._taken, self._epoch, self._epochs = 0, 0, 0  # not restored by early stopping
        self._warned = False

    def optimizer(self, make: Callable[..., Optimizer], lr: float) -> Optimizer:
        """Return the optimiser of the settings, and keep it to monitor the learning rate."""
        self._optimizer, self._rate = super().optimizer(make, lr), lr
        return self._optimizer

    def require_epochs(self, epochs: int) -> None:
        """Raise ValueError if this number of epochs gives fewer than two snapshots."""
        count = (epochs - int(self.burn_in * epochs)) // self.every
        if count < 2:
            raise ValueError(f"epochs={epochs} gives {_snapshots(count)}{self._remedy}")

    @property
    def _remedy(self) -> str:
        return (
            f", and a variance needs two: train for more epochs (snapshots begin after the share "
            f"burn_in={self.burn_in:g} of them, every {self.every})."
        )

    def end_epoch(self, epoch: int, epochs: int, data: Iterable[tuple[Inputs, Tensor]]) -> Mapping[str, int | float]:
        """Take a snapshot if one is due; "snapshots" in the history counts them."""
        self.require_epochs(epochs)
        self._epoch, self._epochs = epoch, epochs
        after = epoch - int(self.burn_in * epochs)
        if after > 0 and after % self.every == 0:
            if self.count > 0 and self.planned != epochs:
                planned = int(self.planned)
                raise ValueError(
                    f"the snapshots so far belong to a run of {planned} epochs, and burn_in={self.burn_in:g} is a "
                    f"share of the epochs: resume with epochs={planned}, or start again."
                )
            self.planned.fill_(epochs)
            rate = self._rate if self._optimizer is None else float(self._optimizer.param_groups[0]["lr"])
            if rate < SHRUNK * self._rate and not self._warned:
                self._warned = True
                warnings.warn(
                    f"the learning rate falls (to {rate:.2g} of {self._rate:.2g} at epoch {epoch}) while SWAG takes "
                    "snapshots: these nearly coincide, and predictions are close to those of MAP. Train with "
                    'schedule="constant" and a larger rate, such as optimizer="sgd", lr=1e-2.',
                    stacklevel=2,
                )
            with torch.no_grad():  # Welford's recursion
                self.count += 1
                self._taken = int(self.count)
                theta = self._theta()
                before = theta - self.mean
                self.mean += before / self.count
                after_mean = theta - self.mean
                self.squares += before * after_mean
                if self.rank:
                    self.deviations[(self.count - 1) % self.rank] = after_mean
        return {"snapshots": int(self.count)}

    def result(self) -> Snapshots:  # type: ignore[override]
        """The Gaussian of the snapshots so far.

        Raises:
            ValueError: there are fewer than two snapshots.
        """
        count = int(self.count)
        if count < 2:
            if self._epoch < self._epochs or self._taken > count:
                raise ValueError(
                    f"SWAG has {_snapshots(count)} up to the epoch restored by early stopping, and a variance needs "
                    f"two (training ended after epoch {self._epoch} of {self._epochs}): leave patience out."
                )
            raise ValueError(f"SWAG has {_snapshots(count)}{self._remedy}")
        network = Network(self.model, self._names)
        network.module.eval()
        set_parameters(network.module, network.space, self.mean)
        diagonal = (self.squares / count).clamp(min=SMALLEST)
        return Snapshots(network, self.likelihood, diagonal, self.deviations[:count].clone())

    def _theta(self) -> Float[Tensor, " P"]:
        """The weights, in single precision for a half-precision network, whose averages would lose all digits."""
        theta = torch.cat([self.model.get_parameter(name).detach().reshape(-1) for name in self._names])
        return theta.to(torch.promote_types(theta.dtype, torch.float32))


def _snapshots(count: int) -> str:
    return f"{count} snapshot{'s' * (count != 1)}"
