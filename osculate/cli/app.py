"""The parser: each command is a few frozen dataclasses, whose fields are its options and the keys of its YAML."""

import json
import math
import os
import re
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser, Namespace

from osculate.cli import (
    completion,
    data_get,
    data_list,
    demo,
    doctor,
    evaluate,
    fit,
    inspect,
    predict,
    reconstruct,
    train,
)
from osculate.cli.folder import read_config
from osculate.cli.help import Option, command_help, options_of, section
from osculate.cli.options import plain
from osculate.files import versions
from osculate.registry import choose, lookup

#: Errors that a user can cause and repair, which are printed as one sentence without a traceback.
USER_ERRORS = (ValueError, TypeError, OSError, FloatingPointError, ImportError, ArgumentError)
#: Exit statuses: a command found a problem, a user can repair an error, the reader of the output has gone, Ctrl+C.
PROBLEM, WRONG, UNREAD, INTERRUPTED = 1, 2, 141, 130

DESCRIPTION = "Calibrated uncertainty for neural networks by Laplace's method."
EPILOGUE = f"""osculate COMMAND --help lists the options of a command, --version prints the version, --traceback
shows where an error happened. osculate demo needs no option and downloads nothing.
Exit status: 0 done, {PROBLEM} a problem found by doctor or a bug, {WRONG} an option, file or data set to mend,
{INTERRUPTED} interrupted."""


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

    def require_processes(self, name: str) -> None:
        """Raise ValueError if several processes run a command, of this name, that has nothing to share."""
        size = int(os.environ.get("WORLD_SIZE", "1"))
        if size > 1 and not self.shares:
            raise ValueError(
                f"osculate {name} runs in one process, and these are {size}: start it without torchrun. osculate fit "
                "shares its data out, and in Python osc.train does."
            )

    def call(self, chosen: Namespace) -> int:
        """Run the command with the parsed options, and return its exit status."""
        values = chosen.as_dict()
        parts = [
            part(**{f.name: values[f.name] for f in fields(part) if f.name not in self.leaves_out})
            for part in self.parts
        ]
        if self.reports and values["json"]:
            with redirect_stdout(sys.stderr):
                found = self.run(*parts)
            if found is not None:  # None in the further processes of torchrun
                print(json.dumps(_finite(plain(found)), indent=2))
        else:
            found = self.run(*parts)
        return PROBLEM if found and found.get("problems") else 0

    @cached_property
    def every(self) -> dict[str, Option]:
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

    def help(self, program: str) -> str:
        """The help.

        Args:
            program: The command as it is typed.
        """
        subject = f" [{self.subject.upper()}]" if self.subject else ""
        return command_help(f"{program}{subject} [options]", self.text, self.parts, self.leaves_out, self.general)


def _command(module: Any) -> Command:
    return Command(
        module.run,
        module.PARTS,
        module.__doc__ or "",
        getattr(module, "SUBJECT", ""),
        module is fit,
        getattr(module, "REPORTS", True),
        getattr(module, "LEAVES_OUT", ()),
    )


