"""A Gaussian posterior as a value: what can be replaced, which fits add, other types, and where it draws."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.likelihoods import Bernoulli, Categorical, Gaussian, HeteroscedasticGaussian, Likelihood, StudentT
from osculate.structures import LowRank, MatrixFree
from tests.errors import says
from tests.laws import STRUCTURES, assert_close, targets

DOUBLE = torch.double
HALF = (torch.bfloat16, torch.float16)
EVERY = (*STRUCTURES, "matrix_free", "mixed_diag")


def net(seed: int = 0, outputs: int = 3) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(4, 2), nn.Tanh(), nn.Linear(2, outputs)).double()


def inputs(n: int = 9) -> Tensor:
    return torch.randn(n, 4, generator=torch.Generator().manual_seed(1), dtype=DOUBLE)


def fitted(likelihood: Likelihood | None = None, model: nn.Module | None = None, **how: object):
    likelihood, model = likelihood or Categorical(), model or net()
    part = how.pop("part", slice(None))
    x = inputs()
    y = targets(likelihood, net(), x)
    return osc.laplace(
        model, likelihood, (x[part], y[part]), **{"prior": 0.7, "structure": "full", **how}, refine=False
    )


@pytest.mark.parametrize("new", [StudentT(4.0, 2.0), StudentT(5.0, 1.0), Gaussian(1.0)], ids=repr)
def test_a_likelihood_that_needs_a_new_fit_is_refused_at_once(new: Likelihood) -> None:
    q = fitted(StudentT(4.0, 1.0))
    with pytest.raises(ValueError, match=says("StudentT(df=4.0, scale=1.0)", repr(new), "fit it again")):
        q.replace(likelihood=new)
    assert_close(osc.log_evidence(q.replace(likelihood=StudentT(4.0, 1.0))), osc.log_evidence(q))


def test_the_noise_scale_of_a_gaussian_is_replaced_as_if_fitted_anew() -> None:
    q, again = fitted(Gaussian(0.5)), fitted(Gaussian(2.0))
    again = again.replace(
        fit=replace(again.fit, statistics=q.fit.statistics)
    )  # targets were drawn with the other scale
    assert_close(osc.log_evidence(q.replace(likelihood=Gaussian(2.0))), osc.log_evidence(again))


ONE, TWO = slice(4), slice(4, None)


@pytest.mark.parametrize("structure", [name for name in EVERY if name != "ekfac"])
def test_fits_add_to_that_of_all_data(structure: str, tmp_path) -> None:
    whole = fitted(structure=structure)
    one, two = (fitted(structure=structure, part=part) for part in (ONE, TWO))
    both = one.replace(fit=one.fit + two.fit)
    assert both.num_data == 9
    assert_close(osc.log_evidence(both), osc.log_evidence(whole))
    assert_close(osc.log_evidence(one.replace(fit=one.to("cpu", DOUBLE).fit + two.fit)), osc.log_evidence(whole))
    if structure != "matrix_free":
        osc.save(two, tmp_path / "two.safetensors")
        loaded = osc.load(tmp_path / "two.safetensors", net(5))
        assert_close(osc.log_evidence(one.replace(fit=one.fit + loaded.fit)), osc.log_evidence(whole))


def with_buffer() -> nn.Module:
    model = net()
    model.register_buffer("steps", torch.ones(1))
    return model


DIFFERENT: dict[str, tuple[Callable, Callable, tuple[str, ...]]] = {
    "noise": (lambda: fitted(Gaussian(1.0)), lambda: fitted(Gaussian(0.1)), ("likelihood", "scale=1.0 against 0.1")),
    "likelihood": (lambda: fitted(Gaussian()), lambda: fitted(StudentT()), ("likelihood", "Gaussian", "StudentT")),
    "kind": (lambda: fitted(), lambda: fitted(curvature="fisher"), ("kind of curvature", "'ggn' against 'fisher'")),
    "mode": (lambda: fitted(), lambda: fitted(model=net(1)), ("mode", "'0.weight'")),
    "buffers": (lambda: fitted(), lambda: fitted(model=with_buffer()), ("mode", "'steps'")),
    "structure": (lambda: fitted(), lambda: fitted(structure="diag"), ("structure", "Full", "Diag")),
    "seed": (
        lambda: fitted(structure=LowRank(5, 2, seed=0)),
        lambda: fitted(structure=LowRank(5, 2, seed=1)),
        ("structure", "seed=0 against 1"),
    ),
    "layers": (lambda: fitted(), lambda: fitted(subset="last_layer"), ("blocks of parameters", "2 against 1")),
    "subset": (lambda: fitted(subset=["0"]), lambda: fitted(subset=["2"]), ("blocks of parameters", "names=")),
    "subnetwork": (
        lambda: fitted(subset=osc.Subnetwork(0.5, select="random", seed=0)),
        lambda: fitted(subset=osc.Subnetwork(0.5, select="random", seed=1)),
        ("blocks of parameters", "kept="),
    ),
}


@pytest.mark.parametrize(("one", "two", "words"), DIFFERENT.values(), ids=DIFFERENT)
def test_fits_of_different_terms_do_not_add(one: Callable, two: Callable, words: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=says("two fits", *words)):
        one().fit + two().fit


@pytest.mark.parametrize("structure", ["full", "block", "diag"])
@pytest.mark.filterwarnings("ignore:the Hessian has")
def test_hessians_whose_negative_directions_were_cut_do_not_add(structure: str) -> None:
    one, two = (fitted(structure=structure, curvature="hessian", part=part) for part in (ONE, TWO))
    with pytest.raises(ValueError, match=says("Hessian", repr(structure), "negative directions", "all data at once")):
        one.fit + two.fit


def test_hessians_that_are_never_built_add() -> None:
    one, two, whole = (
        fitted(structure=MatrixFree(rank=8), curvature="hessian", part=part) for part in (ONE, TWO, slice(None))
    )
    assert_close((one.fit + two.fit).curvature.dense(), whole.structure.dense())


def test_only_a_fit_is_added_to_a_fit() -> None:
    with pytest.raises(TypeError, match="unsupported operand"):
        fitted().fit + 1


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("structure", EVERY)
def test_in_half_precision_the_network_alone_is(structure: str, dtype: torch.dtype) -> None:
    q = fitted(structure=structure)
    half, x = q.to(dtype=dtype), inputs(3)
    assert half.network.dtype == dtype
    state = [*half.structure.tensors().values(), half.prior.precision, half.mean]
    kinds = {tensor.dtype for tensor in state if tensor.is_floating_point()}
    assert kinds == ({torch.float, torch.double} if structure in ("full", "block") else {torch.float})
    assert_close(osc.predict(half, x.to(dtype)).probs.double(), osc.predict(q, x).probs, 0.05)
    assert_close(half.variance().double(), q.variance(), 1e-2)
    assert osc.predict(half, x.to(dtype), via="sampled", samples=2).probs.shape == (3, 3)
    assert bool(osc.log_evidence(half).isfinite())
    again = half.to(dtype=torch.float)  # what stayed in single precision did not lose any
    for name, tensor in q.to(dtype=torch.float).structure.tensors().items():
        assert torch.equal(again.structure.tensors()[name], tensor)


@pytest.mark.parametrize("kind", ["ggn", "fisher", "empirical_fisher"])
@pytest.mark.parametrize("structure", ["kron", "low_rank", "matrix_free"])
def test_targets_of_another_floating_type_change_nothing(structure: str, kind: str) -> None:
    model, x, y = net(outputs=2).float(), inputs().float(), torch.randn(9, 2, dtype=DOUBLE)
    how = {"structure": structure, "curvature": kind, "prior": 1.0}

    def fit(y: Tensor) -> osc.posteriors.Gaussian:
        torch.manual_seed(0)
        return osc.laplace(model, Gaussian(0.5), (x, y), **how, refine=False)

    found, expected = fit(y), fit(y.float())
    assert_close(osc.log_evidence(found), osc.log_evidence(expected), 1e-5)
    for tensor in found.structure.tensors().values():
        assert tensor.dtype == torch.float


class Doubled(Likelihood):
    """A user's own whose score is in double precision whatever the outputs are."""

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        return -0.5 * (y - f).square().sum(-1)

    def score(self, f: Tensor, y: Tensor) -> Tensor:
        return (y - f).double()


