"""Posteriors of adapters and heads of language models: subsets, frozen weights, half precision, tokens."""

import copy
import gc
import itertools
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import osculate as osc
from osculate.parameters import Network
from tests.errors import says
from tests.foundation import CausalModel, causal_model, sequences

#: Length of the axis of tokens where it has to differ from all others.
VOCABULARY = 997
TOKENS = osc.likelihoods.Categorical(ignore_index=-100)


def seeded() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def fit(model: nn.Module, **options: Any) -> osc.posteriors.Gaussian:
    options = {"subset": "lora", "prior": 1.0, "refine": False} | options
    return osc.laplace(model, TOKENS, [sequences()], **options)


def functions(q: Any, x: Any, samples: int = 16) -> Tensor:
    return osc.predict(q, x, link="functions", samples=samples, generator=seeded()).probs


# subsets


def test_adapters_are_found_by_the_names_of_peft() -> None:
    q = fit(causal_model())
    assert len(q.network.space.names) == 8
    assert all("lora_" in name for name in q.network.space.names)
    patterns = ["*lora_A*", "layers.?.v_proj.lora_B"]
    assert len(fit(causal_model(), subset=patterns).network.space.names) == 6
    assert len(fit(causal_model(), subset="*lora_B*").network.space.names) == 4
    wrapped = fit(causal_model(), output="logits")
    assert wrapped.network.space.names[0].startswith("network.layers.0")


def test_names_that_denote_nothing_are_refused() -> None:
    model = causal_model()
    with pytest.raises(ValueError, match=says("'*.lora_C.*'", "did you mean", "lora_")):
        fit(model, subset=["*.lora_C.*"])
    with pytest.raises(ValueError, match=says("frozen", "is_trainable=True", "lora_A")):
        fit(model.requires_grad_(False))
    with pytest.raises(ValueError, match=says("lora_A", "PEFT", "subset=[")):
        osc.laplace(
            nn.Linear(2, 3), osc.likelihoods.Categorical(), (torch.zeros(4, 2), torch.arange(4) % 3), subset="lora"
        )
    plain = osc.laplace(
        nn.ModuleDict({"a": nn.Linear(2, 3)})["a"], TOKENS, (torch.randn(4, 2), torch.arange(4) % 3), subset=["[bw]*"]
    )
    assert plain.network.space.names == ("weight", "bias")


# frozen weights


