"""For tests and doctests alike: a fixed seed, one thread, and the names that every example uses."""

import gc
import logging
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from tests.checking import calls, check_types_of

if "OSCULATE_UNCHECKED" not in os.environ:
    check_types_of("osculate", "experiments")  # before the first import of either


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Count the examples in docstrings among the slow tests."""
    for item in items:
        if isinstance(item, pytest.DoctestItem):
            item.add_marker("slow")


if not torch.accelerator.is_available():  # each call would write down the stack, for every kind that might come
    torch.manual_seed = torch.default_generator.manual_seed


def pytest_configure() -> None:
    """Save a quarter of the time of imports, where no garbage is, and a tenth of that of tests."""
    gc.disable()
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            logger.propagate = True  # or pytest adds handlers to each of torch's loggers three times a test


def pytest_collection_finish() -> None:
    """Collect garbage from here on, without what the modules hold."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Count the calls of this test alone, with those of its fixtures."""
    calls.clear()


@pytest.fixture(autouse=True)
def seed() -> int:
    """The same random numbers and checks in every test, whatever ran before it."""
    torch.manual_seed(0)
    np.random.seed(0)  # scikit-learn and Lightning fall back on it
    torch.distributions.Distribution.set_default_validate_args(True)  # torch.compile turns them off
    return 0


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """One thread a process, so that two test processes do not fight for two cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(autouse=True)
def names_of_examples(doctest_namespace: dict[str, Any]) -> None:
    """Examples in docstrings start from ``import torch``, ``from torch import nn``, ``import osculate as osc``."""
    import osculate  # here, so that its types and shapes are checked

    doctest_namespace.update(torch=torch, nn=torch.nn, osc=osculate)
