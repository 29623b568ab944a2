"""An extension of griffe: docstrings as the site shows them, under the names by which people import things."""

import re
from collections.abc import Iterator
from typing import Any

import griffe
from latex2mathml.converter import convert

#: An equation with the lines that go on with it, up to the next empty line.
EQUATION = re.compile(r"^( *)\.\. math:: *(.*(?:\n(?!\s*$).*)*)", re.MULTILINE)
#: A reference such as :func:`osculate.refine`.
ROLE = re.compile(r":(?:func|class|meth|mod|data|attr):`~?([\w.]+)`")
#: Lines of an example up to the next empty line; one that begins in a fence stays as it is.
EXAMPLE = re.compile(r"^( *)>>> .*(?:\n(?!\s*$|\s*```).*)*(?:\n\n\1>>> .*(?:\n(?!\s*$|\s*```).*)*)*", re.MULTILINE)
#: A star behind a letter, as in θ*, which Markdown may take for the end of an emphasis; code is left alone.
STAR = re.compile(r"(```.*?```|``.*?``|`[^`]*`|<math.*?</math>)|(?<=[^\s\\*])\*(?!\*)", re.DOTALL)


#: The name of a function before a letter, a number or a fraction.
FUNCTION = re.compile(r"(<m[io]>(?:log|exp|det|tr|diag|max|min)</m[io]>)(?=<m(?:i|n|sub|sup|subsup|frac|mover)>)")


def equation(tex: str) -> str:
    """TeX as MathML, which browsers draw without scripts; a space stands between log and p."""
    return FUNCTION.sub(r'\1<mspace width="0.17em"/>', convert(" ".join(tex.split()), display="block"))


def shown(text: str, linked: Any) -> str:
    """A docstring in Markdown: equations as MathML, references as links, examples in fences.

    Args:
        text: The docstring, without the indentation of its source.
        linked: The path of what a name in the docstring stands for.
    """
    text = EQUATION.sub(lambda m: f'{m[1]}<div class="equation" data-search-exclude>{equation(m[2])}</div>', text)
    text = EXAMPLE.sub(lambda m: f"{m[1]}```pycon\n{m[0]}\n{m[1]}```", text)
    text = STAR.sub(lambda m: m[1] or r"\*", text)
    link = '<autoref identifier="{}" optional><code>{}</code></autoref>'
    return ROLE.sub(lambda m: link.format(linked(m[1]), public(m[1])), text)


def public(name: str) -> str:
    """The name that a reader types, who has written `import osculate as osc`."""
    return re.sub(r"^osculate\.", "osc.", name)


def within(module: griffe.Object) -> Iterator[griffe.Object]:
    """Everything that a module defines."""
    yield module
    for member in list(module.members.values()):
        if not member.is_alias:
            yield from within(member)


def path_of(name: str, scope: griffe.Object) -> str:
    """The path of a name in a docstring."""
    if name.startswith("osculate."):
        return name
    try:
        return scope.resolve(name)
    except griffe.NameResolutionError:
        return f"{scope.path}.{name}"


class Docstrings(griffe.Extension):
    """Translates the docstrings of a package once it is read."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: Any) -> None:
        """Translate all docstrings, and let a function stand before the module of the same name.

        `osculate.methods.laplace` is a module for griffe, which reads files; who imports it gets the function.
        """
        loader.resolve_aliases(implicit=True)  # through the modules, before functions stand before them
        griffe.DataclassesExtension().on_package(pkg=pkg)  # likewise: it comes last, and would not find these modules
        everything = list(within(pkg))
        for thing in everything:
            if thing.docstring:
                thing.docstring.value = shown(thing.docstring.value, lambda name, at=thing: path_of(name, at))
        for folder in (thing for thing in everything if thing.is_module):
            for name in folder.imports.keys() & folder.members.keys():
                module = folder.members[name]
                if (not module.is_alias or module.resolved) and module.is_module and name in module.members:
                    folder.members[name] = griffe.Alias(name, module.members[name], parent=folder)
