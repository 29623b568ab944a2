"""HMC: exact posteriors, another sampler's numbers, resumption bit for bit, and refusals."""

import csv
import json
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.fx import GraphModule

import osculate as osc
from osculate.methods import HMC
from osculate.methods.hmc.potential import NegativeLogJoint
from osculate.methods.hmc.sampler import NUTS, ChainState, Metric, StepSize, first_step_size, subtrees, windows
from osculate.parameters import Network
from osculate.posteriors.chains import effective_sample_size
from osculate.training import Training, full_batch

REFERENCE = Path(__file__).with_name("hmc_reference.json")
SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "hmc_reference.py"  # which wrote it

X = torch.linspace(-1, 1, 25, dtype=torch.double)[:, None]
Y = torch.sin(2 * X) + 0.3 * torch.randn(25, 1, dtype=torch.double, generator=torch.Generator().manual_seed(1))
NOISE = osc.likelihoods.Gaussian(0.3)
ERRORS = 4.5  # standard errors that an estimate may be off


def network(width: int = 3, outputs: int = 1) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, outputs)).double()


def run(method: HMC, data: Any = (X, Y), draws: int = 30, **settings: Any) -> Training:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*(chains do not agree|trajectories diverged)")
        return osc.train(method, data, epochs=method.warmup + draws, **{"progress": False, **settings})


def z_scores(draws: Tensor, expected: Tensor) -> Tensor:
    """By how many standard errors the mean over all draws (K, S, ...) is off."""
    error = draws.flatten(0, 1).std(0) / effective_sample_size(draws).sqrt()
    return (draws.mean((0, 1)) - expected) / error


# ---- the kernel --------------------------------------------------------------------------------------------------


def adapted_draws(covariance: Tensor, chains: int, warmup: int, draws: int) -> tuple[Tensor, Tensor]:
    """Draws (K, S, P) of a normal, and the inverse mass that warm-up has found."""
    precision, generator = torch.linalg.inv(covariance), torch.Generator().manual_seed(0)
    start = torch.randn(chains, len(covariance), generator=generator, dtype=torch.double)
    state = ChainState.at(10 * start, lambda t: (0.5 * (t @ precision * t).sum(1), t @ precision))
    metric, step_size = Metric(torch.ones(len(covariance), dtype=torch.double), chains), StepSize(0.8)

    def nuts(step: float) -> NUTS:
        return NUTS(lambda t: (0.5 * (t @ precision * t).sum(1), t @ precision), step, metric.inverse_mass, generator)

    step_size.restart(first_step_size(nuts(1.0), state))
    kept = []
    for n in range(warmup + draws):
        done = nuts(step_size.now if n < warmup else step_size.final).draw(state)
        state = done.state
        if n >= warmup:
            kept.append(state.position)
            continue
        step_size.update(float(done.acceptance.mean()))
        ends = windows(warmup)
        if ends[0] <= n < ends[-1]:
            metric.collect(state.position)
        if n + 1 in ends[1:]:
            metric.close_window()
            step_size.restart(first_step_size(nuts(step_size.now), state))
    return torch.stack(kept, 1), metric.inverse_mass


@pytest.mark.release
def test_draws_of_a_correlated_normal_have_its_moments() -> None:
    root = torch.randn(4, 4, generator=torch.Generator().manual_seed(2), dtype=torch.double)
    covariance = root @ root.T + torch.diag(torch.tensor([0.1, 0.1, 1.0, 30.0], dtype=torch.double))
    draws, inverse_mass = adapted_draws(covariance, 8, 160, 250)
    assert float(z_scores(draws, torch.zeros(4)).abs().max()) < ERRORS
    products = draws.unsqueeze(-1) * draws.unsqueeze(-2)
    assert float(z_scores(products, covariance).abs().max()) < ERRORS
    torch.testing.assert_close(inverse_mass, covariance.diagonal(), rtol=0.5, atol=0.0)


def test_a_leapfrog_step_goes_back_the_way_it_came() -> None:
    def quartic(t: Tensor) -> tuple[Tensor, Tensor]:
        return t.pow(4).sum(1), 4 * t.pow(3)

    start = ChainState.at(torch.randn(3, 2, dtype=torch.double), quartic)
    nuts = NUTS(quartic, 0.1, torch.tensor([1.0, 3.0], dtype=torch.double), torch.Generator())
    momentum = nuts.momentum(start)
    there, after = nuts.leapfrog(start, momentum, 0.1)
    back, before = nuts.leapfrog(there, after, -0.1)
    torch.testing.assert_close(back.position, start.position)
    torch.testing.assert_close(before, momentum)
    errors = []
    for step in (0.02, 0.01):  # the error of the energy is of second order
        state, r = start, momentum
        for _ in range(round(0.2 / step)):
            state, r = nuts.leapfrog(state, r, step)
        errors.append((nuts.energy(state.potential, r) - nuts.energy(start.potential, momentum)).abs())
    assert bool((errors[1] < 0.3 * errors[0]).all())


