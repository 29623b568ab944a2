"""The evidence at the mode of the linear model: a batch-normalised toy, and five architectures on images.

θ̃ are the parameters of the network, θ* those of the mode of its linear model around θ̃.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from itertools import permutations, product
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

import osculate as osc
from experiments import Claim, Findings, Record, Runner, Table, experiment, paired, printed, seeded, train
from osculate.curvature.linearisation import Linearisation
from osculate.inputs import Inputs
from osculate.networks import FixupResNet, NormalisedCNN, PreActResNet, ResNet, ViT
from osculate.training.settings import Settings as Training


@dataclass(frozen=True)
class Toy:
    """Regression by a network 1 – hidden – hidden – 1 with ReLU and batch normalisation.

    Args:
        points: Training data, a third in each cluster.
        hidden: Units of both hidden layers.
        epochs: Epochs of stochastic gradient descent.
        lr: Learning rate.
        scales: Factors on the weights of the normalised layers.
        shown: Prior precisions of the predictives in the figure.
    """

    points: int = 501
    hidden: int = 50
    epochs: int = 150
    lr: float = 1e-2
    scales: tuple[float, ...] = (0.25, 1.0, 4.0)
    shown: tuple[float, ...] = (100.0, 10.0, 1.0, 0.1)


@dataclass(frozen=True)
class Images:
    """Classification of images.

    Args:
        names: Architectures, keys of :data:`ARCHITECTURES`.
        data: Data set of square images of one channel; the sizes of the networks are for 28 × 28 pixels.
        train_size: Number of training images.
        test_size: Number of test images.
        training: Training of the networks; the seed is that of the repetition.
        pool: Side of the squares of pixels that a convolutional network begins with the averages of.
        tolerance: Tolerance of the stationarity condition of the evidence at θ*.
    """

    names: tuple[str, ...] = ("T-former", "CNN", "ResNet", "Pre-ResNet", "Fixup")
    data: str = "mnist"
    train_size: int = 1000
    test_size: int = 2000
    training: Training = Training(epochs=30, lr=3e-3, batch_size=50)
    pool: int = 2
    tolerance: float = 0.1


@dataclass(frozen=True)
class Settings:
    """Both experiments.

    Args:
        toy: Regression in one dimension.
        images: Classification.
    """

    toy: Toy = Toy()
    images: Images = Images()


#: Intervals of the inputs, and the noise scale.
CLUSTERS, NOISE = ((-1.0, 0.0), (1.7, 2.5), (4.0, 5.0)), 0.25
#: Inputs of the evaluation: on the data, between the clusters, and three times as far out as they are wide.
GRID = torch.linspace(-2, 6, 161, dtype=torch.double).unsqueeze(1)
#: Batch size and weight decay on the toy, and the prior precision for images.
BATCH, DECAY, PRECISION = 64, 1e-4, 1.0
SINGLE, MULTIPLE = "single λ", "multiple λ"
#: Where the evidence is taken: at the network's parameters, at the mode of the linear model, and there with the
#: curvature of the likelihood at the outputs of that mode.
NETWORK, LINEAR, FULL = "θ̃", "θ*", "θ* and its curvature"
WAYS = tuple(product((LINEAR, NETWORK), (SINGLE, MULTIPLE)))
#: Those on images.
MORE = (*WAYS, *product((FULL,), (SINGLE, MULTIPLE)))
#: Rounds of finding mode, curvature and precisions one after the other.
ROUNDS = 3
VARIANCE, LIKELIHOOD = "prior variance", "log likelihood on the grid, nats"
NOISE_SCALE = f"noise scale ({NOISE} is true)"
ALONE = "NLL of the network alone"
MEAN = "mean of the architectures"
#: Each architecture from the side of the images and the pooling; 42,000 to 47,000 parameters.
ARCHITECTURES: Mapping[str, Callable[[int, int], nn.Module]] = {
    "T-former": lambda side, pool: ViT(10, (1, side, side), patch=side // 4, width=34, depth=3, heads=2),
    "CNN": lambda side, pool: nn.Sequential(nn.AvgPool2d(pool), NormalisedCNN()),
    "ResNet": lambda side, pool: nn.Sequential(nn.AvgPool2d(pool), ResNet(10, 1, 9, (1, 1, 1))),
    "Pre-ResNet": lambda side, pool: nn.Sequential(nn.AvgPool2d(pool), PreActResNet(10, 1, 12, (1, 1, 1))),
    "Fixup": lambda side, pool: nn.Sequential(nn.AvgPool2d(pool), FixupResNet(10, 1, 12, (1, 1, 1), 12)),
}


def toy_row(mode: str, prior: str) -> str:
    """Return the row of the toy."""
    return f"toy: {mode}, {prior}"


def change(settings: Toy) -> str:
    """Return the column of the relative change with the scale of the weights."""
    return f"relative change of the sd over scales {settings.scales[0]:g} to {settings.scales[-1]:g}"


def nll(mode: str, prior: str) -> str:
    """Return the column of the NLL on images."""
    return f"NLL, {mode}, {prior}"


#: Table 1 of the document.
PRINTED = printed(
    [nll(*way) for way in WAYS],
    {
        "T-former": ("0.162", "0.162", "0.310", "0.162"),
        "CNN": ("0.025", "0.025", "0.253", "0.205"),
        "ResNet": ("0.017", "0.016", "0.252", "0.236"),
        "Pre-ResNet": ("0.017", "0.016", "0.220", "0.239"),
        "Fixup": ("0.055", "0.061", "0.153", "0.200"),
    },
)


@experiment(
    "linlap-adapted",
    "The evidence at the mode of the linear model, and one precision for each normalised group",
    "Linearised Laplace tutorial, section 6 [antoran2022], Table 1",
    # 60,000 images need an accelerator; the document trains on all of MNIST at full resolution
    paper=Settings(
        Toy(epochs=600),
        Images(train_size=58_000, test_size=10_000, training=Training(epochs=30, lr=3e-3, batch_size=128), pool=1),
    ),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Measure the toy and every architecture, for each seed."""
    table, toys, unconverged = Table(), [], 0
    for found, shown in runner.each("toy", zip(seeds), partial(toy, settings.toy)):
        table.append(found)
        toys.append(shown)
    names = settings.images.names
    jobs = list(product(names, seeds))
    each = runner.each("architectures", jobs, partial(images, settings.images))
    losses: dict[tuple[str, str], list[Tensor]] = {}
    for (name, _), (scores, by_image, stopped) in zip(jobs, each, strict=True):
        table.add(name, scores | {column: float(values.mean()) for column, values in by_image.items()})
        for column, values in by_image.items():
            losses.setdefault((name, column), []).append(values)
        unconverged += stopped
    for column in dict.fromkeys(column for _, column in losses):
        by_seed = zip(*(losses[name, column] for name in names), strict=True)
        losses[MEAN, column] = [torch.stack(each).mean(0) for each in by_seed]
    return Findings(
        table.numbers(printed=PRINTED),
        claims(table, names, unconverged),
        {
            "grid": GRID.flatten().tolist(),
            "truth": truth(GRID).flatten().tolist(),
            "points": toys[0]["points"],
            "bands": toys[0]["bands"],
            "scales": list(settings.toy.scales),
            "deviation": {name: [each["deviation"][name] for each in toys] for name in (SINGLE, MULTIPLE)},
            "nll": {name: {", ".join(way): table.mean(name, nll(*way)) for way in MORE} for name in names},
            "map": {name: table.mean(name, ALONE) for name in names},
            paired.ERRORS: errors_of_differences(losses),
        },
    )


