"""The last steps after training: noise scale, likelihood and temperature from held-out data."""

import math
import warnings
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from osculate.autoencoders import LaplacianAutoencoder, Representation
from osculate.cli.checkpoint import Card
from osculate.cli.methods import MethodOptions
from osculate.data import Dataset
from osculate.data.dataset import Part
from osculate.posteriors import Chains, Dropout, Ensemble, Gaussian, Point, Posterior, Snapshots
from osculate.posteriors._base import Sampled
from osculate.predictive import tune
from osculate.predictive.tuning import HeldOutLoss
from osculate.tasks.calibration import columns
from osculate.tasks.comparison import losses_of, to_ignorance

#: Number of sampled networks, and of steps of the fixed point.
DRAWS, STEPS = 50, 100
#: Ratio of the fixed noise scale and that of held-out data above which there is a warning.
APART = 1.5


def held_out_noise(model: nn.Module, dataset: Dataset, noise: float | None) -> float | None:
    """The root mean square error on the validation part, its maximum likelihood noise scale; None for classes.

    Args:
        model: The network.
        dataset: The data, with the targets of the training.
        noise: Noise scale to return if there are no validation data.
    """
    x, y = dataset.validation
    if noise is None or not len(x):
        return noise
    device = next(model.parameters()).device
    modes = model.training
    with torch.no_grad():
        error = (model.eval()(x.to(device)) - y.to(device)).square().mean().sqrt().item()
    model.train(modes)
    return error if math.isfinite(error) and error > 0 else noise


def with_noise_of(q: Posterior, card: Card) -> Card:
    """The card with the noise scale that the posterior has learned."""
    return card if card.noise is None else replace(card, noise=float(getattr(q.likelihood, "scale", card.noise)))


def measured(q: Posterior, card: Card, dataset: Dataset) -> Card:
    """The card with the noise scale of held-out data.

    For a single network it is its error. A mixture of networks has smaller errors than its members, and its spread
    explains part of them: its noise scale is the maximum likelihood estimate. Markov chains keep the noise scale with
    which they were drawn.
    """
    if card.noise is None or not len(dataset.validation[0]):
        return card
    if isinstance(q, Chains):
        found = _of_mixture(q, dataset, card.noise)
        if max(card.noise / found, found / card.noise) > APART:
            warnings.warn(
                f"hmc sampled with the fixed noise scale {card.noise:.3g}, but on held-out data it is about "
                f"{found:.3g} (both in standardised units): train again with --noise {found:.2g}.",
                stacklevel=3,
            )
        return card
    if isinstance(q, Ensemble | Snapshots):
        found = _of_mixture(q, dataset, card.noise)
    else:
        found = held_out_noise(q.model, dataset, card.noise) or card.noise
    if found > APART * card.noise and not card.reconstructs:
        warnings.warn(
            f"the error on held-out data is {found:.2g}, but the noise scale in training was {card.noise:.2g} (both in "
            "standardised units): the network may have fitted noise. Train again with --noise "
            f"{found:.1g}, or for longer if training had not converged.",
            stacklevel=3,
        )
    return replace(card, noise=found)


@torch.no_grad()
def _of_mixture(q: Sampled, dataset: Dataset, noise: float) -> float:
    x, y = (part.to(q.network.device) for part in dataset.validation)
    draws = q.draws(DRAWS, torch.Generator().manual_seed(0))
    found = likeliest_noise(torch.stack([network(x) for network in draws]), y)
    return found if math.isfinite(found) and found > 0 else noise


def likeliest_noise(f: Float[Tensor, "S N *C"], y: Float[Tensor, "N *C"]) -> float:
    r"""The σ at which Σ log (1/S) Σ_s N(y; f_s, σ²) is largest, by expectation maximisation.

    >>> round(likeliest_noise(torch.tensor([[0.0], [9.0]]), torch.tensor([0.5])), 3)
    0.5
    """
    squares = (f - y).double().square()
    variance = squares.mean()
    for _ in range(STEPS):
        if not variance > 0:
            break
        variance = (torch.softmax(-squares / (2 * variance), 0) * squares).sum(0).mean()
    return float(variance.sqrt())


def warn_if_worse(
    q: Posterior, card: Card, method: MethodOptions, part: Part, found: tuple[bool, list[Tensor]]
) -> None:
    """Warn of a result that predicts worse than ignorance, or than its own mean, by more than two standard errors.

    Args:
        q: The posterior.
        card: Card of the network, with the likelihood.
        method: The method and its options.
        part: Held-out inputs and targets.
        found: Columns of the predictions of ``q`` for them.
    """
    colder = " or a lower --temperature" if "temperature" in method.kind.options else ""
    ignorance = to_ignorance(card.likelihood, *found)
    if ignorance is not None and ignorance.verdict < 0:
        known = "the mean of the targets with their deviation" if card.classes is None else "the class frequencies"
        rate = "" if "lr" in method.kind.refused else ", with another --lr"
        warnings.warn(
            f"the result predicts the {len(part[0]):,} validation data worse than {known}, by {ignorance.words} (its "
            f"NLL is {ignorance.mean:.3f}): train for longer{rate}{colder}, or look at the data.",
            stacklevel=3,
        )
    if isinstance(q, Point) or "mode" not in q.ways:
        return
    _, alone = columns(q, part, 500, False, "predicting", {"via": "mode"})
    mean = HeldOutLoss.beside(losses_of(*found), losses_of(found[0], alone))
    if mean.verdict < 0:
        warnings.warn(
            f"the result predicts the {len(part[0]):,} validation data worse than its own mean, by {mean.words}: train "
            f"for longer{colder}, or predict with --via mode.",
            stacklevel=3,
        )


def finished(q: Posterior, card: Card, method: MethodOptions, dataset: Dataset, progress: bool) -> Posterior:
    """The posterior with the noise of the card, at the temperature of the options or of held-out data."""
    likelihood = card.likelihood  # rescales the curvature of a Gaussian, but not the draws of a Markov chain
    if isinstance(q, Gaussian):
        q = q.replace(likelihood=likelihood)
    elif isinstance(q, Ensemble):
        q = Ensemble([member.module for member in q.members], likelihood)
    elif isinstance(q, Snapshots):
        q = Snapshots(q.network, likelihood, q.diagonal, q.deviations)
    elif isinstance(q, Point | Dropout):
        q = type(q)(q.model, likelihood)
    if not method.chooses_temperature(card):
        return q
    assert isinstance(q, Gaussian)
    if not len(dataset.validation[0]):
        warnings.warn(
            f"there are no held-out data to choose the temperature, which stays {float(q.temperature):.3g}: pass more "
            "data, --validation-size or --temperature.",
            stacklevel=2,
        )
        return q
    x, y = (part.to(q.network.device) for part in dataset.validation)
    if card.reconstructs:
        return LaplacianAutoencoder.tuned(q, x, progress=progress).posterior
    return tune(q, (x, y), progress=progress)


def represented(q: Posterior, codes: Any = None) -> Representation:
    """The posterior over an autoencoder as a representation, for the tasks.

    Args:
        q: The posterior.
        codes: Training inputs, around whose codes new images are sampled.
    """
    return LaplacianAutoencoder(q, codes) if isinstance(q, Gaussian) else Representation(q, codes)
