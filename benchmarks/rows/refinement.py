"""Refinements of KFAC posteriors of N = 2000 data, beside the passes that they are made of."""

from collections.abc import Callable
from functools import partial

import torch

import osculate as osc
from benchmarks.networks import setting
from benchmarks.result import Result, row
from benchmarks.rows.fits import UNIT
from benchmarks.timing import Effort, ratio
from osculate.evidence import TEMPERATURE, TRUST
from osculate.evidence.linear import LinearModel
from osculate.posteriors.linearised import interacting_outputs, moments

#: Name, network, subset, and a bound in units; None for 1.15 times the passes.
REFINEMENTS = (("mlp", "mlp", "all", None), ("lenet", "lenet", "all", None), ("last-layer", "mlp", "last_layer", 4.0))
#: Products of the search that the budget allows, and what it allows above the sum of the passes.
PRODUCTS, SLACK = 3, 1.15


def _refine(name: str, network: str, subset: str, bound: float | None) -> Callable[[Effort], Result]:
    def measure(effort: Effort) -> Result:
        data, likelihood = setting(network), osc.likelihoods.Categorical()
        fit = partial(osc.laplace, data.model, likelihood, data.batches, prior=1.0, subset=subset, refine=False)
        q = fit().replace(temperature=TEMPERATURE)
        model = LinearModel(q, None)
        direction = torch.randn(len(q.mean), generator=torch.Generator().manual_seed(0))

        def passes() -> None:
            for x, _ in data.batches:
                moments(q, x, partial(interacting_outputs, likelihood))
            fresh = fit()
            _ = fresh.precision  # the eigenvalues
            for _ in range(PRODUCTS):
                q.precision.precondition(model.transposed(model.directional(direction)).unsqueeze(0))

        spread = ratio(data.training_pass, lambda: osc.refine(q, trust=TRUST), effort)
        parts = ratio(data.training_pass, passes, effort)
        limit = SLACK * parts.median if bound is None else bound
        note = f"{SLACK} times projection, fit, eigenvalues and {PRODUCTS} products: {parts.median:.1f} units"
        return Result(f"refine {name}", UNIT, spread, limit, note=note if bound is None else "")

    return measure


for _name, _network, _subset, _bound in REFINEMENTS:
    row(f"refine-{_name}")(_refine(_name, _network, _subset, _bound))


#: What a prediction of a refined posterior may cost, in those of an unrefined one, and its points.
PREDICTION, POINTS = 1.5, 500


def _predict(network: str) -> Callable[[Effort], Result]:
    def measure(effort: Effort) -> Result:
        data, likelihood = setting(network), osc.likelihoods.Categorical()
        q = osc.laplace(data.model, likelihood, data.batches, prior=1.0, refine=False)
        refined = osc.refine(q.replace(temperature=TEMPERATURE), trust=TRUST)
        x = torch.cat([x for x, _ in data.batches])[:POINTS]
        spread = ratio(lambda: osc.predict(q, x), lambda: osc.predict(refined, x), effort)
        return Result(f"predict refined {network}", "the same by the unrefined posterior", spread, PREDICTION)

    return measure


for _name in ("mlp", "lenet"):
    row(f"refine-predict-{_name}")(_predict(_name))
