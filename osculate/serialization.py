"""Posteriors on disk: tensors as safetensors, everything else as JSON in the header. Loading never executes code."""

import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from osculate import likelihoods, posteriors, priors, structures
from osculate.curvature.plan import BlockSpec, Plan
from osculate.curvature.tape import Example
from osculate.likelihoods import Likelihood
from osculate.networks import Output
from osculate.parameters import Network
from osculate.posteriors.earlier import Earlier
from osculate.priors import Prior
from osculate.registry import choose, lookup
from osculate.schema import (
    flag,
    many,
    mapping,
    one_of,
    positive,
    record,
    require,
    require_finite,
    require_header,
    require_indices,
    require_like,
    text,
    whole,
)
from osculate.tensorfiles import fill, fingerprint, header_of, network_tensors, read_tensors, write_tensors

#: The version of the file format; other versions raise an error.
FORMAT = 2
#: The key of the JSON in the safetensors header.
HEADER = "osculate"
#: The posteriors that files can hold, by name.
KINDS: dict[str, type[posteriors.Posterior]] = {
    "gaussian": posteriors.Gaussian,
    "point": posteriors.Point,
    "ensemble": posteriors.Ensemble,
    "dropout": posteriors.Dropout,
    "snapshots": posteriors.Snapshots,
    "mixture": posteriors.Mixture,
    "chains": posteriors.Chains,
}
#: The fields of a plan that give its memory.
SIZES = ("floats", "factored", "inputs", "outputs")
#: Numbers of axes of the sums of likelihoods.
AXES = {"log_likelihood": 0, "squared_error": 1, "count": 0}
#: First parts of the names of tensors without NaN and infinity.
FINITE = ("curvature", "statistics", "prior", "earlier", "earlier_prior", "offset")
#: What the header of every posterior has, and that of a Gaussian.
NETWORK = {"names": many(text), "architecture": text, "likelihood": record(name=text, fields=mapping())}
GAUSSIAN = {
    "fit_likelihood": record(name=text, fields=mapping()),
    "structure": record(name=text, fields=mapping()),
    "prior": text,
    "temperature": positive,
    "num_data": whole(1),
    "kind": text,
    "plan": record(**dict.fromkeys(SIZES, whole()), last_layer=many(text)),
    "example": record(shapes=mapping(many(whole())), sizes=mapping(many(lambda value: isinstance(value, int | float)))),
    "blocks": many(record(names=many(text), kind=one_of(("outer", "lookup", "dense", "fallback")), has_bias=flag)),
}


def save(q: Any, path: str | os.PathLike) -> None:
    """Write a posterior to one safetensors file.

    The file holds the mode (all parameters and buffers of the network; of every member for an ensemble), the curvature
    and the prior, the snapshots or the draws, and the likelihood, but not the network's code: :func:`load` needs a
    module of the same architecture. Of frozen parameters (those without ``requires_grad`` in the network that was
    fitted) that the posterior is not over, it holds fingerprints alone: :func:`load` takes their values from the
    module. A mixture holds all of this for each of its members. The file is written under a temporary name and renamed,
    so that an interruption leaves no partial file.

    Args:
        q: The posterior: a Gaussian, a point, an ensemble, MC dropout, SWAG snapshots, Markov chains, or a mixture; or
            the result of ``osc.train``.
        path: Path of the file, usually ending in ``.safetensors``.

    Raises:
        TypeError: ``q`` is not a posterior of osculate, or its likelihood, prior or structure is not registered.
        FileNotFoundError: the folder does not exist.
        ValueError: a frozen parameter was changed in place after the fit.
    """
    posterior = posteriors.as_posterior(q)
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(path.parent)!r} does not exist: make it first.")
    tensors, header = _parts(posterior)
    write_tensors(path, tensors, HEADER, {"format": FORMAT, **header})


