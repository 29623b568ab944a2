"""Figure 1 of [perone2021]: error bars of L2M and others on y = x³ with 20 points, beside Hamiltonian Monte Carlo."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Adam, AdamW, Optimizer

import osculate as osc
from experiments import Claim, Findings, Record, Runner, Table, experiment, ignoring, rounded, seeded, timed, train
from experiments.evaluation import SAMPLED as SAMPLED_POORLY
from experiments.record import listed
from osculate.data.toys import CUBIC_NOISE
from osculate.likelihoods import Gaussian
from osculate.priors import Layerwise

#: Prior precision of everything but the document's training: θ ~ N(0, 1), fixed before anything was measured.
PRIOR = 1.0
#: Warnings about what the record holds as numbers.
EXPECTED = (SAMPLED_POORLY, "the chains do not agree", ".*trajectories diverged", "the second m")

PRIORS, DROPOUT, ENSEMBLE, DIAGONAL_SWAG = "randomised priors", "MC dropout", "deep ensemble", "SWAG, diagonal"
REFERENCE, PRINTED, SAMPLED = "HMC, the reference", "L2M as printed", "L2M corrected, sampled"
LINEARISED, EXACT, SEVERAL = "L2M corrected, linearised", "Laplace, exact diagonal", "L2M at each of the ensemble"
DECAYED = "L2M corrected, linearised, document's training"
#: Panels: the document's six in its order, then ours.
PANELS = (PRIORS, DROPOUT, ENSEMBLE, DIAGONAL_SWAG, REFERENCE, PRINTED, SAMPLED, LINEARISED, EXACT, SEVERAL)
ROWS = (*PANELS, DECAYED)
#: Inputs at which the function is evaluated: below, amid and above the data.
PLACES = (-6.0, 0.0, 6.0)
GRID = torch.linspace(-6, 6, 121)

SD = {x: f"sd of f at x = {x:g}" for x in PLACES}
OVER = {x: f"sd over that of HMC at x = {x:g}" for x in PLACES}
RATIO, COVERAGE, NLL, SECONDS = "sd(6) / sd(0)", "coverage of y, 95 % band", "test NLL, nats per point", "seconds"
BOUND, R_HAT, ESS = "weights near the width of their prior, %", "R-hat of f, worst", "ESS of f, least"
COLUMNS = (*SD.values(), RATIO, *OVER.values(), COVERAGE, NLL, SECONDS, BOUND, R_HAT, ESS)
#: Chains agree below this R-hat, and a weight is near the width of its prior above this share of it.
MIXED, SHARE = 1.05, 0.95


@dataclass(frozen=True)
class Document:
    """The document's training: AdamW on the mean squared error.

    Args:
        lr: Constant learning rate.
        decay: Decoupled weight decay, λ.
        epochs: Passes over the data.
    """

    lr: float = 0.1
    decay: float = 0.1
    epochs: int = 5000


@dataclass(frozen=True)
class Own:
    """Training to the mode of HMC's posterior; the learning rate is constant, then falls linearly to zero.

    Args:
        lr: Learning rate of Adam.
        epochs: Passes over the data in batches, for L2M and the ensemble.
        full: Full-batch steps, for randomised priors and dropout.
        members: Members of the ensembles.
        dropout: Dropout probability after the hidden layer.
    """

    lr: float = 0.01
    epochs: int = 3000
    full: int = 2000
    members: int = 5
    dropout: float = 0.1


@dataclass(frozen=True)
class Path:
    """SWAG: constant steps of SGD from the mode.

    Args:
        lr: Learning rate; training diverges at about three times this one.
        epochs: Passes over the data; the second half gives snapshots.
    """

    lr: float = 3e-4
    epochs: int = 400


@dataclass(frozen=True)
class Drawn:
    """HMC.

    Args:
        chains: Number of chains.
        warmup: Transitions before the first draw.
        draws: Draws of each chain.
        max_depth: Largest number of doublings of a trajectory.
    """

    chains: int = 16
    warmup: int = 200
    draws: int = 200
    max_depth: int = 8


@dataclass(frozen=True)
class Settings:
    """Network, trainings and chains.

    Args:
        hidden: Units of the hidden layer, with ReLU.
        batch: Batch size; the document does not print it.
        samples: Networks drawn for each predictive.
        document: The document's training.
        own: Training to the mode.
        path: Training of SWAG.
        drawn: HMC.
    """

    hidden: int = 40
    batch: int = 5
    samples: int = 500
    document: Document = Document()
    own: Own = Own()
    path: Path = Path()
    drawn: Drawn = Drawn()


@experiment(
    "l2m-figure1",
    "A cubic with 20 points: error bars of L2M and of six others, beside Hamiltonian Monte Carlo",
    "L2M [perone2021], Figure 1",
    # "small" has the document's own training already: closer modes and longer chains
    paper=Settings(own=Own(epochs=20_000, full=20_000), drawn=Drawn(warmup=1000, draws=1000, max_depth=10)),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Fit all methods to the data of each seed; the figure shows the first."""
    with ignoring(*EXPECTED):
        fits = list(runner.each("data sets", zip(seeds), partial(fitted, settings)))
    table = Table.of({row: [fit[row][0] for fit in fits] for row in ROWS})
    toy = Toy(settings, seeds[0])
    pairs = zip((toy.inputs, toy.targets), toy.data.train, strict=True)
    x, y = (rounded(scaling.undo(values).flatten(), 2) for scaling, values in pairs)
    bands = {row: band for row, (_, band) in fits[0].items()}
    figure = {"x": x, "y": y, "grid": rounded(GRID, 2), "bands": bands}
    return Findings(table.numbers(COLUMNS), claims(table), figure)


