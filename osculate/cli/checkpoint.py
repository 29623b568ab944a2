"""A trained network on disk: its weights as safetensors, and a card to rebuild and use it."""

import importlib
import inspect
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from osculate import autoencoders, networks
from osculate.autoencoders import build as build_autoencoder
from osculate.cli.codes import PIXELS
from osculate.cli.options import DataOptions, plain
from osculate.data import Dataset, OwnData, Scaling, Schema
from osculate.data.catalogue import CATALOGUE, Files
from osculate.data.own.array_inputs import FIRST, ArrayInputs
from osculate.data.own.arrays import TARGET
from osculate.data.own.content import listed
from osculate.data.own.targets import Targets
from osculate.likelihoods import Categorical, Gaussian, Likelihood
from osculate.methods import Method
from osculate.networks import WithPrior, build
from osculate.registry import choose
from osculate.schema import many, mapping, positive, require, require_header, text, whole
from osculate.tensorfiles import header_of, network_tensors, read_tensors, write_tensors

#: Version of the card; other versions raise an error.
FORMAT = 1
HEADER = "osculate_model"
MODEL = "model.safetensors"
#: Networks by the names of --model; an autoencoder reconstructs its inputs and has an encoder and a decoder.
MODELS = (*(name for name in networks.REGISTRY if name != "autoencoder"), *autoencoders.REGISTRY)
#: Aliases of these names.
ALIASES = {"autoencoder": "conv_autoencoder"}

#: What a card has.
CARD = {
    "model": text,
    "options": mapping(),
    "input_shape": many(whole(1)),
    "outputs": whole(),
    "noise": lambda value: value is None or positive(value),
    "data": mapping(),
    "facts": mapping(),
}


