"""Stale records: what counts as another state of code, settings, data and torch, their order, and their repetition."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments import REGISTRY, Findings, Record, Runner, read_record, sources
from experiments.__main__ import main
from experiments.experiment import changed as with_changes
from experiments.joined import joined
from experiments.pages import section
from experiments.paired import ERRORS
from experiments.record import HOLDS, UNDECIDED, Claim, Number, Origin, Setup
from experiments.runner import OutOfTime
from experiments.sources import SOURCES, Sources, files, minor
from experiments.stale import Stale, asked, reasons, stale, wanted_seeds
from experiments.statements import ABOVE, Artefact, Statement, Test, level
from tests.experiments.test_cells import interrupted
from tests.experiments.test_reproductions import TINY

ONE = '''"""An experiment."""

import library
from experiments import experiment
from experiments.runner import helper


@experiment("one")
def measure(settings):
    """Measure."""
    from library.late import value

    return helper(library.first(value), "mnist")


def claims(numbers) -> Iterator[Claim]:
    yield Claim.over_seeds("one", "words")


def costs(numbers) -> Claim:
    return Claim.judged("two", numbers < 1, "words")


@measure.figure
def draw(record):
    from library.drawing import line

    return line(record)
'''
FILES = {
    "experiments/__init__.py": """
from experiments.runner import helper, experiment
from experiments.folder import one, two
""",
    "experiments/runner.py": """
from experiments.base import helper


def experiment(name):
    return lambda f: f