def errors_of_differences(losses: Mapping[tuple[str, str], Sequence[Tensor]]) -> dict[str, float]:
    """Return the errors over test images of all differences of two columns, by their names."""
    names, columns = (list(dict.fromkeys(keys)) for keys in zip(*losses, strict=True))
    return {
        paired.columns_of(name, *pair): float(f"{paired.difference_error(*(losses[name, c] for c in pair)):.3g}")
        for name, pair in product(names, permutations(columns, 2))
    }


def truth(x: Tensor) -> Tensor:
    """Return the function of which the data are noisy values."""
    return x - 0.1 * x**2 + torch.cos(torch.pi * x / 2)


def noisy(x: Float[Tensor, "N 1"], generator: torch.Generator) -> Float[Tensor, "N 1"]:
    """Draw targets at given inputs."""
    return truth(x) + NOISE * torch.randn(x.shape, generator=generator, dtype=torch.double)


def drawn(points: int, generator: torch.Generator) -> tuple[Float[Tensor, "N 1"], Float[Tensor, "N 1"]]:
    """Draw inputs in the clusters, and targets."""
    u = torch.rand(points, 1, generator=generator, dtype=torch.double).tensor_split(len(CLUSTERS))
    x = torch.cat([low + (high - low) * part for part, (low, high) in zip(u, CLUSTERS, strict=True)])
    return x, noisy(x, generator)


