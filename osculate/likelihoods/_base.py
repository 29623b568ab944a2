"""What every likelihood p(y|f) offers; only ``log_prob`` must be written, the rest has defaults by autograd."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.distributions import Distribution

#: Integrates a response over a Gaussian on f: link(likelihood, mean (N, C), covariance (N, C, C)) -> (N, C).
#: A link with ``needs_covariance = False`` gets the variances (N, C) in place of the covariance.
Link = Callable[["Likelihood", Tensor, Tensor], Tensor]


class Likelihood(ABC):
    r"""The density p(y|f) of one target given one network output, and what follows from it.

    ``f`` has the batch first and any shape after it; C is the number of outputs for one input. Everything is a
    sum over data, with all constants. A subclass must write :meth:`log_prob`; the output Hessian, its root, the
    sampled root of the Fisher and the check of targets then work by automatic differentiation, and closed forms
    may replace them (the tests compare each with the default).
    """

    #: The links that make sense for this likelihood; the first is the default.
    links: ClassVar[tuple[str, ...]] = ()
    #: Whether targets carry noise on the scale of f, whose size can be tuned and left out of predictions.
    has_noise: ClassVar[bool] = False

    @abstractmethod
    def log_prob(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, " N"]:
        """log p(y_n | f_n) for each datum, with all constants."""

    def check(self, f: Float[Tensor, "N *C"], y: Tensor) -> None:
        """Raise ValueError or TypeError, saying why, if these targets do not fit these outputs."""

    def hessian(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, "N c c"]:
        r"""Λ_n = −∂² log p(y_n|f_n)/∂f², for outputs flattened to c."""

        def one(flat: Tensor, target: Tensor) -> Tensor:
            return -self.log_prob(flat.reshape(1, *f.shape[1:]), target.unsqueeze(0)).sum()

        return torch.func.vmap(torch.func.hessian(one))(f.reshape(len(f), -1), y)

    def root(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, "V N *C"]:
        r"""Columns s_v with Σ_v s_v s_vᵀ = Λ_n (negative directions of a non-concave density are dropped)."""
        values, vectors = torch.linalg.eigh(self.hessian(f, y).double())
        columns = vectors * values.clamp(min=0).sqrt().unsqueeze(-2)
        return columns.to(f.dtype).permute(2, 0, 1).reshape(-1, *f.shape)

    def sampled_root(
        self, f: Float[Tensor, "N *C"], y: Tensor, samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "V N *C"]:
        r"""Random columns s_v with E Σ_v s_v s_vᵀ = Λ_n: the Fisher with ``samples`` draws.

        The default multiplies :meth:`root` with random signs; likelihoods that can be sampled use the scores of
        sampled labels, which need no root.
        """
        root = self.root(f, y)
        signs = torch.randint(2, (samples, *root.shape[:2]), generator=generator).to(root) * 2 - 1
        return torch.einsum("svn,vn...->sn...", signs, root) / samples**0.5

    def distribution(self, f: Float[Tensor, "N *C"]) -> Distribution:
        """The torch distribution p(y|f)."""
        raise NotImplementedError(
            f"{type(self).__name__} defines no distribution(f): log_prob alone can be fitted and compared, "
            "but prediction needs it. Return the torch.distributions object of p(y|f) there."
        )

    def response(self, f: Float[Tensor, "*S N C"]) -> Float[Tensor, "*S N C"]:
        """E[y|f], on the scale of the targets (probabilities for classes)."""
        return self.distribution(f).mean

    def needs_covariance(self, link: Link) -> bool:
        """Whether :meth:`marginal` with this link needs how the outputs of one input vary together."""
        return getattr(link, "needs_covariance", True)

    def marginal(
        self,
        mean: Float[Tensor, "N *C"],
        covariance: Float[Tensor, "N c c"] | Float[Tensor, "N c"],
        link: Link,
        noise: bool = True,
    ) -> Distribution:
        r"""p(y) = ∫ p(y|f) N(f; mean, covariance) df.

        Args:
            mean: of the function values.
            covariance: of the function values, outputs flattened to c; only their variances (N, c) where
                :meth:`needs_covariance` says so.
            link: how the integral is done, where it has no closed form.
            noise: whether observation noise is part of the answer, where the likelihood has such noise.
        """
        raise NotImplementedError(
            f"{type(self).__name__} defines no marginal(mean, covariance, link): use via='sampled', "
            "or write the integral there."
        )

    def joint(
        self, mean: Float[Tensor, "*N c"], covariance: Float[Tensor, "*N c c"], noise: bool = True
    ) -> Distribution:
        """The joint distribution of several targets under jointly Gaussian function values."""
        raise ValueError(
            f"{type(self).__name__} has no joint predictive in closed form. For the joint uncertainty of its logits "
            "use osc.functional_variance or osc.sample_functions."
        )

    def mixture(self, f: Float[Tensor, "S N *C"], noise: bool = True) -> Distribution:
        """The equally weighted mixture of p(y|f_s) over S sampled functions."""
        raise NotImplementedError(f"{type(self).__name__} defines no mixture(f) of sampled functions.")

    def statistics(self, f: Float[Tensor, "N *C"], y: Tensor) -> dict[str, Tensor]:
        """Sums over the batch from which :meth:`log_likelihood` follows; they add over batches."""
        return {"log_likelihood": self.log_prob(f, y).double().sum()}

    def log_likelihood(self, statistics: Mapping[str, Tensor]) -> Float[Tensor, ""]:
        """Σ_n log p(y_n|f_n) from the accumulated statistics, differentiable in the likelihood's own parameters."""
        return statistics["log_likelihood"]

    def curvature_scale(self, reference: "Likelihood") -> Float[Tensor, ""] | float:
        """The factor by which Λ differs from the ``reference`` likelihood's.

        Raises:
            ValueError: there is no such factor: the curvature must be fitted again.
        """
        if reference is self or type(reference) is type(self):
            return 1.0
        raise ValueError(
            f"the curvature was taken with {reference!r}, and cannot be rescaled to {self!r}: fit it again."
        )

    def times(self, factor: Float[Tensor, ""] | float) -> "Likelihood":
        """The same likelihood with its noise scale multiplied by ``factor``."""
        raise ValueError(f"{type(self).__name__} has no noise scale.")

    def noise_balance(self, statistics: Mapping[str, Tensor]) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """N C and β SSE: the evidence is stationary in the noise scale where β SSE = N C − γ. [mackay1992]"""
        raise ValueError(f"{type(self).__name__} has no noise scale.")


def require_same_shape(likelihood: Likelihood, f: Tensor, y: Tensor) -> None:
    """Raise ValueError unless the targets have exactly the shape of the outputs (no silent broadcasting)."""
    if f.shape != y.shape:
        raise ValueError(
            f"{type(likelihood).__name__} needs targets of the shape of the outputs, got targets "
            f"{tuple(y.shape)} for outputs {tuple(f.shape)}. Reshape the targets, for example with y.unsqueeze(-1)."
        )
