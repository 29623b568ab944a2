"""The posterior in function space: equal to the one in parameter space, at the memory of the data."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import osculate as osc
from osculate.curvature import reference
from osculate.posteriors import Gaussian
from osculate.structures import Dual
from tests.errors import says
from tests.laws import assert_close, check_algebra, check_effective_parameters, check_functional_variance, targets
from tests.zoo import ZOO

CATEGORICAL = osc.likelihoods.Categorical()


def wide(n: int = 12) -> tuple[nn.Module, Tensor, Tensor]:
    """Many more parameters than data."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 4)).double()
        x = 2 * torch.randn(n, 5, dtype=torch.double)
    return model, x, targets(CATEGORICAL, model, x)


def fitted(structure: str | Dual, model: nn.Module, x: Tensor, y: Tensor, **options: object) -> Gaussian:
    return osc.laplace(model, CATEGORICAL, (x, y), structure=structure, **{"prior": 0.7, **options}, refine=False)


def check_equal(one: Gaussian, two: Gaussian, x: Tensor) -> None:
    """Two posteriors are the same in everything that is asked of them."""
    assert_close(one.structure.dense(), two.structure.dense())
    assert_close(osc.log_evidence(one), osc.log_evidence(two))
    assert_close(one.variance(), two.variance())
    assert_close(osc.functional_variance(one, x), osc.functional_variance(two, x))
    assert_close(osc.predict(one, x).probs, osc.predict(two, x).probs)


@pytest.mark.parametrize("net", ["mlp", "conv2d", "conv_transpose2d", "tied", "functional", "sequence", "frozen"])
def test_it_equals_the_posterior_in_parameter_space(net: str) -> None:
    model, x = ZOO[net].model(), ZOO[net].x(3)
    y = targets(CATEGORICAL, model, x)
    prior = osc.priors.Layerwise(1.3)
    dual, full = (fitted(name, model, x, y, prior=prior) for name in ("dual", "full"))
    assert len(full.mean) >= 9
    check_equal(dual, full, x)
    for one, two in ((dual, full), (osc.maximise_evidence(dual), osc.maximise_evidence(full))):
        assert_close(one.prior.precision, two.prior.precision, 1e-6)
    theta = full.mean + torch.randn(3, len(full.mean), dtype=torch.double)
    assert_close(dual.log_prob(theta), full.log_prob(theta))


def test_the_evidence_has_gradients_in_precisions_and_noise() -> None:
    model, x, _ = wide()
    scale = torch.tensor(0.5, dtype=torch.double, requires_grad=True)
    y = torch.randn(12, 4, dtype=torch.double)
    q = osc.laplace(model, osc.likelihoods.Gaussian(0.5), (x, y), structure="dual", prior=1.0, refine=False)
    for prior, count in ((osc.priors.Layerwise, 4), (osc.priors.Diagonal, 164)):
        precision = torch.linspace(0.5, 3.0, count, dtype=torch.double, requires_grad=True)

        def evidence(precision: Tensor, scale: Tensor, prior: type = prior) -> Tensor:
            likelihood = osc.likelihoods.Gaussian(scale)
            return osc.log_evidence(q.replace(prior=prior(precision), likelihood=likelihood))

        assert torch.autograd.gradcheck(evidence, (precision, scale), fast_mode=True)


@pytest.mark.parametrize("kind", ["fisher", "empirical_fisher"])
def test_other_curvatures_equal_those_of_full(kind: str) -> None:
    model, x, y = wide()

    def found(structure: str) -> Tensor:
        chosen = osc.curvature.Fisher(2, torch.Generator().manual_seed(3)) if kind == "fisher" else kind
        return fitted(structure, model, x, y, curvature=chosen).structure.dense()

    assert_close(found("dual"), found("full"))


def test_columns_and_data_in_chunks_are_the_same_rows() -> None:
    """A budget of memory for one datum and two columns at a time."""
    model, x, y = wide()
    whole = fitted("dual", model, x, y)
    batches = [(x[:1], y[:1]), (x[1:7], y[1:7]), (x[7:], y[7:])]
    parts = osc.laplace(model, CATEGORICAL, batches, structure="dual", prior=0.7, memory=2_000, refine=False)
    for name, tensor in whole.structure.tensors().items():
        assert_close(parts.structure.tensors()[name], tensor)


