"""The prior over filters: its blocks, its operators against the matrix, and posteriors with it."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal

import osculate as osc
from osculate.networks import SkipUNet
from osculate.parameters import ParameterSpace
from osculate.priors import Filters, filters_of
from tests.errors import says
from tests.inverse.models import dense_prior

NAMES = ["0.weight", "0.bias", "2.weight", "5.weight"]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1),
        nn.Tanh(),
        nn.Conv2d(3, 2, (1, 3), padding=(0, 1)),
        nn.Tanh(),
        nn.Flatten(),
        nn.Linear(2 * 20, 2),
    ).double()


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    shapes = (6, 1, 4, 5), (6, 2)
    x, y = (torch.randn(shape, generator=generator, dtype=torch.double) for shape in shapes)
    return x, y


def filters() -> Filters:
    values = torch.tensor([2.0, 5.0, 3.0, 4.0]), torch.tensor([0.5, 1.0, 1.5, 1.0])
    return Filters(*(each.double() for each in values))


def posterior(structure: str = "dual", prior: osc.priors.Prior | None = None) -> osc.posteriors.Gaussian:
    return osc.laplace(
        network(),
        osc.likelihoods.Gaussian(0.3),
        data(),
        structure=structure,
        prior=prior or filters(),
        subset=NAMES,
        refine=False,
    )


def test_blocks_are_the_modules_that_hold_convolutions() -> None:
    model = SkipUNet(width=4)
    own = dict(model.named_parameters())
    prior = Filters().bind(ParameterSpace.of({name: own[name] for name in filters_of(model)}))
    names = ["inlet", "down.0", "down.1", "skip.0", "skip.1", "up.0", "up.1", "outlet"]
    assert [block.name for block in prior.blocks] == names
    assert [len(block.distances) for block in prior.blocks] == [6, 6, 6, 1, 1, 6, 6, 1]


def test_filters_of_one_module_and_size_share_values() -> None:
    convolutions = [nn.Conv2d(1, 1, size, padding=size // 2, bias=False) for size in (3, 1, 3)]

    def blocks(model: nn.Module) -> list[tuple[str, int]]:
        bound = Filters().bind(ParameterSpace.of(dict(model.named_parameters())))
        return [(block.name, len(block.parameters)) for block in bound.blocks]

    assert blocks(nn.Sequential(*convolutions)) == [("0", 1), ("1", 1), ("2", 1)]
    assert blocks(nn.Sequential(nn.Sequential(*convolutions))) == [("0, 3 × 3", 2), ("0, 1 × 1", 1)]


def test_filters_are_taken_apart_and_put_together() -> None:
    prior = posterior().prior
    assert isinstance(prior, Filters)
    assert prior.space is not None
    theta = torch.randn(3, prior.space.size)
    assert torch.equal(prior.merge(prior.split(theta)), theta)


def test_operators_are_those_of_the_matrix() -> None:
    prior = posterior().prior
    assert isinstance(prior, Filters)
    space = prior.space
    assert space is not None
    sigma, v = dense_prior(prior), torch.randn(2, space.size, dtype=torch.double)
    torch.testing.assert_close(prior.solve(v, space), v @ sigma)
    torch.testing.assert_close(prior.multiply(v @ sigma, space), v)
    root = prior.colour(torch.eye(space.size, dtype=torch.double), space)
    torch.testing.assert_close(root.T @ root, sigma)
    torch.testing.assert_close(prior.coloured(v, space), v @ root.T)
    torch.testing.assert_close(prior.log_det(space), -torch.logdet(sigma))
    truth = MultivariateNormal(torch.zeros(space.size).double(), sigma).log_prob(v[0])
    torch.testing.assert_close(prior.log_prob(space.unflatten(v[0])), truth)
    classes = torch.cat(prior.class_weights())
    torch.testing.assert_close((classes @ prior.class_products(v).flatten(1)).reshape(2, 2), v @ sigma @ v.T)
    diagonals = sum(w @ t for w, t in zip(prior.class_weights(), prior.class_diagonals(v, space), strict=True))
    torch.testing.assert_close(diagonals, (v @ sigma @ v.T).diagonal())
    own, cross = prior.products(v, v[:1])
    torch.testing.assert_close(own, v @ sigma @ v.T)
    torch.testing.assert_close(cross, own[:, :1])


@pytest.mark.parametrize("mean", [None, 0.2])
@pytest.mark.parametrize("structure", ["dual", "full"])
def test_posteriors_are_those_of_the_matrix(structure: str, mean: float | None) -> None:
    prior = filters() if mean is None else filters().around(mean)
    q = posterior(structure, prior)
    bound = q.prior.diagonal
    assert isinstance(bound, Filters)
    sigma = dense_prior(bound)
    whole = q.structure.dense().double() + torch.linalg.inv(sigma)
    inverse, eye = torch.linalg.inv(whole), torch.eye(len(whole), dtype=torch.double)
    torch.testing.assert_close(q.precision.solve(eye), inverse)
    torch.testing.assert_close(q.precision.multiply(eye), whole)
    torch.testing.assert_close(q.variance(), inverse.diagonal())
    torch.testing.assert_close(q.log_det(), torch.logdet(whole))
    root = q.precision.colour(eye)
    torch.testing.assert_close(root.T @ root, inverse)
    gamma = 1 - (inverse * torch.linalg.inv(sigma)).sum(1)
    torch.testing.assert_close(q.precision.effective_parameters(), gamma)
    white = q.precision.parts[0].whiten(eye[:, q.structure.blocks[0].positions])
    torch.testing.assert_close(white @ white.T, inverse)


@pytest.mark.parametrize("structure", ["dual", "low_rank", "matrix_free"])
def test_predictions_agree_with_those_of_the_whole_matrix(structure: str) -> None:
    x, q, full = data()[0][:3], posterior(structure), posterior("full")
    close = {"rtol": 1e-4, "atol": 1e-6}
    torch.testing.assert_close(osc.functional_variance(q, x), osc.functional_variance(full, x), **close)
    both = (osc.function_posterior(each, x).covariance for each in (q, full))
    torch.testing.assert_close(*both, **close)
    rows = torch.randn(4, len(q.mean), dtype=torch.double)
    torch.testing.assert_close(q.precision.covariance(rows), rows @ full.precision.solve(rows).T, **close)
    torch.testing.assert_close(q.precision.multiply(rows), full.precision.multiply(rows), **close)
    torch.testing.assert_close(osc.log_evidence(q), osc.log_evidence(full), rtol=1e-4, atol=0)
    mode = (osc.evidence.linear_mode(each) for each in (q, full))
    torch.testing.assert_close(*mode, rtol=0.02, atol=0.005)
    draws = q.sample(2000, torch.Generator().manual_seed(0)) - q.mean
    torch.testing.assert_close(draws.square().mean(), full.variance().mean(), rtol=0.05, atol=0)
    torch.testing.assert_close(q.variance(), full.variance(), rtol=1e-3, atol=1e-6)
    gamma = (osc.evidence.effective_parameters(each)["2.weight"] for each in (q, full))
    assert next(gamma) == pytest.approx(next(gamma), rel=0.05)


@pytest.mark.parametrize("mode", ["network", "linear"])
@pytest.mark.parametrize("structure", ["dual", "full"])
def test_gradients_of_the_evidence(structure: str, mode: str) -> None:
    q = posterior(structure)
    prior = q.prior
    assert isinstance(prior, Filters)
    logs = torch.cat([prior.precision.log(), prior.lengthscale.log(), torch.tensor([0.3]).log().double()])

    def evidence(values: Tensor) -> Tensor:
        precision, lengthscale, noise = values.exp().split([4, 4, 1])
        likelihood = osc.likelihoods.Gaussian(noise[0])
        return osc.log_evidence(
            q.replace(prior=prior.replace(precision, lengthscale), likelihood=likelihood), mode=mode
        )

    start = logs.clone().requires_grad_()
    (slope,) = torch.autograd.grad(evidence(start), start)
    for number, found in enumerate(slope):
        step = torch.zeros_like(logs)
        step[number] = 1e-5
        difference = (evidence(logs + step) - evidence(logs - step)) / 2e-5
        assert float(found) == pytest.approx(float(difference), rel=1e-5, abs=1e-6)


def test_all_values_are_chosen_by_the_evidence() -> None:
    q = posterior()
    for mode in ("network", "linear"):
        tuned = osc.maximise_evidence(q, mode=mode)
        assert float(osc.log_evidence(tuned, mode=mode)) > float(osc.log_evidence(q, mode=mode)) + 1
        assert isinstance(tuned.prior, Filters)
        assert not torch.allclose(tuned.prior.lengthscale, prior_lengthscale(q))


def prior_lengthscale(q: osc.posteriors.Gaussian) -> Tensor:
    assert isinstance(q.prior, Filters)
    return q.prior.lengthscale


def test_a_file_holds_the_prior(tmp_path: Path) -> None:
    q = posterior()
    osc.save(q, tmp_path / "q.safetensors")
    again = osc.load(tmp_path / "q.safetensors", network())
    torch.testing.assert_close(osc.log_evidence(again), osc.log_evidence(q))


def test_a_network_is_trained_under_it() -> None:
    method = osc.methods.MAP(network(), osc.likelihoods.Gaussian(0.3), Filters(100.0, 1.0))
    trained = osc.train(method, data(), epochs=3, progress=False)
    assert all(bool(p.isfinite().all()) for p in trained.model.parameters())


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: posterior("kron"), ("structure='kron'", "dual")),
        (lambda: posterior("diag"), ("structure='diag'", "dual")),
        (lambda: posterior(prior=Filters(torch.ones(3), 0.1)), ("3", "4 blocks")),
        (lambda: Filters(1.0, 0.0), ("length-scales", "0.0")),
        (lambda: Filters(-1.0), ("positive",)),
        (lambda: filters_of(nn.Linear(3, 3)), ("two-dimensional convolutions",)),
        (
            lambda: osc.laplace(
                network(),
                osc.likelihoods.Gaussian(0.3),
                data(),
                structure="full",
                prior=Filters(),
                subset=osc.Subnetwork(0.5),
                refine=False,
            ),
            ("whole filters",),
        ),
    ],
    ids=["kron", "diag", "values", "length-scale", "precision", "no filters", "subnetwork"],
)
def test_what_does_not_go_is_refused(make: object, words: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=says(*words)):
        make()  # type: ignore[operator]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.filterwarnings("ignore:a matrix was not positive definite")
def test_a_length_scale_without_bound_makes_all_entries_of_a_filter_equal(dtype: torch.dtype) -> None:
    space = ParameterSpace.of({"0.weight": torch.zeros(2, 1, 3, 3, dtype=dtype)})
    for precision in (1e-8, 1e8):
        prior = Filters(precision, 1e30).bind(space)
        drawn = prior.colour(torch.randn(4, 18, dtype=dtype), space).unflatten(-1, (2, 9))
        torch.testing.assert_close(drawn, drawn[..., :1].expand_as(drawn), rtol=1e-4, atol=1e-6 * precision**-0.5)
        assert bool(prior.multiply(drawn.flatten(-2), space).isfinite().all())
        if dtype == torch.double:
            assert float(prior.square(torch.ones(18).double(), space)) == pytest.approx(2 * precision, rel=0.1)
        assert 200 < float(prior.log_det(space)) - 18 * math.log(precision) < 1000


def test_the_text_shows_precisions_and_length_scales() -> None:
    assert repr(Filters(4.0, 0.5)) == "Filters(4, lengthscale=[0.5])"
    assert repr(posterior().prior) == "Filters(2, 5, 3, 4, lengthscale=[0.5, 1, 1.5, 1])"


class Own(nn.Module):
    """A module with a convolution and with parameters of four axes that are none of its weights."""

    def __init__(self) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.randn(2, 1, 3, 3))
        self.token = nn.Parameter(torch.randn(1, 2, 1, 4))
        self.wide = nn.Conv2d(2, 3, 3)
        self.narrow = nn.Conv2d(3, 2, 1)


def test_only_weights_with_four_axes_are_filters() -> None:
    model = nn.Sequential(Own(), nn.Conv3d(1, 1, 3), nn.ConvTranspose2d(1, 1, (1, 2)), nn.Linear(2, 2))
    space = ParameterSpace.of(dict(model.named_parameters()))
    prior = Filters(torch.tensor([2.0, 3.0, 4.0, 5.0, 6.0, 7.0]), 1.0).bind(space)
    assert [(block.parameters, block.kernel) for block in prior.blocks] == [
        (("0.kernel", "0.token", "0.wide.bias", "0.narrow.weight", "0.narrow.bias"), (1, 1)),
        (("0.wide.weight",), (3, 3)),
        (("1.weight", "1.bias"), (1, 1)),
        (("2.weight",), (1, 2)),
        (("2.bias",), (1, 1)),
        (("3.weight", "3.bias"), (1, 1)),
    ]
    matrix, at = dense_prior(prior), space.positions()
    correlated = (matrix != 0).sum(0)
    for name in space.names:
        expected = {"0.wide.weight": 9, "2.weight": 2}.get(name, 1)
        assert bool((correlated[at[name]] == expected).all()), name


@pytest.mark.parametrize("structure", ["dual", "full"])
def test_values_at_a_bound_are_named_with_what_to_do(structure: str) -> None:
    q = posterior(structure)
    with pytest.warns(
        UserWarning, match=says("no maximum", "precision reaches 1.2e+06 for", "'5'", "held-out")
    ) as told:
        tuned = osc.maximise_evidence(q, mode="linear")
    assert "lengthscale reaches 55 for '2'" in str(told[0].message)
    assert "'2': the data" not in str(told[0].message)
    assert isinstance(tuned.prior, Filters)
    assert float(tuned.prior.lengthscale[2]) == pytest.approx(54.6, rel=1e-3)
    with pytest.warns(UserWarning, match=says("lengthscale reaches 0.05 for", "'2'", "Layerwise")):
        osc.maximise_evidence(q, tolerance=1e-6)


def test_a_start_outside_of_the_bounds_is_moved_to_them() -> None:
    q = posterior(prior=Filters(1e9, 1e-3))
    tuned, usual = (osc.maximise_evidence(each, tolerance=1e-3) for each in (q, posterior()))
    torch.testing.assert_close(osc.log_evidence(tuned), osc.log_evidence(usual), rtol=1e-4, atol=0)


@pytest.mark.parametrize("mode", ["network", "linear"])
@pytest.mark.filterwarnings("ignore:the evidence has no maximum")
def test_the_tolerance_bounds_the_gradient(mode: str) -> None:
    q, violations = posterior(), []
    for tolerance in (0.3, 1e-3, 1e-6):
        tuned = osc.maximise_evidence(q, mode=mode, tolerance=tolerance, noise=False)
        assert isinstance(tuned.prior, Filters)
        logs = torch.cat([tuned.prior.precision.log(), tuned.prior.lengthscale.log()]).requires_grad_()
        values = dict(zip(("precision", "lengthscale"), logs.exp().split(4), strict=True))
        value = osc.log_evidence(q.replace(prior=q.prior.with_hyperparameters(values)), mode=mode)
        (slope,) = torch.autograd.grad(value, logs)
        found = osc.evidence.effective_parameters(tuned)
        gamma = torch.tensor([sum(found[name] for name in block.parameters) for block in tuned.prior.blocks] * 2)
        inside = (logs > torch.tensor([-9.99] * 4 + [-2.99] * 4)) & (logs < torch.tensor([13.99] * 4 + [3.99] * 4))
        floor = 1e-3 if mode == "network" else 0.01
        violations.append(float((2 * slope.abs() / gamma.clamp(min=floor))[inside].max()))
        assert violations[-1] <= 1.01 * tolerance
    assert violations[0] > 1e-3


def test_what_is_left_of_the_gradient_is_told_where_steps_run_out() -> None:
    with pytest.warns(UserWarning, match=says("still rising", "violated by", "max_steps", "tolerance")):
        osc.maximise_evidence(posterior(), tolerance=1e-6, max_steps=5)


def test_progress_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    osc.maximise_evidence(posterior())
    assert not capsys.readouterr().out
    osc.maximise_evidence(posterior(), progress=True)
    assert "evidence" in capsys.readouterr().out
