"""What other Laplace libraries refuse or get wrong works here: one test for each row of the comparison."""

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, IterableDataset

import osculate as osc
from osculate.inputs import call
from osculate.memory import DEFAULT_BUDGET
from tests.laws import targets

assert_close = torch.testing.assert_close


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(4, 5, batch_first=True), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class Skip(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.again, self.head = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.again(self.first(x).tanh())
        return self.head(x + self.again(x.tanh()))  # a layer called twice


def conv(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3), *layers, nn.Flatten(), nn.LazyLinear(3))


IMAGE, VECTOR, TOKENS = (2, 6, 5), (4,), (5, 4)
NETWORKS = {
    "BatchNorm": (lambda: conv(nn.BatchNorm2d(4), nn.ReLU()), IMAGE),
    "LayerNorm": (lambda: nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6), nn.Tanh(), nn.Linear(6, 3)), VECTOR),
    "GroupNorm": (lambda: conv(nn.GroupNorm(2, 4), nn.ReLU()), IMAGE),
    "PReLU": (lambda: conv(nn.PReLU(4)), IMAGE),
    "GELU": (lambda: conv(nn.GELU()), IMAGE),
    "residual and tied": (Skip, VECTOR),
    "in-place ReLU": (lambda: conv(nn.ReLU(inplace=True)), IMAGE),
    "transformer encoder layer": (
        lambda: nn.Sequential(nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), nn.Flatten(), nn.Linear(20, 3)),
        TOKENS,
    ),
    "LSTM": (Recurrent, TOKENS),
    "ConvTranspose2d": (
        lambda: nn.Sequential(nn.ConvTranspose2d(2, 3, 3, 2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3)),
        IMAGE,
    ),
    "Conv1d": (lambda: nn.Sequential(nn.Conv1d(5, 3, 2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3)), TOKENS),
    "grouped Conv2d": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3, groups=2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(3)),
        IMAGE,
    ),
}


def ready(build: object, shape: tuple[int, ...], n: int = 12) -> tuple[nn.Module, Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, x = build().eval(), torch.randn(n, *shape)
        model(x)  # lazy layers take their shapes
    return model, x


@pytest.mark.parametrize("structure", ["kron", "diag"])
@pytest.mark.parametrize("name", NETWORKS)
def test_architectures_are_fitted_and_predict(name: str, structure: str) -> None:
    model, x = ready(*NETWORKS[name])
    q = osc.laplace(
        model, osc.likelihoods.Categorical(), (x, torch.arange(len(x)) % 3), structure=structure, refine=False
    )
    assert all(block.kind != "fallback" for block in q.fit.plan.blocks)
    p = osc.predict(q, x[:4]).probs
    assert p.shape == (4, 3)
    assert bool(p.isfinite().all())


@pytest.mark.parametrize("subset", ["all", "last_layer"])
@pytest.mark.parametrize("structure", ["kron", "diag"])
@pytest.mark.parametrize("task", ["segmentation", "image regression"])
def test_image_outputs_of_all_weights_and_of_the_last_layer(task: str, structure: str, subset: str) -> None:
    model, x = ready(lambda: nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Conv2d(4, 3, 1)), IMAGE)
    likelihood = osc.likelihoods.Categorical(class_axis=1) if task == "segmentation" else osc.likelihoods.Gaussian(0.3)
    y = targets(likelihood, model, x)
    q = osc.laplace(model, likelihood, (x, y), structure=structure, subset=subset, refine=False)
    predictive = osc.predict(q, x[:2])
    assert predictive.batch_shape == y[:2].shape
    assert osc.functional_variance(q, x[:2], diagonal=True).shape == (2, 3, 6, 5)
    assert bool(predictive.log_prob(y[:2]).isfinite().all())


def test_one_logit() -> None:
    model, x = ready(lambda: nn.Linear(4, 1), VECTOR)
    q = osc.laplace(model, osc.likelihoods.Bernoulli(), (x, (x[:, :1] > 0).float()), refine=False)
    assert osc.predict(q, x).probs.shape == (12, 1)


