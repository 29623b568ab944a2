"""Comparisons of methods across the documents."""

from experiments.methods import comparison
