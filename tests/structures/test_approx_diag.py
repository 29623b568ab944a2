"""The approximate diagonal as a structure: the kinds of curvature, parts of batches, shapes of outputs."""

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.curvature.engine import Observation
from osculate.curvature.plan import make_plan
from osculate.curvature.squared import squared_diagonal
from osculate.parameters import Network, trainable
from osculate.structures.approx_diag import output_diagonal
from tests.errors import says
from tests.laws import assert_close

LIKELIHOODS = {
    "categorical": osc.likelihoods.Categorical(),
    "gaussian": osc.likelihoods.Gaussian(0.5),
    "bernoulli": osc.likelihoods.Bernoulli(),
}


def data(likelihood: str, n: int = 12) -> tuple[nn.Module, Tensor, Tensor]:
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 5), nn.GELU(), nn.Linear(5, 3)).double()
    x = torch.randn(n, 4, dtype=torch.double)
    y = LIKELIHOODS[likelihood].distribution(net(x).detach()).sample()
    return net, x, y


def fitted(net: nn.Module, likelihood: osc.likelihoods.Likelihood, x: Tensor, y: Tensor, **options: object) -> Tensor:
    return osc.laplace(
        net, likelihood, (x, y), structure="approx_diag", prior=1.0, **options, refine=False
    ).structure.dense()


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
def test_it_starts_from_the_diagonal_of_the_output_hessian(likelihood: str) -> None:
    net, x, y = data(likelihood)
    chosen = LIKELIHOODS[likelihood]
    expected = squared_diagonal(
        Network(net, trainable(net)), x, lambda f: chosen.hessian(f, y).diagonal(dim1=1, dim2=2)
    )[1]
    assert_close(fitted(net, chosen, x, y), expected.diag())
    exact = osc.laplace(net, chosen, (x, y), structure="diag", prior=1.0, refine=False).structure.dense().diagonal()
    assert_close(expected[-18:], exact[-18:])  # the last layer
    assert float((expected - exact).abs().max()) > 1e-3 * float(exact.max())


def test_memory_does_not_change_the_result() -> None:
    net, x, y = data("categorical")
    whole = fitted(net, LIKELIHOODS["categorical"], x, y)
    assert_close(fitted(net, LIKELIHOODS["categorical"], x, y, memory=2000), whole)


def test_the_empirical_fisher_squares_the_scores() -> None:
    net, x, y = data("categorical")
    likelihood = LIKELIHOODS["categorical"]
    expected = squared_diagonal(Network(net, trainable(net)), x, lambda f: likelihood.score(f, y).square())[1]
    assert_close(fitted(net, likelihood, x, y, curvature="empirical_fisher"), expected.diag())


def test_the_full_hessian_is_refused() -> None:
    net, x, y = data("categorical")
    with pytest.raises(ValueError, match=says("full Hessian", "'ggn'")):
        fitted(net, LIKELIHOODS["categorical"], x, y, curvature="hessian")


def test_outputs_at_positions_with_many_or_few_classes() -> None:
    """Where E × E blocks do not fit into the memory, one output at a time: the same diagonal."""
    net = nn.Sequential(nn.Conv2d(2, 40, 3, padding=1), nn.Tanh(), nn.Conv2d(40, 40, 1)).double()
    x, y = torch.randn(2, 2, 3, 4).double(), torch.randint(40, (2, 3, 4))
    network, likelihood = Network(net, trainable(net)), osc.likelihoods.Categorical(class_axis=1)
    kind, f = osc.curvature.GGN(), network(x)
    few, many = (
        output_diagonal(Observation(network, make_plan(network, x), likelihood, kind, (x, y), memory), f)
        for memory in (2**28, f.itemsize * f.numel() * 39)
    )
    p = f.softmax(1)
    assert_close(few, p * (1 - p))
    assert_close(many, few, 1e-10)


def test_image_outputs_give_a_posterior_that_predicts() -> None:
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, 2, 1), nn.BatchNorm2d(4), nn.ReLU(True), nn.Upsample(scale_factor=2, mode="bilinear"),
        nn.Conv2d(4, 3, 3, padding=1),
    ).eval()  # fmt: skip
    x = torch.randn(6, 3, 8, 8)
    q = osc.laplace(net, osc.likelihoods.Gaussian(0.1), (x, x), structure="approx_diag", refine=False)
    assert torch.isfinite(osc.log_evidence(q))
    assert q.variance().shape == q.mean.shape
    assert bool((q.variance() > 0).all())


def test_an_operation_that_cannot_be_squared_is_named() -> None:
    class Fourier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return torch.fft.rfft(self.first(x)).abs()

    with pytest.raises(NotImplementedError, match=says("rfft", "structure='diag'")):
        osc.laplace(
            Fourier(),
            osc.likelihoods.Gaussian(),
            (torch.randn(5, 4), torch.randn(5, 3)),
            structure="approx_diag",
            refine=False,
        )
