"""Targets that do not fit: the value, the reason and the way out."""

import pytest
import torch
from torch import Tensor

from osculate.likelihoods import (
    Bernoulli,
    Categorical,
    ContinuousBernoulli,
    Gaussian,
    HeteroscedasticGaussian,
    Likelihood,
    Poisson,
    StudentT,
)
from tests.errors import says

Z = torch.zeros
NAN = float("nan")
GREY = Bernoulli(grey=True)
PIXEL = ContinuousBernoulli()
PIXELS = Categorical(class_axis=1)

#: likelihood, outputs, targets, error, what it says
REFUSED = {
    "no class axis": (Categorical(), Z(3), Z(3).long(), ValueError, ("(N, C)", "(3,)")),
    "one logit": (Categorical(), Z(3, 1), Z(3).long(), ValueError, ("two logits", "use Bernoulli")),
    "real class": (Categorical(), Z(3, 4), Z(3), TypeError, ("torch.float32", "y.long()", "Gaussian")),
    "boolean class": (Categorical(), Z(3, 4), Z(3).bool(), TypeError, ("torch.bool", "y.long()")),
    "one-hot": (Categorical(), Z(3, 4), Z(3, 4).long(), ValueError, ("(3, 4)", "(N,)", "y.argmax(-1)")),
    "trailing axis": (Categorical(), Z(3, 4), Z(3, 1).long(), ValueError, ("(3, 1)", "y.squeeze(-1)")),
    "class out of range": (
        Categorical(), Z(3, 4), torch.tensor([0, 4, 1]), ValueError, ("target 4 in row 1", "0 to 3", "ignore_index"),
    ),
    "pixel out of range": (
        PIXELS, Z(2, 3, 1, 2), torch.tensor([[[0, 1]], [[2, -1]]]), ValueError,
        ("target -1 in position (1, 0, 1)", "0 to 2", "ignore_index"),
    ),
    "out of range beside ignored": (
        Categorical(ignore_index=-1), Z(2, 3), torch.tensor([-1, 3]), ValueError, ("target 3 in row 1", "0 to 2"),
    ),
    "tokens for one label": (Categorical(), Z(2, 5, 3), Z(2).long(), ValueError, ("(2, 5)", "(2,)")),
    "classes on another axis": (
        Categorical(), Z(2, 3, 4, 5), Z(2, 4, 5).long(), ValueError, ("class_axis=-1", "Categorical(class_axis=1)"),
    ),
    "class axis missing": (Categorical(class_axis=2), Z(2, 3), Z(2).long(), ValueError, ("class_axis=2", "2 axes")),
    "bernoulli, shape": (Bernoulli(), Z(3, 1), Z(3), ValueError, ("(3,)", "(3, 1)", "unsqueeze")),
    "bernoulli, range": (Bernoulli(), Z(1, 2), torch.tensor([[0, 2]]), ValueError, ("target 2 at (0, 1)", "0 or 1")),
    "bernoulli, negative": (Bernoulli(), Z(1, 2), Z(1, 2) - 0.1, ValueError, ("target -0.1", "(0, 0)", "0 or 1.")),
    "bernoulli, not a number": (Bernoulli(), Z(1, 1), Z(1, 1) + NAN, ValueError, ("target nan at (0, 0)", "0 or 1")),
    "bernoulli, between": (
        Bernoulli(), Z(1, 2), torch.tensor([[1.0, 0.25]]), ValueError,
        ("target 0.25 at (0, 1)", "torch.bernoulli(y)", "Bernoulli(grey=True)", "ContinuousBernoulli()"),
    ),
    "grey, below": (GREY, Z(1, 2), torch.tensor([[0, -1]]), ValueError, ("target -1 at (0, 1)", "(grey=True)")),
    "grey, above": (GREY, Z(1, 1), Z(1, 1) + 1.5, ValueError, ("target 1.5 at (0, 0)", "from 0 to 1")),
    "grey, not a number": (GREY, Z(1, 1), Z(1, 1) + NAN, ValueError, ("target nan at (0, 0)", "from 0 to 1")),
    "grey, bytes": (GREY, Z(1, 1), Z(1, 1).byte() + 255, ValueError, ("target 255 at (0, 0)", "by 255")),
    "grey, shape": (GREY, Z(3, 1), Z(3), ValueError, ("(3,)", "(3, 1)", "unsqueeze")),
    "continuous, below": (PIXEL, Z(1, 2), Z(1, 2) - 0.1, ValueError, ("target -0.1", "(0, 0)", "ContinuousBernoulli")),
    "continuous, above": (PIXEL, Z(1, 1), Z(1, 1) + 1.2, ValueError, ("target 1.2", "(0, 0)", "from 0 to 1")),
    "continuous, not a number": (PIXEL, Z(1, 1), Z(1, 1) + NAN, ValueError, ("target nan at (0, 0)", "from 0 to 1")),
    "continuous, bytes": (PIXEL, Z(1, 1), Z(1, 1).byte() + 7, ValueError, ("target 7 at (0, 0)", "by 255")),
    "continuous, shape": (PIXEL, Z(3, 1), Z(3), ValueError, ("(3,)", "(3, 1)", "unsqueeze")),
    "gaussian, type": (Gaussian(), Z(3, 1), Z(3, 1).long(), TypeError, ("torch.int64", "y.float()")),
    "gaussian, shape": (Gaussian(), Z(3, 1), Z(3), ValueError, ("(3,)", "(3, 1)", "unsqueeze")),
    "gaussian, scale": (Gaussian(torch.ones(2)), Z(3, 4), Z(3, 4), ValueError, ("(2,)", "(4,)", "one for each")),
    "heteroscedastic, odd": (
        HeteroscedasticGaussian(), Z(3, 5), Z(3, 2), ValueError, ("5 outputs", "odd", "two outputs"),
    ),
    "heteroscedastic, shape": (
        HeteroscedasticGaussian(), Z(3, 2), Z(3, 2), ValueError, ("(3, 1)", "(3, 2)", "both halves"),
    ),
    "heteroscedastic, type": (
        HeteroscedasticGaussian(), Z(3, 2), Z(3, 1).int(), TypeError, ("torch.int32", "y.float()"),
    ),
    "poisson, negative": (
        Poisson(), Z(2, 1), torch.tensor([[0], [-2]]), ValueError, ("-2 at (1, 0)", "count", "Gaussian"),
    ),
    "poisson, fraction": (Poisson(), Z(2, 1), torch.tensor([[0.5], [1.0]]), ValueError, ("0.5 at (0, 0)", "count")),
    "poisson, shape": (Poisson(), Z(2, 1), Z(2), ValueError, ("(2,)", "(2, 1)")),
    "student t, type": (StudentT(), Z(2, 1), Z(2, 1).long(), TypeError, ("torch.int64", "y.float()")),
    "student t, shape": (StudentT(), Z(2, 1), Z(2), ValueError, ("(2,)", "(2, 1)")),
}  # fmt: skip


