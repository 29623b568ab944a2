"""The last steps after training: the likelihood with the measured noise, and the temperature."""

import warnings
from typing import Any

from osculate.autoencoders import LaplacianAutoencoder, Representation
from osculate.cli.checkpoint import Card
from osculate.cli.methods import MethodOptions
from osculate.data import Dataset
from osculate.posteriors import Dropout, Ensemble, Gaussian, Point, Posterior, Snapshots


def finished(q: Posterior, card: Card, how: MethodOptions, dataset: Dataset, progress: bool) -> Posterior:
    """The posterior with the noise of the card, at the temperature of the options or of held-out data."""
    likelihood = card.likelihood  # the curvature of a Gaussian follows it, draws of a Markov chain keep theirs
    if isinstance(q, Gaussian):
        q = q.replace(likelihood=likelihood)
    elif isinstance(q, Ensemble):
        q = Ensemble([member.module for member in q.members], likelihood)
    elif isinstance(q, Snapshots):
        q = Snapshots(q.network, likelihood, q.diagonal, q.deviations)
    elif isinstance(q, Point | Dropout):
        q = type(q)(q.model, likelihood)
    if how.method != "online_laplace" or not card.reconstructs or "temperature" in how.options:
        return q
    assert isinstance(q, Gaussian)
    if not len(dataset.validation[0]):
        warnings.warn(
            f"no data are held out to choose the temperature, which stays {float(q.temperature):.3g}: give more data, "
            "--validation-size or --temperature.",
            stacklevel=2,
        )
        return q
    return LaplacianAutoencoder.tuned(q, dataset.validation[0].to(q.network.device), progress=progress).posterior


def represented(q: Posterior, codes: Any = None) -> Representation:
    """The view of a posterior over an autoencoder that the tasks take.

    Args:
        q: the posterior.
        codes: training inputs, by whose codes new images are drawn.
    """
    return LaplacianAutoencoder(q, codes) if isinstance(q, Gaussian) else Representation(q, codes)
