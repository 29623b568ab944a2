"""Random cases from a seed: a network, data, a likelihood, a structure, a kind of curvature, a prior, an operation."""

from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
from torch import Tensor, nn

import osculate as osc
from osculate.inputs import Inputs, apply, call, take
from osculate.likelihoods import Likelihood
from osculate.structures import Structure
from tests.fuzz.networks import Net, random_network, scaled

#: Structures that take the full Hessian.
WITH_HESSIAN = ("full", "block", "diag", "matrix_free")
#: Parameters of the largest network of which the full Hessian is taken.
LARGEST_HESSIAN = 100
#: Inputs that a case draws its data from, with repetition.
POOL = 8


@dataclass(frozen=True)
class Case:
    """Everything that a case needs, in float64; ``dtype`` is that of the fit.

    Attributes:
        seed: Seed that makes the case.
        net: Network.
        likelihood: p(y|f).
        x: Training inputs.
        y: Targets.
        batches: Sizes of the batches.
        new: Inputs to predict at.
        structure: Structure of the curvature.
        kind: Kind of curvature, by name.
        precisions: Prior precisions of all parameters, by name: one number for each tensor, or one for each entry.
        family: Family of the prior.
        centre: Mean of the prior.
        temperature: T.
        subset: Names of the parameters of the posterior; None for all.
        dtype: Type of the network in the fit.
        memory: Largest size of temporaries.
        operation: Name of what is compared.
    """

    seed: int
    net: Net
    likelihood: Likelihood
    x: Inputs
    y: Tensor
    batches: tuple[int, ...]
    new: Inputs
    structure: Structure
    kind: str
    family: str
    precisions: Mapping[str, Tensor]
    centre: float
    temperature: float
    subset: tuple[str, ...] | None
    dtype: torch.dtype
    memory: int | str | None
    operation: str
    draw: Random = field(repr=False)

    def __str__(self) -> str:
        return (
            f"{self.operation}: {self.net.name}, {self.likelihood}, {self.structure}, {self.kind}, {self.family} prior"
            f"{f' around {self.centre}' if self.centre else ''}, T={self.temperature}, batches {self.batches}"
            f"{'' if self.subset is None else f', {len(self.subset)} tensors'}, {str(self.dtype)[6:]}"
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The parameters of the posterior, in the order of the network."""
        named = self.net.module.named_parameters()
        return tuple(n for n, p in named if p.requires_grad and (self.subset is None or n in self.subset))

    def model(self) -> nn.Module:
        """A copy of the network in the type of the fit."""
        return deepcopy(self.net.module).to(self.dtype)

    def cast(self, x: Any) -> Any:
        """Inputs or targets in the type of the fit."""
        return apply(lambda t: t.to(self.dtype) if t.is_floating_point() else t, x)

    def data(self, rows: slice = slice(None)) -> list[tuple[Inputs, Tensor]]:
        """The batches, or one batch of some rows."""
        if rows != slice(None):
            return [(self.cast(take(self.x, rows)), self.cast(self.y[rows]))]
        parts, start = [], 0
        for size in self.batches:
            part = slice(start, start := start + size)
            parts.append((self.cast(take(self.x, part)), self.cast(self.y[part])))
        return parts

    def prior(self) -> Any:
        """The prior of the package."""
        values = [self.precisions[name] for name in self.names]
        if self.family == "isotropic":
            prior = osc.priors.Isotropic(values[0].to(self.dtype))
        elif self.family == "layerwise":
            prior = osc.priors.Layerwise(torch.stack(values).to(self.dtype), self.names)
        else:
            prior = osc.priors.Diagonal(torch.cat([v.reshape(-1) for v in values]).to(self.dtype))
        return prior.around(self.centre) if self.centre else prior

    def fit(self, data: Any = None, **options: Any) -> Any:
        """The posterior, not refined, at the case's temperature."""
        subset: Any = "all" if self.subset is None else list(self.subset)
        given = {"prior": self.prior(), "curvature": self.curvature(), "subset": subset, "memory": self.memory}
        chosen = {"structure": self.structure, "refine": False, **given, **options}
        q = osc.laplace(self.model(), self.likelihood, self.data() if data is None else data, **chosen)
        return q if self.temperature == 1 else q.replace(temperature=self.temperature)

    def curvature(self) -> Any:
        """The kind of curvature; sampled labels from a seed."""
        if self.kind == "fisher":
            return osc.curvature.Fisher(2, torch.Generator().manual_seed(self.seed))
        return self.kind


def random_case(seed: int, operations: Mapping[str, int]) -> Case:
    """The case of a seed.

    Args:
        seed: Any number.
        operations: Names of operations with their weights.
    """
    draw = Random(seed)
    with torch.random.fork_rng(), torch.no_grad():
        net = random_network(draw)
        scale = draw.choices([1.0, 0.1, 3.0], [8, 1, 1])[0]
        pool = apply(lambda t: scaled(t, scale), net.inputs(POOL))
        batches = tuple(draw.choices([1, 2, 3, 4], k=draw.randint(1, 3)))
        rows = torch.tensor([draw.randrange(POOL) for _ in range(sum(batches))])
        x, new = take(pool, rows), take(pool, torch.tensor([draw.randrange(POOL) for _ in range(draw.randint(1, 3))]))
        f = call(net.module, x)
        likelihood = random_likelihood(draw, net.output, tuple(f.shape[1:]))
        y = random_targets(draw, likelihood, f)
    names = [name for name, p in net.module.named_parameters() if p.requires_grad]
    subset = None
    if draw.random() < 0.15:
        subset = tuple(draw.sample(names, draw.randint(1, len(names))))
    family = draw.choices(["isotropic", "layerwise", "diagonal"], [4, 5, 2])[0]
    structure = random_structure(draw)
    if structure.name in ("kron", "ekfac") and family == "diagonal" and draw.random() < 0.9:
        family = "layerwise"  # most of these are refused
    memory = draw.choices([None, 14_000, "1MB"], [5, 2, 1])[0]
    kinds = {"ggn": 16, "empirical_fisher": 2, "fisher": 2, "hessian": 1}
    kind = draw.choices(list(kinds), list(kinds.values()))[0]
    if kind == "hessian" and sum(p.numel() for p in net.module.parameters()) > LARGEST_HESSIAN:
        kind = "ggn"  # the reference takes a backward pass for each parameter
    elif kind == "hessian" and structure.name not in WITH_HESSIAN and draw.random() < 0.8:
        structure = osc.structures.REGISTRY[draw.choice(WITH_HESSIAN)]()
    return Case(
        seed=seed,
        net=net,
        likelihood=likelihood,
        x=x,
        y=y,
        batches=batches,
        new=new,
        structure=structure,
        kind=kind,
        family=family,
        precisions=random_precisions(draw, net.module, family),
        centre=draw.choices([0.0, 0.25], [4, 1])[0],
        temperature=draw.choices([1.0, 0.1, 1.7], [4, 1, 1])[0],
        subset=subset,
        dtype=draw.choices([torch.double, torch.float], [3, 0 if net.ill_conditioned else 1])[0],
        memory=memory,
        operation=draw.choices(list(operations), list(operations.values()))[0],
        draw=draw,
    )


def random_likelihood(draw: Random, output: str, shape: tuple[int, ...]) -> Likelihood:
    """A likelihood that fits outputs of this shape."""
    all_of = osc.likelihoods
    axis = 1 if output == "image" else -1
    interacting = shape[0] if output == "image" else shape[-1]
    scale = draw.choice([0.3, 1.0, 2.5])
    options: list[Any] = [
        lambda: all_of.Gaussian(scale),
        lambda: all_of.Gaussian(
            torch.tensor([draw.uniform(0.3, 2.0) for _ in range(torch.Size(shape).numel())]).double().reshape(shape)
        ),
        lambda: all_of.Bernoulli(grey=draw.random() < 0.3),
        all_of.ContinuousBernoulli,
        all_of.Poisson,
        lambda: all_of.StudentT(draw.choice([1.5, 3.0, 8.0]), scale),
    ]
    if interacting > 1:
        ignored = draw.choice([None, None, -100])
        options += 3 * [lambda: all_of.Categorical(axis, ignored)]
    if interacting % 2 == 0:
        options += 2 * [lambda: all_of.HeteroscedasticGaussian(axis)]
    return draw.choice(options)()


def random_targets(draw: Random, likelihood: Likelihood, f: Tensor) -> Tensor:
    """Targets drawn at the network's outputs, some ignored, grey or of an integer type where the likelihood has it."""
    y = likelihood.distribution(f).sample()
    if getattr(likelihood, "ignore_index", None) is not None:
        y.reshape(-1)[::3] = -100
    elif isinstance(likelihood, osc.likelihoods.Categorical) and draw.random() < 0.1:
        y = torch.rand_like(f)
        y = y / y.sum(1 if likelihood.class_axis == 1 else -1, keepdim=True)
    if getattr(likelihood, "grey", False):
        y = 0.7 * y + 0.1
    elif isinstance(likelihood, osc.likelihoods.Bernoulli | osc.likelihoods.Poisson) and draw.random() < 0.2:
        y = y.long()
    return y


def random_structure(draw: Random) -> Structure:
    """One of the ten structures, some with settings."""
    kind = osc.structures
    name = draw.choice(list(kind.REGISTRY))
    options: dict[str, list[Any]] = {
        "kron": [kind.Kron, lambda: kind.Kron(dense_limit=3), lambda: kind.Kron(sharing="reduce")],
        "low_rank": [kind.LowRank, kind.LowRank, lambda: kind.LowRank(rank=2, oversampling=3)],
        "dual": [
            kind.Dual,
            kind.Dual,
            lambda: kind.Dual(points=2),
            lambda: kind.Dual(points=2, approximation="subset"),
        ],
        "mixed_diag": [lambda: kind.MixedDiag(decoder="exact"), kind.MixedDiag],
    }
    return draw.choice(options.get(name, [kind.REGISTRY[name]]))()


def random_precisions(draw: Random, module: nn.Module, family: str) -> dict[str, Tensor]:
    """The prior precisions by parameter, over a range of a hundred."""
    one = 10 ** draw.uniform(-1, 1)
    found = {}
    for name, parameter in module.named_parameters():
        each = one if family == "isotropic" else 10 ** draw.uniform(-1, 1)
        value = torch.tensor(each, dtype=torch.double)
        if family == "diagonal":
            spread = torch.linspace(0.5, 2, parameter.numel(), dtype=torch.double)
            value = value * spread.reshape(parameter.shape)
        found[name] = value
    return found
