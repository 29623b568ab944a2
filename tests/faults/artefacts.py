"""One artefact of every kind, with the answer that it gives."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jsonargparse import Namespace
from torch import Tensor, nn

import osculate as osc
from osculate.cli.app import require_typed_factory
from osculate.cli.checkpoint import Card, read_model, save_model
from osculate.cli.folder import read_config, write_config
from osculate.data import read
from osculate.tensorfiles import header_of, read_tensors, write_tensors
from osculate.training.checkpoints import Checkpoints

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


#: Posteriors by name.
POSTERIORS: dict[str, Callable[[], Any]] = {
    **{name: partial(classifier, name) for name in ("kron", "diag", "low_rank", "dual", "ekfac")},
    "refined": regression,
    "sequential": sequential,
    "ensemble": lambda: osc.posteriors.Ensemble([network(), network(seed=2)], osc.likelihoods.Categorical()),
    "point": lambda: osc.posteriors.Point(network(), osc.likelihoods.Categorical()),
}


def _save(kind: str, path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        osc.save(POSTERIORS[kind](), path)


def _predicted(kind: str, path: Path) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        q = osc.load(path, network(2 if kind in ("refined", "sequential") else 3))
        found = osc.predict(q, X)
        numbers = [found.mean, found.variance] if kind in ("refined", "sequential") else [found.probs]
        if kind not in ("ensemble", "point", "refined"):
            numbers.append(osc.log_evidence(q).to(X))
        return torch.cat([each.reshape(-1) for each in numbers])


CARD = Card("mlp", {}, (4,), 3, None, {"data": "digits"})


def _weights(path: Path) -> Tensor:
    tensors, card = read_model(path)
    assert card is not None
    return torch.cat([card.outputs * tensors[name].reshape(-1) for name in sorted(tensors)])


def _sums(path: Path) -> Tensor:
    metadata, tensors = read_tensors(path)
    header_of(path, metadata, "osculate.sums")
    return torch.cat([tensors[name].reshape(-1) for name in sorted(tensors)])


def _checkpoint(path: Path) -> Tensor:
    try:
        found = Checkpoints().load_checkpoint(path)
        return torch.cat([found["state_dict"][name].reshape(-1) for name in sorted(found["state_dict"])])
    except Exception as error:  # the caller, osc.train, makes one sentence of any of them
        raise ValueError(str(error)) from error


def _arrays(path: Path) -> Tensor:
    parts = read(path).train + read(path).test
    return torch.cat([part.reshape(-1).float() for part in parts])


@dataclass(frozen=True)
class Options:
    """Options of a run.

    Args:
        data: Name of a data set.
        epochs: Number of epochs.
        lr: Learning rate.
        hidden: Sizes of layers.
    """

    data: str = "digits"
    epochs: int = 30
    lr: float = 0.01
    hidden: tuple[int, ...] = (50, 50)


def _options(path: Path) -> Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            options = read_config(path)
        except UserWarning as told:
            raise ValueError(str(told)) from told
    require_typed_factory([], Namespace(options))
    return torch.frombuffer(bytearray(repr(options).encode()), dtype=torch.uint8).float()


#: Functions that write an artefact, and that read it as a user does, by name.
MAKERS: dict[str, tuple[Callable[[Path], Any], Callable[[Path], Tensor]]] = {
    **{kind: (partial(_save, kind), partial(_predicted, kind)) for kind in POSTERIORS},
    "network": (lambda path: save_model(path, network(), CARD), _weights),
    "sums of a fit": (lambda path: write_tensors(path, network().state_dict(), "osculate.sums", {"size": 1}), _sums),
    "checkpoint": (
        lambda path: Checkpoints().save_checkpoint({"state_dict": network().state_dict(), "epoch": 3}, path),
        _checkpoint,
    ),
    "options": (lambda path: write_config(path, "train", Options()), _options),
    "arrays": (lambda path: np.savez_compressed(path, X=X.numpy(), y=Y.numpy()), _arrays),
}
#: Kinds that are safetensors with a header.
TENSORS = (*POSTERIORS, "network", "sums of a fit")
#: Ends of the names of the others.
ENDS = {"checkpoint": "q.ckpt", "arrays": "q.npz", "options": "q.yaml"}


def name_of(kind: str) -> str:
    """The name of the file."""
    return ENDS.get(kind, "q.safetensors")


def make(kind: str, path: Path) -> None:
    """Write an artefact."""
    MAKERS[kind][0](path)


def answer(kind: str, path: Path) -> Tensor:
    """Read what a user reads from it."""
    return MAKERS[kind][1](path)
