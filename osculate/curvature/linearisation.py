"""The network around its mode, and its derivatives, computed in the way that its operations allow."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial

import torch
from jaxtyping import Float
from torch import Tensor

from osculate.curvature.columns import pull
from osculate.differentiation import Elementary, Unfused, forward_derivative
from osculate.inputs import Inputs, apply, needs_gradient
from osculate.parameters import Network

#: A way out for a network without products J v.
_INSTEAD = (
    "osc.predict and osc.functional_variance need none with a structure that is built from layers ('full', 'block', "
    "'kron', 'diag')"
)
#: Axes of outputs that are images: through convolutions forward mode is the fastest way.
IMAGES = (4, 5)


class Linearisation:
    """The network around its mode for some inputs, f(x; θ* + v) ≈ f + J v.

    Args:
        network: The network.
        x: Inputs of N data.
    """

    def __init__(self, network: Network, x: Inputs) -> None:
        self._network, self._differentiable = network, needs_gradient(x)
        self._x = apply(lambda tensor: tensor.clone() if tensor.is_inference() else tensor, x)

    @cached_property
    def _graph(self) -> tuple[Tensor, list[Tensor]]:
        f, theta = with_graph(self._network, self._x, self._differentiable)
        return f, list(theta.values())

    @property
    def f(self) -> Float[Tensor, "N *C"]:
        """The outputs at the mode."""
        f = self._graph[0]
        return (f if self._differentiable else f.detach()).to(self._network.state_dtype)

    def jvp(self, v: Float[Tensor, "S P"]) -> Float[Tensor, "S N *C"]:
        """J v for several directions; about three forward passes each, and a backward pass to verify them."""
        graph = self._differentiable or (v.requires_grad and torch.is_grad_enabled())
        v = v if graph else v.detach()
        if graph:
            self._verified(self._double_backward, v.detach())
            return self._double_backward(v, graph=True).to(self._network.state_dtype)
        ways = [self._double_backward, lambda v: torch.stack([self._forward(one) for one in v])]
        if len(v) > 1:
            ways.insert(0 if self._graph[0].ndim in IMAGES else 1, torch.func.vmap(self._forward))
        try:
            product = _first_that_works([partial(self._verified, way) for way in ways], v)
        except NotImplementedError as error:
            raise ValueError(
                "an operation of this network has neither a second derivative nor a derivative in forward mode "
                f"({str(error).partition(' because')[0]}): products with its Jacobian cannot be computed. {_INSTEAD}."
            ) from error
        return product.to(self._network.state_dtype)

    @cached_property
    def _witness(self) -> tuple[Float[Tensor, "N *C"], Float[Tensor, " P"]]:
        """A random u, and Jᵀ u."""
        f = self._graph[0]
        u = torch.randn(f.shape, generator=torch.Generator().manual_seed(0)).to(f)
        return u, self.vjp(u.unsqueeze(0))[0].detach()

    def _verified(self, way: Callable[[Tensor], Tensor], v: Float[Tensor, "S P"]) -> Float[Tensor, "S N *C"]:
        """J v; an error unless u · J v = v · Jᵀ u.

        Reverse over reverse silently returns zero after an operation that is differentiable only once.
        """
        product, (u, row) = way(v), self._witness
        first = product[0].to(row.dtype)
        difference = (u.to(row.dtype) * first).sum() - row @ v[0].to(row.dtype)
        scale = u.norm().to(row.dtype) * first.norm() + row.norm() * v[0].norm().to(row.dtype)
        if bool(difference.abs() > min(0.1, 1e3 * self._network.eps) * scale):
            raise RuntimeError(
                "the forward and the backward derivative of an operation of this network differ: products with its "
                f"Jacobian are not defined. {_INSTEAD}."
            )
        return product

    def vjp(self, u: Float[Tensor, "S N *C"]) -> Float[Tensor, "S P"]:
        """Jᵀ u for several columns; one forward pass, and one backward pass each."""
        f, theta = self._graph
        if not f.requires_grad:
            return u.new_zeros(len(u), self._network.space.size)
        graph = self._differentiable or (u.requires_grad and torch.is_grad_enabled())
        with recording(self._differentiable):  # activations may be recomputed
            parts = pull(f, theta, u.to(f.dtype), graph)
        rows = flat(parts, theta, len(u))
        return (rows if graph else rows.detach()).to(self._network.state_dtype)

    def _forward(self, v: Float[Tensor, " P"]) -> Float[Tensor, "N *C"]:
        def outputs(theta: dict[str, Tensor]) -> Tensor:
            return self._network(self._x, theta)

        with recording():
            return forward_derivative(outputs, self._network.parameters, self._network.tangents(v)).detach()

    def _double_backward(self, v: Float[Tensor, "S P"], graph: bool = False) -> Float[Tensor, "S N *C"]:
        """J v as the derivative of uᵀ J v by u."""
        u, rows = self._transposed
        with recording():
            return derivative(rows, [u], self._network.tangents(v), graph).reshape(len(v), *u.shape)

    @cached_property
    def _transposed(self) -> tuple[Tensor, tuple[Tensor | None, ...]]:
        """u = 0, and Jᵀ u with its graph."""
        f, theta = self._graph
        with recording():
            u = torch.zeros_like(f, requires_grad=True)
            return u, torch.autograd.grad(f, theta, u, create_graph=True, allow_unused=True)


@contextmanager
def recording(elementary: bool = False) -> Iterator[None]:
    """Enable derivatives, of attention and recurrent layers in every order; if asked for, of normalisations too."""
    with torch.inference_mode(False), torch.enable_grad(), Elementary() if elementary else Unfused():
        yield


def with_graph(network: Network, x: Inputs, elementary: bool = False) -> tuple[Tensor, dict[str, Tensor]]:
    """The outputs at the mode, and the parameters to which their graph leads.

    Args:
        network: The network.
        x: Inputs.
        elementary: Give the outputs derivatives of every order.
    """
    with recording(elementary):
        return network.at_leaves(x)


def _first_that_works(ways: Sequence[Callable[[Tensor], Tensor]], v: Tensor) -> Tensor:
    for way in ways[:-1]:
        try:
            return way(v)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError:  # an operation without a rule for this way of differentiation
            continue
    return ways[-1](v)


def flat(parts: list[Tensor | None], like: list[Tensor], size: int) -> Float[Tensor, "S P"]:
    """Parts with a leading axis S as one flat matrix; zero where there is none."""
    filled = [
        tensor.new_zeros(size, tensor.numel()) if part is None else part.reshape(size, -1)
        for part, tensor in zip(parts, like, strict=True)
    ]
    return torch.cat(filled, -1)


def derivative(
    rows: tuple[Tensor | None, ...], inputs: list[Tensor], directions: dict[str, Tensor], graph: bool = False
) -> Float[Tensor, "S n"]:
    """∂(rows · directions)/∂inputs, flat, for directions with a leading axis S; zero where nothing depends on them.

    Args:
        rows: Rows with a graph that leads to the inputs.
        inputs: The inputs.
        directions: Directions by name, in the order of the rows.
        graph: Record the graph of the result.
    """
    options: dict[str, bool] = {"retain_graph": True, "allow_unused": True, "create_graph": graph}
    pairs = [
        (row, v) for row, v in zip(rows, directions.values(), strict=True) if row is not None and row.requires_grad
    ]
    size = len(next(iter(directions.values())))
    if not pairs:
        return flat([None] * len(inputs), inputs, size)
    outputs, columns = [row for row, _ in pairs], torch.cat([v.reshape(size, -1) for _, v in pairs], -1)

    def split(columns: Float[Tensor, "*S n"]) -> list[Tensor]:
        parts = columns.split([row.numel() for row in outputs], -1)
        return [part.reshape((*columns.shape[:-1], *row.shape)) for part, row in zip(parts, outputs, strict=True)]

    def batched(columns: Tensor) -> Tensor:
        found = torch.autograd.grad(outputs, inputs, split(columns), is_grads_batched=True, **options)
        return flat(list(found), inputs, size)

    def single(columns: Tensor) -> Tensor:
        each = [torch.autograd.grad(outputs, inputs, split(one), **options) for one in columns]
        return flat([None if one[0] is None else torch.stack(one) for one in zip(*each, strict=True)], inputs, size)

    # vmap makes the convolutions of a single direction grouped ones, several times as slow
    return _first_that_works((batched, single), columns) if size > 1 else single(columns)
