"""The parser: each command is a few frozen dataclasses, whose fields are its options and the keys of its YAML."""

import os
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser, DefaultHelpFormatter, Namespace

from osculate.cli import demo, evaluate, explore, fit, inspect, predict, reconstruct, serve, train
from osculate.cli.folder import read_config
from osculate.files import versions
from osculate.registry import lookup

#: Errors that a user can cause and repair, which are printed as one sentence without a traceback.
USER_ERRORS = (ValueError, TypeError, OSError, FloatingPointError, ImportError, ArgumentError)

DESCRIPTION = "Calibrated uncertainty for neural networks by Laplace's method."
EPILOGUE = "`osculate COMMAND --help` lists the options of a command; `osculate demo` needs none and downloads nothing."


@dataclass(frozen=True)
class Command:
    """One sub-command.

    Args:
        run: Function of one value of each part.
        parts: Frozen dataclasses whose fields are the options.
        text: Description of the command and its output; the list of commands shows the first line.
        subject: The option to which a positional argument belongs, if any.
        shares: True if the processes of torchrun share the work.
    """

    run: Callable[..., None]
    parts: tuple[type, ...]
    text: str
    subject: str = ""
    shares: bool = False

    def require_processes(self, name: str) -> None:
        """Raise ValueError if several processes run a command, of this name, that has nothing to share."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size > 1 and not self.shares:
            raise ValueError(
                f"osculate {name} runs in one process, and these are {size}: start it without torchrun. osculate fit "
                "shares its data out, and in Python osc.train does."
            )

    def call(self, chosen: Namespace) -> None:
        """Run the command with the parsed options."""
        values = chosen.as_dict()
        self.run(*(part(**{f.name: values[f.name] for f in fields(part)}) for part in self.parts))

    @property
    def options(self) -> list[str]:
        """The names of all options."""
        return [f.name for part in self.parts for f in fields(part)]


COMMANDS = {
    name: Command(module.run, module.PARTS, module.__doc__ or "", getattr(module, "SUBJECT", ""), module is fit)
    for name, module in {
        "demo": demo,
        "train": train,
        "fit": fit,
        "predict": predict,
        "evaluate": evaluate,
        "reconstruct": reconstruct,
        "inspect": inspect,
        "explore": explore,
        "serve": serve,
    }.items()
}


class _Formatter(DefaultHelpFormatter):
    """Options with dashes, as they are typed."""

    def _format_action_invocation(self, action: Any) -> str:
        return super()._format_action_invocation(action).replace("_", "-")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status: 0, 2 for a user error, 130 for Ctrl+C.

    Args:
        arguments: Words after ``osculate`` on the command line; by default those of this process.

    Raises:
        Exception: any error, with ``--traceback`` or OSCULATE_TRACEBACK set.
    """

    def dispatch(typed: list[str]) -> None:
        typed = typed or ["--help"]
        named = next((word for word in typed if not word.startswith("-")), None)
        if named is not None:
            command, place = lookup("command", named, COMMANDS), typed.index(named) + 1
            _require_known(typed, command, f"osculate {named}")
            typed = [*typed[:place], *_with_subject(typed[place:], command)]
        _require_plain_configs(typed)
        chosen = _parser().parse_args(typed)
        COMMANDS[chosen.command].require_processes(chosen.command)
        require_typed_factory(typed, chosen[chosen.command])
        COMMANDS[chosen.command].call(chosen[chosen.command])

    return answered("osculate", dispatch, _normalised(sys.argv[1:] if arguments is None else arguments, COMMANDS))


def run_alone(command: Command, program: str, arguments: Sequence[str] | None = None) -> int:
    """Run a program of one command, with the options, messages and exit statuses of :func:`main`.

    Args:
        command: The command.
        program: Name in messages, such as "python -m experiments".
        arguments: The words of the command line; by default those of this process.
    """

    def dispatch(typed: list[str]) -> None:
        _require_known(typed, command, program)
        _require_plain_configs(typed)
        command.call(_options(command, program).parse_args(_with_subject(typed, command)))

    typed = _normalised(sys.argv[1:] if arguments is None else arguments, {program: command})
    return answered(program, dispatch, typed)


