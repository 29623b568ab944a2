"""The squared chain rule: approximate curvature diagonals in one backward pass, on any graph.

Where m holds the diagonal of a curvature matrix M with respect to the output of an operation y = φ(x), the diagonal
of Jᵀ M J is approximated by (J ∘ J)ᵀ m: the ordinary chain rule with every local Jacobian squared entry by entry. All
cross terms are dropped: those between the entries of one activation, and those between the paths through which one
tensor acts (skip connections, tied weights, both factors of a product). It is exact for the last layer. An activation
that a network writes as a product of branches, such as x · sigmoid(x), counts as that product; F.silu as one function.

One file holds one family of operations; importing it registers its rules.
"""

from osculate.curvature.squared import averages, elementwise, normalisations, products
from osculate.curvature.squared.backward import squared_diagonal as squared_diagonal, squared_pass as squared_pass

__all__ = ["averages", "elementwise", "normalisations", "products", "squared_diagonal", "squared_pass"]
