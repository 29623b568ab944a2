"""Scores of out-of-distribution inputs: functions of a view of a batch, and views of data."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.registry import lookup

#: A score (N,) of the inputs that a view shows; the higher, the more likely out of distribution.
Score = Callable[[Any], Float[Tensor, " N"]]


class Views(ABC):
    """The view that one kind of model has of data, batch by batch, and the scores of that view.

    Attributes:
        known: scores by name.
    """

    known: ClassVar[Mapping[str, Score]]

    @abstractmethod
    def of(self, x: Tensor, title: str) -> Iterator[Any]:
        """One view a batch."""

    @abstractmethod
    def fitting(self, inside: Tensor) -> dict[str, bool]:
        """True for each score that varies between inputs with this model; these are the default scores."""

    def scores(self, wanted: Sequence[str] | None, inside: Tensor) -> dict[str, Score]:
        """The scores that are wanted, or all that fit.

        Raises:
            ValueError: an unknown score.
        """
        if wanted is None:
            wanted = [name for name, fits in self.fitting(inside).items() if fits]
        return {name: lookup("score", name, self.known) for name in wanted}

    def scored(self, x: Tensor, scores: Mapping[str, Score], title: str) -> dict[str, Float[Tensor, " N"]]:
        """Every score of every input, on the CPU."""
        pieces: dict[str, list[Tensor]] = {name: [] for name in scores}
        for view in self.of(x, title):
            for name, score in scores.items():
                pieces[name].append(score(view).cpu())
        return {name: torch.cat(values) for name, values in pieces.items()}


def mean_pixel(view: Any) -> Float[Tensor, " N"]:
    """Mean of the input itself: the baseline of any score on images."""
    return view.x.flatten(1).double().mean(1)
