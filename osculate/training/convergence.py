"""The learning rate by short trials, and the fall of the validation loss by which a training goes on."""

import math
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from osculate.inputs import moved
from osculate.likelihoods import Likelihood
from osculate.methods._base import Method
from osculate.training.settings import OPTIMIZERS, Settings

#: Learning rates that are tried; the share of the gain over the smallest rate that may be missed by a larger rate than
#: the best; and the divisor of the choice, as larger rates win in short trials than in long trainings.
RATES, MISSED, CAUTION = (3e-3, 1e-2, 3e-2), 0.1, 3.0
#: Share of the training that all trials take together, fewest and most steps of each, and the share that is scored.
SHARE, FEWEST, MOST, SCORED = 0.2, 10, 300, 0.2
#: Fall of the validation loss that counts, in nats, and the last share of the first round in which it is measured.
FALL, LAST = 0.01, 0.5


def chosen_rate(method: Method, epochs: Any, settings: Settings) -> float:
    """A third of the largest rate with nearly the lowest loss in short trials from the present weights.

    The weights are restored. Every trial has the same batches and the schedule of the settings, and is scored by the
    mean loss of its last fifth.

    Args:
        method: Method on its device.
        epochs: Training data.
        settings: Settings of the training; one that is too short for trials gets its usual rate.
    """
    steps = min(MOST, int(SHARE * settings.epochs * len(epochs) / len(RATES)))
    if steps < FEWEST:
        return settings.first_rate
    before = {name: value.detach().clone() for name, value in method.state_dict().items()}
    losses = {}
    for rate in RATES:
        losses[rate] = _loss_of_trial(method, epochs, settings, rate, steps)
        method.load_state_dict(before)
    method.zero_grad(set_to_none=True)
    best = min(losses.values())
    bound = best + MISSED * (losses[RATES[0]] - best) if math.isfinite(losses[RATES[0]]) else best
    return max(rate for rate in RATES if losses[rate] <= bound) / CAUTION


def _loss_of_trial(method: Method, epochs: Any, settings: Settings, rate: float, steps: int) -> float:
    optimizer: Optimizer = method.optimizer(OPTIMIZERS[settings.optimizer], rate)
    device, losses = next(method.parameters()).device, list[float]()
    for epochs.epoch in count():
        for x, y in epochs:
            if len(losses) == steps:
                last = losses[-max(1, round(SCORED * steps)) :]
                return sum(last) / len(last)
            for group in optimizer.param_groups:
                group["lr"] = rate * settings.factor(len(losses) / steps) * group.get("multiplier", 1.0)
            optimizer.zero_grad()
            loss: Tensor = method.loss(moved(x, device), y.to(device), epochs.num_data)
            losses.append(loss.item())
            if not math.isfinite(losses[-1]):
                return math.inf
            loss.backward()
            optimizer.step()
    raise AssertionError("epochs are counted without end.")


def least_nll(likelihood: Likelihood, y: Tensor) -> float | None:
    """The NLL of predictions without error, which the noise scale sets; None without a noise scale."""
    return -float(likelihood.log_prob(y, y).mean()) if likelihood.has_noise else None


def fall(history: Sequence[Mapping[str, int | float]], epochs: int, least: float | None, outputs: int) -> float:
    """The fall of the validation loss in the last round, in nats; of the first round, in its second half.

    With a noise scale it is that of the logarithm of the root mean square error, as the noise is estimated afterwards.

    Args:
        history: Rows of the training so far.
        epochs: Epochs of a round.
        least: The NLL of predictions without error.
        outputs: Number of real values of each datum.

    >>> rows = [{"validation_nll": nll} for nll in (0.9, 0.8, 0.6, 0.5)]
    >>> round(fall(rows, 4, None, 1), 6), round(fall(rows, 2, None, 1), 6)
    (0.3, 0.3)
    """
    back = epochs if len(history) > epochs else max(1, round(LAST * epochs))
    if len(history) <= back:
        return 0.0
    before, now = (history[place]["validation_nll"] for place in (-1 - back, -1))
    if least is None:
        return before - now
    errors = [max(2 * (nll - least) / outputs, 1e-12) for nll in (before, now)]
    return 0.5 * math.log(errors[0] / errors[1])