@dataclass(frozen=True)
class Card:
    """The information needed to use a network's weights.

    Args:
        model: Name of a built-in network, or ``package.module:factory`` of the user's own.
        options: Keyword arguments of its constructor.
        input_shape: Shape of one input.
        outputs: Number of outputs C.
        noise: Noise scale of a Gaussian likelihood, in standardised units; None for classes.
        data: The data options of the training.
        facts: Names of the classes, the schema of the user's own data, how inputs and targets were standardised,
            whether the targets were the inputs, and the method of osculate train whose posterior lies beside it.
    """

    model: str
    options: dict[str, Any]
    input_shape: tuple[int, ...]
    outputs: int
    noise: float | None
    data: dict[str, Any]
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def likelihood(self) -> Likelihood:
        """p(y|f) of the training."""
        if self.reconstructs and "likelihood" in self.facts:
            return PIXELS[choose("likelihood of pixels", self.facts["likelihood"], PIXELS)](self.noise)
        return Categorical() if self.noise is None else Gaussian(self.noise)

    @property
    def classes(self) -> tuple[str, ...] | None:
        """Names of the classes, or None for regression."""
        names = self.facts.get("classes")
        return None if names is None else tuple(names)

    def trained_by(self, method: type[Method]) -> "Card":
        """The card after training, which marks networks with a fixed random prior network."""
        return replace(self, facts={**self.facts, "method": method.name, "with_prior": method.adds_prior_network})

    @property
    def method(self) -> str:
        """The method of osculate train that made the posterior in the same folder, or "" if fit made it."""
        return str(self.facts.get("method", ""))

    def fitted(self, network: str) -> "Card":
        """The card of a network with a posterior of fit in the same folder.

        Args:
            network: Name of the network in tables.
        """
        facts = {name: fact for name, fact in self.facts.items() if name != "method"}
        return replace(self, facts={**facts, "network": self.facts.get("network", network)})

    @property
    def fitted_around(self) -> str:
        """The name in tables of the network at the mode of a posterior of fit, or ""."""
        return str(self.facts.get("network", ""))

    @property
    def reconstructs(self) -> bool:
        """True for an autoencoder, whose targets are its inputs."""
        return bool(self.facts.get("reconstructs"))

    def scaling(self, which: str) -> Scaling | None:
        """The standardisation of "input" or "target", or None."""
        numbers = self.facts.get(f"{'input' if self.reconstructs else which}_scaling")
        return None if numbers is None else Scaling(torch.tensor(numbers["mean"]), torch.tensor(numbers["scale"]))

    def of(self, dataset: Dataset) -> Dataset:
        """The data set with the targets of this network: its inputs, for an autoencoder.

        Raises:
            ValueError: the network is not an autoencoder, and the data have no targets.
        """
        if self.reconstructs:
            return dataset.reconstructing()
        if not dataset.has_targets:
            raise ValueError(
                f"{dataset.name!r} has no targets y, which {self.model} needs for training and evaluation: add them, "
                "or train one of " + ", ".join(autoencoders.REGISTRY) + ", which learn from X alone."
            )
        return dataset

    def require_shape(self, shape: tuple[int, ...], source: object) -> None:
        """Raise ValueError if inputs of this shape, from this file or data set, do not fit the network."""
        if shape != self.input_shape:
            raise ValueError(
                f"the inputs in {str(source)!r} have shape {shape} each, but the network takes {self.input_shape}: "
                "reshape them, or name data like those of the training."
            )

    def require_known_shape(self, data: DataOptions) -> None:
        """Raise ValueError, before any download, for a data set whose shape is known and does not fit the network."""
        known = None if data.data is None else CATALOGUE.get(data.data, Files()).shape
        if known is not None:
            self.require_shape(known, data.data)

    def loaded(self, data: DataOptions) -> Dataset:
        """Read a data set whose inputs fit the network; where their shape is known, before any download.

        Raises:
            ValueError: the shape does not fit, or there are other numbers of outputs.
        """
        self.require_known_shape(data)
        dataset = data.load(self.schema, self.data_options())
        self.require_shape(tuple(dataset.input_shape), dataset.name)
        classes = dataset.classes is None, self.classes is None
        if (
            dataset.has_targets
            and not self.reconstructs
            and (dataset.outputs, classes[0]) != (self.outputs, classes[1])
        ):
            kinds = [
                f"{number} {'real values' if real else 'classes'}"
                for number, real in ((dataset.outputs, classes[0]), (self.outputs, classes[1]))
            ]
            raise ValueError(
                f"{dataset.name!r} has {kinds[0]}, but the network was trained for {kinds[1]}: name data like those of "
                "the training."
            )
        return dataset

    @property
    def schema(self) -> Schema:
        """The schema of the training data, which reads other data for this network."""
        if (known := self.facts.get("schema")) is not None:
            return Schema.from_content(known)
        x, y = (_numbers(self.scaling(which)) for which in ("input", "target"))
        mean, scale = x or ((), ())
        inputs = ArrayInputs(self.input_shape, FIRST if len(self.input_shape) == 3 else "", False, mean, scale)
        return Schema(inputs, None if self.reconstructs else Targets((TARGET,), self.classes, *y))

    @property
    def own(self) -> str:
        """The option that the next command needs for the user's own network, or nothing."""
        return f" --model {self.model}" if ":" in self.model else ""

    def data_options(self) -> DataOptions:
        """The data options of the training."""
        known = dict(self.data)
        folder = known.pop("data_folder", None)
        return DataOptions(**known, data_folder=None if folder is None else Path(folder))

    def network(self, allowed: str | None = None) -> nn.Module:
        """Build the network, in evaluation mode.

        Args:
            allowed: The factory that the user has named: a file must not run code without the user's consent.

        Raises:
            ValueError: the user has not named the factory in the card, or the options do not fit.
        """
        name = allowed or self.model
        if allowed is None and ":" in self.model:
            raise ValueError(
                f"the network is made by {self.model}: pass --model {self.model} to allow this code to run."
            )
        network = build_network(name, self.input_shape, self.outputs, self.options)
        if self.facts.get("with_prior"):
            network = WithPrior(network, build_network(name, self.input_shape, self.outputs, self.options))
        return network.eval()


def schema_of(dataset: Dataset) -> Schema | None:
    """The schema of the user's own data; None for a named data set."""
    return dataset.schema if isinstance(dataset, OwnData) else None


def _numbers(scaling: Scaling | None) -> tuple[tuple[float, ...], ...]:
    """Mean and standard deviation as plain numbers."""
    return () if scaling is None else (tuple(scaling.mean.tolist()), tuple(scaling.scale.tolist()))


def card_of(
    dataset: Dataset,
    data: DataOptions,
    model: str,
    options: Mapping[str, Any],
    noise: float | None,
    reconstructs: bool = False,
) -> Card:
    """The card of a network for a data set."""
    scalings = {"input_scaling": dataset.input_scaling, "target_scaling": dataset.target_scaling}
    facts = {
        "classes": dataset.classes,
        **{name: s and {"mean": s.mean.tolist(), "scale": s.scale.tolist()} for name, s in scalings.items()},
        "reconstructs": reconstructs,
        **({"schema": schema.content()} if (schema := schema_of(dataset)) else {}),
    }
    shape, outputs = tuple(dataset.input_shape), dataset.outputs
    return Card(model, dict(options), shape, outputs, noise, plain(asdict(data)), plain(facts))


