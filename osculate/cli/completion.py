"""Print a script for the Tab key of bash or zsh.

It completes commands, options, names and files, and nothing of osculate runs while you type. For bash: osculate
completion bash > ~/.local/share/bash-completion/completions/osculate. For zsh: osculate completion zsh > _osculate, in
a folder of $fpath.
"""

import argparse
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from osculate import autoencoders, curvature, data
from osculate.checks import require_library
from osculate.cli.approximation import PRIORS, STORABLE
from osculate.cli.checkpoint import MODELS
from osculate.cli.command import Command
from osculate.cli.evaluate import TASKS
from osculate.cli.methods import METHODS
from osculate.evidence.laplace import MODES
from osculate.methods.laplace import SUBSETS
from osculate.predictive import link
from osculate.registry import choose
from osculate.training.settings import AUTO, LOGGERS, OPTIMIZERS, SCHEDULES

SHELLS = ("bash", "zsh")
#: The names that an option takes, by its key; other values are possible for some.
NAMES: Mapping[str, Iterable[str]] = {
    "channel_axis": ("first", "last"),
    "curvature": curvature.REGISTRY,
    "data": data.REGISTRY,
    "device": ("auto", "cpu", "cuda", "mps"),
    "evidence": MODES,
    "link": link.REGISTRY,
    "logger": LOGGERS,
    "lr": (AUTO,),
    "method": METHODS,
    "model": ("auto", *MODELS, *autoencoders.REGISTRY),
    "names": data.REGISTRY,
    "optimizer": OPTIMIZERS,
    "prior": PRIORS,
    "schedule": SCHEDULES,
    "shell": SHELLS,
    "structure": STORABLE,
    "subset": SUBSETS,
    "target_task": ("classification", "regression"),
    "task": TASKS,
}
#: Options whose value is also a file, and the functions of the shells that offer names and files.
FILES = ("data",)
OFFER = {
    "bash": '_osculate_{name}() {{ compgen -W "{words}" -- "$1"; compgen -f -- "$1"; }}',
    "zsh": "_osculate_{name}() {{ _alternative 'names:name:({words})' 'files:file:_files' }}",
}


@dataclass(frozen=True)
class CompletionOptions:
    """The shell.

    Args:
        shell: Name of the shell, bash or zsh.
    """

    shell: str = "bash"


PARTS = (CompletionOptions,)
SUBJECT = "shell"
REPORTS = False


def run(options: CompletionOptions) -> None:
    """Print the script."""
    from osculate.cli.app import COMMANDS  # which lists this command

    print(script(COMMANDS, options.shell))


def script(commands: Mapping[str, Command], shell: str) -> str:
    """The script of a shell.

    Args:
        commands: Commands by name; those of two words have a space.
        shell: A member of :data:`SHELLS`.

    Raises:
        ValueError: the shell is unknown.
        ImportError: shtab is not installed.
    """
    choose("shell", shell, SHELLS)
    require_library("shtab", "completions")
    import shtab

    parser = argparse.ArgumentParser("osculate")
    parser.add_argument("--version", action="store_true", help="print the version")
    below = parser.add_subparsers()
    families: dict[str, Any] = {}
    for name, command in commands.items():
        family, _, word = name.rpartition(" ")
        if family and family not in families:
            families[family] = below.add_parser(family, help=f"commands of {family}").add_subparsers()
        summary = command.text.splitlines()[0].removesuffix(".")
        _add_options(families.get(family, below).add_parser(word, help=_plain(summary)), command)
    offers = "\n".join(OFFER[shell].format(name=name, words=" ".join(NAMES[name])) for name in FILES)
    preamble: Any = {shell: offers}
    return shtab.complete(parser, shell, preamble=preamble)


def _add_options(parser: argparse.ArgumentParser, command: Command) -> None:
    import shtab

    parser.add_argument("--config", help="YAML file with options").complete = shtab.FILE  # type: ignore[attr-defined]
    if command.reports:
        parser.add_argument("--json", action="store_true", help="print the results as JSON")
    for option in command.every.values():
        text = _plain(option.help.partition(".")[0])
        if option.kinds == (bool,):
            for flag in option.flags:
                parser.add_argument(flag, action="store_true", help=text)
            continue
        for name in (option.flag, *([option.name] if option.name == command.subject else [])):
            added: Any = parser.add_argument(name, help=text)
            if option.name in FILES:
                added.complete = dict.fromkeys(SHELLS, f"_osculate_{option.name}")
            elif Path in option.kinds:
                added.complete = shtab.FILE
            elif option.name in NAMES:
                added.choices = list(NAMES[option.name])


def _plain(text: str) -> str:
    """A text without characters that a shell or argparse would expand."""
    return re.sub(r"[%$`'\"\[\]{}]", "", text)
