"""UCI regression: the curvature in Adam's state beside passes over the data, their predictions, and their cost."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import cos, pi
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Adam

import osculate as osc
from experiments import Claim, Findings, Record, Resumable, Runner, Table, experiment, listed, seeded
from experiments.cost import cpu_seconds
from osculate.data.dataset import Part
from osculate.data.uci import NAMES
from osculate.likelihoods import Gaussian
from osculate.methods.second_moments import Sampling, SecondMoments
from osculate.priors import Layerwise

MAP, GGN, SINGLE, MOMENTS, AGAIN = "MAP", "diagonal, GGN", "diagonal, single gradients", "L2M", "L2M, refreshed"
ENSEMBLE, MIXTURE = "deep ensemble", "ensemble of L2M"
WAYS = (MAP, GGN, SINGLE, MOMENTS, AGAIN, ENSEMBLE, MIXTURE)
RANK, EFFECTIVE, RATIO = "Spearman correlation", "… of weights that the data determine", "median precision ratio"
RANK_AGAIN, RATIO_AGAIN = "Spearman correlation, refreshed", "median precision ratio, refreshed"
READ, WHOLE = "reading the state, % of training", "with the statistics and 16 batches, %"
TUNED, PASS = "the evidence, %", "pass with single gradients, %"
TRAINED, SCALE = "training, CPU s", "noise scale"
COLUMNS = (*WAYS, RANK, EFFECTIVE, RATIO, RANK_AGAIN, RATIO_AGAIN, READ, WHOLE, TUNED, PASS, TRAINED, SCALE)
SCATTER = "scatter"
#: Precision of the prior in training.
PRIOR = 1.0
#: Repetitions of a short measurement; the fastest counts.
REPEATS = 5
#: The figure leaves out curvatures that are more orders of magnitude below the largest.
ORDERS = 8.0


@dataclass(frozen=True)
class Training:
    """Training by Adam on the NLL, with a prior N(0, 1) as weight decay, in shuffled batches.

    Args:
        steps: Steps of Adam, rounded up to whole epochs.
        batch: Batch size; an incomplete last batch is dropped.
        lr: Learning rate at the start of a cosine to zero, the schedule of ``osc.train``.
        members: Members of the ensembles.
        refreshed: Batches of a refreshed second moment, at fixed weights.
    """

    steps: int = 3000
    batch: int = 32
    lr: float = 0.01
    members: int = 3
    refreshed: int = 200


@dataclass(frozen=True)
class Settings(Resumable):
    """Data sets, network and training.

    Args:
        sets: Names of the data sets. A set without standard splits, such as diabetes, has a single one.
        splits: Number of the standard splits of each set, the first ones.
        hidden: Units of the hidden layer, with tanh.
        training: Training of each network.
        scales: Candidates of the noise scale, in units of the standardised target; held-out data choose.
    """

    sets: tuple[str, ...] = ("yacht", "energy", "concrete", "wine")
    splits: int = 10
    hidden: int = 50
    training: Training = Training()
    scales: tuple[float, ...] = (0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.45, 0.7, 1.0)


@experiment(
    "l2m-uci",
    "UCI regression: L2M beside diagonal Laplace approximations, and an ensemble of it",
    "L2M [perone2021], sections 4.2 and 4.3, and what section 5 leaves to others",
    paper=Settings(splits=20, training=Training(steps=20_000, members=5)),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Measure all sets, splits and seeds; the figure shows the curvatures of the first split of the first seed."""
    t = settings.training
    about = [settings.hidden, t.steps, t.batch, t.lr, t.members, t.refreshed, *settings.scales]
    splits = [(name, split) for name in settings.sets for split in range(settings.splits if name in NAMES else 1)]
    jobs = [(*each, seed) for seed in seeds for each in splits]
    cells = runner.over("splits", jobs, partial(cell, settings), "l2m", about)
    table = Table()
    for number in range(len(seeds)):
        for (name, _), runs in cells.items():
            table.add(name, {column: runs[number][column] for column in COLUMNS if column in runs[number]})
    scatter = {name: cells[name, 0][0][SCATTER] for name in settings.sets}
    return Findings(table.numbers(COLUMNS), claims(table), {SCATTER: scatter})