def test_a_noise_scale_for_each_output() -> None:
    model, x = ready(lambda: nn.Linear(4, 2), VECTOR)
    q = osc.laplace(model, osc.likelihoods.Gaussian(torch.tensor([0.1, 2.0])), (x, torch.randn(12, 2)), refine=False)
    assert osc.predict(q, x).stddev[:, 1].min() > osc.predict(q, x).stddev[:, 0].max()


def test_kron_on_named_layers_and_layerwise_priors_on_the_last() -> None:
    model, x = ready(*NETWORKS["BatchNorm"])
    y = torch.arange(12) % 3
    named = osc.laplace(model, osc.likelihoods.Categorical(), (x, y), subset=["0", "4.bias"], refine=False)
    assert named.network.space.names == ("0.weight", "0.bias", "4.bias")
    last = osc.laplace(
        model, osc.likelihoods.Categorical(), (x, y), subset="last_layer", prior=osc.priors.Layerwise(), refine=False
    )
    assert osc.maximise_evidence(last).prior.precision.shape == (2,)


def test_a_stream_of_batches() -> None:
    class Stream(IterableDataset):
        def __iter__(self):
            yield from zip(x, torch.arange(12) % 3, strict=True)

    model, x = ready(*NETWORKS["GELU"])
    assert (
        osc.laplace(model, osc.likelihoods.Categorical(), DataLoader(Stream(), batch_size=5), refine=False).num_data
        == 12
    )


def test_the_model_is_left_in_training_mode() -> None:
    model, x = ready(lambda: nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3)), VECTOR)
    osc.laplace(model.train(), osc.likelihoods.Categorical(), (x, torch.arange(12) % 3), refine=False)
    assert model.training


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("structure", ["kron", "diag"])
def test_half_precision_networks_keep_single_precision_factors(structure: str, dtype: torch.dtype) -> None:
    model, x = ready(lambda: nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)), VECTOR)
    single = osc.laplace(
        model, osc.likelihoods.Categorical(), (x, torch.arange(12) % 3), structure=structure, refine=False
    )
    model, x = model.to(dtype), x.to(dtype)
    q = osc.laplace(model, osc.likelihoods.Categorical(), (x, torch.arange(12) % 3), structure=structure, refine=False)
    assert all(tensor.dtype == torch.float32 for tensor in q.structure.tensors().values())
    for way in ("linearised", "sampled"):
        assert osc.predict(q, x, via=way, generator=torch.Generator().manual_seed(0)).probs.dtype == torch.float32
    assert float((osc.predict(q, x).probs - osc.predict(single, x.float()).probs).abs().max()) < 0.03


