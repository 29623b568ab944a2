"""The matrix-free structure against the dense one: solves to the tolerance, estimates within their standard error."""

import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.curvature import reference
from osculate.posteriors import Gaussian
from osculate.structures import MatrixFree
from tests.errors import says
from tests.laws import assert_close, check_algebra, check_functional_variance, dense_precision, in_turn, targets
from tests.zoo import VECTORS, ZOO

CATEGORICAL = osc.likelihoods.Categorical()
#: A preconditioner that leaves most of the work to the iterations.
ROUGH = MatrixFree(tolerance=1e-7, rank=10, probes=64)


def wide(n: int = 40) -> tuple[nn.Module, Tensor, Tensor]:
    """More parameters, and more directions in the data, than the preconditioner has vectors."""
    model = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 4)).double()
    x = 2 * torch.randn(n, 5, dtype=torch.double)
    return model, x, targets(CATEGORICAL, model, x)


def fitted(structure: str | MatrixFree = ROUGH, n: int = 40, **options: object) -> tuple[Gaussian, nn.Module, Tensor]:
    torch.manual_seed(0)
    model, x, y = wide(n)
    batches = [(x[:7], y[:7]), (x[7:], y[7:])]
    return (
        osc.laplace(model, CATEGORICAL, batches, structure=structure, **{"prior": 0.2, **options}, refine=False),
        model,
        x,
    )


def check_within_errors(q: Gaussian, inverse: Tensor) -> None:
    """Log determinant and variances against the dense matrix, each within what it says of itself."""
    error = q.precision.variance_error()
    deviations = (1 - q.precision.effective_parameters()) / q.prior.vector(q.network.space) - inverse.diagonal()
    assert float((deviations / error).square().mean()) < 2
    assert float((deviations / error).square().mean()) > 0.3
    assert abs(float(q.log_det() + inverse.logdet())) < 3 * float(q.precision.log_det_error())


@pytest.mark.parametrize("net", in_turn(VECTORS))
def test_where_the_sketch_is_exact_so_is_everything(net: str) -> None:
    model, x = ZOO[net].model(), ZOO[net].x(4)
    y = targets(CATEGORICAL, model, x)
    q = osc.laplace(
        model, CATEGORICAL, [(x[:1], y[:1]), (x[1:], y[1:])], structure="matrix_free", prior=0.7, refine=False
    )
    assert_close(q.structure.dense(), reference.ggn(model, CATEGORICAL, x, y))
    check_algebra(q)
    check_functional_variance(q, reference.jacobian(model, x), x)


@pytest.mark.slow
def test_solves_and_samples_are_as_exact_as_the_tolerance() -> None:
    q, model, x = fitted()
    dense = dense_precision(q)
    inverse, v = dense.inverse(), torch.randn(3, len(dense), dtype=torch.double)
    assert_close(q.precision.multiply(v), v @ dense)
    assert_close(q.precision.solve(v), v @ inverse, 1e-6)
    columns = q.precision.colour(torch.eye(len(dense), dtype=torch.double))
    assert_close(columns.T @ columns, inverse, 1e-6)
    J = reference.jacobian(model, x[:5])
    assert_close(osc.functional_variance(q, x[:5]), J @ inverse @ J.mT, 1e-10)  # the square of the tolerance
    joint = osc.posteriors.linearised.joint_covariance(q, x[:3])[1]
    assert_close(joint, J[:3].flatten(0, 1) @ inverse @ J[:3].flatten(0, 1).T, 1e-6)


def test_a_loose_tolerance_is_a_loose_answer() -> None:
    """The tolerance is in use: a hundredth of it takes more products, and gives a better solve."""
    errors = []
    for tolerance in (1e-1, 1e-3, 1e-5):
        q, *_ = fitted(MatrixFree(tolerance=tolerance, rank=2))
        v = torch.ones(1, len(q.mean), dtype=torch.double)
        exact = v @ dense_precision(q).inverse()
        errors.append(float((q.precision.solve(v) - exact).norm() / exact.norm()))
    assert errors[0] > 10 * errors[1] > 100 * errors[2] > 0


