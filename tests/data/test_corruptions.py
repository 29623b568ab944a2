"""Corruptions: their published definitions, written again for one image, and what all of them promise."""

import colorsys
import io
from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import ndimage
from torch import Tensor

from osculate.data import CORRUPTIONS, corrupted
from tests.errors import says

RANDOM = {"gaussian_noise", "shot_noise", "impulse_noise", "speckle_noise", "glass_blur", "fog"}


@pytest.fixture
def images() -> Tensor:
    """Smooth colour images with 8-bit values, one pixel black, one grey; not square, so that axes cannot be swapped."""
    coarse = torch.rand(4, 3, 5, 6, generator=torch.Generator().manual_seed(1))
    x = torch.nn.functional.interpolate(coarse, size=(20, 24), mode="bilinear")
    x[0, :, 0, 0], x[0, :, 3, 2] = 0, 0.5
    return (255 * x).round() / 255


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_every_corruption_gives_8_bit_images_and_grows_with_severity(kind: str, images: Tensor) -> None:
    before = images.clone()
    distances = []
    for severity in range(1, 6):
        found = corrupted(images, kind, severity, torch.Generator().manual_seed(0))
        assert found.shape == images.shape
        assert found.dtype == images.dtype
        torch.testing.assert_close(255 * found, (255 * found).round(), atol=1e-4, rtol=0)
        assert float(found.min()) >= 0
        assert float(found.max()) <= 1
        distances.append(float((found - images).square().mean().sqrt()))
    assert torch.equal(images, before)
    assert min(distances) > 1e-3
    # saturate takes colour away in its first two severities and adds it in the others
    assert distances[4] > 1.1 * distances[2 if kind == "saturate" else 0]


