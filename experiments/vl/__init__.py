"""Variational Laplace [unlu2021]."""

from experiments.vl import table1, figure1, figure2, table2
