"""The parser: each command is a few frozen dataclasses, whose fields are its options and the keys of its YAML."""

import os
import re
import select
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from difflib import get_close_matches
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
    explore,
    fit,
    inspect,
    predict,
    reconstruct,
    serve,
    train,
)
from osculate.cli.command import PROBLEM, Command
from osculate.cli.folder import read_config
from osculate.cli.help import filled, section
from osculate.files import versions
from osculate.registry import lookup

#: Errors that a user can cause and repair, which are printed as one sentence without a traceback.
USER_ERRORS = (ValueError, TypeError, OSError, FloatingPointError, ImportError, ArgumentError)
#: Exit statuses: a user can repair an error, the reader of the output has gone (the shell's 128 + SIGPIPE), Ctrl+C.
WRONG, UNREAD, INTERRUPTED = 2, 141, 130

DESCRIPTION = "Calibrated uncertainty for neural networks by Laplace's method."
EPILOGUE = (
    "osculate COMMAND --help lists its options. osculate demo needs none.",
    f"Exit status: 0 done, {PROBLEM} a problem or bug, {WRONG} a mistake to mend, {INTERRUPTED} interrupted.",
)


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
    "Start here": {
        "demo": _command(demo),
        "doctor": _command(doctor),
        "completion": _command(completion),
    },
    "Train and predict": {
        "train": _command(train),
        "fit": _command(fit),
        "predict": _command(predict),
        "evaluate": _command(evaluate),
        "explore": _command(explore),
        "serve": _command(serve),
        "reconstruct": _command(reconstruct),
    },
    "Data and files": {
        "data list": _command(data_list),
        "data get": _command(data_get),
        "inspect": _command(inspect),
    },
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
        if typed[:1] == ["help"]:
            typed = [*typed[1:], "--help"]
        place = next((place for place, word in enumerate(typed) if not word.startswith("-")), len(typed))
        for word in typed[:place]:
            _require_option(word, ("-h", "--help", "--version", "--traceback"), "osculate", " before the command")
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
        print(command.help(program, next(iter(_values(typed, "--method")), None)))
        return 0
    as_json = command.reports and "--json" in typed
    typed = [word for word in typed if not (as_json and word == "--json")]
    _require_known(typed, command, program)
    typed = _with_subject(typed, command, program)
    _require_plain_configs(typed, command, program)
    try:
        words = ["--print_config" if word == "--print-config" else word for word in typed]
        chosen = parser_of(command).parse_args(words)
    except ArgumentError as error:
        raise ValueError(_in_words(str(error), typed, command, program)) from error
    except SystemExit as end:  # after --print-config
        return int(end.code or 0)
    if name:
        command.require_processes(name)
    require_typed_factory(typed, chosen)
    return command.call(chosen, as_json)


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
    except (*USER_ERRORS, RuntimeError) as error:
        if isinstance(error, BrokenPipeError) and _is_unread():
            return UNREAD
        if traceback:
            raise
        text = _one_line(error)
        if not isinstance(error, USER_ERRORS):  # torch's, from within a network
            text = f"the network failed on these data: {text}. It must take such inputs; --traceback shows where."
        print(f"{program}: error: {text}", file=sys.stderr)
        return WRONG
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return INTERRUPTED


def _is_unread() -> bool:
    """Return True if the reader of the output has gone, as with "| head"; nothing more is written to it then."""
    try:
        output, poll = sys.stdout.fileno(), select.poll()
    except (AttributeError, OSError):  # Windows; an output that is no file
        return False
    poll.register(output, 0)  # errors are reported without asking for them
    if not poll.poll(0):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), output)
    return True


def overview(groups: Mapping[str, Mapping[str, Command]]) -> str:
    """The list of commands, each with a line."""
    width = 2 + max(len(name) for group in groups.values() for name in group)
    rows = {
        title: [(name.ljust(width), command.text.splitlines()[0].removesuffix(".")) for name, command in group.items()]
        for title, group in groups.items()
    }
    listed = "\n".join(section(title, lines) for title, lines in rows.items())
    told = "\n".join(filled(words) for words in EPILOGUE)
    return f"usage: osculate COMMAND [options]\n\n{DESCRIPTION}\n\n{listed}\n\n{told}"


def _families() -> set[str]:
    """First words of the commands that have two."""
    return {name.split()[0] for name in COMMANDS if " " in name}


def _of(family: str, group: Mapping[str, Command]) -> dict[str, Command]:
    return {name: command for name, command in group.items() if name.startswith(f"{family} ")}


def parser_of(command: Command) -> ArgumentParser:
    """The parser of the options of a command; its help is :meth:`Command.help`."""
    parser = ArgumentParser(exit_on_error=False, add_help=False)
    parser.add_argument("--config", action="config")
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
            raise ValueError(
                f"{program} does not know what {word!r} is for: put the name of an option before it; {program} --help "
                "lists them."
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
        for key in read_config(path):
            _require_option(str(key).replace("-", "_"), command.options, program, f" in {str(path)!r}")


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
    notes = " ".join(getattr(error, "__notes__", ()))
    return " ".join(f"{error} {notes}".split()) or type(error).__name__


def _require_known(typed: Sequence[str], command: Command, program: str) -> None:
    """Raise ValueError with the known options for an unknown one."""
    known = [f"--{name.replace('_', '-')}" for name in (*command.options, *command.general)]
    for before, word in pairwise(["", *typed]):
        name = word.partition("=")[0].partition(".")[0]
        if word.startswith("--") or (word.startswith("-") and not _is_number(word) and not _awaits(before)):
            _require_option(name, known, program)


def _require_option(name: str, known: Sequence[str], program: str, where: str = "") -> None:
    """Raise ValueError with the nearest known option for an unknown one: all of them would fill the screen."""
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise ValueError(f"{program} has no option {name}{where}{hint}: {program} --help lists all.")


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _in_words(message: str, typed: Sequence[str], command: Command, program: str) -> str:
    """The parser's objection to a command line, in a sentence.

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
    given = re.search(r"(?:Given|Got) value: (.*)", message)
    if wrong and given and wrong[1] in every:
        option = every[wrong[1]]
        named = any(word.partition("=")[0].partition(".")[0] == option.flag for word in typed)
        where = option.flag if named else f"{option.name} in the YAML file"
        return f"{where} takes {option.values}, got {given[1].strip()!r}: {program} --help describes it."
    return f"{_one_line(message).removesuffix('.')}: {program} --help lists the options."