#: Headings of the list of commands, and the commands below each. Those of data sets have two words.
GROUPS: Mapping[str, Mapping[str, Command]] = {
    "Start here": {"demo": _command(demo), "doctor": _command(doctor)},
    "Train and predict": {
        name: _command(module)
        for name, module in {"train": train, "fit": fit, "predict": predict, "evaluate": evaluate}.items()
    },
    "Images from measurements": {"reconstruct": _command(reconstruct)},
    "Data and files": {
        "data list": _command(data_list),
        "data get": _command(data_get),
        "inspect": _command(inspect),
    },
    "Shell": {"completion": _command(completion)},
}
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    It is 0, 1 if the command found a problem, 2 for a user error, 130 for Ctrl+C, and 141 if its output is not read.

    Args:
        arguments: Words after ``osculate`` on the command line; by default those of this process.

    Raises:
        Exception: any error, with ``--traceback`` or OSCULATE_TRACEBACK set; those of bugs always.
    """

    def dispatch(typed: list[str]) -> int:
        place = next((place for place, word in enumerate(typed) if not word.startswith("-")), len(typed))
        for word in typed[:place]:
            choose("option of osculate", word, ("-h", "--help", "--version", "--traceback"))
        if "--version" in typed[:place]:
            print(f"osculate {versions(('osculate',))['osculate']}")
            return 0
        if place == len(typed) or typed[:place]:
            print(overview(GROUPS))
            return 0
        name = " ".join(typed[: 1 + (typed[0] in _families())])
        if typed[0] in _families() and (len(typed) == 1 or typed[1] in ("-h", "--help")):
            print(overview({title: _of(typed[0], group) for title, group in GROUPS.items() if _of(typed[0], group)}))
            return 0
        command = lookup("command", name, COMMANDS)
        return _run(command, f"osculate {name}", typed[len(name.split()) :], name)

    return answered("osculate", dispatch, _normalised(sys.argv[1:] if arguments is None else arguments, COMMANDS))


def run_alone(command: Command, program: str, arguments: Sequence[str] | None = None) -> int:
    """Run a program of one command, with the options, messages and exit statuses of :func:`main`.

    Args:
        command: The command.
        program: Name in messages, such as "python -m experiments".
        arguments: The words of the command line; by default those of this process.
    """
    typed = _normalised(sys.argv[1:] if arguments is None else arguments, {program: command})
    return answered(program, lambda words: _run(command, program, words), typed)


def _run(command: Command, program: str, typed: list[str], name: str = "") -> int:
    """Parse the words after a command, and run it."""
    if {"-h", "--help"} & set(typed):
        print(command.help(program))
        return 0
    _require_known(typed, command, program)
    typed = _with_subject(typed, command, program)
    _require_plain_configs(typed, command, program)
    try:
        words = ["--print_config" if word == "--print-config" else word for word in typed]
        chosen = parser_of(command).parse_args(words)
    except ArgumentError as error:
        raise ValueError(_in_words(str(error), typed, command, program)) from error
    if name:
        command.require_processes(name)
    require_typed_factory(typed, chosen)
    return command.call(chosen)


def answered(program: str, dispatch: Callable[[list[str]], int], typed: list[str]) -> int:
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
            status = dispatch([word for word in typed if word != "--traceback"])
            sys.stdout.flush()
            return status
    except BrokenPipeError:  # as with "| head": the shell's status of a program that wrote to nobody
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return UNREAD
    except (*USER_ERRORS, RuntimeError) as error:
        if traceback:
            raise
        text = _one_line(error)
        if not isinstance(error, USER_ERRORS):  # torch's, from within a network
            text = f"the network failed on these data: {text}. The traceback is shown with --traceback."
        print(f"{program}: error: {text}", file=sys.stderr)
        return WRONG
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return INTERRUPTED


def overview(groups: Mapping[str, Mapping[str, Command]]) -> str:
    """The list of commands, each with a line."""
    width = 2 + max(len(name) for group in groups.values() for name in group)
    rows = {
        title: [(name.ljust(width), command.text.splitlines()[0].removesuffix(".")) for name, command in group.items()]
        for title, group in groups.items()
    }
    listed = "\n".join(section(title, lines) for title, lines in rows.items())
    return f"usage: osculate COMMAND [options]\n\n{DESCRIPTION}\n\n{listed}\n\n{EPILOGUE}"


def _families() -> set[str]:
    """First words of the commands that have two."""
    return {name.split()[0] for name in COMMANDS if " " in name}


def _of(family: str, group: Mapping[str, Command]) -> dict[str, Command]:
    return {name: command for name, command in group.items() if name.startswith(f"{family} ")}


def parser_of(command: Command) -> ArgumentParser:
    """The parser of the options of a command; its help is :meth:`Command.help`."""
    parser = ArgumentParser(exit_on_error=False, add_help=False)
    parser.add_argument("--config", action="config")
    if command.reports:
        parser.add_argument("--json", type=bool, default=False)
    for part in command.parts:
        for field in fields(part):
            if field.name in command.every:
                option = command.every[field.name]
                given: dict[str, Any] = {"required": True} if option.required else {"default": field.default}
                parser.add_argument(option.flag, type=field.type, **given)
    return parser


def _normalised(words: Sequence[str], commands: Mapping[str, Command]) -> list[str]:
    """Normalise the words of a command line for the parser.

    ``--train_size=5`` becomes ``--train-size=5``, and a switch may stand alone or be denied: ``--tune``,
    ``--no-progress``.
    """
    options = [option for command in commands.values() for option in command.every.values()]
    switches = {option.flag for option in options if option.kinds == (bool,)}
    switches |= {"--json"} if any(command.reports for command in commands.values()) else set()
    result = []
    for number, word in enumerate(words):
        name, equals, value = word.partition("=")
        head, dot, tail = name.partition(".")
        head = "--" + head[2:].replace("_", "-")
        denied = "--" + head.removeprefix("--no-")
        if not word.startswith("--"):
            result.append(word)
        elif head in switches and not equals and words[number + 1 : number + 2] not in (["true"], ["false"]):
            result.append(f"{head}=true")
        elif head not in switches and denied in switches and not equals and head.startswith("--no-"):
            result.append(f"{denied}=false")
        else:
            # names below an option are keys of its dictionary
            result.append(head + dot + tail.replace("-", "_") + equals + value)
    return result


def _awaits(word: str) -> bool:
    """Return True if the next word is the value of an option."""
    return word.startswith("--") and "=" not in word and word not in ("--help", "--print-config")


def _with_subject(typed: list[str], command: Command, program: str) -> list[str]:
    """Replace a positional argument, in any place, by its option: ``lae-table1`` by ``--experiment=lae-table1``.

    Raises:
        ValueError: there is no such option, or it has its value already.
    """
    result, found = [], [*_values(typed, f"--{command.subject.replace('_', '-')}")]
    for before, word in pairwise(["", *typed]):
        if word.startswith("-") or _awaits(before):
            result.append(word)
        elif not command.subject or found:
            option = f"--{command.subject.replace('_', '-')} has a value already: put" if found else "put"
            raise ValueError(
                f"{program} does not know what {word!r} is; {option} the name of an option before it, as "
                f"{program} --help lists them."
            )
        else:
            found.append(word)
            result.append(f"--{command.subject.replace('_', '-')}={word}")
    return result


def _values(typed: Sequence[str], option: str) -> list[str]:
    """The values of an option, in the order in which they are typed."""
    glued = [word.partition("=")[2] for word in typed if word.startswith(f"{option}=")]
    return glued + [value for name, value in pairwise(typed) if name == option]


def _require_plain_configs(typed: Sequence[str], command: Command, program: str) -> None:
    """Raise ValueError for configuration files that the parser should not read, or with unknown keys."""
    for path in map(Path, _values(typed, "--config")):
        keys = [str(key).replace("-", "_") for key in read_config(path)]
        for key in keys:
            choose(f"option in {str(path)!r} of {program}", key, command.options)


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


def _finite(value: Any) -> Any:
    """A value for JSON, which knows no infinite numbers: they become null."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _require_known(typed: Sequence[str], command: Command, program: str) -> None:
    """Raise ValueError with the known options for an unknown one."""
    known = [f"--{name.replace('_', '-')}" for name in (*command.options, *command.general)]
    for before, word in pairwise(["", *typed]):
        name = word.partition("=")[0].partition(".")[0]
        if word.startswith("--"):
            choose(f"option of {program}", name, known)
        elif word.startswith("-") and not _is_number(word) and not _awaits(before):
            choose(f"option of {program}", name, known)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _in_words(message: str, typed: Sequence[str], command: Command, program: str) -> str:
    """What the parser has against a command line, in a sentence.

    Args:
        message: The parser's words.
        typed: The command line.
        command: The command.
        program: The command as it is typed.
    """
    every, flags = command.every, {option.flag: option for option in command.every.values()}
    if missing := re.search(r"the following arguments are required: ([\w, -]+)", message):
        option = every[missing[1].split(",")[0].strip().replace("-", "_")]
        return f"{program} needs {option.typed}. {option.help}"
    if empty := re.match(r"argument (--[\w-]+).*: expected one argument", message):
        taken = flags[empty[1]].values if empty[1] in flags else "the path of a YAML file"
        return f"{empty[1]} needs a value: {taken}."
    wrong = re.search(r'Parser key "(\w+)[^"]*"', message)
    given = re.search(r"Given value: (.*)", message)
    if wrong and given and wrong[1] in every:
        option = every[wrong[1]]
        named = any(word.partition("=")[0].partition(".")[0] == option.flag for word in typed)
        where = option.flag if named else f"{option.name} in the YAML file"
        return f"{where} takes {option.values}, got {given[1].strip()!r}: {program} --help describes it."
    return f"{_one_line(message).removesuffix('.')}: {program} --help lists the options."
