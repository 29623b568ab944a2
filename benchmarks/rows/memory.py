"""Peak memory: a linearised predictive in activations of a forward pass, a refinement in the budget of the fit.

And what a process with ``memory="50MB"`` takes of these, its results and allocator included.
"""

from collections.abc import Callable

import osculate as osc
from benchmarks import peers
from benchmarks.networks import posterior, setting
from benchmarks.resident import rises
from benchmarks.result import PeerResult, Result, row
from benchmarks.timing import Effort, Spread, activation_bytes, peak_bytes
from osculate.evidence import TEMPERATURE, TRUST
from osculate.memory import budget

POINTS, PEER_POINTS = 100, 20
BOUND = 20.0
#: Megabytes of a budget.
BUDGET = 50


def _memory(network: str, structure: str) -> Callable[[Effort], Result]:
    def measure(effort: Effort) -> Result:
        data, q = setting(network), posterior(network, structure)
        x = data.x[:POINTS]
        unit = activation_bytes(data.model, x)
        peak = peak_bytes(lambda: osc.predict(q, x, link="probit"))
        theirs = ()
        if peers.available():
            la = peers.posterior(network, structure)
            cost = peak_bytes(lambda: peers.predict(la, x[:PEER_POINTS])) * POINTS / PEER_POINTS
            spread = Spread.of([cost / unit])
            theirs = (PeerResult(peers.DEFAULT, spread, f"{cost / 1e6:,.0f} MB, from {PEER_POINTS} points"),)
        name = f"memory probit {structure} {network}"
        note = f"{peak / 1e6:.1f} MB, activations {unit / 1e6:.2f} MB"
        return Result(name, "activations, same points", Spread.of([peak / unit]), BOUND, theirs, note=note)

    return measure


def _refinement(network: str) -> Callable[[Effort], Result]:
    def measure(effort: Effort) -> Result:
        data, likelihood = setting(network), osc.likelihoods.Categorical()
        q = osc.laplace(data.model, likelihood, data.batches, prior=1.0, refine=False).replace(temperature=TEMPERATURE)
        peak, unit = peak_bytes(lambda: osc.refine(q, trust=TRUST)), budget(None, q.network.device)
        note = f"{peak / 1e6:.0f} MB for {q.num_data:,} data"
        return Result(f"memory refine {network}", "the fit's budget", Spread.of([peak / unit]), 1.0, note=note)

    return measure


def _budgeted(network: str) -> Callable[[Effort], Result]:
    def measure(effort: Effort) -> Result:
        found = rises(network, f"{BUDGET}MB")
        note = ", ".join(f"{name} {rise / 1e6:.0f} MB" for name, rise in found.items())
        held = [rise for name, rise in found.items() if not name.endswith("refine")]  # which holds the data besides
        largest = Spread.of([max(held) / (1e6 * BUDGET)])
        return Result(f"process within its budget {network}", f'memory="{BUDGET}MB"', largest, 1.0, note=note)

    return measure


for _network in ("mlp", "lenet"):
    row(f"memory-budget-{_network}")(_budgeted(_network))
    row(f"memory-refine-{_network}")(_refinement(_network))
    for _structure in ("kron", "diag"):
        row(f"memory-{_structure}-{_network}")(_memory(_network, _structure))
