"""What holds for one likelihood or another; what holds for all is in test_protocol.py."""

import copy
from dataclasses import dataclass
from functools import cached_property
from math import log

import pytest
import torch
from torch import Tensor

import osculate as osc
from osculate.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    HeteroscedasticGaussian,
    Likelihood,
    Poisson,
    StudentT,
)
from osculate.likelihoods._base import COLUMNS
from tests.errors import says
from tests.laws import assert_close
from tests.likelihoods.cases import CASES, Case
from tests.likelihoods.test_protocol import Largest


def test_the_root_of_a_saturated_softmax_is_finite() -> None:
    f = torch.tensor([[200.0, 0.0, -300.0], [-1e4, 0.0, 1e4], [0.0, 0.0, 0.0]])
    root = Categorical().root(f, torch.zeros(3).long())
    assert bool(root.isfinite().all())
    assert_close(torch.einsum("vnc,vnd->ncd", root, root), Categorical().hessian(f, torch.zeros(3).long()), 1e-6)


def test_classes_need_one_column_less_than_there_are() -> None:
    case = CASES["categorical, pixels"]
    assert case.likelihood.local_root(*case.pair()).shape == (3, 5, 6, 4)


def test_many_classes_are_worked_on_without_their_blocks() -> None:
    """One column at a time, or the diagonal: memory for C numbers each, not C² for each datum."""
    likelihood, f, y = Categorical(), torch.randn(3, 400), torch.zeros(3).long()
    with Largest() as watched:
        count, part = likelihood.local_columns(f, y)
        part(398, 399)
        likelihood.local_diagonal(f, y)
        likelihood.combined_columns(f, y, 2, torch.randn)
    assert count == 399
    assert f.numel() <= watched.numbers <= COLUMNS * f.numel() < 399 * f.numel()


def test_parts_of_a_mixture_are_added_up() -> None:
    """Classes are averaged over parts of different sizes; numbers keep every component."""
    f = torch.randn(7, 4, 3, 5)
    for likelihood in (Categorical(), Categorical(class_axis=1), Bernoulli()):
        whole = likelihood.mixture(f).probs
        assert_close(likelihood.mixture_of_parts(iter(f.split(3))).probs, whole, 1e-6)
    y, whole = torch.randn(4, 3, 5), Gaussian(0.5).mixture(f, noise=True)
    assert_close(Gaussian(0.5).mixture_of_parts(f.split(3)).log_prob(y), whole.log_prob(y), 1e-6)


def test_the_class_axis_is_only_a_matter_of_layout() -> None:
    f = torch.randn(5, 2, 3, 4, dtype=torch.double)
    y = torch.randint(4, (5, 2, 3))
    last, first = Categorical(), Categorical(class_axis=1)
    moved = f.movedim(-1, 1)
    assert_close(last.log_prob(f, y), first.log_prob(moved, y))
    assert_close(last.local_root(f, y), first.local_root(moved, y))
    assert_close(last.score(f, y).movedim(-1, 1), first.score(moved, y))
    assert_close(last.distribution(f).probs, first.distribution(moved).probs)


def test_ignored_positions_contribute_nothing() -> None:
    likelihood, plain = Categorical(ignore_index=-100), Categorical()
    f, y = torch.randn(4, 3, 5, dtype=torch.double), torch.randint(5, (4, 3))
    y[0] = -100
    y[2, 1] = -100
    kept = y != -100
    other = torch.where(kept.unsqueeze(-1), f, torch.randn_like(f))
    assert_close(likelihood.log_prob(f, y), likelihood.log_prob(other, y))
    assert float(likelihood.log_prob(f, y)[0]) == 0.0
    assert torch.equal(likelihood.counted(y), kept)
    assert plain.counted(y) is None
    each = plain.log_prob(f[kept], y[kept])
    assert_close(likelihood.log_prob(f, y).sum(), each.sum())
    drawn = likelihood.sampled_root(f, y, 7, torch.Generator().manual_seed(0))
    for columns in (likelihood.local_root(f, y), drawn, likelihood.score(f, y).unsqueeze(0)):
        assert bool((columns[:, ~kept] == 0).all())
        assert bool((columns[:, kept] != 0).any(-1).any(0).all())