def trained(settings: Toy, x: Tensor, y: Tensor) -> nn.Sequential:
    """Train a network by stochastic gradient descent, which ends near no mode."""
    h = settings.hidden
    layers = (nn.Linear(1, h), nn.BatchNorm1d(h), nn.ReLU(), nn.Linear(h, h), nn.BatchNorm1d(h), nn.ReLU())
    model = nn.Sequential(*layers, nn.Linear(h, 1)).double()
    optimiser = torch.optim.SGD(model.parameters(), settings.lr, momentum=0.9, weight_decay=DECAY)
    for _ in range(settings.epochs):
        for rows in torch.randperm(len(x)).split(BATCH):
            if len(rows) > 1:
                optimiser.zero_grad()
                F.mse_loss(model(x[rows]), y[rows]).backward()
                optimiser.step()
    return model.eval()


def rescaled(model: nn.Sequential, factor: float) -> nn.Sequential:
    """Return the same function with the weights and biases of normalised layers, and their statistics, multiplied."""
    other = deepcopy(model)
    with torch.no_grad():
        for layer, norm in zip(other, list(other)[1:], strict=False):
            if isinstance(layer, nn.Linear) and isinstance(norm, nn.BatchNorm1d):
                layer.weight.mul_(factor)
                layer.bias.mul_(factor)
                assert norm.running_mean is not None
                assert norm.running_var is not None
                norm.running_mean.mul_(factor)
                norm.running_var.add_(norm.eps).mul_(factor**2).sub_(norm.eps)
    return other


def tuned(model: nn.Module, x: Tensor, y: Tensor, kind: str, mode: str) -> osc.posteriors.Gaussian:
    """Tune precisions and noise to many digits by the evidence at one of the modes."""
    prior = osc.priors.Isotropic(1.0) if kind == SINGLE else osc.priors.Grouped.normalised(model, x[:8])
    q = osc.laplace(model, osc.likelihoods.Gaussian(NOISE), (x, y), structure="dual", prior=prior, refine=False)
    if mode == NETWORK:
        return osc.maximise_evidence(q)
    return osc.maximise_evidence(q, mode="linear", data=(x, y), tolerance=1e-5)


