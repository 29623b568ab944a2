"""Rows by plain vector-Jacobian products, datum by datum: for parameters without a rule. Slower, never wrong."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.func import vjp, vmap
from torch.utils._pytree import tree_map

from osculate.curvature.columns import pull
from osculate.curvature.forms import Dense, Form
from osculate.inputs import Inputs, apply, count, take
from osculate.parameters import Network


def fallback_forms(
    network: Network, names: list[str], x: Inputs, cotangents: Float[Tensor, "V N *C"], graph: bool = False
) -> list[Form]:
    r"""The rows s_vᵀ J_n of some parameters by automatic differentiation.

    .. math:: j_{vn} = s_{vn}^\top \frac{\partial f(x_n; \theta)}{\partial \theta}

    All data and columns go in one call if every operation of the network can be batched over them, and one datum at a
    time if an operation cannot (control flow on values, no batching rule), or if torch's batching rule of one
    is wrong, like that of PReLU in torch 2.13: a random combination of the rows is compared with a plain gradient.

    Args:
        network: The network at its mode.
        names: The parameters.
        x: Inputs of N data.
        cotangents: Columns (V, N, *C) in output space.
        graph: Keep the graph of the rows, for derivatives by the inputs.

    Returns:
        One form for each parameter, its rows flattened.

    Cost: a forward pass, a backward pass for each column, and V·N·p numbers for each parameter.
    """
    theta = {name: network.parameters[name] for name in names}
    with torch.inference_mode(False):
        x = apply(lambda tensor: tensor.clone() if tensor.is_inference() else tensor, x)

        def rows_of_one(x_n: Inputs, columns: Tensor) -> dict[str, Tensor]:
            alone = apply(lambda tensor: tensor.unsqueeze(0), x_n)
            pullback = vjp(lambda values: network(alone, values)[0], theta)[1]
            return vmap(lambda column: pullback(column)[0])(columns)

        try:
            axes = tree_map(lambda leaf: 0 if isinstance(leaf, Tensor) else None, x)
            rows = vmap(rows_of_one, in_dims=(axes, 1), out_dims=1)(x, cotangents)
            right = _agree(rows, network, theta, x, cotangents)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:
            right = False
        if not right:
            parts = [slice(n, n + 1) for n in range(count(x))]
            found = [_gradients(network, theta, take(x, part), cotangents[:, part], graph) for part in parts]
            rows = {name: torch.stack([each[name] for each in found], 1) for name in theta}
    flat = [rows[name].reshape(*cotangents.shape[:2], -1) for name in names]
    return [Dense(each if graph else each.detach()) for each in flat]


def _agree(rows: dict[str, Tensor], network: Network, theta: dict[str, Tensor], x: Inputs, cotangents: Tensor) -> bool:
    """True if a random combination of rows is the gradient of the same combination of columns."""
    generator = torch.Generator().manual_seed(0)
    mix = torch.randn(cotangents.shape[:2], generator=generator).to(cotangents)
    truth = _gradients(network, theta, x, torch.einsum("vn,vn...->n...", mix, cotangents).unsqueeze(0))
    tolerance = max(network.eps, torch.finfo(cotangents.dtype).eps) ** 0.5 * mix.norm()
    for name, found in rows.items():
        error = (torch.tensordot(mix, found, 2) - truth[name][0]).abs().max()
        if not bool(error <= tolerance * torch.linalg.vector_norm(found, torch.inf)):
            return False
    return True


def _gradients(
    network: Network, theta: dict[str, Tensor], x: Inputs, cotangents: Tensor, graph: bool = False
) -> dict[str, Tensor]:
    """∂(Σ_n c_vn · f_n)/∂θ for each column: (V, *parameter), zero where the outputs do not depend on a parameter."""
    with torch.enable_grad():
        f, every = network.at_leaves(x)
    leaves = [every[name] for name in theta]
    pulled = pull(f, leaves, cotangents, graph) if f.requires_grad else [None] * len(leaves)
    zeros = [tensor.new_zeros(len(cotangents), *tensor.shape) for tensor in theta.values()]
    return {name: z if g is None else g for name, g, z in zip(theta, pulled, zeros, strict=True)}
