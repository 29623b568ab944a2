"""What commands print for programs: JSON, the state of the installation, data sets, completions."""

import json
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from osculate.cli import doctor, main
from osculate.cli.app import COMMANDS, run_alone
from osculate.cli.command import Command
from osculate.cli.completion import SHELLS, script
from osculate.data import REGISTRY

Reader = pytest.CaptureFixture[str]


def _report(capsys: Reader, *words: object, status: int = 0) -> Any:
    """The parsed standard output of a command with --json."""
    capsys.readouterr()
    assert main([*map(str, words), "--json"]) == status
    return json.loads(capsys.readouterr().out)


def test_reports_are_the_only_output(classifier: Path, capsys: Reader, tmp_path: Path) -> None:
    found = _report(capsys, "evaluate", classifier, "--no-progress", "--output", tmp_path / "scores.json")
    written = json.loads((tmp_path / "scores.json").read_text())
    assert found == {"file": str(tmp_path / "scores.json"), "page": str(tmp_path / "scores.html"), **written}
    assert found["Laplace"]["accuracy"] > 0.3
    found = _report(capsys, "predict", classifier, "--no-progress", "--output", tmp_path / "p.csv")
    assert found["files"] == [str(tmp_path / "p.csv")]
    assert found["columns"]["probabilities"] == [600, 10]
    found = _report(capsys, "inspect", classifier / "posterior.safetensors")
    assert found[str(classifier / "posterior.safetensors")]["what"] == "posterior"
    tiny = ("--train-size", 30, "--epochs", 1, "--no-progress", "--model-options.width", 2)
    found = _report(capsys, "train", "digits", *tiny, "--output", tmp_path / "run", "--logger", "csv")
    assert found["epochs"] == 1
    assert 0 <= found["test"]["accuracy"] <= 1
    assert (tmp_path / "run" / "csv").is_dir()
    found = _report(capsys, "fit", tmp_path / "run", "--no-progress", "--structure", "diag", "--no-tune", "--no-refine")
    assert Path(found["posterior"]).is_file()
    assert found["parameters"] > found["effective_parameters"]


def test_an_error_leaves_the_report_empty(capsys: Reader, tmp_path: Path) -> None:
    assert main(["inspect", str(tmp_path / "nothing"), "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("osculate: error: ")


def test_numbers_without_a_value_are_null(capsys: Reader) -> None:
    def run() -> dict[str, Any]:
        print("in words")
        return {"nll": float("inf"), "rows": [float("nan"), 1.5], "where": Path("runs"), "problems": ["one"]}

    assert run_alone(Command(run, (), "A command.", reports=True), "program", ["--json"]) == 1
    out, err = capsys.readouterr()
    assert json.loads(out) == {"nll": None, "rows": [None, 1.5], "where": "runs", "problems": ["one"]}
    assert err == "in words\n"


def test_the_doctor_shows_versions_devices_memory_threads_and_data(capsys: Reader) -> None:
    assert main(["doctor"]) == 0
    shown = capsys.readouterr().out
    for title in ("versions", "libraries", "devices", "memory", "threads", "data", "problems\n  none"):
        assert title in shown
    found = _report(capsys, "doctor")
    assert found["versions"]["torch"] == torch.__version__
    assert found["devices"]["cpu"] == "right"
    assert found["memory"]["free"] > 0
    assert found["problems"] == []


def test_the_doctor_finds_what_is_broken(capsys: Reader, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(name: str) -> object:
        if name == "zuko":
            raise RuntimeError("operator does not exist")
        return SimpleNamespace()

    monkeypatch.setenv("OSCULATE_DATA", str(tmp_path / "nowhere"))
    monkeypatch.setattr(doctor, "import_module", broken)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 10_000)
    found = _report(capsys, "doctor", status=1)
    library, threads, data = found["problems"]
    assert "zuko is installed and cannot be imported (operator does not exist): pip install" in library
    assert "10000 threads" in threads
    assert "set OMP_NUM_THREADS=" in threads
    assert "nowhere" in data
    assert main(["doctor"]) == 1
    assert library in capsys.readouterr().out


def test_data_sets_are_listed_with_their_places(
    capsys: Reader, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("OSCULATE_DATA", str(tmp_path))
    monkeypatch.setattr("osculate.data.files.user_cache", lambda: tmp_path / "cache")
    (tmp_path / "uci_regression").mkdir()
    (tmp_path / "uci_regression" / "boston.npz").write_bytes(b"")
    assert main(["data", "list"]) == 0
    rows = {line.split()[0]: " ".join(line.split()[1:]) for line in capsys.readouterr().out.splitlines()}
    assert set(rows) == set(REGISTRY)
    assert rows["digits"] == "built in"
    assert rows["boston"] == str(tmp_path / "uci_regression")
    assert rows["svhn"] == "not here: osculate data get svhn"
    assert rows["yacht"] == "not here, no download: uci_regression/yacht.npz"
    found = _report(capsys, "data", "list")["data_sets"]
    assert found["boston"] == {
        "ready": True,
        "folder": str(tmp_path / "uci_regression"),
        "downloads": False,
        "files": ["uci_regression/boston.npz"],
    }
    found = _report(capsys, "data", "get", "digits,boston")
    assert found == {"data_sets": {"digits": [], "boston": [str(tmp_path / "uci_regression")]}}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_of_completions_is_a_script(shell: str, tmp_path: Path) -> None:
    path = tmp_path / "osculate"
    path.write_text(script(COMMANDS, shell))
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    assert subprocess.run([shell, "-n", path], capture_output=True, check=True).stderr == b""


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("tr", {"train"}),
        ("data g", {"get"}),
        ("data get mni", {"mnist"}),
        ("fit --struc", {"--structure"}),
        ("fit --structure kr", {"kron"}),
        ("fit --no-", {"--no-refine", "--no-tune", "--no-progress"}),
        ("train --data digi", {"digits", "digits.npz"}),
        ("evaluate --task im", {"imputation"}),
        ("train --target-task re", {"regression"}),
        ("train --channel-axis l", {"last"}),
    ],
)
def test_the_shell_offers_commands_options_names_and_files(typed: str, offered: set[str], tmp_path: Path) -> None:
    (tmp_path / "osculate").write_text(script(COMMANDS, "bash"))
    (tmp_path / "digits.npz").write_bytes(b"")
    program = (
        'source osculate; COMP_WORDS=(osculate "$@"); COMP_CWORD=$(($#)); '
        '_shtab_osculate osculate "${COMP_WORDS[COMP_CWORD]}" ""; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", program, "bash", *typed.split()], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert set(done.stdout.split()) == offered
