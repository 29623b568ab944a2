"""Laplacian autoencoders [miani2022]."""

from experiments.lae import table1, figure5, figure7, table2, maps, detection, explained
from experiments.lae import table3, images, figure12, faces, memory
