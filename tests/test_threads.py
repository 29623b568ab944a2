"""Threads that share a posterior: each call gives what it gives alone, bit by bit."""

import inspect
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from copy import deepcopy
from pathlib import Path
from sys import getswitchinterval, setswitchinterval
from tempfile import TemporaryDirectory
from threading import Barrier, Event, Lock, Thread
from typing import Any
from weakref import ref

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate import structures
from osculate.inverse.stopping import Stopping
from osculate.parameters import Network
from osculate.posteriors import Posterior
from osculate.randomness import preserved, seed_default, seeded as seeded_default
from tests.zoo import ZOO

THREADS = 4
MEMORY = 10**7
Verb = Callable[[Any, Tensor, int], Tensor]


@pytest.fixture(autouse=True)
def _one_thread_within_torch() -> Iterator[None]:
    threads, interval = torch.get_num_threads(), getswitchinterval()
    torch.set_num_threads(1)
    setswitchinterval(1e-4)  # threads take turns within a call of the network
    yield
    setswitchinterval(interval)
    torch.set_num_threads(threads)


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


#: From a posterior, inputs and the number of the call.
VERBS: dict[str, Verb] = {
    "predict": lambda q, x, n: osc.predict(q, x, generator=seeded(n), memory=MEMORY).probs,
    "predict, sampled": lambda q, x, n: (
        osc.predict(q, x, via="sampled", samples=3, generator=seeded(n), memory=MEMORY).probs
    ),
    "functional_variance": lambda q, x, n: osc.functional_variance(q, x, memory=MEMORY),
    "function_posterior": lambda q, x, n: osc.function_posterior(q, x).rsample(3, seeded(n)),
    "sample_functions": lambda q, x, n: osc.sample_functions(q, x, 3, generator=seeded(n), memory=MEMORY),
    "log_evidence": lambda q, x, n: osc.log_evidence(q),
}


def assert_threads_agree(verbs: list[Verb], q: Any, x: Tensor, calls: int) -> None:
    """Compare calls of several threads, each in its own order, with the same calls in turn."""
    jobs = [(verb, n) for n in range(calls) for verb in verbs]
    alone = [verb(q, x[n % 3 :], n) for verb, n in jobs]
    start = Barrier(THREADS)

    def work(thread: int) -> list[Tensor]:
        order = torch.randperm(len(jobs), generator=seeded(thread)).tolist()
        start.wait()
        found = {k: jobs[k][0](q, x[jobs[k][1] % 3 :], jobs[k][1]) for k in order}
        return [found[k] for k in range(len(jobs))]

    with ThreadPoolExecutor(THREADS) as pool:
        for results in pool.map(work, range(THREADS)):
            for expected, result in zip(alone, results, strict=True):
                assert torch.equal(expected, result)
    for (verb, n), expected in zip(jobs[: len(verbs)], alone, strict=False):
        assert torch.equal(verb(q, x[n % 3 :], n), expected)  # and the posterior is what it was


def fitted(model: nn.Module, x: Tensor, **options: object) -> Posterior:
    y = torch.randint(3, (len(x),), generator=seeded(0))
    return osc.laplace(model, osc.likelihoods.Categorical(), (x, y), prior=1.0, **options, refine=False)


def mlp(seed: int = 0) -> tuple[nn.Module, Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)), torch.randn(30, 4)


@pytest.mark.parametrize("structure", structures.REGISTRY)
def test_public_verbs_agree_with_one_thread(structure: str) -> None:
    model, x = mlp()
    calls = 2 if structure == "matrix_free" else 5
    assert_threads_agree(list(VERBS.values()), fitted(model, x, structure=structure), x, calls)


@pytest.mark.release
@pytest.mark.parametrize(
    "options",
    [{"structure": "kron"}, {"structure": "diag"}, {"structure": "full", "subset": ["2"]}],
    ids=["kron", "diag", "last layer"],
)
def test_public_verbs_agree_with_one_thread_in_many_calls(options: dict) -> None:
    model, x = mlp()
    assert_threads_agree(list(VERBS.values()), fitted(model, x, **options), x, 200)


