"""Codes of few bits: what cutting does to them, and to the images."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.autoencoders import (
    VAE,
    Autoencoder,
    CodePrior,
    RateDistortion,
    Representation,
    SigmoidCodes,
    SparseBeta,
    StandardNormal,
    TwoNormals,
    rate_distortion,
    truncated,
)

PRIORS: tuple[CodePrior, ...] = (StandardNormal(), SparseBeta(), TwoNormals())
LIKELIHOOD = osc.likelihoods.Gaussian(0.3)


def images(n: int = 40) -> Tensor:
    return torch.rand(n, 2, 3, dtype=torch.double, generator=torch.Generator().manual_seed(0))


def network(prior: CodePrior) -> VAE:
    torch.manual_seed(0)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(6, 4))
    decoder = nn.Sequential(nn.Linear(2, 6), nn.Unflatten(1, (2, 3)))
    net = VAE(encoder, decoder, None if isinstance(prior, StandardNormal) else SigmoidCodes(), prior).double()
    with torch.no_grad():
        encoder[1].weight[:2].mul_(4 if isinstance(prior, StandardNormal) else 25)
    return net


def found(prior: CodePrior, bits: tuple[int, ...] = (1, 2, 3, 4, 6, 8, 16)) -> RateDistortion:
    return rate_distortion(osc.posteriors.Point(network(prior), LIKELIHOOD), images(), bits, batch_size=7)


@pytest.mark.parametrize("dtype", [torch.float, torch.double])
@pytest.mark.parametrize("bits", [1, 2, 5, 10])
@pytest.mark.parametrize("prior", PRIORS, ids=repr)
def test_cutting_again_changes_nothing_and_there_are_as_many_values_as_bits_say(
    prior: CodePrior, bits: int, dtype: torch.dtype
) -> None:
    z = prior.sample(20000, 2, torch.Generator().manual_seed(0)).to(dtype)
    cut = truncated(z, bits, prior)
    assert torch.equal(truncated(cut, bits, prior), cut)
    assert cut.dtype == dtype
    assert len(cut.unique()) == 2**bits
    order = z[:, 0].argsort()
    assert bool((cut[order, 0].diff() >= 0).all()), "codes keep their order"
    assert torch.equal(truncated(z[:3].unsqueeze(0), bits, prior)[0], cut[:3])


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
def test_more_bits_are_nearer_to_the_code(prior: CodePrior) -> None:
    z = prior.sample(5000, 2, torch.Generator().manual_seed(0)).double()
    errors = [float((truncated(z, bits, prior) - z).square().mean()) for bits in (1, 2, 4, 8, 12)]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 1e-4 * errors[0]


def test_one_bit_of_a_nearly_binary_code_is_exactly_0_or_1() -> None:
    z = torch.rand(100, 3)
    assert torch.equal(truncated(z, 1, SparseBeta()), (z > 0.5).float())


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
def test_many_bits_have_the_distortion_of_the_code_itself(prior: CodePrior) -> None:
    """Two normals have few cells between 0 and 1, where their density is next to none."""
    record, near = found(prior), 1e-2 if isinstance(prior, TwoNormals) else 1e-3
    assert record.continuous.rate == record.continuous.entropy_bits == math.inf
    assert record.levels[-1].distortion == pytest.approx(record.continuous.distortion, rel=near)
    assert record.levels[-1].nll == pytest.approx(record.continuous.nll, rel=near)
    assert record.levels[-1].standard_error == pytest.approx(record.continuous.standard_error, rel=5 * near)
    assert abs(record.levels[0].distortion - record.continuous.distortion) > 0.01
    assert torch.equal(record.rates, 2 * torch.tensor([1, 2, 3, 4, 6, 8, 16]).double())
    assert record.distortions.tolist() == [level.distortion for level in record.levels]


@pytest.mark.parametrize("prior", PRIORS, ids=repr)
def test_a_level_is_what_the_images_of_cut_codes_lose(prior: CodePrior) -> None:
    net, x = network(prior), images()
    with torch.no_grad():
        z = net(centre=x)
        cut = truncated(z, 2, prior)
        f = net(decode=cut)
    level = found(prior, (2,)).levels[0]
    errors = (f - x).square().sum((1, 2))
    assert level.distortion == pytest.approx(float(errors.mean()))
    assert level.standard_error == pytest.approx(float(errors.std()) / 40**0.5)
    assert level.nll == pytest.approx(float(-LIKELIHOOD.log_prob(f, x).mean()))
    nats = 0.0
    for column in cut.T:
        shares = column.unique(return_counts=True)[1] / 40
        nats -= float((shares * shares.log()).sum())
    assert level.entropy_bits == pytest.approx(nats / math.log(2), rel=1e-5)
    assert 0 < level.entropy_bits <= level.rate == 4


def test_the_share_of_binary_codes_is_told_where_the_prior_is_for_such() -> None:
    assert found(StandardNormal(), (1,)).binary_share is None
    with torch.no_grad():
        z = network(SparseBeta())(centre=images())
    near = ((z < 0.1) | (z > 0.9)).double().mean()
    assert found(SparseBeta(), (1,)).binary_share == pytest.approx(float(near))
    assert 0 < float(near) < 1


def test_a_posterior_a_training_and_a_representation_give_the_same() -> None:
    x, net = images(), network(StandardNormal())
    done = osc.train(osc.autoencoders.ELBO(net, LIKELIHOOD), (x, x), epochs=1, progress=False)
    one, two, three = (rate_distortion(q, x, (2,)) for q in (done, done.posterior, Representation(done)))
    assert one == two == three


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: truncated(torch.rand(2, 2), 0, SparseBeta()), ValueError, "bits must be a whole number of at least 1"),
        (
            lambda: truncated(torch.rand(2, 2), 17, SparseBeta()),
            ValueError,
            "at most 16 bits per dimension, got bits=17",
        ),
        (lambda: found(StandardNormal(), (2, 20)), ValueError, "at most 16 bits per dimension"),
        (
            lambda: rate_distortion(
                osc.posteriors.Point(Autoencoder(nn.Linear(6, 2), nn.Linear(2, 6)), LIKELIHOOD), torch.rand(3, 6)
            ),
            TypeError,
            "this Autoencoder has no prior: train an osc.autoencoders.VAE",
        ),
        (
            lambda: rate_distortion(osc.posteriors.Point(network(SparseBeta()), LIKELIHOOD), images(0)),
            ValueError,
            "no inputs: pass a tensor",
        ),
    ],
)
def test_what_cannot_be_cut_is_refused(call: Callable[[], object], kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        call()
