"""Online Laplace: gradients of the drawn network, averages apart from N, what is learned, and interruption."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.curvature import reference
from osculate.curvature.plan import make_plan
from osculate.methods import OnlineLaplace, OnlineUpdates
from osculate.structures import Curvature
from osculate.training import Training

GAUSSIAN = osc.likelihoods.Gaussian(0.5)


def autoencoder(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2), nn.Tanh(), nn.Linear(2, 6)).double()


def images(n: int = 8) -> Tensor:
    return torch.randn(n, 6, dtype=torch.double, generator=torch.Generator().manual_seed(1))


def run(method: OnlineLaplace, data: Any = None, epochs: int = 3, **settings: Any) -> Training:
    data = data if data is not None else (images(), images())
    return osc.train(method, data, epochs=epochs, **{"batch_size": 4, "progress": False, **settings})


def average(method: OnlineLaplace, num_data: int, x: Tensor) -> Curvature:
    """N Ḡ."""
    return method.running.of(num_data, make_plan(method.running.network, x[:2]))


def flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()])


# ---- the step ------------------------------------------------------------------------------------------------------


class Conv(nn.Module):
    """Convolutions both ways, repeated pixels, normalisation, and a skip connection."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.norm = nn.Conv2d(1, 4, 3, stride=2, padding=1), nn.GroupNorm(2, 4)
        self.up = nn.ConvTranspose2d(4, 1, 4, stride=2, padding=1)
        self.larger, self.smooth = nn.Upsample(scale_factor=2), nn.Conv2d(4, 1, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        small = torch.tanh(self.norm(self.down(x)))
        return self.up(small) + self.smooth(self.larger(small)) + 0.1 * x


@pytest.mark.parametrize("structure", ["diag", "approx_diag", "kron"])
@pytest.mark.parametrize(
    "settings", [OnlineUpdates(), OnlineUpdates(samples=3), OnlineUpdates(samples=4, antithetic=True)]
)
def test_gradients_are_those_of_the_networks_that_were_drawn(
    settings: OnlineUpdates, structure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    model, x = Conv().double(), torch.randn(5, 1, 6, 6, dtype=torch.double)
    method = OnlineLaplace(model, GAUSSIAN, 2.0, settings, structure=structure, temperature=0.01)
    seen: list[list[Tensor]] = []
    coloured = method.running.coloured
    monkeypatch.setattr(method.running, "coloured", lambda *args: seen.append(list(coloured(*args))) or seen[-1])
    loss = method.loss(x, x, 50)
    loss.backward()
    mean = {name: p.detach().requires_grad_() for name, p in model.named_parameters()}
    space, total = method.running.network.space, torch.zeros((), dtype=torch.double)
    drawn = [*seen[0], *(-each for each in seen[0])] if settings.antithetic else seen[0]
    for each in drawn:
        offset = space.unflatten(each)
        f = torch.func.functional_call(model, {name: p + offset[name] for name, p in mean.items()}, x)
        total = total - GAUSSIAN.log_prob(f, x).sum() / 5 / len(drawn)
    expected = total + 0.01 / 50 * sum(0.5 * 2.0 * p.square().sum() for p in mean.values())
    expected.backward()
    for name, p in model.named_parameters():
        torch.testing.assert_close(p.grad, mean[name].grad)


def test_one_forward_pass_for_gradient_and_curvature_is_as_good_as_two(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {}
    for shared in (True, False):
        torch.manual_seed(0)
        method = OnlineLaplace(Conv().double(), GAUSSIAN, temperature=0.01)
        assert method.running.shares_pass(method.model)
        if not shared:
            monkeypatch.setattr(method.running, "shares_pass", lambda model: False)
        run(method, (torch.ones(8, 1, 6, 6, dtype=torch.double).cumsum(3),) * 2)
        found[shared] = method.running.fisher.values, flat(method.model)
    for one, two in zip(found[True], found[False], strict=True):
        torch.testing.assert_close(one, two)


def test_a_network_with_dropout_has_its_curvature_without() -> None:
    model = nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.5), nn.Linear(4, 6)).double()
    method = OnlineLaplace(model, GAUSSIAN, temperature=0.01)
    assert not method.running.shares_pass(model)
    assert method.running.shares_pass(model.eval())
    run(method)
    assert bool((method.running.fisher.values > 0).all())


@pytest.mark.parametrize("structure", ["diag", "approx_diag", "mixed_diag", "kron"])
def test_the_noise_is_that_of_the_average_curvature(structure: str) -> None:
    """With memory 0 the average is the last batch, and N, the temperature and the prior come on top."""
    model, x = autoencoder(), images()
    settings = OnlineUpdates(memory=0.0, at="mean")
    method = OnlineLaplace(model, GAUSSIAN, 3.0, settings, structure=structure, temperature=0.1)
    method.loss(x, x, 800)
    expected = osc.laplace(model, GAUSSIAN, (x, x), structure=structure, prior=3.0, refine=False)
    curvature = average(method, 800, x)
    torch.testing.assert_close(curvature.dense(), 100 * expected.structure.dense())
    precision = 100 * expected.structure.dense() / 0.1 + 3.0 * torch.eye(len(flat(model)), dtype=torch.double)
    drawn = method.running.coloured(torch.eye(len(flat(model)), dtype=torch.double), method._factor, method.prior)
    torch.testing.assert_close(drawn.T @ drawn, precision.inverse(), rtol=1e-5, atol=1e-9)
    torch.testing.assert_close(method.running.variance(method._factor, method.prior), precision.inverse().diagonal())


def test_the_average_forgets_by_its_memory_and_is_corrected_for_its_start() -> None:
    model, x = autoencoder(), images()
    method = OnlineLaplace(model, GAUSSIAN, 1.0, OnlineUpdates(memory=0.9, at="mean"), structure="diag")
    batches = x[:4], x[4:6], x[6:]
    for batch in batches:
        method.loss(batch, batch, 8)
    each = [reference.ggn(model, GAUSSIAN, b, b).diagonal() / len(b) for b in (batches[0], *batches)]
    weights = torch.tensor([0.9**3, 0.9**2, 0.9, 1.0], dtype=torch.double)
    expected = 8 * (weights[:, None] * torch.stack(each)).sum(0) / weights.sum()
    torch.testing.assert_close(average(method, 8, x).dense().diagonal(), expected)


def test_a_curvature_every_few_steps_stays_in_between() -> None:
    model, x = autoencoder(), images()
    method = OnlineLaplace(model, GAUSSIAN, 1.0, OnlineUpdates(memory=0.5, every=3), structure="diag")
    found = []
    for _ in range(7):
        method.loss(x, x, 8)
        found.append(average(method, 8, x).dense().diagonal())
    changed = [not torch.equal(a, b) for a, b in zip(found, found[1:], strict=False)]
    assert changed == [False, False, True, False, False, True]


@pytest.mark.release
def test_at_a_minimum_the_average_of_estimates_from_gradients_is_the_curvature_and_stays_positive() -> None:
    """A quadratic objective: E ∇ ε / σ² is the diagonal of its Hessian."""
    torch.manual_seed(0)
    x = torch.randn(30, 3, dtype=torch.double)
    model = nn.Linear(3, 1, bias=False).double()
    method = OnlineLaplace(
        model, osc.likelihoods.Gaussian(1.0), 1.0, OnlineUpdates(memory=0.997, source="gradient"), structure="diag"
    )
    y = model(x).detach()  # at the minimum, where the estimate is least noisy
    for _ in range(1000):
        method.loss(x, y, 30).backward()
        assert bool((method.running.fisher.values > 0).all())
    expected = x.square().sum(0)
    torch.testing.assert_close(average(method, 30, x).dense().diagonal(), expected, rtol=0.15, atol=0)


@pytest.mark.release
def test_estimates_from_gradients_are_of_the_noise_that_is_learned() -> None:
    """The average is in units of the given noise: that of a smaller one is not counted twice."""
    torch.manual_seed(0)
    x = torch.randn(30, 3, dtype=torch.double)
    y = x @ torch.ones(3, 1, dtype=torch.double) + 0.1 * torch.randn(30, 1, dtype=torch.double)
    model = nn.Linear(3, 1, bias=False).double()
    model.weight.data.fill_(1.0)
    settings = OnlineUpdates(memory=0.996, source="gradient")
    method = OnlineLaplace(model, osc.likelihoods.Gaussian(1.0), 1.0, settings, "diag", learn="noise")
    for _ in range(1000):
        method.loss(x, y, 30).backward()
    assert float(method.likelihood.scale) == pytest.approx(0.1, rel=0.3)
    ratio = average(method, 30, x).dense().diagonal() / x.square().sum(0)
    assert bool((ratio < 4).all()), ratio
    assert bool((ratio > 0.5).all()), ratio


# ---- what it learns --------------------------------------------------------------------------------------------------


@pytest.mark.release
def test_noise_and_prior_come_to_those_of_the_evidence_where_the_posterior_is_exact() -> None:
    """Orthogonal inputs of a linear model: the diagonal is the whole posterior, and EM ends at the largest evidence."""
    torch.manual_seed(0)
    q, _ = torch.linalg.qr(torch.randn(60, 5, dtype=torch.double))
    x = q * 60**0.5
    y = x @ torch.randn(5, 1, dtype=torch.double) + 0.3 * torch.randn(60, 1, dtype=torch.double)
    model = nn.Linear(5, 1, bias=False).double()
    settings = OnlineUpdates(memory=0.95, samples=8, antithetic=True)
    method = OnlineLaplace(model, osc.likelihoods.Gaussian(1.0), 5.0, settings, "diag", learn=("noise", "prior"))
    done = run(method, (x, y), epochs=600, batch_size=60, lr=0.02)
    best = osc.maximise_evidence(
        osc.laplace(model, osc.likelihoods.Gaussian(0.3), (x, y), structure="full", prior=1.0, refine=False),
        tolerance=1e-6,
    )
    assert float(done.posterior.likelihood.scale) == pytest.approx(float(best.likelihood.scale), rel=0.1)
    assert float(done.posterior.prior.precision) == pytest.approx(float(best.prior.precision), rel=0.1)
    assert done.history[-1].keys() >= {"weight_deviation", "prior_precision", "noise_factor"}


@pytest.mark.parametrize("recompute", [True, False])
def test_the_result_has_the_curvature_that_was_asked_for(recompute: bool) -> None:
    model = autoencoder()
    settings = OnlineUpdates(recompute=recompute)
    method = OnlineLaplace(model, GAUSSIAN, 2.0, settings, "diag", temperature=0.02)
    q = run(method).posterior
    assert q.temperature == 0.02
    torch.testing.assert_close(q.mean, flat(model))
    again = osc.laplace(model, GAUSSIAN, (images(), images()), structure="diag", prior=2.0, refine=False)
    same = torch.allclose(q.structure.dense(), again.structure.dense())
    assert same == recompute
    torch.testing.assert_close(osc.log_evidence(q.replace(temperature=1.0, fit=again.fit)), osc.log_evidence(again))
    statistics = {name: again.fit.statistics[name] for name in again.fit.statistics}
    for name, value in q.fit.statistics.items():
        torch.testing.assert_close(value, statistics[name])


def test_the_published_settings_are_at_the_published_scale() -> None:
    method = OnlineLaplace.published(autoencoder(), osc.likelihoods.Gaussian(1.0))
    assert method.temperature == pytest.approx(1 / 500)
    assert (method.settings.memory, method.settings.recompute) == (0.999, False)


@pytest.mark.slow
@pytest.mark.parametrize(
    "likelihood",
    [osc.likelihoods.Categorical(), pytest.param(osc.likelihoods.Bernoulli(), marks=pytest.mark.release)],
)
def test_any_network_and_likelihood(likelihood: osc.likelihoods.Likelihood) -> None:
    torch.manual_seed(0)
    x = torch.randn(40, 3)
    y = (x[:, 0] > 0).long() if isinstance(likelihood, osc.likelihoods.Categorical) else (x[:, :2] > 0).float()
    model = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 2))
    done = run(OnlineLaplace(model, likelihood, 1.0, structure="kron"), (x, y), epochs=20, lr=0.04)
    accuracy = osc.tasks.calibration(done.posterior, (x, y), via="sampled").metrics()
    assert done.history[-1]["train_loss"] < done.history[0]["train_loss"]
    assert accuracy.get("accuracy", 1.0) > 0.8


