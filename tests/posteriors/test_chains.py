"""Posteriors made of chains: their moments, their mixtures, and whether they have mixed."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.parameters import Network
from osculate.posteriors import Chains
from osculate.posteriors.chains import effective_sample_size, r_hat
from tests.laws import assert_close

CLASSES = osc.likelihoods.Categorical()
X = torch.randn(7, 2, generator=torch.Generator().manual_seed(0), dtype=torch.double)


def chains(count: int = 3, draws: int = 20, scale: float = 1.0) -> Chains:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    network = Network(model, [name for name, _ in model.named_parameters()])
    return Chains(network, CLASSES, scale * torch.randn(count, draws, 27, dtype=torch.double))


def functions(q: Chains) -> Tensor:
    every = [q.network(X, q.network.space.unflatten(theta)) for theta in q.thetas.flatten(0, 1)]
    return torch.stack(every)


def test_moments_are_those_of_all_draws() -> None:
    q = chains()
    every = q.thetas.reshape(60, 27)
    assert_close(q.mean, every.mean(0))
    assert_close(q.variance(), every.var(0, correction=0))
    drawn = q.sample(500, torch.Generator().manual_seed(1))
    assert torch.equal(drawn, q.sample(500, torch.Generator().manual_seed(1)))
    rows = {tuple(row) for row in every.tolist()}
    assert {tuple(row) for row in drawn.tolist()} == rows  # 60 of them, 500 times


def test_predictives_mix_draws_that_are_spread_over_all_chains() -> None:
    q, random = chains(), torch.random.get_rng_state()
    f = functions(q)
    assert_close(osc.predict(q, X, samples=60).probs, f.softmax(-1).mean(0))
    assert_close(osc.sample_functions(q, X, samples=1000), f)
    assert_close(osc.sample_functions(q, X, samples=6), f[[5, 15, 25, 35, 45, 55]])
    assert_close(osc.sample_functions(q, X, samples=1), f[[30]])
    assert torch.equal(random, torch.random.get_rng_state())


def test_diagnostics_are_those_of_the_outputs() -> None:
    q = chains()
    f = functions(q).reshape(3, 20, 7, 3)
    assert_close(q.r_hat(X), r_hat(f))
    assert_close(q.effective_sample_size(X), effective_sample_size(f))
    assert q.r_hat(X).shape == (7, 3)
    swapped = q.thetas.clone()  # exchanged hidden units change the weights and not the function
    order = torch.tensor([1, 0, 2, 3])
    parts = q.network.space.unflatten(swapped[0])
    parts = {"0.weight": parts["0.weight"][:, order], "0.bias": parts["0.bias"][:, order]} | {
        "2.weight": parts["2.weight"][:, :, order],
        "2.bias": parts["2.bias"],
    }
    swapped[0] = torch.cat([parts[name].flatten(1) for name in q.network.space.names], 1)
    assert_close(Chains(q.network, CLASSES, swapped).r_hat(X), q.r_hat(X), 1e-6)


def test_it_moves_and_comes_back_from_a_file(tmp_path: Path) -> None:
    q = chains()
    single = q.to(dtype=torch.float32)
    assert single.thetas.dtype == single.network.dtype == torch.float32
    assert_close(osc.predict(single, X.float()).probs, osc.predict(q, X).probs.float(), 1e-5)
    osc.save(q, tmp_path / "q.safetensors")
    again = osc.load(tmp_path / "q.safetensors", nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 3)))
    assert isinstance(again, Chains)
    assert torch.equal(again.thetas, q.thetas)
    assert torch.equal(osc.predict(again, X).probs, osc.predict(q, X).probs)
    assert repr(again) == "Chains(chains=3, draws=20, P=27, likelihood=Categorical)"


def test_what_are_no_draws_is_refused() -> None:
    q = chains()
    for wrong in (q.thetas[..., :5], q.thetas[:, :0]):
        with pytest.raises(ValueError, match="are not those of chains of this network"):
            Chains(q.network, CLASSES, wrong)
    with pytest.raises(ValueError, match="the draws holds -?inf"):
        Chains(q.network, CLASSES, q.thetas * float("inf"))
    with pytest.raises(ValueError, match="at least 4 draws of each chain, got 3"):
        chains(draws=3).r_hat(X)
    with pytest.raises(ValueError, match="linearised"):
        osc.predict(q, X, via="linearised")


# ---- the statistics ----------------------------------------------------------------------------------------------


def autoregressive(rho: float, chains: int = 4, draws: int = 2000) -> Tensor:
    """Chains of unit variance whose autocorrelation at lag t is rho**t."""
    noise = torch.randn(chains, draws, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    values = [noise[:, 0]]
    for each in noise.unbind(1)[1:]:
        values.append(rho * values[-1] + (1 - rho**2) ** 0.5 * each)
    return torch.stack(values, 1)


@pytest.mark.parametrize(("rho", "tolerance"), [(0.0, 0.1), (0.5, 0.15), (0.9, 0.3), (-0.5, 0.2)])
def test_the_effective_sample_size_of_autoregressive_chains_is_known(rho: float, tolerance: float) -> None:
    x = autoregressive(rho)
    assert float(effective_sample_size(x)) == pytest.approx(8000 * (1 - rho) / (1 + rho), rel=tolerance)
    assert abs(float(r_hat(x)) - 1) < 0.02


def test_chains_at_different_places_or_of_different_widths_have_not_mixed() -> None:
    x = autoregressive(0.0)
    apart, wide, drifting = x.clone(), x.clone(), x.clone()
    apart[0] += 2
    wide[0] *= 5
    drifting += torch.linspace(0, 3, x.shape[1], dtype=x.dtype)
    assert float(r_hat(apart)) > 1.2
    assert float(r_hat(wide)) > 1.1  # means agree: the distances from the median tell
    assert float(r_hat(drifting)) > 1.1  # chains agree: their halves do not
    assert float(effective_sample_size(apart)) < 50


def test_monotone_changes_of_scale_do_not_matter() -> None:
    x = autoregressive(0.5)
    assert_close(effective_sample_size(x.exp()), effective_sample_size(x))
    assert_close(effective_sample_size(torch.stack([x, x], -1))[1], effective_sample_size(x))


def test_draws_that_are_all_equal_agree() -> None:
    same = torch.ones(4, 10, 2)
    assert r_hat(same).tolist() == [1, 1]
    assert effective_sample_size(same).tolist() == [40, 40]


#: Of ``autoregressive(rho)`` with every fourth draw repeated, by arviz-stats 0.8.0: R-hat and bulk ESS.
KNOWN = {
    0.0: (1.0060336, 264.02),
    0.5: (1.0168427, 125.00),
    0.9: (1.2237110, 15.43),
    -0.5: (1.0081621, 323.25),
}


@pytest.mark.parametrize("rho", KNOWN)
def test_the_numbers_are_those_of_arviz(rho: float) -> None:
    x = autoregressive(rho, draws=101)
    x[:, 1::4] = x[:, :-1:4]
    assert float(r_hat(x)) == pytest.approx(KNOWN[rho][0], rel=1e-4)
    assert float(effective_sample_size(x)) == pytest.approx(KNOWN[rho][1], rel=0.05)
