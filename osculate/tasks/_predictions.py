"""Predictives of a data set, batch by batch."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from osculate.batches import Data, as_batches, number_of_batches
from osculate.posteriors import as_posterior
from osculate.predictive.predict import predict
from osculate.progress import track
from osculate.randomness import fresh_seed
from osculate.streams import lazily


def in_closed_form(compute: Callable[..., Tensor], *arguments: Tensor) -> Tensor | None:
    """A property of a distribution, or None if torch has no formula for it."""
    try:
        return compute(*arguments)
    except NotImplementedError:
        return None


def predictions(
    q: Any, data: Data, batch_size: int, progress: bool, title: str, options: dict[str, Any]
) -> Iterator[tuple[Distribution, Tensor, Tensor]]:
    """Yield (predictive, x, y), optionally with a progress bar."""
    if batch_size < 1:
        raise ValueError(f"batch_size must be at least 1, got {batch_size}.")
    data = lazily(data, batch_size, as_posterior(q).network.dtype)
    batches: Any = as_batches(data, batch_size)
    state: Tensor | None = None
    if (options.get("via") or as_posterior(q).ways[0]) == "sampled":
        generator = options.get("generator") or torch.Generator().manual_seed(fresh_seed())
        options, state = {**options, "generator": generator}, generator.get_state()
    for x, y in track(batches, title, number_of_batches(data, batch_size), progress):
        if state is not None:
            options["generator"].set_state(state)  # the same weights for all batches
        with torch.no_grad():
            yield predict(q, x, **options), x, y
