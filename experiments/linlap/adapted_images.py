"""Small image classifiers of five architectures, and what the evidence at both modes makes of them."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from experiments import seeded
from experiments.linlap.adapted_toy import LINEAR, MULTIPLE, NETWORK, SINGLE
from osculate.data import load
from osculate.evidence import Newton, effective_parameters, maximise_evidence
from osculate.likelihoods import Categorical
from osculate.methods.laplace import laplace
from osculate.methods.map import MAP
from osculate.networks import FixupResNet, NormalisedCNN, PreActResNet, ResNet, ViT
from osculate.posteriors import Gaussian
from osculate.predictive import predict
from osculate.priors import Grouped, Isotropic, Prior
from osculate.training import train
from osculate.training.settings import Settings as Training

#: Precision of the prior in training.
DECAY = 1.0


@dataclass(frozen=True)
class Images:
    """The data, the networks, and their training.

    Args:
        names: of the architectures, keys of :data:`ARCHITECTURES`.
        data: the data set, of square images of one channel; the sizes of the networks are for 28 × 28 pixels.
        train_size: images to train on.
        test_size: images to test on.
        training: of the networks; the seed is that of the repetition.
        pool: side of the squares of pixels that a convolutional network begins with the averages of.
        tolerance: of the stationarity condition of the evidence at θ*.
    """

    names: tuple[str, ...] = ("T-former", "CNN", "ResNet", "Pre-ResNet", "Fixup")
    data: str = "mnist"
    train_size: int = 1000
    test_size: int = 2000
    training: Training = Training(epochs=30, lr=3e-3, batch_size=50)
    pool: int = 2
    tolerance: float = 0.1


#: Each from the side of the images and the pooling; 42,000 to 47,000 parameters.
ARCHITECTURES: Mapping[str, Callable[[int, int], nn.Module]] = {
    "T-former": lambda side, pool: ViT(10, (1, side, side), patch=side // 4, width=34, depth=3, heads=2),
    "CNN": lambda side, pool: nn.Sequential(nn.AvgPool2d(pool), NormalisedCNN()),
    "ResNet": lambda side, pool: nn.Sequential(nn.AvgPool2d(pool), ResNet(10, 1, 9, (1, 1, 1))),
    "Pre-ResNet": lambda side, pool: nn.Sequential(nn.AvgPool2d(pool), PreActResNet(10, 1, 12, (1, 1, 1))),
    "Fixup": lambda side, pool: nn.Sequential(nn.AvgPool2d(pool), FixupResNet(10, 1, 12, (1, 1, 1), 12)),
}


@dataclass(frozen=True)
class Scores:
    """Of one network.

    Attributes:
        map: test NLL of the network alone.
        nll: of its posterior, by mode and prior.
        determined: effective parameters γ, by mode and prior.
        parameters: P.
        unconverged: how many of the evidences did not meet the tolerance.
    """

    map: float
    nll: dict[tuple[str, str], float]
    determined: dict[tuple[str, str], float]
    parameters: int
    unconverged: int


def prior_of(model: nn.Module, x: Tensor, kind: str) -> Prior:
    """One precision; or one for each normalised group, without normalisation one for each layer."""
    if kind == SINGLE:
        return Isotropic(1.0)
    grouped = Grouped.normalised(model, x)
    if len(grouped.groups) > 1:
        return grouped
    layers = dict.fromkeys(name.rpartition(".")[0] for name, _ in model.named_parameters())
    large = [name for name in layers if any(p.ndim > 1 for p in model.get_submodule(name).parameters(recurse=False))]
    rest = [name for name in layers if name not in large]
    return Grouped({**{name: [name] for name in large}, **({"biases and scales": rest} if rest else {})})


def images(settings: Images, name: str, seed: int) -> Scores:
    """Train one network, and tune its posterior in every way; KFAC, one pass over the data for all."""
    data = load(settings.data, train_size=settings.train_size, seed=seed)
    (x, y), (x_test, y_test) = data.train, (part[: settings.test_size] for part in data.test)
    with seeded(seed):
        model = ARCHITECTURES[name](x.shape[-1], settings.pool)
    train(MAP(model, Categorical(), DECAY), (x, y), settings.training.changed(seed=seed), device="cpu", progress=False)
    model.eval()
    start = laplace(model, Categorical(), (x, y), prior=1.0)
    nll, determined, unconverged = {}, {}, 0
    for kind in (SINGLE, MULTIPLE):
        found = {NETWORK: maximise_evidence(start.replace(prior=prior_of(model, x[:8], kind)))}
        found[LINEAR], stopped = at_linear_mode(found[NETWORK], (x, y), settings.tolerance)
        unconverged += stopped
        for mode, q in found.items():
            nll[mode, kind] = -float(predict(q, x_test).log_prob(y_test).mean())
            determined[mode, kind] = sum(effective_parameters(q).values())
    with torch.no_grad():
        alone = -float(Categorical().log_prob(model(x_test), y_test).mean())
    return Scores(alone, nll, determined, sum(p.numel() for p in model.parameters()), unconverged)


def at_linear_mode(q: Gaussian, data: tuple[Tensor, Tensor], tolerance: float) -> tuple[Gaussian, bool]:
    """The posterior by the evidence at θ*, and whether the search ended before it met the tolerance."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        solver = Newton(forcing=0.3)  # rougher steps, of which a few more are needed
        found = maximise_evidence(q, mode="linear", data=data, tolerance=tolerance, solver=solver)
    return found, any("has not converged" in str(each.message) for each in caught)
