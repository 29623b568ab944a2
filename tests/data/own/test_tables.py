"""Tables of the user's own: kinds of columns, statistics of the training rows alone, and other data read alike."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from osculate.data import OwnData, Schema, read
from tests.data.test_loading import check
from tests.errors import says

N = 120


def table(rows: int = N) -> pd.DataFrame:
    """Every kind of column, with missing numbers and words."""
    random = np.random.default_rng(0)
    size = random.normal(50, 10, rows).round(2)
    size[::10] = np.nan
    colour = random.choice(["red", "blue", "green"], rows).astype(object)
    colour[5::20] = None
    return pd.DataFrame(
        {
            "customer_id": [f"C{number:04d}" for number in range(rows)],
            "size": size,
            "colour": colour,
            "member": random.random(rows) > 0.5,
            "joined": [f"2025-01-{number % 28 + 1:02d}" for number in range(rows)],
            "shop": ["north"] * rows,
            "remark": [f"remark {number}" for number in range(rows)],
            "month": random.integers(1, 13, rows),
            "bought": np.where(random.random(rows) > 0.4, "yes", "no"),
        }
    )


def column(data: OwnData, name: str) -> Any:
    assert data.schema is not None
    return next(each for each in data.schema.inputs.columns if each.name == name)


def test_kinds_of_columns_are_inferred(tmp_path: Path) -> None:
    table().to_csv(tmp_path / "mine.csv", index=False)
    data = read(tmp_path / "mine.csv", target="bought")
    check(data)
    assert data.name == "mine"
    assert data.classes == ("no", "yes")
    assert data.schema is not None
    assert data.schema.features == (
        *("size", "size is missing", "colour=blue", "colour=green", "colour=red", "colour is missing"),
        *("member", "month"),
    )
    printed = str(data.schema)
    for name, words in {
        "customer_id": "left out: an identifier",
        "joined": "left out: a date",
        "shop": "left out: constant",
        "remark": "left out: an identifier or free text",
        "colour": "category, 3 columns of 0 and 1: 'blue', 'green', 'red', and whether it is missing",
        "bought": "target: classification, 2 classes: 'no', 'yes'",
    }.items():
        assert any(line.split()[0] == name and words in line for line in printed.splitlines()), printed


def test_columns_that_are_asked_for_are_read() -> None:
    kinds = {"joined": "date", "month": "category", "member": "exclude", "customer_id": "category"}
    data = read(table(), target="bought", columns=kinds)
    assert data.schema is not None
    features = data.schema.features
    assert "joined" in features
    assert "member" not in features
    assert [f"month={number}" for number in range(1, 13)] == [name for name in features if name.startswith("month")]
    assert sum(name.startswith("customer_id=") for name in features) == len(data.train[0])
    mean, _ = column(data, "joined").scaling
    assert mean == pytest.approx((pd.Timestamp("2025-01-15") - pd.Timestamp(0)).days, abs=3)


@pytest.mark.parametrize("ending", ["csv", "tsv", "parquet", "semicolons"])
def test_all_formats_hold_the_same_table(tmp_path: Path, ending: str) -> None:
    frame, path = table(), tmp_path / f"mine.{'csv' if ending == 'semicolons' else ending}"
    if ending == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep={"csv": ",", "tsv": "\t", "semicolons": ";"}[ending])
    data, expected = read(path, target="bought"), read(frame, target="bought")
    assert data.schema == expected.schema
    assert all(torch.equal(a, b) for a, b in zip(data.train + data.test, expected.train + expected.test, strict=True))


def test_tables_of_other_libraries_and_mappings_of_columns() -> None:
    import pyarrow

    frame = table()[["size", "colour", "bought"]]
    expected = read(frame, target="bought")
    for other in (
        pyarrow.Table.from_pandas(frame),
        frame.to_dict("list"),
        (frame.drop(columns="bought"), frame["bought"]),
        frame.convert_dtypes(),
        frame.astype({"colour": "category", "bought": "category"}),
    ):
        data = read(other, target="bought")
        assert data.schema == expected.schema
        assert torch.equal(data.train[0], expected.train[0])


# ---- leakage ------------------------------------------------------------------------------------------------------


def test_statistics_are_those_of_the_training_rows() -> None:
    frame = table().assign(price=np.random.default_rng(1).normal(1e6, 5, N))
    data = read(frame, target="price", columns={"joined": "date"})
    assert data.schema is not None
    x, y = data.train
    known = list(data.schema.features)
    for name in ("size", "member", "month", "joined"):
        assert float(x[:, known.index(name)].mean()) == pytest.approx(0, abs=1e-5)
    train = x[:, known.index("size is missing")] == 0
    assert float(x[train, known.index("size")].std(correction=0)) == pytest.approx(1, abs=1e-5)
    assert float(y.mean()) == pytest.approx(0, abs=1e-5)
    assert float(y.std(correction=0)) == pytest.approx(1, abs=1e-5)
    assert not torch.isclose(data.test[0].mean(0), torch.zeros(()), atol=1e-3).all(), "of the training rows only"


def test_test_rows_change_no_statistic() -> None:
    """Values in the test rows that would change any statistic of all rows leave the transform as it is."""
    frame = table().assign(price=np.random.default_rng(1).normal(10, 5, N))
    part = np.array(["train"] * 80 + ["validation"] * 15 + ["test"] * 25)
    spoilt = frame.copy()
    spoilt.loc[80:, ["size", "price"]] = 1e6
    spoilt.loc[80:, "month"] = 99
    spoilt.loc[80:, "colour"] = "violet"
    options: Any = {"target": "price", "split_column": "part"}
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        data, other = (read(each.assign(part=part), **options) for each in (frame, spoilt))
    assert data.schema == other.schema
    assert torch.equal(data.train[0], other.train[0])
    assert torch.equal(data.train[1], other.train[1])
    assert not torch.equal(data.test[1], other.test[1])
    assert any("'violet'" in str(each.message) and "none of" in str(each.message) for each in shown)


def test_groups_are_in_one_part_only() -> None:
    frame = table().assign(patient=np.arange(N) // 6)
    frame["number"] = np.arange(N) + 0.5
    data = read(frame, target="bought", groups="patient", columns={"number": "number"}, standardise=False)
    assert data.schema is not None
    place = data.schema.features.index("number")
    found = [{int(n) // 6 for n in part[0][:, place]} for part in (data.train, data.validation, data.test)]
    assert sum(map(len, found)) == len(set().union(*found)) == N // 6
    assert all(found)
    assert "patient" not in data.schema.features
    assert "groups, not divided" in str(data.schema)


# ---- other data ---------------------------------------------------------------------------------------------------


def test_the_schema_is_the_same_after_json_and_reads_the_parts_again() -> None:
    data = read(table(), target="bought")
    assert data.schema is not None
    schema = Schema.from_content(json.loads(json.dumps(data.schema.content())))
    assert schema == data.schema
    again = read(table(), target="bought", schema=schema)
    assert all(torch.equal(a, b) for a, b in zip(again.train + again.test, data.train + data.test, strict=True))
    with pytest.raises(ValueError, match="damaged"):
        Schema.from_content({**data.schema.content(), "inputs": {"columns": [{"name": "x"}]}})
    with pytest.raises(ValueError, match="format 99"):
        Schema.from_content({**data.schema.content(), "format": 99})


def test_new_rows_are_read_as_training_rows_were() -> None:
    data = read(table(), target="bought", seed=3)
    assert data.schema is not None
    x, y = data.schema.read(table())
    assert {row.numpy().tobytes() for row in data.train[0]} <= {row.numpy().tobytes() for row in x}
    shuffled = table()[["month", "colour", "bought", "member", "size"]]
    assert torch.equal(data.schema.read(shuffled)[0], x), "by name, in any order, without the columns left out"
    assert data.schema.read(shuffled.drop(columns="bought"), targets=False)[1].shape == (N, 0)
    assert torch.equal(y, (torch.tensor((table()["bought"] == "yes").to_numpy())).long())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"colour": "violet"}, ["'colour'", "'violet'", "none of 'blue', 'green', 'red'"]),
        ({"member": None}, ["'member'", "missing in 120 rows", "training mean is filled in"]),
        ({"size": 5000.0}, ["'size'", "5000", "standard deviations", "check its unit"]),
        ({"extra": 1}, ["'extra'", "ignored"]),
    ],
)
def test_what_training_did_not_see_is_warned_of(change: dict[str, Any], words: list[str]) -> None:
    data = read(table(), target="bought")
    assert data.schema is not None
    with pytest.warns(UserWarning, match=says(*words)):
        data.schema.read(table().assign(**change))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda frame: frame.drop(columns="size"), ["lacks the column 'size'", "add it"]),
        (lambda frame: frame.rename(columns={"colour": "color"}), ["lacks the column 'colour'", "it has 'color'"]),
        (lambda frame: frame.assign(size="large"), ["'size'", "must hold numbers", "'large' in row 1"]),
        (lambda frame: frame.assign(bought="perhaps"), ["class 'perhaps'", "'no', 'yes'"]),
        (lambda frame: np.zeros((3, 8)), ["is an array", "trained on a table", "'size'"]),
    ],
)
def test_a_schema_that_has_drifted_is_refused(change: Any, words: list[str]) -> None:
    data = read(table(), target="bought")
    assert data.schema is not None
    other = change(table())
    with pytest.raises(ValueError, match=says(*words)):
        data.schema.read(other, targets=not isinstance(other, np.ndarray))


def test_several_targets_and_none() -> None:
    frame = table().assign(price=np.arange(N) * 0.5, weight=np.arange(N) * 2.5)
    for target in ("price,weight", ["price", "weight"]):
        data = read(frame, target=target)
        assert data.outputs == 2
        assert data.classes is None
    data = read(frame, target="none")
    assert not data.has_targets
    assert data.reconstructing().outputs == data.input_shape[0] > 5


def test_whole_numbers_are_classes_or_amounts_as_the_user_says() -> None:
    frame = pd.DataFrame({"x": np.arange(60) * 0.1, "stars": np.arange(60) % 5 + 1, "pair": np.arange(60) % 2})
    assert read(frame, target="stars", task="classification").classes == ("1", "2", "3", "4", "5")
    assert read(frame, target="stars", task="regression").classes is None
    assert read(frame, target="pair").classes == ("0", "1")
    assert read(frame.assign(many=np.arange(60) * 3), target="many").classes is None


def test_names_that_end_in_id_are_identifiers_only_after_a_capital_or_a_separator() -> None:
    frame = pd.DataFrame({name: range(N) for name in ("bid", "humid", "PAID", "patientId", "row_id", "ID")})
    data = read(frame.assign(y=["a", "b"] * (N // 2)), target="y")
    assert data.schema is not None
    assert data.schema.features == ("bid", "humid", "PAID")


def test_a_column_of_one_value_and_missing_cells_is_not_constant() -> None:
    frame = pd.DataFrame({"x": range(N), "consent": ["yes", None] * (N // 2), "dose": [1.0, np.nan, 1.0] * (N // 3)})
    data = read(frame.assign(y=["a", "b"] * (N // 2)), target="y")
    assert data.schema is not None
    assert data.schema.features == ("x", "consent=yes", "consent is missing", "dose", "dose is missing")


@pytest.mark.parametrize("outputs", [1, 2])
def test_groups_and_parts_of_a_table_with_targets_beside_it(outputs: int) -> None:
    frame = pd.DataFrame({"x": np.arange(N) * 0.5, "patient": np.arange(N) // 4, 0: np.arange(N)})
    y = np.random.default_rng(0).normal(size=(N, outputs))
    data = read((frame, y), groups="patient")
    assert data.schema is not None
    assert data.schema.features == ("x", "0")
    inputs = data.schema.inputs.scaling
    patients = [
        set((inputs.undo(part[0])[:, 1].round() // 4).int().tolist())
        for part in (data.train, data.validation, data.test)
    ]
    assert sum(map(len, patients)) == len(set().union(*patients)), "each patient is in one part"
    part = np.where(np.arange(N) < 100, "train", "test")
    data = read((frame.assign(part=part), y), split_column="part")
    assert len(data.test[0]) == 20


def test_classes_of_minus_one_and_one_are_named_by_their_values() -> None:
    data = read(pd.DataFrame({"x": np.arange(N) * 0.5, "y": [-1, 1] * (N // 2)}), target="y")
    assert data.classes == ("-1", "1")
    assert set(data.train[1].tolist()) == {0, 1}


def test_words_that_count_as_missing_are_named_and_may_be_kept(tmp_path: Path) -> None:
    frame = pd.DataFrame(
        {"x": np.arange(N) * 0.5, "country": ["NA", "DE", "?"] * (N // 3), "y": ["None", "Some"] * (N // 2)}
    )
    frame.loc[0, "x"] = np.nan
    path = tmp_path / "t.csv"
    frame.to_csv(path, index=False)
    with pytest.raises(ValueError, match=says("'y' is missing in 60", "'None' in 60 rows counts", '--missing ""')):
        read(path, target="y")
    data = read(path, target="y", missing="?")
    assert data.classes == ("None", "Some")
    assert data.schema is not None
    assert data.schema.features == ("x", "x is missing", "country=DE", "country=NA", "country is missing")
    assert "'?' in 40 rows counts as missing" in str(data.schema)
    again = Schema.from_content(json.loads(json.dumps(data.schema.content())))
    assert again == data.schema
    everything = torch.cat([part[0] for part in (data.train, data.validation, data.test)])
    assert torch.allclose(again.read(path)[0].sum(0), everything.sum(0), atol=1e-4)
    schema = read(path, target="y", missing=[]).schema
    assert schema is not None
    assert "country=?" in schema.features
    with pytest.raises(ValueError, match=says("--missing", ".csv")):
        read(frame, target="y", missing="?")
