"""The methods of ``osculate train --method``: what each makes, and the network that it trains where none is named."""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import nn

from osculate import structures
from osculate.autoencoders import AUTOENCODERS, ELBO, LaplacianAutoencoder, Representation
from osculate.cli.checkpoint import ALIASES, Card
from osculate.cli.options import naming
from osculate.data import Dataset
from osculate.likelihoods import Likelihood
from osculate.methods import MAP, MCDropout, OnlineLaplace
from osculate.methods._base import Method
from osculate.posteriors import Dropout, Gaussian, Point, Posterior
from osculate.registry import choose, lookup

#: Temperature at which networks are drawn while an autoencoder trains. With a noise of 0.2 it puts the networks where
#: those of the published code are: the squared noise times it is 1/500. [miani2022]
COLD = 0.05
#: Share of the hidden units that dropout drops, as published. [miani2022]
DROPOUT = 0.2
#: What OnlineLaplace keeps of the curvature, where nothing is said.
STRUCTURE = "approx_diag"
#: What it can keep an average of.
STRUCTURES = tuple(name for name, kind in structures.REGISTRY.items() if kind().averages)


def _online(model: nn.Module, likelihood: Likelihood, prior: float, how: "MethodOptions", cold: bool) -> Method:
    temperature = how.temperature or (COLD if cold else 1.0)
    return OnlineLaplace(model, likelihood, prior, structure=how.structure or STRUCTURE, temperature=temperature)


#: Each makes a method of a network, its likelihood, the precision of the prior, and the options.
METHODS: Mapping[str, Callable[[Any, Likelihood, float, "MethodOptions", bool], Method]] = {
    "map": lambda model, likelihood, prior, how, cold: MAP(model, likelihood, prior),
    "online_laplace": _online,
    "vae": lambda model, likelihood, prior, how, cold: ELBO(model, likelihood, prior),
    "mc_dropout": lambda model, likelihood, prior, how, cold: MCDropout(model, likelihood, prior),
}


@naming(methods=METHODS, structures=STRUCTURES)
@dataclass(frozen=True)
class MethodOptions:
    """How to train it.

    Args:
        method: one of {methods}. Posteriors of online_laplace and mc_dropout are saved; fit makes one after map.
        latent: numbers in the code of a built-in autoencoder, 2 by default.
        structure: of the curvature of online_laplace: one of {structures}; approx_diag by default.
        temperature: of online_laplace. By default 1, for autoencoders 0.05 while training and chosen on the
            validation part after it.
    """

    method: str = "map"
    latent: int | None = None
    structure: str | None = None
    temperature: float | None = None


def network_name(model: str, how: MethodOptions, shape: tuple[int, ...], has_targets: bool) -> str:
    """The network to train: the one that is named, else what fits the method and the data.

    Raises:
        ValueError: options that the method or the network does not take.
    """
    lookup("method", how.method, METHODS)
    name = _fitting(how.method, shape, has_targets) if model == "auto" else model
    built_in = is_autoencoder(name)
    if how.method == "vae" and not built_in and ":" not in name:
        raise ValueError(
            f"--method vae trains an autoencoder, and --model {name} is none: take {' or '.join(AUTOENCODERS)}, or "
            "leave --model out."
        )
    require_targets(name, has_targets)
    if how.latent is not None and not built_in:
        raise ValueError(
            f"--latent is for the built-in autoencoders, and --model {name} is none: take {' or '.join(AUTOENCODERS)}, "
            "or leave --latent out."
        )
    for option, value in {"--structure": how.structure, "--temperature": how.temperature}.items():
        if value is not None and how.method != "online_laplace":
            raise ValueError(
                f"{option} {value} is for --method online_laplace, and the method is {how.method}: leave it out."
            )
    if how.structure is not None:
        choose("structure of online_laplace", how.structure, STRUCTURES)
    if how.temperature is not None and not (math.isfinite(how.temperature) and how.temperature > 0):
        raise ValueError(f"--temperature is {how.temperature}: it must be positive and finite.")
    return name


def require_targets(name: str, has_targets: bool) -> None:
    """Refuse a built-in network that learns from targets where there are none.

    Raises:
        ValueError: such a network.
    """
    if not has_targets and not is_autoencoder(name) and ":" not in name:
        raise ValueError(
            f"--model {name} learns from targets, and the data hold no y: add it to the file, or take "
            f"{' or '.join(AUTOENCODERS)}, which learn from X alone."
        )


def is_autoencoder(name: str) -> bool:
    """Whether a built-in network is one."""
    return ALIASES.get(name, name) in AUTOENCODERS


def network_options(name: str, given: Mapping[str, Any], how: MethodOptions) -> dict[str, Any]:
    """Keyword arguments of the network, with those that follow from the method."""
    if not is_autoencoder(name):
        return dict(given)
    follows: dict[str, Any] = {} if how.latent is None else {"latent": how.latent}
    if how.method == "vae":
        follows["variational"] = True
    if how.method == "mc_dropout":
        follows["dropout"] = DROPOUT
    return {**follows, **given}


def method_of(model: nn.Module, card: Card, prior: float, how: MethodOptions) -> Method:
    """The method, ready to train a network."""
    return METHODS[how.method](model, card.likelihood, prior, how, card.reconstructs)


def finished(q: Posterior, card: Card, how: MethodOptions, dataset: Dataset, progress: bool) -> Posterior:
    """The posterior with the noise of the card, at the temperature that the options say."""
    if isinstance(q, Point):
        return Point(q.model, card.likelihood)
    if isinstance(q, Dropout):
        return Dropout(q.model, card.likelihood)
    assert isinstance(q, Gaussian)
    q = q.replace(likelihood=card.likelihood)
    if not card.reconstructs or how.temperature is not None:
        return q
    if not len(dataset.validation[0]):
        warnings.warn(
            f"no data are held out to choose the temperature, which stays {float(q.temperature):.3g}: give more data, "
            "--validation-size or --temperature.",
            stacklevel=2,
        )
        return q
    return LaplacianAutoencoder.tuned(q, dataset.validation[0].to(q.network.device), progress=progress).posterior


def represented(q: Posterior, codes: Any = None) -> Representation:
    """The view of a posterior over an autoencoder that the tasks take.

    Args:
        q: the posterior.
        codes: training inputs, by whose codes new images are drawn.
    """
    return LaplacianAutoencoder(q, codes) if isinstance(q, Gaussian) else Representation(q, codes)


def _fitting(method: str, shape: tuple[int, ...], has_targets: bool) -> str:
    if method == "vae" or not has_targets or (len(shape) == 3 and method != "map"):
        return "mlp_autoencoder"
    if len(shape) == 3 and shape[1] == shape[2]:
        return "lenet" if shape[1] == 28 else "cnn"
    return "mlp"
