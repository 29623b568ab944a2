"""The evidence lower bound of the linear model: a likelihood averaged over Gaussian function values."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from osculate.batches import Data, number_of_rows, numbering
from osculate.curvature.columns import GGN, Kind
from osculate.curvature.engine import Observation
from osculate.curvature.products import activations
from osculate.evidence.elbo import divergence
from osculate.evidence.linear import data_of, require_all, rows_for_shapes, summed_statistics
from osculate.inputs import Inputs, concatenate, moved, take, tensors
from osculate.likelihoods import Likelihood
from osculate.likelihoods.quadrature import normal_nodes, normal_points
from osculate.linalg import root
from osculate.memory import budget, free, readable
from osculate.posteriors import Gaussian, as_gaussian
from osculate.posteriors.fit import fitted
from osculate.posteriors.linearised import deviations, interacting_outputs, mean_function, moments
from osculate.posteriors.resumable import Checkpoint, Part, Sums, chained
from osculate.randomness import normal
from osculate.structures import Curvature

#: Nodes of an expectation over several outputs; even, since they come in pairs ±z.
NODES = 32
#: Numbers at most that are computed at several nodes together.
TOGETHER = 2**20
#: Outputs that interact, up to which their covariances and averaged Hessians are exact; above, draws stand for both.
EXACT = 32
#: The exact curvature where a fit has passed over as many columns already.
UNASKED = GGN(limit=sys.maxsize)
#: Draws of the function, and of labels for each datum, in place of exact ones.
DRAWS = 16
#: Bytes of the derivatives of all outputs that are computed together; more of them leave the caches.
CHUNK = 2**26
#: Relative difference of the log likelihood of the same data, summed in another order.
SAME = 1e-4
#: Tensors of the function values of some data, by name.
VALUES = ("outputs", "spread", "mean")
#: Data on which a change of the covariance is judged, and standard errors beyond which their verdict is that of all.
JUDGING, ERRORS = 256, 3.0


@torch.no_grad()
def linear_elbo(q: Any, data: Data | None = None) -> Float[Tensor, ""]:
    """The evidence lower bound L(m, S) of the linear model around a network, in nats (see :func:`osculate.refine`).

    Args:
        q: A Gaussian posterior, refined or not.
        data: The data that it was fitted to; only needed for a posterior from a file, or one fitted to an iterator.

    Cost: a pass for the variances of the function values.
    """
    gaussian = as_gaussian(q, "linear_elbo")
    state = PosteriorAtData.of(gaussian, Held.of(gaussian, data))
    require_same_data(gaussian, state.smoothed.outputs, state.held.targets)
    return state.bound


@dataclass(frozen=True, eq=False)
class Smoothed(Likelihood):
    r"""log p̄(n|f) = E[log p(y_n | f + u_n + ε_n)], ε_n ~ N(0, V_n), for data that are known by their numbers n.

    As a function of f it is concave where log p is, and its Hessian is that of the likelihood, averaged. The
    expectation is taken at fixed nodes: with one output a position those of Gauss–Hermite quadrature, with several
    quasi-random ones.

    Attributes:
        likelihood: p(y|f).
        targets: Targets y of all N data.
        outputs: Outputs f of the network for all data.
        spread: R_n with R_n R_nᵀ = V_n at each position.
        shift: u_n, the distance from the network to the mean of the function.
    """

    likelihood: Likelihood
    targets: Tensor
    outputs: Float[Tensor, "N *C"]
    spread: Float[Tensor, "N T E K"]
    shift: Float[Tensor, "N *C"]

    def __post_init__(self) -> None:
        object.__setattr__(self, "interacts", self.likelihood.interacts)
        object.__setattr__(self, "class_axis", self.likelihood.class_axis)

    def _average(self, function: Callable[[Tensor, Tensor], Tensor], f: Tensor, rows: Tensor) -> Tensor:
        """E[function(f + u + ε, y)]."""
        y, mean, spread = self.targets[rows], f + self.shift[rows].to(f), self.spread[rows].to(f)
        points, weights = (tensor.to(f) for tensor in nodes(spread.shape[-1]))
        each = max(1, TOGETHER // max(1, spread.numel()))
        total = torch.zeros((), dtype=f.dtype, device=f.device)
        for z, weight in zip(points.split(each), weights.split(each), strict=True):
            drawn = mean + self.likelihood.merge((spread @ z.mT).movedim(-1, 0), f.shape)
            values = function(drawn.flatten(0, 1), y.expand(len(z), *y.shape).flatten(0, 1))
            total = total + torch.tensordot(weight, values.unflatten(0, (len(z), -1)), 1)
        return total

    def log_prob(self, f: Float[Tensor, "N *C"], y: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        return self._average(self.likelihood.log_prob, f, y)

    def score(self, f: Float[Tensor, "N *C"], y: Int[Tensor, " N"]) -> Float[Tensor, "N *C"]:
        return self._average(self.likelihood.score, f, y)

    def local_hessian(self, f: Float[Tensor, "N *C"], y: Int[Tensor, " N"]) -> Float[Tensor, "N T E E"]:
        return self._average(self.likelihood.local_hessian, f, y)

    def local_root(self, f: Float[Tensor, "N *C"], y: Int[Tensor, " N"]) -> Float[Tensor, "V N T E"]:
        root = super().local_root(f, y)
        size = root.abs().amax((1, 2, 3))
        return root[size >= torch.finfo(root.dtype).eps ** 0.5 * size.max()].contiguous()  # classes have a null vector

    def sampled_root(
        self, f: Float[Tensor, "N *C"], y: Int[Tensor, " N"], samples: int, generator: torch.Generator | None = None
    ) -> Float[Tensor, "V N *C"]:
        """Columns of the likelihood's own sampled roots, each at function values that are drawn anew."""
        targets, mean, spread = self.targets[y], f + self.shift[y].to(f), self.spread[y].to(f)
        columns = []
        for _ in range(samples):
            white = normal((*spread.shape[:2], spread.shape[-1], 1), f, generator)
            drawn = mean + self.likelihood.merge((spread @ white).squeeze(-1), f.shape)
            columns.append(self.likelihood.sampled_root(drawn, targets, 1, generator))
        return torch.cat(columns) / samples**0.5

    def check(self, f: Float[Tensor, "N *C"], y: Int[Tensor, " N"]) -> None:
        known = self.outputs[y].to(f)
        if f.shape != known.shape or not torch.allclose(f, known, rtol=1e-2, atol=1e-2 * float(known.abs().max())):
            raise ValueError(
                "the network's outputs are not those of the pass before: the data come in another order or change from "
                "pass to pass (a shuffling loader, random augmentation). Pass them in a fixed order, as they are."
            )

    def counted(self, y: Int[Tensor, " N"]) -> Bool[Tensor, "..."] | None:
        return self.likelihood.counted(self.targets[y])

    def curvature_scale(self, reference: Likelihood) -> Float[Tensor, ""] | float:
        return self.likelihood.curvature_scale(reference)

    def events(self, f: Tensor) -> int:
        return self.likelihood.events(f)

    def split(self, f: Tensor, leading: int = 0) -> Tensor:
        return self.likelihood.split(f, leading)

    def merge(self, t: Tensor, shape: Sequence[int]) -> Tensor:
        return self.likelihood.merge(t, shape)


