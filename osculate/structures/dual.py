"""The posterior in function space: the matrix by its rows, for fewer data than parameters."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.columns import GGN, Directions, Hessian
from osculate.curvature.engine import Observation, Piece
from osculate.curvature.plan import BlockSpec
from osculate.likelihoods import Gaussian
from osculate.memory import free, readable
from osculate.parameters import ParameterSpace
from osculate.registry import choose
from osculate.structures._base import Curvature, Structure, outputs_of
from osculate.structures.blocks import Draw, DualBlock, Joint, Others, Rows

#: Number of K × K matrices in double precision that a posterior holds at once.
MATRICES = 4


@dataclass(frozen=True)
class Dual(Structure):
    r"""Every entry of G, through the products of the rows of its root: the neural tangent kernel of the data.

    .. math:: G = X^\top X, \qquad
              x^\top \Lambda^{-1} y = k(x, y) - k(x, X) \big(I + k(X, X)\big)^{-1} k(X, y), \qquad
              k(x, y) = x^\top \operatorname{diag}(\delta)^{-1} y

    with K = N·C rows (one for each column of a root of the output Hessians) in place of P² entries: the same posterior
    as ``full``, for data that are fewer than parameters. The rows of linear layers are kept as two factors where these
    are smaller, so that no array of K × P numbers is made for them. [jacot2018; khan2019]

    For more data, M of them may represent all, drawn at random from the stream with equal probabilities:

    * "nystrom": all data are projected onto the span of the rows of the M data, in a second pass: G̃ = P G P with the
      projection P, so that the kernel of the data shrinks, X P Xᵀ ⪯ X Xᵀ. Unlike in ELLA
      [deng2022], directions outside the span keep the variance of the prior; ELLA gives them none. Within the span the
      posterior may be more certain than the exact one, as it ignores all other directions.
    * "subset": the M data count N/M times each: an unbiased estimate of G, in one pass.

    Both equal the exact posterior for M = N.

    Args:
        points: M, or None for all data.
        approximation: "nystrom" or "subset", where ``points`` is given.
        seed: Seed of the random choice.
        limit: The largest number of rows (or of parameters, where these are fewer) that is accepted.
        basis: Orthonormal directions (R, C) in the space of the C outputs of a datum, whose rows are kept, for a
            datum with very many outputs and Gaussian noise; by default all outputs. All other directions count in the
            log determinant, by their mean prior variance: it is then not too small, as neither dropping correlations
            nor averaging variances lowers it. Variances do not use them.
        probes: Number of random vectors that estimate that mean; 0 if the basis spans the range of the outputs.

    Raises:
        ValueError: a number that is not positive, an unknown approximation, or a basis for a subset of the data.
        TypeError: on fitting, a basis for another likelihood than ``Gaussian``.

    Cost: the columns of an exact fit; K² memory and K³/3 operations for each prior, beside the rows: K·P numbers, or
    R·(N·I + K·O) for a layer from I to O features that is used at R positions. A variance takes the products with all
    rows.

    >>> X, Y = torch.randn(30, 2), torch.randint(3, (30,))
    >>> model = nn.Sequential(nn.Linear(2, 40), nn.Tanh(), nn.Linear(40, 3))
    >>> q = osc.laplace(model, osc.likelihoods.Categorical(), (X, Y), structure="dual", prior=1.0)
    >>> full = osc.laplace(model, osc.likelihoods.Categorical(), (X, Y), structure="full", prior=1.0)
    >>> bool((osc.log_evidence(q) - osc.log_evidence(full)).abs() < 1e-2)
    True
    """

    name: ClassVar[str] = "dual"
    joint: ClassVar[bool] = True
    entrywise: ClassVar[bool] = True
    takes_correlations: ClassVar[bool] = True
    resumes: ClassVar[bool] = False
    points: int | None = None
    approximation: str = "nystrom"
    seed: int = 0
    limit: int = 20_000
    basis: Tensor | None = field(default=None, compare=False, repr=False)
    probes: int = 32

    def __post_init__(self) -> None:
        choose("approximation", self.approximation, ("nystrom", "subset"))
        if self.basis is not None and self.points is not None:
            raise ValueError("Dual takes a basis of the outputs or a number of data (points), not both.")
        for name in ("points", "limit"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"Dual needs a positive {name}, got {name}={value}.")

    @property
    def passes(self) -> int:  # type: ignore[override]
        """Two if all data are projected onto the rows of a subset, else one."""
        return 1 if self.points is None or self.approximation == "subset" else 2

    def block(self, spec: BlockSpec, dtype: torch.dtype, device: torch.device) -> DualBlock:
        """An empty block for one form."""
        groups, outputs, inputs = spec.positions.shape if spec.positions.ndim == 3 else (1, spec.size, 1)
        flat = spec.positions.reshape(-1).to(device)
        rows = Rows((groups, outputs, inputs), spec.kind == "lookup", [])
        return DualBlock(flat, torch.zeros_like(flat), (rows,), [], {}, None)

    def zero(
        self, specs: tuple[BlockSpec, ...], space: ParameterSpace, dtype: torch.dtype, device: torch.device
    ) -> Curvature:
        parts = [self.block(spec, dtype, device) for spec in specs]
        positions = torch.cat([part.positions for part in parts])
        owners = torch.bucketize(positions, torch.tensor(space.offsets(), device=device), right=True) - 1
        draw = None
        if self.points is not None:
            draw = Draw(self.points, torch.Generator().manual_seed(self.seed), self.approximation == "nystrom")
        others = None
        if self.basis is not None and self.probes:
            others = Others(self.basis.shape[1] - self.basis.shape[0], self.probes)
        block = DualBlock(positions, owners, tuple(rows for part in parts for rows in part.rows), [], {}, draw, others)
        return Curvature(self, (block,), specs, space)

    def coordinates(self, u: Float[Tensor, "S N C"]) -> Float[Tensor, "S K"]:
        """Output vectors, projected onto the basis, in the order of the rows; for Gaussian noise of one scale."""
        projected = u if self.basis is None else u @ self.basis.to(u).T
        return projected.transpose(1, 2).flatten(1)

    def _columns(self, observation: Observation) -> Observation:
        """The batch with the columns of the basis, and of the random vectors orthogonal to it."""
        if self.basis is None:
            return observation
        if not isinstance(observation.likelihood, Gaussian) or not isinstance(observation.kind, GGN):
            raise TypeError(
                f"Dual(basis=…) needs Gaussian noise and curvature='ggn', got {type(observation.likelihood).__name__} "
                f"and {observation.kind.name!r}: leave the basis out."
            )
        vectors, beyond = self.basis, self.basis.shape[1] - self.basis.shape[0]
        if self.probes:
            generator = torch.Generator().manual_seed(self.seed + 1)
            random = torch.randn(self.probes, vectors.shape[1], generator=generator, dtype=torch.double).to(vectors)
            random = random - random @ vectors.T @ vectors
            vectors = torch.cat([vectors, random / beyond**0.5])
        return replace(observation, kind=Directions(vectors))

    def add(self, curvature: Curvature, observation: Observation, pass_index: int = 0) -> Tensor:
        """Keep the rows of a batch, or of a random subset of it, or project them onto the kept rows."""
        (block,) = curvature.blocks
        assert isinstance(block, DualBlock)
        columns: list[Joint] = []

        def keep(piece: Piece) -> None:
            columns.extend(map(block.lean, curvature.by_block(piece.forms)))
            if piece.last:
                block.accumulate(Joint.of_columns(columns))
                if self.basis is not None and sum(n for _, n in block.sizes) > 1:
                    raise ValueError("Dual(basis=…) is for one datum with very many outputs: leave the basis out.")
                self._require_memory(block)
                columns.clear()

        def project(piece: Piece) -> None:
            block.add_projected(*curvature.by_block(piece.forms))

        observation = self._columns(observation)
        if not pass_index:
            self.require_few(observation, len(observation.y))
        if pass_index or block.draw is None:
            return outputs_of(observation.pieces(), project if pass_index else keep)
        o = observation
        f = o.outputs()
        mask, chosen = block.draw.next(len(o.y))
        block.select(list(mask.split([n for _, n in block.sizes])))
        if len(chosen):
            rows = chosen.to(o.y.device)
            outputs_of(o.part(rows).pieces(), keep)
        return f

    def require_few(self, start: Observation, data: int) -> None:
        """Raise ValueError, before any row is computed, if they are certainly too many."""
        if isinstance(start.kind, Hessian):
            return
        plan, network, data = start.plan, start.network, min(data, self.points or data)
        kind = start.kind if self.basis is None else Directions(self.basis)
        rows = data * -(-kind.expected(plan.outputs) // 2)  # two classes have one column
        least = sum(s.positions.numel() // (s.positions.shape[-1] if s.positions.ndim == 3 else 1) for s in plan.specs)
        parameters = sum(spec.size for spec in plan.specs)
        self._require(data, rows, float(rows) * least * network.state_dtype.itemsize, parameters, network.device)

    def _require_memory(self, block: DualBlock) -> None:
        """Raise ValueError if the rows so far or their products are too many."""
        data, rows = sum(n for _, n in block.sizes), sum(v * n for v, n in block.sizes)
        latest = [value for each in block.rows for value in each.packs[-1].values()]
        held = sum(float(value.numel() * value.itemsize) for value in latest) * data / block.sizes[-1][1]
        self._require(data, rows, held, len(block.positions), block.positions.device)

    def _require(self, data: int, rows: int, held: float, parameters: int, device: torch.device) -> None:
        """Raise ValueError if rows or their products exceed the free memory or the limit."""
        size = rows if self.passes > 1 else min(rows, parameters)
        products, available = 8.0 * MATRICES * size**2, float(free(device))
        if size > self.limit or held + products > available:
            most = min(self.limit, int((available / 8 / MATRICES) ** 0.5))
            fewer = most * data // rows // 2
            points = f"Use a subset of the data, with osc.structures.Dual(points={fewer}), or use" if fewer else "Use"
            raise ValueError(
                f"structure='dual' keeps at least {rows:,} rows for the first {data:,} data, which take "
                f"{readable(held)}, and {readable(products)} for their products; {readable(available)} are free, and "
                f"the limit is {self.limit:,} rows. {points} structure='low_rank', 'kron', or curvature='fisher' (one "
                "row a datum)."
            )
