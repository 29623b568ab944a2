"""Corruptions of small images, with the published definitions of CIFAR-10-C.

Hendrycks and Dietterich (2019) define 19 corruptions of 32 × 32 images, 15 for the benchmark and four more, each in
five severities. The fourteen here need numpy, scipy and Pillow only. Missing are motion blur, snow, spatter and elastic
transform, which are defined by what ImageMagick or OpenCV computes, and frost, which needs its authors' photographs.
"""

from collections.abc import Callable, Mapping
from math import ceil

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Generator, Tensor

from osculate.checks import require_library
from osculate.data.photographs import as_jpeg
from osculate.registry import lookup

SEVERITIES = 5


def corrupted(
    images: Float[Tensor, "N C H W"], kind: str, severity: int, generator: Generator | None = None
) -> Float[Tensor, "N C H W"]:
    """Corrupt images as CIFAR-10-C does [hendrycks2019].

    Images are taken as 8-bit images before and after, as published: values are rounded to multiples of 1/255 on the
    way in and cut off to them on the way out. The random numbers are not the published ones. The parameters are
    those for 32 × 32 pixels, also for images of another size.

    Args:
        images: Values in [0, 1], of one channel or three.
        kind: A key of :data:`CORRUPTIONS`.
        severity: 1 to 5; 0 gives the images back.
        generator: Source of random numbers for the kinds that need them; None takes torch's own.

    Returns:
        Images of the same shape, on the same device.

    Raises:
        ValueError: an unknown kind or severity, values outside [0, 1], no images, or grey ones where colour matters.

    >>> corrupted(torch.full((1, 3, 8, 8), 0.2), "brightness", 1)[0, 0, 0, 0]
    tensor(0.2471)
    """
    corrupt = lookup("corruption", kind, CORRUPTIONS)
    if severity not in range(SEVERITIES + 1):
        raise ValueError(f"severity is {severity}, but must be a whole number from 0 (none) to {SEVERITIES}.")
    if images.ndim != 4 or images.shape[1] not in (1, 3):
        raise ValueError(f"images have shape (N, 1 or 3, height, width), not {tuple(images.shape)}.")
    if len(images) and not (float(images.min()) >= 0 and float(images.max()) <= 1):
        raise ValueError(
            f"images have values from {float(images.min()):.3g} to {float(images.max()):.3g}, not in [0, 1]."
        )
    if not severity or not len(images):
        return images
    x = (255 * images.detach().cpu().double()).round() / 255
    # 1e-6: a value that is a multiple of 1/255 but for rounding is that multiple, not the one below
    found = (255 * corrupt(x, severity - 1, generator).clamp(0, 1) + 1e-6).floor() / 255
    return found.to(images)


def _noise_like(x: Tensor, generator: Generator | None) -> Tensor:
    return torch.randn(x.shape, generator=generator, dtype=x.dtype)


def gaussian_noise(x: Tensor, level: int, generator: Generator | None) -> Tensor:
    """Add normal noise."""
    return x + (0.04, 0.06, 0.08, 0.09, 0.10)[level] * _noise_like(x, generator)


def shot_noise(x: Tensor, level: int, generator: Generator | None) -> Tensor:
    """Count photons."""
    photons = (500, 250, 100, 75, 50)[level]
    return torch.poisson(photons * x, generator) / photons


def impulse_noise(x: Tensor, level: int, generator: Generator | None) -> Tensor:
    """Each value of each channel by itself becomes 0 or 1."""
    share = (0.01, 0.02, 0.03, 0.05, 0.07)[level]
    hit, white = (torch.rand(x.shape, generator=generator, dtype=x.dtype) for _ in range(2))
    return torch.where(hit < share, (white < 0.5).to(x), x)


def speckle_noise(x: Tensor, level: int, generator: Generator | None) -> Tensor:
    """Add normal noise in proportion to the value."""
    return x + (0.06, 0.1, 0.12, 0.16, 0.2)[level] * x * _noise_like(x, generator)


def gaussian_blur(x: Tensor, level: int, generator: Generator | None) -> Tensor:
    """Blur by a Gaussian."""
    return _blurred(x, (0.4, 0.6, 0.7, 0.8, 1.0)[level])


