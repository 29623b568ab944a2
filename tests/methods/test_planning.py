"""Costs that are counted before the work, and defaults that take a way which ends and say so."""

import warnings

import pytest
import torch
from torch import nn

import osculate as osc
from osculate.methods.laplace import LARGEST
from tests.laws import assert_close

X, Y = torch.randn(30, 4), torch.randint(3, (30,))


def mlp(outputs: int = 3) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, outputs))


def test_costs_grow_with_what_is_computed() -> None:
    likelihood = osc.likelihoods.Categorical()
    costs = {s: osc.plan(mlp(), likelihood, (X, Y), structure=s) for s in osc.structures.REGISTRY}
    assert costs["full"].bytes > costs["diag"].bytes
    assert costs["ekfac"].passes == pytest.approx(2 * costs["kron"].passes)
    assert osc.plan(mlp(), likelihood, (X, Y), curvature="fisher").passes == pytest.approx(2 / 3)
    assert costs["kron"].passes == pytest.approx(4 / 3)
    text = str(costs["kron"])
    assert text.count("this call") == 1
    assert all(name in text for name in osc.structures.REGISTRY)


@pytest.mark.filterwarnings("error")  # a plan chooses nothing
def test_what_is_refused_is_said() -> None:
    found = osc.plan(nn.Linear(4, 6000), osc.likelihoods.Gaussian(), (X, torch.randn(30, 6000)), structure="full")
    assert "limit: 20,000" in found.fit.refusal
    assert "refused" in str(found)
    with pytest.raises(TypeError, match="a Subnetwork is chosen by the fit"):
        osc.plan(mlp(), osc.likelihoods.Categorical(), (X, Y), subset=osc.Subnetwork(0.5))


def test_defaults_are_exact_where_that_is_affordable() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        q = osc.laplace(mlp(), osc.likelihoods.Categorical(), (X, Y), refine=False)
        named = osc.laplace(
            mlp(), osc.likelihoods.Categorical(), (X, Y), structure="kron", curvature="ggn", refine=False
        )
        assert_close(osc.predict(q, X).probs, osc.predict(named, X).probs, 1e-6)
    assert q.fit.kind == "ggn"
    assert "Fisher" not in repr(q)


def test_defaults_end_with_very_many_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("osculate.curvature.engine.SHORT", 1.0)
    monkeypatch.setattr("osculate.curvature.engine.AFFORDABLE", 2)
    monkeypatch.setattr("osculate.predictive.predict.AFFORDABLE", 2, raising=False)
    with pytest.warns(UserWarning, match="curvature='fisher', with one sampled label"):
        q = osc.laplace(mlp(), osc.likelihoods.Categorical(), (X, Y))
    assert q.fit.kind == "fisher"
    assert "curvature='fisher'" in repr(q)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # an explicit choice is not replaced
        assert (
            osc.laplace(mlp(), osc.likelihoods.Categorical(), (X, Y), curvature="ggn", refine=False).fit.kind == "ggn"
        )


@pytest.mark.slow
def test_a_linear_decoder_of_very_many_outputs() -> None:
    decoder, targets = nn.Linear(5, 100_000), torch.randn(4, 100_000)
    with pytest.warns(UserWarning, match=f"more than {LARGEST:,} inputs or outputs"):
        q = osc.laplace(decoder, osc.likelihoods.Gaussian(), (torch.randn(4, 5), targets))
    found = [osc.predict(q, torch.ones(2, 5)) for _ in range(2)]
    assert isinstance(found[0], torch.distributions.Normal)
    assert torch.equal(found[0].variance, found[1].variance)
    exact = osc.functional_variance(q, torch.ones(2, 5), diagonal=True) + float(q.likelihood.scale) ** 2
    assert 0.8 < float((found[0].variance / exact).mean()) < 1.2


@pytest.mark.release
def test_tokens_of_a_large_vocabulary() -> None:
    model, tokens = osc.networks.GPT(2048, 32), torch.randint(2048, (4, 32))
    with pytest.warns(UserWarning, match="curvature='fisher'"):
        q = osc.laplace(model, osc.likelihoods.Categorical(), (tokens, tokens))
    with pytest.warns(UserWarning, match="16 draws of the function"):
        probs = osc.predict(q, tokens).probs
    assert_close(probs.sum(-1), torch.ones(4, 32), 1e-4)


@pytest.mark.parametrize(("dense_limit", "same"), [(1, "diag"), (1024, "block")])
def test_layers_without_factors_keep_their_diagonal_or_if_small_everything(dense_limit: int, same: str) -> None:
    data = X.double(), Y
    q, other = (
        osc.laplace(mlp().double(), osc.likelihoods.Categorical(), data, structure=structure, prior=1.0, refine=False)
        for structure in (osc.structures.Kron(dense_limit, largest=4), same)
    )
    assert_close(osc.functional_variance(q, X.double()), osc.functional_variance(other, X.double()), 1e-9)
    with pytest.raises(ValueError, match="positive largest"):
        osc.structures.Kron(largest=0)
