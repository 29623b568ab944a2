"""Estimators of the bound: means, variances and gradients, exact where the model is linear and Gaussian."""

import math
from collections.abc import Callable
from itertools import combinations

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.autoencoders import (
    ELBO,
    ESTIMATORS,
    VAE,
    AdversarialCodes,
    CodePosterior,
    GaussianCodes,
    SemiImplicitCodes,
    compare_estimators,
    estimates,
)
from tests.autoencoders.families import EXPLICIT, FAMILIES

NOISE = 0.3
LIKELIHOOD = osc.likelihoods.Gaussian(NOISE)
EXACT = ("A", "stl", "iwae", "dreg")


def images(n: int = 6) -> Tensor:
    return torch.randn(n, 5, dtype=torch.double, generator=torch.Generator().manual_seed(0))


def linear(exact: bool = True) -> VAE:
    """x = W z + b + noise with orthogonal columns, of which q(z|x) can be the posterior of z, independent numbers."""
    torch.manual_seed(0)
    net = VAE(nn.Linear(5, 4), nn.Linear(2, 5)).double()
    with torch.no_grad():
        w = torch.linalg.qr(net.decoder.weight)[0] * torch.tensor([0.7, 0.4])
        net.decoder.weight.copy_(w)
        if exact:
            variance = 1 / (1 + w.square().sum(0) / NOISE**2)
            slope = variance.unsqueeze(1) * w.T / NOISE**2
            net.encoder.weight.copy_(torch.cat([slope, torch.zeros(2, 5)]))
            net.encoder.bias.copy_(torch.cat([-slope @ net.decoder.bias, variance.log()]))
    return net


def log_evidence(net: VAE, x: Tensor) -> Tensor:
    w, b = net.decoder.weight, net.decoder.bias
    covariance = w @ w.T + NOISE**2 * torch.eye(5, dtype=torch.double)
    return torch.distributions.MultivariateNormal(b, covariance).log_prob(x).detach()


def other(make: Callable[[], CodePosterior] = GaussianCodes) -> VAE:
    """A network whose q(z|x) is far from the posterior of z."""
    torch.manual_seed(3)
    return VAE(nn.Linear(5, 4), nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 5)), make()).double()


@pytest.mark.parametrize("estimator", EXACT)
def test_at_the_posterior_of_the_code_every_draw_gives_the_evidence(estimator: str) -> None:
    net, x = linear(), images()
    found = estimates(net, LIKELIHOOD, x, estimator=estimator, samples=3)
    torch.testing.assert_close(found, log_evidence(net, x))
    report = compare_estimators(net, LIKELIHOOD, x, (estimator, "B"), samples=3, repeats=20)
    assert report[estimator].value_variance < 1e-20 < 1e-3 < report["B"].value_variance


def test_at_the_posterior_of_the_code_the_path_has_no_gradient() -> None:
    report = compare_estimators(linear(), LIKELIHOOD, images(), EXACT, samples=2, repeats=20)
    for path, whole in (("stl", "A"), ("dreg", "iwae")):
        assert report[path].encoder_variance < 1e-20 < 1e-3 < report[whole].encoder_variance
    net = linear()
    bound = estimates(net, LIKELIHOOD, images(), estimator="stl").sum()
    assert float(torch.autograd.grad(bound, net.encoder.weight)[0].abs().max()) < 1e-10


def test_the_divergence_in_closed_form_has_no_variance_where_the_image_does_not_depend_on_the_code() -> None:
    net = linear(exact=False)
    with torch.no_grad():
        net.decoder.weight.zero_()
    report = compare_estimators(net, LIKELIHOOD, images(), repeats=20)
    assert report["B"].value_variance < 1e-20 < 1e-3 < report["A"].value_variance


def mean_and_error(net: VAE, estimator: str, samples: int = 1, repeats: int = 4000) -> tuple[float, float]:
    torch.manual_seed(1)
    with torch.no_grad():
        each = estimates(net, LIKELIHOOD, images(1).expand(repeats, 5), estimator=estimator, samples=samples)
    return float(each.mean()), float(each.std()) / math.sqrt(repeats)


def test_a_and_b_have_one_mean() -> None:
    (a, of_a), (b, of_b) = (mean_and_error(other(), estimator) for estimator in "AB")
    assert abs(a - b) < 3 * math.hypot(of_a, of_b)
    assert mean_and_error(other(), "stl")[0] == a


def test_more_draws_inside_the_logarithm_are_nearer_to_the_evidence() -> None:
    net = linear()
    with torch.no_grad():
        net.encoder.bias.add_(torch.tensor([0.5, -0.5, 0.5, 0.5]))
    bounds = [mean_and_error(net, "iwae", samples) for samples in (1, 5, 50)]
    evidence = float(log_evidence(net, images(1)))
    assert bounds[0][0] < bounds[1][0] < bounds[2][0] < evidence + 3 * bounds[2][1]
    assert bounds[2][0] == pytest.approx(evidence, abs=0.1)
    assert mean_and_error(net, "dreg", 5)[0] == bounds[1][0]


