"""A plan is made once for a network, and again as soon as the network does anything else."""

import gc
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import fields
from functools import partial
from types import MethodType, SimpleNamespace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

import osculate as osc
from osculate.curvature import kept
from osculate.curvature.kept import kept_plan
from osculate.curvature.plan import Plan, make_plan
from osculate.curvature.rules import RULES, Rule
from osculate.parameters import Network, trainable
from tests.curvature.test_rows_by_value import Unpadded, sequences
from tests.errors import says
from tests.zoo import ZOO

SCALE = {"": 1.0}


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.square()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        return 2 * g * ctx.saved_tensors[0]


class Cube(Square):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.pow(3)


class Net(nn.Module):
    """A network with settings of every kind; it counts its calls."""

    calls = 0

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, 5), nn.Linear(5, 5), nn.Linear(5, 5)
        self.last, self.leaky, self.drop = nn.Linear(5, 3, bias=False), nn.LeakyReLU(0.1), nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(5)
        self.register_buffer("mask", torch.ones(5))
        self.frozen = nn.Parameter(torch.ones(5), requires_grad=False)
        self.shift, self.sizes = torch.zeros(5), [5]
        self.config = SimpleNamespace(skip=False)
        self.activation, self.function, self.reversed, self.recomputes = torch.tanh, Square, False, False

    def forward(self, x: Tensor) -> Tensor:
        Net.calls += 1
        h = self.norm(self.leaky(self.first(x))) * self.mask * self.frozen + self.shift
        if self.recomputes:
            h = checkpoint(self.second, h, use_reentrant=True)
        else:
            h = self.second(h)
        h = self.function.apply(self.drop(self.third(self.activation(h))))
        h = h.reshape(len(h), *self.sizes).flatten(1)
        f = self.last(h - x[:, :1] if self.reversed else x[:, :1] - h) * SCALE[""]
        return f + x[:, :3] if self.config.skip else f


X, Y = torch.randn(8, 4, generator=torch.Generator().manual_seed(0)), torch.zeros(8, 3)


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """The plans that were made."""
    plans: list[Plan] = []

    def make(*args: Any) -> Plan:
        plans.append(make_plan(*args))
        return plans[-1]

    monkeypatch.setattr(kept, "make_plan", make)
    return plans


def plan(model: nn.Module, x: Any = X) -> Plan:
    return kept_plan(Network(model, trainable(model)), x)


def fit(model: nn.Module, structure: str = "kron", x: Tensor = X) -> Any:
    return osc.laplace(model, osc.likelihoods.Gaussian(), (x, Y), structure=structure, prior=1.0, refine=False)


def assert_same(one: Plan, other: Plan) -> None:
    for a, b in zip(one.blocks, other.blocks, strict=True):
        assert (a.names, a.kind, a.has_bias, a.kept) == (b.names, b.kind, b.has_bias, b.kept)
        assert torch.equal(a.positions, b.positions)
    for field in fields(one):
        assert field.name == "blocks" or getattr(one, field.name) == getattr(other, field.name)


def test_a_second_fit_passes_over_the_data_and_one_datum(net: Net, made: list[Plan]) -> None:
    first = fit(net)
    assert len(made) == 1
    Net.calls = 0
    assert torch.equal(fit(net).variance(), first.variance())
    assert Net.calls == 2
    fit(net, "diag", X + 1)
    fit(net, "full", torch.cat([X, X])[:8])
    osc.plan(net, osc.likelihoods.Gaussian(), (X, Y))
    assert len(made) == 1


def test_a_choice_of_the_last_layer_is_a_plan_of_its_own(net: Net, made: list[Plan]) -> None:
    for _ in range(2):
        osc.laplace(net, osc.likelihoods.Gaussian(), (X, Y), prior=1.0, refine=False, subset="last_layer")
    assert len(made) == 2
    fit(net)
    assert len(made) == 2


@pytest.mark.parametrize("name", ZOO)
def test_a_kept_plan_is_the_one_that_would_be_made(name: str, made: list[Plan]) -> None:
    model, x, other = ZOO[name].model(), ZOO[name].x(5), ZOO[name].x(7)
    plan(model, x)
    second, third = plan(model, x), plan(model, other)
    assert len(made) == 1
    assert_same(second, made[0])
    assert_same(third, make_plan(Network(model, trainable(model)), other))


def swap(net: Net) -> None:
    net.second, net.third = net.third, net.second
    with torch.no_grad():
        net.second.weight.copy_(net.third.weight)


def method(net: Net) -> None:
    net.forward = MethodType(lambda self, x: Net.forward(self, x) + 1, net)  # type: ignore[method-assign]


def statistics(net: Net) -> None:
    net.norm.train()(torch.randn(8, 5))
    net.eval()


