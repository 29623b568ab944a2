"""The methods of ``osculate train``, with their hyperparameters and training settings as options."""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from torch import nn

from osculate import methods
from osculate.autoencoders import CODE_PRIORS, ELBO, ESTIMATORS
from osculate.cli.checkpoint import Card
from osculate.cli.codes import PIXELS, CodeOptions
from osculate.cli.options import naming
from osculate.methods import Method
from osculate.methods._base import FAN_IN
from osculate.priors import Layerwise, fan_in
from osculate.registry import lookup
from osculate.training import Settings
from osculate.training.settings import AUTO, OPTIMIZERS, SCHEDULES

T = TypeVar("T")

#: The methods that train a network from fresh weights, by name.
METHODS: Mapping[str, type[Method]] = {
    **{name: kind for name, kind in methods.REGISTRY.items() if not kind.needs_trained_network},
    ELBO.name: ELBO,
}
#: Name of the prior with one precision for each parameter tensor, from which methods that learn the precisions start.
LAYERWISE = "layerwise"
#: The options of all methods by name, and the type of each.
OPTIONS = {name: option.kind for kind in METHODS.values() for name, option in kind.options.items()}


def rows(method: str) -> tuple[str, str]:
    """Names in tables of the network in model.safetensors and of the posterior in the same folder.

    Args:
        method: Method of the posterior; "" if ``osculate fit`` made it.

    >>> rows(""), rows("ivon")
    (('MAP', 'Laplace'), ('its mean', 'ivon'))
    """
    if method not in METHODS:
        return "MAP", "Laplace"
    return METHODS[method].network_name, METHODS[method].posterior_name or method


def methods_with(attribute: str) -> tuple[str, ...]:
    """The methods whose class has an attribute that is not empty, zero or False."""
    return tuple(name for name, kind in METHODS.items() if getattr(kind, attribute))


def taking(option: str) -> tuple[str, ...]:
    """The methods that have an option."""
    return tuple(name for name, kind in METHODS.items() if option in kind.options)


def _help(name: str) -> str:
    """The help of an option, with its methods and their defaults."""
    by_words: dict[str, dict[str, list[str]]] = {}
    for method in taking(name):
        option = METHODS[method].options[name]
        words, _, default = option.words.removesuffix(")").partition(" (by default ")
        if option.default is not None:
            values = dict.fromkeys(METHODS[method].defaults(1, real_valued)[name] for real_valued in (False, True))
            default = ", for real values ".join(map(str, values))
        by_words.setdefault(words, {}).setdefault(default and f"by default {default} ", []).append(method)
    texts = {
        words: "; ".join(f"{default}with {', '.join(of)}" for default, of in by_default.items())
        for words, by_default in by_words.items()
    }
    whole = "; ".join(f"{words}; {defaults}" for words, defaults in texts.items())
    return whole[:1].upper() + whole[1:]


def require_distinct_options(kinds: Mapping[str, type[Method]], taken: Container[str]) -> None:
    """Raise ValueError if an option of a method has a taken name, or another type than that of another method.

    Args:
        kinds: Methods by name.
        taken: Names of the other options of the command.
    """
    first: dict[str, tuple[str, type]] = {}
    for method, kind in kinds.items():
        for name, option in kind.options.items():
            if name in taken:
                raise ValueError(
                    f"the option {name!r} of the method {method!r} has the name of an option of osculate train: rename "
                    "it."
                )
            other, same = first.setdefault(name, (method, option.kind))
            if option.kind is not same:
                raise ValueError(
                    f"the option {name!r} is of type {same.__name__} in the method {other!r}, but "
                    f"{option.kind.__name__} in {method!r}: use one type, or another name."
                )


def _with_options_of_methods(part: type[T]) -> type[T]:
    """Decorate a part by adding a field for each option of a method."""
    require_distinct_options(METHODS, part.__annotations__)
    for name, kind in OPTIONS.items():
        part.__annotations__[name] = kind | None
        setattr(part, name, None)
    return part


