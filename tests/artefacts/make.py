"""Files that released versions have written, with what they predict: later versions must read them.

``python -m tests.artefacts.make FOLDER`` writes the files of the version that is installed: one posterior for each
structure and each kind, for each method a training stopped after two of four epochs, the sums of a fit stopped after
two of three batches, and what the command line keeps of a training.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import osculate as osc
from osculate import methods
from osculate.cli.checkpoint import build_network, read_model
from osculate.cli.folder import read_config
from osculate.posteriors import Mixture, Posterior
from osculate.tensorfiles import fill

X = torch.linspace(-2, 2, 24).reshape(12, 2).sin()
Y = torch.arange(12) % 3
#: Epochs after which a training is stopped, and that it has in the end.
STOPPED, EPOCHS = 2, 4


def network(seed: int = 0) -> nn.Sequential:
    """A small classifier with dropout, in evaluation mode."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Dropout(0.1), nn.Linear(4, 3)).eval()


def autoencoder() -> osc.autoencoders.Autoencoder:
    """A small autoencoder, for the structure that needs a bottleneck."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return osc.autoencoders.Autoencoder(nn.Sequential(nn.Linear(2, 1), nn.Tanh()), nn.Linear(1, 2)).eval()


def convolutions() -> nn.Sequential:
    """A small network with filters, of six inputs as an image."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layers = nn.Unflatten(1, (1, 1, 2)), nn.Conv2d(1, 2, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(4, 3)
        return nn.Sequential(*layers).eval()


#: Networks of posteriors that are not over :func:`network`.
NETWORKS: dict[str, Callable[[], nn.Module]] = {"mixed_diag": autoencoder, "filters": convolutions}


def posteriors() -> dict[str, Posterior]:
    """One posterior for each structure that files can hold, and for each other kind."""
    found: dict[str, Posterior] = {}
    categorical = osc.likelihoods.Categorical()
    for name in osc.structures.REGISTRY:
        model, likelihood, y = network(), categorical, Y
        if name == "mixed_diag":
            model, likelihood, y = autoencoder(), osc.likelihoods.Gaussian(0.5), X
        q = osc.laplace(model, likelihood, (X, y), structure=name, prior=osc.priors.Layerwise(0.7), refine=False)
        if not q.structure.structure.unstorable:
            found[name] = q
    found["subnetwork"] = osc.laplace(
        network(),
        categorical,
        (X, Y),
        structure="full",
        subset=osc.Subnetwork(0.5, "magnitude"),
        prior=0.7,
        refine=False,
    )
    found["refined"] = osc.laplace(network(), categorical, (X, Y), prior=osc.priors.Layerwise(0.7), refine=True)
    found["earlier"] = osc.laplace(network(1), categorical, (X, Y), prior=found["kron"], refine=False)
    model = convolutions()
    found["filters"] = osc.laplace(
        model, categorical, (X, Y), structure="full", prior=osc.priors.Filters(), refine=False
    )
    found["point"] = osc.posteriors.Point(network(), categorical)
    found["dropout"] = osc.posteriors.Dropout(network(), categorical)
    found["ensemble"] = osc.posteriors.Ensemble([network(0), network(1)], categorical)
    members = [
        osc.laplace(network(n), categorical, (X, Y), structure="diag", prior=0.7, refine=False) for n in range(2)
    ]
    found["mixture"] = Mixture(members)
    for name in ("SWAG", "HMC"):
        found[name] = osc.train(METHODS[name](network()), (X, Y), epochs=4, **options(name)).posterior
    return found


CATEGORICAL = osc.likelihoods.Categorical()
#: Each method on a network, with small settings.
METHODS: dict[str, Callable[[nn.Module], Any]] = {
    "MAP": lambda model: methods.MAP(model, CATEGORICAL),
    "SWAG": lambda model: methods.SWAG(model, CATEGORICAL, rank=2, burn_in=0.25),
    "L2M": lambda model: methods.L2M(model, CATEGORICAL),
    "MCDropout": lambda model: methods.MCDropout(model, CATEGORICAL),
    "DeepEnsemble": lambda model: methods.DeepEnsemble([model, network(1)], CATEGORICAL),
    "RandomizedPriors": lambda model: methods.RandomizedPriors([model, network(1)], CATEGORICAL),
    "OnlineLaplace": lambda model: methods.OnlineLaplace(model, CATEGORICAL),
    "MarginalLikelihood": lambda model: methods.MarginalLikelihood(model, CATEGORICAL),
    "VariationalLaplace": lambda model: methods.VariationalLaplace(model, CATEGORICAL),
    "MeanFieldVI": lambda model: methods.MeanFieldVI(model, CATEGORICAL),
    "IVON": lambda model: methods.IVON(model, CATEGORICAL),
    "VOGN": lambda model: methods.VOGN(model, CATEGORICAL),
    "LevenbergMarquardt": lambda model: methods.LevenbergMarquardt(model, CATEGORICAL),
    "HMC": lambda model: methods.HMC(model, CATEGORICAL, chains=1, warmup=2, max_depth=2),
}


