"""What a posterior over functions is for: active learning and sensitivity."""

from experiments.functions import active, sensitivity
