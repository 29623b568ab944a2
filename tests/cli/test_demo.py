"""The demo, small: its tables, its folder and its report."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from osculate.cli import demo_fits
from osculate.cli.demo_report import finding
from osculate.cli.folder import staged, write_section, write_text
from osculate.cli.tables import Score, columns
from tests.cli.pages import check

FILES = {
    "config.yaml",
    "entropy.png",
    "least_sure.png",
    "metrics.json",
    "model.safetensors",
    "posterior.safetensors",
    "regression.png",
    "reliability.png",
    "report.html",
}


@pytest.fixture(scope="module")
def demo(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder in the place of an older one, with something of the user's in it."""
    folder = tmp_path_factory.mktemp("demo") / "run"
    folder.mkdir()
    (folder / "mine.txt").write_text("kept")
    (folder / "report.html").write_text("of an older run")
    with pytest.MonkeyPatch.context() as patch:
        recipe = demo_fits.RECIPES["digits"]
        small = replace(recipe, validation_size=20, training=recipe.training.changed(epochs=4))
        patch.setattr(demo_fits, "RECIPES", {"digits": small})
        patch.setattr(demo_fits, "CURVE_HIDDEN", (8,))
        patch.setattr(demo_fits, "CURVE_SETTINGS", demo_fits.CURVE_SETTINGS.changed(epochs=30))
        assert run("demo", "--train-size", 80, "--seeds", 2, "--output", folder) == 0
    return folder


def test_the_folder_is_complete_and_clean_after_a_second_run(demo: Path) -> None:
    assert {path.name for path in demo.iterdir()} == FILES | {"mine.txt"}
    assert [path.name for path in demo.parent.iterdir()] == ["run"]
    assert "train_size: 80" in (demo / "config.yaml").read_text()


def test_a_second_run_replaces_nothing_unless_asked(run: Any, demo: Path, capsys: Any) -> None:
    assert run("demo", "--output", demo) == 2
    assert "holds a run: pass --overwrite to replace it" in capsys.readouterr().err


def test_posteriors_are_compared_with_the_network_on_the_same_images(demo: Path) -> None:
    content = json.loads((demo / "metrics.json").read_text())
    first, report = content["seeds"]["0"], (demo / "report.html").read_text()
    for name in ("Laplace", "Laplace, tuned"):
        found = content["differences"][name]
        assert found["nll"] == pytest.approx(first[name]["nll"] - first["MAP"]["nll"], abs=1e-6)
        assert f"{name} − MAP" in report
        assert f"{found['nll']:+.3f} ± {found['nll_error']:.3f}" in report
    assert "its network alone" in report


def test_the_numbers_are_means_over_seeds(demo: Path) -> None:
    content = json.loads((demo / "metrics.json").read_text())
    assert set(content["classification"]) == {"MAP", "Laplace", "Laplace, tuned"}
    assert list(content["seeds"]) == ["0", "1"]
    row = content["classification"]["Laplace"]
    for name in ("accuracy", "nll", "ece", "brier", "auroc/rotated digits/entropy", "auroc/shuffled pixels/entropy"):
        values = [seed["Laplace"][name] for seed in content["seeds"].values()]
        assert row[name]["mean"] == pytest.approx(sum(values) / 2)
        assert row[name]["standard_error"] == pytest.approx(abs(values[0] - values[1]) / 2)
    assert set(content["regression"]) == {"MAP", "full", "kron", "diag"}
    rmse = {name: row["rmse"] for name, row in content["regression"].items()}
    assert all(rmse[name] < rmse["MAP"] for name in ("full", "kron", "diag")), "the mean of the linear model"
    assert content["seconds"]["all"] > 0
    assert content["versions"]["torch"]


def test_the_report_stands_alone(demo: Path) -> None:
    page = check(demo / "report.html", figures=4)
    for word in ("MAP", "Laplace, tuned", "AUROC", "How to read it", "rotated digits", "--train-size 80", "torch"):
        assert word in page


def test_the_posterior_of_the_demo_predicts(run: Any, demo: Path, tmp_path: Path) -> None:
    words = ("--posterior", demo / "posterior.safetensors", "--output", tmp_path / "p.csv")
    assert run("predict", *words) == 0
    assert len((tmp_path / "p.csv").read_text().splitlines()) == 601


def test_staged_files_appear_together_or_not_at_all(tmp_path: Path) -> None:
    with staged(tmp_path / "out") as aside:
        (aside / "a").write_text("1")
        assert not (tmp_path / "out").exists()

    def fails() -> None:
        with staged(tmp_path / "out") as aside:
            (aside / "a").write_text("2")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    assert (tmp_path / "out" / "a").read_text() == "1"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_sections_of_a_file_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    write_section(path, "train", {"a": 1})
    write_section(path, "fit", {"b": Path("x")})
    assert json.loads(path.read_text()) == {"train": {"a": 1}, "fit": {"b": "x"}}
    write_text(path, "not json")
    with pytest.raises(ValueError, match=r"metrics\.json.*not a JSON"):
        write_section(path, "fit", {})


def test_scores_show_their_standard_error() -> None:
    assert str(Score.over([0.5])) == "0.500"
    assert str(Score.over([1.0, 3.0])) == "2.000 ± 1.000"


def test_tables_leave_out_what_has_no_heading() -> None:
    row = {"auroc/noise/entropy": 1, "mce": 2, "nll": 3, "accuracy": 4, "auroc/noise/max_probability": 5}
    row["auprc/noise/entropy"] = 6
    assert columns({"MAP": row}) == {"accuracy": "accuracy ↑", "nll": "NLL ↓", "auroc/noise/entropy": "AUROC, noise ↑"}


def test_the_finding_says_which_way_it_went() -> None:
    rows = {
        "MAP": {"accuracy": Score(0.9), "nll": Score(0.3), "ece": Score(0.1)},
        "Laplace": {"accuracy": Score(0.8), "nll": Score(0.2), "ece": Score(0.10001)},
    }
    text = finding(rows)
    noisy = {"MAP": {"nll": Score(0.3, 0.05)}, "Laplace": {"nll": Score(0.35, 0.02)}}
    assert "(within the error)" in finding(noisy)
    assert "accuracy goes from 0.900 to 0.800 (worse)" in text
    assert "NLL goes from 0.300 to 0.200 (better)" in text
    assert "ECE goes from 0.100 to 0.100 (unchanged)" in text
