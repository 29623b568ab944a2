"""Linear algebra on matrices or on products with them: factorisations, solves, spectra, estimates."""

from osculate.linalg.products import (
    SquaredNorm as SquaredNorm,
    SymmetricProduct as SymmetricProduct,
    add_gram as add_gram,
    mirror as mirror,
    row_products as row_products,
)
from osculate.linalg.psd import (
    cholesky as cholesky,
    damped as damped,
    damping as damping,
    eigh as eigh,
    jittered as jittered,
    root as root,
    spectrum as spectrum,
)
from osculate.linalg.cg import Product as Product, Solution as Solution, conjugate_gradients as conjugate_gradients
from osculate.linalg.diagonals import Estimate as Estimate, diagonal as diagonal, signs as signs
from osculate.linalg.dual_descent import RowBlocks as RowBlocks, dual_descent as dual_descent
from osculate.linalg.interpolation import interpolated as interpolated
from osculate.linalg.lanczos import (
    Quadrature as Quadrature,
    apply as apply,
    log_determinant as log_determinant,
    quadrature as quadrature,
)
from osculate.linalg.low_rank import nystrom as nystrom
from osculate.linalg.white import white as white
from osculate.linalg.woodbury import DiagonalPlusLowRank as DiagonalPlusLowRank