@pytest.mark.parametrize("structure", ["kron", "diag", "dual"])
def test_first_calls_and_fits_at_the_same_time(structure: str) -> None:
    model, x = mlp()
    expected = osc.predict(fitted(model, x, structure=structure), x, memory=MEMORY).probs
    for _ in range(5):
        shared, start = fitted(model, x, structure=structure), Barrier(THREADS)

        def work(thread: int, q: Posterior = shared, start: Barrier = start) -> Tensor:
            start.wait()
            return osc.predict(fitted(model, x, structure=structure) if thread == 0 else q, x, memory=MEMORY).probs

        with ThreadPoolExecutor(THREADS) as pool:
            assert all(torch.equal(result, expected) for result in pool.map(work, range(THREADS)))


@pytest.mark.parametrize(
    "name", ["tied", "conv2d", "attention", pytest.param("gru", marks=pytest.mark.slow), "weight_norm"]
)
def test_networks_of_many_kinds(name: str) -> None:
    case = ZOO[name]
    q = fitted(case.model(), case.x(8), structure="diag")
    assert_threads_agree(list(VERBS.values())[1:4], q, case.x(6), 3)
    assert_threads_agree(list(VERBS.values())[:1], q, case.x(6), 3)


def posterior_of(kind: str) -> tuple[Any, Tensor]:
    """A small posterior, or a representation, and inputs for it."""
    model, x = mlp()
    likelihood, network = osc.likelihoods.Categorical(), Network(model, dict(model.named_parameters()))
    size = network.space.size
    if kind.startswith("representation"):
        x = torch.rand(6, 1, 4, 4, generator=seeded(0))
        with torch.random.fork_rng():
            torch.manual_seed(0)
            coders = [osc.networks.mlp_coders((1, 4, 4), 2, (8,)) for _ in range(2)]
        autoencoders = [osc.autoencoders.Autoencoder(*pair) for pair in coders]
        gaussian = osc.likelihoods.Gaussian(0.3)
        if "ensemble" in kind:
            q: Posterior = osc.posteriors.Ensemble(autoencoders, gaussian)
        else:
            q = osc.laplace(autoencoders[0], gaussian, (x, x), structure="diag", prior=100.0, refine=False)
        return osc.autoencoders.Representation(q, codes=x), x
    if kind == "point":
        return osc.posteriors.Point(model, likelihood), x
    if kind == "ensemble":
        return osc.posteriors.Ensemble([mlp(seed)[0] for seed in range(2)], likelihood), x
    if kind == "dropout":
        return osc.posteriors.Dropout(nn.Sequential(model[0], nn.Dropout(0.5), model[2]), likelihood), x
    if kind == "snapshots":
        deviations = 0.1 * torch.randn(3, size, generator=seeded(0))
        return osc.posteriors.Snapshots(network, likelihood, torch.full((size,), 0.01), deviations), x
    if kind == "chains":
        return osc.posteriors.Chains(network, likelihood, 0.3 * torch.randn(2, 5, size, generator=seeded(0))), x
    if kind == "mixture":
        return osc.posteriors.Mixture([fitted(model, x, structure=name) for name in ("kron", "diag")]), x
    return fitted(model, x, structure=kind), x


def numbers(*values: Any) -> Tensor:
    """The numbers of metrics by name, of tensors and of scalars, in a row."""
    each = [value for one in values for value in (one.values() if isinstance(one, dict) else [one])]
    return torch.cat([torch.as_tensor(value, dtype=torch.double).flatten() for value in each])


def labels(x: Tensor) -> Tensor:
    return torch.arange(len(x)) % 3


def saved(q: Any, x: Tensor, n: int) -> Tensor:
    with TemporaryDirectory() as folder:
        osc.save(q, Path(folder) / "q.safetensors")
        return numbers(*osc.load(Path(folder) / "q.safetensors", deepcopy(q.model)).variance())


def scored(q: Any, x: Tensor, n: int) -> Tensor:
    record = osc.tasks.semi_supervised(q, x, labels(x), (x, labels(x)), labels=[1], repeats=2, samples=2, seed=n)
    return numbers(record.metrics())


