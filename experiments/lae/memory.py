"""The cost of a step of online training of an autoencoder of images: memory and time against the resolution."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from experiments import Claim, Findings, Number, Record, Runner, experiment, seeded, word
from experiments.cost import Curve, Limits, sweep
from osculate.autoencoders import Autoencoder
from osculate.data.files import find, read_npz
from osculate.likelihoods import Gaussian
from osculate.methods import MAP, OnlineLaplace
from osculate.networks import conv_coders


@dataclass(frozen=True)
class Faces:
    """A short training on faces of 64 × 64 pixels, where CelebA is at hand.

    Args:
        images: Number of training images.
        batch: Images in a batch.
        epochs: Passes over the images.
        lr: Learning rate of Adam.
        scale: Noise scale, in units of the brightness.
    """

    images: int = 1000
    batch: int = 32
    epochs: int = 8
    lr: float = 2e-3
    scale: float = 0.25


@dataclass(frozen=True)
class Settings:
    """Networks and sizes.

    Args:
        sides: Side lengths of the images in pixels.
        batch: Images in the batch.
        latent: Size of a code.
        width: Channels of the first convolution.
        depth: Number of times that the resolution is halved.
        limits: Limits of a curve.
        faces: Training on real images.
    """

    sides: tuple[int, ...] = (64, 96, 128)
    batch: int = 16
    latent: int = 32
    width: int = 16
    depth: int = 4
    limits: Limits = Limits(seconds=30.0, gigabytes=6.0)
    faces: Faces = Faces()


ONLINE, PLAIN = "online", "MAP"
#: Networks by name: with residual blocks or without.
NETWORKS = {"convolutions": False, "residual": True}
ROWS = {f"{method}, {kind}": (method, residual) for kind, residual in NETWORKS.items() for method in (ONLINE, PLAIN)}
TIME_POWER, MEMORY_POWER = "time, power of the pixels", "memory, power of the pixels"
SECONDS, PEAK, STATE = "CPU seconds at the largest", "peak MB at the largest", "state MB at the largest"
TIME_RATIO, MEMORY_RATIO = "time, in plain steps", "memory, in plain steps"
TIME_DRIFT, MEMORY_DRIFT = "change of the time in plain steps", "change of the memory in plain steps"
#: The copy that is looked for, and what it has to hold.
ARCHIVE = "celeba64/celeba64_train.npz"
CONTENT = "an .npz archive with X (n, 64, 64, 3); the terms of CelebA allow non-commercial research only"


class Step:
    """One step of Adam on one batch, as a function without arguments.

    Args:
        method: The method.
        x: Images, which are their own targets.
        num_data: N of the loss.
        lr: Learning rate.
    """

    def __init__(self, method: MAP | OnlineLaplace, x: Tensor, num_data: int, lr: float = 1e-3) -> None:
        self.method, self.x, self.num_data = method, x, num_data
        self.optimizer = torch.optim.Adam(method.model.parameters(), lr)
        method.prepare([(x, x)])

    def __call__(self) -> float:
        """Take the step, and return the loss before it."""
        loss = self.method.loss(self.x, self.x, self.num_data)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()

    @property
    def state_bytes(self) -> int:
        """Bytes that live between steps: weights, their copies and averages, and moments of the gradient."""
        kept = [*self.method.parameters(), *self.method.buffers()]
        kept += [value for state in self.optimizer.state.values() for value in state.values() if torch.is_tensor(value)]
        return sum(each.numel() * each.itemsize for each in {id(each): each for each in kept}.values())


def method_of(name: str, side: int, settings: Settings, scale: float = 1.0) -> MAP | OnlineLaplace:
    """Return the training method of an autoencoder of images of this size.

    Args:
        name: Name of the row.
        side: Side length of the images in pixels.
        settings: Settings of the network.
        scale: Noise scale.
    """
    way, residual = ROWS[name]
    coders = conv_coders((3, side, side), settings.latent, settings.width, settings.depth, residual=residual)
    return (OnlineLaplace if way == ONLINE else MAP)(Autoencoder(*coders), Gaussian(scale))


@experiment(
    "lae-memory",
    "Memory and time of online training against the image resolution",
    "Laplacian Autoencoders [miani2022], linear scaling of the online training, Section 4",
    paper=Settings(
        batch=32,
        width=64,
        limits=Limits(seconds=300.0, gigabytes=11.0),
        faces=Faces(images=4000, batch=64, epochs=30),
    ),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Time and memory of a step of each method at each size, and a short training on faces."""
    sides = {side**2: side for side in settings.sides}

    def make(name: str, pixels: int, seed: int) -> Step:
        with seeded(seed):
            x = torch.rand(settings.batch, 3, sides[pixels], sides[pixels])
            step = Step(method_of(name, sides[pixels], settings), x, 1000)
            step()  # the first of them also sets up averages and moments
        return step

    labels = {f"{side}²": pixels for pixels, side in sides.items()}
    with seeded(0):
        curves = sweep(make, ROWS, labels, seeds, settings.limits, runner.progress)
        states = {name: make(name, curve.sizes[-1], 0).state_bytes for name, curve in curves.items() if curve.sizes}
    losses = {f"{seed}": train(settings, seed, runner) for seed in seeds}
    return conclude(curves, states, losses, settings)


