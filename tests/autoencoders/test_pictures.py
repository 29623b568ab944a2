"""Manifolds by the quantiles of the prior, and ways between images."""

import pytest
import torch
from torch import Tensor, nn

from osculate.autoencoders import VAE, Autoencoder, Representation, interpolations, manifold
from osculate.autoencoders.codes import quantiles
from osculate.likelihoods import Gaussian
from osculate.posteriors import Point


class AsItIs(nn.Module):
    """A code as it is, so that pictures show their codes."""

    def forward(self, z: Tensor) -> Tensor:
        """z."""
        return z


def plain(prior: str = "normal") -> Representation:
    encoder = nn.Linear(2, 4)
    with torch.no_grad():
        encoder.weight.copy_(torch.eye(4)[:, :2])
        encoder.bias.zero_()
    net = VAE(encoder, AsItIs(), prior=prior)
    net.latent = 2
    return Representation(Point(net, Gaussian(1.0)))


@pytest.mark.parametrize("prior", ["normal", "beta", "two_normals"])
def test_a_manifold_has_the_first_code_to_the_right_and_equal_shares_of_the_prior(prior: str) -> None:
    r = plain(prior)
    images = manifold(r, 5)
    assert images.shape == (5, 5, 2)
    assert isinstance(r.model, VAE)
    expected = r.model.prior.inverse_cdf(quantiles(5)).float()
    assert torch.allclose(images[0, :, 0], expected)
    assert torch.allclose(images[:, 0, 1], expected)
    assert bool(images.isfinite().all())
    assert bool((images.diff(dim=1)[..., 0] > 0).all())


def test_a_way_begins_and_ends_at_its_images_and_is_straight() -> None:
    x = torch.tensor([[0.0, 1.0], [2.0, -1.0], [4.0, 4.0]])
    found = interpolations(plain(), x, [(0, 1), (2, 0)], steps=5)
    assert torch.allclose(found[0, 0], x[0])
    assert torch.allclose(found[1, -1], x[0])
    assert torch.allclose(found[0, 2], (x[0] + x[1]) / 2)


def test_what_cannot_be_drawn_is_refused() -> None:
    with pytest.raises(ValueError, match="train a VAE"):
        manifold(Point(Autoencoder(nn.Linear(2, 2), nn.Linear(2, 2)), Gaussian(1.0)))
    with pytest.raises(ValueError, match="latent=2"):
        manifold(Point(VAE(nn.Linear(2, 6), nn.Linear(3, 2)), Gaussian(1.0)))
    with pytest.raises(ValueError, match="two steps"):
        interpolations(plain(), torch.zeros(2, 2), [(0, 1)], steps=1)
    with pytest.raises(ValueError, match="two steps"):
        interpolations(plain(), torch.zeros(2, 2), [])
