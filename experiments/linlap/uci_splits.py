"""UCI regression: one network trained with the evidence, and every way to predict from it, split by split."""

import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from math import log

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from experiments import Resumable, seeded
from osculate.data import Dataset, load
from osculate.data.dataset import Part
from osculate.data.uci import NAMES
from osculate.evidence import maximise_evidence
from osculate.likelihoods import Gaussian
from osculate.methods import LevenbergMarquardt, MCDropout, laplace
from osculate.networks import MLP
from osculate.posteriors import Dropout, Gaussian as Posterior
from osculate.predictive import predict
from osculate.priors import Layerwise
from osculate.training import train

#: Number of splits of each set.
STANDARD = {**dict.fromkeys(NAMES, 20), "protein": 5}
GAP = {
    "boston": 13,
    "concrete": 8,
    "energy": 8,
    "kin8nm": 8,
    "naval": 16,
    "power": 4,
    "protein": 9,
    "wine": 11,
    "yacht": 6,
}
#: Of naval's inputs, those that are constant, so that there is no gap in them.
CONSTANT = {"naval": (8, 11)}
#: Sets by size.
MEDIUM, LARGE = ("concrete", "wine"), ("kin8nm", "naval", "power", "protein")

MAP, FULL, KRON, DIAG = "MAP", "linearised, full", "linearised, kron", "linearised, diag"
OWN_KRON, OWN_DIAG = "kron, own evidence", "diag, own evidence"
SAMPLED, LAST, ENSEMBLE, DROPOUT = "sampled networks", "linearised, last layer", "deep ensemble", "MC dropout"
WAYS = (MAP, FULL, KRON, DIAG, OWN_KRON, OWN_DIAG, SAMPLED, LAST, ENSEMBLE, DROPOUT)
#: Ways whose mean is not that of the network at its mode.
OTHER_MEANS = (SAMPLED, ENSEMBLE, DROPOUT)
GAMMA, STEPS, SECONDS = "γ", "steps", "CPU seconds of a fit"


@dataclass(frozen=True)
class Splits:
    """So many splits of a set at most, the first ones.

    Args:
        small: of boston, energy and yacht.
        medium: of concrete and wine.
        large: of kin8nm, naval, power and protein.
    """

    small: int
    medium: int
    large: int

    def of(self, name: str) -> int:
        """Those of a set."""
        return self.large if name in LARGE else self.medium if name in MEDIUM else self.small


@dataclass(frozen=True)
class Steps:
    """Numbers of steps, of which held-out data choose one for each set.

    Args:
        usual: the candidates.
        large: those of kin8nm, naval, power and protein.
        splits: the first ones of a set, of whose training part a tenth is held out.
    """

    usual: tuple[int, ...] = (20, 60, 150)
    large: tuple[int, ...] = (20, 60)
    splits: int = 3

    def of(self, name: str) -> tuple[int, ...]:
        """The candidates of a set."""
        return self.large if name in LARGE else self.usual


@dataclass(frozen=True)
class Baseline:
    """How the baselines are trained.

    Args:
        splits: on which they are measured.
        members: of the deep ensemble.
        dropout: probability of dropout before each layer of the network with ReLU.
        steps: of Adam, for the network with dropout.
        lr: its learning rate, at the start of a cosine.
        scales: noise scales, in units of the standardised target, of which validation chooses one.
    """

    splits: Splits = Splits(3, 1, 0)
    members: int = 5
    dropout: float = 0.05
    steps: int = 1500
    lr: float = 1e-2
    scales: tuple[float, ...] = (0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.3, 0.45, 0.7, 1.0)


@dataclass(frozen=True)
class Settings(Resumable):
    """What is measured.

    Args:
        sets: names of the data sets; one without splits of its own, such as diabetes, has its single one.
        splits: of each set.
        hidden: units of the one hidden layer, with tanh.
        steps: of Levenberg–Marquardt.
        baseline: deep ensemble and MC dropout.
    """

    sets: tuple[str, ...] = NAMES
    splits: Splits = Splits(20, 20, 20)
    hidden: int = 50
    steps: Steps = Steps()
    baseline: Baseline = Baseline()


PRESETS = {
    "small": Settings(),
    "paper": Settings(
        steps=Steps(large=(20, 60, 150), splits=20),
        baseline=Baseline(splits=Splits(20, 20, 20), steps=20_000),
    ),
}


def _loaded(name: str, splits: str, split: int) -> tuple[Dataset, Part, Part]:
    """A data set, and its parts for training and testing in double precision."""
    data = load(name, split=split, splits=splits if name in NAMES else "standard", validation_size=0)
    return data, (data.train[0].double(), data.train[1].double()), (data.test[0].double(), data.test[1].double())


def validation(settings: Settings, name: str, splits: str, split: int, seed: int) -> dict[str, float]:
    """The log likelihood of a tenth of the training part, by the number of steps on the rest."""
    _, (x, y), _ = _loaded(name, splits, split)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    held, rest = order[: len(x) // 10], order[len(x) // 10 :]
    method = _method(settings, x.shape[1], seed)
    method.begin((x[rest], y[rest]))
    found, candidates = {}, settings.steps.of(name)
    for step in range(1, max(candidates) + 1):
        method.step()
        if step in candidates:
            found[str(step)] = predict(method.result(), x[held]).log_prob(y[held]).mean().item()
    return found


def cell(settings: Settings, name: str, splits: str, split: int, seed: int, steps: int) -> dict[str, float]:
    """Every way to predict from one mode: log likelihood per point and root mean square error, in original units."""
    data, part, test = _loaded(name, splits, split)
    started = time.process_time()
    q, net, gamma = fitted(settings, part, seed, steps)
    score, result = Score(data, test[1]), {GAMMA: gamma, SECONDS: time.process_time() - started}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "networks sampled from this posterior")  # it is what is shown here
        for way, predictive in _ways(q, net, part, test[0], seed):
            result |= score.of(way, predictive)
    return result