def _blurred(x: Tensor, sigma: float) -> Tensor:
    from scipy import ndimage

    return torch.from_numpy(ndimage.gaussian_filter(x.numpy(), (0, 0, sigma, sigma), mode="nearest", truncate=4.0))


def glass_blur(x: Tensor, level: int, generator: Generator | None) -> Tensor:
    """Blur, let each pixel take the value of a near one, from the lower right to the upper left, and blur again.

    The paper says that pixels are swapped; the published program, and so the published images, copy them.
    """
    sigma, reach, times = ((0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2))[level]
    x = (255 * _blurred(x, sigma) + 1e-6).floor() / 255
    count, height, width = len(x), *x.shape[-2:]
    image = torch.arange(count)
    for _ in range(times):
        for row in range(height - reach, reach, -1):
            for column in range(width - reach, reach, -1):
                # offsets -reach … reach - 1, as published
                across, down = torch.randint(-reach, reach, (2, count), generator=generator)
                x[:, :, row, column] = x[image, :, row + down, column + across]
    return _blurred(x, sigma)


def defocus_blur(x: Tensor, level: int, generator: Generator | None) -> Tensor:
    """A disk, softened by a 3 × 3 Gaussian, with the image mirrored at its edges."""
    radius, softness = ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1.0, 0.2), (1.5, 0.1))[level]
    steps = torch.arange(-2, 3, dtype=x.dtype)
    disk = (steps[:, None] ** 2 + steps**2 <= radius**2).to(x)
    line = torch.exp(-0.5 * (torch.tensor([-1.0, 0.0, 1.0], dtype=x.dtype) / softness) ** 2)
    soft = torch.outer(line, line) / line.sum() ** 2
    kernel = F.conv2d(disk[None, None] / disk.sum(), soft[None, None], padding=1)
    channels = x.flatten(0, 1)[:, None]
    return F.conv2d(F.pad(channels, (2, 2, 2, 2), mode="reflect"), kernel).reshape(x.shape)


def zoom_blur(x: Tensor, level: int, generator: Generator | None) -> Tensor:
    """The mean of the image and of its centre magnified by 1, 1.01, 1.02 and so on."""
    largest = (1.06, 1.11, 1.16, 1.21, 1.26)[level]
    factors = np.arange(1, largest, 0.01)
    return (x + sum(_magnified(x, factor) for factor in factors)) / (1 + len(factors))


def _magnified(x: Tensor, factor: float) -> Tensor:
    height, width = x.shape[-2:]
    kept = [ceil(side / factor) for side in (height, width)]
    top, left = (height - kept[0]) // 2, (width - kept[1]) // 2
    part = x[..., top : top + kept[0], left : left + kept[1]]
    # scipy's zoom of order 1, which the definition uses, keeps the corner pixels in the corners
    size = [round(side * factor) for side in kept]
    large = F.interpolate(part, size=size, mode="bilinear", align_corners=True)
    top, left = (size[0] - height) // 2, (size[1] - width) // 2
    return large[..., top : top + height, left : left + width]


def fog(x: Tensor, level: int, generator: Generator | None) -> Tensor:
    """Add a cloud of random heights, and keep the brightest value."""
    amount, decay = ((0.2, 3.0), (0.5, 3.0), (0.75, 2.5), (1.0, 2.0), (1.5, 1.75))[level]
    height, width = x.shape[-2:]
    brightest = x.amax((1, 2, 3), keepdim=True)
    side = max(32, 1 << (max(height, width) - 1).bit_length())
    plasma = _plasma(len(x), side, decay, generator)[:, None, :height, :width]
    return (x + amount * plasma) * brightest / (brightest + amount)


