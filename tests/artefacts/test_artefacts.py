"""Files of earlier versions are read, and predict what they did."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import osculate as osc
from tests.artefacts.make import METHODS, autoencoder, network, predicted, trained

VERSIONS = sorted(path.parent for path in Path(__file__).parent.glob("*/expected.json"))


def cases(kind: str) -> list[Any]:
    found = [(folder, name) for folder in VERSIONS for name in json.loads((folder / "expected.json").read_text())[kind]]
    return [pytest.param(folder, name, id=f"{folder.name}-{name}") for folder, name in found]


def expected(folder: Path, kind: str, name: str) -> torch.Tensor:
    return torch.tensor(json.loads((folder / "expected.json").read_text())[kind][name])


@pytest.mark.parametrize(("folder", "name"), cases("posteriors"))
def test_a_posterior_of_an_earlier_version_predicts_as_it_did(folder: Path, name: str) -> None:
    q = osc.load(folder / f"{name}.safetensors", autoencoder() if name == "mixed_diag" else network(5))
    torch.testing.assert_close(torch.tensor(predicted(q)), expected(folder, "posteriors", name), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("folder", "name"), cases("checkpoints"))
def test_a_training_of_an_earlier_version_is_resumed(folder: Path, name: str, tmp_path: Path) -> None:
    run = tmp_path / name
    shutil.copytree(folder / "trainings" / name, run)
    found = torch.tensor(predicted(trained(name, run)))
    torch.testing.assert_close(found, expected(folder, "checkpoints", name), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("folder", VERSIONS, ids=[folder.name for folder in VERSIONS])
def test_every_recorded_file_is_read(folder: Path) -> None:
    recorded = json.loads((folder / "expected.json").read_text())
    assert set(recorded["posteriors"]) == {path.stem for path in folder.glob("*.safetensors")}
    assert set(recorded["checkpoints"]) == {path.name for path in (folder / "trainings").iterdir()}
    assert set(recorded["checkpoints"]) <= set(METHODS)


def test_the_first_version_had_all_kinds() -> None:
    recorded = json.loads((VERSIONS[0] / "expected.json").read_text())
    assert len(recorded["checkpoints"]) == 14
    structures = {"full", "block", "kron", "ekfac", "diag", "low_rank", "dual", "approx_diag", "mixed_diag"}
    assert structures <= set(recorded["posteriors"])
