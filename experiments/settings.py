"""Settings of an experiment as they are typed: names with dots reach into the settings within settings."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from re import sub
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser

from experiments.experiment import Experiment
from osculate.cli.help import filled, options_of, section, title_of
from osculate.registry import choose, lookup


def typed(chosen: Experiment, scale: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the changes of a preset's settings as nested mappings.

    Args:
        chosen: The experiment.
        scale: Name of the preset.
        changes: Values by name.

    Raises:
        ValueError: There is no such scale or setting, or the value is of another type.

    >>> from experiments import REGISTRY
    >>> typed(REGISTRY["aevb-figure4"], "small", {"fit.images": 500, "depths": [1]})
    {'fit': {'images': 500}, 'depths': [1]}
    """
    settings = lookup("scale", scale, chosen.presets)
    nested: dict[str, Any] = {}
    for name, value in changes.items():
        *groups, last = name.split(".")
        within = nested
        for group in groups:
            within = within.setdefault(group, {})
        within[last] = value
    parser = ArgumentParser(exit_on_error=False, add_help=False)
    parser.add_argument("--settings", type=type(settings), default=settings)
    try:
        _require_known(settings, nested)
        parser.parse_object({"settings": nested})
    except (ArgumentError, ValueError) as error:
        text = " ".join(sub(r"Parser key |<class '(\w+)'>", r"\1", str(error)).split()).removesuffix(".")
        raise ValueError(f"{text}. python -m experiments {chosen.id} --list shows the settings.") from None
    return nested


def _require_known(settings: Any, changes: Mapping[str, Any], within: str = "") -> None:
    """Raise ValueError for a name that is not known, or for a value in the place of settings."""
    for name, value in changes.items():
        known = [field.name for field in fields(settings)] if is_dataclass(settings) else []
        choose(f"setting of {within}" if within else "setting", name, known)
        inner = getattr(settings, name)
        if is_dataclass(inner):
            if not isinstance(value, Mapping):
                raise ValueError(
                    f"{name} is a group of settings, such as {name}.{fields(inner)[0].name}, got {value!r}."
                )
            _require_known(inner, value, f"{within}.{name}" if within else name)


def described(chosen: Experiment) -> str:
    """The title of an experiment, and its settings with their values at each scale."""
    presets = list(chosen.presets.values())
    parts = [filled(f"{chosen.id}: {chosen.title}. {chosen.document}.")]
    parts += [section(title, rows) for title, rows in _groups(list(chosen.presets), presets, "--settings")]
    return "\n\n".join(parts)


def _groups(scales: list[str], presets: list[Any], flag: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the heading and the rows of settings, and of those within them."""
    own = type(presets[0])
    options = [option for part in reversed(own.__mro__) if is_dataclass(part) for option in options_of(part)]
    texts = {option.name: sub(r":\w+:`([^`]+)`", r"\1", option.text) for option in options if option.text}
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