class Watch(TorchDispatchMode):
    """Notes the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and 0 not in leaf.stride():  # an expanded tensor takes no memory
                self.largest = max(self.largest, leaf.numel())
        return result


@pytest.mark.parametrize("structure", ["kron", "diag", "ekfac"])
@pytest.mark.parametrize("net", ["mlp", "conv", pytest.param("segmentation", marks=pytest.mark.release)])
def test_no_tensor_of_all_data_outputs_and_parameters_is_ever_made(net: str, structure: str) -> None:
    builds = {
        "mlp": (lambda: nn.Sequential(nn.Linear(40, 60), nn.Tanh(), nn.Linear(60, 10)), (40,), 10),
        "conv": (
            lambda: nn.Sequential(
                nn.Conv2d(2, 40, 3), nn.ReLU(), nn.Conv2d(40, 40, 3), nn.ReLU(), nn.Flatten(), nn.Linear(80, 3)
            ),
            IMAGE,
            3,
        ),
        "segmentation": (
            lambda: nn.Sequential(nn.Conv2d(2, 40, 3, padding=1), nn.ReLU(), nn.Conv2d(40, 40, 3), nn.Conv2d(40, 3, 1)),
            IMAGE,
            90,
        ),
    }
    build, shape, outputs = builds[net]
    model, x = ready(build, shape, n=20)
    likelihood = osc.likelihoods.Categorical(class_axis=1)
    q = osc.laplace(model, likelihood, (x, targets(likelihood, model, x)), structure=structure, prior=1.0, refine=False)
    osc.log_evidence(q)
    size = len(x) * outputs * q.mean.numel()
    for ask in (
        lambda: osc.predict(q, x, memory="64 KB"),
        lambda: osc.predict(q, x, link="probit", memory="64 KB"),
        lambda: osc.functional_variance(q, x, diagonal=True, memory="64 KB"),
        lambda: osc.sample_functions(q, x, samples=3),
    ):
        with Watch() as watch:
            ask()
        assert 0 < watch.largest < size / 5


@pytest.mark.parametrize("structure", ["kron", "diag", pytest.param("full", marks=pytest.mark.release)])
def test_the_memory_that_is_taken_by_default_bounds_every_tensor(structure: str) -> None:
    """Nobody has to ask for it: what would not fit is worked through in parts."""
    build = (
        (lambda: nn.Sequential(nn.Linear(20, 50), nn.Tanh(), nn.Linear(50, 10)))
        if structure == "full"
        else lambda: nn.Sequential(nn.Conv2d(2, 40, 3), nn.ReLU(), nn.Flatten(), nn.Linear(480, 10))
    )
    model, x = ready(build, (20,) if structure == "full" else IMAGE, n=5000)
    likelihood = osc.likelihoods.Categorical()
    few = slice(50)
    q = osc.laplace(model, likelihood, (x[few], torch.arange(50) % 10), structure=structure, prior=1.0, refine=False)
    assert 4 * len(x) * 10 * q.mean.numel() > 1.1 * DEFAULT_BUDGET
    with Watch() as watch:
        osc.functional_variance(q, x, diagonal=True)
    assert 4 * watch.largest < DEFAULT_BUDGET


@pytest.mark.parametrize("structure", ["diag", "kron", "approx_diag"])
def test_the_exact_root_of_many_classes_is_never_made_whole(structure: str) -> None:
    """N × C × C numbers of the output Hessian or its root: a few columns at a time are enough."""
    model, x = ready(lambda: nn.Sequential(nn.Linear(4, 2), nn.Tanh(), nn.Linear(2, 200)), VECTOR, n=40)
    likelihood, y = osc.likelihoods.Categorical(), torch.arange(40)
    with Watch() as watch:
        few = osc.laplace(model, likelihood, (x, y), structure=structure, prior=1.0, memory="200 KB", refine=False)
    assert 0 < watch.largest <= max(200**2, 50_000) < 40 * 199 * 200 / 20
    whole = osc.laplace(model, likelihood, (x, y), structure=structure, prior=1.0, memory="1 GB", refine=False)
    assert torch.allclose(few.structure.dense(), whole.structure.dense(), rtol=1e-4, atol=1e-6)


def test_inputs_in_tuples_and_mappings_give_what_one_tensor_gives() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Linear(4, 3)

        def forward(self, left: Tensor, right: Tensor) -> Tensor:
            return self.net(torch.cat([left, right], 1))

    model, x = ready(lambda: nn.Linear(4, 3), VECTOR)
    two = Two()
    two.net.load_state_dict(model.state_dict())
    y, likelihood = torch.arange(12) % 3, osc.likelihoods.Categorical()
    plain = osc.predict(osc.laplace(model, likelihood, (x, y), refine=False), x).probs
    pair, named = (x[:, :1], x[:, 1:]), {"left": x[:, :1], "right": x[:, 1:]}
    for inputs in (pair, named):
        assert torch.equal(call(two, inputs), model(x))
        q = osc.laplace(two, likelihood, (inputs, y), refine=False)
        assert torch.allclose(osc.predict(q, inputs).probs, plain, atol=1e-6)
    labelled = osc.laplace(two, likelihood, [{**named, "labels": y}], refine=False)
    assert torch.allclose(osc.predict(labelled, named).probs, plain, atol=1e-6)


# ---- what other libraries' networks do -------------------------------------------------------------------------------


class OneDictionary(nn.Module):
    """The convention of laplace-torch: ``forward`` takes the batch itself."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        return self.layer(batch["x"])


class Tokens(nn.Module):
    def __init__(self, kind: type[nn.Module], **options: object) -> None:
        super().__init__()
        self.table, self.layer = kind(7, 4, **options), nn.Linear(4, 3)

    def forward(self, i: Tensor) -> Tensor:
        rows = self.table(i)
        return self.layer(rows.mean(1) if rows.ndim == 3 else rows)


