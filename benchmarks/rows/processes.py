"""Two processes that share the data, in units of two independent fits of half of them at the same time."""

from collections.abc import Callable

from benchmarks.processes import seconds
from benchmarks.result import Result, row
from benchmarks.timing import Effort, Spread

#: At least nine tenths of the throughput.
BOUND = 1 / 0.9


def _shared(network: str, structure: str) -> Callable[[Effort], Result]:
    def measure(effort: Effort) -> Result:
        pairs = seconds(network, structure)
        spread = Spread.of([together / apart for apart, together in pairs])
        note = f"{min(together for _, together in pairs):.2f} s of wall-clock time, two cores"
        return Result(
            f"fit {structure} ggn {network}, two processes",
            "two independent fits of half the data",
            spread,
            BOUND,
            note=note,
        )

    return measure


for _network in ("mlp", "lenet"):
    for _structure in ("kron", "diag"):
        row(f"processes-{_structure}-{_network}")(_shared(_network, _structure))
