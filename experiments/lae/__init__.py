"""Laplacian autoencoders [miani2022]."""

from experiments.lae import (
    table1,
    figure5,
    figure7,
    table2,
    figure8,
    figure1,
    figure9,
    figure10,
    table3,
    figure12,
    table4,
    figure13,
    memory,
)
