"""Figure 5 of the Laplacian autoencoder: approximations of one small Hessian beside the true one, with their errors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

import osculate as osc
from experiments import Claim, Findings, Record, Runner, Table, experiment, seeded, train
from osculate.curvature import reference


@dataclass(frozen=True)
class Settings:
    """The network whose Hessian is approximated, and its training on images of digits (8 × 8 pixels).

    Args:
        width: Channels of the convolutions.
        latent: Units of the bottleneck.
        train_size: Number of training images.
        images: Number of these that the Hessian sums over.
        epochs: Passes over the training images.
        lr: Learning rate.
        noise: Scale of the Gaussian likelihood; it scales every matrix alike.
    """

    width: int = 2
    latent: int = 2
    train_size: int = 1000
    images: int = 200
    epochs: int = 40
    lr: float = 1e-2
    noise: float = 0.2


#: Structures by row.
ROWS: dict[str, str | osc.structures.Structure] = {name: name for name in ("block", "kron", "diag", "approx_diag")}
ROWS["mixed_diag"] = osc.structures.MixedDiag(bottleneck="encoder")
ERROR, DIAGONAL = "error against the GGN", "error of the diagonal"
LOGS, MASS, KEPT = "correlation of the diagonal's logarithms", "sum of the diagonal / exact", "numbers kept"
#: Images whose dense Jacobians are held at once.
CHUNK = 5
CLAIMS = (
    Claim.over_seeds("Exact layers around the bottleneck", "Our mixed diagonal is exact in the whole encoder."),
    Claim.over_seeds("Uncorrelated features of a layer", "If they were, the approximate diagonal would be exact."),
    Claim.over_seeds("Independent layers", "The error is what blocks leave out of the matrix, in Frobenius norm."),
)


@experiment(
    "lae-figure5",
    "Approximations of one small Hessian beside the true one, with their errors",
    "Laplacian Autoencoders [miani2022], Figure 5",
    # the figure is a sketch without numbers, and has no setting of its own: longer training, all images
    paper=Settings(width=3, images=1000, epochs=200),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Train, build every matrix, and compare, for each seed."""
    table, picture = Table(), dict[str, Any]()
    for rows, shown in runner.each("networks", zip(seeds), partial(compared, settings)):
        table.extend(rows)
        picture = picture or shown
    return Findings(table.numbers(), CLAIMS, picture)


def compared(settings: Settings, seed: int) -> tuple[dict[str, dict[str, float]], dict[str, Any]]:
    """Return the errors of every matrix of one network by row, and the matrices."""
    model, x = trained(settings, seed)
    likelihood = osc.likelihoods.Gaussian(settings.noise)
    truth = sum((reference.ggn(model, likelihood, part, part) for part in x.split(CHUNK)), torch.zeros(()))
    fits = {
        name: osc.laplace(model, likelihood, (x, x), structure=rule, prior=1.0, refine=False)
        for name, rule in ROWS.items()
    }
    return {name: compare(q, truth) for name, q in fits.items()}, _picture(fits, truth)


def trained(settings: Settings, seed: int) -> tuple[nn.Module, Float[Tensor, "N 1 8 8"]]:
    """A trained autoencoder in double precision, and the images that its Hessian sums over."""
    x = osc.data.load("digits", train_size=settings.train_size, seed=seed).train[0]
    with seeded(seed):
        model = osc.networks.ConvAutoencoder((1, 8, 8), 1, latent=settings.latent, width=settings.width, depth=1)
    method = osc.methods.MAP(model, osc.likelihoods.Gaussian(settings.noise), prior=1.0)
    train(method, (x, x), epochs=settings.epochs, lr=settings.lr, batch_size=64, seed=seed)
    return model.double().eval(), x[: settings.images].double()


def compare(q: osc.posteriors.Gaussian, truth: Float[Tensor, "P P"]) -> dict[str, float]:
    """Return the errors of the matrix of a posterior, by column of the table."""
    matrix, exact = q.structure.dense(), truth.diagonal()
    diagonal = matrix.diagonal()
    # weights that no output depends on have no logarithm
    alive = (exact > 1e-12 * exact.max()) & (diagonal > 0)
    logs = torch.stack([diagonal[alive].log(), exact[alive].log()])
    return {
        ERROR: float((matrix - truth).norm() / truth.norm()),
        DIAGONAL: float((diagonal - exact).norm() / exact.norm()),
        LOGS: float(torch.corrcoef(logs)[0, 1]),
        MASS: float(diagonal.sum() / exact.sum()),
        KEPT: float(sum(tensor.numel() for tensor in q.structure.tensors().values())),
    }


def _picture(fits: Mapping[str, osc.posteriors.Gaussian], truth: Tensor) -> dict[str, Any]:
    """Return the matrices of one seed, symmetric ones as rows up to the diagonal, to three digits."""
    specs, kron = fits["block"].structure.specs, fits["kron"].structure.dense()
    ends = torch.tensor([spec.size for spec in specs]).cumsum(0).tolist()
    ranges = [slice(end - spec.size, end) for spec, end in zip(specs, ends, strict=True)]
    diagonals = ("diag", "approx_diag", "mixed_diag")
    return {
        "layers": [{"names": list(spec.names), "size": spec.size} for spec in specs],
        "ggn": _lower(truth),
        "kron": [_lower(kron[part][:, part]) for part in ranges],
        "diagonals": {name: _rounded(fits[name].structure.dense().diagonal()) for name in diagonals},
    }


def _rounded(values: Tensor) -> list[float]:
    return [float(f"{value:.2e}") for value in values.tolist()]


def _lower(matrix: Tensor) -> list[list[float]]:
    return [_rounded(row[: number + 1]) for number, row in enumerate(matrix)]


def _symmetric(rows: Sequence[Sequence[float]]) -> Tensor:
    lower = torch.zeros(len(rows), len(rows), dtype=torch.float64)
    for number, row in enumerate(rows):
        lower[number, : number + 1] = torch.tensor(row)
    return lower + lower.tril(-1).T


@measure.figure
def draw(record: Record) -> Any:
    """The true matrix and its approximations in one colour scale."""
    from osculate import plots

    data = record.findings.data
    truth = _symmetric(data["ggn"])
    sizes = [layer["size"] for layer in data["layers"]]
    blocks = torch.block_diag(*(torch.ones(size, size, dtype=torch.float64) for size in sizes))
    found = {(n.row, n.column): n for n in record.findings.numbers}
    titles = {
        "block": "block diagonal: one block per layer",
        "kron": "KFAC: a Kronecker product per layer",
        "diag": "exact diagonal",
        "approx_diag": "approximate diagonal",
        "mixed_diag": "mixed diagonal: encoder exact",
    }
    pictures = {
        "block": truth * blocks,
        "kron": torch.block_diag(*(_symmetric(rows) for rows in data["kron"])),
        **{name: torch.diag(torch.tensor(values, dtype=torch.float64)) for name, values in data["diagonals"].items()},
    }
    shown = {"true matrix (GGN)": (truth.numpy(), "error: ‖difference‖ / ‖true matrix‖")}
    for name, matrix in pictures.items():
        note = f"error {found[name, ERROR]}\nerror of its diagonal {found[name, DIAGONAL]}"
        shown[titles[name]] = (matrix.numpy(), note)
    names = [f"{layer['names'][0].rpartition('.')[0]}\n{layer['size']} weights" for layer in data["layers"]]
    heading = "The Hessian of a small autoencoder, layer by layer, and what each approximation keeps"
    return plots.matrices(shown, dict(zip(names, sizes, strict=True)), heading)
