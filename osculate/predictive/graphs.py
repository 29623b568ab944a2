"""Graphs of tensor operations, rewritten such that they do the same with fewer operations."""

from typing import Any

import torch
from torch import Tensor, fx

aten = torch.ops.aten
#: Operations that only name a tensor again.
_SAME = (aten.detach.default, aten.alias.default, aten.lift_fresh_copy.default)
#: Operations that take lists of sizes, as methods: those a graph calls when it is read from a file.
_METHODS = {
    aten.expand.default: "expand",
    aten.view.default: "view",
    aten._unsafe_view.default: "reshape",
    aten.new_zeros.default: "new_zeros",
    aten.new_ones.default: "new_ones",
    aten.new_full.default: "new_full",
    aten.new_empty.default: "new_empty",
}
#: Operations whose result has the entries of their argument in the same order.
_VIEWS = (aten.view.default, aten._unsafe_view.default)
#: Operations that do so where they add or drop axes of size one.
_RESIZING = (aten.unsqueeze.default, aten.squeeze.dim, aten.select.int, aten.expand.default)
#: The end of a slice up to the last entry.
_END = 2**63 - 1


def simplify(graph: fx.GraphModule) -> None:
    """Drop what only names or arranges tensors again, and compute what depends on constants alone, in place.

    Args:
        graph: A traced graph, whose nodes know the shapes of their results.
    """
    values: dict[fx.Node, Tensor] = {}
    written = _written(graph.graph)
    for node in list(graph.graph.nodes):
        if node.op == "get_attr":
            values[node] = getattr(graph, node.target).detach()
        elif node.op != "call_function":
            continue
        elif node.target in _SAME or _keeps_all(node):
            node.replace_all_uses_with(node.args[0])
            graph.graph.erase_node(node)
        elif node not in written and all(each in values for each in node.all_input_nodes):
            args, kwargs = fx.map_arg((node.args, node.kwargs), values.__getitem__)
            if isinstance(found := node.target(*args, **kwargs), Tensor):
                values[node] = found
    before, kept = [*graph._parameters, *graph._buffers], dict[int, str]()
    for node, value in values.items():
        if all(user in values for user in node.users):
            continue
        name = kept.setdefault(id(value), f"constant{len(kept)}")
        if not hasattr(graph, name):
            graph.register_buffer(
                name, value.clone(memory_format=torch.contiguous_format) if 0 in value.stride() else value
            )
        with graph.graph.inserting_before(node):
            constant = graph.graph.get_attr(name)
        constant.meta["val"] = value
        node.replace_all_uses_with(constant, delete_user_cb=lambda user: user not in values)
    for node in reversed(values):
        graph.graph.erase_node(node)
    for name in before:
        delattr(graph, name)
    _merge_reshapes(graph.graph, written)
    graph.graph.eliminate_dead_code()
    for node in graph.graph.nodes:
        if node.target in _METHODS:
            node.op, node.target = "call_method", _METHODS[node.target]
    graph.recompile()


def _written(graph: fx.Graph) -> set[fx.Node]:
    """The tensors into which an operation writes, and those of which they may be views."""
    found: set[fx.Node] = set()
    for node in graph.nodes:
        each = node if getattr(getattr(node.target, "_schema", None), "is_mutable", False) else None
        while isinstance(each, fx.Node):
            found.add(each)
            each = each.args[0] if each.args else None
    return found


def _keeps_all(node: fx.Node) -> bool:
    """True for a slice of everything."""
    return node.target is aten.slice.Tensor and node.args[2:] == (0, _END)


def _merge_reshapes(graph: fx.Graph, written: set[fx.Node]) -> None:
    """Replace a chain of operations that keep the order of the entries by its last shape, or by nothing."""
    origins: dict[fx.Node, fx.Node] = {}
    node: Any
    for node in list(graph.nodes):
        if not _keeps_order(node) or node in written or node.args[0] in written:
            continue
        origins[node] = origin = origins.get(node.args[0], node.args[0])
        shape = _shape(node)
        if shape == _shape(origin):
            node.replace_all_uses_with(origin)
        elif sum(not isinstance(size, int) for size in shape) <= 1:
            with graph.inserting_before(node):
                sizes = [size if isinstance(size, int) else -1 for size in shape]
                merged = graph.call_method("reshape", (origin, sizes))
            merged.meta, origins[merged] = node.meta, origin
            node.replace_all_uses_with(merged)


def _keeps_order(node: Any) -> bool:
    """True for an operation whose result has the entries of its first argument, in the same order."""
    if node.target in _VIEWS:
        return True
    if node.target in _RESIZING:
        before, after = ([size for size in _shape(each) if size != 1] for each in (node.args[0], node))
        return before == after
    if node.target is aten.permute.default:
        sizes = _shape(node.args[0])
        axes = [axis % len(sizes) for axis in node.args[1]]
    elif node.target is aten.transpose.int:
        sizes = _shape(node.args[0])
        axes = list(range(len(sizes)))
        one, other = node.args[1:]
        axes[one], axes[other] = axes[other], axes[one]
    else:
        return False
    moved = [axis for axis in axes if sizes[axis] != 1]
    return moved == sorted(moved)


def _shape(node: Any) -> list[Any]:
    """The shape of a result; a size that depends on the number of inputs is an expression."""
    return [size if isinstance(size, int) else size.node.expr for size in node.meta["val"].shape]