class Uneven(nn.Module):
    """Sequences of any length; one layer is used for the long ones alone, in either position of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(40, 6)
        self.token = nn.Linear(6, 24)
        self.long = nn.Linear(24, 24)
        self.head = nn.Linear(24, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        h = torch.tanh(self.token(self.embed(tokens))).sum(1)
        return self.head(torch.tanh(self.long(h)) if tokens.shape[1] > 2 else h)


@pytest.mark.parametrize("order", [(3, 2, 4), (5, 9, 1)])
def test_batches_of_different_lengths(order: tuple[int, ...]) -> None:
    """Data with fewer positions, or that do not use a layer, beside others; factors and rows of one layer."""
    torch.manual_seed(0)
    model = Uneven().double()
    batches = [(torch.randint(40, (2, length)), torch.arange(2)) for length in order]
    dual, full = (
        osc.laplace(model, CATEGORICAL, batches, structure=name, prior=0.7, refine=False) for name in ("dual", "full")
    )
    check_equal(dual, full, torch.randint(40, (2, 3)))
    check_equal(dual, full, torch.randint(40, (2, 12)))


class Watch(TorchDispatchMode):
    """Notes the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, Tensor) and 0 not in leaf.stride():
                self.largest = max(self.largest, leaf.numel())
        return result


