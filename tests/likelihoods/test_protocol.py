"""What every likelihood keeps for every shape of outputs: closed forms against autograd, roots, layouts, memory."""

from collections.abc import Iterator
from math import pi, prod

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import osculate as osc
from osculate.likelihoods import Likelihood
from osculate.predictive import link as links
from osculate.randomness import Keyed, keyed
from tests.laws import assert_close
from tests.likelihoods.cases import CASES, EXPECTED, Case

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def standard_noise(case: Case, f: Tensor, points: int = 100) -> Iterator[tuple[Tensor, float]]:
    """Targets y = loc + scale r and weights that integrate over a continuous noise r, by the tangent substitution."""
    p = case.likelihood.distribution(f)
    for angle in (torch.arange(points, dtype=torch.double) + 0.5) * pi / points - pi / 2:
        y = p.loc + p.scale * angle.tan()
        density = (p.log_prob(y).exp() * p.scale).reshape(-1)[0]
        yield y, float(density / angle.cos() ** 2 * pi / points)


def true_hessian(case: Case, f: Tensor, y: Tensor) -> Tensor:
    """The observed Hessian over all outputs by autograd, averaged over the noise where the expected one is meant."""

    def one(flat: Tensor, target: Tensor) -> Tensor:
        return -case.likelihood.log_prob(flat.reshape(1, *case.shape), target.unsqueeze(0)).sum()

    def observed(y: Tensor) -> Tensor:
        return torch.func.vmap(torch.func.hessian(one))(f.reshape(len(f), -1), y)

    if isinstance(case.likelihood, EXPECTED):
        return sum(weight * observed(y) for y, weight in standard_noise(case, f))
    return torch.stack([torch.func.hessian(one)(a, b) for a, b in zip(f.reshape(len(f), -1), y, strict=True)])


def test_every_registered_likelihood_is_tested() -> None:
    assert {type(case.likelihood) for case in CASES.values()} == set(osc.likelihoods.REGISTRY.values())


@every_case
def test_outputs_are_split_into_positions_and_merged_again(case: Case) -> None:
    f = case.outputs()
    likelihood = case.likelihood
    assert likelihood.events(f) == case.layout[1]
    assert likelihood.split(f).shape == (5, *case.layout)
    assert torch.equal(likelihood.merge(likelihood.split(f), f.shape), f)
    many = torch.randn(3, 2, *f.shape)
    parts = likelihood.split(many, leading=2)
    assert parts.shape == (3, 2, 5, *case.layout)
    assert torch.equal(parts[1, 0], likelihood.split(many[1, 0]))
    assert torch.equal(likelihood.merge(parts, f.shape), many)
    assert torch.equal(likelihood.merge(parts[:, :, :2], f.shape), many[:, :, :2])  # only the shape of a datum counts


@every_case
def test_log_prob_is_that_of_the_distribution(case: Case) -> None:
    f, y = case.pair()
    p = case.likelihood.distribution(f)
    assert p.batch_shape == y.shape
    ignored = getattr(case.likelihood, "ignore_index", None)
    kept = torch.ones_like(y, dtype=torch.bool) if ignored is None else y != ignored
    expected = torch.where(kept, p.log_prob(torch.where(kept, y, 0)), 0)
    assert_close(case.likelihood.log_prob(f, y), expected.reshape(5, -1).sum(-1))
    case.likelihood.check(f, y)


@every_case
def test_the_hessian_is_the_true_one(case: Case) -> None:
    f, y = case.pair()
    assert_close(case.likelihood.hessian(f, y), true_hessian(case, f, y), 1e-7)


@every_case
def test_local_hessians_equal_the_autograd_default(case: Case) -> None:
    f, y = case.pair()
    found = case.likelihood.local_hessian(f, y)
    assert found.shape == (5, *case.layout, case.layout[1])
    if isinstance(case.likelihood, EXPECTED):
        observed = (w * Likelihood.local_hessian(case.likelihood, f, y) for y, w in standard_noise(case, f))
        assert_close(found, sum(observed), 1e-7)
    else:
        assert_close(found, Likelihood.local_hessian(case.likelihood, f, y))


