"""The squared chain rule: approximate curvature diagonals in one backward pass, on any graph.

Where m holds the diagonal of a curvature matrix M with respect to the output of an operation y = φ(x), the diagonal
of Jᵀ M J is approximated by (J ∘ J)ᵀ m: the ordinary chain rule with every local Jacobian squared entry by entry. All
cross terms are dropped: those between the entries of one activation, and those between the paths through which one
tensor acts (skip connections, tied weights, both factors of a product). It is exact for the last layer. An activation
that a network writes as a product of branches, such as x · sigmoid(x), counts as that product; F.silu as one function.

The rules are in ``rules/``. An operation without one keeps its exact local Jacobian, by vector-Jacobian products.
"""

import re
import warnings
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.graph import Node
from torch.overrides import TorchFunctionMode, resolve_name
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten
from torch.utils.checkpoint import CheckpointError
from torch.utils.hooks import RemovableHandle

from osculate.curvature.columns import RECOMPUTES
from osculate.curvature.rules import RULES, Call, Rule
from osculate.curvature.rules._base import make_ordinary, refusal, words
from osculate.curvature.rules.elementwise import UNTAGGED, is_elementwise, squared_elementwise
from osculate.curvature.rules.exact import LocalJacobian
from osculate.inputs import Inputs, apply, floating
from osculate.operations import in_place, name_of, nodes_behind, tensors_in
from osculate.parameters import Network

#: Nodes of the autograd graph whose local Jacobian holds zeros and ones only, so that it equals its square.
SELECTIONS = words(
    """
    AccumulateGrad AdaptiveMaxPool2D AdaptiveMaxPool3D Add Alias AsStrided Cat ChannelShuffle Clamp ClampMax
    ClampMin Clone Col2Im ConstantPadNd CopyBackwards Cumsum Diag DiagEmbed Diagonal Embedding Expand Flip
    FractionalMaxPool2D FractionalMaxPool3D Gather Hardtanh Im2Col Index IndexAdd IndexCopy IndexFill IndexPut
    IndexSelect Kthvalue MaskedFill MaskedScatter MaskedSelect Max MaxPool2DWithIndices MaxPool3DWithIndices
    MaxUnpool2D MaxUnpool3D Median Min Mode Permute PixelShuffle PixelUnshuffle ReflectionPad1D ReflectionPad2D
    ReflectionPad3D Relu Repeat ReplicationPad1D ReplicationPad2D ReplicationPad3D ReshapeAlias Roll Scatter
    ScatterAdd Select SelectScatter Slice SliceScatter Sort Split SplitWithSizes Squeeze Stack Sum T Threshold
    ToCopy Topk Trace Transpose Tril Triu Unbind Unfold UnsafeSplit UnsafeView Unsqueeze UpsampleNearest1D
    UpsampleNearest2D UpsampleNearest3D UpsampleNearestExact1D UpsampleNearestExact2D UpsampleNearestExact3D View
    Where
    """
)
#: Those of them that divide the derivative among ties if they reduce all entries instead of an axis.
ALONG_AN_AXIS = words("Max Median Min")
#: Operations on a part of a tensor that may share a node with the rest of it.
IN_PLACE = words(
    """
    __setitem__ add_ clamp_ clamp_max_ clamp_min_ copy_ fill_ index_add_ index_copy_ index_fill_ index_put_
    masked_fill_ masked_scatter_ relu_ scatter_ scatter_add_ zero_
    """
)
#: Globals with which a Python function of torch runs its own body although a mode is active.
UNWATCHED: dict[str, Callable] = dict.fromkeys(
    ("has_torch_function", "has_torch_function_unary", "has_torch_function_variadic"), lambda *_: False
)


def squared_diagonal(
    network: Network, x: Inputs, m_of_f: Callable[[Tensor], Tensor]
) -> tuple[Float[Tensor, "N *C"], Float[Tensor, " P"]]:
    r"""The approximate diagonal of Σ_n J_nᵀ M_n J_n from the diagonals m of M_n, by the squared chain rule.

    .. math:: m_x = (J \circ J)^\top m_y \quad \text{for every operation } y = \phi(x)

    Args:
        network: The network.
        x: Inputs of N data.
        m_of_f: A function from the outputs f (N, *C) to m, of the same shape.

    Returns:
        The outputs, and the diagonal in the order of θ; in single precision where the network is in half.

    Raises:
        NotImplementedError: an operation has no rule, and writes in place, is random, complex, or cannot be watched.
        ValueError: the output depends on no tracked parameter, or is computed in half precision.

    Cost: one forward and one backward pass, and their memory. [beckerlecun1989; elsayed2022]

    >>> from osculate.parameters import Network
    >>> layer = nn.Linear(2, 1)
    >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    >>> squared_diagonal(Network(layer, ["weight", "bias"]), x, torch.ones_like)[1]
    tensor([10., 20.,  2.])
    """
    network = network.in_state_precision()  # squares of weights leave the range of half precision
    x = floating(x, network.dtype)
    with torch.inference_mode(False), torch.enable_grad():
        x = apply(lambda tensor: tensor.clone() if tensor.is_inference() else tensor, x)
        theta = {name: p.requires_grad_() for name, p in network.parameters.items()}
        f, parts = squared_pass(lambda: network(x, theta), theta, m_of_f)
    return f.detach(), network.space.flatten(parts)


