"""Temperature scaling of the logits of a trained network on held-out data."""

import warnings
from collections.abc import Mapping
from hashlib import sha256
from math import exp, log
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from osculate.batches import Data, as_batches
from osculate.inputs import Inputs, call
from osculate.likelihoods import Bernoulli, Categorical, Likelihood
from osculate.methods._base import FullBatch, MakeNetwork, PriorLike, has_labels, require_labels, require_network
from osculate.networks import Tempered
from osculate.parameters import Network, undisturbed
from osculate.posteriors import Point
from osculate.predictive.sampled import network_at_mode

#: Bounds on the temperature.
COLDEST, HOTTEST = 0.01, 100.0
#: Largest error of the log temperature.
TOLERANCE = 1e-10


class TemperatureScaling(FullBatch):
    r"""p(y|x) = p(y | f(x)/T), with the temperature T that minimises the NLL of held-out data. [guo2017]

    .. math:: \hat T = \operatorname{argmin}_T \; - \sum_n \log p(y_n \mid f(x_n)/T), \qquad
              \sum_n s_n(T)^\top f(x_n) = 0, \quad s_n = \nabla_f \log p(y_n \mid f(x_n)/T)

    The NLL is convex in 1/T, so that its slope has one root, which is bracketed between T = 0.01 and 100 and found to
    1e-10. The logits are computed once, in evaluation mode; sums are in double precision. The NLL of the held-out data
    never increases, and the predicted classes and the accuracy do not change. T is the same for all inputs, so that it
    does not specifically correct overconfidence out of distribution.

    ``osc.train(TemperatureScaling(network, likelihood), held_out)`` takes one step, whatever ``epochs`` is. The result
    is a ``Point`` over ``osc.networks.Tempered(network, T)``; pass a module of this form to ``osc.load``.

    Args:
        model: Trained network; it is left unchanged.
        likelihood: p(y|f), of logits: ``Categorical`` or ``Bernoulli``.

    Attributes:
        model: The network with the temperature under its logits.

    Raises:
        TypeError: ``model`` is not a module, or the likelihood is not over logits.
        ValueError: in training, there are no data, they do not fit, or none has a label.

    Warns: if the best temperature is outside the bounds: no target is misclassified, so that more confidence is always
    better, or the logits are worse than equal probabilities.

    Cost: one forward pass over the data, and about fifteen sums over their logits, which stay in memory.

    >>> import osculate as osc
    >>> logits = torch.tensor([[2.0, 0.0], [0.0, 2.0], [2.0, 0.0]])
    >>> method = osc.methods.TemperatureScaling(nn.Identity(), osc.likelihoods.Categorical())
    >>> done = osc.train(method, (logits, torch.tensor([0, 1, 1])), progress=False)  # two of three are right
    >>> first = done.history[0]
    >>> round(first["temperature"], 4), osc.predict(done, logits).probs[0]
    (2.8854, tensor([0.6667, 0.3333]))
    """

    name = "temperature_scaling"
    needs_trained_network = True

    converged: Tensor

    @classmethod
    def build(
        cls, network: MakeNetwork, likelihood: Likelihood, prior: PriorLike = 1.0, **options: Any
    ) -> "TemperatureScaling":
        """Make the method for a trained network; it has no prior."""
        return cls(network(0), likelihood, **options)

    def __init__(self, model: nn.Module, likelihood: Likelihood) -> None:
        super().__init__()
        require_network(model, likelihood)
        if not isinstance(likelihood, Categorical | Bernoulli):
            raise TypeError(
                f"temperature scaling needs a likelihood over logits, Categorical or Bernoulli, got "
                f"{type(likelihood).__name__}. For the noise scale of real-valued targets use osc.maximise_evidence."
            )
        self.likelihood = likelihood
        tempered = Tempered(model)
        self._tempered = (tempered,)  # in a tuple, so that training neither moves nor stores the network
        start = torch.zeros((), dtype=torch.double, device=tempered.temperature.device)
        self.log_temperature = nn.Parameter(start)
        self.register_buffer("converged", torch.tensor(False))
        self._network: Network | None = None
        self._seen: list[tuple[Tensor, Tensor]] = []

    @property
    def model(self) -> Tempered:  # type: ignore[override]
        """The network with the temperature under its logits."""
        return self._tempered[0]

    @property
    def device(self) -> torch.device:
        """The device of log T, to which a copy of the network is moved."""
        return self.log_temperature.device

    def choices(self) -> Mapping[str, Any]:
        """The likelihood, and a digest of the network."""
        numbers = [t.detach().double().cpu().numpy().tobytes() for t in self.model.network.state_dict().values()]
        return {"likelihood": self.likelihood, "network": sha256(b"".join(numbers)).hexdigest()[:16]}

    def loss(self, x: Inputs, y: Tensor, num_data: int) -> Float[Tensor, ""]:
        """The NLL of a batch at the present temperature, in nats per datum; its gradient is in log T only."""
        with torch.no_grad():
            f = call(self.model.network, x)
        self.likelihood.check(f, y)
        return -self.likelihood.log_prob(f / self.log_temperature.exp().to(f.dtype), y).sum() / len(y)

    def log_prob(self, x: Inputs, y: Tensor) -> Float[Tensor, " B"]:
        """log p(y | f(x)/T) of each datum."""
        f = self._copy()(x)
        self.likelihood.check(f, y)
        return self.likelihood.log_prob(f / self.log_temperature.exp().to(f.dtype), y)

    def begin(self, data: Data, epochs: int = 1, seed: int = 0) -> int:
        """Compute the logits of the data on the device of log T.

        Args:
            data: Held-out data; read once.
            epochs: Largest number of steps; one is enough.
            seed: Unused: there are no random numbers.

        Returns:
            N.

        Raises:
            ValueError: there are no data, the targets do not fit, or the likelihood ignores all of them.
        """
        if self._seen:  # trained before, perhaps on different data
            self.converged.fill_(False)
        network, self._seen, labelled = self._copy(), [], False
        for x, y in as_batches(data):
            f, y = network_at_mode(network, x), y.to(network.device)
            self.likelihood.check(f, y)
            labelled = labelled or has_labels(self.likelihood, y)
            self._seen.append((f, y))
        require_labels(labelled)
        self._set_temperature()
        return sum(len(y) for _, y in self._seen)

    @torch.no_grad()
    def step(self) -> dict[str, int | float]:
        """Find the temperature.

        Returns:
            A row of the history: ``train_loss`` (NLL at T, nats per datum) and ``temperature``.
        """
        if not self._seen:
            raise RuntimeError("TemperatureScaling has not seen data yet: use osc.train(method, held_out).")
        best = self._root()
        if self._nll(best) > self._nll(0.0):  # larger by rounding
            best = 0.0
        self.log_temperature.fill_(best)
        self._set_temperature()
        self.converged.fill_(True)
        return {"train_loss": self._nll(best) / sum(len(y) for _, y in self._seen), "temperature": exp(best)}

    def result(self) -> Point:
        """The network with the temperature under its logits, in evaluation mode."""
        with undisturbed(self.model):
            return Point(self.model.eval(), self.likelihood)

    def _copy(self) -> Network:
        """A copy of the network on the device of log T, in evaluation mode."""
        if self._network is None or self._network.device != self.device:
            self._network = Network(self.model.network, ()).to(self.device)
            self._network.module.eval()
        return self._network

    @torch.no_grad()
    def _set_temperature(self) -> None:
        self.model.temperature.copy_(self.log_temperature.exp())

    def _nll(self, log_temperature: float) -> float:
        scale = exp(-log_temperature)
        return -float(sum(self.likelihood.log_prob(scale * f.double(), y).sum() for f, y in self._seen))

    def _slope(self, log_temperature: float) -> float:
        """The derivative of the NLL in log T: Σ_n s_nᵀ f_n/T."""
        scaled = ((exp(-log_temperature) * f.double(), y) for f, y in self._seen)
        return float(sum((self.likelihood.score(f, y) * f).sum() for f, y in scaled))

    def _root(self) -> float:
        """The log temperature at which the slope changes sign, or the bound if that lies outside."""
        from scipy.optimize import brentq

        low, high = log(COLDEST), log(HOTTEST)
        falls, rises = self._slope(low) < 0, self._slope(high) > 0
        if falls and rises:
            return float(brentq(self._slope, low, high, xtol=TOLERANCE, rtol=TOLERANCE))
        if rises:
            warnings.warn(
                f"the best temperature on these held-out data is at or below the lower bound {COLDEST:g}, which is "
                "used: no target is misclassified, so that the data cannot show overconfidence. Use more held-out "
                "data, on which the network was not trained.",
                stacklevel=6,
            )
            return low
        if falls:
            warnings.warn(
                f"the best temperature on these held-out data is at or above the upper bound {HOTTEST:g}, which is "
                "used: the logits explain the targets no better than equal probabilities do. Train the network longer, "
                "or check the data.",
                stacklevel=6,
            )
            return high
        return 0.0  # the logits are all equal: any temperature is optimal
