"""One running diagonal Fisher information, whatever it is made from."""

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from osculate.parameters import ParameterSpace


class RunningFisher(nn.Module):
    r"""F̄, the average over past batches of the diagonal Fisher information of one datum, and the Gaussian of it.

    .. math:: \bar F_t = \frac{1 - \gamma}{1 - \gamma^t} \sum_{s \le t} \gamma^{t - s} F_s, \qquad
              \theta - \mu \sim \mathcal N\big(0, \operatorname{diag}(c \bar F + \delta)^{-1}\big), \qquad c = N / T

    F_s comes from squared gradients of single data (:meth:`take` of a diagonal), from the squared gradient of a batch
    (:meth:`take_batch`), or from the gradient at a drawn network (:meth:`take_drawn`). It is the stationarity condition
    of the variances in variational Laplace, and in Adam's second moment, IVON and VOGN: they differ in what F_s is
    made from, and in whether the drawn or the mean network is trained. [unlu2021; perone2021; shen2024; khan2018]

    Args:
        space: the parameters.
        memory: γ.
        dtype: of the average.
        device: where it lives.
    """

    values: Tensor
    weight: Tensor

    def __init__(self, space: ParameterSpace, memory: float, dtype: torch.dtype, device: torch.device) -> None:
        super().__init__()
        self.space, self.memory = space, memory
        self.register_buffer("values", torch.zeros(space.size, dtype=dtype, device=device))
        #: 1 − γ^t, the sum of the weights so far.
        self.register_buffer("weight", torch.zeros((), dtype=torch.double))
        self._ridged: Tensor | None = None
        self._deviation: Tensor | None = None
        self._made_from = (0, 0.0, 0.0)  # state of the average, c, and the scale of δ

    @property
    def average(self) -> Float[Tensor, " P"]:
        """F̄."""
        return self.values / float(self.weight)

    @property
    def named(self) -> dict[str, Tensor]:
        """Views of the sum of weighted terms, by parameter."""
        return self.space.unflatten(self.values)

    def start(self, values: Float[Tensor, " P"] | float) -> None:
        """Begin with an average, which counts as all that was seen so far."""
        self.values.copy_(torch.as_tensor(values, dtype=self.values.dtype))
        self.weight.fill_(1)

    def settle(self) -> None:
        """Let the weights so far add up to one, without a change of the average."""
        if float(self.weight) != 1:
            self.values.div_(float(self.weight))
            self.weight.fill_(1)

    @torch.no_grad()
    def take(self, diagonal: Float[Tensor, " P"], size: int) -> None:
        """Σ_b F_b of a batch: of exact curvatures, or of squared gradients of single data.

        Args:
            diagonal: the sum over the batch.
            size: B.
        """
        self.values.mul_(self.memory).add_(diagonal, alpha=(1 - self.memory) / size)
        self.gained()

    @torch.no_grad()
    def take_batch(self, gradients: Mapping[str, Tensor], size: int) -> None:
        """B ḡ² with the gradient ḡ of the mean log likelihood of a batch.

        It is unbiased for labels drawn from the network, each by itself, since scores of different data are then
        uncorrelated; for the data's own labels it is so at a mode.

        Args:
            gradients: ḡ, by parameter.
            size: B.
        """
        squares = [g.to(self.values.dtype).square() for g in gradients.values()]
        average = self.named
        kept = [average[name] for name in gradients]
        torch._foreach_mul_(kept, self.memory)
        torch._foreach_add_(kept, squares, alpha=(1 - self.memory) * size)
        self.gained()

    def gained(self) -> None:
        """The weights after one more term."""
        self.weight.mul_(self.memory).add_(1 - self.memory)

    @torch.no_grad()
    def take_drawn(
        self, h: Tensor, noise: Tensor, gradient: Tensor, ridged: Tensor, factor: float, scale: float = 1.0
    ) -> None:
        r"""ĥ = ∇ (θ − μ) / σ² at one drawn network, of one parameter tensor, so that the average stays positive.

        .. math:: h \leftarrow \gamma h + (1 - \gamma) \hat h
                  + \tfrac12 (1 - \gamma)^2 \frac{(h - \hat h)^2}{h + \delta / c}, \qquad
                  \sigma^{-2} = c (h + \delta / c)

        An unbiased estimate of the curvature of one datum, of any sign. The average that it enters is not: the last
        term grows with the variance of ĥ, which is large where the gradient is. The weights must add up to one
        (:meth:`start`, :meth:`settle`). [shen2024]

        Args:
            h: the average of this tensor, a view of :attr:`named` that is updated.
            noise: θ − μ; overwritten.
            gradient: of the mean negative log likelihood at θ.
            ridged: h + δ/c (:meth:`ridged`); overwritten.
            factor: c.
            scale: of the curvature that the gradient is of, in units of the average.
        """
        step = 1 - self.memory
        miss = torch.addcmul(h, noise.mul_(gradient), ridged, value=-factor / scale, out=noise)
        # h − s miss + s²/2 miss²/(h + δ/c), as a product of two; in place, as new memory costs as much as the work
        h.addcmul_(miss, torch.addcdiv(miss.new_tensor(-step), miss, ridged, value=0.5 * step**2, out=ridged))

    def forget(self) -> None:
        """The precisions δ have changed, or the room is wanted for something else."""
        self._ridged = self._deviation = None

    def _apply(self, *args: Any, **kwargs: Any) -> "RunningFisher":
        self.forget()
        return super()._apply(*args, **kwargs)

    def ridged(self, factor: float, delta: Float[Tensor, " P"], scale: float = 1.0) -> Float[Tensor, " P"]:
        """F̄ + s δ/c, with δ of the first call after :meth:`forget`."""
        made_from = (self.values._version, factor, scale)
        if self._ridged is None or made_from != self._made_from:
            average = self.values if float(self.weight) == 1 else self.average
            self._ridged, self._deviation = torch.add(average, delta, alpha=scale / factor), None
            self._made_from = made_from
        return self._ridged

    def deviations(self, factor: float, delta: Float[Tensor, " P"], scale: float = 1.0) -> Float[Tensor, " P"]:
        """σ of each parameter, with precisions s δ of the prior, δ of the first call after :meth:`forget`."""
        ridged = self.ridged(factor, delta, scale)
        if self._deviation is None:
            self._deviation = ridged.rsqrt().mul_(factor**-0.5)
        return self._deviation
