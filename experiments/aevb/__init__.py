"""Auto-encoding variational Bayes [nicholson2016]."""

from experiments.aevb import (
    figure2,
    figure3,
    figure4,
    figure5,
    figure6,
    figure7,
    figure8,
    full_vb,
    priors,
    implicit,
    dvae,
)