@lru_cache(maxsize=16)
def nodes(size: int) -> tuple[Float[Tensor, "S K"], Float[Tensor, " S"]]:
    """Nodes of a standard normal in K dimensions, and their weights."""
    if size == 1:
        points, logs = normal_nodes()
        return points.unsqueeze(-1), logs.exp()
    half = normal_points(NODES // 2, size)
    return torch.cat([half, -half]), torch.full((NODES,), 1 / NODES, dtype=torch.double)


@dataclass(frozen=True, eq=False)
class Held:
    """The data of a posterior, held so that every pass reads the same ones in the same order.

    Attributes:
        batches: Inputs and targets.
        targets: All targets, one after another.
        indexed: Inputs of each batch with the indices of its data.
    """

    batches: list[tuple[Inputs, Tensor]]
    targets: Tensor
    indexed: list[tuple[Inputs, Tensor]]

    @classmethod
    def of(cls, q: Gaussian, data: Data | None) -> "Held":
        """The data that a posterior was fitted to.

        Raises:
            ValueError: there are none, or more or fewer than those of the fit, of different shapes, or too many for
                the memory.
        """
        batches: list[tuple[Inputs, Tensor]] = []
        with q.processes.together():
            for x, y in data_of(q, data):
                if not batches:
                    require_memory(q, x, y)
                batches.append((moved(x, q.network.device), y.to(q.network.device)))
        require_all(sum(len(y) for _, y in batches), q)
        if not batches:  # in a process without data
            return cls([], rows_for_shapes(q)[1][:0], [])
        shapes = sorted({tuple(y.shape[1:]) for _, y in batches})
        if len(shapes) > 1:
            raise ValueError(
                f"the targets of some batches have the shape {shapes[0]}, those of others {shapes[1]}, and the "
                "refinement holds all of them together: pad them to one length, or fit with refine=False."
            )
        batches = list(joined(batches, _rows(q, batches[0][0])))
        targets = torch.cat([y for _, y in batches])
        rows = torch.arange(len(targets), device=targets.device).split([len(y) for _, y in batches])
        return cls(batches, targets, [(x, n) for (x, _), n in zip(batches, rows, strict=True)])

    def known_to(self, q: Gaussian) -> Gaussian:
        """The posterior with these data, if it has none: what a structure keeps besides a matrix is not the data."""
        return q.replace(data=self.batches) if q.data is None else q

    def digest(self) -> str:
        """A digest of all data."""
        digest = ""
        for batch in self.batches:
            digest = chained(digest, batch)
        return digest

    def part(self, rows: Int[Tensor, " n"]) -> "Held":
        """The data at these indices, which grow."""
        chosen = [rows[(rows >= n[0]) & (rows <= n[-1])] - n[0] for _, n in self.indexed]
        batches = [(take(x, n), y[n]) for (x, y), n in zip(self.batches, chosen, strict=True) if len(n)]
        if not batches:
            return Held([], self.targets[:0], [])
        batches = list(joined(batches, max(len(n) for _, n in self.indexed)))
        ends = torch.arange(len(rows), device=rows.device).split([len(y) for _, y in batches])
        return Held(batches, self.targets[rows], [(x, n) for (x, _), n in zip(batches, ends, strict=True)])


def _rows(q: Gaussian, x: Inputs) -> int:
    """Number of data that are best passed through the network together."""
    return CHUNK // max(1, activations(q.network, x) * q.fit.plan.outputs)


def joined(batches: Sequence[tuple[Inputs, Tensor]], size: int) -> Iterator[tuple[Inputs, Tensor]]:
    """Consecutive batches of equal shapes as one, of this number of data at most."""
    shapes = [[tuple(t.shape[1:]) for t in (*tensors(x).values(), y)] for x, y in batches]
    group: list[int] = []
    for n, (_, y) in enumerate(batches):
        if group and (shapes[n] != shapes[group[0]] or sum(len(batches[k][1]) for k in group) + len(y) > size):
            yield _joined([batches[k] for k in group])
            group = []
        group.append(n)
    if group:
        yield _joined([batches[k] for k in group])


def _joined(parts: list[tuple[Inputs, Tensor]]) -> tuple[Inputs, Tensor]:
    return parts[0] if len(parts) == 1 else (concatenate([x for x, _ in parts]), torch.cat([y for _, y in parts]))


def require_memory(q: Gaussian, x: Inputs, y: Tensor, limit: int | None = None) -> None:
    """Refuse data that do not fit into the memory.

    Args:
        q: The posterior, which knows the number of data.
        x: Inputs of some of the data.
        y: Their targets.
        limit: Bytes that they may take, if that is less than half of the free memory.

    Raises:
        ValueError: all data with their function variances take more.
    """
    each = sum(tensor.numel() * tensor.element_size() for tensor in (*tensors(x).values(), y)) / max(1, len(y))
    count = q.fit.plan.outputs
    with torch.no_grad():
        events = q.likelihood.events(q.network(moved(take(x, slice(1)), q.network.device)))
    roots = 0 if q.likelihood.quadratic else count * (events if events <= EXACT else DRAWS)
    needed, available = q.num_data * (each + roots * q.mean.itemsize), free(q.network.device) / 2
    held = (
        f"refinement holds the data with the variances of their function values: {readable(needed)} for "
        f"{q.num_data:,} data"
    )
    if needed > available:
        raise ValueError(
            f"{held}, and half of the free memory is {readable(available)}. Take the posterior unrefined "
            "(refine=False), or fit a subset of the data."
        )
    if limit is not None and needed > limit:
        raise ValueError(
            f"{held}, which are read from files. Pass refine=True to hold them, or refine=False for the posterior "
            "as it is."
        )


@dataclass(frozen=True)
class Refinement:
    """The way from a Laplace approximation to a refined posterior.

    Attributes:
        again: Function that refines another one in the same way.
        temperature: Temperature before.
    """

    again: Callable[[Gaussian], Gaussian]
    temperature: float | Tensor


def unrefined(q: Gaussian, data: Data | None) -> Gaussian:
    """The Laplace approximation that a refined posterior started from, with its present prior and noise.

    Args:
        q: The refined posterior.
        data: The data that it was fitted to; those of the fit by default.

    Raises:
        ValueError: the posterior is from a file, or its curvature was not exact.

    Cost: a pass for the curvature, none for a quadratic likelihood.
    """
    if q.refinement is None or q.fit.kind != GGN.name:
        raise ValueError(
            "the posterior is refined, and its mean and curvature belong to its prior: maximise the evidence of the "
            "posterior of osc.laplace(…, refine=False), and then use osc.refine."
        )
    fit = q.fit
    if not q.likelihood.quadratic:
        fit = replace(fit, curvature=curvature_of(q, q.likelihood, UNASKED, Held.of(q, data).batches))
        fit.curvature.share(q.processes)
    return q.replace(fit=fit, offset=None, temperature=q.refinement.temperature)


def curvature_of(
    q: Gaussian,
    likelihood: Likelihood,
    kind: Kind,
    batches: Sequence[tuple[Inputs, Tensor]],
    sums: Sums | None = None,
) -> Curvature:
    """The curvature of a likelihood at the network of a posterior, in its structure."""
    some = batches[0] if batches else rows_for_shapes(q)
    first = Observation(q.network, q.fit.plan, likelihood, kind, some, budget(q.memory, q.network.device))
    structure = q.structure.structure
    passes = (iter(batches) for _ in range(structure.passes))
    processes, numbers = q.processes, None
    if kind.random:
        numbers = numbering(batches, processes.gather(number_of_rows(batches)), processes.rank)
    return fitted(first, structure, passes, sums, processes, numbers).curvature


@dataclass(frozen=True, eq=False)
class PosteriorAtData:
    """A posterior, and the distribution of the function values at its data.

    Attributes:
        q: The posterior.
        held: The data.
        smoothed: The likelihood of the data, averaged over the posterior's function values.
    """

    q: Gaussian
    held: Held
    smoothed: Smoothed

    @classmethod
    def of(cls, q: Gaussian, held: Held, file: Checkpoint | None = None, name: str = "") -> "PosteriorAtData":
        """The state of a posterior at these data.

        Args:
            q: The posterior.
            held: The data.
            file: A checkpoint for what is computed so far; None for none.
            name: Name of its part.
        """
        found = None if file is None else file.part(name)
        each = [] if found is None else [tuple(found.tensors[part].to(q.mean.device) for part in VALUES)]
        passed = 0 if found is None else int(found.facts["batches"])

        def together() -> tuple[Tensor, ...]:
            return tuple(torch.cat(parts).contiguous() for parts in zip(*each, strict=True))

        if not held.batches:
            x, _ = rows_for_shapes(q)
            each.append(tuple(value[:0] for value in _function_values(q, take(x, slice(1)))))
        for number, (x, _) in enumerate(held.batches[passed:], passed + 1):
            each.append(_function_values(q, x))
            if file is not None:

                def reached(number: int = number) -> Part:
                    return Part(dict(zip(VALUES, together(), strict=True)), {"batches": number})

                file.keep(name, reached)
        outputs, spread, mean = together()
        return cls(q, held, Smoothed(q.likelihood, held.targets, outputs, spread, mean - outputs))

    @cached_property
    def bound(self) -> Float[Tensor, ""]:
        """L(m, S)."""
        q, smoothed = self.q, self.smoothed
        rows = torch.arange(len(smoothed.outputs), device=smoothed.outputs.device)
        total = q.processes.summed(smoothed.log_prob(smoothed.outputs, rows).double().sum())
        found = total / q.temperature - divergence(q)
        if not bool(found.isfinite()):
            raise ValueError(
                f"the evidence lower bound of this posterior is {float(found)}: its function values are too uncertain "
                "for the likelihood. Fit with a larger prior precision, or in float64."
            )
        return found

    def rises(self, q: Gaussian) -> bool:
        """True if the bound is not lower with the covariance of another posterior of the same mean.

        Some of the data decide where the sum over all of them is beyond doubt.
        """
        processes, own = self.q.processes, len(self.held.targets)
        sizes = processes.gather(own)
        total, first = sum(sizes), sum(sizes[: processes.rank])
        fixed = float(divergence(self.q) - divergence(q))
        for size in (JUDGING, total):
            rows = torch.randperm(total, generator=torch.Generator().manual_seed(0))[:size].sort().values
            rows = (rows[(rows >= first) & (rows < first + own)] - first).to(self.held.targets.device)
            there = PosteriorAtData.of(q, self.held.part(rows)).smoothed
            before = self.smoothed.log_prob(self.smoothed.outputs[rows], rows).double()
            after = there.log_prob(there.outputs, torch.arange(len(rows), device=rows.device)).double()
            change = processes.joined((after - before) / q.temperature)
            rise, unseen = fixed + total * float(change.mean()), 1 - len(change) / total
            error = total * float(change.std()) * (unseen / len(change)) ** 0.5 if unseen else 0.0
            if not unseen or abs(rise) > ERRORS * error:
                break
        return rise >= 0


def _function_values(q: Gaussian, x: Inputs) -> tuple[Tensor, Float[Tensor, "n T E K"], Tensor]:
    """Outputs of the network, a root of their covariances, and the mean of the function."""
    with torch.no_grad():
        f = q.network(take(x, slice(1)) if q.offset is None else x).to(q.network.state_dtype)
    if q.likelihood.events(f) <= EXACT:
        mean, covariance = moments(q, x, partial(interacting_outputs, q.likelihood), q.memory)
        return mean if q.offset is None else f, root(covariance), mean
    generator = torch.Generator().manual_seed(0)
    found = list(deviations(q, x, DRAWS, generator, q.memory))
    f, draws = found[0][0], torch.cat([q.likelihood.split(part, 1) for _, part in found])
    return f, draws.movedim(0, -1) / DRAWS**0.5, mean_function(q, x, f)


@torch.no_grad()
def network_outputs(q: Gaussian, held: Held) -> Float[Tensor, "N *C"]:
    """Outputs of the network for all data."""
    inputs = [x for x, _ in held.batches] or [take(rows_for_shapes(q)[0], slice(1))]
    outputs = torch.cat([q.network(x) for x in inputs]).to(q.network.state_dtype)
    return outputs[: len(held.targets)]


def require_same_data(q: Gaussian, outputs: Tensor, targets: Tensor) -> None:
    """Refuse other data than those of the fit, as the log likelihood of the network shows them.

    Args:
        q: The posterior.
        outputs: Outputs of the network for all data.
        targets: Their targets.
    """
    if len(targets):
        q.likelihood.check(outputs, targets)
    found = q.likelihood.log_likelihood(summed_statistics(q, [(outputs, targets)]))
    expected = q.likelihood.log_likelihood(q.fit.statistics)
    near = max(SAME, 10 * torch.finfo(q.network.dtype).eps)
    if not torch.isclose(found.double(), expected.double().to(found.device), rtol=near, atol=near * q.num_data):
        raise ValueError(
            "these are not the data of the fit, or they change from pass to pass: the log likelihood of the network "
            f"was {float(expected):,.1f} nats, and is {float(found):,.1f} here. Pass the same data, without random "
            "augmentation, drop_last or sampling with replacement."
        )