def test_estimates_are_within_their_standard_errors() -> None:
    q, *_ = fitted()
    inverse = dense_precision(q).inverse()
    check_within_errors(q, inverse)
    assert 0 < float(q.precision.log_det_error()) < 0.2 * abs(float(q.log_det()))
    below, above = torch.linalg.eigvalsh(inverse)[[0, -1]]
    assert float(below) <= float(q.variance().min())
    assert float(q.variance().max()) <= float(above) * (1 + 1e-9)
    assert_close(q.variance(), inverse.diagonal(), 0.15)


def test_a_better_preconditioner_has_a_smaller_error() -> None:
    errors = [float(fitted(MatrixFree(rank=rank))[0].precision.log_det_error()) for rank in (1, 60, 164)]
    assert errors[0] > 2 * errors[1] > 1e3 * errors[2]


@pytest.mark.slow
def test_the_same_posterior_gives_the_same_answers() -> None:
    one, two = (fitted(MatrixFree(rank=8))[0] for _ in range(2))
    assert torch.equal(osc.log_evidence(one), osc.log_evidence(two))
    assert torch.equal(one.variance(), two.variance())
    other = fitted(MatrixFree(rank=8, seed=1))[0]
    assert not torch.equal(osc.log_evidence(other), osc.log_evidence(one))


def test_another_prior_scale_and_temperature() -> None:
    q, model, x = fitted()
    prior = osc.priors.Diagonal(torch.linspace(0.1, 2, len(q.mean), dtype=torch.double))
    q = q.replace(prior=prior, temperature=1.7)
    inverse = dense_precision(q).inverse()
    check_within_errors(q, inverse)
    J = reference.jacobian(model, x[:3])
    assert_close(osc.functional_variance(q, x[:3]), J @ inverse @ J.mT, 1e-10)


@pytest.mark.parametrize("kind", ["fisher", "empirical_fisher"])
def test_other_curvatures_are_the_same_in_every_product(kind: str) -> None:
    """Labels are sampled once, when the data are seen."""
    q, *_ = fitted(curvature=kind)
    v = torch.randn(2, len(q.mean), dtype=torch.double)
    assert torch.equal(q.precision.multiply(v), q.precision.multiply(v))
    assert_close(q.precision.solve(q.precision.multiply(v)), v, 1e-5)
    rank = int((torch.linalg.eigvalsh(q.structure.dense()) > 1e-8).sum())
    assert rank == 40  # one column for each datum


@pytest.mark.slow
def test_the_hessian_gives_directions_of_negative_curvature_to_the_prior() -> None:
    model = nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 3)).double()
    x = 2 * torch.randn(20, 3, dtype=torch.double)
    y = torch.randint(3, (20,))
    q = osc.laplace(model, CATEGORICAL, (x, y), structure=ROUGH, curvature="hessian", prior=0.5, refine=False)
    H = q.structure.dense()
    assert_close(H, reference.hessian(model, CATEGORICAL, x, y))
    values, vectors = torch.linalg.eigh(H)
    assert float(values.min()) < -0.5  # H + δ is indefinite
    clamped = vectors * values.clamp(min=0) @ vectors.T + 0.5 * torch.eye(len(H), dtype=H.dtype)
    v = torch.randn(2, len(H), dtype=torch.double)
    inverse = clamped.inverse()
    assert_close(q.precision.multiply(v), v @ clamped, 1e-5)
    assert_close(q.precision.solve(v), v @ inverse, 1e-5)
    columns = q.precision.colour(torch.eye(len(H), dtype=torch.double))
    assert_close(columns.T @ columns, inverse, 1e-5)
    with pytest.warns(UserWarning, match="directions of negative curvature") as caught:
        check_within_errors(q, inverse)
    count = int(str(caught[0].message).split("about ")[1].split(" ")[0])
    negative = int((values < -1e-6).sum())
    assert abs(count - negative) <= 0.25 * negative


