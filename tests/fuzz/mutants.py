"""Seeded mistakes: small changes of the package, in memory, that the cases must notice."""

import __future__

import importlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import CodeType, FunctionType
from typing import Any

#: Flag by which annotations are not evaluated.
CO_FUTURE_ANNOTATIONS = __future__.annotations.compiler_flag


@dataclass(frozen=True)
class Mutant:
    """A change of the text of one function.

    Attributes:
        name: What goes wrong.
        place: Module below ``osculate`` and qualified name of the function, "module:name".
        old: Text in the function.
        new: Text in its place.
    """

    name: str
    place: str
    old: str
    new: str

    @contextmanager
    def seeded(self) -> Iterator[None]:
        """The package with this mistake; its modules keep their objects, so that no import needs a reload."""
        function = self.function()
        own = function.__code__
        function.__code__ = self.code(function)
        try:
            yield
        finally:
            function.__code__ = own

    def function(self) -> FunctionType:
        """The function, below the wrappers of properties, class methods and checks of types."""
        module, _, path = self.place.partition(":")
        found: Any = importlib.import_module(f"osculate.{module}")
        for name in path.split("."):
            found = vars(found)[name]
        if isinstance(found, property | cached_property):
            found = found.fget if isinstance(found, property) else found.func
        return inspect.unwrap(getattr(found, "__func__", found))

    def code(self, function: FunctionType) -> CodeType:
        """The changed function, compiled."""
        text = textwrap.dedent(inspect.getsource(function))
        assert text.count(self.old) == 1, (
            f"{self.name}: {self.old!r} stands {text.count(self.old)} times in {self.place}"
        )
        names = [name for name in function.__code__.co_freevars if name != "__class__"]
        inner = textwrap.indent(text.replace(self.old, self.new), "        ")
        scopes = f"def outer({', '.join(names)}):\n    class Inner:\n{inner}"  # the function closes over the same names
        outer = compile(scopes, "mutant", "exec", CO_FUTURE_ANNOTATIONS)
        return _named(outer, function.__name__)


def _named(code: CodeType, name: str) -> CodeType:
    """The code of the function of a name within other code."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found = constant if constant.co_name == name else _named(constant, name)
            if found.co_name == name:
                return found
    return code


MUTANTS = (
    Mutant("rate of a Poisson predictive without its half", "likelihoods.poisson:PoissonLogNormal.mean", "0.5 * ", ""),
    Mutant("noise scale for its variance", "likelihoods.gaussian:Gaussian.precision", "** -2", "** -1"),
    Mutant(
        "predictive without noise",
        "likelihoods.gaussian:Gaussian.marginal",
        "variance + self._scale(mean) ** 2",
        "variance",
    ),
    Mutant("wrong power of a changed noise scale", "likelihoods.gaussian:Gaussian.curvature_scale", "** 2\n", "** 1\n"),
    Mutant(
        "wrong sign in the root of class probabilities",
        "likelihoods.categorical:Categorical.local_columns",
        "mul_(-diagonal",
        "mul_(diagonal",
    ),
    Mutant(
        "dropped factor of a half in a Hessian",
        "likelihoods.heteroscedastic:HeteroscedasticGaussian._information",
        "0.5",
        "1.0",
    ),
    Mutant(
        "ignored bias column",
        "structures.blocks.kronecker:KroneckerBlock.accumulate",
        "a = form.a if",
        "a = form.a * (torch.arange(form.a.shape[-1]) < form.a.shape[-1] - self.has_bias) if",
    ),
    Mutant("data counted for positions", "curvature.forms:Outer.events", "[1] * self.shared if", "[1] if"),
    Mutant(
        "dropped term of a squared rule",
        "likelihoods.categorical:Categorical.local_diagonal",
        "p * (1 - p)",
        "p",
    ),
    Mutant(
        "a chunk of columns left out",
        "curvature.engine:_pieces_of",
        "every.count, step)",
        "max(1, every.count - 1), step)",
    ),
    Mutant(
        "sum of inputs for their mean",
        "structures.blocks.kronecker:KroneckerBlock._input_basis",
        " / self.count.clamp(min=1)",
        "",
    ),
    Mutant("missing transpose", "structures.blocks.kronecker:KroneckerBlock.rotate_back", "[1].mT", "[1]"),
    Mutant(
        "prior precision of the weights for biases",
        "structures.blocks.kronecker:KroneckerBlock.precision",
        "if delta.bias is not None and self.has_bias else None",
        "if False else None",
    ),
    Mutant(
        "corrected eigenvalues not squared",
        "structures.blocks.kronecker:KroneckerBlock.correct",
        ".square().sum((0, 1))",
        ".abs().sum((0, 1))",
    ),
    Mutant("prior precision not added", "structures.blocks.diagonal:DiagonalPrecision.values", " + self.delta", ""),
    Mutant("half a log determinant", "structures.blocks.dense:DensePrecision.log_det_ratio", "2 * ", ""),
    Mutant(
        "wrong damping", "structures.blocks.kronecker:KroneckerPrecision._inverse", "self.weight", "2 * self.weight"
    ),
    Mutant("twice the distance to the prior", "evidence.mode:evidence_at", "0.5 * square", "square"),
    Mutant("evidence without temperature", "evidence.mode:evidence_at", " / q.temperature", ""),
    Mutant(
        "mean of the prior left out of the search",
        "evidence.problem:Problem.squares",
        "self.q.seen_apart(theta).double()",
        "theta.double()",
    ),
    Mutant(
        "stale decomposition",
        "posteriors.gaussian:Gaussian._kept_precision",
        "return self._precision()",
        "return vars(self.fit).setdefault('_stale', self._precision())",
    ),
    Mutant("number of the last batch for all data", "posteriors.fit:fitted", "size += len(y)", "size = len(y)"),
    Mutant(
        "statistics of the first data alone", "posteriors.fit:Fit.__add__", "value + other.statistics[name]", "value"
    ),
    Mutant(
        "first batch left out", "methods.laplace:laplace", "chain([] if own is None else [own], batches)", "batches"
    ),
    Mutant("wrong constant of the probit link", "predictive.link:Probit.__call__", "pi / 8", "pi / 4"),
    Mutant("half of a correlation in mean field", "predictive.link:MeanField.__call__", " - covariance.mT", ""),
    Mutant("covariance for its root", "predictive.link:MonteCarlo.__call__", "root(spread)", "spread"),
    Mutant("temperature not read", "serialization:_rebuild_gaussian", 'header["temperature"]', "1.0"),
    Mutant(
        "earlier data forgotten",
        "posteriors.earlier:Earlier.of",
        "vector[block.positions] += ",
        "vector[block.positions] += 0 * ",
    ),
)


def caught(mutant: Mutant, seeds: range, wrong: Callable[[int], bool], enough: int | None = None) -> int:
    """The number of seeds whose cases notice a mistake.

    Args:
        mutant: The mistake.
        seeds: Seeds of cases that agree without it.
        wrong: True for a seed whose case fails.
        enough: Number at which to stop.
    """
    count = 0
    with mutant.seeded():
        for seed in seeds:
            count += wrong(seed)
            if enough is not None and count >= enough:
                break
    return count
