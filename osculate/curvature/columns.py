"""Which columns are pulled back: the kind of curvature."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from osculate.likelihoods import Likelihood


class Kind(ABC):
    """A curvature matrix as Σ_n Σ_v (J_nᵀ s_nv)(J_nᵀ s_nv)ᵀ for columns s_nv in output space."""

    name: ClassVar[str]

    @abstractmethod
    def count(self, outputs: int) -> int:
        """V, the number of columns for this number of outputs (an upper bound)."""

    @abstractmethod
    def columns(self, likelihood: Likelihood, f: Tensor, y: Tensor) -> Tensor:
        """The columns (V, N, *C) for outputs f (N, *C) and targets y."""


@dataclass(frozen=True)
class GGN(Kind):
    r"""The exact generalised Gauss–Newton matrix G = Σ_n J_nᵀ Λ_n J_n: as many columns as Λ has rank."""

    name: ClassVar[str] = "ggn"

    def count(self, outputs: int) -> int:
        """One for each output."""
        return outputs

    def columns(self, likelihood: Likelihood, f: Tensor, y: Tensor) -> Tensor:
        """The columns of a root of Λ."""
        return likelihood.root(f, y)


@dataclass(frozen=True)
class Fisher(Kind):
    r"""The Fisher information estimated with labels drawn from the model; its expectation is the GGN.

    Args:
        samples: labels drawn for each datum.
        generator: for the draws.

    Raises:
        ValueError: ``samples`` is not positive.
    """

    name: ClassVar[str] = "fisher"
    samples: int = 1
    generator: torch.Generator | None = None

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise ValueError(f"the Fisher needs at least one sampled label, got samples={self.samples}.")

    def count(self, outputs: int) -> int:
        """One for each sampled label."""
        return self.samples

    def columns(self, likelihood: Likelihood, f: Tensor, y: Tensor) -> Tensor:
        """Scores of sampled labels."""
        return likelihood.sampled_root(f, y, self.samples, self.generator)


#: The kinds by name, as they are typed.
REGISTRY: dict[str, Callable[[], Kind]] = {"ggn": GGN, "fisher": Fisher}
