"""Checked batches of pairs of tensors, loaders, streams and iterables: every function reads its data from here."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from itertools import islice
from typing import Any, TypeAlias, TypeGuard

import torch
from jaxtyping import Int
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from torch.utils.data.distributed import DistributedSampler

from osculate.inputs import Inputs, count, take, tensors
from osculate.streams import RowStream, lazily

Data: TypeAlias = Iterable | Dataset | tuple[Inputs, Tensor]

#: Rows taken at a time from a pair of tensors or from a data set without a loader.
BATCH_SIZE = 256
#: Integer types of the bits of numbers, by their bytes, and an odd factor that mixes bits.
INTEGERS, MIX = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}, 0x2545F4914F6CDD1D


def as_batches(data: Data, batch_size: int = BATCH_SIZE, may_be_empty: bool = False) -> Iterator[tuple[Inputs, Tensor]]:
    """Iterate over checked ``(x, y)`` batches.

    Args:
        data: A pair ``(X, Y)``, a ``DataLoader``, a ``Dataset``, or any iterable of ``(x, y)`` batches. x is a tensor,
            a tuple of tensors (``model(*x)``) or a mapping (``model(**x)``); a mapping with "labels", as Hugging Face
            loaders give it, is one batch. A pair with a memory-mapped NumPy array is read batch by batch.
        batch_size: Rows at a time where ``data`` is a pair of tensors or a plain ``Dataset``.
        may_be_empty: True for a share of the data that may hold no batch.

    The rows that a ``DistributedSampler`` repeats, so that all processes have equally many, are left out.

    Raises:
        TypeError: a batch is not an ``(x, y)`` pair of inputs and targets.
        ValueError: no batch at all, an empty batch, different lengths, a value that is not finite (the message says
            which batch and which row), a loader of accelerate that repeats rows for some processes, or one whose
            workers all yield the same rows.

    >>> [len(x) for x, y in as_batches((torch.zeros(5, 2), torch.zeros(5)), batch_size=2)]
    [2, 2, 1]
    """
    batches: Iterable
    data = lazily(data, batch_size)
    if is_pair(data):
        inputs, targets = data
        size = count(inputs)
        if size != len(targets):
            raise ValueError(f"X has {size} rows and Y has {len(targets)}: give each input one target.")
        parts = [slice(start, start + batch_size) for start in range(0, size, batch_size)]
        batches = ((take(inputs, part), targets[part]) for part in parts)
    elif isinstance(data, Dataset):
        batches = DataLoader(data, batch_size=batch_size)
    elif isinstance(data, Iterable) and not isinstance(data, Tensor | str | dict):
        batches = counted_once(data) if isinstance(data, DataLoader) else data
    else:
        raise TypeError(
            f"data must be a DataLoader, an iterable of (x, y) batches or a pair of tensors (X, Y), "
            f"got {type(data).__name__}."
        )
    number = -1
    for number, batch in enumerate(batches):
        yield _checked(batch, number)
    if number < 0 and not may_be_empty:
        raise ValueError("the data hold no batch: the loader is empty. Pass at least one (x, y) batch.")


def counted_once(loader: DataLoader) -> Iterable:
    """The batches of a loader, without rows that processes or workers repeat."""
    if isinstance(loader.dataset, IterableDataset):
        return _of_workers(loader) if loader.num_workers > 1 and getattr(loader, "in_order", True) else loader
    return _without_padding(loader)


def _of_workers(loader: DataLoader) -> Iterator[Any]:
    """The batches of a loader of several workers, the first of which come from one worker each."""
    batches = iter(loader)
    first = list(islice(batches, loader.num_workers))
    if len(first) == loader.num_workers and len({_row_digest([batch]) for batch in first}) == 1:
        raise ValueError(
            f"all {loader.num_workers} workers of the loader begin with the same batch, so that each row would count "
            f"{loader.num_workers} times: let {type(loader.dataset).__name__}.__iter__ yield a share of the rows by "
            "torch.utils.data.get_worker_info(), or load with num_workers=1."
        )
    yield from first
    del first
    yield from batches


def _without_padding(loader: DataLoader) -> Iterable:
    """The batches of a loader, less the rows that it repeats to give all processes equally many."""
    batches, sampler = loader.batch_sampler, loader.sampler
    if getattr(batches, "even_batches", False) and isinstance(loader.dataset, Sized):  # of accelerate
        each = (getattr(batches, "batch_size", None) or 1) * getattr(batches, "num_processes", 1)
        if len(loader.dataset) % each:
            raise ValueError(
                f"the loader repeats rows, which would count twice, so that {len(loader.dataset):,} fill batches of "
                f"{each:,} over all processes: prepare it by Accelerator(dataloader_config="
                "DataLoaderConfiguration(even_batches=False))."
            )
    sampler = getattr(batches, "sampler", sampler)
    if not isinstance(sampler, DistributedSampler) or sampler.drop_last:
        return loader
    own = len(range(sampler.rank, len(sampler.dataset), sampler.num_replicas))  # type: ignore[arg-type]
    return loader if own == len(sampler) else _first_rows(loader, own)


def _first_rows(batches: Iterable, left: int) -> Iterator[Any]:
    """The batches as far as this number of rows."""
    for batch in batches:
        size = len(_parts(batch)[0])
        if left > 0:
            yield batch if size <= left else tree_map(partial(_cut, rows=left), batch)
        left -= size


def _cut(leaf: Any, rows: int) -> Any:
    return leaf[:rows] if isinstance(leaf, Tensor) and leaf.ndim else leaf


def number_of_batches(data: Data, batch_size: int = BATCH_SIZE) -> int | None:
    """The number of batches that :func:`as_batches` will yield; None if it is unknown before the pass."""
    data = lazily(data, batch_size)
    if is_pair(data):
        return -(-count(data[0]) // batch_size)
    if isinstance(data, IterableDataset):
        return None
    if isinstance(data, Dataset):
        return -(-len(data) // batch_size)  # type: ignore[arg-type]
    try:
        return len(data)  # type: ignore[arg-type]
    except TypeError:  # a stream, or a loader of one
        return None


def shuffled(data: Data, batch_size: int, generator: torch.Generator | None = None) -> Iterable:
    """One pass in random order for :func:`as_batches`; a loader, a stream and an iterable keep their own order.

    Args:
        data: Data in any form that :func:`as_batches` takes.
        batch_size: Rows at a time where ``data`` is a pair of tensors or a plain ``Dataset``.
        generator: Generator of the order; torch's own by default.
    """
    if is_pair(data):
        inputs, targets = data
        order = torch.randperm(count(inputs), generator=generator).split(batch_size)
        if inputs is targets:  # an autoencoder: indexed once
            return ((part, part) for part in (targets[rows] for rows in order))
        return ((take(inputs, rows), targets[rows]) for rows in order)
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset):
        return DataLoader(data, batch_size=batch_size, shuffle=True, generator=generator)
    return data


def shuffles_unseeded(data: Data) -> bool:
    """True for a loader whose order is drawn from torch's own random numbers.

    >>> shuffles_unseeded(DataLoader([1, 2], shuffle=True)), shuffles_unseeded(DataLoader([1, 2]))
    (True, False)
    """
    if not isinstance(data, DataLoader) or isinstance(data.dataset, IterableDataset):
        return False
    sampler = getattr(data.batch_sampler, "sampler", data.sampler)
    if isinstance(sampler, RandomSampler | SubsetRandomSampler | WeightedRandomSampler):
        return sampler.generator is None
    return False


@dataclass(frozen=True)
class Numbering:
    """The numbers of the data of one process among those of all.

    Attributes:
        first: Number of the first one; None where how many there are is unknown before a pass: the number of a datum is
            then a hash of its row, which equal rows share.
        step: Distance to the next one.
    """

    first: int | None = 0
    step: int = 1

    def __call__(self, x: Inputs, y: Tensor, rows: Int[Tensor, " N"]) -> Int[Tensor, " N"]:
        """Numbers of some data.

        Args:
            x: Inputs.
            y: Targets.
            rows: Their numbers within this process.
        """
        return hashed_rows(x, y) if self.first is None else self.first + self.step * rows


def numbering(data: Data, each: Sequence[int | None], rank: int) -> Numbering:
    """The numbers of data: those of one process after another, or as a ``DistributedSampler`` deals them out.

    Args:
        data: The data of this process.
        each: Their number in each process, by :func:`number_of_rows`.
        rank: Number of this process.
    """
    known = [rows for rows in each if rows is not None]
    if len(known) < len(each):
        return Numbering(None)
    sampler = getattr(getattr(data, "batch_sampler", None), "sampler", None)
    if isinstance(sampler, DistributedSampler):
        return Numbering(sampler.rank, sampler.num_replicas)
    return Numbering(sum(known[:rank]))


def number_of_rows(data: Data) -> int | None:
    """The number of rows that :func:`as_batches` will yield; None if it is unknown before the pass.

    >>> number_of_rows((torch.zeros(5, 2), torch.zeros(5))), number_of_rows(iter([]))
    (5, None)
    """
    if is_pair(data):
        return len(data[1])
    if isinstance(data, RowStream):
        return data.num_rows
    if isinstance(data, list | tuple):
        return sum(len(parts[0]) for n in range(len(data)) if (parts := _parts(data[n])))
    if isinstance(data, DataLoader):
        if isinstance(data.dataset, IterableDataset) or data.batch_size is None or not isinstance(data.sampler, Sized):
            return None
        return len(data.sampler) // data.batch_size * data.batch_size if data.drop_last else len(data.sampler)
    if isinstance(data, Dataset) and not isinstance(data, IterableDataset) and isinstance(data, Sized):
        return len(data)
    return None


def hashed_rows(x: Inputs, y: Tensor) -> Int[Tensor, " N"]:
    """A number for each row of inputs and targets, equal for equal rows and in all likelihood for no others."""
    total, generator = torch.zeros(len(y), dtype=torch.long), torch.Generator().manual_seed(0)
    for tensor in (*tensors(x).values(), y):
        bits = tensor.detach().cpu().reshape(len(y), -1).contiguous()
        words = bits.view(INTEGERS[bits.element_size()]) if bits.is_floating_point() else bits
        factors = 2 * torch.randint(2**62, (words.shape[1],), generator=generator) + 1
        total += (words.long() * factors).sum(1)
        total = total * MIX + (total >> 29)
    return total


class Fixed:
    """Data in their own order: the same checked batches in every pass, if a loader repeats its own.

    Attributes:
        data: The data in their original form.
        num_data: N.
        num_batches: Number of batches in a pass.
    """

    def __init__(self, data: Data, batch_size: int) -> None:
        if isinstance(data, Iterator):
            raise TypeError(
                f"{type(data).__name__} can be read only once, and training reads the data once an epoch: "
                "pass a list of batches, a DataLoader or a pair of tensors (X, Y)."
            )
        self.data, self._batch_size = lazily(data, batch_size), batch_size
        if isinstance(self.data, RowStream):
            self.num_data, self.num_batches = self.data.num_rows, len(self.data)
        elif (
            isinstance(data, DataLoader)
            and not isinstance(data.dataset, IterableDataset)
            and isinstance(data.sampler, Sized)
            and data.batch_size is not None
            and len(data) > 0
        ):
            self.num_data, self.num_batches = len(data.sampler), len(data)
        else:  # counted in one pass
            lengths = [len(y) for _, y in self]
            self.num_data, self.num_batches = sum(lengths), len(lengths)

    def __len__(self) -> int:
        return self.num_batches

    def __iter__(self) -> Iterator[tuple[Inputs, Tensor]]:
        return as_batches(self.data, self._batch_size)


def fingerprint(data: Data) -> dict[str, str]:
    """Sizes and types of data, and a digest of a few rows; empty where data can only be read in order.

    Rows of a data set that differs from one look to the next, as with random augmentations, are left out.

    >>> fingerprint((torch.zeros(5, 2), torch.zeros(5)))["shape"]
    '(5, 2) float32, (5,) float32'
    """
    data = lazily(data, BATCH_SIZE)
    if isinstance(data, RowStream):
        few = data.rows(chosen_rows(data.num_rows))
        each = f": {_shapes(few[0])} each" if few else ""
        return {"shape": f"{data.num_rows} rows{each}", "rows": _row_digest(few)}
    if isinstance(data, DataLoader):
        data = data.dataset
    if is_pair(data):
        return {"shape": _shapes(data), "rows": rows_digest(*_parts(data))}
    if isinstance(data, list | tuple) and data:
        shapes = {_shapes(data[n]) for n in range(len(data))}
        rows = [[leaf.detach()[chosen_rows(len(leaf))] for leaf in _parts(data[n])] for n in chosen_rows(len(data))]
        return {"shape": f"{len(data)} batches: {'; '.join(sorted(shapes)[:3])}", "rows": _row_digest(rows)}
    if (
        not isinstance(data, Dataset)
        or isinstance(data, IterableDataset)
        or not isinstance(data, Sized)
        or not len(data)
    ):
        return {}
    looks = {_row_digest([data[number] for number in chosen_rows(len(data))]) for _ in range(2)}
    return {"shape": f"{len(data)} rows", **({"rows": looks.pop()} if len(looks) == 1 else {})}


def _parts(batch: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(batch) if isinstance(leaf, Tensor) and leaf.ndim]


def _shapes(batch: Any) -> str:
    return ", ".join(f"{tuple(each.shape)} {str(each.dtype).removeprefix('torch.')}" for each in _parts(batch))


def chosen_rows(size: int) -> list[int]:
    """A few rows of some data, spread over them."""
    return sorted({number * (size - 1) // 4 for number in range(5)}) if size else []


def rows_digest(*parts: Tensor) -> str:
    """A digest of a few rows of tensors."""
    return _row_digest([[part.detach()[chosen_rows(len(part))].cpu() for part in parts if part.ndim]])


def _row_digest(rows: list[Any]) -> str:
    total = sha256()
    for leaf in tree_leaves(rows):
        if isinstance(leaf, Tensor):
            leaf = leaf.detach().cpu().contiguous().reshape(-1)
            total.update(leaf.view(torch.uint8).numpy().tobytes() if leaf.numel() else b"")
        else:
            total.update(repr(leaf).encode())
    return total.hexdigest()[:16]


def is_pair(data: object) -> TypeGuard[tuple[Inputs, Tensor]]:
    """True if ``data`` is ``(X, Y)`` rather than an iterable of batches."""
    return isinstance(data, tuple | list) and len(data) == 2 and isinstance(data[1], Tensor) and bool(tensors(data[0]))


def _checked(batch: Any, number: int) -> tuple[Inputs, Tensor]:
    if isinstance(batch, Mapping) and "labels" in batch:
        batch = ({name: value for name, value in batch.items() if name != "labels"}, batch["labels"])
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        size = f" of length {len(batch)}" if isinstance(batch, tuple | list | dict) else ""
        raise TypeError(
            f"batch {number} is a {type(batch).__name__}{size}, not a pair (x, y). "
            "Let the loader yield inputs and targets, for example with TensorDataset(X, Y)."
        )
    x, y = batch
    inputs = tensors(x)
    if not inputs or not isinstance(y, Tensor):
        name, value = ("y", y) if inputs else ("x", x)
        raise TypeError(
            f"{name} of batch {number} is a {type(value).__name__}, not a tensor. Convert arrays with torch.from_numpy."
        )
    for name, tensor in inputs.items():
        if tensor.ndim == 0 or y.ndim == 0 or len(tensor) != len(y):
            raise ValueError(
                f"batch {number} has inputs {name + ' ' if name else ''}of shape {tuple(tensor.shape)} and targets of "
                f"shape {tuple(y.shape)}: both need the batch as their first axis, with the same length."
            )
    if len(y) == 0:
        raise ValueError(f"batch {number} is empty. Drop empty batches from the loader.")
    for name, tensor in inputs.items():
        require_finite(tensor, f"x{'.' + name if name else ''} of batch {number}")
    require_finite(y, f"y of batch {number}")
    return x, y


def require_inputs(x: Any) -> None:
    """Raise an error for inputs at which no network can be evaluated.

    Raises:
        TypeError: the inputs hold no tensor.
        ValueError: the inputs have no rows, or a value that is not finite.
    """
    found = tensors(x)
    if not found:
        raise TypeError(
            f"x must be a tensor of inputs (N, …), or a tuple or mapping of such, got {type(x).__name__}. "
            "Convert arrays with torch.as_tensor(x), and predict the batches of a loader one by one."
        )
    if count(x) == 0:
        raise ValueError("there is nothing to predict: x has no rows.")
    if any(torch._C._functorch.is_functorch_wrapped_tensor(tensor) for tensor in found.values()):
        raise ValueError(
            "the transforms of torch.func cannot pass through a prediction, which takes derivatives itself: use "
            "torch.autograd.grad, or torch.autograd.functional.jacobian, with inputs that require gradients."
        )
    for name, tensor in found.items():
        require_finite(tensor, f"x{'.' + name if name else ''}")


def require_finite(values: Tensor, what: str) -> None:
    """Raise ValueError naming the first row of ``values`` that is NaN or infinite.

    >>> require_finite(torch.tensor([0.0, float("nan")]), "x of batch 0")
    Traceback (most recent call last):
    ...
    ValueError: x of batch 0 holds nan at index (1,). Clean the data, or find the step that produced it.
    """
    # a finite sum has finite terms; the terms are checked only if the sum is not finite
    if not values.is_floating_point() or bool(values.sum().isfinite()) or bool(values.isfinite().all()):
        return
    where = tuple(int(i) for i in (~values.isfinite()).nonzero()[0])
    raise ValueError(
        f"{what} holds {values[where].item()} at index {where}. Clean the data, or find the step that produced it."
    )
