"""A fit to ten million rows of memory-mapped arrays: anonymous memory above base, in gigabytes, and throughput."""

from benchmarks.result import Result, row
from benchmarks.streams import FEATURES, ROWS, costs
from benchmarks.timing import Effort, Spread

#: Gigabytes.
BOUND = 1.0


@row("streams")
def _streams(effort: Effort) -> Result:
    found = costs()
    largest = Spread.of([max(above for above, _ in found.values()) / 1e9])
    note = ", ".join(f"{name} {above / 1e6:.0f} MB, {rate:,.0f} rows/s" for name, (above, rate) in found.items())
    return Result(f"fit kron, diag {ROWS:,} rows x {FEATURES}", "GB of anonymous memory", largest, BOUND, note=note)
