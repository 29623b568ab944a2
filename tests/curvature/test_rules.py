"""The rows that the engine finds equal the dense Jacobian, by whichever rule, and without any one of them."""

import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache, partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import osculate as osc
from osculate.curvature import fallback, reference
from osculate.curvature.columns import Columns
from osculate.curvature.engine import pieces
from osculate.curvature.plan import Plan, make_plan
from osculate.curvature.rules import RULES, Call, Local, Pulled, Use, affine, rows_of, squares_of
from osculate.curvature.squared import squared_diagonal
from osculate.differentiation import Unfused
from osculate.inputs import Inputs, call, take
from osculate.parameters import Network, trainable
from osculate.structures.blocks import DiagonalBlock
from tests.errors import says
from tests.laws import assert_close
from tests.zoo import ZOO

WITH_ROWS = [operation for operation, rule in RULES.items() if rule.rows or rule.parts]
#: Operations that the zoo spells in another way.
SYNONYMS = {torch.concat: torch.cat, torch.concatenate: torch.cat, torch.mul: Tensor.mul}


def rows(network: Network, plan: Plan, x: Inputs) -> Tensor:
    """The Jacobian (N, c, P), put together from the forms."""
    (piece,) = pieces(network, plan, x, lambda f, part: Columns.units(f, 1), plan.outputs, None)
    size = piece.f[0].numel()
    total = piece.f.new_zeros(size, len(piece.f), network.space.size)
    for number, form in piece.forms.items():
        total[..., plan.blocks[number].positions.reshape(-1)] += form.rows()
    return total.transpose(0, 1)


@cache
def truth(net: str) -> Tensor:
    return reference.jacobian(ZOO[net].model(), ZOO[net].x(5))


@pytest.mark.parametrize("net", ["conv1d", "conv3d"])
def test_a_wrong_batching_rule_of_torch_is_noticed(net: str) -> None:
    """That of PReLU mixes the batch with channels, and raises nothing where both have the same length."""
    network, x = network_of(net), ZOO[net].x(3)
    assert_close(fallback_rows(network, x), reference.jacobian(ZOO[net].model(), x))


def network_of(net: str) -> Network:
    model = ZOO[net].model()
    return Network(model, trainable(model))


@pytest.mark.parametrize("net", ZOO)
def test_rows_equal_the_dense_jacobian(net: str) -> None:
    network, x = network_of(net), ZOO[net].x(5)
    plan = make_plan(network, x)
    assert_close(rows(network, plan, x), truth(net))
    for part in (slice(0, 1), slice(2, 5)):  # a chunk of one, and of a size that another axis may have
        assert_close(rows(network, plan, take(x, part)), truth(net)[part])
    assert {name for block in plan.blocks if block.kind == "fallback" for name in block.names} == set(ZOO[net].fallback)


@pytest.mark.parametrize("net", ["attention", "cross_attention", "lstm", "gru", "vit", "gpt", "unet", "resnet"])
def test_projections_keep_their_factors(net: str) -> None:
    network, x = network_of(net), ZOO[net].x(5)
    kinds = {name: block.kind for block in make_plan(network, x).blocks for name in block.names}
    matrices = {name for name, p in network.parameters.items() if p.ndim > 1 and "position" not in name}
    assert matrices - {"token"} <= {name for name, kind in kinds.items() if kind == "outer"} | {"token.weight"}


class Packed(nn.Module):
    """A packed batch of sequences of different lengths, which no rewriting covers."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTM(2, 3, batch_first=True), nn.GRU(2, 3, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        lengths = 1 + (x[:, 1:, 0] > 0).sum(1)
        sequence = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return self.lstm(sequence)[1][0][0] * self.gru(sequence)[1][0]


class Unusual(nn.Module):
    """A keyword that the rule does not know, a write in place, and a table looked up for each datum and normalised."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, 2))
        self.written = nn.Parameter(torch.randn(2))
        self.table = nn.Embedding(4, 2)
        self.norm = nn.LayerNorm(2)
        self.head = nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.cat([self.token.expand(len(x), -1, -1), x.clone()], axis=1)
        h[:, 1] = self.written
        places = torch.arange(h.shape[1]).expand(len(x), -1) % 4
        return self.head(torch.tanh(h + self.norm(self.table(places))).sum(1))


@pytest.mark.parametrize(
    ("make", "by_rule"), [(Packed, set()), (Unusual, {"head.weight", "head.bias"})], ids=["packed", "unusual"]
)
def test_what_no_rule_covers_is_exact_by_the_fallback(make: Callable[[], nn.Module], by_rule: set[str]) -> None:
    model, x = make().double(), torch.randn(5, 3, 2, dtype=torch.double)
    network = Network(model, trainable(model))
    plan = make_plan(network, x)
    assert {name for block in plan.blocks if block.kind != "fallback" for name in block.names} == by_rule
    leaves = list(model.parameters())
    each = [torch.autograd.grad(f, leaves, retain_graph=True) for f in model(x).flatten()]
    expected = torch.stack([torch.cat([g.flatten() for g in gradient]) for gradient in each]).unflatten(0, (5, 3))
    for part in (slice(0, 5), slice(0, 1), slice(0, 3)):
        assert_close(rows(network, plan, x[part]), expected[part])


