"""Small sets: those that scikit-learn carries, and toys in one and two dimensions, generated or from files."""

import numpy as np
import torch
from torch import Tensor

from osculate.checks import require_library
from osculate.data.dataset import Part, Request, Source, columns, random_test_part
from osculate.data.files import read_npz

DIGITS_TEST = 600
DIABETES_TEST = 89

#: Published toys: file in the folder ``toy``, and the arrays that hold inputs and targets, also of a test part.
PUBLISHED = {
    "snelson": ("snelson1d.npz", "X", "y"),
    "agw": ("gap1d.npz", "agw_x", "agw_y"),
    "matern": ("gap1d.npz", "matern_x", "matern_y"),
    "inbetween_axis": ("inbetween2d.npz", "axis_X", "axis_y"),
    "inbetween_origin": ("inbetween2d.npz", "origin_X", "origin_y"),
    "cos3": ("gap1d.npz", "cos3_x_train", "cos3_y_train", "cos3_x_test", "cos3_y_test"),
}

SINE_NOISE = 0.1
SINE_GAP = (-1.0, 1.5)
CUBIC_NOISE = 3.0
CUBIC_SIZE, CUBIC_TEST = 20, 1_000


def digits(request: Request) -> Source:
    """1,797 images of handwritten digits, 8 × 8 pixels, 600 of them (by the seed) for testing.

    Source: scikit-learn; the test part of Alpaydin and Kaynak's optical recognition set (UCI).
    """
    require_library("sklearn", "the digits")
    from sklearn import datasets as sklearn_datasets

    bunch = sklearn_datasets.load_digits()
    images = torch.from_numpy(bunch.images).float()[:, None] / 16
    train, test = random_test_part(images, torch.from_numpy(bunch.target).long(), DIGITS_TEST, request.seed)
    return Source(train, test, tuple("0123456789"))


def diabetes(request: Request) -> Source:
    """Disease progression of 442 patients from ten features; a fifth (by the seed) for testing.

    Source: scikit-learn; Efron, Hastie, Johnstone and Tibshirani (2004).
    """
    require_library("sklearn", "the diabetes data")
    from sklearn import datasets as sklearn_datasets

    x, y = sklearn_datasets.load_diabetes(return_X_y=True)
    train, test = random_test_part(torch.from_numpy(x), torch.from_numpy(y), DIABETES_TEST, request.seed)
    return Source(train, test)


def two_moons(request: Request) -> Source:
    """Two interleaved half circles with noise 0.2: 500 points to train on, 500 to test."""
    require_library("sklearn", "the two moons")
    from sklearn.datasets import make_moons

    x, y = make_moons(1_000, noise=0.2, random_state=request.seed)
    train, test = random_test_part(torch.from_numpy(x), torch.from_numpy(y), 500, request.seed)
    return Source(train, test, ("upper", "lower"))


def sine(request: Request) -> Source:
    """y = sin(x) + 0.1 ε on [-4, 4]: 200 points to train on, none between -1 and 1.5; 200 to test, everywhere.

    A good error bar is wide in the gap, where the test points are and the training points are not.
    """
    generator = torch.Generator().manual_seed(request.seed)
    uniform = torch.rand(200, generator=generator, dtype=torch.float64)
    left, right = SINE_GAP[0] + 4, 4 - SINE_GAP[1]  # lengths of the two stretches with data
    position = uniform * (left + right)
    inside = torch.where(position < left, position - 4, position - left + SINE_GAP[1])
    everywhere = torch.rand(200, generator=generator, dtype=torch.float64) * 8 - 4
    return Source(_noisy_sine(inside, generator), _noisy_sine(everywhere, generator))


def _noisy_sine(x: Tensor, generator: torch.Generator) -> Part:
    noise = torch.randn(len(x), generator=generator, dtype=torch.float64)
    return x[:, None], x.sin() + SINE_NOISE * noise


def cubic_points(random: np.random.Generator, size: int = CUBIC_SIZE) -> tuple[np.ndarray, np.ndarray]:
    """Inputs uniform in [-4, 4], in ascending order, and y = x³ + 3 ε (Hernandez-Lobato and Adams 2015)."""
    x = np.sort(random.uniform(-4, 4, size))
    return x, x**3 + CUBIC_NOISE * random.standard_normal(size)


def cubic(request: Request) -> Source:
    """y = x³ + 3 ε on [-4, 4]: 20 points to train on, 1,000 to test.

    A good error bar is wide beyond the data, where a cubic may be anything.
    """
    random = np.random.default_rng(request.seed)
    sets = [map(torch.from_numpy, cubic_points(random, size)) for size in (CUBIC_SIZE, CUBIC_TEST)]
    train, test = ((x[:, None], y) for x, y in sets)
    return Source(train, test)


def published(name: str, request: Request) -> Source:
    """A published toy from ``toy/*.npz``, a fifth of its points (by the seed) for testing.

    Snelson's set (Snelson and Ghahramani 2006); "agw" (Izmailov et al. 2019) and "matern" (Antoran et al.
    2020) have gaps; the two "inbetween" sets (Foong et al. 2020) have two inputs and two separated clusters. "cos3"
    (Antoran et al. 2020), a cosine with a trend in three clusters, has a test part of its own.
    """
    file, *keys = PUBLISHED[name]
    path = request.find(f"toy/{file}", f"an .npz archive with the arrays {' and '.join(map(repr, keys))}")
    arrays = [torch.from_numpy(array.astype(np.float64)) for array in read_npz(path, *keys)]
    parts = [(columns(x), y) for x, y in zip(arrays[::2], arrays[1::2], strict=True)]
    x, y = parts[0]
    train, test = parts if len(parts) == 2 else random_test_part(x, y, len(x) // 5, request.seed)
    return Source(train, test)
