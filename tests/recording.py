"""A plugin of pytest with which a long run goes on after an interruption, and leaves a record.

``python -m pytest -p tests.recording --record FILE`` leaves out what has passed according to the file, as long as the
sources are those of then, and writes the seconds of every test that passes now.
"""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


def sources() -> str:
    """A digest of the library and its tests."""
    total = sha256()
    for folder in ("osculate", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            total.update(str(path.relative_to(ROOT)).encode() + path.read_bytes())
    return total.hexdigest()[:16]


def read(path: Path) -> dict[str, Any]:
    """A record, empty where there is none of these sources."""
    content = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    return content if content.get("sources") == sources() else {}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option."""
    parser.addoption("--record", type=Path, help="file of the tests that have passed")


class Recorder:
    """Keeps the seconds of tests that pass."""

    def __init__(self, path: Path, writes: bool) -> None:
        self.path, self.writes = path, writes
        self.passed: dict[str, float] = dict(read(path).get("passed", {}))

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out what has passed."""
        done = [item for item in items if item.nodeid in self.passed]
        if done:
            config.hook.pytest_deselected(items=done)
            items[:] = [item for item in items if item.nodeid not in self.passed]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the seconds of a test that has passed."""
        if self.writes and report.when == "call" and report.passed:
            from osculate.files import (
                versions,
                write_text,
            )  # not before conftest.py has seen to it that types are checked

            self.passed[report.nodeid] = round(report.duration, 1)
            content = {"sources": sources(), "passed": dict(sorted(self.passed.items())), "versions": versions()}
            write_text(self.path, json.dumps(content, indent=2) + "\n")

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """End well where everything has passed before."""
        if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.passed:
            session.exitstatus = pytest.ExitCode.OK


def pytest_configure(config: pytest.Config) -> None:
    """Begin to record, in the process that gathers the reports; its workers leave out the same tests."""
    if path := config.getoption("--record"):
        config.pluginmanager.register(Recorder(path, writes=not hasattr(config, "workerinput")))
