"""A record as the table of docs/speed.md."""

from typing import Any

from benchmarks import peers

HEAD = ("work", "unit", "osculate", "flops", "bound", "", "laplace-torch", "faster")
#: The columns of bounds, which the records of an accelerator lack.
BOUNDS = slice(4, 6)


def markdown(record: dict[str, Any]) -> str:
    """One line for each row of the record: our median, the bound, the verdict, the peer and our speed-up over it."""
    lines = [list(HEAD), ["---"] * len(HEAD), *(_cells(row) for row in record["rows"])]
    if not any(row["bound"] or row["faster"] for row in record["rows"]):
        for line in lines:
            del line[BOUNDS]
    return "\n".join(f"|{'|'.join(line)}|" if line[0] == "---" else f"| {' | '.join(line)} |" for line in lines)


def _cells(row: dict[str, Any]) -> list[str]:
    peer = next((found for found in row["peers"] if found["name"] == peers.DEFAULT), None)
    bounds = [] if row["bound"] is None else [f"≤ {row['bound']:.3g}"]
    if row["name"].startswith("exponent"):  # within a distance of one, also below it
        bounds = [f"1 ± {row['bound'] - 1:.2g}"]
    bounds += [f"≥ {factor:g} × faster" for factor in row["faster"].values()]
    verdict = {None: "", True: "met", False: "missed"}[row["met"]]
    return [
        row["name"],
        row["unit"],
        f"{row['ours']['median']:.2f}" if row["ours"]["median"] >= 0.1 else f"{row['ours']['median']:.2g}",
        "" if row["limit"] is None else f"{row['limit']:.2f}",
        ", ".join(bounds),
        verdict,
        "–" if peer is None else f"{peer['spread']['median']:,.1f}",
        "–" if peer is None else f"{row['speedup'][peers.DEFAULT]:,.1f} ×",
    ]


LARGE_COLUMNS = (
    *("network", "parameters", "structure, curvature", "fit: s", "units", "bound", "eigenvalues: s"),
    *("predictive", "s a datum", "units", "bound", "peak GB", ""),
)


def large_markdown(record: dict[str, Any]) -> str:
    """One line for each large network of a record: what it costs, the bounds, and whether they are kept."""
    head = [f"| {' | '.join(LARGE_COLUMNS)} |", f"|{'---|' * len(LARGE_COLUMNS)}"]
    return "\n".join([*head, *(_large_line(row) for row in record["rows"])])


def _large_line(row: dict[str, Any]) -> str:
    subset = {"all": "", "last_layer": ", last layer"}.get(str(row["subset"]), ", without the head")
    way = row["way"] if row["samples"] is None else f"{row['way']}, S = {row['samples']}"
    cells = [
        row["title"],
        f"{row['parameters']:,}",
        f"{row['structure']}, {row['curvature']}{subset}",
        _number(row["fit"]),
        _number(row["fit_units"]),
        "" if row["fit_bound"] is None else f"≤ {row['fit_bound']:g}",
        _number(row["factorise"]) if row["structure"] == "kron" else "–",
        way,
        _number(row["predict"]),
        _number(row["predict_units"]),
        "" if row["predict_bound"] is None else f"≤ {_number(row['predict_bound'])}",
        f"{row['memory']['peak'] / 1e9:.1f}",
        "met" if row["met"] else "missed",
    ]
    return f"| {' | '.join(cells)} |"


def _number(value: float) -> str:
    return f"{value:.2g}" if value < 1 else f"{value:.1f}"
