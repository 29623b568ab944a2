"""q(θ): frozen values that predictives and tasks work on. One file a posterior."""

from osculate.posteriors._base import Posterior as Posterior
from osculate.posteriors.gaussian import Fit as Fit, Gaussian as Gaussian
from osculate.posteriors.point import Point as Point