@pytest.mark.parametrize(("step", "least", "most"), [(0.9, 0.5, 0.8), (0.25, 0.9, 1.0)])
def test_the_distribution_is_kept_with_steps_so_coarse_that_the_energy_is_not(
    step: float, least: float, most: float
) -> None:
    """Many chains on x⁴/4 − x that start at exact draws."""

    def quartic(t: Tensor) -> tuple[Tensor, Tensor]:
        return (0.25 * t.pow(4) - t).sum(1), t.pow(3) - 1

    axis = torch.linspace(-6, 6, 4001, dtype=torch.double)
    weights = (-quartic(axis[:, None])[0]).softmax(0)
    generator = torch.Generator().manual_seed(0)
    nuts = NUTS(quartic, step, torch.ones(1, dtype=torch.double), generator)
    state = ChainState.at(axis[torch.multinomial(weights, 40_000, True, generator=generator)][:, None], quartic)
    for _ in range(12):
        done = nuts.draw(state)
        state = done.state
    assert least < float(done.acceptance.mean()) < most
    for power in (1, 2, 3, 4):
        drawn = state.position.squeeze(1).pow(power)
        error = float(drawn.mean() - weights @ axis.pow(power)) / float(drawn.std() / len(drawn) ** 0.5)
        assert abs(error) < ERRORS


def test_every_balanced_subtree_is_looked_at_once() -> None:
    """The momenta at the left ends are where an explicit recursion would look for them."""
    marks: dict[int, int] = {}
    found = []
    for leaf in range(16):
        first, last = subtrees(leaf)
        if leaf % 2 == 0:
            marks[last] = leaf
        else:
            found += [(marks[place], leaf) for place in range(first, last + 1)]
    expected = [(start, start + size - 1) for size in (2, 4, 8, 16) for start in range(0, 16, size)]
    assert sorted(found) == sorted(expected)


def test_a_step_far_too_long_is_a_divergence() -> None:
    def steep(t: Tensor) -> tuple[Tensor, Tensor]:
        return 1e4 * t.square().sum(1), 2e4 * t

    state = ChainState.at(torch.ones(2, 1, dtype=torch.double), steep)
    done = NUTS(steep, 10.0, torch.ones(1, dtype=torch.double), torch.Generator().manual_seed(0)).draw(state)
    assert bool(done.divergent.all())
    assert torch.equal(done.state.position, state.position)
    assert done.leapfrogs.tolist() == [1, 1]


def test_windows_are_those_of_stan() -> None:
    assert windows(1000) == (75, 100, 150, 250, 450, 950)
    for warmup in range(20, 400):
        ends = windows(warmup)
        assert ends[-1] <= warmup
        assert all(after - before >= 15 for before, after in zip(ends, ends[1:], strict=False))


# ---- what it reaches ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_linear_model_has_its_closed_form(float64: None) -> None:
    x = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    y = x @ torch.tensor([[1.0], [-2.0]]) + 0.7 + 0.5 * torch.randn(30, 1, generator=torch.Generator().manual_seed(1))
    prior = osc.priors.Layerwise({"weight": 1.0, "bias": 4.0})
    q = run(HMC(nn.Linear(2, 1), osc.likelihoods.Gaussian(0.5), prior, chains=8, warmup=100), (x, y), 150).posterior
    design = torch.cat([x, torch.ones(30, 1)], 1)
    covariance = torch.linalg.inv(design.T @ design / 0.25 + torch.diag(torch.tensor([1.0, 1.0, 4.0])))
    mean = (covariance @ design.T @ y / 0.25).squeeze(1)
    assert float(z_scores(q.thetas, mean).abs().max()) < ERRORS
    away = q.thetas - mean
    assert float(z_scores(away.unsqueeze(-1) * away.unsqueeze(-2), covariance).abs().max()) < ERRORS
    assert float(q.r_hat(x).max()) < 1.02