def test_no_array_of_rows_and_parameters_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fit, evidence, tuning, variances, predictions and samples of a wide perceptron."""
    monkeypatch.setattr("osculate.structures.blocks.rows.ENTRIES", 2**12)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(60, 200), nn.Tanh(), nn.Linear(200, 200), nn.Tanh(), nn.Linear(200, 3))
    x, y = torch.randn(15, 60), torch.randint(3, (15,))
    rows_times_parameters = 3 * 15 * sum(p.numel() for p in model.parameters())
    with Watch() as watch:
        q = osc.laplace(model, CATEGORICAL, (x, y), structure="dual", refine=False)
        osc.log_evidence(q)
        osc.predict(q, x)
        osc.functional_variance(q, x)
        osc.posteriors.linearised.joint_covariance(q, x)
        q.variance()
        q.sample(3)
    assert watch.largest < rows_times_parameters / 5
    assert sum(tensor.numel() for tensor in q.structure.tensors().values()) < rows_times_parameters / 50


def test_two_data_sets_add_as_their_rows() -> None:
    model, x, y = wide()
    whole = fitted("dual", model, x, y)
    one, two = (fitted("dual", model, x[part], y[part]) for part in (slice(5), slice(5, None)))
    check_equal(one.replace(fit=one.fit + two.fit), whole, x)


@pytest.mark.parametrize("approximation", ["subset", "nystrom"])
def test_all_data_as_points_are_exact(approximation: str) -> None:
    model, x, y = wide()
    batches = [(x[:4], y[:4]), (x[4:5], y[4:5]), (x[5:], y[5:])]
    for points in (12, 50):
        structure = Dual(points, approximation)
        q = osc.laplace(model, CATEGORICAL, batches, structure=structure, prior=0.7, refine=False)
        check_equal(q, fitted("full", model, x, y), x)


def test_the_choice_of_points_does_not_depend_on_the_batches() -> None:
    model, x, y = wide(40)
    whole = fitted(Dual(7, "subset", seed=3), model, x, y)
    batches = [(x[start : start + 3], y[start : start + 3]) for start in range(0, 40, 3)]
    parts = osc.laplace(model, CATEGORICAL, batches, structure=Dual(7, "subset", seed=3), prior=0.7, refine=False)
    assert whole.structure.tensors()["0.0.g"].shape[1] == 7
    for name, tensor in whole.structure.tensors().items():
        assert_close(parts.structure.tensors()[name], tensor)
    other = fitted(Dual(7, "subset", seed=4), model, x, y)
    assert float((other.structure.dense() - whole.structure.dense()).abs().max()) > 1e-3


def test_a_subset_is_unbiased() -> None:
    """The mean over draws is the whole, within three standard errors for all but a few entries."""
    model, x, y = wide(20)
    G = reference.ggn(model, CATEGORICAL, x, y)
    draws = torch.stack([fitted(Dual(8, "subset", seed=s), model, x, y).structure.dense() for s in range(25)])
    order = fitted("dual", model, x, y).structure.dense()
    assert_close(order, G)
    error = draws.std(0) / 25**0.5
    deviations = ((draws.mean(0) - G).abs() / error.clamp(min=1e-12))[G.abs() > 1e-6]
    assert float(deviations.square().mean()) < 2
    assert float((draws[0] - G).norm() / G.norm()) > 0.05


def test_nystrom_projects_all_rows_onto_those_of_the_points() -> None:
    """G̃ = P G P for the projection P onto the rows of the same draw, and so the kernel of the data shrinks."""
    model, x, y = wide(20)
    points = fitted(Dual(4, "subset"), model, x, y).structure.dense()
    q = fitted(Dual(4, "nystrom"), model, x, y)
    values, vectors = torch.linalg.eigh(points)
    basis = vectors[:, values > 1e-9 * values.max()]
    G, projection = reference.ggn(model, CATEGORICAL, x, y), basis @ basis.T
    assert_close(q.structure.dense(), projection @ G @ projection)
    J = torch.einsum("vnc,ncp->vnp", CATEGORICAL.root(model(x).detach(), y), reference.jacobian(model, x)).flatten(0, 1)
    lost = torch.linalg.eigvalsh(J @ J.T - J @ projection @ J.T)
    assert float(lost.min()) > -1e-9
    assert float(lost.max()) > 0.1
    ratios = [
        float(fitted(structure, model, x, y).precision.log_det_ratio())
        for structure in (Dual(1), Dual(4), Dual(10), "full")
    ]
    assert ratios == sorted(ratios)
    assert ratios[0] < 0.9 * ratios[-1]


@pytest.mark.parametrize("approximation", ["subset", "nystrom"])
def test_the_algebra_of_approximations_is_that_of_their_dense_matrix(approximation: str) -> None:
    model, x, y = wide(30)
    q = fitted(Dual(5, approximation), model, x, y)
    for prior in (
        osc.priors.Layerwise(torch.tensor([0.3, 1.0, 2.0, 0.7], dtype=torch.double)),
        osc.priors.Diagonal(torch.linspace(0.1, 2, 164, dtype=torch.double)),
    ):
        q = q.replace(prior=prior, temperature=1.7)
        check_algebra(q)
        check_effective_parameters(q)
        check_functional_variance(q, reference.jacobian(model, x[:4]), x[:4])
        (part,) = q.precision.parts
        white = part.whiten(torch.eye(164, dtype=torch.double))
        assert_close(white @ white.T, part.solve(torch.eye(164, dtype=torch.double)))


def test_products_that_do_not_fit_are_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, y = wide()
    kept = osc.maximise_evidence(fitted("dual", model, x, y, prior=osc.priors.Layerwise()))
    monkeypatch.setattr("osculate.structures.blocks.dual.free", lambda device: 0)
    anew = osc.maximise_evidence(fitted("dual", model, x, y, prior=osc.priors.Layerwise()))
    assert_close(anew.prior.precision, kept.prior.precision)
    assert anew.structure.blocks[0]._kept_grams is None


@pytest.mark.parametrize("structure", [Dual(), Dual(5, "subset", 2), Dual(5, "nystrom", limit=400)])
def test_it_is_saved_and_loaded(structure: Dual, tmp_path: Path) -> None:
    model, x, y = wide()
    q = fitted(structure, model, x, y)
    osc.save(q, tmp_path / "q.safetensors")
    again = osc.load(tmp_path / "q.safetensors", model)
    assert again.structure.structure == structure
    check_equal(again, q, x)


def test_single_precision_agrees_with_double() -> None:
    model, x, y = wide()
    exact = fitted("dual", model, x, y, prior=1e-3)
    single = fitted("dual", model.float(), x.float(), y, prior=1e-3)
    assert_close(osc.log_evidence(single), osc.log_evidence(exact), 1e-4)
    found, expected = osc.functional_variance(single, x[:5].float()), osc.functional_variance(exact, x[:5])
    assert found.dtype == torch.float
    assert_close(found.double(), expected, 1e-3)
    assert_close(exact.to(dtype=torch.float).structure.dense().double(), exact.structure.dense(), 1e-4)


@pytest.mark.parametrize("net", ["gpt", "unet", "two_inputs", "named_inputs"])
def test_other_outputs_and_inputs(net: str) -> None:
    model, x = ZOO[net].model(), ZOO[net].x(2)
    likelihood = osc.likelihoods.Gaussian(0.5)
    with torch.no_grad():
        y = likelihood.distribution(osc.inputs.call(model, x)).sample()
    dual, full = (
        osc.laplace(model, likelihood, [(x, y)], structure=structure, prior=0.7, refine=False)
        for structure in ("dual", "full")
    )
    assert_close(osc.functional_variance(dual, x, diagonal=True), osc.functional_variance(full, x, diagonal=True))
    assert_close(osc.log_evidence(dual), osc.log_evidence(full))


def test_a_subnetwork() -> None:
    model, x, y = wide()
    subset = osc.Subnetwork(0.3)
    dual, full = (fitted(name, model, x, y, subset=subset) for name in ("dual", "full"))
    check_equal(dual, full, x)
    gamma = [osc.evidence.effective_parameters(q) for q in (dual, full)]
    assert_close(torch.tensor(list(gamma[0].values())), torch.tensor(list(gamma[1].values())))


def test_held_out_data_tune_it() -> None:
    model, x, y = wide(20)
    dual, full = (osc.tune(fitted(name, model, x[:8], y[:8]), (x[8:], y[8:])) for name in ("dual", "full"))
    assert_close(dual.prior.precision, full.prior.precision)
    assert dual.temperature == full.temperature


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"points": 0}, ("points=0", "positive")),
        ({"limit": -1}, ("limit=-1", "positive")),
        ({"approximation": "random"}, ("random", "nystrom", "subset")),
    ],
)
def test_impossible_settings_are_refused(options: dict, words: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=says(*words)):
        Dual(**options)


def test_too_many_rows_are_refused_with_the_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x, y = wide(40)
    with pytest.raises(
        ValueError, match=says("rows for the first 40 data", "limit is 100 rows", "points=", "low_rank", "kron")
    ):
        fitted(Dual(limit=100), model, x, y)
    monkeypatch.setattr("osculate.structures.dual.free", lambda device: 2**18)
    with pytest.raises(ValueError, match=says("rows for the first 40 data", "are free", "points=")):
        fitted("dual", model, x, y)
    assert fitted(Dual(points=8, approximation="subset"), model, x, y).num_data == 40


def test_more_rows_than_parameters_need_no_larger_matrix_than_full() -> None:
    model, x, y = wide(100)
    dual, full = (fitted(structure, model, x, y) for structure in (Dual(limit=164), "full"))
    check_equal(dual, full, x[:5])


@pytest.mark.parametrize("points", [None, 4])
def test_the_hessian_is_refused_with_the_ways_out(points: int | None) -> None:
    with pytest.raises(ValueError, match=says("Hessian", "matrix_free", "curvature='ggn'")):
        fitted(Dual(points), *wide(), curvature="hessian")


def test_projections_do_not_add_and_read_the_data_twice() -> None:
    model, x, y = wide()
    q = fitted(Dual(4), model, x, y)
    with pytest.raises(TypeError, match="fit both data sets together"):
        q.fit + q.fit
    with pytest.raises(ValueError, match="reads the data 2 times"):
        osc.laplace(model, CATEGORICAL, iter([(x, y)]), structure=Dual(4), prior=1.0, refine=False)
    assert (
        osc.laplace(model, CATEGORICAL, iter([(x, y)]), structure=Dual(4, "subset"), prior=1.0, refine=False).num_data
        == 12
    )
