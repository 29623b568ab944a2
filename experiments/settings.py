"""Settings of an experiment as they are typed: names with dots reach into the settings within settings."""

import re
from ast import literal_eval
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser

from experiments.experiment import Experiment
from osculate.cli.help import filled, options_of, section, title_of
from osculate.registry import choose, lookup

#: Beginning of the option of a setting, and the mark between the names of a group and of a setting in it.
OPTION, MARK = "--settings.", "/"
#: How values are typed.
VALUES = (
    "Change one by --settings.NAME VALUE, where VALUE is a number, a word, true, false, None, or a list such as [1, 2] "
    "or [[mnist, KMNIST, 200]]."
)


def separate(word: str) -> str:
    """Return a word of the command line with marks in place of dots: the parser loses some names that have dots.

    >>> separate("--settings.fit.lr=0.1")
    '--settings.fit/lr=0.1'
    """
    name, equals, value = word.partition("=")
    if not name.startswith(OPTION):
        return word
    return OPTION + name.removeprefix(OPTION).replace(".", MARK) + equals + value


def typed(chosen: Experiment, scale: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changed settings of a preset, with values of their types.

    Args:
        chosen: The experiment.
        scale: Name of the preset.
        changes: Values by name, or mappings of groups.

    Raises:
        ValueError: There is no such scale or setting, or the value is of another type.

    >>> from experiments import REGISTRY
    >>> typed(REGISTRY["aevb-figure4"], "small", {"depths": [1]})
    {'depths': (1,)}
    """
    settings = lookup("scale", scale, chosen.presets)
    parser = ArgumentParser(exit_on_error=False, add_help=False)
    parser.add_argument("--settings", type=type(settings), default=settings)
    try:
        nested = _read(settings, _nested(changes))
        found = parser.instantiate(parser.parse_object({"settings": nested})).settings
    except (ArgumentError, ValueError, TypeError, AttributeError, SyntaxError) as error:
        text = " ".join(re.sub(r"Parser key |<class '(\w+)'>", r"\1", str(error)).split()).removesuffix(".")
        raise ValueError(f"{text}. python -m experiments {chosen.id} --list shows the settings.") from None
    return {name: getattr(found, name) for name in nested}


def _nested(changes: Mapping[str, Any]) -> dict[str, Any]:
    """Put values into mappings of their groups; of several with one name the last counts."""
    result: dict[str, Any] = {}
    for names, value in _leaves(changes):
        within = result
        for group in names[:-1]:
            within = within.setdefault(group, {})
        within[names[-1]] = value
    return result


def _leaves(changes: Mapping[str, Any], groups: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield each value with the names of its groups and its own."""
    for name, value in changes.items():
        names = (*groups, *re.split(rf"[.{MARK}]", name))
        if isinstance(value, Mapping):
            yield from _leaves(value, names)
        else:
            yield names, value


def _read(settings: Any, changes: Mapping[str, Any], within: str = "") -> dict[str, Any]:
    """Return the values of known settings, also of text as Python writes it, such as None and (1, 2).

    Raises:
        ValueError: A name is not known, or a value stands for a group.
    """
    found: dict[str, Any] = {}
    for name, value in changes.items():
        choose(f"setting of {within}" if within else "setting", name, [field.name for field in fields(settings)])
        before, whole = getattr(settings, name), f"{within}.{name}" if within else name
        if is_dataclass(before):
            if not isinstance(value, Mapping):
                raise ValueError(
                    f"{whole} is a group, such as --settings.{whole}.{fields(before)[0].name}, got {value!r}."
                )
            found[name] = _read(before, value, whole)
        elif isinstance(before, str) and isinstance(value, int | float) and not isinstance(value, bool):
            found[name] = str(value)
        elif isinstance(value, str) and (value == "None" or value.startswith("(")):
            found[name] = literal_eval(value)
        else:
            found[name] = value
    return found


def described(chosen: Experiment) -> str:
    """The title of an experiment, and its settings with their values at each scale."""
    presets = list(chosen.presets.values())
    parts = [filled(f"{chosen.id}: {chosen.title}. {chosen.document}."), filled(VALUES)]
    parts += [section(title, rows) for title, rows in _groups(list(chosen.presets), presets, "--settings")]
    return "\n\n".join(parts)


def _groups(scales: list[str], presets: list[Any], flag: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the heading and the rows of settings, and of those within them."""
    own = type(presets[0])
    options = [option for part in reversed(own.__mro__) if is_dataclass(part) for option in options_of(part)]
    texts = {option.name: re.sub(r":\w+:`([^`]+)`", r"\1", option.text) for option in options if option.text}
    rows, inner = [], []
    for option in options_of(own):
        name, values = f"{flag}.{option.name}", [getattr(preset, option.name) for preset in presets]
        if is_dataclass(values[0]):
            inner.append((name, values))
        elif all(value == values[0] for value in values):
            rows.append((name, replace(option, text=texts[option.name], default=values[0]).help))
        else:
            each = ", ".join(f"{scale} {value}" for scale, value in zip(scales, values, strict=True))
            rows.append((name, replace(option, text=texts[option.name], default=each).help))
    if rows:
        yield title_of(own).partition(". ")[0], rows
    for name, values in inner:
        yield from _groups(scales, values, name)
