r"""Matrix-free products with the curvature matrices of a network at its mode.

.. math:: G v = \sum_n J_n^\top \Lambda_n J_n v, \qquad
          H v = -\frac{\partial^2}{\partial\theta^2} \sum_n \log p(y_n \mid f(x_n; \theta))\, v

No layer rule is needed, and nothing of size c × c or P × P is built. Several vectors go through at once where every
operation can be batched, and one by one where not. J v is taken by reverse over reverse, so that it is the transpose of
Jᵀ u (the forward mode of an embedding with a padding index is not), and by forward mode where an operation has no
second derivative; one direction is verified against Jᵀ u.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.columns import Columns
from osculate.curvature.linearisation import Linearisation, derivative, recording, with_graph
from osculate.inputs import Inputs, count, take
from osculate.likelihoods import Likelihood
from osculate.memory import even_parts
from osculate.parameters import Network

#: Largest number of interacting outputs for which Λ is formed as blocks; above it, second derivatives of log p.
BLOCK = 32

#: A symmetric map of columns (S, N, *C) that acts on each datum separately, such as u -> Λ u.
OutputMap = Callable[[Tensor], Tensor]
#: A function from the outputs f (n, *C) of the data ``part`` to their map.
OutputProduct = Callable[[Tensor, slice], OutputMap]


def output_hessian(likelihood: Likelihood, f: Float[Tensor, "N *C"], y: Tensor) -> OutputMap:
    """u (S, N, *C) to Λ u, Λ_n the Hessian of −log p(y_n|f_n).

    Up to :data:`BLOCK` outputs that interact, by the root of each position's block, as the exact structures take it
    (negative directions dropped); above, by second derivatives of log p, without a matrix.
    """
    if likelihood.events(f) <= BLOCK:
        root = likelihood.local_root(f, y)

        def through_root(u: Tensor) -> Tensor:
            weights = torch.einsum("vnte,snte->svnt", root, likelihood.split(u, 1))
            return likelihood.merge(torch.einsum("svnt,vnte->snte", weights, root), f.shape)

        return through_root
    with torch.inference_mode(False), torch.enable_grad():
        leaf = f.detach().clone().requires_grad_()
        loss = -likelihood.log_prob(leaf, y.clone() if y.is_inference() else y).sum()
        (gradient,) = torch.autograd.grad(loss, leaf, create_graph=True)
    return lambda u: derivative((gradient,), [leaf], {"f": u.to(leaf.dtype)}).reshape(u.shape)


def columns_product(columns: Columns, memory: int) -> OutputMap:
    """u (S, N, *C) to Σ_v s_v s_vᵀ u, separately for each datum.

    Args:
        columns: s_v.
        memory: Bytes that the columns made at once may take.
    """

    def product(u: Tensor) -> Tensor:
        total, step = torch.zeros_like(u), max(1, memory // (u.itemsize * u[0].numel()))
        for start in range(0, columns.count, step):
            part = columns.part(start, min(columns.count, start + step)).flatten(2).to(u.dtype)
            weights = torch.einsum("vnc,snc->svn", part, u.flatten(2))
            total += torch.einsum("svn,vnc->snc", weights, part).reshape(u.shape)
        return total

    return product


def gauss_newton_product(
    network: Network, x: Inputs, v: Float[Tensor, "S P"], output_product: OutputProduct, memory: int
) -> Float[Tensor, "S P"]:
    r"""Σ_n J_nᵀ A_n J_n v for any symmetric maps A_n of the outputs of each datum. [schraudolph2002]

    Args:
        network: The network.
        x: Inputs of N data.
        v: Directions.
        output_product: A function from outputs to the map u -> A u.
        memory: Bytes that activations and their derivatives may take at once; data and directions are cut to fit.

    Returns:
        One product for each direction. Cost: about three forward passes and one backward pass each.
    """
    total = torch.zeros_like(v)
    vectors, data = portions(network, x, len(v), memory)
    for part in data:
        at = Linearisation(network, take(x, part))
        through = output_product(at.f, part)
        for rows in vectors:
            total[rows] += at.vjp(through(at.jvp(v[rows])))
    return total


def hessian_product(
    network: Network, likelihood: Likelihood, x: Inputs, y: Tensor, v: Float[Tensor, "S P"], memory: int = 2**28
) -> Float[Tensor, "S P"]:
    r"""H v, H the Hessian of −Σ_n log p(y_n | f(x_n; θ)) at the mode, by reverse over reverse. [pearlmutter1994]

    Args:
        network: The network.
        likelihood: p(y|f).
        x: Inputs of N data.
        y: Their targets.
        v: Directions.
        memory: See :func:`gauss_newton_product`.

    Returns:
        One product for each direction. Cost: one forward and one backward pass, and two more for each direction and for
        one that verifies them.

    Raises:
        RuntimeError: the second derivatives that torch gives are not symmetric, as those of its fused weight
            normalisation.
    """
    generator = torch.Generator().manual_seed(0)
    witness = torch.randn(1, v.shape[-1], generator=generator).to(v)
    v = torch.cat([v, witness])
    total = torch.zeros_like(v)
    vectors, data = portions(network, x, len(v), memory)
    for part in data:
        with recording():
            f, theta = with_graph(network, take(x, part))
            loss = -likelihood.log_prob(f.to(network.state_dtype), y[part]).sum()
            inputs = list(theta.values())
            slopes = torch.autograd.grad(loss, inputs, create_graph=True, allow_unused=True)
            for rows in vectors:
                directions = network.tangents(v[rows].detach())
                total[rows] += derivative(slopes, inputs, directions).to(total.dtype)
    difference = total @ v[-1] - v @ total[-1]  # for each direction: a wrong derivative need not show in all of them
    scale = total.norm(dim=1) * v[-1].norm() + total[-1].norm() * v.norm(dim=1)
    if bool((difference.abs() > min(0.1, 1e3 * network.eps) * scale).any()):
        raise RuntimeError(
            "the second derivatives that torch computes for this network are not symmetric, so one of its operations "
            "has a wrong one (the fused weight normalisation of torch 2.13 does). Use curvature='ggn', which needs "
            "first derivatives only."
        )
    return total[:-1]


def portions(
    network: Network, x: Inputs, vectors: int, memory: int, collected: bool = False
) -> tuple[list[slice], list[slice]]:
    """Slices of the directions and of the data that fit into the memory together.

    Args:
        network: The network.
        x: Inputs.
        vectors: Number of directions.
        memory: Bytes.
        collected: True where the products of all data with a slice of the directions are held together.
    """
    size = count(x)
    kept, outputs = _sizes(network, x)
    each = 4 * network.state_dtype.itemsize * network.space.size + (size * outputs if collected else 0)
    together = max(1, min(vectors, memory // each))
    left = max(memory // 4, memory - each * together)
    pairs = left // (2 * (kept + outputs))
    if collected and pairs >= 2 * size:  # one graph of all data serves every slice of the directions
        together = min(together, pairs // size)
    step = max(1, pairs // together)
    return even_parts(vectors, together), even_parts(size, step)


def activations(network: Network, x: Inputs) -> int:
    """The bytes that a forward pass keeps for one datum."""
    return sum(_sizes(network, x))


def _sizes(network: Network, x: Inputs) -> tuple[int, int]:
    """The bytes that a forward pass keeps for one datum, and those of its outputs."""
    own = {p.untyped_storage().data_ptr() for p in network.module.parameters()}
    sizes: list[int] = []

    def pack(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            sizes.append(tensor.nbytes)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        f, _ = with_graph(network, take(x, slice(1)))
    return sum(sizes), f.numel() * network.state_dtype.itemsize