""",
    "experiments/base.py": "def helper(x):\n    return x\n",
    "experiments/folder/__init__.py": "from experiments.folder import one, two\n",
    "experiments/folder/one.py": ONE,
    "experiments/folder/two.py": "x = 2\n",
    "library/__init__.py": "from library.early import first\n",
    "library/early.py": "def first(x):\n    return (x, None)\n",
    "library/late/__init__.py": "from .deep import value\n",
    "library/late/deep.py": "value = 1  # one\n",
    "library/drawing.py": "def line(x):\n    return x\n",
    "library/unused.py": "x = 1\n",
}


def code(
    folder: Path, name: str = "experiments/runner.py", text: str = FILES["experiments/runner.py"]
) -> dict[str, str]:
    """Digests of the experiment, with other contents of one file."""
    for each, content in {**FILES, name: text}.items():
        path = folder / each
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return Sources({name: folder / name for name in ("experiments", "library")}).code("experiments.folder.one")


def test_code_is_what_is_imported_anywhere(tmp_path: Path) -> None:
    assert list(code(tmp_path)) == [
        *("experiments/base.py", "experiments/folder", "experiments/runner.py"),
        *("library/__init__.py", "library/early.py", "library/late"),
    ]


FORMATTED = '''"""New."""


def first(x):
    """Two."""
    # a comment
    return (
        x,
        None,
    )
'''


@pytest.mark.parametrize(
    ("name", "text"),
    [
        pytest.param("library/early.py", FORMATTED, id="docstring, comment and format"),
        pytest.param("experiments/folder/one.py", ONE.replace("line(record)", "line(record, 1)"), id="figure"),
        pytest.param("experiments/folder/one.py", ONE.replace('"one", "words"', '"one", "others"'), id="words"),
        pytest.param("experiments/folder/one.py", ONE.replace('"mnist"', "'mnist'"), id="quotes"),
        pytest.param("experiments/folder/two.py", "x = 3\n", id="other experiment"),
        pytest.param(
            "experiments/folder/__init__.py", "from experiments.folder import one\n", id="list of experiments"
        ),
        pytest.param("library/drawing.py", "x = 3\n", id="plot"),
        pytest.param("library/unused.py", "x = 3\n", id="unused"),
    ],
)
def test_what_has_no_effect_does_not_count(name: str, text: str, tmp_path: Path) -> None:
    assert code(tmp_path / "after", name, text) == code(tmp_path / "before")


@pytest.mark.parametrize(
    ("name", "text", "part"),
    [
        ("library/late/deep.py", "value = 2\n", "library/late"),
        ("experiments/folder/one.py", ONE.replace("numbers < 1", "numbers < 2"), "experiments/folder"),
        ("library/early.py", "def first(x):\n    return (None, x)\n", "library/early.py"),
        ("library/__init__.py", "from library.early import first\nlimit = 1\n", "library/__init__.py"),
        (
            "experiments/runner.py",
            FILES["experiments/runner.py"].replace("f: f", "f: None"),
            "experiments/runner.py",
        ),
        ("experiments/folder/one.py", ONE.replace('"mnist"', '"kmnist"'), "experiments/folder"),
    ],
)
def test_other_code_is_named_by_its_part(name: str, text: str, part: str, tmp_path: Path) -> None:
    before, after = code(tmp_path / "before"), code(tmp_path / "after", name, text)
    assert [key for key in before if before[key] != after[key]] == [part]


def test_the_code_of_an_experiment_is_found() -> None:
    found = SOURCES.imported(REGISTRY["lae-table2"].measure.__module__)
    assert {"experiments.record", "experiments.lae.models", "osculate.structures.kron", "osculate.data.mnist"} <= found
    assert not [name for name in found if name.startswith(("osculate.cli", "osculate.plots", "experiments.linlap"))]


def test_the_size_of_files_stands_for_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OSCULATE_DATA", str(tmp_path))
    monkeypatch.setattr("osculate.data.files.user_cache", lambda: tmp_path / "cache")
    path = tmp_path / "frey_face" / "frey_face.npz"
    path.parent.mkdir()
    path.write_bytes(b"12345")
    assert files({"a word"}, {"tasks": [{"data": "frey_face"}, {"data": "digits"}, {"data": "svhn"}]}) == {
        "frey_face": 5
    }
    assert files({"Frey-Face"}, {}) == {"frey_face": 5}


def record(name: str = "linlap-em", scale: str = "small", seconds: float = 36.0, **settings: Any) -> Record:
    """A record as a run of today would write it."""
    chosen = REGISTRY[name]
    today = with_changes(chosen.presets["small"], settings)
    setup = Setup(
        scale,
        plain(chosen.recorded(today)),
        (0, 1),
        seconds,
        {"torch": f"{minor(torch.__version__)}.99"},
        chosen.origin(today),
    )
    return Record(name, "title", "document", setup, Findings((), ()))


def plain(settings: Any) -> Any:
    return json.loads(json.dumps(settings))


def changed(record: Record, **values: Any) -> Record:
    """The record with another origin or setup."""
    of_origin = {key: values.pop(key) for key in ("code", "data", "commit") if key in values}
    return replace(record, setup=replace(record.setup, origin=replace(record.setup.origin, **of_origin), **values))


def test_a_record_of_today_is_not_stale_and_its_origin_is_kept(tmp_path: Path) -> None:
    now = record()
    assert list(reasons(now)) == []
    now.write(tmp_path / "linlap-em.json")
    assert read_record(tmp_path / "linlap-em.json") == now
    assert stale(tmp_path) == []
    assert now.setup.origin.date
    assert len(now.setup.origin.code) > 20


def test_settings_that_were_changed_on_purpose_are_no_reason() -> None:
    scale = "small, samples = (8, 16), precision = 2.0"
    assert asked(record(scale=scale, samples=[8, 16], precision=2.0)) == (
        "small",
        {"samples": [8, 16], "precision": 2.0},
    )
    assert list(reasons(record(scale=scale, samples=[8, 16], precision=2.0))) == []
    assert list(reasons(record(scale="small", samples=[8, 16]))) == ["settings: samples"]
    assert list(reasons(record(scale="tiny"))) == ["there is no scale 'tiny' any more"]


def test_each_reason_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    now = record()
    other = {**now.setup.origin.code, "osculate/structures": "0", "osculate/gone": "1"}
    assert list(reasons(changed(now, code=other))) == ["code: osculate/gone, osculate/structures"]
    parts = list(now.setup.origin.code)
    others = dict.fromkeys(parts, "0")
    assert list(reasons(changed(now, code=others))) == [f"code: {', '.join(parts[:5])} and {len(parts) - 5} more"]
    assert list(reasons(changed(now, versions={"torch": "1.9.0"}))) == [f"torch: 1.9, now {minor(torch.__version__)}"]
    assert list(reasons(changed(now, code={}, commit="abc"))) == [
        "code: no digests were kept; its numbers came with abc"
    ]
    monkeypatch.setattr(sources, "files", lambda *_: {"mnist": 5, "svhn": 7})
    assert list(reasons(changed(now, data={"mnist": 4, "svhn": 7, "elsewhere": 1}))) == ["data: mnist"]


def test_headlines_come_first_and_then_the_cheap_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {"linlap-em": 360.0, "lae-table2": 7200.0, "linlap-sampling": 3600.0, "linlap-logistic": 36.0}
    for name, seconds in names.items():
        changed(record(name, seconds=seconds), code={}, commit="").write(tmp_path / f"{name}.json")
    record("linlap-mackay").write(tmp_path / "linlap-mackay.json")
    found = stale(tmp_path)
    assert [(each.path.stem, each.headline, each.hours) for each in found] == [
        ("linlap-sampling", True, 1.0),
        ("lae-table2", True, 2.0),
        ("linlap-logistic", False, 0.01),
        ("linlap-em", False, 0.1),
    ]
    assert main(["--stale", "--results", str(tmp_path), "--hours", "3.05"]) == 0
    out = capsys.readouterr().out
    words = ("headlines: 2 stale", "3.00", "others: 2 stale", "0.11", "3.11 (beyond the limit)", "unknown")
    assert all(word in out for word in words)
    assert "linlap-mackay" not in out


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder with stale records of two experiments that run in a second."""
    monkeypatch.chdir(tmp_path)
    for name in ("linlap-em", "linlap-logistic"):
        tiny = with_changes(REGISTRY[name].presets["small"], TINY[name])
        scale = ", ".join(["small", *(f"{key} = {getattr(tiny, key)}" for key in TINY[name])])
        made = changed(record(name, scale, 10.0 + len(name), **TINY[name]), code={})
        made.write(Path(f"experiments/results/{name}.json"))
    return Path("experiments/results")


