"""Maps of two-dimensional codes."""

import numpy as np
import pytest
import torch
from torch import nn

import osculate as osc
from osculate.autoencoders import Autoencoder, LatentMap, Representation


def representation(latent: int = 2) -> tuple[Representation, torch.Tensor]:
    torch.manual_seed(0)
    x, net = torch.randn(40, 6), Autoencoder(nn.Linear(6, latent), nn.Linear(latent, 6))
    q = osc.laplace(net, osc.likelihoods.Gaussian(0.5), (x, x), structure="full", prior=1.0, refine=False)
    return Representation(q), x


def test_the_deviation_at_a_place_is_that_of_its_decoded_code() -> None:
    r, x = representation()
    found = LatentMap.of(r, x, samples=7, places=9, batch_size=10)
    place = torch.tensor([[found.axes[0][5], found.axes[1][2]]], dtype=torch.float32)
    image = r.decode(place, 7, torch.Generator().manual_seed(0))
    assert found.deviation[2, 5] == pytest.approx(float(image.weight_variance.sqrt().mean()), rel=1e-5)
    codes = r.encode(x, 7, torch.Generator().manual_seed(0)).mean
    np.testing.assert_allclose(found.codes, codes, atol=1e-6)
    assert all(a[0] < c.min() and c.max() < a[-1] for a, c in zip(found.axes, found.codes.T, strict=True))


def test_a_posterior_is_looked_at_as_a_representation() -> None:
    r, x = representation()
    np.testing.assert_array_equal(
        LatentMap.of(r.posterior, x, 5, 4).deviation, LatentMap.of(r, x, samples=5, places=4).deviation
    )


def test_a_linear_decoder_is_the_less_sure_the_further_away() -> None:
    r, x = representation()
    assert LatentMap.of(r, x, samples=30).contrast() > 1.1


def test_the_contrast_compares_cells_with_codes_and_without() -> None:
    deviation = np.array([[1.0, 2.0], [2.0, 6.0]])
    codes = np.array([[0.1, 0.2], [0.4, -0.3]])  # both nearest to the first place of each axis
    axes = np.array([0.0, 1.0]), np.array([0.0, 1.0])
    assert LatentMap(codes, axes, deviation).contrast() == pytest.approx(10 / 3)
    everywhere = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    assert LatentMap(everywhere, axes, deviation).contrast() == 1
    assert LatentMap(codes, axes, np.zeros((2, 2))).contrast() == 1
    assert LatentMap(codes, axes, np.eye(2)[::-1]).contrast() == np.inf


def test_equal_codes_have_surroundings_too() -> None:
    r, x = representation()
    for few in (x[:1], torch.zeros(5, 6)):
        found = LatentMap.of(r, few, samples=3, places=8)
        assert np.isfinite(found.contrast())
        assert all(np.all(np.diff(axis) > 0) for axis in found.axes)


def test_what_has_no_map_is_refused() -> None:
    r, x = representation(3)
    with pytest.raises(ValueError, match="two-dimensional"):
        LatentMap.of(r, x)
    with pytest.raises(ValueError, match="at least one row"):
        LatentMap.of(representation()[0], x[:0])
