"""Random numbers of data by their keys are independent, and those of each datum alone."""

import pytest
import torch

from osculate.likelihoods.poisson import LARGE, _quantile
from osculate.randomness import Keyed, keyed, normal, uniform
from tests.laws import assert_close

N = 50_000


@pytest.mark.parametrize("dtype", [torch.float, torch.double])
def test_they_are_uniform_normal_and_uncorrelated(dtype: torch.dtype) -> None:
    like, source = torch.zeros(1, dtype=dtype), Keyed(keyed(0, torch.arange(N)))
    u, z = uniform((N, 3), like, source), normal((2, N), like, source, axis=1)
    assert u.dtype == z.dtype == dtype
    assert bool((u > 0).all() and (u < 1).all())
    levels = torch.linspace(0.05, 0.95, 10, dtype=dtype)
    for column in u.unbind(1):
        assert_close((column.unsqueeze(1) < levels).to(dtype).mean(0), levels, 0.01)
    assert_close(torch.stack([z.square().mean(), z.pow(4).mean() / 3]), torch.ones(2, dtype=dtype), 0.05)
    columns = torch.cat([u.T, z, u.roll(1, 0).T])  # places, calls and neighbours
    off = torch.corrcoef(columns) - torch.eye(len(columns), dtype=dtype)
    assert off.abs().max() < 5 / N**0.5


def test_the_length_of_other_axes_changes_nothing() -> None:
    like, keys = torch.zeros(1), keyed(3, torch.arange(4))
    long, short = (uniform((4, length, 2), like, Keyed(keys)) for length in (7, 5))
    assert torch.equal(long[:, :5], short)


def test_for_functions_of_torch_it_is_a_generator_with_a_seed() -> None:
    one, two, other = (torch.rand(3, generator=Keyed(keyed(0, torch.arange(n)))) for n in (2, 2, 3))
    assert torch.equal(one, two)
    assert not torch.equal(one, other)


def test_counts_have_the_probabilities_of_their_distribution() -> None:
    levels = (torch.arange(N, dtype=torch.double) + 0.5) / N
    for rate in (0.3, 4.0, 60.0):
        counts = _quantile(torch.full_like(levels, rate), levels)
        every = torch.arange(0, 4 * rate + 5, dtype=torch.double)
        expected = torch.distributions.Poisson(rate).log_prob(every).exp()
        assert_close((counts.unsqueeze(1) == every).double().mean(0), expected, 1e-3)
    large = _quantile(torch.full_like(levels, 4 * LARGE), levels)
    assert_close(large.var() / (4 * LARGE), torch.tensor(1.0, dtype=torch.double), 0.05)
