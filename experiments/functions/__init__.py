"""Uses of a posterior over functions: continual and active learning, sensitivity."""

from experiments.functions import active, continual, sensitivity
