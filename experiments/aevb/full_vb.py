"""Full variational Bayes of the report on AEVB: its failure, and the benefit of a posterior over the decoder."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import Any

import torch

import osculate as osc
from experiments import Claim, Findings, Record, Resumable, Runner, Table, experiment, seeded, train
from experiments.aevb.cells import DOCUMENT, FREY, FREY_CODERS, Coders
from osculate.autoencoders import ELBO, VAE, bound
from osculate.methods import IVON, L2M, MeanFieldVI, Method, VariationalLaplace, WarmUp
from osculate.posteriors import Point
from osculate.priors import Layerwise, ScaleMixture, fan_in

#: A decoder without posterior, the document's form, the form that learns, and other posteriors over the decoder.
POINT, NAIVE, CURED = "point decoder", "full VB, the document's", "full VB"
MIXTURE, LAPLACE, LAPLACED = "full VB, scale mixture", "variational Laplace", "Laplace after training"
NATURAL, MOMENTS = "IVON", "L2M after training"
#: Columns: the frames, and the weights with which their bound is estimated.
TRAIN_DRAWN, TEST_DRAWN = "training bound, drawn weights", "test bound, drawn weights"
TRAIN_MEAN, TEST_MEAN = "training bound, mean weights", "test bound, mean weights"
COLUMNS = (TRAIN_DRAWN, TEST_DRAWN, TRAIN_MEAN, TEST_MEAN)
#: Learning rate of all methods. IVON's would be 0.3 for a likelihood whose curvature is one known number.
RATE = 1e-3
#: Codes drawn for a frame, by each network.
CODES = 5
LIKELIHOOD = FREY.likelihood


def decoder_prior(net: VAE) -> Layerwise:
    """1/fan-in for weights, and 1 for biases: grey values and log variances are not around zero."""
    return fan_in(net, [f"decoder.{name}" for name, _ in net.decoder.named_parameters()], biases=1.0)


def _naive(net: VAE, warmup: WarmUp) -> Method:
    """N(0, 1) weights with deviations that begin at 1, one draw of all weights for a batch, no warm-up."""
    method = MeanFieldVI(net, LIKELIHOOD, prior=1.0, local=False)
    with torch.no_grad():
        method.log_deviation.zero_()
    return method


#: Methods by name; those "after training" are fitted to the trained point decoder.
METHODS: Mapping[str, Callable[[VAE, WarmUp], Method]] = {
    POINT: lambda net, warmup: ELBO(net, LIKELIHOOD),
    NAIVE: _naive,
    CURED: lambda net, warmup: MeanFieldVI(net, LIKELIHOOD, decoder_prior(net), warmup, multiplier=1.0),
    MIXTURE: lambda net, warmup: MeanFieldVI(net, LIKELIHOOD, ScaleMixture(narrow=0.05), warmup, multiplier=1.0),
    LAPLACE: lambda net, warmup: VariationalLaplace(net, LIKELIHOOD, decoder_prior(net)),
    NATURAL: lambda net, warmup: IVON(net, LIKELIHOOD, decoder_prior(net)),
    LAPLACED: lambda net, warmup: ELBO(net, LIKELIHOOD),
    MOMENTS: lambda net, warmup: L2M(net, LIKELIHOOD),
}


@dataclass(frozen=True)
class Settings(Resumable):
    """Frames, networks and training.

    Args:
        coders: Encoder and decoder.
        images: Number of training frames, in random order; the last quarter of all frames in that order is for testing.
        epochs: Numbers of epochs at which bounds are estimated, ascending.
        batch: Batch size.
        methods: Names of the methods.
        networks: Networks drawn for a bound.
    """

    coders: Coders = FREY_CODERS
    images: int = 300
    epochs: tuple[int, ...] = (100, 400)
    batch: int = 20
    methods: tuple[str, ...] = tuple(METHODS)
    networks: int = 40


#: Words beside the bounds.
CLAIMS = (
    Claim.over_seeds(
        "Full variational Bayes as the document tried it",
        "The published program never draws the weights, so that its data say nothing of them; here they are drawn, and "
        "N(0, 1) weights that begin with a deviation of 1 drown the data.",
    ),
    Claim.over_seeds(
        "Full variational Bayes that learns", "It has 1/fan-in priors, small deviations, noise on sums and a warm-up."
    ),
    Claim.over_seeds(
        "Generalisation of full variational Bayes",
        "The row of Laplace has the 1/fan-in prior around weights that were trained under N(0, 1).",
    ),
)


@experiment(
    "aevb-full-vb",
    "A posterior over the weights of the decoder",
    f"{DOCUMENT}, section 6",
    paper=Settings(images=1_500, epochs=(100, 1_000, 5_000), batch=100),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Estimate the bounds of every method, at every number of epochs."""
    about = [{name: value for name, value in asdict(settings).items() if name not in ("cells", "methods")}]
    found = runner.over("trainings", product(settings.methods, seeds), partial(bounds, settings), "full", about)
    rows = product(found, settings.epochs)
    table = Table.of({f"{epochs} epochs: {m}": [run[str(epochs)] for run in found[m]] for m, epochs in rows})
    return Findings(table.numbers(COLUMNS), CLAIMS)


def bounds(settings: Settings, name: str, seed: int) -> dict[str, dict[str, float]]:
    """Train, and return the bounds by number of epochs."""
    # The film's own last quarter has another distribution.
    data = osc.data.load(FREY.data, splits="random", train_size=settings.images, seed=seed)
    x, test = data.train[0], data.test[0]
    net = settings.coders.vae(FREY, x.shape[1:], seed)
    method = METHODS[name](net, WarmUp(max(1, round(0.625 * settings.epochs[-1]))))
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for epochs in settings.epochs:
            how = {"epochs": epochs, "batch_size": settings.batch, "lr": RATE, "schedule": "constant", "seed": seed}
            q = train(method, (x, x), **how, folder=folder, resume=epochs != settings.epochs[0]).posterior
            if name == LAPLACED:
                prior = decoder_prior(net)
                q = osc.laplace(
                    net, LIKELIHOOD, (x, x), structure="diag", prior=prior, subset=["decoder"], refine=False
                )
            columns = {TRAIN_MEAN: (x, "mean"), TEST_MEAN: (test, "mean")}
            if not isinstance(q, Point):
                columns |= {TRAIN_DRAWN: (x, "drawn"), TEST_DRAWN: (test, "drawn")}
            with seeded(seed):
                found[str(epochs)] = {
                    column: bound(q, part, "elbo", samples=CODES, weights=weights, networks=settings.networks).mean
                    for column, (part, weights) in columns.items()
                }
    return found


@measure.figure
def draw(record: Record) -> Any:
    """Draw a row of panels for each number of epochs."""
    from experiments import figures

    heading = f"Frey Face, {record.setup.settings['images']} frames: a posterior over the decoder's weights (nats)"
    return figures.method_scores(record.findings.numbers, (TRAIN_DRAWN, TEST_DRAWN, TEST_MEAN), heading)
