"""Full variational Bayes of the report on AEVB: why it did not learn, and what a posterior over the decoder gives."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import mean
from typing import Any

import torch
from torch import Tensor

from experiments import Claim, Findings, Number, Record, Resumable, Runner, clearly, experiment, seeded
from experiments.aevb.cells import DOCUMENT, FREY, FREY_CODERS, Coders, likelihood_of, network
from osculate.autoencoders import ELBO, VAE, bound
from osculate.data import load
from osculate.methods import IVON, L2M, MeanFieldVI, VariationalLaplace, WarmUp, laplace
from osculate.methods._base import Method
from osculate.posteriors import Point, Posterior
from osculate.priors import Layerwise, ScaleMixture, fan_in
from osculate.progress import track
from osculate.training import train

#: A decoder without posterior, the document's form, the one that learns, and other posteriors over the decoder.
POINT, NAIVE, CURED = "point decoder", "full VB, the document's", "full VB"
MIXTURE, LAPLACE, LAPLACED = "full VB, scale mixture", "variational Laplace", "Laplace after training"
NATURAL, MOMENTS = "IVON", "L2M after training"
METHODS = (POINT, NAIVE, CURED, MIXTURE, LAPLACE, NATURAL, LAPLACED, MOMENTS)
#: Columns: frames, and the weights with which their bound is taken.
TRAIN_DRAWN, TEST_DRAWN = "training bound, drawn weights", "test bound, drawn weights"
TRAIN_MEAN, TEST_MEAN = "training bound, mean weights", "test bound, mean weights"
#: Learning rate of all. That of IVON would be 0.3 for a likelihood whose curvature is one known number.
RATE = 1e-3
#: Codes drawn for a frame, by each network.
CODES = 5
#: By how much the drawn weights of a decoder that learns must be better than the document's, in nats.
APART = 300.0


@dataclass(frozen=True)
class Settings(Resumable):
    """What is trained.

    Args:
        coders: encoder and decoder.
        images: frames to train on, drawn from all; the last quarter of all frames, in another order, is for testing.
        epochs: at which bounds are taken, rising.
        batch: frames in a batch.
        methods: of :data:`METHODS`.
        networks: drawn for a bound.
    """

    coders: Coders = FREY_CODERS
    images: int = 300
    epochs: tuple[int, ...] = (100, 400)
    batch: int = 20
    methods: tuple[str, ...] = METHODS
    networks: int = 40


PRESETS = {"small": Settings(), "paper": Settings(images=1_500, epochs=(100, 1_000, 5_000), batch=100)}
LIKELIHOOD = likelihood_of(FREY.data)


def _decoder_prior(net: VAE) -> Layerwise:
    """1/fan-in for weights, and 1 for biases: grey values and log variances are not around zero."""
    return fan_in(net, [f"decoder.{name}" for name, _ in net.decoder.named_parameters()], biases=1.0)


def _naive(net: VAE, settings: Settings) -> Method:
    """N(0, 1) weights, whose deviations begin at 1, one draw of all weights for a batch, no warm-up."""
    method = MeanFieldVI(net, LIKELIHOOD, prior=1.0, local=False)
    with torch.no_grad():
        method.log_deviation.zero_()
    return method


def _cured(net: VAE, settings: Settings) -> Method:
    return MeanFieldVI(net, LIKELIHOOD, _decoder_prior(net), _warm(settings), multiplier=1.0)


def _mixture(net: VAE, settings: Settings) -> Method:
    return MeanFieldVI(net, LIKELIHOOD, ScaleMixture(narrow=0.05), _warm(settings), multiplier=1.0)


def _variational(net: VAE, settings: Settings) -> Method:
    return VariationalLaplace(net, LIKELIHOOD, _decoder_prior(net))


def _warm(settings: Settings) -> WarmUp:
    return WarmUp(max(1, round(0.625 * settings.epochs[-1])))


#: How each is trained. Those after training have the point decoder's.
MAKE: Mapping[str, Callable[[VAE, Settings], Method]] = {
    POINT: lambda net, settings: ELBO(net, LIKELIHOOD),
    NAIVE: _naive,
    CURED: _cured,
    MIXTURE: _mixture,
    LAPLACE: _variational,
    NATURAL: lambda net, settings: IVON(net, LIKELIHOOD, _decoder_prior(net)),
    LAPLACED: lambda net, settings: ELBO(net, LIKELIHOOD),
    MOMENTS: lambda net, settings: L2M(net, LIKELIHOOD),
}


@experiment("aevb-full-vb", "A posterior over the weights of the decoder", f"{DOCUMENT}, section 6", **PRESETS)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """Bounds of every method, at every number of epochs."""
    runner = Runner(settings.cells, progress)
    todo = [(method, seed) for method in settings.methods for seed in seeds]
    found: dict[str, list[dict[str, Any]]] = {}
    for method, seed in track(todo, "trainings", len(todo), progress):
        about = [{k: v for k, v in asdict(settings).items() if k not in ("cells", "methods")}]
        words = method.replace(",", "").replace("'", "").split()
        values = runner.cached("full", [*words, seed], about, partial(_bounds, settings, method, seed))
        found.setdefault(method, []).append(values)
    numbers = [
        Number(f"{epochs} epochs: {method}", column, tuple(run[str(epochs)][column] for run in runs))
        for method, runs in found.items()
        for epochs in settings.epochs
        for column in (TRAIN_DRAWN, TEST_DRAWN, TRAIN_MEAN, TEST_MEAN)
        if column in runs[0][str(epochs)]
    ]
    return Findings(tuple(numbers), claims(found, settings), {}, runner.seconds)


def _frames(settings: Settings, seed: int) -> tuple[Tensor, Tensor]:
    """Training and test frames, in an order by the seed: not the film's, whose last quarter is of another kind."""
    data = load(FREY.data, splits="random", train_size=settings.images, seed=seed)
    return data.train[0], data.test[0]


