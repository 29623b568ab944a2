"""Online marginal likelihood: its objective, its updates, what it keeps, and a resume that changes nothing."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.evidence import effective_parameters, log_evidence, maximise_evidence
from osculate.methods import EvidenceUpdates, MarginalLikelihood
from osculate.methods.map import MAP
from osculate.training import Training, train
from tests.errors import says
from tests.laws import assert_close

GENERATOR = torch.Generator().manual_seed(3)
X = torch.randn(60, 2, generator=GENERATOR)
Y = torch.sin(2 * X[:, :1]) + 0.1 * torch.randn(60, 1, generator=GENERATOR)
LABELS = (X.sum(1) > 0).long()


def network(outputs: int = 1, dropout: float = 0.0) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Dropout(dropout), nn.Linear(8, outputs))


def run(method: MarginalLikelihood, data: Any = (X, Y), **settings: Any) -> Training:
    return train(method, data, **{"epochs": 4, "batch_size": 20, "lr": 1e-2, "progress": False, **settings})


def regression(**changes: Any) -> MarginalLikelihood:
    return MarginalLikelihood(network(), osc.likelihoods.Gaussian(1.0), **changes)


# ---- the objective -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [1.0, 4.0])
def test_the_loss_is_the_tempered_negative_log_joint_per_datum_at_the_present_precisions(temperature: float) -> None:
    method = regression(temperature=temperature)
    method.precision.copy_(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    method.noise.fill_(0.5)
    f = method.model(X)
    fit = torch.distributions.Normal(f, 0.5).log_prob(Y).sum() / temperature
    prior = sum(
        torch.distributions.Normal(0.0, delta**-0.5).log_prob(p).sum()
        for delta, p in zip([1.0, 2.0, 3.0, 4.0], method.model.parameters(), strict=True)
    )
    torch.testing.assert_close(method.loss(X, Y, 60), -(fit + prior) / 60)


def test_several_outputs_are_summed_and_the_noise_is_that_of_each_of_them() -> None:
    """The error of a linear model in three outputs with noise 0.3: a mean over outputs would miss it by √3."""
    x = torch.randn(200, 2)
    y = x @ torch.randn(2, 3) + 0.3 * torch.randn(200, 3)
    method = MarginalLikelihood(nn.Linear(2, 3), osc.likelihoods.Gaussian(1.0), settings=EvidenceUpdates(every=10))
    done = run(method, (x, y), epochs=30, lr=0.2, batch_size=100)
    assert float(done.posterior.likelihood.scale) == pytest.approx(0.3, rel=0.06)


def test_until_its_first_update_its_steps_are_those_of_map() -> None:
    map_model, model, prior = network(), network(), osc.priors.Layerwise(2.0)
    train(MAP(map_model, osc.likelihoods.Gaussian(), prior), (X, Y), epochs=3, progress=False)
    method = MarginalLikelihood(model, osc.likelihoods.Gaussian(), prior, EvidenceUpdates(burn_in=2))
    train(method, (X, Y), epochs=3, progress=False)
    for p, expected in zip(model.parameters(), map_model.parameters(), strict=True):
        assert torch.equal(p, expected)


# ---- when and how it updates -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("burn_in", "every", "due"), [(0, 1, [1, 2, 3, 4, 5, 6]), (0, 3, [3, 6]), (2, 1, [3, 4, 5, 6]), (2, 3, [5])]
)
def test_updates_follow_the_burn_in_by_whole_periods(burn_in: int, every: int, due: list[int]) -> None:
    done = run(regression(settings=EvidenceUpdates(burn_in=burn_in, every=every)), epochs=6)
    assert [row["epoch"] for row in done.history if "log_evidence" in row] == due


def test_precisions_stay_during_the_burn_in() -> None:
    method = regression(settings=EvidenceUpdates(burn_in=2))
    method.before_training([(X, Y)])
    assert method.end_epoch(2, 9, [(X, Y)]) == {}
    assert torch.equal(method.precision, torch.ones(4))
    method.end_epoch(3, 9, [(X, Y)])
    assert not torch.isclose(method.precision, torch.ones(4)).any()


def test_without_burn_in_the_initial_precisions_are_forgotten_before_the_first_epoch() -> None:
    found = []
    for initial in (1e-4, 1.0, 1e4):
        method = regression(prior=osc.priors.Layerwise(initial))
        method.before_training([(X, Y)])
        found.append(torch.cat([method.precision.log(), method.noise.log().reshape(1)]))
    torch.testing.assert_close(found[0], found[1], atol=0.01, rtol=0)
    torch.testing.assert_close(found[2], found[1], atol=0.01, rtol=0)


def test_the_fixed_point_is_that_of_the_library_at_the_present_weights() -> None:
    method = regression()
    q = osc.laplace(method.model, osc.likelihoods.Gaussian(1.0), (X, Y), prior=osc.priors.Layerwise(1.0), refine=False)
    expected = maximise_evidence(q)
    row = method.end_epoch(1, 4, [(X, Y)])
    torch.testing.assert_close(method.precision, expected.prior.precision, rtol=1e-4, atol=0)
    assert float(method.noise) == pytest.approx(float(expected.likelihood.scale), rel=1e-4)
    assert row["noise_factor"] == float(method.noise)
    assert row["log_evidence"] == pytest.approx(float(log_evidence(expected)) / 60, rel=1e-4)
    assert row["effective_parameters"] == pytest.approx(sum(effective_parameters(expected).values()), rel=1e-3)
    assert [name for name in row if name.startswith("precision")] == [
        "precision 0.weight",
        "precision 0.bias",
        "precision 3.weight",
        "precision 3.bias",
    ]
    assert [row[name] for name in row if name.startswith("precision")] == method.precision.tolist()


@pytest.mark.slow
def test_gradient_steps_climb_to_the_same_maximum() -> None:
    exact, climbed = regression(), regression(settings=EvidenceUpdates("gradient", steps=150, lr=0.1))
    for method in (exact, climbed):
        method.end_epoch(1, 4, [(X, Y)])
    torch.testing.assert_close(climbed.precision.log(), exact.precision.log(), atol=0.05, rtol=0)
    torch.testing.assert_close(climbed.noise.log(), exact.noise.log(), atol=0.01, rtol=0)


@pytest.mark.parametrize("update", ["fixed_point", "gradient"])
def test_noise_that_is_given_is_not_learned(update: str) -> None:
    method = regression(settings=EvidenceUpdates(update, steps=5, noise=False))
    done = run(method, epochs=2)
    assert float(done.posterior.likelihood.scale) == 1.0
    assert "noise_factor" not in done.history[-1]
    assert not torch.equal(method.precision, torch.ones(4))


@pytest.mark.parametrize(
    ("prior", "names"),
    [
        (2.0, ["precision all parameters"]),
        (osc.priors.Isotropic(2.0), ["precision all parameters"]),
        (osc.priors.Grouped({"in": ["0"], "out": ["3"]}, 2.0), ["precision in", "precision out"]),
    ],
)
def test_priors_with_fewer_precisions_are_learned_too(prior: Any, names: list[str]) -> None:
    done = run(regression(prior=prior), epochs=2)
    assert [name for name in done.history[-1] if name.startswith("precision")] == names
    q = done.posterior
    again = maximise_evidence(q)
    torch.testing.assert_close(q.prior.precision.log(), again.prior.precision.log(), atol=0.01, rtol=0)


def test_a_precision_for_each_parameter_is_learned_without_a_column_for_each() -> None:
    done = run(regression(prior=osc.priors.Diagonal(1.0), structure="diag"), epochs=2)
    assert not [name for name in done.history[-1] if name.startswith("precision")]
    assert done.posterior.prior.precision.shape == (33,)


def test_parameters_that_are_all_zero_keep_their_precision_and_those_that_act_through_them_alone_too() -> None:
    method = regression(prior=osc.priors.Layerwise(3.0))
    nn.init.zeros_(method.model[3].bias)
    nn.init.zeros_(method.model[3].weight)
    method.before_training([(X, Y)])
    assert method.precision.tolist() == pytest.approx([3.0] * 4)


@pytest.mark.slow
def test_a_layer_that_the_evidence_would_remove_can_come_back() -> None:
    """Weights of 1e-6 before the last layer: their precision has no finite maximum, and training needs them."""
    method = regression(settings=EvidenceUpdates(every=5, noise=False))
    for parameter in method.model[3].parameters():
        parameter.data.fill_(1e-6)
    method.before_training([(X, Y)])
    assert method.precision[2:].tolist() == [600.0, 600.0]
    done = run(method, epochs=40, lr=0.05)
    assert done.history[-1]["precision 3.weight"] < 100
    assert done.history[-1]["effective_parameters"] > 3


def test_a_temperature_counts_the_data_less() -> None:
    """At temperature 2 and each datum twice, the same precisions as with each datum once."""
    twice = regression(temperature=2.0)
    twice.end_epoch(1, 1, [(X, Y), (X, Y)])
    once = regression()
    once.end_epoch(1, 1, [(X, Y)])
    torch.testing.assert_close(twice.precision, once.precision, rtol=1e-4, atol=0)
    torch.testing.assert_close(twice.noise, once.noise, rtol=1e-4, atol=0)


# ---- what it keeps ---------------------------------------------------------------------------------------------------


def test_the_result_is_fitted_at_the_epoch_of_the_largest_evidence() -> None:
    method = regression()
    done = run(method, epochs=12, lr=0.3, schedule="constant")
    evidences = {row["epoch"]: row["log_evidence"] for row in done.history}
    best = max(evidences, key=evidences.__getitem__)
    assert best < 12, "the course must go down again, or this test shows nothing"
    assert int(method.kept_epoch) == best
    q = done.posterior
    assert float(log_evidence(q)) / 60 == pytest.approx(evidences[best], rel=1e-5)
    assert math.log(float(q.likelihood.scale)) == pytest.approx(math.log(done.history[best - 1]["noise_factor"]))
    assert not torch.equal(q.network.module[0].weight, method.model[0].weight)
    assert q.network.space.names == ("0.weight", "0.bias", "3.weight", "3.bias")


def test_frozen_parameters_stay_out_of_prior_and_posterior() -> None:
    model = network()
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    done = run(MarginalLikelihood(model, osc.likelihoods.Gaussian()), epochs=2)
    assert done.posterior.network.space.names == ("3.weight", "3.bias")
    assert torch.equal(model[0].weight, before)
    assert not model[0].weight.requires_grad
    assert model[3].weight.requires_grad


def test_curvature_is_taken_in_evaluation_mode_and_training_goes_on_in_training_mode() -> None:
    model = nn.Sequential(nn.Linear(2, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 2))
    modes: list[bool] = []

    class Watched(MarginalLikelihood):
        def loss(self, x: Tensor, y: Tensor, num_data: int) -> Tensor:
            modes.append(all(layer.training for layer in self.model.modules()))
            return super().loss(x, y, num_data)

    method = Watched(model, osc.likelihoods.Categorical(), structure="diag")
    model.train()
    done = run(method, (X, LABELS), epochs=3)
    assert all(modes)
    assert model.training
    kept = int(method.kept_epoch)
    assert int(done.posterior.model[1].num_batches_tracked) == 3 * kept


@pytest.mark.parametrize("curvature", ["ggn", pytest.param("fisher", marks=pytest.mark.slow)])
@pytest.mark.parametrize("update", ["fixed_point", pytest.param("gradient", marks=pytest.mark.slow)])
def test_an_interrupted_run_resumes_to_the_same_posterior(tmp_path: Path, curvature: str, update: str) -> None:
    class Breaks(MarginalLikelihood):
        left = 8

        def loss(self, x: Tensor, y: Tensor, num_data: int) -> Tensor:
            self.left -= 1
            if self.left < 0:
                raise RuntimeError("power cut")
            return super().loss(x, y, num_data)

    def make(kind: type[MarginalLikelihood] = MarginalLikelihood) -> MarginalLikelihood:
        settings = EvidenceUpdates(update, steps=5)
        return kind(network(dropout=0.2), osc.likelihoods.Gaussian(), settings=settings, curvature=curvature)

    whole = run(make())
    with pytest.raises(RuntimeError, match="power cut"):
        run(make(Breaks), folder=tmp_path)  # three batches an epoch: in the third
    resumed, again = run(make(), folder=tmp_path, resume=True), run(make(), folder=tmp_path, resume=True)
    for other in (resumed, again):
        q, r = whole.posterior, other.posterior
        assert torch.equal(q.mean, r.mean)
        assert torch.equal(q.prior.precision, r.prior.precision)
        assert float(q.likelihood.scale) == float(r.likelihood.scale)
        assert torch.equal(q.variance(), r.variance())
        assert all(torch.equal(a, b) for a, b in zip(whole.model.parameters(), other.model.parameters(), strict=True))
        rows = [{k: v for k, v in row.items() if k != "seconds"} for row in other.history]
        assert rows == [{k: v for k, v in row.items() if k != "seconds"} for row in whole.history]


def test_random_numbers_of_training_do_not_depend_on_the_updates() -> None:
    seldom = run(regression(settings=EvidenceUpdates(burn_in=2)), epochs=3)
    assert "log_evidence" not in seldom.history[1]
    often = run(regression(curvature="fisher", settings=EvidenceUpdates(burn_in=2)), epochs=3)
    assert [row["train_loss"] for row in seldom.history] == [row["train_loss"] for row in often.history]


def test_the_posterior_goes_into_prediction_tuning_and_files(tmp_path: Path) -> None:
    model = network(outputs=2)
    done = run(MarginalLikelihood(model, osc.likelihoods.Categorical()), (X, LABELS), epochs=3)
    probs = osc.predict(done, X).probs
    assert probs.shape == (60, 2)
    osc.save(done.posterior, tmp_path / "q.safetensors")
    assert_close(osc.predict(osc.load(tmp_path / "q.safetensors", network(outputs=2)), X).probs, probs, 1e-5)
    assert "noise_factor" not in done.history[-1]


# ---- what it learns --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("initial", [1e-4, 1e4])
def test_a_linear_model_reaches_the_maximum_of_its_exact_evidence(initial: float) -> None:
    y = X @ torch.tensor([[1.0], [-2.0]]) + 0.5 + 0.3 * torch.randn(60, 1)
    prior, settings = osc.priors.Layerwise(initial), EvidenceUpdates(every=10)
    method = MarginalLikelihood(nn.Linear(2, 1), osc.likelihoods.Gaussian(1.0), prior, settings)
    q = run(method, (X, y), epochs=80, batch_size=60, lr=0.2).posterior
    logs = torch.cat([q.prior.precision.log(), q.likelihood.scale.log().reshape(1)]).double().requires_grad_()
    jacobians = X.double(), torch.ones(60, 1, dtype=torch.double)  # of weight and bias
    covariance = sum(j @ j.T / delta.exp() for j, delta in zip(jacobians, logs, strict=False))
    covariance = covariance + (2 * logs[-1]).exp() * torch.eye(60)
    marginal = torch.distributions.MultivariateNormal(torch.zeros(60).double(), covariance)
    evidence = marginal.log_prob(y[:, 0].double())
    assert log_evidence(q).item() == pytest.approx(evidence.item(), abs=1e-2)
    assert float(torch.autograd.grad(evidence, logs)[0].abs().max()) < 0.02


# ---- refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: EvidenceUpdates("fixpoint"), ["'fixpoint'", "'fixed_point'", "'gradient'"]),
        (lambda: EvidenceUpdates(burn_in=-1), ["burn_in", "-1"]),
        (lambda: EvidenceUpdates(every=0), ["every", "0"]),
        (lambda: EvidenceUpdates(steps=0), ["steps", "0"]),
        (lambda: EvidenceUpdates(lr=math.nan), ["lr", "nan"]),
        (lambda: regression(temperature=0.0), ["temperature", "0.0"]),
        (lambda: regression(prior=-1.0), ["precision", "-1"]),
        (lambda: regression(prior=osc.priors.Layerwise({"0.weight": 1.0})), ["0.bias"]),
        (lambda: regression(structure="kronn"), ["'kronn'", "'kron'"]),
        (lambda: regression(curvature="ggnn"), ["'ggnn'", "'ggn'"]),
    ],
)
def test_what_cannot_work_is_refused(make: Any, words: list[str]) -> None:
    with pytest.raises(ValueError, match=says(*words)):
        make()


def test_a_training_without_any_update_is_refused_after_its_first_epoch() -> None:
    method = regression(settings=EvidenceUpdates(burn_in=3, every=2))
    with pytest.raises(ValueError, match=says("4 epochs", "burn_in=3", "every=2", "epoch 5")):
        run(method)


def test_a_training_that_stops_before_its_first_update_is_refused() -> None:
    method = regression(settings=EvidenceUpdates(burn_in=15))
    with pytest.raises(ValueError, match=says("this training", "epoch 16")):
        run(method, epochs=20, validation=(X, -Y), patience=1, lr=0.1, schedule="constant")


def test_a_method_that_was_not_trained_has_no_result() -> None:
    with pytest.raises(RuntimeError, match=r"osc\.train"):
        regression().result()


def test_a_network_that_has_become_a_constant_is_reported() -> None:
    method = regression(prior=osc.priors.Layerwise(1e4), settings=EvidenceUpdates(burn_in=40))
    with pytest.warns(UserWarning, match="has become a constant"):
        run(method, epochs=41, lr=0.03)
