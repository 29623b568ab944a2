"""An earlier posterior as a prior, and priors with a mean: exact sequences on linear models, operators, files."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.parameters import ParameterSpace
from osculate.posteriors.earlier import Earlier
from tests.laws import assert_close, dense_precision

DOUBLE = torch.double
EXACT = ("full", "block", "dual", "matrix_free", "low_rank")
ADDING = (*EXACT, "diag", "approx_diag", "kron")


def data(size: int = 60) -> tuple[nn.Module, Tensor, Tensor]:
    torch.manual_seed(0)
    model, x = nn.Linear(3, 2).double(), torch.randn(size, 3, dtype=DOUBLE)
    return model, x, x @ torch.randn(3, 2, dtype=DOUBLE) + 0.3 * torch.randn(size, 2, dtype=DOUBLE)


def fit(model: nn.Module, structure: str, part: tuple[Tensor, Tensor], **options: object) -> osc.posteriors.Gaussian:
    chosen = osc.structures.REGISTRY[structure](**({"tolerance": 1e-12} if structure == "matrix_free" else {}))
    q = osc.laplace(model, osc.likelihoods.Gaussian(0.3), part, structure=chosen, refine=False, **options)
    return osc.refine(q, trust=None, tolerance=1e-12)


@pytest.mark.parametrize("structure", ADDING)
def test_parts_one_after_another_are_all_data(structure: str) -> None:
    model, x, y = data()
    q = fit(model, structure, (x[:20], y[:20]), prior=2.0)
    for part in (slice(20, 40), slice(40, 60)):
        q = fit(model, structure, (x[part], y[part]), prior=q)
    joint, test = fit(model, structure, (x, y), prior=2.0), torch.randn(5, 3, dtype=DOUBLE)
    assert_close(osc.functional_variance(q, test), osc.functional_variance(joint, test), 1e-8)
    if structure in EXACT or structure == "kron":
        assert_close(q.mean, joint.mean, 1e-7)
        assert_close(osc.predict(q, test).mean, osc.predict(joint, test).mean, 1e-7)
    for block in q.precision.curvature.blocks:
        assert getattr(block, "relative_error", 0.0) < 1e-6


@pytest.mark.parametrize("words", [False, True])
def test_the_nearest_kronecker_product(words: bool) -> None:
    torch.manual_seed(0)
    inlet = (
        nn.Sequential(nn.Embedding(4, 2), nn.Flatten()) if words else nn.Linear(3, 6)
    )  # a table's factor is diagonal
    model = nn.Sequential(inlet, nn.Tanh(), nn.Linear(6, 2)).double()
    first, second = (
        osc.laplace(
            model,
            osc.likelihoods.Categorical(),
            (x, torch.randint(2, (30,))),
            structure="kron",
            prior=1.0,
            refine=False,
        ).structure
        for x in (torch.randint(4, (30, 3)) if words else s * torch.randn(30, 3, dtype=DOUBLE) for s in (0.3, 3.0))
    )
    combined = first.combined(second)
    for one, other, both in zip(first.blocks, second.blocks, combined.blocks, strict=True):
        expected = one.dense() + other.dense()
        error = float((both.dense() - expected).norm() / expected.norm())
        assert error == pytest.approx(both.relative_error, rel=1e-6, abs=1e-7)
        assert error < 0.5
        for nearby in (one.added(other), one.combined(other.scaled(1.01)), one.combined(other.scaled(0.99))):
            assert error <= float((nearby.dense() - expected).norm() / expected.norm()) + 1e-7
        assert float(torch.linalg.eigvalsh(both.dense()).min()) > -1e-10


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("unit", [1e-15, 1e-30])
def test_the_nearest_kronecker_product_does_not_depend_on_units(dtype: torch.dtype, unit: float) -> None:
    torch.manual_seed(0)
    model, x = nn.Linear(3, 2).to(dtype), torch.randn(30, 3, dtype=dtype)
    first, second = (
        osc.laplace(model, osc.likelihoods.Categorical(), (part, y), prior=1.0, refine=False).structure.blocks[0]
        for part, y in ((x, torch.zeros(30).long()), (x[:7] + 1, torch.ones(7).long()))
    )
    other = replace(second, inputs=second.inputs * unit, outputs=second.outputs / unit)
    assert_close(first.combined(other).dense(), first.combined(second).dense(), 100 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("structure", ["full", "kron", "diag", "dual", "matrix_free"])
def test_evidence_adds_over_parts(structure: str) -> None:
    model, x, y = data(40)
    q1 = fit(model, structure, (x[:20], y[:20]), prior=2.0)
    theta = torch.randn(len(q1.mean), dtype=DOUBLE)
    prior = osc.posteriors.earlier.Earlier.of(q1).bind(q1.network.space)
    named = q1.network.space.unflatten(theta)
    assert_close(prior.log_prob(named), q1.log_prob(theta), 1e-6)
    network = osc.laplace(
        model, osc.likelihoods.Gaussian(0.3), (x[20:], y[20:]), structure=structure, prior=q1, refine=False
    )
    apart, precision = network.mean - q1.mean, dense_precision(q1)
    expected = (
        osc.likelihoods.Gaussian(0.3).log_prob(model(x[20:]), y[20:]).sum()
        - 0.5 * apart @ precision @ apart
        + 0.5 * torch.linalg.slogdet(precision)[1]
        - 0.5
        * torch.linalg.slogdet(
            network.precision.curvature.dense() + network.prior.vector(network.network.space).diag()
        )[1]
    )
    if structure != "matrix_free":  # its determinant is an estimate
        assert_close(osc.log_evidence(network), expected.detach(), 1e-6)


def test_operators_of_priors() -> None:
    model, x, y = data()
    q = fit(model, "full", (x, y), prior=2.0)
    space = q.network.space
    v = torch.randn(4, space.size, dtype=DOUBLE)
    for prior in (osc.priors.Layerwise({"weight": 2.0, "bias": 3.0}).bind(space), Earlier.of(q)):
        assert_close(prior.multiply(prior.solve(v, space), space), v, 1e-9)
        eye = torch.eye(space.size, dtype=DOUBLE)
        matrix = prior.multiply(eye, space)
        coloured = prior.colour(eye, space)
        assert_close(coloured.T @ coloured @ matrix, eye, 1e-8)
        assert_close(prior.log_det(space), torch.linalg.slogdet(matrix)[1], 1e-9)
    half = Earlier.of(q).with_precision(torch.tensor(0.5))
    assert_close(half.multiply(v, space), 0.5 * Earlier.of(q).multiply(v, space), 1e-9)
    assert_close(
        half.log_det(space), Earlier.of(q).log_det(space) + space.size * torch.tensor(0.5).log().double(), 1e-6
    )


# ---- means -----------------------------------------------------------------------------------------------------------


def test_a_mean_moves_everything() -> None:
    model, x, y = data()
    pretrained = {name: torch.randn_like(p) for name, p in model.state_dict().items()}
    space = ParameterSpace.of(dict(model.named_parameters()))
    flat = space.flatten(pretrained)
    for mean in (pretrained, flat):
        prior = osc.priors.Isotropic(5.0).around(mean)
        q = fit(model, "full", (x, y), prior=prior)
        j = torch.cat([osc.curvature.reference.jacobian(q.model.requires_grad_(), x).flatten(0, 1)]) / 0.3
        q.model.requires_grad_(False)
        precision = j.T @ j + 5.0 * torch.eye(space.size, dtype=DOUBLE)
        expected = torch.linalg.solve(precision, j.T @ (y.reshape(-1) / 0.3) + 5.0 * flat)
        assert_close(q.mean, expected, 1e-7)
        named = dict(model.named_parameters())
        normal = torch.distributions.Normal(flat, 5.0**-0.5)
        assert_close(prior.log_prob(named), normal.log_prob(space.flatten(named)).sum(), 1e-9)
    zero = osc.laplace(model, osc.likelihoods.Gaussian(0.3), (x, y), prior=osc.priors.Isotropic(5.0), refine=False)
    around = osc.laplace(
        model, osc.likelihoods.Gaussian(0.3), (x, y), prior=osc.priors.Isotropic(5.0).around(0.0), refine=False
    )
    assert_close(osc.log_evidence(around), osc.log_evidence(zero), 1e-9)


def test_the_evidence_shrinks_to_the_mean() -> None:
    model, x, y = data()
    near = {name: p.detach() + 1e-3 * torch.randn_like(p) for name, p in model.named_parameters()}
    likelihood = osc.likelihoods.Gaussian(0.3)
    to_zero = osc.laplace(model, likelihood, (x, y), prior=osc.priors.Layerwise(), refine=False)
    to_near = to_zero.replace(prior=osc.priors.Layerwise().around(near))
    found = [osc.maximise_evidence(q) for q in (to_zero, to_near)]
    assert float(osc.log_evidence(found[1])) > float(osc.log_evidence(found[0]))
    assert bool((found[1].prior.precision > found[0].prior.precision).all())


@pytest.mark.release
def test_training_shrinks_to_the_mean_and_to_earlier_data() -> None:
    model, x, y = data()
    likelihood = osc.likelihoods.Gaussian(0.3)
    mean = {name: torch.ones_like(p) for name, p in model.named_parameters()}
    strong = osc.methods.MAP(model, likelihood, osc.priors.Isotropic(1e6).around(mean))
    done = osc.train(strong, (x, y), epochs=300, lr=0.05, progress=False, device="cpu")
    assert all(bool(((p - 1).abs() < 0.05).all()) for p in done.posterior.model.parameters())
    q = fit(model, "full", (x[:40], y[:40]), prior=2.0)
    after = osc.train(osc.methods.MAP(nn.Linear(3, 2).double(), likelihood, q), (x[40:], y[40:]), epochs=600, lr=0.05,
                      progress=False, device="cpu")  # fmt: skip
    joint = fit(model, "full", (x, y), prior=2.0)
    found = joint.network.space.flatten(dict(after.posterior.model.named_parameters())).detach()
    assert_close(found, joint.mean, 1e-2)


@pytest.mark.parametrize(
    "name",
    [
        "map",
        pytest.param("mean_field_vi", marks=pytest.mark.slow),
        *(
            pytest.param(name, marks=pytest.mark.release)
            for name in ("swag", "ivon", "vogn", "variational_laplace", "online_laplace")
        ),
    ],
)
def test_methods_shrink_to_the_mean_of_an_earlier_posterior(name: str) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(40, 3), torch.randn(40, 1)
    likelihood = osc.likelihoods.Gaussian(1.0)
    earlier = osc.laplace(nn.Linear(3, 1), likelihood, (x, y), structure="diag", prior=400.0, refine=False)
    earlier = earlier.replace(offset=3 - earlier.network.mean)  # a mean of threes
    method = osc.methods.REGISTRY[name](nn.Linear(3, 1), likelihood, prior=earlier)
    lr = {"ivon": 0.02, "vogn": 0.02}.get(name, 0.05)
    done = osc.train(method, (x, y), epochs=150, batch_size=10, lr=lr, progress=False, device="cpu")
    assert all(bool(((p - 3).abs() < 0.6).all()) for p in done.posterior.model.parameters())


def test_methods_without_a_meaning_for_it_refuse() -> None:
    model, x, y = data()
    q = fit(model, "full", (x, y), prior=1.0)
    likelihood = osc.likelihoods.Gaussian(0.3)
    for kind in (osc.methods.LevenbergMarquardt, osc.methods.MarginalLikelihood):
        with pytest.raises(ValueError, match="chooses the precisions of independent parameters"):
            kind(nn.Linear(3, 2).double(), likelihood, prior=q)
    with pytest.raises(ValueError, match="has independent parameters"):
        osc.methods.IVON(nn.Linear(3, 2).double(), likelihood, prior=q)


# ---- files and refusals ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", ["full", "kron", "diag"])
def test_files_keep_means_and_earlier_posteriors(structure: str, tmp_path: Path) -> None:
    model, x, y = data()
    first = fit(model, structure, (x[:30], y[:30]), prior=2.0)
    mean = osc.priors.Layerwise().around({name: torch.ones_like(p) for name, p in model.named_parameters()})
    for q in (fit(model, structure, (x[30:], y[30:]), prior=first), fit(model, structure, (x, y), prior=mean)):
        osc.save(q, tmp_path / "q.safetensors")
        again = osc.load(tmp_path / "q.safetensors", model)
        assert_close(osc.functional_variance(again, x[:4]), osc.functional_variance(q, x[:4]), 1e-6)
        assert_close(again.prior.mean, q.prior.mean, 1e-6)
        named = dict(model.named_parameters())
        assert_close(again.prior.log_prob(named), q.prior.log_prob(named), 1e-6)
        single = q.to(dtype=torch.float)
        assert_close(osc.functional_variance(single, x[:4].float()), osc.functional_variance(q, x[:4]).float(), 1e-3)


def test_what_does_not_fit_is_refused() -> None:
    model, x, y = data()
    likelihood = osc.likelihoods.Gaussian(0.3)
    q = fit(model, "kron", (x, y), prior=1.0)
    with pytest.raises(ValueError, match="structure 'kron', and this fit 'full'"):
        osc.laplace(model, likelihood, (x, y), structure="full", prior=q, refine=False)
    with pytest.raises(ValueError, match="'weight' has shape"):
        osc.laplace(nn.Linear(3, 1).double(), likelihood, (x, y[:, :1]), prior=q, refine=False)
    later = osc.laplace(model, likelihood, (x, y), prior=q, refine=False)
    with pytest.raises(ValueError, match="has no precisions that the evidence could choose"):
        osc.maximise_evidence(later)
    with pytest.raises(ValueError, match="tuning would change it"):
        osc.tune(later, (x, y))
    ekfac = osc.laplace(model, likelihood, (x, y), structure="ekfac", prior=1.0, refine=False)
    with pytest.raises(TypeError, match="does not add"):
        osc.laplace(model, likelihood, (x, y), structure="ekfac", prior=ekfac, refine=False)
    for mean, words in (
        ({"weight": torch.zeros(2, 3)}, "has no 'bias'"),
        (torch.zeros(3), "shape"),
        (float("nan"), "NaN"),
    ):
        with pytest.raises(ValueError, match=words):
            osc.laplace(model, likelihood, (x, y), prior=osc.priors.Isotropic(1.0).around(mean), refine=False)


@pytest.mark.parametrize("structure", ["full", "kron", "low_rank", "dual", "diag"])
def test_in_single_precision_too(structure: str) -> None:
    torch.manual_seed(0)
    x = torch.rand(40, 1) * 4 - 2
    model, likelihood = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1)), osc.likelihoods.Gaussian(0.1)
    first = osc.laplace(model, likelihood, (x[:20], x[:20].sin()), structure=structure, prior=1.0, refine=False)
    later = osc.laplace(model, likelihood, (x[20:], x[20:].sin()), structure=structure, prior=first)  # refined
    assert bool(osc.log_evidence(later.replace(offset=None)).isfinite())
    assert bool(osc.predict(later, x).variance.isfinite().all())
    assert bool(later.sample(2).isfinite().all())
