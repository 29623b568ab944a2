"""Calibrated uncertainty for neural networks by Laplace's method: the pipeline on one screen.

>>> import osculate as osc
>>> model = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 3))           # f(x; θ), trained
>>> likelihood = osc.likelihoods.Categorical()                                     # p(y|f)
>>> X, Y = torch.randn(60, 2), torch.randint(3, (60,))
>>> q = osc.laplace(model, likelihood, (X, Y))                                     # q(θ), tuned by the evidence
>>> osc.predict(q, X[:5]).probs.shape                                              # p(y|x)
torch.Size([5, 3])
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING, Any as _Any

from osculate import (
    curvature as curvature,
    evidence as evidence,
    likelihoods as likelihoods,
    methods as methods,
    metrics as metrics,
    networks as networks,
    posteriors as posteriors,
    predictive as predictive,
    priors as priors,
    structures as structures,
)
from osculate.evidence import (
    log_evidence as log_evidence,
    maximise_evidence as maximise_evidence,
    refine as refine,
)
from osculate.methods import Subnetwork as Subnetwork, laplace as laplace, plan as plan
from osculate.posteriors.functions import function_posterior as function_posterior
from osculate.predictive import (
    functional_variance as functional_variance,
    predict as predict,
    sample_functions as sample_functions,
    tune as tune,
)
from osculate.serialization import load as load, save as save
from osculate.training import train as train

if _TYPE_CHECKING:
    from osculate import autoencoders as autoencoders, data as data, inverse as inverse, tasks as tasks
    from osculate.predictive.deployed import deploy as deploy
    from osculate.tasks import compare as compare

__version__ = "0.1.0"
__all__ = [  # other modules serve the library itself
    *("autoencoders", "curvature", "data", "evidence", "inverse", "likelihoods", "methods", "metrics", "networks"),
    *("posteriors", "predictive", "priors", "structures", "tasks"),
    *(
        "Subnetwork",
        "compare",
        "deploy",
        "function_posterior",
        "functional_variance",
        "laplace",
        "plan",
        "load",
        "log_evidence",
        "maximise_evidence",
        "predict",
    ),
    *("refine", "sample_functions", "save", "train", "tune"),
]

#: Folders that a fit does not need: loaded at their first use.
_LATE = ("autoencoders", "data", "inverse", "tasks")


def __getattr__(name: str) -> _Any:
    if name in _LATE:
        return _import_module(f"osculate.{name}")
    if name == "compare":
        return _import_module("osculate.tasks").compare
    if name == "deploy":
        return _import_module("osculate.predictive.deployed").deploy
    raise AttributeError(f"module 'osculate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
