"""Public names: each is defined in the folder that exports it, is exported once, and names one thing."""

import importlib
import inspect
import pkgutil
from collections import defaultdict

import pytest

import osculate

#: The folders that a user imports from.
FOLDERS = sorted(
    module.name for module in pkgutil.iter_modules(osculate.__path__) if module.ispkg and module.name != "cli"
)


#: A likelihood and a posterior: both are this density, and each folder names what it has.
SHARED = {"Gaussian"}


def public(folder: str) -> dict[str, object]:
    """The public names of a folder that are functions or classes."""
    module = importlib.import_module(f"osculate.{folder}")
    return {
        name: thing
        for name, thing in vars(module).items()
        if not name.startswith("_")
        and (inspect.isclass(thing) or inspect.isfunction(thing))
        and thing.__module__.startswith("osculate.")
    }


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_folder_exports_what_it_defines(folder: str) -> None:
    here = f"osculate.{folder}"
    strangers = {name: thing.__module__ for name, thing in public(folder).items() if not in_folder(thing, here)}
    assert not strangers, f"imported helpers that show as public names of {here}: import their module instead"


def in_folder(thing: object, folder: str) -> bool:
    module = str(thing.__module__)
    return module == folder or module.startswith(folder + ".")


def test_no_two_public_classes_have_one_name() -> None:
    found: dict[str, set[object]] = defaultdict(set)
    for folder in FOLDERS:
        for name, thing in public(folder).items():
            if inspect.isclass(thing):
                found[name].add(thing)
    assert {name for name, things in found.items() if len(things) > 1} <= SHARED


@pytest.mark.parametrize(
    "folder", ["autoencoders", "data", "likelihoods", "methods", "networks", "priors", "structures"]
)
def test_the_things_of_a_folder_are_in_its_registry(folder: str) -> None:
    registry = importlib.import_module(f"osculate.{folder}").REGISTRY
    assert registry
    assert all(isinstance(name, str) and callable(thing) for name, thing in registry.items())
