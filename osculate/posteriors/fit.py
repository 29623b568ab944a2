"""The result of one pass over the data at a mode."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from osculate.batches import Numbering, require_finite
from osculate.curvature.columns import Hessian, Kind
from osculate.curvature.engine import Observation
from osculate.curvature.kept import kept_plan
from osculate.curvature.plan import Plan
from osculate.curvature.trace import pass_alone
from osculate.distributed import ALONE, Group, same_data
from osculate.inputs import Inputs, apply, count, moved, take
from osculate.likelihoods import Likelihood
from osculate.memory import TEMPORARY, budget, free
from osculate.parameters import Network
from osculate.posteriors.resumable import Sums, numbered
from osculate.randomness import fresh_seed, keyed
from osculate.settings import differences, first_difference
from osculate.structures import Curvature, Structure
from osculate.structures.blocks.hessian import for_hessian, without_negative_curvature

#: Smallest number of data at a time for which the layers of a network are fast.
AT_ONCE = 16
#: Rows of the first batch that a posterior keeps, to compare a sampled predictive with the mode.
ROWS = 64


@dataclass(frozen=True, eq=False)
class Fit:
    """The result of one pass over the data at the mode; fits of several data sets add.

    Attributes:
        curvature: G, taken with ``likelihood``.
        likelihood: Likelihood at the time of the pass.
        statistics: Sums from which the log likelihood follows.
        num_data: N.
        plan: The blocks of the network.
        network: The network at the mode.
        kind: The kind of curvature, by name.
    """

    curvature: Curvature
    likelihood: Likelihood
    statistics: Mapping[str, Tensor]
    num_data: int
    plan: Plan
    network: Network
    kind: str = "ggn"

    def __add__(self, other: "Fit") -> "Fit":
        r"""The pass over both data sets: G_1 + G_2, and the sums of the statistics.

        Both must be sums of the same terms: at one mode, with one likelihood, one kind of curvature, and one structure
        with the same settings and blocks. The sum is then the result of one pass over all data.

        Args:
            other: The pass over other data, disjoint from these.

        Raises:
            ValueError: one of these differs (the message names it), or the full Hessian in a structure that sets its
                negative directions to zero: that is done separately for each sum over data.
            TypeError: a structure that reads the data more than once.

        Cost: one comparison of the parameters, and the sum of the states.
        """
        if not isinstance(other, Fit):
            return NotImplemented
        self._require_same_terms(other)
        statistics = {name: value + other.statistics[name] for name, value in self.statistics.items()}
        return replace(
            self,
            curvature=self.curvature + other.curvature,
            statistics=statistics,
            num_data=self.num_data + other.num_data,
        )

    def _require_same_terms(self, other: "Fit") -> None:
        mine, theirs = self.plan.blocks, other.plan.blocks
        elsewhere = None  # the first parameter or buffer with other values
        if self.network is not other.network:
            elsewhere = first_difference(self.network.module.state_dict(), other.network.module.state_dict())
        kinds = f"{self.kind!r} against {other.kind!r}" if self.kind != other.kind else ""
        blocks = f"{len(mine)} against {len(theirs)} blocks" if len(mine) != len(theirs) else ""
        for what, difference in (
            ("likelihood", differences(self.likelihood, other.likelihood)),
            ("kind of curvature", kinds),
            ("structure", differences(self.curvature.structure, other.curvature.structure)),
            ("mode", f"{elsewhere!r} has other values" if elsewhere else ""),
            ("blocks of parameters", blocks or next(filter(None, map(differences, mine, theirs)), "")),
        ):
            if difference:
                raise ValueError(
                    f"two fits add only with the same network and settings, and these differ in their {what}: "
                    f"{difference}. Fit both data sets with one network and the same settings, or all data at once."
                )
        if self.kind == Hessian.name and self.curvature.structure.entrywise:
            raise ValueError(
                f"fits of the Hessian with structure={self.curvature.structure.name!r} do not add: negative directions "
                "were set to zero in each fit, and the sum has different ones. Fit all data at once, or use "
                "curvature='ggn' or structure='matrix_free'."
            )


def observe(
    network: Network, likelihood: Likelihood, kind: Kind, batch: tuple[Inputs, Tensor], memory: str | int | None
) -> Observation:
    """The first batch, with the plan of the network that follows from it."""
    x, y = moved(batch[0], network.device), batch[1].to(network.device)
    try:
        alone = pass_alone(network, x)
        f = alone.f.detach().expand(count(x), *alone.f.shape[1:])
        likelihood.check(f, y)
        check_density(likelihood, f[:ROWS], y[:ROWS])
    except (TypeError, ValueError):
        with torch.no_grad():
            network(first_rows(x, y)[0])  # an error about its outputs names the shapes for the user's batch
        raise
    plan = kept_plan(network, x, alone)
    wanted = AT_ONCE * plan.bytes_each(kind.expected(plan.outputs), network.state_dtype.itemsize)
    return Observation(network, plan, likelihood, kind, (x, y), budget(memory, network.device, wanted))


def check_density(likelihood: Likelihood, f: Tensor, y: Tensor) -> None:
    """Raise ValueError unless the likelihood returns one log density for each datum.

    Raises:
        ValueError: ``log_prob`` returns another shape.
    """
    shape = tuple(likelihood.log_prob(f, y).shape)
    if shape != (len(f),):
        raise ValueError(
            f"{type(likelihood).__name__}.log_prob must return one number for each datum, of shape ({len(f)},), got "
            f"{shape}: sum over outputs and positions, and not over data."
        )


def require_room(start: Observation, structure: Structure, memory: str | int | None) -> None:
    """Raise ValueError if the memory does not hold one datum with one column."""
    plan, network = start.plan.for_structure(structure.by_factors), start.network
    share = 1.0 if memory is None else TEMPORARY
    plan.require_room(
        free(network.device) if memory is None else start.memory / share, network.state_dtype.itemsize, share
    )


def fitted(
    start: Observation,
    structure: Structure,
    passes: Iterable[Iterable[tuple[Inputs, Tensor]]],
    sums: Sums | None = None,
    group: Group = ALONE,
    numbers: Numbering | None = None,
) -> Fit:
    """The curvature and the likelihood's statistics, summed over all batches.

    Args:
        start: The first batch.
        structure: The structure.
        passes: The batches of each pass.
        sums: Part of a checkpoint for the sums, by which an interrupted fit goes on; None for none.
        group: Processes that share the data: each passes over its own, and the sums are those of all.
        numbers: The numbers of the data, by which random columns are drawn; by default 0, 1, 2, ….

    Raises:
        ConnectionError: another process has failed, or does not take part.
    """
    network, likelihood = start.network, start.likelihood
    curvature = structure.zero(start.plan.specs, network.space, network.state_dtype, network.device)
    if isinstance(start.kind, Hessian):
        curvature = replace(curvature, blocks=for_hessian(curvature.blocks))
    statistics: dict[str, Tensor] = {}
    size = 0
    if sums is not None:
        curvature, size = sums.restored(curvature, statistics)
    seed = _seed(start.kind, sums, group)
    for number, batches in enumerate(passes):
        joins = not group.alone and (sums is None or number >= sums.finished)
        with group.together() as meeting:
            for batch, (x, y), rows in numbered(batches) if sums is None else sums.left(number, batches):
                kind = start.kind
                if seed is not None:
                    kind = kind.keyed(keyed(seed, (numbers or Numbering())(x, y, rows)))
                x, y = moved(x, network.device), y.to(network.device)
                f = structure.add(curvature, replace(start, batch=(x, y), kind=kind, number=batch), number)
                if number == 0:
                    for name, value in likelihood.statistics(f, y).items():
                        statistics[name] = statistics.get(name, torch.zeros_like(value)) + value
                    size += len(y)
                if sums is not None:
                    sums.keep(curvature, statistics, size)
            if joins and number == 0:
                own = {name: value.detach().cpu() for name, value in statistics.items()}
                meeting.said = own, size, curvature.said(start)
        if joins:
            if number == 0:
                statistics, size = _joined(meeting.heard, network.device)
            curvature.join(group, number, [said[2] for said in meeting.heard if said], start)
        if sums is None or number >= sums.finished:
            curvature.finish()
            if sums is not None:
                sums.finished = number + 1
                sums.keep(curvature, statistics, size, piece=False)
        if number + 1 < structure.passes:
            curvature.share(group)
    if isinstance(start.kind, Hessian):
        curvature = replace(curvature, blocks=without_negative_curvature(curvature.blocks))
    for name, tensor in curvature.tensors().items():
        require_finite(tensor, f"the curvature ({name})")
    return Fit(curvature, likelihood, statistics, size, start.plan, network, start.kind.name)


def _seed(kind: Kind, sums: Sums | None, group: Group) -> int | None:
    """The seed of random columns, one for all processes: that of the sums, or a new one; None for none."""
    if not kind.random:
        return None
    drawn = fresh_seed(kind.generator)  # type: ignore[attr-defined]
    if sums is not None and sums.seed is not None:
        drawn = sums.seed
    seed = group.gather(drawn)[0]
    if sums is not None:
        sums.seed = seed
    return seed


def _joined(
    each: Iterable[tuple[Mapping[str, Tensor], int, Any]], device: torch.device
) -> tuple[dict[str, Tensor], int]:
    """The sums of statistics and data over all processes.

    Args:
        each: Sums of each process, and the messages of its blocks.
        device: Device of the result.

    Raises:
        ValueError: all processes have the same data.
    """
    (first, n), *others = [(own, size) for own, size, _ in each if size]
    if others and all(m == n and all(map(torch.equal, first.values(), own.values())) for own, m in others):
        raise same_data(n, len(others) + 1)
    total = {name: sum((own[name] for own, _ in others), value) for name, value in first.items()}
    return {name: value.to(device) for name, value in total.items()}, n + sum(m for _, m in others)


def first_rows(x: Inputs, y: Tensor) -> tuple[Inputs, Tensor]:
    """A copy of the first rows of a batch, so that the rest of the batch can be freed."""
    return apply(torch.clone, take(x, slice(ROWS))), y[:ROWS].clone()
