"""One network on one split of a UCI set: what Adam has left of its curvature, beside passes of its own, and costs."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import cos, pi
from typing import Any

import torch
from scipy.stats import spearmanr
from torch import Tensor, nn
from torch.distributions import Distribution
from torch.optim import Adam

from experiments import Resumable, seeded
from osculate.data import Dataset, load
from osculate.data.dataset import Part
from osculate.data.uci import NAMES
from osculate.evidence import maximise_evidence
from osculate.likelihoods import Gaussian
from osculate.methods import L2M, laplace
from osculate.methods._moments import Sampling, SecondMoments
from osculate.networks import MLP
from osculate.posteriors import Ensemble, Gaussian as Posterior, Mixture, Point
from osculate.predictive import predict
from osculate.priors import Layerwise


@dataclass(frozen=True)
class Training:
    """How each network is trained, with Adam on the NLL and a prior N(0, 1) as weight decay, in shuffled batches.

    Args:
        steps: of Adam, in whole epochs.
        batch: data in a batch; what is left of an epoch is left out.
        lr: rate at the start of a cosine to zero, the schedule of ``osc.train``.
        members: of the ensembles.
        refreshed: batches from which the second moment is taken again, at weights that do not move.
    """

    steps: int = 3000
    batch: int = 32
    lr: float = 0.01
    members: int = 3
    refreshed: int = 200


@dataclass(frozen=True)
class Settings(Resumable):
    """What is measured.

    Args:
        sets: names of the data sets; one without splits of its own, such as diabetes, has its single one.
        splits: of each set, the first ones of the standard splits.
        hidden: units of the one hidden layer, with tanh.
        training: of each network.
        scales: noise scales, in units of the standardised target; a tenth of the training part chooses one.
    """

    sets: tuple[str, ...] = ("yacht", "energy", "concrete", "wine")
    splits: int = 5
    hidden: int = 50
    training: Training = Training()
    scales: tuple[float, ...] = (0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.45, 0.7, 1.0)


PRESETS = {"small": Settings(), "paper": Settings(splits=20, training=Training(steps=20_000, members=5))}

MAP, GGN, SINGLE, MOMENTS, AGAIN = "MAP", "diagonal, GGN", "diagonal, single gradients", "L2M", "L2M, refreshed"
ENSEMBLE, MIXTURE = "deep ensemble", "ensemble of L2M"
WAYS = (MAP, GGN, SINGLE, MOMENTS, AGAIN, ENSEMBLE, MIXTURE)
RANK, DETERMINED, RATIO = "Spearman correlation", "… of weights that the data determine", "median precision ratio"
RANK_AGAIN, RATIO_AGAIN = "Spearman correlation, refreshed", "median precision ratio, refreshed"
SCALE = "noise scale"
READ, WHOLE, TUNED, PASS = (
    "reading the state, % of training",
    "with the statistics and 16 batches, %",
    "the evidence, %",
    "pass with single gradients, %",
)
TRAINED = "training, CPU s"
COLUMNS = (*WAYS, RANK, DETERMINED, RATIO, RANK_AGAIN, RATIO_AGAIN, READ, WHOLE, TUNED, PASS, TRAINED, SCALE)
SCATTER = "scatter"
#: Precision of the prior that the networks are trained with.
PRIOR = 1.0
#: Times that a short measurement is repeated; the fastest counts.
REPEATS = 5


def splits_of(settings: Settings, name: str) -> int:
    """How many of a set are measured."""
    return settings.splits if name in NAMES else 1


def cell(settings: Settings, name: str, split: int, seed: int) -> dict[str, Any]:
    """Test log likelihood per point of every way in original units, the curvatures side by side, and their cost."""
    data = load(name, split=split, seed=seed, validation_size=0)
    likelihood = Gaussian(chosen_scale(settings, name, split, seed))
    trained = [_trained(settings, data.train, likelihood, 1000 * seed + k) for k in range(settings.training.members)]
    first, *others = trained
    with seeded(seed):  # the order of the batches that are taken again
        again = first.method(Layerwise(1.0)).refresh(settings.training.refreshed)
    l2m, single = first.method(Layerwise(1.0)).posterior, _diagonal(first, "empirical_fisher")
    posteriors = {
        MAP: Point(first.model, likelihood),
        GGN: _tuned(_diagonal(first, "ggn")),
        SINGLE: _tuned(single),
        MOMENTS: _tuned(l2m),
        AGAIN: _tuned(again),
    }
    if others:
        members = [posteriors[MOMENTS], *(_tuned(other.method(Layerwise(1.0)).posterior) for other in others)]
        posteriors |= {ENSEMBLE: Ensemble([t.model for t in trained], likelihood), MIXTURE: Mixture(members)}
    values: dict[str, Any] = {way: _score(data, predict(each, data.test[0])) for way, each in posteriors.items()}
    values |= compared(l2m, again, single) | costs(first)
    return values | {SCALE: float(likelihood.scale), SCATTER: [_rounded(curvature(q)) for q in (single, l2m)]}


def compared(l2m: Posterior, again: Posterior, single: Posterior) -> dict[str, float]:
    """Curvatures of L2M beside those of single gradients; precisions with the prior that the network was trained with.

    Weights whose curvature is below the prior precision are as good as free: their curvature hardly matters.
    """
    mine, fresh, theirs = (curvature(q) for q in (l2m, again, single))
    known = theirs > PRIOR
    return {
        RANK: _rank(mine, theirs),
        DETERMINED: _rank(mine[known], theirs[known]),
        RATIO: float(((mine + PRIOR) / (theirs + PRIOR)).median()),
        RANK_AGAIN: _rank(fresh, theirs),
        RATIO_AGAIN: float(((fresh + PRIOR) / (theirs + PRIOR)).median()),
    }


def _rank(one: Tensor, other: Tensor) -> float:
    """Spearman's correlation; 0 of fewer than three weights."""
    return float(spearmanr(one.numpy(), other.numpy()).statistic) if len(one) > 2 else 0.0