def _parts(q: posteriors.Posterior) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and header of a posterior; for a mixture, with a prefix and a list entry for each member."""
    kind = next((name for name, known in KINDS.items() if type(q) is known), None)
    if kind is None:
        raise TypeError(
            f"save writes posteriors of the kinds {', '.join(KINDS)}, got {type(q).__name__}. Save its network with "
            "osc.save(osc.posteriors.Point(model, likelihood), path)."
        )
    if isinstance(q, posteriors.Mixture):
        each = [_parts(member) for member in q.members]
        tensors = {f"mixture.{n}.{name}": value for n, (part, _) in enumerate(each) for name, value in part.items()}
        return tensors, {"posterior": kind, "mixture": [header for _, header in each]}
    tensors, header = _gaussian_parts(q) if isinstance(q, posteriors.Gaussian) else _network_parts(q)
    header |= {
        "posterior": kind,
        "names": q.network.space.names,
        "architecture": repr(q.network.module),
        "likelihood": _describe(q.likelihood, likelihoods.REGISTRY, "likelihood", tensors),
    }
    if isinstance(q.network.module, Output):
        header["output"] = q.network.module.output
    if q.network.frozen:
        every = network_tensors(q.network.module)
        header["frozen"] = {name: _fingerprint(every[name]) for name in q.network.frozen}
    return tensors, header


def _fingerprint(parameter: Tensor) -> str:
    """The type of a frozen parameter, and its digest."""
    return f"{str(parameter.dtype).removeprefix('torch.')} {fingerprint(parameter)}"


def _held(network: Network) -> dict[str, Tensor]:
    """The tensors of a network that a file holds: all that are not frozen."""
    network.require_same_base()
    held = network_tensors(network.module)
    return {f"network.{name}": tensor for name, tensor in held.items() if name not in network.frozen}


def _gaussian_parts(q: posteriors.Gaussian) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and header entries that only a Gaussian has."""
    q.structure.require_storable()
    tensors = _held(q.network)
    tensors |= {f"curvature.{name}": value for name, value in q.structure.tensors().items()}
    tensors |= {f"statistics.{name}": value for name, value in q.fit.statistics.items()}
    tensors |= {f"positions.{n}": block.positions.int() for n, block in enumerate(q.fit.plan.blocks)}
    tensors |= {f"kept.{n}": b.kept.int() for n, b in enumerate(q.fit.plan.blocks) if b.kept is not None}
    prior = q.prior
    tensors["prior.precision"] = prior.precision
    if prior.mean is not None:
        tensors["prior.mean"] = prior.mean
    if isinstance(prior, Earlier):
        tensors |= {f"earlier.{name}": value for name, value in prior.unweighted.tensors().items()}
        prior = prior.unweighted_diagonal
        tensors["earlier_prior.precision"] = prior.precision
    prior = prior.diagonal
    if q.offset is not None:
        tensors["offset"] = q.offset
    header = {
        "fit_likelihood": _describe(q.fit.likelihood, likelihoods.REGISTRY, "fit_likelihood", tensors),
        "structure": _describe(q.structure.structure, structures.REGISTRY, "structure", tensors),
        "prior": _name_of(prior, priors.REGISTRY),
        "prior_settings": prior.settings,
        "temperature": float(q.temperature),
        "num_data": q.num_data,
        "kind": q.fit.kind,
        "plan": {name: getattr(q.fit.plan, name) for name in (*SIZES, "last_layer")},
        "example": asdict(q.fit.plan.example),
        "blocks": [{"names": b.names, "kind": b.kind, "has_bias": b.has_bias} for b in q.fit.plan.blocks],
    }
    return tensors, header