def cell(settings: Settings, name: str, split: int, seed: int) -> dict[str, Any]:
    """Return the test log likelihoods in original units, the curvatures' agreement and their cost on one split."""
    data = osc.data.load(name, split=split, seed=seed, validation_size=0)
    likelihood, start = Gaussian(chosen_scale(settings, name, split, seed)), start_of(split, seed)
    fits = [trained(settings, data.train, likelihood, start + k) for k in range(settings.training.members)]
    first, *others = fits
    with seeded(start):  # the order of the refreshing batches
        again = first.method(Layerwise(1.0)).refresh(settings.training.refreshed)
    l2m, single = first.method(Layerwise(1.0)).posterior, first.diagonal("empirical_fisher")
    posteriors = {
        MAP: osc.posteriors.Point(first.model, likelihood),
        GGN: _tuned(first.diagonal("ggn")),
        SINGLE: _tuned(single),
        MOMENTS: _tuned(l2m),
        AGAIN: _tuned(again),
    }
    if others:
        members = [posteriors[MOMENTS], *(_tuned(other.method(Layerwise(1.0)).posterior) for other in others)]
        posteriors |= {
            ENSEMBLE: osc.posteriors.Ensemble([fit.model for fit in fits], likelihood),
            MIXTURE: osc.posteriors.Mixture(members),
        }
    x, y = data.test
    values: dict[str, Any] = {
        way: data.log_likelihood_in_original_units(osc.predict(q, x).log_prob(y).mean().item())
        for way, q in posteriors.items()
    }
    values |= compared(l2m, again, single) | costs(first)
    shown = [[float(f"{value:.3g}") for value in curvature(q).tolist()] for q in (single, l2m)]
    return values | {SCALE: float(likelihood.scale), SCATTER: shown}


def start_of(split: int, seed: int) -> int:
    """Return the first of the seeds of trainings: splits repeat a measurement if nothing but data joins them."""
    return 10_000 * split + 1000 * seed


