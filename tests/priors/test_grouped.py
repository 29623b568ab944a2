"""Named groups, and the groups that a normalisation makes: their scale does not matter, and none is made up."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.networks import UNet
from osculate.parameters import ParameterSpace, trainable
from osculate.priors import Grouped
from tests.errors import says
from tests.zoo import ZOO

SPACE = ParameterSpace.of({"0.weight": torch.zeros(2), "0.bias": torch.zeros(1), "1.weight": torch.zeros(1)})


def test_modules_and_parameters_name_groups() -> None:
    prior = Grouped({"last": ["1.weight"], "first": ["0"]}, {"first": 2.0, "last": 5.0})
    assert prior.vector(SPACE).tolist() == [2.0, 2.0, 2.0, 5.0]
    assert prior.bind(SPACE).groups == {"last": ("1.weight",), "first": ("0.weight", "0.bias")}
    assert prior.totals(torch.tensor([1.0, 2.0, 3.0, 4.0]), SPACE).tolist() == [4.0, 6.0]
    assert Grouped({"all": ["0", "1"]}, 3.0).bind(SPACE).precision.tolist() == [3.0]


@pytest.mark.parametrize(
    ("groups", "precision", "words"),
    [
        ({"a": ["0"]}, 1.0, ("no group", "1.weight")),
        ({"a": ["0"], "b": ["1", "0.bias"]}, 1.0, ("several groups", "0.bias (a, b)")),
        ({"a": ["0", "1.wieght"]}, 1.0, ("'1.wieght'", "did you mean '1.weight'")),
        ({"a": ["0"], "b": ["1"]}, {"a": 1.0}, ("no precision", "b")),
        ({"a": ["0"], "b": ["1"]}, {"a": 1.0, "c": 1.0}, ("'c'", "'a', 'b'")),
        ({"a": ["0"], "b": ["1"]}, torch.ones(3), ("(3,)", "2 groups")),
        ({}, 1.0, ("mapping",)),
    ],
)
def test_errors_name_what_is_missing_or_doubled(groups: dict, precision: object, words: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=says(*words)):
        Grouped(groups, precision).bind(SPACE)  # type: ignore[arg-type]


@pytest.mark.parametrize("structure", ["full", "kron", "diag", "dual"])
def test_a_group_of_weight_and_bias_is_one_precision_for_both(structure: str) -> None:
    model, x = ZOO["mlp"].model(), ZOO["mlp"].x(12)
    q = osc.laplace(
        model, osc.likelihoods.Categorical(), (x, torch.randint(3, (12,))), structure=structure, prior=1.0, refine=False
    )
    grouped = q.replace(prior=Grouped({"first": ["0"], "last": ["2"]}, torch.tensor([0.3, 4.0], dtype=torch.double)))
    layerwise = q.replace(prior=osc.priors.Layerwise(torch.tensor([0.3, 0.3, 4.0, 4.0], dtype=torch.double)))
    assert torch.allclose(grouped.variance(), layerwise.variance(), rtol=1e-10)
    assert torch.allclose(osc.log_evidence(grouped), osc.log_evidence(layerwise), rtol=1e-12)
    best = osc.maximise_evidence(grouped)
    gamma = torch.tensor(list(osc.evidence.effective_parameters(best).values()), dtype=torch.double)
    pulls = best.prior.totals(best.mean.square(), best.network.space) * best.prior.precision
    assert torch.allclose(best.prior.pooled(gamma, best.network.space), pulls, rtol=1e-3)


class Stream(nn.Module):
    """Two layers write into a stream that is normalised only where it is read; a third one is normalised alone."""

    def __init__(self, leak: bool = False) -> None:
        super().__init__()
        self.embed, self.inner, self.write = nn.Linear(3, 6), nn.Linear(6, 6), nn.Linear(6, 6, bias=False)
        self.norm, self.inner_norm, self.last_norm = nn.LayerNorm(6), nn.GroupNorm(2, 6), nn.BatchNorm1d(6)
        self.head, self.leak = nn.Linear(6, 2), leak

    def forward(self, x: Tensor) -> Tensor:
        stream = torch.relu(self.embed(x))
        stream = stream + self.write(torch.tanh(self.inner_norm(self.inner(self.norm(stream)))))
        out = self.head(self.last_norm(stream))
        return out + stream.mean(1, keepdim=True) if self.leak else out


class FromBelow(nn.Module):
    """Functional calls: a product without bias, with a skip, whose weight is a product of parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.scale, self.weight = nn.Parameter(torch.rand(1) + 1), nn.Parameter(torch.randn(5, 3))
        self.head = nn.Linear(5, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.nn.functional.linear(x, (self.weight * self.scale))
        return self.head(torch.nn.functional.layer_norm(h, (5,)))


class Shifted(nn.Module):
    """A normalisation of something that is not proportional to the layer before it."""

    def __init__(self, shift: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.a, self.norm, self.head, self.shift = nn.Linear(3, 5), nn.LayerNorm(5), nn.Linear(5, 2), shift

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.shift(self.a(x))))


