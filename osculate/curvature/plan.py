"""Which parameters form a block, and how much a datum takes: what :mod:`planning` decides and the engine follows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from osculate.memory import readable

#: Columns that are pulled back at once at most: more are no faster.
COLUMNS = 128
EVERYTHING = 2**62


@dataclass(frozen=True)
class BlockSpec:
    """Parameters that a structure may treat together.

    Attributes:
        names: the tracked parameters.
        kind: "outer" (affine operation), "lookup" (one of one-hot vectors: an embedding), "dense" (rows), or
            "fallback" (rows from vector-Jacobian products).
        positions: where each entry of the block's forms stands in θ: (G, O, I) for the first two, (p,) otherwise.
        has_bias: whether the last input feature is the constant one of a bias.
        kept: which of the entries a subnetwork keeps, None for all.
    """

    names: tuple[str, ...]
    kind: str
    positions: Tensor
    has_bias: bool = False
    kept: Tensor | None = None

    @property
    def size(self) -> int:
        """p, the number of parameters of the block."""
        return self.positions.numel()

    @property
    def reduced(self) -> "BlockSpec":
        """The block as structures see it: the entries that are kept, without the factors of the whole."""
        if self.kept is None:
            return self
        return BlockSpec(self.names, "dense", self.positions.reshape(-1)[self.kept])

    def restricted(self, wanted: Tensor) -> "BlockSpec":
        """The block with those entries alone whose positions in θ are wanted, a mask (P,)."""
        return replace(self, kept=wanted[self.positions.reshape(-1)].nonzero().squeeze(-1))


@dataclass(frozen=True)
class Example:
    """How a batch was worked on, which later batches are compared with.

    Attributes:
        shapes: of one datum's inputs, by name.
        sizes: by parameter, how many numbers the operations that use it return for a datum.
    """

    shapes: Mapping[str, Sequence[int]]
    sizes: Mapping[str, Sequence[float]]


@dataclass(frozen=True)
class Plan:
    """The partition of the tracked parameters into blocks, and how much a datum takes.

    Attributes:
        blocks: in the order of ``named_parameters()``.
        floats: numbers held for each column and datum while forms are made.
        factored: the same for a structure that never forms the rows of a layer used at several positions.
        inputs: numbers held for each datum, however many columns there are.
        outputs: c, the number of outputs of a datum.
        last_layer: the parameters of the operation that ran last, empty where it is not an affine layer.
        example: how the first batch was worked on.
    """

    blocks: tuple[BlockSpec, ...]
    floats: int
    factored: int
    inputs: int
    outputs: int
    last_layer: tuple[str, ...]
    example: Example

    @property
    def specs(self) -> tuple[BlockSpec, ...]:
        """The blocks as structures see them."""
        return tuple(block.reduced for block in self.blocks)

    def restricted(self, wanted: Tensor) -> "Plan":
        """The plan of a subnetwork, whose parameters are given by a mask (P,)."""
        blocks = [block.restricted(wanted) for block in self.blocks]
        blocks = [block for block in blocks if block.kept is not None and len(block.kept)]
        floats = self.factored + sum(len(block.kept) for block in blocks if block.kept is not None)
        return replace(self, blocks=tuple(blocks), floats=floats, factored=floats)

    def require_same_rows(self, seen: Example) -> None:
        """Refuse data that are worked on in other numbers of rows than those of the plan, though of the same shapes.

        Raises:
            ValueError: rows would be taken for those of another datum.
        """
        if seen.shapes != self.example.shapes:
            return
        by_rule = (name for block in self.blocks if block.kind != "fallback" for name in block.names)
        for name in by_rule:
            sizes = seen.sizes.get(name, [])
            if not set(sizes) <= set(self.example.sizes.get(name, sizes)):
                raise ValueError(
                    f"the layer of {name} worked on another number of rows for each datum than in the first batch, for "
                    "inputs of the same shape: rows are picked by their values (a mask, a routing to experts). Put "
                    "such inputs into the first batch, so that this layer is treated without assumptions."
                )

    def with_rows(self, size: int) -> "Plan":
        """The plan for a structure that forms whole rows of so many numbers, and copies in double precision."""
        return replace(self, floats=self.floats + 3 * size, factored=self.factored + 3 * size)

    def by_factors(self) -> "Plan":
        """The plan for a structure that never forms the rows of a layer used at several positions."""
        return replace(self, floats=self.factored)

    def bytes_each(self, columns: int, itemsize: int = 4) -> int:
        """What a datum takes with this number of columns."""
        return 2 * itemsize * (min(max(1, columns), COLUMNS) * self.floats + self.inputs)

    def require_room(self, memory: int, itemsize: int = 4) -> None:
        """Refuse an amount of memory in which not even one datum with one column fits.

        Raises:
            ValueError: with the amount that is needed.
        """
        needed = self.bytes_each(1, itemsize)
        if needed > memory:
            raise ValueError(
                f"one datum of this network takes about {readable(float(needed))} at a time, and memory allows "
                f"{readable(float(memory))}: raise memory, or track fewer parameters with subset (names of layers)."
            )

    def data_at_once(self, columns: int, memory: int | None, itemsize: int = 4) -> int:
        """How many data fit into the memory with this number of columns; one at least."""
        if memory is None:
            return EVERYTHING
        return max(1, memory // self.bytes_each(columns, itemsize))

    def columns_at_once(self, data: int, memory: int | None, itemsize: int = 4) -> int:
        """How many columns fit into the memory for this number of data; one at least."""
        if memory is None:
            return EVERYTHING
        left = memory // (2 * itemsize * max(1, data)) - self.inputs
        return max(1, min(COLUMNS, left // self.floats))
