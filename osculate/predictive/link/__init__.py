"""Links: integrals of the response of a likelihood over a Gaussian on its outputs. One file a link."""

from collections.abc import Callable

from osculate.likelihoods import Link
from osculate.predictive.link.bridge import Bridge as Bridge
from osculate.predictive.link.mean_field import MeanField as MeanField
from osculate.predictive.link.monte_carlo import MonteCarlo as MonteCarlo
from osculate.predictive.link.probit import Probit as Probit

#: The links by name, as they are typed.
REGISTRY: dict[str, Callable[[], Link]] = {
    "mc": MonteCarlo,
    "probit": Probit,
    "bridge": Bridge,
    "mean_field": MeanField,
}
