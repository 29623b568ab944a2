"""Levenberg–Marquardt: modes and fixed points in closed form, both forms of a step, resumption, and refusals."""

import csv
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.methods import LevenbergMarquardt
from osculate.methods.levenberg_marquardt import Balance
from osculate.structures import Dual, Full
from osculate.training import Training

X = torch.linspace(-1, 1, 25, dtype=torch.double)[:, None]
Y = torch.sin(4 * X + 1) + 0.2 * torch.randn(25, 1, dtype=torch.double, generator=torch.Generator().manual_seed(1))


def network(width: int = 4, outputs: int = 1) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(1, width), nn.Tanh(), nn.Linear(width, outputs)).double()


def run(method: LevenbergMarquardt, data: Any = (X, Y), epochs: int = 40, **settings: Any) -> Training:
    return osc.train(method, data, epochs=epochs, **{"progress": False, **settings})


def flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


# ---- what it reaches -------------------------------------------------------------------------------------------


def test_a_linear_model_reaches_its_closed_form(float64: None) -> None:
    x, model, scale, delta = torch.randn(40, 3), nn.Linear(3, 1, bias=False), 0.5, 2.0
    y = x @ torch.tensor([[1.0], [-2.0], [0.5]]) + 0.1 * torch.randn(40, 1)
    precision = x.T @ x / scale**2 + delta * torch.eye(3)
    done = run(LevenbergMarquardt(model, osc.likelihoods.Gaussian(scale), delta, evidence=False), (x, y))
    torch.testing.assert_close(model.weight.detach(), torch.linalg.solve(precision, x.T @ y / scale**2).T)
    torch.testing.assert_close(done.posterior.variance(), torch.linalg.inv(precision).diagonal())
    assert len(done.history) < 40


@pytest.mark.parametrize("prior", [osc.priors.Isotropic(1.0), osc.priors.Layerwise(1.0)])
def test_the_end_is_a_mode_and_a_fixed_point_of_the_evidence(prior: osc.priors.Prior) -> None:
    method = LevenbergMarquardt(network(2), osc.likelihoods.Gaussian(0.2), prior, every=1)
    done = run(method, epochs=300)
    q = done.posterior
    assert len(done.history) < 300
    model = done.model
    model.zero_grad()
    (len(X) * method.loss(X, Y, len(X))).backward()
    slope = torch.cat([p.grad.reshape(-1) for p in model.parameters()])  # type: ignore[union-attr]
    assert float(q.precision.solve(slope) @ slope) < 1e-4  # twice the nats that are left, to second order
    tuned = osc.maximise_evidence(q)
    torch.testing.assert_close(tuned.prior.precision.clamp(max=1e6), q.prior.precision, rtol=2e-2, atol=0.0)
    assert float(tuned.likelihood.scale) == pytest.approx(float(q.likelihood.scale), rel=1e-3)
    gamma = sum(osc.evidence.effective_parameters(q).values())
    assert done.history[-1]["gamma"] == pytest.approx(gamma)
    assert done.history[-1]["log_evidence"] == pytest.approx(osc.log_evidence(q).item())
    # near the fixed point of the noise alone: beta SSE = N C - gamma
    assert Balance.of(q).error == pytest.approx(len(X) - gamma, rel=1e-3)


def test_the_noise_scale_is_kept_where_only_the_prior_is_tuned() -> None:
    done = run(LevenbergMarquardt(network(2), osc.likelihoods.Gaussian(0.5), every=1, evidence="prior"), epochs=300)
    q = done.posterior
    assert len(done.history) < 300  # the fixed point of the precisions alone
    assert float(q.likelihood.scale) == pytest.approx(0.5)
    balance = Balance.of(q)
    torch.testing.assert_close(balance.weighted, balance.gamma, rtol=1e-3, atol=1e-3)


def test_the_objective_never_rises_where_nothing_is_tuned() -> None:
    y = (X.squeeze(1) > 0).long() + (X.squeeze(1) > 0.5).long()
    method = LevenbergMarquardt(network(outputs=3), osc.likelihoods.Categorical(), 0.1, evidence=False)
    losses = [row["train_loss"] for row in run(method, (X, y), epochs=12).history]
    assert all(after <= before for before, after in zip(losses, losses[1:], strict=False))
    assert losses[-1] < losses[0] - 0.1