@pytest.mark.slow
def test_classes_have_the_predictive_of_a_quadrature(float64: None) -> None:
    x = torch.linspace(-2, 2, 12)[:, None]
    y = (x.squeeze(1) > 0.3).long()
    q = run(
        HMC(nn.Linear(1, 2, bias=False), osc.likelihoods.Categorical(), 0.5, chains=8, warmup=100), (x, y), 150
    ).posterior
    axis = torch.linspace(-8, 8, 201)
    weights = torch.cartesian_prod(axis, axis)
    logits = weights[:, None, :] * x
    density = osc.likelihoods.Categorical().log_prob(logits.flatten(0, 1), y.repeat(len(weights)))
    joint = density.reshape(len(weights), -1).sum(1) - 0.25 * weights.square().sum(1)
    expected = (joint.softmax(0)[:, None, None] * logits.softmax(-1)).sum(0)
    draws = torch.stack([q.network(x, q.network.space.unflatten(t)) for t in q.thetas.flatten(0, 1)]).softmax(-1)
    assert float(z_scores(draws.unflatten(0, q.thetas.shape[:2]), expected).abs().max()) < ERRORS
    torch.testing.assert_close(osc.predict(q, x, samples=10_000).probs, draws.mean(0))


def test_the_potential_is_the_negative_log_joint() -> None:
    model = network(4, 2)
    y = torch.cat([Y, -Y], 1)
    likelihood, prior = osc.likelihoods.Gaussian(torch.tensor([0.3, 0.5])), osc.priors.Layerwise(2.0)
    net = Network(model, [name for name, _ in model.named_parameters()])
    joint = NegativeLogJoint(net, likelihood, prior.bind(net.space), [(X[:9], y[:9]), (X[9:], y[9:])], 2)
    assert isinstance(joint._slope, GraphModule)  # it was recorded
    theta = torch.stack([net.mean, torch.randn_like(net.mean)])
    found, slope = joint(theta)
    for each, value, gradient in zip(theta, found, slope, strict=True):
        leaf = each.clone().requires_grad_()
        parts = net.space.unflatten(leaf)
        expected = -likelihood.log_prob(net(X, parts), y).sum() - prior.log_prob(parts)
        expected.backward()
        torch.testing.assert_close(value, expected.detach())
        torch.testing.assert_close(gradient, leaf.grad)


@pytest.mark.release
def test_the_function_agrees_with_another_sampler() -> None:
    expected = json.loads(REFERENCE.read_text())["quick"]
    model = nn.Sequential(nn.Linear(1, expected["hidden"]), nn.Tanh(), nn.Linear(expected["hidden"], 1)).double()
    net = Network(model, [name for name, _ in model.named_parameters()])
    data = tuple(torch.tensor(expected[name], dtype=torch.double)[:, None] for name in ("x", "y"))
    joint = NegativeLogJoint(net, osc.likelihoods.Gaussian(expected["noise"]), osc.priors.Isotropic(1.0), data, 1)
    assert float(joint(torch.tensor([expected["theta"]], dtype=torch.double))[0]) == pytest.approx(
        expected["potential"]
    )
    command = [
        sys.executable,
        str(SCRIPT),
        "compare",
        "quick",
    ]  # by itself, without checks of shapes, a third of the time
    found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert max(map(abs, found["z_mean"])) < 4
    assert max(map(abs, found["z_sd"])) < 4
    assert found["r_hat"] < 1.05
    assert min(found["ess"]) > 0.4 * found["draws"]


# ---- networks of any kind ----------------------------------------------------------------------------------------


