"""A step of online Laplace training, in units of a step of ordinary training with the same optimiser."""

from collections.abc import Callable
from dataclasses import replace

import torch

import osculate as osc
from benchmarks.result import Result, row
from benchmarks.timing import Effort, Spread, peak_bytes, ratio
from osculate.autoencoders import Autoencoder
from osculate.methods import OnlineLaplace, OnlineUpdates

#: 784-512-256-2 and back, as in the published experiments.
BATCH, PIXELS, SIZE = 50, 784, 60_000
BOUND, MEMORY_BOUND = 2.2, 2.0
UNIT = "training step with Adam (squared error), same batch"
PLAIN = "plain"

#: How networks are drawn and the curvature follows.
SETTINGS = {
    "every step": OnlineUpdates(),
    "every 10 steps": OnlineUpdates(every=10),
    "from the gradient": OnlineUpdates(source="gradient"),
}


def training(method: str) -> Callable[[], None]:
    """One step after another, always of the same batch."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        x = torch.rand(BATCH, PIXELS)
        model = Autoencoder(*osc.networks.mlp_coders((PIXELS,)))
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    if method == PLAIN:
        loss = lambda: 0.5 * (model(x) - x).square().sum() / BATCH  # noqa: E731
    else:
        made = OnlineLaplace(model, osc.likelihoods.Gaussian(1.0), settings=SETTINGS[method], temperature=1 / 500)
        made.prepare([(x, x)])
        loss = lambda: made.loss(x, x, SIZE)  # noqa: E731

    def step() -> None:
        optimiser.zero_grad()
        loss().backward()
        optimiser.step()

    return step


def _time(settings: str) -> Callable[[Effort], Result]:
    def measure(effort: Effort) -> Result:
        spread = ratio(training(PLAIN), training(settings), replace(effort, repeats=3 * effort.repeats))
        bound = BOUND if settings == "every step" else None
        return Result(f"online step, curvature {settings}", UNIT, spread, bound)

    return measure


for _settings in SETTINGS:
    row(f"online-{_settings.replace(' ', '-')}")(_time(_settings))


@row("online-memory")
def memory(effort: Effort) -> Result:
    """All that is live at once, weights, gradients and the state of the optimiser included, in three steps."""
    peaks = {method: peak_bytes(lambda method=method: _steps(training(method))) for method in (PLAIN, "every step")}
    used = peaks["every step"] / peaks[PLAIN]
    note = f"{peaks['every step'] / 2**20:.1f} MB against {peaks[PLAIN] / 2**20:.1f} MB"
    return Result("online step, peak memory", UNIT, Spread.of([used]), MEMORY_BOUND, note=note)


def _steps(step: Callable[[], None]) -> None:
    for _ in range(3):
        step()
