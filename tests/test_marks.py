"""Which tests run when: each mark is used, and no file is marked as a whole."""

import ast
from pathlib import Path

import pytest

FILES = sorted(Path(__file__).parent.rglob("test_*.py"))
MARKS = ("slow", "release")


def unmarked(text: str) -> list[str]:
    """The test functions of a file without a mark; of several parameters some may have one."""
    whole = {f"pytest.mark.{mark}" for mark in MARKS}
    return [
        node.name
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
        and node.name.startswith("test_")
        and not whole & {ast.unparse(decorator) for decorator in node.decorator_list}
    ]


@pytest.mark.parametrize("mark", MARKS)
def test_the_mark_is_used(mark: str) -> None:
    assert any(f"mark.{mark}" in path.read_text(encoding="utf-8") for path in FILES if path != Path(__file__))


def test_every_file_has_tests_in_make_test() -> None:
    assert not [path for path in FILES if not unmarked(path.read_text(encoding="utf-8"))]