def test_batch_normalisation_learns_its_statistics_and_the_result_uses_them() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 6)).double()
    done = run(OnlineLaplace(model, GAUSSIAN, 1.0, temperature=0.01), epochs=2)
    assert int(model[1].num_batches_tracked) == 4
    torch.testing.assert_close(done.posterior.model[1].running_mean, model[1].running_mean)


# ---- repetition and interruption -----------------------------------------------------------------------------------


@pytest.mark.parametrize("structure", ["approx_diag", "kron"])
def test_a_resumed_run_ends_where_the_whole_one_does(structure: str, tmp_path: Path) -> None:
    def method() -> OnlineLaplace:
        return OnlineLaplace(
            autoencoder(), GAUSSIAN, 1.0, structure=structure, temperature=0.01, learn=["noise", "prior"]
        )

    whole, part, rest = method(), method(), method()
    run(whole, epochs=4, schedule="constant")
    run(part, epochs=2, schedule="constant", folder=tmp_path)
    run(rest, epochs=4, schedule="constant", folder=tmp_path, resume=True)
    assert torch.equal(flat(whole.model), flat(rest.model))
    for name, value in whole.state_dict().items():
        assert torch.equal(value, rest.state_dict()[name]), name


def test_what_was_asked_for_may_not_change_in_a_resume(tmp_path: Path) -> None:
    run(OnlineLaplace(autoencoder(), GAUSSIAN, 1.0, temperature=0.01), folder=tmp_path, schedule="constant")
    others = {
        "temperature=": OnlineLaplace(autoencoder(), GAUSSIAN, 1.0, temperature=1.0),
        "likelihood=": OnlineLaplace(autoencoder(), osc.likelihoods.Gaussian(0.50001), 1.0, temperature=0.01),
        "prior=": OnlineLaplace(autoencoder(), GAUSSIAN, 1.0001, temperature=0.01),
        "settings=": OnlineLaplace(autoencoder(), GAUSSIAN, 1.0, OnlineUpdates(every=2), temperature=0.01),
        "learn=": OnlineLaplace(autoencoder(), GAUSSIAN, 1.0, temperature=0.01, learn="noise"),
    }
    for words, method in others.items():
        with pytest.raises(ValueError, match=f"was trained with {words}"):
            run(method, epochs=4, folder=tmp_path, schedule="constant", resume=True)


