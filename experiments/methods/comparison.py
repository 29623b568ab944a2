"""Every training method on one task: what it costs, what it needs, and how good its predictions are."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from typing import Any

from torch import nn

import osculate as osc
from experiments import Claim, Findings, Number, Record, Resumable, Runner, Table, experiment, seeded, train
from experiments.cost import peak_bytes
from experiments.evaluation import class_probabilities, logs
from osculate.data import Dataset, load, out_of_distribution

LIKELIHOOD = osc.likelihoods.Categorical()
NLL, ACCURACY, ECE, AUROC = "test NLL, nats", "accuracy, %", "ECE", "AUROC, shuffled pixels"
COST, MEMORY, PREDICTION = "training, CPU s", "peak memory of a step, MB", "prediction, ms an image"
CHOSEN = "chosen by held-out data"
DEFAULT = "osc.laplace"
BINS = 15
#: Images in a step.
BATCH = 50


@dataclass(frozen=True)
class Settings(Resumable):
    """A convolutional network with softplus on the digits.

    Args:
        width: Channels of the first convolution.
        sizes: Numbers of training and of held-out images.
        epochs: Epochs of every method that takes batches.
        members: Networks of the ensembles.
        transitions: Transitions of each chain of HMC, half of them warm-up, and the largest depth of its trees.
        methods: Names of the methods.
    """

    width: int = 4
    sizes: tuple[int, int] = (900, 297)
    epochs: int = 100
    members: int = 5
    transitions: tuple[int, int] = (200, 5)
    methods: tuple[str, ...] = field(default_factory=lambda: tuple(ARMS))


@dataclass(frozen=True)
class Arm:
    """One method, with the hyperparameter that held-out data choose.

    Attributes:
        make: Function of trial and value, which returns the posterior.
        values: Candidates of the hyperparameter.
        how: Options of ``predict``.
    """

    make: Callable[["Trial", float], osc.posteriors.Posterior]
    values: tuple[float, ...] = (1.0,)
    how: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Trial:
    """The data and the network with one seed."""

    settings: Settings
    data: Dataset
    seed: int

    def network(self, number: int = 0, dropout: float = 0.0) -> nn.Module:
        """Return a new network."""
        with seeded(1000 * self.seed + number):
            options = {"width": self.settings.width, "activation": "sharp_softplus"}
            model = osc.networks.build("cnn", self.data.input_shape, self.data.outputs, **options)
        if dropout:
            layers = list(model.children())
            return nn.Sequential(*layers[:-1], nn.Dropout(dropout), layers[-1])
        return model

    def networks(self) -> list[nn.Module]:
        """Return the networks of an ensemble."""
        return [self.network(number) for number in range(self.settings.members)]

    def run(self, method: Any, **changes: Any) -> osc.training.Training:
        """Train on the training images."""
        options = {"epochs": self.settings.epochs, "batch_size": BATCH, "lr": 0.02} | changes
        return train(method, self.data.train, seed=self.seed, **options)

    def trained(self, method: Any, **changes: Any) -> osc.posteriors.Posterior:
        """Train, and return the posterior."""
        return self.run(method, **changes).posterior

    def at_mode(self, precision: float) -> nn.Module:
        """Train to a mode, and return the network."""
        return self.run(osc.methods.MAP(self.network(), LIKELIHOOD, precision)).model.eval()


def _prior(kind: Any, here: Trial, precision: float) -> osc.posteriors.Posterior:
    return here.trained(kind(here.network(), LIKELIHOOD, precision))


def _tempered(kind: Any, here: Trial, temperature: float, **changes: Any) -> osc.posteriors.Posterior:
    return here.trained(kind(here.network(), LIKELIHOOD, temperature=temperature), **changes)


def _scaled(here: Trial, precision: float) -> osc.posteriors.Posterior:
    method = osc.methods.TemperatureScaling(here.at_mode(precision), LIKELIHOOD)
    return train(method, here.data.validation).posterior


def _laplace(here: Trial, precision: float, **options: Any) -> osc.posteriors.Posterior:
    return osc.laplace(here.at_mode(precision), LIKELIHOOD, here.data.train, **options)


def _swag(here: Trial, lr: float) -> osc.posteriors.Posterior:
    model = here.at_mode(1.0)
    return here.trained(
        osc.methods.SWAG(model, LIKELIHOOD, 1.0, burn_in=0.25), optimizer="sgd", schedule="constant", lr=lr
    )


def _hmc(here: Trial, precision: float) -> osc.posteriors.Posterior:
    transitions, depth = here.settings.transitions
    method = osc.methods.HMC(here.network(), LIKELIHOOD, precision, chains=4, warmup=transitions // 2, max_depth=depth)
    return train(method, here.data.train, epochs=transitions, seed=here.seed).posterior


#: Learning rates were chosen on held-out digits of one seed.
PRECISIONS, BETAS, RATES = (0.01, 0.1, 1.0, 10.0), (0.003, 0.01, 0.03, 0.1, 0.3), (0.01, 0.03, 0.1)
DRAWS: Mapping[str, Any] = {"samples": 30}
SAMPLED = {"via": "sampled", **DRAWS}
ARMS: Mapping[str, Arm] = {
    "MAP": Arm(partial(_prior, osc.methods.MAP), PRECISIONS),
    "temperature scaling": Arm(_scaled, PRECISIONS),
    DEFAULT: Arm(_laplace, PRECISIONS),
    "Laplace, KFAC, prior by the evidence": Arm(partial(_laplace, refine=False), PRECISIONS),
    "Laplace, diagonal, prior by the evidence": Arm(partial(_laplace, structure="diag", refine=False), PRECISIONS),
    "MarginalLikelihood": Arm(lambda here, _: here.trained(osc.methods.MarginalLikelihood(here.network(), LIKELIHOOD))),
    "L2M": Arm(partial(_prior, osc.methods.L2M), PRECISIONS),
    "OnlineLaplace": Arm(partial(_tempered, osc.methods.OnlineLaplace), BETAS),
    "VariationalLaplace": Arm(partial(_tempered, osc.methods.VariationalLaplace), BETAS),
    "MeanFieldVI": Arm(partial(_tempered, osc.methods.MeanFieldVI), BETAS, SAMPLED),
    "IVON": Arm(partial(_tempered, osc.methods.IVON, lr=2.0), BETAS, SAMPLED),
    "VOGN": Arm(partial(_tempered, osc.methods.VOGN, lr=2.0), BETAS, SAMPLED),
    "SWAG": Arm(_swag, RATES, DRAWS),
    "MCDropout": Arm(
        lambda here, p: here.trained(osc.methods.MCDropout(here.network(dropout=p), LIKELIHOOD, 1.0)),
        (0.05, 0.1, 0.2),
        DRAWS,
    ),
    "DeepEnsemble": Arm(
        lambda here, p: here.trained(osc.methods.DeepEnsemble(here.networks(), LIKELIHOOD, p)), PRECISIONS
    ),
    "RandomizedPriors": Arm(
        lambda here, scale: here.trained(osc.methods.RandomizedPriors(here.networks(), LIKELIHOOD, 1.0, scale=scale)),
        (0.5, 1.0, 2.0),
    ),
    "HMC": Arm(_hmc),
}


@experiment(
    "methods",
    "Every training method on one task",
    "No document: the digits of scikit-learn, a convolutional network with softplus",
    paper=Settings(epochs=200, members=10, transitions=(2_000, 9)),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Train every method; held-out data choose its hyperparameter, for each seed anew."""
    about = [settings.width, settings.sizes, settings.epochs, BATCH, settings.members, settings.transitions]
    jobs = product(settings.methods, seeds)
    table = Table.of(runner.over("methods and seeds", jobs, partial(scored, settings), "methods", about))
    return Findings(table.numbers(), claims(table))


