"""Reports: what every page has, hostile names, and words for all that can be shown."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from osculate.cli import autoencoder_tasks, report
from osculate.cli.checkpoint import Card
from osculate.cli.page import command, meanings, words, words_of, write_page
from osculate.cli.tables import TITLES, Score
from tests.cli.pages import check

HOSTILE = '<script>alert("x")</script><img src=x onerror=alert(1)> {{ 7 * 7 }} & "q" \''


def test_names_are_text_and_nothing_else(tmp_path: Path) -> None:
    rows = {HOSTILE: {"nll": Score(0.5, 0.1), f"auroc/{HOSTILE}/entropy": Score(0.75)}}
    page = write_page(
        tmp_path / "report.html",
        HOSTILE,
        f"osculate train --data {HOSTILE}",
        files={HOSTILE: HOSTILE},
        facts={HOSTILE: {HOSTILE: HOSTILE}},
        lead=HOSTILE,
        warnings=[HOSTILE],
        findings=[HOSTILE],
        tables={HOSTILE: rows},
        listings={HOSTILE: ((HOSTILE,), [(HOSTILE,)])},
        about={HOSTILE: HOSTILE},
        next=HOSTILE,
    )
    text = page.read_text(encoding="utf-8").replace("{{ 7 * 7 }}", "")
    page.write_text(text)
    words = check(page, figures=0)
    assert "0.500 ± 0.100" in words
    assert words.count("&lt;script&gt;") > 12
    assert "49" not in words


def test_class_names_of_predictions_are_escaped(tmp_path: Path) -> None:
    card = Card("mlp", {}, (2,), 2, None, {}, {"classes": [HOSTILE, "plain"]})
    probabilities = np.array([[0.9, 0.1], [0.4, 0.6], [0.5, 0.5]])
    columns = {
        "prediction": probabilities.argmax(1),
        "probabilities": probabilities,
        "entropy": -(probabilities * np.log(probabilities)).sum(1),
    }
    report.report_predictions(tmp_path / "p.html", "osculate predict", columns, card)
    words = (tmp_path / "p.html").read_text().replace("{{ 7 * 7 }}", "")
    (tmp_path / "p.html").write_text(words)
    assert escape("<script>") in check(tmp_path / "p.html", figures=1)
    rows = words.split("<tbody>")[1].split("</tbody>")[0]
    assert [line.split("</td>")[0].split("<td>")[1] for line in rows.splitlines() if "<td>" in line] == ["2", "1", "0"]


def test_pages_of_a_classifier(run: Callable[..., int], classifier: Path, tmp_path: Path) -> None:
    assert "osculate fit --checkpoint" in check(classifier / "report.html", figures=1)
    words = check(classifier / "fit.html", figures=1)
    assert "effective parameters" in words
    assert "validation data" in words
    assert run("evaluate", "--posterior", classifier, "--task", "ood", "--output", tmp_path / "e.json") == 0
    words = check(tmp_path / "e.html", figures=2)
    assert "AUROC, rotated digits" in words
    assert "nearest input" in words.split("without a network")[-1]
    alone = json.loads((tmp_path / "e.json").read_text())["inputs_alone"]
    assert alone["shuffled pixels"].keys() >= {"auroc_nearest_input", "auroc_nearest_input_error", "auroc_leverage"}
    assert "Laplace − MAP" in words
    assert run("predict", "--posterior", classifier, "--output", tmp_path / "p.csv") == 0
    assert "p.csv" in check(tmp_path / "p.html", figures=1)
    assert "p.npz" not in check(tmp_path / "p.html", figures=1)


def test_pages_of_a_regression(run: Callable[..., int], regressor: Path, tmp_path: Path) -> None:
    assert "real-valued targets" in check(regressor / "report.html", figures=1)
    assert run("evaluate", "--posterior", regressor, "--output", tmp_path / "e.json") == 0
    assert "Do the error bars fit the errors?" in check(tmp_path / "e.html", figures=1)
    assert run("predict", "--posterior", regressor / "model.safetensors", "--output", tmp_path / "p.npz") == 0
    check(tmp_path / "p.html", figures=1)


def test_reports_do_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report, "draws", lambda: False)
    columns = {"mean": np.zeros((3, 1)), "sd": np.ones((3, 1)), "sd_function": np.ones((3, 1))}
    card, labels = Card("mlp", {}, (2,), 1, 0.5, {}), {"id": ["A7", "B8", "C9"]}
    (tmp_path / "p.csv").write_text("of an earlier run")
    report.report_predictions(tmp_path / "p.html", "osculate predict", columns, card, labels, [tmp_path / "p.parquet"])
    words = check(tmp_path / "p.html", figures=0)
    assert "A7" in words
    assert "p.parquet" in words
    assert "p.csv" not in words


def test_everything_that_is_shown_has_words() -> None:
    assert all(words_of(score)["meaning"] and words_of(score)["unit"] for score in TITLES)
    for name, each in words()["figures"].items():
        assert set(each) == {"heading", "shows", "reading"}, name
    shown = {name for files in autoencoder_tasks.FIGURES.values() for name in files}
    assert shown <= set(words()["figures"])
    tables = {"": {"MAP": {"accuracy/5": Score(0.5), "auroc/noise/entropy": Score(0.5), "nll": Score(1.0)}}}
    assert set(meanings(tables)) == {"NLL", "AUROC", "labels"}


def test_the_command_repeats_what_was_asked() -> None:
    @dataclass(frozen=True)
    class Options:
        data: str | None = None
        tune: bool | None = None
        resume: bool = False
        model_options: dict[str, Any] = field(default_factory=dict)

    asked = Options("my file.npz", tune=False, resume=True, model_options={"hidden": [8, 8]})
    assert command("fit", asked) == ("osculate fit --data 'my file.npz' --no-tune --model-options.hidden '[8, 8]'"), (
        "what becomes of an earlier run is no part of it"
    )
    assert command("demo", Options()) == "osculate demo"
