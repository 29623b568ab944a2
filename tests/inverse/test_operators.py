"""Operators: adjoints to rounding, the projector beside ASTRA's, gradients, and errors that help."""

from math import pi
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch
from torch import Tensor

from osculate.inverse import (
    Blur,
    FromFunctions,
    LinearOperator,
    Matrix,
    RayTransform,
    Subsampling,
    from_astra,
    reconstruct,
)
from osculate.inverse.classical import differences, total_variation
from tests.errors import says

#: Numbers of ASTRA 2.5 (CPU projectors) for a smooth image of 28 × 36 pixels, 10 angles and 45 detectors.
ASTRA = Path(__file__).parent / "astra.npz"


def sparse() -> Matrix:
    return Matrix(scipy.sparse.random_array((9, 20), density=0.3, rng=np.random.default_rng(0)), (4, 5), (3, 3))


OPERATORS = {
    "rays": lambda: RayTransform((11, 11), 7),
    "rays over a wide image": lambda: RayTransform((6, 13), [0.1, 1.0, 2.0, 4.0], 9),
    "few detectors": lambda: RayTransform((8, 8), 3, 2),
    "Gaussian blur": lambda: Blur((9, 7), 1.3),
    "lopsided blur": lambda: Blur((6, 8), torch.tensor([[0.1, 0.2, 0.7], [0.0, 1.0, 0.3], [0.5, 0.0, -0.2]])),
    "subsampling": lambda: Subsampling.random((6, 5), 0.4, torch.Generator().manual_seed(0)),
    "dense": lambda: Matrix(torch.randn(4, 12), (3, 4)),
    "sparse": sparse,
    "functions": lambda: FromFunctions(lambda x: x.cumsum(0), lambda y: y.flip(0).cumsum(0).flip(0), (5, 4), (5, 4)),
    "differences": lambda: differences((5, 6)),
}


@pytest.fixture(params=OPERATORS)
def operator(request: pytest.FixtureRequest) -> LinearOperator:
    return OPERATORS[request.param]()


def test_the_adjoint_is_exact(operator: LinearOperator) -> None:
    x = torch.randn(3, *operator.image_shape, dtype=torch.double)
    y = torch.randn(3, *operator.data_shape, dtype=torch.double)
    left, right = (operator(x) * y).sum(), (x * operator.adjoint(y)).sum()
    assert abs(float(left - right)) <= 1e-12 * float(operator(x).norm() * y.norm())


def test_it_is_its_matrix_in_any_type_and_with_any_leading_axes(operator: LinearOperator) -> None:
    matrix = operator.matrix()
    assert matrix.shape == (operator.measurements, operator.pixels)
    x = torch.randn(2, 3, *operator.image_shape)
    wanted = (x.double().flatten(-2) @ matrix.T).reshape(2, 3, *operator.data_shape)
    found = operator(x)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), wanted, atol=1e-4, rtol=1e-4)
    assert operator.norm() == pytest.approx(float(torch.linalg.matrix_norm(matrix, 2)), rel=0.02)


def test_gradients_of_every_order(operator: LinearOperator) -> None:
    x = torch.randn(operator.image_shape, dtype=torch.double, requires_grad=True)
    y = torch.randn(operator.data_shape, dtype=torch.double)
    (slope,) = torch.autograd.grad(0.5 * (operator(x) - y).square().sum(), x, create_graph=True)
    torch.testing.assert_close(slope, operator.adjoint(operator(x) - y))
    (second,) = torch.autograd.grad(slope.sum(), x)
    torch.testing.assert_close(second, operator.adjoint(operator(torch.ones_like(x))))


def test_the_projector_agrees_with_astra() -> None:
    astra = np.load(ASTRA)
    found = RayTransform((28, 36), 10, 45)(torch.from_numpy(astra["image"]))

    def apart(name: str) -> float:
        other = torch.from_numpy(astra[name]).double()
        return float((found - other).norm() / other.norm())

    assert apart("linear") < 1e-5, "the same interpolation"
    assert apart("strip") < 0.01, "rays as wide as a detector, on a smooth image"


def test_astra_itself_where_it_is_installed() -> None:
    astra = pytest.importorskip("astra")
    volume = astra.create_vol_geom(12, 15)
    rays = astra.create_proj_geom("parallel", 1.0, 21, np.linspace(0, np.pi, 6, endpoint=False))
    x = torch.randn(12, 15, dtype=torch.double)
    torch.testing.assert_close(
        from_astra(rays, volume, "linear")(x), RayTransform((12, 15), 6, 21)(x), atol=1e-4, rtol=1e-4
    )
    fan = astra.create_proj_geom("fanflat", 1.0, 21, np.linspace(0, np.pi, 6, endpoint=False), 50.0, 20.0)
    assert from_astra(fan, volume, "line_fanflat").data_shape == (6, 21)
    with pytest.raises(ValueError, match=says("'nonsense'")):
        from_astra(rays, volume, "nonsense")


def test_without_astra_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "astra", None)
    with pytest.raises(ImportError, match=says("osculate[astra]")):
        from_astra({}, {})


def test_rays_measure_the_mass_of_an_image_at_every_angle() -> None:
    y, x = torch.meshgrid(torch.arange(41.0), torch.arange(41.0), indexing="ij")
    blob = torch.exp(-((x - 17).square() + (y - 24).square()) / 40)
    mass = RayTransform((41, 41), 12)(blob).sum(1)
    torch.testing.assert_close(mass, blob.sum().expand(12), rtol=2e-3, atol=0)


