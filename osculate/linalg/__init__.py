"""Linear algebra that needs only matrices: factorisations that say what they had to do."""

from osculate.linalg.psd import cholesky as cholesky, eigh as eigh, root as root
