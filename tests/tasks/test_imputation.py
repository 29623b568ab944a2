"""Imputation: hidden pixels are filled by one network a draw, and errors are those of the hidden pixels."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import osculate as osc
from osculate.autoencoders import ELBO, VAE, Autoencoder, Representation
from osculate.tasks import calibration, imputation, lower_half
from tests.errors import says

SHAPE = (1, 4, 4)
NOISE = osc.likelihoods.Gaussian(0.3)
HALF = lower_half(SHAPE)


def images(n: int = 7, dtype: torch.dtype = torch.double) -> Tensor:
    return torch.rand(n, *SHAPE, dtype=dtype, generator=torch.Generator().manual_seed(0))


def linear(encode: Tensor, decode: Tensor) -> Autoencoder:
    """x ↦ decode · encode · x on flattened images."""
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(16, len(encode), bias=False))
    decoder = nn.Sequential(nn.Linear(len(encode), 16, bias=False), nn.Unflatten(1, SHAPE))
    net = Autoencoder(encoder, decoder).to(encode)
    with torch.no_grad():
        encoder[1].weight.copy_(encode)
        decoder[0].weight.copy_(decode)
    return net


def scaling(factor: float) -> Autoencoder:
    """Every pixel times this."""
    return linear(torch.eye(16).double(), factor * torch.eye(16).double())


def ensemble(*factors: float) -> Representation:
    return Representation(osc.posteriors.Ensemble([scaling(factor) for factor in factors], NOISE))


def gaussian() -> Representation:
    torch.manual_seed(0)
    net, x = Autoencoder(*osc.networks.mlp_coders(SHAPE, 2, (8,))).double(), images()
    return Representation(osc.laplace(net, NOISE, (x, x), structure="diag", prior=30.0, refine=False))


class Brightness(nn.Module):
    """Logits of two classes: is the mean hidden pixel above a half?"""

    def __init__(self, slope: float = 1.0) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(slope, dtype=torch.double))

    def forward(self, x: Tensor) -> Tensor:
        z = self.slope * (x[:, ~HALF].mean(1) - 0.5)
        return torch.stack([-z, z], 1)


def classifier(slope: float = 1.0) -> osc.posteriors.Point:
    return osc.posteriors.Point(Brightness(slope), osc.likelihoods.Categorical())


def test_alternating_projections_find_the_image_that_both_subspace_and_observed_pixels_allow() -> None:
    basis = torch.linalg.qr(torch.randn(16, 3, dtype=torch.double, generator=torch.Generator().manual_seed(1)))[0]
    r = Representation(osc.posteriors.Point(linear(basis.T, basis), NOISE))
    x = (torch.randn(5, 3, dtype=torch.double) @ basis.T).view(5, *SHAPE)
    record = imputation(r, x, HALF, draws=2, rounds=800)
    torch.testing.assert_close(record.images, x.expand(2, *x.shape), atol=1e-8, rtol=0)
    assert record.scores["mse"] < 1e-16
    once = imputation(r, x, HALF, draws=2, rounds=1).scores["mse"]
    assert once > 1e-3
    hidden, seen = basis[:8], basis[8:]
    rate = float(torch.linalg.matrix_norm(hidden @ hidden.T, 2))  # of the error from round to round
    assert float(torch.linalg.matrix_norm(seen @ seen.T, 2)) < 1
    errors = [imputation(r, x, HALF, draws=1, rounds=n, start="mean").scores["mse"] for n in (40, 41)]
    assert errors[1] <= rate**2 * errors[0] * (1 + 1e-6)


def test_each_draw_is_one_network_in_all_rounds_and_for_all_data() -> None:
    factors, x = (0.5, 2.0, -1.0), images()
    record = imputation(ensemble(*factors), x, HALF, draws=3, rounds=3, start="mean", batch_size=2)
    for factor, image in zip(factors, record.images, strict=True):
        expected = torch.where(HALF, x, factor**3 * x[:, HALF].mean())
        torch.testing.assert_close(image, expected)


def test_the_networks_are_those_of_the_generator_whatever_the_start_and_the_batches() -> None:
    r, x = gaussian(), images()
    one = imputation(r, x, HALF, draws=3, generator=torch.Generator().manual_seed(5))
    other = imputation(r, x, HALF, draws=3, generator=torch.Generator().manual_seed(5), batch_size=3)
    torch.testing.assert_close(one.images, other.images)
    mean = imputation(r, x, HALF, draws=3, start="mean", generator=torch.Generator().manual_seed(5))
    same = list(r.networks(3, _after_noise_seed(5)))
    begun = torch.where(HALF, x, x[:, HALF].mean())
    for network, image in zip(same, mean.images, strict=True):
        once = torch.where(HALF, x, network(begun))
        torch.testing.assert_close(image, torch.where(HALF, x, network(once)))
    assert not torch.allclose(one.images[0], one.images[1])


def _after_noise_seed(seed: int) -> torch.Generator:
    generator = torch.Generator().manual_seed(seed)
    torch.randint(2**62, (), generator=generator)
    return generator


def test_noise_has_the_moments_of_the_observed_pixels() -> None:
    x = 3 + 0.5 * torch.randn(200, *SHAPE, dtype=torch.double, generator=torch.Generator().manual_seed(2))
    x[:, ~HALF] = 100.0
    record = imputation(ensemble(1.0, 1.0 + 1e-9), x, HALF, draws=2, rounds=1)
    begun = record.images[:, :, ~HALF]
    assert float(begun.mean()) == pytest.approx(3, abs=0.05)
    assert float(begun.std()) == pytest.approx(0.5, abs=0.05)
    assert not torch.equal(begun[0], begun[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_observed_pixels_are_held_bit_for_bit(dtype: torch.dtype) -> None:
    x = images(dtype=dtype)
    observed = torch.rand(x.shape, generator=torch.Generator().manual_seed(3)) < 0.5
    record = imputation(gaussian(), x, observed, draws=3)
    assert record.images.dtype == dtype
    assert torch.equal(record.images[:, observed], x[observed].expand(3, -1))
    assert torch.equal(record.mean[observed], x[observed])
    assert not record.deviation[observed].any()
    assert bool((record.deviation[~observed] > 0).all())
    assert torch.equal(record.observed, observed)


def test_errors_are_those_of_hidden_pixels_against_the_truth_and_differ_by_the_variance() -> None:
    x = images()
    truth = x.clone()
    record = imputation(ensemble(0.5, 2.0, -1.0), x, HALF, draws=3, start="mean", rounds=1)
    assert torch.equal(x, truth)
    m = float(x[:, HALF].mean())
    values = torch.tensor([0.5, 2.0, -1.0]).double() * m
    hidden = x[:, ~HALF]
    assert record.scores["mse"] == pytest.approx(float((values.mean() - hidden).square().mean()))
    each = [float((value - hidden).square().mean()) for value in values]
    assert record.scores["mse_draw"] == pytest.approx(sum(each) / 3)
    spread = float(record.deviation[:, ~HALF].square().mean())
    assert record.scores["mse_draw"] == pytest.approx(record.scores["mse"] + spread)


def test_missing_values_are_filled_and_only_known_pixels_are_scored() -> None:
    x, r = images(), ensemble(0.5, 2.0)
    whole = imputation(r, x, HALF, draws=2, start="mean", rounds=1)
    holes = x.clone()
    holes[:, 0, 0] = torch.nan
    record = imputation(r, holes, HALF, draws=2, start="mean", rounds=1)
    assert torch.equal(record.images, whole.images)
    known = x[:, 0, 1] - record.mean[:, 0, 1]
    assert record.scores["mse"] == pytest.approx(float(known.square().mean()))
    holes[:, ~HALF] = torch.nan
    unknown = imputation(r, holes, HALF, draws=2, start="mean", rounds=1)
    assert torch.equal(unknown.images, whole.images)
    assert unknown.metrics() == {}


def test_a_mask_that_hides_everything_makes_images_of_noise_alone() -> None:
    r, x = gaussian(), images()
    none = torch.zeros(SHAPE, dtype=torch.bool)
    first, second = (
        imputation(r, data, none, generator=torch.Generator().manual_seed(0)).images for data in (x, x * torch.nan)
    )
    assert torch.equal(first, second)


def test_classes_are_those_of_probabilities_averaged_over_draws() -> None:
    x = images()
    targets = torch.arange(len(x)) % 2
    q = classifier(slope=4.0)
    record = imputation(gaussian(), x, HALF, draws=5, classifier=q, targets=targets, batch_size=3)
    each = torch.stack([osc.predict(q, image).probs for image in record.images])
    assert record.predicted is not None
    assert torch.equal(record.predicted, each.argmax(-1))
    assert record.calibration is not None
    torch.testing.assert_close(record.calibration.probs, each.mean(0))
    expected = float(-each.mean(0).log()[torch.arange(len(x)), targets].mean())
    assert record.scores["nll"] == pytest.approx(expected, rel=1e-5)
    wanted = calibration(q, (x, targets)).metrics().keys() | {"mse", "mse_draw", "modes"}
    assert record.metrics().keys() == wanted


def test_modes_count_the_classes_that_a_datum_shows() -> None:
    x, bright, dark = images(), 0.9, 0.1
    m = float(x[:, HALF].mean())
    factors = {
        1: (bright, bright * 1.01),
        2: (bright, dark),
        math.exp(0.5623351446): (bright, bright * 1.01, 0.95, dark),
    }
    for expected, values in factors.items():
        r = ensemble(*(value / m for value in values))
        record = imputation(r, x, HALF, draws=len(values), rounds=1, start="mean", classifier=classifier())
        assert record.scores["modes"] == pytest.approx(expected)
        assert record.calibration is None
        assert "accuracy" not in record.metrics()


def test_the_classifier_may_sample_its_weights() -> None:
    x = images()
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 3)).double()
    q = osc.laplace(
        net, osc.likelihoods.Categorical(), (x, torch.arange(7) % 3), structure="diag", prior=1.0, refine=False
    )
    record = imputation(gaussian(), x, HALF, draws=2, classifier=q, targets=torch.arange(7) % 3)
    assert record.calibration is not None
    assert record.calibration.probs.shape == (7, 3)


@pytest.mark.parametrize("kind", ["vae", "dropout", "point"])
def test_every_representation_imputes(kind: str) -> None:
    torch.manual_seed(0)
    x = images()
    encoder, decoder = osc.networks.mlp_coders(SHAPE, 2, (8,), codes=2 if kind == "vae" else 1)
    if kind == "dropout":
        decoder = nn.Sequential(nn.Dropout(0.5), decoder)
    net = (VAE if kind == "vae" else Autoencoder)(encoder, decoder).double()
    made: dict[str, Callable[[], Any]] = {
        "vae": lambda: osc.train(ELBO(net, NOISE), (x, x), epochs=1, progress=False),
        "dropout": lambda: osc.posteriors.Dropout(net, NOISE),
        "point": lambda: osc.posteriors.Point(net, NOISE),
    }
    record = imputation(Representation(made[kind]()), x, HALF, draws=4, start="mean")
    assert record.images.shape == (4, *x.shape)
    assert bool((record.deviation[:, ~HALF] > 1e-9).any()) == (kind != "point")


def nan_at(x: Tensor, row: int) -> Tensor:
    x = x.clone()
    x[2, 0, row, 1] = torch.nan
    return x


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"r": osc.posteriors.Point(scaling(1.0), NOISE)}, TypeError, ("Point", "Representation(q)")),
        ({"x": torch.ones(7, *SHAPE, dtype=torch.long)}, TypeError, ("torch.int64", "float()")),
        ({"observed": HALF.long()}, TypeError, ("torch.int64", "dtype=torch.bool")),
        ({"observed": HALF[:, :, :3]}, ValueError, ("(1, 4, 3)", "(7, 1, 4, 4)")),
        ({"x": images()[:0]}, ValueError, ("at least one image",)),
        ({"observed": torch.ones(SHAPE, dtype=torch.bool)}, ValueError, ("hides no pixel",)),
        ({"x": nan_at(images(), 3)}, ValueError, ("nan", "(2, 0, 3, 1)")),
        ({"x": nan_at(images(), 0) * torch.inf}, ValueError, ("inf",)),
        ({"start": "zeros"}, ValueError, ("'zeros'", "'noise'", "'mean'")),
        ({"draws": 0}, ValueError, ("draws must be", "got 0")),
        ({"rounds": 0}, ValueError, ("rounds must be", "got 0")),
        ({"batch_size": 0}, ValueError, ("batch_size must be", "got 0")),
        ({"targets": torch.zeros(7).long()}, ValueError, ("no classifier",)),
        ({"classifier": classifier(), "targets": torch.zeros(3).long()}, ValueError, ("3 targets", "7 images")),
        ({"classifier": osc.posteriors.Point(scaling(1.0), NOISE)}, ValueError, ("Normal", "Categorical")),
        ({"r": ensemble(1e200, 2e200)}, ValueError, ("NaN or infinity in round 2", "temperature")),
    ],
)
def test_what_does_not_fit_is_refused(change: dict, error: type[Exception], words: tuple[str, ...]) -> None:
    arguments = {"r": ensemble(0.5, 2.0), "x": images(), "observed": HALF, **change}
    with pytest.raises(error, match=says(*words)):
        imputation(**arguments)


def test_a_decoder_of_another_shape_is_refused() -> None:
    net = Autoencoder(nn.Sequential(nn.Flatten(), nn.Linear(16, 2)), nn.Linear(2, 16)).double()
    with pytest.raises(ValueError, match=says("(16,)", "(1, 4, 4)")):
        imputation(Representation(osc.posteriors.Point(net, NOISE)), images(), HALF)


def test_the_lower_half_has_the_middle_row() -> None:
    assert lower_half((3, 5, 2))[0, :, 0].tolist() == [False, False, True, True, True]
    with pytest.raises(ValueError, match="rows and columns"):
        lower_half((5,))