def _plasma(count: int, side: int, decay: float, generator: Generator | None) -> Tensor:
    """Random heights from 0 to 1 by the diamond-square algorithm on a torus; the side is a power of two."""
    heights = torch.zeros(count, side, side, dtype=torch.float64)
    step, wobble = side, 100.0

    def jittered(total: Tensor) -> Tensor:
        uniform = 2 * torch.rand(total.shape, generator=generator, dtype=total.dtype) - 1
        return total / 4 + wobble**2 * uniform

    while step >= 2:
        half = step // 2
        corners = heights[:, ::step, ::step]
        pairs = corners + corners.roll(-1, 1)
        heights[:, half::step, half::step] = jittered(pairs + pairs.roll(-1, 2))
        centres = heights[:, half::step, half::step]
        rows = centres + centres.roll(1, 1) + corners + corners.roll(-1, 2)
        columns = centres + centres.roll(1, 2) + corners + corners.roll(-1, 1)
        heights[:, ::step, half::step] = jittered(rows)
        heights[:, half::step, ::step] = jittered(columns)
        step, wobble = half, wobble / decay
    heights = heights - heights.amin((1, 2), keepdim=True)
    return heights / heights.amax((1, 2), keepdim=True)


def contrast(x: Tensor, level: int, generator: Generator | None) -> Tensor:
    """Pull the values of each channel to their mean."""
    means = x.mean((-2, -1), keepdim=True)
    return (x - means) * (0.75, 0.5, 0.4, 0.3, 0.15)[level] + means


def brightness(x: Tensor, level: int, generator: Generator | None) -> Tensor:
    """Value, the largest channel, is raised; hue and saturation stay."""
    value = x.amax(1, keepdim=True)
    raised = (value + (0.05, 0.1, 0.15, 0.2, 0.3)[level]).clamp(max=1)
    return torch.where(value > 0, x * raised / value.clamp_min(1e-12), raised)


def saturate(x: Tensor, level: int, generator: Generator | None) -> Tensor:
    """Saturation is changed; hue and value stay. Grey has hue 0, which is red."""
    if x.shape[1] != 3:
        raise ValueError("the corruption 'saturate' needs images of three channels: grey ones have no saturation.")
    factor, offset = ((0.3, 0.0), (0.1, 0.0), (1.5, 0.0), (2.0, 0.1), (2.5, 0.2))[level]
    value = x.amax(1, keepdim=True)
    below = value - x  # = value · saturation · (a part that depends on the hue)
    range_ = below.amax(1, keepdim=True)
    saturation = range_ / value.clamp_min(1e-12)
    part = below / range_.clamp_min(1e-12)
    red = torch.tensor([0.0, 1.0, 1.0], dtype=x.dtype).reshape(1, 3, 1, 1)
    part = torch.where(range_ > 0, part, red)
    return value * (1 - (factor * saturation + offset).clamp(0, 1) * part)


def pixelate(x: Tensor, level: int, generator: Generator | None) -> Tensor:
    """Shrink, and enlarge again, by boxes."""
    share = (0.95, 0.9, 0.85, 0.75, 0.65)[level]
    height, width = x.shape[-2:]
    small = (int(width * share), int(height * share))

    def pixelated(image: np.ndarray) -> np.ndarray:
        require_library("PIL", "corrupted images")
        from PIL import Image

        box = Image.Resampling.BOX
        return np.array(Image.fromarray(image).resize(small, box).resize((width, height), box))

    pixels = (255 * x).round().byte().permute(0, 2, 3, 1).squeeze(3).numpy()
    found = torch.from_numpy(np.stack([pixelated(image) for image in pixels])).reshape(len(x), height, width, -1)
    return found.permute(0, 3, 1, 2) / 255.0


def jpeg_compression(x: Tensor, level: int, generator: Generator | None) -> Tensor:
    """Compress as a JPEG file, and decode it."""
    return as_jpeg((255 * x).round().byte(), (80, 65, 58, 50, 40)[level]).double() / 255


#: Corruptions by their published names: functions of images as float64, the severity less one, and a generator.
CORRUPTIONS: Mapping[str, Callable[[Tensor, int, Generator | None], Tensor]] = {
    corrupt.__name__: corrupt
    for corrupt in (
        gaussian_noise,
        shot_noise,
        impulse_noise,
        speckle_noise,
        gaussian_blur,
        glass_blur,
        defocus_blur,
        zoom_blur,
        fog,
        contrast,
        brightness,
        saturate,
        pixelate,
        jpeg_compression,
    )
}
