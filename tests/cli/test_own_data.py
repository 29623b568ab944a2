"""From the user's own tables and images to predictions with names, through the command line."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from osculate.cli.checkpoint import read_model
from osculate.data import Schema, read
from osculate.data.own.writing import write_predictions

FEW = ("--epochs", 20, "--lr", 0.01, "--batch-size", 16)
SMALL = (*FEW, "--model-options.hidden", "[8]")


def customers(rows: int = 90, seed: int = 0) -> pd.DataFrame:
    """Words, missing values, identifiers and dates; red and large ones buy."""
    random = np.random.default_rng(seed)
    size, colour = random.normal(50, 10, rows).round(1), random.choice(["red", "blue", "green"], rows)
    frame = pd.DataFrame(
        {
            "customer_id": [f"C{number:03d}" for number in range(rows)],
            "size": np.where(random.random(rows) < 0.1, np.nan, size),
            "colour": np.where(random.random(rows) < 0.1, None, colour),
            "joined": [f"2025-01-{number % 28 + 1:02d}" for number in range(rows)],
            "bought": np.where(size + 8 * (colour == "red") > 54, "yes", "no"),
        }
    )
    return frame.assign(price=3 * size + random.normal(0, 2, rows))


@pytest.fixture(scope="module")
def bought(run: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a classifier of a table, and the table beside it."""
    folder = tmp_path_factory.mktemp("bought")
    customers().drop(columns="price").to_csv(folder / "customers.csv", index=False)
    words = ("--data", folder / "customers.csv", "--target", "bought", *SMALL, "--output", folder / "run")
    assert run("train", *words) == 0
    assert run("fit", "--checkpoint", folder / "run") == 0
    return folder