@pytest.mark.parametrize(("likelihood", "f", "y", "error", "words"), REFUSED.values(), ids=REFUSED)
def test_targets_that_do_not_fit_are_refused(
    likelihood: Likelihood, f: Tensor, y: Tensor, error: type[Exception], words: tuple[str, ...]
) -> None:
    with pytest.raises(error, match=says(*words)):
        likelihood.check(f, y)


@pytest.mark.parametrize("value", [-1.0, 0.0, float("nan"), float("inf")])
def test_a_scale_is_positive_and_finite(value: float) -> None:
    for make in (Gaussian, lambda scale: StudentT(4.0, scale)):
        with pytest.raises(ValueError, match=says("noise scale", str(value), "standard deviation")):
            make(value)
    with pytest.raises(ValueError, match=says("degrees of freedom", str(value), "Gaussian")):
        StudentT(value)


def test_the_batch_is_no_class_axis() -> None:
    for kind in (Categorical, HeteroscedasticGaussian):
        with pytest.raises(ValueError, match=says("class_axis=0", "batch", "-1")):
            kind(class_axis=0)


@pytest.mark.parametrize(
    "likelihood", [Categorical(), ContinuousBernoulli(), Poisson(), StudentT(), HeteroscedasticGaussian()]
)
def test_what_a_likelihood_does_not_have_is_said(likelihood: Likelihood) -> None:
    with pytest.raises(ValueError, match=says(type(likelihood).__name__, "noise scale")):
        likelihood.times(2.0)
    with pytest.raises(ValueError, match=says(type(likelihood).__name__, "noise scale")):
        likelihood.noise_balance({})
    with pytest.raises(ValueError, match=says(type(likelihood).__name__, "joint", "osc.functional_variance")):
        likelihood.joint(Z(2), Z(2, 2))
