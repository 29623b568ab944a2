"""Post-hoc Laplace: one pass over the data at the mode of a trained network."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from osculate import curvature as curvatures, structures
from osculate.batches import Data, as_batches, number_of_batches, require_finite
from osculate.curvature.columns import Hessian, Kind
from osculate.curvature.observation import Observation
from osculate.curvature.planning import make_plan
from osculate.evidence import maximise_evidence
from osculate.inputs import Inputs, apply, moved, take
from osculate.likelihoods import Likelihood
from osculate.memory import budget, free
from osculate.methods.subnetwork import Passes, Subnetwork, Units, path_variance
from osculate.parameters import Network, require_deterministic_layers, select, trainable
from osculate.posteriors import Fit, Gaussian
from osculate.priors import Isotropic, Layerwise, Prior
from osculate.progress import track
from osculate.registry import choose, lookup
from osculate.structures import Diag, Structure
from osculate.structures.blocks.hessian import for_hessian, without_negative_curvature

#: Data at a time below which the layers of a network are slow.
AT_ONCE = 16
#: Data that a fit keeps, on which a sampled predictive is compared with the mode.
SOME = 64


def laplace(
    model: nn.Module,
    likelihood: Any,
    data: Data,
    *,
    structure: str | Structure = "kron",
    curvature: str | Kind = "ggn",
    prior: str | float | Prior = "evidence",
    subset: str | Iterable[str] | Subnetwork = "all",
    memory: str | int | None = None,
    progress: bool = False,
) -> Gaussian:
    r"""The Laplace approximation of the posterior over a trained network's parameters.

    .. math:: q(\theta) = N(\theta^*, \Lambda^{-1}), \qquad
              \Lambda = \sum_n J_n^\top \Lambda_n J_n + \operatorname{diag}(\delta)

    with J_n the Jacobian of the outputs, Λ_n = −∂² log p(y_n|f_n)/∂f² the output Hessian, and δ the prior precision.
    [mackay1992; immer2021]

    Args:
        model: the trained module, in evaluation mode if it has dropout or batch normalisation. It is copied and left
            exactly as it is.
        likelihood: p(y|f), from ``osc.likelihoods``.
        data: what the network was trained on: a ``DataLoader``, any iterable of ``(x, y)`` batches, or a pair of
            tensors ``(X, Y)``. Inputs may be tuples (``model(*x)``) or mappings (``model(**x)``).
        structure: a name from ``osc.structures.REGISTRY`` ("kron" is the default), or an object of ``osc.structures``.
        curvature: "ggn" (exact), "fisher" (one sampled label for each datum: about two training epochs' cost),
            "empirical_fisher", "hessian", or an object such as ``osc.curvature.Fisher(samples=5)``.
        prior: "evidence" (one precision a parameter tensor, and the noise scale of a Gaussian likelihood, by the
            evidence), a number (a fixed precision for all), or an object of ``osc.priors``, taken as it is.
        subset: "all" (every parameter that requires gradients), "last_layer", a list of parameter and module names
            (which counts frozen parameters in), or ``osc.Subnetwork(fraction)`` of single parameters.
        memory: what the temporaries of the pass may take, in bytes or as "2GB"; by default 256 MiB (up to 1 GiB for
            large networks), or a quarter of what is free where that is less.
        progress: show a progress bar.

    Returns:
        A posterior for ``osc.predict``, ``osc.log_evidence``, ``osc.tune`` and ``osc.save``.

    Raises:
        ValueError: active dropout or batch normalisation in training mode, no trainable parameter, an empty loader,
            a value that is not finite or positive, targets that do not fit, an unknown name, a network too large.
        TypeError: a likelihood, structure, curvature or prior that is none, a loader that yields no pairs, or targets
            of the wrong type.

    Cost: one forward pass, and one backward pass without weight gradients for each output (one in all for "fisher").

    >>> import osculate as osc
    >>> X, Y = torch.randn(30, 2), torch.randint(3, (30,))
    >>> q = osc.laplace(nn.Linear(2, 3), osc.likelihoods.Categorical(), (X, Y))
    >>> osc.predict(q, X[:4]).probs.shape
    torch.Size([4, 3])
    """
    kind: Kind = _named(curvature, "curvature", curvatures.REGISTRY, Kind)
    matrix: Structure = _named(structure, "structure", structures.REGISTRY, Structure)
    chosen_prior, by_evidence = _prior(prior)
    _check(model, likelihood)
    _require_passes(data, matrix)
    batches = _tracked(data, progress, f"{matrix.name} curvature")
    first = next(batches)
    network = _network(model, subset, first[0])
    start = _observe(network, likelihood, kind, first, memory)
    _require_room(start, Diag() if isinstance(subset, Subnetwork) else matrix, memory)
    every: Iterator[tuple[Inputs, Tensor]] = chain([first], batches)
    if isinstance(subset, Subnetwork):
        start = _restricted(start, subset, matrix, data, every, progress)
        every = _tracked(data, progress, f"{matrix.name} curvature of the subnetwork")
        _require_room(start, matrix, memory)
    fit = _fit(start, matrix, chain([every], _again(data, matrix, progress)))
    q = Gaussian(network, fit, likelihood, chosen_prior, first_data=_some(*first))
    return maximise_evidence(q) if by_evidence else q


def _named(thing: Any, what: str, registry: Mapping[str, Callable[[], Any]], base: type) -> Any:
    """An object, or the one that a name stands for."""
    if isinstance(thing, str):
        return lookup(what, thing, registry)()
    if not isinstance(thing, base):
        raise TypeError(
            f"{what} must be one of the names {', '.join(map(repr, registry))}, or an object (not a class) such as "
            f"{next(iter(registry.values()))()!r}; got {thing!r}."
        )
    return thing


def _check(model: nn.Module, likelihood: object) -> None:
    if not isinstance(likelihood, Likelihood):
        raise TypeError(
            f"likelihood must be an object of osc.likelihoods, got {likelihood!r}: for example "
            "osc.likelihoods.Categorical() for classes, or osc.likelihoods.Gaussian(0.1) for real-valued targets."
        )
    require_deterministic_layers(model)


def _prior(prior: str | float | Prior) -> tuple[Prior, bool]:
    if isinstance(prior, Prior):
        return prior, False
    if prior is None or isinstance(prior, bool):
        raise TypeError(f"prior must be 'evidence', a positive number or an object of osc.priors, got {prior!r}.")
    if isinstance(prior, str):
        return lookup("prior", prior, {"evidence": Layerwise()}), True
    return Isotropic(prior), False


def _tracked(data: Data, progress: bool, title: str) -> Iterator[tuple[Inputs, Tensor]]:
    yield from track(as_batches(data), title, number_of_batches(data), progress)


def _require_passes(data: Data, structure: Structure) -> None:
    if structure.passes > 1 and isinstance(data, Iterator):
        raise ValueError(
            f"structure={structure.name!r} reads the data {structure.passes} times, and {type(data).__name__} can "
            "be read only once: pass a list of batches, a DataLoader or a pair (X, Y)."
        )


def _again(data: Data, structure: Structure, progress: bool) -> Iterator[Iterator[tuple[Inputs, Tensor]]]:
    """The data once more for each further pass that a structure needs."""
    for number in range(1, structure.passes):
        yield _tracked(data, progress, f"{structure.name} curvature, pass {number + 1} of {structure.passes}")


def _restricted(
    start: Observation,
    subset: Subnetwork,
    structure: Structure,
    data: Data,
    batches: Iterator[tuple[Inputs, Tensor]],
    progress: bool,
) -> Observation:
    """The plan of the chosen subnetwork, after a pass over the data where the choice needs one."""
    if not structure.entrywise:
        raise ValueError(
            f"structure={structure.name!r} cannot keep single parameters of a layer. For a Subnetwork use 'full', "
            "'block', 'dual', 'diag' or 'approx_diag', or name whole layers as the subset."
        )
    if isinstance(data, Iterator):
        raise ValueError(f"a Subnetwork reads the data twice, and {type(data).__name__} can be read only once.")
    other = replace(start, kind=Units())

    def diagonals() -> tuple[Tensor, Tensor]:
        again = _tracked(data, progress, "choice of the subnetwork")
        return _diagonal(_fit(start, Diag(), [batches])), _diagonal(_fit(other, Diag(), [again]))

    path = partial(path_variance, start.network, start.likelihood, data, progress=progress)
    return replace(start, plan=start.plan.restricted(subset.mask(start.network, Passes(diagonals, path))))


def _diagonal(fit: Fit) -> Tensor:
    values = torch.zeros(fit.curvature.space.size)
    for block in fit.curvature.blocks:
        values[block.positions.cpu()] = block.tensors()["values"].cpu().to(values)
    return values


def _network(model: nn.Module, subset: str | Iterable[str] | Subnetwork, x: Inputs) -> Network:
    if not isinstance(subset, str | Subnetwork):
        return Network(model, select(model, subset))
    names = trainable(model)
    if isinstance(subset, Subnetwork):
        return Network(model, names)
    choose("subset", subset, ("all", "last_layer"))
    network = Network(model, names)
    if subset == "all":
        return network
    last = make_plan(network, moved(x, network.device)).last_layer
    if not last:
        raise ValueError(
            "subset='last_layer': the last operation with parameters is not a linear or convolution layer. "
            f"Name the parameters instead, for example subset=[{names[-1]!r}]."
        )
    return Network(model, last)


def _observe(
    network: Network, likelihood: Likelihood, kind: Kind, batch: tuple[Inputs, Tensor], memory: str | int | None
) -> Observation:
    """The first batch, with the plan of the network that it shows."""
    x, y = moved(batch[0], network.device), batch[1].to(network.device)
    f = network(x)
    likelihood.check(f, y)
    _check_density(likelihood, f, y)
    plan = make_plan(network, x)
    wanted = AT_ONCE * plan.bytes_each(kind.expected(plan.outputs), network.state_dtype.itemsize)
    return Observation(network, plan, likelihood, kind, (x, y), budget(memory, network.device, wanted))


def _check_density(likelihood: Likelihood, f: Tensor, y: Tensor) -> None:
    shape = tuple(likelihood.log_prob(f, y).shape)
    if shape != (len(f),):
        raise ValueError(
            f"{type(likelihood).__name__}.log_prob must return one number for each datum, shape ({len(f)},), and "
            f"returned {shape}: sum over outputs and positions, and not over data."
        )


def _require_room(start: Observation, structure: Structure, memory: str | int | None) -> None:
    """Refuse a budget, or a machine, in which not even one datum with one column fits."""
    plan, network = start.plan.by_factors() if structure.by_factors else start.plan, start.network
    plan.require_room(free(network.device) if memory is None else start.memory, network.state_dtype.itemsize)


def _fit(start: Observation, structure: Structure, passes: Iterable[Iterable[tuple[Inputs, Tensor]]]) -> Fit:
    """The curvature and the likelihood's statistics, summed over all batches."""
    network, likelihood = start.network, start.likelihood
    curvature = structure.zero(start.plan.specs, network.space, network.state_dtype, network.device)
    if isinstance(start.kind, Hessian):
        curvature = replace(curvature, blocks=for_hessian(curvature.blocks))
    statistics: dict[str, Tensor] = {}
    size = 0
    for number, batches in enumerate(passes):
        for batch, (x, y) in enumerate(batches):
            here = replace(start, batch=(moved(x, network.device), y.to(network.device)), number=batch)
            f = structure.add(curvature, here, number)
            if number == 0:
                for name, value in likelihood.statistics(f, here.y).items():
                    statistics[name] = statistics.get(name, torch.zeros_like(value)) + value
                size += len(y)
        curvature.finish()
    if isinstance(start.kind, Hessian):
        curvature = replace(curvature, blocks=without_negative_curvature(curvature.blocks))
    for name, tensor in curvature.tensors().items():
        require_finite(tensor, f"the curvature ({name})")
    return Fit(curvature, likelihood, statistics, size, start.plan, network, start.kind.name)


def _some(x: Inputs, y: Tensor) -> tuple[Inputs, Tensor]:
    """A copy of a few data, with which nothing else of their batch is kept."""
    some = slice(SOME)
    return apply(torch.clone, take(x, some)), y[some].clone()
