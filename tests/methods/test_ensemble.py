"""A deep ensemble: each member is trained as if it were alone."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import osculate as osc
from osculate.methods import MAP, DeepEnsemble
from osculate.posteriors import Ensemble
from tests.laws import assert_close

X, Y = torch.randn(50, 4, generator=torch.Generator().manual_seed(1)), torch.arange(50) % 3
HELD_OUT = (X[:20] + 0.1, Y[:20])
CLASSES = osc.likelihoods.Categorical()


def networks(count: int = 3, p: float = 0.0) -> list[nn.Module]:
    torch.manual_seed(3)
    return [nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Dropout(p), nn.Linear(6, 3)) for _ in range(count)]


def run(method: Any, **settings: Any) -> Any:
    settings = {"epochs": 4, "batch_size": 16, "lr": 0.01, **settings}
    return osc.train(method, (X, Y), progress=False, device="cpu", **settings)


def test_the_loss_is_the_sum_of_the_members_losses() -> None:
    models, prior = networks(), osc.priors.Layerwise(2.0)
    each = [MAP(model, CLASSES, prior).loss(X, Y, 200) for model in models]
    torch.testing.assert_close(DeepEnsemble(models, CLASSES, prior).loss(X, Y, 200), torch.stack(each).sum())


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_each_member_ends_where_it_would_have_ended_alone(optimizer: str) -> None:
    done = run(DeepEnsemble(networks(), CLASSES), optimizer=optimizer)
    assert isinstance(done.posterior, Ensemble)
    for member, model in zip(done.posterior.members, networks(), strict=True):
        assert_close(member.mean, run(MAP(model, CLASSES), optimizer=optimizer).posterior.network.mean, 1e-5)


def test_the_validation_nll_is_that_of_the_mixture() -> None:
    done = run(DeepEnsemble(networks(), CLASSES), validation=HELD_OUT)
    predictive = osc.predict(done, HELD_OUT[0])
    assert done.history[-1]["validation_nll"] == pytest.approx(
        -float(predictive.log_prob(HELD_OUT[1]).mean()), rel=1e-5
    )


def test_it_stops_early_and_resumes(tmp_path: Path) -> None:
    whole = run(DeepEnsemble(networks(p=0.2), CLASSES), schedule="constant")
    run(DeepEnsemble(networks(p=0.2), CLASSES), schedule="constant", epochs=2, folder=tmp_path)
    again = run(DeepEnsemble(networks(p=0.2), CLASSES), schedule="constant", folder=tmp_path, resume=True)
    for one, other in zip(whole.posterior.members, again.posterior.members, strict=True):
        assert torch.equal(one.mean, other.mean)
    stopped = run(
        DeepEnsemble(networks(), CLASSES), epochs=60, lr=0.5, schedule="constant", validation=HELD_OUT, patience=2
    )
    assert len(stopped.history) < 60


def test_one_network_is_no_list_of_them() -> None:
    one = networks(1)[0]
    for make in (DeepEnsemble, osc.methods.RandomizedPriors, osc.posteriors.Ensemble):
        with pytest.raises(TypeError, match=rf"{make.__name__} takes a list of networks, got one of type Seq"):
            make(one, CLASSES)
    assert len(DeepEnsemble(nn.ModuleList(networks(2)), CLASSES).model) == 2


def test_members_that_would_not_differ_are_refused() -> None:
    one, two = networks(2)
    with pytest.raises(ValueError, match="members 0 and 1 of the ensemble have equal weights"):
        DeepEnsemble([one, one], CLASSES)
    two[0].weight = one[0].weight
    with pytest.raises(ValueError, match="members 0 and 1 of the ensemble share the parameter '0.weight'"):
        DeepEnsemble([one, two], CLASSES)
    with pytest.raises(ValueError, match="at least two members"):
        DeepEnsemble(networks(1), CLASSES)
