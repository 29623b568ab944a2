"""Comparisons of methods across the documents."""

from experiments.methods import (
    calibration_cause,
    calibration_choice,
    calibration,
    comparison,
    training_defaults,
    fit_defaults,
)
