"""The matrices that one block of parameters can be: diagonal, dense, or a Kronecker product."""

from osculate.structures.blocks._base import Block as Block, Delta as Delta, Precision as Precision
from osculate.structures.blocks.dense import DenseBlock as DenseBlock
from osculate.structures.blocks.diagonal import DiagonalBlock as DiagonalBlock
from osculate.structures.blocks.kronecker import KroneckerBlock as KroneckerBlock