@pytest.mark.parametrize("kind", CORRUPTIONS)
def test_the_generator_decides_where_anything_is_random(kind: str, images: Tensor) -> None:
    first, again, other = (corrupted(images, kind, 3, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert torch.equal(first, other) == (kind not in RANDOM)


@pytest.mark.parametrize("kind", sorted(set(CORRUPTIONS) - {"saturate"}))
def test_grey_images_are_three_equal_channels(kind: str, images: Tensor) -> None:
    grey = images[:, :1]
    found = corrupted(grey, kind, 4, torch.Generator().manual_seed(0))
    assert found.shape == grey.shape
    if kind not in RANDOM:
        colour = corrupted(grey.expand(-1, 3, -1, -1), kind, 4)
        # JPEG stores colours as brightness and two differences, and rounds each of them
        torch.testing.assert_close(colour, found.expand(-1, 3, -1, -1), atol=1.1 / 255, rtol=0)


def test_no_severity_is_no_corruption(images: Tensor) -> None:
    assert torch.equal(corrupted(images, "fog", 0), images)
    assert corrupted(images[:0], "pixelate", 3).shape == (0, 3, 20, 24)


class TestNoise:
    def test_standard_deviations(self) -> None:
        x = torch.full((50, 3, 32, 32), 0.5)
        generator = torch.Generator().manual_seed(0)
        for severity, scale in ((1, 0.04), (5, 0.10)):
            assert float(corrupted(x, "gaussian_noise", severity, generator).std()) == pytest.approx(scale, rel=0.02)
        for severity, scale in ((1, 0.06), (5, 0.2)):
            assert float(corrupted(x, "speckle_noise", severity, generator).std()) == pytest.approx(scale / 2, rel=0.02)
        for severity, photons in ((1, 500), (5, 50)):
            scale = (0.5 / photons) ** 0.5
            assert float(corrupted(x, "shot_noise", severity, generator).std()) == pytest.approx(scale, rel=0.02)

    @pytest.mark.parametrize(("severity", "share"), [(1, 0.01), (5, 0.07)])
    def test_impulses(self, severity: int, share: float) -> None:
        x = torch.full((50, 3, 32, 32), 0.4)
        found = corrupted(x, "impulse_noise", severity, torch.Generator().manual_seed(0))
        assert float((found == 0).float().mean()) == pytest.approx(share / 2, rel=0.1)
        assert float((found == 1).float().mean()) == pytest.approx(share / 2, rel=0.1)
        alone = ((found == 1).sum(1) == 1).sum() / (found == 1).any(1).sum()
        assert alone > 0.9, "channels are hit one by one"


def one_by_one(images: Tensor, change: Callable[[np.ndarray], np.ndarray]) -> Tensor:
    """Apply a change to (H, W, 3) float64 arrays in [0, 1], cut to 8 bits as the published program does."""
    exact = (255 * images.double()).round() / 255
    arrays = [change(image.permute(1, 2, 0).numpy()) for image in exact]
    cut = np.stack([np.uint8(255 * np.clip(array, 0, 1) + 1e-6) for array in arrays])
    return torch.from_numpy(cut).permute(0, 3, 1, 2) / 255


def hsv(change: Callable[[float, float, float], tuple[float, float, float]]) -> Callable[[np.ndarray], np.ndarray]:
    """A change of hue, saturation and value, by Python's own conversion."""

    def pixel(rgb: np.ndarray) -> np.ndarray:
        return np.array(colorsys.hsv_to_rgb(*change(*colorsys.rgb_to_hsv(*rgb))))

    return lambda image: np.apply_along_axis(pixel, 2, image)


def zoomed(image: np.ndarray) -> np.ndarray:
    """Severity 2: magnified by 1 to 1.1 with scipy, one axis at a time."""
    factors = np.arange(1, 1.11, 0.01)
    total = image.copy()
    for factor in factors:
        height, width = (int(np.ceil(side / factor)) for side in image.shape[:2])
        top, left = (image.shape[0] - height) // 2, (image.shape[1] - width) // 2
        large = ndimage.zoom(image[top : top + height, left : left + width], (factor, factor, 1), order=1)
        top, left = (large.shape[0] - image.shape[0]) // 2, (large.shape[1] - image.shape[1]) // 2
        total += large[top : top + image.shape[0], left : left + image.shape[1]]
    return total / (len(factors) + 1)


def defocused(image: np.ndarray) -> np.ndarray:
    """Severity 5: a disk of radius 1.5 in a 17 × 17 window, softened by a 3 × 3 Gaussian of 0.1."""
    steps = np.arange(-8, 9)
    disk = (steps[:, None] ** 2 + steps**2 <= 1.5**2).astype(float)
    line = np.exp(-0.5 * (np.arange(-1, 2) / 0.1) ** 2)
    line /= line.sum()
    kernel = ndimage.convolve(disk / disk.sum(), np.outer(line, line), mode="constant")
    channels = [ndimage.correlate(image[..., c], kernel, mode="mirror") for c in range(3)]
    return np.stack(channels, 2)


def by_pillow(change: Callable[[Image.Image], Image.Image]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda image: np.array(change(Image.fromarray(np.uint8(np.round(255 * image))))) / 255


def compressed(image: Image.Image) -> Image.Image:
    output = io.BytesIO()
    image.save(output, "JPEG", quality=58)
    return Image.open(output)


def boxes(image: Image.Image) -> Image.Image:
    return image.resize((15, 13), Image.Resampling.BOX).resize((24, 20), Image.Resampling.BOX)


@pytest.mark.parametrize(
    ("kind", "severity", "change"),
    [
        ("brightness", 5, hsv(lambda h, s, v: (h, s, min(v + 0.3, 1)))),
        ("saturate", 2, hsv(lambda h, s, v: (h, 0.1 * s, v))),
        ("saturate", 5, hsv(lambda h, s, v: (h, min(2.5 * s + 0.2, 1), v))),
        ("contrast", 3, lambda x: 0.4 * (x - x.mean((0, 1))) + x.mean((0, 1))),
        ("gaussian_blur", 4, lambda x: ndimage.gaussian_filter(x, (0.8, 0.8, 0), mode="nearest")),
        ("defocus_blur", 5, defocused),
        ("zoom_blur", 2, zoomed),
        ("jpeg_compression", 3, by_pillow(compressed)),
        ("pixelate", 5, by_pillow(boxes)),
    ],
)
def test_published_definitions(
    kind: str, severity: int, change: Callable[[np.ndarray], np.ndarray], images: Tensor
) -> None:
    expected = one_by_one(images, change)
    found = corrupted(images, kind, severity)
    assert float((expected - images).abs().max()) > 0.02, "the example shows no difference"
    # a value at the edge of two 8-bit steps may fall on either side
    assert float((found - expected).abs().max()) < 1.1 / 255
    assert float(((found - expected).abs() > 1e-4).float().mean()) < 2e-3


def test_glass_takes_near_pixels_only() -> None:
    x = (torch.arange(20 * 24.0) % 251).reshape(1, 1, 20, 24) / 255
    found = corrupted(x, "glass_blur", 1, torch.Generator().manual_seed(0))
    assert torch.equal(found[..., 0, :], x[..., 0, :]), "published ranges leave the first row out"
    columns = torch.arange(24.0)
    ramp = (columns / 255).expand(1, 1, 20, 24)
    moved = 255 * corrupted(ramp, "glass_blur", 1, torch.Generator().manual_seed(0)) - columns
    assert set(moved.round().unique().tolist()) <= {-1.0, 0.0}, "one column to the left at most"
    assert float((moved < -0.5).float().mean()) > 0.3


def test_fog_lifts_dark_images_to_their_own_brightness() -> None:
    x = torch.zeros(20, 3, 32, 32)
    x[..., 0, 0] = 0.8
    fog = corrupted(x, "fog", 5, torch.Generator().manual_seed(0))
    largest = 0.8 * 1.5 / (0.8 + 1.5)  # where the plasma is 1 and the image 0
    assert float(fog[..., 1:, 1:].amax()) == pytest.approx(largest, abs=2 / 255)
    assert torch.equal(fog[:, 0], fog[:, 1]), "fog is grey"
    near = (fog[..., 1:, :] - fog[..., :-1, :])[..., 1:].abs().mean()
    far = (fog[..., 16:, :] - fog[..., :16, :])[..., 1:].abs().mean()
    assert near < 0.6 * far, "neighbours are alike"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: corrupted(x, "glas_blur", 1), ["'glas_blur'", "'glass_blur'"]),
        (lambda x: corrupted(x, "fog", 6), ["6", "0 (none) to 5"]),
        (lambda x: corrupted(x, "fog", -1), ["-1"]),
        (lambda x: corrupted(x[:, :2], "fog", 1), ["(4, 2, 20, 24)"]),
        (lambda x: corrupted(255 * x, "fog", 1), ["255", "[0, 1]"]),
        (lambda x: corrupted(x * float("nan"), "fog", 1), ["nan"]),
        (lambda x: corrupted(x[:, :1], "saturate", 1), ["saturate", "three channels"]),
    ],
)
def test_what_cannot_be_corrupted_is_explained(
    call: Callable[[Tensor], Tensor], words: list[str], images: Tensor
) -> None:
    with pytest.raises(ValueError, match=says(*words)):
        call(images)
