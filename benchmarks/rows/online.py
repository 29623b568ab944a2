"""A step of online Laplace training, in units of ordinary training: of MAP, and of a bare step without a prior."""

from collections.abc import Callable
from dataclasses import replace

import torch

import osculate as osc
from benchmarks.result import Result, row
from benchmarks.timing import Effort, Spread, peak_bytes, ratio
from osculate.autoencoders import Autoencoder
from osculate.methods import MAP, OnlineLaplace, OnlineUpdates

#: 784-512-256-2 and back, as in the published experiments.
BATCH, PIXELS, SIZE = 50, 784, 60_000
BOUND, MEMORY_BOUND = 2.2, 2.0
PLAIN, BARE = "MAP", "bare"
UNITS = {
    PLAIN: "training step of MAP with Adam, same batch",
    BARE: "training step with Adam, squared error without a prior, same batch",
}

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
    likelihood = osc.likelihoods.Gaussian(1.0)
    made: MAP | OnlineLaplace = MAP(model, likelihood)
    if method in SETTINGS:
        made = OnlineLaplace(model, likelihood, settings=SETTINGS[method], temperature=1 / 500)
        made.prepare([(x, x)])

    def step() -> None:
        optimiser.zero_grad()
        loss = 0.5 * (model(x) - x).square().sum() / BATCH if method == BARE else made.loss(x, x, SIZE)
        loss.backward()
        optimiser.step()

    return step


def _time(unit: str, settings: str) -> Callable[[Effort], Result]:
    def measure(effort: Effort) -> Result:
        spread = ratio(training(unit), training(settings), replace(effort, repeats=3 * effort.repeats))
        bound = BOUND if (unit, settings) == (PLAIN, "every step") else None
        return Result(f"online step, curvature {settings}", UNITS[unit], spread, bound)

    return measure


for _unit in UNITS:
    for _settings in SETTINGS:
        row(f"online-{_settings.replace(' ', '-')}-{_unit.lower()}")(_time(_unit, _settings))


@row("online-memory")
def memory(effort: Effort) -> Result:
    """All that is live at once, weights, gradients and the state of the optimiser included, in three steps."""
    peaks = {method: peak_bytes(lambda method=method: _steps(training(method))) for method in (PLAIN, "every step")}
    used = peaks["every step"] / peaks[PLAIN]
    note = f"{peaks['every step'] / 2**20:.1f} MB against {peaks[PLAIN] / 2**20:.1f} MB"
    return Result("online step, peak memory", UNITS[PLAIN], Spread.of([used]), MEMORY_BOUND, note=note)


def _steps(step: Callable[[], None]) -> None:
    for _ in range(3):
        step()
