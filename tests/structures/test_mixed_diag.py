"""The mixed diagonal: an exact encoder, three decoders, and where a network is cut."""

import gc
import weakref
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import osculate as osc
from osculate.curvature import reference
from tests.errors import says
from tests.laws import assert_close, targets


class ConvAutoencoder(nn.Module):
    """A bottleneck of three units in the middle of convolutions."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(1, 3, 3, 2, 1), nn.Tanh(), nn.Flatten(), nn.Linear(12, 3))
        self.decoder = nn.Sequential(
            nn.Linear(3, 8), nn.Tanh(), nn.Unflatten(1, (2, 2, 2)), nn.Upsample(scale_factor=2),
            nn.Conv2d(2, 1, 3, padding=1),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(self.encoder(x))


class TiedAutoencoder(nn.Module):
    """The decoder's weight is the encoder's, turned; in-place activations behind the bottleneck; the biases are not."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(6, 6)
        self.down = nn.Linear(6, 2)
        self.up = nn.Parameter(torch.randn(6))
        self.out = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        z = F.relu_(self.down(torch.tanh(self.first(x))))
        return self.out(torch.tanh(F.linear(z, self.down.weight.T, self.up)))


class Skip(nn.Module):
    """What stands before the middle reaches the output on another path too."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.first, self.middle, self.last = nn.Linear(5, width), nn.Linear(width, 1), nn.Linear(width + 1, 5)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.first(x))
        return self.last(torch.cat([h, torch.tanh(self.middle(h))], 1))


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2), nn.Tanh(), nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 6)
    )


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], tuple[str, ...]]] = {
    "mlp": (mlp, (6,), ("0.", "2.")),
    "conv": (ConvAutoencoder, (1, 4, 4), ("encoder.",)),
    "tied": (TiedAutoencoder, (6,), ("first.",)),
}
LIKELIHOODS = {
    "gaussian": osc.likelihoods.Gaussian(0.5),
    "bernoulli": osc.likelihoods.Bernoulli(),
}


def fitted(net: str, likelihood: str, decoder: str = "squared", **options: object) -> tuple:
    build, shape, encoder = NETS[net]
    model, x = build().double(), torch.randn(7, *shape, dtype=torch.double)
    y = targets(LIKELIHOODS[likelihood], model, x)
    options.setdefault("bottleneck", "down" if net == "tied" else None)
    structure = osc.structures.MixedDiag(decoder=decoder, **options)
    q = osc.laplace(
        model, LIKELIHOODS[likelihood], [(x[:2], y[:2]), (x[2:], y[2:])], structure=structure, prior=1.0, refine=False
    )
    truth = reference.ggn(model, LIKELIHOODS[likelihood], x, y).diagonal()
    space = q.network.space
    exact = torch.cat([
        torch.full((size,), name.startswith(encoder)) for name, size in zip(space.names, space.sizes, strict=True)
    ])  # fmt: skip
    return model, (x, y), q.structure.dense().diagonal(), truth, exact


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@pytest.mark.parametrize("net", NETS)
def test_the_encoder_is_exact(net: str, likelihood: str) -> None:
    _, _, found, truth, encoder = fitted(net, likelihood)
    assert bool(encoder.any())
    assert_close(found[encoder], truth[encoder])


@pytest.mark.parametrize("net", NETS)
def test_with_an_exact_decoder_everything_is(net: str) -> None:
    _, _, found, truth, _ = fitted(net, "bernoulli", "exact")
    assert_close(found, truth)


@pytest.mark.parametrize("net", NETS)
def test_the_squared_decoder_is_that_of_the_approximate_diagonal(net: str) -> None:
    model, data, found, truth, encoder = fitted(net, "bernoulli", "squared")
    approximate = osc.laplace(model, LIKELIHOODS["bernoulli"], data, structure="approx_diag", prior=1.0, refine=False)
    approximate = approximate.structure.dense().diagonal()
    assert_close(found[~encoder], approximate[~encoder])
    assert float((approximate - truth)[encoder].abs().max()) > 1e-3 * float(truth.max())


@pytest.mark.slow
def test_the_rademacher_estimate_is_unbiased() -> None:
    model, data, first, truth, encoder = fitted("mlp", "gaussian", "rademacher", samples=40)
    assert_close(first[encoder], truth[encoder])
    draws = []
    for seed in range(25):
        structure = osc.structures.MixedDiag(decoder="rademacher", samples=40, seed=seed)
        q = osc.laplace(model, LIKELIHOODS["gaussian"], data, structure=structure, prior=1.0, refine=False)
        draws.append(q.structure.dense().diagonal()[~encoder] / truth[~encoder])
    ratios = torch.stack(draws)
    spread = ratios.std(0)
    varies = spread > 1e-6  # behind the last layer each output has its own column, and signs do not matter
    error = spread[varies] / len(ratios) ** 0.5
    z = (ratios.mean(0)[varies] - 1) / error
    assert int(varies.sum()) >= 15
    assert float(z.abs().max()) < 4.5
    assert float(z.square().mean()) < 2.5
    assert 0.01 < float(spread[varies].mean()) < 0.5
    assert_close(ratios[:, ~varies], torch.ones_like(ratios[:, ~varies]))


def test_memory_does_not_change_the_result() -> None:
    model, data, _, _, _ = fitted("conv", "bernoulli")
    whole, small = (
        osc.laplace(
            model, LIKELIHOODS["bernoulli"], data, structure="mixed_diag", prior=1.0, memory=memory, refine=False
        ).structure.dense()
        for memory in ("1GB", 18_000)
    )
    assert_close(small, whole)


def test_a_named_bottleneck_may_leave_layers_beside_it_to_the_decoder() -> None:
    net, x = Skip().double(), torch.randn(6, 5).double()
    likelihood = osc.likelihoods.Gaussian(0.5)
    structure = osc.structures.MixedDiag(bottleneck="middle")
    q = osc.laplace(net, likelihood, (x, x), structure=structure, prior=1.0, refine=False)
    truth = reference.ggn(net, likelihood, x, x).diagonal()
    found = dict(zip(q.network.space.names, q.structure.dense().diagonal().split(q.network.space.sizes), strict=True))
    expected = dict(zip(q.network.space.names, truth.split(q.network.space.sizes), strict=True))
    for name in ("middle.weight", "middle.bias", "last.weight", "last.bias"):
        assert_close(found[name], expected[name])
    assert float((found["first.weight"] - expected["first.weight"]).abs().max()) > 1e-3


def test_a_subset_of_the_parameters() -> None:
    net, x = mlp().double(), torch.randn(6, 6).double()
    likelihood = osc.likelihoods.Gaussian(0.5)
    q = osc.laplace(net, likelihood, (x, x), structure="mixed_diag", subset=["0.weight", "4"], prior=1.0, refine=False)
    for p in net.parameters():
        p.requires_grad_(False)
    for name in ("0.weight", "4.weight", "4.bias"):
        net.get_parameter(name).requires_grad_()
    truth = reference.ggn(net, likelihood, x, x).diagonal()
    assert_close(q.structure.dense().diagonal()[:30], truth[:30])


def test_without_a_bottleneck_few_outputs_are_one_and_everything_is_exact() -> None:
    net = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 5)).double()
    x, y = torch.randn(6, 5, dtype=torch.double), torch.arange(6) % 5
    likelihood = osc.likelihoods.Categorical()
    q = osc.laplace(net, likelihood, (x, y), structure="mixed_diag", prior=1.0, refine=False)
    assert_close(q.structure.dense().diagonal(), reference.ggn(net, likelihood, x, y).diagonal())


def test_without_a_bottleneck_before_many_outputs_the_alternatives_are_named() -> None:
    net, x = nn.Sequential(nn.Linear(5, 80), nn.Tanh(), nn.Linear(80, 70)), torch.randn(6, 5)
    with pytest.raises(ValueError, match=says("no bottleneck", "70 outputs", "'diag'", "'approx_diag'", "MixedDiag(")):
        osc.laplace(
            net, osc.likelihoods.Gaussian(), (x, torch.randn(6, 70)), structure="mixed_diag", prior=1.0, refine=False
        )


def test_an_unknown_bottleneck_is_answered_with_the_known_ones() -> None:
    x = torch.randn(6, 6)
    with pytest.raises(ValueError, match=says("unknown bottleneck 'encoder'", "'2'")):
        osc.laplace(
            mlp(), osc.likelihoods.Gaussian(), (x, x), structure=osc.structures.MixedDiag("encoder"), refine=False
        )


@pytest.mark.parametrize("decoder", ["squared", "exact", "rademacher"])
@pytest.mark.parametrize("last", ["frozen", "without parameters"])
def test_behind_the_bottleneck_nothing_need_be_tracked(last: str, decoder: str) -> None:
    if last == "frozen":
        net, x = mlp().double(), torch.randn(7, 6, dtype=torch.double)
        for p in net[4:].parameters():
            p.requires_grad_(False)
    else:
        net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Tanh(), nn.Conv2d(2, 1, 1), nn.Upsample(scale_factor=2)).double()
        x = torch.randn(7, 1, 4, 4, dtype=torch.double)
    likelihood = osc.likelihoods.Gaussian(0.5)
    data, structure = [(x[:2], net(x[:2]).detach()), (x[2:], net(x[2:]).detach())], osc.structures.MixedDiag
    q, exact = (
        osc.laplace(net, likelihood, data, structure=s, prior=1.0, refine=False)
        for s in (structure(decoder=decoder), "diag")
    )
    assert_close(q.structure.dense(), exact.structure.dense())


def test_one_structure_serves_several_networks_and_keeps_none() -> None:
    structure, networks = osc.structures.MixedDiag(), []
    for net in (mlp().double(), nn.Sequential(*mlp()[2:], nn.Linear(6, 6)).double()):
        x = torch.randn(7, net[0].in_features, dtype=torch.double)
        y = net(x).detach()
        shared, own = (
            osc.laplace(net, osc.likelihoods.Gaussian(0.5), (x, y), structure=s, prior=1.0, refine=False)
            for s in (structure, osc.structures.MixedDiag())
        )
        assert_close(shared.structure.dense(), own.structure.dense())
        networks.append(weakref.ref(shared.network))
    del shared, own
    gc.collect()
    assert [network() for network in networks] == [None, None]


def test_settings_and_curvatures_that_it_refuses() -> None:
    with pytest.raises(ValueError, match=says("unknown decoder 'square'", "did you mean 'squared'", "'rademacher'")):
        osc.structures.MixedDiag(decoder="square")
    with pytest.raises(ValueError, match="samples=0"):
        osc.structures.MixedDiag(samples=0)
    x = torch.randn(6, 6)
    for curvature in ("fisher", "hessian"):
        with pytest.raises(ValueError, match=says(repr(curvature), "structure='diag'", "an estimate for 'hessian'")):
            osc.laplace(
                mlp(), osc.likelihoods.Gaussian(), (x, x), structure="mixed_diag", curvature=curvature, refine=False
            )
    structure, x = osc.structures.MixedDiag(bottleneck="middle"), torch.randn(6, 5)
    with pytest.raises(ValueError, match=says("through 'middle' alone", "another path")):
        osc.laplace(
            Skip(), osc.likelihoods.Gaussian(), (x, x), structure=structure, subset=["first", "last"], refine=False
        )