class Recomputed(nn.Module):
    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.first, self.last, self.reentrant = nn.Linear(4, 5), nn.Linear(5, 3), reentrant

    def forward(self, x: Tensor) -> Tensor:
        return self.last(checkpoint(lambda v: self.first(v).tanh(), x, use_reentrant=self.reentrant))


STRUCTURES_OF_ODD_NETWORKS = ("kron", "full", "matrix_free", "approx_diag")


@pytest.mark.parametrize("structure", STRUCTURES_OF_ODD_NETWORKS)
def test_a_forward_with_one_dictionary(structure: str) -> None:
    model, x, y = OneDictionary(), torch.randn(12, 4), torch.randint(3, (12,))
    q = osc.laplace(model, osc.likelihoods.Categorical(), [({"x": x}, y)], structure=structure, prior=1.0, refine=False)
    plain = osc.laplace(
        model.layer, osc.likelihoods.Categorical(), (x, y), structure=structure, prior=1.0, refine=False
    )
    assert torch.allclose(osc.predict(q, {"x": x}).probs, osc.predict(plain, x).probs, atol=1e-4)
    done = osc.train(osc.methods.MAP(model, osc.likelihoods.Categorical()), [({"x": x}, y)], epochs=1, progress=False)
    assert done.model is model


@pytest.mark.parametrize("structure", STRUCTURES_OF_ODD_NETWORKS)
def test_sparse_tables_and_bags(structure: str) -> None:
    i, y = torch.randint(7, (12, 5)), torch.randint(3, (12,))
    torch.manual_seed(0)
    model = Tokens(nn.Embedding, sparse=True)
    others = [Tokens(nn.Embedding), Tokens(nn.EmbeddingBag)]
    for other in others:
        other.load_state_dict(model.state_dict())
    found = []
    for each in (model, *others):
        q = osc.laplace(each, osc.likelihoods.Categorical(), (i, y), structure=structure, prior=1.0, refine=False)
        found.append(osc.functional_variance(q, i))
        assert osc.sample_functions(q, i, 2).shape == (2, 12, 3)
    assert model.table.sparse  # the user's module is as it was
    assert torch.allclose(found[1], found[0], rtol=1e-3, atol=1e-5)
    if structure in (
        "full",
        "matrix_free",
    ):  # a bag has no rule: kron keeps it as a dense block, approx_diag its squares
        assert torch.allclose(found[2], found[0], rtol=1e-2, atol=1e-4)


@pytest.mark.parametrize("structure", STRUCTURES_OF_ODD_NETWORKS)
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_activations_of_a_reentrant_checkpoint_are_refused(structure: str) -> None:
    """It would hide the parameters in it, and their curvature would be zero."""
    x, y, likelihood = torch.randn(12, 4), torch.randint(3, (12,)), osc.likelihoods.Categorical()
    with pytest.raises(ValueError, match="recomputes activations"):
        osc.laplace(Recomputed(True), likelihood, (x, y), structure=structure, prior=1.0)
    osc.train(osc.methods.MAP(Recomputed(True), likelihood), (x, y), epochs=1, progress=False)


@pytest.mark.parametrize(
    "structure",
    [pytest.param(s, marks=[pytest.mark.release] * (s == "matrix_free")) for s in STRUCTURES_OF_ODD_NETWORKS],
)
def test_recomputed_activations_change_nothing(structure: str) -> None:
    """Those of approx_diag, whose backward pass is another one, are refused."""
    torch.manual_seed(0)
    x, y, likelihood = torch.randn(12, 4), torch.randint(3, (12,)), osc.likelihoods.Categorical()
    model = Recomputed(False).double()
    plain = nn.Sequential(model.first, nn.Tanh(), model.last)
    if structure == "approx_diag":
        with pytest.raises(ValueError, match="recomputes activations"):
            osc.laplace(model, likelihood, (x.double(), y), structure=structure, prior=1.0)
        return
    q, other = (
        osc.laplace(each, likelihood, (x.double(), y), structure=structure, prior=1.0, refine=True)
        for each in (model, plain)
    )
    for compute in (
        lambda q: osc.functional_variance(q, x.double()),
        lambda q: osc.sample_functions(q, x.double(), 3, generator=torch.Generator().manual_seed(0)),
        lambda q: osc.predict(q, x.double(), via="sampled", generator=torch.Generator().manual_seed(0)).probs,
        osc.log_evidence,
    ):
        torch.testing.assert_close(compute(q), compute(other), rtol=1e-6, atol=1e-8)


