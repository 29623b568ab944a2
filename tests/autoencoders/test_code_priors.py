"""Priors of codes: densities that integrate to one, and cells of few bits."""

import math

import pytest
import torch
from torch import Tensor

from osculate.autoencoders import CODE_PRIORS, VAE, CodePrior, SigmoidCodes, SparseBeta, StandardNormal, TwoNormals
from tests.laws import assert_close

PRIORS: tuple[CodePrior, ...] = (
    StandardNormal(),
    SparseBeta(),
    SparseBeta(0.7),
    TwoNormals(),
    TwoNormals(0.5),
)
SMOOTH = [prior for prior in PRIORS if not isinstance(prior, SparseBeta)]


def integral(values: Tensor, places: Tensor) -> float:
    return float(torch.trapezoid(values, places))


@pytest.mark.parametrize("prior", SMOOTH, ids=repr)
def test_densities_integrate_to_one(prior: CodePrior) -> None:
    z = torch.linspace(-12, 13, 20001, dtype=torch.double).unsqueeze(1)
    assert integral(prior.over(z).log_prob(z).exp(), z[:, 0]) == pytest.approx(1, abs=1e-10)


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
def test_the_density_of_logits_is_that_of_codes_between_0_and_1(prior: CodePrior) -> None:
    u = torch.linspace(-15, 15, 7, dtype=torch.double).unsqueeze(1)
    z = u.sigmoid()
    expected = prior.over(z).log_prob(z) + (z * (1 - z)).log()[:, 0]
    torch.testing.assert_close(prior.logit_log_prob(u), expected, rtol=1e-8, atol=1e-8)
    assert prior.logit_log_prob(u.float()).dtype == torch.float


@pytest.mark.parametrize("shape", [0.2, 0.7, 2.0])
def test_the_density_of_logits_integrates_to_one_however_near_codes_are_to_0_and_1(shape: float) -> None:
    u = torch.linspace(-300, 300, 60001, dtype=torch.double).unsqueeze(1)
    assert integral(SparseBeta(shape).logit_log_prob(u).exp(), u[:, 0]) == pytest.approx(1, abs=1e-6)
    far = SparseBeta(shape).logit_log_prob(torch.tensor([[90.0], [-90.0]]))
    torch.testing.assert_close(far[0], far[1])
    torch.testing.assert_close(far.diff(), torch.zeros(1))


@pytest.mark.parametrize("bits", [1, 2, 3, 8, 12])
@pytest.mark.parametrize("prior", PRIORS, ids=repr)
def test_cells_are_ordered_and_each_value_is_in_its_cell(prior: CodePrior, bits: int) -> None:
    edges, values = prior.cells(bits)
    assert edges.shape == (2**bits - 1,)
    assert values.shape == (2**bits,)
    assert bool((edges.diff() > 0).all())
    assert torch.equal(torch.bucketize(values, edges), torch.arange(2**bits))


@pytest.mark.parametrize("bits", [1, 2, 4])
@pytest.mark.parametrize("prior", SMOOTH, ids=repr)
def test_cells_of_densities_on_the_line_are_equally_probable_and_stand_for_their_means(
    prior: CodePrior, bits: int
) -> None:
    edges, values = prior.cells(bits)
    ends = torch.cat([torch.tensor([-12.0]).double(), edges, torch.tensor([13.0]).double()])
    for low, high, value in zip(ends[:-1], ends[1:], values, strict=True):
        z = torch.linspace(float(low), float(high), 20001, dtype=torch.double)
        density = prior.over(z.unsqueeze(1)).log_prob(z.unsqueeze(1)).exp()
        assert integral(density, z) == pytest.approx(2.0**-bits, abs=1e-5)
        assert integral(z * density, z) * 2**bits == pytest.approx(float(value), abs=1e-4)


@pytest.mark.parametrize("scale", [1e-3, 0.02, 0.05, 0.3])
def test_quantiles_of_narrow_peaks_are_in_order_and_symmetric(scale: float) -> None:
    u = torch.tensor([0.1, 0.25, 0.499, 0.5, 0.501, 0.75, 0.9], dtype=torch.double)
    found = TwoNormals(scale).inverse_cdf(u)
    assert_close(found + found.flip(0), torch.ones(7).double(), 1e-12)
    assert bool((found.diff() > 0).all())
    assert float(TwoNormals(scale).cells(1)[0]) == 0.5
    assert_close(TwoNormals(scale).each(found).cdf(found), u, 1e-12)


def test_priors_are_nearly_binary_where_they_have_two_peaks() -> None:
    assert SparseBeta(0.2).nearly_binary
    assert TwoNormals(0.1).nearly_binary
    assert not any(prior.nearly_binary for prior in (SparseBeta(2.0), TwoNormals(3.0), StandardNormal()))


def test_one_bit_of_a_nearly_binary_code_is_0_or_1() -> None:
    assert torch.equal(SparseBeta().cells(1)[1], torch.tensor([0.0, 1.0], dtype=torch.double))
    assert_close(TwoNormals().cells(1)[1], torch.tensor([0.0, 1.0], dtype=torch.double), 1e-6)


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
def test_draws_follow_their_generator_and_leave_the_state_of_torch(prior: CodePrior) -> None:
    state = torch.get_rng_state()
    one, two = (prior.sample(2000, 3, torch.Generator().manual_seed(4)) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(one, two)
    assert not torch.equal(one, prior.sample(2000, 3, torch.Generator().manual_seed(5)))
    edges, _ = prior.cells(1)
    assert one.shape == (2000, 3)
    assert float((one > edges.float()).float().mean()) == pytest.approx(0.5, abs=0.03)


def test_priors_go_by_name_and_are_refused_where_they_do_not_fit() -> None:
    encoder, decoder = torch.nn.Linear(3, 4), torch.nn.Linear(2, 3)
    for name, kind in CODE_PRIORS.items():
        assert isinstance(VAE(encoder, decoder, prior=name).prior, kind)
    assert isinstance(VAE(encoder, decoder, prior="beta").posterior, SigmoidCodes)
    with pytest.raises(ValueError, match="unknown prior of codes 'betas'.*did you mean 'beta'"):
        VAE(encoder, decoder, prior="betas")
    with pytest.raises(TypeError):
        VAE(encoder, decoder, prior=StandardNormal)  # the class in place of an object
    for kind in (SparseBeta, TwoNormals):
        with pytest.raises(ValueError, match="must be positive"):
            kind(-math.pi)
