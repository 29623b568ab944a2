"""Wrong types and shapes are noticed while tests run."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
import torch

from tests.checking import FIRST, LATER, check_types_of

SOURCE = '''
"""A module."""
from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor


def double(x: Float[Tensor, "N C"], y: Float[Tensor, " N"]) -> Float[Tensor, "C N"]:
    return 2 * x.T + y


def wrong(x: Float[Tensor, "N C"]) -> Float[Tensor, "C N"]:
    return x


def whole(n: int) -> int:
    return n


def outer(x: Tensor) -> Tensor:
    def inner(x: Float[Tensor, " N"]) -> Tensor:
        return x

    return inner(x)


@dataclass(frozen=True)
class Pair:
    x: Float[Tensor, " N"]
    y: Float[Tensor, " N"]

    @property
    def sum(self) -> Float[Tensor, " N"]:
        return (self.x + self.y)[None]
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    (tmp_path / "checked_example.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    undo = check_types_of("checked_example")
    yield import_module("checked_example")
    undo()
    del sys.modules["checked_example"]


def test_what_agrees_passes(module: ModuleType) -> None:
    x, y = torch.ones(3, 2), torch.ones(3)
    assert module.double(x, y).shape == (2, 3)
    assert module.whole(3) == 3
    assert module.outer(y) is y
    assert module.Pair(y, y).x is y


def test_what_disagrees_is_refused(module: ModuleType) -> None:
    x, y = torch.ones(3, 2), torch.ones(3)
    for call in (
        lambda: module.double(x, torch.ones(4)),  # N is 3 and 4
        lambda: module.double(y, y),
        lambda: module.wrong(x),  # the result
        lambda: module.whole("3"),
        lambda: module.outer(x),
        lambda: module.Pair(y, torch.ones(4)),
        lambda: module.Pair(y, y).sum,
    ):
        with pytest.raises(TypeError, match="violates type hint"):
            call()


def test_of_many_calls_the_first_and_a_few_are_checked(module: ModuleType) -> None:
    def refused() -> bool:
        try:
            return module.whole("3") != "3"
        except TypeError:
            return True

    found = [refused() for _ in range(2 * LATER)]
    assert all(found[:FIRST])
    assert sum(found) == FIRST + 2


def test_the_package_is_checked() -> None:
    import osculate as osc

    with pytest.raises(TypeError, match="violates type hint"):
        osc.metrics.accuracy(torch.ones(3, 2), torch.ones(4, dtype=torch.long))