def _network_parts(q: posteriors.Posterior) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The networks of a posterior made of networks, and its own tensors."""
    if isinstance(q, posteriors.Ensemble):
        tensors = {
            f"members.{n}.{name}": value
            for n, member in enumerate(q.members)
            for name, value in network_tensors(member.module).items()
        }
        return tensors, {"members": len(q.members)}
    tensors = _held(q.network)
    if isinstance(q, posteriors.Snapshots):
        tensors |= {"samples.diagonal": q.diagonal, "samples.deviations": q.deviations}
    if isinstance(q, posteriors.Chains):
        tensors["samples.thetas"] = q.thetas
    return tensors, {}


def load(path: str | os.PathLike, model: nn.Module) -> Any:
    """Read a posterior that :func:`save` wrote.

    Args:
        path: The file.
        model: A module of the same architecture (one for all members of an ensemble or a mixture). It is not changed,
            and its parameters are ignored, apart from those that were frozen: the posterior refers to these, as
            :func:`osculate.laplace` does. For a posterior of :class:`osculate.networks.Output` also the network in it.

    Returns:
        The posterior, on the CPU.

    Raises:
        FileNotFoundError: the file does not exist.
        TypeError: ``model`` is not a module.
        ValueError: the file is truncated or not a posterior, has another format, or belongs to another network, or to
            one with other frozen weights (the message names the first parameter that differs).
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}: one network is needed.")
    path = Path(path)
    header, tensors = _read(path)
    try:
        return _rebuild(path, header, tensors, model)
    except (KeyError, TypeError, AttributeError, IndexError, RuntimeError, AssertionError) as error:
        raise ValueError(
            f"{str(path)!r} is damaged: its header lacks or misnames something ({error}). Fit it again."
        ) from error


def _network(path: Path, header: dict[str, Any], stored: Mapping[str, Tensor], model: nn.Module) -> Network:
    """The network with its stored parameters and buffers, in evaluation mode as it was fitted."""
    require_header(path, header, NETWORK)
    frozen = header.get("frozen", {})
    require(mapping(text)(frozen), path, "its frozen parameters are not named with their fingerprints")
    require(any(value.is_floating_point() for value in stored.values()), path, "it has no weights")
    if "output" in header and not isinstance(model, Output):
        require(type(header["output"]) in (int, str), path, "its output is neither an index nor a name")
        model = Output(model, header["output"])
    mine = network_tensors(model)
    if unknown := next((name for name in frozen if name not in mine), None):
        raise ValueError(f"{str(path)!r} belongs to another network: the model has no {unknown!r}, which was frozen.")
    types = _types(path, stored, frozen, mine)
    network = Network(model, header["names"], "cpu", types, frozen)
    if repr(network.module) != header["architecture"]:
        warnings.warn(
            f"the network given to load prints differently from the one in {str(path)!r} (same parameters, perhaps "
            "another activation or setting): make sure that both compute the same function.",
            stacklevel=5,
        )
    fill(network.module.eval(), stored, path, frozen)
    held = network_tensors(network.module)
    for name, words in frozen.items():
        if _fingerprint(held[name]) != words:
            raise ValueError(
                f"{str(path)!r} belongs to a network with other frozen weights, of which it holds fingerprints alone: "
                f"{name!r} differs. Give osc.load the network with the weights that it had in the fit."
            )
    return network


def _types(
    path: Path, stored: Mapping[str, Tensor], frozen: Mapping[str, str], mine: Mapping[str, Tensor]
) -> dict[str, torch.dtype]:
    """The floating type of each tensor of a network: the only one of the file, or those of a model with the same ones.

    Raises:
        ValueError: the file has several types, and the model others.
    """
    types = {name: value.dtype for name, value in stored.items() if value.is_floating_point()}
    for name, words in frozen.items():
        found: Any = getattr(torch, words.partition(" ")[0], None)
        require(isinstance(found, torch.dtype), path, f"the frozen parameter {name!r} has no type")
        if found.is_floating_point:
            types[name] = found
    floats = {name: value.dtype for name, value in mine.items() if value.is_floating_point()}
    if len(set(types.values())) == 1:
        return dict.fromkeys(floats, next(iter(types.values())))
    other = next((name for name in floats if types.get(name, floats[name]) != floats[name]), None)
    if other:
        raise ValueError(
            f"{str(path)!r} is of a network of several floating types: {other!r} has {types[other]} in the file and "
            f"{floats[other]} in the model. Pass a module with the types of the one that was saved."
        )
    return floats


