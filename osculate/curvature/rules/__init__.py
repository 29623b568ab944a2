"""The rules, one file for a family of operations: the rows of its parameters and its squared chain rule.

Importing a file registers its rules in :data:`RULES`. To add one, see ``docs/extend.md``.

| file | operations |
|---|---|
| linear | linear layers, matrix products, einsum |
| conv | convolutions and their transposes |
| embedding | lookups |
| norm | batch, layer, group, instance and root-mean-square normalisation, weight normalisation |
| attention | multi-head attention, scaled dot products, softmax |
| recurrent | RNN, LSTM, GRU, and their cells |
| elementwise | activations, slopes, scales, shifts, tokens and position tables |
| pooling | means, average pooling, interpolation, reductions |
| exact | the squares of any other operation |
"""

from osculate.curvature.rules import (
    attention as attention,
    conv as conv,
    elementwise as elementwise,
    embedding as embedding,
    linear as linear,
    norm as norm,
    pooling as pooling,
    recurrent as recurrent,
)
from osculate.curvature.rules._base import (
    RULES as RULES,
    Call as Call,
    Local as Local,
    Pulled as Pulled,
    Rule as Rule,
    Use as Use,
    affine as affine,
    rows_of as rows_of,
    squares_of as squares_of,
    words as words,
)