@pytest.mark.parametrize("prior", [osc.priors.Layerwise(1.0), osc.priors.Diagonal(1.0)])
def test_steps_in_data_and_in_parameters_are_the_same(prior: osc.priors.Prior) -> None:
    method = LevenbergMarquardt(network(), osc.likelihoods.Gaussian(0.3), prior)
    method.begin((X, Y))
    q = method._here
    assert q.structure.structure.name == "full"
    wide = LevenbergMarquardt(network(20), osc.likelihoods.Gaussian(0.3), prior)
    wide.begin((X, Y))
    assert wide._here.structure.structure.name == "dual"
    slope = torch.randn(len(wide.theta), dtype=torch.double)
    pair = [
        wide._required.posterior(wide.theta, wide.prior, wide.likelihood, structure) for structure in (Full(), Dual())
    ]
    one, other = pair
    torch.testing.assert_close(one.precision.solve(slope), other.precision.solve(slope))
    torch.testing.assert_close(Balance.of(one).gamma, Balance.of(other).gamma)


def test_any_type_of_network_is_trained_in_double_precision(tmp_path: Path) -> None:
    twice = run(LevenbergMarquardt(network(), osc.likelihoods.Gaussian(1.0)), epochs=8)
    single = network().float()
    once = run(LevenbergMarquardt(single, osc.likelihoods.Gaussian(1.0)), (X.float(), Y.float()), epochs=8)
    assert flat(single).dtype == torch.float32
    torch.testing.assert_close(flat(single), flat(twice.model).float(), rtol=1e-3, atol=1e-4)
    assert once.history[-1]["train_loss"] == pytest.approx(twice.history[-1]["train_loss"], rel=1e-3)
    assert torch.equal(once.posterior.first_data[0], X.float())
    osc.save(once.posterior, tmp_path / "q.safetensors")
    again = osc.load(tmp_path / "q.safetensors", network().float())
    for q in (once.posterior, again):
        assert osc.predict(q, X.float()).stddev.dtype == torch.float32
        torch.testing.assert_close(
            osc.predict(q, X.float()).stddev, osc.predict(twice, X).stddev.float(), rtol=1e-3, atol=0
        )


def test_two_runs_are_the_same_and_leave_the_model_as_it_was() -> None:
    models = [network().eval() for _ in range(2)]
    before = torch.random.get_rng_state()
    for model in models:
        run(LevenbergMarquardt(model, osc.likelihoods.Gaussian(1.0)), epochs=6)
    assert torch.equal(before, torch.random.get_rng_state())
    assert torch.equal(*map(flat, models))
    assert not any(layer.training for layer in models[0].modules())
    assert all(p.grad is None and p.requires_grad for p in models[0].parameters())


def test_batches_do_not_matter() -> None:
    model, other = network(), network()
    run(LevenbergMarquardt(model, osc.likelihoods.Gaussian(1.0)), epochs=8)
    run(LevenbergMarquardt(other, osc.likelihoods.Gaussian(1.0)), [(X[:7], Y[:7]), (X[7:], Y[7:])], epochs=8)
    torch.testing.assert_close(flat(model), flat(other))


def test_a_frozen_layer_stays() -> None:
    model = network()
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    before = model[0].weight.clone()
    q = run(LevenbergMarquardt(model, osc.likelihoods.Gaussian(1.0)), epochs=5).posterior
    assert torch.equal(before, model[0].weight)
    assert q.network.space.names == ("2.weight", "2.bias")


def test_a_network_that_was_switched_off_is_announced() -> None:
    method = LevenbergMarquardt(network(), osc.likelihoods.Gaussian(3.0), 1.0)
    with pytest.warns(UserWarning, match="noise around a constant.*smaller noise scale"):
        run(method, epochs=60)


@pytest.mark.parametrize("scale", [1.0, pytest.param(0.01, marks=pytest.mark.slow)])
def test_a_network_that_became_a_constant_is_announced(scale: float) -> None:
    """From a noise scale of ten times what the targets vary by, and from one of a tenth of it."""
    torch.manual_seed(0)
    x = torch.linspace(-2, 2, 40)[:, None]
    y = 0.1 * (torch.sin(2 * x) + 0.1 * torch.randn(40, 1))
    model = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run(LevenbergMarquardt(model, osc.likelihoods.Gaussian(scale)), (x, y), epochs=60)
    warned = any("noise around a constant" in str(each.message) for each in caught)
    explained = 1 - float((model(x) - y).square().mean() / y.var())
    assert warned == (scale == 1.0)
    assert warned == (explained < 0.9)  # the noise is a hundredth of the variance


# ---- interruption ----------------------------------------------------------------------------------------------


