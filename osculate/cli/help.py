"""The help of the command line: commands in groups on one screen, and the options of each in groups."""

import re
import shutil
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from pathlib import Path
from typing import Any

from docstring_parser import parse

#: Lines are at most this wide, and the texts of options begin at this column at most.
WIDEST, INDENT = 100, 30
#: Placeholders of values by their type, and what is said of a value of another type.
KINDS: Mapping[type, tuple[str, str]] = {
    int: ("N", "a whole number"),
    float: ("X", "a number"),
    Path: ("PATH", "a path"),
    str: ("NAME", "a word"),
    bool: ("", "true or false"),
    dict: ("", "a name and a value"),
}
#: Options that a command has without naming them.
GENERAL = {
    "config": ("--config FILE", "YAML file with any of these options; what is typed goes before."),
    "print_config": ("--print-config", "Print the options as YAML, for --config, and do nothing else."),
    "json": ("--json", "Print the results as JSON; everything else goes to standard error."),
    "traceback": ("--traceback", "Show where an error happened, for reports of bugs."),
    "help": ("-h, --help", "Show this help."),
}


@dataclass(frozen=True)
class Typed:
    """One option of a command.

    Args:
        name: Name of its field, and key in YAML.
        kinds: Types of its values, without None.
        default: Value if it is left out; MISSING if it cannot be.
        text: Sentence of the help.
    """

    name: str
    kinds: tuple[type, ...]
    default: Any
    text: str

    @classmethod
    def of(cls, field: Field, text: str) -> "Typed":
        """The option of a field of a part."""
        union = isinstance(field.type, types.UnionType) or typing.get_origin(field.type) is typing.Union
        members = typing.get_args(field.type) if union else (field.type,)
        kinds = tuple(typing.get_origin(kind) or kind for kind in members if kind is not type(None))
        return cls(field.name, kinds, field.default, text)

    @property
    def required(self) -> bool:
        """True if it cannot be left out."""
        return self.default is MISSING

    @property
    def flag(self) -> str:
        """The name as it is typed."""
        return f"--{self.name.replace('_', '-')}"

    @property
    def flags(self) -> tuple[str, ...]:
        """The names as they are typed; of a switch those that change the default."""
        if self.kinds != (bool,):
            return (self.flag,)
        denied = f"--no-{self.flag[2:]}"
        return (denied,) if self.default is True else (self.flag,) if self.default is False else (self.flag, denied)

    @property
    def typed(self) -> str:
        """The option with a placeholder of its value."""
        if dict in self.kinds:
            return f"{self.flag}.KEY VALUE"
        placeholder = " or ".join(KINDS[kind][0] for kind in self.kinds if KINDS[kind][0])
        return " ".join([", ".join(self.flags), *([placeholder] if placeholder else [])])

    @property
    def values(self) -> str:
        """The kind of values that it takes, for an error."""
        if dict in self.kinds:
            example = next(iter(re.findall(rf"as in {self.flag}\.([^;,.]+)", " ".join(self.text.split()))), "KEY VALUE")
            return f"a name and a value, as in {self.flag}.{example}"
        return " or ".join(KINDS[kind][1] for kind in self.kinds)

    @property
    def help(self) -> str:
        """The sentence with the default, if it has one that the sentence does not name."""
        text = " ".join(self.text.split())
        if self.default is True:  # the switch is the denial
            text = text.removeprefix("False to ")
            text = text[:1].upper() + text[1:]
        if self.default in (None, MISSING) or isinstance(self.default, bool) or "default" in text:
            return text
        return f"{text.removesuffix('.')}; by default {self.default}."


def options_of(part: type, leaves_out: Sequence[str] = ()) -> Iterator[Typed]:
    """Yield the options of a part, with the texts of its docstring."""
    texts = {each.arg_name: each.description or "" for each in parse(part.__doc__ or "").params}
    yield from (Typed.of(field, texts.get(field.name, "")) for field in fields(part) if field.name not in leaves_out)


def title_of(part: type) -> str:
    """The heading of a part: the summary of its docstring without the article.

    >>> title_of(type("Part", (), {"__doc__": "The output and the device."}))
    'Output and the device'
    """
    words = (parse(part.__doc__ or "").short_description or "").removesuffix(".").removeprefix("The ")
    return words[:1].upper() + words[1:]


def command_help(
    usage: str, text: str, parts: Sequence[type], leaves_out: Sequence[str], general: Sequence[str]
) -> str:
    """The help of one command.

    Args:
        usage: The command as it is typed.
        text: Description.
        parts: Dataclasses whose fields are the options.
        leaves_out: Names of options that it does not have.
        general: Keys of :data:`GENERAL`.
    """
    sections = [f"usage: {usage}", *map(filled, text.strip().split("\n\n"))]
    for part in parts:
        rows = [(option.typed, option.help) for option in options_of(part, leaves_out)]
        sections.append(section(title_of(part), rows))
    sections.append(section("General", [GENERAL[name] for name in general]))
    return "\n\n".join(sections)


def filled(text: str) -> str:
    """A paragraph in lines of the width of the terminal."""
    return textwrap.fill(" ".join(text.split()), _width(), break_on_hyphens=False)


def section(title: str, rows: Sequence[tuple[str, str]]) -> str:
    """A heading, and rows of a name and a text."""
    width = _width()
    indent = min(INDENT, 4 + max((len(name) for name, _ in rows), default=0))
    lines = [f"{title}:"]
    for name, text in rows:
        block = textwrap.wrap(text, width - indent, break_on_hyphens=False) or [""]
        head = f"  {name}"
        if len(head) + 2 > indent:
            lines.append(head)
        else:
            block[0] = head.ljust(indent) + block[0]
            lines.append(block.pop(0))
        lines += [" " * indent + line for line in block]
    return "\n".join(lines)


def _width() -> int:
    return min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns)
