"""Linear algebra that needs only matrices: factorisations that say what they had to do, and products."""

from osculate.linalg.products import gram as gram
from osculate.linalg.psd import cholesky as cholesky, eigh as eigh, root as root
