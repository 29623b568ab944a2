"""What a step costs: variational Laplace and its rivals in steps of MAP."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import nn

from experiments import Claim, Findings, Number, Record, experiment, seeded
from experiments.vl.cells import (
    EVERY,
    LABEL,
    LAPLACE,
    LEARNED,
    LIKELIHOOD,
    MAXIMUM,
    METHODS,
    NATURAL,
    VARIATIONAL,
)
from osculate import networks
from osculate.methods import MAP, VOGN, MeanFieldVI
from osculate.methods._base import Method
from osculate.methods.variational_updates import EXACT
from osculate.priors import fan_in
from osculate.progress import track

CPU = torch.device("cpu")
PIXELS, COLOURED, CLASSES = (1, 28, 28), (3, 32, 32), 10
WEIGHTS, EXAMPLES, DRAWN = "VI, drawn weights", "VOGN", f"{LABEL}, every step"
#: Steps of each kind, of a network. Those of the experiments, and others.
STEPS: Mapping[str, Callable[[nn.Module], Method]] = {
    MAXIMUM: lambda model: MAP(model, LIKELIHOOD, fan_in(model)),
    LAPLACE: lambda model: METHODS[LAPLACE](model, 1.0),
    EVERY: lambda model: METHODS[EVERY](model, 1.0),
    DRAWN: lambda model: METHODS[LABEL](model, 1.0, settings=EXACT),
    LEARNED: lambda model: METHODS[LEARNED](model, 1.0),
    VARIATIONAL: lambda model: MeanFieldVI(model, LIKELIHOOD),
    WEIGHTS: lambda model: MeanFieldVI(model, LIKELIHOOD, local=False),
    NATURAL: lambda model: METHODS[NATURAL](model, 1.0),
    EXAMPLES: lambda model: VOGN(model, LIKELIHOOD),
}


def _three_convolutions() -> nn.Module:
    layers: list[nn.Module] = []
    for inputs, outputs in ((1, 16), (16, 32), (32, 32)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.Softplus(), nn.AvgPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 9, CLASSES))


#: The network of the document, and one that is convolutional too.
PUBLISHED, SMALL = "PreAct ResNet-18", "three convolutions"
#: Networks of the comparison, with second derivatives, and the shapes of their images.
NETWORKS: Mapping[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "MLP": (lambda: networks.build("mlp", PIXELS, CLASSES, hidden=(500, 500), activation="softplus"), PIXELS),
    "LeNet": (lambda: networks.build("lenet", PIXELS, CLASSES, activation="sharp_softplus"), PIXELS),
    SMALL: (_three_convolutions, PIXELS),
    PUBLISHED: (lambda: networks.build("preact_resnet", COLOURED, CLASSES, activation="softplus"), COLOURED),
}
COST, SECONDS = "steps of MAP", "s an epoch"
#: Seconds an epoch that the document prints.
PRINTED = {DRAWN: "114.9", VARIATIONAL: "43.2", MAXIMUM: "41.8"}


@dataclass(frozen=True)
class Settings:
    """What is measured, methods in turn: CPU time of the process, or seconds on an accelerator.

    Args:
        networks: by name.
        methods: by name.
        batch_size: images in a step.
        images: in an epoch.
        steps: in one measurement.
        repeats: of all measurements; their median counts.
        device: where; "auto" for an accelerator where there is one.
    """

    networks: tuple[str, ...] = ("MLP", "LeNet", SMALL)
    methods: tuple[str, ...] = tuple(STEPS)
    batch_size: int = 128
    images: int = 12_000
    steps: int = 8
    repeats: int = 9
    device: str = "cpu"


PRESETS = {"small": Settings(), "paper": Settings((PUBLISHED,), images=50_000, repeats=25, device="auto")}


def stepping(
    network: str, method: str, batch_size: int, images: int, device: torch.device = CPU, lr: float = 1e-3
) -> Callable[[], None]:
    """One step of training after another, always of the same batch, without what surrounds it.

    Args:
        network: a key of :data:`NETWORKS`.
        method: a key of :data:`STEPS`.
        batch_size: images in a step.
        images: of all training data.
        device: where.
        lr: learning rate.
    """
    make, shape = NETWORKS[network]
    with seeded(0):
        model, x = make().to(device), torch.rand(batch_size, *shape).to(device)
        y = torch.randint(CLASSES, (batch_size,)).to(device)
    made = STEPS[method](model).to(device).train()
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


@experiment("vl-table2", "Time of a step of variational Laplace", "Variational Laplace [unlu2021], Table 2", **PRESETS)
def measure(settings: Settings, seeds: Sequence[int], progress: bool) -> Findings:
    """The cost of every method on every network; seeds are further rounds."""
    device = _chosen(settings.device)
    found: dict[tuple[str, str], list[float]] = {}
    epochs: dict[tuple[str, str], list[float]] = {}
    for network in track(settings.networks, "networks", len(settings.networks), progress):
        work = {m: stepping(network, m, settings.batch_size, settings.images, device) for m in settings.methods}
        for round_ in (None, *seeds):
            with seeded(0):
                cost = _costs(work, settings, device)
            if round_ is None:  # the first pays for memory and kernels
                continue
            for method, seconds in cost.items():
                found.setdefault((network, method), []).append(seconds / cost[MAXIMUM])
                epochs.setdefault((network, method), []).append(seconds * settings.images / settings.batch_size)
    numbers = []
    for (network, method), values in found.items():
        printed = PRINTED.get(method, "") if network == PUBLISHED else ""
        numbers.append(Number(f"{network}: {method}", COST, tuple(values)))
        numbers.append(Number(f"{network}: {method}", SECONDS, tuple(epochs[network, method]), printed))
    return Findings(tuple(numbers), _claims(found), {})


def _costs(work: Mapping[str, Callable[[], None]], settings: Settings, device: torch.device) -> dict[str, float]:
    """Seconds of a step of each: medians over repeats in turn."""
    each: dict[str, list[float]] = {method: [] for method in work}
    for _ in range(settings.repeats):
        for method, step in work.items():
            start = _now(device)
            for _ in range(settings.steps):
                step()
            each[method].append((_now(device) - start) / settings.steps)
    return {method: median(values) for method, values in each.items()}


def _chosen(device: str) -> torch.device:
    found = torch.accelerator.current_accelerator() if device == "auto" else torch.device(device)
    return CPU if found is None else found


def _now(device: torch.device) -> float:
    """CPU seconds of the process, or seconds when an accelerator has done all that was asked of it."""
    if device.type == "cpu":
        return time.process_time()
    torch.accelerator.synchronize()
    return time.perf_counter()


def _claims(found: Mapping[tuple[str, str], Sequence[float]]) -> tuple[Claim, ...]:
    def told(method: str) -> str:
        return ", ".join(f"{network} {median(v):.2f}" for (network, m), v in found.items() if m == method)

    def most(method: str) -> float:
        return max(median(values) for (_, m), values in found.items() if m == method)

    claims = []
    like = next((network for network in (PUBLISHED, SMALL) if (network, DRAWN) in found), None)
    if like is not None and (like, VARIATIONAL) in found:
        ratio = median(found[like, DRAWN])
        claims.append(
            Claim.judged(
                "VL is about three times slower than MAP, and VI about as fast as MAP",
                2.25 <= ratio <= 3.5 and median(found[like, VARIATIONAL]) <= 1.25,
                f"steps of MAP, VL with drawn labels: {told(DRAWN)}; VI: {told(VARIATIONAL)} with noise on the outputs "
                f"of layers, {told(WEIGHTS)} with noise on weights. The document prints 2.75 and 1.03.",
            )
        )
    if any(method == LAPLACE for _, method in found):
        claims.append(
            Claim.judged(
                "With the regulariser of a quarter of the batch in every other step, VL costs at most 1.7 steps of MAP",
                most(LAPLACE) <= 1.7,
                f"{told(LAPLACE)}.",
            )
        )
    return tuple(claims)


@measure.figure
def draw(record: Record) -> Any:
    """One panel a network, a bar a method."""
    from experiments.figures import method_scores

    return method_scores(record.findings.numbers, (COST,), "What a step of training costs, in steps of MAP")
