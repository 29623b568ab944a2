"""Noise on images that are encoded, and how it fades."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.autoencoders import ELBO, VAE, BoundSettings, Corruption, estimates

LIKELIHOOD = osc.likelihoods.Gaussian(0.3)


def images(n: int = 20) -> Tensor:
    return torch.rand(n, 6, generator=torch.Generator().manual_seed(0))


def network() -> VAE:
    torch.manual_seed(0)
    return VAE(nn.Linear(6, 4), nn.Linear(2, 6))


@pytest.mark.parametrize(
    ("schedule", "levels"),
    [
        ("constant", (0.4, 0.4, 0.4, 0.4, 0.4)),
        ("linear", (0.4, 0.3, 0.2, 0.1, 0.0)),
        ("cosine", (0.4, 0.4 * (0.5 + 0.125**0.5), 0.2, 0.4 * (0.5 - 0.125**0.5), 0.0)),
        ("step", (0.4, 0.4, 0.2, 0.0, 0.0)),
    ],
)
def test_schedules_begin_at_the_level_and_end_at_none(schedule: str, levels: tuple[float, ...]) -> None:
    noise = Corruption("gaussian", 0.4, schedule)
    assert [noise.level_at(t / 4) for t in range(5)] == pytest.approx(levels, abs=1e-12)


def test_noise_has_its_level() -> None:
    torch.manual_seed(0)
    x = torch.rand(100, 1000) + 1
    added = Corruption("gaussian", 0.4, "linear")(x, 0.5) - x
    assert float(added.std()) == pytest.approx(0.2, rel=0.02)
    assert float(added.mean()) == pytest.approx(0, abs=0.005)
    masked = Corruption("mask", 0.4, "linear")(x, 0.5)
    assert float((masked == 0).float().mean()) == pytest.approx(0.2, rel=0.05)
    assert torch.equal(masked[masked != 0], x[masked != 0])
    for noise in ("gaussian", "mask"):
        assert torch.equal(Corruption(noise, 0.4, "linear")(x, 1.0), x)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Corruption("masks"), "unknown noise 'masks'"),
        (lambda: Corruption(schedule="line"), "unknown schedule of the noise 'line'"),
        (lambda: Corruption(level=0.0), "level of the noise must be positive"),
        (lambda: Corruption("mask", 1.5), "share of masked pixels is 1.5"),
    ],
)
def test_what_is_no_noise_is_refused(make: Callable[[], object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        make()


def test_the_clean_image_is_explained_by_the_code_of_a_corrupted_one() -> None:
    """All pixels are masked while it trains, and none in what is watched."""
    x, net = images(), network()
    blind = ELBO(net, LIKELIHOOD, settings=BoundSettings(corruption=Corruption("mask", 1.0)))
    torch.manual_seed(1)
    found = blind.loss(x, x, num_data=20)
    torch.manual_seed(1)
    torch.rand_like(x)  # the mask
    bound = estimates(net, LIKELIHOOD, torch.zeros_like(x), x).mean()
    log_prior = osc.priors.Isotropic(1.0).log_prob(dict(net.named_parameters()))
    torch.testing.assert_close(found, -bound - log_prior / 20)
    torch.manual_seed(1)
    watched = blind.log_prob(x, x)
    torch.manual_seed(1)
    assert torch.equal(watched, estimates(net, LIKELIHOOD, x))
