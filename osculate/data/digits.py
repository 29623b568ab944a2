"""Data that scikit-learn carries: nothing to download."""

import torch

from osculate.checks import require_library
from osculate.data.dataset import Source, random_test_part
from osculate.data.request import Request

DIGITS_TEST = 600
DIABETES_TEST = 89


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
