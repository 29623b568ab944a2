"""A curvature matrix over all tracked parameters, and the posterior precision it becomes with a prior.

A structure only decides which block keeps which kind of matrix; the matrices themselves are in ``blocks/``.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from osculate.curvature.columns import Hessian
from osculate.curvature.engine import Observation, Piece
from osculate.curvature.forms import AnyForm, Dense, Unit
from osculate.curvature.plan import BlockSpec
from osculate.distributed import Group
from osculate.inputs import Inputs
from osculate.memory import require
from osculate.parameters import ParameterSpace
from osculate.priors import Prior
from osculate.randomness import drawn_on
from osculate.structures.blocks import Block, Correlated, Delta, Joint, Precision
from osculate.structures.blocks.hessian import add_hessian

#: Derivative of the outputs, as a share of the largest, below which a parameter counts as without one.
UNSEEN = 1e-10
#: Σ n³ of eigendecompositions from which it is quicker to receive them: some 20 ms of one core.
WORTH_SHARING = 2**24


def _owners(spec: BlockSpec, space: ParameterSpace) -> Tensor:
    """The index, among the tensors of a block, of the tensor that each of its entries belongs to."""
    starts = torch.tensor(space.offsets())
    tensors = torch.bucketize(spec.positions.reshape(-1).cpu(), starts, right=True) - 1
    place = {name: number for number, name in enumerate(spec.names)}
    return torch.tensor([place.get(name, -1) for name in space.names])[tensors]


def _expanded(spec: BlockSpec, value: Mapping[str, Tensor], space: ParameterSpace) -> list[Tensor]:
    """One value per tensor, expanded to the entries of a block in the order of the block."""
    if spec.kind != "outer":
        return [torch.stack([value[name] for name in spec.names])[_owners(spec, space)]]
    weight = value[spec.names[0]].expand(spec.positions.shape)
    if not spec.has_bias:
        return [weight]
    return [torch.cat([weight[..., :-1], value[spec.names[1]].expand(*spec.positions.shape[:-1], 1)], -1)]


def _by_tensor(specs: Sequence[BlockSpec], values: Tensor, space: ParameterSpace) -> list[Tensor]:
    """The entries of blocks by tensor: the inverse of :func:`_expanded`."""
    found: list[Tensor] = []
    for spec, part in zip(specs, values.split([spec.size for spec in specs]), strict=True):
        if spec.kind != "outer":
            owners = _owners(spec, space).to(part.device)
            found += [part[owners == number] for number in range(len(spec.names))]
            continue
        matrix = part.reshape(spec.positions.shape)
        found += [matrix[..., :-1], matrix[..., -1]] if spec.has_bias else [matrix]
    return found


def _work(matrix: Float[Tensor, "G n n"]) -> int:
    """Operations of an eigendecomposition, up to a factor."""
    return matrix.numel() * matrix.shape[-1]


@dataclass(frozen=True, eq=False)
class Curvature:
    """G as blocks: tensors that add over batches, processes and tasks.

    Attributes:
        structure: The rule by which the blocks were chosen.
        blocks: The matrices.
        specs: The parameters of each form.
        space: The parameter space.
    """

    structure: "Structure"
    blocks: tuple[Block, ...]
    specs: tuple[BlockSpec, ...]
    space: ParameterSpace

    @cached_property
    def members(self) -> tuple[tuple[BlockSpec, ...], ...]:
        """The parameters of the forms of each block."""
        return (self.specs,) if self.structure.joint else tuple((spec,) for spec in self.specs)

    def accumulate(self, forms: Mapping[int, AnyForm]) -> None:
        """Add one more batch, in place; only for a state that is still being accumulated and not shared."""
        for block, form in zip(self.blocks, self.by_block(forms), strict=True):
            if form is not None:
                assert not isinstance(form, Unit)  # only for the identity columns of a predictive
                block.accumulate(form)

    def said(self, start: Observation) -> list[Any]:
        """Messages of the blocks to other processes after the first pass, see :meth:`join`."""
        return [block.said(start) for block in self.blocks]

    def join(self, group: Group, pass_index: int, said: Sequence[list[Any]], start: Observation) -> None:
        """Add the data of other processes, in place, after a pass over the data and before :meth:`finish`.

        Args:
            group: All processes.
            pass_index: Index of the pass.
            said: Messages of the blocks of each process, after the first pass.
            start: Some data, with the network and the kind of curvature.

        Raises:
            ValueError: states that do not add.
        """
        group.sum_(tensor for block in self.blocks for tensor in block.addends(pass_index))
        if not pass_index:
            for block, each in zip(self.blocks, zip(*said, strict=True), strict=True):
                block.hear(each, group.rank, start)

    def finish(self) -> None:
        """Complete the matrices after the last :meth:`accumulate`, in place."""
        for block in self.blocks:
            block.finish()

    def by_block(self, forms: Mapping[int, AnyForm]) -> Iterator[Any]:
        """The argument of each block for the forms of some data; None where they did not use its parameters."""
        if not self.structure.joint:
            yield from (forms.get(number) for number in range(len(self.blocks)))
        else:
            sizes = tuple(spec.size for spec in self.specs)
            joint = Joint(tuple(forms.get(number) for number in range(len(sizes))), sizes)
            yield self.blocks[0].together(joint) if forms else None

    def share(self, group: Group) -> None:
        """Make the eigendecompositions each in one process, which sends it to all, where this saves time.

        Args:
            group: All processes, which have the same matrices and make this call together.
        """
        if group.alone:
            return
        each = [(block, name, matrix) for block in self.blocks for name, matrix in block.decomposed().items()]
        each.sort(key=lambda work: -_work(work[2]))
        loads, owners = [0] * group.size, []
        for _, _, matrix in each:
            owners.append(min(range(group.size), key=loads.__getitem__))
            loads[owners[-1]] += _work(matrix)
        if sum(loads) - max(loads) < WORTH_SHARING:
            return
        with group.together():
            own = {n: getattr(each[n][0], each[n][1]) for n, owner in enumerate(owners) if owner == group.rank}
        for n, ((block, name, matrix), owner) in enumerate(zip(each, owners, strict=True)):
            values, vectors = own.get(n) or (matrix.new_empty(matrix.shape[:-1]), torch.empty_like(matrix).mT)
            columns = vectors.mT.contiguous()  # as the decomposition leaves them
            group.send(values, owner)
            group.send(columns, owner)
            vars(block)[name] = values, columns.mT  # where the cached property keeps it

    def __add__(self, other: "Curvature") -> "Curvature":
        """The matrix of both data sets together.

        Raises:
            TypeError: the structure reads the data more than once, and its states do not add.
        """
        if self.structure.passes > 1:
            raise TypeError(f"structure {self.structure.name!r} cannot be added: fit both data sets together.")
        return replace(self, blocks=tuple(a.added(b) for a, b in zip(self.blocks, other.blocks, strict=True)))

    def scaled(self, factor: Float[Tensor, ""] | float) -> "Curvature":
        """The matrix times a positive factor."""
        return replace(self, blocks=tuple(block.scaled(factor) for block in self.blocks))

    def combined(self, other: "Curvature") -> "Curvature":
        """The sum of two matrices of the same structure, as close as the structure can hold it."""
        return replace(self, blocks=tuple(a.combined(b) for a, b in zip(self.blocks, other.blocks, strict=True)))

    @property
    def kept(self) -> list[tuple[Inputs, Tensor]]:
        """The data that the state itself holds, in batches; nothing for most structures."""
        return [batch for block in self.blocks for batch in block.kept]

    @cached_property
    def row_size(self) -> int:
        """Length of the longest rows that are formed whole; 0 if the factors of each layer suffice."""
        return max((len(block.positions) for block in self.blocks if block.whole_rows), default=0)

    @cached_property
    def covered(self) -> Bool[Tensor, " P"]:
        """A mask of the parameters that the posterior is over; False outside a subnetwork."""
        mask = torch.zeros(self.space.size, dtype=torch.bool)
        for block in self.blocks:
            mask[block.positions.cpu()] = True
        return mask

    @cached_property
    def seen(self) -> Bool[Tensor, " P"]:
        """A mask of the parameters on which the data depend: those whose own curvature is not zero.

        Zero is what rounding leaves of it, below :data:`UNSEEN` of the largest derivative: behind a
        ReLU that is off for all data, or a sigmoid at its limit. The data term is flat along such parameters.
        """
        parts = [block.sensitivity().cpu() for block in self.blocks]
        sizes = torch.zeros(self.space.size, dtype=reduce(torch.promote_types, (part.dtype for part in parts)))
        for block, part in zip(self.blocks, parts, strict=True):
            sizes[block.positions.cpu()] = part.to(sizes)
        return sizes > UNSEEN * sizes.max()

    def require_storable(self) -> None:
        """Raise TypeError if a file cannot hold the state, with the reason."""
        if self.structure.unstorable:
            raise TypeError(self.structure.unstorable)

    def tensors(self) -> dict[str, Tensor]:
        """The whole state, by block and name."""
        return {
            f"{number}.{name}": tensor
            for number, block in enumerate(self.blocks)
            for name, tensor in block.tensors().items()
        }

    def with_tensors(self, tensors: Mapping[str, Tensor]) -> "Curvature":
        """The same matrix with another state."""
        by_block: list[dict[str, Tensor]] = [{} for _ in self.blocks]
        for name, tensor in tensors.items():
            number, _, within = name.partition(".")
            by_block[int(number)][within] = tensor
        blocks = (block.with_tensors(state) for block, state in zip(self.blocks, by_block, strict=True))
        return replace(self, blocks=tuple(blocks))

    def project(self, forms: Mapping[int, AnyForm], events: int) -> Iterator[Any]:
        """The input of :meth:`PosteriorPrecision.contract` for the forms of some data and any prior; block by block."""
        for block, form in zip(self.blocks, self.by_block(forms), strict=True):
            yield None if form is None else block.project(form, events)

    def precision(self, scale: Float[Tensor, ""] | float, prior: Prior) -> "PosteriorPrecision":
        """scale · G + Σ⁻¹ with the precision Σ⁻¹ of the prior, factorised."""
        if prior.curvature is not None:
            return self.scaled(scale).combined(prior.curvature).precision(1.0, prior.diagonal)
        if prior.correlated:
            prior.require_structure(self)
            own, vector = prior.diagonal, prior.vector(self.space)
            deltas = [
                Delta(partial(vector.__getitem__, b.positions), correlated=Correlated(own, self.space, b.positions))
                for b in self.blocks
            ]
            parts = [block.precision(scale, delta) for block, delta in zip(self.blocks, deltas, strict=True)]
            return self.structure.precision_class(tuple(parts), self)
        by_tensor = prior.per_tensor(self.space)
        if by_tensor is not None:
            return self.precision_by_tensor(scale, by_tensor, prior.isotropic)
        vector = prior.vector(self.space)
        parts = [block.precision(scale, Delta(partial(vector.__getitem__, block.positions))) for block in self.blocks]
        return self.structure.precision_class(tuple(parts), self)

    def precision_by_tensor(
        self, scale: Float[Tensor, ""] | float, delta: Float[Tensor, " T"], isotropic: bool = False
    ) -> "PosteriorPrecision":
        """scale · G + diag(δ), factorised, with one δ for each parameter tensor.

        Args:
            scale: Factor of the curvature.
            delta: The prior precisions, in the order of the space.
            isotropic: True if all are equal by construction.
        """
        value = dict(zip(self.space.names, delta, strict=True))

        def vector(block: Block, specs: tuple[BlockSpec, ...]) -> Tensor:
            if isotropic:
                return delta[0].expand(len(block.positions))
            parts = [part.reshape(-1) for spec in specs for part in _expanded(spec, value, self.space)]
            return parts[0] if len(parts) == 1 else torch.cat(parts)

        parts = []
        for block, specs in zip(self.blocks, self.members, strict=True):
            names = specs[0].names
            bias = None if isotropic or len(names) < 2 else value[names[-1]]
            parts.append(block.precision(scale, Delta(partial(vector, block, specs), value[names[0]], bias, delta)))
        return self.structure.precision_class(tuple(parts), self)

    def dense(self) -> Float[Tensor, "P P"]:
        """The matrix itself, for tests and small networks."""
        parts = [block.dense() for block in self.blocks]
        dtype = reduce(torch.promote_types, (part.dtype for part in parts))  # dense blocks are in double precision
        total = parts[0].new_zeros(self.space.size, self.space.size, dtype=dtype)
        for block, part in zip(self.blocks, parts, strict=True):
            total[block.positions.unsqueeze(1), block.positions] = part.to(dtype)
        return total


@dataclass(frozen=True, eq=False)
class PosteriorPrecision:
    """scale · G + diag(δ) over all tracked parameters, block by block. Vectors are (*S, P)."""

    parts: tuple[Precision, ...]
    curvature: Curvature

    @property
    def space(self) -> ParameterSpace:
        """The parameter space."""
        return self.curvature.space

    def log_det_ratio(self) -> Float[Tensor, ""]:
        """log |Λ| − log |diag(δ)|, in double precision."""
        return torch.stack([part.log_det_ratio() for part in self.parts]).sum()

    def effective_parameters(self) -> Float[Tensor, " P"]:
        """The effective number γ of each parameter: 1 if the data determine it, 0 if the prior does."""
        return self._assembled([part.effective_parameters() for part in self.parts])

    def effective_parameters_by_tensor(self) -> Float[Tensor, " T"]:
        """γ of each parameter tensor, in double precision."""
        found: dict[str, Tensor] = {}
        space = self.curvature.space
        for part, specs in zip(self.parts, self.curvature.members, strict=True):
            totals = part.effective_parameters_by_tensor(partial(_by_tensor, specs, space=space))
            found.update(zip([name for spec in specs for name in spec.names], totals, strict=True))
        zero = torch.zeros_like(next(iter(found.values())))
        return torch.stack([found.get(name, zero) for name in space.names])

    def _assembled(self, values: list[Tensor]) -> Float[Tensor, " P"]:
        result = values[0].new_zeros(self.space.size)  # parameters in no block are known exactly
        for value, block in zip(values, self.curvature.blocks, strict=True):
            result[block.positions] = value.to(result)
        return result

    def _blockwise(self, verb: str, v: Tensor) -> Tensor:
        rows = v.reshape(-1, v.shape[-1])
        result = torch.zeros_like(rows)
        for part, block in zip(self.parts, self.curvature.blocks, strict=True):
            result[:, block.positions] = getattr(part, verb)(rows[:, block.positions])
        return result.reshape(v.shape)

    def multiply(self, v: Float[Tensor, "*S P"]) -> Float[Tensor, "*S P"]:
        """Λ v."""
        return self._blockwise("multiply", v)

    def solve(self, v: Float[Tensor, "*S P"]) -> Float[Tensor, "*S P"]:
        """Λ⁻¹ v."""
        return self._blockwise("solve", v)

    def precondition(self, v: Float[Tensor, "*S P"]) -> Float[Tensor, "*S P"]:
        """Λ⁻¹ v, or its approximation that needs no pass over the data."""
        return self._blockwise("precondition", v)

    def colour(self, z: Float[Tensor, "*S P"]) -> Float[Tensor, "*S P"]:
        """White noise z to noise with covariance Λ⁻¹."""
        return self._blockwise("colour", z)

    def sample(self, n: int, generator: torch.Generator | None, like: Tensor) -> Float[Tensor, "n P"]:
        """Draws from N(0, Λ⁻¹), with the type and device of ``like``; random numbers come from the generator's device.

        Random numbers are consumed draw by draw, so that the first draws do not depend on n.
        """
        size, device = self.space.size, drawn_on(like, generator)
        noise = [torch.randn(size, generator=generator, dtype=like.dtype, device=device) for _ in range(n)]
        return self.colour(torch.stack(noise).to(like.device))

    def variance(self) -> Float[Tensor, " P"]:
        """The diagonal of Λ⁻¹."""
        return self._assembled([part.variance() for part in self.parts])

    def contract(self, projected: Iterable[Any], events: int) -> Float[Tensor, "N T E E"]:
        """The blocks of J_n Λ⁻¹ J_nᵀ for groups of E rows, V = T·E rows for each datum."""
        terms = (part.contract(p, events) for part, p in zip(self.parts, projected, strict=True) if p is not None)
        return reduce(torch.add, terms)

    def covariance(self, rows: Float[Tensor, "K P"]) -> Float[Tensor, "K K"]:
        """x Λ⁻¹ xᵀ for rows x in the order of θ, in double precision."""
        forms = {}
        for number, spec in enumerate(self.curvature.specs):
            place = spec.positions.reshape(-1)
            start, size = int(place[0]), len(place)
            whole = bool((place == torch.arange(start, start + size, device=place.device)).all())
            forms[number] = Dense((rows[:, start : start + size] if whole else rows[:, place]).unsqueeze(1))
        return self.covariance_of_rows(forms)

    def covariance_of_rows(self, forms: Mapping[int, AnyForm]) -> Float[Tensor, "K K"]:
        """J Λ⁻¹ Jᵀ over all rows of all data together, K = N·V ordered by datum; one block at a time."""
        each = zip(self.parts, self.curvature.by_block(forms), strict=True)
        return reduce(torch.add, (part.covariance(form) for part, form in each if form is not None))


def outputs_of(pieces: Iterable[Piece], take: Callable[[Piece], object]) -> Tensor:
    """Pass the pieces of a batch to ``take`` one by one, and return the outputs f (N, *C)."""
    outputs = []
    for piece in pieces:
        take(piece)
        if piece.first:
            outputs.append(piece.f)
        del piece  # its forms are freed before the next ones are made
    return torch.cat(outputs)


class Structure(ABC):
    """The choice of a kind of matrix for each block of parameters."""

    name: ClassVar[str]
    #: Number of passes over the data.
    passes: ClassVar[int] = 1
    #: True if blocks hold plain entries, which may be those of a subnetwork or of the full Hessian.
    entrywise: ClassVar[bool] = False
    #: True if the factors of a layer suffice, so that its rows are never formed.
    by_factors: ClassVar[bool] = False
    #: True if one backward pass of the squared chain rule gives the whole state.
    by_squares: ClassVar[bool] = False
    #: True if it needs no column for each output.
    by_products: ClassVar[bool] = False
    #: True if averages of its states are states, so that a running average can be kept during training.
    averages: ClassVar[bool] = False
    #: True if one matrix holds all parameters, so that it couples layers.
    joint: ClassVar[bool] = False
    #: True if it takes a prior with correlations between parameters.
    takes_correlations: ClassVar[bool] = False
    #: The class of its posterior precisions.
    precision_class: ClassVar[type[PosteriorPrecision]] = PosteriorPrecision
    #: True if its sums over data are plain tensors, which a checkpoint can hold.
    resumes: ClassVar[bool] = True
    #: What to do where its matrices do not fit into the memory.
    smaller: ClassVar[str] = "Use structure='diag',"
    #: The reason why a file cannot hold a posterior with this structure; empty if it can.
    unstorable: ClassVar[str] = ""

    @abstractmethod
    def block(self, spec: BlockSpec, dtype: torch.dtype, device: torch.device) -> Block:
        """An empty block for these parameters."""

    def add(self, curvature: "Curvature", observation: Observation, pass_index: int = 0) -> Tensor:
        """Add one batch to a curvature, in place.

        Args:
            curvature: A curvature from :meth:`zero`, which is being accumulated.
            observation: The batch.
            pass_index: Index of the pass over the data.

        Returns:
            The outputs f (N, *C) of the batch.
        """
        if isinstance(observation.kind, Hessian) and self.entrywise:
            return add_hessian(curvature.blocks, observation)
        pieces = observation.pieces(self.by_factors, curvature.row_size)
        return outputs_of(pieces, lambda piece: curvature.accumulate(piece.forms))

    def require_sums(self, do: str = "fit with") -> None:
        """Raise ValueError if a checkpoint cannot hold its sums over data, with the structures to do the same with."""
        if not self.resumes:
            raise ValueError(
                f"structure={self.name!r} keeps rows or the data themselves, and no sums that a checkpoint could hold: "
                f"{do} 'kron', 'diag', 'full' or 'low_rank', or without checkpoint."
            )

    def units(self, columns: int) -> float:
        """The cost of a fit in forward and backward passes over the data: a column takes half of a backward pass.

        Args:
            columns: Number of columns of a datum.
        """
        return self.passes * (1 + columns) / 3

    def bytes_needed(self, specs: tuple[BlockSpec, ...], itemsize: int) -> int:
        """Bytes of the state and of what a posterior factorises of it; by default as for a diagonal."""
        return itemsize * sum(spec.size for spec in specs)

    def require_room(self, specs: tuple[BlockSpec, ...], dtype: torch.dtype, device: torch.device) -> None:
        """Raise ValueError, with alternatives, if these are too many parameters for the structure."""
        worst = max(specs, key=lambda spec: spec.size)
        require(
            self.bytes_needed(specs, dtype.itemsize),
            device,
            f"the matrices of structure={self.name!r} (its largest layer, {', '.join(worst.names)}, has parameters of "
            f"shape {' x '.join(f'{size:,}' for size in worst.positions.shape)})",
            f"{self.smaller} or track fewer parameters with subset (names of layers).",
        )

    def require_few(self, start: Observation, data: int) -> None:
        """Raise ValueError if the columns of all data would take very long.

        Args:
            start: The first batch.
            data: Number of data of a pass.
        """
        if not self.by_products and not isinstance(start.kind, Hessian):
            self.require_room(start.plan.specs, start.network.state_dtype, start.network.device)
            start.require_few(data)

    def zero(
        self, specs: tuple[BlockSpec, ...], space: ParameterSpace, dtype: torch.dtype, device: torch.device
    ) -> "Curvature":
        """A zero matrix, before any data."""
        self.require_room(specs, dtype, device)
        own = specs
        if self.joint:
            names = tuple(name for spec in specs for name in spec.names)
            own = (BlockSpec(names, "dense", torch.cat([spec.positions.reshape(-1) for spec in specs])),)
        return Curvature(self, tuple(self.block(spec, dtype, device) for spec in own), specs, space)
