"""Small run folders, made without training."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import osculate as osc
from osculate.cli.checkpoint import MODEL, Card, card_of, save_model
from osculate.cli.folder import POSTERIOR
from osculate.cli.options import DataOptions

#: A name of a class that a careless page would run.
SCRIPT = "<script>alert(1)</script>"


def own_data(folder: Path, classes: bool) -> DataOptions:
    """Rows of two numbers, and two classes or a real number."""
    random = np.random.default_rng(0)
    x = 10 + 3 * random.normal(size=(120, 2))
    y = (x[:, 0] > 10).astype(int) if classes else x[:, :1] + random.normal(size=(120, 1))
    np.savez(folder / "data.npz", X=x, y=y)
    return DataOptions(data=str(folder / "data.npz"))


def saved_run(folder: Path, data: DataOptions, model: str, noise: float | None, **changes: Any) -> Card:
    """A network with random weights and its posterior, as osculate train and fit leave them.

    Args:
        folder: Folder of the run.
        data: Data of the training.
        model: Name of the network.
        noise: Noise scale, or None for classes.
        changes: Fields of the card that are others than those of the network.
    """
    reconstructs = model in osc.autoencoders.REGISTRY
    dataset = data.load()
    options: dict[str, Any] = {} if ":" in model or reconstructs else {"hidden": [8]} if model == "mlp" else {}
    card = card_of(dataset, data, model, options, noise, reconstructs)
    torch.manual_seed(0)
    network = card.network(model)
    structure = "diag" if reconstructs else "kron"
    part = card.of(dataset).train
    part = part[0][:100], part[1][:100]
    q = osc.laplace(network, card.likelihood, part, structure=structure, prior=5.0, refine=False)
    save_model(folder / MODEL, network, replace(card, **changes))
    osc.save(q, folder / POSTERIOR)
    return card


def factory(input_shape: tuple[int, ...], outputs: int) -> nn.Module:
    """A network of the user's own, which tells that its code has run."""
    Path("has_run").touch()
    return nn.Linear(input_shape[0], outputs)