def test_a_plain_loop_trains_it_too() -> None:
    model, x = autoencoder(), images()
    method = OnlineLaplace(model, GAUSSIAN, 1.0, temperature=0.01)
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    losses = []
    for _ in range(60):
        loss = method.loss(x, x, len(x))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    method.after_training([(x, x)])
    assert method.result().num_data == 8


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"temperature": 0.0}, "temperature must be positive"),
        ({"structure": "full_", "temperature": 1.0}, "unknown structure"),
        ({"structure": "matrix_free"}, "no running average"),
        ({"structure": "ekfac"}, "no running average"),
        ({"structure": "dual"}, "no running average"),
        ({"structure": "low_rank"}, "no running average"),
        ({"structure": "kron", "settings": OnlineUpdates(source="gradient")}, "needs a diagonal"),
        ({"learn": ["nose"]}, "unknown learned quantity 'nose'"),
        ({"likelihood": osc.likelihoods.Categorical(), "learn": ["noise"]}, "has no noise scale"),
    ],
)
def test_what_makes_no_sense_is_refused(changes: dict[str, Any], words: str) -> None:
    arguments = {"model": autoencoder(), "likelihood": GAUSSIAN, **changes}
    with pytest.raises(ValueError, match=words):
        OnlineLaplace(**arguments)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"every": 0}, "every must be a whole number of at least 1"),
        ({"samples": 0}, "samples must be a whole number of at least 1"),
        ({"memory": 1.0}, "memory must be"),
        ({"at": "mode"}, "place of the curvature"),
        ({"source": "fisher"}, "source of the curvature"),
        ({"samples": 3, "antithetic": True}, "come in pairs"),
        ({"samples": 2, "source": "gradient"}, "needs one sample"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        OnlineUpdates(**changes)


def test_data_that_are_not_finite_are_refused_and_an_untrained_method_has_no_result() -> None:
    method = OnlineLaplace(autoencoder(), GAUSSIAN)
    with pytest.raises(RuntimeError, match="has not been trained"):
        method.result()
    x = images()
    x[0, 0] = torch.nan
    with pytest.raises(ValueError, match="nan"):
        run(method, (x, x))
