"""Networks: built by name for the inputs they are given, or refused with a reason."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

from osculate import networks
from osculate.networks import CNN3C3D, MLP, FixupResNet, LeNet, PreActResNet, ResNet, SmallCNN, ViT
from osculate.networks.activations import ACTIVATIONS
from osculate.networks.cnn import halving
from osculate.networks.resnet import FixupBlock
from tests.errors import says


def parameters(net: nn.Module) -> int:
    return sum(p.numel() for p in net.parameters())


#: Options that keep the large ones quick.
SMALL: dict[str, dict] = {
    "resnet": {"width": 8, "blocks": (1, 1)},
    "preact_resnet": {"width": 8, "blocks": (1, 1)},
    "fixup_resnet": {"width": 8, "blocks": (1, 1), "stem": 4},
    "vit": {"width": 12, "depth": 2, "heads": 3},
}
PER_PIXEL = {"unet", "autoencoder"}


def disturbed(net: nn.Module) -> nn.Module:
    """Away from initial weights that are zero, behind which nothing matters."""
    for parameter in net.parameters():
        parameter.data.add_(0.05 * torch.randn_like(parameter))
    return net


def assert_every_parameter_matters(net: nn.Module, f: torch.Tensor) -> None:
    f.square().sum().backward()
    for label, parameter in net.named_parameters():
        assert parameter.grad is not None, label
        assert parameter.grad.abs().sum() > 0, label


@pytest.mark.parametrize("name", sorted(set(networks.REGISTRY) - {"gpt"}))
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 13, 13)])
def test_every_network_takes_images_and_every_parameter_matters(name: str, shape: tuple[int, ...]) -> None:
    net = disturbed(networks.build(name, shape, 7, **SMALL.get(name, {})))
    f = net(torch.randn(5, *shape))
    assert f.shape == ((5, 7, *shape[1:]) if name in PER_PIXEL else (5, 7))
    assert_every_parameter_matters(net, f)


@pytest.mark.parametrize("name", sorted(PER_PIXEL))
@pytest.mark.parametrize("size", [(9, 14), (17, 8)])
def test_networks_for_pixels_keep_any_resolution(name: str, size: tuple[int, int]) -> None:
    net = networks.build(name, (2, *size), 3, width=2, depth=3)
    assert net(torch.randn(4, 2, *size)).shape == (4, 3, *size)


def test_the_autoencoder_has_a_bottleneck_between_its_two_parts() -> None:
    net = networks.build("autoencoder", (1, 12, 10), 1, latent=3)
    x = torch.randn(4, 1, 12, 10)
    assert [name for name, _ in net.named_children()] == ["encoder", "decoder"]
    assert net.encoder(x).shape == (4, 3)
    torch.testing.assert_close(net.decoder(net.encoder(x)), net(x))


def test_the_language_model_predicts_from_earlier_tokens_only() -> None:
    net = networks.build("gpt", (9,), 11)
    tokens = torch.randint(11, (2, 9))
    f = net(tokens)
    assert f.shape == (2, 9, 11)
    assert_every_parameter_matters(net, f)
    changed = tokens.clone()
    changed[:, 6] = (changed[:, 6] + 1) % 11
    difference = (net(changed) - f).abs().amax((0, 2))
    assert float(difference[:6].max()) < 1e-5
    assert float(difference[6:].min()) > 1e-5
    assert net(tokens[:, :4]).shape == (2, 4, 11)


@pytest.mark.parametrize(
    ("make", "count"),
    [
        (lambda: ResNet(1000), 25_557_032),  # the count of the published ResNet-50
        (lambda: ResNet(), 23_528_522),
        (lambda: ViT(1000, (3, 224, 224), patch=16), 5_717_416),  # DeiT-Ti
        (lambda: PreActResNet(), 11_172_170),
        (lambda: FixupResNet(), 2_748_890 - 3_616 + 32),  # WRN-16-4, scalars in place of its normalisations
        (lambda: CNN3C3D(), 895_210),  # DeepOBS
        (lambda: CNN3C3D(channels=1, size=28), 892_010),  # 3,200 fewer in the first convolution
    ],
)
def test_published_parameter_counts(make: Callable[[], nn.Module], count: int) -> None:
    with torch.device("meta"):
        assert parameters(make()) == count


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


@pytest.mark.parametrize("size", [4, 5, 6, 7])
def test_pooling_of_3c3d_pads_as_published(size: int) -> None:
    x = torch.rand(1, 1, size, size)
    total = 1 + size % 2  # as many pixels as make the output half the size, rounded up; one more behind than before
    before, behind = total // 2, total - total // 2
    padded = nn.functional.pad(x, (before, behind, before, behind))  # zeros change no maximum of positive values
    assert torch.equal(halving(size)(x), nn.functional.max_pool2d(padded, 3, 2))


def test_3c3d_starts_as_published() -> None:
    net = CNN3C3D()
    for layer in net:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            assert not layer.bias.any()
            fans = layer.weight[0].numel(), layer.weight[:, 0].numel()
            assert float(layer.weight.std()) == pytest.approx((2 / sum(fans)) ** 0.5, rel=0.05)


def test_the_fixup_resnet_starts_as_published() -> None:
    net = FixupResNet(channels=2, width=32, blocks=(2, 2), stem=16)
    blocks = [block for block in net if isinstance(block, FixupBlock)]
    for block in blocks:
        assert not block.conv2.weight.any()
        fan = 9 * block.conv1.out_channels
        assert float(block.conv1.weight.std()) == pytest.approx((2 / (fan * len(blocks))) ** 0.5, rel=0.05)
    assert float(net[0].weight.std()) == pytest.approx((2 / (9 * 16)) ** 0.5, rel=0.1)
    assert float(blocks[2].skip.weight.std()) == pytest.approx((2 / 64) ** 0.5, rel=0.1)
    x = torch.randn(3, 2, 8, 8)
    assert not net(x).any(), "the last layer starts at zero"
    torch.testing.assert_close(blocks[1](net[0](x).repeat(1, 2, 1, 1)), net[0](x).repeat(1, 2, 1, 1))
    assert [name for name, p in net.named_parameters() if p.numel() == 1 and p.item() not in (0.0, 1.0)] == []


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
        (lambda: networks.build("3c3d", (3, 8, 8), 10), ["8 x 8", "cnn"]),
        (lambda: networks.build("3c3d", (3, 32, 28), 10), ["(3, 32, 28)"]),
        (lambda: networks.build("unet", (13,), 2), ["(13,)", "mlp"]),
        (lambda: networks.build("unet", (1, 8, 8), 2, depth=0), ["0"]),
        (lambda: networks.build("autoencoder", (13,), 2), ["(13,)", "mlp"]),
        (
            lambda: networks.build("autoencoder", (1, 8, 8), 1, latent=0),
            ["latent must be a whole number of at least 1, got 0"],
        ),
        (lambda: networks.build("resnet", (3, 8, 9), 10), ["(3, 8, 9)", "mlp"]),
        (lambda: networks.build("resnet", (3, 8, 8), 10, blocks=()), ["()"]),
        (lambda: networks.build("preact_resnet", (3, 8, 8), 10, width=0), ["0"]),
        (lambda: networks.build("fixup_resnet", (3, 8, 8), 10, stem=0), ["0"]),
        (lambda: networks.build("fixup_resnet", (3, 8, 8), 10, blocks=(0,)), ["(0,)"]),
        (lambda: networks.build("vit", (3, 8, 8), 10, patch=3), ["3 x 3", "8 x 8"]),
        (lambda: networks.build("vit", (3, 8, 8), 10, width=10), ["3 heads", "10"]),
        (lambda: networks.build("gpt", (3, 8), 10), ["(3, 8)", "(context,)"]),
        (lambda: networks.build("gpt", (8,), 10, heads=3), ["3 heads", "64"]),
    ],
)
def test_what_cannot_be_built_is_explained(call, words: list[str]) -> None:
    with pytest.raises(ValueError, match=says(*words)):
        call()


@pytest.mark.parametrize(
    ("name", "shape", "layers"), [("mlp", (5,), 2), ("lenet", (1, 12, 12), 2), ("cnn", (1, 8, 8), 1)]
)
def test_dropout_is_an_option_and_leaves_the_names_of_weights_where_there_is_none(
    name: str, shape: tuple[int, ...], layers: int
) -> None:
    build = networks.build
    plain, none = build(name, shape, 3), build(name, shape, 3, dropout=0.0)
    assert list(plain.state_dict()) == list(none.state_dict())
    found = [layer.p for layer in build(name, shape, 3, dropout=0.2).modules() if isinstance(layer, nn.Dropout)]
    assert found == [0.2] * layers
    with pytest.raises(ValueError, match=r"dropout, a share.*got 1\.5"):
        build(name, shape, 3, dropout=1.5)


def test_dropout_stands_ahead_of_each_tanh_and_nowhere_without() -> None:
    kinds = [[type(layer).__name__ for layer in part] for part in networks.mlp_coders((4,), hidden=(3,), dropout=0.1)]
    assert kinds[0] == ["Flatten", "Linear", "Dropout", "Tanh", "Linear"]
    assert kinds[1] == ["Linear", "Dropout", "Tanh", "Linear", "Unflatten"]
    plain = networks.mlp_coders((4,), hidden=(3,))
    assert not any(isinstance(layer, torch.nn.Dropout) for part in plain for layer in part)


@pytest.mark.parametrize("activation", ["tanh", "relu", "silu", "softplus"])
def test_orthogonal_weights_keep_gradients_through_many_layers(activation: str) -> None:
    torch.manual_seed(0)
    sizes = {}
    for depth in (2, 12):
        for kind in ("orthogonal", "small"):
            encoder, _ = networks.mlp_coders(
                (64,), latent=4, hidden=(64,) * depth, activation=activation, initialisation=kind
            )
            x = torch.randn(50, 64, requires_grad=True)
            (gradient,) = torch.autograd.grad(encoder(x).sum(), x)
            sizes[kind, depth] = float(gradient.norm())
    assert 0.03 < sizes["orthogonal", 12] / sizes["orthogonal", 2] < 30
    assert sizes["small", 12] < 1e-6 * sizes["small", 2]


def test_initial_weights_are_known_by_name_and_torch_s_stay() -> None:
    torch.manual_seed(0)
    first, _ = networks.mlp_coders((4,), hidden=(3,))
    torch.manual_seed(0)
    again, _ = networks.mlp_coders((4,), hidden=(3,), initialisation="torch")
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    with pytest.raises(ValueError, match="orthogonal"):
        networks.mlp_coders((4,), hidden=(3,), initialisation="xavier")


def test_a_decoder_has_layers_of_its_own_where_they_are_named() -> None:
    encoder, decoder = networks.mlp_coders((4,), latent=2, hidden=(5, 6), decoder_hidden=(7,))
    assert [m.out_features for m in encoder if isinstance(m, torch.nn.Linear)] == [5, 6, 2]
    assert [m.out_features for m in decoder if isinstance(m, torch.nn.Linear)] == [7, 4]
