"""Threads that share a posterior: each call gives what it gives alone, bit by bit."""

import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from sys import getswitchinterval, setswitchinterval
from threading import Barrier, Event, Lock, Thread, get_ident
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
Verb = Callable[[Posterior, Tensor, int], Tensor]


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
    "sample_functions": lambda q, x, n: osc.sample_functions(q, x, 3, generator=seeded(n), memory=MEMORY),
    "log_evidence": lambda q, x, n: osc.log_evidence(q),
}


def assert_threads_agree(verbs: list[Verb], q: Posterior, x: Tensor, calls: int) -> None:
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
    return osc.laplace(model, osc.likelihoods.Categorical(), (x, y), prior=1.0, **options)


def mlp() -> tuple[nn.Module, Tensor]:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)), torch.randn(30, 4)


@pytest.mark.parametrize("structure", structures.REGISTRY)
def test_public_verbs_agree_with_one_thread(structure: str) -> None:
    model, x = mlp()
    calls = 2 if structure == "matrix_free" else 5
    assert_threads_agree(list(VERBS.values()), fitted(model, x, structure=structure), x, calls)


@pytest.mark.slow
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


def test_members_of_an_ensemble() -> None:
    torch.manual_seed(0)
    models = [nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3)) for _ in range(2)]
    verb: Verb = lambda q, x, n: osc.predict(q, x, memory=MEMORY).probs  # noqa: E731
    q = osc.posteriors.Ensemble(models, osc.likelihoods.Categorical())
    assert_threads_agree([verb], q, torch.randn(6, 4), 10)


@pytest.mark.parametrize(
    "name", ["tied", "conv2d", "attention", pytest.param("gru", marks=pytest.mark.slow), "weight_norm"]
)
def test_networks_of_many_kinds(name: str) -> None:
    case = ZOO[name]
    q = fitted(case.model(), case.x(8), structure="diag")
    assert_threads_agree(list(VERBS.values())[1:4], q, case.x(6), 3)
    assert_threads_agree(list(VERBS.values())[:1], q, case.x(6), 3)


@pytest.mark.filterwarnings("ignore:on these held-out data")
@pytest.mark.slow
def test_the_other_verbs(tmp_path: Path) -> None:
    model, x = mlp()
    q = fitted(model, x, structure="kron")
    theta = q.sample(2, seeded(0))
    data = x, torch.randint(3, (30,), generator=seeded(0))

    def saved(q: Posterior, x: Tensor, n: int) -> Tensor:
        path = tmp_path / f"{n}-{get_ident()}.safetensors"
        osc.save(q, path)
        return osc.load(path, mlp()[0]).variance()

    def evidence(q: Posterior, x: Tensor, n: int) -> Tensor:
        return osc.log_evidence(osc.maximise_evidence(q))

    def validated(q: Posterior, x: Tensor, n: int) -> Tensor:
        tuned = osc.tune(q, data)
        return tuned.log_prob(theta)

    verbs: list[Verb] = [
        lambda q, x, n: q.sample(3, seeded(n)),
        lambda q, x, n: q.log_prob(theta),
        lambda q, x, n: q.variance(),
        lambda q, x, n: osc.predict(q.replace(temperature=0.5 + n), x, memory=MEMORY).probs,
        saved,
        evidence,
    ]
    assert_threads_agree(verbs, q, x, 2)
    assert_threads_agree([validated], q, x, 1)


def test_passes_with_dropout() -> None:
    model, x = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3)), torch.randn(9, 4)
    q = osc.posteriors.Dropout(model, osc.likelihoods.Categorical())
    verb: Verb = lambda q, x, n: osc.predict(q, x, samples=3, generator=seeded(n), memory=MEMORY).probs  # noqa: E731
    at_the_mode: Verb = lambda q, x, n: osc.predict(q, x, via="mode").probs  # noqa: E731
    assert_threads_agree([verb, at_the_mode], q, x, 20)


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
    class Method(osc.methods.MAP):
        def loss(self, x: Tensor, y: Tensor, num_data: int) -> Tensor:
            drawn_elsewhere()
            return super().loss(x, y, num_data)

    osc.train(Method(nn.Linear(2, 1), osc.likelihoods.Gaussian()), (torch.randn(4, 2), torch.randn(4, 1)), epochs=1)