def _rebuild(
    path: Path, header: dict[str, Any], tensors: Mapping[str, Tensor], model: nn.Module
) -> posteriors.Posterior:
    """A posterior of any kind."""
    kind = choose("kind of posterior", header.get("posterior", "gaussian"), KINDS)
    if kind == "mixture":
        require_header(path, header, {"mixture": many(mapping())})
        parts = enumerate(header["mixture"])
        return posteriors.Mixture([_rebuild(path, part, _part(tensors, f"mixture.{n}"), model) for n, part in parts])
    return (_rebuild_gaussian if kind == "gaussian" else _rebuild_networks)(path, header, tensors, model)


def _rebuild_networks(
    path: Path, header: dict[str, Any], tensors: Mapping[str, Tensor], model: nn.Module
) -> posteriors.Posterior:
    likelihood = _restore(header["likelihood"], likelihoods.REGISTRY, "likelihood", tensors)
    require_finite(path, _part(tensors, "samples"))
    if header["posterior"] == "ensemble":
        require_header(path, header, {"members": whole(1)})
        parts = [_part(tensors, f"members.{n}") for n in range(header["members"])]
        return posteriors.Ensemble([_network(path, header, part, model).module for part in parts], likelihood)
    network = _network(path, header, _part(tensors, "network"), model)
    if header["posterior"] == "point":
        return posteriors.Point(network.module, likelihood)
    if header["posterior"] == "dropout":
        return posteriors.Dropout(network.module, likelihood)
    if header["posterior"] == "chains":
        return posteriors.Chains(network, likelihood, tensors["samples.thetas"])
    return posteriors.Snapshots(network, likelihood, tensors["samples.diagonal"], tensors["samples.deviations"])


def _rebuild_gaussian(
    path: Path, header: dict[str, Any], tensors: Mapping[str, Tensor], model: nn.Module
) -> posteriors.Gaussian:
    network = _network(path, header, _part(tensors, "network"), model)
    require_header(path, header, GAUSSIAN)
    weights = {name: tensors[f"network.{name}"] for name in network.space.names}
    stated = {n: t for n, t in tensors.items() if n.partition(".")[0] in FINITE}
    require_finite(path, weights | stated)
    _require_positions(path, header, tensors, network.space.size)
    plan = Plan(
        tuple(_block(b, n, tensors) for n, b in enumerate(header["blocks"])),
        **{name: header["plan"][name] for name in SIZES},
        last_layer=tuple(header["plan"]["last_layer"]),
        example=Example(**header["example"]),
    )
    structure = _restore(header["structure"], structures.REGISTRY, "structure", tensors)
    state = _part(tensors, "curvature")
    if structure.name != "dual":  # its number of rows is that of the data
        expected = structure.zero(plan.specs, network.space, network.state_dtype, torch.device("meta"))
        require_like(path, state, expected.tensors(), "the curvature")
    curvature = structure.zero(plan.specs, network.space, network.state_dtype, network.device)
    curvature = curvature.with_tensors(state)
    fit_likelihood = _restore(header["fit_likelihood"], likelihoods.REGISTRY, "likelihood", tensors)
    statistics = _part(tensors, "statistics")
    for name, value in statistics.items():
        require(value.ndim == AXES.get(name), path, f"the statistics {name!r} have shape {tuple(value.shape)}")
    fit = posteriors.Fit(curvature, fit_likelihood, statistics, header["num_data"], plan, network, header["kind"])
    likelihood: Likelihood = _restore(header["likelihood"], likelihoods.REGISTRY, "likelihood", tensors)
    made = lookup("prior", header["prior"], priors.REGISTRY)
    precision = tensors.get("earlier_prior.precision", tensors["prior.precision"])
    prior: Prior = made(precision=precision, **header.get("prior_settings", {}))
    if earlier := _part(tensors, "earlier"):
        require_like(path, earlier, state, "the earlier curvature")
        mean, weight = tensors["prior.mean"], tensors["prior.precision"]
        prior = Earlier(curvature.with_tensors(earlier), prior.bind(network.space), mean, weight)
    elif "prior.mean" in tensors:
        prior = prior.around(tensors["prior.mean"])
    for name in ("prior.mean", "offset"):
        whole = name not in tensors or tensors[name].shape == network.mean.shape
        require(whole, path, f"{name!r} has another number of parameters")
    return posteriors.Gaussian(fit, likelihood, prior, header["temperature"], offset=tensors.get("offset"))