def test_the_evidence_has_gradients_in_precisions_and_noise() -> None:
    model, x, _ = wide(30)
    y = torch.randn(30, 4, dtype=torch.double)
    evidence = {}
    for structure in (MatrixFree(rank=164), "full"):
        q = osc.laplace(model, osc.likelihoods.Gaussian(0.5), (x, y), structure=structure, prior=1.0, refine=False)
        scale = torch.tensor(0.4, dtype=torch.double, requires_grad=True)
        precision = torch.tensor([0.5, 1.0, 2.0, 3.0], dtype=torch.double, requires_grad=True)
        there = q.replace(prior=osc.priors.Layerwise(precision), likelihood=osc.likelihoods.Gaussian(scale))
        evidence[str(structure)] = torch.autograd.grad(osc.log_evidence(there), (precision, scale))
    for found, expected in zip(*evidence.values(), strict=True):
        assert_close(found, expected, 1e-6)


def test_evidence_tunes_it() -> None:
    rough, full = (fitted(chosen, prior="evidence")[0] for chosen in (MatrixFree(rank=30), "full"))
    assert_close(rough.prior.precision, full.prior.precision, 0.2)


def test_any_iterable_will_do_and_the_data_are_not_copied() -> None:
    model, x, y = wide()
    once = osc.laplace(
        model, CATEGORICAL, iter([(x[:7], y[:7]), (x[7:], y[7:])]), structure=ROUGH, prior=0.2, refine=False
    )
    pair = osc.laplace(model, CATEGORICAL, (x, y), structure=ROUGH, prior=0.2, refine=False)
    v = torch.randn(2, len(once.mean), dtype=torch.double)
    assert_close(once.precision.multiply(v), pair.precision.multiply(v))
    (batch,) = pair.structure.blocks[0].batches
    assert batch.observation.x.data_ptr() == x.data_ptr()


def test_fits_add_over_data_sets() -> None:
    whole, model, x = fitted()
    y = torch.cat([batch.observation.y for batch in whole.structure.blocks[0].batches])
    one, two = (
        osc.laplace(model, CATEGORICAL, (x[part], y[part]), structure=ROUGH, prior=0.2, refine=False)
        for part in (slice(20), slice(20, 40))
    )
    both = one.replace(fit=one.fit + two.fit)
    assert_close(both.structure.dense(), whole.structure.dense())
    assert_close(osc.log_evidence(both), osc.log_evidence(whole))


def test_it_moves_to_another_type_with_its_data() -> None:
    q, _, x = fitted(MatrixFree(rank=8))
    single = q.to(dtype=torch.float)
    assert single.structure.dense().dtype == torch.float
    assert_close(single.structure.dense().double(), q.structure.dense(), 1e-4)
    assert_close(osc.functional_variance(single, x[:3].float()).double(), osc.functional_variance(q, x[:3]), 1e-3)
    assert q.structure.dense().dtype == torch.double


@pytest.mark.slow
def test_single_precision_agrees_with_double_without_a_warning() -> None:
    q, model, x = fitted()
    y = torch.cat([batch.observation.y for batch in q.structure.blocks[0].batches])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        structure = MatrixFree(tolerance=1e-3, rank=10, probes=64)
        single = osc.laplace(model.float(), CATEGORICAL, (x.float(), y), structure=structure, prior=0.2, refine=False)
        assert_close(osc.log_evidence(single), osc.log_evidence(q), 1e-3)
        assert_close(osc.functional_variance(single, x[:3].float()).double(), osc.functional_variance(q, x[:3]), 1e-3)
        assert single.sample(3).shape == (3, 164)


OPTIMISE = replace(ROUGH, samples_by="optimise")


def white(theta: Tensor, precision: Tensor) -> Tensor:
    """The covariance of draws with mean zero, relative to the one that they should have: the identity."""
    root = torch.linalg.cholesky(precision)
    return root.T @ (theta.T @ theta / len(theta)) @ root