def test_a_table_of_words_becomes_predictions_with_names(run: Any, bought: Path, tmp_path: Path, capsys: Any) -> None:
    new = customers(30, seed=1).drop(columns=["price", "bought"])
    new.loc[0, "customer_id"] = "=HYPERLINK(1)"
    new.to_csv(tmp_path / "new.csv", index=False)
    assert run("predict", "--posterior", bought / "run", "--inputs", tmp_path / "new.csv") == 0
    with (bought / "run" / "predictions.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 30
    assert [row["customer_id"] for row in rows[:2]] == ["'=HYPERLINK(1)", "C001"]
    assert {row["prediction"] for row in rows} == {"no", "yes"}
    for row in rows:
        likely = "yes" if float(row["probabilities[yes]"]) > 0.5 else "no"
        assert row["prediction"] == likely
    truth = customers(30, seed=1)["bought"]
    assert np.mean([row["prediction"] == word for row, word in zip(rows, truth, strict=True)]) > 0.7
    assert not (bought / "run" / "predictions.npz").exists(), "a table is answered by a table"


def test_the_schema_is_printed_and_saved_with_the_run(run: Any, bought: Path, capsys: Any, tmp_path: Path) -> None:
    schema = Schema.from_content(json.loads((bought / "run" / "schema.json").read_text()))
    data = read(bought / "customers.csv", target="bought")
    assert schema == data.schema
    _, card = read_model(bought / "run" / "model.safetensors")
    assert card is not None
    assert card.schema == schema
    words = ("--data", bought / "customers.csv", "--target", "bought", *SMALL, "--output", tmp_path / "run")
    assert run("train", *words, "--epochs", 1, "--columns.joined", "date") == 0
    printed = capsys.readouterr().out
    assert "customer_id  left out: an identifier" in printed
    assert "joined       date, in days since 1970" in printed
    assert run("evaluate", "--posterior", tmp_path / "run") == 0, "options of the schema are those of the training"


@pytest.mark.parametrize("ending", ["tsv", "parquet", "npz"])
def test_predictions_are_written_in_the_format_of_the_output(
    run: Any, bought: Path, tmp_path: Path, ending: str
) -> None:
    customers(8, seed=2).drop(columns="price").to_parquet(tmp_path / "new.parquet")
    output = tmp_path / f"out.{ending}"
    words = ("--inputs", tmp_path / "new.parquet", "--output", output)
    assert run("predict", "--posterior", bought / "run", *words) == 0
    if ending == "npz":
        with np.load(output) as found:
            assert found["classes"].tolist() == ["no", "yes"]
            assert found["prediction"].dtype.kind == "i"
        return
    found = pd.read_parquet(output) if ending == "parquet" else pd.read_csv(output, sep="\t")
    assert list(found.columns[:4]) == ["customer_id", "prediction", "probabilities[no]", "probabilities[yes]"]
    assert set(found["prediction"]) <= {"no", "yes"}


def test_evaluation_on_another_table_and_out_of_distribution(
    run: Any, bought: Path, tmp_path: Path, capsys: Any
) -> None:
    customers(40, seed=3).drop(columns="price").to_csv(tmp_path / "other.csv", index=False)
    customers(20, seed=4).assign(size=500.0).drop(columns=["price", "bought"]).to_csv(tmp_path / "far.csv", index=False)
    words = ("--data", tmp_path / "other.csv", "--ood", tmp_path / "far.csv", "--output", tmp_path / "e.json")
    assert run("evaluate", "--posterior", bought / "run", *words) == 0
    assert json.loads((tmp_path / "e.json").read_text())["test_data"] == 40
    assert "check its unit" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda frame: frame.drop(columns="colour"), ["lacks the column 'colour'", "add it"]),
        (lambda frame: frame.rename(columns={"size": "Size"}), ["lacks the column 'size'", "'Size'"]),
        (lambda frame: frame.assign(size="big"), ["'size'", "must hold numbers", "'big' in row 1"]),
        (lambda frame: frame[:0], ["no rows"]),
    ],
)
def test_a_table_that_has_drifted_is_answered_in_words(
    run: Any, bought: Path, tmp_path: Path, capsys: Any, change: Any, words: list[str]
) -> None:
    change(customers(9)).to_csv(tmp_path / "new.csv", index=False)
    assert run("predict", "--posterior", bought / "run", "--inputs", tmp_path / "new.csv") == 2
    err = capsys.readouterr().err
    assert all(word in err for word in words), err
    assert err.strip().splitlines()[-1].startswith("osculate: error: ")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--data", "{}"), ("--target", "'bought'")),
        (("--data", "{}", "--target", "bougth"), ("did you mean 'bought'",)),
        (("--data", "{}x", "--target", "bought"), ("no file", "tables (.csv")),
        (("--data", "notes.docx"), ("no file", "accepted are")),
        (("--data", "https://example.org/a.csv"), ("download it first",)),
        (("--data", "digits", "--target", "bought"), ("--target", "'digits' is a named data set")),
        (("--data", "{}", "--target", "bought", "--columns.size", "word"), ("'word'", "'category'")),
        (("--data", "{}", "--target", "none", "--model", "mlp"), ("learns from targets",)),
    ],
)
def test_mistakes_end_before_any_training(
    run: Any, bought: Path, tmp_path: Path, capsys: Any, words: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    typed = [word.format(bought / "customers.csv") for word in words]
    assert run("train", *typed, "--output", tmp_path / "run") == 2
    err = capsys.readouterr().err
    assert all(part in err for part in parts), err
    assert err.count("\n") == 1
    assert "fashion_mnist" not in err
    assert not (tmp_path / "run").exists()


@pytest.mark.release
def test_parquet_to_real_numbers_in_their_own_units(run: Any, tmp_path: Path) -> None:
    frame = customers(80).drop(columns=["bought", "joined"])
    frame.to_parquet(tmp_path / "prices.parquet")
    words = ("--data", tmp_path / "prices.parquet", "--target", "price", *SMALL, "--epochs", 60)
    assert run("train", *words, "--output", tmp_path / "run") == 0
    assert run("fit", "--checkpoint", tmp_path / "run", "--structure", "full") == 0
    frame[:20].drop(columns="price").to_parquet(tmp_path / "new.parquet")
    assert run("predict", "--posterior", tmp_path / "run", "--inputs", tmp_path / "new.parquet") == 0
    found = pd.read_parquet(tmp_path / "run" / "predictions.parquet")
    assert list(found.columns) == ["customer_id", "mean", "sd", "sd_function"]
    known = frame["size"].notna()[:20].to_numpy()
    assert np.abs(found["mean"] - frame["price"][:20])[known].mean() < 0.5 * frame["price"].std()


def shots(folder: Path, number: int, size: int = 12) -> Path:
    """JPEG files of bright and dark squares, a folder each."""
    random = np.random.default_rng(0)
    for word, value in {"bright": 180, "dark": 40}.items():
        (folder / word).mkdir(parents=True, exist_ok=True)
        for index in range(number):
            pixels = np.clip(random.normal(value, 10, (size, size, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / word / f"{index:02d}.jpg")
    return folder


@pytest.mark.slow
def test_a_folder_of_photographs_to_classes(run: Any, tmp_path: Path) -> None:
    shots(tmp_path / "shots", 20)
    words = ("--data", tmp_path / "shots", "--image-size", 8, *FEW, "--model-options.width", 2)
    assert run("train", *words, "--output", tmp_path / "run") == 0
    assert run("fit", "--checkpoint", tmp_path / "run", "--structure", "diag") == 0
    new = shots(tmp_path / "new", 3, 20)
    assert run("predict", "--posterior", tmp_path / "run", "--inputs", new / "dark") == 0
    found = pd.read_csv(tmp_path / "run" / "predictions.csv")
    assert list(found["file"]) == ["00.jpg", "01.jpg", "02.jpg"]
    assert set(found["prediction"]) == {"dark"}
    assert run("evaluate", "--posterior", tmp_path / "run", "--data", new) == 0


@pytest.mark.slow
def test_a_folder_of_photographs_to_an_autoencoder(run: Any, tmp_path: Path) -> None:
    folder = shots(tmp_path / "shots", 20, 8)
    words = ("--data", folder / "dark", "--latent", 2, "--epochs", 2, "--model-options.hidden", "[8]")
    assert run("train", *words, "--output", tmp_path / "run") == 0
    _, card = read_model(tmp_path / "run" / "model.safetensors")
    assert card is not None
    assert card.reconstructs
    assert run("fit", "--checkpoint", tmp_path / "run", "--structure", "diag", "--refine", "false") == 0
    words = ("--task", "ood", "--ood", folder / "bright", "--samples", 2, "--output", tmp_path / "metrics.json")
    assert run("evaluate", "--posterior", tmp_path / "run", *words) == 0
    assert "auroc_mean_pixel" in json.loads((tmp_path / "metrics.json").read_text())["ood"]["bright"]


def test_cells_that_a_spreadsheet_would_execute_are_quoted(tmp_path: Path) -> None:
    words = np.array(["=1+1", "+cmd|' /C calc'!A0", "@SUM(A1)", "-x", "-1.5", "plain", "\tx"], dtype=object)
    write_predictions(tmp_path / "p.csv", {"=name": words, "p": np.arange(7.0)})
    with (tmp_path / "p.csv").open(newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["'=name", "p"]
    assert [row[0] for row in rows] == ["'=1+1", "'+cmd|' /C calc'!A0", "'@SUM(A1)", "'-x", "-1.5", "plain", "'\tx"]


@pytest.mark.release
@pytest.mark.parametrize("named", [True, False])
def test_every_command_reads_npy_files(run: Any, tmp_path: Path, named: bool) -> None:
    x, y = np.random.default_rng(0).normal(size=(60, 3)), np.arange(60) % 2
    np.save(tmp_path / "x_inputs.npy", x + y[:, None])
    np.save(tmp_path / ("labels.npy" if named else "x_targets.npy"), y)
    target = ("--target", tmp_path / "labels.npy") if named else ()
    assert run("train", "--data", tmp_path / "x_inputs.npy", *target, *SMALL, "--output", tmp_path / "run") == 0
    assert run("fit", "--checkpoint", tmp_path / "run") == 0
    assert run("evaluate", "--posterior", tmp_path / "run") == 0
    assert json.loads((tmp_path / "run" / "evaluation.json").read_text())["test_data"] == 12
    assert run("predict", "--posterior", tmp_path / "run") == 0
    assert run("predict", "--posterior", tmp_path / "run", "--inputs", tmp_path / "x_inputs.npy") == 0
    with np.load(tmp_path / "run" / "predictions.npz") as written:
        assert len(written["prediction"]) == 60


def test_detection_with_another_file_compares_with_the_training_inputs(
    run: Any, bought: Path, tmp_path: Path, capsys: Any
) -> None:
    customers(30, seed=1).drop(columns="price").to_csv(tmp_path / "new.csv", index=False)
    customers(30, seed=2).drop(columns=["price", "bought"]).assign(size=500.0).to_csv(tmp_path / "far.csv", index=False)
    words = ("--posterior", bought / "run", "--data", tmp_path / "new.csv", "--ood", tmp_path / "far.csv")
    assert run("evaluate", *words, "--output", tmp_path / "e.json") == 0
    assert (
        "new: AUROC of the inputs alone, without a network, beside 65 training inputs of customers"
        in capsys.readouterr().out
    )
    assert json.loads((tmp_path / "e.json").read_text())["inputs_alone"]["far.csv"]["auroc_nearest_input"] > 0.9
    page = (tmp_path / "e.html").read_text()
    assert "training inputs of customers" in page
    assert f"--data {tmp_path / 'new.csv'}" in page, "the command that repeats it"
    table = bought / "customers.csv"
    kept = table.rename(tmp_path / "moved.csv")
    try:
        assert run("evaluate", *words, "--output", tmp_path / "e.json") == 0
    finally:
        kept.rename(table)
    out = capsys.readouterr().out
    assert f"The training data {table} cannot be read as they were" in out.replace("\n", " ")
    assert "name one" not in out, "the advice of the error"
    assert json.loads((tmp_path / "e.json").read_text())["inputs_alone"]["far.csv"].keys() == {
        "auroc_mean_pixel",
        "auroc_mean_pixel_error",
    }


@pytest.mark.release
def test_detection_with_real_valued_targets(run: Any, tmp_path: Path) -> None:
    customers().drop(columns="bought").to_csv(tmp_path / "prices.csv", index=False)
    words = ("--data", tmp_path / "prices.csv", "--target", "price", *SMALL, "--output", tmp_path / "run")
    assert run("train", *words) == 0
    assert run("fit", "--checkpoint", tmp_path / "run") == 0
    customers(30, seed=2).assign(size=500.0).to_csv(tmp_path / "far.csv", index=False)
    assert run("evaluate", "--posterior", tmp_path / "run", "--ood", tmp_path / "far.csv") == 0
    found = json.loads((tmp_path / "run" / "evaluation.json").read_text())
    assert found["inputs_alone"]["far.csv"]["auroc_nearest_input"] > 0.9
    assert "auroc/far.csv/entropy" in str(found)


def test_predictions_of_another_file_are_for_every_row(run: Any, bought: Path, tmp_path: Path) -> None:
    customers(30, seed=1).drop(columns=["price", "bought"]).to_csv(tmp_path / "new.csv", index=False)
    words = ("--data", tmp_path / "new.csv", "--output", tmp_path / "out.csv")
    assert run("predict", "--posterior", bought / "run", *words) == 0
    assert len(pd.read_csv(tmp_path / "out.csv")) == 30


@pytest.mark.parametrize("command", [("fit", "--checkpoint"), ("evaluate", "--posterior"), ("predict", "--posterior")])
@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--split-seed", 3), ("--split-seed 3", "training (it had 0)", "leave it out")),
        (("--data", "{}/./run/../customers.csv", "--split-seed", 3), ("--split-seed 3", "leave it out")),
    ],
)
def test_other_parts_of_the_training_data_are_refused(
    run: Any, bought: Path, capsys: Any, command: tuple[str, str], words: tuple[object, ...], parts: tuple[str, ...]
) -> None:
    assert run(*command, bought / "run", *(str(word).format(bought) for word in words)) == 2
    err = capsys.readouterr().err
    assert all(part in err for part in parts), err


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (("--target", "colour"), ("--target colour is not that of the training (it had bought)",)),
        (("--validation-size", 30), ("--validation-size 30 is not that of the training (it had a tenth)",)),
        (("--data", "{}/new.csv", "--target", "colour"), ("target is 'colour'", "has 'bought'", "leave target out")),
        (("--data", "{}/new.csv", "--groups", "colour"), ("--groups is for the training", "leave it out")),
    ],
)
def test_what_contradicts_the_schema_is_refused(
    run: Any, bought: Path, capsys: Any, words: tuple[object, ...], parts: tuple[str, ...]
) -> None:
    (bought / "new.csv").write_text((bought / "customers.csv").read_text())
    assert run("fit", "--checkpoint", bought / "run", *(str(word).format(bought) for word in words)) == 2
    err = capsys.readouterr().err
    assert all(part in err for part in parts), err


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        (
            lambda frame: pd.concat([frame, frame[:7]]),
            ("7 rows more than the 90", "mix training and test rows", "--inputs"),
        ),
        (lambda frame: frame[::-1], ("has changed since the training", "90 rows", "restore the file")),
        (lambda frame: frame[:80], ("has changed since the training", "now 80")),
    ],
)
def test_a_changed_training_file_is_refused(
    run: Any, bought: Path, capsys: Any, change: Any, parts: tuple[str, ...]
) -> None:
    path = bought / "customers.csv"
    before = path.read_text()
    try:
        change(customers().drop(columns="price")).to_csv(path, index=False)
        assert run("evaluate", "--posterior", bought / "run") == 2
    finally:
        path.write_text(before)
    err = capsys.readouterr().err
    assert all(part in err for part in parts), err