def baselines(settings: Settings, name: str, splits: str, split: int, seed: int, steps: int) -> dict[str, float]:
    """The same for a deep ensemble and for MC dropout."""
    data, part, test = _loaded(name, splits, split)
    return _ensemble(settings, part, Score(data, test[1]), test[0], seed, steps) | _dropout(
        settings.baseline, data, seed
    )


def fitted(settings: Settings, part: Part, seed: int, steps: int) -> tuple[Posterior, nn.Module, float]:
    """The posterior at the mode with the hyperparameters of largest evidence, the network, and γ."""
    method = _method(settings, part[0].shape[1], seed)
    done = train(method, part, epochs=steps, progress=False)
    return done.posterior, method.model, float(done.history[-1]["gamma"])


def _method(settings: Settings, inputs: int, seed: int) -> LevenbergMarquardt:
    with seeded(seed):
        return LevenbergMarquardt(MLP(inputs, (settings.hidden,), 1).double(), Gaussian(1.0))


@dataclass(frozen=True)
class Score:
    """Log likelihood and error in the units of the targets.

    Attributes:
        data: knows the units.
        y: standardised test targets (N, 1).
    """

    data: Dataset
    y: Tensor

    def of(self, way: str, predictive: Distribution) -> dict[str, float]:
        """Of a predictive distribution of the standardised targets."""
        return self.both(way, predictive.log_prob(self.y).mean().item(), predictive.mean)

    def both(self, way: str, log_likelihood: float, centre: Tensor) -> dict[str, float]:
        """From the mean log likelihood in standardised units and the predictive means."""
        assert self.data.target_scale is not None
        error = (centre - self.y).square().mean().sqrt().item() * float(self.data.target_scale)
        return {way: self.data.log_likelihood_in_original_units(log_likelihood), rmse(way): error}


def rmse(way: str) -> str:
    """The column of an error."""
    return f"RMSE, {way}"


def _ways(q: Posterior, net: nn.Module, part: Part, x: Tensor, seed: int) -> Iterator[tuple[str, Distribution]]:
    """The predictives of one mode: all with the precisions and the noise of the full posterior, unless named "own"."""
    with torch.no_grad():
        yield MAP, q.likelihood.distribution(net(x))
    yield FULL, predict(q, x)
    for structure, same, own in (("kron", KRON, OWN_KRON), ("diag", DIAG, OWN_DIAG)):
        other = laplace(net, q.likelihood, part, structure=structure, prior=q.prior)
        yield same, predict(other, x)
        yield own, predict(maximise_evidence(other), x)
    yield SAMPLED, predict(q, x, via="sampled", samples=100, generator=torch.Generator().manual_seed(seed))
    names = list(q.network.space.names)
    last = Layerwise({name: float(q.prior.precision[names.index(name)]) for name in names[2:]})
    yield LAST, predict(laplace(net, q.likelihood, part, structure="full", prior=last, subset="last_layer"), x)


def _ensemble(settings: Settings, part: Part, score: "Score", x: Tensor, seed: int, steps: int) -> dict[str, float]:
    """Networks from several initial weights, each with its own noise: the mixture of their predictives at the modes."""
    each = []
    for number in range(settings.baseline.members):
        q, net, _ = fitted(settings, part, seed + 1000 * number, steps)
        with torch.no_grad():
            each.append(q.likelihood.distribution(net(x)))
    logs = torch.stack([member.log_prob(score.y) for member in each])
    log_likelihood = (logs.logsumexp(0) - log(len(each))).mean().item()
    return score.both(ENSEMBLE, log_likelihood, torch.stack([member.mean for member in each]).mean(0))


def _dropout(settings: Baseline, data: Dataset, seed: int) -> dict[str, float]:
    """A network with dropout before each layer; its noise is chosen on a tenth of the data, then it trains on all."""
    x, y = data.train
    held = len(x) // 10  # the rows are in random order
    first = _dropout_trained(settings, (x[held:], y[held:]), settings.scales[len(settings.scales) // 2], seed)
    held_out = {scale: _mixture(first.model, scale, x[:held], seed) for scale in settings.scales}
    best = max(held_out, key=lambda scale: held_out[scale].log_prob(y[:held]).mean().item())
    q = _dropout_trained(settings, data.train, best, seed)
    found = _mixture(q.model, best, data.test[0], seed)
    return Score(data, data.test[1]).of(DROPOUT, found)


def _mixture(model: nn.Module, scale: float, x: Tensor, seed: int) -> Distribution:
    generator = torch.Generator().manual_seed(seed)
    return predict(Dropout(model, Gaussian(scale)), x, samples=100, generator=generator)


def _dropout_trained(settings: Baseline, part: tuple[Tensor, Tensor], scale: float, seed: int) -> Dropout:
    p, batch = settings.dropout, 128
    with seeded(seed):
        layers = (nn.Dropout(p), nn.Linear(part[0].shape[1], 50), nn.ReLU(), nn.Dropout(p), nn.Linear(50, 1))
        method = MCDropout(nn.Sequential(*layers), Gaussian(scale))
    epochs = max(1, round(settings.steps / -(-len(part[0]) // batch)))
    done = train(method, part, epochs=epochs, batch_size=batch, lr=settings.lr, seed=seed, device="cpu", progress=False)
    return done.posterior