@pytest.mark.parametrize("mixtures", [1, 5, 50])
def test_a_semi_implicit_bound_rises_with_its_mixture_and_stays_below_the_evidence(mixtures: int) -> None:
    torch.manual_seed(0)
    decoder = linear().decoder
    codes = SemiImplicitCodes(2, 4, hidden=8, noise=3, mixtures=mixtures)
    net = VAE(nn.Linear(5, 4), nn.Linear(2, 5), codes).double()
    net.decoder = decoder
    with torch.no_grad():
        for parameter in codes.net.parameters():
            parameter.mul_(2.5)
    bound, error = mean_and_error(net, "A")
    assert bound < float(log_evidence(net, images(1)))
    codes.mixtures = 2 * mixtures
    more, of_more = mean_and_error(net, "A")
    assert more > bound - 2 * math.hypot(error, of_more)
    codes.mixtures = 300
    assert mean_and_error(net, "A", repeats=1000)[0] > bound


def gradients(net: VAE, estimator: str, samples: int, repeats: int, weight: float = 1.0) -> Tensor:
    """Of the mean bound, by everything before the code and by the decoder, along fixed directions: (repeats, 2, 3)."""
    named = [(name.startswith("decoder."), p) for name, p in net.named_parameters()]
    generator = torch.Generator().manual_seed(0)
    directions = [torch.randn(3, p.numel(), dtype=p.dtype, generator=generator) for _, p in named]
    torch.manual_seed(7)
    found = torch.zeros(repeats, 2, 3, dtype=torch.double)
    for row in found:
        bound = estimates(net, LIKELIHOOD, images(2).repeat(16, 1), None, estimator, samples, weight).mean()
        parts = torch.autograd.grad(bound, [p for _, p in named], materialize_grads=True)
        for (decoding, _), part, along in zip(named, parts, directions, strict=True):
            row[int(decoding)] += along @ part.flatten()
    return found


def errors_apart(one: Tensor, two: Tensor) -> float:
    """The largest difference of the means, in its standard errors."""
    error = (one.var(0) / len(one) + two.var(0) / len(two)).sqrt()
    return float(((one.mean(0) - two.mean(0)).abs() / error).max())


@pytest.mark.parametrize("name", EXPLICIT)
@pytest.mark.slow
def test_the_path_gradient_has_the_mean_of_the_whole_one(name: str) -> None:
    net = other(FAMILIES[name])
    assert errors_apart(gradients(net, "stl", 1, 200), gradients(net, "A", 1, 200)) < 4


@pytest.mark.parametrize("weight", [1.0, 0.3])
@pytest.mark.slow
def test_the_doubly_reparameterised_gradient_has_the_mean_of_that_of_several_draws_and_less_variance(
    weight: float,
) -> None:
    net = linear()
    with torch.no_grad():
        net.encoder.bias.add_(torch.tensor([0.2, -0.2, 0.2, 0.2]))
    one, two = (gradients(net, name, 4, 400, weight) for name in ("dreg", "iwae"))
    assert errors_apart(one, two) < 4
    assert float(one[:, 0].var(0).sum()) < 0.5 * float(two[:, 0].var(0).sum())


def test_a_gradient_that_cannot_be_had_is_refused() -> None:
    beta = VAE(nn.Linear(5, 4), nn.Linear(2, 5), prior="beta").double()
    with pytest.raises(ValueError, match="gradient of 'dreg' is biased with SigmoidCodes"):
        estimates(beta, LIKELIHOOD, images(), estimator="dreg", samples=2)
    assert set(compare_estimators(beta, LIKELIHOOD, images(), repeats=2)) == {"A", "stl"}
    semi, adversarial = other(lambda: SemiImplicitCodes(2, 4)), other(lambda: AdversarialCodes(2, 4))
    for net, good, bad in ((semi, "iwae", "dreg"), (adversarial, "dreg", "iwae")):
        assert estimates(net, LIKELIHOOD, images(), estimator=good, samples=2).shape == (6,)
        with pytest.raises(ValueError, match=f"gradient of '{bad}' is biased with .*pass '{good}'"):
            estimates(net, LIKELIHOOD, images(), estimator=bad, samples=2)
    with pytest.raises(ValueError, match="no closed form: pass estimator 'A' or 'stl'"):
        estimates(semi, LIKELIHOOD, images(), estimator="B")
    with pytest.raises(ValueError, match="unknown estimator 'iwea'.*'iwae'"):
        estimates(semi, LIKELIHOOD, images(), estimator="iwea")
    with pytest.raises(ValueError, match="samples must be a whole number"):
        estimates(semi, LIKELIHOOD, images(), samples=0)
    with pytest.raises(ValueError, match="two repetitions, got repeats=1"):
        compare_estimators(semi, LIKELIHOOD, images(), repeats=1)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_without_weight_nothing_is_subtracted(estimator: str) -> None:
    net = linear(exact=False)
    with torch.no_grad():
        net.decoder.weight.zero_()
    found = estimates(net, LIKELIHOOD, images(), estimator=estimator, samples=3, weight=0.0)
    torch.testing.assert_close(found, LIKELIHOOD.log_prob(net.decoder.bias.expand(6, 5), images()))


def test_a_minibatch_stands_for_all_data() -> None:
    """The mean over all batches of two is the loss of all six, with 1/N of the prior of the weights in each."""
    net, x = linear(), images()
    method = ELBO(net, LIKELIHOOD, prior=2.0, estimator="A")
    batches = [x[list(rows)] for rows in combinations(range(6), 2)]
    found = torch.stack([method.loss(batch, batch, num_data=6) for batch in batches]).mean()
    torch.testing.assert_close(found, method.loss(x, x, num_data=6))
    log_prior = osc.priors.Isotropic(2.0).log_prob(dict(net.named_parameters()))
    torch.testing.assert_close(-6 * found, log_evidence(net, x).sum() + log_prior)