def test_log_prob_alone_is_enough_for_a_fit() -> None:
    class Laplacian(Likelihood):
        """A smoothed Laplace density, with nothing but its density."""

        def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
            return -((y - f) ** 2 + 0.1).sqrt().sum(-1)

    model, x, y = torch.nn.Linear(2, 3).double(), torch.randn(9, 2).double(), torch.randn(9, 3).double()
    likelihood = Laplacian()
    q = osc.laplace(model, likelihood, (x, y), structure="full", prior=1.0, refine=False)
    assert_close(q.structure.dense(), osc.curvature.reference.ggn(model, likelihood, x, y))
    assert osc.functional_variance(q, x).shape == (9, 3, 3)
    with pytest.raises(NotImplementedError, match="distribution"):
        likelihood.distribution(x)


class Linear(Likelihood):
    """A density whose logarithm is linear in f: it has no curvature."""

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        return (f * y).sum(-1)


def test_a_density_that_is_linear_in_f_has_no_curvature() -> None:
    f = torch.randn(3, 2)
    assert_close(Linear().local_hessian(f, f), torch.zeros(3, 1, 2, 2))
    assert_close(Linear().root(f, f), torch.zeros(2, 3, 2))


def test_the_defaults_work_in_inference_mode() -> None:
    case = CASES["poisson"]
    f, y = case.pair()
    expected = case.likelihood.local_hessian(f, y), case.likelihood.score(f, y)
    with torch.inference_mode():
        f, y = f.clone(), y.clone()
        assert_close(Likelihood.local_hessian(case.likelihood, f, y), expected[0])
        assert_close(Likelihood.score(case.likelihood, f, y), expected[1])


def test_squared_errors_are_kept_apart_only_for_scales_of_their_own() -> None:
    f, y = torch.randn(5, 4, 3), torch.randn(5, 4, 3)
    assert Gaussian(0.5).statistics(f, y)["squared_error"].shape == (1,)
    assert Gaussian(torch.ones(4, 3)).statistics(f, y)["squared_error"].shape == (12,)
    for likelihood in (Gaussian(0.5), Gaussian(torch.full((4, 3), 0.5))):
        data, error = likelihood.noise_balance(likelihood.statistics(f, y))
        assert float(data) == 60
        assert_close(error, ((y - f) / 0.5).double().square().sum(), 1e-6)


def test_one_scale_cannot_become_many_without_a_new_fit() -> None:
    f, y = torch.randn(5, 3), torch.randn(5, 3)
    with pytest.raises(ValueError, match="1 noise scale.*has 3.*fit again"):
        Gaussian(torch.ones(3)).log_likelihood(Gaussian(1.0).statistics(f, y))


def test_other_proportions_of_noise_need_a_new_fit() -> None:
    old, new = Gaussian(torch.tensor([1.0, 2.0])), Gaussian(torch.tensor([2.0, 2.0]))
    with pytest.raises(ValueError, match="proportions"):
        new.curvature_scale(old)
    assert float(Gaussian(torch.tensor([2.0, 4.0])).curvature_scale(old)) == pytest.approx(0.25)


@dataclass(frozen=True, eq=False)
class Cauchy(Likelihood):
    """A user's own, as a dataclass."""

    width: float = 1.0
    weights: Tensor | None = None

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        return -(1 + ((y - f) / self.width).square()).log().sum(-1)


class Plain(Likelihood):
    """A user's own, as a plain class, with what it noted in a cached property."""

    def __init__(self, width: float) -> None:
        self._width = width

    @cached_property
    def logarithm(self) -> float:
        return log(self._width)

    def log_prob(self, f: Tensor, y: Tensor) -> Tensor:
        return -0.5 * ((y - f) / self._width).square().sum(-1) - self.logarithm


class Scaled(Gaussian):
    """A subclass of one whose scale can be changed."""


