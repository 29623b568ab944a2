"""Ensembles with a fixed random function in each member."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.methods import MAP, DeepEnsemble, RandomizedPriors
from osculate.networks import WithPrior
from osculate.posteriors import Ensemble, Mixture
from tests.laws import assert_close

X, Y = torch.randn(50, 4, generator=torch.Generator().manual_seed(1)), torch.arange(50) % 3
CLASSES = osc.likelihoods.Categorical()


def networks(count: int = 3, p: float = 0.0, seed: int = 3) -> list[nn.Module]:
    torch.manual_seed(seed)
    return [nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(p), nn.Linear(6, 3)) for _ in range(count)]


def run(method: Any, data: Any = (X, Y), **settings: Any) -> Any:
    settings = {"epochs": 4, "batch_size": 16, "lr": 0.01, **settings}
    return osc.train(method, data, progress=False, device="cpu", **settings)


def flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


# ---- laws ------------------------------------------------------------------------------------------------------


def test_linear_members_end_at_the_mode_around_their_own_prior_weights(float64: None) -> None:
    """θ_m = Σ (Xᵀy/σ² + δ β θ⁰_m): the loss has no slope there."""
    x, sigma, delta, beta = torch.randn(30, 3), 0.5, 2.0, 1.5
    y = x @ torch.tensor([[1.0], [-2.0], [0.5]]) + 0.1 * torch.randn(30, 1)
    models = [nn.Linear(3, 1, bias=False) for _ in range(3)]
    method = RandomizedPriors(models, osc.likelihoods.Gaussian(sigma), delta, beta)
    covariance = (x.T @ x / sigma**2 + delta * torch.eye(3)).inverse()
    for model, member in zip(models, method.model, strict=True):
        start = member.prior_network.weight
        mode = covariance @ (x.T @ y / sigma**2 + delta * beta * start.T)
        model.weight.data.copy_(mode.T - beta * start)
        assert_close(member(x).detach(), x @ mode)
    method.loss(x, y, 30).backward()
    assert max(float(model.weight.grad.abs().max()) for model in models) < 1e-10  # type: ignore[union-attr]


def test_with_a_scale_of_zero_it_is_a_deep_ensemble() -> None:
    mine, theirs = run(RandomizedPriors(networks(), CLASSES, scale=0.0)), run(DeepEnsemble(networks(), CLASSES))
    assert_close(osc.predict(mine, X).probs, osc.predict(theirs, X).probs, 1e-5)


def test_each_member_ends_where_it_would_have_ended_alone() -> None:
    priors = networks(seed=8)
    done = run(RandomizedPriors(networks(), CLASSES, 2.0, 0.5, priors))
    for member, model, prior in zip(done.posterior.members, networks(), priors, strict=True):
        alone = run(MAP(WithPrior(model, prior, 0.5), CLASSES, 2.0))
        assert_close(member.mean, alone.posterior.network.mean, 1e-5)


@pytest.mark.release
def test_far_from_the_data_the_members_differ_more_with_priors() -> None:
    x, y = torch.linspace(-0.5, 0.5, 30)[:, None], torch.zeros(30, 1)
    spreads = []
    for scale in (0.0, 3.0):
        torch.manual_seed(0)
        models = [nn.Sequential(nn.Linear(1, 20), nn.Tanh(), nn.Linear(20, 1)) for _ in range(5)]
        method = RandomizedPriors(models, osc.likelihoods.Gaussian(0.1), 1.0, scale)
        done = run(method, (x, y), epochs=150, batch_size=30, lr=0.02)
        spread = osc.predict(done, torch.tensor([[0.0], [4.0]]), noise=False).stddev.flatten()
        spreads.append(spread)
    assert float(spreads[1][1]) > 3 * float(spreads[0][1])
    assert float(spreads[1][1]) > 5 * float(spreads[1][0])


# ---- the prior network -----------------------------------------------------------------------------------------


def test_the_prior_part_stays_as_it_is() -> None:
    given = networks(seed=8, p=0.3)
    method = RandomizedPriors(networks(p=0.3), CLASSES, 1.0, 1.0, given)
    before = [flat(member.prior_network) for member in method.model]
    method.train()
    assert all(member.network.training and not member.prior_network.training for member in method.model)
    assert not any(layer.training for member in method.model for layer in member.prior_network.modules())
    done = run(method)
    for member, start, own in zip(done.model, before, given, strict=True):
        assert torch.equal(flat(member.prior_network), start)
        assert torch.equal(flat(own), start)
        assert all(p.requires_grad for p in own.parameters())  # what was given is left as it was
        assert not any(p.requires_grad for p in member.prior_network.parameters())


def test_default_prior_networks_are_drawn_by_the_seed_alone() -> None:
    state = torch.random.get_rng_state()
    one = RandomizedPriors(networks(), CLASSES, seed=1)
    assert not torch.equal(flat(one.model[0].prior_network), flat(one.model[1].prior_network))
    torch.randn(3)
    same, other = (RandomizedPriors(networks(seed=5), CLASSES, seed=seed) for seed in (1, 2))
    for mine, theirs in zip(one.model, same.model, strict=True):
        assert torch.equal(flat(mine.prior_network), flat(theirs.prior_network))
    assert not torch.equal(flat(one.model[0].prior_network), flat(other.model[0].prior_network))
    torch.random.set_rng_state(state)
    models = networks()
    after = torch.random.get_rng_state()
    RandomizedPriors(models, CLASSES)
    assert torch.equal(after, torch.random.get_rng_state())
    for model, untouched in zip(models, networks(), strict=True):
        assert torch.equal(flat(model), flat(untouched))


class Scaled(nn.Module):
    """A user's own layer: a parameter, and perhaps a way to draw it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.gain = nn.Parameter(torch.rand(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * self.linear(x)


