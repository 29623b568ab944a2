"""The front door: help that helps, and one line for what a user can repair."""

import re
from pathlib import Path

import pytest

from osculate import curvature, networks, structures
from osculate.cli import main
from osculate.cli.app import COMMANDS
from osculate.cli.demo_fits import RECIPES
from osculate.cli.methods import MethodOptions
from osculate.cli.train import network_name
from osculate.data.shifted import PARTNERS
from osculate.predictive import link
from osculate.training import Settings

#: A page with an option of a method that the reader writes.
OWN = Path("docs/extend.md")


@pytest.mark.parametrize("words", [[], ["--help"], *([name, "--help"] for name in COMMANDS)])
def test_help_names_what_there_is(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([part for word in words for part in word.split()]) == 0
    out = capsys.readouterr().out
    hidden = COMMANDS[words[0]].hides(None) if len(words) == 2 else ()
    expected = [name for name in (COMMANDS[words[0]].options if len(words) == 2 else COMMANDS) if name not in hidden]
    for name in expected:
        assert (name.replace("_", "-") if len(words) == 2 else name) in out
    assert "_" not in "".join(line.split()[0] for line in out.splitlines() if line.strip().startswith("--"))


@pytest.mark.parametrize(
    ("command", "known"),
    [
        ("fit", set(structures.REGISTRY) - {"matrix_free"}),
        ("fit", set(curvature.REGISTRY)),
        ("fit", set(networks.REGISTRY)),
        ("train", set(networks.REGISTRY)),
        ("demo", set(structures.REGISTRY) - {"matrix_free"}),
        ("demo", set(RECIPES)),
        ("predict", set(link.REGISTRY)),
        ("evaluate", set(PARTNERS)),
    ],
)
def test_help_lists_every_name_that_an_option_takes(
    command: str, known: set[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--help"]) == 0
    assert known <= set(re.findall(r"\w+", capsys.readouterr().out))


def test_every_option_has_a_help_text() -> None:
    for command in COMMANDS.values():
        for part in command.parts:
            described = part.__doc__ or ""
            for name in part.__dataclass_fields__:
                assert f"{name}: " in described, f"{part.__name__} does not describe {name}"


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert "osculate" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["trian"], ["'trian'", "did you mean 'train'", "'evaluate'"]),
        (["train", "--dta", "digits"], ["--dta", "did you mean --data", "osculate train --help"]),
        (["train"], ["name the data with --data", "osculate data list"]),
        (["train", "--data", "digitz"], ["no file, folder or data set 'digitz'", "did you mean 'digits'?"]),
        (["train", "--data", "nowhere.npz"], ["nowhere.npz", "numpy.savez"]),
        (["train", "--data", "digits", "--model", "densenet"], ["unknown network 'densenet'", "'lenet'"]),
        (["train", "--data", "digits", "--model-options.depth", "3"], ["cnn", "depth"]),
        (["train", "--data", "digits", "--epochs", "many"], ["--epochs", "a whole number", "many"]),
        (["train", "--data", "digits", "--epochs", "0"], ["epochs", "at least 1", "0"]),
        (["train", "--data", "digits", "--optimizer", "adan"], ["'adan'", "'adamw'"]),
        (["train", "--data", "digits", "--prior", "-1"], ["precision", "positive", "-1"]),
        (["train", "--data", "digits", "--device", "tpu9"], ["'tpu9'", "auto or cpu"]),
        (["train", "--config", "nowhere.yaml"], ["no file", "nowhere.yaml"]),
        (["train", "--data", "digits", "--model", "no.such.module:make"], ["no.such.module", "cannot be imported"]),
        (["train", "--data", "digits", "--model", "math:make"], ["'math'", "'make'", "sqrt"]),
        (["fit"], ["osculate fit needs --checkpoint"]),
        (["fit", "--checkpoint", "nowhere.safetensors"], ["there is no file", "nowhere.safetensors"]),
        (["fit", "--checkpoint", "nowhere.safetensors", "--structure", "matrix_free"], ["cannot be saved", "'kron'"]),
        (["predict", "--posterior", "nowhere/posterior.safetensors"], ["no file at 'nowhere/posterior.safetensors'"]),
        (["predict", "--posterior", "nowhere.safetensors", "--output", "p.txt"], ["'.txt'", ".npz", ".csv"]),
        (["demo", "--data", "diabetes"], ["'diabetes'", "'digits'"]),
        (["demo", "--seeds", "0"], ["--seeds must be at least 1, got 0"]),
        (["demo", "--structure", "krom"], ["'krom'", "'kron'"]),
        (["demo", "--structure", "matrix_free"], ["cannot be saved", "'kron'"]),
    ],
)
def test_what_a_user_can_repair_is_one_line_and_exit_status_2(
    words: list[str],
    parts: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(str(tmp_path))
    monkeypatch.delenv("OSCULATE_TRACEBACK", raising=False)
    assert main(words) == 2
    err = capsys.readouterr().err
    assert err.startswith("osculate: error: ")
    assert err.count("\n") == 1
    for part in parts:
        assert part in err


def test_traceback_raises_the_error_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="digitz"):
        main(["train", "--data", "digitz", "--traceback"])
    monkeypatch.setenv("OSCULATE_TRACEBACK", "1")
    with pytest.raises(ValueError, match="digitz"):
        main(["train", "--data", "digitz"])