def squared_pass(
    forward: Callable[[], Tensor],
    theta: Mapping[str, Tensor],
    m_of_f: Callable[[Tensor], Tensor],
    ordinary_after: bool = False,
) -> tuple[Float[Tensor, "N *C"], dict[str, Tensor]]:
    """The outputs, with their graph, and the approximate diagonal for each of some tensors.

    Args:
        forward: The forward pass, a function of the tensors.
        theta: Tensors that require a gradient.
        m_of_f: A function from the outputs to m, of the same shape.
        ordinary_after: Keep the graph of the outputs: its backward pass is then that of the ordinary chain rule, so
            that a step of training and its curvature share one forward pass.
    """
    squaring = Squaring()
    try:
        with squaring:
            f = forward()
        if not f.requires_grad:
            raise ValueError(f"the network's output does not depend on any tracked parameter ({', '.join(theta)}).")
        squaring.require_rules(f)
        m, tracked = m_of_f(f.detach()), list(theta.values())
        parts = torch.autograd.grad(f, tracked, m, materialize_grads=True, retain_graph=ordinary_after)
    except CheckpointError as error:
        raise ValueError(RECOMPUTES) from error
    finally:
        squaring.release()
    return f, dict(zip(theta, parts, strict=True))


class Squaring(TorchFunctionMode):
    """Replaces the operations of a forward pass by those with squared rules."""

    def __init__(self) -> None:
        super().__init__()
        self._hooks: list[RemovableHandle] = []
        self._known: set[Node] = set()
        self._open: list[Callable] = []
        self._warned: set[str] = set()

    def __torch_function__(self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Run one operation, with its squared backward where an argument is differentiable."""
        kwargs = kwargs or {}
        leaves = tensors_in((*args, *kwargs.values()))
        if not torch.is_grad_enabled() or not any(leaf.requires_grad for leaf in leaves):
            return func(*args, **kwargs)
        before = {leaf.grad_fn for leaf in leaves if leaf.grad_fn is not None}
        rule = RULES.get(func, Rule())
        output = rule.squares(Call(func, hooks=self._hooks), *args, **kwargs) if rule.squares else NotImplemented
        if output is NotImplemented:
            if (output := self._in_parts(func, args, kwargs, rule.parts)) is not NotImplemented:
                return output
            output = self._elementwise(func, args, kwargs)
        if not (allowed := output is not NotImplemented):
            output = func(*args, **kwargs)
        results = tensors_in((output,))
        nodes = list(nodes_behind([*results, *leaves], before | self._known))
        if not allowed and not all(
            _selects(n) or (_stem(n) == "CopySlices" and name_of(func) in IN_PLACE) for n in nodes
        ):
            output = self._by_products(func, args, kwargs, output)
            results = tensors_in((output,))
            nodes = list(nodes_behind(results, before | self._known))
        self._known.update(nodes)
        for tensor in results:
            if tensor.requires_grad and tensor.dtype in (torch.float16, torch.bfloat16):
                raise ValueError(
                    f"{name_of(func)} gave {tensor.dtype} within the forward pass, and squared Jacobians leave the "
                    "range of half precision. Leave autocast and casts out of the network's forward; a half-precision "
                    "network itself is evaluated in single precision."
                )
        return output

    def _in_parts(self, func: Callable, args: tuple, kwargs: dict, parts: Callable | None) -> Any:
        """The operation written in terms of others, which are then intercepted one by one."""
        if parts is not None:
            with self:
                if (output := parts(*args, **kwargs)) is not NotImplemented:
                    return output
        if not isinstance(func, FunctionType) or func in self._open or name_of(func) in UNTAGGED:
            return NotImplemented
        self._open.append(func)
        try:
            names = {**func.__globals__, **UNWATCHED}  # the same function, with its operations intercepted
            body = FunctionType(func.__code__, names, func.__name__, func.__defaults__, func.__closure__)
            body.__kwdefaults__ = func.__kwdefaults__
            with self:
                return body(*args, **kwargs)
        finally:
            self._open.pop()

    def _elementwise(self, func: Callable, args: tuple, kwargs: dict) -> Any:
        name = name_of(func)
        stem = name.rstrip("_") if not name.startswith("__") else name
        # an addition is a selection, except with a factor, or of a tensor to itself
        scaled = stem == "add" and (kwargs.get("alpha", 1) != 1 or (len(args) > 1 and args[0] is args[1]))
        if not scaled and not is_elementwise(stem):
            return NotImplemented
        if stem == name:
            return squared_elementwise(Call(func, hooks=self._hooks), func, *args, **kwargs)
        # in place: on a copy, since the backward may need what is overwritten
        copy, operation = args[0].clone(), getattr(torch.ops.aten, stem)
        changed = (copy if a is args[0] else a for a in args)
        output = squared_elementwise(Call(func, hooks=self._hooks), operation, *changed, **kwargs)
        return NotImplemented if output is NotImplemented else args[0].copy_(output)

    def _by_products(self, func: Callable, args: tuple, kwargs: dict, output: Any) -> Any:
        """The operation once more, with its exact local Jacobian by vector-Jacobian products.

        ``output`` is what it returned for the same arguments, which reveals random operations.
        """
        name = resolve_name(func) or name_of(func)
        if in_place(func) or kwargs.get("out") is not None:
            raise refusal(name, "it writes into a tensor")
        leaves, spec = tree_flatten((args, kwargs))
        given = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        arguments = {id(leaf): leaf for leaf in given if leaf.requires_grad}
        alone = {key: leaf.detach().requires_grad_() for key, leaf in arguments.items()}
        versions = [0 if leaf.is_inference() else leaf._version for leaf in given]
        arguments_alone, keywords_alone = tree_unflatten([alone.get(id(leaf), leaf) for leaf in leaves], spec)
        again = func(*arguments_alone, **keywords_alone)
        if versions != [0 if leaf.is_inference() else leaf._version for leaf in given]:
            raise refusal(name, "it changes its arguments")
        outputs, spec = tree_flatten(again)
        places = [i for i, y in enumerate(outputs) if isinstance(y, Tensor) and y.requires_grad]
        if any(t.is_complex() for t in (*arguments.values(), *(outputs[i] for i in places))):
            raise refusal(name, "it works on complex numbers")
        storages = {leaf.untyped_storage().data_ptr() for leaf in given}
        if any(outputs[i].untyped_storage().data_ptr() in storages for i in places):
            raise refusal(name, "its output is a view of an argument")
        first = tree_leaves(output)
        if not all(torch.allclose(first[i], outputs[i], 1e-3, 1e-5, equal_nan=True) for i in places):
            raise refusal(name, "it is random")
        local = LocalJacobian(list(alone.values()), [outputs[i] for i in places])
        if name not in self._warned:
            self._warned.add(name)
            warnings.warn(
                f"{name} has no squared rule: its exact local Jacobian takes {local.products} vector-Jacobian products "
                f"for each pass, one for each entry of {'an' if local.by_datum else 'the'} output"
                f"{' of a datum' if local.by_datum else ''}. Give it a rule with osculate.curvature.rules.squares_of, "
                "or use structure='diag' (exact) or 'kron'.",
                stacklevel=2,
            )
        for place, y in zip(places, local(*arguments.values()), strict=True):
            outputs[place] = y
        return tree_unflatten(outputs, spec)

    def require_rules(self, f: Tensor) -> None:
        """Raise an error for nodes of operations that the mode does not intercept, such as custom functions."""
        for node in nodes_behind([f]):
            if node not in self._known and not _selects(node):
                raise refusal(
                    f"{type(node).__name__} in the graph.", "it comes from an operation that cannot be watched"
                )

    def release(self) -> None:
        """Restore the ordinary backward of all nodes, and remove the hooks, which form reference cycles."""
        for hook in self._hooks:
            hook.remove()
        for node in self._known:
            make_ordinary(node)
        self._known.clear()


def _stem(node: Node) -> str:
    return re.sub(r"Backward\d*$", "", type(node).__name__)


def _selects(node: Node) -> bool:
    stem = _stem(node)
    if stem not in SELECTIONS or (stem in ALONG_AN_AXIS and not hasattr(node, "_saved_dim")):
        return False
    return getattr(node, "_saved_alpha", 1) == 1
