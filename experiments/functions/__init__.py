"""Uses of a posterior over functions: Bayesian optimisation, active and continual learning, sensitivity."""

from experiments.functions import active, continual, optimisation, sensitivity
