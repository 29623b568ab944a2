"""Every training method on one task: what it costs, what it needs, and how good its predictions are."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from torch import Tensor, nn

from experiments import Claim, Findings, Number, Record, Resumable, Runner, experiment, seeded
from experiments.cost import peak_bytes
from experiments.evaluation import logs
from osculate import metrics
from osculate.data import Dataset, load, out_of_distribution
from osculate.likelihoods import Categorical
from osculate.methods import (
    HMC,
    IVON,
    L2M,
    MAP,
    SWAG,
    VOGN,
    DeepEnsemble,
    MarginalLikelihood,
    MCDropout,
    MeanFieldVI,
    NaturalSteps,
    OnlineLaplace,
    RandomizedPriors,
    TemperatureScaling,
    VariationalLaplace,
    laplace,
)
from osculate.networks import build
from osculate.posteriors import Posterior
from osculate.predictive import predict
from osculate.progress import track
from osculate.tasks import ood
from osculate.training import Training, train

LIKELIHOOD = Categorical()
NLL, ACCURACY, ECE, AUROC = "test NLL, nats", "accuracy, %", "ECE", "AUROC, shuffled pixels"
COST, MEMORY, PREDICTION = "training, CPU s", "peak memory of a step, MB", "prediction, ms an image"
CHOSEN = "chosen by held-out data"
BINS = 15
#: Images in a step.
BATCH = 50


@dataclass(frozen=True)
class Settings(Resumable):
    """What is trained: a convolutional network with softplus on the digits.

    Args:
        width: channels of the first convolution.
        sizes: images to train on, and to hold out.
        epochs: of every method that takes batches.
        members: of the ensembles.
        transitions: of each chain of HMC, half of them warm-up, and how deep its trees may be.
        methods: by name.
    """

    width: int = 4
    sizes: tuple[int, int] = (900, 297)
    epochs: int = 100
    members: int = 5
    transitions: tuple[int, int] = (200, 5)
    methods: tuple[str, ...] = field(default_factory=lambda: tuple(ARMS))


@dataclass(frozen=True)
class Arm:
    """How one method is trained, for each value of the one number that held-out data choose.

    Attributes:
        make: the posterior, of the experiment and the value.
        values: that are tried.
        name: of the number.
        how: options of ``predict``.
    """

    make: Callable[["Experiment", float], Posterior]
    values: tuple[float, ...] = (1.0,)
    name: str = "prior precision"
    how: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """The data and the network with one seed."""

    settings: Settings
    data: Dataset
    seed: int

    def network(self, number: int = 0, dropout: float = 0.0) -> nn.Module:
        """A new network."""
        with seeded(1000 * self.seed + number):
            options = {"width": self.settings.width, "activation": "sharp_softplus"}
            model = build("cnn", self.data.input_shape, self.data.outputs, **options)
        if dropout:
            layers = list(model.children())
            return nn.Sequential(*layers[:-1], nn.Dropout(dropout), layers[-1])
        return model

    def networks(self) -> list[nn.Module]:
        """Those of an ensemble."""
        return [self.network(number) for number in range(self.settings.members)]

    def run(self, method: Any, **changes: Any) -> Training:
        """A training."""
        options = {"epochs": self.settings.epochs, "batch_size": BATCH, "lr": 0.02} | changes
        return train(method, self.data.train, seed=self.seed, progress=False, device="cpu", **options)

    def trained(self, method: Any, **changes: Any) -> Posterior:
        """The posterior of a training."""
        return self.run(method, **changes).posterior

    def at_mode(self, precision: float) -> nn.Module:
        """The network of a mode."""
        return self.run(MAP(self.network(), LIKELIHOOD, precision)).model.eval()


def _scaled(here: Experiment, precision: float) -> Posterior:
    method = TemperatureScaling(here.at_mode(precision), LIKELIHOOD)
    return train(method, here.data.validation, progress=False).posterior


def _laplace(here: Experiment, precision: float, **options: Any) -> Posterior:
    return laplace(here.at_mode(precision), LIKELIHOOD, here.data.train, **options)


def _swag(here: Experiment, lr: float) -> Posterior:
    model = here.at_mode(1.0)
    return here.trained(SWAG(model, LIKELIHOOD, 1.0, burn_in=0.25), optimizer="sgd", schedule="constant", lr=lr)


def _hmc(here: Experiment, precision: float) -> Posterior:
    transitions, depth = here.settings.transitions
    method = HMC(here.network(), LIKELIHOOD, precision, chains=4, warmup=transitions // 2, max_depth=depth)
    return train(method, here.data.train, epochs=transitions, seed=here.seed, progress=False).posterior


def _ivon(kind: Any, here: Experiment, beta: float) -> Posterior:
    return here.trained(kind(here.network(), LIKELIHOOD, temperature=beta, settings=NaturalSteps()), lr=2.0)


#: Learning rates were chosen on held-out digits of one seed.
PRECISIONS, BETAS, RATES = (0.01, 0.1, 1.0, 10.0), (0.003, 0.01, 0.03, 0.1, 0.3), (0.01, 0.03, 0.1)
SAMPLED: Mapping[str, Any] = {"via": "sampled", "samples": 30}
ARMS: Mapping[str, Arm] = {
    "MAP": Arm(lambda here, p: here.trained(MAP(here.network(), LIKELIHOOD, p)), PRECISIONS),
    "temperature scaling": Arm(_scaled, PRECISIONS),
    "Laplace, KFAC, prior by the evidence": Arm(_laplace, PRECISIONS),
    "Laplace, diagonal, prior by the evidence": Arm(partial(_laplace, structure="diag"), PRECISIONS),
    "MarginalLikelihood": Arm(
        lambda here, every: here.trained(MarginalLikelihood(here.network(), LIKELIHOOD)), (1.0,), "nothing"
    ),
    "L2M": Arm(lambda here, p: here.trained(L2M(here.network(), LIKELIHOOD, p)), PRECISIONS),
    "OnlineLaplace": Arm(
        lambda here, t: here.trained(OnlineLaplace(here.network(), LIKELIHOOD, temperature=t)), BETAS, "temperature"
    ),
    "VariationalLaplace": Arm(
        lambda here, t: here.trained(VariationalLaplace(here.network(), LIKELIHOOD, temperature=t)),
        BETAS,
        "temperature",
    ),
    "MeanFieldVI": Arm(
        lambda here, t: here.trained(MeanFieldVI(here.network(), LIKELIHOOD, temperature=t)),
        BETAS,
        "temperature",
        SAMPLED,
    ),
    "IVON": Arm(partial(_ivon, IVON), BETAS, "temperature", SAMPLED),
    "VOGN": Arm(partial(_ivon, VOGN), BETAS, "temperature", SAMPLED),
    "SWAG": Arm(_swag, RATES, "learning rate", {"samples": 30}),
    "MCDropout": Arm(
        lambda here, p: here.trained(MCDropout(here.network(dropout=p), LIKELIHOOD, 1.0)),
        (0.05, 0.1, 0.2),
        "dropout",
        {"samples": 30},
    ),
    "DeepEnsemble": Arm(lambda here, p: here.trained(DeepEnsemble(here.networks(), LIKELIHOOD, p)), PRECISIONS),
    "RandomizedPriors": Arm(
        lambda here, scale: here.trained(RandomizedPriors(here.networks(), LIKELIHOOD, 1.0, scale=scale)),
        (0.5, 1.0, 2.0),
        "scale of the prior function",
    ),
    "HMC": Arm(_hmc, (1.0,), "nothing"),
}

PRESETS = {"small": Settings(), "paper": Settings(epochs=200, members=10, transitions=(2_000, 9))}


@experiment(
    "methods",
    "Every training method on one task",
    "No document: the digits of scikit-learn, a convolutional network with softplus",
    **PRESETS,
)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Every method; held-out data choose its one number, for each seed anew."""
    runner = Runner(settings.cells, progress)
    rows: dict[str, list[dict[str, float]]] = {}
    todo = [(name, seed) for name in settings.methods for seed in seeds]
    for name, seed in track(todo, "methods and seeds", len(todo), progress):
        about = [settings.width, settings.sizes, settings.epochs, BATCH, settings.members, settings.transitions]
        words = name.replace(", ", "-").replace(" ", "-")
        values = ARMS[name].values
        measured = runner.cached("methods", (words, seed), [*about, values], partial(scored, settings, name, seed))
        rows.setdefault(name, []).append(measured)
    columns = [NLL, ACCURACY, ECE, AUROC, COST, MEMORY, PREDICTION, CHOSEN]
    numbers = [
        Number(name, column, tuple(row[column] for row in found)) for name, found in rows.items() for column in columns
    ]
    return Findings(tuple(numbers), _claims(rows), {}, runner.seconds)


