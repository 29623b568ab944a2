"""One small classifier and one small regression, trained and fitted through the command line, shared by all tests."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from osculate.cli import main

Run = Callable[..., int]


@pytest.fixture(scope="session")
def run() -> Run:
    """Run a command quietly, without the user's environment."""

    def command(*words: object) -> int:
        quiet = [] if "--help" in words or words[:1] == ("inspect",) else ["--no-progress", "--device", "cpu"]
        return main([*(str(word) for word in words), *quiet])

    return command


@pytest.fixture(scope="session")
def arrays(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A regression of the user's own: inputs and targets far from standardised."""
    random = np.random.default_rng(0)
    x = 100 + 20 * random.normal(size=(80, 3))
    y = 5 * x[:, :1] - 2 * x[:, 1:2] + 7 * random.normal(size=(80, 1))
    path = tmp_path_factory.mktemp("arrays") / "mine.npz"
    np.savez(path, X=x, y=y)
    return path


@pytest.fixture(scope="session")
def classifier(run: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a classifier of digits with a posterior."""
    folder = tmp_path_factory.mktemp("classifier")
    sizes = ("--train-size", 300, "--model-options.width", 4)
    assert (
        run("train", "--data", "digits", *sizes, "--epochs", 8, "--lr", 0.01, "--batch-size", 32, "--output", folder)
        == 0
    )
    assert run("fit", "--checkpoint", folder / "model.safetensors", "--prior", 5.0) == 0
    return folder


@pytest.fixture(scope="session")
def regressor(run: Run, arrays: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run folder of a regression on the user's arrays with a posterior."""
    folder = tmp_path_factory.mktemp("regressor")
    options = ("--model-options.hidden", "[8]", "--epochs", 60, "--lr", 0.02, "--batch-size", 16)
    assert run("train", "--data", arrays, *options, "--output", folder) == 0
    assert run("fit", "--checkpoint", folder / "model.safetensors", "--structure", "full") == 0
    return folder
