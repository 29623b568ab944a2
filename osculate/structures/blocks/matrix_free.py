"""A block that is never built: products by passes over batches of data, and a sketch of it as preconditioner."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from osculate import linalg
from osculate.curvature import products
from osculate.curvature.columns import GGN, Columns, Hessian
from osculate.curvature.engine import Observation
from osculate.curvature.linearisation import Linearisation
from osculate.inputs import Inputs, apply, moved, take
from osculate.likelihoods import Likelihood
from osculate.parameters import Network
from osculate.randomness import drawn_on
from osculate.structures.blocks._base import Block, Delta, Precision
from osculate.structures.blocks.coloured import ColouredPrecision
from osculate.structures.blocks.low_rank import LowRankBlock, LowRankPrecision

#: Floats in the Krylov bases that are built at once, for this number of steps.
NUMBERS, STEPS = 2**26, 50


@dataclass(frozen=True, eq=False)
class Batch:
    """A batch with the outputs and columns that its products share.

    Attributes:
        observation: The batch, with the network and the kind of curvature.
        f: Outputs, detached.
        columns: Columns of a curvature that has few; random columns are drawn once.
        weight: Factor of its part of the curvature.
    """

    observation: Observation
    f: Float[Tensor, "N *C"]
    columns: Float[Tensor, "V N *C"] | None
    weight: float = 1.0

    @classmethod
    def of(cls, observation: Observation) -> "Batch":
        """The batch, with its columns drawn. Cost: one forward pass."""
        o = observation
        f = o.outputs()
        if isinstance(o.kind, GGN | Hessian):
            return cls(o, f, None)
        columns = o.columns(f)
        return cls(o, f, columns.part(0, columns.count))

    def product(self, v: Float[Tensor, "S P"]) -> Float[Tensor, "S P"]:
        """This batch's part of G v."""
        o = self.observation
        if isinstance(o.kind, Hessian):
            return self.weight * products.hessian_product(o.network, o.likelihood, o.x, o.y, v, o.memory)
        return self.weight * products.gauss_newton_product(o.network, o.x, v, self._output_map, o.memory)

    def at(self, part: Tensor) -> tuple[Linearisation, products.OutputMap]:
        """The network around its mode for the data at these indices, and u -> Λ u for their outputs."""
        at = Linearisation(self.network, take(self.observation.x, part))
        through = self._output_map(at.f, part)
        return at, through if self.weight == 1 else lambda u: self.weight * through(u)

    def _output_map(self, f: Float[Tensor, "n *C"], part: slice | Tensor) -> products.OutputMap:
        o = self.observation
        if self.columns is None:
            return products.output_hessian(o.likelihood, f, o.y[part])
        return products.columns_product(Columns.of(self.columns[:, part]), o.memory)

    def noise(self, count: int, generator: torch.Generator | None) -> Float[Tensor, "S P"]:
        """Draws from N(0, G) for this batch's part of G: Σ_n J_nᵀ Σ_v s_nv ε_nv with white ε."""
        o, device = self.observation, drawn_on(self.f, generator)

        def white(shape: Sequence[int]) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=self.f.dtype, device=device).to(self.f.device)

        vectors, data = products.portions(o.network, o.x, count, o.memory)
        total = self.f.new_zeros(count, o.network.space.size)
        for part in data:
            at = Linearisation(o.network, take(o.x, part))
            for chunk in vectors:
                size = chunk.stop - chunk.start
                if self.columns is None:
                    u = o.likelihood.combined_columns(at.f, o.y[part], size, white)
                else:
                    s = self.columns[:, part].flatten(2)
                    u = torch.einsum("svn,vnc->snc", white((size, *s.shape[:2])), s).reshape(-1, *at.f.shape)
                total[chunk] += at.vjp(u)
        return self.weight**0.5 * total

    @property
    def network(self) -> Network:
        """The network at its mode."""
        return self.observation.network

    def to(self, network: Network) -> "Batch":
        """The same batch for the network on another device or in another floating type."""

        def converted(tensor: Tensor) -> Tensor:
            return tensor.to(network.device, network.dtype if tensor.is_floating_point() else tensor.dtype)

        there = replace(
            self.observation,
            network=network,
            batch=(apply(converted, self.observation.x), converted(self.observation.y)),
        )
        return Batch(there, converted(self.f), None if self.columns is None else converted(self.columns), self.weight)


def _on(tensor: Tensor | None, device: torch.device) -> Tensor | None:
    return None if tensor is None else tensor.to(device)