def scored(settings: Settings, name: str, seed: int) -> dict[str, float]:
    """Return the scores of a method, with the hyperparameter that is best on held-out data."""
    train_size, validation_size = settings.sizes
    here = Trial(settings, load("digits", train_size=train_size, validation_size=validation_size, seed=seed), seed)
    arm = ARMS[name]
    found = []
    for value in arm.values:
        start = time.process_time()
        with seeded(seed):
            q = arm.make(here, value)
            cost = time.process_time() - start
            x, y = here.data.validation
            found.append((osc.metrics.nll(logs(class_probabilities(q, x, **arm.how)), y), value, q, cost))
    _, value, q, cost = min(found, key=lambda one: one[0])
    x, y = here.data.test
    with seeded(seed):
        start = time.process_time()
        probs = class_probabilities(q, x, **arm.how)
        taken = 1000 * (time.process_time() - start) / len(x)
        turned = {"shuffled pixels": out_of_distribution(here.data)["shuffled pixels"]}
        detected = osc.tasks.ood(q, x, turned, scores=["entropy"], batch_size=300, **arm.how)
        few = replace(settings, epochs=4, transitions=(4, 2))  # few steps, for the memory of one
        short = Trial(few, here.data, seed)
        memory = peak_bytes(lambda: arm.make(short, value)) / 2**20
    return {
        NLL: osc.metrics.nll(logs(probs), y),
        ACCURACY: 100 * osc.metrics.accuracy(probs, y),
        ECE: osc.metrics.ece(probs, y, BINS),
        AUROC: detected.auroc["shuffled pixels"]["entropy"],
        COST: cost,
        MEMORY: memory,
        PREDICTION: taken,
        CHOSEN: value,
    }


def claims(table: Table) -> Iterator[Claim]:
    """Yield how many methods are better than the mode alone."""
    rivals = [name for name in dict.fromkeys(name for name, _ in table) if name != "MAP"]
    for text, column, sign in (
        ("methods of lower NLL than the mode", NLL, -1),
        ("methods of higher AUROC than the mode", AUROC, 1),
    ):
        better = sum(sign * table.mean(name, column) > sign * table.mean("MAP", column) for name in rivals)
        yield Claim.over_seeds(text, f"{better} of {len(rivals)}.")


@measure.figure
def draw(record: Record) -> Any:
    """One panel a score."""
    from experiments.figures import method_scores

    numbers = [Number(f"digits: {n.row}", n.column, n.values) for n in record.findings.numbers]
    return method_scores(numbers, (NLL, ECE, AUROC, COST), "Every method on one task: 900 digits, one small network")
