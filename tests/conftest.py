"""Fixtures that tests ask for by name; what holds for every test is in the conftest.py one folder up."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch


@pytest.fixture
def float64() -> Iterator[None]:
    """Double precision by default for one test: comparisons to 1e-8 need it."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder named by OSCULATE_DATA; tests on real files skip without it."""
    named = os.environ.get("OSCULATE_DATA")
    if not named:
        pytest.skip("OSCULATE_DATA is not set: tests on downloaded data sets need a folder that holds them")
    folder = Path(named)
    if not folder.is_dir():
        pytest.skip(f"OSCULATE_DATA={named} is not a folder")
    return folder
