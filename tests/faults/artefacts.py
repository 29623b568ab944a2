"""One artefact of every kind, with the answer that it gives."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import osculate as osc

torch.manual_seed(0)
X, Y, TARGETS = torch.randn(20, 4), torch.randint(3, (20,)), torch.randn(20, 2)


def network(outputs: int = 3, seed: int = 1) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, outputs)).eval()


def classifier(structure: Any) -> osc.posteriors.Gaussian:
    return osc.laplace(network(), osc.likelihoods.Categorical(), (X, Y), structure=structure, prior=1.0, refine=False)


def regression() -> osc.posteriors.Gaussian:
    return osc.laplace(network(2), osc.likelihoods.Gaussian(0.5), (X, TARGETS), structure="full")


def sequential() -> osc.posteriors.Gaussian:
    how = {"structure": "full", "refine": False}
    first = osc.laplace(network(2), osc.likelihoods.Gaussian(0.5), (X, TARGETS), prior=1.0, **how)
    return osc.laplace(network(2), osc.likelihoods.Gaussian(0.5), (X, TARGETS), prior=first, **how)


MAKERS: dict[str, Callable[[], Any]] = {
    **{name: lambda name=name: classifier(name) for name in ("kron", "diag", "low_rank", "dual", "ekfac")},
    "refined": regression,
    "sequential": sequential,
    "ensemble": lambda: osc.posteriors.Ensemble([network(), network(seed=2)], osc.likelihoods.Categorical()),
    "point": lambda: osc.posteriors.Point(network(), osc.likelihoods.Categorical()),
}


def make(kind: str, path: Path) -> None:
    """Write an artefact."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        osc.save(MAKERS[kind](), path)


def answer(kind: str, path: Path) -> Tensor:
    """What a user reads from it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        q = osc.load(path, network(2 if kind in ("refined", "sequential") else 3))
        found = osc.predict(q, X)
        numbers = [found.mean, found.variance] if kind in ("refined", "sequential") else [found.probs]
        if kind not in ("ensemble", "point", "refined"):
            numbers.append(osc.log_evidence(q).to(X))
        return torch.cat([each.reshape(-1) for each in numbers])
