"""Posteriors of adapters of foundation models."""

from experiments.foundation import worth