@pytest.mark.parametrize("kind", ["ggn", "fisher"])
@pytest.mark.parametrize("structure", [ROUGH, OPTIMISE], ids=lambda structure: structure.samples_by)
def test_samples_have_the_covariance_of_the_posterior(structure: MatrixFree, kind: str) -> None:
    """Both ways, with a rough preconditioner, a diagonal prior and a temperature."""
    model = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 3)).double()
    x = 2 * torch.randn(9, 2, dtype=torch.double)
    few = replace(structure, rank=2)
    batches = [(x[:4], torch.arange(4) % 3), (x[4:], torch.arange(5) % 3)]
    q = osc.laplace(model, CATEGORICAL, batches, structure=few, curvature=kind, prior=1.0, refine=False)
    q = q.replace(prior=osc.priors.Diagonal(torch.linspace(0.3, 2, 15, dtype=torch.double)), temperature=0.6)
    theta, size = q.sample(2000, torch.Generator().manual_seed(0)) - q.mean, 2000
    found, expected = white(theta, dense_precision(q)), torch.eye(15, dtype=torch.double)
    assert float((found - expected).abs().max()) < 5 * (2 / size) ** 0.5  # entries have errors of √(1/S), √(2/S)
    assert float((found - expected).square().sum() * size / (15 * 16)) == pytest.approx(1, abs=0.5)
    assert float(theta.mean(0).square().sum()) < 3 * float(q.precision.solve(expected).trace()) / size


