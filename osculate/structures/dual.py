"""The posterior in function space: the matrix by its rows, for fewer data than parameters."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from osculate.curvature.engine import Observation
from osculate.curvature.forms import AnyForm
from osculate.curvature.plan import BlockSpec
from osculate.inputs import take
from osculate.linalg import eigh
from osculate.memory import free, readable
from osculate.parameters import ParameterSpace
from osculate.registry import choose
from osculate.structures._base import Curvature, Structure
from osculate.structures.blocks import DualBlock, Joint, Rows

#: K × K matrices in double precision that a posterior needs at once.
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

    For more data, M of them may stand for all, drawn at random from the stream with equal probabilities:

    * "nystrom": all data are projected onto the span of the rows of the M data, in a second pass: G̃ = P G P with the
      projection P, so that the kernel of the data shrinks, X P Xᵀ ⪯ X Xᵀ. What ELLA [deng2022] does, but here the
      prior keeps its variance in all directions outside of the span, where ELLA has none. Within it the posterior may
      be more certain than the exact one: what other directions would explain is left out.
    * "subset": the M data count N/M times each: an unbiased estimate of G, in one pass.

    Both equal the exact posterior for M = N.

    Args:
        points: M, or None for all data.
        approximation: "nystrom" or "subset", where ``points`` is given.
        seed: seed of the random choice.
        limit: the largest number of rows (or of parameters, where these are fewer) that is accepted.

    Raises:
        ValueError: a number that is not positive, or an unknown approximation.

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
    entrywise: ClassVar[bool] = True
    points: int | None = None
    approximation: str = "nystrom"
    seed: int = 0
    limit: int = 20_000

    def __post_init__(self) -> None:
        choose("approximation", self.approximation, ("nystrom", "subset"))
        for name in ("points", "limit"):
            if (value := getattr(self, name)) is not None and value < 1:
                raise ValueError(f"Dual needs a positive {name}, got {name}={value}.")

    @property
    def passes(self) -> int:  # type: ignore[override]
        """Two where all data are projected onto the rows of some."""
        return 1 if self.points is None or self.approximation == "subset" else 2

    def groups(self, specs: tuple[BlockSpec, ...]) -> tuple[tuple[int, ...], ...]:
        """All forms go into one matrix."""
        return (tuple(range(len(specs))),)

    def block(self, spec: BlockSpec, dtype: torch.dtype, device: torch.device) -> DualBlock:
        """No rows yet, for one form."""
        groups, outputs, inputs = spec.positions.shape if spec.positions.ndim == 3 else (1, spec.size, 1)
        flat = spec.positions.reshape(-1).to(device)
        return DualBlock(
            flat, torch.zeros_like(flat), (Rows((groups, outputs, inputs), spec.kind == "lookup", []),), [], {}
        )

    def zero(
        self, specs: tuple[BlockSpec, ...], space: ParameterSpace, dtype: torch.dtype, device: torch.device
    ) -> "DualCurvature":
        parts = [self.block(spec, dtype, device) for spec in specs]
        positions = torch.cat([part.positions for part in parts])
        owners = torch.bucketize(positions, torch.tensor(space.offsets(), device=device), right=True) - 1
        block = DualBlock(positions, owners, tuple(rows for part in parts for rows in part.rows), [], {})
        draw = None if self.points is None else Draw(self.points, torch.Generator().manual_seed(self.seed))
        return DualCurvature(self, (block,), self.groups(specs), specs, space, draw)

    def add(self, curvature: Curvature, observation: Observation, number: int = 0) -> Tensor:
        """Keep the rows of a batch, those of some of its data, or project them on those that were kept."""
        assert isinstance(curvature, DualCurvature)
        draw = curvature.draw
        if draw is None:
            return curvature.keep(observation)
        if number:
            return curvature.project_rows(observation)
        o = observation
        with torch.no_grad():
            f = o.network(o.x).to(o.network.state_dtype)
        o.check(f, o.y)
        mask, chosen = draw.next(len(o.y))
        curvature.block.select(list(mask.split([n for _, n in curvature.block.sizes])))
        if len(chosen):
            rows = chosen.to(o.y.device)
            curvature.keep(replace(o, batch=(take(o.x, rows), o.y[rows])))
        return f


@dataclass(eq=False)
class Draw:
    """M data of a stream of unknown length: those with the smallest of random numbers, one for each datum.

    The numbers are drawn one after the other, so that the choice does not depend on the batches.

    Attributes:
        points: M.
        generator: source of the random numbers.
        seen: N so far.
        numbers: random numbers of the data that are kept.
        basis: orthonormal combinations (K, r) of the rows X, whose transpose times X is B; once all data were seen.
        products: B G Bᵀ of the second pass.
    """

    points: int
    generator: torch.Generator
    seen: int = 0
    numbers: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.double))
    basis: Tensor | None = None
    products: Tensor | None = None

    def next(self, size: int) -> tuple[Tensor, Tensor]:
        """A mask of the kept data that stay, and the indices of the next data that are added."""
        self.seen += size
        numbers = torch.cat([self.numbers, torch.rand(size, generator=self.generator, dtype=torch.double)])
        kept = numbers <= numbers.kthvalue(min(self.points, len(numbers))).values
        old, new = kept.tensor_split([len(self.numbers)])
        self.numbers = numbers[kept]
        return old, new.nonzero().squeeze(-1)


@dataclass(frozen=True, eq=False)
class DualCurvature(Curvature):
    """G as rows, which add by standing next to each other.

    Attributes:
        draw: the choice of data while the rows are being made, None where all are kept.
    """

    draw: Draw | None

    @property
    def block(self) -> DualBlock:
        """All rows."""
        (block,) = self.blocks
        assert isinstance(block, DualBlock)
        return block

    def _form(self, group: tuple[int, ...], forms: Mapping[int, AnyForm]) -> Joint:  # type: ignore[override]
        sizes = tuple(self.specs[n].size for n in group)
        return Joint(tuple(forms.get(n) for n in group), sizes)

    def keep(self, observation: Observation) -> Tensor:
        """Keep the rows of a batch, in place, and give its outputs."""
        outputs, columns = [], []
        for piece in observation.pieces():
            columns.append(self._form(self.groups[0], piece.forms))
            if piece.first:
                outputs.append(piece.f)
            if piece.last:
                self.block.accumulate(Joint.of_columns(columns))
                self._require_room()
                columns = []
        return torch.cat(outputs)

    def _require_room(self) -> None:
        """Raise ValueError where rows or their products outgrow the memory, or what is reasonable."""
        block, structure = self.block, self.structure
        assert isinstance(structure, Dual)
        data, rows = sum(n for _, n in block.sizes), sum(v * n for v, n in block.sizes)
        latest = [value for each in block.rows for value in each.packs[-1].values()]
        held = sum(float(value.numel() * value.itemsize) for value in latest) * data / block.sizes[-1][1]
        size = rows if structure.passes > 1 else min(rows, len(block.positions))
        products, available = 8.0 * MATRICES * size**2, float(free(block.positions.device))
        if size > structure.limit or held + products > available:
            most = min(structure.limit, int((available / 8 / MATRICES) ** 0.5))
            raise ValueError(
                f"structure='dual' keeps {rows:,} rows for the first {data:,} data, which take {readable(held)}, and "
                f"{readable(products)} for their products; {readable(available)} are free, and the limit is "
                f"{structure.limit:,} rows. Let fewer data stand for all, with "
                f"osc.structures.Dual(points={max(1, most * data // rows // 2)}), or use structure='low_rank', 'kron', "
                "or curvature='fisher' (one row a datum)."
            )

    def finish(self) -> None:
        """Join the rows after the first pass; combine them after the second."""
        block, draw = self.block, self.draw
        if draw is not None and draw.products is not None:
            values, vectors = eigh(draw.products)
            assert draw.basis is not None
            block.mix["mix"] = values.sqrt().unsqueeze(-1) * (vectors.T @ draw.basis.T)
            return
        block.finish()
        if draw is not None and self.structure.passes == 1:
            block.scale((draw.seen / len(draw.numbers)) ** 0.5)
        elif draw is not None:
            # U λ^{-1/2} for X Xᵀ = U diag(λ) Uᵀ: its transpose times the rows is orthonormal
            values, vectors = eigh(torch.stack([each for _, each in block.tensor_grams()]).sum(0))
            kept = values > len(values) * torch.finfo(values.dtype).eps * values.max()
            draw.basis = vectors[:, kept] / values[kept].sqrt()
            draw.products = draw.basis.new_zeros(draw.basis.shape[1], draw.basis.shape[1])

    def project_rows(self, observation: Observation) -> Tensor:
        """Add the products of the coordinates of a batch's rows, in place."""
        outputs, draw = [], self.draw
        assert draw is not None
        assert draw.basis is not None
        assert draw.products is not None
        block = self.block
        ones = draw.basis.new_ones(len(block.positions))
        for piece in observation.pieces():
            packs = block.packed(self._form(self.groups[0], piece.forms))
            coordinates = block.kernel(packs, block.packs, ones, separable=True) @ draw.basis
            draw.products += coordinates.T @ coordinates
            if piece.first:
                outputs.append(piece.f)
        return torch.cat(outputs)

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> "DualCurvature":
        inner = {name.removeprefix("0."): value for name, value in tensors.items()}
        return replace(self, blocks=(self.block.with_tensors(inner),), draw=None)

    def __add__(self, other: Curvature) -> Curvature:
        if self.structure.passes > 1:
            return super().__add__(other)  # which says why not
        assert isinstance(other, DualCurvature)
        return replace(self, blocks=(self.block.joined(other.block),), draw=None)