def _require_positions(path: Path, header: dict[str, Any], tensors: Mapping[str, Tensor], size: int) -> None:
    """Raise ValueError unless the blocks cover different parameters of the network."""
    each = [tensors[f"positions.{number}"] for number in range(len(header["blocks"]))]
    for number, positions in enumerate(each):
        if (kept := tensors.get(f"kept.{number}")) is not None:
            require_indices(path, kept, positions.numel(), f"'kept.{number}'")
    require_indices(path, torch.cat([positions.reshape(-1) for positions in each]), size, "the positions of parameters")
    names = [name for block in header["blocks"] for name in block["names"]]
    require(set(names) <= set(header["names"]), path, "a block has parameters that the posterior is not over")


def _block(b: Mapping[str, Any], number: int, tensors: Mapping[str, Tensor]) -> BlockSpec:
    kept = tensors.get(f"kept.{number}")
    positions = tensors[f"positions.{number}"].long()
    return BlockSpec(tuple(b["names"]), b["kind"], positions, b["has_bias"], None if kept is None else kept.long())


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    metadata, tensors = read_tensors(path)
    if HEADER not in metadata:
        raise ValueError(f"{str(path)!r} is a safetensors file, but not a posterior written by osc.save.")
    header = header_of(path, metadata, HEADER)
    if (version := header.get("format")) != FORMAT:
        raise ValueError(
            f"{str(path)!r} has format {version}, this version of osculate reads format {FORMAT}. "
            "Fit it again, or use the version that wrote it."
        )
    return header, tensors


def _part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name[len(prefix) + 1 :]: value for name, value in tensors.items() if name.startswith(f"{prefix}.")}


def _name_of(thing: object, registry: Mapping[str, Any]) -> str:
    for name, kind in registry.items():
        if type(thing) is kind:
            return name
    raise TypeError(
        f"{type(thing).__name__} is not one of {', '.join(registry)}, so that it cannot be written to a file."
    )


def _describe(thing: Any, registry: Mapping[str, Any], prefix: str, tensors: dict[str, Tensor]) -> dict[str, Any]:
    """A dataclass as its registered name and fields; tensor fields go to ``tensors``."""
    description: dict[str, Any] = {"name": _name_of(thing, registry), "fields": {}}
    for field in fields(thing):
        value = getattr(thing, field.name)
        if isinstance(value, Tensor):
            tensors[f"{prefix}.{field.name}"] = value
            value = {"tensor": f"{prefix}.{field.name}"}
        description["fields"][field.name] = value
    return description


def _restore(description: dict[str, Any], registry: Mapping[str, Any], kind: str, tensors: Mapping[str, Tensor]) -> Any:
    """The object of a registered name and its fields.

    Raises:
        ValueError: an unknown name, or a field of another type than its default.
    """
    values = {
        name: tensors[value["tensor"]] if isinstance(value, dict) else value
        for name, value in description["fields"].items()
    }
    made = lookup(kind, description["name"], registry)
    defaults = {field.name: field.default for field in fields(made)}
    for name, value in values.items():
        if name not in defaults or not _fits(value, defaults[name]):
            raise ValueError(f"the {kind} of this file has {name}={str(value)[:40]!r}: it is damaged. Make it again.")
    return made(**values)


def _fits(value: Any, default: Any) -> bool:
    """True if a value may stand in the place of a default."""
    if isinstance(default, bool | str):
        return type(value) is type(default)
    number = isinstance(value, Tensor) or (isinstance(value, int | float) and not isinstance(value, bool))
    if isinstance(default, int | float):
        return number
    return number or value is None or isinstance(value, str | bool)