def test_a_resumed_run_ends_where_the_whole_one_does(tmp_path: Path) -> None:
    whole, parts = network().float(), network().float()
    data, held_out = (X.float(), Y.float()), (X[:5].float(), Y[:5].float())
    first = run(LevenbergMarquardt(whole, osc.likelihoods.Gaussian(1.0)), data, 11, validation=held_out)
    run(LevenbergMarquardt(parts, osc.likelihoods.Gaussian(1.0)), data, 7, validation=held_out, folder=tmp_path)
    started = network().float()
    second = run(
        LevenbergMarquardt(started, osc.likelihoods.Gaussian(1.0)),
        data,
        11,
        validation=held_out,
        folder=tmp_path,
        resume=True,
    )
    assert torch.equal(flat(whole), flat(started))
    drop = {"seconds"}
    rows = [[{k: v for k, v in row.items() if k not in drop} for row in done.history] for done in (first, second)]
    assert rows[0] == rows[1]
    with (tmp_path / "training.csv").open() as file:
        assert [int(row["epoch"]) for row in csv.DictReader(file)] == list(range(1, 12))
    again = run(
        LevenbergMarquardt(network().float(), osc.likelihoods.Gaussian(1.0)), data, 11, folder=tmp_path, resume=True
    )
    assert len(again.history) == 11


def test_another_run_is_not_resumed(tmp_path: Path) -> None:
    run(LevenbergMarquardt(network(), osc.likelihoods.Gaussian(1.0)), epochs=2, folder=tmp_path)
    with pytest.raises(ValueError, match="num_data=25.*num_data=20"):
        run(
            LevenbergMarquardt(network(), osc.likelihoods.Gaussian(1.0)), (X[:20], Y[:20]), folder=tmp_path, resume=True
        )
    with pytest.raises(ValueError, match="every=3.*every=2"):
        run(LevenbergMarquardt(network(), osc.likelihoods.Gaussian(1.0), every=2), folder=tmp_path, resume=True)
    with pytest.raises(ValueError, match="belongs to another network"):
        run(LevenbergMarquardt(network(5), osc.likelihoods.Gaussian(1.0)), folder=tmp_path, resume=True)
    other = network()
    other[1] = nn.SiLU()
    with pytest.raises(ValueError, match=r"another network: '\(1\): Tanh\(\)' in place of '\(1\): SiLU\(\)'"):
        run(LevenbergMarquardt(other, osc.likelihoods.Gaussian(1.0)), folder=tmp_path, resume=True)
    with pytest.raises(ValueError, match="is of LevenbergMarquardt, not HMC"):
        osc.train(osc.methods.HMC(network(), osc.likelihoods.Gaussian(1.0)), (X, Y), folder=tmp_path, resume=True)


# ---- refusals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{"lr": 0.1}, {"batch_size": 5}, {"optimizer": "sgd"}])
def test_settings_of_batches_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(changes))} has no effect"):
        run(LevenbergMarquardt(network(), osc.likelihoods.Gaussian(1.0)), **changes)


@pytest.mark.parametrize(
    ("model", "changes", "words"),
    [
        (nn.Sequential(nn.Linear(1, 2), nn.Dropout(0.1)), {}, "dropout layer '1' is active"),
        (nn.Sequential(nn.Linear(1, 2), nn.BatchNorm1d(2)), {}, "batch normalisation '1'"),
        (nn.Linear(1, 1).requires_grad_(False), {}, "no trainable parameter"),
        (nn.Linear(1, 1), {"every": 0}, "every=0"),
        (nn.Linear(1, 1), {"evidence": "noise"}, "setting of evidence 'noise'"),
        (nn.Linear(1, 1), {"burn_in": -1}, "burn_in=-1"),
        (nn.Linear(1, 1), {"prior": -1.0}, "must be positive"),
    ],
)
def test_what_makes_no_sense_is_refused(model: nn.Module, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        LevenbergMarquardt(model, osc.likelihoods.Gaussian(1.0), **changes)


def test_data_and_sizes_are_checked_before_the_first_step() -> None:
    with pytest.raises(ValueError, match="holds nan"):
        run(LevenbergMarquardt(network(), osc.likelihoods.Gaussian(1.0)), (X, Y * float("nan")))
    with pytest.raises(ValueError, match="20,201 parameters, and accepts 20,000"):
        run(LevenbergMarquardt(nn.Linear(20_200, 1), osc.likelihoods.Gaussian(1.0)), (torch.zeros(2, 20_200), Y[:2]))
    with pytest.raises(RuntimeError, match="has not seen data"):
        LevenbergMarquardt(network(), osc.likelihoods.Gaussian(1.0)).result()
