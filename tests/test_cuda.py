"""A GPU gives the results of the CPU: the zoo, random cases, and what depends on the device."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.inputs import moved
from tests.foundation import causal_model, sequences
from tests.fuzz.cases import random_case
from tests.fuzz.outcomes import SENTENCES, WEIGHTS
from tests.laws import assert_close, targets
from tests.posteriors.test_resumable import Breaks
from tests.zoo import ZOO

DEVICE = torch.device("cuda")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

#: Random cases, and the relative rounding of sums in another order, by type.
CASES, ROUNDING = range(150), {torch.double: 1e-6, torch.float: 2e-2}
#: Data of the batch that is split.
POINTS = 8000


#: Structures whose draws depend on the signs of eigenvectors.
ROTATED = ("kron", "ekfac")


def seeded(device: torch.device | str = "cpu") -> torch.Generator:
    return torch.Generator(device).manual_seed(0)


def answers(q: Any, x: Any) -> dict[str, Tensor]:
    """What a posterior says of itself and of some inputs."""
    predicted = osc.predict(q, x)
    found = {
        "evidence": osc.log_evidence(q),
        "covariances": osc.functional_variance(q, x),
        "variances": osc.functional_variance(q, x, diagonal=True),
        "predictive": getattr(predicted, "probs", predicted.mean),
    }
    draws = osc.sample_functions(q, x, 3, generator=seeded())
    if (
        q.structure.structure.name in ROTATED
    ):  # the signs of eigenvectors, and so single draws, are the library's choice
        return found
    return found | {"draws": draws}


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor], relative: float) -> None:
    assert {name for name, value in found.items() if value.device.type != DEVICE.type} <= {"evidence"}
    differing = {}
    for name, value in expected.items():
        scale = float(value.abs().max().clamp(min=1e-30))
        error = float((found[name].cpu() - value).abs().max()) / scale
        if not error <= relative:
            differing[name] = error
    assert not differing


@pytest.mark.parametrize("structure", ["diag", "kron", "ekfac", "block", "full", "dual", "approx_diag"])
@pytest.mark.parametrize("net", ZOO)
def test_answers_are_those_of_the_cpu(net: str, structure: str) -> None:
    likelihood, x = osc.likelihoods.Gaussian(0.5), ZOO[net].x(4)
    y = targets(likelihood, ZOO[net].model(), x)

    def on(device: torch.device | str) -> Any:
        model = ZOO[net].model().to(device)
        return osc.laplace(model, likelihood, (x, y), structure=structure, prior=2.0, refine=False)  # data on the CPU

    assert_same(answers(on(DEVICE), x), answers(on("cpu"), x), 1e-6)


def outcome(seed: int, device: torch.device) -> dict[str, Tensor] | None:
    """The answers of a random case on a device; None where it is refused."""
    case = random_case(seed, WEIGHTS)
    object.__setattr__(case.net, "module", case.net.module.to(device))
    try:
        q = case.fit([(moved(x, device), y.to(device)) for x, y in case.data()])
        return {"curvature": q.structure.dense()} | answers(q, moved(case.cast(case.new), device))
    except SENTENCES as error:
        print(device, error)  # shown where the outcomes differ
        return None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("seed", CASES)
def test_random_cases_have_the_outcome_of_the_cpu(seed: int) -> None:
    case = random_case(seed, WEIGHTS)
    if case.kind == "fisher" or case.structure.name in ("low_rank", "matrix_free"):
        pytest.skip("labels and test vectors are drawn on the device")
    found, expected = outcome(seed, DEVICE), outcome(seed, torch.device("cpu"))
    assert (found is None) == (expected is None)
    if found is not None and expected is not None:
        assert_same(found, expected, ROUNDING[case.dtype])


def classifier() -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 20), nn.Tanh(), nn.Linear(20, 5))
    return model.to(DEVICE).eval(), torch.randn(200, 1, 8, 8, device=DEVICE), torch.randint(5, (200,), device=DEVICE)


@pytest.mark.parametrize(
    "work",
    [
        lambda q, x, y: osc.refine(q),
        lambda q, x, y: osc.maximise_evidence(q),
        lambda q, x, y: osc.tune(q, (x, y)),
        lambda q, x, y: osc.refine(q.replace(prior=osc.priors.Layerwise(torch.ones(6), q.network.space.names))),
    ],
    ids=["refine", "maximise_evidence", "tune", "layerwise"],
)
def test_what_moves_a_posterior_stays_on_the_device(work: Callable[..., Any]) -> None:
    model, x, y = classifier()
    q = osc.laplace(model, osc.likelihoods.Categorical(), (x, y), structure="kron", prior=1.0, refine=False)
    after = work(q, x, y)
    assert after.mean.device.type == DEVICE.type
    assert bool(osc.predict(after, x).probs.isfinite().all())


def test_a_posterior_moves_between_devices(tmp_path: Path) -> None:
    model, x, y = classifier()
    q = osc.laplace(model, osc.likelihoods.Categorical(), (x, y), structure="kron", prior=1.0)
    there = osc.predict(q, x).probs
    assert_close(osc.predict(q.to("cpu"), x.cpu()).probs, there.cpu(), 1e-3)
    osc.save(q, tmp_path / "q.safetensors")
    loaded = osc.load(tmp_path / "q.safetensors", model.cpu())
    assert_close(osc.predict(loaded, x.cpu()).probs, there.cpu(), 1e-3)


@pytest.mark.parametrize("structure", ["kron", "ekfac", "diag", "full"])
def test_a_resumed_fit_has_the_same_bits(structure: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 3)).to(DEVICE)
    batches = [(torch.randn(16, 6), torch.randint(3, (16,))) for _ in range(6)]

    def fit(data: Any, **options: Any) -> Any:
        return osc.laplace(
            model, osc.likelihoods.Categorical(), data, structure=structure, prior=1.0, refine=False, **options
        )

    path = tmp_path / "fit.safetensors"
    with pytest.raises(KeyboardInterrupt):
        fit(Breaks(batches, 4), checkpoint=path, every=1)
    resumed, whole = fit(batches, checkpoint=path, every=1), fit(batches)
    for name, tensor in whole.structure.tensors().items():
        assert torch.equal(resumed.structure.tensors()[name], tensor), name


@pytest.mark.parametrize("structure", ["kron", "diag"])
def test_a_budget_holds_for_the_tensors_of_the_device(structure: str) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).to(DEVICE)
    x, y = torch.randn(POINTS, 784, device=DEVICE), torch.randint(10, (POINTS,), device=DEVICE)

    def fit(points: int, memory: str) -> Any:
        data = [(x[:points], y[:points])]
        options = {"structure": structure, "prior": 1.0, "refine": False, "memory": memory}
        return osc.laplace(model, osc.likelihoods.Categorical(), data, **options)

    def rise(work: Callable[[], Any]) -> int:
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        work()
        return torch.cuda.max_memory_allocated() - before

    q = fit(8, "50MB")
    osc.predict(q, x[:8])  # what a first call allocates for good
    assert rise(lambda: fit(POINTS, "50MB")) < 50e6
    assert rise(lambda: osc.predict(q, x, memory="50MB")) < 50e6
    assert rise(lambda: fit(POINTS, "2GB")) > 50e6


@pytest.mark.parametrize("recomputes", [False, True])
def test_adapters_of_a_frozen_half_precision_base(recomputes: bool) -> None:
    """Activations are recomputed in another thread here."""
    make = {"dtype": torch.bfloat16, "adapters": torch.float32}
    (x, y), likelihood = sequences(), osc.likelihoods.Categorical(ignore_index=-100)
    found = {}
    for device in ("cpu", DEVICE):
        model = causal_model(**make, recomputes=recomputes and device == DEVICE).to(device)
        batches = [(moved(x, torch.device(device)), y.to(device))]
        q = osc.laplace(model, likelihood, batches, subset="lora", structure="diag", prior=1.0, refine=False)
        found[device] = answers(q, batches[0][0])
        table = model.embed.weight
        assert q.network.module.embed.weight.data_ptr() == table.data_ptr()
    assert_same(found[DEVICE], found["cpu"], 0.1)


def test_an_estimator_trains_there_and_is_on_the_cpu_afterwards() -> None:
    pytest.importorskip("sklearn")
    from osculate.adapters.sklearn import LaplaceRegressor

    x = torch.randn(60, 2, generator=seeded()).double().numpy()
    there, here = (
        LaplaceRegressor(epochs=5, random_state=0, device=device).fit(x, x[:, 0]) for device in ("auto", "cpu")
    )
    assert there.posterior_.mean.device.type == next(there.network_.parameters()).device.type == "cpu"
    assert abs(there.predict(x) - here.predict(x)).max() < 1e-3