def train(settings: Settings, seed: int, runner: Runner) -> list[float]:
    """Return the mean loss of each epoch of online training on faces, per pixel value; nothing without CelebA."""
    faces = settings.faces
    try:
        path = find(ARCHIVE, describe=CONTENT)
    except FileNotFoundError:
        return []
    x = torch.from_numpy(read_npz(path, "X")[0][: faces.images]).permute(0, 3, 1, 2).float() / 255
    with seeded(seed):
        method = method_of(f"{ONLINE}, convolutions", x.shape[-1], settings, faces.scale)
        step, found = Step(method, x[: faces.batch], len(x), faces.lr), []
        for _ in runner.track(range(faces.epochs), "training on faces"):
            losses = []
            for rows in torch.randperm(len(x)).split(faces.batch):
                step.x = x[rows]
                losses.append(step() / x[0].numel())
            found.append(math.fsum(losses) / len(losses))
    return found


def conclude(
    curves: Mapping[str, Curve], states: Mapping[str, int], losses: Mapping[str, list[float]], settings: Settings
) -> Findings:
    """Return exponents, costs in steps of MAP, and the claims.

    Args:
        curves: Curves by row.
        states: Bytes that live between steps at the largest size, by row.
        losses: Mean losses of the epochs of training on faces, by seed.
        settings: Settings of the measurement.
    """
    numbers = [number for name in curves for number in costs(name, curves, states)]
    trained = [each for each in losses.values() if each]
    for column, at in (("loss of the first epoch, nats", 0), ("loss of the last epoch, nats", -1)):
        numbers.append(Number("faces, 64²", column, tuple(each[at] for each in trained)))
    data = {
        "curves": {name: curve.plain() for name, curve in curves.items()},
        "losses": dict(losses),
        "absent": [] if trained else ["CelebA at 64 × 64 is not here"],
    }
    found = {(number.row, number.column): number.mean for number in numbers}
    return Findings(tuple(numbers), claims(found, trained, settings), data)


def costs(name: str, curves: Mapping[str, Curve], states: Mapping[str, int]) -> list[Number]:
    """Return a row of the table, with the costs of online training in plain steps."""
    curve = curves[name]
    way, kind = name.split(", ")
    numbers = [
        Number(name, TIME_POWER, curve.time_exponents()),
        Number(name, MEMORY_POWER, curve.memory_exponent(), "linear" if way == ONLINE else ""),
        Number(name, SECONDS, tuple(curve.seconds[-1]) if curve.sizes else ()),
        Number(name, PEAK, tuple(size / 1e6 for size in curve.peak_bytes[-1:])),
        Number(name, STATE, (states[name] / 1e6,) if name in states else ()),
    ]
    plain = curves.get(f"{PLAIN}, {kind}")
    if way == PLAIN or plain is None or plain.sizes != curve.sizes or not curve.sizes:
        return numbers
    ratios, drifts = [], []
    mine, theirs = ([[float(size)] for size in each.peak_bytes] for each in (curve, plain))
    for ours, others, ratio, drift in (
        (curve.seconds, plain.seconds, TIME_RATIO, TIME_DRIFT),
        (mine, theirs, MEMORY_RATIO, MEMORY_DRIFT),
    ):
        first, last = ([a / b for a, b in zip(ours[at], others[at], strict=True)] for at in (0, -1))
        ratios.append(Number(name, ratio, tuple(last)))
        drifts.append(Number(name, drift, tuple(b / a for a, b in zip(first, last, strict=True))))
    return [*numbers, *ratios, *drifts]


def claims(
    found: Mapping[tuple[str, str], float | None], trained: Sequence[Sequence[float]], settings: Settings
) -> Iterator[Claim]:
    """Yield the claims whose numbers need words, from the means by row and column and the losses of each training."""
    if trained:
        first, last = (sum(each[at] for each in trained) / len(trained) for at in (0, -1))
        course = (
            f"The loss of {settings.faces.images} faces of CelebA went from {first:.3f} in the first epoch to "
            f"{last:.3f} nats per number in epoch {settings.faces.epochs}, as a mean over drawn networks."
        )
    else:
        course = f"The images are not here: {ARCHIVE}, {CONTENT}."
    state = {name: found.get((name, STATE)) for name, (way, _) in ROWS.items() if way == ONLINE}
    living = ", ".join(f"{word(value, '.1f', '?')} MB ({name.split(', ')[1]})" for name, value in state.items())
    yield Claim.over_seeds(
        "Memory of a step",
        f"The peak of what a step allocates for {settings.batch} colour images; beside it live {living} at the largest "
        "size.",
    )
    yield Claim.over_seeds(
        "Time of a step",
        "What is done once a weight, such as its noise and the step of Adam, weighs more in small images.",
    )
    yield Claim.judged(
        "Training on colour images",
        all(each[-1] < each[0] for each in trained) if trained else None,
        course,
    )


@measure.figure
def draw(record: Record) -> Any:
    """Memory and time of a step against the pixels of an image."""
    from experiments.lae import figures

    curves, batch = record.findings.data["curves"], record.setup.settings["batch"]
    panels = {kind: (kind, curves) for kind in ("memory", "time")}
    return figures.costs(panels, f"Cost of one training step: {batch} colour images")