@pytest.mark.slow
def test_records_are_measured_again_and_an_interrupted_run_goes_on(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.stem: read_record(path) for path in results.glob("*.json")}
    with monkeypatch.context() as patch:
        interrupted(patch, 1)
        assert main(["--records", "--no-progress"]) != 0
    assert len(list(results.glob("*.cells"))) == 1
    assert main(["--stale"]) == 0
    assert "begun" in capsys.readouterr().out
    measured = interrupted(monkeypatch, 100)
    assert main(["--records", "--no-progress"]) == 0
    assert measured() > 0
    assert stale(results) == []
    assert not list(results.glob("*.cells"))
    for name, old in before.items():
        again = read_record(results / f"{name}.json")
        assert again.findings.numbers
        assert (again.setup.scale, again.setup.seeds) == (old.setup.scale, old.setup.seeds)
        assert (results / f"{name}.png").is_file()
    assert (results.parent / "RESULTS.md").is_file()
    assert main(["--records"]) == 0  # nothing is stale


def test_a_limit_of_hours_ends_between_cells(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    measured = interrupted(monkeypatch, 100)
    assert main(["--records", "--hours", "1e-9", "--no-progress"]) == 0
    assert "The time is over; the same command goes on with linlap-em." in capsys.readouterr().out
    assert measured() == 0
    assert len(stale(results)) == 2
    assert main(["--records", "--hours", "0"]) == 2


@pytest.mark.slow
def test_one_that_cannot_be_measured_does_not_keep_the_others(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fails(*_: Any) -> Findings:
        raise FileNotFoundError("there are no data")

    monkeypatch.setattr(REGISTRY["linlap-em"], "measure", fails)
    monkeypatch.setattr(fails, "__module__", "experiments.linlap.em", raising=False)
    assert main(["--records", "--no-progress"]) == 2
    assert "the errors above kept linlap-em from being measured again." in (printed := capsys.readouterr()).err
    assert "linlap-em was not measured again: there are no data" in printed.out
    assert [each.path.stem for each in stale(results)] == ["linlap-em"]


def test_a_cell_that_is_as_long_as_the_longest_is_not_begun_late(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now = [0.0]
    monkeypatch.setattr("experiments.runner.time.monotonic", lambda: now[0])
    monkeypatch.setattr("experiments.runner.time.perf_counter", lambda: now[0])

    def measure(seconds: float) -> float:
        now[0] += seconds
        return seconds

    def run(until: float) -> list[float]:
        return list(Runner(str(tmp_path), until=until).each("cells", [(1.0,), (5.0,), (2.0,), (3.0,)], measure))

    with pytest.raises(OutOfTime):
        run(until=10.0)
    assert now[0] == 6.0  # one of five seconds would end after ten
    assert run(until=20.0) == [1.0, 5.0, 2.0, 3.0]
    assert now[0] == 11.0


def test_cells_in_a_cell_are_counted_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    now = [0.0]
    monkeypatch.setattr("experiments.runner.time.perf_counter", lambda: now[0])

    def take(seconds: float) -> Callable[[], dict[str, float]]:
        def measure() -> dict[str, float]:
            now[0] += seconds
            return {"x": seconds}

        return measure

    def outer(runner: Runner) -> dict[str, float]:
        runner.cached("inner", (), (), take(3.0))
        return take(2.0)()

    for _ in range(2):
        runner = Runner(str(tmp_path))
        runner.cached("outer", (), (), lambda: outer(runner))  # noqa: B023
        assert runner.seconds == 5.0


def test_origins_are_read_from_records_that_have_none(tmp_path: Path) -> None:
    path = tmp_path / "linlap-em.json"
    record().write(path)
    content = json.loads(path.read_text(encoding="utf-8"))
    del content["setup"]["origin"]
    path.write_text(json.dumps(content), encoding="utf-8")
    assert read_record(path).setup.origin == Origin()


def command(name: str, path: Path) -> list[str]:
    """Arguments of a small run."""
    changes = [f"--settings.{key}={json.dumps(value)}" for key, value in plain(TINY[name]).items()]
    return [name, "--no-progress", "--json", str(path), *changes]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linlap-em", "linlap-logistic"])
def test_a_record_of_today_grows_by_the_seeds_that_it_lacks(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    paths = [tmp_path / f"{part}.json" for part in ("grown", "whole")]
    assert main([*command(name, paths[0]), "--seeds", "2"]) == 0
    assert main([*command(name, paths[0]), "--seeds", "3"]) == 0
    assert "measuring from seed 2 to 2." in capsys.readouterr().out
    assert main([*command(name, paths[1]), "--seeds", "3"]) == 0
    found, whole = map(read_record, paths)
    assert found.setup.seeds == (0, 1, 2)
    assert paths[0].with_suffix(".png").is_file()
    assert [claim.verdict for claim in found.findings.claims] == [claim.verdict for claim in whole.findings.claims]
    for one, other in zip(found.findings.numbers, whole.findings.numbers, strict=True):
        assert len(one.values) == len(other.values)
        assert len(one.values) == 1 or "seconds" in one.column or one.values == other.values


@pytest.mark.slow
def test_records_that_only_lack_seeds_grow_or_are_measured_as_a_whole(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("experiments.stale.wanted_seeds", lambda *_: 3)
    for name, dropped in (("linlap-em", 0), ("linlap-logistic", 1)):
        made = REGISTRY[name].run("small", 2, TINY[name], False)
        numbers = made.findings.numbers[dropped:]
        replace(made, findings=replace(made.findings, numbers=numbers)).write(results / f"{name}.json")
    assert [each.short for each in stale(results)] == ["seeds: 2 of 3"] * 2
    assert main(["--records", "--no-progress"]) == 0
    said = capsys.readouterr().err
    assert "cannot be added to linlap-logistic" in said
    assert "cannot be added to linlap-em" not in said
    for name in ("linlap-em", "linlap-logistic"):
        assert read_record(results / f"{name}.json").setup.seeds == (0, 1, 2)


def grown(values: tuple[float, ...] = (1.0,), claim: Claim | None = None, **setup: Any) -> Record:
    """A record of seed 0, or of others."""
    made = changed(record(), **{"seeds": (0,), "commit": "abc", **setup})
    claims = (claim or Claim.over_seeds("one", "words"),)
    return replace(made, findings=Findings((Number("a", "b", values), Number("all", "b", ())), claims, {"curve": [1]}))


def test_seeds_join_those_of_a_record() -> None:
    more = grown((2.0, 3.0), Claim.over_seeds("one", "others"), seeds=(1, 2), commit="def")
    found = joined(grown(), more)
    assert [number.values for number in found.findings.numbers] == [(1.0, 2.0, 3.0), ()]
    assert [claim.evidence for claim in found.findings.claims] == ["Seed 0: words Seeds 1–2: others"]
    assert found.setup.seconds == 72.0
    assert (found.setup.origin.commit, found.setup.origin.added) == ("abc", {"seeds 1–2": "def"})
    same = joined(grown(claim=Claim.over_seeds("one", "words, 1.0")), grown((2.0,), seeds=(1,)))
    assert [claim.evidence for claim in same.findings.claims] == ["words"]
    last = joined(found, grown((4.0,), Claim.over_seeds("one", "more"), seeds=(3,)))
    assert [claim.evidence for claim in last.findings.claims] == ["Seed 0: words Seeds 1–2: others Seed 3: more"]
    assert last.setup.origin.added == {"seeds 1–2": "def"}


@pytest.mark.parametrize(
    ("values", "claim", "setup", "reason"),
    [
        ((2.0, 3.0), None, {"seeds": (0, 1)}, "the others are seeds 0–1"),
        ((2.0,), None, {"seeds": (1,), "scale": "paper"}, "linlap-em, paper"),
        ((2.0, 3.0), None, {"seeds": (1,)}, "a, b: of 1 and 1 seeds it has 1 and 2 values"),
        ((2.0,), None, {"seeds": (1,), "code": {}}, "the code of the others"),
        ((2.0,), Claim.judged("one", False, "0"), {"seeds": (1,)}, "by seed 1 'one' is decided differently"),
    ],
)
def test_seeds_that_do_not_fit_are_refused(
    values: tuple[float, ...], claim: Claim | None, setup: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValueError, match=f"cannot be added to linlap-em: .*{reason}.*one run"):
        joined(grown(claim=Claim.judged("one", True, "1")), grown(values, claim, **setup))


def test_a_cell_of_the_first_record_alone_stays_and_another_is_refused() -> None:
    first, more = grown(), grown((2.0,), seeds=(1,))
    less = replace(more, findings=replace(more.findings, numbers=()))
    assert joined(first, less).findings.numbers == first.findings.numbers
    with pytest.raises(ValueError, match="it has no cell"):
        joined(replace(first, findings=replace(first.findings, numbers=())), more)


def test_errors_over_test_data_are_those_of_the_first_seeds_that_have_them() -> None:
    def kept(record: Record, **errors: float) -> Record:
        return replace(record, findings=replace(record.findings, data={ERRORS: errors}))

    bare, more = grown(), kept(grown((2.0,), seeds=(1,)), x=0.1)
    found = joined(bare, more)
    assert found.findings.data == {"curve": [1], ERRORS: {"x": 0.1}}
    again = joined(found, kept(grown((3.0,), seeds=(2,)), x=0.2, y=0.3)).findings.data
    assert again == {"curve": [1], ERRORS: {"x": 0.1, "y": 0.3}}


def test_only_the_seeds_that_are_lacking_take_time() -> None:
    now = grown((1.0, 2.0), seeds=(0, 1))
    assert Stale(Path("x"), now, True, (), 5).hours == pytest.approx(3 * 0.005)
    assert Stale(Path("x"), now, True, ("code: x",), 5).hours == pytest.approx(5 * 0.005)


@pytest.mark.parametrize(
    ("values", "seeds"),
    [((1.0,), (0,)), ((1.0, 2.0, 3.0, 4.0), (0, 1)), ((1.0, 2.0), (0, 1, 2))],
    ids=["one seed", "several values for a seed", "values of some seeds"],
)
def test_what_cannot_grow_is_measured_as_a_whole(values: tuple[float, ...], seeds: tuple[int, ...]) -> None:
    assert Stale(Path("x"), grown(values, seeds=seeds), True, (), 5).first == 0


@pytest.mark.parametrize(
    ("values", "seeds", "verdict", "wanted"),
    [
        ((1.0, 2.0), (0, 1), UNDECIDED, 5),
        ((1.0, 2.0), (0, 1), HOLDS, 5),
        ((1.0,) * 5, (0, 1, 2, 3, 4), HOLDS, 5),
        ((1.0,) * 5, (0, 1, 2, 3, 4), UNDECIDED, 10),
        ((1.0,) * 18, (0, 1, 2), UNDECIDED, 3),  # 18 splits or tasks are more than ten
    ],
)
def test_a_headline_asks_for_five_seeds_and_ten_if_undecided(
    values: tuple[float, ...], seeds: tuple[int, ...], verdict: str, wanted: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    stated = Statement("one", "", (Test(ABOVE, "nats", level("a", "b"), 0.0),), headline=True)
    monkeypatch.setattr("experiments.stale.artefact", lambda _: Artefact("x", "Table 1", (stated,)))
    assert wanted_seeds("x", grown(values, Claim("one", verdict, stated="one"), seeds=seeds)) == wanted


def test_the_page_of_a_record_that_grew_says_so(tmp_path: Path) -> None:
    found = joined(grown((1.0, 2.0), seeds=(0, 1)), grown((2.0,), seeds=(2,), commit="def"))
    assert "added at" not in section(grown(), "linlap-em", tmp_path)
    assert "Seed 2: added at def." in section(found, "linlap-em", tmp_path)