def test_products_take_scores_of_another_type() -> None:
    model, x, y = net(outputs=2).float(), inputs().float(), torch.randn(9, 2)
    full, free = (
        osc.laplace(model, Doubled(), (x, y), structure=name, curvature="empirical_fisher", prior=1.0, refine=False)
        for name in ("full", "matrix_free")
    )
    assert_close(free.structure.dense(), full.structure.dense(), 1e-5)


@pytest.mark.parametrize("kind", ["ggn", "fisher", "empirical_fisher", "hessian"])
@pytest.mark.filterwarnings("ignore:the Hessian has")
def test_truth_values_are_targets_like_0_and_1(kind: str) -> None:
    model, x = net(outputs=1), inputs()
    y = x[:, :1] > 0

    def fit(y: Tensor) -> osc.posteriors.Gaussian:
        torch.manual_seed(0)
        return osc.laplace(model, Bernoulli(), (x, y), curvature=kind, structure="full", prior=1.0, refine=False)

    assert_close(osc.log_evidence(fit(y)), osc.log_evidence(fit(y.double())))


REAL = (Gaussian(0.5), StudentT(), HeteroscedasticGaussian())
WAYS: tuple[dict, ...] = ({}, {"via": "sampled"}, {"link": "functions"})


@pytest.mark.parametrize(
    ("likelihood", "how"), [*product(REAL, WAYS), (REAL[0], {"joint": "outputs"}), (REAL[0], {"joint": "batch"})]
)
def test_a_network_without_biases_is_certain_at_zero(likelihood: Likelihood, how: dict) -> None:
    model, x = nn.Linear(4, 2, bias=False), inputs().float()
    q = osc.laplace(model, likelihood, (x, targets(likelihood, model, x)), prior=1.0, refine=False)
    p = osc.predict(q, torch.zeros(1, 4), noise=False, **how)
    assert_close(p.mean, torch.zeros_like(p.mean))
    assert 0 < float(p.variance.max()) < 1e-30
    assert bool(p.log_prob(p.mean).isfinite().all())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("structure", ["full", "matrix_free"])
def test_draws_follow_the_generator_on_its_own_device(structure: str) -> None:
    q = fitted(structure=structure)
    there, x = q.to("cuda"), inputs(2)

    def on(device: str) -> torch.Generator:
        return torch.Generator(device).manual_seed(0)

    assert_close(there.sample(2, on("cpu")).cpu(), q.sample(2, on("cpu")))
    assert_close(q.sample(2, on("cuda")), there.sample(2, on("cuda")).cpu())
    for via in ("samples", "sketch"):
        map_of = osc.functional_variance(there, x.cuda(), True, via=via, samples=4, generator=on("cuda"))
        assert map_of.device.type == "cuda"
