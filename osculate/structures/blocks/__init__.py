"""Matrices of one block of parameters: diagonal, dense, a Kronecker product, low rank, or rows."""

from osculate.structures.blocks._base import (
    Block as Block,
    Correlated as Correlated,
    Delta as Delta,
    Joint as Joint,
    Precision as Precision,
)
from osculate.structures.blocks.coloured import ColouredPrecision as ColouredPrecision
from osculate.structures.blocks.dense import DenseBlock as DenseBlock
from osculate.structures.blocks.diagonal import DiagonalBlock as DiagonalBlock
from osculate.structures.blocks.dual import Draw as Draw, DualBlock as DualBlock, Others as Others
from osculate.structures.blocks.kronecker import KroneckerBlock as KroneckerBlock, LookupBlock as LookupBlock
from osculate.structures.blocks.low_rank import LowRankBlock as LowRankBlock
from osculate.structures.blocks.matrix_free import (
    Accuracy as Accuracy,
    Batch as Batch,
    MatrixFreeBlock as MatrixFreeBlock,
    MatrixFreePrecision as MatrixFreePrecision,
)
from osculate.structures.blocks.rows import Rows as Rows
from osculate.structures.blocks.stochastic import StochasticBlock as StochasticBlock
