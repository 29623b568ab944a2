"""One command: its options, its help, and how it runs."""

import json
import math
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from jsonargparse import Namespace

from osculate.cli.help import Typed, command_help, options_of
from osculate.cli.options import plain

#: Exit status of a command that found a problem.
PROBLEM = 1


@dataclass(frozen=True)
class Command:
    """One command.

    Args:
        run: Function of one value of each part, which returns the results of a command that reports.
        parts: Frozen dataclasses whose fields are the options.
        text: Description of the command and its output; the list of commands shows the first line.
        subject: The option to which a positional argument belongs, if any.
        shares: True if the processes of torchrun share the work.
        reports: True if it has the option ``--json``.
        leaves_out: Names of fields of the parts that have no effect here and are no options.
    """

    run: Callable[..., Mapping[str, Any] | None]
    parts: tuple[type, ...]
    text: str
    subject: str = ""
    shares: bool = False
    reports: bool = False
    leaves_out: tuple[str, ...] = ()

    def hides(self, method: str | None) -> tuple[str, ...]:
        """The options that the help leaves out for a value of --method, as the parts say."""
        return tuple(name for part in self.parts if hasattr(part, "hides") for name in part.hides(method))

    def require_processes(self, name: str) -> None:
        """Raise ValueError if several processes run a command, of this name, that has nothing to share."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size > 1 and not self.shares:
            raise ValueError(
                f"osculate {name} runs in one process, and these are {size}: start it without torchrun. osculate fit "
                "shares its data out, and in Python osc.train does."
            )

    def call(self, chosen: Namespace, as_json: bool = False) -> int:
        """Run the command with the parsed options, and return its exit status.

        Args:
            chosen: The options.
            as_json: True to print the results as JSON, and all else to standard error.
        """
        values = chosen.as_dict()
        parts = [
            part(**{f.name: values[f.name] for f in fields(part) if f.name not in self.leaves_out})
            for part in self.parts
        ]
        if as_json:
            with redirect_stdout(sys.stderr):
                found = self.run(*parts)
            if found is not None:  # None in the further processes of torchrun
                print(json.dumps(_finite(plain(found)), indent=2))
        else:
            found = self.run(*parts)
        return PROBLEM if found and found.get("problems") else 0

    @cached_property
    def every(self) -> dict[str, Typed]:
        """All options by name."""
        return {option.name: option for part in self.parts for option in options_of(part, self.leaves_out)}

    @property
    def options(self) -> list[str]:
        """The names of all options."""
        return list(self.every)

    @property
    def general(self) -> list[str]:
        """The names of the options that no part has."""
        return ["config", "print_config", *(["json"] if self.reports else []), "traceback", "help"]

    def help(self, program: str, method: str | None = None) -> str:
        """The help.

        Args:
            program: The command as it is typed.
            method: The method whose options are shown, if one is typed.
        """
        subject = f" [{self.subject.upper()}]" if self.subject else ""
        hidden = (*self.leaves_out, *self.hides(method))
        return command_help(f"{program}{subject} [options]", self.text, self.parts, hidden, self.general)


def _finite(value: Any) -> Any:
    """A value for JSON, which knows no infinite numbers: they become null."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