def costs(trained: "Trained") -> dict[str, float]:
    """What L2M adds to a training, in per cent of it, and what a pass of its own would."""
    reading, _ = timed(trained.fisher)
    whole, method = timed(partial(trained.method, PRIOR))
    tuning, _ = timed(partial(_tuned, method.posterior.replace(prior=Layerwise(1.0))))
    single, _ = timed(partial(_diagonal, trained, "empirical_fisher"))
    share = 100 / trained.seconds
    found = {READ: share * reading, WHOLE: share * whole, TUNED: share * tuning, PASS: share * single}
    return found | {TRAINED: trained.seconds}


@dataclass(frozen=True)
class Trained:
    """A network, the optimiser that has trained it, and what that took.

    Attributes:
        model: the network.
        optimizer: Adam, as training has left it.
        part: what it was trained on.
        batch: data in a batch.
        likelihood: with the noise scale that was chosen.
        seconds: of training.
    """

    model: nn.Module
    optimizer: Adam
    part: Part
    batch: int
    likelihood: Gaussian
    seconds: float

    def fisher(self) -> Tensor:
        """What L2M adds to a training by itself: the state, read and scaled."""
        moments = SecondMoments.of(self.model, self.optimizer)
        theta = torch.cat([p.detach().reshape(-1) for p in self.model.parameters()])
        sampling = Sampling(len(self.part[0]), self.batch, drop_last=True)
        return moments.fisher(theta, len(self.part[0]), sampling.average(moments.rule)[0])

    def method(self, prior: Any) -> L2M:
        """L2M with a prior of one's own."""
        size, how = len(self.part[0]), {"prior_precision": prior, "drop_last": True}
        return L2M.from_optimizer(self.model, self.optimizer, size, self.batch, self.likelihood, self.part, **how)


def _trained(settings: Settings, part: Part, likelihood: Gaussian, seed: int) -> Trained:
    """A training of one's own."""
    how, (x, y) = settings.training, part
    batch = min(how.batch, len(x) // 2)
    with seeded(seed):
        model = MLP(x.shape[1], (settings.hidden,), 1)
    optimizer = Adam(model.parameters(), lr=how.lr, weight_decay=PRIOR / len(x), fused=True)
    generator, each = torch.Generator().manual_seed(seed), len(x) // batch
    epochs, scale = -(-how.steps // each), float(likelihood.scale)
    started = time.process_time()
    for epoch in range(epochs):
        optimizer.param_groups[0]["lr"] = how.lr * 0.5 * (1 + cos(pi * epoch / epochs))
        for rows in torch.randperm(len(x), generator=generator)[: each * batch].split(batch):
            optimizer.zero_grad()
            (0.5 * ((model(x[rows]) - y[rows]) / scale).square().mean()).backward()  # the NLL, without constants
            optimizer.step()
    return Trained(model, optimizer, part, batch, likelihood, time.process_time() - started)


def chosen_scale(settings: Settings, name: str, split: int, seed: int) -> float:
    """The noise scale that a tenth of the training part likes best, of a network trained on the rest."""
    data = load(name, split=split, seed=seed)
    x, y = data.validation
    model = _trained(settings, data.train, Gaussian(settings.scales[len(settings.scales) // 2]), 1000 * seed).model
    with torch.no_grad():
        f = model(x)
    return max(settings.scales, key=lambda scale: float(Gaussian(scale).log_prob(f, y).mean()))


def _diagonal(trained: Trained, kind: str) -> Posterior:
    """A diagonal of a pass over the data."""
    how: dict[str, Any] = {"structure": "diag", "curvature": kind, "prior": Layerwise(1.0)}
    return laplace(trained.model, trained.likelihood, trained.part, **how)


def _tuned(q: Posterior) -> Posterior:
    """With the prior precisions of largest evidence; the noise was chosen and stays."""
    return maximise_evidence(q, noise=False)


def curvature(q: Posterior) -> Tensor:
    """The diagonal of G, without the prior."""
    return q.fit.curvature.dense().diagonal().double()


def timed(work: Callable[[], Any], repeats: int = REPEATS) -> tuple[float, Any]:
    """CPU seconds of the fastest of several repetitions, and the result."""
    taken, result = [], None
    for _ in range(repeats):
        started = time.process_time()
        result = work()
        taken.append(time.process_time() - started)
    return min(taken), result


def _score(data: Dataset, predictive: Distribution) -> float:
    return data.log_likelihood_in_original_units(predictive.log_prob(data.test[1]).mean().item())


def _rounded(values: Tensor) -> list[float]:
    return [float(f"{value:.3g}") for value in values.tolist()]