@every_case
@pytest.mark.parametrize("default", [False, True])
def test_roots_times_their_transpose_are_the_hessian(case: Case, default: bool) -> None:
    f, y = case.pair()
    root = Likelihood.local_root(case.likelihood, f, y) if default else case.likelihood.local_root(f, y)
    assert root.shape[1:] == (5, *case.layout)
    assert len(root) <= case.layout[1]
    assert_close(torch.einsum("vnte,vntf->ntef", root, root), case.likelihood.local_hessian(f, y))
    columns = case.likelihood.root(f, y)
    assert columns.shape[1:] == f.shape
    columns = columns.flatten(2)
    assert_close(torch.einsum("vnc,vnd->ncd", columns, columns), case.likelihood.hessian(f, y))


@every_case
def test_diagonals_and_columns_in_parts_are_those_of_the_whole(case: Case) -> None:
    f, y = case.pair()
    assert_close(case.likelihood.local_diagonal(f, y), case.likelihood.local_hessian(f, y).diagonal(dim1=-2, dim2=-1))
    count, part = case.likelihood.local_columns(f, y)
    whole = case.likelihood.local_root(f, y)
    assert count == len(whole)
    for start in range(count):
        assert_close(part(start, min(count, start + 2)), whole[start : start + 2])


@every_case
def test_the_score_is_the_gradient(case: Case) -> None:
    f, y = case.pair()
    leaf = f.clone().requires_grad_()
    (expected,) = torch.autograd.grad(case.likelihood.log_prob(leaf, y).sum(), leaf)
    assert_close(case.likelihood.score(f, y), expected)
    assert_close(Likelihood.score(case.likelihood, f, y), expected)


@every_case
@pytest.mark.parametrize("default", [False, True])
def test_sampled_roots_average_to_the_hessian(case: Case, default: bool) -> None:
    f, y = case.pair()
    f, y = f[:2], y[:2]
    draw = Likelihood.sampled_root if default else type(case.likelihood).sampled_root
    for generator in (torch.Generator().manual_seed(0), Keyed(keyed(0, torch.arange(2)))):
        columns = draw(case.likelihood, f, y, 40_000, generator)
        assert columns.shape == (40_000, *f.shape)
        columns = columns.flatten(2)
        assert_close(torch.einsum("vnc,vnd->ncd", columns, columns), case.likelihood.hessian(f, y), 0.05)


@every_case
@pytest.mark.parametrize("default", [False, True])
def test_the_draws_of_a_datum_do_not_depend_on_other_data(case: Case, default: bool) -> None:
    f, y = case.pair()
    draw = Likelihood.sampled_root if default else type(case.likelihood).sampled_root
    keys = keyed(1, torch.arange(len(f)))
    whole = draw(case.likelihood, f, y, 3, Keyed(keys))
    order = torch.arange(len(f)).flip(0)
    parts = [draw(case.likelihood, f[part], y[part], 3, Keyed(keys[part])) for part in order.split(2)]
    assert_close(torch.cat(parts, 1).flip(1), whole)
    assert not torch.equal(draw(case.likelihood, f, y, 3, Keyed(keyed(2, torch.arange(len(f))))), whole)


@every_case
def test_statistics_add_and_give_the_log_likelihood(case: Case) -> None:
    f, y = case.pair()
    parts = [case.likelihood.statistics(f[s], y[s]) for s in (slice(2), slice(2, None))]
    total = {name: parts[0][name] + parts[1][name] for name in parts[0]}
    assert_close(case.likelihood.log_likelihood(total), case.likelihood.log_prob(f, y).sum(), 1e-6)


