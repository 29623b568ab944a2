"""osc.laplace as its users meet it: defaults, subsets, every refusal, and a model left as it was found."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import osculate as osc
from osculate.registry import made
from tests.laws import assert_close

X, Y = torch.randn(30, 4), torch.randint(3, (30,))
CATEGORICAL = osc.likelihoods.Categorical()


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(0.5), nn.BatchNorm1d(6), nn.Linear(6, 3)).eval()


class Stream(IterableDataset):
    """Samples without a length."""

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        yield from zip(X, Y, strict=True)


@pytest.mark.parametrize(
    "data",
    [
        (X, Y), [X, Y], [(X[:7], Y[:7]), (X[7:], Y[7:])], TensorDataset(X, Y),
        DataLoader(TensorDataset(X, Y), batch_size=8), DataLoader(Stream(), batch_size=11), iter([(X, Y)]),
    ],
    ids=["pair", "list of two tensors", "batches", "dataset", "loader", "stream", "iterator"],
)  # fmt: skip
def test_every_kind_of_data_gives_the_same(data: object) -> None:
    model = network()
    q, expected = (
        osc.laplace(model, CATEGORICAL, data, prior=1.0, refine=False),
        osc.laplace(model, CATEGORICAL, [(X, Y)], prior=1.0, refine=False),
    )
    assert q.num_data == 30
    assert_close(osc.functional_variance(q, X), osc.functional_variance(expected, X), 1e-4)


def test_the_defaults_are_kron_and_the_evidence() -> None:
    q = osc.laplace(network(), CATEGORICAL, (X, Y), refine=False)
    assert q.structure.structure.name == "kron"
    assert isinstance(q.prior, osc.priors.Layerwise)
    gamma = osc.evidence.effective_parameters(q)
    assert list(gamma) == ["0.weight", "0.bias", "3.weight", "3.bias", "4.weight", "4.bias"]


def snapshot(model: nn.Module) -> dict:
    return {
        "modes": [m.training for m in model.modules()],
        "hooks": [len(m._forward_hooks) + len(m._backward_hooks) for m in model.modules()],
        "values": {name: value.clone() for name, value in model.state_dict().items()},
        "grads": {name: None if p.grad is None else p.grad.clone() for name, p in model.named_parameters()},
        "requires_grad": {name: p.requires_grad for name, p in model.named_parameters()},
    }


def assert_unchanged(model: nn.Module, before: dict) -> None:
    now = snapshot(model)
    for name in ("modes", "hooks", "requires_grad"):
        assert now[name] == before[name]
    for kind in ("values", "grads"):
        for name, value in before[kind].items():
            assert (value is None and now[kind][name] is None) or torch.equal(value, now[kind][name])


def test_the_model_is_left_as_it_was_found_also_after_an_exception() -> None:
    model = network()
    nn.functional.cross_entropy(model(X), Y).backward()
    model[0].bias.requires_grad_(False)
    before = snapshot(model)
    q = osc.laplace(model, CATEGORICAL, (X, Y), refine=False)
    osc.predict(q, X), osc.predict(q, X, via="sampled", samples=2), osc.sample_functions(q, X, 2)
    assert_unchanged(model, before)
    with pytest.raises(ValueError, match="batch 1"):
        osc.laplace(model, CATEGORICAL, [(X, Y), (X * float("nan"), Y)], refine=False)
    assert_unchanged(model, before)


def test_a_posterior_does_not_follow_the_module() -> None:
    model = network()
    q = osc.laplace(model, CATEGORICAL, (X, Y), prior=1.0, refine=False)
    before = osc.predict(q, X).probs
    model.train()(X)
    with torch.no_grad():
        model[0].weight.add_(1.0)
    model.double()
    assert torch.equal(osc.predict(q, X).probs, before)


def test_another_floating_type() -> None:
    q = osc.laplace(network(), CATEGORICAL, (X, Y), prior=1.0, refine=False)
    double = q.to(dtype=torch.double)
    assert double.mean.dtype == torch.double
    assert_close(osc.functional_variance(double, X.double()), osc.functional_variance(q, X).double(), 1e-4)


def test_subsets() -> None:
    model = network()
    everything = osc.laplace(model, CATEGORICAL, (X, Y), structure="full", prior=1.0, refine=False)
    last = osc.laplace(model, CATEGORICAL, (X, Y), structure="full", subset="last_layer", prior=1.0, refine=False)
    assert last.network.space.names == ("4.weight", "4.bias")
    assert_close(last.structure.dense(), everything.structure.dense()[-21:, -21:], 1e-5)
    named = osc.laplace(model, CATEGORICAL, (X, Y), subset=["4.weight", "0"], prior=1.0, refine=False)
    assert named.network.space.names == ("0.weight", "0.bias", "4.weight")
    for bad, match in (
        ("lastlayer", "did you mean 'last_layer'"),
        (["4.weigth"], "did you mean '4.weight'"),
        ([], "empty"),
    ):
        with pytest.raises(ValueError, match=match):
            osc.laplace(model, CATEGORICAL, (X, Y), subset=bad, refine=False)


def noisy() -> nn.Module:
    class Noise(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x + torch.randn_like(x)

    return nn.Sequential(nn.Linear(4, 3), Noise())


def coupled() -> nn.Module:
    class Coupled(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x - x.mean(0)

    return nn.Sequential(nn.Linear(4, 3), Coupled())


def bad_value(value: float) -> list:
    x = X.clone()
    x[5, 2] = value
    return [(X, Y), (x, Y)]


def without_gradients() -> nn.Module:
    return nn.Linear(4, 3).requires_grad_(False)


REFUSALS = {
    "empty loader": (lambda: osc.laplace(network(), CATEGORICAL, [], refine=False), ValueError, "no batch"),
    "empty tensors": (lambda: osc.laplace(network(), CATEGORICAL, (X[:0], Y[:0]), refine=False), ValueError, "no batch"),
    "empty batch": (lambda: osc.laplace(network(), CATEGORICAL, [(X[:0], Y[:0])], refine=False), ValueError, "batch 0 is empty"),
    "nan": (lambda: osc.laplace(network(), CATEGORICAL, bad_value(float("nan")), refine=False), ValueError, r"x of batch 1 holds nan at index \(5, 2\)"),
    "inf": (lambda: osc.laplace(network(), CATEGORICAL, bad_value(float("inf")), refine=False), ValueError, r"x of batch 1 holds inf at index \(5, 2\)"),
    "class out of range": (lambda: osc.laplace(network(), CATEGORICAL, (X, Y + 1), refine=False), ValueError, "target 3 in row .* 3 logits"),
    "negative class": (lambda: osc.laplace(network(), CATEGORICAL, (X, Y - 1), refine=False), ValueError, "target -1 in row"),
    "class of wrong dtype": (lambda: osc.laplace(network(), CATEGORICAL, (X, Y.float()), refine=False), TypeError, "torch.float32.*y.long()"),
    "class of wrong shape": (lambda: osc.laplace(network(), CATEGORICAL, (X, Y.unsqueeze(1)), refine=False), ValueError, r"shape \(N,\), got \(30, 1\)"),
    "real target of wrong dtype": (lambda: osc.laplace(nn.Linear(4, 1), osc.likelihoods.Gaussian(), (X, Y.unsqueeze(1)), refine=False), TypeError, "int64.*y.float()"),
    "real target of wrong shape": (lambda: osc.laplace(nn.Linear(4, 1), osc.likelihoods.Gaussian(), (X, X[:, 0]), refine=False), ValueError, r"\(30,\) for outputs \(30, 1\)"),
    "binary target out of range": (lambda: osc.laplace(nn.Linear(4, 1), osc.likelihoods.Bernoulli(), (X, torch.full((30, 1), 2)), refine=False), ValueError, "target 2 at"),
    "one logit for classes": (lambda: osc.laplace(nn.Linear(4, 1), CATEGORICAL, (X, Y * 0), refine=False), ValueError, "use Bernoulli"),
    "images for classes": (lambda: osc.laplace(nn.Conv1d(1, 3, 2), CATEGORICAL, (X.unsqueeze(1), Y), refine=False), ValueError, r"\(N, C\)"),
    "noise scale of wrong shape": (lambda: osc.laplace(nn.Linear(4, 2), osc.likelihoods.Gaussian(torch.ones(3)), (X, X[:, :2]), refine=False), ValueError, "noise scale"),
    "active dropout": (lambda: osc.laplace(nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.1)), CATEGORICAL, (X, Y), refine=False), ValueError, r"dropout layer '1' is active .*model.eval\(\)"),
    "batch norm in training mode": (lambda: osc.laplace(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)), CATEGORICAL, (X, Y), refine=False), ValueError, "batch normalisation '1' is in training mode"),
    "random network": (lambda: osc.laplace(noisy(), CATEGORICAL, (X, Y), refine=False), ValueError, "another output for the same input"),
    "coupled batch": (lambda: osc.laplace(coupled(), CATEGORICAL, (X, Y), refine=False), ValueError, "depends on the other inputs"),
    "no trainable parameter": (lambda: osc.laplace(without_gradients(), CATEGORICAL, (X, Y), refine=False), ValueError, "no trainable parameter"),
    "no parameter": (lambda: osc.laplace(nn.Tanh(), CATEGORICAL, (X, Y), refine=False), ValueError, "no trainable parameter"),
    "unknown structure": (lambda: osc.laplace(network(), CATEGORICAL, (X, Y), structure="krom", refine=False), ValueError, "'krom'.*did you mean 'kron'"),
    "unknown curvature": (lambda: osc.laplace(network(), CATEGORICAL, (X, Y), curvature="gnn", refine=False), ValueError, "'gnn'.*did you mean 'ggn'"),
    "unknown prior": (lambda: osc.laplace(network(), CATEGORICAL, (X, Y), prior="evidenc", refine=False), ValueError, "did you mean 'evidence'"),
    "zero precision": (lambda: osc.laplace(network(), CATEGORICAL, (X, Y), prior=0.0, refine=False), ValueError, "positive and finite, got 0.0"),
    "negative precision": (lambda: osc.laplace(network(), CATEGORICAL, (X, Y), prior=-2.0, refine=False), ValueError, "got -2.0"),
    "diagonal prior on kron": (lambda: osc.laplace(network(), CATEGORICAL, (X, Y), prior=osc.priors.Diagonal(), refine=False).log_det(), ValueError, "structure='diag'"),
    "full on a large net": (lambda: osc.laplace(nn.Linear(4, 10_000), osc.likelihoods.Gaussian(), (X, torch.zeros(30, 10_000)), structure="full", refine=False), ValueError, "50,000 parameters needs about 60 GB.*'kron'"),
    "a loader of inputs only": (lambda: osc.laplace(network(), CATEGORICAL, [X, X, X], refine=False), TypeError, "batch 0 is a Tensor, not a pair"),
    "a loader of triples": (lambda: osc.laplace(network(), CATEGORICAL, [(X, Y, Y)], refine=False), TypeError, "tuple of length 3"),
    "a loader of dicts": (lambda: osc.laplace(network(), CATEGORICAL, [{"x": X, "y": Y}], refine=False), TypeError, "dict"),
    "a loader of arrays": (lambda: osc.laplace(network(), CATEGORICAL, [(X.numpy(), Y.numpy())], refine=False), TypeError, "x of batch 0 is a ndarray"),
    "different lengths": (lambda: osc.laplace(network(), CATEGORICAL, (X, Y[:10]), refine=False), ValueError, "30 rows and Y has 10"),
    "one tensor": (lambda: osc.laplace(network(), CATEGORICAL, X, refine=False), TypeError, "got Tensor"),
    "output that is no batch": (lambda: osc.laplace(nn.Sequential(nn.Linear(4, 3), nn.Flatten(0)), CATEGORICAL, (X, Y), refine=False), ValueError, "first axis is the batch"),
    "output that is not finite": (lambda: osc.laplace(exploding(), osc.likelihoods.Gaussian(), (X, X), refine=False), ValueError, "network's output"),
}  # fmt: skip


def exploding() -> nn.Module:
    model = nn.Linear(4, 4)
    nn.init.constant_(model.weight, float("inf"))
    return model


@pytest.mark.parametrize("case", REFUSALS.values(), ids=REFUSALS)
def test_bad_input_is_refused_with_value_reason_and_way_out(case: tuple) -> None:
    act, kind, match = case
    with pytest.raises(kind, match=match):
        act()


@pytest.mark.parametrize("thing", [osc.structures.Kron, 3, None])
def test_a_structure_that_is_none(thing: object) -> None:
    with pytest.raises(TypeError, match=r"structure must be one of the names .*'kron'.*not a class"):
        made("structure", thing, osc.structures.REGISTRY, osc.structures.Structure)


def test_too_little_memory_for_one_datum_is_said() -> None:
    data = torch.randn(5, 2), torch.randn(5, 1)
    with pytest.raises(ValueError, match=r"takes about .* raise memory"):
        osc.laplace(nn.Linear(2, 1), osc.likelihoods.Gaussian(), data, prior=1.0, memory=8, refine=False)


def test_data_that_can_be_read_once_are_refused_before_they_are_read() -> None:
    read = []

    def stream() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        for _ in range(3):
            read.append(1)
            yield torch.randn(5, 2), torch.randn(5, 1)

    with pytest.raises(ValueError, match="read only once"):
        osc.laplace(nn.Linear(2, 1), osc.likelihoods.Gaussian(), stream(), structure="ekfac", prior=1.0, refine=False)
    assert not read


def test_an_operation_in_place_leaves_the_data_as_they_are() -> None:
    x, y = torch.randn(6, 3), torch.randn(6, 1)
    before = x.clone()
    q = osc.laplace(
        nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 1)), osc.likelihoods.Gaussian(), (x, y), refine=False
    )
    osc.predict(q, x)
    assert torch.equal(x, before)


def test_within_inference_mode() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    x, y = torch.randn(6, 3), torch.randn(6, 1)
    expected = osc.predict(osc.laplace(model, osc.likelihoods.Gaussian(), (x, y), prior=1.0, refine=False), x).stddev
    with torch.inference_mode():
        found = osc.predict(
            osc.laplace(model, osc.likelihoods.Gaussian(), (x.clone(), y), prior=1.0, refine=False), x.clone()
        ).stddev
    assert torch.equal(found, expected)


def test_single_precision_normalisation_in_a_half_network() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 1)).to(torch.bfloat16)

    class Single(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(x.float()).to(x.dtype)

    model[1] = Single()
    x, y = torch.randn(20, 3), torch.randn(20, 1)
    q = osc.laplace(
        model, osc.likelihoods.Gaussian(), (x.bfloat16(), y.bfloat16()), structure="diag", prior=1.0, refine=False
    )
    single = osc.laplace(model.float(), osc.likelihoods.Gaussian(), (x, y), structure="diag", prior=1.0, refine=False)
    torch.testing.assert_close(q.structure.dense(), single.structure.dense(), rtol=0.2, atol=0.2)


@pytest.mark.parametrize("shape", [(), (6, 1)])
def test_a_density_of_the_wrong_shape(shape: tuple) -> None:
    class Mine(osc.likelihoods.Likelihood):
        def log_prob(self, f: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            each = -(f - y).square()
            return each if shape else each.mean()

    with pytest.raises(ValueError, match="one number for each datum"):
        osc.laplace(nn.Linear(3, 1), Mine(), (torch.randn(6, 3), torch.randn(6, 1)), prior=1.0, refine=False)