class Copies(TorchDispatchMode):
    """Counts results with as many entries as a frozen matrix that are not its own memory."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        frozen = [p for p in model.parameters() if not p.requires_grad and len(p) == VOCABULARY]
        self.sizes, self.own = {p.shape for p in frozen}, {p.untyped_storage().data_ptr() for p in frozen}
        self.found: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            mine = isinstance(leaf, Tensor) and leaf.untyped_storage().data_ptr() in self.own
            if isinstance(leaf, Tensor) and leaf.shape in self.sizes and not mine:
                self.found.append(str(func))
        return result


def live(shape: torch.Size) -> int:
    """Number of different storages of live tensors of a shape."""
    gc.collect()
    found = [thing for thing in gc.get_objects() if type(thing) in (Tensor, nn.Parameter) and thing.shape == shape]
    return len({tensor.untyped_storage().data_ptr() for tensor in found})


@pytest.mark.release
def test_the_base_is_neither_copied_nor_saved(tmp_path: Path) -> None:
    model, (x, _) = causal_model(vocabulary=VOCABULARY), sequences()
    table, path = model.embed.weight, tmp_path / "q.safetensors"
    before = live(table.shape)  # the table and the head
    with Copies(model) as copies:
        q = fit(model, curvature="fisher")
        found = functions(q, x)
        osc.save(q, path)
        again = osc.load(path, model)
        torch.testing.assert_close(functions(again, x), found)
        osc.sample_functions(q, x, 2)
        osc.predict(q, x, via="sampled", samples=2)
    assert not copies.found
    assert live(table.shape) == before
    assert q.network.module.embed.weight.data_ptr() == again.network.module.embed.weight.data_ptr() == table.data_ptr()
    size = sum(tensor.nbytes for tensor in q.structure.tensors().values())
    assert path.stat().st_size < 8 * 3 * q.mean.numel() + size + 20_000 < table.nbytes
    del q, again
    whole = fit(model, subset="all")  # all that is trainable: the same
    assert whole.network.module.embed.weight.data_ptr() == table.data_ptr()


def test_trainable_weights_are_copied_and_saved(tmp_path: Path) -> None:
    model, (x, _) = causal_model().requires_grad_(True), sequences()
    q = fit(model)
    before = functions(q, x)
    osc.save(q, tmp_path / "q.safetensors")
    again = osc.load(tmp_path / "q.safetensors", CausalModel().double())
    with torch.no_grad():
        model.embed.weight.mul_(2)
    torch.testing.assert_close(functions(q, x), before)
    torch.testing.assert_close(functions(again, x), before)


@pytest.mark.parametrize("how", ["in place", "by data"])
def test_a_base_that_changes_is_refused(how: str, tmp_path: Path) -> None:
    model, (x, _) = causal_model(), sequences()
    q, path = fit(model), tmp_path / "q.safetensors"
    osc.save(q, path)
    other = copy.deepcopy(q)  # its own
    before = functions(q, x)
    base = model.layers[1].q_proj.base_layer.weight
    if how == "in place":
        with torch.no_grad():
            base[0, 0] += 1
    else:  # as PEFT merges adapters
        base.data += 0.1
    for use in (lambda: functions(q, x), lambda: osc.save(q, path), lambda: q.to(dtype=torch.float32)):
        with pytest.raises(ValueError, match=says("frozen parameter", "changed in place", "fit again")):
            use()
    with pytest.raises(ValueError, match=says("other frozen weights", "'layers.1.q_proj.base_layer.weight'")):
        osc.load(path, model)
    torch.testing.assert_close(functions(other, x), before)
    with pytest.raises(ValueError, match=says("another network", "embed")):
        osc.load(path, nn.Linear(2, 2))


def test_frozen_weights_may_be_nan_or_of_any_type() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2))
    model.mask = nn.Parameter(torch.full((40,), torch.nan), requires_grad=False)
    model.scales = nn.Parameter(torch.ones(40).to(torch.float8_e4m3fn), requires_grad=False)
    network = Network(model, ["1.weight"])
    network.require_same_base()
    model.scales.data.view(torch.uint8)[0] += 1
    with pytest.raises(ValueError, match="changed in place"):
        network.require_same_base()


def test_moving_or_converting_the_model_leaves_the_posterior() -> None:
    model, (x, _) = causal_model(), sequences()
    q = fit(model)
    before = functions(q, x)
    model.half()
    torch.testing.assert_close(functions(q, x), before)


def test_an_embedding_that_writes_into_its_table_has_its_own() -> None:
    table = nn.Embedding(7, 4, max_norm=0.5).requires_grad_(False)
    model = nn.Sequential(table, nn.Flatten(), nn.Linear(12, 3))
    before = table.weight.clone()
    x, y = torch.randint(7, (8, 3)), torch.arange(8) % 3
    osc.predict(osc.laplace(model, osc.likelihoods.Categorical(), (x, y)), x)
    assert torch.equal(table.weight, before)


# half precision and recomputed activations


@pytest.mark.parametrize("structure", ["kron", "diag"])
@pytest.mark.parametrize(
    "make",
    [
        {"dtype": torch.bfloat16, "adapters": torch.float32},
        {"dtype": torch.bfloat16},
        {"dtype": torch.bfloat16, "adapters": torch.float32, "recomputes": True},
        {"dtype": torch.float64, "recomputes": True},
    ],
    ids=["frozen half", "half", "frozen half recomputed", "recomputed"],
)
def test_half_precision_and_recomputation_agree_with_double(
    make: dict[str, Any], structure: str, tmp_path: Path
) -> None:
    (x, y), exact = sequences(), causal_model()
    exact.load_state_dict(causal_model(torch.bfloat16).state_dict())  # the same numbers
    model = causal_model(**make)
    model.load_state_dict(exact.state_dict())
    options = {"structure": structure, "curvature": osc.curvature.GGN()}
    q, truth = fit(model, **options), fit(exact, **options)
    assert {block.kind for block in q.fit.plan.blocks} == {"outer"}
    double = make["dtype"] == torch.float64
    near: dict[str, float] = {"rtol": 1e-7, "atol": 1e-9} if double else {"rtol": 0.1, "atol": 0.02}
    state = q.structure.tensors()
    assert all(tensor.dtype == q.network.state_dtype for tensor in state.values())

    def agree(one: Tensor, other: Tensor) -> None:
        scale = other.abs().max()
        torch.testing.assert_close(one.double() / scale, other.double() / scale, **near)

    agree(osc.functional_variance(q, x), osc.functional_variance(truth, x))
    white = torch.randn(3, q.mean.numel(), generator=seeded(), dtype=torch.double)
    at, exactly = (osc.curvature.linearisation.Linearisation(each.network, x) for each in (q, truth))
    agree(at.jvp(white.to(q.mean)), exactly.jvp(white))
    mine, exactly = (osc.predict(each, x, link="functions", samples=64, generator=seeded()) for each in (q, truth))
    error = mine.standard_error.double() + exactly.standard_error
    assert bool(((mine.probs - exactly.probs).abs() < 5 * error + near["atol"]).all())
    refined, expected = osc.refine(q, [(x, y)]), osc.refine(truth, [(x, y)])
    agree(osc.functional_variance(refined, x), osc.functional_variance(expected, x))
    osc.save(q, tmp_path / "q.safetensors")
    again = osc.load(tmp_path / "q.safetensors", model)
    assert {n: p.dtype for n, p in again.model.named_parameters()} == {n: p.dtype for n, p in model.named_parameters()}
    assert torch.equal(functions(again, x), functions(q, x))
    if len({p.dtype for p in model.parameters()}) > 1:
        with pytest.raises(ValueError, match=says("several floating types", "bfloat16", "float64")):
            osc.load(tmp_path / "q.safetensors", exact)


def test_recomputed_activations_are_not_kept() -> None:
    (x, _), kept = sequences(), {}
    for recomputes in (False, True):
        network = Network(causal_model(recomputes=recomputes), ["layers.0.q_proj.lora_A.default.weight"])
        sizes: list[int] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda t, s=sizes: (s.append(t.numel()), t)[1], lambda t: t):
            f, _ = network.at_leaves(x)
        kept[recomputes] = sum(sizes)
        assert f.requires_grad
    assert kept[True] < kept[False] / 4


# tokens


@pytest.mark.slow
@pytest.mark.parametrize("link", ["functions", None])
def test_averages_over_draws_have_their_monte_carlo_error(link: str | None) -> None:
    model, (x, _) = causal_model(), sequences(2, 3)
    q = fit(model)
    ways: dict[str, Any] = {"link": "functions"} if link else {"via": "sampled"}
    repeats = [osc.predict(q, x, samples=16, generator=torch.Generator().manual_seed(n), **ways) for n in range(60)]
    error = torch.stack([y.standard_error for y in repeats]).square().mean(0).sqrt()
    spread = torch.stack([y.probs for y in repeats]).std(0)
    assert error.shape == repeats[0].probs.shape
    assert 0.9 < float((error / spread).median()) < 1.1
    draws = osc.sample_functions(q, x, 16, via=ways.get("via"), generator=seeded()).softmax(-1)
    found = osc.predict(q, x, samples=16, generator=seeded(), memory=1, **ways)
    torch.testing.assert_close(found.probs, draws.mean(0))
    torch.testing.assert_close(found.standard_error, draws.std(0) / 4)
    assert bool(osc.predict(q, x, samples=1, **ways).standard_error.isnan().all())


def test_errors_of_mixtures_and_of_bernoulli() -> None:
    x, y = torch.randn(9, 2), torch.randint(2, (9, 1)).float()
    members = [osc.laplace(nn.Linear(2, 1), osc.likelihoods.Bernoulli(), (x, y), prior=1.0, refine=False) for _ in "ab"]
    parts = [osc.predict(q, x, link="functions", samples=5, generator=seeded()) for q in members]
    both = osc.predict(osc.posteriors.Mixture(members), x, link="functions", samples=10, generator=seeded())
    assert both.standard_error.shape == (9, 1)
    assert bool((both.standard_error <= sum(part.standard_error for part in parts)).all() | (len(parts) == 2))
    assert not hasattr(osc.predict(members[0], x), "standard_error")


def test_a_large_vocabulary_needs_no_square_matrix() -> None:
    """16 draws of the last token's distribution, at 32,000 tokens."""
    vocabulary = 32_000
    model, (x, y) = causal_model(torch.float32, vocabulary=vocabulary), sequences(4, 6, vocabulary)
    last = {**x, "logits_to_keep": 1}
    q = osc.laplace(model, TOKENS, [(x, y)], subset="lora", curvature="fisher", prior=1.0)

    class Largest(TorchDispatchMode):
        size = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            result = func(*args, **(kwargs or {}))
            leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, Tensor)]
            self.size = max([self.size, *(leaf.untyped_storage().nbytes() // leaf.itemsize for leaf in leaves)])
            return result

    with Largest() as watch:
        found = osc.predict(q, last, link="functions", samples=16)
        assert found.probs.shape == found.standard_error.shape == (4, 1, vocabulary)
        osc.tasks.sequence_uncertainty(q, last, samples=8)
    assert watch.size <= max(16 * 4 * vocabulary, vocabulary * 16)
    record = osc.tasks.calibration(q, [(x, y)], link="functions", samples=4)
    assert record.probs.shape == (4 * 4, 0)
    assert record.count.sum() == 16


def test_draws_take_few_forward_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One recorded pass, and a backward pass for each draw."""
    (x, _), calls = sequences(), []
    q = fit(causal_model())
    forward = CausalModel.forward
    monkeypatch.setattr(
        CausalModel, "forward", lambda self, *args, **kw: (calls.append(1), forward(self, *args, **kw))[1]
    )
    osc.predict(q, x, link="functions", samples=16)
    assert len(calls) <= 3


def test_scores_without_probabilities_are_those_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    (x, y), q = sequences(30), osc.posteriors.Point(causal_model(), TOKENS)
    whole = osc.tasks.calibration(q, [(x, y)])
    monkeypatch.setattr(sys.modules["osculate.tasks.calibration"], "MANY", 10)
    few = osc.tasks.calibration(q, [(x, y)])
    assert whole.probs.shape == (90, 53)
    assert few.probs.shape == (90, 0)
    for name, value in whole.metrics().items():
        assert few.metrics()[name] == pytest.approx(value, rel=1e-5), name
    torch.testing.assert_close(few.accuracy, whole.accuracy, equal_nan=True)
    with pytest.raises(ValueError, match="ignores"):
        osc.tasks.calibration(q, [(x, torch.full_like(y, -100))])


def test_the_information_of_a_sequence_is_that_of_its_enumeration() -> None:
    torch.manual_seed(0)
    x, y = torch.randint(3, (8, 2)), torch.randint(3, (8, 2))
    model = nn.Sequential(nn.Embedding(3, 4), nn.Linear(4, 3)).double()
    q = osc.laplace(model, osc.likelihoods.Categorical(), (x, y), prior=0.3, refine=False)
    found = osc.tasks.sequence_uncertainty(q, x, samples=400, batch_size=8, generator=seeded())
    logs = osc.sample_functions(q, x, 400, generator=seeded()).log_softmax(-1)
    p = logs.exp()
    entropy, expected = -(p.mean(0) * p.mean(0).log()).sum(-1), -(p * logs).sum(-1).mean(0)
    torch.testing.assert_close(found.entropy, entropy)
    torch.testing.assert_close(found.mutual_information, entropy - expected)
    joint = -expected.sum(-1)
    for a, b in itertools.product(range(3), repeat=2):
        both = (p[:, :, 0, a] * p[:, :, 1, b]).mean(0)
        joint = joint - both * both.log()
    assert bool(((found.joint - joint).abs() < 5 * found.joint_error).all())
    assert float(found.joint_error.max()) < 0.1
    assert bool((joint <= found.mutual_information.sum(1) + 1e-9).all())
    assert found.metrics()["joint"] == pytest.approx(float(found.joint.mean()))


def test_ignored_positions_do_not_count() -> None:
    (x, y), q = sequences(), fit(causal_model())
    found = osc.tasks.sequence_uncertainty(q, x, y != -100, samples=8, batch_size=4, generator=seeded())
    assert torch.equal(found.entropy.isnan(), y == -100)
    assert bool((found.joint <= math.log(8) + 1e-9).all())
    with pytest.raises(ValueError, match="counted has shape"):
        osc.tasks.sequence_uncertainty(q, x, torch.ones(2, 2, dtype=torch.bool))
    numbers = osc.laplace(nn.Linear(2, 1), osc.likelihoods.Gaussian(), (torch.randn(5, 2), torch.randn(5, 1)))
    with pytest.raises(ValueError, match="Gaussian"):
        osc.tasks.sequence_uncertainty(numbers, torch.randn(5, 2))
    with pytest.raises(TypeError, match="single function"):
        osc.tasks.sequence_uncertainty(osc.posteriors.Point(causal_model(), TOKENS), x)


def test_targets_of_several_lengths_are_fitted_and_not_refined() -> None:
    data = [sequences(length=5), sequences(length=4)]
    with pytest.warns(UserWarning, match="not refined: the targets of some batches have the shape"):
        q = osc.laplace(causal_model(), TOKENS, data, subset="lora", curvature="ggn", prior=1.0)
    assert q.num_data == 12
    assert q.offset is None