def fitted(settings: Settings, seed: int) -> dict[str, tuple[dict[str, float], dict[str, list[float]]]]:
    """Return the numbers and the band of every method on the data of one seed."""
    toy = Toy(settings, seed)
    found = {}
    for row, q, via, seconds in posteriors(toy):
        numbers, band = scored(toy, q, via)
        found[row] = (numbers | {SECONDS: seconds}, band)
    reference, _ = found[REFERENCE]
    for row, (numbers, _) in found.items():
        if row != REFERENCE:
            numbers |= {OVER[place]: numbers[SD[place]] / reference[SD[place]] for place in PLACES}
    return found


class Toy:
    """The standardised data of one seed with the known noise, and networks trained on it.

    Attributes:
        data: 20 points for training, 1,000 for testing.
        inputs: Scaling of the inputs.
        targets: Scaling of the targets.
        likelihood: The known noise, in standardised units.

    Args:
        settings: Settings of the experiment.
        seed: Seed of the data and of all networks.
    """

    def __init__(self, settings: Settings, seed: int) -> None:
        self.settings, self.seed = settings, seed
        self.data = osc.data.load("cubic", seed=seed, validation_size=0)
        assert self.data.input_scaling is not None
        assert self.data.target_scaling is not None
        self.inputs, self.targets = self.data.input_scaling, self.data.target_scaling
        self.likelihood = Gaussian(CUBIC_NOISE / float(self.targets.scale))

    def network(self, number: int = 0, dropout: float = 0.0) -> nn.Sequential:
        """Return a fresh network; a seed has several by number."""
        hidden = self.settings.hidden
        with seeded(1000 * self.seed + number):
            layers = [nn.Linear(1, hidden), nn.ReLU(), nn.Linear(hidden, 1)]
        return nn.Sequential(*layers[:2], nn.Dropout(dropout), layers[2]) if dropout else nn.Sequential(*layers)

    def from_prior(self, number: int) -> nn.Module:
        """Return a network with parameters drawn from p(θ)."""
        model = self.network(number)
        generator = torch.Generator().manual_seed(1000 * self.seed + number)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * PRIOR**-0.5)
        return model

    def descend(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        epochs: int,
        loss: Callable[[Tensor, Tensor], Tensor],
        decreasing: bool,
    ) -> None:
        """Train in a plain loop over shuffled batches, with a constant or a decreasing learning rate."""
        x, y = self.data.train
        generator = torch.Generator().manual_seed(self.seed)
        rate = optimizer.param_groups[0]["lr"]
        for epoch in range(epochs):
            for group in optimizer.param_groups:
                group["lr"] = rate * min(1.0, 2 * (1 - epoch / epochs)) if decreasing else rate
            for rows in torch.randperm(len(x), generator=generator).split(self.settings.batch):
                optimizer.zero_grad()
                loss(model(x[rows]), y[rows]).backward()
                optimizer.step()

    def as_in_document(self) -> tuple[nn.Module, Optimizer]:
        """Return a network with the document's training, and its optimiser."""
        how, model = self.settings.document, self.network()
        optimizer = AdamW(model.parameters(), lr=how.lr, weight_decay=how.decay)
        self.descend(model, optimizer, how.epochs, nn.functional.mse_loss, decreasing=False)
        return model, optimizer

    def at_mode(self, number: int = 0) -> tuple[nn.Module, Optimizer]:
        """Return a network at the mode; Adam's weight decay is the prior over N, as the loss is a mean."""
        how, model, likelihood = self.settings.own, self.network(number), self.likelihood
        optimizer = Adam(model.parameters(), lr=how.lr, weight_decay=PRIOR / len(self.data.train[0]))
        self.descend(model, optimizer, how.epochs, lambda f, y: -likelihood.log_prob(f, y).mean(), decreasing=True)
        return model, optimizer

    def l2m(self, model: nn.Module, optimizer: Optimizer, **how: Any) -> osc.posteriors.Gaussian:
        """Return L2M from the state of the optimiser."""
        data = self.data.train
        made = osc.methods.L2M.from_optimizer(
            model, optimizer, len(data[0]), self.settings.batch, self.likelihood, data, **{"prior_precision": 1.0} | how
        )
        return made.posterior

    def tuned(self, model: nn.Module, optimizer: Optimizer, **how: Any) -> osc.posteriors.Gaussian:
        """Return L2M with layerwise prior precisions of maximal evidence; the noise is known and stays."""
        return osc.maximise_evidence(self.l2m(model, optimizer, prior_precision=Layerwise(1.0), **how), noise=False)


