"""The U-Net of the deep image prior."""

import pytest
import torch
from torch import nn

from osculate.networks import SkipUNet


def test_any_height_and_width_and_values_in_the_unit_interval() -> None:
    network = SkipUNet(channels=2, width=4, depth=3, skipped=1)
    for shape in ((8, 8), (9, 13), (1, 30)):
        image = network(100 * torch.randn(2, 2, *shape))
        assert image.shape == (2, 2, *shape)
        assert float(image.min()) > 0
        assert float(image.max()) <= 1


@pytest.mark.parametrize("brightness", [0.03, 0.5, 0.9])
def test_it_shows_an_image_as_bright_as_is_asked_for(brightness: float) -> None:
    network, x = SkipUNet(width=4, dropout=0.2), torch.rand(1, 1, 12, 10)
    network.show(x, brightness)
    assert network.training
    assert float(network.eval()(x).mean()) == pytest.approx(brightness, rel=0.05)


def test_dropout_and_normalisation_stand_behind_every_large_convolution() -> None:
    layers = list(SkipUNet(width=4, depth=1, normalised=True, dropout=0.2).modules())
    count = {kind: sum(isinstance(layer, kind) for layer in layers) for kind in (nn.GroupNorm, nn.Dropout2d)}
    assert count == {nn.GroupNorm: 5, nn.Dropout2d: 5}
    assert not any(isinstance(layer, nn.Dropout2d | nn.GroupNorm) for layer in SkipUNet().modules())
    with pytest.raises(ValueError, match="positive sizes"):
        SkipUNet(depth=0)