def toy(settings: Toy, seed: int) -> tuple[dict[tuple[str, str], float], dict[str, Any]]:
    """Train one network, and tune its posterior in every way; return the numbers and the curves of the figure."""
    generator = torch.Generator().manual_seed(seed)
    x, y = drawn(settings.points, generator)
    new = noisy(GRID, generator)
    with seeded(seed):
        model = trained(settings, x, y)
    q = {(mode, prior): tuned(model, x, y, prior, mode) for prior in (SINGLE, MULTIPLE) for mode in (NETWORK, LINEAR)}
    deviation: dict[str, list[float]] = {SINGLE: [], MULTIPLE: []}
    for prior, values in deviation.items():
        for factor in settings.scales:
            other = tuned(rescaled(model, factor), x, y, prior, LINEAR)
            values.append(float(osc.functional_variance(other, GRID).sqrt().mean()))
    found = {}
    for mode, prior in WAYS:
        each, row = q[mode, prior], toy_row(mode, prior)
        if prior == SINGLE:
            found[row, VARIANCE] = float(1 / each.prior.precision)
        assert isinstance(each.likelihood, osc.likelihoods.Gaussian)
        found[row, NOISE_SCALE] = float(each.likelihood.scale)
        found[row, LIKELIHOOD] = float(osc.predict(each, GRID).log_prob(new).mean())
        if mode == LINEAR:
            found[row, change(settings)] = relative_change(deviation[prior])
    shown = {f"λ = {value:g}": q[LINEAR, SINGLE].replace(prior=osc.priors.Isotropic(value)) for value in settings.shown}
    shown |= {f"largest evidence at {mode}": q[mode, SINGLE] for mode in (NETWORK, LINEAR)}
    bands = {}
    for name, each in shown.items():
        y_new = osc.predict(each, GRID)
        curves = {"mean": y_new.mean, "sd": y_new.variance.sqrt()}
        bands[name] = {key: [float(f"{v:.4g}") for v in curve.flatten().tolist()] for key, curve in curves.items()}
    points = {"x": x.flatten().tolist(), "y": y.flatten().tolist()}
    return found, {"points": points, "bands": bands, "deviation": deviation}


def relative_change(values: Sequence[float]) -> float:
    """Return the range of numbers, relative to their mean."""
    return (max(values) - min(values)) / (sum(values) / len(values))


def prior_of(model: nn.Module, x: Inputs, kind: str) -> osc.priors.Prior:
    """Return one precision; or one for each normalised group, and without normalisation one for each layer."""
    if kind == SINGLE:
        return osc.priors.Isotropic(1.0)
    grouped = osc.priors.Grouped.normalised(model, x)
    if len(grouped.groups) > 1:
        return grouped
    layers = dict.fromkeys(name.rpartition(".")[0] for name, _ in model.named_parameters())
    large = [name for name in layers if any(p.ndim > 1 for p in model.get_submodule(name).parameters(recurse=False))]
    rest = [name for name in layers if name not in large]
    return osc.priors.Grouped({**{name: [name] for name in large}, **({"biases and scales": rest} if rest else {})})


class Shifted(nn.Module):
    """A network with constants added to its outputs, which change the curvature of its likelihood and no Jacobian.

    Args:
        network: The network.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return the outputs for the inputs "x", with "shift" added."""
        outputs: Tensor = self.network(inputs["x"]) + inputs["shift"]
        return outputs


def changes(
    q: osc.posteriors.Gaussian, theta: Float[Tensor, " P"], inputs: Mapping[str, Tensor], rows: int = 250
) -> Float[Tensor, "N C"]:
    """Return J(x) (θ − θ̃): what the linear model with parameters θ adds to the outputs of the network."""
    apart = (theta - q.network.mean).unsqueeze(0)
    parts = zip(*(values.split(rows) for values in inputs.values()), strict=True)
    each = (dict(zip(inputs, part, strict=True)) for part in parts)
    return torch.cat([Linearisation(q.network, part).jvp(apart)[0] for part in each]).detach()


def with_own_curvature(
    q: osc.posteriors.Gaussian, wrapped: Shifted, inputs: Mapping[str, Tensor], y: Tensor, solver: osc.evidence.Newton
) -> osc.posteriors.Gaussian:
    """Return the posterior with the curvature of the likelihood at the mode of the linear model.

    Mode, curvature and precisions of largest evidence are found one after the other, :data:`ROUNDS` times.

    Args:
        q: The posterior with the curvature at the outputs of the network, and the precisions to begin with.
        wrapped: The network.
        inputs: Inputs of its data, with shift zero.
        y: Their classes.
        solver: Finds the mode.
    """
    tuned, theta = q, None
    for _ in range(ROUNDS):
        theta = osc.evidence.linear_mode(q.replace(prior=tuned.prior), (inputs, y), solver, theta)
        there = {"x": inputs["x"], "shift": changes(q, theta, inputs)}
        fitted = osc.laplace(wrapped, q.likelihood, (there, y), prior=tuned.prior, refine=False)
        tuned = osc.maximise_evidence(fitted, theta, data=(inputs, y))
    return tuned


