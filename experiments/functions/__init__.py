"""Uses of a posterior as a distribution over functions, and as a prior."""

from experiments.functions import continual