def build_network(name: str, input_shape: tuple[int, ...], outputs: int, options: Mapping[str, Any]) -> nn.Module:
    """A built-in network by name, or the user's own by ``package.module:factory``.

    A factory is called with the arguments that it takes among ``input_shape``, ``outputs`` and the options.

    Raises:
        ValueError: the name is unknown, the network does not take the options, or the factory does not exist.
        TypeError: the factory does not return a module.
    """
    if ":" not in name:
        known = choose("network", ALIASES.get(name, name), (*MODELS, *ALIASES))
        try:
            if known in autoencoders.REGISTRY:
                return build_autoencoder(known, input_shape, **options)
            return build(known, input_shape, outputs, **options)
        except TypeError as error:
            made = {**networks.REGISTRY, **autoencoders.REGISTRY}[known]
            taken = list(inspect.signature(getattr(made, "__self__", made)).parameters)
            raise ValueError(
                f"the network {name!r} does not take the options {dict(options)} ({error}); its constructor has "
                f"{', '.join(taken)}."
            ) from None
    factory = _factory(name)
    accepted = inspect.signature(factory).parameters
    offered = {"input_shape": input_shape, "outputs": outputs}
    arguments = {**{key: value for key, value in offered.items() if key in accepted}, **options}
    try:
        inspect.signature(factory).bind(**arguments)
    except TypeError as error:
        raise ValueError(
            f"--model {name}: {error}. It is called with {listed(list(arguments))}: give it those that it takes, as in "
            "--model-options.width 32."
        ) from None
    network = factory(**arguments)
    if not isinstance(network, nn.Module):
        raise TypeError(f"{name} returned a {type(network).__name__}, not a torch.nn.Module.")
    return network


def _factory(name: str) -> Any:
    module_name, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:  # a console script does not have the current folder in its path
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        if module_name.endswith(".py"):
            typed = f"{module_name.removesuffix('.py').replace('/', '.')}:{attribute}"
            raise ValueError(f"--model {name} names a file, but takes a module: pass --model {typed}.") from error
        raise ValueError(
            f"--model {name}: the module {module_name!r} cannot be imported ({error}). Name it as "
            f"package.module:factory, relative to the current folder, or use one of {', '.join(MODELS)}."
        ) from error
    if isinstance(getattr(module, attribute, None), nn.Module):
        raise ValueError(
            f"--model {name} is a network, but must be a function that makes one: the weights come from training or "
            f"from a checkpoint. Write def make(): return …, and pass --model {module_name}:make."
        )
    if not callable(getattr(module, attribute, None)):
        known = [key for key, value in vars(module).items() if callable(value) and not key.startswith("_")]
        raise ValueError(f"--model {name}: {module_name!r} has no callable {attribute!r}; it has {', '.join(known)}.")
    return getattr(module, attribute)


def save_model(path: Path, model: nn.Module, card: Card) -> None:
    """Write weights and card atomically to one safetensors file."""
    write_tensors(path, network_tensors(model), HEADER, {"format": FORMAT, **plain(asdict(card))})


def read_model(path: Path) -> tuple[dict[str, Tensor], Card | None]:
    """Weights and card; the card is None in a safetensors file that osculate did not write.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file is not a safetensors file, or its card has another version or is damaged.
    """
    try:
        metadata, tensors = read_tensors(path)
    except ValueError as error:
        raise ValueError(
            f"{error} Other formats can execute code when they are read; write a state dict with "
            "safetensors.torch.save_file(model.state_dict(), path)."
        ) from error
    if HEADER not in metadata:
        return tensors, None
    content = header_of(path, metadata, HEADER)
    found = content.pop("format", None)
    if found == FORMAT:
        require_header(path, content, CARD)
        unknown = set(content) - {each.name for each in fields(Card)}
        require(not unknown, path, f"its header has {', '.join(sorted(unknown))}")
        return tensors, Card(**{**content, "input_shape": tuple(content["input_shape"])})
    raise ValueError(
        f"{str(path)!r} has format {found}, this version of osculate reads format {FORMAT}. Train it again, or use the "
        "version that wrote it."
    )