@pytest.mark.filterwarnings("ignore:.*steps are few")
def test_recomputed_activations_at_drawn_weights_are_refused() -> None:
    method = osc.methods.MeanFieldVI(Recomputed(False), osc.likelihoods.Categorical())
    with pytest.raises(ValueError, match="recomputes activations"):
        osc.train(method, (torch.randn(12, 4), torch.randint(3, (12,))), epochs=1, progress=False)


class Around(nn.Module):
    """A network around another one."""

    def __init__(self, first: nn.Module) -> None:
        super().__init__()
        self.first, self.last = first, nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.first(x).tanh())


def test_scripted_modules_are_refused_if_they_are_trained() -> None:
    x, y, likelihood = torch.randn(12, 4), torch.randint(3, (12,)), osc.likelihoods.Categorical()
    whole, within = torch.jit.script(nn.Linear(4, 3)), Around(torch.jit.trace(nn.Linear(4, 5), x))
    for model, where in ((whole, "model"), (within, "layer 'first'")):
        for use in (
            lambda model: osc.laplace(model, likelihood, (x, y)),
            lambda model: osc.methods.MAP(model, likelihood),
            lambda model: osc.posteriors.Point(model, likelihood),
        ):
            with pytest.raises(TypeError, match=f"{where} is a scripted module.*pass the module that was scripted"):
                use(model)
    within.first.requires_grad_(False)
    q = osc.laplace(within, likelihood, (x, y), prior=1.0, refine=False)
    assert osc.predict(q, x).probs.shape == (12, 3)


@pytest.mark.parametrize("structure", STRUCTURES_OF_ODD_NETWORKS)
def test_compiled_modules_are_those_that_were_compiled(structure: str) -> None:
    x, y, likelihood = torch.randn(12, 4), torch.randint(3, (12,)), osc.likelihoods.Categorical()
    plain = Around(nn.Linear(4, 5))
    compiled = [torch.compile(plain, backend="eager"), Around(torch.compile(plain.first, backend="eager"))]
    compiled[1].last = plain.last
    options = {"structure": structure, "prior": 1.0, "refine": False}
    expected = osc.functional_variance(osc.laplace(plain, likelihood, (x, y), **options), x)
    for model in compiled:
        q = osc.laplace(model, likelihood, (x, y), **options)
        assert q.network.space.names == tuple(name for name, _ in model.named_parameters())
        assert torch.equal(osc.functional_variance(q, x), expected)
    named = torch.compile(OneDictionary(), backend="eager")
    done = osc.train(osc.methods.MAP(named, likelihood), [({"x": x}, y)], epochs=1, progress=False)
    assert osc.predict(done, {"x": x}).probs.shape == (12, 3)


@pytest.mark.filterwarnings("ignore:.*negative curvature", "ignore:There is a performance drop")
def test_bags_without_a_matrix_and_with_second_derivatives() -> None:
    i, y, likelihood = torch.randint(7, (12, 5)), torch.randint(3, (12,)), osc.likelihoods.Categorical()
    bag, table = Tokens(nn.EmbeddingBag, mode="mean"), Tokens(nn.Embedding)
    table.load_state_dict(bag.state_dict())
    for options in ({"structure": "matrix_free"}, {"structure": "full", "curvature": "hessian"}):
        found = [osc.laplace(m, likelihood, (i, y), prior=1.0, refine=False, **options) for m in (bag, table)]
        assert_close(*(osc.functional_variance(q, i) for q in found), rtol=1e-3, atol=1e-4)
    largest = Tokens(nn.EmbeddingBag, mode="max")
    assert osc.predict(osc.laplace(largest, likelihood, (i, y), refine=False), i).probs.shape == (12, 3)
    with pytest.raises(ValueError, match="neither a second derivative nor a derivative in forward mode"):
        osc.laplace(largest, likelihood, (i, y), structure="matrix_free", refine=False)


