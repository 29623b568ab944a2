"""Public names: each is defined in the folder that exports it, is exported once, and names one thing."""

import importlib
import inspect
import pkgutil
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from types import ModuleType
from typing import Any

import numpy
import pytest
from jaxtyping import Float
from torch import Tensor

import osculate
from osculate import registry
from osculate.batches import Data

#: The folders of the package, and the folders within them.
EVERY = sorted(module.name for module in pkgutil.walk_packages(osculate.__path__, "osculate.") if module.ispkg)
#: The folders that a user imports from.
FOLDERS = [name for name in EVERY if name.count(".") == 1 and name != "osculate.cli"]


#: A likelihood and a posterior: both are this density, and each folder names what it has.
SHARED = {"Gaussian"}


def public(folder: str) -> dict[str, object]:
    """The public names of a folder, whatever they stand for, without what the type checks of the tests put there."""
    names = vars(importlib.import_module(folder)).items()
    return {name: thing for name, thing in names if name[0] != "_" and name not in ("jaxtyping", "beartype")}


def home(thing: object) -> str:
    """The module in which a thing is defined; empty for values, which do not know it."""
    return thing.__name__ if isinstance(thing, ModuleType) else getattr(thing, "__module__", None) or ""


def strangers(names: dict[str, object], folder: str) -> dict[str, str]:
    """The names of a folder for what another module defines: classes, functions, modules and types of any library."""
    return {
        name: home(thing)
        for name, thing in names.items()
        if not f"{home(thing)}.".startswith(f"{folder}.")
        # a value, such as a registry, or the type of an argument, such as Link
        and not (isinstance(thing, dict | int | float | str | tuple) or name in TYPES.get(folder, ()))
    }


#: Types of arguments that a folder names: aliases of types of other libraries.
TYPES = {
    "osculate.curvature.rules": ("Pulled",),
    "osculate.likelihoods": ("Link",),
    "osculate.linalg": ("Product",),
}


@pytest.mark.parametrize("folder", EVERY)
def test_a_folder_exports_what_it_defines(folder: str) -> None:
    assert not strangers(public(folder), folder), f"names of others that show in {folder}: import them as _name"


#: Names that a folder of the package must not show: of other libraries, and of other folders.
FOREIGN = {
    "a library": numpy,
    "a type": Any,
    "an abstract type": Callable,
    "a function": partial,
    "a class": Tensor,
    "an array type": Float,
    "a module": registry,
    "a union": Data,
    "a class of another folder": osculate.likelihoods.Likelihood,
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_name_of_another_module_is_found(name: str) -> None:
    assert strangers({name: FOREIGN[name]}, "osculate.methods")
    assert not strangers({"MAP": osculate.methods.MAP}, "osculate.methods")


def test_the_front_page_shows_what_is_public() -> None:
    shown = [name for name in dir(osculate) if not name.startswith("_")]
    assert sorted(shown) == sorted(set(osculate.__all__))
    for name in shown:
        thing = getattr(osculate, name)
        assert not isinstance(thing, ModuleType) or thing.__name__ in {*FOLDERS, "osculate.metrics"}
    imported = {name for name, thing in public("osculate").items() if not isinstance(thing, ModuleType)}
    assert imported <= set(shown)


def test_no_two_classes_have_one_name() -> None:
    """Nor do classes that are not public, so that a name in an error or on a page means one thing."""
    found: dict[str, set[str]] = defaultdict(set)
    modules = {module.name for module in pkgutil.walk_packages(osculate.__path__, "osculate.")} - {"osculate.__main__"}
    for module in modules:
        for name, thing in vars(importlib.import_module(module)).items():
            if inspect.isclass(thing) and thing.__module__.startswith("osculate.") and name[0] != "_":
                found[thing.__qualname__].add(thing.__module__)
    assert {name for name, places in found.items() if len(places) > 1} <= SHARED


@pytest.mark.parametrize(
    "folder", ["autoencoders", "data", "likelihoods", "methods", "networks", "priors", "structures"]
)
def test_the_things_of_a_folder_are_in_its_registry(folder: str) -> None:
    known = importlib.import_module(f"osculate.{folder}").REGISTRY
    assert known
    assert all(isinstance(name, str) and callable(thing) for name, thing in known.items())
