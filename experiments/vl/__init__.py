"""Variational Laplace: one file a table or figure, beside what they share."""