class Mine(nn.Module):
    """A network that somebody else wrote, with a buffer, a frozen layer and several inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(1, 3), nn.Linear(3, 1)
        self.register_buffer("shift", torch.tensor(0.5))
        self.last.bias.requires_grad_(False)

    def forward(self, x: Tensor, scale: Tensor) -> Tensor:
        return self.last(torch.relu(self.first(x - self.shift))) * scale


def test_a_module_of_the_user_is_sampled_and_left_as_it_was() -> None:
    model = Mine().train()
    before, random = {n: v.clone() for n, v in model.state_dict().items()}, torch.random.get_rng_state()
    x, y = (X.float(), torch.ones(25, 1)), Y.float()
    q = run(HMC(model, NOISE, warmup=30, max_depth=4), (x, y)).posterior
    assert q.network.space.names == ("first.weight", "first.bias", "last.weight")
    assert osc.predict(q, x).mean.shape == (25, 1)
    assert q.r_hat(x).shape == (25, 1)
    assert torch.equal(random, torch.random.get_rng_state())
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    torch.testing.assert_close(q.network.parameters["first.bias"], q.thetas[0, -1, 3:6])


def test_single_precision_is_sampled_in_double() -> None:
    x, y = X.float(), Y.float()
    double = run(HMC(network(), NOISE, warmup=20, max_depth=4), (x.double(), y.double()), draws=5).posterior
    single = run(HMC(network().float(), NOISE, warmup=20, max_depth=4), (x, y), draws=5).posterior
    assert single.thetas.dtype == torch.float32
    assert torch.equal(single.thetas, double.thetas.float())
    assert osc.predict(single, x).stddev.dtype == torch.float32


def test_held_out_data_are_watched_by_the_mixture_of_the_chains() -> None:
    method = HMC(network(), NOISE, warmup=20, max_depth=4)
    rows = run(method, draws=3, validation=(X, Y)).history
    each = method._required.log_likelihoods(method.position, X, Y)
    assert rows[-1]["validation_nll"] == pytest.approx(-float(each.exp().mean(0).log().mean()))
    names = ["train_loss", "acceptance", "step_size", "leapfrog_steps", "divergences", "draws"]
    assert list(rows[-1]) == ["epoch", *names, "validation_nll", "seconds"]
    assert [row["draws"] for row in rows[-4:]] == [0, 1, 2, 3]


def test_chains_that_have_not_mixed_are_announced() -> None:
    method = HMC(network(20), osc.likelihoods.Gaussian(0.01), warmup=5, max_depth=1)
    with pytest.warns(UserWarning, match="R-hat of an output is .*longer warmup"):
        osc.train(method, (X, Y), epochs=30, progress=False)


# ---- interruption ------------------------------------------------------------------------------------------------


class Breaks(HMC):
    """Is interrupted after so many steps."""

    after = 0

    def step(self) -> dict[str, int | float]:
        if int(self.count) == self.after:
            raise KeyboardInterrupt
        return super().step()


@pytest.mark.parametrize("after", [9, *(pytest.param(n, marks=pytest.mark.release) for n in (33, 47))])
@pytest.mark.slow
def test_a_resumed_run_ends_where_the_whole_one_does(
    after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(full_batch, "PAUSE", 0.0)  # a checkpoint after each step
    whole = run(HMC(network().float(), NOISE, warmup=35, max_depth=4), (X.float(), Y.float()), 20)
    broken = Breaks(network().float(), NOISE, warmup=35, max_depth=4)
    broken.after = after
    with pytest.raises(KeyboardInterrupt):
        run(broken, (X.float(), Y.float()), 20, folder=tmp_path)
    again = run(
        HMC(network().float(), NOISE, warmup=35, max_depth=4), (X.float(), Y.float()), 20, folder=tmp_path, resume=True
    )
    assert torch.equal(whole.posterior.thetas, again.posterior.thetas)
    rows = [[{k: v for k, v in row.items() if k != "seconds"} for row in done.history] for done in (whole, again)]
    assert rows[0] == rows[1]
    with (tmp_path / "training.csv").open() as file:
        assert [int(row["epoch"]) for row in csv.DictReader(file)] == list(range(1, 56))


@pytest.mark.slow
def test_more_epochs_add_draws(tmp_path: Path) -> None:
    whole = run(HMC(network(), NOISE, warmup=25, max_depth=4), draws=20).posterior
    run(HMC(network(), NOISE, warmup=25, max_depth=4), draws=12, folder=tmp_path)
    more = run(HMC(network(), NOISE, warmup=25, max_depth=4), draws=20, folder=tmp_path, resume=True).posterior
    assert torch.equal(whole.thetas, more.thetas)
    assert more.thetas.shape == (4, 20, 10)


@pytest.mark.slow
def test_the_seed_decides() -> None:
    one, other, third = (
        run(HMC(network(), NOISE, warmup=20, max_depth=4), draws=5, seed=seed).posterior for seed in (1, 1, 2)
    )
    assert torch.equal(one.thetas, other.thetas)
    assert not torch.equal(one.thetas, third.thetas)


def test_checkpoints_take_a_small_share_of_the_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Path] = []
    monkeypatch.setattr(full_batch, "PAUSE", 1e6)
    monkeypatch.setattr(full_batch, "write_log", lambda folder, rows: written.append(folder))
    run(HMC(network(), NOISE, warmup=20, max_depth=4), draws=5, folder=tmp_path)
    assert len(written) == 2  # after the first step and after the last


BEGUN: dict[str, Any] = {"likelihood": NOISE, "warmup": 20, "max_depth": 4}


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run."""
    folder = tmp_path_factory.mktemp("begun")
    run(HMC(network(), **BEGUN), draws=2, folder=folder)
    return folder


