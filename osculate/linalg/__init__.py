"""Linear algebra that needs only matrices: factorisations that say what they had to do, and products."""

from osculate.linalg.products import add_gram as add_gram, mirror as mirror
from osculate.linalg.psd import cholesky as cholesky, eigh as eigh, root as root
