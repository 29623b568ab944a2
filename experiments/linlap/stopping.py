"""Distance of the error bars by the evidence at θ̃ and at θ* while a network trains: Figure 5 of section 6."""

import tempfile
import warnings
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import osculate as osc
from experiments import Claim, Findings, Record, Runner, Table, experiment, seeded, train
from experiments.linlap.adapted import ARCHITECTURES, LINEAR, NETWORK, PRECISION, Images

DISTANCE, RELATIVE = "Wasserstein distance of the logits", "the same over their standard deviation at θ*"
NLL = "NLL of the network"
BEST, LAST = "at the best epoch", "at the last epoch"


@dataclass(frozen=True)
class Settings:
    """A network that is looked at while it trains.

    Args:
        images: Data and training; the first architecture counts.
        epochs: Numbers of epochs at which both evidences are taken, ascending.
    """

    images: Images = Images(names=("CNN",), train_size=1000)
    epochs: tuple[int, ...] = (1, 3, 10, 30, 100, 300, 1000)


@experiment(
    "linlap-stopping",
    "Error bars by the evidence at the network's parameters and at the linear mode, as training goes on",
    "Linearised Laplace tutorial, section 6 [antoran2022], Figure 5",
    paper=Settings(Images(names=("ResNet",), train_size=58_000, test_size=10_000, pool=1)),
)
def measure(settings: Settings, seeds: Sequence[int], runner: Runner) -> Findings:
    """Train, and compare both predictives at each number of epochs; validation images say when to stop."""
    table, curves = Table(), list[dict[str, list[float]]]()
    for course in runner.each("networks", zip(seeds), partial(courses, settings)):
        stop = course[NLL].index(min(course[NLL]))
        for column in (DISTANCE, RELATIVE, NLL):
            table.append({(BEST, column): course[column][stop], (LAST, column): course[column][-1]})
        table.append({(BEST, "epoch"): float(settings.epochs[stop])})
        curves.append(course)
    return Findings(table.numbers(), tuple(claims(table)), {"epochs": list(settings.epochs), "courses": curves})


def claims(table: Table) -> Iterator[Claim]:
    """Yield what the relative distance does not tell."""
    best, last = (table[place, DISTANCE] for place in (BEST, LAST))
    down = sum(after < before for before, after in zip(best, last, strict=True))
    yield Claim.over_seeds(
        "Distances as training goes on",
        f"Not divided, their distance goes from {table.mean(BEST, DISTANCE):.2f} to {table.mean(LAST, DISTANCE):.2f} "
        f"on average, down in {down} of {len(best)} seeds. Of the few epochs that were looked at, validation images "
        "choose the best.",
    )


def courses(settings: Settings, seed: int) -> dict[str, list[float]]:
    """Return distances on test images, and the network's NLL on validation images, at each number of epochs."""
    wanted = settings.images
    data = osc.data.load(wanted.data, train_size=wanted.train_size, seed=seed)
    x_test, (x_held_out, y_held_out) = data.test[0][: wanted.test_size], data.validation
    likelihood = osc.likelihoods.Categorical()
    with seeded(seed):
        model = ARCHITECTURES[wanted.names[0]](x_test.shape[-1], wanted.pool)
    found: dict[str, list[float]] = {DISTANCE: [], RELATIVE: [], NLL: []}
    method = osc.methods.MAP(model, likelihood, PRECISION)
    with tempfile.TemporaryDirectory() as folder:
        for epochs in settings.epochs:
            how: dict[str, Any] = {"epochs": epochs, "schedule": "constant", "seed": seed, **_rate(wanted)}
            train(method, data.train, **how, folder=folder, resume=epochs != settings.epochs[0])
            deviations = of_both(deepcopy(model).eval(), data.train, x_test, wanted)
            apart = (deviations[NETWORK] - deviations[LINEAR]).square().mean().sqrt()
            found[DISTANCE].append(float(apart))
            found[RELATIVE].append(float(apart / deviations[LINEAR].square().mean().sqrt()))
            with torch.no_grad():
                found[NLL].append(-float(likelihood.log_prob(model.eval()(x_held_out), y_held_out).mean()))
    return found


def _rate(images: Images) -> dict[str, Any]:
    return {name: getattr(images.training, name) for name in ("lr", "batch_size")}


def of_both(model: nn.Module, data: tuple[Tensor, Tensor], x_test: Tensor, images: Images) -> Mapping[str, Tensor]:
    """Return the standard deviations of the logits with one precision by the evidence at each place.

    Both have one mean, so that the distance of two Gaussian logits is the difference of their standard deviations.
    """
    q = osc.laplace(model, osc.likelihoods.Categorical(), data, prior=1.0, refine=False)
    own = osc.maximise_evidence(q)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # after an epoch the mode of the linear model is far
        solver = osc.evidence.Newton(forcing=0.3)
        linear = osc.maximise_evidence(own, mode="linear", data=data, tolerance=images.tolerance, solver=solver)
    return {
        place: osc.functional_variance(each, x_test, diagonal=True).sqrt()
        for place, each in ((NETWORK, own), (LINEAR, linear))
    }


@measure.figure
def draw(record: Record) -> Any:
    """Draw distance and NLL against epochs, a line for each seed."""
    from experiments.figures import against

    data = record.findings.data
    titles = {RELATIVE: "distance of their σ, relative to that at θ*", NLL: "NLL of the network, validation images"}
    panels = {title: {"CNN": [course[name] for course in data["courses"]]} for name, title in titles.items()}
    heading = "Error bars by the evidence at the network's parameters and at the linear mode, as a network trains"
    return against("epochs", [float(value) for value in data["epochs"]], panels, heading)
