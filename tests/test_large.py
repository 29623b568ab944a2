"""The table of large networks is the committed record, and the record keeps the bounds that it states."""

import json
from pathlib import Path

import pytest
import torch

from benchmarks import large
from benchmarks.markdown import large_markdown

ROOT = Path(__file__).resolve().parent.parent
RECORD = ROOT / "benchmarks" / "results" / "large_networks.json"


def record() -> dict:
    return json.loads(RECORD.read_text(encoding="utf-8"))


def test_the_table_is_the_record() -> None:
    text = (ROOT / "docs" / "large_networks.md").read_text(encoding="utf-8")
    begin, end = "<!-- large networks -->", "<!-- end of large networks -->"
    assert text[text.index(begin) + len(begin) : text.index(end)].strip() == large_markdown(record())


def test_every_case_is_in_the_record_and_fits_into_memory() -> None:
    rows = {row["name"]: row for row in record()["rows"]}
    assert list(rows) == list(large.CASES)
    for name, row in rows.items():
        assert row["memory"]["peak"] <= large.MEMORY, name
        assert row["met"] == large.met(row), name
        assert row["parameters"] > 0, name


def test_each_kind_of_network_is_among_the_cases() -> None:
    assert {case.subject for case in large.CASES.values()} == set(large.SUBJECTS)
    with torch.device("meta"):
        sizes = {name: sum(p.numel() for p in s.build().parameters()) for name, s in large.SUBJECTS.items()}
    assert sizes["resnet"] > 23e6
    assert sizes["vit"] > 5e6
    assert large.VOCABULARY >= 5000


def test_a_missed_bound_is_noticed() -> None:
    kept = {"fit_units": 1.0, "fit_bound": 2.0, "predict_units": 9.0, "predict_bound": None, "memory": {"peak": 1e9}}
    assert large.met(kept)
    assert not large.met({**kept, "fit_units": 2.1})
    assert not large.met({**kept, "predict_bound": 8.0})
    assert not large.met({**kept, "memory": {"peak": 6.1e9}})


def test_an_unknown_case_is_answered_with_the_known_ones() -> None:
    with pytest.raises(SystemExit, match="unet-diag"):
        large.main(["unett"])
