"""Run folders of each kind."""

from pathlib import Path

import numpy as np
import pytest

from osculate.cli.options import DataOptions
from tests.serving.runs import SCRIPT, own_data, saved_run


@pytest.fixture(scope="session")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("classifier")
    card = saved_run(folder, own_data(folder, classes=True), "mlp", None)
    saved_run(folder, own_data(folder, classes=True), "mlp", None, facts={**card.facts, "classes": [SCRIPT, "b"]})
    return folder


@pytest.fixture(scope="session")
def regressor(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("regressor")
    saved_run(folder, own_data(folder, classes=False), "mlp", 0.3)
    return folder


@pytest.fixture(scope="session")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A regression on a table with a number, a category and a date, some of which are missing."""
    folder = tmp_path_factory.mktemp("table")
    colours, lines = ("red", "blue"), ["size,colour,day,price"]
    for n in range(120):
        size, colour = n % 7 if n % 11 else "", colours[n % 2] if n % 13 else ""
        lines.append(f"{size},{colour},2025-{1 + n % 12:02}-10,{n % 7 + n % 2 + n % 5 / 7}")
    (folder / "table.csv").write_text("\n".join(lines))
    data = DataOptions(data=str(folder / "table.csv"), target="price", columns={"day": "date"})
    saved_run(folder, data, "mlp", 0.3)
    return folder


@pytest.fixture(scope="session")
def autoencoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("autoencoder")
    saved_run(folder, DataOptions(data="digits", train_size=100), "mlp_autoencoder", 0.5)
    return folder


@pytest.fixture(scope="session")
def reconstruction(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reconstruction")
    random = np.random.default_rng(0)
    mean, stddev = random.random((12, 16)), 0.1 * random.random((12, 16))
    samples = mean + stddev * random.normal(size=(20, 12, 16))
    np.savez(folder / "reconstruction.npz", mean=mean, stddev=stddev, samples=samples, truth=mean + stddev)
    return folder
