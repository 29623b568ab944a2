"""Uses of a posterior over functions: active learning and sensitivity."""

from experiments.functions import active, sensitivity
