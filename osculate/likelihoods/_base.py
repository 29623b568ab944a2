"""The base class of likelihoods p(y|f): only ``log_prob`` is required, the other methods default to autograd."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import prod
from typing import ClassVar, TypeVar

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor
from torch.distributions import Distribution

from osculate.linalg import spectrum
from osculate.memory import require
from osculate.randomness import Keyed, drawn_on
from osculate.settings import differences

#: Number of columns of a root that are computed at once for a sum over all.
COLUMNS = 32

AnyDistribution = TypeVar("AnyDistribution", bound=Distribution)

#: Integrates a response over a Gaussian on the E outputs of M positions:
#: link(likelihood, mean (M, E), covariance (M, E, E)) -> (M, E).
#: A link with ``needs_covariance = False`` gets the variances (M, E) in place of the covariance.
Link = Callable[["Likelihood", Tensor, Tensor], Tensor]


class Likelihood(ABC):
    r"""The density p(y|f) of one target given one network output, with its derivatives and predictives.

    ``f`` has the batch first and any shape after it: (N, \*C), c numbers for each datum. Everything is a sum over
    data, with all constants. A subclass must implement :meth:`log_prob`; the output Hessian, its root, the sampled root
    of the Fisher and the score then work by automatic differentiation, and may be overridden by closed forms (which the
    tests compare with the default).

    The outputs of one datum fall into T positions of E outputs each. Outputs of one position interact in the density;
    positions are independent given f. :attr:`interacts` declares this structure: the Hessian is stored as T blocks of
    E × E, and nothing of size c² is built. :meth:`split` and :meth:`merge` convert between the two layouts.
    """

    #: The links of this likelihood, the first of which is the default; empty if it needs no link.
    links: ClassVar[tuple[str, ...]] = ()
    #: True if targets have noise on the scale of f, with one noise scale that the evidence can tune.
    has_noise: ClassVar[bool] = False
    #: True if targets are f plus noise, so that predictions can exclude the noise.
    real_valued: ClassVar[bool] = False
    #: True if log p(y|f) is concave in f, so that the linear model has one mode.
    log_concave: ClassVar[bool] = True
    #: True if log p(y|f) is quadratic in f, so that its Hessian is the same everywhere.
    quadratic: ClassVar[bool] = False
    #: True if the Hessian vanishes where the data are fitted well, as that of class probabilities does.
    saturates: ClassVar[bool] = False
    #: The outputs of a datum that interact: "all", those along the "axis" :attr:`class_axis`, or "none" (E = 1).
    interacts: ClassVar[str] = "all"
    #: The axis of f, the batch axis included, along which outputs interact where :attr:`interacts` is "axis".
    class_axis: int | None = None

    @abstractmethod
    def log_prob(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, " N"]:
        """log p(y_n | f_n) for each datum, with all constants."""

    def check(self, f: Float[Tensor, "N *C"], y: Tensor) -> None:
        """Raise ValueError or TypeError if the targets do not fit the outputs."""

    def events(self, f: Shaped[Tensor, "N *C"]) -> int:
        """E, the number of outputs that interact with each other."""
        if self.interacts == "none":
            return 1
        return prod(f.shape[1:]) if self.interacts == "all" else f.shape[self._axis(f.ndim)]

    def split(self, f: Shaped[Tensor, "..."], leading: int = 0) -> Shaped[Tensor, "... N T E"]:
        r"""Outputs (…, N, \*C) as T independent positions of E interacting outputs, in row-major order.

        Args:
            f: Outputs, or columns in output space.
            leading: Number of axes in front of the batch axis.
        """
        front, shape = f.shape[: leading + 1], f.shape[leading:]
        events = self.events(f[(0,) * leading])
        if self.interacts == "axis":
            f = f.movedim(leading + self._axis(len(shape)), -1)
        return f.reshape(*front, prod(shape[1:]) // events, events)

    def merge(self, t: Shaped[Tensor, "... N T E"], shape: Sequence[int]) -> Shaped[Tensor, "..."]:
        r"""The inverse of :meth:`split`: (…, N, T, E) as (…, N, \*C).

        Args:
            t: Numbers for each position.
            shape: Shape of the outputs, (N, \*C); only \*C is read.
        """
        front, others = t.shape[:-2], list(shape[1:])
        if self.interacts != "axis":
            return t.reshape(*front, *others)
        axis = self._axis(len(shape))
        del others[axis - 1]
        return t.reshape(*front, *others, t.shape[-1]).movedim(-1, axis - len(shape))

    def _axis(self, dimensions: int) -> int:
        """:attr:`class_axis` counted from the front, for outputs of this many axes."""
        axis = -1 if self.class_axis is None else self.class_axis
        from_front = axis + dimensions if axis < 0 else axis
        if not 0 < from_front < dimensions:
            raise ValueError(
                f"{type(self).__name__} has class_axis={self.class_axis}, but the network's outputs have {dimensions} "
                "axes, the first of them the batch: name one of the others."
            )
        return from_front

    def local_hessian(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, "N T E E"]:
        r"""The blocks of Λ_n = −∂² log p(y_n|f_n)/∂f², one for each position.

        The default is the observed Hessian by automatic differentiation: E Hessian-vector products, each for all data
        and positions at once. A likelihood with an indefinite observed Hessian returns the expected one (the Fisher
        information) and states this in its docstring.
        """
        self.require_room(f)
        with torch.inference_mode(False), torch.enable_grad():
            leaf, total = self._leaf_and_total(f, y)
            (gradient,) = torch.autograd.grad(-total, leaf, create_graph=True)
            if not gradient.requires_grad:  # log p is linear in f
                return leaf.new_zeros(*leaf.shape, leaf.shape[-1])
            rows = [
                torch.autograd.grad(e.sum(), leaf, retain_graph=True, materialize_grads=True)[0]
                for e in gradient.unbind(-1)
            ]
        return torch.stack(rows, -2)

    def require_room(self, f: Float[Tensor, "N *C"], together: bool = False) -> None:
        """Raise ValueError if the output Hessians do not fit into the memory.

        Args:
            f: Outputs.
            together: True for one matrix over all outputs of a datum, False for a block at each position.

        Raises:
            ValueError: there are very many outputs.
        """
        size = prod(f.shape[1:]) if together else self.events(f)
        require(
            f.numel() * size * f.itemsize,
            f.device,
            f"the Hessians of {size:,} x {size:,} outputs of {len(f)} data",
            "Use curvature='fisher' with a likelihood that can be sampled, or fewer data at once.",
        )

    def local_diagonal(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, "N T E"]:
        """The diagonals of :meth:`local_hessian`; by a closed form without forming the blocks, if there is one."""
        return self.local_hessian(f, y).diagonal(dim1=-2, dim2=-1)

    def _leaf_and_total(self, f: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The outputs (N, T, E) as a fresh leaf of the graph, and Σ_n log p as a function of it."""
        leaf = self.split(f).detach().clone().requires_grad_()
        y = y.clone() if y.is_inference() else y
        return leaf, self.log_prob(self.merge(leaf, f.shape), y).sum()

    def local_root(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, "V N T E"]:
        r"""Columns S_v, at most E, with Σ_v S_v S_vᵀ = :meth:`local_hessian`, for each position.

        Negative directions of a density that is not log-concave are dropped.
        """
        values, vectors = spectrum(self.local_hessian(f, y))
        return (vectors * values.clamp(min=0).sqrt().unsqueeze(-2)).to(f.dtype).movedim(-1, 0)

    def local_columns(self, f: Float[Tensor, "N *C"], y: Tensor) -> tuple[int, Callable[[int, int], Tensor]]:
        """The columns of :meth:`local_root`: their number, and a function that returns those from start to stop."""
        root = self.local_root(f, y)
        return len(root), lambda start, stop: root[start:stop]

    def combined_columns(
        self, f: Float[Tensor, "N *C"], y: Tensor, samples: int, draw: Callable[[Sequence[int]], Tensor]
    ) -> Float[Tensor, "S N *C"]:
        r"""Random combinations Σ_v ε_v S_v of the columns of a root, position by position: covariance Λ_n.

        Args:
            f: Outputs.
            y: Targets.
            samples: S.
            draw: Function of a shape that returns independent numbers ε of mean 0 and variance 1.
        """
        count, part = self.local_columns(f, y)
        total = torch.zeros_like(self.split(f)).repeat(samples, 1, 1, 1)
        for start in range(0, count, COLUMNS):
            columns = part(start, min(count, start + COLUMNS))
            weights = draw((samples, *columns.shape[:3])).to(columns)
            total += torch.einsum("svnt,vnte->snte", weights, columns)
        return self.merge(total, f.shape)

    def score(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, "N *C"]:
        r"""∂ log p(y_n|f_n)/∂f: one column of the empirical Fisher."""
        with torch.inference_mode(False), torch.enable_grad():
            leaf, total = self._leaf_and_total(f, y)
            (gradient,) = torch.autograd.grad(total, leaf)
        return self.merge(gradient, f.shape)

    def hessian(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, "N c c"]:
        """:meth:`local_hessian` as one matrix over all c outputs of a datum, of size N·c²; for few outputs."""
        self.require_room(f, together=True)
        local = self.local_hessian(f, y)
        count = prod(f.shape[1:])
        numbers = torch.arange(count, device=f.device).reshape(1, *f.shape[1:])
        places = self.split(numbers)[0]  # (T, E): index of each output among the c
        dense = local.new_zeros(len(f), count, count)
        dense[:, places.unsqueeze(-1), places.unsqueeze(-2)] = local
        return dense

    def root(self, f: Float[Tensor, "N *C"], y: Tensor) -> Float[Tensor, "V N *C"]:
        r"""Columns s_v with Σ_v s_v s_vᵀ = Λ_n: one for each position and local column; for few outputs."""
        self.require_room(f, together=True)
        local = self.local_root(f, y)
        positions = local.shape[2]
        if positions == 1:
            return self.merge(local, f.shape)
        eye = torch.eye(positions, dtype=f.dtype, device=f.device)[:, None, :, None]
        return self.merge(local.unsqueeze(1) * eye, f.shape).flatten(0, 1)

    def sampled_root(
        self, f: Float[Tensor, "N *C"], y: Tensor, samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "V N *C"]:
        r"""Random columns s_v with E Σ_v s_v s_vᵀ = Λ_n: the Fisher with ``samples`` draws.

        The default multiplies :meth:`local_root` with random signs; likelihoods that can be sampled use the scores of
        sampled labels, which need no root.

        Args:
            f: Outputs.
            y: Targets.
            samples: S.
            generator: Source of random numbers. In a fit it is an :class:`osculate.randomness.Keyed`: with
                :func:`osculate.randomness.uniform` and ``normal`` the draws of a datum are then its own. A likelihood
                that draws from it by torch's functions gets other labels where batches are split otherwise.
        """
        signs = partial(random_signs, f, generator, axis=2)
        return self.combined_columns(f, y, samples, signs) / samples**0.5

    def signed_root(
        self, f: Float[Tensor, "N *C"], y: Tensor, generator: torch.Generator | None = None
    ) -> Float[Tensor, "N *C"]:
        r"""One random column s with E s sᵀ = Λ_n, differentiable in f: a root of Λ times random signs.

        Gradients through it include the change of Λ with f. For a likelihood that implements only :meth:`log_prob`, Λ
        is computed by automatic differentiation at a copy of f and counts as constant.
        """
        return self.combined_columns(f, y, 1, partial(random_signs, f, generator))[0]

    def distribution(self, f: Float[Tensor, "N *C"]) -> Distribution:
        """The torch distribution p(y|f), with the shape of the targets as its batch shape."""
        raise NotImplementedError(
            f"{type(self).__name__} defines no distribution(f), which predictions need. Return the "
            "torch.distributions object of p(y|f) from it."
        )

    def response(self, f: Float[Tensor, "*S M E"]) -> Float[Tensor, "*S M E"]:
        """E[y|f] in the layout of :meth:`split`, on the scale of the targets; the integrand of a link."""
        return self.distribution(f).mean

    def needs_covariance(self, link: Link) -> bool:
        """Return True if :meth:`marginal` with this link needs covariances between the outputs of one position."""
        return self.interacts != "none" and getattr(link, "needs_covariance", True)

    def marginal(
        self, mean: Float[Tensor, "N *C"], covariance: Float[Tensor, "N ..."], link: Link, noise: bool = True
    ) -> Distribution:
        r"""p(y) = ∫ p(y|f) N(f; mean, covariance) df, target by target.

        Args:
            mean: Mean of the function values.
            covariance: Covariance of the function values within each position, (N, T, E, E); only their variances
                (N, \*C) where :meth:`needs_covariance` is False.
            link: Method of integration, for integrals without a closed form.
            noise: Include the observation noise, if the likelihood has any.
        """
        raise NotImplementedError(
            f"{type(self).__name__} defines no marginal(mean, covariance, link): use via='sampled', "
            "or implement the integral in marginal."
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

    def mixture_of_parts(self, parts: Iterable[Tensor], noise: bool = True) -> Distribution:
        """:meth:`mixture` over functions that arrive in parts of shape (s, N, *C)."""
        return self.mixture(torch.cat(list(parts)), noise)

    def counted(self, y: Tensor) -> Bool[Tensor, "..."] | None:
        """A mask of the targets that are scored, in their own shape; None for all of them."""
        return None

    def statistics(self, f: Float[Tensor, "N *C"], y: Tensor) -> dict[str, Tensor]:
        """Sums over the batch that determine :meth:`log_likelihood`; they add over batches."""
        return {"log_likelihood": self.log_prob(f, y).double().sum()}

    def log_likelihood(self, statistics: Mapping[str, Tensor]) -> Float[Tensor, ""]:
        """Σ_n log p(y_n|f_n) from the accumulated statistics, differentiable in the likelihood's own parameters."""
        return statistics["log_likelihood"]

    def curvature_scale(self, reference: "Likelihood") -> Float[Tensor, ""] | float:
        """The ratio of Λ to that of the ``reference`` likelihood: 1 if both have the same settings.

        A likelihood with other ratios also needs :meth:`statistics` that determine :meth:`log_likelihood` for all of
        them.

        Raises:
            ValueError: the class or the settings differ, so that curvature and statistics must be recomputed.
        """
        if reference is not self and (difference := differences(reference, self)):
            raise ValueError(
                f"the curvature and the log likelihood were taken with {reference!r}, and cannot be rescaled to "
                f"{self!r} ({difference}): fit it again."
            )
        return 1.0

    @property
    def curvature_unit(self) -> float:
        """The curvature of −log p(y|f) in f if it is one constant, and 1 otherwise."""
        return 1.0

    def times(self, factor: Float[Tensor, ""] | float) -> "Likelihood":
        """The same likelihood with its noise scale multiplied by ``factor``."""
        raise ValueError(f"{type(self).__name__} has no noise scale.")

    def noise_balance(self, statistics: Mapping[str, Tensor]) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """N C and β SSE: the evidence is stationary in the noise scale where β SSE = N C − γ. [mackay1992]"""
        raise ValueError(f"{type(self).__name__} has no noise scale.")


def averaged(parts: Iterable[Tensor]) -> tuple[Float[Tensor, "*M"], Float[Tensor, "*M"]]:
    """The mean over the first axis of all parts (s, *M), processed one at a time, and its standard error.

    Parts are overwritten, unless they carry gradients, which need them. One draw has the standard error NaN.
    """
    mean, squares, count = None, None, 0
    for part in parts:
        own = 0.0 if len(part) == 1 else part.detach().var(0, correction=0).mul_(len(part))
        each = part[0] if len(part) == 1 else part.mean(0)
        if mean is None or squares is None:
            mean, squares = each, torch.zeros_like(each, requires_grad=False) + own
        else:
            step, share = each - mean, len(part) / (count + len(part))
            squares.add_(own).addcmul_(step.detach(), step.detach(), value=count * share)
            mean = mean + share * step if step.requires_grad else mean.add_(step, alpha=share)
        count += len(part)
    assert mean is not None
    assert squares is not None
    return mean, squares.div_(count * (count - 1) or torch.nan).sqrt_()


def with_standard_error(distribution: AnyDistribution, error: Tensor) -> AnyDistribution:
    """The same distribution with the attribute ``standard_error``: that of its probabilities, over draws."""
    distribution.standard_error = error  # type: ignore[attr-defined]
    return distribution


def by_datum(terms: Float[Tensor, "N *C"]) -> Float[Tensor, " N"]:
    """Sums over all axes but that of the data, of which there may be none."""
    return terms.reshape(len(terms), prod(terms.shape[1:])).sum(-1)


def random_signs(
    f: Tensor, generator: torch.Generator | None, shape: Sequence[int], axis: int = 0
) -> Float[Tensor, "..."]:
    """Independent signs ±1, of the type and on the device of f; ``axis`` is that of the data."""
    if isinstance(generator, Keyed):
        return 1 - 2 * (generator.bits(shape, axis, f.device) < 0).to(f)
    drawn = torch.randint(2, tuple(shape), generator=generator, device=drawn_on(f, generator))
    return (2 * drawn - 1).to(f)
