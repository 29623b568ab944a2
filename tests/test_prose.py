"""Docstrings, comments and messages read as English: no fragments, no questions, the words of the glossary."""

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = sorted(path for folder in ("osculate", "experiments") for path in (ROOT / folder).rglob("*.py"))
#: Texts in which the words of the glossary are looked for, and no more: pages, the gallery, benchmarks, tests.
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OTHERS = sorted(path for folder in ("docs", "benchmarks", "tests") for path in (ROOT / folder).rglob("*.py"))
#: An entry of Args that only completes the name of the argument, such as "seed: of the draws."
FRAGMENT = re.compile(
    r"\s+[\w*, ]+: (of|for|in|that|those|to|where|as|by|with|at|from|whose|its|what|how|one|whether|which)\b",
    re.IGNORECASE,
)
#: An entry that begins with a word in lower case; symbols such as p(y|f) may be.
UNCAPITALISED = re.compile(r"    \*{0,2}\w[\w, *`]*: ([a-z][a-z'’-]+|a)[ ,.;:]")
QUESTION = re.compile(r"(What|How|Where|Which|Whether|When|Why|Of|By|For|To|As|In|There)\b")
#: A row of the glossary.
ROW = re.compile(r"^\| ([^|]+) \| [^|]* \| ([^|]*) ?\|$", re.MULTILINE)


def docstrings(text: str) -> Iterator[tuple[int, str]]:
    """The docstrings of a source, each with its line."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.Module) and (doc := ast.get_docstring(node)):
            yield node.body[0].lineno, doc


def fragments(doc: str) -> list[str]:
    """Entries of Args and Attributes that are no phrases by themselves, or begin in lower case."""
    found, inside = [], False
    for line in doc.splitlines():
        if line and not line.startswith(" "):
            inside = line in ("Args:", "Attributes:")
        elif inside and (FRAGMENT.match(line) or UNCAPITALISED.match(line)):
            found.append(line.strip())
    return found


def words(text: str) -> Iterator[tuple[int, str]]:
    """Comments and strings of a source, each with its line."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING) or token.type == getattr(tokenize, "FSTRING_MIDDLE", -1):
            yield token.start[0], token.string


@cache
def discouraged() -> dict[str, str]:
    """The words that the glossary replaces, with the term to use."""
    glossary = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Words")[2]
    rows = [(term, others) for term, others in ROW.findall(glossary) if term not in ("term", "---")]
    return {word.strip(): term for term, others in rows for word in others.split(",") if word.strip()}


def complaints(text: str) -> list[str]:
    """What reads badly in a source, with its line."""
    found = []
    for line, doc in docstrings(text):
        found += [f"{line}: fragment {entry!r}" for entry in fragments(doc)]
        if QUESTION.match(doc):
            found.append(f"{line}: the summary {doc.splitlines()[0]!r} begins with neither a noun nor a verb")
    return found + discouraged_in(words(text)) + unended(text)


def discouraged_in(lines: Iterable[tuple[int, str]]) -> list[str]:
    """The words that the glossary replaces."""
    terms = discouraged()
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, sorted(terms, key=len, reverse=True)))})\b")
    return [f"{line}: {word[0]!r}, write {terms[word[0]]!r}" for line, said in lines for word in pattern.finditer(said)]


def unended(text: str) -> list[str]:
    """Messages of errors without a full stop."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            error, end = ast.unparse(node.exc.func), ending(node.exc.args[0])
            # Python words an AttributeError itself, and a command to copy has no full stop
            if error.endswith("Error") and error != "AttributeError" and not re.search(r"[.?!]$|\[\{.*\}\]'$", end):
                found.append(f"{node.lineno}: the message of {error} ends in {end[-30:]!r}, not in a full stop")
    return found


def ending(message: ast.expr) -> str:
    """The end of a message as far as its source shows it; a value that is a sentence of its own ends it well."""
    if isinstance(message, ast.BinOp):
        return ending(message.right)
    if isinstance(message, ast.JoinedStr):
        value = ast.unparse(message)[2:-1]
        return "." if re.search(r"\{[^{}]*(way_out|remedy|instead|reason|'\.')[^{}]*\}$", value) else value
    return str(message.value) if isinstance(message, ast.Constant) else "."


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_source_reads_as_english(path: Path) -> None:
    assert not complaints(path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", PAGES + OTHERS, ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_and_tests_use_the_words_of_the_glossary(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        assert not discouraged_in(enumerate(text.splitlines(), 1))
    elif path != Path(__file__).resolve():  # which names them
        assert not discouraged_in(words(text))


def test_the_glossary_is_found() -> None:
    assert discouraged()["foreign"] == "out of distribution"
    assert len(discouraged()) >= 8


@pytest.mark.parametrize(
    "source",
    [
        '"""How it works."""',
        'def f(seed):\n    """Draw.\n\n    Args:\n        seed: of the draws.\n    """',
        'def f(seed):\n    """Draw.\n\n    Args:\n        seed: the seed of the draws.\n    """',
        'class C:\n    """A thing.\n\n    Attributes:\n        size: whether it is large.\n    """',
        "# foreign images",
        'def f():\n    raise ValueError("the user is told.")',
        'def f(x):\n    raise ValueError(f"{x} is too modest.")',
        'def f(x):\n    raise ValueError("x is wrong")',
        'def f(x):\n    raise ValueError(f"x is {x}")',
        'def f(x):\n    raise ValueError("x is " f"{x}, not 3")',
    ],
)
def test_what_reads_badly_is_found(source: str) -> None:
    assert complaints(source)
