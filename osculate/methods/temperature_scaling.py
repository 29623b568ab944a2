"""One temperature under the logits of a trained network, by held-out data."""

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
from osculate.methods._base import FullBatch, MakeNetwork, has_labels, require_labels, require_network
from osculate.networks import Tempered
from osculate.parameters import Network, undisturbed
from osculate.posteriors import Point
from osculate.predictive.sampled import network_at_mode
from osculate.priors import Prior

#: The least and the largest temperature that is tried.
COLDEST, HOTTEST = 0.01, 100.0
#: Largest error of the log temperature.
TOLERANCE = 1e-10


class TemperatureScaling(FullBatch):
    r"""p(y|x) = p(y | f(x)/T), with the temperature T by the NLL of held-out data. [guo2017]

    .. math:: \hat T = \arg\min_T \; - \sum_n \log p(y_n \mid f(x_n)/T), \qquad
              \sum_n s_n(T)^\top f(x_n) = 0, \quad s_n = \nabla_f \log p(y_n \mid f(x_n)/T)

    The NLL is convex in 1/T, so that its slope has one root: it is bracketed between T = 0.01 and 100 and found to
    1e-10, from logits that are computed once, in evaluation mode and the sums in double precision. The NLL of these
    data is never larger than before. The predicted class stays, and with it the accuracy. There is one number for all
    inputs: out of distribution the network is as overconfident as before, in units of T.

    ``osc.train(TemperatureScaling(network, likelihood), held_out)`` takes one step whatever ``epochs`` is. The result
    is a ``Point`` over ``osc.networks.Tempered(network, T)``, which is also what ``osc.load`` needs to be passed.

    Args:
        model: Trained network; it is left unchanged.
        likelihood: p(y|f), of logits: ``Categorical`` or ``Bernoulli``.

    Attributes:
        model: the network with the temperature under its logits.

    Raises:
        TypeError: ``model`` is no module, or the likelihood is not one of logits.
        ValueError: in training, no data, data that do not fit, or none with a label.

    Warns: of a best temperature outside the bounds: no target is misclassified, so that more confidence is always
    better, or the logits are worse than equal probabilities.

    Cost: one forward pass over the data, and about fifteen sums over their logits, which are held.

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
        cls, network: MakeNetwork, likelihood: Likelihood, prior: float | str | Prior = 1.0, **options: Any
    ) -> "TemperatureScaling":
        """Make the method for a trained network; no prior enters it."""
        return cls(network(0), likelihood, **options)

    def __init__(self, model: nn.Module, likelihood: Likelihood) -> None:
        super().__init__()
        require_network(model, likelihood)
        if not isinstance(likelihood, Categorical | Bernoulli):
            raise TypeError(
                f"a temperature divides logits, and {type(likelihood).__name__} has none: temperature scaling is for "
                "Categorical and Bernoulli. For the noise of real-valued targets use osc.maximise_evidence."
            )
        self.likelihood = likelihood
        tempered = Tempered(model)
        self._tempered = (tempered,)  # in a tuple: training neither moves nor stores the network
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
        """The device of log T; the network follows in a copy."""
        return self.log_temperature.device

    def choices(self) -> Mapping[str, Any]:
        """The likelihood, and a digest of the network."""
        numbers = [t.detach().double().cpu().numpy().tobytes() for t in self.model.network.state_dict().values()]
        return {"likelihood": self.likelihood, "network": sha256(b"".join(numbers)).hexdigest()[:16]}

    def loss(self, x: Inputs, y: Tensor, num_data: int) -> Float[Tensor, ""]:
        """The NLL of a batch at the present temperature, in nats per datum; with a slope in log T alone."""
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
        """Compute the logits of the data, where log T is.

        Args:
            data: read once.
            epochs: Largest number of steps; one is enough.
            seed: Unused: there are no random numbers.

        Returns:
            N.

        Raises:
            ValueError: no data, targets that do not fit, or only such as the likelihood ignores.
        """
        if self._seen:  # trained before: on data that may be others
            self.converged.fill_(False)
        network, self._seen, labelled = self._copy(), [], False
        for x, y in as_batches(data):
            f, y = network_at_mode(network, x), y.to(network.device)
            self.likelihood.check(f, y)
            labelled = labelled or has_labels(self.likelihood, y)
            self._seen.append((f, y))
        require_labels(labelled)
        self._adopt()
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
        if self._nll(best) > self._nll(0.0):  # by rounding
            best = 0.0
        self.log_temperature.fill_(best)
        self._adopt()
        self.converged.fill_(True)
        return {"train_loss": self._nll(best) / sum(len(y) for _, y in self._seen), "temperature": exp(best)}

    def result(self) -> Point:
        """The network with the temperature under its logits, in evaluation mode."""
        with undisturbed(self.model):
            return Point(self.model.eval(), self.likelihood)

    def _copy(self) -> Network:
        """The network, where log T is, in evaluation mode."""
        if self._network is None or self._network.device != self.device:
            self._network = Network(self.model.network, ()).to(self.device)
            self._network.module.eval()
        return self._network

    @torch.no_grad()
    def _adopt(self) -> None:
        self.model.temperature.copy_(self.log_temperature.exp())

    def _nll(self, log_temperature: float) -> float:
        scale = exp(-log_temperature)
        return -float(sum(self.likelihood.log_prob(scale * f.double(), y).sum() for f, y in self._seen))

    def _slope(self, log_temperature: float) -> float:
        """Of the NLL in log T: Σ_n s_nᵀ f_n/T."""
        scaled = ((exp(-log_temperature) * f.double(), y) for f, y in self._seen)
        return float(sum((self.likelihood.score(f, y) * f).sum() for f, y in scaled))

    def _root(self) -> float:
        """The log temperature at which the slope changes its sign, or the bound beyond which it does."""
        from scipy.optimize import brentq

        low, high = log(COLDEST), log(HOTTEST)
        falls, rises = self._slope(low) < 0, self._slope(high) > 0
        if falls and rises:
            return float(brentq(self._slope, low, high, xtol=TOLERANCE, rtol=TOLERANCE))
        if rises:
            warnings.warn(
                f"on these held-out data a lower temperature is better all the way down to {COLDEST:g}, which is kept: "
                "no target is misclassified, so that they cannot show overconfidence. Use more held-out data, which "
                "the network was not trained on.",
                stacklevel=6,
            )
            return low
        if falls:
            warnings.warn(
                f"on these held-out data a higher temperature is better all the way up to {HOTTEST:g}, which is kept: "
                "the logits explain the targets no better than equal probabilities do. Train the network longer, or "
                "look at the data.",
                stacklevel=6,
            )
            return high
        return 0.0  # logits that are all equal: no temperature matters