class Largest(TorchDispatchMode):
    """Notes the size of the largest tensor that any operation returns."""

    def __init__(self) -> None:
        super().__init__()
        self.numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        stored = [t.untyped_storage().nbytes() // t.itemsize for t in tree_leaves(result) if isinstance(t, Tensor)]
        self.numbers = max([self.numbers, *stored])
        return result


WIDE = {
    "categorical, pixels": Case(osc.likelihoods.Categorical(class_axis=1), (3, 20, 30), (600, 3)),
    "bernoulli, mask": Case(osc.likelihoods.Bernoulli(), (1, 40, 45), (1800, 1)),
    "continuous bernoulli, image": Case(osc.likelihoods.ContinuousBernoulli(), (1, 40, 45), (1800, 1)),
    "gaussian, image": Case(osc.likelihoods.Gaussian(0.7), (3, 20, 30), (1800, 1)),
    "heteroscedastic, image": Case(osc.likelihoods.HeteroscedasticGaussian(class_axis=1), (6, 10, 30), (900, 2)),
    "poisson, grid": Case(osc.likelihoods.Poisson(), (40, 45), (1800, 1)),
    "student t, grid": Case(osc.likelihoods.StudentT(), (40, 45), (1800, 1)),
}


@pytest.mark.parametrize("case", WIDE.values(), ids=WIDE)
def test_nothing_of_the_size_of_a_squared_output_is_built(case: Case) -> None:
    f = case.outputs(2)
    y = case.targets(f)
    generator, link = torch.Generator().manual_seed(0), links.MonteCarlo(64)
    count = prod(case.shape)
    with Largest() as watched:
        case.likelihood.check(f, y)
        own_verbs = (case.likelihood.local_hessian, case.likelihood.local_diagonal, case.likelihood.local_root)
        for own in (*own_verbs, case.likelihood.score):
            own(f, y)
        for default in (Likelihood.local_hessian, Likelihood.local_root, Likelihood.score):
            default(case.likelihood, f, y)
        case.likelihood.sampled_root(f, y, 3, generator)
        Likelihood.sampled_root(case.likelihood, f, y, 3, generator)
        t, e = case.layout
        needed = case.likelihood.needs_covariance(link)
        covariance = torch.eye(e, dtype=f.dtype).expand(2, t, e, e) if needed else torch.ones_like(f)
        case.likelihood.marginal(f, covariance, link).log_prob(y)
        case.likelihood.mixture(torch.stack([f, f])).log_prob(y)
    assert 2 * count <= watched.numbers < count**2 / 4


@every_case
def test_a_signed_root_has_the_covariance_of_the_output_hessian(case: Case) -> None:
    """E s sᵀ = Λ within the noise of the draws, which a generator decides."""
    f, y = case.pair()
    repeated = (f.repeat(1000, *(1,) * (f.ndim - 1)), y.repeat(1000, *(1,) * (y.ndim - 1)))
    found = case.likelihood.signed_root(*repeated, torch.Generator().manual_seed(0))
    draws = found.reshape(1000, len(f), -1)
    expected = case.likelihood.hessian(f, y)
    products = torch.einsum("snc,snd->sncd", draws, draws)
    error = products.std(0) / len(draws) ** 0.5
    distance = (products.mean(0) - expected).abs()
    assert bool((distance <= 5 * error + 1e-9 * expected.abs().max()).all())
    assert torch.equal(case.likelihood.signed_root(*repeated, torch.Generator().manual_seed(0)), found)


@pytest.mark.parametrize("likelihood", [osc.likelihoods.Categorical(), osc.likelihoods.Bernoulli()])
def test_the_signed_root_of_saturated_outputs_has_a_finite_derivative(likelihood: Likelihood) -> None:
    f = torch.tensor([[300.0, -300.0, 0.0]], requires_grad=True)
    y = torch.zeros(1, dtype=torch.long) if likelihood.links[0] == "mc" else torch.zeros(1, 3)
    likelihood.signed_root(f, y, torch.Generator().manual_seed(0)).square().sum().backward()
    assert f.grad is not None
    assert bool(f.grad.isfinite().all())
