"""The cost of a training step: variational Laplace and other methods in steps of MAP."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product
from multiprocessing import get_context
from statistics import median
from typing import Any

import torch
from torch import nn

from experiments import Claim, Findings, Record, Runner, Table, experiment, seeded
from experiments.vl import cells
from experiments.vl.cells import EVERY, LABEL, LAPLACE, LEARNED, LIKELIHOOD, MAXIMUM, NATURAL, VARIATIONAL
from osculate import networks
from osculate.methods import MAP, VOGN, MeanFieldVI, Method
from osculate.methods.variational_laplace import EXACT
from osculate.priors import fan_in

CPU = torch.device("cpu")
PIXELS, COLOURED, CLASSES = (1, 28, 28), (3, 32, 32), 10
WEIGHTS, EXAMPLES, DRAWN = "VI, drawn weights", "VOGN", f"{LABEL}, every step"
#: Methods by name: those of the other experiments, and more.
METHODS: Mapping[str, Callable[[nn.Module], Method]] = {
    MAXIMUM: lambda model: MAP(model, LIKELIHOOD, fan_in(model)),
    LAPLACE: cells.METHODS[LAPLACE],
    EVERY: cells.METHODS[EVERY],
    DRAWN: lambda model: cells.METHODS[LABEL](model, settings=EXACT),
    LEARNED: cells.METHODS[LEARNED],
    VARIATIONAL: cells.METHODS[VARIATIONAL],
    WEIGHTS: lambda model: MeanFieldVI(model, LIKELIHOOD, local=False),
    NATURAL: cells.METHODS[NATURAL],
    EXAMPLES: lambda model: VOGN(model, LIKELIHOOD),
}


def _three_convolutions() -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in ((1, 16), (16, 32), (32, 32)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.Softplus(), nn.AvgPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 9, CLASSES))


#: The document's network, and a smaller convolutional one.
PUBLISHED, SMALL = "PreAct ResNet-18", "three convolutions"
#: Networks with second derivatives, and the shapes of their images.
NETWORKS: Mapping[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "MLP": (lambda: networks.build("mlp", PIXELS, CLASSES, hidden=(500, 500), activation="softplus"), PIXELS),
    "LeNet": (lambda: networks.build("lenet", PIXELS, CLASSES, activation="sharp_softplus"), PIXELS),
    SMALL: (_three_convolutions, PIXELS),
    PUBLISHED: (lambda: networks.build("preact_resnet", COLOURED, CLASSES, activation="softplus"), COLOURED),
}
COST, SECONDS = "steps of MAP", "s an epoch"
#: Seconds of an epoch in the document, with its network.
PRINTED = {DRAWN: "114.9", VARIATIONAL: "43.2", MAXIMUM: "41.8"}


@dataclass(frozen=True)
class Settings:
    """Methods in turn, in CPU time of the process, or in seconds on an accelerator.

    Args:
        networks: Names of the networks.
        methods: Names of the methods.
        batch_size: Batch size.
        images: Images in an epoch.
        steps: Steps in one measurement.
        repeats: Repetitions of all measurements; the median counts.
        device: Device; "auto" for an accelerator where there is one.
    """

    networks: tuple[str, ...] = ("MLP", "LeNet", SMALL)
    methods: tuple[str, ...] = tuple(METHODS)
    batch_size: int = 128
    images: int = 12_000
    steps: int = 8
    repeats: int = 5
    device: str = "cpu"


@experiment(
    "vl-table2",
    "Time of a step of variational Laplace",
    "Variational Laplace [unlu2021], Table 2",
    paper=Settings((PUBLISHED,), images=50_000, repeats=25, device="auto"),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Time every method on every network; seeds are rounds, each in a process of its own.

    The convolutions of one process can take half as long again as those of the next, and so can the ratio of two
    methods; within a process it stays.
    """
    table = Table()
    for network, _ in runner.track(list(product(settings.networks, seeds)), "networks and rounds"):
        threads = torch.set_num_threads, (torch.get_num_threads(),)
        with ProcessPoolExecutor(1, get_context("spawn"), *threads) as process:
            cost = process.submit(round_of, network, settings).result()
        for method, seconds in cost.items():
            epoch = seconds * settings.images / settings.batch_size
            table.add(f"{network}: {method}", {COST: seconds / cost[MAXIMUM], SECONDS: epoch})
    printed = {(f"{PUBLISHED}: {method}", SECONDS): value for method, value in PRINTED.items()}
    return Findings(table.numbers(printed=printed), claims())


def round_of(network: str, settings: Settings) -> dict[str, float]:
    """Return the seconds of a step of each method; a first step of each pays for memory and kernels."""
    device = torch.device("cpu" if settings.device == "auto" else settings.device)
    if settings.device == "auto":
        device = torch.accelerator.current_accelerator() or device
    work = {m: stepping(network, m, settings.batch_size, settings.images, device) for m in settings.methods}
    with seeded(0):
        for step in work.values():
            step()
        return _costs(work, settings, device)


def stepping(
    network: str, method: str, batch_size: int, images: int, device: torch.device = CPU, lr: float = 1e-3
) -> Callable[[], None]:
    """Return a function that trains for one step, always on the same batch, without the loop around it.

    Args:
        network: A key of :data:`NETWORKS`.
        method: A key of :data:`METHODS`.
        batch_size: Batch size.
        images: Number of all training data.
        device: Device of network and batch.
        lr: Learning rate.
    """
    make, shape = NETWORKS[network]
    with seeded(0):
        model, x = make().to(device), torch.rand(batch_size, *shape).to(device)
        y = torch.randint(CLASSES, (batch_size,)).to(device)
    made = METHODS[method](model).to(device).train()
    made.prepare([(x, y)])
    optimizer = made.optimizer(lambda groups, rate: torch.optim.Adam(groups, rate), lr)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = made.loss(x, y, images)
        loss.backward()
        return loss

    def step() -> None:
        optimizer.step(closure)

    return step


def _costs(work: Mapping[str, Callable[[], None]], settings: Settings, device: torch.device) -> dict[str, float]:
    """Return the seconds of a step of each method: medians over repetitions in turn."""

    def now() -> float:
        if device.type == "cpu":
            return time.process_time()
        torch.accelerator.synchronize()
        return time.perf_counter()

    each: dict[str, list[float]] = {method: [] for method in work}
    for _ in range(settings.repeats):
        for method, step in work.items():
            start = now()
            for _ in range(settings.steps):
                step()
            each[method].append((now() - start) / settings.steps)
    return {method: median(values) for method, values in each.items()}


def claims() -> Iterator[Claim]:
    """Yield the claim whose numbers need words."""
    yield Claim.over_seeds(
        "Steps of VL and VI",
        "In the document VL takes 2.75 steps of MAP, and VI, with noise on the weights, 1.03. Noise on the outputs of "
        "layers takes more.",
    )


@measure.figure
def draw(record: Record) -> Any:
    """Draw one panel per network, with the cost of each method."""
    from experiments.figures import method_scores

    return method_scores(record.findings.numbers, (COST,), "Cost of a training step, in steps of MAP")
