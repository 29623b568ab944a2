"""Matrices of one block of parameters: diagonal, dense, a Kronecker product, low rank, or rows."""

from osculate.structures.blocks._base import (
    Block as Block,
    Correlated as Correlated,
    Delta as Delta,
    Joint as Joint,
    Precision as Precision,
    grams as grams,
)
from osculate.structures.blocks.coloured import ColouredPrecision as ColouredPrecision
from osculate.structures.blocks.dense import DenseBlock as DenseBlock, DensePrecision as DensePrecision
from osculate.structures.blocks.diagonal import DiagonalBlock as DiagonalBlock, DiagonalPrecision as DiagonalPrecision
from osculate.structures.blocks.dual import Draw as Draw, DualBlock as DualBlock, Others as Others
from osculate.structures.blocks.kronecker import (
    InterpolatedPrecision as InterpolatedPrecision,
    KroneckerBlock as KroneckerBlock,
    KroneckerPrecision as KroneckerPrecision,
    LookupBlock as LookupBlock,
)
from osculate.structures.blocks.low_rank import LowRankBlock as LowRankBlock
from osculate.structures.blocks.matrix_free import (
    Accuracy as Accuracy,
    Batch as Batch,
    MatrixFreeBlock as MatrixFreeBlock,
    MatrixFreePrecision as MatrixFreePrecision,
)
from osculate.structures.blocks.rows import Rows as Rows
from osculate.structures.blocks.stochastic import StochasticBlock as StochasticBlock
