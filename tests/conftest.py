"""What every test can rely on: a fixed seed, one thread, and the data folder if there is one."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch


@pytest.fixture(autouse=True)
def seed() -> int:
    """The same random numbers in every test, whatever ran before it."""
    torch.manual_seed(0)
    np.random.seed(0)  # scikit-learn and Lightning fall back on it
    return 0


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> Iterator[None]:
    """One thread a process, so that two test processes do not fight for two cores."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


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
