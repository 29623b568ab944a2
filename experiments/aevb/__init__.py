"""Auto-encoding variational Bayes [nicholson2016]."""

from experiments.aevb import figure2, figure3, figure4, figure5, figure6, reconstruction
from experiments.aevb import full_vb, fair, priors, implicit, dvae
