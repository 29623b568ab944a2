"""The diagonal by the squared chain rule: one backward pass, whatever the size of the outputs."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.columns import GGN
from osculate.curvature.engine import Observation
from osculate.curvature.squared import squared_diagonal
from osculate.memory import even_parts
from osculate.structures._base import Curvature
from osculate.structures.blocks import DiagonalBlock
from osculate.structures.diag import Diag

#: Units of a pass whose operations have squared derivatives beside their own, as measured for convolutional networks.
SQUARED = 1.6


@dataclass(frozen=True)
class ApproxDiag(Diag):
    r"""The approximate diagonal of G by the squared chain rule, see ``curvature/squared.py``. [miani2022]

    .. math:: m_f = \operatorname{diag}(\Lambda_n), \qquad m_x = (J \circ J)^\top m_y
              \quad \text{for every operation } y = \phi(x)

    Cross terms between the entries of an activation, and between paths, are dropped. The result is exact for the last
    layer; elsewhere the relative error in norm depends on the network: 3 to 35 % on plain chains of layers, and more
    than 100 % where many paths meet (attention, shared towers). An operation without a rule keeps its exact local
    Jacobian, at one vector-Jacobian product for each of its outputs, with a warning; a random, in-place or complex
    operation without a rule is an error.

    Cost: about one training step a batch, in time and memory, for outputs of any size and any curvature that has
    columns; "ggn" needs no columns at all.

    >>> net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Tanh(), nn.Conv2d(4, 1, 3, padding=1))
    >>> X = torch.randn(5, 1, 8, 8)
    >>> q = osc.laplace(net, osc.likelihoods.Gaussian(0.1), (X, X), structure="approx_diag", prior=1.0)
    >>> q.variance().shape
    torch.Size([77])
    """

    name: ClassVar[str] = "approx_diag"
    by_squares: ClassVar[bool] = True
    by_products: ClassVar[bool] = True

    def units(self, columns: int) -> float:
        """One pass, whose operations also have squared derivatives."""
        return SQUARED

    def diagonal(self, observation: Observation) -> Float[Tensor, " P"]:
        """One forward and one backward pass for each part of the batch that fits into the memory."""
        return sum_of_squares(observation)[1]

    def add(self, curvature: Curvature, observation: Observation, pass_index: int = 0) -> Tensor:
        """One forward and one backward pass for each part of the batch that fits into the memory."""
        f, diagonal = sum_of_squares(observation)
        for block in curvature.blocks:
            assert isinstance(block, DiagonalBlock)
            block.values.add_(diagonal[block.positions])
        return f


def sum_of_squares(observation: Observation) -> tuple[Float[Tensor, "N *C"], Float[Tensor, " P"]]:
    """The outputs of a batch and its approximate diagonal."""
    outputs, total = [], torch.zeros(())
    for part in parts(observation):
        f, diagonal = squared_diagonal(part.network, part.x, partial(output_diagonal, part))
        outputs.append(f)
        total = total.to(diagonal) + diagonal
    return torch.cat(outputs), total


def parts(observation: Observation) -> Iterator[Observation]:
    """Chunks of the batch whose activations fit into the memory."""
    plan = replace(
        observation.plan, floats=observation.plan.factored, inputs=observation.plan.factored
    )  # neither rows nor windows
    step = plan.data_at_once(2, observation.memory, observation.network.state_dtype.itemsize)
    for part in even_parts(len(observation.y), step):
        yield observation.part(part)


def output_diagonal(observation: Observation, f: Float[Tensor, "N *C"]) -> Float[Tensor, "N *C"]:
    """diag(Λ_n) for each datum; Σ_v s_v² for a kind of curvature with other columns."""
    y, likelihood, memory = observation.y, observation.likelihood, observation.memory
    observation.check(f, y)
    if not isinstance(observation.kind, GGN):
        columns, total = observation.columns(f), torch.zeros_like(f)
        step = max(1, memory // (f.itemsize * f.numel()))
        for start in range(0, columns.count, step):
            total += columns.part(start, min(columns.count, start + step)).square().sum(0)
        return total
    # a likelihood without a closed form builds its blocks: as many data at a time as fit into the memory
    rows = max(1, memory // (f.itemsize * f[0].numel() * likelihood.events(f)))
    parts = [likelihood.local_diagonal(*part) for part in zip(f.split(rows), y.split(rows), strict=True)]
    return likelihood.merge(torch.cat(parts), f.shape)