@dataclass(frozen=True)
class Accuracy:
    """The accuracy of the answers of a matrix-free precision.

    Attributes:
        tolerance: Bound on relative residuals, None for the fourth root of the rounding unit.
        max_products: Largest number of products with all data for one solve.
        probes: Number of random vectors for log determinants and diagonals.
        seed: Seed of the probes.
    """

    tolerance: float | None
    max_products: int
    probes: int
    seed: int


@dataclass(frozen=True, eq=False)
class MatrixFreeBlock(LowRankBlock):
    """The data themselves, and a sketch of their curvature.

    Attributes:
        batches: The data that a product passes over.
        accuracy: Accuracy of the answers.
    """

    batches: list[Batch]
    accuracy: Accuracy

    @classmethod
    def empty(cls, sketch: LowRankBlock, accuracy: Accuracy) -> "MatrixFreeBlock":
        """A block without data."""
        return cls(sketch.positions, sketch.sketch, sketch.rank, sketch.seed, [], accuracy)

    def scaled(self, factor: Float[Tensor, ""] | float) -> "MatrixFreeBlock":
        batches = [replace(batch, weight=batch.weight * float(factor)) for batch in self.batches]
        return replace(self, sketch=self.sketch * float(factor), batches=batches)

    def added(self, other: Block) -> Block:
        assert isinstance(other, MatrixFreeBlock)
        return replace(super().added(other), batches=self.batches + other.batches)  # type: ignore[type-var]

    def said(self, start: Observation) -> tuple[Likelihood, list[tuple[Inputs, Tensor, Tensor | None]]]:
        """The batches, and the likelihood, which may know the data of its own process alone, as in a refinement."""
        cpu = torch.device("cpu")
        return start.likelihood, [
            (moved(batch.observation.x, cpu), batch.observation.y.cpu(), _on(batch.columns, cpu))
            for batch in self.batches
        ]

    def hear(self, each: Sequence[Any], rank: int, start: Observation) -> None:
        """The batches of all processes, one process after another: each has all data from then on."""
        device, own = start.network.device, len(self.batches)
        for number, (likelihood, batches) in enumerate(each):
            if number == rank:
                self.batches.extend(self.batches[:own])
                continue
            for x, y, columns in batches:
                there = replace(start, likelihood=likelihood, batch=(moved(x, device), y.to(device)))
                self.batches.append(Batch(there, there.outputs(), _on(columns, device)))
        del self.batches[:own]

    @property
    def kept(self) -> list[tuple[Inputs, Tensor]]:
        return [batch.observation.batch for batch in self.batches]

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> "MatrixFreeBlock":
        sketch = tensors["sketch"]
        batches = self.batches
        if (sketch.device, sketch.dtype) != (self.sketch.device, self.sketch.dtype):
            networks = {id(batch.network): batch.network for batch in batches}
            there = {number: network.to(sketch.device, sketch.dtype) for number, network in networks.items()}
            batches = [batch.to(there[id(batch.network)]) for batch in batches]
        return replace(self, sketch=sketch, batches=batches)

    @property
    def indefinite(self) -> bool:
        """True if the curvature may have negative directions, which then keep the prior."""
        return any(isinstance(batch.observation.kind, Hessian) for batch in self.batches)

    def _present(self) -> list[Batch]:
        if not self.batches:
            raise ValueError("structure='matrix_free' has no data to pass over: fit it with osc.laplace.")
        return self.batches

    def product(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        """G v, by one pass over the data."""
        batches = self._present()

        def everything(theta: Tensor) -> Tensor:
            return sum((batch.product(theta) for batch in batches), torch.zeros_like(theta))

        return self.in_block_order(everything, v)

    def noise(self, count: int, generator: torch.Generator | None) -> Float[Tensor, "S p"]:
        """Draws from N(0, G), by one pass over the data."""
        return torch.stack([batch.noise(count, generator) for batch in self._present()]).sum(0)[:, self.positions]

    def precision(self, scale: Float[Tensor, ""] | float, delta: Delta) -> "MatrixFreePrecision | ColouredPrecision":
        scale = torch.as_tensor(scale, dtype=torch.double, device=self.sketch.device)
        if delta.correlated is not None:
            return self._with_correlations(scale, delta)
        vector = delta.vector.to(self.sketch)
        base = super().precision(scale.detach(), Delta(vector.detach))
        assert isinstance(base, LowRankPrecision)
        return MatrixFreePrecision(self, scale, vector, base)

    def _with_correlations(self, scale: Float[Tensor, ""], delta: Delta) -> ColouredPrecision:
        assert delta.correlated is not None
        values = delta.correlated.prior.hyperparameters.values()
        if torch.is_grad_enabled() and (scale.requires_grad or any(value.requires_grad for value in values)):
            raise ValueError(
                "structure='matrix_free' has no derivatives by the values of a correlated prior: choose them with "
                "structure='dual'."
            )
        approximate = super().precision(scale, delta)
        assert isinstance(approximate, ColouredPrecision)
        white = Coloured(self.positions, self.sketch, self.rank, self.seed, self.batches, self.accuracy, self, delta)
        base = approximate.inner
        assert isinstance(base, LowRankPrecision)
        inner = MatrixFreePrecision(white, scale, base.diagonal, base)

        def product(v: Tensor) -> Tensor:
            return float(scale) * self.product(v)

        return ColouredPrecision(inner, delta, product, self.probes(self.accuracy.probes))

    def dense(self) -> Float[Tensor, "p p"]:
        eye = torch.eye(len(self.positions), dtype=self.sketch.dtype, device=self.sketch.device)
        return self.product(eye)


@dataclass(frozen=True, eq=False)
class Coloured(MatrixFreeBlock):
    """Lᵀ G L, the curvature in coordinates in which a correlated prior N(0, L Lᵀ) is white.

    Attributes:
        original: G.
        delta: The prior.
    """

    original: MatrixFreeBlock
    delta: Delta

    def product(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        return self.delta.coloured(self.original.product(self.delta.colour(v)))


@dataclass(frozen=True, eq=False)
class MatrixFreePrecision(Precision):
    r"""Λ = scale · G + D through products, relative to Λ̂ = scale · Ĝ + D from the sketch.

    With Λ̂⁻¹ = M̂ M̂ᵀ, everything is a function of C = M̂ᵀ Λ M̂, whose eigenvalues cluster
    at one for a good sketch (and equal one for an exact one):

    .. math:: \Lambda^{-1} = \hat M C^{-1} \hat M^\top, \qquad M = \hat M C^{-1/2}, \qquad
              \log|\Lambda| = \log|\hat\Lambda| + \operatorname{tr}\log C

    Solves are conjugate gradients, samples and log determinants Lanczos; traces and diagonals are averages over fixed
    probes, of the difference from Λ̂ alone. [hutchinson1990; ubaru2017; wenger2022]

    Attributes:
        curvature: G.
        scale: Factor on G.
        delta: D.
        base: Λ̂.
    """

    curvature: MatrixFreeBlock
    scale: Float[Tensor, ""]
    delta: Float[Tensor, " p"]
    base: linalg.DiagonalPlusLowRank

    @property
    def _tolerance(self) -> float:
        given = self.curvature.accuracy.tolerance
        return torch.finfo(self.base.diagonal.dtype).eps ** 0.25 if given is None else given

    def _exact(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        with torch.no_grad():
            return float(self.scale) * self.curvature.product(v) + self.base.diagonal * v

    def _relative(self, z: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        """C z."""
        return self.base.whiten(self._exact(self.base.colour(z)))

    def _power(self, z: Float[Tensor, "S p"], exponent: float, tolerance: float | None = None) -> Float[Tensor, "S p"]:
        """A power of C, times each vector."""
        tolerance = self._tolerance if tolerance is None else tolerance

        def function(values: Tensor) -> Tensor:
            return self._floored(values) ** exponent

        return torch.cat(
            [
                linalg.lanczos.apply(self._relative, part, function, tolerance, self._steps(part))
                for part in self._parts(z)
            ]
        )

    def _floored(self, values: Float[Tensor, "*m"]) -> Float[Tensor, "*m"]:
        """Eigenvalues of C, those of negative curvature raised to the prior's."""
        if self.curvature.indefinite:
            return values.clamp(min=1)
        smallest = float(values.min())
        if not smallest > 0:
            raise ValueError(
                f"the posterior precision has an eigenvalue of at most {smallest:.1e} relative to its preconditioner: "
                "it is not positive definite within rounding. Use a larger prior precision, or a float64 model."
            )
        return values

    def _steps(self, v: Float[Tensor, "S p"]) -> int:
        return min(self.curvature.accuracy.max_products, v.shape[-1] + 1)

    def _parts(self, v: Float[Tensor, "S p"]) -> Iterator[Float[Tensor, "s p"]]:
        """The vectors in chunks whose Krylov bases fit into memory."""
        yield from v.split(max(1, NUMBERS // (v.shape[-1] * min(STEPS, self._steps(v)))))

    def multiply(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        if not self.curvature.indefinite:
            return self._exact(v.detach())
        size = self.base.diagonal.sqrt()
        return self._power(v.detach() * size, 1.0) * size

    def solve(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        if not (self.differentiated or (v.requires_grad and torch.is_grad_enabled())):
            return self.solve_from(v)
        if self.curvature.indefinite:
            raise ValueError(
                "directions of negative curvature keep the prior, so that the answers have no derivative. Use "
                "curvature='ggn', or take no gradient."
            )
        return _Solve.apply(self, v, self.scale, self.delta)

    @property
    def differentiated(self) -> bool:
        """True if derivatives by scale or δ are asked for."""
        return torch.is_grad_enabled() and (self.scale.requires_grad or self.delta.requires_grad)

    def precondition(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        """Λ̂⁻¹ v, by the sketch."""
        return self.base.solve(v)

    def solve_from(self, v: Float[Tensor, "S p"], start: Float[Tensor, "S p"] | None = None) -> Float[Tensor, "S p"]:
        """Λ⁻¹ v, from the solutions of a similar problem."""
        first = None if start is None else self.frame.whiten(self.frame.multiply(start))
        return self.frame.colour(self._solution(self.frame.whiten(v), first)[0])

    @property
    def frame(self) -> linalg.DiagonalPlusLowRank:
        """M̂ M̂ᵀ = Λ̂⁻¹, which defines the coordinates of :meth:`_solution`."""
        return self.base

    def _solution(self, right: Tensor, start: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """C⁻¹ b, and the remaining residual."""
        if self.curvature.indefinite:
            return self._power(right, -1.0), torch.zeros_like(right)
        found = linalg.conjugate_gradients(
            self._relative,
            right,
            start=start,
            tolerance=self._tolerance,
            max_iterations=self.curvature.accuracy.max_products,
        )
        return found.x, found.remainder

    def colour(self, z: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        return self.base.colour(self._power(z.detach(), -0.5))

    def targets(self, n: int, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
        r"""Draws (n, p) of two sides of Λ θ = √scale ξ + D^{1/2} z: ξ = Σ_n J_nᵀ S_n ε_n, and z; ε and z white."""
        with torch.no_grad():
            data = self.curvature.noise(n, generator)
            white = torch.randn(data.shape, generator=generator, dtype=data.dtype, device=drawn_on(data, generator))
            return data, white.to(data.device)

    def optimised(
        self, data: Float[Tensor, "n p"], white: Float[Tensor, "n p"], start: Float[Tensor, "n p"] | None = None
    ) -> Float[Tensor, "n p"]:
        """Draws from N(0, Λ⁻¹), the solutions θ for these :meth:`targets`."""
        if self.differentiated:
            return self.solve(self.scale.sqrt().to(data) * data + self.delta.sqrt() * white)
        with torch.no_grad():
            return self.solve_from(float(self.scale.sqrt()) * data + self.base.diagonal.sqrt() * white, start)

    def whiten(self, v: Float[Tensor, "S p"]) -> Float[Tensor, "S p"]:
        return self._power(self.base.whiten(v.detach()), -0.5)

    @cached_property
    def _probes(self) -> Float[Tensor, "S p"]:
        accuracy, like = self.curvature.accuracy, self.base.diagonal
        generator = torch.Generator().manual_seed(accuracy.seed + 1)  # not the test vectors of the sketch
        return linalg.signs(accuracy.probes, len(like), generator, like.dtype, like.device)

    @cached_property
    def _spectrum(self) -> list[linalg.Quadrature]:
        """Gauss quadratures for the log of C, each for a chunk of the probes."""

        def log(values: Tensor) -> Tensor:
            return self._floored(values).log()

        found = [
            linalg.quadrature(self._relative, part, log, self._tolerance, self._steps(part))
            for part in self._parts(self._probes)
        ]
        if self.curvature.indefinite:
            _report_negative(found)
        return [replace(part, nodes=self._floored(part.nodes)) for part in found]

    @property
    def bounds(self) -> tuple[float, float]:
        """The smallest and the largest eigenvalue of C that were seen."""
        nodes = [part.nodes for part in self._spectrum]
        return min(float(part.min()) for part in nodes), max(float(part.max()) for part in nodes)

    @cached_property
    def log_determinant(self) -> linalg.Estimate:
        """log |Λ| − log |diag(δ)| and its standard error over the probes."""
        with torch.no_grad():
            value, error = linalg.log_determinant(self._spectrum)
            return linalg.Estimate(self.base.log_det_ratio() + value, error)

    def log_det_ratio(self) -> Float[Tensor, ""]:
        value = self.log_determinant.value
        if not (self.scale.requires_grad or self.delta.requires_grad):
            return value
        # γ is the slope in log scale − log δ; the value itself comes from another estimate
        slope = (self.effective_parameters().double() * (self.scale.log() - self.delta.double().log())).sum()
        return value + slope - slope.detach()

    @cached_property
    def variances(self) -> linalg.Estimate:
        """The diagonal of Λ⁻¹ and its standard errors, without the bounds of :meth:`variance`."""
        with torch.no_grad():
            value, error = linalg.diagonal(lambda v: self.solve(v) - self.base.solve(v), self._probes)
            return linalg.Estimate(self.base.variance() + value, error)

    def effective_parameters(self) -> Float[Tensor, " p"]:
        return 1 - self.base.diagonal * self.variances.value

    def variance(self) -> Float[Tensor, " p"]:
        """The diagonal of Λ⁻¹, estimates clamped to the bounds given by the eigenvalues of C."""
        smallest, largest = self.bounds
        base = self.base.variance()
        return torch.minimum(torch.maximum(self.variances.value, base / largest), base / smallest)

    def contract(self, projected: Any, events: int) -> Float[Tensor, "N T E E"]:
        found = self._contracted(projected.detach(), events)
        if not (self.differentiated or projected.requires_grad):
            return found
        grouped = projected.unflatten(0, (-1, events)).permute(2, 0, 1, 3)
        slope = grouped @ self.solve(grouped.flatten(0, 2)).reshape(grouped.shape).mT
        return found + slope - slope.detach()  # the value is the more accurate one

    def covariance(self, form: Any) -> Float[Tensor, "K K"]:
        rows = form.rows().transpose(0, 1).flatten(0, 1)
        # a root, so that the covariance is positive semi-definite; its error is not squared as that of a contraction
        close = torch.finfo(rows.dtype).eps ** 0.6 if self.curvature.accuracy.tolerance is None else self._tolerance
        found = linalg.row_products(self._power(self.base.whiten(rows.detach()), -0.5, close))
        if not (self.differentiated or rows.requires_grad):
            return found
        slope = (rows @ self.solve(rows).T).double()
        return found + slope - slope.detach()

    def _contracted(self, projected: Tensor, events: int) -> Float[Tensor, "N T E E"]:
        grouped = projected.unflatten(0, (-1, events)).permute(2, 0, 1, 3)
        rows = self.frame.whiten(grouped.flatten(0, 2))
        right, x, remainder = (each.reshape(grouped.shape) for each in (rows, *self._solution(rows)))
        found = right @ x.mT + x @ remainder.mT  # its error is the square of that of the solve
        return 0.5 * (found + found.mT)


class _Solve(torch.autograd.Function):
    """x = Λ⁻¹ v for Λ = scale · G + diag(δ): dx = Λ⁻¹ (dv − dΛ x)."""

    @staticmethod
    def forward(ctx: Any, precision: MatrixFreePrecision, v: Tensor, scale: Tensor, delta: Tensor) -> Tensor:
        x = precision.solve_from(v)
        ctx.precision = precision
        ctx.save_for_backward(x, scale, delta)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, scale, delta = ctx.saved_tensors
        w = _Solve.apply(ctx.precision, gradient, scale, delta)
        by_scale = by_delta = None
        if ctx.needs_input_grad[2]:
            by_scale = -(w * linalg.SymmetricProduct.apply(ctx.precision.curvature.product, x)).sum().to(scale)
        if ctx.needs_input_grad[3]:
            by_delta = -(w * x).sum(0)
        return None, w, by_scale, by_delta


def _report_negative(found: list[linalg.Quadrature]) -> None:
    """Warn of directions in which the log likelihood curves upwards, by eigenvalues relative to the prior below one."""
    smallest = min(float(part.nodes.min()) for part in found)
    if smallest < 1 - 1e-6:
        count = torch.cat([part.integrate(lambda values: (values < 1 - 1e-6).double()) for part in found]).mean()
        warnings.warn(
            f"the Hessian has about {float(count):.0f} directions of negative curvature, down to {smallest - 1:.1e} of "
            "the prior precision; they keep the prior. The network may not be at a mode: train longer, or use "
            "curvature='ggn'.",
            stacklevel=2,
        )
