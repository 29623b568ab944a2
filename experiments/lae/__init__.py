"""Laplacian autoencoders [miani2022]."""

from experiments.lae import table1, figure5, figure7, table2, maps, figure9, figure10
from experiments.lae import table3, figure12, table4, figure13, memory