def answered(program: str, dispatch: Callable[[list[str]], None], typed: list[str]) -> int:
    """Run a command line; user errors become one sentence and an exit status."""
    shown: set[str] = set()

    def warn(message: Warning | str, *_: Any, **__: Any) -> None:  # without the line of code that raised it
        text = _one_line(message)
        alike = re.sub(r"[\d.,]+(e[+-]?\d+)?", "", text)  # a search may give up many times, with different numbers
        if alike not in shown:
            shown.add(alike)
            print(f"{program}: warning: {text}", file=sys.stderr)

    traceback = "--traceback" in typed or bool(os.environ.get("OSCULATE_TRACEBACK"))
    try:
        with warnings.catch_warnings():
            warnings.showwarning = warn
            dispatch([word for word in typed if word != "--traceback"])
    except (*USER_ERRORS, RuntimeError) as error:
        if traceback:
            raise
        text = _one_line(error)
        if not isinstance(error, USER_ERRORS):  # torch's, from within a network
            text = f"the network failed on these data: {text}. The traceback is shown with --traceback."
        print(f"{program}: error: {text}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return 130
    return 0


def _parser() -> ArgumentParser:
    parser = ArgumentParser(
        prog="osculate",
        description=DESCRIPTION,
        epilog=EPILOGUE,
        exit_on_error=False,
        version=versions(("osculate",))["osculate"],
        formatter_class=_Formatter,
    )
    parser.add_argument("--traceback", action="store_true", help="show where an error happened, for reports of bugs")
    commands = parser.add_subcommands(required=True, dest="command", metavar="COMMAND")
    for name, command in COMMANDS.items():
        commands.add_subcommand(name, _options(command, f"osculate {name}"), help=command.text.splitlines()[0])
    return parser


def _options(command: Command, program: str) -> ArgumentParser:
    parser = ArgumentParser(
        exit_on_error=False,
        usage=f"{program} [options]",
        description=" ".join(command.text.split()),
        formatter_class=_Formatter,
    )
    parser.add_argument("--config", action="config", help="YAML file with any of the options below")
    for part in command.parts:
        parser.add_class_arguments(part, fail_untyped=False)
    return parser


def _normalised(words: Sequence[str], commands: Mapping[str, Command]) -> list[str]:
    """Normalise the words of a command line for the parser.

    ``--train-size=5`` becomes ``--train_size=5`` (fields have no dashes), and a switch may stand alone or be denied:
    ``--tune``, ``--no-progress``.
    """
    options = [f for c in commands.values() for part in c.parts for f in fields(part)]
    switches = {option.name for option in options if option.type in (bool, bool | None)}
    result = []
    for number, word in enumerate(words):
        name, equals, value = word.partition("=")
        name = name[2:].replace("-", "_")
        if not word.startswith("--"):
            result.append(word)
        elif name in switches and not equals and words[number + 1 : number + 2] not in (["true"], ["false"]):
            result.append(f"--{name}=true")
        elif name.removeprefix("no_") in switches and not equals and name.startswith("no_"):
            result.append(f"--{name.removeprefix('no_')}=false")
        else:
            result.append("--" + name + equals + value)
    return result


def _with_subject(typed: list[str], command: Command) -> list[str]:
    """Replace a positional argument, in any place, by its option: ``lae-table1`` by ``--experiment=lae-table1``."""
    for number, (before, word) in enumerate(pairwise(["", *typed])):
        value = before.startswith("--") and "=" not in before  # the value of the preceding option
        if command.subject and not word.startswith("-") and not value:
            return [*typed[:number], f"--{command.subject}={word}", *typed[number + 1 :]]
    return typed


def _values(typed: Sequence[str], option: str) -> list[str]:
    """The values of an option, in the order in which they are typed."""
    glued = [word.partition("=")[2] for word in typed if word.startswith(f"{option}=")]
    return glued + [value for name, value in pairwise(typed) if name == option]


def _require_plain_configs(typed: Sequence[str]) -> None:
    """Raise ValueError for configuration files that the parser should not read."""
    for path in map(Path, _values(typed, "--config")):
        if path.is_file():  # else the parser raises an error
            read_config(path)


def require_typed_factory(typed: Sequence[str], chosen: Namespace) -> None:
    """Raise ValueError if a file names code: only a person at the command line does.

    Raises:
        ValueError: the message gives the option to type.
    """
    factory = str(chosen.get("model") or "")
    if ":" in factory and factory not in _values(typed, "--model"):
        raise ValueError(
            f"the configuration file names the code {factory}, and a file must not run code by itself: type --model "
            f"{factory} if you trust it."
        )


def _one_line(error: object) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _require_known(typed: Sequence[str], command: Command, program: str) -> None:
    """Raise ValueError with the known options for an unknown one."""
    known = dict.fromkeys(
        f"--{name.replace('_', '-')}" for name in ("help", "config", "print_config", *command.options)
    )
    for word in typed:
        if word.startswith("--"):
            lookup(f"option of {program}", word.partition("=")[0].partition(".")[0].replace("_", "-"), known)
