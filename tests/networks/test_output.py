"""Networks that return several things: the part that is named is f, everywhere that a network is taken."""

import copy
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.inputs import call
from osculate.methods import REGISTRY, FullBatch, Method
from osculate.networks import Output, Tempered, WithPrior
from tests.errors import says

assert_close = torch.testing.assert_close
LIKELIHOOD = osc.likelihoods.Categorical()
X, Y = torch.randn(40, 4, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 3
Result = namedtuple("Result", "mean attention")


class Bare(nn.Module):
    """f alone, as the last entry of the tuple that the others make of it."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.drop, self.head = nn.Linear(4, 5), nn.Dropout(0.1), nn.Linear(5, 3)

    def both(self, x: Tensor) -> tuple[Tensor, Tensor]:
        h = self.drop(self.body(x).tanh())
        return h, self.head(h)

    def forward(self, x: Tensor) -> Any:
        return self.both(x)[1]


class Several(Bare):
    """What ``pack`` makes of f, hidden features, and the outputs of a second head that comes after it."""

    def __init__(self, pack: Callable[..., Any] = lambda f, h, other: (f, other)) -> None:
        super().__init__()
        self.other, self.pack = nn.Linear(5, 2), pack

    def forward(self, x: Tensor) -> Any:
        h, f = self.both(x)
        return self.pack(f, h, self.other(h))


@dataclass
class Scores:
    """An output with a loss that nobody asked for."""

    loss: Tensor | None
    scores: Tensor


class ModelOutput(OrderedDict):
    """As of Hugging Face: an ordered dictionary whose entries are attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError as error:
            raise AttributeError(name) from error


#: What a network returns, and the name of f in it.
RETURNED: dict[str, tuple[Callable[..., Any], int | str]] = {
    "tuple": (lambda f, h, other: (f, other), 0),
    "list": (lambda f, h, other: [other, f], 1),
    "from the end": (lambda f, h, other: (other, h, f), -1),
    "dict": (lambda f, h, other: {"prediction": f, "features": h}, "prediction"),
    "nested": (lambda f, h, other: {"out": {"logits": f}, "states": (h, other)}, "out.logits"),
    "key with a dot": (lambda f, h, other: {"out.f": f, "out": h}, "out.f"),
    "named tuple": (lambda f, h, other: Result(f, h), "mean"),
    "dataclass": (lambda f, h, other: Scores(None, f), "scores"),
    "Hugging Face, another part": (lambda f, h, other: ModelOutput(logits=other, states=(h, f)), "states.1"),
}


def pair(pack: Callable[..., Any] = RETURNED["tuple"][0], seed: int = 0) -> tuple[Several, Bare]:
    """A network that returns several things, and the same one that returns f."""
    torch.manual_seed(seed)
    several, bare = Several(pack).eval(), Bare().eval()
    bare.load_state_dict({name: value for name, value in several.state_dict().items() if "other" not in name})
    return several, bare


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def assert_same(q: Any, expected: Any, x: Any = X) -> None:
    assert_close(osc.predict(q, x).probs, osc.predict(expected, x).probs)
    assert_close(osc.functional_variance(q, x), osc.functional_variance(expected, x))


@pytest.mark.parametrize("returned", RETURNED)
def test_the_part_that_is_named_is_f(returned: str) -> None:
    pack, output = RETURNED[returned]
    several, bare = pair(pack)
    assert torch.equal(Output(several, output)(X), bare(X))
    q = osc.laplace(several, LIKELIHOOD, (X, Y), output=output, prior=1.0, refine=False)
    assert_same(q, osc.laplace(bare, LIKELIHOOD, (X, Y), prior=1.0, refine=False))


def test_logits_need_no_name() -> None:
    several, bare = pair(lambda f, h, other: ModelOutput(loss=None, logits=f, states=(h, other)))
    q = osc.laplace(several, LIKELIHOOD, (X, Y), prior=1.0, refine=False)
    expected = osc.laplace(bare, LIKELIHOOD, (X, Y), prior=1.0, refine=False)
    assert_same(q, expected)
    assert_same(osc.laplace(several, LIKELIHOOD, (X, Y), output="logits", prior=1.0, refine=False), expected)


@pytest.mark.parametrize(
    "options",
    [
        {"structure": "matrix_free"},
        {"structure": "approx_diag"},
        {"structure": "full", "curvature": "hessian"},
        pytest.param({"structure": "matrix_free", "curvature": "hessian"}, marks=pytest.mark.slow),
        {"subset": ["head"]},
        {"subset": "last_layer"},
        {"structure": "diag", "subset": osc.Subnetwork(0.5)},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:.*negative curvature", "ignore:.*below zero")
def test_structures_curvatures_and_subsets(options: dict[str, Any]) -> None:
    several, bare = pair()
    several.other.requires_grad_(False)
    q, expected = (
        osc.laplace(model, LIKELIHOOD, (X, Y), prior=1.0, refine=False, **options, **more)
        for model, more in ((several, {"output": 0}), (bare, {}))
    )
    assert_same(q, expected)
    assert q.network.space.names == tuple(f"network.{name}" for name in expected.network.space.names)
    assert not isinstance(several, Output), "the model is as it was"


def test_the_last_layer_is_that_of_f_though_another_head_comes_after_it() -> None:
    several, _ = pair()
    q = osc.laplace(several, LIKELIHOOD, (X, Y), output=0, subset="last_layer", prior=1.0, refine=False)
    assert q.network.space.names == ("network.head.weight", "network.head.bias")
    q = osc.laplace(several, LIKELIHOOD, (X, Y % 2), output=1, subset="last_layer", prior=1.0, refine=False)
    assert q.network.space.names == ("network.other.weight", "network.other.bias")


@pytest.mark.slow
def test_every_step_after_a_fit(tmp_path: Path) -> None:
    several, bare = pair()
    several.other.requires_grad_(False)  # f does not depend on it: its prior precision would have no maximum
    held_out = X[:20] + 0.1, Y[:20]
    q = osc.laplace(several, LIKELIHOOD, (X, Y), output=0, validation=held_out)
    expected = osc.laplace(bare, LIKELIHOOD, (X, Y), validation=held_out)
    assert_same(q, expected)
    assert_close(*(osc.sample_functions(each, X, 3, generator=seeded()) for each in (q, expected)))
    assert_close(osc.function_posterior(q, X[:5]).covariance, osc.function_posterior(expected, X[:5]).covariance)
    assert_close(osc.predict(q, X, via="sampled", generator=seeded()).probs.sum(-1), torch.ones(40))
    found, known = (osc.compare(each, held_out).differences[0] for each in (q, expected))
    assert found.posterior == pytest.approx(known.posterior, rel=1e-4)
    assert_same(copy.deepcopy(q), expected)
    osc.save(q, tmp_path / "q.safetensors")
    for model in (several, Output(several, 0)):
        assert_same(osc.load(tmp_path / "q.safetensors", model), expected)
    with pytest.warns(UserWarning, match="prints differently"):
        osc.load(tmp_path / "q.safetensors", Output(several, 1))
    refined = osc.laplace(several, LIKELIHOOD, (X, Y), output=0, prior=1.0, refine=False)
    assert_same(osc.refine(refined), osc.refine(osc.laplace(bare, LIKELIHOOD, (X, Y), prior=1.0, refine=False)))
    again = osc.laplace(several, LIKELIHOOD, (X, Y), output=0, prior=refined, refine=False)
    assert again.prior.mean is not None


every_method = pytest.mark.parametrize("kind", REGISTRY.values(), ids=REGISTRY)


@every_method
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of so short a training every method warns
def test_every_method_trains_a_part(kind: type[Method], tmp_path: Path) -> None:
    def run(network: Callable[[int], nn.Module]) -> Any:
        method = kind.build(network, LIKELIHOOD, **kind.defaults(4, real_valued=False))
        options = {} if isinstance(method, FullBatch) else {"batch_size": 20}
        return osc.train(method, (X, Y), epochs=4, progress=False, device="cpu", **options)

    def part(seed: int) -> Output:
        several, _ = pair(seed=seed)
        several.other.requires_grad_(False)
        return Output(several.train(), 0)

    done = run(part)
    predicted = osc.predict(done, X, generator=seeded()).probs
    assert_close(predicted, osc.predict(run(lambda seed: pair(seed=seed)[1].train()), X, generator=seeded()).probs)
    osc.save(done, tmp_path / "q.safetensors")
    again = osc.load(tmp_path / "q.safetensors", done.posterior.model)
    assert_close(osc.predict(again, X, generator=seeded()).probs, predicted)


def test_the_posteriors_of_networks_take_the_bare_model_from_a_file(tmp_path: Path) -> None:
    models = [pair(seed=seed)[0] for seed in (1, 2)]
    for q in (
        osc.posteriors.Point(Output(models[0], 0), LIKELIHOOD),
        osc.posteriors.Ensemble([Output(model, 0) for model in models], LIKELIHOOD),
        osc.posteriors.Dropout(Output(models[0], 0), LIKELIHOOD),
    ):
        osc.save(q, tmp_path / "q.safetensors")
        again = osc.load(tmp_path / "q.safetensors", pair(seed=3)[0])
        found, expected = (osc.predict(each, X, generator=seeded()).probs for each in (again, q))
        assert_close(found, expected)


def test_training_is_of_the_model_itself() -> None:
    several, _ = pair()
    before = copy.deepcopy(several.state_dict())
    osc.train(osc.methods.MAP(Output(several, 0), LIKELIHOOD), (X, Y), epochs=1, progress=False)
    assert not torch.equal(several.head.weight, before["head.weight"])
    assert several.state_dict().keys() == before.keys()


def test_parts_within_other_networks() -> None:
    several, bare = pair()
    part = Output(several, 0)
    assert torch.equal(Tempered(part, 2.0)(X), bare(X) / 2)
    assert torch.equal(WithPrior(part, part)(X), 2 * bare(X))
    for around in (Tempered(several), WithPrior(several, bare)):
        with pytest.raises(ValueError, match=says("returned tuple", "output=0", "osc.networks.Output(model, 0)")):
            around(X)


class Batch(Several):
    """``forward`` takes the batch itself."""

    def forward(self, batch: dict[str, Tensor]) -> Any:
        return super().forward(batch["x"])


def test_inputs_of_every_kind_reach_the_network() -> None:
    _, bare = pair()
    model = Batch().eval()
    model.load_state_dict(bare.state_dict(), strict=False)
    assert torch.equal(call(Output(model, 0), {"x": X}), bare(X))
    z = torch.randn(6, 3, 4)
    attention, memory = nn.MultiheadAttention(4, 2, batch_first=True), nn.LSTM(4, 3, batch_first=True)
    real, classes = osc.likelihoods.Gaussian(), osc.likelihoods.Categorical()
    q = osc.laplace(attention, real, ((z, z, z), z), output=0, prior=1.0, refine=False)
    assert osc.predict(q, (z[:2], z[:2], z[:2])).mean.shape == (2, 3, 4)
    labels = torch.randint(3, (6, 3))
    for recurrent in (memory, nn.GRU(4, 3, batch_first=True)):
        for structure in ("kron", "matrix_free"):
            q = osc.laplace(recurrent, classes, (z, labels), output=0, structure=structure, prior=1.0, refine=False)
            assert osc.predict(q, z[:2]).probs.shape == (2, 3, 3)


WRONG: dict[str, tuple[Callable[[], object], type[Exception], tuple[str, ...]]] = {
    "no choice": (
        lambda: call(pair()[0], X),
        ValueError,
        ("returned tuple for 40 inputs", "output=0 (40, 3) float32, output=1 (40, 2) float32", "osc.networks.Output"),
    ),
    "no choice, names": (
        lambda: osc.laplace(pair(RETURNED["nested"][0])[0], LIKELIHOOD, (X, Y)),
        ValueError,
        ("returned dict for", "output='out.logits' (40, 3)", "output='states.1' (40, 2)", "osc.laplace(…, output="),
    ),
    "index": (lambda: Output(pair()[0], 2)(X), ValueError, ("no output=2", "output=1 (40, 2)", "name one of these")),
    "name": (lambda: Output(pair()[0], "logits")(X), ValueError, ("no output='logits'", "output=0 (40, 3)")),
    "entry": (
        lambda: Output(pair(RETURNED["dict"][0])[0], "keys")(X),  # a method of a dictionary is no part of it
        ValueError,
        ("no output='keys'", "output='prediction' (40, 3) float32"),
    ),
    "attribute": (
        lambda: Output(pair(RETURNED["dataclass"][0])[0], "score")(X),
        ValueError,
        ("returned Scores", "no output='score'", "output='scores' (40, 3)"),
    ),
    "a tensor": (lambda: Output(pair()[1], 0)(X), ValueError, ("one tensor, (40, 3)", "leave output out")),
    "integers": (
        lambda: Output(Several(lambda f, h, other: (f, f.argmax(-1))), 1)(X),
        ValueError,
        ("output=1 is one tensor, (40,) int64", "floating type", "output=0 (40, 3) float32"),
    ),
    "nothing": (
        lambda: Output(pair(RETURNED["dataclass"][0])[0], "loss")(X),
        ValueError,
        ("output='loss' is NoneType", "output='scores'"),
    ),
    "many": (
        lambda: call(Several(lambda f, *_: (f,) * 12), X),
        ValueError,
        ("output=7 (40, 3) float32, 4 more,",),
    ),
    "rows": (
        lambda: osc.laplace(nn.LSTM(4, 3, batch_first=True), LIKELIHOOD, (X[:, None], Y), output="1.0"),
        ValueError,
        ("returned (1, 40, 3) for 40 inputs",),
    ),
    "kind": (lambda: Output(pair()[0], True), TypeError, ("an index such as 0", "got True")),
    "module": (lambda: Output(torch.tanh, 0), TypeError, ("network must be a torch.nn.Module", "builtin")),
    "subset": (
        lambda: osc.laplace(pair()[0], LIKELIHOOD, (X, Y), output=0, subset=["haed"]),
        ValueError,
        ("'haed'", "did you mean 'head'?"),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jaxtyping.config.jaxtyping_disable", True)  # users run without checks of types
    make, kind, words = WRONG[name]
    with pytest.raises(kind, match=says(*words)):
        make()