def test_options_may_be_written_with_dashes_and_switches_alone() -> None:
    from osculate.cli.app import COMMANDS, _normalised

    assert _normalised(["fit", "--train-size=5", "--tune", "--no-progress"], COMMANDS) == [
        "fit",
        "--train-size=5",
        "--tune=true",
        "--progress=false",
    ]
    assert _normalised(["fit", "--train_size", "5", "--model-options.hidden-width", "3"], COMMANDS) == [
        "fit",
        "--train-size",
        "5",
        "--model-options.hidden_width",
        "3",
    ]
    assert _normalised(["fit", "--tune", "false", "--data", "a-b.npz"], COMMANDS) == [
        "fit",
        "--tune",
        "false",
        "--data",
        "a-b.npz",
    ]


def test_training_settings_are_options_of_train() -> None:
    assert set(Settings.__dataclass_fields__) <= set(COMMANDS["train"].options)


def test_commands_with_nothing_to_share_refuse_several_processes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["train", "--data", "digits"]) == 2
    assert "osculate train runs in one process, and these are 2" in capsys.readouterr().err


def test_the_overview_fits_on_one_screen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert main(["help"]) == 0
    assert capsys.readouterr().out.splitlines() == lines
    assert main(["data"]) == 0
    assert "data get" in (out := capsys.readouterr().out)
    assert "evaluate" not in out


@pytest.mark.parametrize("name", COMMANDS)
def test_help_is_short_and_in_words(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    assert main([*name.split(), "--help"]) == 0
    out = capsys.readouterr().out
    assert len(out.splitlines()) <= 95
    assert max(map(len, out.splitlines())) <= 100
    for of_the_parser in ("null", "type:", "Optional", "Union", "default:", "None", "{true,false}"):
        assert of_the_parser not in out


def test_a_method_has_its_own_help(capsys: pytest.CaptureFixture[str]) -> None:
    shown = {}
    for method in ("", "--method vae", "--method deep_ensemble"):
        assert main(["train", *method.split(), "--help"]) == 0
        shown[method] = re.findall(r"^  (--[\w-]+)", capsys.readouterr().out, re.MULTILINE)
    assert shown[""][:2] == ["--data", "--target"]
    assert set(shown["--method vae"]) - set(shown[""]) == {"--codes"}
    assert set(shown["--method deep_ensemble"]) - set(shown[""]) == {"--members"}
    assert main(["train", "--method", "swagg", "--help"]) == 2


def test_images_that_are_not_square_get_a_warning() -> None:
    with pytest.warns(UserWarning, match="--image-size"):
        assert network_name("auto", MethodOptions(), (3, 8, 12), True) == "mlp"
    assert network_name("auto", MethodOptions(), (3, 8, 8), True) == "cnn"


def test_switches_say_what_they_do() -> None:
    assert COMMANDS["train"].every["progress"].help == "Show no progress bars."


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_says_what_happens_without_it(name: str) -> None:
    for option in COMMANDS[name].every.values():
        told = "default" in option.help or option.required or option.kinds == (bool,)
        assert told, f"{option.flag} of osculate {name} has no default in words: {option.help}"


def test_commands_show_only_options_that_they_use() -> None:
    assert "train_size" in COMMANDS["train"].options
    assert "train_size" not in COMMANDS["predict"].options
    assert "validation_size" not in COMMANDS["predict"].options


@pytest.mark.parametrize("page", [*sorted(set(Path("docs").glob("*.md")) - {OWN}), Path("README.md")], ids=str)
def test_commands_on_the_pages_have_the_options_that_are_shown(page: Path) -> None:
    text = (Path(__file__).parents[2] / page).read_text(encoding="utf-8").replace("\\\n", " ")
    for line in re.findall(r"\bosculate ((?:data )?[a-z]+ [^`\n]*)", text):
        words = line.partition("#")[0].split()
        name = next((each for each in (" ".join(words[:2]), words[0]) if each in COMMANDS), None)
        if name is None:  # a sentence
            continue
        known = {flag for option in COMMANDS[name].every.values() for flag in option.flags}
        known |= {"--config", "--print-config", "--json", "--traceback", "--help"}
        for word in words:
            if word.startswith("--"):
                assert re.split(r"[=.,;:)]", word)[0] in known, f"osculate {name} has no {word}: {line}"
