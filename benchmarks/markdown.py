"""A record as the table that stands in the README."""

from typing import Any

from benchmarks import peers

HEAD = """| work | unit | osculate | flops | bound | | laplace-torch | faster |
|---|---|---|---|---|---|---|---|"""


def markdown(record: dict[str, Any]) -> str:
    """One line for each row of the record: our median, the bound, the verdict, the peer and our speed-up over it."""
    return "\n".join([HEAD, *(_line(row) for row in record["rows"])])


def _line(row: dict[str, Any]) -> str:
    peer = next((found for found in row["peers"] if found["name"] == peers.DEFAULT), None)
    bounds = [] if row["bound"] is None else [f"≤ {row['bound']:g}"]
    bounds += [f"≥ {factor:g} × faster" for factor in row["faster"].values()]
    verdict = {None: "", True: "met", False: "missed"}[row["met"]]
    cells = [
        row["name"],
        row["unit"],
        f"{row['ours']['median']:.2f}",
        "" if row["limit"] is None else f"{row['limit']:.2f}",
        ", ".join(bounds),
        verdict,
        "–" if peer is None else f"{peer['spread']['median']:,.1f}",
        "–" if peer is None else f"{row['speedup'][peers.DEFAULT]:,.1f} ×",
    ]
    return f"| {' | '.join(cells)} |"
