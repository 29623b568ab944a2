"""A classifier and a regression as run folders."""

from pathlib import Path

import pytest

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
