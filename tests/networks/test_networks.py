"""Networks: built by name for the inputs they are given, or refused with a reason."""

import pytest
import torch
from torch import nn

from osculate import networks
from osculate.networks import MLP, LeNet, SmallCNN
from osculate.networks.mlp import ACTIVATIONS
from tests.errors import says


def parameters(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


@pytest.mark.parametrize("name", sorted(networks.NETWORKS))
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 13, 13)])
def test_every_network_takes_images_and_every_parameter_matters(name: str, shape: tuple[int, ...]) -> None:
    net = networks.build(name, shape, 7)
    f = net(torch.randn(5, *shape))
    assert f.shape == (5, 7)
    f.square().sum().backward()
    for label, parameter in net.named_parameters():
        assert parameter.grad is not None, label
        assert parameter.grad.abs().sum() > 0, label


def test_mlp_has_the_widths_and_the_activation_that_were_asked_for() -> None:
    net = MLP(3, (5, 4), 2, activation="relu")
    assert [m.out_features for m in net if isinstance(m, nn.Linear)] == [5, 4, 2]
    assert sum(isinstance(m, nn.ReLU) for m in net) == 2
    assert isinstance(net[-1], nn.Linear), "no activation after the last layer"
    assert parameters(net) == 3 * 5 + 5 + 5 * 4 + 4 + 4 * 2 + 2


def test_mlp_without_hidden_layers_is_linear() -> None:
    assert [type(m) for m in MLP(3, (), 2)] == [nn.Linear]


@pytest.mark.parametrize("activation", sorted(ACTIVATIONS))
def test_every_activation_gives_a_network(activation: str) -> None:
    assert networks.build("mlp", (3,), 2, activation=activation)(torch.randn(4, 3)).shape == (4, 2)


def test_published_parameter_count_of_lenet() -> None:
    assert parameters(LeNet()) == 61_706


def test_the_small_cnn_is_small() -> None:
    assert 5_000 < parameters(SmallCNN()) < 10_000


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: networks.build("lenett", (1, 28, 28), 10), ["'lenett'", "'lenet'", "'mlp'", "'cnn'"]),
        (lambda: networks.build("mlp", (3,), 2, activation="tan"), ["'tan'", "'tanh'"]),
        (lambda: networks.build("mlp", (3,), 0), ["0"]),
        (lambda: networks.build("mlp", (3,), 2, hidden=(5, 0)), ["[3, 5, 0, 2]"]),
        (lambda: networks.build("lenet", (13,), 10), ["(13,)", "mlp"]),
        (lambda: networks.build("lenet", (1, 28, 20), 10), ["(1, 28, 20)"]),
        (lambda: networks.build("lenet", (1, 8, 8), 10), ["8 x 8", "cnn"]),
        (lambda: networks.build("cnn", (1, 3, 3), 10), ["3 x 3", "mlp"]),
    ],
)
def test_what_cannot_be_built_is_explained(call, words: list[str]) -> None:
    with pytest.raises(ValueError, match=says(*words)):
        call()