class ByAddmm(nn.Module):
    """An affine layer written as its product."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias, self.head = (
            nn.Parameter(torch.randn(3, 5)),
            nn.Parameter(torch.randn(5)),
            nn.Linear(5, 2),
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.nn.functional.layer_norm(torch.addmm(self.bias, x, self.weight), (5,)))


def image(n: int = 4) -> Tensor:
    return torch.randn(n, 1, 8, 8, dtype=torch.double)


NETS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor], int]] = {
    "stream": (Stream, lambda: torch.randn(6, 3, dtype=torch.double), 2),
    "leak": (lambda: Stream(leak=True), lambda: torch.randn(6, 3, dtype=torch.double), 1),
    "below": (FromBelow, lambda: torch.randn(6, 3, dtype=torch.double), 2),
    "cnn": (lambda: osc.networks.NormalisedCNN(3, 1, (4, 5)), image, 2),
    "resnet": (lambda: osc.networks.ResNet(3, 1, 2, (1, 1)), lambda: torch.randn(4, 1, 16, 16, dtype=torch.double), 9),
    "preact": (lambda: osc.networks.PreActResNet(3, 1, 2, (1, 1)), image, 4),
    "transformer": (lambda: osc.networks.ViT(3, (1, 8, 8), 4, 6, 2, 2), image, 1),
    "unet": (lambda: UNet(1, 1, width=1, depth=1), image, 6),
    "square": (lambda: Shifted(lambda h: torch.addcmul(h, h, h)), lambda: torch.randn(6, 3, dtype=torch.double), 0),
    "number": (
        lambda: Shifted(lambda h: torch.add(h, other=1.0) * torch.arange(1.0, 6.0).double()),
        lambda: torch.randn(6, 3, dtype=torch.double),
        0,
    ),
    "addmm": (ByAddmm, lambda: torch.randn(6, 3, dtype=torch.double), 1),
    "fixup": (lambda: osc.networks.FixupResNet(3, 1, 2, (1, 1), 2), image, 0),
}


@pytest.mark.parametrize("name", NETS)
def test_the_scale_of_a_normalised_group_does_not_matter_and_that_of_the_others_does(name: str) -> None:
    make, inputs, count = NETS[name]
    torch.manual_seed(3)
    model, x = make().double(), inputs()
    for p in model.parameters():  # nothing at a value, such as zero, at which its scale has no effect
        p.data.add_(0.1 * torch.randn_like(p))
    groups = dict(Grouped.normalised(model, x).groups)
    others = groups.pop("unnormalised", ())
    assert len(groups) == count
    assert sorted(n for names in (*groups.values(), others) for n in names) == sorted(trainable(model))
    model.train()  # statistics of the batch
    for layer in model.modules():
        if hasattr(layer, "eps"):
            layer.eps = 1e-12
    with torch.no_grad():
        before = model(x)
        for members in groups.values():
            assert torch.allclose(scaled(model, members, x), before, rtol=1e-4, atol=1e-5)
        for member in (n for n in others if model.get_parameter(n).ndim > 1):
            assert not torch.allclose(scaled(model, [member], x), before, rtol=1e-4, atol=1e-5)


def scaled(model: nn.Module, names: list[str] | tuple[str, ...], x: Tensor) -> Tensor:
    parameters = {name: 1.7 * model.get_parameter(name) for name in names}
    return torch.func.functional_call(model, parameters, x)


def test_the_model_is_left_as_it_was_and_frozen_parameters_are_left_out() -> None:
    model = Stream()
    model.inner.requires_grad_(False)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    groups = Grouped.normalised(model, torch.randn(5, 3)).groups
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert model.training
    assert not any("inner." in name for members in groups.values() for name in members)
