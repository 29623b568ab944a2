"""q(θ), and q(f) of functions and images: frozen values for predictives and tasks. One file per posterior."""

from osculate.posteriors._base import Posterior as Posterior, Sampled as Sampled, as_posterior as as_posterior
from osculate.posteriors.chains import Chains as Chains
from osculate.posteriors.gaussian import Fit as Fit, Gaussian as Gaussian, as_gaussian as as_gaussian
from osculate.posteriors.images import (
    DrawnImage as DrawnImage,
    GaussianImage as GaussianImage,
    ImageDistribution as ImageDistribution,
    IndependentImage as IndependentImage,
)
from osculate.posteriors.mixture import Mixture as Mixture
from osculate.posteriors.point import Point as Point
from osculate.posteriors.samples import Dropout as Dropout, Ensemble as Ensemble, Snapshots as Snapshots