OTHERS = {
    "student t, scale": (StudentT(4.0, 1.0), StudentT(4.0, 2.0), "scale=1.0 against 2.0"),
    "student t, df": (StudentT(4.0, 1.0), StudentT(5.0, 1.0), "df=4.0 against 5.0"),
    "grey targets": (Bernoulli(), Bernoulli(grey=True), "grey=False against True"),
    "ignored index": (Categorical(), Categorical(ignore_index=0), "ignore_index=None against 0"),
    "class axis": (Categorical(class_axis=1), Categorical(), "class_axis=1 against -1"),
    "axis of means": (HeteroscedasticGaussian(1), HeteroscedasticGaussian(), "class_axis=1 against -1"),
    "own dataclass": (Cauchy(), Cauchy(3.0), "width=1.0 against 3.0"),
    "own tensor": (Cauchy(1.0, torch.ones(2)), Cauchy(1.0, torch.zeros(2)), "weights="),
    "tensor for a number": (Cauchy(1.0), Cauchy(torch.ones(2)), "width=1.0 against tensor"),
    "own plain class": (Plain(1.0), Plain(3.0), "_width=1.0 against 3.0"),
    "another class": (Gaussian(), Poisson(), "class Gaussian against Poisson"),
    "a subclass": (Gaussian(), Scaled(), "class Gaussian against Scaled"),
}


@pytest.mark.parametrize(("old", "new", "difference"), OTHERS.values(), ids=OTHERS)
def test_other_settings_need_a_new_fit(old: Likelihood, new: Likelihood, difference: str) -> None:
    with pytest.raises(ValueError, match=says("fit it again", difference)):
        new.curvature_scale(old)
    assert old.curvature_scale(old) == 1.0


@pytest.mark.parametrize(
    "likelihood",
    [case.likelihood for case in CASES.values()] + [Cauchy(2.0, torch.ones(2)), Plain(2.0), Scaled(torch.ones(3))],
    ids=lambda likelihood: type(likelihood).__name__,
)
def test_equal_settings_need_none(likelihood: Likelihood) -> None:
    again = copy.deepcopy(likelihood)
    getattr(again, "logarithm", None)  # what a cached property remembers is no setting
    assert again.curvature_scale(likelihood) == likelihood.curvature_scale(again) == 1.0


def test_a_subclass_of_the_gaussian_keeps_its_class_with_another_scale() -> None:
    wider = Scaled(0.5).times(2.0)
    assert type(wider) is Scaled
    assert float(wider.curvature_scale(Scaled(0.5))) == 0.25


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_scores_have_the_type_of_the_outputs(case: Case) -> None:
    f, y = case.outputs().float(), case.pair()[1]
    expected = case.likelihood.score(f.double(), y)
    kinds = [y.double(), y.float()] if y.is_floating_point() else [y, y.int()]
    if isinstance(case.likelihood, Bernoulli) and not case.likelihood.grey:
        kinds += [y.bool(), y.long()]
    for targets in kinds:
        case.likelihood.check(f, targets)
        score = case.likelihood.score(f, targets)
        assert score.dtype == f.dtype
        assert_close(score.double(), expected, 1e-5)


def test_grey_targets_are_scored_by_their_mean_over_binarised_ones() -> None:
    f, y = torch.randn(4, 3).double(), torch.rand(4, 3).double()
    plain, grey = Bernoulli(), Bernoulli(grey=True)
    one, zero = torch.ones_like(y), torch.zeros_like(y)
    each = y * plain.distribution(f).log_prob(one) + (1 - y) * plain.distribution(f).log_prob(zero)
    assert_close(grey.log_prob(f, y), each.sum(-1))
    assert_close(grey.distribution(f).log_prob(y), each)
    assert_close(grey.log_prob(f, y.round()), plain.log_prob(f, y.round()))
    binarised = [
        plain.score(f, b) for b in torch.bernoulli(y.expand(20_000, 4, 3), generator=torch.Generator().manual_seed(0))
    ]
    assert_close(grey.score(f, y), torch.stack(binarised).mean(0), 0.02)
    best = (y / (1 - y)).log()
    entropy = torch.distributions.Bernoulli(probs=y).entropy().sum(-1)
    assert_close(grey.log_prob(best, y), -entropy)


