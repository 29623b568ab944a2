"""Files of earlier versions are read, and predict what they did."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import osculate as osc
from tests.artefacts.make import BATCHES, METHODS, NETWORKS, configured, fitted, network, predicted, trained

VERSIONS = sorted(path.parent for path in Path(__file__).parent.glob("*/expected.json"))


def cases(kind: str) -> list[Any]:
    recorded = {folder: json.loads((folder / "expected.json").read_text()) for folder in VERSIONS}
    found = [(folder, name) for folder in VERSIONS for name in recorded[folder].get(kind, {})]
    return [pytest.param(folder, name, id=f"{folder.name}-{name}") for folder, name in found]


def expected(folder: Path, kind: str, name: str) -> torch.Tensor:
    return torch.tensor(json.loads((folder / "expected.json").read_text())[kind][name])


@pytest.mark.parametrize(("folder", "name"), cases("posteriors"))
def test_a_posterior_of_an_earlier_version_predicts_as_it_did(folder: Path, name: str) -> None:
    q = osc.load(folder / f"{name}.safetensors", NETWORKS[name]() if name in NETWORKS else network(5))
    torch.testing.assert_close(torch.tensor(predicted(q)), expected(folder, "posteriors", name), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("folder", "name"), cases("checkpoints"))
def test_a_training_of_an_earlier_version_is_resumed(folder: Path, name: str, tmp_path: Path) -> None:
    run = tmp_path / name
    shutil.copytree(folder / "trainings" / name, run)
    found = torch.tensor(predicted(trained(name, run)))
    torch.testing.assert_close(found, expected(folder, "checkpoints", name), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("folder", "name"), cases("sums"))
def test_a_fit_of_an_earlier_version_goes_on(
    folder: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of another build of torch would be refused, as its bits may differ."""
    monkeypatch.setattr(torch, "__version__", "2.13.0+cpu")
    shutil.copy(folder / name, tmp_path)
    found = torch.tensor(predicted(fitted(tmp_path / name, BATCHES)))
    torch.testing.assert_close(found, expected(folder, "sums", name), rtol=1e-4, atol=1e-5)
    assert not list(tmp_path.iterdir()), "it was found, and removed at the end"


@pytest.mark.parametrize(("folder", "name"), cases("runs"))
def test_a_run_of_an_earlier_version_is_read(folder: Path, name: str) -> None:
    torch.testing.assert_close(torch.tensor(configured(folder / name)), expected(folder, "runs", name))


@pytest.mark.parametrize("folder", VERSIONS, ids=[folder.name for folder in VERSIONS])
def test_every_recorded_file_is_read(folder: Path) -> None:
    recorded = json.loads((folder / "expected.json").read_text())
    assert set(recorded["posteriors"]) == {path.stem for path in folder.glob("*.safetensors")}
    assert set(recorded["checkpoints"]) == {path.name for path in (folder / "trainings").iterdir()}
    assert set(recorded["checkpoints"]) <= set(METHODS)


def test_the_first_version_had_all_kinds() -> None:
    recorded = json.loads((VERSIONS[0] / "expected.json").read_text())
    assert VERSIONS[0].name == "v0.1"
    assert len(recorded["checkpoints"]) == 14
    structures = {"full", "block", "kron", "ekfac", "diag", "low_rank", "dual", "approx_diag", "mixed_diag"}
    assert structures <= set(recorded["posteriors"])