@naming(
    methods=METHODS,
    pixels=PIXELS,
    priors=CODE_PRIORS,
    estimators=ESTIMATORS,
    options=["\n        ".join(f"{name}: {_help(name)}." for name in OPTIONS)],
)
@dataclass(frozen=True)
@_with_options_of_methods
class MethodOptions:
    """The method and its options.

    Args:
        method: Name of the method, {methods}; by default map, after which fit makes the posterior.
        latent: Length of the code of a built-in autoencoder; by default 2.
        codes: Options of vae: likelihood of pixels ({pixels}), prior of codes ({priors}), estimator of the bound
            ({estimators}), samples of each image, warmup of the divergence in epochs, masked share of the input pixels,
            and its fading (constant, linear, cosine, step). By default gaussian, normal, one sample, nothing masked.
        {options}
    """

    method: str = "map"
    latent: int | None = None
    codes: dict[str, Any] | None = None

    @classmethod
    def hides(cls, method: str | None) -> tuple[str, ...]:
        """Options of other methods than this one (by default map), which the help leaves out."""
        shown = cls() if method is None else cls(method)
        own = {*shown.kind.options, *(["codes"] if shown.has_codes else [])}
        return tuple(name for name in (*OPTIONS, "codes") if name not in own)

    @property
    def coded(self) -> CodeOptions:
        """The options of a VAE."""
        return CodeOptions.named(self.codes)

    @property
    def has_codes(self) -> bool:
        """True for the method that trains a VAE, whose options are those of :class:`CodeOptions`."""
        return issubclass(self.kind, ELBO)

    @property
    def kind(self) -> type[Method]:
        """The class of the method.

        Raises:
            ValueError: the method is unknown.
        """
        return lookup("method", self.method, METHODS)

    @property
    def options(self) -> dict[str, Any]:
        """The options of the methods that are set, by name."""
        return {name: value for name in OPTIONS if (value := getattr(self, name)) is not None}

    def chooses_temperature(self, card: Card) -> bool:
        """Return True if the method trains at a temperature of its own, before held-out data choose that of the result.

        Args:
            card: Card of the network.
        """
        chosen = bool(self.kind.training_temperatures) and "temperature" not in self.options
        return chosen and (card.reconstructs or card.classes is not None)

    def check(self) -> None:
        """Raise ValueError if the method is unknown or does not have some option."""
        lookup("method", self.method, METHODS)
        codes = {} if self.codes is None else {"codes": self.codes}
        for name, value in {**self.options, **codes}.items():
            known = (ELBO.name,) if name == "codes" else taking(name)
            if self.method not in known:
                raise ValueError(
                    f"--{name} {value} is for --method {' or '.join(known)}, but the method is {self.method}: leave it "
                    "out."
                )

    def resolved(
        self, epochs: int, real_valued: bool = False, before: Mapping[str, Any] | None = None
    ) -> "MethodOptions":
        """The options with the method's defaults for those that are not set.

        Args:
            epochs: Epochs of the training.
            real_valued: True if the targets are real values.
            before: Options of the run to resume, which override defaults that depend on the run.
        """
        before = before or {}
        found = self.kind.defaults(before.get("epochs") or epochs, real_valued)
        for name, option in self.kind.options.items():
            if option.default is None and before.get(name) is not None:
                found[name] = before[name]
        return replace(self, **{**found, **self.options})

    def make(self, network: Callable[[int], nn.Module], card: Card, prior: float | str) -> Method:
        """The method, ready to train.

        Args:
            network: Function that makes network number n.
            card: Card of the networks, with the likelihood.
            prior: Precision, "fan_in" or "layerwise".

        Raises:
            ValueError: the prior is unknown.
        """
        if isinstance(prior, str) and prior not in (FAN_IN, LAYERWISE):
            raise ValueError(
                f"--prior {prior!r} is neither a number, which is a precision, nor {FAN_IN} or {LAYERWISE}."
            )
        chosen = Layerwise(1.0) if prior == LAYERWISE else prior
        if self.has_codes:
            model = network(0)
            return self.coded.method(model, card.likelihood, fan_in(model) if isinstance(chosen, str) else chosen)
        options = self.options
        if self.chooses_temperature(card):
            options["temperature"] = self.kind.training_temperatures[card.reconstructs]
        return self.kind.build(network, card.likelihood, chosen, **options)


_USUAL = Settings()
#: Default number of training steps, and largest default number of epochs. On digits, two classes and a regression with
#: a few hundred data each, no method converges in 200 steps, and all do in 2,000.
STEPS, LONGEST = 2000, 500
#: Number of data below which batches are smaller, and their size, at most a quarter of the data.
FEW, SMALL = 5000, 32
#: Default largest number of rounds of training.
ROUNDS = 3


def _by_default(setting: str) -> str:
    """The usual default, and the defaults of methods that need another."""
    of = {name: {**kind.usual, **kind.recommended} for name, kind in METHODS.items()}
    others = [f"{settings[setting]} ({name})" for name, settings in of.items() if setting in settings]
    return ", ".join([str(getattr(_USUAL, setting)), *others])


