"""The squared chain rule against a dense recursion over the operations of small graphs, and what it refuses."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import osculate as osc
from osculate.curvature import reference
from osculate.curvature.rules import RULES, exact
from osculate.curvature.squared import squared_diagonal, squared_pass
from osculate.operations import Calls
from osculate.parameters import Network, trainable
from tests.errors import says
from tests.laws import assert_close

#: One operation: the name of its result, the function, the names of its arguments.
Step = tuple[str, Callable[..., Tensor], tuple[str, ...]]


@dataclass(frozen=True)
class Graph:
    """Operations one after the other, the last one's result being the output.

    Attributes:
        x: shape of one input.
        parameters: shapes by name.
        steps: the operations, each on a batch of inputs called "x", on parameters and on earlier results.
        forward: computes the same in another way, where the network does not consist of these very operations.
    """

    x: tuple[int, ...]
    parameters: dict[str, tuple[int, ...]]
    steps: tuple[Step, ...]
    forward: Callable[..., Tensor] | None = None

    def values(self, x: Tensor, parameters: dict[str, Tensor]) -> dict[str, Tensor]:
        values = {"x": x, **parameters}
        for name, function, arguments in self.steps:
            values[name] = function(*(values[a] for a in arguments))
        return values


class Net(nn.Module):
    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.parts = nn.ParameterDict({n: torch.randn(s, dtype=torch.double) for n, s in graph.parameters.items()})

    def forward(self, x: Tensor) -> Tensor:
        parameters = dict(self.parts.items())
        if self.graph.forward is not None:
            return self.graph.forward(x, **parameters)
        return self.graph.values(x, parameters)[self.graph.steps[-1][0]]


def recursion(graph: Graph, parameters: dict[str, Tensor], x: Tensor, m: Tensor) -> dict[str, Tensor]:
    """m of every parameter, datum by datum, from dense Jacobians of each operation in each of its arguments."""
    total = {name: torch.zeros_like(p) for name, p in parameters.items()}
    for n in range(len(x)):
        values = graph.values(x[n : n + 1], parameters)
        diagonals = {name: torch.zeros_like(value) for name, value in values.items()}
        diagonals[graph.steps[-1][0]] += m[n : n + 1]
        for name, function, arguments in reversed(graph.steps):
            inputs = [values[a] for a in arguments]
            jacobians = torch.autograd.functional.jacobian(function, tuple(inputs))
            for a, j in zip(arguments, jacobians, strict=True):
                squares = j.reshape(diagonals[name].numel(), -1).square()
                diagonals[a] = diagonals[a] + (squares.T @ diagonals[name].reshape(-1)).reshape(diagonals[a].shape)
        for p in total:
            total[p] += diagonals[p]
    return total


def chain(x: tuple[int, ...], operation: Callable[[Tensor], Tensor], channels: int = 0) -> Graph:
    """A scale and a shift before an operation (of each channel, or of everything), and a smooth function after it."""
    shape = (channels, *(1,) * (len(x) - 1)) if channels else x
    return Graph(
        x,
        {"w": shape, "b": shape},
        (
            ("s", lambda x, w: x * w, ("x", "w")),
            ("a", lambda s, b: s + b, ("s", "b")),
            ("h", operation, ("a",)),
            ("f", lambda h: torch.sin(h), ("h",)),
        ),
    )


def layer(
    x: tuple[int, ...], function: Callable[..., Tensor], w: tuple[int, ...], b: tuple[int, ...] | None = None
) -> Graph:
    """An elementwise scale, an operation with a weight (and a bias), and tanh."""
    shapes = {"s": x, "w": w} | ({} if b is None else {"b": b})
    arguments = ("a", "w") if b is None else ("a", "w", "b")
    return Graph(
        x,
        shapes,
        (("a", lambda x, s: x * s, ("x", "s")), ("h", function, arguments), ("f", torch.tanh, ("h",))),
    )


MEAN, VARIANCE = torch.tensor([0.1, -0.3, 0.5]).double(), torch.tensor([0.5, 1.2, 0.8]).double()

LAYERS: dict[str, Graph] = {
    "linear": layer((4,), F.linear, (3, 4), (3,)),
    "linear on a sequence": layer((5, 4), F.linear, (3, 4)),
    "matmul with a shared matrix": layer((5, 4), lambda a, w: a @ w, (4, 3)),
    "a shared matrix from the left": layer((4, 5), lambda a, w: w @ a, (3, 4)),
    "addmm": layer((4,), lambda a, w, b: torch.addmm(b, a, w, beta=2, alpha=0.5), (4, 3), (3,)),
    "outer": layer((1,), lambda a, w: torch.outer(a[:, 0], w), (3,)),
    "dot": layer((4,), lambda a, w: torch.stack([torch.dot(each, w) for each in a]), (4,)),
    "einsum": layer((5, 4), lambda a, w: torch.einsum("ntd,hd->nht", a, w), (3, 4)),
    "einsum that sums": layer((4,), lambda a, w: torch.einsum("nd,kd->nk", a, w), (3, 4)),
    "conv1d": layer((2, 7), lambda a, w, b: F.conv1d(a, w, b, 2, 1, 2), (3, 2, 3), (3,)),
    "conv2d": layer((2, 3, 5), lambda a, w, b: F.conv2d(a, w, b, (2, 1), (1, 0), (1, 2), groups=2), (4, 1, 1, 2), (4,)),
    "conv2d same": layer((2, 3, 4), lambda a, w: F.conv2d(a, w, padding="same"), (3, 2, 2, 3)),
    "conv3d": layer((1, 3, 3, 4), lambda a, w: F.conv3d(a, w, stride=(1, 2, 1)), (2, 1, 2, 1, 3)),
    "conv_transpose1d": layer((2, 3), lambda a, w: F.conv_transpose1d(a, w, None, 2, 2, 0, 1, 3), (2, 3, 2)),
    "conv_transpose2d": layer(
        (2, 2, 3),
        lambda a, w, b: F.conv_transpose2d(a, w, b, (2, 1), (1, 0), (1, 0), groups=2),
        (2, 2, 3, 2),
        (4,),
    ),
    "batch_norm": layer((3, 4), lambda a, w, b: F.batch_norm(a, MEAN, VARIANCE, w, b), (3,), (3,)),
    "instance_norm": layer((3, 4), lambda a, w, b: F.instance_norm(a, weight=w, bias=b), (3,), (3,)),
    "group_norm": layer((4, 3), lambda a, w, b: F.group_norm(a, 2, w, b), (4,), (4,)),
    "torch.group_norm": layer((4, 3), lambda a, w, b: torch.group_norm(a, 2, w, b), (4,), (4,)),
    "layer_norm": layer((2, 3, 4), lambda a, w, b: F.layer_norm(a, (3, 4), w, b), (3, 4), (3, 4)),
    "rms_norm": layer((3, 4), lambda a, w: F.rms_norm(a, (4,), w), (4,)),
    "prelu": layer((3, 4), lambda a, w: torch.prelu(a, w), (3,)),
    "a gain for all": layer((3, 4), lambda a, w: a * w, ()),
    "division": layer((3, 4), lambda a, w: a / w, (4,)),
    "difference": layer((3, 4), lambda a, w: a - w, (4,)),
    "difference of a shared one": layer((3, 4), lambda a, w: 2.0 * w - a, (4,)),
    "addition with a factor": layer((4,), lambda a, w: torch.add(a, w, alpha=3), (4,)),
    "two factors": layer((4,), lambda a, w, b: torch.addcmul(a, w, b, value=0.3), (4,), (1, 4)),
}

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    name: getattr(F, name)
    for name in [
        "relu",
        "relu6",
        "elu",
        "selu",
        "celu",
        "gelu",
        "silu",
        "mish",
        "softplus",
        "leaky_relu",
        "hardtanh",
        "hardswish",
        "hardsigmoid",
        "softsign",
        "tanhshrink",
        "logsigmoid",
        "softshrink",
        "sigmoid",
    ]
} | {
    "in place": lambda a: F.elu(a + 0, inplace=True),
    "relu in place": lambda a: torch.relu_(a + 0),
    "times in place": lambda a: (a + 0).mul_(3.0),
    "minus in place": lambda a: (a + 0).sub_(torch.ones(()), alpha=2.0),
    "square": lambda a: a**2,
    "product with itself": lambda a: a * a,
    "sum with itself": lambda a: a + a,
    "power": lambda a: a.exp().pow(0.7),
    "power of a number": lambda a: 2.0**a,
    "one over": lambda a: 1 / (2 + a.sin()),
    "from one": lambda a: 1 - a,
    "negative": lambda a: -a,
    "absolute": lambda a: a.abs(),
    "square root": lambda a: (1 + a.square()).sqrt(),
    "clamp": lambda a: a.clamp(-0.5, 0.5),
    "where": lambda a: torch.where(a > 0, a, torch.zeros(())),
    "constant factor": lambda a: a * torch.linspace(1, 2, 4).double(),
}

AVERAGES: dict[str, Graph] = {
    "mean": chain((3, 4), lambda a: a.mean(1)),
    "mean of everything": chain((3, 4), lambda a: a.mean((1, 2), keepdim=True)),
    "sum": chain((3, 4), lambda a: a.sum(-1)),
    "variance": chain((3, 4), lambda a: a.var(1)),
    "standard deviation": chain((3, 4), lambda a: a.std(-1, keepdim=True)),
    "logsumexp": chain((3, 4), lambda a: a.logsumexp(-1)),
    "length": chain((3, 4), lambda a: a.norm(dim=-1)),
    "normalize": chain((3, 4), lambda a: F.normalize(a, dim=1)),
    "softmax": chain((3, 4), lambda a: a.softmax(1)),
    "softmin": chain((3, 4), lambda a: F.softmin(a, 1)),
    "log_softmax": chain((3, 4), lambda a: F.log_softmax(a, -1)),
    "log_softmax of a tensor": chain((3, 4), lambda a: a.log_softmax(1)),
    "max pool that overlaps": chain((2, 4, 5), lambda a: F.max_pool2d(a, 3, 1, 1)),
    "adaptive max pool": chain((2, 4, 5), lambda a: F.adaptive_max_pool2d(a, 2)),
    "max of all": chain((2, 4), lambda a: torch.stack([t.max() for t in a])),
    "max along an axis": chain((2, 4), lambda a: a.max(-1).values),
    "the larger of two": chain((2, 4), lambda a: torch.max(a, torch.zeros(()))),
    "amax": chain((2, 4, 5), lambda a: a.amax(-1)),
    "avg_pool1d": chain((2, 7), lambda a: F.avg_pool1d(a, 3, 2, 1, count_include_pad=False)),
    "avg_pool2d": chain((2, 5, 6), lambda a: F.avg_pool2d(a, (2, 3), 2, (1, 0), ceil_mode=True)),
    "avg_pool2d by a given number": chain((2, 5, 6), lambda a: F.avg_pool2d(a, 2, divisor_override=3)),
    "avg_pool3d": chain((1, 3, 4, 5), lambda a: F.avg_pool3d(a, 2, 1, 1, count_include_pad=False)),
    "adaptive_avg_pool1d": chain((2, 7), lambda a: F.adaptive_avg_pool1d(a, 3)),
    "adaptive_avg_pool2d": chain((2, 5, 7), lambda a: F.adaptive_avg_pool2d(a, (3, None))),
    "adaptive_avg_pool3d": chain((1, 3, 4, 5), lambda a: F.adaptive_avg_pool3d(a, 2)),
    "nearest": chain((2, 3, 4), lambda a: F.interpolate(a, scale_factor=2)),
    "nearest, odd": chain((2, 3, 4), lambda a: F.interpolate(a, (5, 6), mode="nearest-exact")),
    "area": chain((2, 5, 7), lambda a: F.interpolate(a, (3, 4), mode="area")),
    "linear": chain((2, 5), lambda a: F.interpolate(a, scale_factor=1.7, mode="linear")),
    "bilinear": chain((2, 3, 4), lambda a: F.interpolate(a, scale_factor=2, mode="bilinear")),
    "bilinear, corners": chain((2, 3, 4), lambda a: F.interpolate(a, (5, 7), mode="bilinear", align_corners=True)),
    "bilinear, smaller": chain((2, 6, 7), lambda a: F.interpolate(a, (3, 4), mode="bilinear", antialias=True)),
    "bicubic": chain((2, 3, 4), lambda a: F.interpolate(a, scale_factor=(1.5, 2.0), mode="bicubic")),
    "trilinear": chain((1, 2, 3, 2), lambda a: F.interpolate(a, scale_factor=2, mode="trilinear")),
    "pad": chain((2, 3, 4), lambda a: F.pad(a, (1, 2, 1, 0), mode="reflect")),
    "constant pad": chain((2, 3, 4), lambda a: F.pad(a, (1, 2, 0, 1))),
    "axes": chain((2, 3, 4), lambda a: a.permute(0, 2, 1, 3).flatten(2).transpose(1, 2).unsqueeze(1)[:, :, 1:]),
    "parts": chain((2, 6), lambda a: torch.cat([t.flip(-1) for t in a.chunk(3, -1)], 1)[..., :1]),
    "stack and split": chain((4,), lambda a: torch.stack(a.split(2, -1)).movedim(0, -1)),
    "expand": chain((1, 4), lambda a: a.expand(-1, 3, 4)),
    "repeat": chain((2, 3), lambda a: a.repeat(1, 2, 1).roll(1, -1)),
    "pixel shuffle": chain((4, 2, 3), lambda a: F.pixel_shuffle(a, 2)),
    "index": chain((2, 5), lambda a: a[:, :, torch.tensor([0, 3, 3])]),
    "cumulative sum": chain((2, 5), lambda a: a.cumsum(-1)),
    "dropout in evaluation mode": chain((2, 5), lambda a: F.dropout(a, 0.5, training=False)),
}


def part_set(a: Tensor) -> Tensor:
    y = torch.zeros_like(a)
    y[:, 1:] = a[:, 1:]
    y[:, :1] += 2
    return y


AVERAGES["a part set"] = chain((3, 4), part_set)
PLACES = torch.tensor([0, 0, 3, 1, 0])


def scaled_sum_in_place(a: Tensor) -> Tensor:
    y = torch.ones_like(a)
    y[:, :1].index_add_(-1, PLACES, a[:, 1:], alpha=2)
    return y


AVERAGES["a scaled sum by index"] = chain((2, 5), lambda a: torch.ones_like(a).index_add(-1, PLACES, a, alpha=-2))
AVERAGES["a scaled sum by index in place"] = chain((2, 5), scaled_sum_in_place)


PROJECTIONS: tuple[Step, ...] = tuple((n, F.linear, ("x", f"w{n}")) for n in "qkv")
SQUARE = {f"w{n}": (4, 4) for n in "qkv"}


def masked(logits: Tensor) -> Tensor:
    closed = torch.ones(3, 3, dtype=torch.bool).triu(1)
    return logits.masked_fill(closed, float("-inf"))


def heads(t: Tensor) -> Tensor:
    return t.unflatten(-1, (2, 2)).transpose(1, 2)


def multi_head(x: Tensor, w: Tensor, o: Tensor) -> Tensor:
    x = x.transpose(0, 1)
    return F.multi_head_attention_forward(x, x, x, 4, 2, w, None, None, None, False, 0.0, o, None)[0].transpose(0, 1)


GRAPHS: dict[str, Graph] = {
    "residual": Graph(
        (4,),
        {"w": (4, 4), "v": (4, 4)},
        (
            ("a", F.linear, ("x", "w")),
            ("b", torch.tanh, ("a",)),
            ("c", F.linear, ("b", "v")),
            ("d", lambda a, c: a + c, ("a", "c")),
            ("f", torch.sin, ("d",)),
        ),
    ),
    "residual in place": Graph(
        (4,),
        {"w": (4, 4), "v": (4, 4)},
        (("a", F.linear, ("x", "w")), ("c", F.linear, ("a", "v")), ("d", lambda c, a: torch.add(c, a), ("c", "a"))),
        lambda x, w, v: F.linear(a := F.linear(x, w), v).add_(a),
    ),
    "tied weights": Graph(
        (4,), {"w": (4, 4)}, (("a", F.linear, ("x", "w")), ("b", torch.tanh, ("a",)), ("c", F.linear, ("b", "w")))
    ),
    "tied and turned": Graph(
        (4,), {"w": (3, 4)}, (("a", F.linear, ("x", "w")), ("b", torch.tanh, ("a",)), ("c", torch.matmul, ("b", "w")))
    ),
    "gate": Graph(
        (4,),
        {"w": (6, 4)},
        (
            ("h", F.linear, ("x", "w")),
            ("a", lambda h: h[:, :3], ("h",)),
            ("b", lambda h: h[:, 3:].sigmoid(), ("h",)),
            ("f", lambda a, b: a * b, ("a", "b")),
        ),
        lambda x, w: F.glu(F.linear(x, w)),
    ),
    "concatenation": Graph(
        (3,),
        {"w": (2, 3)},
        (("h", F.linear, ("x", "w")), ("g", lambda x, h: torch.cat([x, h, h[:, :1]], 1), ("x", "h")),
         ("f", torch.exp, ("g",))),
    ),
    "product of three": Graph(
        (4,),
        {"w": (3, 4), "u": (3, 2), "v": (2, 5)},
        (("a", F.linear, ("x", "w")), ("b", torch.matmul, ("a", "u")), ("c", torch.matmul, ("b", "v"))),
        lambda x, w, u, v: torch.einsum("nk,kj,ji->ni", F.linear(x, w), u, v),
    ),
    "attention": Graph(
        (3, 4),
        SQUARE,
        (
            *PROJECTIONS,
            ("s", lambda q, k: q @ k.mT / 2, ("q", "k")),
            ("p", lambda s: masked(s).softmax(-1), ("s",)),
            ("f", torch.matmul, ("p", "v")),
        ),
        lambda x, wq, wk, wv: F.scaled_dot_product_attention(*(F.linear(x, w) for w in (wq, wk, wv)), is_causal=True),
    ),
    "multi-head attention": Graph(
        (3, 4),
        {"w": (12, 4), "o": (4, 4)},
        (
            ("qkv", F.linear, ("x", "w")),
            ("q", lambda t: heads(t[..., :4]), ("qkv",)),
            ("k", lambda t: heads(t[..., 4:8]), ("qkv",)),
            ("v", lambda t: heads(t[..., 8:]), ("qkv",)),
            ("s", lambda q, k: q @ k.mT / math.sqrt(2), ("q", "k")),
            ("p", lambda s: s.softmax(-1), ("s",)),
            ("a", torch.matmul, ("p", "v")),
            ("j", lambda a: a.transpose(1, 2).flatten(2), ("a",)),
            ("f", F.linear, ("j", "o")),
        ),
        multi_head,
    ),
    "weight norm": Graph(
        (4,),
        {"v": (3, 4), "g": (3, 1)},
        (
            ("u", lambda v: F.normalize(v, dim=1), ("v",)),
            ("w", lambda u, g: u * g, ("u", "g")),
            ("f", F.linear, ("x", "w")),
        ),
        lambda x, v, g: F.linear(x, torch._weight_norm(v, g, 0)),
    ),
}  # fmt: skip

ALL = (
    {f"layer: {name}": graph for name, graph in LAYERS.items()}
    | {f"activation: {name}": chain((3, 4), function) for name, function in ACTIVATIONS.items()}
    | {f"map: {name}": graph for name, graph in AVERAGES.items()}
    | {f"graph: {name}": graph for name, graph in GRAPHS.items()}
)


@pytest.mark.parametrize("name", ALL)
def test_it_equals_the_dense_recursion_on_diagonals(name: str) -> None:
    graph = ALL[name]
    net, x = Net(graph), torch.randn(2, *graph.x, dtype=torch.double)
    f = net(x).detach()
    m = torch.rand_like(f) + 0.1
    found_f, found = squared_diagonal(Network(net, trainable(net)), x, lambda f: m)
    assert_close(found_f, f, 1e-12)
    parameters = {n: p.detach() for n, p in net.parts.items()}
    expected = recursion(graph, parameters, x, m)
    assert_close(found, torch.cat([expected[n].reshape(-1) for n in net.parts]), 1e-10)


@pytest.mark.parametrize("name", ALL)
def test_the_same_graph_gives_the_ordinary_gradient_afterwards(name: str) -> None:
    graph = ALL[name]
    net, x = Net(graph), torch.randn(2, *graph.x, dtype=torch.double)
    g = torch.rand_like(net(x).detach())
    expected = torch.autograd.grad(net(x), list(net.parts.values()), g)
    f, _ = squared_pass(lambda: net(x), dict(net.parts.items()), torch.ones_like, ordinary_after=True)
    for found, wanted in zip(torch.autograd.grad(f, list(net.parts.values()), g), expected, strict=True):
        assert_close(found, wanted, 1e-12)


#: Two, three and four equal entries, and all of them; also the bounds of what is clamped.
TIED = torch.tensor([[1.0, 1, 0, 1], [1, 0, 0, 1], [2, 2, 2, 2]], dtype=torch.double)
TIES: dict[str, Callable[[Tensor], Tensor]] = {
    "amax": lambda w: w.amax(1),
    "amax over two axes": lambda w: torch.amax(w, (0, 1)),
    "amin": lambda w: torch.amin(input=w, dim=-1, keepdim=True),
    "amin of all": lambda w: w.amin(),
    "max of all": lambda w: w.max(),
    "min of all": lambda w: torch.min(w),
    "median of all": lambda w: w.median(),
    "max along an axis": lambda w: w.max(1).values,
    "min along an axis": lambda w: torch.min(w, dim=0)[0],
    "median along an axis": lambda w: w.median(1).values,
    "largest absolute value": lambda w: torch.linalg.vector_norm(w, math.inf, 1),
    "max of two": lambda w: torch.max(w[0], w[1]),
    "minimum of two": lambda w: torch.minimum(w[0], w[1]),
    "maximum with itself": lambda w: torch.maximum(w, w),
    "kthvalue": lambda w: w.kthvalue(2, 1).values,
    "mode": lambda w: w.mode(1).values,
    "sort": lambda w: w.sort(1).values,
    "topk": lambda w: w.topk(2, 1).values,
    "clamp": lambda w: w.clamp(0, 1),
    "clamp to tensors": lambda w: w[:1].clamp(w[1:2], w[2:]),
    "hardtanh": lambda w: F.hardtanh(w),
    "relu": lambda w: torch.relu(w - 1),
    "threshold": lambda w: F.threshold(w, 1.0, 0.0),
    "max_pool1d": lambda w: F.max_pool1d(w.unsqueeze(0), 2, 1),
    "max_pool2d": lambda w: F.max_pool2d(w[None, None], 2, 1),
    "max_pool3d": lambda w: F.max_pool3d(w[None, None, None], (1, 2, 2), 1),
    "adaptive_max_pool2d": lambda w: F.adaptive_max_pool2d(w[None, None], 2),
    "a row picked twice": lambda w: w[[0, 0, 1]],
}


@pytest.mark.parametrize("name", TIES)
def test_ties_get_the_squares_of_what_autograd_gives_each(name: str) -> None:
    class Alone(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(TIED.clone())

        def forward(self, x: Tensor) -> Tensor:
            return TIES[name](self.w).reshape(1, -1)

    jacobian = torch.autograd.functional.jacobian(TIES[name], TIED).reshape(-1, TIED.numel())
    m = torch.rand(1, len(jacobian), dtype=torch.double) + 0.1
    found = squared_diagonal(Network(Alone(), ["w"]), torch.ones(1, 1).double(), lambda f: m)[1]
    assert_close(found, (m @ jacobian.square()).squeeze(0), 1e-12)


@pytest.mark.parametrize("likelihood", [osc.likelihoods.Categorical(), osc.likelihoods.Gaussian(0.5)], ids=repr)
def test_the_last_layer_alone_is_exact(likelihood: osc.likelihoods.Likelihood) -> None:
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    x, y = torch.randn(5, 4).double(), torch.randint(3, (5,))
    y = y if isinstance(likelihood, osc.likelihoods.Categorical) else torch.randn(5, 3).double()
    truth = reference.ggn(net, likelihood, x, y).diagonal()
    network = Network(net, trainable(net))
    found = squared_diagonal(network, x, lambda f: likelihood.hessian(f, y).diagonal(dim1=1, dim2=2))[1]
    last = sum(network.space.sizes[:4])
    assert_close(found[last:], truth[last:])
    assert float((found[:last] - truth[:last]).abs().max()) > 1e-3  # what is dropped in the first


def test_elementwise_operations_add_no_node_and_keep_nothing_more() -> None:
    """The hooks stand on the nodes that are there: a network of them keeps what a training step keeps."""

    def kept(run: Callable[[], object]) -> int:
        sizes: list[int] = []

        def pack(tensor: Tensor) -> Tensor:
            sizes.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            run()
        return sum(sizes)

    net, x = (
        nn.Sequential(nn.Linear(4, 50), nn.Tanh(), nn.Linear(50, 50), nn.SiLU(), nn.Linear(50, 4)),
        torch.randn(9, 4),
    )
    network = Network(net, trainable(net))
    plain = kept(lambda: net(x))
    assert kept(lambda: squared_diagonal(network, x, torch.ones_like)) <= plain + sum(
        p.numel() for p in net.parameters()
    )


def test_embeddings_and_padding() -> None:
    net = nn.Sequential(nn.Embedding(5, 3, padding_idx=0, scale_grad_by_freq=True), nn.Flatten(), nn.Linear(12, 2))
    net = net.double()
    tokens = torch.tensor([[0, 1, 1, 4], [2, 1, 3, 0]])
    found = squared_diagonal(Network(net, ["0.weight"]), tokens, torch.ones_like)[1].reshape(5, 3)
    expected = torch.zeros(5, 3).double()
    columns = net[2].weight.detach().square().sum(0).reshape(4, 3)
    for row in tokens:
        for place, token in enumerate(row):
            if token:
                expected[token] += columns[place]
    assert_close(found, expected)


def test_a_frozen_network_before_the_tracked_parameters_costs_no_rule() -> None:
    class Frozen(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(torch.linalg.qr(self.first(x).reshape(-1, 2, 2)).Q.flatten(1))

    net, x = Frozen().double(), torch.randn(3, 4).double()
    found = squared_diagonal(Network(net, ["last.weight"]), x, torch.ones_like)[1]
    with torch.no_grad():
        inputs = torch.linalg.qr(net.first(x).reshape(-1, 2, 2)).Q.flatten(1)
    assert_close(found, inputs.square().sum(0).repeat(2))
    with pytest.warns(UserWarning, match=says("linalg", "qr", "vector-Jacobian products")):
        squared_diagonal(Network(net, trainable(net)), x, torch.ones_like)


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x**3

    @staticmethod
    def backward(ctx: object, g: Tensor) -> Tensor:
        return g


class Extreme(nn.Module):
    def forward(self, h: Tensor) -> Tensor:
        return h + h.max()


REFUSED: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "a Fourier transform": (lambda h: torch.fft.fft(h).abs(), "fft"),
    "a cumulative product in place": (lambda h: (h + 0).cumprod_(-1), "cumprod_"),
    "a view of a complex number": (
        lambda h: torch.view_as_real(torch.view_as_complex(h.unflatten(1, (2, 2)))),
        "complex",
    ),
    "running statistics": (
        lambda h: F.instance_norm(h.unsqueeze(0), torch.zeros(3), torch.ones(3))[0],
        "instance_norm",
    ),
    "a custom function": (Cube.apply, "CubeBackward"),
    "a custom function within": (lambda h: torch.tanh(Cube.apply(h)), "CubeBackward"),
    "batch statistics": (lambda h: F.batch_norm(h, None, None, training=True), "batch_norm"),
    "an active dropout": (lambda h: F.dropout(h, 0.5, training=True), "dropout"),
    "a compiled script": (torch.jit.trace(nn.Softplus(), torch.ones(2, 4)), "Softplus"),
    "an extreme within a script": (torch.jit.trace(Extreme(), torch.ones(2, 4)), "MaxBackward"),
}

GRID = torch.rand(1, 3, 2, 2, generator=torch.Generator().manual_seed(0), dtype=torch.double)

#: Operations without a squared rule.
WITHOUT: dict[str, Graph] = {
    "a cumulative product": chain((3, 4), lambda a: a.cumprod(-1)),
    "distances": layer((4,), lambda a, w: torch.cdist(a, w), (3, 4)),
    "an ellipsis in einsum": layer((3, 4), lambda a, w: torch.einsum("...i,...i->...", a, w), (3, 4)),
    "a sampled grid": chain(
        (2, 2, 2), lambda a: F.grid_sample(GRID.expand(len(a), -1, -1, -1), a.tanh(), align_corners=False)
    ),
    "two results": chain((3, 2), lambda a: torch.cat([t.flatten(1) for t in torch.linalg.qr(a)], 1)),
    "time first": chain((2, 3), lambda a: a.transpose(0, 1).contiguous().cumprod(0).transpose(0, 1)),
    "one argument twice": layer((4,), lambda a, w: F.bilinear(a, a, w), (2, 4, 4)),
    "a bilinear layer": layer((4,), lambda a, w, b: F.bilinear(a, a.detach() + 1, w, b), (3, 4, 4), (3,)),
}


@pytest.mark.parametrize("name", WITHOUT)
def test_an_operation_without_a_rule_keeps_its_exact_local_jacobian(name: str) -> None:
    graph = WITHOUT[name]
    net, x = Net(graph), torch.randn(2, *graph.x, dtype=torch.double)
    m = torch.rand_like(net(x).detach()) + 0.1
    with pytest.warns(UserWarning, match=says("no squared rule", "vector-Jacobian products", "squares_of")):
        found = squared_diagonal(Network(net, trainable(net)), x, lambda f: m)[1]
    expected = recursion(graph, {n: p.detach() for n, p in net.parts.items()}, x, m)
    assert_close(found, torch.cat([expected[n].reshape(-1) for n in net.parts]), 1e-10)


#: Composed of several operations with or without their rule, and one that only its rule tells from a selection.
COMPOSED = {
    *("graph: attention", "graph: multi-head attention", "graph: product of three", "map: normalize"),
    "map: a scaled sum by index in place",
}


@pytest.mark.parametrize("name", sorted({n for n in ALL if not n.startswith("activation")} - COMPOSED))
@pytest.mark.filterwarnings("ignore:.*no squared rule")
def test_every_squared_rule_equals_the_squares_of_the_exact_local_jacobian(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = ALL[name]
    net, x = Net(graph), torch.randn(3, *graph.x, dtype=torch.double)
    m = torch.rand_like(net(x).detach()) + 0.1
    network = Network(net, trainable(net))
    by_rule = squared_diagonal(network, x, lambda f: m)[1]
    for operation, rule in RULES.items():
        monkeypatch.setitem(RULES, operation, replace(rule, squares=None))
    assert_close(squared_diagonal(network, x, lambda f: m)[1], by_rule, 1e-10)


def test_the_graphs_call_every_squared_rule() -> None:
    called: set[str] = set()
    for graph in ALL.values():
        with Calls() as calls:
            net = Net(graph)
            net(torch.randn(2, *graph.x, dtype=torch.double))
        called |= {rule.squares.__name__ for call in calls.seen if (rule := RULES.get(call)) and rule.squares}
    assert called | {"embedding_squares"} == {rule.squares.__name__ for rule in RULES.values() if rule.squares}


@pytest.mark.parametrize("chunk", [1, 50])
def test_rows_of_a_local_jacobian_are_taken_in_chunks(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = WITHOUT["two results"]
    net, x = Net(graph), torch.randn(3, *graph.x, dtype=torch.double)
    network = Network(net, trainable(net))
    with pytest.warns(UserWarning, match=says("qr", "10 vector-Jacobian products", "output of a datum")):
        whole = squared_diagonal(network, x, torch.ones_like)[1]
    monkeypatch.setattr(exact, "NUMBERS", chunk)
    with pytest.warns(UserWarning, match="qr"):
        in_chunks = squared_diagonal(network, x, torch.ones_like)[1]
    assert_close(in_chunks, whole, 1e-12)


def test_an_operation_without_a_rule_gives_the_ordinary_gradient_afterwards() -> None:
    graph = WITHOUT["two results"]
    net, x = Net(graph), torch.randn(2, *graph.x, dtype=torch.double)
    expected = torch.autograd.grad(net(x).sum(), list(net.parts.values()))
    with pytest.warns(UserWarning, match="no squared rule"):
        f, _ = squared_pass(lambda: net(x), dict(net.parts.items()), torch.ones_like, ordinary_after=True)
    for found, wanted in zip(torch.autograd.grad(f.sum(), list(net.parts.values())), expected, strict=True):
        assert_close(found, wanted, 1e-12)


class Then(nn.Module):
    """A linear layer, and any function behind it."""

    def __init__(self, function: Callable[[Tensor], Tensor], width: int = 4) -> None:
        super().__init__()
        self.first, self.function = nn.Linear(4, width), function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.first(x))


@pytest.mark.parametrize("name", REFUSED)
def test_an_operation_that_cannot_be_squared_is_refused_by_name(name: str) -> None:
    function, word = REFUSED[name]
    net = Then(function)
    with pytest.raises(NotImplementedError, match=says(word, "structure='diag'", "'kron'")):
        squared_diagonal(Network(net, trainable(net)), torch.randn(3, 4), torch.ones_like)


def test_a_checkpoint_cannot_repeat_its_forward_pass_in_silence() -> None:
    net = Then(lambda h: checkpoint(lambda t: torch.sin(t) * t, h, use_reentrant=False))
    with pytest.raises(Exception, match="(?i)checkpoint|rule"):
        squared_diagonal(Network(net, trainable(net)), torch.randn(3, 4), torch.ones_like)


def test_a_tensor_changed_after_its_use_is_noticed() -> None:
    def changed(h: Tensor) -> Tensor:
        a = torch.tanh(h)
        y = a @ torch.ones(4, 2)
        z = F.linear(a, h.mT @ h)
        a.mul_(2)
        return y + z[:, :2]

    net = Then(changed)
    with pytest.raises(RuntimeError, match="inplace"):
        squared_diagonal(Network(net, trainable(net)), torch.randn(3, 4), torch.ones_like)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_networks_are_summed_in_single(dtype: torch.dtype) -> None:
    net = nn.Sequential(nn.Linear(4, 300), nn.GELU(), nn.Linear(300, 3))
    with torch.no_grad():
        net[2].weight.mul_(1e-3)  # its square is below the smallest float16
    half, x = net.to(dtype), torch.randn(20, 4).to(dtype)
    found = squared_diagonal(Network(half, trainable(half)), x, torch.ones_like)[1]
    assert found.dtype == torch.float32
    wide = half.double()
    expected = squared_diagonal(Network(wide, trainable(wide)), x.double(), torch.ones_like)[1]
    assert_close(found.double(), expected, 1e-5)
    assert float(expected[:1200].max()) < 1e-3
    assert float(found[:1200].min()) > 0


def test_casts_to_half_precision_within_are_refused() -> None:
    net = Then(lambda h: (h.half() * 2).float())
    with pytest.raises(ValueError, match=says("float16", "autocast")):
        squared_diagonal(Network(net, trainable(net)), torch.randn(3, 4), torch.ones_like)


def test_an_output_that_depends_on_nothing_is_refused() -> None:
    net = Then(lambda h: torch.ones(len(h), 2))
    with pytest.raises(ValueError, match=says("does not depend", "first.weight")):
        squared_diagonal(Network(net, trainable(net)), torch.randn(3, 4), torch.ones_like)


def test_the_network_and_autograd_are_left_as_they_were() -> None:
    net, x = nn.Sequential(nn.Linear(4, 3), nn.Softmax(-1)).double(), torch.randn(3, 4).double()
    network = Network(net, trainable(net))
    before = torch.autograd.grad(net(x).square().sum(), list(net.parameters()))
    squared_diagonal(network, x, torch.ones_like)
    assert all(p.grad is None for p in network.module.parameters())
    after = torch.autograd.grad(net(x).square().sum(), list(net.parameters()))
    for b, a in zip(before, after, strict=True):
        assert torch.equal(a, b)


def test_under_inference_mode_and_no_grad() -> None:
    net, x = nn.Linear(4, 3), torch.randn(3, 4)
    network = Network(net, trainable(net))
    expected = squared_diagonal(network, x, torch.ones_like)[1]
    with torch.inference_mode():
        assert_close(squared_diagonal(network, x.clone(), torch.ones_like)[1], expected, 1e-5)
    with torch.no_grad():
        assert_close(squared_diagonal(network, x, torch.ones_like)[1], expected, 1e-5)