def test_optimised_samples_solve_the_problem_with_random_data() -> None:
    q, *_ = fitted(replace(OPTIMISE, tolerance=1e-10), n=10)
    draws, again = (q.sample(3, torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(draws, again)
    generator = torch.Generator().manual_seed(5)
    (block,) = q.structure.blocks
    right, data = torch.zeros_like(draws), block.noise(3, generator)
    white = torch.randn(data.shape, generator=generator, dtype=data.dtype)
    right[:, block.positions] = data + 0.2**0.5 * white
    assert_close(draws - q.mean, right @ dense_precision(q).inverse())
    rough = fitted(replace(OPTIMISE, tolerance=1e-2), n=10)[0].sample(3, torch.Generator().manual_seed(5))
    assert 1e-6 < float((rough - draws).norm() / (draws - q.mean).norm()) < 0.05


@pytest.mark.parametrize("net", ["gpt", pytest.param("unet", marks=pytest.mark.slow)])
def test_random_data_at_positions_have_the_covariance_of_the_curvature(net: str) -> None:
    model, x = ZOO[net].model(), ZOO[net].x(2)
    likelihood = osc.likelihoods.Categorical(class_axis=1 if net == "unet" else -1)
    q = osc.laplace(model, likelihood, (x, targets(likelihood, model, x)), structure=OPTIMISE, prior=1.0, refine=False)
    (block,) = q.structure.blocks
    noise = block.noise(1500, torch.Generator().manual_seed(0))
    G = block.dense()
    expected = ((G.square().sum() + G.trace() ** 2) / 1500) ** 0.5  # root mean square of the deviation
    assert 0.1 * expected < (noise.T @ noise / 1500 - G).norm() < 3 * expected


SDD = MatrixFree(solver="sdd")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ggn", "empirical_fisher"])
def test_solvers_agree_on_predictive_variances(kind: str) -> None:
    """Cholesky, conjugate gradients to 1e-4 and stochastic dual descent to 2e-2, at their default tolerances."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2)).double()
    x = torch.randn(16, 3, dtype=torch.double)
    y, variances = targets(CATEGORICAL, model, x), {}
    batches = [(x[:7], y[:7]), (x[7:], y[7:])]
    for name, structure in {"cholesky": "full", "cg": MatrixFree(rank=5), "sdd": SDD}.items():
        q = osc.laplace(model, CATEGORICAL, batches, structure=structure, curvature=kind, prior=3.0, refine=False)
        variances[name] = osc.functional_variance(q, x[:2], diagonal=True)
    for name, tolerance in {"cg": 1e-4, "sdd": 2e-2}.items():
        error = (variances[name] / variances["cholesky"] - 1).abs()
        assert 0 < float(error.max()) < tolerance, name


@pytest.mark.slow
def test_stochastic_solves_are_as_exact_as_the_tolerance() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2)).double()
    x = torch.randn(9, 2, dtype=torch.double)
    likelihood, found = osc.likelihoods.Gaussian(1.0), []
    for tolerance in (1e-1, 1e-3):
        q = osc.laplace(model, likelihood, (x, x), structure=replace(SDD, tolerance=tolerance), prior=1.0, refine=False)
        prior = osc.priors.Diagonal(torch.linspace(3, 5, len(q.mean), dtype=torch.double))
        q = q.replace(prior=prior, likelihood=osc.likelihoods.Gaussian(0.8), temperature=1.5)
        dense = dense_precision(q)
        v = torch.ones(1, len(q.mean), dtype=torch.double)
        exact = v @ dense.inverse()
        found.append(float((q.precision.solve(v) - exact).norm() / exact.norm()))
    assert 1e-8 < found[1] < 1e-2
    assert found[1] < 0.2 * found[0] < 0.2


def test_the_blocks_of_a_descent_hold_every_datum_once() -> None:
    q, _, x = fitted(SDD)
    (block,) = q.structure.blocks
    parts = [batch.observation.x[part] for batch, part in block.parts]
    assert_close(torch.cat(parts).sort(0).values, x.sort(0).values)
    assert max(map(len, parts)) <= 3  # a sixteenth of forty


def test_a_root_is_needed_for_samples_from_random_data_and_for_the_dual_problem() -> None:
    for structure in (OPTIMISE, SDD):
        with pytest.raises(ValueError, match=says("'optimise'", "'sdd'", "indefinite", "'lanczos'")):
            fitted(structure, curvature="hessian")
    with pytest.raises(ValueError, match=says("solver", "'sgd'", "'cg'", "'sdd'")):
        MatrixFree(solver="sgd")
    with pytest.raises(ValueError, match=says("way to sample", "'optimize'", "did you mean 'optimise'")):
        MatrixFree(samples_by="optimize")


def test_too_few_products_are_a_warning_with_numbers() -> None:
    q, *_ = fitted(MatrixFree(max_products=3, rank=1))
    v = torch.randn(1, len(q.mean), dtype=torch.double)
    with pytest.warns(UserWarning, match=says("relative residual", "1.2e-04")):
        q.precision.solve(v)
    with pytest.warns(UserWarning, match=says("last of 3 steps")):
        q.sample(1)


@pytest.mark.parametrize("net", ["gpt", "unet", "two_inputs", "named_inputs"])
def test_other_outputs_and_inputs(net: str) -> None:
    model, x = ZOO[net].model(), ZOO[net].x(3)
    likelihood = osc.likelihoods.Gaussian(0.5)
    y = targets(likelihood, model, x)
    free, full = (
        osc.laplace(model, likelihood, [(x, y)], structure=structure, prior=0.7, refine=False)
        for structure in (ROUGH, "full")
    )
    assert_close(osc.functional_variance(free, x, diagonal=True), osc.functional_variance(full, x, diagonal=True), 1e-7)


def test_it_cannot_be_saved_and_says_what_can(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=says("matrix_free", "data", "low_rank", "fit again")):
        osc.save(fitted()[0], tmp_path / "q.safetensors")
    assert not list(tmp_path.iterdir())


def test_without_data_there_is_no_product() -> None:
    q, *_ = fitted()
    empty = q.structure.structure.zero(q.structure.specs, q.structure.space, torch.double, torch.device("cpu"))
    with pytest.raises(ValueError, match=says("no data", "osc.laplace")):
        empty.dense()
    with pytest.raises(ValueError, match=says("no data", "osc.laplace")):
        empty.blocks[0].noise(1, None)


@pytest.mark.parametrize("options", [{"probes": 0}, {"tolerance": 0.0}, {"rank": -1}])
def test_impossible_settings_are_refused(options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=says(*options, *map(str, options.values()))):
        MatrixFree(**options)