#: Ways in which a network can change, by what changes.
CHANGES: dict[str, Callable[[Net], object]] = {
    "a layer replaced by an equal one with other weights": lambda net: setattr(net, "second", nn.Linear(5, 5)),
    "a layer replaced by one without bias": lambda net: setattr(net, "second", nn.Linear(5, 5, bias=False)),
    "a layer replaced by a function": lambda net: setattr(net, "leaky", nn.ReLU()),
    "an attribute that is a function": lambda net: setattr(net, "activation", torch.relu),
    "a setting of a layer": lambda net: setattr(net.leaky, "negative_slope", 0.2),
    "the rate of a dropout": lambda net: setattr(net.drop, "p", 0.0),
    "a setting of a normalisation": lambda net: setattr(net.norm, "eps", 1e-3),
    "a flag": lambda net: setattr(net, "reversed", True),
    "an object of settings": lambda net: setattr(net.config, "skip", True),
    "a list": lambda net: net.sizes.append(1),
    "a function of autograd": lambda net: setattr(net, "function", Cube),
    "forward": method,
    "a hook": lambda net: net.second.register_forward_hook(lambda module, args, output: 2 * output),
    "a hook before a layer": lambda net: net.second.register_forward_pre_hook(lambda module, args: (args[0] + 1,)),
    "a hook in the backward pass": lambda net: net.second.register_full_backward_hook(lambda *_: None),
    "a parametrisation": lambda net: parametrizations.weight_norm(net.second),
    "a parameter that is no longer trained": lambda net: net.first.bias.requires_grad_(False),
    "a weight": lambda net: net.second.weight.data.neg_(),
    "one entry of a weight": lambda net: net.second.weight.detach()[0, 0].zero_(),
    "a weight of another layer": swap,
    "a frozen parameter": lambda net: net.frozen.mul_(2),
    "a buffer": lambda net: net.mask[1:2].zero_(),
    "a buffer, as data": lambda net: net.mask.data[1:2].zero_(),
    "a tensor that is an attribute": lambda net: net.shift.fill_(1.0),
    "running statistics": statistics,
    "a global": lambda net: SCALE.update({"": 2.0}),
    "a type": lambda net: net.double(),
    "a rule": lambda net: RULES.update({F.linear: Rule(RULES[F.linear].rows, None, lambda *args: NotImplemented)}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_every_change_is_noticed(what: str, net: Net, made: list[Plan], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCALE, "", 1.0)
    monkeypatch.setitem(RULES, F.linear, RULES[F.linear])
    plan(net)
    CHANGES[what](net)
    x = X.to(net.last.weight.dtype)
    found = plan(net, x)
    assert len(made) == 2
    assert_same(found, make_plan(Network(net, trainable(net)), x))


def test_what_is_refused_is_refused_for_a_network_with_a_kept_plan(net: Net) -> None:
    plan(net)
    net.norm.train()
    with pytest.raises(ValueError, match=says("Expected more than 1 value")):
        plan(net)
    net.eval().drop.train()
    with pytest.raises(ValueError, match=says("another output for the same input")):
        plan(net)
    net.eval().recomputes = True
    with pytest.raises(ValueError, match="use_reentrant"):
        plan(net)


def test_precision_of_a_pass_is_part_of_a_plan(net: Net, made: list[Plan]) -> None:
    for _ in range(2):
        plan(net)
        with torch.autocast("cpu", torch.bfloat16):
            plan(net)
    assert len(made) == 2


def test_other_shapes_of_data_have_plans_of_their_own(made: list[Plan]) -> None:
    model = nn.Sequential(nn.Conv1d(2, 3, 1), nn.AdaptiveAvgPool1d(1), nn.Flatten())
    for size in (4, 5, 4, 5):
        plan(model, torch.randn(3, 2, size))
    assert len(made) == 2
    for size in range(6, 6 + kept.KEPT):
        plan(model, torch.randn(3, 2, size))
    plan(model, torch.randn(3, 2, 4))
    assert len(made) == 3 + kept.KEPT


def test_layers_on_rows_picked_by_value_have_a_plan_for_these_data_alone(made: list[Plan]) -> None:
    model, whole, ragged = Unpadded().double(), sequences(6, 6, 6), sequences(6, 2, 4)
    for x in (whole, whole.clone(), ragged, ragged):
        found = plan(model, x)
        assert_same(found, make_plan(Network(model, trainable(model)), x))
    assert len(made) == 2
    assert [plan.blocks[0].kind for plan in made] == ["outer", "fallback"]


def test_a_plan_ends_with_its_network_and_is_not_in_copies(made: list[Plan]) -> None:
    gc.collect()
    before, net = len(kept._PLANS), nn.Sequential(nn.Linear(4, 3))
    network = Network(net, trainable(net))
    kept_plan(network, X)
    assert len(kept._PLANS) == before + 1
    for copied in (deepcopy(net), pickle.loads(pickle.dumps(net)), network.module, deepcopy(network).module):
        plan(deepcopy(copied).requires_grad_())
    assert len(made) == 5
    assert deepcopy(network).origin is None
    del net
    gc.collect()
    assert network.origin is None
    assert len(kept._PLANS) == before


def test_a_kept_plan_takes_little_memory() -> None:
    model = nn.Sequential(nn.Conv2d(3, 40, 3), nn.Flatten(), nn.Linear(40, 900))
    plan(model, torch.randn(2, 3, 3, 3))
    (found,) = kept._PLANS[next(model.parameters())]
    assert (
        sum(t.numel() for _, *tensors in found.positions for t in tensors)
        < sum(p.numel() for p in model.parameters()) / 5
    )


def test_plans_of_one_network_made_by_several_threads(net: Net) -> None:
    expected = plan(deepcopy(net))
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(partial(plan, net), [X] * 12):
            assert_same(found, expected)


class Bare(nn.Linear):
    """A layer that calls no hooks."""

    def __call__(self, x: Tensor) -> Tensor:
        return self.forward(x)


def test_a_network_that_cannot_be_compared_has_its_plan_made_again(made: list[Plan]) -> None:
    model = Bare(4, 3)
    for number in range(2):
        plan(model)
        assert len(made) == number + 1