def predicted(q: Posterior | None) -> list[list[float]]:
    """The predictive's mean, or probabilities, at the inputs."""
    assert q is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        y = osc.predict(q, X, generator=torch.Generator().manual_seed(0))
    return (y.probs if hasattr(y, "probs") else y.mean).tolist()


def options(name: str) -> dict[str, Any]:
    """The options of a method's training."""
    common = {"seed": 0, "progress": False, "device": "cpu"}
    if name in ("LevenbergMarquardt", "HMC"):  # they take all data at once
        return common
    lr = 0.1 if name in ("IVON", "VOGN") else 0.01
    return {**common, "batch_size": 6, "lr": lr, "schedule": "constant"}


def trained(name: str, folder: Path, stop: int | None = None) -> Posterior | None:
    """The posterior of a method, resumed from the checkpoint in a folder where there is one.

    Args:
        name: Name of the method.
        folder: Folder of the run.
        stop: Number of epochs after which the training is interrupted; then there is no posterior.
    """
    method = METHODS[name](network().train() if name == "MCDropout" else network())
    if stop is not None:
        verb = "step" if hasattr(method, "step") else "end_epoch"
        whole, calls = getattr(method, verb), count(1)

        def interrupted(*args: Any) -> Any:
            if next(calls) > stop:
                raise KeyboardInterrupt
            return whole(*args)

        setattr(method, verb, interrupted)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return osc.train(method, (X, Y), epochs=EPOCHS, folder=folder, resume=True, **options(name)).posterior
    except KeyboardInterrupt:
        return None


#: The batches of a fit.
BATCHES = [(X[start : start + 4], Y[start : start + 4]) for start in (0, 4, 8)]


class Stopped(list[Any]):
    """Batches of which the last is never reached."""

    def __iter__(self) -> Iterator[Any]:
        """All but the last, and an interruption."""
        yield from self[:-1]
        raise KeyboardInterrupt


def fitted(checkpoint: Path, batches: list[Any]) -> Posterior | None:
    """The posterior of a fit that goes on from a checkpoint; None if it is interrupted."""
    try:
        return osc.laplace(
            network(), CATEGORICAL, batches, prior=1.0, refine=False, checkpoint=checkpoint, every=1, progress=False
        )
    except KeyboardInterrupt:
        return None


def configured(folder: Path) -> list[list[float]]:
    """What the network of a run on the command line predicts, built by its options."""
    options = read_config(folder / "config.yaml")
    tensors, card = read_model(folder / "model.safetensors")
    assert card is not None
    assert (card.model, card.options) == (options["model"], options["model_options"])
    model = build_network(card.model, card.input_shape, card.outputs, card.options)
    fill(model, tensors, folder / "model.safetensors")
    return predicted(osc.posteriors.Point(model.eval(), card.likelihood))


def main(folder: Path) -> None:
    """Write every file, and expected.json with the predictions."""
    folder.mkdir(parents=True)
    expected: dict[str, dict[str, Any]] = {"posteriors": {}, "checkpoints": {}}
    for name, q in posteriors().items():
        osc.save(q, folder / f"{name}.safetensors")
        expected["posteriors"][name] = predicted(q)
    for name in METHODS:
        kept = folder / "trainings" / name
        trained(name, kept, STOPPED)
        try:
            other = folder / "whole"
            shutil.copytree(kept, other)
            expected["checkpoints"][name] = predicted(trained(name, other))
        finally:
            shutil.rmtree(other)
    fitted(folder / "fit.ckpt", Stopped(BATCHES))
    shutil.copy(folder / "fit.ckpt", folder / "whole.ckpt")
    expected["sums"] = {"fit.ckpt": predicted(fitted(folder / "whole.ckpt", BATCHES))}
    with tempfile.TemporaryDirectory() as place:  # the card names the data relative to it
        np.savez(Path(place) / "data.npz", X=X.numpy(), y=Y.numpy())
        words = ("train", "--data", "data.npz", "--model-options.hidden", "[4]", "--epochs", "2", "--output", "run")
        subprocess.run([sys.executable, "-m", "osculate", *words, "--no-progress"], cwd=place, check=True)
        (folder / "run").mkdir()
        for name in ("model.safetensors", "config.yaml"):
            shutil.copy(Path(place) / "run" / name, folder / "run")
    expected["runs"] = {"run": configured(folder / "run")}
    (folder / "expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
