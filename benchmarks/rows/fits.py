"""Fits: one pass over N = 2000 in batches of 100, in units of one training pass over the same batches."""

from collections.abc import Callable

import osculate as osc
from benchmarks import peers
from benchmarks.networks import BATCH, DATA, setting
from benchmarks.result import PeerResult, Result, row
from benchmarks.timing import Effort, flops, ratio

UNIT = "forward + backward, same data"
#: What laplace-torch's slow rows are measured on: (data, batch). Their cost a datum does not fall with more.
FEW = (40, 20)

#: network, structure, curvature, bound in units.
FITS = (
    ("mlp", "diag", "ggn", 3.0),
    ("lenet", "diag", "ggn", 5.5),
    ("mlp", "kron", "ggn", 4.5),
    ("lenet", "kron", "ggn", 5.5),
    ("mlp", "diag", "fisher", 2.0),
    ("lenet", "diag", "fisher", 2.0),
    ("mlp", "kron", "fisher", 2.0),
    ("lenet", "kron", "fisher", 2.0),
)


def _fit(network: str, structure: str, curvature: str, bound: float) -> Callable[[Effort], Result]:
    def measure(effort: Effort) -> Result:
        data = setting(network)

        def ours() -> None:
            likelihood = osc.likelihoods.Categorical()
            osc.laplace(
                data.model, likelihood, data.batches, structure=structure, curvature=curvature, prior=1.0, refine=False
            )

        spread = ratio(data.training_pass, ours, effort)
        theirs = _peers(network, structure, effort) if curvature == "ggn" and peers.available() else ()
        name = f"fit {structure} {curvature} {network}"
        return Result(name, UNIT, spread, bound, theirs, limit=flops(data.training_pass, ours))

    return measure


def _peers(network: str, structure: str, effort: Effort) -> tuple[PeerResult, ...]:
    data = setting(network)
    results = []
    for peer in (peers.DEFAULT, peers.BACKPACK):
        slow = structure == "diag" and peer == peers.DEFAULT
        count, batch = FEW if slow else (DATA, BATCH)
        work = peers.curvature_pass(data, structure, peer, count, batch)
        spread = ratio(data.training_pass, work, effort, scale=DATA / count)
        results.append(PeerResult(peer, spread, f"on {count} points, scaled" if slow else ""))
    return tuple(results)


for _network, _structure, _curvature, _bound in FITS:
    row(f"fit-{_structure}-{_curvature}-{_network}", anywhere=True)(_fit(_network, _structure, _curvature, _bound))