def test_rays_turn_with_the_image() -> None:
    image = torch.rand(9, 9)
    turned = RayTransform((9, 9), [0.3 + pi / 2])(image)
    torch.testing.assert_close(turned, RayTransform((9, 9), [0.3])(torch.rot90(image, -1)))


def test_a_wide_blur_takes_no_more_than_the_image_needs() -> None:
    narrow = Blur((5, 4), 30.0)
    assert narrow.kernel.shape == (9, 9)
    profile = torch.exp(-0.5 * (torch.arange(-90.0, 91.0) / 30).square()).double()
    weight = float((profile[90] / profile.sum()) ** 2)
    assert float(narrow(torch.eye(5, dtype=torch.double)[:, :4])[0, 0]) > weight
    assert float(narrow.kernel[4, 4]) == pytest.approx(weight, rel=1e-6)


def test_numbers_and_arrays_of_other_libraries() -> None:
    mask = np.eye(3, dtype=bool)
    assert Subsampling(mask).measurements == 3
    assert Blur((3, 3), np.ones((3, 3)))(torch.ones(3, 3))[1, 1] == 9
    assert RayTransform((8, 8), np.int64(5)).data_shape == RayTransform((8, 8), 5).data_shape
    assert Matrix(torch.eye(4).to_sparse(), (2, 2))(torch.ones(2, 2)).sum() == 4


def test_total_variation_is_the_sum_of_absolute_differences() -> None:
    image = torch.randn(5, 7, dtype=torch.double)
    torch.testing.assert_close(differences((5, 7))(image).abs().sum(), total_variation(image))


def scaled(x: Tensor) -> Tensor:
    return 1.01 * x


class Wrong(LinearOperator):
    def apply(self, images: Tensor) -> Tensor:
        return images.cumsum(1)

    def transpose(self, data: Tensor) -> Tensor:
        return data


BAD = {
    "a class whose transpose is none": (lambda: reconstruct(Wrong((4, 4), (4, 4)), torch.ones(4, 4)), "its adjoint"),
    "an adjoint that is none": (lambda: FromFunctions(scaled, lambda y: y, (3, 3), (3, 3)), "not its adjoint"),
    "a function that is not linear": (lambda: FromFunctions(torch.exp, lambda y: y, (3, 3), (3, 3)), "not linear"),
    "a function of another shape": (
        lambda: FromFunctions(lambda x: x[:2], lambda y: y, (3, 3), (3, 3)),
        "floating-point tensor of shape (3, 3)",
    ),
    "another adjoint shape": (lambda: FromFunctions(lambda x: x, lambda y: y[:1], (3, 3), (3, 3)), "(1, 3)"),
    "a function of NaN": (lambda: FromFunctions(lambda x: x * float("nan"), lambda y: y, (3, 3), (3, 3)), "NaN"),
    "a matrix that does not fit": (lambda: Matrix(torch.zeros(2, 5), (2, 3)), "(2, 6)"),
    "a matrix with NaN": (lambda: Matrix(torch.tensor([[float("nan"), 1.0]]), (1, 2)), "NaN"),
    "a matrix with three axes": (lambda: Matrix(torch.zeros(2, 2, 2), (2, 2)), "two axes"),
    "an image with three axes": (lambda: RayTransform((1, 8, 8), 4), "(H, W)"),
    "an image without pixels": (lambda: Blur((0, 4), 1.0), "side of the image"),
    "an adjoint that is 5 % off": (
        lambda: FromFunctions(lambda x: x, lambda y: 1.05 * y, (300, 300), (300, 300), torch.float32),
        "not its adjoint",
    ),
    "angles that are no whole number": (lambda: RayTransform((8, 8), 20.0), "number of angles"),
    "angles of two axes": (lambda: RayTransform((8, 8), torch.zeros(2, 2)), "one axis"),
    "no angle": (lambda: RayTransform((8, 8), 0), "number of angles"),
    "an angle that is NaN": (lambda: RayTransform((8, 8), [0.0, float("nan")]), "finite"),
    "no detector": (lambda: RayTransform((8, 8), 4, 0), "number of detectors"),
    "an even kernel": (lambda: Blur((8, 8), torch.ones(2, 3)), "odd"),
    "no width": (lambda: Blur((8, 8), 0.0), "standard deviation of a blur"),
    "a mask of numbers": (lambda: Subsampling(torch.ones(3, 3)), "True"),
    "a mask that hides all": (lambda: Subsampling(torch.zeros(3, 3, dtype=torch.bool)), "at least one pixel"),
    "a share above one": (lambda: Subsampling.random((3, 3), 1.5), "share"),
    "another image": (lambda: RayTransform((8, 8), 4)(torch.zeros(9, 8)), "(8, 8)"),
    "another sinogram": (lambda: RayTransform((8, 8), 4).adjoint(torch.zeros(5, 13)), "(4, 13)"),
    "whole numbers": (lambda: RayTransform((8, 8), 4)(torch.zeros(8, 8, dtype=torch.long)), "floating"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_cannot_be_used_is_refused_in_words(what: str) -> None:
    make, words = BAD[what]
    with pytest.raises(ValueError, match=says(words)):
        make()
