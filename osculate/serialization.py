"""Posteriors on disk: safetensors for the numbers, JSON in its header for the rest. Nothing is ever executed."""

import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from osculate import likelihoods, priors, structures
from osculate.curvature.plan import BlockSpec, Example, Plan
from osculate.likelihoods import Likelihood
from osculate.parameters import Network
from osculate.posteriors import Fit, Gaussian
from osculate.priors import Prior
from osculate.registry import lookup
from osculate.tensorfiles import fill, network_tensors, read_tensors, write_tensors

#: The version of the file format; files of another one are refused.
FORMAT = 2
#: The key of the JSON in the safetensors header.
HEADER = "osculate"
#: What a plan says of memory.
SIZES = ("floats", "factored", "inputs", "outputs")


def save(q: Gaussian, path: str | os.PathLike) -> None:
    """Write a Gaussian posterior to one safetensors file.

    The file holds the mode (all parameters and buffers of the network), the curvature, the prior and the likelihood,
    but not the network's code: :func:`load` needs a module of the same architecture. It is written under a temporary
    name and renamed, so that an interruption leaves no half file.

    Args:
        q: the posterior.
        path: where to, by custom ending in ``.safetensors``.

    Raises:
        TypeError: not a Gaussian posterior, or a likelihood, prior or structure that osculate does not know by name.
        FileNotFoundError: the folder does not exist.
    """
    if not isinstance(q, Gaussian):
        raise TypeError(
            f"save writes Gaussian posteriors, got {type(q).__name__}. Save a plain network with safetensors."
        )
    q.structure.require_storable()
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"the folder {str(path.parent)!r} does not exist: make it first.")
    tensors: dict[str, Tensor] = {f"network.{name}": value for name, value in network_tensors(q.network.module).items()}
    tensors |= {f"curvature.{name}": value for name, value in q.structure.tensors().items()}
    tensors |= {f"statistics.{name}": value for name, value in q.fit.statistics.items()}
    tensors |= {f"positions.{n}": block.positions.int() for n, block in enumerate(q.fit.plan.blocks)}
    tensors |= {f"kept.{n}": b.kept.int() for n, b in enumerate(q.fit.plan.blocks) if b.kept is not None}
    tensors["prior.precision"] = q.prior.precision
    header = {
        "format": FORMAT,
        "names": q.network.space.names,
        "architecture": repr(q.network.module),
        "likelihood": _describe(q.likelihood, likelihoods.REGISTRY, "likelihood", tensors),
        "fit_likelihood": _describe(q.fit.likelihood, likelihoods.REGISTRY, "fit_likelihood", tensors),
        "structure": _describe(q.structure.structure, structures.REGISTRY, "structure", tensors),
        "prior": _name_of(q.prior, priors.REGISTRY),
        "temperature": float(q.temperature),
        "num_data": q.num_data,
        "kind": q.fit.kind,
        "plan": {name: getattr(q.fit.plan, name) for name in (*SIZES, "last_layer")},
        "example": asdict(q.fit.plan.example),
        "blocks": [{"names": b.names, "kind": b.kind, "has_bias": b.has_bias} for b in q.fit.plan.blocks],
    }
    write_tensors(path, tensors, HEADER, header)


def load(path: str | os.PathLike, model: nn.Module) -> Gaussian:
    """Read a posterior that :func:`save` wrote.

    Args:
        path: the file.
        model: a module of the same architecture; its parameters are ignored, and it is left as it is.

    Returns:
        The posterior, on the CPU.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is truncated or not a posterior, has another format, or belongs to another network (the
            message names the first parameter that differs).
    """
    path = Path(path)
    header, tensors = _read(path)
    try:
        return _rebuild(path, header, tensors, model)
    except (KeyError, TypeError) as error:
        raise ValueError(f"{str(path)!r} is damaged: its header lacks or misnames {error}. Fit it again.") from error


def _rebuild(path: Path, header: dict[str, Any], tensors: Mapping[str, Tensor], model: nn.Module) -> Gaussian:
    network = Network(model, header["names"]).to("cpu")
    stored = _part(tensors, "network")
    if repr(network.module) != header["architecture"]:
        warnings.warn(
            f"the network given to load prints differently from the one in {str(path)!r} (same parameters, perhaps "
            "another activation or setting): make sure that both compute the same function.",
            stacklevel=3,
        )
    network.module.to(dtype=next(value.dtype for value in stored.values() if value.is_floating_point()))
    fill(network.module, stored, path)
    plan = Plan(
        tuple(_block(b, n, tensors) for n, b in enumerate(header["blocks"])),
        **{name: header["plan"][name] for name in SIZES},
        last_layer=tuple(header["plan"]["last_layer"]),
        example=Example(**header["example"]),
    )
    structure = _restore(header["structure"], structures.REGISTRY, "structure", tensors)
    curvature = structure.zero(plan.specs, network.space, network.state_dtype, network.device)
    curvature = curvature.with_tensors(_part(tensors, "curvature"))
    fit_likelihood = _restore(header["fit_likelihood"], likelihoods.REGISTRY, "likelihood", tensors)
    statistics = _part(tensors, "statistics")
    fit = Fit(curvature, fit_likelihood, statistics, header["num_data"], plan, network, header["kind"])
    likelihood: Likelihood = _restore(header["likelihood"], likelihoods.REGISTRY, "likelihood", tensors)
    prior: Prior = lookup("prior", header["prior"], priors.REGISTRY)(tensors["prior.precision"])
    return Gaussian(network, fit, likelihood, prior, header["temperature"])


def _block(b: Mapping[str, Any], number: int, tensors: Mapping[str, Tensor]) -> BlockSpec:
    kept = tensors.get(f"kept.{number}")
    positions = tensors[f"positions.{number}"].long()
    return BlockSpec(tuple(b["names"]), b["kind"], positions, b["has_bias"], None if kept is None else kept.long())


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    metadata, tensors = read_tensors(path)
    if HEADER not in metadata:
        raise ValueError(f"{str(path)!r} is a safetensors file, but not a posterior written by osc.save.")
    try:
        header = json.loads(metadata[HEADER])
        version = header["format"]
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"the header of {str(path)!r} is damaged ({error}). Fit it again.") from error
    if version != FORMAT:
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
    raise TypeError(f"{type(thing).__name__} is not one of {', '.join(registry)}, so a file could not say what it is.")


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
    values = {
        name: tensors[value["tensor"]] if isinstance(value, dict) else value
        for name, value in description["fields"].items()
    }
    return lookup(kind, description["name"], registry)(**values)
