"""The contract of every method in the registry: it is built by name, trains, resumes, predicts, and says its source."""

import re
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import osculate as osc
from osculate.methods import REGISTRY, FullBatch, Method
from osculate.posteriors import Posterior
from osculate.training import Training

EPOCHS = 4
#: Steps after which a run is interrupted: within the third epoch of methods that take batches.
STEPS = 11
LIKELIHOOD = osc.likelihoods.Categorical()
DATA = (
    torch.randn(60, 4, generator=torch.Generator().manual_seed(0)),
    torch.randint(3, (60,), generator=torch.Generator().manual_seed(1)),
)

every_method = pytest.mark.parametrize("kind", REGISTRY.values(), ids=REGISTRY)
pytestmark = pytest.mark.filterwarnings("ignore")  # of so short a training every method warns


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, 5), nn.Softplus(), nn.Dropout(0.1), nn.Linear(5, 3))


def build(kind: type[Method]) -> Method:
    return kind.build(network, LIKELIHOOD, **kind.defaults(EPOCHS, real_valued=False))


def run(method: Method, **changes: Any) -> Training:
    options = {"epochs": EPOCHS} if isinstance(method, FullBatch) else {"epochs": EPOCHS, "batch_size": 12}
    return osc.train(method, DATA, progress=False, device="cpu", **{**options, **changes})


@cache
def trained(kind: type[Method]) -> Training:
    """A training of each method, of which the tests share the posterior."""
    method = build(kind)
    modes = [module.training for module in method.model.modules()]
    done = run(method)
    assert [module.training for module in method.model.modules()] == modes, "in the mode in which it was given"
    return done


def predicted(q: Any) -> torch.Tensor:
    return osc.predict(q, DATA[0][:7], generator=torch.Generator().manual_seed(0)).probs


@every_method
def test_it_is_trained_and_its_posterior_predicts(kind: type[Method]) -> None:
    done = trained(kind)
    assert isinstance(done.posterior, Posterior)
    probabilities = predicted(done)
    assert probabilities.shape == (7, 3)
    torch.testing.assert_close(probabilities.sum(1), torch.ones(7))
    assert all(p.grad is None for p in done.model.parameters())
    with torch.no_grad():
        for p in done.model.parameters():
            p.add_(1.0)
    assert torch.equal(predicted(done), probabilities), "the posterior does not follow the module"


@every_method
def test_an_interrupted_run_ends_where_the_whole_one_does(
    kind: type[Method], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = predicted(trained(kind))
    name = "step" if issubclass(kind, FullBatch) else "loss"
    original, calls = getattr(kind, name), []

    def interrupted(self: Method, *args: Any) -> Any:
        calls.append(1)
        if len(calls) == (3 if issubclass(kind, FullBatch) else STEPS):
            raise KeyboardInterrupt
        return original(self, *args)

    with monkeypatch.context() as patch, suppress(KeyboardInterrupt):  # one step may be all that it takes
        patch.setattr(kind, name, interrupted)
        run(build(kind), folder=tmp_path)
    assert torch.equal(predicted(run(build(kind), folder=tmp_path, resume=True)), whole)


@every_method
def test_its_posterior_is_saved_and_loaded(kind: type[Method], tmp_path: Path) -> None:
    done = trained(kind)
    osc.save(done, tmp_path / "q.safetensors")
    again = osc.load(tmp_path / "q.safetensors", done.posterior.model)
    torch.testing.assert_close(predicted(again), predicted(done))


@every_method
def test_its_docstring_has_the_source_and_a_line_of_code(kind: type[Method]) -> None:
    text = kind.__doc__ or ""
    assert re.search(r"\[[a-z]+\d{4}", text), "a source, as in [miani2022, eq. 8]"
    assert ">>> " in text


@every_method
def test_settings_and_options_have_names_that_exist(kind: type[Method]) -> None:
    osc.training.Settings().changed(**kind.usual).changed(**kind.recommended)
    assert set(kind.refused) <= set(vars(osc.training.Settings()))
    assert set(kind.defaults(EPOCHS, real_valued=True)) <= set(kind.options)


def test_every_method_is_in_the_registry() -> None:
    exported = {kind for kind in vars(osc.methods).values() if isinstance(kind, type) and issubclass(kind, Method)}
    assert set(REGISTRY.values()) == exported - {Method, FullBatch}
