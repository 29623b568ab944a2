"""``python -m benchmarks``: measure rows, print the table, write the record."""

import argparse
import json
import platform
import sys
import warnings
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks import peers, rows, timing  # noqa: F401  (rows registers them)
from benchmarks.markdown import markdown
from benchmarks.result import ANYWHERE, ROWS, PeerResult, Result
from benchmarks.timing import Effort, Spread
from experiments.cost import keep_freed_memory

#: Threads of every measurement; CPU seconds of several threads would count waiting.
THREADS = 1
#: Columns of the table where it does not go to a terminal.
WIDTH = 170


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write; 1 where ``--strict`` and a bound is missed."""
    options = _parser().parse_args(arguments)
    if options.markdown:
        print(markdown(json.loads(options.markdown.read_text())))
        return 0
    torch.set_num_threads(THREADS)
    timing.device = torch.device(options.device)
    kept = not options.system_allocator and keep_freed_memory()
    warnings.filterwarnings("ignore", module="laplace|torch|curvlinops|backpack")
    effort = Effort(repeats=5, budget=2.0) if options.quick else Effort()
    console = Console(stderr=True)
    results = []
    for name in _chosen(options.rows):
        with console.status(name):
            results.append(ROWS[name](effort))
    if timing.device.type != "cpu":  # the budgets are those of one thread of a CPU
        results = [replace(result, bound=None, faster={}) for result in results]
    (Console() if sys.stdout.isatty() else Console(width=WIDTH)).print(table(results))
    if not peers.available():
        print(f"{peers.MISSING}: its columns are empty. `make bench` installs it.")
    if options.json:
        write(options.json, results, kept)
    missed = [result.name for result in results if result.met is False]
    if any(result.met is not None for result in results):
        print(f"missed: {', '.join(missed)}" if missed else "every bound is met")
    return int(options.strict and bool(missed))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("rows", nargs="*", help=f"parts of names; all by default. Known: {', '.join(ROWS)}")
    parser.add_argument("--json", type=Path, help="write the record here")
    parser.add_argument(
        "--markdown", type=Path, help="print a record as the table of docs/speed.md, and measure nothing"
    )
    parser.add_argument("--device", default="cpu", help="cuda: rows of fits, predictives and tuning, without bounds")
    parser.add_argument("--quick", action="store_true", help="5 repeats, and slow rows once")
    parser.add_argument("--system-allocator", action="store_true", help="let freed memory go back to the kernel")
    parser.add_argument("--strict", action="store_true", help="exit with 1 where a bound is missed")
    return parser


def _chosen(parts: list[str]) -> list[str]:
    known = [name for name in ROWS if timing.device.type == "cpu" or name in ANYWHERE]
    unknown = [part for part in parts if not any(part in name for name in known)]
    if unknown:
        sys.exit(f"no row on this device is called {', '.join(unknown)}. Known: {', '.join(known)}")
    return [name for name in known if not parts or any(part in name for part in parts)]


def table(results: list[Result]) -> Table:
    """Ratios with their range over repeats, beside the bounds, and the peers with our speed-up over them."""
    drawn = Table(title=f"osculate beside laplace-torch ({where()})")
    for column in ("work", "osculate", "flops", "bound", "", "laplace-torch", "+ BackPACK", "note"):
        drawn.add_column(column, overflow="fold")
    units = [result.unit for result in results]
    for number, result in enumerate(results):
        if number == 0 or units[number - 1] != result.unit:
            drawn.add_section()
            drawn.add_row(f"[italic]unit: {result.unit}[/]")
        found = {peer.name: peer for peer in result.peers}
        verdict = {None: "", True: "[green]met[/]", False: "[red]missed[/]"}[result.met]
        drawn.add_row(
            result.name,
            _spread(result.ours),
            "" if result.limit is None else f"{result.limit:.2f}",
            _bound(result),
            verdict,
            _peer(result, found.get(peers.DEFAULT)),
            _peer(result, found.get(peers.BACKPACK)),
            "; ".join(filter(None, [result.note, *(peer.note for peer in result.peers[:1])])),
        )
    return drawn


def _spread(spread: Spread) -> str:
    def short(value: float) -> str:
        return f"{value:.2f}" if value < 100 else f"{value:,.0f}"

    if spread.repeats == 1:
        return short(spread.median)
    return f"{short(spread.median)} ({short(spread.low)}–{short(spread.high)})"


def _bound(result: Result) -> str:
    parts = [] if result.bound is None else [f"≤ {result.bound:g}"]
    return ", ".join([*parts, *(f"≥ {factor:g}× faster" for factor in result.faster.values())])


def _peer(result: Result, peer: PeerResult | None) -> str:
    return "–" if peer is None else f"{_spread(peer.spread)}, {result.speedup(peer):,.1f}×"


def where() -> str:
    """What the rows were measured on, and by which clock."""
    if timing.device.type == "cpu":
        return f"{cpu()}, {THREADS} thread, process CPU time"
    return f"{torch.cuda.get_device_name()}, elapsed time"


def cpu() -> str:
    """The processor's name."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def write(path: Path, results: list[Result], kept: bool) -> None:
    """The record, complete or not at all."""
    record = {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cpu": cpu(),
        "threads": THREADS,
        "python": platform.python_version(),
        "versions": peers.versions(),
        "allocator": "keeps freed memory" if kept else "as the system has it",
        "device": where(),
        "clock": "process CPU time; memory: peak of live bytes in torch's CPU allocator"
        if timing.device.type == "cpu"
        else "elapsed time until the accelerator has done its work",
        "rows": [
            asdict(result) | {"met": result.met, "speedup": {p.name: result.speedup(p) for p in result.peers}}
            for result in results
        ],
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(path.suffix + ".part")
    temporary.write_text(json.dumps(record, indent=2) + "\n")
    temporary.replace(path)


if __name__ == "__main__":
    sys.exit(main())
