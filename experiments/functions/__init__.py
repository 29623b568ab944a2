"""Optimisation of functions with few evaluations."""

from experiments.functions import optimisation
