"""Prior tuning on a fitted posterior: ours until it has converged, theirs for its default of 100 steps."""

from collections.abc import Callable

import torch
from torch import Tensor

import osculate as osc
from benchmarks import peers, timing
from benchmarks.networks import posterior, setting
from benchmarks.result import PeerResult, Result, row
from benchmarks.timing import Effort, ratio

FASTER = 20.0
CONVERGED = 1e-3
PRIORS = {"layerwise": osc.priors.Layerwise, "scalar": osc.priors.Isotropic}


def squares(q: osc.posteriors.Gaussian, theta: Tensor) -> Tensor:
    """‖θ_g‖² of parameters θ, for each group of the prior."""
    return q.prior.totals(theta.double().square(), q.network.space).reshape(-1)


def violation(q: osc.posteriors.Gaussian) -> float:
    """max |δ‖θ‖² − γ| / γ, with γ from the posterior variances and not from what the maximiser used."""
    delta = q.prior.precision.double().reshape(-1)
    determined = 1 - q.prior.vector(q.network.space).double() * q.variance().double()
    gamma = q.prior.totals(determined, q.network.space).reshape(-1)
    seen = squares(q, q.seen_apart(q.mean))  # our evidence integrates over what the data do not see
    return float(((delta * seen - gamma).abs() / gamma).max())


def _evidence(network: str, structure: str, prior: str) -> Callable[[Effort], Result]:
    def measure(effort: Effort) -> Result:
        q = posterior(network, structure).replace(prior=PRIORS[prior](1.0))
        data = setting(network)
        tuned = osc.maximise_evidence(q)
        reached = violation(tuned)
        spread = ratio(data.training_pass, lambda: osc.maximise_evidence(q), effort)
        theirs, note = (), f"|δ‖θ‖² − γ|/γ = {reached:.0e}"
        if peers.available():
            la = peers.posterior(network, structure)
            groups = 1 if prior == "scalar" else len(q.network.space.names)
            start = torch.ones(groups, device=timing.device)
            cost = ratio(data.training_pass, lambda: peers.tune(la, start), effort)
            left = peers.stationarity(la, squares(tuned, tuned.mean))
            theirs = (PeerResult(peers.DEFAULT, cost, f"100 steps leave {left:.0e}"),)
        name = f"evidence {prior} {structure} {network}"
        unit = "forward + backward, N = 2000"
        return Result(name, unit, spread, None, theirs, {peers.DEFAULT: FASTER}, note, reached < CONVERGED)

    return measure


for _network in ("mlp", "lenet"):
    for _structure in ("kron", "diag"):
        for _prior in PRIORS:
            _name = f"evidence-{_prior}-{_structure}-{_network}"
            row(_name, anywhere=True)(_evidence(_network, _structure, _prior))


@row("tune-validation-kron-lenet", anywhere=True)
def tune(effort: Effort) -> Result:
    """For information: precision and temperature on validation data, against a grid of 21 precisions."""
    data, q = setting("lenet"), posterior("lenet", "kron")
    held_out = (data.x[:200], data.y[:200])
    spread = ratio(lambda: data.training_pass(200), lambda: osc.tune(q, held_out), effort)
    theirs = ()
    if peers.available():
        la, count = peers.posterior("lenet", "kron"), 10

        def peer() -> None:
            loader = data.loader(count, count)
            options = {"method": "gridsearch", "val_loader": loader, "grid_size": 21, "prior_structure": "scalar"}
            la.optimize_prior_precision(pred_type="glm", **options)

        cost = ratio(lambda: data.training_pass(200), peer, effort, 200 / count)
        theirs = (PeerResult(peers.DEFAULT, cost, f"21 precisions, on {count} points, scaled"),)
    return Result("tune on validation kron lenet", "forward + backward, same points", spread, None, theirs)
