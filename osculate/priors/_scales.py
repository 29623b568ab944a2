"""Parameters whose scale is normalised away, found by tracing the scales of the tensors of a forward pass."""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from osculate.inputs import Inputs
from osculate.operations import name_of, tensors_in
from osculate.parameters import Network, trainable

#: The parameters, by index, to whose product a tensor is proportional; a sorted tuple with repetitions.
Factors: TypeAlias = tuple[int, ...]

#: Operations by their effect on factors; for methods and in-place variants the bare name.
PRODUCTS = frozenset({"mul", "multiply", "matmul", "rmatmul", "mm", "bmm", "rmul", "imul", "einsum"})
LAYERS = frozenset({"linear", "bilinear", *(f"conv{t}{n}d" for t in ("", "_transpose") for n in (1, 2, 3))})
SUMS = frozenset({"add", "sub", "iadd", "isub", "radd", "rsub", "cat", "concat", "stack"})
NORMS = frozenset({"batch_norm", "layer_norm", "group_norm", "instance_norm", "rms_norm", "normalize"})
KEEPING = frozenset(
    {
        *("relu", "leaky_relu", "dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "interpolate"),
        *(f"{kind}_pool{n}d" for kind in ("max", "avg", "adaptive_max", "adaptive_avg") for n in (1, 2, 3)),
        *("mean", "sum", "amax", "amin", "abs", "neg"),
        *("clone", "contiguous", "detach", "to", "float", "double", "half"),
        *("reshape", "view", "view_as", "flatten", "unflatten", "squeeze", "unsqueeze", "expand", "expand_as"),
        *("permute", "transpose", "t", "T", "mT", "movedim", "swapaxes", "swapdims", "flip", "roll", "repeat", "tile"),
        *("chunk", "split", "unbind", "narrow", "select", "index_select", "getitem", "tensor_split", "diagonal"),
        *("broadcast_to", "type_as", "pixel_shuffle", "pixel_unshuffle", "unfold", "fold", "upsample"),
    }
)
#: Attributes of a tensor that do not depend on its values.
SHAPES = frozenset(
    {"size", "dim", "shape", "ndim", "dtype", "device", "numel", "len", "stride", "requires_grad", "grad"}
)


class Watch(TorchFunctionMode):
    """Traces the factors of every tensor, and which of them are normalised away or affect another operation.

    Args:
        theta: The parameters by name.
    """

    def __init__(self, theta: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._factors: dict[int, Factors] = {id(t): (number,) for number, t in enumerate(theta.values())}
        self._kept: list[Tensor] = list(theta.values())  # keeps the tensors alive, so that no id is reused
        self._parent = list(range(len(theta)))
        self._seen: set[int] = set()
        self._normalised: set[int] = set()

    def root(self, index: int) -> int:
        """The index that represents all parameters whose scales belong together."""
        while self._parent[index] != index:
            index = self._parent[index]
        return index

    def factors(self, tensor: object) -> Factors:
        """The scales of a tensor."""
        return tuple(sorted(self.root(number) for number in self._factors.get(id(tensor), ())))

    def see(self, *factors: Factors) -> None:
        """Record that an operation depends on these scales."""
        self._seen.update(number for each in factors for number in each)

    def groups(self) -> dict[int, list[int]]:
        """The indices of the parameters of each group whose scale only normalisations depend on."""
        seen, normalised = {self.root(n) for n in self._seen}, {self.root(n) for n in self._normalised}
        found: dict[int, list[int]] = {}
        for number in range(len(self._parent)):
            if (root := self.root(number)) in normalised - seen:
                found.setdefault(root, []).append(number)
        return found

    def __torch_function__(self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> Any:
        """Run the operation, then record the factors of its result."""
        kwargs = kwargs or {}
        name = name_of(func).strip("_")
        before = [self.factors(leaf) for leaf in tensors_in((*args, *kwargs.values()))]
        output = func(*args, **kwargs)
        if any(before) and name not in SHAPES and not name.startswith("is_"):
            factors = self._result(name, args, kwargs, before)
            for tensor in tensors_in((output,)):
                self._factors[id(tensor)] = factors
                self._kept.append(tensor)
        return output

    def _result(self, name: str, args: tuple, kwargs: dict, before: list[Factors]) -> Factors:
        if name in LAYERS or name in ("multi_head_attention_forward", "addmm"):
            return self._layer(name, args, kwargs, before)
        if name in PRODUCTS:
            return tuple(sorted(number for factors in before for number in factors))
        if name in SUMS:
            values = [*args, kwargs.get("other")] if name not in ("cat", "concat", "stack") else []
            numbers = [value for value in values if isinstance(value, int | float)]
            return self._sum([*before, *[() for _ in numbers]])
        if name in KEEPING or (name in ("div", "truediv", "itruediv") and not any(before[1:])):
            self.see(*before[1:])
            return before[0]
        if name in NORMS:
            self._normalised.update(before[0])
            self.see(*before[1:])
            return ()
        self.see(*before)
        return ()

    def _layer(self, name: str, args: tuple, kwargs: dict, before: list[Factors]) -> Factors:
        """x W + b."""
        if name == "multi_head_attention_forward":  # all projections but the last affect it
            weight, bias = (kwargs.get(key, args[n] if n < len(args) else None) for key, n in ATTENTION)
            last = [self.factors(weight), self.factors(bias)]
            self.see(*(factors for factors in before if factors not in last))
            return self._sum(last if bias is not None else last[:1])
        if name == "addmm":
            return self._sum([before[0], tuple(sorted((*before[1], *before[2])))])
        bias = kwargs.get("bias", args[2] if len(args) > 2 else None)
        factors = tuple(sorted((*before[0], *before[1])))
        return factors if bias is None else self._sum([factors, self.factors(bias)])

    def _sum(self, terms: list[Factors]) -> Factors:
        """The scales of a sum of terms; scales of different terms are joined in one group."""
        first = terms[0]
        for term in terms[1:]:
            if term == first:
                continue
            if len(term) != 1 or len(first) != 1:
                self.see(*terms)
                return ()
            self._parent[max(term[0], first[0])] = min(term[0], first[0])
            first = (min(term[0], first[0]),)
        return first


#: The last projection of F.multi_head_attention_forward, as keywords and positions.
ATTENTION = (("out_proj_weight", 11), ("out_proj_bias", 12))


def normalised_groups(model: nn.Module, x: Inputs) -> dict[str, list[str]]:
    """The parameters of each group whose scale is normalised away, and all others as "unnormalised"."""
    network = Network(model, trainable(model))
    network.module.eval()
    names = network.space.names
    with torch.inference_mode(False), torch.enable_grad():
        theta = {name: p.requires_grad_() for name, p in network.parameters.items()}
        watch = Watch(theta)
        with watch:
            f = network(x, theta)
    watch.see(watch.factors(f))
    groups: dict[str, list[str]] = {}
    for members in watch.groups().values():
        first = names[members[0]]
        layer = first.rpartition(".")[0] or first
        groups[first if layer in groups else layer] = [names[number] for number in members]
    inside = {name for members in groups.values() for name in members}
    if others := [name for name in names if name not in inside]:
        groups["unnormalised"] = others
    return groups