def images(settings: Images, name: str, seed: int) -> tuple[dict[str, float], dict[str, Tensor], int]:
    """Train one network, and tune its KFAC posterior in every way with one pass over the data.

    Returns:
        The scores by column, negative log likelihoods of each test image by column, and the number of evidences that
        did not meet the tolerance.
    """
    data = osc.data.load(settings.data, train_size=settings.train_size, seed=seed)
    (x, y), (x_test, y_test) = data.train, (part[: settings.test_size] for part in data.test)
    likelihood = osc.likelihoods.Categorical()
    with seeded(seed):
        model = ARCHITECTURES[name](x.shape[-1], settings.pool)
    method = osc.methods.MAP(model, likelihood, PRECISION)
    train(method, (x, y), settings=settings.training.changed(seed=seed))
    wrapped, inputs, inputs_test = Shifted(model.eval()), unshifted(x, data.outputs), unshifted(x_test, data.outputs)
    start = osc.laplace(wrapped, likelihood, (inputs, y), prior=1.0, refine=False)
    q, unconverged = {}, 0
    solver = osc.evidence.Newton(forcing=0.3)  # rougher steps, of which a few more are needed
    for kind in (SINGLE, MULTIPLE):
        first = {key: values[:8] for key, values in inputs.items()}
        q[NETWORK, kind] = osc.maximise_evidence(start.replace(prior=prior_of(wrapped, first, kind)))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            how: dict[str, Any] = {"data": (inputs, y), "tolerance": settings.tolerance, "solver": solver}
            q[LINEAR, kind] = osc.maximise_evidence(q[NETWORK, kind], mode="linear", **how)
        unconverged += any("has not converged" in str(each.message) for each in caught)
        q[FULL, kind] = with_own_curvature(q[LINEAR, kind], wrapped, inputs, y, solver)
    by_image = {nll(*way): -osc.predict(q[way], inputs_test).log_prob(y_test).double() for way in MORE}
    with torch.no_grad():
        by_image[ALONE] = -likelihood.log_prob(model(x_test), y_test).double()
    found = {}
    parameters = sum(p.numel() for p in model.parameters())
    for mode in (LINEAR, FULL, NETWORK):
        gamma = sum(osc.evidence.effective_parameters(q[mode, SINGLE]).values())
        found[f"γ/P, {mode}, {SINGLE}, %"] = 100 * gamma / parameters
    return found, by_image, unconverged


def unshifted(x: Tensor, outputs: int) -> dict[str, Tensor]:
    """Return inputs of a shifted network whose shift is zero."""
    return {"x": x, "shift": torch.zeros(len(x), outputs)}


def claims(table: Table, names: Sequence[str], unconverged: int) -> Iterator[Claim]:
    """Yield the claims that need words, from means and the number of searches that missed their tolerance."""
    yield Claim.over_seeds(
        "recommendation 1 on the toy", "The likelihood is that of new data between the clusters and beyond."
    )
    yield Claim.over_seeds("scale of the linearisation point", "The running statistics are rescaled with the weights.")
    worse = [
        f"{name}, {prior}"
        for name, prior in product(names, (SINGLE, MULTIPLE))
        if table.mean(name, nll(LINEAR, prior)) > table.mean(name, nll(NETWORK, prior))
    ]
    yield Claim.over_seeds(
        "evidence at θ* and at θ̃",
        f"The NLL at θ* is higher in {'; '.join(worse) or 'no case'}. {unconverged} of the searches at θ* ended before "
        "the tolerance was met.",
    )
    yield Claim.over_seeds("posterior and network alone", "The document prints no row for the network alone.")


@measure.figure
def draw(record: Record) -> Any:
    """Draw predictives for several precisions and those of largest evidence; scales; architectures."""
    from experiments.linlap import figures

    data, means = record.findings.data, record.means
    # of all seeds, also in a record that has grown
    losses = {name: {", ".join(way): means[name, nll(*way)] for way in WAYS} for name in data["nll"]}
    alone = {name: means[name, ALONE] for name in losses}
    return figures.adapted({**data, "nll": losses, "map": alone, "seeds": len(record.setup.seeds)})