#: Name, posterior, how it predicts (None for its default), and seconds with training.
Predicted = tuple[str, Any, str | None, float]


def posteriors(toy: Toy) -> Iterator[Predicted]:
    """Yield the posterior of every method."""
    settings, own, data = toy.settings, toy.settings.own, toy.data.train

    def named(row: str, make: Callable[[], Any], before: float = 0.0, via: str | None = None) -> Predicted:
        q, took = timed(make)
        return row, q, via, before + took

    fit, trained = timed(toy.as_in_document)
    how: dict[str, Any] = {"scaling": "paper", "prior_precision": settings.document.decay}
    yield named(PRINTED, partial(toy.l2m, *fit, loss_scale="mse", **how), trained, "sampled")
    yield named(DECAYED, partial(toy.tuned, *fit, loss_scale="mse"), trained)

    fit, trained = timed(toy.at_mode)
    yield named(SAMPLED, partial(toy.l2m, *fit, prior_precision=PRIOR), trained, "sampled")
    linearised = named(LINEARISED, partial(toy.tuned, *fit), trained)
    yield linearised
    laplace = partial(osc.laplace, fit[0], toy.likelihood, data, structure="diag", prior=Layerwise(1.0), refine=False)
    yield named(EXACT, lambda: osc.maximise_evidence(laplace(), noise=False), trained)
    others, more = timed(lambda: [toy.at_mode(number) for number in range(1, own.members)])
    yield ENSEMBLE, osc.posteriors.Ensemble([fit[0], *(m for m, _ in others)], toy.likelihood), None, trained + more
    tuned = (toy.tuned(*other) for other in others)  # not before they are timed
    yield named(SEVERAL, lambda: osc.posteriors.Mixture([linearised[1], *tuned]), trained + more)

    run = partial(train, data=data, seed=toy.seed)
    full = partial(run, epochs=own.full, lr=own.lr, batch_size=len(data[0]))
    networks = [toy.network(number) for number in range(own.members)]
    functions = [toy.from_prior(number) for number in range(own.members)]
    priors = osc.methods.RandomizedPriors(networks, toy.likelihood, PRIOR, prior_networks=functions)
    yield named(PRIORS, lambda: full(priors).posterior)
    dropout = osc.methods.MCDropout(toy.network(dropout=own.dropout), toy.likelihood, PRIOR)
    yield named(DROPOUT, lambda: full(dropout).posterior)
    network, path = toy.network(), settings.path
    _, before = timed(partial(full, osc.methods.MAP(network, toy.likelihood, PRIOR)))
    swag = osc.methods.SWAG(network, toy.likelihood, PRIOR, rank=0)
    descend = partial(run, batch_size=settings.batch, optimizer="sgd", schedule="constant")
    yield named(DIAGONAL_SWAG, lambda: descend(swag, epochs=path.epochs, lr=path.lr).posterior, before)
    drawn = settings.drawn
    sampler = partial(osc.methods.HMC, chains=drawn.chains, warmup=drawn.warmup, max_depth=drawn.max_depth)
    hmc = sampler(toy.network(), toy.likelihood, PRIOR)
    yield named(REFERENCE, lambda: run(hmc, epochs=drawn.warmup + drawn.draws).posterior)


