"""The base class of likelihoods that factorise over outputs, and shared helpers."""

from abc import abstractmethod
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.distributions import Categorical, Distribution, MixtureSameFamily, Normal

from osculate.likelihoods._base import Likelihood


class Elementwise(Likelihood):
    r"""p(y|f) = Π_c p(y_c|f_c): one target for each output, E = 1 and T = c.

    A subclass overrides :meth:`precision` if the diagonal matrix Λ has a closed form.
    """

    interacts: ClassVar[str] = "none"

    @abstractmethod
    def precision(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, "N *C"]:
        """The diagonal of Λ, which is not negative."""

    def check(self, f: Float[Tensor, "N *C"], y: Tensor) -> None:
        require_same_shape(self, f, y)

    def local_hessian(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, "N T E E"]:
        return self.split(self.precision(f, y)).unsqueeze(-1)

    def local_root(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, "V N T E"]:
        return self.split(self.precision(f, y).sqrt()).unsqueeze(0)


class Canonical(Elementwise):
    r"""An exponential family in its canonical parameter, log p(y|f) = Σ_c [y_c f_c − A(f_c)] and terms in y alone.

    .. math:: \nabla_f \log p(y \mid f) = y - \mathbb{E}[y \mid f], \qquad
       \Lambda = \operatorname{diag} \operatorname{Var}[y \mid f]

    A subclass gives the mean by :meth:`response`, the variance by :meth:`precision`, and :meth:`drawn` targets.
    """

    @abstractmethod
    def drawn(self, f: Float[Tensor, "S N *C"], generator: torch.Generator | None) -> Float[Tensor, "S N *C"]:
        """Targets drawn from p(y|f), by a function of :func:`osculate.randomness.uniform` with ``axis=1``."""

    def score(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, "N *C"]:
        return y.to(f.dtype) - self.response(f)

    def sampled_root(
        self, f: Float[Tensor, "N *C"], y: Tensor, samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "V N *C"]:
        """Scores of sampled targets."""
        return (self.drawn(f.expand(samples, *f.shape), generator) - self.response(f)) / samples**0.5


def require_same_shape(likelihood: Likelihood, f: Tensor, y: Tensor) -> None:
    """Raise ValueError unless the targets have exactly the shape of the outputs (no silent broadcasting)."""
    if f.shape != y.shape:
        raise ValueError(
            f"{type(likelihood).__name__} needs targets of the shape of the outputs, got targets "
            f"{tuple(y.shape)} for outputs {tuple(f.shape)}. Reshape the targets, for example with y.unsqueeze(-1)."
        )


def require_floating(likelihood: Likelihood, y: Tensor) -> None:
    """Raise TypeError unless the targets are real numbers."""
    if not y.is_floating_point():
        raise TypeError(
            f"{type(likelihood).__name__} needs floating-point targets, got {y.dtype}. Convert them with y.float(), "
            "or use Categorical for class indices."
        )


def require_unit_interval(name: str, y: Tensor) -> None:
    """Raise ValueError unless the targets of the likelihood of that name lie from 0 to 1."""
    if not y.numel():
        return
    least, largest = y.aminmax()
    if not (least >= 0 and largest <= 1):  # NaN is out of range too
        where = first_place(~((y >= 0) & (y <= 1)))
        raise ValueError(
            f"target {y[where].item()} at {where} of the batch is out of range: {name} needs numbers from 0 to 1. "
            "Divide images of 0 to 255 by 255."
        )


def first_place(wrong: Bool[Tensor, "..."]) -> tuple[int, ...]:
    """The index of the first True, or ()."""
    places = wrong.nonzero()
    return tuple(int(i) for i in places[0]) if len(places) else ()


def mix(components: Distribution, log_weights: Tensor | None = None) -> MixtureSameFamily:
    """The mixture over the last batch axis of ``components``, with equal weights unless others are given."""
    if log_weights is None:
        log_weights = components.mean.new_zeros(())
    return MixtureSameFamily(Categorical(logits=log_weights.expand(components.batch_shape)), components)


def spread(f: Float[Tensor, "S N *C"]) -> Normal:
    """The normal with the mean and variance of S sampled functions."""
    return without_noise(f.mean(0), f.var(0, correction=0))


def without_noise(mean: Float[Tensor, "*M"], variance: Float[Tensor, "*M"]) -> Normal:
    """N(mean, variance) of a function, with variances of at least the smallest positive number of the type.

    The variance is zero where no parameter affects the function, such as for a network without biases at x = 0. The
    bound is on the variance rather than the scale, as the square of the smallest scale is 0.
    """
    return Normal(mean, variance.clamp(min=torch.finfo(variance.dtype).tiny).sqrt())