#: What every posterior from which networks are drawn can do, by the name of the public function.
SAMPLED: dict[str, Verb] = {
    "predict": VERBS["predict, sampled"],
    "sample_functions": VERBS["sample_functions"],
    "compare": lambda q, x, n: numbers(osc.compare(q, (x, labels(x)), samples=3, generator=seeded(n)).metrics()),
    "tasks.calibration": lambda q, x, n: numbers(
        osc.tasks.calibration(q, (x, labels(x)), samples=3, generator=seeded(n)).metrics()
    ),
    "tasks.ood": lambda q, x, n: numbers(osc.tasks.ood(q, x, x + 1, samples=3, generator=seeded(n)).metrics()),
}
#: What a Gaussian posterior can do besides.
GAUSSIAN: dict[str, Verb] = {
    **SAMPLED,
    "predict": VERBS["predict"],
    "predict, other temperature": lambda q, x, n: osc.predict(q.replace(temperature=0.5 + n), x, memory=MEMORY).probs,
    "sample": lambda q, x, n: q.sample(3, seeded(n)),
    "log_prob": lambda q, x, n: q.log_prob(q.mean + 0.1),
    "variance": lambda q, x, n: q.variance(),
    "functional_variance": VERBS["functional_variance"],
    "function_posterior": VERBS["function_posterior"],
    "deploy": lambda q, x, n: osc.deploy(q, x)(x)[1],
    "log_evidence": VERBS["log_evidence"],
    "laplace": lambda q, x, n: fitted(deepcopy(q.model).requires_grad_(), x, structure="kron").variance(),
    "plan": lambda q, x, n: torch.tensor(
        osc.plan(deepcopy(q.model).requires_grad_(), q.likelihood, (x, labels(x))).passes
    ),
    "maximise_evidence": lambda q, x, n: osc.log_evidence(osc.maximise_evidence(q)),
    "tune": lambda q, x, n: osc.tune(q, (x, labels(x))).variance(),
    "refine": lambda q, x, n: osc.refine(q, steps=1).variance(),
    "save": saved,
    "tasks.sequence_uncertainty": lambda q, x, n: (
        osc.tasks.sequence_uncertainty(q, x, samples=4, generator=seeded(n)).mutual_information
    ),
    "tasks.acquire": lambda q, x, n: osc.tasks.acquire(q, x, 3, "reduction", generator=seeded(n)).gains,
    "tasks.sensitivity": lambda q, x, n: osc.tasks.sensitivity(q, x[:3], steps=2, samples=8).attributions,
    "evidence.elbo": lambda q, x, n: numbers(osc.evidence.elbo(q, (x, labels(x)), 3, seeded(n)).value),
    "evidence.linear_elbo": lambda q, x, n: osc.evidence.linear_elbo(q),
    "evidence.linear_mode": lambda q, x, n: osc.evidence.linear_mode(q),
    "evidence.effective_parameters": lambda q, x, n: numbers(osc.evidence.effective_parameters(q)),
}
#: The predictive of an ensemble, or of passes with dropout.
PASSES: Verb = lambda q, x, n: osc.predict(q, x, samples=3, generator=seeded(n), memory=MEMORY).probs  # noqa: E731
#: What images and codes can do.
IMAGES: dict[str, Verb] = {
    "encode": lambda r, x, n: r.encode(x, samples=3, generator=seeded(n)).variance,
    "reconstruct": lambda r, x, n: r.reconstruct(x, samples=3, generator=seeded(n)).mean,
    "generate": lambda r, x, n: r.generate(3, seeded(n)),
    "tasks.ood": lambda r, x, n: numbers(osc.tasks.ood(r, x, 1 - x, samples=2, generator=seeded(n)).metrics()),
    "tasks.imputation": lambda r, x, n: (
        osc.tasks.imputation(r, x, osc.tasks.lower_half((1, 4, 4)), draws=2, generator=seeded(n)).mean
    ),
    "tasks.semi_supervised": scored,
}
#: Kinds of posteriors, and what they can do.
TABLE: dict[str, dict[str, Verb]] = {
    "kron": GAUSSIAN,
    "matrix_free": {
        "evidence.expectation_maximisation": lambda q, x, n: osc.evidence.expectation_maximisation(
            q, 4, max_steps=1, generator=seeded(n)
        ).variance()
    },
    "mixture": SAMPLED,
    "snapshots": {**SAMPLED, "sample": GAUSSIAN["sample"], "variance": GAUSSIAN["variance"]},
    "chains": {**SAMPLED, "sample": GAUSSIAN["sample"], "r_hat": lambda q, x, n: q.r_hat(x)},
    "ensemble": {**SAMPLED, "predict": PASSES},
    "dropout": {
        **SAMPLED,
        "predict": PASSES,
        "predict, at the mode": lambda q, x, n: osc.predict(q, x, via="mode").probs,
    },
    "point": {"predict": VERBS["predict"]},
    "representation": IMAGES,
    "representation of an ensemble": IMAGES,
}
#: Public functions that threads do not share, and why.
ALONE = {
    "evidence.calibrated": "calls `refine`, with constants",
    "train": "changes the parameters of the network that it trains",
    "evidence.pathwise_draws": "takes Gaussian noise only, and passes over the data as `evidence.linear_mode` does",
    "load": "makes a new posterior; the row of `save` calls it",
    "tasks.active_learning": "fits models of its own, one after another; the row of `tasks.acquire` chooses",
    "tasks.bayesian_optimisation": "fits models of its own, one after another",
    "tasks.continual_learning": "changes the parameters of the network that it trains",
    "tasks.lower_half": "makes a mask, without a posterior",
    "tasks.neighbour_probabilities": "takes codes, which `tasks.semi_supervised` computes",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "verb"),
    [
        pytest.param(
            kind,
            verb,
            marks=[pytest.mark.release] * (verb in ("tune", "deploy") or (verb == "compare" and kind != "kron")),
        )
        for kind, verbs in TABLE.items()
        for verb in verbs
    ],
)
def test_every_verb_of_every_kind_of_posterior(kind: str, verb: str) -> None:
    q, x = posterior_of(kind)
    assert_threads_agree([TABLE[kind][verb]], q, x, 1 if verb == "compare" else 2)


