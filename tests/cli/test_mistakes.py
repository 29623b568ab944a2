"""Likely mistakes in commands, options, names and configuration files: each is answered in one sentence."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from osculate.cli import main
from osculate.cli.app import run_alone
from osculate.cli.command import Command

#: Configuration files by name.
FILES = {
    "typo.yaml": "epoch: 5\n",
    "section.yaml": "train:\n  epochs: 5\n",
    "type.yaml": "data: digits\nepochs: many\n",
    "switch.yaml": "data: digits\nresume: perhaps\n",
    "list.yaml": "- digits\n",
    "broken.yaml": "data: [digits\n",
    "own.csv": "size,price\n1,2\n",
    "my_nets.py": "from torch import nn\ndef wide(width): return nn.Linear(8, width)\n",
}
#: What is typed, and parts of the answer: what is wrong, and the way out.
MISTAKES: tuple[tuple[str, tuple[str, ...]], ...] = (
    # commands
    ("trian --data digits", ("'trian'", "did you mean 'train'?")),
    ("data lst", ("'data lst'", "did you mean 'data list'?")),
    ("--verison", ("--verison", "did you mean --version?")),
    ("--data digits train", ("--data before the command", "osculate --help")),
    # names of options
    ("train --dta digits", ("--dta", "did you mean --data?")),
    ("train -epochs 5", ("-epochs", "did you mean --epochs?")),
    ("train --data digits --progres=false", ("--progres", "did you mean --progress?")),
    ("predict {run} --train-size 5", ("osculate predict has no option --train-size", "osculate predict --help")),
    ("train --data digits 5", ("does not know what '5' is for", "the name of an option before it")),
    # values of options
    ("train", ("name the data with --data", ".npz", "osculate data list")),
    ("train photos", ("no file, folder or data set 'photos'", ".csv", "osculate data list")),
    ("train digtis", ("no file, folder or data set 'digtis'", "did you mean 'digits'?")),
    ("train --data own.csv --split 3", ("--split is for named data sets", "leave it out")),
    ("train own.cvs", ("no file 'own.cvs'", "did you mean 'own.csv'?")),
    ("evaluate {run} --image-size 8", ("osculate evaluate has no option --image-size",)),
    ("predict {run} --target-task regression", ("osculate predict has no option --target-task",)),
    ("fit", ("osculate fit needs --checkpoint PATH", "model.safetensors")),
    ("train --data digits --epochs", ("--epochs needs a value: a whole number",)),
    ("train --data digits --epochs many", ("--epochs takes a whole number, got 'many'",)),
    ("train --data digits --epochs 2.5", ("--epochs takes a whole number, got '2.5'",)),
    ("train --data digits --epochs 0", ("epochs must be a whole number of at least 1, got 0",)),
    ("train --data digits --noise loud", ("--noise takes a number, got 'loud'",)),
    ("train --data digits --lr fast", ("lr must be a positive finite number or 'auto', got 'fast'",)),
    ("train --data digits --resume maybe", ("does not know what 'maybe' is for",)),
    ("train --data digits --resume=maybe", ("--resume takes true or false, got 'maybe'",)),
    ("train --data digits --model-options 3", ("--model-options", "as in --model-options.width 32")),
    ("train own.csv --columns age=category", ("--columns", "as in --columns.month category")),
    ("train --data digits --model-options.widht 3", ("'widht'", "its constructor has", "width")),
    ("train --data digits --device gpu", ("unknown device 'gpu'", "use auto or cpu")),
    ("predict {run} --output p.txt", ("'.txt'", ".npz, .csv, .tsv, .parquet", "rename --output")),
    ("train --data digits --model my_nets.py:wide", ("my_nets.py:wide names a file", "pass --model my_nets:wide")),
    ("train --data digits --model my_nets:wide", ("argument: 'width'", "--model-options.width 32")),
    ("evaluate own.csv", ("'own.csv' is no posterior", "--posterior, and data with --data")),
    ("inspect nowhere", ("no file at 'nowhere'", "name a run folder")),
    ("reconstruct own.csv", ("'own.csv' cannot be read as a picture", "name a picture, or an .npz file")),
    ("fit {run} --validation-size 5", ("--validation-size 5", "it had a tenth", "leave it out, or train again")),
    # names that options take
    ("train --data digits --method mpa", ("unknown method 'mpa'", "did you mean 'map'?")),
    ("train --data digits --model lenett", ("unknown network 'lenett'", "did you mean 'lenet'?")),
    ("train --data digits --schedule cosin", ("unknown schedule 'cosin'", "did you mean 'cosine'?")),
    ("train --data digits --logger tensorbord", ("unknown logger", "did you mean 'tensorboard'?")),
    ("train --data digits --method vae --codes.prior betta", ("'betta'", "did you mean 'beta'?")),
    ("fit {run} --structure krom", ("unknown structure 'krom'", "did you mean 'kron'?")),
    ("predict {run} --link probits", ("unknown link 'probits'", "did you mean 'probit'?")),
    ("predict {run} --via linear", ("'linear'", "did you mean 'linearised'?")),
    ("evaluate {run} --task oodd", ("unknown task 'oodd'", "did you mean 'ood'?")),
    ("data get mnits", ("unknown data set 'mnits'", "did you mean 'mnist'?", "osculate data list")),
    ("completion fish", ("unknown shell 'fish'", "'bash', 'zsh'")),
    # files of options
    ("train --config typo.yaml", ("no option epoch in 'typo.yaml'", "did you mean epochs?")),
    ("train --config section.yaml", ("no option train in 'section.yaml'", "osculate train --help")),
    ("train --config type.yaml", ("epochs in the YAML file takes a whole number, got 'many'",)),
    ("train --config switch.yaml", ("resume in the YAML file takes true or false, got 'perhaps'",)),
    ("train --config list.yaml", ("'list.yaml' holds no options, each with a name and a value",)),
    ("train --config broken.yaml", ("'broken.yaml' is not a YAML file",)),
    ("train --config nowhere.yaml", ("no file at 'nowhere.yaml'",)),
    # data of another shape, before anything is read or downloaded
    ("evaluate {run} --data cifar100", ("(3, 32, 32)", "the network takes (1, 8, 8)")),
    ("predict {run} --data mnist", ("(1, 28, 28)", "the network takes (1, 8, 8)")),
    ("fit {run} --data svhn", ("(3, 32, 32)", "the network takes (1, 8, 8)")),
    ("evaluate {run} --data diabetes", ("(10,)", "the network takes (1, 8, 8)")),
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the configuration files, which is the current one; nothing can be downloaded."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a download was begun")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OSCULATE_DATA", str(tmp_path))
    monkeypatch.setattr("pooch.retrieve", refuse)
    monkeypatch.delenv("OSCULATE_TRACEBACK", raising=False)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def test_there_are_enough_mistakes() -> None:
    assert len(MISTAKES) >= 40
    assert len({words for words, _ in MISTAKES}) == len(MISTAKES)


@pytest.mark.parametrize(("words", "parts"), MISTAKES, ids=[words for words, _ in MISTAKES])
def test_a_mistake_is_answered_in_one_sentence(
    words: str, parts: tuple[str, ...], folder: Path, classifier: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = main([word.format(run=classifier) for word in words.split()])
    out, err = capsys.readouterr()
    assert status == 2
    assert out == "", "nothing is begun"
    assert err.startswith("osculate: error: ")
    assert err.count("\n") == 1
    assert all(part in err for part in parts), err
    assert len(err) < 500, "no more than can be read at once"


def test_what_is_typed_goes_before_the_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "run.yaml").write_text("data: digits\nepochs: 5\ntrain-size: 100\nlr: 1e-3\n")
    assert main(["train", "--config", "run.yaml", "--epochs", "7", "--print-config"]) == 0
    written = capsys.readouterr().out.splitlines()
    assert {"data: digits", "epochs: 7", "train_size: 100", "lr: 0.001"} <= set(written)


def test_what_print_config_prints_is_a_configuration(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "digits", "--print-config"]) == 0
    first = capsys.readouterr().out
    (folder / "run.yaml").write_text(first)
    assert main(["train", "--config", "run.yaml", "--print-config"]) == 0
    assert capsys.readouterr().out == first


def _interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def _broken(*_: object) -> None:
    raise KeyError("a bug")


def _disconnected(*_: object) -> None:
    raise BrokenPipeError("another process has gone")


@pytest.mark.parametrize(("run", "status"), [(_interrupted, 130), (_disconnected, 2)])
def test_other_ends_have_their_own_exit_status(
    run: Callable[..., None], status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_alone(Command(run, (), "A command."), "program", []) == status
    assert capsys.readouterr().err.startswith("program: ")


@pytest.mark.slow
def test_an_output_that_nobody_reads_ends_the_command() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    words = [sys.executable, "-m", "osculate", "--help"]
    done = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, cwd=Path(__file__).parents[2], check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_bug_has_a_traceback() -> None:
    with pytest.raises(KeyError, match="a bug"):
        run_alone(Command(_broken, (), "A command."), "program", [])