def chosen_scale(settings: Settings, name: str, split: int, seed: int) -> float:
    """Return the noise scale of highest likelihood on a tenth of the data, for a network trained on the rest."""
    data = osc.data.load(name, split=split, seed=seed)
    x, y = data.validation
    likelihood = Gaussian(settings.scales[len(settings.scales) // 2])
    model = trained(settings, data.train, likelihood, start_of(split, seed)).model
    with torch.no_grad():
        f = model(x)
    return max(settings.scales, key=lambda scale: float(Gaussian(scale).log_prob(f, y).mean()))


@dataclass(frozen=True)
class Trained:
    """A trained network with its optimiser.

    Attributes:
        model: The network.
        optimizer: Adam with the state of the training.
        part: Training data.
        batch: Batch size.
        likelihood: The likelihood with its noise scale.
        seconds: CPU seconds of the training.
    """

    model: nn.Module
    optimizer: Adam
    part: Part
    batch: int
    likelihood: Gaussian
    seconds: float

    def fisher(self) -> Tensor:
        """Read and scale Adam's state: all that L2M itself adds to a training."""
        moments = SecondMoments.of(self.model, self.optimizer)
        theta = torch.cat([p.detach().reshape(-1) for p in self.model.parameters()])
        sampling = Sampling(len(self.part[0]), self.batch, drop_last=True)
        return moments.fisher(theta, len(self.part[0]), sampling.average(moments.youngest)[0])

    def method(self, prior: Any) -> osc.methods.L2M:
        """Return L2M with this prior."""
        size, how = len(self.part[0]), {"prior_precision": prior, "drop_last": True}
        return osc.methods.L2M.from_optimizer(
            self.model, self.optimizer, size, self.batch, self.likelihood, self.part, **how
        )

    def diagonal(self, kind: str) -> osc.posteriors.Gaussian:
        """Return a diagonal Laplace approximation from a pass over the data."""
        how: dict[str, Any] = {"structure": "diag", "curvature": kind, "prior": Layerwise(1.0)}
        return osc.laplace(self.model, self.likelihood, self.part, **how, refine=False)


def trained(settings: Settings, part: Part, likelihood: Gaussian, seed: int) -> Trained:
    """Train a network in a plain loop, as L2M finds it in practice."""
    how, (x, y) = settings.training, part
    batch = min(how.batch, len(x) // 2)
    with seeded(seed):
        model = osc.networks.MLP(x.shape[1], (settings.hidden,), 1)
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


def compared(l2m: Any, again: Any, single: Any) -> dict[str, float]:
    """Compare curvatures of L2M with those of single gradients, and precisions under the prior of the training.

    Weights whose curvature is below the prior precision are nearly free: their curvature hardly matters.
    """
    from scipy.stats import spearmanr

    def rank(one: Tensor, other: Tensor) -> float:
        return float(spearmanr(one.numpy(), other.numpy()).statistic) if len(one) > 2 else 0.0

    state, fresh, exact = (curvature(q) for q in (l2m, again, single))
    effective = exact > PRIOR
    return {
        RANK: rank(state, exact),
        EFFECTIVE: rank(state[effective], exact[effective]),
        RATIO: float(((state + PRIOR) / (exact + PRIOR)).median()),
        RANK_AGAIN: rank(fresh, exact),
        RATIO_AGAIN: float(((fresh + PRIOR) / (exact + PRIOR)).median()),
    }


def costs(trained: Trained) -> dict[str, float]:
    """Return the cost of L2M after a training, and of a pass over the data, in per cent of the training's CPU time."""
    works: dict[str, Callable[[], Any]] = {
        READ: trained.fisher,
        WHOLE: partial(trained.method, PRIOR),
        TUNED: partial(_tuned, trained.method(PRIOR).posterior.replace(prior=Layerwise(1.0))),
        PASS: partial(trained.diagonal, "empirical_fisher"),
    }
    found = {column: 100 / trained.seconds * cpu_seconds(work, REPEATS) for column, work in works.items()}
    return found | {TRAINED: trained.seconds}


def _tuned(q: Any) -> osc.posteriors.Gaussian:
    """Maximise the evidence over the prior precisions; the noise is fixed."""
    return osc.maximise_evidence(q, noise=False)


def curvature(q: osc.posteriors.Gaussian) -> Tensor:
    """Return the diagonal of G, without the prior."""
    return q.fit.curvature.dense().diagonal().double()


def claims(table: Table) -> Iterator[Claim]:
    """Say where the moments of Adam differ from single gradients, and judge their cost."""
    yield Claim.over_seeds(
        "Order of the weights by the moments of Adam",
        "Of weights whose curvature is below the prior precision the data say next to nothing. What Adam has left is "
        "an average over its last 1,000 steps, on which the weights still moved; refreshed, it is taken again at "
        "weights that do not move.",
    )
    yield Claim.over_seeds(
        "Predictions by the moments of Adam",
        "Why they are ahead on some sets is not known: perhaps Adam remembers gradients of the way to the mode, larger "
        "than those there, where residuals are smaller than the noise.",
    )
    read, whole, tuned, single = (
        {row: table.mean(row, each) for row, each in table if each == column} for column in (READ, WHOLE, TUNED, PASS)
    )
    saved = any(value < single[row] for row, value in whole.items())
    lost = "" if saved else ", so that on data of this size nothing is saved"
    yield Claim.over_seeds(
        "Extra computation of L2M",
        f"Reading the state and scaling it takes {listed(read, '.3f')} % of training. The pass over the data that the "
        "statistics of the likelihood need, and the gradients of 16 batches that tell whether training has come to "
        f"rest, make it {listed(whole, '.2f')} %, and the evidence adds {listed(tuned, '.2f')} %; the pass with single "
        f"gradients takes {listed(single, '.2f')} %{lost}.",
    )


@measure.figure
def draw(record: Record) -> Any:
    """Draw one column per set: the curvatures of the first split, and the log likelihoods of all splits."""
    from matplotlib.ticker import MaxNLocator

    from osculate import plots
    from osculate.plots import style

    scores = {(n.row, n.column): n for n in record.findings.numbers if n.mean is not None}
    pairs = {name: np.array(pair) for name, pair in record.findings.data[SCATTER].items()}
    tints = {MAP: style.ORANGE, GGN: style.PURPLE, SINGLE: style.GREEN, MOMENTS: style.BLUE, AGAIN: style.BLUE}
    tints |= {ENSEMBLE: style.INK, MIXTURE: style.INK}
    figure, axes = style.panels(2, len(pairs), 3.3, 3.1)
    for (above, below), (name, pair) in zip(axes.T, pairs.items(), strict=True):
        top = pair.max()
        single, state = known = pair[:, (pair > top * 10**-ORDERS).all(0)]
        low = known.min() if known.size else top / 10
        above.plot([low, top], [low, top], "-", color=style.GREY, linewidth=1, label="equal")
        above.plot(single, state, ".", color=style.BLUE, markersize=3, alpha=0.6, label="a weight")
        above.axhline(PRIOR, linestyle=":", color=style.INK, linewidth=1, label="prior precision")
        above.axvline(PRIOR, linestyle=":", color=style.INK, linewidth=1)
        above.set(xscale="log", yscale="log")
        style.legend(above, loc="lower right")
        style.label(above, name, "squared gradients of single data")
        ways = [way for way in WAYS if (name, way) in scores]
        errors = {way: scores[name, way].standard_error or 0.0 for way in ways}
        plots.dots(below, {way: [record.means[name, way]] for way in ways}, ways, tints, errors)
        below.xaxis.set_major_locator(MaxNLocator(4))
        style.label(below, x="test log likelihood, nats per point")
    style.label(axes[0, 0], y="from the state of Adam")
    for ax in axes[1, 1:]:
        ax.set_yticklabels([])
    heading = "Curvature of each weight by the state of Adam and by a pass of its own, and the log likelihoods of both"
    return style.title(figure, heading)