def _bounds(settings: Settings, name: str, seed: int) -> dict[str, dict[str, float]]:
    x, test = _frames(settings, seed)
    net = network(FREY, settings.coders, x.shape[1:], seed)
    method = MAKE[name](net, settings)
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for epochs in settings.epochs:
            done = train(
                method,
                (x, x),
                epochs=epochs,
                batch_size=settings.batch,
                lr=RATE,
                schedule="constant",
                seed=seed,
                folder=folder,
                resume=epochs != settings.epochs[0],
                device="cpu",
                progress=False,
            )
            q = _after(name, done.posterior, net, x)
            with seeded(seed):
                found[str(epochs)] = _of(q, x, test, settings.networks)
    return found


def _after(name: str, q: Posterior, net: VAE, x: Tensor) -> Posterior:
    """The posterior of training, or that of Laplace around it."""
    if name != LAPLACED:
        return q
    return laplace(net, LIKELIHOOD, (x, x), structure="diag", prior=_decoder_prior(net), subset=["decoder"])


def _of(q: Posterior, x: Tensor, test: Tensor, networks: int) -> dict[str, float]:
    kept = {TRAIN_MEAN: (x, "mean"), TEST_MEAN: (test, "mean")}
    if not isinstance(q, Point):
        kept |= {TRAIN_DRAWN: (x, "drawn"), TEST_DRAWN: (test, "drawn")}
    return {
        column: bound(q, part, "elbo", samples=CODES, weights=weights, networks=networks).mean
        for column, (part, weights) in kept.items()
    }


def claims(found: Mapping[str, Sequence[Mapping[str, Any]]], settings: Settings) -> tuple[Claim, ...]:
    """Verdicts on the document's failure, and on what the posterior is good for."""
    last = str(settings.epochs[-1])

    def at(method: str, column: str) -> list[float]:
        return [run[last][column] for run in found.get(method, ()) if column in run[last]]

    drawn, naive, point = at(CURED, TEST_DRAWN), at(NAIVE, TEST_DRAWN), at(POINT, TEST_MEAN)
    gaps = {
        CURED: [a - b for a, b in zip(at(CURED, TRAIN_DRAWN), drawn, strict=True)],
        POINT: [a - b for a, b in zip(at(POINT, TRAIN_MEAN), point, strict=True)],
    }
    means = at(CURED, TEST_MEAN)
    when = f"after {last} epochs on {settings.images} frames"
    both = {m: (mean(at(m, TEST_MEAN)), mean(at(m, TEST_DRAWN))) for m in found if m != POINT}
    told = "; ".join(f"{m}: {here:.0f} at the mean, {there:.0f} drawn" for m, (here, there) in both.items())
    return (
        Claim.judged(
            "Full variational Bayes does not learn, in the form that the document tried",
            max(naive) < min(point) - APART if naive and point else None,
            f"test bound of drawn weights {_listed(naive)}, of a point decoder {_listed(point)} nats, {when}. The "
            "published program never draws the weights, so that its data say nothing of them; here they are drawn, and "
            "N(0, 1) weights that begin with a deviation of 1 drown the data.",
        ),
        Claim.judged(
            f"With 1/fan-in priors, small deviations, noise on sums, a warm-up it learns: {APART:g} nats more (ours)",
            min(drawn) - max(naive) > APART if drawn and naive else None,
            f"test bound of drawn weights {_listed(drawn)} against {_listed(naive)} nats, {when}.",
        ),
        Claim.judged(
            "It reduces overfitting: the gap of training and test bound is less than half of the point decoder's",
            mean(gaps[CURED]) < 0.5 * mean(gaps[POINT]) if gaps[CURED] and gaps[POINT] else None,
            f"{_listed(gaps[CURED])} against {_listed(gaps[POINT])} nats, {when}.",
        ),
        Claim.judged(
            "It generalises better than a point decoder",
            clearly([a - b for a, b in zip(means, point, strict=True)]) if means and point else None,
            f"test bound at the mean weights {_listed(means)}, of drawn weights {_listed(drawn)}, of the point decoder "
            f"{_listed(point)} nats, {when}. {told}. Laplace has the 1/fan-in prior around weights trained under "
            "N(0, 1).",
        ),
    )


def _listed(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.0f}" for value in values) or "–"


@measure.figure
def draw(record: Record) -> Any:
    """A row of panels for each number of epochs."""
    from experiments import figures

    heading = f"Frey Face, {record.setup.settings['images']} frames: a posterior over the decoder's weights (nats)"
    return figures.method_scores(record.findings.numbers, (TRAIN_DRAWN, TEST_DRAWN, TEST_MEAN), heading)
