"""What users get wrong most often, in networks, data and settings: a sentence with the value and the way out."""

import warnings
from collections.abc import Callable
from typing import Any

import jaxtyping
import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.methods import (
    HMC,
    IVON,
    MAP,
    SWAG,
    VOGN,
    DeepEnsemble,
    LevenbergMarquardt,
    MarginalLikelihood,
    MeanFieldVI,
    OnlineLaplace,
    TemperatureScaling,
    VariationalLaplace,
    VariationalUpdates,
)
from tests.errors import says

X, Y = torch.randn(12, 3, generator=torch.Generator().manual_seed(0)), torch.arange(12) % 3
CLASSES = osc.likelihoods.Categorical(ignore_index=-1)
IN_BATCHES = (MAP, SWAG, VariationalLaplace, MeanFieldVI, IVON, VOGN, OnlineLaplace, MarginalLikelihood)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Softplus(), nn.Linear(4, 3))


class Twice(nn.Module):
    """Returns a tuple."""

    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        f = self.network(x)
        return f, f


def run(method: Any, x: Tensor = X, y: Tensor = Y, **settings: Any) -> None:
    osc.train(method, (x, y), progress=False, device="cpu", **{"epochs": 4, **settings})


@pytest.mark.parametrize("method", IN_BATCHES)
def test_inputs_and_outputs_that_a_network_cannot_have(method: Any) -> None:
    for dtype in (torch.double, torch.half):
        with pytest.raises(
            TypeError, match=says(f"the inputs are {dtype}, the network's parameters torch.float32", "x.to")
        ):
            run(method(network(), CLASSES), X.to(dtype))
    with pytest.raises(ValueError, match="the network returned tuple for .* inputs; it must return one tensor"):
        run(method(Twice(), CLASSES))


def test_a_network_that_converts_its_inputs_is_left_alone() -> None:
    class Converts(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.float())

    model = Converts(3, 3)
    before = model.weight.detach().clone()
    run(MAP(model, CLASSES), X.double())
    assert not torch.equal(model.weight, before), "it is trained"


@pytest.mark.parametrize(
    "make",
    [
        *(lambda net, method=method: method(net, CLASSES) for method in (*IN_BATCHES[1:], HMC, LevenbergMarquardt)),
        lambda net: DeepEnsemble([net, network()], CLASSES),
        lambda net: osc.laplace(net, CLASSES, (X, Y), refine=False),
        lambda net: osc.posteriors.Point(net, CLASSES),
    ],
)
def test_lazy_layers_without_a_shape(make: Callable[[nn.Module], object]) -> None:
    with pytest.raises(ValueError, match=says("'0.weight' of a lazy layer", "call the network once")):
        make(nn.Sequential(nn.LazyLinear(3)))


def q() -> osc.posteriors.Gaussian:
    return osc.laplace(network(), CLASSES, (X, Y), prior=1.0, refine=False)


WRONG: dict[str, tuple[Callable[[], object], type[Exception], str]] = {
    "settings of VariationalLaplace": (
        lambda: VariationalLaplace(network(), CLASSES, settings={"every": 1}),
        TypeError,
        r"settings must be an object such as VariationalUpdates\(every=2.*got {'every': 1}",
    ),
    "settings of IVON": (
        lambda: IVON(network(), CLASSES, settings=VariationalUpdates()),
        TypeError,
        r"settings must be an object such as NaturalSteps\(.*got VariationalUpdates",
    ),
    "settings of OnlineLaplace": (
        lambda: OnlineLaplace(network(), CLASSES, 1.0, {}),
        TypeError,
        "such as OnlineUpdates",
    ),
    "settings of MarginalLikelihood": (
        lambda: MarginalLikelihood(network(), CLASSES, 1.0, {}),
        TypeError,
        "such as EvidenceUpdates",
    ),
    "every": (lambda: VariationalUpdates(every=1.5), ValueError, "every must be a whole number of at least 1, got 1.5"),
    "samples": (
        lambda: MeanFieldVI(network(), CLASSES, samples=1.5),
        ValueError,
        "samples must be a whole number of at least 1, got 1.5",
    ),
    "temperature of a posterior": (lambda: q().replace(temperature="1"), ValueError, "must be positive, got '1'"),
    "generator": (
        lambda: osc.predict(q(), X, generator=3),
        TypeError,
        r"torch.Generator, got 3: .*manual_seed\(seed\)",
    ),
    "generator of functions": (lambda: osc.sample_functions(q(), X, generator=3), TypeError, "got 3"),
    "generator of a draw": (lambda: q().sample(2, 3), TypeError, "got 3"),
    "samples of predict": (lambda: osc.predict(q(), X, samples=2.5), ValueError, "of at least 1, got 2.5"),
    "samples of functions": (lambda: osc.sample_functions(q(), X, 2.5), ValueError, "of at least 1, got 2.5"),
    "a list to load": (lambda: osc.load("q", [network()]), TypeError, "torch.nn.Module, got list: one network"),
}  # fmt: skip
for each in (VariationalLaplace, MeanFieldVI, IVON, VOGN, OnlineLaplace, MarginalLikelihood):
    WRONG[f"temperature of {each.__name__}"] = (
        lambda each=each: each(network(), CLASSES, temperature="1"),
        ValueError,
        "the temperature must be positive and finite, got '1': give a number",
    )


@pytest.mark.parametrize("name", WRONG)
def test_values_of_another_kind(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # users run without checks of types
    call, kind, words = WRONG[name]
    with pytest.raises(kind, match=words):
        call()


@pytest.mark.parametrize("method", [MAP, HMC, LevenbergMarquardt, TemperatureScaling])
def test_targets_that_are_all_ignored(method: Any) -> None:
    options = {"warmup": 1} if method is HMC else {}
    with pytest.raises(ValueError, match=says("every target is one that the likelihood ignores", "ignore_index")):
        run(method(network(), CLASSES, **options), y=torch.full((12,), -1))


def test_batches_of_ignored_targets_are_no_harm_beside_others() -> None:
    model = network()
    before = [p.detach().clone() for p in model.parameters()]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(MAP(model, CLASSES), y=torch.where(torch.arange(12) < 11, -1, Y), batch_size=2)
    assert all(bool(p.isfinite().all()) for p in model.parameters())
    assert any(not torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))