class Calls(TorchFunctionMode):
    """Which operations a forward pass calls."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[Callable] = set()

    def __torch_function__(self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        self.seen.add(func)
        if func in RULES and RULES[func].parts is not None:
            with self:
                output = RULES[func].parts(*args, **(kwargs or {}))
            if output is not NotImplemented:
                return output
        return func(*args, **(kwargs or {}))


BOOLEAN, FLOAT = torch.eye(4, dtype=torch.bool).roll(1, 0), torch.linspace(-1, 1, 16, dtype=torch.double).reshape(4, 4)
PADDING = torch.tensor([[0, 0, 0, 1], [0, 0, 1, 1], [0, 0, 0, 0]], dtype=torch.bool)
CAUSAL = torch.ones(4, 4, dtype=torch.bool).triu(1)


@pytest.mark.parametrize(
    "options",
    [
        {"attn_mask": BOOLEAN, "key_padding_mask": PADDING},
        {"attn_mask": FLOAT.expand(6, 4, 4), "average_attn_weights": False},
        {"attn_mask": CAUSAL, "is_causal": True, "need_weights": False},
        {"attn_mask": CAUSAL, "is_causal": True, "key_padding_mask": PADDING},
        {"key_padding_mask": PADDING, "need_weights": False},
    ],
)
@pytest.mark.parametrize("extra", [False, True], ids=["plain", "extra keys"])
def test_attention_written_out_gives_what_torch_gives(options: dict, extra: bool) -> None:
    attention = nn.MultiheadAttention(
        4, 2, 0.5, batch_first=True, bias=not extra, add_bias_kv=extra, add_zero_attn=extra
    ).double().eval()  # fmt: skip
    x, y = torch.randn(2, 3, 4, 4, dtype=torch.double)
    for inputs in ((x, x, x), (x, y, y), (x, y, y + x)):
        with Calls() as calls:
            found = attention(*inputs, **options)
        assert F.multi_head_attention_forward in calls.seen
        for mine, theirs in zip(found, attention(*inputs, **options), strict=True):
            assert (mine is None) == (theirs is None)
            if mine is not None:
                assert_close(mine, theirs)


@pytest.mark.parametrize(
    "mask", [None, BOOLEAN, BOOLEAN & ~BOOLEAN[0], FLOAT], ids=["none", "boolean", "no key", "real"]
)
def test_attention_by_its_unfused_kernel_gives_what_torch_gives(mask: Tensor | None) -> None:
    x = torch.randn(3, 2, 4, 4, dtype=torch.double)
    expected = F.scaled_dot_product_attention(*x, attn_mask=mask)
    with Unfused():
        assert_close(F.scaled_dot_product_attention(*x, attn_mask=mask), expected)


@pytest.mark.parametrize("make", [nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False, "num_layers": 3}])
@pytest.mark.parametrize("batch_first", [False, True])
def test_recurrent_networks_written_out_give_what_torch_gives(
    make: type[nn.RNNBase], options: dict, batch_first: bool
) -> None:
    net = make(2, 3, dropout=0.5, batch_first=batch_first, **options).double().eval()
    x = torch.randn(4, 4, 2, dtype=torch.double)
    start = torch.randn(net.num_layers * (1 + net.bidirectional), 4, 3, dtype=torch.double)
    state = (start, start.exp()) if make is nn.LSTM else start
    with Calls():
        output, last = net(x, state)
    expected, expected_last = net(x, state)
    assert_close(output, expected)
    assert_close(torch.stack(list(last)), torch.stack(list(expected_last)))


@cache
def callers() -> dict[Callable, list[str]]:
    """The entries of the zoo that call each operation."""
    found: dict[Callable, list[str]] = {}
    for net, case in ZOO.items():
        with Calls() as calls, torch.enable_grad():
            call(case.model(), case.x(2))
        for func in calls.seen:
            found.setdefault(func, []).append(net)
    return found


@pytest.mark.parametrize("operation", WITH_ROWS, ids=lambda o: getattr(o, "__qualname__", str(o)))
def test_without_any_one_rule_the_rows_are_the_same(operation: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    nets = callers().get(SYNONYMS.get(operation, operation), [])
    assert nets, "no entry of the zoo calls this operation"
    monkeypatch.delitem(RULES, operation)
    for net in nets[:2]:
        network, x = network_of(net), ZOO[net].x(5)
        assert_close(rows(network, make_plan(network, x), x), truth(net))


def fallback_rows(network: Network, x: Inputs) -> Tensor:
    columns = Columns.units(network(x), 1)
    forms = fallback.fallback_forms(network, list(network.space.names), x, columns.part(0, columns.count))
    return torch.cat([form.rows() for form in forms], -1).transpose(0, 1)


@pytest.mark.parametrize("net", ZOO)
def test_the_fallback_equals_the_dense_jacobian(net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network, x = network_of(net), ZOO[net].x(5)
    assert_close(fallback_rows(network, x), truth(net))
    monkeypatch.setattr(fallback, "_agree", lambda *_: False)  # one datum at a time
    assert_close(fallback_rows(network, x), truth(net))


@pytest.mark.parametrize("net", ["mlp", "conv2d", "attention", "two_inputs", "named_inputs"])
def test_the_fallback_takes_all_data_at_once_where_it_can(net: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(fallback, "take")  # which only one datum at a time needs
    assert_close(fallback_rows(network_of(net), ZOO[net].x(5)), truth(net))


class WithBilinear(nn.Module):
    """A bilinear layer, for which there is no rule, behind a layer of two units."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.bilinear, self.last = nn.Linear(3, 2), nn.Bilinear(2, 2, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.first(x))
        return self.last(torch.tanh(self.bilinear(h, h)))