@pytest.mark.parametrize("method", [osc.methods.IVON, osc.methods.MeanFieldVI])
def test_sparse_gradients_that_a_method_does_not_take(method: type[osc.methods.Method]) -> None:
    with pytest.raises(ValueError, match=f"layer 'table' has sparse gradients, which {method.__name__} does not take"):
        method(Tokens(nn.Embedding, sparse=True), osc.likelihoods.Categorical())


class Named(nn.Module):
    """A forward with named arguments only."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, *, x: Tensor, scale: float = 1.0) -> Tensor:
        return scale * self.layer(x)


@pytest.mark.parametrize("model", [OneDictionary(), Named()], ids=["one dictionary", "named"])
def test_named_inputs_reach_a_network_within_another(model: nn.Module) -> None:
    x, y, likelihood = {"x": torch.randn(12, 4)}, torch.randint(3, (12,)), osc.likelihoods.Categorical()
    f = model.layer(x["x"])
    assert torch.equal(call(model, x), f)
    assert torch.equal(call(osc.networks.Tempered(model, 2.0), x), f / 2)
    assert torch.equal(call(osc.networks.WithPrior(model, model), x), 2 * f)
    done = osc.train(osc.methods.TemperatureScaling(model, likelihood), [(x, y)], progress=False)
    assert osc.predict(done, x).probs.shape == (12, 3)


@pytest.mark.parametrize(
    "structure", ["kron", "full", pytest.param("matrix_free", marks=pytest.mark.release), "approx_diag"]
)
def test_soft_targets_have_the_curvature_of_labels(structure: str) -> None:
    """The GGN of a softmax or a sigmoid does not depend on the targets."""
    x, p = torch.randn(12, 4), torch.rand(12, 3).softmax(-1)
    labels, options = torch.randint(3, (12,)), {"structure": structure, "prior": 1.0, "refine": False}
    for likelihood, soft, hard in (
        (osc.likelihoods.Categorical(), p, labels),
        (osc.likelihoods.Bernoulli(grey=True), p, p.round()),
    ):
        model = Around(nn.Linear(4, 5))
        mixed, plain = (osc.laplace(model, likelihood, (x, y), **options) for y in (soft, hard))
        assert torch.equal(osc.functional_variance(mixed, x), osc.functional_variance(plain, x))
        assert osc.predict(osc.tune(mixed, (x, soft)), x).probs.shape == (12, 3)
        if structure != "matrix_free":
            assert float(osc.log_evidence(mixed)) != float(osc.log_evidence(plain))


class Drifting(nn.Module):
    """Writes into a buffer and an attribute in each call, and uses what it wrote or not."""

    def __init__(self, used: bool) -> None:
        super().__init__()
        self.layer, self.used, self.last = nn.Linear(4, 3), used, None
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.mean.mul_(0.9).add_(0.1 * x.detach().mean(0))
        self.last = x
        return self.layer(x - self.mean if self.used else x)


@pytest.mark.parametrize("structure", STRUCTURES_OF_ODD_NETWORKS)
def test_buffers_that_change_are_as_before_and_refused_where_data_meet_in_them(structure: str) -> None:
    model, (x, y) = Drifting(used=False), (torch.randn(12, 4), torch.randint(3, (12,)))
    options = {"structure": structure, "prior": 1.0, "refine": False}
    q = osc.laplace(model, osc.likelihoods.Categorical(), (x, y), **options)
    plain = osc.laplace(model.layer, osc.likelihoods.Categorical(), (x, y), **options)
    assert torch.equal(osc.functional_variance(q, x), osc.functional_variance(plain, x))
    assert not model.mean.any()
    assert not q.model.mean.any()
    assert model.last is q.model.last is None
    with pytest.raises(ValueError, match="the output for one input depends on the other inputs of its batch"):
        osc.laplace(Drifting(used=True), osc.likelihoods.Categorical(), (x, y), **options)


def test_what_a_network_does_with_inputs_that_have_no_gradient() -> None:
    class Rounding(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(torch.from_numpy(x.numpy().round()))

    x, y, likelihood = torch.randn(12, 4), torch.randint(3, (12,)), osc.likelihoods.Categorical()
    for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad):
        with mode():
            q = osc.laplace(Rounding(4, 3), likelihood, (x, y), prior=1.0, refine=False)
            assert osc.predict(q, x).probs.shape == (12, 3)