def scored(settings: Settings, name: str, seed: int) -> dict[str, float]:
    """The scores of a method with the value that is best on held-out data."""
    train_size, validation_size = settings.sizes
    here = Experiment(settings, load("digits", train_size=train_size, validation_size=validation_size, seed=seed), seed)
    arm = ARMS[name]
    found = []
    for value in arm.values:
        start = time.process_time()
        with seeded(seed):
            q = arm.make(here, value)
            cost = time.process_time() - start
            x, y = here.data.validation
            found.append((metrics.nll(logs(_probabilities(q, x, arm.how)), y), value, q, cost))
    _, value, q, cost = min(found, key=lambda one: one[0])
    x, y = here.data.test
    with seeded(seed):
        start = time.process_time()
        probs = _probabilities(q, x, arm.how)
        taken = 1000 * (time.process_time() - start) / len(x)
        turned = {"shuffled pixels": out_of_distribution(here.data)["shuffled pixels"]}
        told = ood(q, x, turned, scores=["entropy"], batch_size=300, **arm.how)
        short = Experiment(_short(settings), here.data, seed)
        memory = peak_bytes(lambda: arm.make(short, value)) / 2**20
    return {
        NLL: metrics.nll(logs(probs), y),
        ACCURACY: 100 * metrics.accuracy(probs, y),
        ECE: metrics.ece(probs, y, BINS),
        AUROC: told.auroc["shuffled pixels"]["entropy"],
        COST: cost,
        MEMORY: memory,
        PREDICTION: taken,
        CHOSEN: value,
    }


