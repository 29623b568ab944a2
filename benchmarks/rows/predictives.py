"""Predictives for 100 points at once, in units of one training pass (or forward passes) over the same points."""

from collections.abc import Callable
from functools import partial

import torch

import osculate as osc
from benchmarks import peers
from benchmarks.networks import posterior, setting
from benchmarks.result import PeerResult, Result, row
from benchmarks.timing import Effort, flops, ratio

POINTS = 100
#: Sampled networks: draws, inputs, and how many pass through a network at once. A draw costs the same for any number of
#: inputs (kron: four products of O × I with its bases), so that few of them show it, and many do not.
SAMPLES, INPUTS, ROWS = 100, (2_000, 10_000), 1000
#: Points that laplace-torch is given at once: its memory and time grow with the Jacobian of all of them.
PEER_POINTS = 20

#: network, structure, bound in units, smallest speed-up over laplace-torch with its default backend.
PREDICTIVES = (
    ("mlp", "kron", 6.0, 500.0),
    ("lenet", "kron", 7.0, 40.0),
    ("mlp", "diag", 3.0, None),
    ("lenet", "diag", 6.0, None),
)


def _linearised(network: str, structure: str, bound: float, faster: float | None) -> Callable[[Effort], Result]:
    def measure(effort: Effort) -> Result:
        data, q = setting(network), posterior(network, structure)
        x = data.x[:POINTS]

        def unit() -> None:
            data.training_pass(POINTS)

        def ours() -> None:
            osc.predict(q, x, link="probit")

        spread = ratio(unit, ours, effort)
        theirs, failed = [], []
        for peer in (peers.DEFAULT, peers.BACKPACK) if peers.available() else ():
            predict = partial(peers.predict, peers.posterior(network, structure, peer), x[:PEER_POINTS])
            try:
                cost = ratio(unit, predict, effort, POINTS / PEER_POINTS)
            except AttributeError as error:  # BackPACK at times finds none of its own results on a parameter
                failed.append(f"{peer} failed: {error}")
                continue
            theirs.append(PeerResult(peer, cost, f"on {PEER_POINTS} points, scaled"))
        name = f"predict probit {structure} {network}"
        bounds = {} if faster is None else {peers.DEFAULT: faster}
        limit = flops(unit, ours)
        note = "; ".join(failed)
        return Result(name, "forward + backward, same points", spread, bound, tuple(theirs), bounds, note, limit=limit)

    return measure


def _sampled(network: str, structure: str, inputs: int) -> Callable[[Effort], Result]:
    def measure(effort: Effort) -> Result:
        data, q = setting(network), posterior(network, structure)

        x = data.x.repeat(inputs // len(data.x), *[1] * (data.x.ndim - 1))

        def forward_passes() -> None:
            with torch.no_grad():
                for _ in range(SAMPLES):
                    for rows in x.split(ROWS):
                        data.model(rows)

        def ours() -> None:
            osc.predict(q, x, via="sampled", samples=SAMPLES)

        spread = ratio(forward_passes, ours, effort)
        theirs = ()
        if peers.available():
            la = peers.posterior(network, structure)

            def peer() -> None:
                for few in x[:200].split(POINTS):
                    la(few, pred_type="nn", link_approx="mc", n_samples=SAMPLES // 10)

            cost = ratio(forward_passes, peer, effort, 10 * inputs / 200)
            theirs = (PeerResult(peers.DEFAULT, cost, "on 200 points in batches of 100 and 10 draws, scaled"),)
        name = f"predict sampled {structure} {network}, N = {inputs:,}"
        limit = flops(forward_passes, ours)
        return Result(name, f"{SAMPLES} forward passes", spread, 1.3, theirs, limit=limit)

    return measure


for _network, _structure, _bound, _faster in PREDICTIVES:
    row(f"predict-probit-{_structure}-{_network}", anywhere=True)(_linearised(_network, _structure, _bound, _faster))
for _network, _sizes in (("mlp", INPUTS), ("lenet", INPUTS[:1])):
    for _structure in ("kron", "diag"):
        for _inputs in _sizes:
            _name = f"predict-sampled-{_structure}-{_network}-{_inputs}"
            row(_name, anywhere=True)(_sampled(_network, _structure, _inputs))
