"""Draws by conjugate gradients in the space of the data."""

import pytest
import torch

import osculate as osc
from osculate.evidence import pathwise, pathwise_draws
from tests.errors import says


@pytest.fixture(autouse=True)
def _many_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pathwise, "AT_ONCE", 1000)


@pytest.mark.parametrize("structure", ["kron", "dual", "full"])
@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_draws_have_the_covariance_of_the_linear_model(structure: str, temperature: float) -> None:
    """That of ``full``, whatever the structure."""
    torch.manual_seed(0)
    x, y = torch.randn(15, 3).double(), torch.randn(15, 2).double()
    model = torch.nn.Linear(3, 2).double()
    likelihood = osc.likelihoods.Gaussian(torch.tensor([0.3, 0.5]).double())
    fits = {
        name: osc.laplace(model, likelihood, (x, y), structure=name, prior=2.0, refine=False).replace(
            temperature=temperature
        )
        for name in {structure, "full"}
    }
    draws = torch.cat(list(pathwise_draws(fits[structure], 4000, torch.Generator().manual_seed(0))))
    wanted = fits["full"].precision.solve(torch.eye(8, dtype=torch.double))
    assert float((draws.T @ draws / len(draws) - wanted).abs().max()) < 0.1 * float(wanted.abs().max())


def test_other_likelihoods_are_refused() -> None:
    x, y = torch.randn(15, 3), torch.randint(2, (15,))
    q = osc.laplace(torch.nn.Linear(3, 2), osc.likelihoods.Categorical(), (x, y), refine=False)
    with pytest.raises(TypeError, match=says("Gaussian noise", "Categorical")):
        next(pathwise_draws(q, 2))


def test_draws_of_a_subnetwork_leave_all_other_parameters() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(15, 3).double(), torch.randn(15, 2).double()
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).double()
    part = osc.Subnetwork(0.4, "random")
    likelihood = osc.likelihoods.Gaussian(0.3)
    q = osc.laplace(model, likelihood, (x, y), structure="full", prior=2.0, subset=part, refine=False)
    draws = torch.cat(list(pathwise_draws(q, 4000, torch.Generator().manual_seed(0))))
    covered = q.structure.covered
    assert not draws[:, ~covered].any()
    torch.testing.assert_close(draws[:, covered].var(0), q.variance()[covered], rtol=0.15, atol=0)