@pytest.mark.parametrize(
    ("changes", "settings", "words"),
    [
        ({"acceptance": 0.9}, {}, "acceptance=0.8.*acceptance=0.9"),
        ({"warmup": 21}, {}, "warmup=20.*warmup=21"),
        ({"max_depth": 5}, {}, "max_depth=4.*max_depth=5"),
        ({"prior": 2.0}, {}, "prior=.*1.0.*prior=.*2.0"),
        ({"likelihood": osc.likelihoods.Gaussian(0.4)}, {}, "likelihood=.*0.3.*likelihood=.*0.4"),
        ({"chains": 5}, {}, "chains=4.*chains=5"),
        ({}, {"seed": 3}, "seed=0.*seed=3"),
        ({}, {"data": (X[:20], Y[:20])}, "num_data=25.*num_data=20"),
    ],
)
def test_another_run_is_not_resumed(changes: dict[str, Any], settings: dict[str, Any], words: str, begun: Path) -> None:
    with pytest.raises(ValueError, match=words):
        run(HMC(network(), **{**BEGUN, **changes}), draws=2, folder=begun, resume=True, **settings)


# ---- refusals ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "changes", "words"),
    [
        (nn.Sequential(nn.Linear(1, 2), nn.Dropout(0.1)), {}, "dropout layer '1' is active"),
        (nn.Sequential(nn.Linear(1, 2), nn.BatchNorm1d(2)), {}, "batch normalisation '1'"),
        (nn.Linear(1, 1).requires_grad_(False), {}, "no trainable parameter"),
        (nn.Linear(20_200, 1), {}, "20,201 trained parameters, and accepts 20,000"),
        (nn.Linear(1, 1), {"chains": 0}, "chains must be a whole number of at least 1, got 0"),
        (nn.Linear(1, 1), {"warmup": -1}, "warmup must be a whole number of at least 0, got -1"),
        (nn.Linear(1, 1), {"max_depth": True}, "max_depth must be a whole number.*got True"),
        (nn.Linear(1, 1), {"acceptance": 1.0}, "between 0 and 1, got 1.0"),
        (nn.Linear(1, 1), {"prior": -1.0}, "must be positive"),
    ],
)
def test_what_makes_no_sense_is_refused(model: nn.Module, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        HMC(model, NOISE, **changes)


class Attends(nn.Module):
    """Attention between the entries of x, each of which is a token."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.attend = nn.Linear(1, 4), nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.embed(x.unsqueeze(-1))
        return self.head(self.attend(h, h, h, need_weights=False)[0].mean(1))


def test_attention_has_its_gradient_in_evaluation_mode_and_the_switch_is_given_back() -> None:
    torch.manual_seed(0)
    model, x, y = Attends().double().eval(), torch.randn(6, 3).double(), torch.randn(6, 1).double()
    net = Network(model, [name for name, _ in model.named_parameters()])
    prior = osc.priors.Isotropic(1.0).bind(net.space)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a mapping of each datum by itself would warn
        _, gradient = NegativeLogJoint(net, NOISE, prior, (x, y), 2)(net.mean.repeat(2, 1))
    assert torch.backends.mha.get_fastpath_enabled()
    (-NOISE.log_prob(model.train()(x), y).sum() - prior.log_prob(dict(model.named_parameters()))).backward()
    expected = torch.cat([p.grad.reshape(-1) for p in model.parameters() if p.grad is not None])
    torch.testing.assert_close(gradient, expected.repeat(2, 1))


class Recurrent(nn.GRU):
    """The last state of a layer that cannot be mapped."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x.unsqueeze(1))[0][:, -1]


class Branches(nn.Linear):
    """Looks at values."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) if self.weight.sum() > 0 else x


def test_bad_data_and_networks_are_refused_before_the_first_step() -> None:
    with pytest.raises(ValueError, match="holds nan"):
        run(HMC(network(), NOISE), (X, Y * float("nan")))
    with pytest.raises(ValueError, match="epochs=20 leaves no draw: the first 500 .* for example 1500"):
        osc.train(HMC(network(), NOISE), (X, Y), progress=False)
    with pytest.raises(ValueError, match="several chains at once: torch.func.vmap raised .*torch.where"):
        run(HMC(Branches(1, 1), NOISE, warmup=20, max_depth=4), (X.float(), Y.float()))
    with pytest.raises(ValueError, match="layer Recurrent '' cannot be vectorised over its weights"):
        run(HMC(Recurrent(1, 1, batch_first=True), NOISE, warmup=20, max_depth=4))
    with pytest.raises(ValueError, match="lr has no effect"):
        run(HMC(network(), NOISE, warmup=20, max_depth=4), lr=0.1)
    with pytest.raises(RuntimeError, match="no draw yet"):
        HMC(network(), NOISE).result()
    with pytest.raises(RuntimeError, match="has not seen data"):
        HMC(network(), NOISE).step()
