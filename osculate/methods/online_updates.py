"""How networks are drawn in online Laplace training, and how the curvature follows."""

from dataclasses import dataclass

from osculate.checks import require_whole
from osculate.registry import choose

#: Where a batch's curvature can be taken, and what it can be made from.
PLACES, SOURCES = ("sample", "mean"), ("ggn", "gradient")


@dataclass(frozen=True)
class OnlineUpdates:
    """How networks are drawn, and how the curvature follows.

    Args:
        every: steps from one curvature of a batch to the next.
        memory: what one of them leaves of the average before it, 1 − α of eq. 10 [miani2022].
        at: the weights at which it is taken: "sample" (those of a drawn network) or "mean".
        source: "ggn" (of the structure, by a pass of its own), or "gradient" (of the sampled gradient, without one:
            ĥ = (θ_s − μ) ∇ / σ², as in IVON; for a diagonal; too large where gradients are) [shen2024].
        samples: networks drawn in each step.
        antithetic: whether they come in pairs θ = μ ± ε.
        recompute: whether the curvature of the result is that of all data at the final mean, in place of the average.

    Raises:
        ValueError: a number out of its range, or an unknown name.
    """

    every: int = 1
    memory: float = 0.999
    at: str = "sample"
    source: str = "ggn"
    samples: int = 1
    antithetic: bool = False
    recompute: bool = True

    def __post_init__(self) -> None:
        choose("place of the curvature", self.at, PLACES)
        choose("source of the curvature", self.source, SOURCES)
        if not 0 <= self.memory < 1:
            raise ValueError(f"memory must be at least 0 and below 1, got {self.memory}.")
        for name in ("every", "samples"):
            require_whole(name, getattr(self, name))
        if self.antithetic and self.samples % 2:
            raise ValueError(f"antithetic samples come in pairs, got samples={self.samples}.")
        if self.source == "gradient" and self.samples > 1:
            raise ValueError(f"source='gradient' takes the gradient of one network, got samples={self.samples}.")


ALWAYS = OnlineUpdates()
