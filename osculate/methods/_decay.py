"""Priors of a posterior from an optimiser: by name, and what its weight decay amounts to."""

from collections.abc import Callable

from osculate.batches import Data
from osculate.evidence import maximise_evidence
from osculate.methods._moments import SecondMoments
from osculate.methods.map import as_prior
from osculate.posteriors import Gaussian
from osculate.predictive import tune
from osculate.priors import Diagonal, Isotropic, Layerwise, Prior
from osculate.registry import choose

#: Priors by name.
PRIORS = ("evidence", "validation", "l2", "adamw")


def chosen_prior(
    prior: str | float | Prior, moments: SecondMoments, scale: float, validation: Data | None
) -> tuple[Prior, Callable[[Gaussian], Gaussian]]:
    """The prior, and what is done to the posterior with it; ``scale`` is c N."""
    if not isinstance(prior, str):
        return as_prior(prior), unchanged
    choose("prior precision", prior, PRIORS)
    if prior == "evidence":
        return Layerwise(1.0), maximise_evidence
    if prior == "validation":
        if validation is None:
            raise ValueError("prior_precision='validation' needs held-out data: pass validation=(X, Y).")
        return Isotropic(1.0), lambda q: tune(q, validation)
    if (prior == "adamw") != moments.rule.decoupled or moments.free:
        kind = "a decoupled weight decay, as AdamW has," if prior == "adamw" else "a weight decay in the gradient"
        why = f"{moments.free[0]!r} has none" if moments.free else "this one has another kind"
        raise ValueError(
            f"prior_precision={prior!r} is for an optimiser with {kind} on all parameters, and {why}: give a number, "
            "'evidence' or 'validation'."
        )
    return Diagonal(scale * moments.decay * (moments.pull if prior == "adamw" else 1.0)), unchanged


def unchanged(q: Gaussian) -> Gaussian:
    return q


def printed_prior(prior: str | float | Prior, moments: SecondMoments) -> Prior:
    """1/λ + ε, a variance taken for a precision; λ is the weight decay where it is not given. [perone2021, eq. 6]"""
    if isinstance(prior, str) and prior in ("l2", "adamw"):
        decay = next(iter(moments.entries.values())).decay
    elif isinstance(prior, Isotropic) or not isinstance(prior, str | Prior):
        decay = float(as_prior(prior).precision)
    else:
        decay = 0.0
    if not decay > 0:
        raise ValueError(
            f"scaling='paper' needs the weight decay λ as a number, got prior_precision={prior!r}: give it, or 'adamw' "
            "or 'l2' for that of the optimiser."
        )
    return Isotropic(1 / decay + next(iter(moments.entries.values())).eps)