@naming(
    optimizers=OPTIMIZERS,
    schedules=SCHEDULES,
    plain=methods_with("has_plain_steps"),
    **{f"{name}_default": [_by_default(name)] for name in ("epochs", "lr", "optimizer", "schedule")},
)
@dataclass(frozen=True)
class SettingOptions:
    """The settings of training.

    Args:
        epochs: Largest number of passes over the data; with hmc, transitions of each chain. By default
            {epochs_default}, and up to 500 until there are 2,000 steps.
        batch_size: Number of data of a step; by default 128, with fewer than 5,000 data 32.
        lr: Largest learning rate, or auto, which tries some; by default auto with {plain}; else {lr_default}.
        optimizer: Name of the optimiser, {optimizers}; by default {optimizer_default}.
        schedule: Schedule of the learning rate, {schedules}; by default {schedule_default}.
        patience: Number of epochs without a better validation NLL after which training stops; by default it does not.
        rounds: Largest number of rounds, each of so many epochs, while the validation loss falls; by default 3 for
            methods with --lr auto, but 1 with --epochs or --patience.
    """

    epochs: int | None = None
    batch_size: int | None = None
    lr: float | str | None = None
    optimizer: str | None = None
    schedule: str | None = None
    patience: int | None = None
    rounds: int | None = None

    def most_rounds(self, method: MethodOptions, num_held_out: int) -> int:
        """The largest number of rounds."""
        free = method.kind.has_plain_steps and self.epochs is None and self.patience is None and num_held_out > 0
        return (ROUNDS if free else 1) if self.rounds is None else self.rounds

    def settings(
        self, method: MethodOptions, seed: int, noise: float | None = None, num_data: int | None = None
    ) -> Settings:
        """The settings, with the method's defaults for those that are not set.

        Args:
            method: The method.
            seed: Seed of the training.
            noise: Noise scale of a Gaussian likelihood, with whose inverse square gradients grow.
            num_data: N; small data sets get smaller batches and more epochs.

        Raises:
            ValueError: a setting is incompatible with the method, or a value is out of range.
        """
        needed = {**method.kind.usual, **method.kind.recommended}
        if method.kind.has_plain_steps:
            needed.setdefault("lr", AUTO)
        named = {name: value for name, value in vars(self).items() if value is not None and name != "rounds"}
        for name, why in method.kind.refused.items():
            if name in named and named[name] != needed.get(name):
                option = f"--{name.replace('_', '-')} {named[name]}"
                raise ValueError(f"{option} does not go with --method {method.method}, which {why}: leave it out.")
        if num_data is not None and "batch_size" not in method.kind.refused:
            needed = {**_by_size(num_data, self.batch_size), **needed}
        if noise is not None and needed.get("optimizer") == "sgd":
            needed["lr"] *= noise**2
        return _USUAL.changed(**{**needed, **named}, seed=seed)

    @classmethod
    def of(cls, settings: Settings, method: MethodOptions, rounds: int | None = None) -> "SettingOptions":
        """The options that reproduce these settings, and this number of rounds, independently of defaults."""
        kept = [f.name for f in fields(cls) if f.name != "rounds" and _applies(f.name, method)]
        return cls(**{name: getattr(settings, name) for name in kept}, rounds=rounds)


def _by_size(num_data: int, batch_size: int | None) -> dict[str, int]:
    """Default batch size and number of epochs for a number of data.

    >>> _by_size(1078, None), _by_size(60_000, None)
    ({'batch_size': 32, 'epochs': 59}, {'batch_size': 128, 'epochs': 20})
    """
    usual = _USUAL.batch_size if num_data >= FEW else max(1, min(SMALL, num_data // 4))
    each = -(-num_data // (usual if batch_size is None else max(1, batch_size)))
    return {"batch_size": usual, "epochs": max(_USUAL.epochs, min(LONGEST, -(-STEPS // max(1, each))))}


def _applies(name: str, method: MethodOptions) -> bool:
    return name not in method.kind.refused or name in {**method.kind.usual, **method.kind.recommended}


def summary(settings: Settings, method: MethodOptions) -> str:
    """The settings of a training in one line.

    >>> summary(Settings(epochs=3), MethodOptions("map"))
    'map: epochs 3, batch size 128, lr 0.001, optimizer adam, schedule cosine'
    """
    shown: dict[str, Any] = {
        name.replace("_", " "): f"{value:.3g}" if isinstance(value := getattr(settings, name), float) else value
        for name in ("epochs", "batch_size", "lr", "optimizer", "schedule")
        if _applies(name, method)
    }
    shown |= method.options
    return f"{method.method}: " + ", ".join(f"{name} {value}" for name, value in shown.items())
