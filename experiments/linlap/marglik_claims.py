"""What the numbers of ``linlap-marglik`` say about the claims."""

import math
from collections.abc import Mapping, Sequence
from statistics import mean
from typing import Any

from experiments import Claim

#: Names of columns and of runs.
ACCURACY, LOG_LIKELIHOOD = "accuracy in %", "log likelihood"
CV, ML = "cross-validation", "marginal likelihood"
GAIN, ERROR = "gain in log likelihood", "its standard error over test images"
BURN_IN, BY_GRADIENT = "burn-in of one epoch", "by gradient"
#: The log precisions from different starts agree within the first, and the NLL is within the second of the best.
AGREEMENT, CLOSE = 0.5, 0.01


def claims(found: Mapping[tuple[str, str], Sequence[float]], starts: Mapping[str, Any]) -> tuple[Claim, ...]:
    """Verdicts from the table and from the training from several starts."""
    return (_better(found), _more_accurate(found), _agrees(starts), _as_good(starts), _same_update(starts))


def _better(found: Mapping[tuple[str, str], Sequence[float]]) -> Claim:
    rows = list(dict.fromkeys(name for name, column in found if column == GAIN))
    gains = {name: (mean(found[name, GAIN]), 2 * mean(found[name, ERROR])) for name in rows}
    better = [name for name, (gain, margin) in gains.items() if gain > margin]
    worse = [name for name, (gain, margin) in gains.items() if gain < -margin]
    words = "; ".join(f"{name} {gain:+.3f} ± {margin:.3f}" for name, (gain, margin) in gains.items())
    return Claim.judged(
        "The KFAC marginal likelihood gives a higher test log likelihood than cross-validation, in all six rows",
        None if not rows else len(better) == len(rows),
        f"Gain of the weights' own predictions, with two standard errors over the test images: {words or 'no row'}. "
        f"Higher in {len(better)}, lower in {len(worse)} of {len(rows)} rows. Both see the same training images; "
        "cross-validation also the validation images.",
    )


def _more_accurate(found: Mapping[tuple[str, str], Sequence[float]]) -> Claim:
    rows = list(dict.fromkeys(name for name, column in found if column == GAIN))
    pairs = {name: [mean(found[name, f"{way}: {ACCURACY}"]) for way in (CV, ML)] for name in rows}
    words = "; ".join(f"{name} {a:.2f} → {b:.2f}" for name, (a, b) in pairs.items())
    return Claim.judged(
        "… and a higher test accuracy",
        None if not rows else all(b > a for a, b in pairs.values()),
        f"Accuracy in %, cross-validation → marginal likelihood: {words or 'no row'}.",
    )


def _plain(starts: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {name: course for name, course in starts["courses"].items() if name not in (BURN_IN, BY_GRADIENT)}


def spread(courses: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """By parameter tensor, the largest difference of learned log precisions."""
    logs = {name: [math.log(course["learned"][name]) for course in courses] for name in courses[0]["learned"]}
    return {name: max(values) - min(values) for name, values in logs.items()}


def _agrees(starts: Mapping[str, Any]) -> Claim:
    courses = list(_plain(starts).values())
    ranges = spread(courses)
    worst = max(ranges, key=ranges.__getitem__)
    few = sum(value <= AGREEMENT for value in ranges.values())
    late = starts["courses"][BURN_IN]
    return Claim.judged(
        f"Learned log precisions do not depend on the initial precision (within {AGREEMENT})",
        ranges[worst] <= AGREEMENT if len(courses) > 1 else None,
        f"{starts['row']}, {starts['images']:,} images, initial precisions "
        f"{', '.join(_plain(starts))}: {few} of {len(ranges)} parameter tensors agree, "
        f"biases included; the largest difference is {ranges[worst]:.2f} ({worst}). The first update comes before the "
        "first epoch, and at fixed weights the evidence has one maximum: little else is to be expected. With one epoch "
        f"of burn-in at {late['initial']:g} the network ends with {late['effective_parameters']:.0f} effective "
        f"parameters, a log evidence of {late['log_evidence'][-1]:.2f} nats per image and a test NLL of "
        f"{late['test']:.3f}: a constant, for ten classes 2.303, if it has collapsed.",
    )


def _as_good(starts: Mapping[str, Any]) -> Claim:
    best = min(starts["grid"], key=lambda point: point["test"])
    learned = {name: course["test"] for name, course in _plain(starts).items()}
    worst = max(learned.values())
    return Claim.judged(
        f"Its test NLL is within {CLOSE} of the best of an {len(starts['grid'])}-point grid",
        worst <= best["test"] + CLOSE,
        f"Test NLL {', '.join(f'{nll:.4f} from {name}' for name, nll in learned.items())}; the best of the grid on the "
        f"test images themselves is {best['test']:.4f} at precision {best['precision']:g}.",
    )


def _same_update(starts: Mapping[str, Any]) -> Claim:
    gradient = starts["courses"][BY_GRADIENT]
    chosen = starts["courses"][f"{gradient['initial']:g}"]
    ranges = spread([chosen, gradient])
    worst = max(ranges, key=ranges.__getitem__)
    return Claim.judged(
        "The fixed point may stand for the gradient steps on the hyperparameters (not a claim of the document)",
        chosen["test"] <= gradient["test"] + CLOSE,
        f"From {gradient['initial']:g}: test NLL {chosen['test']:.4f} by the fixed point, {gradient['test']:.4f} by "
        f"100 steps of Adam (rate 0.1) for each update; best log evidence {max(chosen['log_evidence']):.4f} and "
        f"{max(gradient['log_evidence']):.4f} nats per image; log precisions differ by up to {ranges[worst]:.2f} "
        f"({worst}).",
    )
