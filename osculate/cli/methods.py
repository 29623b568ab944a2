"""The methods of ``osculate train --method``: how each is made, and what it needs of settings and options."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch import nn

from osculate import structures
from osculate.autoencoders import CODE_PRIORS, ESTIMATORS
from osculate.cli.checkpoint import Card
from osculate.cli.codes import PIXELS, CodeOptions
from osculate.cli.options import naming
from osculate.likelihoods import Likelihood
from osculate.methods import (
    HMC,
    IVON,
    L2M,
    MAP,
    SWAG,
    VOGN,
    DeepEnsemble,
    MCDropout,
    MeanFieldVI,
    OnlineLaplace,
    RandomizedPriors,
    VariationalLaplace,
)
from osculate.methods._base import Method
from osculate.networks import WithPrior
from osculate.priors import Prior, fan_in
from osculate.registry import choose, lookup

#: Temperature at which networks are drawn while an autoencoder trains. With a noise of 0.2 it puts the networks where
#: those of the published code are: the squared noise times it is 1/500. [miani2022]
COLD = 0.05
#: What OnlineLaplace keeps of the curvature, where nothing is said.
STRUCTURE = "approx_diag"
#: What it can keep an average of.
STRUCTURES = tuple(name for name, kind in structures.REGISTRY.items() if kind().averages)
#: Members of an ensemble, where nothing is said.
MEMBERS = 5
#: Temperature of variational methods and of L2M, where nothing is said: for classes, and for real values. Measured on
#: digits, two classes, and two regressions; decision 0023 has the numbers.
TEMPERATURES, NATURAL_TEMPERATURES = (0.1, 0.1), (0.1, 1.0)
#: Transitions of a chain before its first draw, at most: a third of a short run.
WARMUP = 500
#: The prior by its name, where a number is a precision.
FAN_IN = "fan_in"


@dataclass(frozen=True)
class Parts:
    """What a method is made of.

    Args:
        networks: one, or as many as the recipe asks for, each with initial weights of its own.
        card: with the likelihood.
        prior: a precision, or "fan_in".
        how: the options of the method.
        epochs: of the training.
    """

    networks: Sequence[nn.Module]
    card: Card
    prior: float | str
    how: "MethodOptions"
    epochs: int

    @property
    def model(self) -> Any:
        """The one network."""
        return self.networks[0]

    @property
    def likelihood(self) -> Likelihood:
        """p(y|f)."""
        return self.card.likelihood

    @property
    def usual(self) -> tuple[Any, Likelihood, float | Prior]:
        """Network, likelihood and prior, with which most methods begin."""
        return self.model, self.likelihood, self.prior_over(self.model)

    @property
    def bound(self) -> tuple[Any, Likelihood, float | str, float]:
        """The same with the temperature, of methods that know the prior by its name."""
        return self.model, self.likelihood, self.prior, self.how.tempered(self.card.noise is not None) or 1.0

    def prior_over(self, model: nn.Module) -> float | Prior:
        """The precision, or the prior over the trained parameters of a network."""
        return fan_in(model) if isinstance(self.prior, str) else float(self.prior)


@dataclass(frozen=True)
class Recipe:
    """How a method is made, and what it needs.

    Args:
        make: makes it of its parts.
        options: the options of :class:`MethodOptions` that mean something to it, with what they are by default; None
            where that follows from the rest.
        settings: settings that it takes in place of the usual ones, where the user has not named others. A learning
            rate of SGD among them is for a likelihood whose curvature is about 1.
        refuses: settings that cannot be chosen, and why.
        networks: how many it takes, of the number of members.
        network: what the one in model.safetensors is, in tables.
    """

    make: Callable[[Parts], Method]
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    refuses: Mapping[str, str] = field(default_factory=dict)
    networks: Callable[[int], int] = lambda members: 1
    network: str = "MAP"


def _online(parts: Parts) -> Method:
    temperature = parts.how.temperature or (COLD if parts.card.reconstructs else 1.0)
    return OnlineLaplace(*parts.usual, structure=parts.how.structure or STRUCTURE, temperature=temperature)


def _ensemble(parts: Parts) -> Method:
    return DeepEnsemble(parts.networks, parts.likelihood, parts.prior_over(parts.model))


def _randomized(parts: Parts) -> Method:
    half = len(parts.networks) // 2
    members, fixed = parts.networks[:half], parts.networks[half:]
    prior = parts.prior_over(WithPrior(members[0], fixed[0]))
    return RandomizedPriors(members, parts.likelihood, prior, prior_networks=fixed)


def _path(parts: Parts) -> Method:
    method = SWAG(*parts.usual)
    method.require_snapshots(parts.epochs)
    return method


def _chains(parts: Parts) -> Method:
    parts.model.eval()  # dropout and the like as the network predicts
    warmup = parts.how.resolved(parts.epochs).warmup
    assert warmup is not None
    return HMC(*parts.usual, warmup=warmup)


_OWN_STEPS = {"optimizer": "takes steps of its own"}
_ONE_PATH = {
    "schedule": "takes snapshots along a path whose steps must not shrink",
    "patience": "takes snapshots up to the end",
}
_ALL_DATA = dict.fromkeys(
    ("batch_size", "lr", "optimizer", "schedule", "patience"),
    "takes all data at once, with steps of its own",
)
_VARIATIONAL: dict[str, Any] = {
    "options": {"temperature": TEMPERATURES},
    "network": "its mean",
}
_NATURAL: dict[str, Any] = {
    **_VARIATIONAL,
    "options": {"temperature": NATURAL_TEMPERATURES},
    "settings": IVON.usual,
    "refuses": _OWN_STEPS,
}
_PATH: dict[str, Any] = {"settings": {"lr": 0.05, "optimizer": "sgd", "schedule": "constant"}, "refuses": _ONE_PATH}
_MEMBERS: dict[str, Any] = {"options": {"members": MEMBERS}, "network": "first member"}
_CHAINS: dict[str, Any] = {
    "options": {"warmup": None},
    "settings": {"epochs": 1500},
    "refuses": _ALL_DATA,
    "network": "one draw",
}

#: The methods by name.
METHODS: Mapping[str, Recipe] = {
    "map": Recipe(lambda parts: MAP(*parts.usual)),
    "online_laplace": Recipe(_online, {"structure": STRUCTURE, "temperature": (None, None)}),
    "vae": Recipe(lambda parts: parts.how.coded.method(*parts.usual), {"codes": None}),
    "mc_dropout": Recipe(lambda parts: MCDropout(*parts.usual), network="no unit dropped"),
    "variational_laplace": Recipe(lambda parts: VariationalLaplace(*parts.bound), **_VARIATIONAL),
    "mean_field_vi": Recipe(lambda parts: MeanFieldVI(*parts.bound), **_VARIATIONAL),
    "ivon": Recipe(lambda parts: IVON(*parts.bound), **_NATURAL),
    "vogn": Recipe(lambda parts: VOGN(*parts.bound), **_NATURAL),
    "l2m": Recipe(lambda parts: L2M(*parts.usual), {"temperature": TEMPERATURES}),
    "swag": Recipe(_path, **_PATH, network="its mean"),
    "deep_ensemble": Recipe(_ensemble, **_MEMBERS, networks=lambda members: members),
    "randomized_priors": Recipe(_randomized, **_MEMBERS, networks=lambda members: 2 * members),
    "hmc": Recipe(_chains, **_CHAINS),
}


def rows(method: str) -> tuple[str, str]:
    """What tables call the network in model.safetensors and the posterior beside it.

    Args:
        method: that of the posterior; "" where fit has made it.

    >>> rows(""), rows("ivon")
    (('MAP', 'Laplace'), ('its mean', 'ivon'))
    """
    if method not in METHODS or method == "online_laplace":
        return "MAP", "Laplace"
    return METHODS[method].network, method


def taking(option: str) -> tuple[str, ...]:
    """The methods to which an option means something."""
    return tuple(name for name, recipe in METHODS.items() if option in recipe.options)


@naming(
    methods=METHODS,
    structures=STRUCTURES,
    tempered=taking("temperature"),
    several=taking("members"),
    pixels=PIXELS,
    priors=CODE_PRIORS,
    estimators=ESTIMATORS,
)
@dataclass(frozen=True)
class MethodOptions:
    """How to train it.

    Args:
        method: one of {methods}. All but map and vae save a posterior; fit makes one after map.
        latent: numbers in the code of a built-in autoencoder, 2 by default.
        structure: of the curvature of online_laplace: one of {structures}; approx_diag by default.
        temperature: of the likelihood, which is the weight of the divergence from the prior: of {tempered}. Below 1 the
            posterior is narrower. By default 0.1, of ivon and vogn for real-valued targets 1; with online_laplace 1,
            and for autoencoders 0.05 while training and chosen on the validation part after it.
        members: networks of {several}, 5 by default, whose initial weights are drawn with seed, seed + 1, ….
        warmup: of hmc, transitions of each chain before its first draw; by default a third of the epochs, at most 500.
            A run that is resumed keeps its own, and more epochs add draws.
        codes: of vae, as in --codes.likelihood bernoulli: likelihood of pixels ({pixels}; bernoulli takes grey values
            as probabilities), prior of codes ({priors}), estimator of the bound ({estimators}), samples drawn for an
            image, warmup of the divergence in epochs, share of pixels masked in what is encoded, and how it is fading
            (constant, linear, cosine, step).
    """

    method: str = "map"
    latent: int | None = None
    structure: str | None = None
    temperature: float | None = None
    members: int | None = None
    warmup: int | None = None
    codes: dict[str, Any] | None = None

    @property
    def coded(self) -> CodeOptions:
        """The options of a VAE."""
        return CodeOptions.named(self.codes)

    @property
    def recipe(self) -> Recipe:
        """That of the method.

        Raises:
            ValueError: an unknown method.
        """
        return lookup("method", self.method, METHODS)

    def tempered(self, real_valued: bool) -> float | None:
        """The temperature, or what the method takes for such targets where nothing is said; None where it knows."""
        return self.temperature or self.recipe.options.get("temperature", (None, None))[real_valued]

    @property
    def networks(self) -> int:
        """How many it takes."""
        return self.recipe.networks(MEMBERS if self.members is None else self.members)

    def check(self) -> None:
        """Refuse options that do not go together.

        Raises:
            ValueError: such options.
        """
        for option in ("structure", "temperature", "members", "warmup", "codes"):
            value = getattr(self, option)
            if value is not None and option not in self.recipe.options:
                raise ValueError(
                    f"--{option} {value} is for --method {' or '.join(taking(option))}, and the method is "
                    f"{self.method}: leave it out."
                )
        if self.structure is not None:
            choose("structure of online_laplace", self.structure, STRUCTURES)
        if self.temperature is not None and not (math.isfinite(self.temperature) and self.temperature > 0):
            raise ValueError(f"--temperature is {self.temperature}: it must be positive and finite.")
        if self.members is not None and self.members < 2:
            raise ValueError(f"--members is {self.members}: an ensemble has at least two; for one take --method map.")

    def resolved(
        self, epochs: int, real_valued: bool = False, before: Mapping[str, Any] | None = None
    ) -> "MethodOptions":
        """The same with the warm-up of chains and the temperature of variational methods, where they are not named.

        Args:
            epochs: of the training.
            real_valued: whether the targets are.
            before: the options of the run that is resumed, whose warm-up is kept.
        """
        before = before or {}
        found = replace(self, temperature=self.tempered(real_valued))
        if "warmup" not in self.recipe.options or self.warmup is not None:
            return found
        kept = before.get("warmup")
        return replace(found, warmup=min(WARMUP, (before.get("epochs") or epochs) // 3) if kept is None else kept)


def method_of(parts: Parts) -> Method:
    """The method, ready to train.

    Raises:
        ValueError: an unknown prior.
    """
    if isinstance(parts.prior, str) and parts.prior != FAN_IN:
        raise ValueError(f"--prior {parts.prior!r} is neither a number, which is a precision, nor {FAN_IN}.")
    return parts.how.recipe.make(parts)