def test_predictives_of_grey_targets_take_probabilities_and_no_other_numbers() -> None:
    f, y = torch.randn(5, 4, 3).double(), torch.rand(4, 3).double()
    grey = Bernoulli(grey=True)
    link = osc.predictive.link.Probit()
    for p in (grey.distribution(f[0]), grey.mixture(f), grey.marginal(f[0], f[1].square(), link)):
        assert_close(p.log_prob(y), y * p.probs.log() + (1 - y) * (1 - p.probs).log(), 1e-6)
        assert_close(p.expand((2, 4, 3)).log_prob(y)[1], p.log_prob(y))
        assert set(p.sample((50,)).unique().tolist()) == {0.0, 1.0}
        with pytest.raises(ValueError, match="support"):
            p.log_prob(y + 1)
    with pytest.raises(ValueError, match="support"):
        Bernoulli().distribution(f).log_prob(y)


def test_a_student_t_of_many_degrees_is_a_gaussian() -> None:
    f, y = torch.zeros(3, 2).double(), torch.randn(3, 2).double()
    many, normal = StudentT(1e9, 0.7), Gaussian(0.7)
    assert_close(many.log_prob(f, y), normal.log_prob(f, y), 1e-6)
    assert_close(many.local_hessian(f, y), normal.local_hessian(f, y), 1e-6)


def test_a_constant_log_variance_gives_the_gaussian() -> None:
    mean, y = torch.randn(4, 3).double(), torch.randn(4, 3).double()
    f = torch.cat([mean, torch.full_like(mean, 2 * torch.tensor(0.7).double().log().item())], 1)
    both, plain = HeteroscedasticGaussian(), Gaussian(0.7)
    assert_close(both.log_prob(f, y), plain.log_prob(mean, y), 1e-6)
    assert_close(both.score(f, y)[:, :3], plain.score(mean, y), 1e-6)
    assert_close(both.local_hessian(f, y)[..., 0, 0], plain.local_hessian(mean, y)[..., 0, 0], 1e-6)


# ---- probabilities as targets ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("axis", "shape"), [(-1, (6, 3)), (-1, (4, 5, 3)), (1, (4, 3, 2, 5))])
def test_probabilities_of_classes_are_averages_over_labels(axis: int, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    likelihood = osc.likelihoods.Categorical(class_axis=axis)
    f = torch.randn(shape, dtype=torch.double, requires_grad=True)
    y = torch.randn(shape, dtype=torch.double).softmax(axis)
    likelihood.check(f, y)
    labels = [torch.full(f.select(axis, 0).shape, c) for c in range(f.shape[axis])]
    each = torch.stack([f.log_softmax(axis).select(axis, c) for c in range(len(labels))], -1)
    expected = (each * y.movedim(axis, -1)).reshape(len(f), -1).sum(1)
    assert_close(likelihood.log_prob(f, y), expected, 1e-10)
    (gradient,) = torch.autograd.grad(likelihood.log_prob(f, y).sum(), f)
    assert_close(likelihood.score(f, y), gradient, 1e-10)
    assert_close(likelihood.local_hessian(f, y), likelihood.local_hessian(f, labels[0]), 1e-10)
    hard = torch.nn.functional.one_hot(labels[1], f.shape[axis]).double().movedim(-1, axis)
    assert_close(likelihood.log_prob(f, hard), likelihood.log_prob(f, labels[1]), 1e-10)


def test_a_posterior_of_probabilities() -> None:
    torch.manual_seed(0)
    model, x = torch.nn.Linear(4, 3), torch.randn(40, 4)
    soft = (2 * torch.randn(40, 3)).softmax(-1)
    q = osc.laplace(model, osc.likelihoods.Categorical(), (x, soft), prior=1.0)
    assert q.offset is not None  # it is refined like any other
    tuned = osc.tune(q, (x, soft))
    assert tuned.tuning.choice.mean <= tuned.tuning.start.mean + 0.05
    osc.train(osc.methods.MAP(model, osc.likelihoods.Categorical()), (x, soft), epochs=1, progress=False)
    with pytest.raises(ValueError, match="is no distribution over classes"):
        osc.laplace(model, osc.likelihoods.Categorical(), (x, 2 * soft), prior=1.0)
    with pytest.raises(ValueError, match="these targets are probabilities"):
        osc.compare(q, (x, soft))