def scored(toy: Toy, q: Any, via: str | None = None) -> tuple[dict[str, float], dict[str, list[float]]]:
    """Return the numbers of a posterior, and mean and deviation of f along the line, in the units of the data."""
    generator = torch.Generator().manual_seed(toy.seed)
    predict = partial(osc.predict, q, via=via, samples=toy.settings.samples, generator=generator)
    line = toy.inputs.apply(GRID[:, None])
    f = predict(line, noise=False)
    mean, sd = toy.targets.undo(f.mean).flatten(), (f.stddev * toy.targets.scale).flatten()
    x, y = toy.data.test
    of_y = predict(x)
    numbers = {SD[place]: float(sd[round((place + 6) / 12 * (len(GRID) - 1))]) for place in PLACES}
    numbers[RATIO] = numbers[SD[6.0]] / numbers[SD[0.0]]
    numbers[COVERAGE] = float(((y - of_y.mean).abs() <= 1.96 * of_y.stddev).double().mean())
    numbers[NLL] = -toy.data.log_likelihood_in_original_units(of_y.log_prob(y).mean().item())
    if isinstance(q, osc.posteriors.Gaussian):
        width = (q.variance() * q.prior.vector(q.network.space)).sqrt()  # as a share of the prior's
        numbers[BOUND] = 100 * float((width > SHARE).double().mean())
    if isinstance(q, osc.posteriors.Chains):
        numbers[R_HAT] = float(q.r_hat(line).max())
        numbers[ESS] = float(q.effective_sample_size(line).min())
    return numbers, {"mean": rounded(mean, 2), "sd": rounded(sd, 2)}


def claims(table: Table) -> Iterator[Claim]:
    """Yield the claims that need words, and whether the chains of the reference agree."""
    factors = [max(value, 1 / value) for place in PLACES for value in table[LINEARISED, OVER[place]]]
    yield Claim.over_seeds(
        "Error bars of corrected L2M over those of HMC",
        f"The worst factor of a seed is {max(factors):.2f}. Where it is large, a diagonal around one mode is to "
        "blame, which the Laplace approximation with the exact diagonal has as well.",
    )
    yield Claim.over_seeds(
        "Band of corrected L2M",
        "The share is of new targets on [-4, 4], noise included. In the row of the document's own training, its "
        "constant rate and its decay keep the network off the data.",
    )
    yield Claim.over_seeds(
        "Error bars of L2M as printed",
        "Where sampled ones are worse than linearised ones, the network bends within the width of a diagonal Gaussian.",
    )
    yield Claim.over_seeds(
        "NLL of corrected L2M",
        "Where that of the exact diagonal at the same modes is lower, residuals at training points are smaller than "
        "the noise, and squared gradients take the curvature for smaller than it is.",
    )
    yield Claim.over_seeds(
        "Band of the printed formula",
        "It has 1/λ = 10 for a precision in place of λ = 0.1, and not the curvature. Weights count that have more than "
        f"{SHARE:.0%} of the standard deviation that their prior alone, N(0, λ) as printed, would give them.",
    )
    r_hats, draws = table[REFERENCE, R_HAT], table[REFERENCE, ESS]
    yield Claim.over_seeds(
        "Chains of the reference",
        f"R-hat of the function on [-6, 6] {listed(r_hats, '.3f')}; effective draws {listed(draws, ',.0f')}.",
    )


@measure.figure
def draw(record: Record) -> Any:
    """Draw one panel per method."""
    from osculate import plots

    data, values = record.findings.data, {(n.row, n.column): n.values for n in record.findings.numbers}
    panels = {
        name: plots.Band(
            data["grid"],
            **data["bands"][name],
            note=f"sd(6)/sd(0) {values[name, RATIO][0]:.1f}, covers {values[name, COVERAGE][0]:.0%} of y",
        )
        for name in PANELS
    }
    return plots.regression_bands(
        panels,
        data["x"],
        data["y"],
        truth=[x**3 for x in data["grid"]],
        columns=5,
        heading="How sure is each method of y = x³ from 20 points? Mean and standard deviations of f; share of new y "
        "in [-4, 4] within the 95 % band",
    )
