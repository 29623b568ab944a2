"""Section 6 of the report on AEVB: point decoders and posteriors over the decoder, each stopped and tuned alike."""

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

import osculate as osc
from experiments import Findings, Record, Resumable, Runner, Table, experiment, seeded, train
from experiments.aevb.cells import DOCUMENT, FREY, FREY_CODERS, Coders
from experiments.aevb.full_vb import CURED, LIKELIHOOD, POINT, RATE, decoder_prior
from osculate.autoencoders import ELBO, VAE, bound
from osculate.inputs import Inputs
from osculate.methods import MeanFieldVI, Method
from osculate.posteriors import Point

LEARNED, CHOSEN = "full VB, learned scales of layers", "the better of both on held-out frames"
TEST, TRAINING, HELD_OUT = "weighted test bound, nats", "weighted training bound, nats", "held-out bound, nats"
EPOCHS, TEMPERATURE = "epochs", "temperature"


class LearnedScales(MeanFieldVI):
    """Mean-field variational inference whose prior precisions maximise the bound, one for each tensor.

    With δ_t = n_t / Σ (μ² + σ²) over the n_t weights of a tensor, after every epoch.

    Args:
        model: The network.
        likelihood: p(x|z).
        prior: Prior with one precision for each tensor, the start.
        temperature: Weight of the divergence.
        multiplier: Factor on the learning rate of log σ.
    """

    @torch.no_grad()
    def end_epoch(self, epoch: int, epochs: int, data: Iterable[tuple[Inputs, Tensor]]) -> Mapping[str, float]:
        """Move the precisions to their best values."""
        squares = self.space.flatten(self.mean).square() + self.deviations().square()
        counts = self.prior.totals(torch.ones_like(squares), self.space)
        self.prior = self.prior.with_precision(counts / self.prior.totals(squares, self.space))
        self.delta.copy_(self.prior.vector(self.space))
        return super().end_epoch(epoch, epochs, data)


#: Methods by name, of a network and a temperature. That of a point decoder is the weight of a prior on its weights.
METHODS: Mapping[str, Callable[[VAE, float], Method]] = {
    POINT: lambda net, temperature: ELBO(net, LIKELIHOOD, prior=temperature),
    CURED: lambda net, temperature: MeanFieldVI(net, LIKELIHOOD, decoder_prior(net), temperature, multiplier=1.0),
    LEARNED: lambda net, temperature: LearnedScales(net, LIKELIHOOD, decoder_prior(net), temperature, multiplier=1.0),
}


@dataclass(frozen=True)
class Settings(Resumable):
    """Frames, networks, training, and what held-out frames choose from.

    Args:
        coders: Encoder and decoder.
        train_size: Number of training frames; None takes all that are neither held out nor for testing.
        validation_size: Number of held-out frames.
        epochs: Numbers of epochs at which the bound of held-out frames may say to stop, ascending.
        batch: Batch size.
        temperatures: Weights of the divergence of the decoder's weights; of a point decoder, precisions of its prior.
        codes: Codes drawn for a frame, by each network.
        networks: Networks drawn for a bound; that of a point decoder has as many more codes.
    """

    coders: Coders = FREY_CODERS
    train_size: int | None = None
    validation_size: int = 150
    epochs: tuple[int, ...] = (50, 100, 200, 400, 800)
    batch: int = 20
    temperatures: tuple[float, ...] = (0.01, 0.1, 1.0)
    codes: int = 20
    networks: int = 10


#: Scores of one training at one number of epochs.
Scores = dict[str, dict[str, float]]


@experiment(
    "aevb-fair",
    "A posterior over the decoder's weights beside a point decoder, each stopped and tuned by held-out frames",
    f"{DOCUMENT}, section 6",
    paper=Settings(epochs=(100, 200, 500, 1_000, 2_000, 5_000), networks=50),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Train at every temperature; held-out frames choose it, and the number of epochs, for each method and seed."""
    jobs = [
        (method, temperature, seed) for method in METHODS for temperature in settings.temperatures for seed in seeds
    ]
    about = [{name: value for name, value in asdict(settings).items() if name not in ("cells", "temperatures")}]
    runs = runner.over("trainings", jobs, partial(scored, settings), "fair", about)
    table = Table()
    for number in range(len(seeds)):
        best: dict[str, Scores] = {}
        for method in METHODS:
            each = [
                {**found, "choice": {EPOCHS: float(epochs), TEMPERATURE: temperature}}
                for temperature in settings.temperatures
                for epochs, found in runs[method, temperature][number].items()
            ]
            best[method] = max(each, key=lambda found: found["drawn"][HELD_OUT])
            table.add(row(method), best[method]["drawn"] | best[method]["choice"])
            if "mean" in best[method]:
                table.add(row(f"{method}, mean weights"), best[method]["mean"])
        better = max((CURED, LEARNED), key=lambda method: best[method]["drawn"][HELD_OUT])
        table.add(row(CHOSEN), best[better]["drawn"] | best[better]["choice"])
    return Findings(table.numbers((TEST, TRAINING, HELD_OUT, EPOCHS, TEMPERATURE)), ())


def row(method: str) -> str:
    """Return the label of a row."""
    return f"Frey Face: {method}"


def scored(settings: Settings, name: str, temperature: float, seed: int) -> dict[str, Scores]:
    """Train, and return bounds by number of epochs, with drawn weights and for a posterior with the mean ones."""
    sizes: dict[str, Any] = {"train_size": settings.train_size, "validation_size": settings.validation_size}
    # the film's own last quarter has another distribution
    data = osc.data.load(FREY.data, splits="random", seed=seed, **sizes)
    x = data.train[0]
    parts = {TEST: data.test[0], TRAINING: x[: len(data.test[0])], HELD_OUT: data.validation[0]}
    net = settings.coders.vae(FREY, x.shape[1:], seed)
    method, found = METHODS[name](net, temperature), dict[str, Scores]()
    with tempfile.TemporaryDirectory() as folder:
        for epochs in settings.epochs:
            how = {"epochs": epochs, "batch_size": settings.batch, "lr": RATE, "schedule": "constant", "seed": seed}
            q = train(method, (x, x), **how, folder=folder, resume=epochs != settings.epochs[0]).posterior
            point = isinstance(q, Point)
            ways = {"drawn": "mean"} if point else {"drawn": "drawn", "mean": "mean"}
            with seeded(seed):
                found[str(epochs)] = {
                    way: {column: weighted(q, part, weights, settings) for column, part in parts.items()}
                    for way, weights in ways.items()
                }
    return found


def weighted(q: osc.posteriors.Posterior, x: Tensor, weights: str, settings: Settings) -> float:
    """Return the weighted bound, nats a frame, with one number of codes in all whatever the weights."""
    codes = settings.codes * (settings.networks if weights == "mean" else 1)
    return bound(q, x, "iwae", samples=codes, weights=weights, networks=settings.networks).mean


@measure.figure
def draw(record: Record) -> Any:
    """Draw the bounds of every method."""
    from experiments import figures

    heading = "Decoders of Frey Face, each stopped and tuned by held-out frames (nats)"
    return figures.method_scores(record.findings.numbers, (TEST, TRAINING), heading)