class Drawn(Scaled):
    """With a way to draw it."""

    def reset_parameters(self) -> None:
        """The gain alone: the linear layer has its own."""
        nn.init.uniform_(self.gain)


def test_a_module_of_ones_own() -> None:
    with pytest.raises(
        ValueError, match="no reset_parameters.. reinitialises the parameter 'gain'.*pass prior_networks"
    ):
        RandomizedPriors([Scaled(), Scaled()], CLASSES)
    explicit = RandomizedPriors([Scaled(), Scaled()], CLASSES, prior_networks=[Scaled(), Scaled()])
    for method in (explicit, RandomizedPriors([Drawn(), Drawn()], CLASSES)):
        assert osc.predict(run(method), X).probs.shape == (50, 3)


# ---- resuming, files, other posteriors -------------------------------------------------------------------------


def test_it_resumes(tmp_path: Path) -> None:
    def method(scale: float = 1.0) -> RandomizedPriors:
        return RandomizedPriors(networks(p=0.2), CLASSES, scale=scale)

    whole = run(method(), schedule="constant")
    run(method(), schedule="constant", epochs=2, folder=tmp_path)
    again = run(method(), schedule="constant", folder=tmp_path, resume=True)
    for one, other in zip(whole.posterior.members, again.posterior.members, strict=True):
        assert torch.equal(one.mean, other.mean)
    with pytest.raises(ValueError, match="trained with scale=1.0, not 2.0"):
        run(method(2.0), schedule="constant", folder=tmp_path, resume=True)


def test_it_is_saved_and_loaded_with_its_priors_and_their_scale(float64: None, tmp_path: Path) -> None:
    x = X.double()
    done = run(RandomizedPriors(networks(), CLASSES, scale=0.3), (x, Y))
    assert isinstance(done.posterior, Ensemble)
    assert done.posterior.network.dtype == torch.double
    osc.save(done, tmp_path / "q.safetensors")
    net, other_net = networks(2, seed=9)
    again = osc.load(tmp_path / "q.safetensors", WithPrior(net, other_net))
    assert torch.equal(osc.predict(again, x).probs, osc.predict(done, x).probs)


def test_a_laplace_approximation_around_each_member_is_over_the_trained_part() -> None:
    done = run(RandomizedPriors(networks(), CLASSES, scale=0.3))
    members = [osc.laplace(network, CLASSES, (X, Y), prior=10.0, refine=False) for network in done.model.eval()]
    assert members[0].mean.numel() == flat(networks()[0]).numel()
    assert osc.predict(Mixture(members), X).probs.shape == (50, 3)


# ---- refusals --------------------------------------------------------------------------------------------------


def test_bad_input_is_refused() -> None:
    with pytest.raises(ValueError, match="3 members need as many prior networks, got 2"):
        RandomizedPriors(networks(), CLASSES, prior_networks=networks(2))
    with pytest.raises(ValueError, match="at least two members, got 1"):
        RandomizedPriors(networks(1), CLASSES)
    one = networks(1)[0]
    with pytest.raises(ValueError, match="share the parameter 'network.0.weight'"):
        RandomizedPriors([one, one], CLASSES)
    for scale in (-1.0, float("nan")):
        with pytest.raises(ValueError, match=f"at least 0 and finite, got {scale}"):
            RandomizedPriors(networks(), CLASSES, scale=scale)
    with pytest.raises(ValueError, match=r"returned \(5, 3\) and the prior network \(5, 1\)"):
        WithPrior(nn.Linear(2, 3), nn.Linear(2, 1))(torch.zeros(5, 2))
