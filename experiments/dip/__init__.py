"""Linearised Laplace tutorial: image reconstruction [antoran2023dip]."""

from experiments.dip import choices, kmnist, calibration, ard, priors, large
