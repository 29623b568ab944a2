"""Seeded mistakes: small changes of the package, in memory, that the cases must notice."""

import ast
import importlib
import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import CodeType
from typing import Any


@dataclass(frozen=True)
class Mutant:
    """A change of the text of one function.

    Attributes:
        name: What goes wrong.
        place: Module and qualified name of the function, "module:name".
        old: Text in the function.
        new: Text in its place.
    """

    name: str
    place: str
    old: str
    new: str


CURVATURE, BLOCKS, EVIDENCE = "osculate.curvature", "osculate.structures.blocks", "osculate.evidence"
LIKELIHOODS, PREDICTIVE = "osculate.likelihoods", "osculate.predictive"

MUTANTS = (
    Mutant("a covariance without half", f"{LIKELIHOODS}.poisson:PoissonLogNormal.mean", "0.5 * self", "self"),
    Mutant(
        "the variance for the scale of the noise", f"{LIKELIHOODS}.gaussian:Gaussian.precision", "** -2", "** -1"
    ),
    Mutant("noise left out of a predictive", f"{LIKELIHOODS}.gaussian:Gaussian.marginal", "variance + self._scale(mean) ** 2", "variance"),
    Mutant("a class counted twice", f"{LIKELIHOODS}.categorical:Categorical.local_hessian", "p.diag_embed()", "2 * p.diag_embed()"),
    Mutant("a wrong root of the class probabilities", f"{LIKELIHOODS}.categorical:Categorical.local_columns", "mul_(-diagonal", "mul_(diagonal"),
    Mutant("half of the expected Hessian", f"{LIKELIHOODS}.heteroscedastic:HeteroscedasticGaussian._information", "0.5", "1.0"),
    Mutant("a scale counted once", f"{LIKELIHOODS}.gaussian:Gaussian.curvature_scale", "** 2", "** 1"),
)