def _short(settings: Settings) -> Settings:
    """The same with as few steps as there can be, for the memory of one."""
    return Settings(settings.width, settings.sizes, 4, settings.members, (4, 2))


def _probabilities(q: Posterior, x: Tensor, how: Mapping[str, Any]) -> Tensor:
    return predict(q, x, **how).probs  # type: ignore[attr-defined]


def _claims(rows: Mapping[str, Sequence[Mapping[str, float]]]) -> tuple[Claim, ...]:
    def mean(name: str, column: str) -> float:
        return sum(row[column] for row in rows[name]) / len(rows[name])

    def ordered(column: str, sign: int) -> str:
        best = sorted(rows, key=lambda name: sign * mean(name, column))
        return ", ".join(f"{name} {mean(name, column):.3f}" for name in best[:5])

    better = [name for name in rows if name != "MAP" and mean(name, NLL) < mean("MAP", NLL)]
    surer = [name for name in rows if name != "MAP" and mean(name, AUROC) > mean("MAP", AUROC)]
    return (
        Claim.judged(
            "Most methods have a lower test NLL than the mode alone",
            2 * len(better) > len(rows) - 1,
            f"{len(better)} of {len(rows) - 1}. The best: {ordered(NLL, 1)}.",
        ),
        Claim.judged(
            "Most methods tell images of shuffled pixels apart better than the mode alone",
            2 * len(surer) > len(rows) - 1,
            f"{len(surer)} of {len(rows) - 1}. The best: {ordered(AUROC, -1)}.",
        ),
    )


@measure.figure
def draw(record: Record) -> Any:
    """One panel a score."""
    from experiments.figures import method_scores

    numbers = [Number(f"digits: {n.row}", n.column, n.values) for n in record.findings.numbers]
    return method_scores(numbers, (NLL, ECE, AUROC, COST), "Every method on one task: 900 digits, one small network")