def test_every_public_function_is_in_the_table() -> None:
    modules = {"": osc, **{f"{name}.": getattr(osc, name) for name in ("evidence", "predictive", "tasks")}}
    public = {
        prefix + name: thing
        for prefix, module in modules.items()
        for name in dir(module)
        if name[0] != "_" and inspect.isfunction(thing := getattr(module, name))
    }
    tried = {verb.partition(",")[0] for verbs in TABLE.values() for verb in verbs}
    known = {public[name] for name in {*tried, *ALONE} & set(public)}  # osc.predict is osc.predictive.predict
    assert not {name for name, thing in public.items() if thing not in known}
    assert set(ALONE) <= set(public)


class Counting(nn.Module):
    """It writes into a buffer, replaces another, keeps its output, and names its layer twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.layers = [self.layer]
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("total", torch.zeros(()))
        self.last: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.total = self.total + 1
        self.last = self.layers[0](x) * self.calls * self.total
        return self.last


def test_a_call_leaves_the_network_unchanged() -> None:
    model, x = Counting(), torch.randn(5, 4)
    network = Network(model, ["layer.weight"])
    expected = model.layer(x)
    for inference in (True, False, False):
        with torch.inference_mode(inference):
            assert torch.equal(network(x), expected)
        assert torch.equal(network(x, {"layer.weight": torch.zeros(3, 4)}), model.layer.bias.expand(5, 3))
    assert network.module.calls == network.module.total == 0
    assert network.module.last is None
    output = ref(network(x))
    assert output() is None  # nor is the output alive that it kept
    assert model.calls == 0


def test_a_failed_call_leaves_no_trace() -> None:
    network = Network(nn.Sequential(nn.Linear(4, 3), nn.Linear(3, 2)), ["0.weight"])
    x = torch.randn(5, 4)
    expected = network(x)
    with pytest.raises(RuntimeError):
        network(x, {"0.weight": torch.zeros(3, 7)})
    assert torch.equal(network(x), expected)


def test_modes_and_hooks_of_a_call_end_with_it() -> None:
    network, x = Network(nn.Sequential(nn.Linear(4, 3), nn.Dropout(1.0)).eval(), ["0.weight"]), torch.randn(5, 4)

    def dropping(module: nn.Module) -> AbstractContextManager:
        module[1].training = True
        return nullcontext()

    def zeros(module: nn.Module) -> AbstractContextManager:
        return module[0].register_forward_hook(lambda _, __, output: torch.zeros_like(output))

    for within in (dropping, zeros):
        assert torch.equal(network(x, within=within), torch.zeros(5, 3))
        assert torch.equal(network(x), network.module(x))
    assert not network.module[1].training


def test_derivatives_of_attention_leave_the_settings_of_the_process() -> None:
    case = ZOO["attention"]
    enabled = torch.backends.cuda.flash_sdp_enabled()
    q = fitted(case.model(), case.x(8), structure="diag")
    assert_threads_agree([VERBS["functional_variance"]], q, case.x(6), 5)
    assert torch.backends.cuda.flash_sdp_enabled() is enabled


def test_unseeded_passes_with_dropout_do_not_disturb_seeded_ones() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    q, x = osc.posteriors.Dropout(model, osc.likelihoods.Categorical()), torch.randn(6, 4)
    alone = [osc.predict(q, x, samples=3, generator=seeded(n)).probs for n in range(20)]
    start = Barrier(THREADS)

    def work(thread: int) -> list[Tensor]:
        start.wait()
        return [osc.predict(q, x, samples=3, generator=None if thread else seeded(n)).probs for n in range(len(alone))]

    with ThreadPoolExecutor(THREADS) as pool:
        together = list(pool.map(work, range(THREADS)))[0]
    assert all(torch.equal(a, b) for a, b in zip(together, alone, strict=True))


def test_a_buffer_under_two_names_is_left_as_it_was() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 1)
            self.register_buffer("first", torch.zeros(()))
            self.register_buffer("second", self.first)

        def forward(self, x: Tensor) -> Tensor:
            self.second += 1
            return self.layer(x) * self.first

    network, x = Network(Counting(), ["layer.weight"]), torch.ones(3, 2)
    outputs = [network(x) for _ in range(3)]
    assert torch.equal(outputs[0], outputs[2])
    assert float(network.module.first) == 0


def test_a_call_in_training_mode_leaves_running_statistics() -> None:
    network, x = Network(nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3)).eval(), ["0.weight"]), torch.randn(5, 2)

    def training(module: nn.Module) -> AbstractContextManager:
        module.train()
        return nullcontext()

    network(x)
    network(x, within=training)
    assert torch.equal(network.module[1].running_mean, torch.zeros(3))
    network.module.train()
    network(x)
    assert torch.equal(network.module[1].running_mean, torch.zeros(3))


class Remembering(nn.Module):
    """It changes what it keeps outside buffers, for large inputs only."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.scale = torch.ones(())
        self.scales = [torch.ones(())]
        self.calls = 0
        self.register_buffer("total", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if x.max() > 1:
            self.scale += 1
            self.scales[0].mul_(2)
            self.calls += 1
            self.total += 1
        return self.layer(x) * self.scale * self.scales[0] * (1 + self.calls) * (1 + self.total)


def test_what_a_network_keeps_of_some_inputs_is_gone_after_the_call() -> None:
    network = Network(Remembering(), ["layer.weight"])
    x, large = torch.zeros(5, 4), torch.full((5, 4), 2.0)
    before, changed = network(x), network(large)
    assert torch.equal(network(x), before)
    assert torch.equal(network(large), changed)


class Caching(nn.Module):
    """It keeps its activations in a list, a table beside its size, and a weight in a buffer of a layer of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.namespace = nn.Linear(4, 3), nn.Module()
        self.layer.register_buffer("standardised", torch.zeros(3, 4))
        self.namespace.register_buffer("calls", torch.zeros(()))
        self.history: list[Tensor] = []
        self.size: int | None = None
        self.table: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        if self.size is None:
            self.size, self.table = len(x), torch.linspace(0, 1, 3, dtype=x.dtype)
        self.layer.standardised = self.layer.weight / self.layer.weight.norm()
        self.namespace.calls += 1
        self.history.append(x @ self.layer.standardised.T + self.table)
        return self.history[-1] * len(self.history) * self.namespace.calls


def test_caches_of_every_kind() -> None:
    model, x = Caching().eval(), torch.randn(6, 4)
    expected, network = Caching().forward(x).shape, Network(model, ["layer.weight"])
    first = network(x)
    assert first.shape == expected
    assert all(torch.equal(network(x), first) for _ in range(3))
    assert network.module.history == []
    assert network.module.size is network.module.table is None
    assert_threads_agree([VERBS["predict, sampled"]], fitted(model, x, structure="diag"), x, 10)


def test_tensors_that_change_after_a_call_are_followed() -> None:
    network, x = Network(Remembering(), ["layer.weight"]), torch.zeros(5, 4)
    before = network(x)
    network.module.total += 1
    assert torch.equal(network(x), 2 * before)
    network.module.scale = torch.full((), 3.0)
    assert torch.equal(network(x), 6 * before)


def test_a_first_call_within_a_transform_leaves_no_trace() -> None:
    network, x = Network(Remembering(), ["layer.weight"]), torch.zeros(5, 4)
    torch.func.jvp(network, (x,), (torch.ones_like(x),))
    assert torch.equal(network(x), network.module(x))


def test_hooks_that_reach_the_original_are_announced() -> None:
    class Captured(nn.Module):
        def __init__(self, closure: bool) -> None:
            super().__init__()
            self.layer, self.kept = nn.Linear(4, 3), []
            hook = (lambda _, __, output: self.keep(_, __, output)) if closure else self.keep
            self.layer.register_forward_hook(hook)

        def keep(self, _: nn.Module, __: object, output: Tensor) -> None:
            self.kept = [output]

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x) + self.kept[0]

    x = torch.randn(5, 4)
    with pytest.warns(UserWarning, match=r"hook of layer 'layer'.*method"):
        Network(Captured(True), ["layer.weight"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        network = Network(model := Captured(False), ["layer.weight"])
    assert torch.equal(network(x), 2 * model.layer.forward(x))


def test_what_cannot_be_copied_is_refused() -> None:
    model = nn.Linear(4, 3)
    model.lock = Lock()
    with pytest.raises(ValueError, match=r"cannot be copied.*lock"):
        Network(model, ["weight"])


def drawn_elsewhere() -> Tensor:
    """Draw in another thread, for which the present one must not hold the lock."""
    found: list[Tensor] = []

    def work() -> None:
        with seeded_default(1):
            found.append(torch.rand(2))

    thread = Thread(target=work, daemon=True)
    thread.start()
    thread.join(10)
    return found[0]


class Last(Stopping):
    """It keeps the last step, and may let another thread draw in each."""

    def __init__(self, elsewhere: bool) -> None:
        self.elsewhere = elsewhere

    def look(self, image: Tensor, misfit: float, noise: float | None) -> tuple[bool, bool]:
        if self.elsewhere:
            drawn_elsewhere()
        return True, False


def test_training_a_deep_image_prior_lets_others_draw_and_repeats_its_dropout() -> None:
    torch.manual_seed(0)
    network = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.Dropout(0.3), nn.Conv2d(4, 1, 3, padding=1), nn.Sigmoid())
    operator = osc.inverse.Subsampling.random((8, 8), 0.5, seeded(0))
    data = operator(torch.rand(8, 8, generator=seeded(1)))
    alone, beside = (
        osc.inverse.DeepImagePrior(network, steps=5, stopping=Last(elsewhere)).fit(operator, data, 0.1).misfits
        for elsewhere in (False, True)
    )
    assert alone == beside


def test_the_state_of_a_training_waits_for_draws_with_a_seed() -> None:
    inside, outside = Event(), Event()

    def train() -> None:
        inside.wait()
        with preserved([]):
            seed_default(2)
            torch.rand(1)
        outside.set()

    thread = Thread(target=train)
    thread.start()
    with seeded_default(3):
        first = torch.rand(2)
        inside.set()
        assert not outside.wait(0.2)
        drawn = torch.cat([first, torch.rand(2)])
    thread.join()
    with seeded_default(3):
        assert torch.equal(drawn, torch.rand(4))


def test_training_lets_others_draw() -> None:
    drawn: list[Tensor] = []

    class Method(osc.methods.MAP):
        def loss(self, x: Tensor, y: Tensor, num_data: int) -> Tensor:
            drawn.append(drawn_elsewhere())
            return super().loss(x, y, num_data)

    osc.train(Method(nn.Linear(2, 1), osc.likelihoods.Gaussian()), (torch.randn(4, 2), torch.randn(4, 1)), epochs=1)
    with seeded_default(1):
        assert drawn
        assert torch.equal(drawn[0], torch.rand(2))
