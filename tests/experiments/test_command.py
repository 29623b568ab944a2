"""``python -m experiments``: the list, a run, the figure again, the page of results, and errors that help."""

import json
from dataclasses import fields
from pathlib import Path

import pytest

from experiments import REGISTRY, read_record
from experiments.__main__ import COMMAND, main
from experiments.experiment import changed
from experiments.pages import pages
from experiments.record import SCHEMA
from experiments.settings import described, separate, typed
from osculate.cli.app import parser_of

TINY = ("--settings.side", "5", "--settings.nodes", "41", "--settings.draws", "1000", "--no-progress")


def test_the_list_shows_every_id_with_its_document(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--list"]) == 0
    out = capsys.readouterr().out
    for name in REGISTRY:
        assert name in out
    assert "[miani2022]" in out


@pytest.mark.parametrize("name", REGISTRY)
def test_the_settings_of_every_experiment_are_listed(name: str) -> None:
    text = described(REGISTRY[name])
    assert REGISTRY[name].title in " ".join(text.split())
    assert ":data:" not in text
    assert max(map(len, text.split("\n"))) <= 100
    for field in fields(REGISTRY[name].presets["small"]):
        assert f"--settings.{field.name}" in text


@pytest.mark.parametrize(
    ("name", "words", "expected"),
    [
        (
            "linlap-adapted",
            ["toy.scales", "[1]", "toy.hidden", "5", "toy.epochs", "3", "images.training.lr", "0.1", "toy.lr", "1"],
            {"toy.scales": (1.0,), "toy.hidden": 5, "toy.epochs": 3, "toy.lr": 1.0, "images.training.lr": 0.1},
        ),
        ("lae-figure9", ["pairs", "[[mnist, KMNIST, 200]]"], {"pairs": (("mnist", "KMNIST", 200),)}),
        ("lae-figure9", ["pairs", "(('mnist', 'KMNIST', 200),)"], {"pairs": (("mnist", "KMNIST", 200),)}),
        ("aevb-figure4", ["task.train_size", "None", "fit", "{images: 7}"], {"task.train_size": None, "fit.images": 7}),
        ("vl-figure1", ["fit.precision", "64"], {"fit.precision": "64"}),
        (
            "aevb-figure2",
            ["tasks", "[{data: mnist, train_size: 9}]"],
            {"tasks.0.data": "mnist", "tasks.0.train_size": 9},
        ),
    ],
)
def test_settings_as_they_are_typed(name: str, words: list[str], expected: dict[str, object]) -> None:
    options = [f"--settings.{word}" if number % 2 == 0 else word for number, word in enumerate(words)]
    changes = parser_of(COMMAND).parse_args([separate(word) for word in options]).settings
    preset = REGISTRY[name].presets["small"]
    settings = changed(preset, typed(REGISTRY[name], "small", changes))
    for path, value in expected.items():
        assert value_at(settings, path) == value
    assert {field.name for field in fields(preset) if getattr(settings, field.name) != getattr(preset, field.name)} == {
        path.partition(".")[0] for path in expected
    }


def value_at(settings: object, path: str) -> object:
    for name in path.split("."):
        settings = settings[int(name)] if isinstance(settings, tuple) else getattr(settings, name)
    return settings


def test_a_setting_of_a_group_is_typed_over_those_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "settings.yaml").write_text("settings: {fit: {images: 9, batch: 3}}")
    words = ["--config", str(tmp_path / "settings.yaml"), separate("--settings.fit.batch=4")]
    changes = parser_of(COMMAND).parse_args(words).settings
    fit = typed(REGISTRY["aevb-figure4"], "small", changes)["fit"]
    assert (fit.images, fit.batch) == (9, 4)


def test_a_run_leaves_record_figure_and_then_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path("experiments/results/linlap-logistic.json")
    assert main(["linlap-logistic", "--seeds", "1", *TINY]) == 0
    record = read_record(path)
    assert record.setup.settings["side"] == 5
    assert path.with_suffix(".png").is_file()
    out = " ".join(capsys.readouterr().out.split())
    assert " ".join(str(record.findings.claims[0]).split()) in out
    assert main(["--results", "experiments/results"]) == 0
    for page, text in pages(Path("experiments/results")).items():
        assert page.read_text(encoding="utf-8") == text
    assert "(results/S1.md)" in Path("experiments/RESULTS.md").read_text(encoding="utf-8")
    assert "(linlap-logistic.md)" in Path("experiments/results/S1.md").read_text(encoding="utf-8")
    assert {claim.verdict for claim in record.findings.claims} <= {"undecided", "holds", "does not hold"}
    assert "one seed" in record.findings.claims[0].tested
    assert main(["--judge"]) == 0

    path.with_suffix(".png").unlink()
    assert main(["--experiment", "linlap-logistic", "--draw"]) == 0
    assert path.with_suffix(".png").is_file()
    assert read_record(path) == record