def bilinear_rows(call: Call, input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Use | None:
    """A linear layer on the products of the entries of both inputs."""
    products = (input1.unsqueeze(2) * input2.unsqueeze(1)).reshape(len(input1), 1, 1, -1)
    return affine(
        call,
        weight,
        bias,
        inputs=lambda ones: F.pad(products, (0, 1), value=1.0) if ones else products,
        outputs=lambda g: g.reshape(*g.shape[:2], 1, 1, -1),
        matrix=lambda w: w.reshape(1, len(weight), -1),
    )


@pytest.fixture
def with_bilinear(monkeypatch: pytest.MonkeyPatch) -> tuple[nn.Module, Tensor, Tensor]:
    monkeypatch.delitem(RULES, F.bilinear, raising=False)
    return WithBilinear().double(), torch.randn(8, 3, dtype=torch.double), torch.randn(8, 3, dtype=torch.double)


@pytest.mark.parametrize("structure", osc.structures.REGISTRY)
def test_a_rule_with_rows_alone_serves_every_structure(
    structure: str, with_bilinear: tuple[nn.Module, Tensor, Tensor]
) -> None:
    net, x, y = with_bilinear
    fit = partial(osc.laplace, net, osc.likelihoods.Gaussian(0.5), (x, y), structure=structure, prior=1.0, refine=False)
    warned = structure in ("approx_diag", "mixed_diag")
    warns = pytest.warns(UserWarning, match=says("bilinear", "no squared rule")) if warned else nullcontext()
    with warns:
        without = fit()  # the rows of the layer by the fallback
    rows_of(F.bilinear)(bilinear_rows)
    with pytest.warns(UserWarning, match="no squared rule") if warned else nullcontext():
        q = fit()
    assert [b.kind for b in q.fit.plan.blocks if "bilinear.weight" in b.names] == ["outer"]
    assert torch.isfinite(osc.functional_variance(q, x)).all()
    # a rule may change the blocks of parameters, and so the matrix, unless that is one block or a diagonal
    blocks = [each.structure.blocks for each in (q, without)]
    if all(len(of) == 1 or all(isinstance(block, DiagonalBlock) for block in of) for of in blocks):
        assert_close(osc.functional_variance(q, x), osc.functional_variance(without, x), 1e-8)


def test_a_squared_rule_of_a_user_takes_the_place_of_the_vector_jacobian_products(
    with_bilinear: tuple[nn.Module, Tensor, Tensor],
) -> None:
    class Bilinear(Local):
        def forward(self, x1: Tensor, x2: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
            return F.bilinear(x1, x2, w, b), (x1, x2, w)

        def pull(self, needed: Sequence[bool], m: Tensor, x1: Tensor, x2: Tensor, w: Tensor) -> Pulled:
            m_1 = torch.einsum("no,noi->ni", m, torch.einsum("oij,nj->noi", w, x2).square())
            m_2 = torch.einsum("no,noj->nj", m, torch.einsum("oij,ni->noj", w, x1).square())
            return m_1, m_2, torch.einsum("no,ni,nj->oij", m, x1.square(), x2.square()), m.sum(0)

        def gradient(self, needed: Sequence[bool], g: Tensor, *saved: Tensor) -> Pulled:
            raise AssertionError

    net, x, _ = with_bilinear
    net.forward = lambda x: net.last(net.bilinear(torch.tanh(net.first(x)), torch.sin(net.first(x))))  # type: ignore[method-assign]
    network = Network(net, trainable(net))
    with pytest.warns(UserWarning, match="no squared rule"):
        expected = squared_diagonal(network, x, torch.ones_like)[1]
    squares_of(F.bilinear)(lambda call, *arguments: Bilinear()(*arguments))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert_close(squared_diagonal(network, x, torch.ones_like)[1], expected)
