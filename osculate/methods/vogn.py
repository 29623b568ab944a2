"""Variational online Gauss–Newton: natural-gradient steps with squared gradients of single data."""

from collections.abc import Iterable, Mapping

from torch import Tensor, nn

from osculate.curvature.columns import EmpiricalFisher
from osculate.inputs import Inputs
from osculate.likelihoods import Likelihood
from osculate.methods._base import PriorLike
from osculate.methods._mean_field import FAN_IN
from osculate.methods._running import RunningDiagonal
from osculate.methods.ivon import IVON, STEPS, NaturalSteps
from osculate.parameters import undisturbed
from osculate.structures import Diag


class VOGN(IVON):
    r"""q(θ) = N(m, diag(N h/T + δ)⁻¹), where h is the average squared gradient of one datum. [khan2018]

    .. math:: h \leftarrow \gamma h + (1 - \gamma) \frac1B \sum_b g_b^2, \qquad
              g_b = \nabla \log p(y_b \mid f_\theta(x_b))

    Steps are those of :class:`IVON`. The squares are the exact diagonal of the empirical Fisher information of the
    batch at the sampled weights in evaluation mode. They are large while the network does not fit its labels, and
    vanish once it fits all of them.

    Args:
        model: The network f_θ; training changes it in place: its parameters are m.
        likelihood: p(y|f).
        prior: p(θ): "fan_in" (precision fan-in of each layer), a precision, or an object of ``osc.priors``.
        temperature: T of the likelihood, the weight β of the divergence: 1 is Bayes.
        settings: Momentum of the mean, memory and start of the curvature.

    Raises:
        TypeError: ``model``, ``likelihood`` or ``prior`` is of the wrong type.
        ValueError: a value is out of range, or an unknown name.

    Cost: a step takes the time of about 2.5 plain ones.

    >>> import torch
    >>> x, y = torch.randn(60, 4), torch.randint(3, (60,))
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> done = osc.train(VOGN(net, osc.likelihoods.Categorical()), (x, y), epochs=2, lr=0.1, progress=False)
    >>> osc.predict(done, x[:5], via="sampled", samples=10).probs.shape
    torch.Size([5, 3])
    """

    name = "vogn"

    def __init__(
        self,
        model: nn.Module,
        likelihood: Likelihood,
        prior: PriorLike = FAN_IN,
        temperature: float = 1.0,
        settings: NaturalSteps = STEPS,
    ) -> None:
        super().__init__(model, likelihood, prior, temperature, settings=settings)
        self.hessian = "examples"  # the squared gradients of single data, by :meth:`add_batch`
        kind = EmpiricalFisher()
        self.examples = RunningDiagonal(model, likelihood, Diag(), settings.memory, kind, self.names)

    def prepare(self, data: Iterable[tuple[Inputs, Tensor]]) -> None:
        """Record the network's operations on the first batch."""
        self._record(*next(iter(data)))

    def _record(self, x: Inputs, y: Tensor) -> None:
        self.examples.record(x, y)
        self.examples.fisher = self.running

    def add_batch(self, x: Inputs, y: Tensor) -> None:
        """Add the squared gradients of single data at the sampled weights."""
        self._record(x, y)
        with undisturbed(self.model):
            self.examples.load_parameters(self.model, self.space.unflatten(self._noise))
            self.examples.add_batch(x, y, self.share)

    def add_gradient(self, gradients: Mapping[str, Tensor]) -> None:
        """Do nothing: :meth:`add_batch` has updated the curvature."""
