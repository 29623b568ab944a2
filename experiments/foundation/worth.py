"""Worth of a LoRA posterior: the package of a function from few examples, beside ways to calibrate without one.

Sizes and the learning rate were chosen on the seeds 100 to 102, and the claims with their margins stated before the
seeds of the record were run.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import product
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor, nn

import osculate as osc
from experiments import Findings, Record, Resumable, Runner, Table, experiment, seeded, train
from experiments.evaluation import class_probabilities, entropy, logs
from experiments.foundation.adapters import Classifier
from experiments.foundation.source import Source, Vocabulary, described, library, shuffled, split, within
from osculate.data.dataset import Part

NLL, ECE, ACCURACY, AUROC = "NLL, nats", "ECE", "accuracy, %", "AUROC, other packages"
OVER, BEST, LEFT = "confidence less accuracy", "best temperature on test data", "NLL at that temperature, nats"
BITS = "NLL of unseen source, bits a byte"
NETWORK, SCALED, ENSEMBLE, DROPOUT = "network", "temperature scaling", "ensemble of adapters", "MC dropout"
POSTERIOR, OF_HEAD = "osc.laplace, adapters and head", "osc.laplace, head alone"
OF_ADAPTERS, UNREFINED = "osc.laplace, adapters alone", "osc.laplace, adapters and head, refine=False"
#: Passes with dropout, and learning rate of the adapters.
DRAWS, RATE = 20, 1e-2
LIKELIHOOD = osc.likelihoods.Categorical()
#: One part in so many of the pretraining text is held out.
HELD_OUT = 40


@dataclass(frozen=True)
class Base:
    """The language model and its training.

    Args:
        megabytes: Largest size of the text, in 10⁶ characters.
        vocabulary: Number of tokens.
        tokens: Tokens of a window.
        width: Features of a token.
        depth: Number of blocks.
        epochs: Passes over the text.
    """

    megabytes: float = 10.0
    vocabulary: int = 2048
    tokens: int = 128
    width: int = 128
    depth: int = 4
    epochs: int = 2


@dataclass(frozen=True)
class Settings(Resumable):
    """A small transformer, and packages of the standard library.

    Args:
        classes: Packages to tell apart.
        outside: Packages out of distribution.
        sizes: Functions of a class to train on, to hold out, and at most to test on; and at most of an outside package.
        base: The language model.
        tokens: Tokens of a function, counted from its start.
        rank: Rank of the adapters.
        dropout: Probability of dropout in the adapters.
        epochs: Passes over the training functions.
        members: Networks of the ensemble.
    """

    classes: tuple[str, ...] = ("asyncio", "email", "idlelib", "importlib", "multiprocessing", "xml")
    outside: tuple[str, ...] = ("concurrent", "http", "logging", "tkinter", "unittest", "urllib", "wsgiref", "xmlrpc")
    sizes: tuple[int, int, int, int] = (32, 8, 60, 30)
    base: Base = field(default_factory=Base)
    tokens: int = 64
    rank: int = 4
    dropout: float = 0.1
    epochs: int = 15
    members: int = 5


@dataclass(frozen=True, eq=False)
class Language:
    """The language model, trained on all of the library but the packages of the experiment.

    Args:
        settings: Settings.
        runner: Cache.
    """

    settings: Settings
    runner: Runner

    @cached_property
    def sources(self) -> list[Source]:
        """Files of the pretraining, in an order of their own."""
        settings = self.settings
        mine = [s for s in library() if s.package not in (*settings.classes, *settings.outside)]
        return within(shuffled(mine, "pretraining"), 1e6 * settings.base.megabytes)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Frequent pieces of the text."""
        return Vocabulary.of((source.text for source in self.sources), self.settings.base.vocabulary)

    @cached_property
    def trained(self) -> tuple[osc.networks.GPT, float]:
        """The model, and its NLL of the held-out files in bits a byte."""
        base = self.settings.base
        with seeded(0):
            network = osc.networks.GPT(base.vocabulary, base.tokens, base.width, base.depth, base.width // 32)
        values = self.runner.network(
            "base", (), [str(base), described(self.sources)], network, partial(self._train, network)
        )
        return network.eval(), values["bits"]

    def _train(self, network: nn.Module) -> dict[str, float]:
        last, length = max(1, len(self.sources) // HELD_OUT), self.settings.base.tokens
        seen, unseen = self.sources[:-last], self.sources[-last:]
        method = osc.methods.MAP(network, LIKELIHOOD)
        how: dict[str, Any] = {"batch_size": 16, "lr": 2e-3, "schedule": "one_cycle"}
        train(method, self.vocabulary.windows(seen, length), epochs=self.settings.base.epochs, **how)
        with torch.no_grad():
            parts = zip(*(part.split(16) for part in self.vocabulary.windows(unseen, length)), strict=True)
            nats = -sum(float(LIKELIHOOD.log_prob(network.eval()(x), y).sum()) for x, y in parts)
        return {"bits": nats / math.log(2) / sum(len(source.text.encode()) for source in unseen)}


@dataclass(frozen=True, eq=False)
class Trial:
    """The functions, and the tuned networks, of one seed.

    Args:
        language: The language model.
        seed: Seed of the choice of functions, and of the adapters.
    """

    language: Language
    seed: int

    @cached_property
    def parts(self) -> tuple[Part, Part, Part]:
        """Functions with the numbers of their packages: to train on, to hold out and to test on."""
        classes, sizes = self.language.settings.classes, self.language.settings.sizes
        each = zip(*(split(package, sizes[:3], self.seed) for package in classes), strict=True)
        return tuple(self._labelled(sets) for sets in each)  # type: ignore[return-value]

    @property
    def train(self) -> Part:
        """Functions to train on."""
        return self.parts[0]

    @property
    def held_out(self) -> Part:
        """Functions to choose a temperature on."""
        return self.parts[1]

    def _labelled(self, sets: Sequence[Sequence[str]]) -> Part:
        labels = torch.tensor([label for label, texts in enumerate(sets) for _ in texts])
        return self._tokens([text for texts in sets for text in texts]), labels

    def _tokens(self, texts: Sequence[str]) -> Int[Tensor, "N T"]:
        return self.language.vocabulary.padded(texts, self.language.settings.tokens)

    @cached_property
    def outside(self) -> Int[Tensor, "N T"]:
        """Functions of other packages."""
        settings = self.language.settings
        sets = (split(package, settings.sizes[-1:], self.seed)[0] for package in settings.outside)
        return self._tokens([text for texts in sets for text in texts])

    def tuned(self, member: int = 0) -> nn.Module:
        """The network with tuned adapters and head; another member of the ensemble starts from other ones."""
        settings, number = self.language.settings, 100 * self.seed + member
        with seeded(number):
            network = Classifier(self.language.trained[0], len(settings.classes), settings.rank, settings.dropout)
        about = [str(replace(settings, cells="")), described(self.language.sources)]
        self.language.runner.network("tuned", (self.seed, member), about, network, lambda: self._tune(network, number))
        return network.eval()

    def _tune(self, network: nn.Module, number: int) -> None:
        how: dict[str, Any] = {"epochs": self.language.settings.epochs, "batch_size": 16, "lr": RATE, "seed": number}
        train(osc.methods.MAP(network, LIKELIHOOD), self.train, **how)

    def alone(self) -> osc.posteriors.Point:
        """The network itself."""
        return osc.posteriors.Point(self.tuned(), LIKELIHOOD)

    def scaled(self) -> osc.posteriors.Point:
        """The network with the temperature of the held-out functions."""
        return train(osc.methods.TemperatureScaling(self.tuned(), LIKELIHOOD), self.held_out).posterior

    def ensemble(self) -> osc.posteriors.Ensemble:
        """Networks that differ in the initial adapters and head, and in the order of the functions."""
        return osc.posteriors.Ensemble(map(self.tuned, range(self.language.settings.members)), LIKELIHOOD)

    def dropout(self) -> osc.posteriors.Dropout:
        """The network with random masks in its adapters."""
        return osc.posteriors.Dropout(self.tuned(), LIKELIHOOD)

    def laplace(self, **options: Any) -> osc.posteriors.Gaussian:
        """The posterior over what was tuned, or over a part of it."""
        return osc.laplace(self.tuned(), LIKELIHOOD, self.train, **options)


#: Ways to predict, in the order of the table.
METHODS: Mapping[str, Callable[[Trial], osc.posteriors.Posterior]] = {
    NETWORK: Trial.alone,
    SCALED: Trial.scaled,
    ENSEMBLE: Trial.ensemble,
    DROPOUT: Trial.dropout,
    POSTERIOR: Trial.laplace,
    OF_ADAPTERS: partial(Trial.laplace, subset="lora"),
    OF_HEAD: partial(Trial.laplace, subset="last_layer"),
    UNREFINED: partial(Trial.laplace, refine=False),
}


def scored(trial: Trial, name: str) -> dict[str, float]:
    """Return the scores of a method."""
    q, (x, y) = METHODS[name](trial), trial.parts[2]
    options: dict[str, Any] = {"samples": DRAWS} if name == DROPOUT else {}
    with seeded(trial.seed):
        probs, outside = (class_probabilities(q, each, **options) for each in (x, trial.outside))
    again = train(osc.methods.TemperatureScaling(nn.Identity(), LIKELIHOOD), (logs(probs), y)).history[0]
    accuracy = osc.metrics.accuracy(probs, y)
    return {
        ACCURACY: 100 * accuracy,
        NLL: osc.metrics.nll(logs(probs), y),
        ECE: osc.metrics.ece(probs, y),
        AUROC: osc.metrics.auroc(entropy(probs), entropy(outside)),
        OVER: float(probs.amax(-1).mean()) - accuracy,
        BEST: again["temperature"],
        LEFT: again["train_loss"],
    }


@experiment(
    "foundation-worth",
    "Worth of a LoRA posterior: the package of a function of Python's standard library from few examples",
    "No document: adapters of a small transformer that is trained on the library's other packages",
    paper=Settings(base=Base(width=256, depth=6, epochs=10)),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Tune on the functions of each seed, and score every way to predict."""
    language = Language(settings, runner)
    trials = {seed: Trial(language, seed) for seed in seeds}
    network, bits = language.trained
    table = Table()
    table.add("language model", {BITS: bits, "parameters": float(sum(p.numel() for p in network.parameters()))})
    about = [str(replace(settings, cells="")), described(library())]
    jobs = [(name, seed) for seed, name in product(seeds, METHODS)]
    runs = runner.over("networks and methods", jobs, lambda name, seed: scored(trials[seed], name), "worth", about)
    for name, each in runs.items():
        for values in each:
            table.add(name, values)
    corpus = {"pretraining": described(language.sources), "library": described(library())}
    return Findings(table.numbers(), (), {"corpus": corpus, "runs": runs})


@measure.figure
def draw(record: Record) -> Any:
    """Differences to the network by method, a dot for each seed."""
    from experiments.figures import beside_network

    runs = record.findings.data["runs"]
    values = {
        name: {c: [a[c] - b[c] for a, b in zip(each, runs[NETWORK], strict=True)] for c in (NLL, ECE, AUROC)}
        for name, each in runs.items()
        if name != NETWORK
    }
    heading = "A LoRA posterior and its alternatives beside the tuned network, a dot a seed"
    return beside_network(values, POSTERIOR, heading, ", less the network's")
