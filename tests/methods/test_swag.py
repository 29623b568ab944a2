"""SWAG: its Gaussian is that of the snapshots that it says it takes."""

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.methods import MAP, SWAG
from osculate.posteriors import Snapshots
from tests.laws import assert_close

X, Y = torch.randn(50, 4, generator=torch.Generator().manual_seed(1)), torch.arange(50) % 3
CLASSES = osc.likelihoods.Categorical()


def network() -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))


def run(method: Any, **settings: Any) -> Any:
    settings = {"epochs": 9, "batch_size": 16, "lr": 0.05, "optimizer": "sgd", "schedule": "constant", **settings}
    return osc.train(method, (X, Y), progress=False, device="cpu", **settings)


class Watched(SWAG):
    """Notes the weights at every epoch's end."""

    def end_epoch(self, epoch: int, epochs: int, data: Any) -> Any:
        seen.append(self._theta().clone())
        return super().end_epoch(epoch, epochs, data)


seen: list[Tensor] = []


@pytest.mark.parametrize(
    ("settings", "taken"),
    [
        ({"burn_in": 0.5}, [4, 5, 6, 7, 8]),  # after four of nine epochs
        ({"burn_in": 0.0, "every": 3}, [2, 5, 8]),
        ({"burn_in": 0.4, "every": 2, "rank": 2}, [4, 6, 8]),
        ({"burn_in": 0.7, "rank": 0}, [6, 7, 8]),
        ({"burn_in": 0.0, "rank": 4}, list(range(9))),
    ],
)
def test_mean_variance_and_deviations_are_those_of_the_snapshots(settings: dict[str, Any], taken: list[int]) -> None:
    seen.clear()
    done = run(Watched(network(), CLASSES, **settings))
    theta = torch.stack([seen[n] for n in taken]).double()
    q = done.posterior
    assert isinstance(q, Snapshots)
    assert_close(q.mean, theta.mean(0), 1e-6)
    assert_close(q.diagonal, theta.var(0, correction=0), 1e-4)
    means = theta.cumsum(0) / torch.arange(1, len(theta) + 1).unsqueeze(1)
    kept = min(settings.get("rank", 20), len(taken))
    expected = (theta - means)[len(taken) - kept :]  # in whatever order they are kept
    assert_close(q.deviations.T @ q.deviations, expected.T @ expected, 1e-4)
    assert len(q.deviations) == kept
    assert [row["snapshots"] for row in done.history] == [sum(n <= epoch for n in taken) for epoch in range(9)]


def test_training_is_that_of_map() -> None:
    one, other = run(SWAG(network(), CLASSES)), run(MAP(network(), CLASSES))
    for mine, theirs in zip(one.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_an_interrupted_run_resumes_to_the_same_posterior(tmp_path: Path) -> None:
    class Breaks(SWAG):
        def end_epoch(self, epoch: int, epochs: int, data: Any) -> Any:
            if epoch == 7:
                raise KeyboardInterrupt
            return super().end_epoch(epoch, epochs, data)

    whole = run(SWAG(network(), CLASSES, rank=3)).posterior
    with pytest.raises(KeyboardInterrupt):
        run(Breaks(network(), CLASSES, rank=3), folder=tmp_path)
    again = run(SWAG(network(), CLASSES, rank=3), folder=tmp_path, resume=True).posterior
    for name in ("mean", "diagonal", "deviations"):
        assert torch.equal(getattr(whole, name), getattr(again, name))


def test_a_longer_run_does_not_go_on_with_the_snapshots_of_a_shorter_one(tmp_path: Path) -> None:
    run(SWAG(network(), CLASSES), epochs=4, folder=tmp_path)
    with pytest.raises(ValueError, match="belong to a run of 4 epochs"):
        run(SWAG(network(), CLASSES), epochs=8, folder=tmp_path, resume=True)


def test_frozen_parameters_stay_and_those_that_never_move_have_the_least_variance() -> None:
    model = network()
    model[0].requires_grad_(False)
    model[2].bias.register_hook(lambda gradient: torch.zeros_like(gradient))
    before = model[0].weight.clone()
    q = run(SWAG(model, CLASSES), optimizer="sgd").posterior
    assert q.mean.shape == (6 * 3 + 3,)
    assert torch.equal(q.model[0].weight, before)
    assert torch.equal(q.diagonal[-3:], torch.full((3,), 1e-30))
    assert bool((q.diagonal[:-3] > 1e-12).all())
    assert osc.predict(q, X, samples=5).probs.isfinite().all()


def test_batch_normalisation_gives_variances_and_no_predictions() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Linear(6, 3))
    with pytest.warns(UserWarning, match="batch normalisation '1'.*variances of the weights will be right"):
        method = SWAG(model, CLASSES)
    q = run(method).posterior
    assert bool((q.variance()[:24] > 1e-20).all())
    with pytest.raises(ValueError, match="batch normalisation '1'"):
        osc.predict(q, X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SWAG(nn.Sequential(nn.Linear(4, 6), nn.LayerNorm(6)), CLASSES)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"rank": 1}, "rank must be 0 .* got 1"),
        ({"rank": -2}, "rank"),
        ({"burn_in": 1.0}, "burn_in is a share .* got 1.0"),
        ({"every": 0}, "every must be .* got 0"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        SWAG(network(), CLASSES, **settings)


def test_too_few_snapshots_are_refused_before_training() -> None:
    seen.clear()
    with pytest.raises(ValueError, match="epochs=9 gives 1 snapshot, and a variance needs two"):
        run(Watched(network(), CLASSES, burn_in=0.9), epochs=9)
    assert not seen
    with pytest.raises(ValueError, match="SWAG has 0 snapshots, and a variance needs two: train for more epochs"):
        SWAG(network(), CLASSES).result()


@pytest.mark.parametrize("epochs", [6, 60])  # put back after the end, and ended before the first snapshot
def test_early_stopping_before_the_second_snapshot_is_named(epochs: int) -> None:
    worse = X[:20], (Y[:20] + 1) % 3
    with pytest.raises(ValueError, match=rf"SWAG has [01] snapshots?.*early stopping.*of {epochs}.*leave patience out"):
        run(SWAG(network(), CLASSES), epochs=epochs, patience=5, validation=worse, lr=0.5)


def test_snapshots_of_shrinking_steps_are_told_once() -> None:
    def warned(**settings: Any) -> list[str]:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            run(SWAG(network(), CLASSES), epochs=6, **settings)
        return [str(each.message) for each in found if "snapshots" in str(each.message)]

    (told,) = warned(schedule="cosine", optimizer="adam")
    assert 'schedule="constant"' in told
    assert len(warned(schedule="steps")) == 1
    assert not warned()


def test_a_network_in_half_precision_predicts() -> None:
    method = SWAG(network().bfloat16(), CLASSES)
    q = osc.train(method, (X.bfloat16(), Y), epochs=4, lr=0.05, schedule="constant", progress=False).posterior
    assert q.diagonal.dtype == torch.float32
    p = osc.predict(q, X.bfloat16(), samples=5).probs
    assert_close(p.sum(-1), torch.ones(len(X)), 1e-2)