def test_a_trial_does_not_replace_a_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "linlap-logistic.json"
    run = ["linlap-logistic", "--json", str(path), *TINY]
    assert main([*run, "--seeds", "2"]) == 0
    text = path.read_text(encoding="utf-8")
    for trial in (["--seeds", "1"], ["--settings.nodes", "31"], ["--scale", "paper"]):
        capsys.readouterr()
        assert main([*run, *trial]) == 2
        assert "--json PATH to keep both, or --overwrite" in capsys.readouterr().err
        assert path.read_text(encoding="utf-8") == text
    assert main([*run, "--seeds", "1", "--overwrite"]) == 0
    assert read_record(path).setup.seeds == (0,)


def test_a_record_under_another_name_has_the_verdicts_of_its_experiment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trial.json"
    assert main(["linlap-logistic", "--json", str(path), "--seeds", "2", *TINY]) == 0
    exact = next(claim for claim in read_record(path).findings.claims if claim.text.startswith("probit"))
    assert exact.verdict == "holds"
    assert exact.tested in " ".join(capsys.readouterr().out.split())


def test_a_damaged_record_is_measured_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "linlap-logistic.json"
    path.write_text('{"schema": "osc')
    assert main(["--results", str(tmp_path)]) == 2
    assert main(["linlap-logistic", "--json", str(path), "--seeds", "1", *TINY]) == 0
    assert read_record(path).id == "linlap-logistic"
    (tmp_path / "other.json").write_text("{")
    assert main(["--results", str(tmp_path)]) == 2
    assert "other.json would lack its claims" in capsys.readouterr().err
    assert not (tmp_path.parent / "RESULTS.md").exists()


@pytest.mark.parametrize(
    ("text", "status", "words"),
    [
        ("{", 2, "warning: {!r} holds no record"),
        (json.dumps({"schema": SCHEMA, "findings": {}, "setup": {}}), 2, "error: the record {!r} lacks"),
    ],
)
def test_a_damaged_record_is_named(
    text: str, status: int, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "records" / "lae-figure7.json"
    path.parent.mkdir()
    path.write_text(text)
    assert main(["--results", str(path.parent)]) == status
    assert words.format(str(path)) in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        ([], ["say which", "lae-table1", "--list"]),
        (["--draw"], ["say which figure", "ID --draw"]),
        (["--hours", "3"], ["--records"]),
        (["--records", "--stale"], ["--stale and --records", "give one"]),
        (["--stale", "--seeds", "3"], ["are about one experiment"]),
        (["--judge", "--settings.side", "3"], ["are about one experiment"]),
        (["lae-table1", "--json", "."], ["no file can be written", "--json"]),
        *(
            ([name, option], ["is one experiment", option])
            for option in ("--judge", "--stale", "--records")
            for name in ("lae-table1",)
        ),
        (["--confirm", "lae-tabel1"], ["no record in"]),
        (["lae-tabel1"], ["'lae-tabel1'", "did you mean 'lae-table1'", "'lae-figure7'"]),
        (["lae-table1", "--scale", "huge"], ["unknown scale 'huge'", "'small'", "'paper'"]),
        (["lae-table1", "--seeds", "0"], ["seeds is 0"]),
        (["lae-table1", "--settings.side", "3"], ["unknown setting 'side'", "'sides'", "--list shows the settings"]),
        (["aevb-figure4", "--settings.fit.imges", "3"], ["unknown setting of fit 'imges'", "'images'"]),
        (["aevb-figure4", "--settings.fit", "3"], ["fit is a group, such as --settings.fit.images", "got 3"]),
        (["aevb-figure4", "--settings.fit.images", "7", "--settings.fit.lr", "x"], ["settings.fit.lr", "Got value: x"]),
        (["aevb-figure4", "--settings.depths", "(1, 2"], ["never closed", "--list shows the settings"]),
        (["aevb-figure4", "--list", "--scale", "paper"], ["--list", "give nothing else"]),
        (["aevb-figure4", "--settings.fit.images", "x"], ["settings.fit.images", "int", "Got value: x"]),
        (["lae-table1", "--draw"], ["no record", "lae-table1.json"]),
        (["--results", "nowhere"], ["no folder 'nowhere'"]),
    ],
)
def test_errors_say_what_is_known(
    words: list[str],
    parts: list[str],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*words]) == 2
    err = capsys.readouterr().err
    for part in parts:
        assert part in err
    assert not list(tmp_path.iterdir())


def test_a_figure_that_comes_with_a_table_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["lae-figure11", "--draw"]) == 2
    assert "lae-table3.json" in capsys.readouterr().err
